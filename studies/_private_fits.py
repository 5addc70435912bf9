"""Private logistic regression by every method, its knobs from public facts alone.

The rules are those of the bounds on the excess risk. What looks at the records (tuned)
is not private, and is named so.
"""

import math
import warnings
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import dpsample as dps
from dpsample.privacy import calibrate
from dpsample.problem.facts import PublicFacts

from ._real_records import LOSSES, RADIUS
from ._tuning import search_grid

DELTA = 1e-6
SMOOTHNESS = 0.25  # of the logistic loss of a row of norm 1
SHARE = 0.1  # of delta, for the sampler
LEAST_RATE, LEAST_BATCH = 0.02, 250
FIRST_STEPS, DOUBLINGS = 125, 7
o = dps.optimizers


class Plan(NamedTuple):
    """A verb, what it gets besides records, and a proved bound of its excess risk."""

    verb: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    bound: float


def _minimization(optimizer, budget, bound):
    return Plan(dps.minimize, (optimizer, budget), {}, float(bound))


def budget_of(epsilon):
    """Budget for replacing one record."""
    return dps.Budget(epsilon=epsilon, delta=DELTA)


@cache
def facts_of(n, d, loss="logistic"):
    """Return what is public of every data set here."""
    loss_object = LOSSES[loss]
    return PublicFacts(
        num_records=n,
        dim=d,
        loss=loss_object,
        domain=dps.domains.Ball(RADIUS),
        row_bound=1.0,
        row_norm=2.0,
        response_bound=None if loss_object.is_classification else 1.0,
    )


@cache
def release(n, d, epsilon, loss="logistic"):
    """`dps.release`; the sampler's distance gamma moves a mean by the range at most."""
    options = {"risk": "empirical", "sampler_share": SHARE}
    plan = calibrate(facts_of(n, d, loss), budget_of(epsilon), **options)
    bound = plan.risk_bound + 2.0 * RADIUS * plan.gamma
    return Plan(dps.release, (budget_of(epsilon),), options, bound)


def _best_ridge(method, n, d, epsilon, factor=1.0):
    """Ridge that minimizes the bound, times a factor, and the bound at it.

    A small ridge leaves half of epsilon for the noise, not for the Jacobian.
    """
    given = facts_of(n, d), budget_of(epsilon)
    ridge = method.recipe(*given).inputs["ridge"]
    if factor != 1.0:
        min_ridge = SMOOTHNESS / (2.0 * n * math.expm1(0.5 * epsilon))
        ridge = max(factor * ridge, min_ridge)
    method = replace(method, ridge=ridge)
    return _minimization(method, given[1], method.recipe(*given).inputs["risk_bound"])


@cache
def objective(n, d, epsilon, factor=1.0):
    """Objective perturbation; the exact version is the approximate one at 1 %."""
    return _best_ridge(o.ObjectivePerturbation(risk="empirical"), n, d, epsilon, factor)


@cache
def output(n, d, epsilon, factor=1.0):
    """Regularized minimizer and Gaussian noise."""
    return _best_ridge(o.SVRG(risk="empirical"), n, d, epsilon, factor)


def _descent(n, d, epsilon, steps, size=None):
    """DP-SGD of so many steps, at the step size of the better of its two bounds.

    For a smooth loss 1/eta = beta + s, s = sqrt(T V)/D, gives beta D^2/(2T) + s D^2/T,
    V a bound of the mean square of a step's error: its noise, and the sample's.
    """
    rate = min(1.0, max(LEAST_RATE, LEAST_BATCH / n))
    facts, budget = facts_of(n, d), budget_of(epsilon)
    method = o.DPSGD(sampling_rate=rate, num_steps=steps, step_size=size)
    if size is not None:
        return _minimization(method, budget, method.risk_bound(facts, budget))
    general = method.risk_bound(facts, budget)
    noise = float(method.recipe(facts, budget).inputs["noise_stddev"])
    error = d * noise**2 + (1.0 - rate) / (rate * n)
    slope = math.sqrt(steps * error) / RADIUS
    smooth = RADIUS**2 / steps * (0.5 * SMOOTHNESS + slope)
    if general <= smooth:
        return _minimization(method, budget, general)
    size = 1.0 / (SMOOTHNESS + slope)
    return _minimization(replace(method, step_size=size), budget, smooth)


