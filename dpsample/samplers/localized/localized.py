"""Independent exact draws on the localized region, by rejection.

`mode` finds x0, `region` the set that holds all but gamma of the target and a quadratic
below the energy there, `proposals` draws from the quadratic. A try is accepted if an
exponential variable is above D, the energy above the quadratic: a sum of non-negative
terms, one per record, that ends as soon as it is above: `tries`, which is compiled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import pointer
from dpsample.core.spec import lazy_property
from dpsample.core.streams import ReusableGenerator, Words
from dpsample.domains import PROJECT
from dpsample.losses import Loss, RecordGradient
from dpsample.samplers.chain import (
    ChainState,
    Runner,
    Settings,
    identify_target,
    new_state,
)
from dpsample.samplers.errors import (
    FUNCTION_FAILED,
    TEXTS,
    SamplingError,
    WorkLimitError,
    raise_unless_ok,
)
from dpsample.samplers.localized import blocks, columns, proposals
from dpsample.samplers.localized import mode as modes
from dpsample.samplers.localized import region as regions
from dpsample.samplers.localized import tries as kernels
from dpsample.samplers.localized.blocks import MAX_KEPT
from dpsample.samplers.localized.columns import ChunkColumns
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.proposals import (
    NONE,
    Corner,
    Proposal,
    proposal,
)
from dpsample.samplers.localized.region import Region
from dpsample.samplers.localized.tries import (
    MAX_BLOCK,
    DrawLimits,
    LocalFrame,
    TryPieces,
    TryRoom,
    call,
)
from dpsample.samplers.proximal.proximal import pass_work
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.grid import GridNumbers

# Tries of the pilot run, how many of them are weighed at least, multiply-adds up to
# which more are, and the relative error of their mean at which no more are.
NUM_TRIALS, LEAST_WEIGHED, CHEAP_WORK, PRECISE = 512, 24, 6e6, 0.02
RARE = 1e-5  # share of accepted ones below which there are better ways
NEVER = 1e-7  # share that stands for any smaller one: the expected work is then a bound
# Tries, in expectations, after which a draw falls back on the proximal sampler.
PATIENCE = 50.0
DOMAIN_NUMBERS = 10**7  # of a polytope's rows, that one call reads
# Error of draws for study.
STUDY_GAMMA = 1e-9
# Stream of calls that draw nothing.
UNUSED = np.random.default_rng(0)


def reason_against(loss: Loss) -> str:
    """Why no energy of this loss can be localized; empty if it may be."""
    if isinstance(loss, RecordGradient):
        return "Localization needs losses of a margin: use Proximal."
    zero = np.zeros(1)
    if not np.isfinite(loss.curvature(zero, zero, np.ones(1))[1]).all():
        return (
            f"The {loss.name} loss has kinks, at which no quadratic touches the "
            "energy from below: use Proximal or a smoothed loss."
        )
    return ""


@dataclass(frozen=True)
class Localized(Sampler):
    r"""Exact rejection on the region that holds all but gamma of the target.

    Losses with a bounded second derivative and regularizers that are strongly convex in
    l2, on any domain if the mode is inside; with an active boundary on balls, boxes,
    polytopes and the simplex. Where rejection is not possible or costs more, `release`
    uses `Proximal` in its place, which keeps the same proof of gamma.

    Notes
    -----
    **Guarantee.** Draws are independent and follow the target given a region that holds
    all but gamma of it, whatever the records: total variation at most gamma per draw.
    Theorems A to C of `dpsample.samplers.localized.region`.

    Examples
    --------
    >>> from dpsample.samplers import Localized
    >>> Localized().exactness
    'iid'
    """

    exactness: ClassVar[Exactness] = "iid"

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Answer from public facts: loss, regularizer and weight."""
        reason = reason_against(target.problem.loss)
        if reason:
            return False, reason
        if not target.k * target.mu * target.curvature[0] > 0.0:
            return False, "The energy needs mu > 0 and a regularizer convex in l2."
        return True, ""

    def prepare(
        self,
        target: Gibbs,
        rng: np.random.Generator,
        *,
        gamma: float = STUDY_GAMMA,
    ) -> PreparedLocalized:
        """Find mode, region and proposal, and how many tries a draw takes.

        Parameters
        ----------
        target : Gibbs
            The target.
        rng : numpy.random.Generator
            Stream of the pilot run; it must not serve the draws as well.
        gamma : float
            Total-variation error of a draw.

        Returns
        -------
        PreparedLocalized
            The sampler, ready to draw.

        Raises
        ------
        ValueError
            If the target is not supported, or no region is small enough for rejection.
        """
        self.require(target)
        place = Place.of(target, gamma)
        prepared = None if place is None else place.prepare(rng)
        if prepared is None or not prepared.is_practical:
            raise ValueError(
                "sampler must find a region on which rejection is practical, got none "
                "for these records. Use dps.samplers.Proximal or another sampler."
            )
        return prepared


