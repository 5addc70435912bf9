"""The verb for releases: the only place where privacy meets sampling."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

import numpy as np

from dpsample.answers.results import Release
from dpsample.core import check, pauses
from dpsample.core.arithmetic import require_arithmetic
from dpsample.core.arrays import Array
from dpsample.core.spec import lazy_property
from dpsample.core.streams import (
    ReusableGenerator,
    Seed,
    release_streams,
    seed_sequence,
    starts,
    streams,
)
from dpsample.privacy import (
    Budget,
    Certificate,
    ExponentialMechanism,
    Ledger,
    LedgerFile,
    calibrate,
)
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.privacy.certificates.terms import Calibration, Risk
from dpsample.privacy.usefulness import warn_if_useless
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.problem.storage import IN_MEMORY
from dpsample.regularizers import Regularizer
from dpsample.running import chains
from dpsample.running import progress as screen
from dpsample.samplers import Localized, Proximal, gaussian_fit
from dpsample.samplers.chain import RECORDS
from dpsample.samplers.errors import (
    FUNCTION_FAILED,
    BottomError,
    DeadlineError,
    NoCertificate,
    WorkLimitError,
    raise_unless_ok,
)
from dpsample.samplers.localized import exact_rejection, mode
from dpsample.samplers.localized.localized import PATIENCE, Place, PreparedLocalized
from dpsample.samplers.proximal import constant_time as timed
from dpsample.samplers.proximal import fixed_passes, metric
from dpsample.samplers.proximal.alternation import NO_CAP
from dpsample.samplers.proximal.proximal import (
    PreparedProximal,
    ProximalSetting,
    pass_work,
)
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.grid import PublicGrid
from dpsample.targets.reduced import (
    ReducedTarget,
    facts_obstacle,
    has_equalities,
    reduce,
    reduction_obstacle,
)
from dpsample.verification.recomputation import verify_own

NOT_PRIVATE = "NOT PRIVATE"
MOST_DIM = 10_000  # coefficients: a few matrices of them
Say = Callable[[str], None]  # what the live line of a terminal adds
SLEEP_SECONDS = 0.1  # of one call: then whoever listens is heard
TOO_LONG_SECONDS = 600.0  # expected work from which the line says what helps
SHORTER = (
    "a smaller domain, a smaller epsilon, p = 2 or columns of similar scale take less, "
    "max_work= is a public limit"
)
INTERRUPTED = (
    "release was interrupted. Nothing is released, and the budget counts as spent if "
    "the time that it took was the reason: that depends on the records."
)


PILOT_SEED = 0
# Expected passes over the records from which the proximal sampler may cost less.
MANY_PASSES = 100.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasePlan:
    """All that releases with different random bits share."""

    mechanism: ExponentialMechanism
    certificate: Certificate
    target: Gibbs
    sampler: Localized | Proximal
    max_work: float  # passes over the records
    grid: PublicGrid  # on which theta lies
    is_exact: bool  # whether public facts allow the decisions of exact arithmetic

    @property
    def gamma(self) -> float:
        """Total-variation error of the sampler in exact arithmetic."""
        return (1.0 - exact_rejection.SHARE) * self.mechanism.gamma

    def on(self, problem: Problem) -> "ReleasePlan":
        """Plan for other records with the same public facts."""
        if isinstance(self.sampler, Localized):
            _ = self.target.geometry  # made once for all
        return replace(self, target=self.target._with_problem(problem))

    @lazy_property
    def place(self) -> Place | None:
        """Mode and localized region, if there are; they depend on the records."""
        if isinstance(self.sampler, Proximal):
            return None
        target = self.reduced.target if has_equalities(self.target) else self.target
        place = Place.of(target, self.gamma)
        if place is None and not self.has_room:
            return Place.everywhere(target)
        return place

    @lazy_property
    def prepared(self) -> PreparedLocalized | None:
        """Sampler of the region, if it is practical or there is no other one.

        Its pilot run has public bits of its own: what it chooses depends on the
        records alone, is the same for all releases, and changes no law.
        """
        if self.place is None:
            return None
        prepared = self.place.prepare(streams(PILOT_SEED, 1)[0])
        return prepared if prepared.is_practical or not self.has_room else None

    @lazy_property
    def exact(self) -> exact_rejection.ExactRejection | None:
        """Rejection that no rounding error decides, if public facts and place allow."""
        if self.prepared is None or not self.is_exact:
            return None
        return exact_rejection.ExactRejection.of(self.prepared)

    @property
    def is_cheap(self) -> bool:
        """Whether rejection is taken without a look at the proximal sampler."""
        if self.prepared is None:
            return False
        return not self.has_room or self.prepared.expected_passes <= MANY_PASSES

    @lazy_property
    def reduced(self) -> ReducedTarget:
        """Free coordinates of a domain without an interior."""
        return reduce(self.target)

    @lazy_property
    def has_room(self) -> bool:
        """Whether domain and records allow the proximal sampler, a public fact."""
        return no_proof(self.target) == ""

    @lazy_property
    def setting(self) -> ProximalSetting:
        """Metrics and start of the proximal sampler; they depend on the records."""
        sampler = self.sampler if isinstance(self.sampler, Proximal) else Proximal()
        is_flat = metric.is_flat(self.target.problem.domain, self.target.dim)
        return ProximalSetting.of(
            sampler, self.reduced.target if is_flat else self.target
        )

    def lifted(self, theta: Array) -> Array:
        """Parameters of a draw, in free coordinates if it is shorter."""
        return theta if len(theta) == self.target.dim else self.reduced.lift(theta)

    @lazy_property
    def best(self) -> Array:
        """Minimizer of the risk. Not private."""
        if self.place is not None:
            near = self.place.mode
            found = mode.find(self.place.target, 0.0, near, small=0.1)
            if found is not None:
                return self.lifted(found.point)
        return gaussian_fit.minimize(self.target, mu=0.0)[0]

    def draw(
        self,
        pilot: np.random.Generator,
        stream: np.random.Generator,
        say: Say,
    ) -> tuple[Array, dict[str, Any]]:
        """One draw within gamma of the target, and what is said of it.

        Pilot runs choose between two samplers, each with its own proof of gamma, and
        tell ``say`` what they expect.
        """
        prepared, chain = self.prepared, None
        if prepared is not None and not self.is_cheap:
            chain = self.setting.prepare(pilot, self.gamma)
            if chain.trial.work < prepared.work:
                prepared = None
        if prepared is not None:
            theta, counts = self._rejected(prepared, stream, say)
            if theta is not None:
                notes = {"method": "rejection", **prepared.settings, "counts": counts}
                is_exact = not isinstance(theta, np.ndarray)
                notes["decisions"] = "exact" if is_exact else "doubles"
                return self.grid.round(theta), notes
        if chain is None:
            chain = self.setting.prepare(pilot, self.gamma)
        return self._walked(chain, stream, say)

    def draw_each(self, seeds: Sequence[np.random.SeedSequence]) -> Array:
        """Thetas of `release` with these seeds, shape (num_seeds, dim).

        In compiled code, where all of a draw is.
        """
        room, thetas = (
            ReusableGenerator(),
            np.full((len(seeds), self.target.dim), np.nan),
        )
        has_interior = not has_equalities(self.target)
        if self.is_cheap and self.exact is None and room.is_known and has_interior:
            assert self.prepared is not None
            words, limits = starts(seeds, 1), (self.grid.numbers, self.max_work)
            self.prepared.draw_each(room, words, thetas, limits)
        for i in np.flatnonzero(np.isnan(thetas[:, 0])).tolist():
            pilot, stream = streams(seeds[i], 2)
            thetas[i] = self.draw(pilot, stream, lambda _text: None)[0]
        return thetas

    def _rejected(
        self, prepared: PreparedLocalized, stream: np.random.Generator, say: Say
    ) -> tuple[Sequence[Decimal] | Array | None, dict[str, int]]:
        """Draw by rejection; without end if there is nothing to fall back on.

        Or if the fallback's rounding errors are not counted and those here are.
        """
        storage, passes = prepared.target.storage, prepared.expected_passes
        seconds = max(prepared.expected_seconds, passes * storage.pass_seconds)
        about = "about" if prepared.is_practical else "more than"
        size = (
            f"{passes:.3g} passes over the records of {storage.pass_bytes / 1e9:.3g} GB"
        )
        expected = f"{about} {size}, {_time(seconds)}"
        say(f"{NOT_PRIVATE}: {expected}")

        def on_passes(done: float) -> None:
            say(f"{NOT_PRIVATE}: {done:.3g} passes so far, of {expected}")

        if self.exact is not None:
            return self.exact.draw(stream, self.max_work, on_passes=on_passes)
        patience = PATIENCE if self.has_room else math.inf
        return prepared.draw(
            stream, self.max_work, patience=patience, on_passes=on_passes
        )

    def _walked(
        self, chain: PreparedProximal, stream: np.random.Generator, say: Say
    ) -> tuple[Array, dict[str, Any]]:
        """Draw by the proximal sampler, whatever its proved number of steps is."""
        num_steps = chain.certified_steps(self.gamma)
        if num_steps * chain.trial.step_work > self.max_work * pass_work(self.target):
            raise WorkLimitError
        seconds = num_steps * chain.trial.step_seconds
        say(f"{NOT_PRIVATE}: {_time(seconds)}")
        begin = time.perf_counter()
        most = self.max_work * self.target.storage.num_records

        def on_done(done: int) -> None:
            left = _time((num_steps / done - 1.0) * (time.perf_counter() - begin))
            say(f"{NOT_PRIVATE}: {done} of {num_steps} steps, {left} left")
            if state.counts[RECORDS] > most:
                raise WorkLimitError

        state = chain.init()
        runner = chain.runner(squeeze=True, max_tries=NO_CAP)
        chains.advance(runner, state, stream, num_steps, on_done)
        theta = self.lifted(state.position)
        # The squeeze may accept a point at which the loss was never evaluated.
        if not np.isfinite(self.target.energy(theta)):
            raise_unless_ok(FUNCTION_FAILED)
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


def no_proof(target: Gibbs) -> str:
    """Why the proximal sampler has no proof for a target, by public facts; or empty."""
    if not target.problem.storage.is_in_memory:
        return f"Records that are not in memory need a smooth loss. {IN_MEMORY}"
    return no_walk(target.problem.facts, target.regularizer)


def no_walk(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Why it has none for records of these facts, wherever they are; or empty."""
    domain, dim = facts.domain, facts.dim
    if metric.is_flat(domain, dim):
        reason = facts_obstacle(facts, regularizer)
        if reason:
            return f"The {domain.name} has no interior. {reason}"
        if not domain.is_bounded:
            return f"The {domain.name} is unbounded: its draws need a bounded one."
        return ""
    try:
        metric.require_room(domain, dim, "certified", "")
    except NoCertificate as error:
        return str(error)
    return ""


