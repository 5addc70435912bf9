r"""Usefulness of an answer, by public facts: warnings to the data holder before a draw.

Nothing here reads a record, so a warning does not reveal anything about them.

An answer is compared with the point 0, which costs no privacy. At 0 all margins are 0.
Its mean loss exceeds the minimum by at most the loss at margin 0, if losses are >= 0,
and by at most the Lipschitz constant times the radius.

**Coefficients.** Noise of standard deviation s in each coordinate of the mean gradient
moves the minimizer of a loss with the Hessian H by :math:`H^{-1} s g`, g standard
normal in d coordinates. That adds :math:`s^2 \operatorname{tr} H^{-1}/2 \ge s^2 d^2/(2
\operatorname{tr} H)` to the loss, where :math:`\operatorname{tr} H \le \beta b^2` for
rows of length b and curvature :math:`\beta` of the loss in the margin. With n records,
:math:`s = \Delta \ell b/(n t)`, where :math:`\ell` bounds the loss's derivative, t is
the gdp of the budget, and :math:`\Delta` is 2 if a record is replaced and 1 if its loss
is zeroed. So the noise adds at least :math:`(\Delta \ell d)^2/(2 \beta (n t)^2)` for
any rows. A domain or a ridge that restrains the minimizer reduces the noise, and adds
about as much bias.
"""

import math
import warnings
from dataclasses import replace

import numpy as np

from dpsample.core import check
from dpsample.losses import CalibratedLogistic, CappedLogistic, Custom, Logistic, Loss
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.problem.facts import PublicFacts, smoothness_or_inf

# Coefficients are useless if noise costs this share of the largest excess risk of the
# answer 0. The formula is a lower bound of the cost. With 120 indicators in 3000
# records (epsilon = 1, share 0.33) private fits kept a quarter of the gain of the best
# model over the answer 0. With 60 (0.08) they kept two thirds.
NOISE_SHARE = 0.25
# Fewer records are an example of the format, from which no answer is expected.
MIN_RECORDS = 10


def loss_of_zero(facts: PublicFacts) -> float:
    """Return the largest excess risk of the point 0, infinite if nothing bounds it."""
    if _is_unknown(facts.loss):
        return math.inf
    bound = 1.0 if facts.response_bound is None else facts.response_bound
    if facts.loss.is_classification:
        bound = 1.0
    if not math.isfinite(bound):
        return math.inf
    # Losses that can be negative, as the linear one, are so at one of these margins.
    ends = np.array([-bound, bound])
    loss_at_zero = float(facts.loss.value(np.zeros(2), ends).max())
    reach = min(facts.margin_bound, 1e100)
    margins, responses = np.meshgrid([-reach, 0.0, reach], ends)
    with np.errstate(over="ignore"):
        is_positive = bool((facts.loss.value(margins, responses) >= 0.0).all())
    with np.errstate(invalid="ignore"):
        by_radius = facts.lipschitz_or_inf(2.0) * facts.radius
    return min(loss_at_zero if is_positive else math.inf, by_radius)


def mean_loss_of_zero(facts: PublicFacts) -> float:
    """Return the mean loss at margin 0 over all public responses.

    These are both labels, or an even grid over the range of real responses, [-1, 1] if
    no bound is declared. The mean is infinite if the range is, or if the loss has no
    values here.
    """
    unit = facts.response_bound or 1.0
    if _is_unknown(facts.loss) or math.isinf(unit):
        return math.inf
    responses = np.linspace(-unit, unit, 2 if facts.loss.is_classification else 1001)
    return float(facts.loss.value(np.zeros_like(responses), responses).mean())


def _is_unknown(loss: Loss) -> bool:
    """Return whether a loss has no values here, because only bounds are declared."""
    is_declared = isinstance(loss, Custom) and loss.functions is None
    return is_declared or not loss.has_margin


def gradient_noise_cost(
    facts: PublicFacts, budget: Budget, *, lipschitz: float, reach: float
) -> float:
    """Return s sqrt(d) reach, the effect of gradient noise over this distance."""
    if budget.delta == 0.0:
        return math.nan
    gdp = gdp_from_budget(budget.epsilon, budget.delta)
    noise = SHIFTS[budget.relation] * lipschitz / (facts.num_records * gdp)
    with np.errstate(invalid="ignore"):
        return noise * math.sqrt(facts.dim) * reach


def max_coefficients(facts: PublicFacts, budget: Budget) -> float:
    """Return the largest number of coefficients whose noise is within `NOISE_SHARE`.

    It is infinite where the formula has no value, that is for unbounded derivatives,
    losses without curvature and pure budgets.
    """
    if isinstance(facts.loss, CalibratedLogistic | CappedLogistic):
        facts = replace(facts, loss=Logistic())  # which estimates the same odds
    lipschitz, curvature = facts.lipschitz_or_inf(2.0), smoothness_or_inf(facts)
    zero_loss = loss_of_zero(facts)
    if not (math.isfinite(lipschitz + zero_loss) and budget.delta > 0.0):
        return math.inf
    if math.isinf(curvature):
        # A non-differentiable point counts as a bend of half the bound of responses.
        curvature = lipschitz**2 / (0.5 * (facts.response_bound or 1.0))
    if curvature == 0.0:
        return math.inf
    noise = gradient_noise_cost(facts, budget, lipschitz=lipschitz, reach=1.0)
    scale = math.sqrt(facts.dim)  # `noise` includes this factor
    return scale * math.sqrt(2.0 * NOISE_SHARE * zero_loss * curvature) / noise


def reservations(
    facts: PublicFacts, budget: Budget, risk_bound: float
) -> tuple[str, ...]:
    """Return the reasons why an answer would be useless, each with its remedy.

    ``risk_bound`` bounds the excess risk of the answer. It is NaN or infinite if it is
    not known.
    """
    if facts.num_records < MIN_RECORDS:
        return ()
    reasons, zero_loss = [], loss_of_zero(facts)
    if zero_loss < risk_bound < math.inf:  # the answer 0 costs no privacy
        reasons.append(
            f"noise may cost {risk_bound:.3g} in mean loss, and the answer 0 at most "
            f"{zero_loss:.3g}, so an answer may be worse than 0. Use "
            f"{_smaller(facts, zero_loss / risk_bound)}, more records or a larger "
            "epsilon."
        )
    max_dim = max_coefficients(facts, budget)
    if facts.dim > max_dim:
        reasons.append(
            f"{facts.num_records} records support about {math.floor(max_dim)} "
            f"coefficients at this budget, but there are {facts.dim}, so noise "
            "dominates the answer. Merge rare levels, drop columns, or use more "
            "records or a larger epsilon."
        )
    return tuple(f"Public facts show that {reason}" for reason in reasons)


def _smaller(facts: PublicFacts, share: float) -> str:
    """Return the advice on the domain. The bound grows at least in proportion to it."""
    if facts.domain.lp_exponent is None:
        return "a smaller domain"
    return f"a radius below {share * facts.domain.ball_radius:.2g}"


def warn_if_useless(facts: PublicFacts, budget: Budget, risk_bound: float) -> None:
    """Warn if public facts show that an answer is useless, before anything is spent."""
    # The reservations are stored in the facts, because a draw may take less time than
    # to compute them again.
    stored: dict[tuple[Budget, float], tuple[str, ...]]
    stored = vars(facts).setdefault("_reservations", {})
    if (budget, risk_bound) not in stored:
        stored[budget, risk_bound] = reservations(facts, budget, risk_bound)
    for text in stored[budget, risk_bound]:
        warnings.warn(text, UserWarning, stacklevel=check.user_stack_level())