def group_of(accepted: float) -> int:
    """Return how many tries ask the records together: so many that one likely passes.

    A matrix product takes little more for all of them, and the work of a draw is nearly
    known before.
    """
    if accepted > 0.7:
        return 1 if accepted > 0.9 else 2
    return min(MAX_BLOCK, math.ceil(2.0 / max(accepted, NEVER)))


@contextmanager
def _user_failures(target: Gibbs) -> Iterator[None]:
    """Say in our words that a user's loss raised."""
    try:
        yield
    except Exception as error:
        if target.problem.loss.is_cached or isinstance(error, SamplingError):
            raise
        raise SamplingError(TEXTS[FUNCTION_FAILED]) from error


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """Mode and region: what target and gamma fix before any random bit."""

    target: Gibbs
    mode: Mode
    region: Region

    @classmethod
    def of(cls, target: Gibbs, gamma: float) -> Place | None:
        """Localize a supported target; None if that fails, which is no error."""
        # What rounding made singular is one more way in which it may fail.
        with _user_failures(target), suppress(np.linalg.LinAlgError):
            mode = modes.find(target, target.mu)
            if mode is None:
                mode = modes.find_slowly(target)
            region = None if mode is None else regions.localize(target, mode, gamma)
            if mode is not None and region is not None:
                return cls(target=target, mode=mode, region=region)
        return None

    @classmethod
    def everywhere(cls, target: Gibbs) -> Place:
        """Place without localization, which never fails: exact, and slow."""
        point = target.problem.domain.interior_point(target.dim)
        with _user_failures(target):
            mode = modes.at(target, target.mu, point)
        region = regions.everywhere(target, mode)
        return cls(target=target, mode=mode, region=region)

    def prepare(self, rng: np.random.Generator) -> PreparedLocalized:
        """Choose the proposal by a pilot run, and learn what a draw takes."""
        ball, body = None, self.target.geometry.body
        if self.target.geometry.is_round:
            ball = (self.mode.point - body.center, float(body.radius))
        prepared = PreparedLocalized(
            target=self.target,
            mode=self.mode,
            region=self.region,
            proposal=NONE,
            frame=LocalFrame.of(self.target, self.mode, self.region),
            pieces=TryPieces.of(self.target),
        )
        costs_fn = prepared.trials(rng)
        chosen = proposal(self.mode, self.region, ball, rng, costs_fn)
        return replace(prepared, proposal=chosen).learn(rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedLocalized:
    """Ready to draw, as `PreparedChain`: all may depend on the records."""

    target: Gibbs
    mode: Mode
    region: Region
    proposal: Proposal | Corner
    frame: LocalFrame
    pieces: TryPieces
    # Of the pilot run, see `learn`.
    asked: float = 0.0
    accepted: float = 0.0
    read: float = 1.0
    expected_seconds: float = 0.0

    def learn(self, rng: np.random.Generator) -> PreparedLocalized:
        """Copy that knows its work.

        The share of tries that ask the records, the share p of these that are accepted
        and how much they read on average. Where the mean excess is small it tells p to
        its first order; else p is the mean of e^{-D}, which needs fewer tries than
        counting those that are accepted.
        """
        vectors, budgets = self.candidates(rng, NUM_TRIALS)
        accepted, read = math.exp(-self.region.mean_excess), 1.0
        seconds = 0.0  # not worth a word
        least, most = self.target.curvature
        is_unknown = self.is_held or self.region.mean_excess > 1.0 or least < most
        if is_unknown and len(vectors):
            begin = time.perf_counter()
            most = max(LEAST_WEIGHED, int(CHEAP_WORK / pass_work(self.target)))
            excess = np.empty(0)
            while len(excess) < min(most, len(vectors)):
                some = vectors[len(excess) : min(most, len(excess) + LEAST_WEIGHED)]
                found = self.excess(some, np.full(len(some), np.inf))[0]
                excess = np.append(excess, found)
                weight = np.exp(-excess)
                accepted = float(weight.mean())
                error = float(weight.std()) / math.sqrt(len(weight))
                if error <= PRECISE * accepted:
                    break
            seconds = (time.perf_counter() - begin) / len(excess)
            with np.errstate(divide="ignore"):
                lasting = budgets[: len(excess)] / excess
            read = self._share_read(group_of(accepted), lasting)
        learned = replace(
            self,
            asked=max(len(vectors) / NUM_TRIALS, NEVER),
            accepted=max(accepted, NEVER),
            read=read,
        )
        learned = replace(learned, expected_seconds=seconds * learned.expected_passes)
        if "chunk" in vars(self):  # made once for the pilot run and the draws
            vars(learned)["chunk"] = self.chunk
        return learned

    def _share_read(self, group: int, lasting: Array) -> float:
        """Share of the records that tries of a group read, as `excess` reads them.

        D grows about evenly over the records: a try ends at the share budget / D.
        """
        alive, start, total = float(group), 0, self.target.storage.num_records
        read = 0.0
        while alive > 0.0 and start < total:
            count = kernels.records_of_block.py_func(math.ceil(alive))
            stop = min(total, start + count)
            read += alive * (stop - start)
            start, alive = stop, group * float((lasting > stop / total).mean())
        return read / (group * total)

    @property
    def is_practical(self) -> bool:
        """Whether tries of the pilot run were accepted: else there are better ways."""
        return self.asked > NEVER and self.accepted >= RARE

    @property
    def start(self) -> Array:
        """A point of the domain near the mode."""
        return self.mode.point

    @property
    def num_warmup(self) -> int:
        """Return 0: draws are independent."""
        return 0

    @property
    def is_in_corner(self) -> bool:
        """Whether proposals are drawn by coordinates between flat sides."""
        return isinstance(self.proposal, Corner)

    @property
    def is_held(self) -> bool:
        """Whether the mode is on the domain's boundary."""
        return self.mode.multiplier > 0.0 or bool(self.mode.multipliers.any())

    @property
    def expected_passes(self) -> float:
        """Passes over the records per draw; refused tries end early."""
        group, missed = self.group, (1.0 - self.accepted) ** self.group
        return max(1.0, self.read * group / (1.0 - missed))

    @property
    def group(self) -> int:
        """Tries that ask the records together."""
        return group_of(self.accepted)

    @property
    def work(self) -> float:
        """Multiply-adds per draw, in expectation."""
        tries = 4.0 * self.target.dim**2 / self.asked
        return self.expected_passes * (pass_work(self.target) + tries)

    @property
    def settings(self) -> Settings:
        """Size of the region and expected work, for attributes."""
        return {
            "num_rounds": self.region.num_rounds,
            "expected_passes": self.expected_passes,
        }

    @property
    def fixed(self) -> tuple[LocalFrame, TryPieces]:
        """First arguments of kernels."""
        return self.frame, self.pieces

    @lazy_property
    def chunk(self) -> ChunkColumns:
        """All records, if they are one chunk in memory; else none."""
        part = columns.of_one_chunk(self.target, self.mode)
        return columns.NO_RECORDS if part is None else part.chunk(self.region)

    def new_tries(self, size: int) -> TryRoom:
        """Room for blocks of at most ``size`` tries."""
        return kernels.new_tries(size, self.mode.basis.shape[1], self.target.dim)

    def trials(self, rng: np.random.Generator) -> Callable[[Proposal], Array]:
        """Return a function of a proposal to the costs of a number of its tries."""
        tries = self.new_tries(proposals.NUM_TRIALS)
        limits = self._trial(proposals.NUM_TRIALS, until=kernels.AT_PROPOSALS)
        rest = limits, rng, tries.point, tries

        def costs(tried: Proposal) -> Array:
            tries.progress[:] = 0.0
            call(kernels.draw, *self.fixed, columns.NO_RECORDS, tried, *rest)
            return tries.costs

        return costs

    def _trial(self, size: int, *, until: int) -> DrawLimits:
        """Limits of a call that ends before it has a point."""
        return DrawLimits(
            size=size, group=1, proposals=math.inf, records=math.inf, until=until
        )

    def _propose(self, rng: np.random.Generator, size: int, tries: TryRoom) -> None:
        """Give tries the proposals of a corner, among so many tries."""
        assert isinstance(self.proposal, Corner)
        vectors = self.proposal.draw(rng, size)
        count, progress = len(vectors), tries.progress
        tries.proposed[:count], tries.costs[:count] = vectors, 0.0
        progress[kernels.IS_GIVEN], progress[kernels.GIVEN] = 1.0, count
        progress[kernels.PROPOSALS] += size

    def _run(
        self,
        limits: DrawLimits,
        rng: np.random.Generator,
        theta: Array,
        tries: TryRoom,
        on_passes: Callable[[float], None] | None = None,
    ) -> int:
        """Code of `draw`, after all pauses, with what it wants from Python."""
        law = NONE if isinstance(self.proposal, Corner) else self.proposal
        given = *self.fixed, self.chunk, law, limits, rng, theta, tries
        while True:
            code = call(kernels.draw, *given)
            if code == kernels.WANTS_PROPOSALS:
                self._propose(rng, limits.size, tries)
            elif code == kernels.WANTS_RECORDS:
                self._ask(tries, is_checked=limits.is_checked)
            elif code != pauses.PAUSED:
                return code
            if on_passes is not None:
                read = tries.progress[kernels.RECORDS]
                on_passes(read / self.target.storage.num_records)
            pauses.notify_listeners()

    def candidates(self, rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        """Proposals in region and domain among ``size`` tries, and what D may be."""
        found = []
        for start in range(0, size, self.most_tries):
            count = min(self.most_tries, size - start)
            tries = self.new_tries(count)
            limits = self._trial(count, until=kernels.AT_CANDIDATES)
            self._run(limits, rng, tries.point, tries)
            kept = int(tries.progress[kernels.KEPT])
            found.append((tries.vectors[:kept], tries.budgets[:kept]))
            pauses.notify_listeners()
        vectors, budgets = map(np.concatenate, zip(*found, strict=True))
        return vectors, budgets

    @property
    def most_tries(self) -> int:
        """Tries of a block, at most."""
        return kernels.most_tries(self.mode.basis.shape[1])

    def is_inside(self, points: Array) -> NDArray[np.bool_]:
        """Whether each row is in the domain."""
        inside = np.empty(len(points), dtype=np.bool_)
        rows = np.ascontiguousarray(points)
        count = max(1, DOMAIN_NUMBERS // max(self.frame.body.matrix.size, 1))
        for start in range(0, len(rows), count):
            part = slice(start, start + count)
            jit.call(kernels.fill_inside, *self.fixed, rows[part], inside[part])
            pauses.notify_listeners()
        return inside

    def points(self, vectors: Array) -> Array:
        """Parameters x0 + basis v of each row v."""
        return np.asarray(self.mode.point + vectors @ self.mode.basis.T)

    def excess(
        self, vectors: Array, budgets: Array, *, is_checked: bool = True
    ) -> tuple[Array, int]:
        """D at each row, infinite where it is above the budget, and records read.

        Where D >= 0 ``is_checked`` a user's loss may be found to break its word.
        """
        count, tries = len(vectors), self.new_tries(len(vectors))
        tries.vectors[:], tries.budgets[:] = vectors, budgets
        tries.moves[:] = vectors @ self.mode.basis.T
        tries.progress[kernels.KEPT] = count
        # One group, after which there are no more proposals.
        limits = DrawLimits(
            size=count,
            group=count,
            proposals=0.0,
            records=math.inf,
            is_checked=is_checked,
        )
        with _user_failures(self.target):
            code = self._run(limits, UNUSED, tries.point, tries)
        if code != kernels.OUT_OF_PATIENCE:
            raise_unless_ok(code)
        return tries.excess, int(tries.progress[kernels.RECORDS])

    def _ask(self, tries: TryRoom, *, is_checked: bool) -> None:
        """Ask all records about tries that have begun, chunk by chunk."""
        given = self.target, self.mode, self.region, self.frame, tries
        with _user_failures(self.target):
            kernels.ask_all(*given, is_checked=is_checked)

    def init(self, position: Array | None = None) -> ChainState:
        """State without draws: they are independent of where it is."""
        where = self.mode.point if position is None else position
        return new_state(
            self.target, where, memory=np.zeros(1 + MAX_KEPT * (self.target.dim + 1))
        )

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Return the mode: no draw depends on the start."""
        del rng
        return self.mode.point.copy()

    def numbers(self) -> list[object]:
        """All arrays and numbers that define the draws, for a checkpoint's identity."""
        region = self.region
        sizes = [
            self.asked,
            self.accepted,
            *(each.radius for each in region.ellipsoids),
        ]
        return [
            region.root,
            *(part for half in region.halves for part in half),
            *sizes,
            *identify_target(self.target, self.mode.point),
        ]

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays."""
        return blocks.runner(self)

    def draw(
        self,
        rng: np.random.Generator,
        most: float = math.inf,
        *,
        patience: float = PATIENCE,
        on_passes: Callable[[float], None] | None = None,
    ) -> tuple[Array | None, dict[str, int]]:
        """One draw, or None after ``patience`` times the tries that were expected.

        `WorkLimitError` says that ``most`` passes over the records did not suffice. A
        limit of tries costs no privacy: the accepted point is independent of how many
        there were, and what falls back is within gamma of the target by its own proof.
        ``on_passes`` is told the passes so far.
        """
        limits, theta = self._limits(most, patience), np.empty(self.target.dim)
        tries = self.new_tries(limits.size)
        code = self._run(limits, rng, theta, tries, on_passes)
        if code == kernels.OUT_OF_WORK:
            raise WorkLimitError
        names, first = ("proposals", "asked", "records"), kernels.PROPOSALS
        counts = dict(zip(names, map(int, tries.progress[first:]), strict=False))
        if code == kernels.OUT_OF_PATIENCE:
            return None, counts
        raise_unless_ok(code)
        return theta, counts

    def draw_each(
        self,
        room: ReusableGenerator,
        words: Words,
        thetas: Array,
        limits: tuple[GridNumbers, float],
    ) -> None:
        """Fill rows with what `draw` gives, on the grid, for the streams of ``words``.

        Rows that it has no point for, or whose proposals are not compiled, are left.
        ``limits`` are the grid and the passes over the records of a draw, at most.
        """
        has_records = self.chunk.data.num_records > 0
        if not has_records or isinstance(self.proposal, Corner):
            return
        grid, most = limits
        made = self._limits(most, PATIENCE)
        tries = self.new_tries(made.size)
        law = (*self.fixed, self.chunk, self.proposal, made)
        project = pointer(self.target.problem.domain.project_piece, PROJECT)
        given = law, grid, project, room.memory, words, room.rng, thetas, tries
        with np.errstate(over="ignore"):  # streams count modulo 2^64, interpreted too
            while call(kernels.draw_each, *given) == pauses.PAUSED:
                pauses.notify_listeners()

    def _limits(self, most: float, patience: float) -> DrawLimits:
        """How a draw goes about it; `draw` says what is meant."""
        group = self.group
        return DrawLimits(
            size=min(max(math.ceil(1.2 * group / self.asked), 1), self.most_tries),
            group=group,
            proposals=float(patience / (self.asked * self.accepted)),
            records=float(most * self.target.storage.num_records),
        )
