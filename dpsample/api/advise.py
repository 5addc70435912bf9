r"""The choice of a private method for a problem, by public facts alone.

Two numbers decide. The first is beta, the largest curvature of the loss. The second is
:math:`m_0` (`dpsample.optimizers.loop.noisy_descent.noise_ridge`), the strength of an
l2 regularizer at which the excess risk by noise is about as large as the risk that the
regularizer adds. Their ratio :math:`x = \beta/m_0`, in the code ``clarity``, grows like
n t M/sqrt(d) with the number of records n, the Gaussian-DP parameter t of the budget,
the radius M of the domain and the dimension d. If it is large, the records are much
clearer than the noise. ``studies/which_method.py`` has 244 settings in which the rules
were developed and validated.

The names of the methods are "tail" and "average" for `NoisyGD` that averages its last
or all iterates, "scaled" for `NoisyGD` that estimates the length of its steps,
"objective" for `ObjectivePerturbation`, "normal_equations" for `AdaSSP`, and "release"
for a draw by `dpsample.release`. "pure" is `ObjectivePerturbation` with a random linear
term that spends no delta, and "decaying" and "fixed" are `NoisyGD` with steps that
decay to 0. "labels_first" is "scaled" that starts with a noisy mean label, and for the
hinge loss "decaying" that does so and ends with a private choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from dpsample.core import check
from dpsample.core.markup import describe, table
from dpsample.losses import (
    Absolute,
    CalibratedLogistic,
    CappedLogistic,
    Hinge,
    Logistic,
    Loss,
    Quantile,
    Squared,
)
from dpsample.optimizers import AdaSSP, NoisyGD, ObjectivePerturbation
from dpsample.optimizers.algorithms.ada_ssp import MOST_DIM
from dpsample.optimizers.loop.decaying import fixed_size
from dpsample.optimizers.loop.noisy_descent import (
    DescentScales,
    noise_ridge,
    public_ridge,
    pure_noise_ridge,
    scales_of,
)
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.privacy import Budget, calibrate
from dpsample.privacy.budget import SHIFTS, check_not_pure
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.privacy.usefulness import mean_loss_of_zero, warn_if_useless
from dpsample.problem.facts import PublicFacts, smoothness_or_inf
from dpsample.problem.problem import Problem
from dpsample.regularizers import SquaredNorm
from dpsample.samplers.whole_body.tangent_cells import (
    explain_unsupported_cells,
    explain_unsupported_draws,
)

if TYPE_CHECKING:
    import pandas as pd

# The capped loss cuts the derivative of the logistic loss off at this absolute value.
CAP = 0.5


class Candidate(NamedTuple):
    """One method with all its numbers, from public facts.

    Attributes
    ----------
    method : str
        "decaying", "fixed", "tail", "scaled", "labels_first", "objective", "pure",
        "average", "normal_equations" or "release".
    choice : Optimizer or "release"
        Argument of `dpsample.minimize`, or the name of `dpsample.release`.
    loss : Loss
        Loss to fit, the problem's or one with smaller derivatives.
    risk_bound : float
        Proved bound of the mean excess empirical risk in that loss. It is infinity if
        none is proved.
    noise : float
        Standard deviation, in each coordinate, of the noise that the whole run adds to
        the mean gradient. For normal equations the gradient is that at 0. It is NaN for
        a draw, which has no separate noise.
    passes : float
        Number of passes over the records. It is NaN if it depends on the records.
    """

    method: str
    choice: Optimizer | Literal["release"]
    loss: Loss
    risk_bound: float
    noise: float
    passes: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Advice:
    """A recommended method, the reason for it, and the alternatives.

    Attributes
    ----------
    choice : Optimizer or "release"
        Argument of `dpsample.minimize`, or "release" for `dpsample.release`.
    loss : Loss
        Loss to build the problem with, the problem's own or one with smaller
        derivatives.
    reason : str
        Reason for the choice, in sentences.
    table : tuple of Candidate
        Every method that supports the problem, the chosen one first.
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

    def _repr_html_(self) -> str:
        """Return the choice, the reason and the table, for notebooks."""
        rows = [("choice", self.choice), ("loss", self.loss), ("reason", self.reason)]
        head = ("method", "loss", "proved risk", "noise", "passes")
        return describe("Advice", rows, table("Methods", head, self._cells()))

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the rows of the table as texts."""
        rows: list[tuple[str, ...]] = []
        for row in self.table:
            bound = f"{row.risk_bound:.4g}" if row.risk_bound < math.inf else "none"
            passes = "depends" if math.isnan(row.passes) else f"{row.passes:.0f}"
            noise = f"{row.noise:.3g}"
            rows.append((row.method, row.loss.name, bound, noise, passes))
        return rows

    def __repr__(self) -> str:
        """Return the choice, the reason and the table."""
        lines = [f"Advice(choice={self.choice!r}, loss={self.loss!r})", self.reason]
        lines.append(
            f"{'method':12} {'loss':16} {'proved risk':>12} {'noise':>9} passes"
        )
        for method, loss, bound, noise, passes in self._cells():
            lines.append(f"{method:12} {loss:16} {bound:>12} {noise:>9} {passes}")
        return "\n".join(lines)


@check.unwrap_numpy
def advise(problem: Problem | PublicFacts, budget: Budget) -> Advice:
    r"""Choose a private method, its options and its loss by public facts.

    For smooth losses on l_2 balls, with x = beta/m_0 the curvature over the ridge that
    noise asks for (:math:`m_0 = 2 L \sqrt d/(n t M)` if one record is replaced, t the
    budget's gdp, M the radius):

    - logistic loss: `NoisyGD` with ``output="scaled"``, which estimates the length of
      its steps from its noisy gradients. It minimizes the calibrated loss if x < 1000.
      If x < 500, it continues with the capped loss where the ball stops it. If x < 300
      and the problem has an intercept, at most a twentieth of the square of the
      budget's gdp buys a mean label first, and if one label is rare, descent starts at
      its log odds;
    - squared loss, on any domain: `AdaSSP`;
    - other losses of real responses: the tail of `NoisyGD` if x < 2000, and
      `ObjectivePerturbation` from there on;
    - other losses of labels: the tail of `NoisyGD`, which needs less noise;
    - losses of real responses with few coefficients, d + 1 < 0.7 (epsilon/t)^2, and
      logistic losses if x >= 400 and d + 1 < 0.8 (epsilon/t)^2: `ObjectivePerturbation`
      with the tilt "norm". Its noise is smaller, and it spends no delta.

    If the budget's delta is 0, all smooth losses get this tilt, on any bounded domain,
    and others get `dpsample.release`.

    The calibrated loss is `CalibratedLogistic`, which is half as sensitive to a record.
    Build the problem with ``advice.loss``. Non-smooth losses get `NoisyGD` with
    ``output="decaying"``, whose steps follow its noisy gradients and decay to 0. If the
    loss is the hinge loss and the problem has an intercept, a mean label comes first,
    too, and a twentieth of the square of the gdp compares the answer with the start.
    The row "fixed" of the table has fixed steps with a proved risk bound. Other domains
    get `dpsample.release`.

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
        If the domain is unbounded, the loss has no Lipschitz constant there, or the
        budget is pure and no method has a proof for the problem.

    Guarantee
    ---------
    The advice is a function of public facts and costs no privacy. Its quality is
    measured, not proved. A finite `risk_bound` is proved.

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
    facts = problem.facts if isinstance(problem, Problem) else problem
    scales = _scales(facts)
    clarity = scales.smoothness / _noise_ridge(scales, budget)
    if budget.is_pure:
        method, loss, reason = _pure_rule(facts, budget, clarity)
    else:
        method, loss, reason = _rule(facts, budget, clarity)
    kinds = [facts]
    if isinstance(facts.loss, Logistic):
        others = (CappedLogistic(CAP), CalibratedLogistic())
        kinds += [replace(facts, loss=other) for other in others]
    rows = [r for kind in kinds for r in _candidates(kind, budget, method, clarity)]
    # The sort is stable, so the chosen method comes first and the others keep their
    # order.
    rows.sort(key=lambda row: (row.method, row.loss) != (method, loss))
    choice = rows[0].choice
    bound = rows[0].risk_bound
    # By convexity an error of the gradient, of length noise sqrt(d), costs at most that
    # times the radius.
    if math.isinf(bound) and method != "normal_equations":
        bound = rows[0].noise * math.sqrt(facts.dim) * scales.radius
    warn_if_useless(facts, budget, bound)
    return Advice(choice=choice, loss=loss, reason=reason, table=tuple(rows))


@check.unwrap_numpy
def default_radius(
    facts: PublicFacts, budget: Budget, *, row_divisor: float = 1.0
) -> float:
    r"""Radius of the l_2 ball of coefficients that public facts suggest.

    .. math:: R = \min\Bigl(\frac{n t\,\phi_0}{3 \Delta L \sqrt d}, 100 B D\Bigr),

    t the budget's gdp, or epsilon/sqrt(d + 1) if delta is 0. Delta is 2 if one record
    is replaced and 1 if it is zeroed out, L the Lipschitz constant of a record's loss,
    and phi_0 the mean loss of the coefficients 0 over both labels, or evenly over the
    public range of the responses. In this ball
    the tail's bound of the excess risk, :math:`R \Delta L \sqrt d/(n t)`, is a third of
    phi_0. In a larger ball the noise would cost too much, and a smaller one would
    restrict the coefficients more than the noise does. The second number limits the
    running time, because the number of steps grows with the root of R. If columns are
    scaled to [-1, 1] and rows are divided by D, each column may move the margin by a
    hundred units B of the response.

    The third was chosen on synthetic records (docs/which-method.md).

    Parameters
    ----------
    facts : PublicFacts
        Facts of the problem to fit. The domain is read only for losses whose derivative
        grows with the margin.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    row_divisor : float
        D, the number by which rows are divided to bound them. `read_table` takes the
        root of the number of columns of the table.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the loss has no Lipschitz constant on the facts' domain.

    Guarantee
    ---------
    The radius is a function of public facts and costs no privacy.

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
    check.scale(row_divisor=row_divisor)
    # m_0 is the bound of the excess risk over the square of the radius. So m_0 at
    # radius 1 is the bound for each unit of the radius.
    bound = _noise_ridge(_scales(facts)._replace(radius=1.0), budget)
    unit = facts.response_bound or 1.0
    if math.isinf(unit) and not facts.loss.is_classification:
        remedy = "Declare the public bound of the responses."
        check.fail("facts", "of bounded responses", "response_bound = inf", remedy)
    # Noise may cost a third of the loss of the coefficients 0.
    radius = 1.0 / 3.0 * mean_loss_of_zero(facts) / bound
    # One column can move the margin by at most 100 units of the response.
    return min(radius, 100.0 * unit * row_divisor)


def _noise_ridge(scales: DescentScales, budget: Budget) -> float:
    """Return m_0 of Gaussian noise, or of a tilt that needs no delta."""
    ridge = pure_noise_ridge if budget.is_pure else noise_ridge
    return ridge(scales, budget)


def _pure_rule(
    facts: PublicFacts, budget: Budget, clarity: float
) -> tuple[str, Loss, str]:
    """Return the method of a budget without delta, its loss, and the reason."""
    loss = facts.loss
    if math.isinf(clarity):
        if not explain_unsupported_cells(facts, SquaredNorm(2.0)):
            reason = "The loss is not differentiable everywhere, but few coefficients "
            return "release", loss, reason + "have exact draws without delta."
        check_not_pure(budget, "a loss that is not differentiable everywhere")
    where = f"Curvature is {clarity:.3g} times the ridge that the noise asks for: "
    where += "a tilted objective has a proof without delta"
    if isinstance(loss, Logistic) and clarity < 1000.0:
        return "pure", CalibratedLogistic(), where + ", and half the slope less noise."
    return "pure", loss, where + "."


def _rule(facts: PublicFacts, budget: Budget, clarity: float) -> tuple[str, Loss, str]:
    """Return the method, its loss, and the reason."""
    loss = facts.loss
    if isinstance(loss, Squared) and facts.dim <= MOST_DIM:
        reason = "Two means tell a squared loss: the radius costs no noise."
        return "normal_equations", loss, reason
    is_ball = facts.domain.lp_exponent == 2.0
    if not is_ball:
        return "release", loss, "The domain is no l2 ball: a draw fits any."
    if math.isinf(clarity):
        why = "noisy gradients determine the size of steps that decay to 0."
        if facts.dim == 1 and isinstance(loss, Absolute | Quantile):
            why += " If the column is constant, dps.stats.quantile needs fewer records."
        why = "The loss is not differentiable everywhere: " + why
        if isinstance(loss, Hinge) and label_share(facts, budget) > 0.0:
            first = (
                "A noisy mean label comes first, in case one label is commoner, and "
            )
            first += "a private choice last, in case no column helps. "
            return "labels_first", loss, first + why
        return "decaying", loss, why
    where = f"Curvature is {clarity:.3g} times the ridge that the noise asks for: "
    # A pure tilt adds (d + 1) (t/epsilon)^2 times the risk of a Gaussian one.
    gdp = gdp_from_budget(budget.epsilon, budget.delta)
    excess_ratio = (facts.dim + 1.0) * (gdp / budget.epsilon) ** 2
    few = "in few dimensions a tilt that spends no delta (delta = 0) needs less noise."
    if excess_ratio < 0.7 and not loss.is_classification:
        return "pure", loss, where + few
    # The ridge of a tilt suits clear logistic losses better than descent does, which
    # makes up for a little more noise.
    if excess_ratio < 0.8 and isinstance(loss, Logistic) and clarity >= 400.0:
        scales = _scales(facts)
        is_clear = scales.smoothness >= 1000.0 * pure_noise_ridge(scales, budget)
        return "pure", loss if is_clear else CalibratedLogistic(), where + few
    if not loss.is_classification:
        # Descent holds noise back in all directions of little information.
        if clarity < 2000.0:
            return (
                "tail",
                loss,
                where + "steps need less noise than a tilted objective.",
            )
        return "objective", loss, where + "a ridge holds back what is left of it."
    if not isinstance(loss, Logistic):
        return "tail", loss, where + "steps need less noise than a tilted objective."
    why = "noisy gradients tell how long steps should be."
    # Below this beta/m_0 the noise dominates, so half of it is worth more than the
    # statistical efficiency of a likelihood.
    if clarity < 1000.0:
        loss, why = CalibratedLogistic(), "half the slope halves the noise, and " + why
    # Above this ratio the gradients find the intercept themselves, and short steps lose
    # more than they gain.
    if label_share(facts, budget) > 0.0 and clarity < 300.0:
        first = "a noisy mean label comes first, in case one label is rare, "
        return "labels_first", loss, where + first + why
    return "scaled", loss, where + why


def label_share(facts: PublicFacts, budget: Budget) -> float:
    """Return the share of the squared gdp that a mean label is worth, 0 if none.

    It needs an intercept, and a mean that is clear of its noise.
    """
    is_at_zero = facts.offset_bound == 0.0 and not facts.center.any()
    if budget.is_pure or not (facts.intercept and is_at_zero):
        return 0.0
    gdp = gdp_from_budget(budget.epsilon, budget.delta)
    signal = facts.num_records * gdp / SHIFTS[budget.relation]
    # Log odds take a deviation of 1/40. The sign, for the hinge loss, takes less.
    precision = 10.0 if isinstance(facts.loss, Hinge) else 40.0
    share = min(0.05, (precision / signal) ** 2)
    # The noise of the mean, 1/(signal root(share)), is then at most 0.15, a fifth of
    # the distance from 0 at which a label counts as rare.
    return share if signal * math.sqrt(share) >= 1.0 / 0.15 else 0.0


def _scales(facts: PublicFacts) -> DescentScales:
    """Return the public numbers of descent. Raise without a Lipschitz constant."""
    slope, beta = facts.lipschitz(2.0), smoothness_or_inf(facts)
    return scales_of(facts, lipschitz=slope, smoothness=beta, risk="empirical")


def _kink_tail(facts: PublicFacts, scales: DescentScales, budget: Budget) -> NoisyGD:
    """Return descent on a non-smooth loss, with steps that suit the noise."""
    # A non-smooth point of public width w counts as the curvature L^2/w. The width is
    # half a unit of the margin for labels, and a twentieth of the bound for real
    # responses. A step eta of 2 w/L^2 adds at most w to the risk, since the regret of a
    # subgradient step is L^2 eta/2.
    width = 0.5
    if not facts.loss.is_classification:
        width = 0.05 * (facts.response_bound or 1.0)
    longest = 2.0 * width / scales.lipschitz**2
    # Step size times number of steps. Descent of this length is about as biased as a
    # ridge of its inverse.
    total = 1.0 / public_ridge(scales._replace(smoothness=0.0), budget)
    # At least 1000 steps are taken, and at most 4000, which limits the running time.
    count = math.ceil(min(max(total / longest, 1000), 4000))
    size = min(total / count, longest)
    return NoisyGD(output="tail", num_steps=count, step_size=size)


def _tilt_ridge(scales: DescentScales, budget: Budget, noise_ridge: float) -> float:
    """Return the ridge lambda of a tilted objective for records that are clear.

    It is m_0/2, or what leaves four fifths of epsilon for the tilt.
    """
    fifth = math.expm1(min(0.2 * budget.epsilon, 700.0))
    min_ridge = scales.smoothness / (2.0 * scales.num_records * fifth)
    return max(0.5 * noise_ridge, min_ridge)


def _methods(
    facts: PublicFacts, budget: Budget, clarity: float
) -> dict[str, Optimizer]:
    """Return the optimizers for a loss, by name, with options from public facts."""
    scales = _scales(facts)
    is_smooth = math.isfinite(scales.smoothness)
    methods: dict[str, Optimizer] = {}
    if not is_smooth and not budget.is_pure:
        methods["decaying"] = NoisyGD(output="decaying")
        share = label_share(facts, budget)
        if isinstance(facts.loss, Hinge) and share > 0.0:
            methods["labels_first"] = NoisyGD(
                output="decaying", label_share=share, choice_share=0.05
            )
        size = fixed_size(facts, scales, budget)
        methods["fixed"] = NoisyGD(output="decaying", step_size=size, risk="empirical")
        methods["tail"] = _kink_tail(facts, scales, budget)
    if is_smooth and not budget.is_pure:
        # The determinant of objective perturbation may use half of epsilon, so that at
        # least half is left for the noise. The exponential of 700 is still a double.
        half = math.expm1(min(0.5 * budget.epsilon, 700.0))
        min_ridge = scales.smoothness / (scales.num_records * half)
        ridge = 0.5 * max(public_ridge(scales, budget), min_ridge)
        if not facts.loss.is_classification:
            ridge = _tilt_ridge(scales, budget, noise_ridge(scales, budget))
        methods["tail"] = NoisyGD(output="tail")
        # Up to this ratio a ball that stops the iterates costs more risk than the bias
        # of the capped loss.
        is_tilted = isinstance(facts.loss, CalibratedLogistic) and clarity < 500.0
        boundary_loss = CappedLogistic(CAP) if is_tilted else None
        scaled = NoisyGD(output="scaled", boundary_loss=boundary_loss)
        methods["scaled"] = scaled
        share = label_share(facts, budget)
        if isinstance(facts.loss, CalibratedLogistic) and share > 0.0:
            methods["labels_first"] = replace(scaled, label_share=share)
        methods["objective"] = ObjectivePerturbation(ridge=ridge, risk="empirical")
    if not budget.is_pure:
        methods["average"] = NoisyGD(risk="empirical")
    if is_smooth:
        ridge = _tilt_ridge(scales, budget, pure_noise_ridge(scales, budget))
        methods["pure"] = ObjectivePerturbation(
            ridge=ridge, risk="empirical", tilt="norm"
        )
    if isinstance(facts.loss, Squared) and not budget.is_pure:
        methods["normal_equations"] = AdaSSP()
    return methods


def _candidates(
    facts: PublicFacts, budget: Budget, preferred: str, clarity: float
) -> Iterator[Candidate]:
    """Yield the methods that support the problem, with their numbers."""
    methods = _methods(facts, budget, clarity)
    for name, method in methods.items():
        try:
            inputs = method.recipe(facts, budget).inputs
        except ValueError:  # the method does not support the problem
            if name == preferred:
                raise
            continue
        passes = float(inputs.get("num_steps", math.nan))
        # The noise of independent steps is averaged over all of them.
        noise = float(inputs.get("noise_stddev", 0.0)) / math.sqrt(passes)
        if name == "objective":
            noise = float(inputs["tilt_stddev"]) / facts.num_records
        if name == "pure":
            root = math.sqrt(facts.dim + 1.0)
            noise = root * float(inputs["tilt_scale"]) / facts.num_records
        if name == "normal_equations":
            noise, passes = float(inputs["vector_stddev"]), 1.0
        bound = float(inputs.get("risk_bound", math.inf))
        yield Candidate(name, method, facts.loss, bound, noise, passes)
    try:
        # A tenth of delta covers the error of the sampler, as in `release`. Without a
        # delta the draw is exact.
        share = 0.0 if budget.is_pure else 0.1
        drawn = calibrate(facts, budget, risk="empirical", sampler_share=share)
        if budget.is_pure and explain_unsupported_draws(facts, drawn.regularizer):
            return
    except ValueError:  # the error of the sampler needs more than this delta
        if preferred == "release":
            raise
        return
    bound = drawn.risk_bound
    yield Candidate("release", "release", facts.loss, bound, math.nan, math.nan)
