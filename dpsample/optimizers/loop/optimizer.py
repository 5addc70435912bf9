"""What every optimizer is: public numbers that become phases and an event.

Which recipes stay private for losses that are no function of a linear margin.

Clipping the gradients of phi(<a, w>) gives gradients of another convex loss: gradient
steps contract and minimizers move little, which is what output and objective
perturbation rest on. For other losses clipped descent has neither property (erratum
gradient-E15). Noise in every step asks only that one record's vector is bounded.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.spec import Spec
from dpsample.optimizers.loop.contributions import FAR, LEAST_BOUND
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Estimator,
    TruncatedMean,
)
from dpsample.optimizers.loop.perturbations import NoNoise
from dpsample.optimizers.loop.phase import Loop, Minimization, Phase
from dpsample.optimizers.loop.steps import FrankWolfeStep
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts

Calibration = Literal["exact", "paper"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Phases of one run, and what they do to privacy.

    Attributes
    ----------
    phases : tuple of Loop or Minimization
        Run one after the other, each from where the last one ended.
    event : Event or None
        Under the budget's relation; None if nothing is proved.
    inputs : dict of str to number or word
        Public numbers of the calibration, for the certificate.
    theorems, assumptions : tuple of str
        What the event rests on.
    start : ndarray of shape (dim,), optional
        Public starting point; None: the domain's center.
    entry_bound : float
        Every entry of the features and of the response is clipped to this size first.
    """

    phases: tuple[Phase, ...]
    event: Event | None
    inputs: dict[str, float | int | str]
    theorems: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    start: Array | None = None
    entry_bound: float = math.inf

    def __post_init__(self) -> None:
        """Check what needs no problem."""
        if not self.phases:
            check.fail("phases", "non-empty", "()")
        for index, phase in enumerate(self.phases):
            if not isinstance(phase, Loop | Minimization):
                check.fail(f"phases[{index}]", "a Loop or a Minimization", phase)
            phase.check()
        check.instance((Event, type(None)), event=self.event)
        check.instance(dict, inputs=self.inputs)
        bound = self.entry_bound
        check.above(0.0, entry_bound=bound, remedy="Infinity clips none.")

    def check(self, facts: PublicFacts) -> None:
        """Fail unless kernels can run the phases on this many records and parameters.

        Parameters
        ----------
        facts : PublicFacts
            Of the problem.
        """
        for phase in self.phases:
            phase.check_fits(facts.num_records)
        if self.start is not None:
            check.array("start", self.start, shape=(facts.dim,))

    def check_private(self, facts: PublicFacts) -> None:
        """Fail if noise would vanish or sums of bounded parts overflow, on any records.

        Parameters
        ----------
        facts : PublicFacts
            Of the problem.
        """
        for phase in self.phases:
            _check_private(phase, facts)

    @property
    def is_noisy(self) -> bool:
        """Whether anything is perturbed: then no record may end the run."""
        return any(phase.is_noisy for phase in self.phases)


def _check_private(phase: Phase, facts: PublicFacts) -> None:
    """Fail if noise would vanish or sums of bounded parts overflow, for any records."""
    if not phase.is_noisy:
        remedy = "Thresholds and scales are too small for floating point."
        check.fail("phases", "noisy to be private", phase, remedy)
    bound = phase.estimator.record_bound(facts.dim)
    if math.isinf(bound):  # a mean that leaves it to the loss's slope bound
        return
    if not LEAST_BOUND <= bound <= FAR / facts.num_records:
        condition = f"from {LEAST_BOUND:g} to {FAR:g}/num_records to be private"
        check.fail("the bound of a record's gradient", condition, bound)


def _with_door(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with its arguments and the optimizer's fields checked."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Optimizer, *args: Any, **options: Any) -> Any:
        given = signature.bind(self, *args, **options).arguments
        check.instance(PublicFacts, facts=given["facts"], remedy="Pass problem.facts.")
        check.instance((Budget, type(None)), budget=given["budget"])
        calibration = given.get("calibration", "exact")
        check.one_of(("exact", "paper"), calibration=calibration)
        self._check_sizes()
        return method(self, *args, **options)

    return call


class Optimizer(Spec):
    """Base of all optimizers: frozen public numbers.

    A subclass turns the public facts of a problem and a budget into a `Recipe`; it
    never sees a record.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Put the door of all optimizers before the methods that users call."""
        for name in ("recipe", "risk_bound", "printed_growth_bound"):
            if name in vars(cls):
                setattr(cls, name, _with_door(vars(cls)[name]))

    def _check_sizes(self) -> None:
        """Fail where a field is so large or small that formulas overflow."""
        check.plain_fields(self)
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, float) and value != 0.0 and math.isfinite(value):
                named: dict[str, Any] = {field.name: value}
                check.scale(**named)

    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """Phases and event for a problem with these public facts.

        Parameters
        ----------
        facts : PublicFacts
            Of the problem.
        budget : Budget or None
            None: no noise, no event.
        calibration : {"exact", "paper"}
            Provable noise, or the printed one.

        Returns
        -------
        Recipe
        """
        raise NotImplementedError


BOUNDED = (ClippedMean, TruncatedMean, BucketedMedian, CatoniMean)
REMEDY = (
    "Use DPSGD, NoisyGD, NoisySGD or ClippedGD(noise='steps') with a clip, "
    "PrivateProximalSGD or AcceleratedClippedSGD."
)


def check_any_loss(recipe: Recipe, optimizer: object, *, is_private: bool) -> None:
    """Refuse a recipe whose steps, or whose privacy, need a loss of the margin."""
    for phase in recipe.phases:
        reason = _needs_margin(phase, is_private)
        if reason:
            check.fail(
                "optimizer",
                "private for losses that are no function of the margin",
                f"{optimizer!r}, which {reason}",
                REMEDY,
            )


def trusts_loss(recipe: Recipe) -> bool:
    """Whether privacy rests on convexity and bounds that a loss declares."""
    return any(_needs_margin(phase, True) for phase in recipe.phases)


def _needs_margin(phase: Phase, is_private: bool) -> str:
    """Why a phase needs a loss of the margin; empty if it does not."""
    if not isinstance(phase, Loop):
        return "minimizes a convex objective: its minimizer can move far"
    estimator = phase.estimator
    if estimator.smoothing > 0.0:
        return "takes Moreau envelopes of a loss of the margin"
    if isinstance(estimator, TruncatedMean) and estimator.q != 2.0:
        return "truncates gradients in a norm other than the l2 norm"
    if not is_private:
        return ""
    if phase.output_stddev > 0.0:
        return "perturbs its output: clipped descent can move it far"
    if not _is_bounded(estimator):
        return "trusts a Lipschitz constant that no clipping enforces"
    if isinstance(phase.noise, NoNoise):
        step = phase.step
        if not (isinstance(step, FrankWolfeStep) and math.isfinite(step.selection)):
            return "adds no noise to its steps"
    return ""


def _is_bounded(estimator: Estimator) -> bool:
    """Whether one record's part is bounded, whatever its gradient is."""
    return isinstance(estimator, BOUNDED) and math.isfinite(estimator.record_bound(1))
