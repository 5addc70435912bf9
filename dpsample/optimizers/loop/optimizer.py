"""Base of all optimizers: public numbers that become phases and a privacy event.

A phase is a gradient loop, a certified minimization or a noisy query. A loop is one
choice in each of five slots: batches, estimator, noise, step and average. Slots hold
small frozen specs. `Loop.compile` turns them into C functions and their numbers, one
compiled type for every algorithm, so the loop compiles once.

Clipping the gradients of phi(<a, w>) gives gradients of another convex loss. So
gradient steps contract and minimizers move little. Output and objective perturbation
rest on that. For losses that are not a function of a linear margin clipped descent has
neither property (erratum gradient-E15), so `check_any_loss` rejects phases that rest on
them. Noise in every step needs only a bound of one record's vector.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.spec import Spec, freeze
from dpsample.losses import Loss
from dpsample.optimizers.loop.batches import Batches, Full
from dpsample.optimizers.loop.contributions import FAR, LEAST_BOUND
from dpsample.optimizers.loop.estimators import (
    ClippedMean,
    Estimator,
    Mean,
    RecordLimits,
)
from dpsample.optimizers.loop.perturbations import NoNoise, Perturbation
from dpsample.optimizers.loop.pieces import CompiledPhase
from dpsample.optimizers.loop.steps import Step
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem

# Noise is rounded to a grid of steps far smaller than its scale. For smaller scales the
# steps would be subnormal numbers, so such noise counts as none.
LEAST_NOISE = 1e-279

EQUAL_WEIGHTS = freeze(np.ones(1))  # all iterates count the same


@dataclass(frozen=True, kw_only=True, eq=False)
class Loop:
    """A gradient loop: estimate, perturb, advance, average.

    Parameters
    ----------
    num_steps : int
        Steps of the loop.
    step : Step
        How the iterate moves.
    batches : Batches
        The records that each step reads.
    estimator : Estimator
        The rule that makes one vector of their gradients.
    noise : Perturbation
        Noise that is added to it.
    weights : ndarray of shape (num_steps,) or (1,), optional
        Weights of w_1, ..., w_T in the output, which is divided by their sum.
        `EQUAL_WEIGHTS` is one number for all, so that no long array is needed. By
        default the output is the last iterate (the aggregate of accelerated steps).
    output_stddev : float
        Gaussian noise of the output, which is projected to the domain afterwards.
    output_gdp : float
        Gaussian-DP parameter of the exact output with that noise, if the noise is to
        cover rounding errors, too (`iterate_errors`). 0 if they are not included.
    keeps_ball : bool
        Whether the local ball stays where the previous phase had it.
    keeps_anchor : bool
        Whether the center of the step's ridge stays where the previous phase had it.
    boundary_loss : Loss, optional
        Loss that replaces the problem's once the domain has held a scaled descent back.
    """

    num_steps: int
    step: Step
    batches: Batches = field(default_factory=Full)
    estimator: Estimator = field(default_factory=Mean)
    noise: Perturbation = field(default_factory=NoNoise)
    weights: Array | None = None
    output_stddev: float = 0.0
    output_gdp: float = 0.0
    keeps_ball: bool = False
    keeps_anchor: bool = False
    boundary_loss: Loss | None = None
    output_scale: ClassVar[float] = 0.0

    def compile(
        self, num_records: int, records: RecordLimits, *, dim: int
    ) -> partial[CompiledPhase]:
        """Return what the loop calls, except for the batches, which runs draw anew."""
        # Sums are divided by a public number. The size of a random batch would reveal
        # whether a record is in it.
        divisor = self.batches.mean_size(num_records)
        # Kernels read an empty array as "the last iterate".
        weights = np.empty(0) if self.weights is None else self.weights
        return partial(
            CompiledPhase,
            estimator=self.estimator.compile(records, divisor),
            noise=self.noise.compile(self._excess(num_records, dim)),
            step=self.step.compile(dim),
            average=self.step.compile_average(np.array(weights, dtype=np.float64)),
            num_steps=int(self.num_steps),
            reads_middle=int(self.step.reads_middle),
        )

    def _excess(self, num_records: int, dim: int) -> float:
        """Return the share of the noise that covers the estimates' rounding errors."""
        return self.estimator.rounding_excess(self.largest_batch(num_records), dim)

    def largest_batch(self, num_records: int) -> int:
        """Return the largest number of records that a step can read."""
        return self.batches.largest(num_records)

    def weight_of(self, num_steps: int) -> float:
        """Return the sum of the weights of the first steps."""
        assert self.weights is not None
        if np.size(self.weights) == 1:
            return float(num_steps * self.weights[0])
        return float(self.weights[:num_steps].sum())

    def check(self) -> None:
        """Check the numbers that no spec has checked."""
        check.integer(1, num_steps=self.num_steps)
        check.non_negative(output_stddev=self.output_stddev, output_gdp=self.output_gdp)
        if self.weights is not None:
            shape = (1,) if np.size(self.weights) == 1 else (self.num_steps,)
            weights = check.array("weights", self.weights, shape=shape)
            if not (weights >= 0.0).all() or weights[0] == 0.0:
                # The mean of the first steps, which a trace shows, divides by them.
                check.fail("weights", ">= 0, the first of them > 0", weights)
        sizes = np.size(getattr(self.step, "sizes", 1.0))
        if sizes not in (1, self.num_steps):
            check.fail("sizes", f"of length 1 or {self.num_steps}", f"length {sizes}")

    @property
    def is_noisy(self) -> bool:
        """Whether a step, a choice of a vertex or the output is perturbed."""
        is_perturbed = max(self.noise.scale, self.output_stddev) >= LEAST_NOISE
        return is_perturbed or self.step.is_noisy

    def check_fits(self, num_records: int) -> None:
        """Fail unless every batch lies within the records."""
        _check_range(self.batches.first, self.batches.last, num_records)
        self.batches.check_steps(self.num_steps, num_records)


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimization:
    """Certified minimization of a strongly convex objective J.

    J(w) is the mean loss + <G, w>/n + ridge/2 |w - anchor|^2, with a random tilt G. It
    is minimized over the intersection of the domain and the local ball. The anchor is 0
    or the start of the phase.

    Parameters
    ----------
    ridge : float
        Strength, > 0.
    smoothness : float
        Public bound of the curvature of one record's (clipped) loss.
    gap : float
        J(w) - min J <= gap holds on every data set, by the certificate of the solver.
    first, last : int
        Records of the phase.
    estimator : Estimator
        `Mean` or `ClippedMean`, which is the gradient of another convex loss.
    tilt_stddev : float
        Deviation of a Gaussian tilt.
    tilt_scale : float
        s of a tilt with a density proportional to exp(-|G|/s), instead of a Gaussian.
    max_tilt : float
        Length to which longer tilts of this kind are shortened.
    is_anchored : bool
        Whether the ridge is centered at the start of the phase instead of 0.
    local_radius : float
        Radius of the l2 ball about the start.
    output_stddev : float
        Gaussian noise of the output, which is then projected on the domain.
    output_gdp : float
        Gaussian-DP parameter that this noise has for the gap alone, if it is to cover
        rounding errors, too (`iterate_errors`). 0 if they are not included.
    output_scale : float
        Scale of Laplace noise of each coordinate of the output, instead of Gaussian.
    output_epsilon : float
        Epsilon that this noise has for the gap alone, if it is to cover rounding
        errors, too. 0 if they are not included.
    keeps_ball : bool
        Whether the local ball stays where the previous phase had it.
    solver : {"accelerated", "svrg"}
        Accelerated projected gradients, or projected SVRG.
    """

    ridge: float
    smoothness: float
    gap: float
    first: int = 0
    last: int | None = None
    estimator: Estimator = field(default_factory=Mean)
    tilt_stddev: float = 0.0
    tilt_scale: float = 0.0
    max_tilt: float = math.inf
    is_anchored: bool = False
    local_radius: float = math.inf
    output_stddev: float = 0.0
    output_gdp: float = 0.0
    output_scale: float = 0.0
    output_epsilon: float = 0.0
    keeps_ball: bool = False
    solver: str = "accelerated"

    def check(self) -> None:
        """Check the numbers."""
        check.one_of(("accelerated", "svrg"), solver=self.solver)
        check.positive(ridge=self.ridge, gap=self.gap)
        check.non_negative(
            smoothness=self.smoothness,
            tilt_stddev=self.tilt_stddev,
            tilt_scale=self.tilt_scale,
            output_stddev=self.output_stddev,
            output_gdp=self.output_gdp,
            output_scale=self.output_scale,
            output_epsilon=self.output_epsilon,
        )
        check.at_least(0.0, local_radius=self.local_radius, max_tilt=self.max_tilt)
        check.instance((Mean, ClippedMean), estimator=self.estimator)

    @property
    def is_noisy(self) -> bool:
        """Whether the objective or the output is perturbed."""
        tilt = max(self.tilt_stddev, self.tilt_scale)
        return max(tilt, self.output_stddev, self.output_scale) >= LEAST_NOISE

    def check_fits(self, num_records: int) -> None:
        """Fail unless the phase's records exist."""
        _check_range(self.first, self.last, num_records)


