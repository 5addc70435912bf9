"""The plan of a release: what follows from public facts, and how it draws.

`plan_release` calibrates and certifies the mechanism before anything is drawn.
`ReleasePlan` then draws by one of two samplers, rejection or the proximal sampler. Each
has a proof that its draws are within gamma of the target in total variation, and gamma
is part of delta. So the choice between them may depend on the records. `Global` and
`TangentCells` are exact, and draw alone.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.renamed import RenamedKeys
from dpsample.core.spec import lazy_property
from dpsample.core.streams import (
    ReusableGenerator,
    starts,
    streams,
)
from dpsample.losses import Absolute, Quantile
from dpsample.privacy import (
    Budget,
    Certificate,
    ExponentialMechanism,
    calibrate,
)
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.problem.problem import Problem
from dpsample.running import chains
from dpsample.samplers import (
    Global,
    Localized,
    Proximal,
    TangentCells,
    gaussian_fit,
)
from dpsample.samplers.chain import COUNT
from dpsample.samplers.errors import (
    FUNCTION_FAILED,
    NoCertificate,
    WorkLimitError,
    raise_unless_ok,
)
from dpsample.samplers.localized import exact_rejection
from dpsample.samplers.localized import mode as modes
from dpsample.samplers.localized.prepared import (
    PATIENCE,
    Localization,
    PreparedLocalized,
)
from dpsample.samplers.proximal import metric
from dpsample.samplers.proximal.alternation import NO_LIMIT
from dpsample.samplers.proximal.proximal import (
    PreparedProximal,
    ProximalSetting,
    pass_work,
)
from dpsample.samplers.proximal.requirements import no_proximal_proof
from dpsample.samplers.whole_body.global_draws import (
    PreparedGlobal,
    explain_unsupported_facts,
)
from dpsample.samplers.whole_body.tangent_cells import explain_unsupported_cells
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.grid import PublicGrid
from dpsample.targets.reduced import (
    ReducedTarget,
    has_equalities,
    reduce,
    reduction_obstacle,
)
from dpsample.verification.recomputation import verify_own

# Beginning of every text that depends on the records.
NOT_PRIVATE = "NOT PRIVATE"
# Maximum number of coefficients. A plan holds a few square matrices of this size.
MAX_DIM = 10_000
SPEED_ADVICE = (
    "a smaller domain, a smaller epsilon, p = 2 or columns of similar scale take less, "
    "max_work= is a public limit"
)
# Adds a text to the live line of a terminal.
ShowProgress = Callable[[str], None]


def _show_nothing(_text: str) -> None:
    """Show nothing, where many draws are made at once."""


# Samplers that have a proof.
ReleaseSampler = Localized | Proximal | Global | TangentCells
PURE_ADVICE = (
    "Exact draws are proved for losses of this package on l2 balls, boxes and "
    "polytopes with an interior, and p = 2. Losses that are not smooth need at most 3 "
    "coefficients. With more, and delta = 0, take SmoothedHinge or Huber, or "
    "dps.optimizers.HeavyTailedFrankWolfe on an l1 ball. All else needs delta > 0 and "
    "Localized or Proximal."
)


class RejectionCounts(RenamedKeys):
    """Numbers of proposals, of candidates among them, and of records that were read."""

    # The former name of a key, which still works with a DeprecationWarning, and the
    # present one.
    present_keys: ClassVar[Mapping[str, str]] = {"asked": "candidates"}


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasePlan:
    """Data that all releases of one problem share.

    The fields follow from public facts. The lazy properties depend on the records. They
    are computed for the first draw and reused by the next ones.
    """

    mechanism: ExponentialMechanism
    certificate: Certificate
    target: Gibbs
    sampler: ReleaseSampler
    max_work: float  # passes over the records
    grid: PublicGrid  # on which theta is released
    # Whether public facts allow rejection by exact arithmetic. Then the bound of its
    # rounding errors is finite, because loss, regularizer and domain can be computed to
    # any number of digits. The certificate assumes real arithmetic in both cases.
    may_decide_exactly: bool

    @property
    def gamma(self) -> float:
        """Total-variation error of the sampler in exact arithmetic.

        The certificate states the gamma of the mechanism. A thousandth of it,
        `FLOAT_SHARE`, is reserved for rounding errors, and the sampler has the rest.
        """
        return (1.0 - exact_rejection.FLOAT_SHARE) * self.mechanism.gamma

    def with_records(self, problem: Problem) -> "ReleasePlan":
        """Return the plan for other records with the same public facts."""
        if isinstance(self.sampler, Localized | Global | TangentCells):
            _ = self.target.geometry  # computed here, so that all copies share it
        return replace(self, target=self.target._with_problem(problem))

    @lazy_property
    def localization(self) -> Localization | None:
        """Mode and localized region, or None if no region was found."""
        if not isinstance(self.sampler, Localized):
            return None
        target = self.target
        if has_equalities(target):
            target = self.reduced_target.target
        localization = Localization.find(target, self.gamma)
        if localization is None and not self.has_proximal_proof:
            return Localization.whole_domain(target)
        return localization

    @lazy_property
    def rejection_sampler(self) -> PreparedLocalized | None:
        """Rejection on the localized region, if it is practical or the only way.

        The pilot run has a public seed, 0, so its choices depend on the records only.
        They are the same for all releases and do not change the distribution of draws.
        """
        if self.localization is None:
            return None
        prepared = self.localization.prepare(streams(0, 1)[0])
        # It accepts in time if at least one of 100,000 candidates is accepted. The
        # choice is between samplers with a proof each, so it may depend on records.
        if prepared.accepts_in_time or not self.has_proximal_proof:
            return prepared
        return None

    @lazy_property
    def exact_sampler(self) -> exact_rejection.ExactRejection | None:
        """Rejection whose decisions no rounding error can change, if it is possible."""
        if self.rejection_sampler is None or not self.may_decide_exactly:
            return None
        return exact_rejection.ExactRejection.from_prepared(self.rejection_sampler)

    @lazy_property
    def global_sampler(self) -> PreparedGlobal:
        """Exact draws on the whole domain. They need no pilot run."""
        assert isinstance(self.sampler, Global | TangentCells)
        return self.sampler.prepare(self.target, streams(0, 1)[0])

    @property
    def is_rejection_cheap(self) -> bool:
        """Whether rejection is used without a look at the proximal sampler."""
        if self.rejection_sampler is None:
            return False
        is_only_way = not self.has_proximal_proof
        # Up to this number of expected passes over the records, the rejection sampler
        # is used without a pilot run of the proximal sampler.
        return is_only_way or self.rejection_sampler.expected_passes <= 100.0

    @lazy_property
    def reduced_target(self) -> ReducedTarget:
        """The target in free coordinates, for a domain without an interior."""
        return reduce(self.target, is_for_release=True)

    @lazy_property
    def has_proximal_proof(self) -> bool:
        """Whether the proximal sampler has a proof for this target (a public fact)."""
        return no_proximal_proof(self.target) == ""

    @lazy_property
    def proximal_setting(self) -> ProximalSetting:
        """Metrics and start of the proximal sampler."""
        sampler = self.sampler if isinstance(self.sampler, Proximal) else Proximal()
        target = self.target
        # Proximal draws need an interior. A domain may be flat without equalities, as
        # the simplex is, on which rejection draws directly.
        if metric.is_flat(target.domain, target.dim):
            target = self.reduced_target.target
        return ProximalSetting.from_sampler(sampler, target)

    def lift(self, theta: Array) -> Array:
        """Return the parameters of a draw, which may be in free coordinates."""
        if len(theta) == self.target.dim:
            return theta
        return self.reduced_target.lift(theta)

    @lazy_property
    def minimizer(self) -> Array:
        """Minimizer of the risk. Not private."""
        target, start = self.target, None
        if isinstance(self.sampler, Global | TangentCells):
            start = self.global_sampler.mode
        elif self.localization is not None:
            target, start = self.localization.target, self.localization.mode
        if start is not None:
            # With mu = 0 the energy is k F, so its minimizer is the one of the risk F.
            mode = modes.find(target, 0.0, start, max_decrement=0.1)
            if mode is not None:
                return self.lift(mode.point)
        return gaussian_fit.minimize(self.target, mu=0.0)[0]

    def draw(
        self,
        pilot: np.random.Generator,
        stream: np.random.Generator,
        show: ShowProgress,
    ) -> tuple[Array, dict[str, Any]]:
        """Return a draw within gamma of the target, and diagnostics of it.

        `Global` and `TangentCells` are exact, and draw alone. Rejection and the
        proximal sampler each have a proof of gamma. So the choice between them may
        depend on the records, namely on the expected work of each.
        """
        if isinstance(self.sampler, Global | TangentCells):
            return self._draw_globally(stream, show)
        rejection, proximal = self.rejection_sampler, None
        if rejection is not None and not self.is_rejection_cheap:
            proximal = self.proximal_setting.prepare(pilot, self.gamma)
            if proximal.trial.work < rejection.work:
                rejection = None
        if rejection is not None:
            theta, counts = self._draw_by_rejection(rejection, stream, show)
            if theta is not None:
                is_exact = not isinstance(theta, np.ndarray)
                notes = {
                    "method": "rejection",
                    **rejection.settings,
                    "counts": RejectionCounts(counts),
                    "decisions": "exact" if is_exact else "doubles",
                }
                return self.grid.round(theta), notes
        if proximal is None:
            proximal = self.proximal_setting.prepare(pilot, self.gamma)
        return self._draw_by_proximal_sampler(proximal, stream, show)

    def draw_many(self, seeds: Sequence[np.random.SeedSequence]) -> Array:
        """Return the draws of `release` with these seeds, of shape (num_seeds, dim).

        If whole draws are compiled, one call makes all of them. Rows that the compiled
        code leaves as NaN are drawn one by one.
        """
        generator = ReusableGenerator()
        thetas = np.full((len(seeds), self.target.dim), np.nan)
        is_compiled = self.is_rejection_cheap and self.exact_sampler is None
        if is_compiled and generator.is_known and not has_equalities(self.target):
            assert self.rejection_sampler is not None
            # Child 1 of a seed is ``stream`` below, so both ways give the same draws.
            seed_words = starts(seeds, 1)
            grid_and_work = self.grid.numbers, self.max_work
            self.rejection_sampler.draw_many(
                generator, seed_words, thetas, grid_and_work
            )
        for i in np.flatnonzero(np.isnan(thetas[:, 0])).tolist():
            pilot, stream = streams(seeds[i], 2)
            thetas[i] = self.draw(pilot, stream, _show_nothing)[0]
        return thetas

    def _draw_globally(
        self, stream: np.random.Generator, show: ShowProgress
    ) -> tuple[Array, dict[str, object]]:
        """Draw exactly on the whole domain, and release the nearest grid point.

        The draw is an exact real number, of which more digits are computed on demand. A
        *cell* is the set of points with the same nearest grid point.
        """

        def on_passes(done: float) -> None:
            show(f"{NOT_PRIVATE}: {done:.3g} passes over the records so far")

        prepared = self.global_sampler
        accepted, counts = prepared.draw(stream, self.max_work, on_passes=on_passes)
        cells = prepared.decisions.cell(accepted, self.grid.step)
        # ``cells`` are the integers of the nearest multiples of the grid's step.
        point = self.grid.step * np.array([float(cell) for cell in cells])
        return self.grid.round(point), {
            "method": "cells" if isinstance(self.sampler, TangentCells) else "global",
            **prepared.settings,
            "counts": RejectionCounts(counts),
            "decisions": "exact",
        }

    def _draw_by_rejection(
        self,
        prepared: PreparedLocalized,
        stream: np.random.Generator,
        show: ShowProgress,
    ) -> tuple[Sequence[Decimal] | Array | None, dict[str, int]]:
        """Draw by rejection. Return None if the proximal sampler should take over.

        Draws with exact decisions give up at a public limit only, because no rounding
        error changes them, and the proximal sampler decides in doubles. Other draws
        give up after `PATIENCE` times the expected number of proposals.
        """
        storage, passes = prepared.target.storage, prepared.expected_passes
        seconds = max(prepared.expected_seconds, passes * storage.pass_seconds)
        about = "about" if prepared.accepts_in_time else "more than"
        size = (
            f"{passes:.3g} passes over the records of {storage.pass_bytes / 1e9:.3g} GB"
        )
        expected = f"{about} {size}, {_describe_duration(seconds)}"
        show(f"{NOT_PRIVATE}: {expected}")

        def on_passes(done: float) -> None:
            show(f"{NOT_PRIVATE}: {done:.3g} passes so far, of {expected}")

        if self.exact_sampler is not None:
            return self.exact_sampler.draw(stream, self.max_work, on_passes=on_passes)
        patience = PATIENCE if self.has_proximal_proof else math.inf
        return prepared.draw(
            stream, self.max_work, patience=patience, on_passes=on_passes
        )

    def _draw_by_proximal_sampler(
        self,
        chain: PreparedProximal,
        stream: np.random.Generator,
        show: ShowProgress,
    ) -> tuple[Array, dict[str, Any]]:
        """Draw by the number of proximal steps that the proof of gamma requires."""
        num_steps = chain.certified_steps(self.gamma)
        if num_steps * chain.trial.step_work > self.max_work * pass_work(self.target):
            raise WorkLimitError
        seconds = num_steps * chain.trial.step_seconds
        show(f"{NOT_PRIVATE}: {_describe_duration(seconds)}")
        begin = time.perf_counter()
        max_records = self.max_work * self.target.storage.num_records

        def on_done(done: int) -> None:
            seconds_left = (num_steps / done - 1.0) * (time.perf_counter() - begin)
            left = _describe_duration(seconds_left)
            show(f"{NOT_PRIVATE}: {done} of {num_steps} steps, {left} left")
            if state.counts[COUNT.records] > max_records:
                raise WorkLimitError

        state = chain.init()
        runner = chain.runner(squeeze=True, max_proposals=NO_LIMIT)
        chains.advance(runner, state, stream, num_steps, on_done)
        # The runner may accept a point by bounds of the loss only. So the loss may not
        # have been evaluated yet at the point where the chain ended.
        theta = self.lift(state.position)
        if not np.isfinite(self.target.energy(theta)):
            raise_unless_ok(FUNCTION_FAILED)
        # The grid takes free coordinates too, which are fewer than those of theta.
        return self.grid.round(state.position), {
            "method": "proximal",
            "decisions": "doubles",
            "num_steps": num_steps,
            "step_size": chain.trial.step,
            "metric": chain.metric.name,
            "acceptance": chain.trial.acceptance,
            "expected_seconds": seconds,
            "counts": chain.counts(state),
        }


def _describe_duration(seconds: float) -> str:
    """Return an expected duration as text, with advice if it is long."""
    if math.isinf(seconds):
        return f"longer than the pilot run can tell: {SPEED_ADVICE}"
    for unit_seconds, unit in ((3e7, "years"), (86400.0, "days"), (3600.0, "hours")):
        if seconds > 3.0 * unit_seconds:
            return f"about {seconds / unit_seconds:.2g} {unit} of work: {SPEED_ADVICE}"
    # Expected duration from which the live line also says what would shorten the draw.
    advice = f": {SPEED_ADVICE}" if seconds > 600.0 else ""
    return f"about {seconds:.2g} s of work{advice}"


def check_facts(problem: Problem, budget: Budget, sampler_share: float) -> None:
    """Raise a ValueError for arguments that no release allows."""
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Budget, budget=budget, remedy="Build a dps.Budget first.")
    if problem.dim > MAX_DIM:
        condition = f"with at most {MAX_DIM} coefficients"
        remedy = "A release holds matrices of their square; dps.minimize does not."
        check.fail("problem", condition, problem.dim, remedy)
    check.open_interval(
        0.0, 1.0, sampler_share=sampler_share, remedy="The sampler needs part of delta."
    )


def _describe_options(options: object) -> object:
    """Return options as text, or a new object if they have none.

    A new object is equal to nothing else, so that such a plan is never reused. An
    example of an option without a text is an integer of too many digits.
    """
    try:
        return repr(options)
    except Exception:
        return object()


@check.unwrap_numpy
def plan_release(
    problem: Problem,
    budget: Budget,
    *,
    sampler: ReleaseSampler | None,
    max_work: float | None,
    seeded: bool,
    has_deadline: bool = False,
    **options: Any,
) -> ReleasePlan:
    """Check, calibrate and certify, before anything is drawn.

    The problem keeps the last plan. So replicates, and later releases with the same
    arguments, draw at once.
    """
    check_facts(problem, budget, options["sampler_share"])
    if sampler is not None:
        check.instance(
            (Localized, Proximal, Global, TangentCells),
            sampler=sampler,
            remedy="No other sampler has a proof. Use dps.sample for private studies.",
        )
    if budget.is_pure:
        options["sampler_share"] = 0.0
        _check_has_no_limit(max_work, has_deadline=has_deadline)
    max_passes = math.inf
    if max_work is not None:
        check.at_least(1.0, max_work=max_work, remedy="A draw reads all records.")
        max_passes = float(max_work)
    # Options are compared as text, because 1.0 == True, and only one of them is valid.
    text = _describe_options(options)
    key = problem.facts, budget, text, sampler, max_passes, seeded, has_deadline

    def make_plan(problem: Problem) -> ReleasePlan:
        mechanism = calibrate(problem, budget, **options)
        target = mechanism.target(problem)
        chosen_sampler = _choose_sampler(sampler, target, is_pure=budget.is_pure)
        grid = PublicGrid.for_target(target)
        error_bound = math.inf
        if isinstance(chosen_sampler, Localized):
            gamma = mechanism.gamma
            error_bound = exact_rejection.floating_bound(target, grid, gamma)
        certificate = mechanism.certificate.with_sampler(
            sampler=MechanismSpec.of(chosen_sampler),
            clip_rows=problem.clip_rows,
            max_work=None if math.isinf(max_passes) else max_passes,
            has_deadline=has_deadline,
            seeded=seeded,
        )
        # Verification reads public numbers only, so it fails for all records or for
        # none.
        verify_own(certificate)
        # In free coordinates the proof of exact decisions does not apply.
        is_full = isinstance(chosen_sampler, Localized) and not has_equalities(target)
        return ReleasePlan(
            mechanism=mechanism,
            certificate=certificate,
            target=target,
            sampler=chosen_sampler,
            max_work=max_passes,
            grid=grid,
            may_decide_exactly=is_full and math.isfinite(error_bound),
        )

    return problem._reuse_plan(key, make_plan)


def _check_has_no_limit(max_work: float | None, *, has_deadline: bool) -> None:
    """Raise a ValueError for a limit of the work of a draw at delta = 0.

    Whether a limit suffices depends on the records, with a probability that only
    delta > 0 could pay.
    """
    remedy = "Whether a limit suffices depends on the records. Use delta > 0 with it."
    if max_work is not None:
        check.fail("max_work", "None at delta = 0", max_work, remedy)
    if has_deadline:
        check.fail("deadline", "None at delta = 0", "a number of seconds", remedy)


def favors_cells(target: Gibbs) -> bool:
    """Return whether `TangentCells` is expected to be faster than `Proximal`.

    The answer follows from public facts. On the line a draw by cells takes one pass
    over the records after some tens of passes for the cells. With k of at most n,
    margins of 1 and more and at least 10,000 records, `Proximal` took hundreds to tens
    of thousands of passes for absolute and quantile losses, and releases by cells were
    2 to 50 times as fast. For hinge losses, larger k or narrow domains `Proximal` can
    take few passes, and so it can with more coefficients, where cells take longer.
    """
    facts = target.problem.facts
    if not (isinstance(facts.loss, Absolute | Quantile) and facts.dim == 1):
        return False
    if not (facts.num_records >= 10_000 and facts.margin_bound >= 1.0):
        return False
    is_proved = not explain_unsupported_cells(facts, target.regularizer)
    return target.k <= facts.num_records and is_proved


def _choose_sampler(
    sampler: ReleaseSampler | None, target: Gibbs, *, is_pure: bool
) -> ReleaseSampler:
    """Return the sampler of a release; raise if it has no proof for the target.

    The choice follows from public facts, before any work and alike for all records.
    """
    if is_pure and isinstance(sampler, Localized | Proximal):
        raise NoCertificate(
            f"{type(sampler).__name__} has an error in total variation, which "
            "delta = 0 cannot pay: use dps.samplers.Global or delta > 0."
        )
    facts, regularizer = target.problem.facts, target.regularizer
    if is_pure and sampler is None:
        # `has_decimals` says that decimals compute the loss, and `has_digits` that it
        # is smooth as well. `Global` needs a smooth loss, `TangentCells` does not.
        has_cells = facts.loss.has_decimals and not facts.loss.has_digits
        sampler = TangentCells() if has_cells else Global()
    if isinstance(sampler, Global | TangentCells):
        explain = explain_unsupported_facts
        if isinstance(sampler, TangentCells):
            explain = explain_unsupported_cells
        reason = explain(facts, regularizer)
        if reason:
            raise NoCertificate(f"{reason} {PURE_ADVICE}")
        return sampler
    if sampler is None and favors_cells(target):
        return TangentCells()
    is_supported, reason = Localized()._supports(target)
    if sampler is None:
        sampler = Localized() if is_supported else Proximal()
    elif isinstance(sampler, Localized) and not is_supported:
        check.fail("sampler", "one that supports the target", sampler, reason)
    # Rejection does not need a bounded domain, so its reasons are fewer.
    if isinstance(sampler, Proximal):
        reason = no_proximal_proof(target)
    else:
        reason = reduction_obstacle(target) if has_equalities(target) else ""
    if reason:
        raise NoCertificate(reason)
    return sampler
