r"""The verb before the others: which method for a problem, from public facts alone.

Noise of one mean gradient asks for the ridge :math:`m_0` of
`dpsample.optimizers.loop.noisy_descent.noise_ridge`; the loss has curvature beta. Their
ratio :math:`x = \beta/m_0`, which grows like n t M/sqrt(d), decides.
``studies/which_method.py`` has 80 cells in which the rule was found and tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.losses import (
    CalibratedLogistic,
    CappedLogistic,
    Logistic,
    Loss,
    Squared,
)
from dpsample.optimizers import AdaSSP, NoisyGD, ObjectivePerturbation
from dpsample.optimizers.algorithms.ada_ssp import MOST_DIM
from dpsample.optimizers.loop.noisy_descent import (
    DescentScales,
    noise_ridge,
    public_ridge,
    scales_of,
)
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.privacy import Budget, calibrate
from dpsample.privacy.budget import check_not_pure
from dpsample.privacy.usefulness import warn_if_useless
from dpsample.problem.facts import PublicFacts, smoothness_or_inf
from dpsample.problem.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

CAP = 0.5  # of the slope of the logistic loss
# And up to which a binding ball is worth the capped loss's bias.
UNCLEAR = 500.0
RELEASE: Literal["release"] = "release"
SHARE = 0.1  # of delta, for the release's sampler: its default
MOST_EXPONENT = 700.0  # of doubles


class Candidate(NamedTuple):
    """One method with all its numbers, from public facts.

    Attributes
    ----------
    method : str
        "tail", "scaled", "objective", "average", "normal_equations" or "release".
    choice : Optimizer or "release"
        For `dpsample.minimize`; or the name of the verb.
    loss : Loss
        Loss to fit, the problem's or one with smaller slopes.
    risk_bound : float
        Proved bound of the mean excess empirical risk in that loss; infinity if none
        is proved.
    noise : float
        Standard deviation in each coordinate of what the whole run adds to the mean
        gradient, at 0 for normal equations; NaN for a draw, which is random itself.
    passes : float
        Over the records; NaN where that depends on the records.
    """

    method: str
    choice: Optimizer | Literal["release"]
    loss: Loss
    risk_bound: float
    noise: float
    passes: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Advice:
    """A method, the reason for it, and what else there is.

    Attributes
    ----------
    choice : Optimizer or "release"
        What to pass to `dpsample.minimize`; or the word for `dpsample.release`.
    loss : Loss
        Loss to build the problem with: the given one, or one with smaller slopes.
    reason : str
        Why, in words.
    table : tuple of Candidate
        Every method that serves the problem, the chosen one first.
    """

    choice: Optimizer | Literal["release"]
    loss: Loss
    reason: str
    table: tuple[Candidate, ...]

    def to_frame(self) -> pd.DataFrame:
        """Table with a row for every method, the chosen one first.

        Returns
        -------
        DataFrame
            Columns as the fields of a `Candidate`.
        """
        import pandas as pd

        return pd.DataFrame(self.table, columns=list(Candidate._fields))

    def __repr__(self) -> str:
        """Choice, reason and table."""
        lines = [f"Advice(choice={self.choice!r}, loss={self.loss!r})", self.reason]
        lines.append(
            f"{'method':10} {'loss':16} {'proved risk':>12} {'noise':>9} passes"
        )
        for row in self.table:
            bound = f"{row.risk_bound:.4g}" if row.risk_bound < math.inf else "none"
            passes = "depends" if math.isnan(row.passes) else f"{row.passes:.0f}"
            name = f"{row.method:10} {row.loss.name:16}"
            lines.append(f"{name} {bound:>12} {row.noise:9.3g} {passes}")
        return "\n".join(lines)


@check.unwrap_numpy
def advise(problem: Problem | PublicFacts, budget: Budget) -> Advice:
    r"""Choose a private method, its options and its loss by public facts.

    For smooth losses on l_2 balls, with x = beta/m_0 the curvature over the ridge that
    noise asks for (:math:`m_0 = 2 L \sqrt d/(n t M)` if one record is replaced, t the
    budget's gdp, M the radius):

    - logistic loss: `NoisyGD` with ``output="scaled"``, whose noisy gradients tell how
      long its steps should be; of the calibrated loss if x < 1000, and of the capped
      one where the ball holds it back if x < 500;
    - squared loss, on any domain: `AdaSSP`;
    - other real responses: `ObjectivePerturbation`;
    - else the tail of `NoisyGD`, whose noise is less.

    Calibrated is `CalibratedLogistic`, half as sensitive: build the problem with
    ``advice.loss``. Losses with kinks get a tail of 1000 to 4000 steps, none longer
    than 2 w/L^2 for a public width w; other domains get `dpsample.release`.

    Parameters
    ----------
    problem : Problem or PublicFacts
        Only its public facts are read, never its records.
    budget : Budget
        Epsilon, delta and the neighboring relation.

    Returns
    -------
    Advice
        ``choice``, ``loss``, ``reason`` and ``table``.

    Raises
    ------
    ValueError
        If the domain is unbounded, or the loss has no Lipschitz constant there.

    Guarantee
    ---------
    The advice is a function of public facts and costs no privacy. That it is good is
    measured, not proved: `risk_bound` is, where it is finite.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=10_000, dim=100, row_bound=1.0,
    ...                         row_norm=2.0, loss=dps.losses.Logistic(),
    ...                         domain=dps.domains.Ball(10.0))
    >>> advice = dps.advise(facts, dps.Budget(epsilon=0.3, delta=1e-6))
    >>> advice.choice, advice.loss
    (NoisyGD(..., boundary_loss=CappedLogistic(cap=0.5)), CalibratedLogistic())
    >>> advice.to_frame()["method"].tolist()[:5]
    ['scaled', 'tail', 'scaled', 'objective', 'average']
    """
    check.instance((Problem, PublicFacts), problem=problem)
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "all methods that advise chooses from")
    facts = problem.facts if isinstance(problem, Problem) else problem
    scales = _scales(facts)
    clarity = scales.smoothness / noise_ridge(scales, budget)
    method, loss, reason = _rule(facts, clarity)
    kinds = [facts]
    if isinstance(facts.loss, Logistic):
        others = (CappedLogistic(CAP), CalibratedLogistic())
        kinds += [replace(facts, loss=other) for other in others]
    rows = [r for kind in kinds for r in _candidates(kind, budget, method, clarity)]
    rows.sort(key=lambda row: (row.method, row.loss) != (method, loss))
    choice = rows[0].choice
    bound = rows[0].risk_bound
    if math.isinf(bound) and method != "normal_equations":
        bound = rows[0].noise * math.sqrt(facts.dim) * scales.radius
    warn_if_useless(facts, budget, bound)
    return Advice(choice=choice, loss=loss, reason=reason, table=tuple(rows))


# Of `default_radius`: share of the loss of the answer 0 that noise may cost.
NOISE_SHARE = 1.0 / 3.0


@check.unwrap_numpy
def default_radius(
    facts: PublicFacts, budget: Budget, *, row_divisor: float = 1.0
) -> float:
    r"""Radius of the l_2 ball of coefficients that public facts suggest.

    .. math:: R = \min\Bigl(\frac{n t\,\phi_0}{3 \Delta L \sqrt d}, 100 B D\Bigr),

    t the budget's gdp, Delta 2 if one record is replaced and 1 if it is zeroed out,
    L the Lipschitz constant of a record's loss, phi_0 the mean loss of the answer 0
    over both labels, or evenly over the responses' public range. In this ball the
    tail's bound of the excess risk, :math:`R \Delta L \sqrt d/(n t)`, is a third of
    phi_0: noise costs too much in larger ones, and smaller ones hold back what it does
    not. The other end serves time, for steps grow with the root of R: of columns scaled
    to [-1, 1] and rows divided by D, each may move the margin by a hundred units B of
    the response.

    The third was chosen on made-up records (docs/which-method.md).

    Parameters
    ----------
    facts : PublicFacts
        Of the problem to fit. Its domain is read only for the slope of losses whose
        slope grows with the margin.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    row_divisor : float
        D: what rows are divided by to bound them, `read_table`'s root of the number of
        columns of the table.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the loss has no Lipschitz constant on the facts' domain.

    Guarantee
    ---------
    A function of public facts: it costs no privacy.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=8000, dim=123, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Logistic(),
    ...                         domain=dps.domains.Ball(1.0))
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> round(default_radius(facts, budget, row_divisor=14**0.5), 1)
    19.7
    """
    check.instance(PublicFacts, facts=facts)
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "all methods that advise chooses from")
    check.scale(row_divisor=row_divisor)
    # The noise's m_0 is the bound over the square of the radius.
    bound = noise_ridge(_scales(facts)._replace(radius=1.0), budget)
    unit = facts.response_bound or 1.0
    if math.isinf(unit) and not facts.loss.is_classification:
        remedy = "Declare the public bound of the responses."
        check.fail("facts", "of bounded responses", "response_bound = inf", remedy)
    responses = np.linspace(-unit, unit, 2 if facts.loss.is_classification else 1001)
    answer_zero = float(facts.loss.value(np.zeros_like(responses), responses).mean())
    radius = NOISE_SHARE * answer_zero / bound
    # One column can move the margin by at most 100 units of the response.
    return min(radius, 100.0 * unit * row_divisor)


def _rule(facts: PublicFacts, clarity: float) -> tuple[str, Loss, str]:
    """Return the method, its loss, and the reason."""
    loss = facts.loss
    if isinstance(loss, Squared) and facts.dim <= MOST_DIM:
        reason = "Two means tell a squared loss: the radius costs no noise."
        return "normal_equations", loss, reason
    is_ball = facts.domain.lp_exponent == 2.0
    if not is_ball:
        return "release", loss, "The domain is no l2 ball: a draw fits any."
    if math.isinf(clarity):
        return "tail", loss, "The loss has kinks: many short steps, then their mean."
    where = f"Curvature is {clarity:.3g} times the ridge that the noise asks for: "
    if not loss.is_classification:
        return "objective", loss, where + "a ridge holds back what is left of it."
    if not isinstance(loss, Logistic):
        return "tail", loss, where + "steps need less noise than a tilted objective."
    why = "noisy gradients tell how long steps should be."
    # Below this beta/m_0 the noise dominates, so half of it is worth more than the
    # statistical efficiency of a likelihood.
    if clarity < 1000.0:
        loss, why = CalibratedLogistic(), "half the slope halves the noise, and " + why
    return "scaled", loss, where + why


def _scales(facts: PublicFacts) -> DescentScales:
    """Public numbers of descent; a ValueError without a Lipschitz constant."""
    slope, beta = facts.lipschitz(2.0), smoothness_or_inf(facts)
    return scales_of(facts, lipschitz=slope, smoothness=beta, risk="empirical")


def _kink_tail(facts: PublicFacts, scales: DescentScales, budget: Budget) -> NoisyGD:
    """Descent whose steps suit the noise and, at most, kinks of a public width."""
    # Widths at which kinks are seen as curvature L^2/width: half a margin of labels,
    # and a part of the bound of real responses. A step of twice its inverse costs L^2
    # eta/2, a width, at most (the regret of a subgradient step).
    width = 0.5
    if not facts.loss.is_classification:
        width = 0.05 * (facts.response_bound or 1.0)
    longest = 2.0 * width / scales.lipschitz**2
    total = 1.0 / public_ridge(scales._replace(smoothness=0.0), budget)
    # Steps of descent on a loss that is not smooth, by default and at most.
    count = math.ceil(min(max(total / longest, 1000), 4000))
    size = min(total / count, longest)
    return NoisyGD(output="tail", num_steps=count, step_size=size)


def _candidates(
    facts: PublicFacts, budget: Budget, preferred: str, clarity: float
) -> Iterator[Candidate]:
    """Methods that serve the problem, with their numbers."""
    scales = _scales(facts)
    methods: dict[str, Optimizer] = {}
    if math.isinf(scales.smoothness):
        methods["tail"] = _kink_tail(facts, scales, budget)
    else:
        # At least half of epsilon is left for the noise, beside the Jacobian.
        half = math.expm1(min(0.5 * budget.epsilon, MOST_EXPONENT))
        min_ridge = scales.smoothness / (scales.num_records * half)
        ridge = 0.5 * max(public_ridge(scales, budget), min_ridge)
        methods["tail"] = NoisyGD(output="tail")
        is_tilted = isinstance(facts.loss, CalibratedLogistic) and clarity < UNCLEAR
        boundary_loss = CappedLogistic(CAP) if is_tilted else None
        methods["scaled"] = NoisyGD(output="scaled", boundary_loss=boundary_loss)
        methods["objective"] = ObjectivePerturbation(ridge=ridge, risk="empirical")
    methods["average"] = NoisyGD(risk="empirical")
    if isinstance(facts.loss, Squared):
        methods["normal_equations"] = AdaSSP()
    for name, method in methods.items():
        try:
            inputs = method.recipe(facts, budget).inputs
        except ValueError:  # it does not serve the problem
            if name == preferred:
                raise
            continue
        passes = float(inputs.get("num_steps", math.nan))
        noise = float(inputs.get("noise_stddev", 0.0)) / math.sqrt(passes)
        if name == "objective":
            noise = float(inputs["tilt_stddev"]) / facts.num_records
        if name == "normal_equations":
            noise, passes = float(inputs["vector_stddev"]), 1.0
        bound = float(inputs.get("risk_bound", math.inf))
        yield Candidate(name, method, facts.loss, bound, noise, passes)
    try:
        drawn = calibrate(facts, budget, risk="empirical", sampler_share=SHARE)
    except ValueError:  # an epsilon too large for what the sampler may cost
        if preferred == "release":
            raise
        return
    bound = drawn.risk_bound
    yield Candidate("release", RELEASE, facts.loss, bound, math.nan, math.nan)