def _check_range(first: int, last: int | None, num_records: int) -> None:
    """Fail unless 0 <= first < last <= num_records.

    Kernels do not check indices.
    """
    end = num_records if last is None else last
    check.integer(0, first=first)
    check.integer(first + 1, last=end)
    if end > num_records:
        check.fail("last", f"<= num_records = {num_records}", end)


@dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """Base of one noisy query of all records with what is computed from its answer."""

    estimator: ClassVar[Estimator] = Mean()
    output_stddev: ClassVar[float] = 0.0
    output_scale: ClassVar[float] = 0.0
    keeps_ball: ClassVar[bool] = False
    # Whether it reads records part by part, so that they need not be in memory.
    reads_in_order: ClassVar[bool] = False

    def check(self) -> None:
        """Do nothing, because the code that makes a query checks its numbers."""

    @property
    def is_noisy(self) -> bool:
        """Whether the answer is perturbed."""
        raise NotImplementedError

    def check_fits(self, num_records: int) -> None:
        """Do nothing, because any number of records will do."""

    def answer(self, problem: Problem, rng: np.random.Generator) -> Array:
        """Return the phase's output, where it does not depend on earlier phases."""
        raise NotImplementedError

    def answer_at(
        self, problem: Problem, rng: np.random.Generator, theta: Array, start: Array
    ) -> Array:
        """Return the output after a phase from ``start`` to ``theta``."""
        del theta, start
        return self.answer(problem, rng)


