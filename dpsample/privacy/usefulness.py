r"""Usefulness of an answer, by public facts: what the data holder hears before a draw.

Nothing here reads a record, so a warning tells nothing about them.

An answer is compared with the point 0, which costs no privacy. Its loss is that of the
margin 0, and it exceeds the least one by at most that, or by the Lipschitz constant
times the radius.

**Coefficients.** Noise of standard deviation s in each coordinate of the mean gradient
moves the minimizer of a loss with the Hessian H by :math:`H^{-1} s g` and costs
:math:`s^2 \operatorname{tr} H^{-1}/2 \ge s^2 d^2/(2 \operatorname{tr} H)`, where
:math:`\operatorname{tr} H \le \beta b^2` for rows of length b. With :math:`s = \Delta
\ell b/(n t)`, l the slope bound and t the budget's gdp, that is :math:`(\Delta \ell
d)^2/(2 \beta (n t)^2)`, whatever the rows. A domain or a ridge that holds the minimizer
back costs less noise, and as much bias.
"""

import math
import warnings
from dataclasses import replace

import numpy as np

from dpsample.core import check
from dpsample.domains import Ball
from dpsample.losses import (
    CalibratedLogistic,
    CappedLogistic,
    Custom,
    Logistic,
    Loss,
    RecordGradient,
)
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.problem.facts import PublicFacts, smoothness_or_inf

# Excess risk, in units of what the answer 0 can lose, from which an answer is useless:
# who publishes 0 loses no more.
USELESS_SHARE = 1.0
# The same of the noise in the coefficients, for which the formula above is a lower
# bound. With 120 indicators in 3000 records (epsilon = 1, share 0.33) private fits kept
# a quarter of what the best model gains on the answer 0; with 60 (0.08), two thirds.
NOISE_SHARE = 0.25
# Fewer records are an example of the format, from which nobody expects an answer.
MIN_RECORDS = 10
# Kinks count as curvature l^2/w, w this share of the responses' bound: half a margin of
# labels.
KINK_WIDTH = 0.5
SHIFTS = {"replace_one": 2.0, "zero_out": 1.0}


def loss_of_zero(facts: PublicFacts) -> float:
    """Largest excess risk that the point 0 can have; infinite if nothing bounds it."""
    if _is_unknown(facts.loss):
        return math.inf
    bound = 1.0 if facts.response_bound is None else facts.response_bound
    if facts.loss.is_classification:
        bound = 1.0
    if not math.isfinite(bound):
        return math.inf
    ends = np.array([-bound, bound])
    highest = float(facts.loss.value(np.zeros(2), ends).max())
    reach = min(facts.margin_bound, 1e100)
    margins, responses = np.meshgrid([-reach, 0.0, reach], ends)
    with np.errstate(over="ignore"):
        is_positive = bool((facts.loss.value(margins, responses) >= 0.0).all())
    with np.errstate(invalid="ignore"):
        by_slope = facts.lipschitz_or_inf(2.0) * facts.radius
    return min(highest if is_positive else math.inf, by_slope)


def _is_unknown(loss: Loss) -> bool:
    """Return whether a loss has no values: a file declares it, or its gradient."""
    is_read = isinstance(loss, Custom) and loss.functions is None
    return is_read or isinstance(loss, RecordGradient)


def gradient_noise_cost(
    facts: PublicFacts, budget: Budget, *, lipschitz: float, reach: float
) -> float:
    """Bound of what noise in gradients costs along so long a way: s sqrt(d) reach."""
    if budget.delta == 0.0:
        return math.nan
    gdp = gdp_from_budget(budget.epsilon, budget.delta)
    noise = SHIFTS[budget.relation] * lipschitz / (facts.num_records * gdp)
    with np.errstate(invalid="ignore"):
        return noise * math.sqrt(facts.dim) * reach


def max_coefficients(facts: PublicFacts, budget: Budget) -> float:
    """Largest number of coefficients whose noise costs at most `NOISE_SHARE`.

    Infinite where the formula has no number: unbounded slopes, no curvature, no delta.
    """
    if isinstance(facts.loss, CalibratedLogistic | CappedLogistic):
        facts = replace(facts, loss=Logistic())  # it tells the same odds
    lipschitz, curvature = facts.lipschitz_or_inf(2.0), smoothness_or_inf(facts)
    zero_loss = loss_of_zero(facts)
    if not (math.isfinite(lipschitz + zero_loss) and budget.delta > 0.0):
        return math.inf
    if math.isinf(curvature):
        curvature = lipschitz**2 / (KINK_WIDTH * (facts.response_bound or 1.0))
    if curvature == 0.0:
        return math.inf
    noise = gradient_noise_cost(facts, budget, lipschitz=lipschitz, reach=1.0)
    scale = math.sqrt(facts.dim)  # the noise of the whole gradient has this size
    return scale * math.sqrt(2.0 * NOISE_SHARE * zero_loss * curvature) / noise


def reservations(
    facts: PublicFacts, budget: Budget, risk_bound: float
) -> tuple[str, ...]:
    """Return what makes an answer useless, each with its remedy.

    ``risk_bound`` bounds the excess risk of the answer; NaN or infinite if it is not
    known.
    """
    if facts.num_records < MIN_RECORDS:
        return ()
    reasons, zero_loss = [], loss_of_zero(facts)
    if USELESS_SHARE * zero_loss < risk_bound < math.inf:
        reasons.append(
            f"noise may cost {risk_bound:.3g} in mean loss, and the answer 0 at most "
            f"{zero_loss:.3g}: an answer may be worse than 0. Use "
            f"{_smaller(facts, zero_loss / risk_bound)}, more records or a larger "
            "epsilon."
        )
    max_dim = max_coefficients(facts, budget)
    if facts.dim > max_dim:
        reasons.append(
            f"{facts.num_records} records tell about {math.floor(max_dim)} "
            f"coefficients at this budget, and there are {facts.dim}: noise rules the "
            "answer. Merge rare levels, drop columns, or use more records or a larger "
            "epsilon."
        )
    return tuple(f"Public facts show that {reason}" for reason in reasons)


def _smaller(facts: PublicFacts, share: float) -> str:
    """Advice on the domain: the bound grows with it, at least in proportion."""
    if not isinstance(facts.domain, Ball):
        return "a smaller domain"
    return f"a radius below {share * facts.domain.radius:.2g}"


def warn_if_useless(facts: PublicFacts, budget: Budget, risk_bound: float) -> None:
    """Warn of what public facts show, before anything is spent."""
    # The facts keep what was found: a draw may take less time than to find it again.
    kept: dict[tuple[Budget, float], tuple[str, ...]]
    kept = vars(facts).setdefault("_reservations", {})
    if (budget, risk_bound) not in kept:
        kept[budget, risk_bound] = reservations(facts, budget, risk_bound)
    for text in kept[budget, risk_bound]:
        warnings.warn(text, UserWarning, stacklevel=check.user_stack_level())