def _time(seconds: float) -> str:
    """Put an expected time in words, with what helps if it is long."""
    for size, unit in ((3e7, "years"), (86400.0, "days"), (3600.0, "hours")):
        if math.isinf(seconds):
            return f"longer than the pilot run can tell: {SHORTER}"
        if seconds > 3.0 * size:
            return f"about {seconds / size:.2g} {unit} of work: {SHORTER}"
    remedy = f": {SHORTER}" if seconds > TOO_LONG_SECONDS else ""
    return f"about {seconds:.2g} s of work{remedy}"


@contextmanager
def _all_or_nothing(*, is_shown: bool) -> Iterator[Say]:
    """Show a live line, and say after Ctrl-C that nothing is out.

    Yields what adds to the line; numbers of steps and tries depend on the records, so
    there is none if the time is public.
    """
    title = "release is drawing; after Ctrl-C nothing is released"
    try:
        with screen.patience(title, is_wanted=is_shown, remedy=SHORTER) as say:
            yield say
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None


def _by_deadline(due: float, draw: Callable[[], Release]) -> Release:
    """Hand over what ``draw`` returns at the time ``due``, or fail then.

    Neither what failed, nor when, nor an answer that comes late is told.
    """

    def end_if_late() -> None:
        if time.monotonic() >= due:
            raise DeadlineError

    answers = []  # emptied before anything raises, for tracebacks hold variables
    try:
        with (
            suppress(Exception),  # one public message for whatever it was
            pauses.listening(end_if_late),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            answers.append(draw())
        if time.monotonic() >= due:
            answers.clear()
        while (left := due - time.monotonic()) > 0.0:
            time.sleep(min(left, SLEEP_SECONDS))
            pauses.notify_listeners()
    except BaseException:
        answers.clear()
        raise
    if not answers:
        raise DeadlineError
    return answers[0]


@screen.compiles_first(seconds=8.0)
@pauses.single_threaded_blas()
@check.unwrap_numpy
def release(
    problem: Problem,
    budget: Budget,
    *,
    p: float = 2.0,
    risk: Risk = "population",
    calibration: Calibration = "exact",
    sampler_share: float = 0.1,
    strong_convexity: float = 0.0,
    confidence: float | None = None,
    sampler: Localized | Proximal | None = None,
    max_work: float | None = None,
    deadline: float | None = None,
    constant_time: bool = False,
    work: int | None = None,
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
    progress: bool = True,
) -> Release:
    r"""Draw one differentially private parameter vector, with a certificate.

    One draw of the regularized exponential mechanism :math:`e^{-k(F + \mu r)}`, with
    (k, mu) calibrated to the budget and the sampler's proved total-variation error
    charged to delta.

    Parameters
    ----------
    problem : Problem
        Records, loss, domain and declared bounds.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    p : float
        Norm in which sensitivity and regularizer are measured, in [1, inf].
    risk : {"population", "empirical"}
        Risk whose bound is minimized.
    calibration : {"exact", "closed_form", "paper"}
        Inversion of the Gaussian privacy curve; "paper" reproduces printed constants
        and is never releasable.
    sampler_share : float
        Part of delta that pays for the sampler, in (0, 1).
    strong_convexity : float
        Strength of a ridge that belongs to the objective; see `calibrate`.
    confidence : float, optional
        Calibrate for a risk bound that holds with this probability.
    sampler : Localized or Proximal, optional
        A sampler with a proof; by default ``Localized()``, which goes over to
        ``Proximal()`` where rejection is not possible or costs more.
    max_work : float, optional
        Most passes over the records that the draw may take, beside the fit. If they do
        not suffice nothing is released, and the budget counts as spent.
    deadline : float, optional
        Seconds from the beginning of the call at which the answer is handed over, not
        before. If the draw is not finished then, or failed, nothing is released, the
        budget counts as spent, and the error says no more. Nothing is shown meanwhile.
        The first draw on a machine waits for compilation: run "dpsample warm".
    constant_time : bool
        Make the same passes over the records, branches and draws of random words
        whatever the records are, and release theta or, with a probability below gamma /
        10 that delta pays for, nothing: for `Logistic`, `SmoothedHinge`, `Huber` and
        `Squared` losses of dense rows on l2 balls and the whole space, with p = 2.
    work : int, optional
        Passes over the records of a ``constant_time`` draw: too few are refused, before
        any work. By default as few as are proved to suffice.
    ledger : Ledger or LedgerFile, optional
        Where the certificate is entered before anything is drawn. Without room for it
        nothing is.
    seed : int, optional
        Reproduces a study's run, which is then not releasable. By default the
        operating system's entropy is used.
    progress : bool
        Show a live line in a terminal or notebook if the draw takes a moment, except
        with a ``deadline`` or ``constant_time``. It is gone at the end. In a terminal
        it has numbers that depend on the records, marked NOT PRIVATE.

    Returns
    -------
    Release
        ``theta`` of shape (dim,), ``certificate``, ``mechanism`` and the not private
        ``nonprivate_diagnostics``.

    Raises
    ------
    ValueError
        If an argument is malformed, there are more than 10 000 coefficients, or the
        ledger has no room for the release.
    NoCertificate
        If the sampler has no proof for targets with these public facts: loss,
        regularizer, domain. Records never refuse a draw: however long theirs takes, it
        is begun, and the live line of a terminal tells how long.
    CertificateError
        If the certificate does not pass `verify`, which no input should bring about;
        nothing was drawn then.
    SamplingError
        If a loss raises or returns NaN, a declared bound is found not to hold,
        ``max_work`` passes do not suffice, the draw misses its ``deadline``, or a
        ``constant_time`` draw ends without an answer.

    Notes
    -----
    **Guarantee.** If the declared bounds hold for every possible record, theta is
    (epsilon, delta)-differentially private under the relation: the exact mechanism is
    (epsilon, delta_0)-DP by the Gaussian comparison theorem (arXiv:2207.08347, Theorem
    2) and the draw is within total variation gamma of it on every data set, which costs
    (1 + e^epsilon) gamma. The running time depends on the records: do not publish it,
    except for ``constant_time``, which takes many times as long.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> answer = dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> answer.theta.shape, answer.certificate.releasable
    ((3,), True)
    """
    begin = time.monotonic()
    seed_sequence(seed)  # refuses what is no seed, before any work
    options: dict[str, Any] = {
        "p": p,
        "risk": risk,
        "calibration": calibration,
        "sampler_share": sampler_share,
        "strong_convexity": strong_convexity,
        "confidence": confidence,
    }
    check.instance(bool, constant_time=constant_time, progress=progress)
    if seed is None:
        require_arithmetic()  # before a plan is kept
    if constant_time:
        _check_facts(problem, budget, sampler_share)
        others = {"sampler": sampler, "max_work": max_work, "deadline": deadline}
        for name, value in others.items():
            if value is not None:
                check.fail(name, "None with constant_time=True", value)
        if work is not None:
            check.integer(1, work=work)
        return _in_constant_time(problem, budget, options, work, ledger, seed)
    if work is not None:
        check.fail("work", "None without constant_time=True", work, "See max_work.")
    if deadline is not None:
        check.positive(deadline=deadline, remedy="It is in seconds from the call.")
    plan = planned(
        problem,
        budget,
        sampler=sampler,
        max_work=max_work,
        seeded=seed is not None,
        has_deadline=deadline is not None,
        **options,
    )
    warn_if_useless(problem.facts, budget, plan.mechanism.risk_bound)
    spend(ledger, plan.certificate)
    with (
        release_streams(seed, 2) as rngs,
        _all_or_nothing(is_shown=progress and deadline is None) as say,
    ):
        if deadline is None:
            return _drawn(problem, plan, rngs, say)
        return _by_deadline(begin + deadline, lambda: _drawn(problem, plan, rngs, say))


def _check_facts(problem: Problem, budget: Budget, sampler_share: float) -> None:
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Budget, budget=budget, remedy="Build a dps.Budget first.")
    if problem.dim > MOST_DIM:
        condition = f"with at most {MOST_DIM} coefficients"
        remedy = "A release holds matrices of their square; dps.minimize does not."
        check.fail("problem", condition, problem.dim, remedy)
    check.open_interval(
        0.0, 1.0, sampler_share=sampler_share, remedy="The sampler needs part of delta."
    )