Descent = Loop | Minimization
Phase = Descent | Query

Calibration = Literal["exact", "paper"]
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Phases of one run, and what they do to privacy.

    Attributes
    ----------
    phases : tuple of Loop, Minimization or Query
        Run one after the other, each from where the last one ended.
    event : Event or None
        Privacy event under the budget's relation. None if nothing is proved.
    inputs : dict of str to number or word
        Public numbers of the calibration, for the certificate.
    kind : str
        Kind of the certificate in the registry, which says what the event rests on.
    start : ndarray of shape (dim,), optional
        Public starting point. The default is the domain's center.
    entry_bound : float
        Every entry of the features and of the response is clipped to this size first.
    """

    phases: tuple[Phase, ...]
    event: Event | None
    inputs: dict[str, float | int | str]
    kind: str = "declared"
    start: Array | None = None
    entry_bound: float = math.inf

    def __post_init__(self) -> None:
        """Check what needs no problem."""
        if not self.phases:
            check.fail("phases", "non-empty", "()")
        for index, phase in enumerate(self.phases):
            named_phase: dict[str, Any] = {f"phases[{index}]": phase}
            # The name in messages tells which phase is meant.
            check.instance((Loop, Minimization, Query), **named_phase)
            phase.check()
        check.instance((Event, type(None)), event=self.event)
        check.instance(dict, inputs=self.inputs)
        bound = self.entry_bound
        check.greater_than(0.0, entry_bound=bound, remedy="Infinity clips none.")

    def check(self, facts: PublicFacts) -> None:
        """Fail unless the phases fit the numbers of records and parameters."""
        for phase in self.phases:
            phase.check_fits(facts.num_records)
        if self.start is not None:
            check.array("start", self.start, shape=(facts.dim,))

    def check_private(self, facts: PublicFacts) -> None:
        """Fail if noise would vanish, or sums of bounded parts overflow."""
        for phase in self.phases:
            if not phase.is_noisy:
                remedy = "Thresholds and scales are too small for floating point."
                check.fail("phases", "noisy to be private", phase, remedy)
            bound = phase.estimator.record_bound(facts.dim)
            if math.isinf(bound):  # a mean that leaves it to the loss's slope bound
                continue
            # Sums of all parts must stay finite, and the bound a normal number.
            if not LEAST_BOUND <= bound <= FAR / facts.num_records:
                condition = f"from {LEAST_BOUND:g} to {FAR:g}/num_records to be private"
                check.fail("the bound of a record's gradient", condition, bound)

    @property
    def is_noisy(self) -> bool:
        """Whether anything is perturbed. Then no record may end the run."""
        return any(phase.is_noisy for phase in self.phases)


def _with_checks(method: Method) -> Method:
    """Return the method with checks of its arguments and of the optimizer's fields."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Optimizer, *args: object, **options: object) -> Any:
        # Positional and named arguments are checked alike.
        arguments = signature.bind(self, *args, **options).arguments
        check.instance(
            PublicFacts, facts=arguments["facts"], remedy="Pass problem.facts."
        )
        check.instance((Budget, type(None)), budget=arguments["budget"])
        if not self.can_be_pure:
            check_not_pure(
                arguments["budget"], f"{type(self).__name__}, as its proof needs it"
            )
        calibration = arguments.get("calibration", "exact")
        check.one_of(("exact", "paper"), calibration=calibration)
        self._check_sizes()
        return method(self, *args, **options)

    return cast(Method, call)


