"""Noisy regularized mirror descent for p < 2, phased SGD for p >= 2."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import expit

import dpsample as dps
from dpsample.experiments import Figure, Inapplicable, Metric, Slope, Study
from dpsample.numerics.norms import dual
from dpsample.privacy import epsilon_of
from dpsample.problem.facts import PublicFacts

from ._lp_rows import rows

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
DISTANCE = 3.0  # l_p norm of the minimizer, which is public
TEST_ROWS = 2000
SIZES, DIMS, LARGE = (10_000, 30_000, 100_000), (10, 30, 100, 300), 300_000
LOW = (1.2, 1.5, 2.0)


@cache
def facts(p, dim, num_records):
    """Logistic losses of rows in the unit ball of l_q: L = 1, beta = 1/4 in l_p."""
    return PublicFacts(
        num_records=num_records,
        dim=dim,
        loss=dps.losses.Logistic(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        row_norm=dual(p),
    )


@cache
def plan(method, p, dim, num_records):
    """Optimizer, the budget and calibration it runs with, and the bound of its risk."""
    known, given = facts(p, dim, num_records), (BUDGET, "exact")
    if method == "phased":  # for p < 2 in the l_2 norm, which is smaller
        optimizer = dps.optimizers.PhasedSGD(p=max(p, 2.0), distance=DISTANCE)
    elif method == "printed":
        optimizer = dps.optimizers.NoisyMirrorDescent(p=p, distance=DISTANCE)
        return optimizer, (nominal(optimizer, known), "paper"), math.inf
    else:
        noise = {"Gaussian": "gaussian"}.get(method, "generalized_gaussian")
        optimizer = dps.optimizers.NoisyMirrorDescent(
            p=p, distance=DISTANCE, noise=noise
        )
    return optimizer, given, optimizer.risk_bound(known, BUDGET)


def nominal(optimizer, known):
    """Budget that the printed formula has to be given to spend the true one."""
    low, high = 0.1, 100.0
    while high > low * (1.0 + 1e-6):
        middle = math.sqrt(low * high)
        asked = dps.Budget(epsilon=middle, delta=BUDGET.delta)
        event = optimizer.recipe(known, asked, "paper").event
        spent = epsilon_of(event, delta=BUDGET.delta, relation=BUDGET.relation)
        low, high = (middle, high) if spent <= BUDGET.epsilon else (low, middle)
    return dps.Budget(epsilon=low, delta=BUDGET.delta)


def plan_arguments(params):
    """Arguments of `plan`."""
    return params["method"], params["p"], params["d"], params["n"]


def minimizer(params):
    """Point of l_p norm DISTANCE: along e_1, or all coordinates alike for p > 2."""
    p, dim = params["p"], params["d"]
    if p > 2.0:
        return np.full(dim, DISTANCE * dim ** (-1.0 / p))
    theta = np.zeros(dim)
    theta[0] = DISTANCE
    return theta


def draw(params, num_records, rng):
    """Rows of l_q norm 1: coordinate vectors for p > 2."""
    if params["p"] <= 2.0:
        return rows(params["p"], params["d"]).draw(num_records, rng)
    found = np.zeros((num_records, params["d"]))
    found[np.arange(num_records), rng.integers(params["d"], size=num_records)] = 1.0
    return found


def excess(params, theta, rng):
    """Excess population risk: E KL(P(y | a) at the minimizer, at theta), on new rows.

    It is an exact sum for coordinate rows, and else unbiased and of little variance.
    """
    is_exact = params["p"] > 2.0
    test = np.eye(params["d"]) if is_exact else draw(params, TEST_ROWS, rng)
    true, margins = test @ minimizer(params), test @ theta
    change = np.logaddexp(0.0, margins) - np.logaddexp(0.0, true)
    return float(np.mean(change - expit(true) * (margins - true)))


def cell(params, seed):
    """One run on fresh records."""
    rng, known = np.random.default_rng(seed), facts(*plan_arguments(params)[1:])
    features = draw(params, params["n"], rng)
    chances = expit(features @ minimizer(params))
    problem = dps.Problem(
        features,
        np.where(rng.random(params["n"]) < chances, 1.0, -1.0),
        loss=known.loss,
        domain=known.domain,
        row_bound=known.row_bound,
        row_norm=known.row_norm,
    )
    optimizer, (budget, calibration), _ = plan(*plan_arguments(params))
    fit = dps.minimize(
        problem, optimizer, budget, calibration=calibration, seed=seed.spawn(1)[0]
    )
    found = {
        "risk": excess(params, fit.theta, rng),
        "nothing": excess(params, np.zeros(params["d"]), rng),
    }
    return found | ({"nominal": budget.epsilon} if calibration == "paper" else {})


def bound(params):
    """Proved bound; none of the printed steps (gamma = beta leaves no slack)."""
    return plan(*plan_arguments(params))[2]


def dimension_exponent(params):
    """Power of d in L D sqrt(d), in l_2."""
    p = params["p"]
    return 0.5 + abs(0.5 - 1.0 / p)


study = Study(
    name="mirror_descent",
    title="Mirror descent without constraints",
    question=(
        "Su, Zhao and Wang, Section 5.1, at a proved (1, 1e-6), replace one: logistic"
        " losses, L = 1, beta = 1/4 in l_p, a minimizer of l_p norm 3. Noisy"
        " regularized mirror descent for p <= 2, with Gaussian or generalized Gaussian"
        " noise and the schedule of the proved bound, or as printed, at the nominal"
        " epsilon of which 1 is proved. Phased SGD, meant for p >= 2, runs for p < 2"
        " as well: there L grows to d^(1/p - 1/2) in l_2. Is the risk below the bound,"
        " does it fall as fast, and what is the geometry worth? ('nothing' is theta ="
        " 0.)"
    ),
    answer=(
        "The algorithm of Theorem 7 loses to Euclidean phased SGD even for p < 2: at p"
        " = 1.2, d = 10 its risk is 0.184 against 0.014 at n = 10^4 and 0.041 against"
        " 0.0002 at 3*10^5; they meet near d = 300. With our schedule slopes in n are"
        " -0.44 to -0.57 (theory -0.4); as printed -0.13 to -0.19, because the ridge"
        " holds the answer near 0. The printed noise at nominal epsilon 3.4 to 3.5"
        " proves 1. Gaussian noise is never clearly worse than generalized Gaussian"
        " noise. Slopes in d larger than the bound's are at risks far below it, which"
        " go with the noise's variance."
    ),
    grid=(
        {
            "method": ("Gaussian", "printed"),
            "p": LOW,
            "d": 10,
            "n": (*SIZES, LARGE),
        },
        {"method": "phased", "p": (*LOW, math.inf), "d": 10, "n": (*SIZES, LARGE)},
        {"method": ("Gaussian", "printed"), "p": LOW, "d": DIMS[1:], "n": SIZES[0]},
        {"method": "generalized", "p": LOW, "d": DIMS[1:], "n": SIZES[0]},
        {"method": "phased", "p": (*LOW, math.inf), "d": DIMS[1:], "n": SIZES[0]},
    ),
    quick=(
        {
            "method": ("Gaussian", "generalized", "printed", "phased"),
            "p": (1.2, 2.0),
            "d": 10,
            "n": (3000, 30_000),
        },
        {"method": "phased", "p": math.inf, "d": (10, 30), "n": 3000},
    ),
    replicates=lambda p: {SIZES[2]: 12, LARGE: 4}.get(p["n"], 20),
    quick_replicates=6,
    cell=cell,
    metrics=(
        Metric("risk", label="excess population risk", bound=bound, baseline="nothing"),
        Metric("nothing", label="excess risk of theta = 0"),
        Metric("nominal", label="nominal epsilon of a proved 1", kind="exact"),
    ),
    figures=(
        Figure(
            x="n",
            y="risk",
            lines="method",
            panels="p",
            where={"d": 10},
            x_label="number of records n",
            title="Excess risk over the records, d = 10",
        ),
        Figure(
            x="d",
            y="risk",
            lines="method",
            where={"n": SIZES[0], "p": 1.2},
            x_label="dimension d",
            title="p = 1.2, n = 10 000",
        ),
    ),
    slopes=(
        Slope(
            x="n",
            y="risk",
            where={"method": "Gaussian", "d": 10},
            expected=-0.4,
            theorem="Theorem 7",
            note=(
                "At few records the bound exceeds the risk of theta = 0, which caps the"
                " risk."
            ),
        ),
        Slope(
            x="n",
            y="risk",
            where={"method": "printed", "d": 10},
            expected=-0.4,
            theorem="Theorem 7",
            note=(
                "The printed ridge 4 beta log2(n/T)/T, T of some ten steps, still holds"
                " the output near 0: the rate is that of larger n."
            ),
        ),
        Slope(
            x="n",
            y="risk",
            where={"method": "phased", "d": 10},
            expected=-0.5,
            theorem="Theorem 8",
        ),
        Slope(
            x="d",
            y="risk",
            where={"method": "Gaussian", "n": SIZES[0]},
            expected=0.2,
            theorem="Theorem 7, kappa aside",
        ),
        Slope(
            x="d",
            y="risk",
            where={"method": "phased", "n": SIZES[0]},
            expected=dimension_exponent,
            theorem="Theorem 8, privacy term",
            note=(
                "Far below the bound the risk is quadratic in the noise, of the order"
                " of d times its variance; the bound grows as its root."
            ),
        ),
    ),
    inapplicable=(
        Inapplicable(
            when=lambda p: p["method"] == "printed",
            reason="gamma = beta leaves no slack for the noise (gradient-E2)",
            metrics=("risk",),
        ),
    ),
)