def _in_constant_time(
    problem: Problem,
    budget: Budget,
    options: dict[str, Any],
    work: int | None,
    ledger: Ledger | LedgerFile | None,
    seed: Seed,
) -> Release:
    """Draw by a public number of passes: theta, or nothing with a probability paid."""
    mechanism = calibrate(problem, budget, **options)
    if problem.data.dense.shape[0] == 0:
        check.fail(
            "features",
            "dense with constant_time=True",
            "a sparse matrix",
            "How many numbers are not 0 would show: pass features.toarray().",
        )
    chosen = timed.plan(mechanism, work)
    certificate = mechanism.certificate.with_sampler(
        sampler=repr(chosen), clip_rows=problem.clip_rows, seeded=seed is not None
    )
    verify_own(certificate)
    grid = PublicGrid.for_target(mechanism.target(copy.copy(problem)))
    warn_if_useless(problem.facts, budget, mechanism.risk_bound)
    spend(ledger, certificate)
    with release_streams(seed, 1) as (stream,), _all_or_nothing(is_shown=False):
        # Nothing else of the run stays in a variable, which tracebacks hold.
        theta = fixed_passes.draw(problem, mechanism, chosen, stream)[0]
    if theta is None:
        raise BottomError
    # No risk and no fit: they take a time of their own, before theta is handed over.
    return Release(
        theta=grid.round(theta),
        certificate=certificate,
        feature_names=problem.feature_names,
        encoding=problem.encoding,
        mechanism=mechanism,
        nonprivate_diagnostics={"method": "constant time", "num_passes": chosen.work},
    )