class Optimizer(Spec):
    """Base of all optimizers: frozen public numbers.

    A subclass turns the public facts of a problem and a budget into a `Recipe`. It
    never sees a record.
    """

    name: ClassVar[str]
    can_be_pure: ClassVar[bool] = False  # whether it has a proof at delta = 0

    # Checks are added to what a subclass defines itself, and not twice to what it
    # inherits.
    def __init_subclass__(cls) -> None:
        """Add the checks of all optimizers to the methods that users call."""
        for name in ("recipe", "risk_bound", "printed_growth_bound"):
            if name in vars(cls):
                setattr(cls, name, _with_checks(vars(cls)[name]))

    def _check_given(self, *positive: str, count: str = "") -> None:
        """Check fields that may be None: positive numbers, and a number >= 1."""
        for name in positive:
            if getattr(self, name) is not None:
                check.positive(**{name: getattr(self, name)})
        if count and getattr(self, count) is not None:
            check.integer(1, **{count: getattr(self, count)})

    def _check_sizes(self) -> None:
        """Fail where a field is so large or small that formulas overflow."""
        check.unwrap_numpy_fields(self)
        for entry in dataclasses.fields(self):  # type: ignore[arg-type]
            # Infinity and 0 have a meaning of their own, as "no limit" and "none".
            value = getattr(self, entry.name)
            if isinstance(value, float) and value != 0.0 and math.isfinite(value):
                named: dict[str, Any] = {entry.name: value}
                check.scale(**named)

    @_with_checks
    def recipe(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        calibration: Calibration = "exact",
    ) -> Recipe:
        """Return the phases and the event for a problem with these public facts.

        Parameters
        ----------
        facts : PublicFacts
            Public facts of the problem.
        budget : Budget or None
            Without a budget there is no noise and no event.
        calibration : {"exact", "paper"}
            Whether the noise is the proved or the published one.

        Returns
        -------
        Recipe

        Raises
        ------
        ValueError
            If an option is not one for these facts, the budget is pure, or a number of
            the calibration is beyond floating point.
        """
        try:
            return self._recipe(facts, budget, calibration)
        except (OverflowError, ZeroDivisionError):
            remedy = "Spend a larger epsilon or delta, or declare other bounds."
            condition = "such that no number of this method is beyond floating point"
            check.fail("budget", condition, budget, remedy)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return phases and event. Arguments and fields are checked already."""
        raise NotImplementedError


def refuse_paper(calibration: Calibration, remedy: str) -> None:
    """Fail for an algorithm that was published without a noise formula."""
    if calibration == "paper":
        check.fail("calibration", "'exact'", calibration, remedy)


def start_distance(facts: PublicFacts, distance: float | None) -> float:
    """Return a bound of the l2 distance from the start to a minimizer."""
    if distance is None and math.isinf(facts.radius):
        remedy = "Pass distance=..., a public bound of |start - minimizer|."
        check.fail("domain", "bounded without a distance", facts.domain, remedy)
    return facts.radius if distance is None else min(distance, facts.radius)


def check_any_loss(recipe: Recipe, optimizer: object, *, is_private: bool) -> None:
    """Reject a recipe whose steps, or whose privacy, need a loss of the margin."""
    condition = "private for losses that are no function of the margin"
    remedy = (
        "Use DPSGD, NoisyGD, NoisySGD or ClippedGD(noise='steps') with a clip, "
        "PrivateProximalSGD or AcceleratedClippedSGD."
    )
    for phase in recipe.phases:
        reason = _needs_margin(phase, is_private)
        if reason:
            check.fail("optimizer", condition, f"{optimizer!r}, which {reason}", remedy)


def _needs_margin(phase: Phase, is_private: bool) -> str:
    """Return why a phase needs a loss of the margin, or "" if it does not."""
    # Without a margin the clipped gradients of a loss are not the gradients of another
    # convex loss. Then only noise in every step protects the records.
    if not isinstance(phase, Loop):
        return "minimizes a convex objective: its minimizer can move far"
    estimator = phase.estimator
    if estimator.smoothing > 0.0:
        return "takes Moreau envelopes of a loss of the margin"
    if estimator.q != 2.0:
        return "truncates gradients in a norm other than the l2 norm"
    if not is_private:
        return ""
    if phase.output_stddev > 0.0:
        return "perturbs its output: clipped descent can move it far"
    # Any dimension shows whether the bound is finite.
    if math.isinf(estimator.record_bound(1)) or not estimator.is_bounded:
        return "trusts a Lipschitz constant that no clipping enforces"
    if isinstance(phase.noise, NoNoise) and not phase.step.is_noisy:
        return "adds no noise to its steps"
    return ""