@cache
def descent(n, d, epsilon):
    """DP-SGD; steps are doubled until the bound falls by less than a tenth."""
    best = _descent(n, d, epsilon, FIRST_STEPS)
    for i in range(1, DOUBLINGS):
        longer = _descent(n, d, epsilon, FIRST_STEPS * 2**i)
        if longer.bound > 0.9 * best.bound:
            break
        best = longer
    return best


def advice_by_method(n, d, epsilon, loss="logistic"):
    """Rows of the advice by method and loss, the chosen one as "dps.advise"."""
    table = dps.advise(facts_of(n, d, loss), budget_of(epsilon)).table
    rows = {(row.method, row.loss.name): row for row in reversed(table)}
    return rows | {"dps.advise": table[0]}


# Where the search for the best begins, in units of what the rules say, but for the
# number of steps of DP-SGD.
TUNED = {
    "objective perturbation, tuned": (objective, (1.0,)),
    "output perturbation, tuned": (output, (1.0 / 16.0,)),
    "DP-SGD, tuned": (_descent, (500.0, 4.0)),
}
FACTOR, TRIES = 4.0, 9


def best_plan(method, n, d, epsilon, score):
    """Plan of the least score on a grid that is widened until it is inside; tries."""
    plan, starts = TUNED[method]

    def build_fit(first, *others):
        first = round(first) if plan is _descent else first
        return plan(n, d, epsilon, first, *others)

    factors = (FACTOR,) * len(starts)
    search = search_grid(
        lambda *point: score(build_fit(*point)), starts, factors, TRIES
    )
    return build_fit(*search[0]), search[2], search[3]


# diffprivlib.models.LogisticRegression without intercept, |x| <= 1, minimizes
# F(w) + <b, w>/n + |w|^2/(2 C n) + Delta |w|^2/2 with a density of b proportional to
# exp(-e'|b|/2) (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2). Replacing a
# record moves b by at most 2, and the determinant of its Jacobian, at least a = 1/C +
# n Delta in each direction, by a factor of at most 1 + 1/(4a): one rank-one term comes
# and one goes, so the theorem's square is not needed, and e' + log(1 + 1/(4a)) is what
# is true. With an intercept nothing is proved: it has no ridge.


def epsilon_to_pass(epsilon, ridge):
    """Epsilon to pass so that the proved one is ``epsilon``; ridge is 1/C."""
    factor = math.log1p(SMOOTHNESS / ridge)
    if epsilon > factor:
        return epsilon + factor
    # It then adds Delta: a = 1/(4 (e^{s/4} - 1)), e' = s/2, so 3/4 of s are true.
    return 4.0 / 3.0 * epsilon


@cache
def best_ridge(d, epsilon):
    """1/C = a that minimizes a M^2/(2n) + E|b|^2/(2 a n), E|b|^2 = d (d+1) (2/e')^2."""

    def cost(ridge):
        left = epsilon - math.log1p(SMOOTHNESS / ridge)
        if left <= 0.0:
            return math.inf
        return ridge * RADIUS**2 + d * (d + 1.0) * (2.0 / left) ** 2 / ridge

    return min(np.geomspace(1e-4, 1e6, 1001).tolist(), key=cost)


def diffprivlib(rows, y, epsilon, ridge, seed):
    """Fit by diffprivlib, which has no domain."""
    model = import_module("diffprivlib.models").LogisticRegression(
        epsilon=epsilon_to_pass(epsilon, ridge),
        C=1.0 / ridge,
        data_norm=1.0,
        fit_intercept=False,
        tol=1e-9,
        max_iter=10_000,
        random_state=np.random.RandomState(np.random.MT19937(seed)),
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return model.fit(rows, y).coef_[0]