def _drawn(
    problem: Problem,
    plan: ReleasePlan,
    rngs: Sequence[np.random.Generator],
    say: Say,
) -> Release:
    """Draw under a plan, with two streams."""
    theta, notes = plan.draw(rngs[0], rngs[1], say)
    best = plan.best
    risk, least = problem._risks(np.stack([theta, best])).tolist()
    return Release(
        theta=theta,
        certificate=plan.certificate,
        feature_names=problem.feature_names,
        encoding=problem.encoding,
        mechanism=plan.mechanism,
        nonprivate_diagnostics={
            **notes,
            "risk": risk,
            "non_private_risk": least,
            "non_private_theta": best.copy(),
        },
    )


def _text(options: object) -> object:
    """Options as text; equal to nothing if they have none, as integers too long."""
    try:
        return repr(options)
    except Exception:
        return object()


@check.unwrap_numpy
def planned(
    problem: Problem,
    budget: Budget,
    *,
    sampler: Localized | Proximal | None,
    max_work: float | None,
    seeded: bool,
    has_deadline: bool = False,
    **options: Any,
) -> ReleasePlan:
    """Check, calibrate and certify, before anything is drawn.

    The problem keeps the last plan: replicates, and releases that follow, draw at once.
    """
    _check_facts(problem, budget, options["sampler_share"])
    if sampler is not None:
        check.instance(
            (Localized, Proximal),
            sampler=sampler,
            remedy="No other sampler has a proof. Use dps.sample for private studies.",
        )
    if max_work is not None:
        check.at_least(1.0, max_work=max_work, remedy="A draw reads all records.")
    most = math.inf if max_work is None else float(max_work)
    # As text: 1.0 and True are equal, and one of them is refused.
    given = _text(options)
    key = problem.facts, budget, given, sampler, most, seeded, has_deadline
    kept = problem.plan  # read once: another thread may replace it
    if kept is not None and kept[0] == key:
        return cast(ReleasePlan, kept[1])
    mechanism = calibrate(problem, budget, **options)
    # A copy has no plan: no circle keeps the records after their last use.
    target = mechanism.target(copy.copy(problem))
    # By public facts, before any work and for all records.
    is_smooth, reason = Localized()._supports(target)
    if sampler is None:
        sampler = Localized() if is_smooth else Proximal()
    elif isinstance(sampler, Localized) and not is_smooth:
        check.fail("sampler", "one that supports the target", sampler, reason)
    if isinstance(sampler, Proximal) or has_equalities(target):
        # Rejection needs no bounded domain.
        is_walk = isinstance(sampler, Proximal)
        reason = no_proof(target) if is_walk else reduction_obstacle(target)
        if reason:
            raise NoCertificate(reason)
    grid = PublicGrid.for_target(target)
    is_exact = isinstance(sampler, Localized) and not has_equalities(target)
    bound = exact_rejection.floating_bound(target, grid, mechanism.gamma)
    certificate = mechanism.certificate.with_sampler(
        sampler=repr(sampler),
        clip_rows=problem.clip_rows,
        max_work=None if math.isinf(most) else most,
        has_deadline=has_deadline,
        seeded=seeded,
    )
    verify_own(certificate)  # only public numbers: it refuses the same for all records
    plan = ReleasePlan(
        mechanism=mechanism,
        certificate=certificate,
        target=target,
        sampler=sampler,
        max_work=most,
        grid=grid,
        is_exact=is_exact and math.isfinite(bound),
    )
    problem.plan = key, plan
    return plan
