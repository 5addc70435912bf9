"""Independent exact draws on the localized region, by rejection.

The *target* is the distribution with density proportional to e^{-V}, and *gamma* a
bound of the total variation between draws and target. `mode` finds the mode x0.
`region` finds the set that holds all but gamma of the target, and a quadratic below the
energy on it. `proposals` draws from the density with this quadratic as its energy. A
proposal in the region and in the domain is a candidate. Its excess D is the energy
minus the quadratic. It is accepted if D is at most a threshold, which has a standard
exponential distribution. D is a sum of non-negative terms, one per record, and the sum
ends as soon as it is above the threshold. `rejection` is compiled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import pointer
from dpsample.core.spec import lazy_property
from dpsample.core.streams import ReusableGenerator, Words
from dpsample.domains import PROJECT
from dpsample.samplers.chain import (
    ChainState,
    Runner,
    Settings,
    flatten_plan,
    new_state,
)
from dpsample.samplers.errors import (
    FUNCTION_FAILED,
    TEXTS,
    SamplingError,
    WorkLimitError,
    raise_unless_ok,
)
from dpsample.samplers.localized import blocks, columns, proposals, rejection
from dpsample.samplers.localized import mode as modes
from dpsample.samplers.localized import region as regions
from dpsample.samplers.localized.blocks import MAX_KEPT
from dpsample.samplers.localized.columns import ChunkColumns
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.proposals import (
    NONE,
    Corner,
    Proposal,
    choose_proposal,
)
from dpsample.samplers.localized.region import Region
from dpsample.samplers.localized.rejection import (
    MAX_BLOCK,
    DrawLimits,
    LocalFrame,
    RejectionFunctions,
    RejectionWork,
    call,
)
from dpsample.samplers.proximal.proximal import pass_work
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.grid import GridNumbers

# Number of proposals of the pilot run. It evaluates the excess of the candidates among
# them in steps of PILOT_STEP, and ends when enough is known.
NUM_PILOT_PROPOSALS = 512
PILOT_STEP = 24
# Lower limit of estimated rates. A rate of 0 in the pilot run only shows that the true
# one is small. At this limit the expected work is a lower bound.
MIN_RATE = 1e-7
# A draw gives up after this multiple of the expected number of proposals. That happens
# with a probability of at most e^-50 if the estimated rates are true.
PATIENCE = 50.0
# Stream of kernel calls that take one, but draw nothing.
UNUSED_STREAM = np.random.default_rng(0)


def choose_group_size(acceptance_rate: float) -> int:
    """Return how many candidates are compared with the records together.

    One of them is likely to be accepted, so that the work of most draws is one group. A
    matrix product for the group takes little longer than a product for one candidate.
    """
    if acceptance_rate > 0.7:
        return 1 if acceptance_rate > 0.9 else 2
    return min(MAX_BLOCK, math.ceil(2.0 / max(acceptance_rate, MIN_RATE)))


@contextmanager
def _report_failed_loss(target: Gibbs) -> Iterator[None]:
    """Raise a `SamplingError` if a loss that a user wrote raises any error."""
    try:
        yield
    except Exception as error:
        if target.problem.loss.is_cached or isinstance(error, SamplingError):
            raise
        raise SamplingError(TEXTS[FUNCTION_FAILED]) from error


@dataclass(frozen=True, kw_only=True, eq=False)
class Localization:
    """Mode and region, which target and gamma determine before any random bit."""

    target: Gibbs
    mode: Mode
    region: Region

    @classmethod
    def find(cls, target: Gibbs, gamma: float) -> Localization | None:
        """Localize a supported target. None is an expected result, not an error."""
        # If rounding has made a matrix singular, there is no region.
        with _report_failed_loss(target), suppress(np.linalg.LinAlgError):
            mode = modes.find(target, target.mu)
            if mode is None:
                mode = modes.find_slowly(target)
            region = None if mode is None else regions.localize(target, mode, gamma)
            if mode is not None and region is not None:
                return cls(target=target, mode=mode, region=region)
        return None

    @classmethod
    def whole_domain(cls, target: Gibbs) -> Localization:
        """Take the whole domain as the region. This is exact, slow and never fails."""
        point = target.domain.interior_point(target.dim)
        with _report_failed_loss(target):
            mode = modes.take_point(target, target.mu, point)
        region = regions.whole_domain(target, mode)
        return cls(target=target, mode=mode, region=region)

    def prepare(self, rng: np.random.Generator) -> PreparedLocalized:
        """Choose the proposals, and estimate the work of a draw by a pilot run."""
        ball, body = None, self.target.geometry.body
        if self.target.geometry.is_round:
            ball = (self.mode.point - body.center, float(body.radius))
        prepared = PreparedLocalized(
            target=self.target,
            mode=self.mode,
            region=self.region,
            proposal=NONE,
            frame=LocalFrame.new(self.target, self.mode, self.region),
            pieces=RejectionFunctions.of_target(self.target),
        )
        costs_fn = prepared.trial_costs(rng)
        proposal = choose_proposal(self.mode, self.region, ball, rng, costs_fn)
        return replace(prepared, proposal=proposal).with_pilot_run(rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedLocalized:
    """The sampler, ready to draw. All of it may depend on the records.

    The last four fields are estimates of `with_pilot_run`.
    """

    target: Gibbs
    mode: Mode
    region: Region
    proposal: Proposal | Corner
    frame: LocalFrame
    pieces: RejectionFunctions
    candidate_rate: float = 0.0  # candidates per proposal
    acceptance_rate: float = 0.0  # accepted ones per candidate
    share_read: float = 1.0  # share of the records that a candidate reads
    expected_seconds: float = 0.0  # per draw

    def with_pilot_run(self, rng: np.random.Generator) -> PreparedLocalized:
        """Return a copy with estimates of its work.

        The acceptance rate is the mean of e^-D over candidates. It is estimated from a
        sample of them, with a smaller variance than the share that is accepted. If the
        mean of D is known to be at most 1, no energy is evaluated, and the rate is
        taken to be e^-(mean of D), which is right to first order.
        """
        vectors, thresholds = self.draw_candidates(rng, NUM_PILOT_PROPOSALS)
        acceptance_rate, share_read = math.exp(-self.region.mean_excess), 1.0
        # Without an evaluation no time is reported. Draws are short then.
        seconds_per_pass = 0.0
        min_curvature, max_curvature = self.target.curvature
        is_curved = min_curvature < max_curvature
        is_unknown = self.is_on_boundary or self.region.mean_excess > 1.0 or is_curved
        if is_unknown and len(vectors):
            begin = time.perf_counter()
            # At most 6 million multiply-adds, which take some milliseconds.
            num_affordable = int(6e6 / pass_work(self.target))
            max_evaluated = min(max(PILOT_STEP, num_affordable), len(vectors))
            excess = np.empty(0)
            while len(excess) < max_evaluated:
                stop = min(max_evaluated, len(excess) + PILOT_STEP)
                part = vectors[len(excess) : stop]
                no_limits = np.full(len(part), np.inf)
                excess = np.append(excess, self.evaluate_excess(part, no_limits)[0])
                weights = np.exp(-excess)
                acceptance_rate = float(weights.mean())
                error = float(weights.std()) / math.sqrt(len(weights))
                # A relative standard error of 2 % is enough to predict the work.
                if error <= 0.02 * acceptance_rate:
                    break
            seconds_per_pass = (time.perf_counter() - begin) / len(excess)
            with np.errstate(divide="ignore"):
                survival = thresholds[: len(excess)] / excess
            group_size = choose_group_size(acceptance_rate)
            share_read = self._expected_share_read(group_size, survival)
        copy = replace(
            self,
            candidate_rate=max(len(vectors) / NUM_PILOT_PROPOSALS, MIN_RATE),
            acceptance_rate=max(acceptance_rate, MIN_RATE),
            share_read=share_read,
        )
        copy = replace(copy, expected_seconds=seconds_per_pass * copy.expected_passes)
        # The pilot run and all draws share the columns of the records.
        if "single_chunk" in vars(self):
            vars(copy)["single_chunk"] = self.single_chunk
        return copy

    def _expected_share_read(self, group_size: int, survival: Array) -> float:
        """Return the share of the records that candidates of a group read on average.

        The sum D grows nearly evenly over the records, so a candidate leaves its group
        at the share threshold / D of the records, which is ``survival``. Records are
        read in blocks, which are longer if fewer candidates are left.
        """
        num_records = self.target.storage.num_records
        num_left, start, num_reads = float(group_size), 0, 0.0
        while num_left > 0.0 and start < num_records:
            block_size = rejection.records_of_block.py_func(math.ceil(num_left))
            stop = min(num_records, start + block_size)
            num_reads += num_left * (stop - start)
            num_left = group_size * float((survival > stop / num_records).mean())
            start = stop
        return num_reads / (group_size * num_records)

    @property
    def accepts_in_time(self) -> bool:
        """Whether the pilot run suggests that draws will be accepted in time."""
        has_candidates = self.candidate_rate > MIN_RATE
        # Below this rate a draw evaluates the energies of 100,000 candidates.
        return has_candidates and self.acceptance_rate >= 1e-5

    @property
    def start(self) -> Array:
        """The mode, a point of the domain at which chains may start."""
        return self.mode.point

    @property
    def num_warmup(self) -> int:
        """Zero, because draws are independent."""
        return 0

    @property
    def has_corner_proposal(self) -> bool:
        """Whether proposals are drawn by coordinates between flat facets."""
        return isinstance(self.proposal, Corner)

    @property
    def is_on_boundary(self) -> bool:
        """Whether the mode is on the domain's boundary."""
        return self.mode.multiplier > 0.0 or bool(self.mode.multipliers.any())

    @property
    def group_size(self) -> int:
        """Number of candidates that are compared with the records together."""
        return choose_group_size(self.acceptance_rate)

    @property
    def expected_passes(self) -> float:
        """Expected number of passes over the records per draw."""
        group_size = self.group_size
        # The number of groups is geometric, because a group without an accepted
        # candidate is followed by another one.
        failure_rate = (1.0 - self.acceptance_rate) ** group_size
        return max(1.0, self.share_read * group_size / (1.0 - failure_rate))

    @property
    def acceptances_per_proposal(self) -> float:
        """Expected number of accepted candidates per proposal, at most 1."""
        return self.candidate_rate * self.acceptance_rate

    @property
    def work(self) -> float:
        """Expected number of multiply-adds per draw."""
        # A proposal and its tests take about four products of a matrix and a vector.
        candidate_work = 4.0 * self.target.dim**2 / self.candidate_rate
        return self.expected_passes * (pass_work(self.target) + candidate_work)

    @property
    def settings(self) -> Settings:
        """Size of the region and expected work, for attributes of the draws."""
        return {
            "num_rounds": self.region.num_rounds,
            "expected_passes": self.expected_passes,
        }

    @property
    def frame_and_pieces(self) -> tuple[LocalFrame, RejectionFunctions]:
        """First arguments of the rejection."""
        return self.frame, self.pieces

    @lazy_property
    def single_chunk(self) -> ChunkColumns:
        """All records, or no records unless all are one chunk in memory."""
        part = columns.single_chunk(self.target, self.mode)
        return columns.NO_RECORDS if part is None else self.region.select_columns(part)

    @property
    def max_block_size(self) -> int:
        """Maximum number of proposals that one kernel call draws."""
        return rejection.max_block_size(self.mode.basis.shape[1])

    def new_workspace(self, block_size: int) -> RejectionWork:
        """Return memory for blocks of at most this number of proposals."""
        rank = self.mode.basis.shape[1]
        return rejection.new_work(block_size, rank, self.target.dim)

    def trial_costs(self, rng: np.random.Generator) -> Callable[[Proposal], Array]:
        """Return a function of a proposal to the costs of trial draws of it."""
        workspace = self.new_workspace(proposals.NUM_TRIAL_PROPOSALS)
        limits = self._partial_limits(
            proposals.NUM_TRIAL_PROPOSALS, until=rejection.UNTIL.proposals
        )
        arguments = limits, rng, workspace.point, workspace

        def costs(trial: Proposal) -> Array:
            workspace.progress[:] = np.zeros(1, rejection.DrawProgress)
            part = *self.frame_and_pieces, columns.NO_RECORDS, trial
            call(rejection.draw, *part, *arguments)
            return workspace.costs

        return costs

    def _partial_limits(self, num_proposals: int, *, until: int) -> DrawLimits:
        """Return limits of a kernel call that ends before it has a point."""
        return DrawLimits(
            size=num_proposals,
            group=1,
            proposals=math.inf,
            records=math.inf,
            until=until,
        )

    def _propose(
        self, rng: np.random.Generator, num_proposals: int, workspace: RejectionWork
    ) -> None:
        """Fill the workspace with proposals of a corner, which are not compiled."""
        assert isinstance(self.proposal, Corner)
        vectors = self.proposal.draw(rng, num_proposals)
        num_in_domain, progress = len(vectors), workspace.progress
        workspace.proposed[:num_in_domain] = vectors
        workspace.costs[:num_in_domain] = 0.0
        progress["has_proposals"], progress["num_proposed"] = True, num_in_domain
        progress["proposals"] += num_proposals

    def _run(
        self,
        limits: DrawLimits,
        rng: np.random.Generator,
        theta: Array,
        workspace: RejectionWork,
        on_passes: Callable[[float], None] | None = None,
    ) -> int:
        """Run the kernel `draw` to its end, and return its code.

        The kernel returns for proposals or records that only Python can supply, and
        when it is due to serve Ctrl-C and listeners. It then continues where it was.
        """
        compiled = NONE if isinstance(self.proposal, Corner) else self.proposal
        chunk = self.single_chunk
        state = limits, rng, theta, workspace
        arguments = *self.frame_and_pieces, chunk, compiled, *state
        while True:
            code = call(rejection.draw, *arguments)
            if code == rejection.CODE.needs_proposals:
                self._propose(rng, limits.size, workspace)
            elif code == rejection.CODE.needs_records:
                self._add_records(workspace, is_checked=limits.is_checked)
            elif code != pauses.PAUSED:
                return code
            if on_passes is not None:
                num_read = int(workspace.progress["records"][0])
                on_passes(num_read / self.target.storage.num_records)
            pauses.notify_listeners()

    def draw_candidates(
        self, rng: np.random.Generator, num_proposals: int
    ) -> tuple[Array, Array]:
        """Return the candidates among some proposals, and their thresholds."""
        blocks_of_vectors, blocks_of_thresholds = [], []
        for start in range(0, num_proposals, self.max_block_size):
            size = min(self.max_block_size, num_proposals - start)
            workspace = self.new_workspace(size)
            limits = self._partial_limits(size, until=rejection.UNTIL.candidates)
            self._run(limits, rng, workspace.point, workspace)
            num_candidates = int(workspace.progress["num_candidates"][0])
            blocks_of_vectors.append(workspace.vectors[:num_candidates])
            blocks_of_thresholds.append(workspace.thresholds[:num_candidates])
            pauses.notify_listeners()
        return np.concatenate(blocks_of_vectors), np.concatenate(blocks_of_thresholds)

    def is_inside(self, points: Array) -> NDArray[np.bool_]:
        """Return whether each row is in the domain."""
        is_inside = np.empty(len(points), dtype=np.bool_)
        rows = np.ascontiguousarray(points)
        matrix_size = max(self.frame.body.matrix.size, 1)
        # A call reads 10 million entries of a matrix, so that Ctrl-C is served soon.
        num_rows = max(1, 10**7 // matrix_size)
        for start in range(0, len(rows), num_rows):
            part = slice(start, start + num_rows)
            arguments = *self.frame_and_pieces, rows[part], is_inside[part]
            jit.call(rejection.fill_inside, *arguments)
            pauses.notify_listeners()
        return is_inside

    def to_points(self, vectors: Array) -> Array:
        """Return the parameters x0 + basis v of each row v."""
        return np.asarray(self.mode.point + vectors @ self.mode.basis.T)

    def evaluate_excess(
        self, vectors: Array, thresholds: Array, *, is_checked: bool = True
    ) -> tuple[Array, int]:
        """Return D at each row, infinite above its threshold, and the records read.

        If ``is_checked``, a negative D beyond rounding raises an error: it shows that a
        user's loss does not have its declared properties.
        """
        size = len(vectors)
        workspace = self.new_workspace(size)
        workspace.vectors[:], workspace.thresholds[:] = vectors, thresholds
        workspace.moves[:] = vectors @ self.mode.basis.T
        workspace.progress["num_candidates"] = size
        # One group of candidates, after which no more proposals are allowed.
        limits = DrawLimits(
            size=size,
            group=size,
            proposals=0.0,
            records=math.inf,
            is_checked=is_checked,
        )
        with _report_failed_loss(self.target):
            code = self._run(limits, UNUSED_STREAM, workspace.point, workspace)
        if code != rejection.CODE.out_of_patience:
            raise_unless_ok(code)
        return workspace.excess, int(workspace.progress["records"][0])

    def _add_records(self, workspace: RejectionWork, *, is_checked: bool) -> None:
        """Add the terms of all records to the excess of a group, chunk by chunk."""
        arguments = self.target, self.mode, self.region, self.frame, workspace
        with _report_failed_loss(self.target):
            rejection.add_all_records(*arguments, is_checked=is_checked)

    def init(self, position: Array | None = None) -> ChainState:
        """Return a state without stored draws. No draw depends on its position."""
        point = self.mode.point if position is None else position
        return new_state(
            self.target, point, memory=np.zeros(1 + MAX_KEPT * (self.target.dim + 1))
        )

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Return the mode, because no draw depends on the start."""
        del rng
        return self.mode.point.copy()

    def numbers(self) -> list[object]:
        """Return all arrays and numbers that define the draws.

        Their order is the identity of checkpoints.
        """
        return [
            self.region.root,
            *(part for slab in self.region.half_widths for part in slab),
            self.candidate_rate,
            self.acceptance_rate,
            *(ellipsoid.radius for ellipsoid in self.region.ellipsoids),
            *flatten_plan(self.target.numbers),
            *self.target.identity(self.mode.point),
        ]

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays."""
        return blocks.runner(self)

    def draw(
        self,
        rng: np.random.Generator,
        max_passes: float = math.inf,
        *,
        patience: float = PATIENCE,
        on_passes: Callable[[float], None] | None = None,
    ) -> tuple[Array | None, dict[str, int]]:
        """Return a draw and its work, or None after too many proposals.

        A draw gives up after ``patience`` times the expected number of proposals. This
        costs no privacy: the accepted point is independent of the number of proposals,
        and the sampler that takes over has its own proof of gamma. `WorkLimitError`
        means that ``max_passes`` passes over the records did not suffice. The function
        ``on_passes`` is called with the number of passes so far.
        """
        limits = self._draw_limits(max_passes, patience)
        workspace = self.new_workspace(limits.size)
        theta = np.empty(self.target.dim)
        code = self._run(limits, rng, theta, workspace, on_passes)
        if code == rejection.CODE.out_of_work:
            raise WorkLimitError
        progress = workspace.progress
        counts = {
            "proposals": int(progress["proposals"][0]),
            "candidates": int(progress["candidates"][0]),
            "records": int(progress["records"][0]),
        }
        if code == rejection.CODE.out_of_patience:
            return None, counts
        raise_unless_ok(code)
        return theta, counts

    def draw_many(
        self,
        generator: ReusableGenerator,
        words: Words,
        thetas: Array,
        limits: tuple[GridNumbers, float],
    ) -> None:
        """Fill each row with the result of `draw` for the stream of its seed words.

        Points are rounded to the grid in ``limits``, which also has the maximum number
        of passes per draw. A row stays as it is if its draw has no point, if proposals
        are not compiled or if the records are not one chunk in memory.
        """
        has_records = self.single_chunk.data.num_records > 0
        if not has_records or isinstance(self.proposal, Corner):
            return
        grid, max_passes = limits
        draw_limits = self._draw_limits(max_passes, PATIENCE)
        workspace = self.new_workspace(draw_limits.size)
        part = *self.frame_and_pieces, self.single_chunk, self.proposal, draw_limits
        project = pointer(self.target.domain.project_piece, PROJECT)
        streams = generator.memory, words, generator.rng
        arguments = part, grid, project, *streams, thetas, workspace
        # Streams count modulo 2^64, which raises a warning in interpreted rejection.
        with np.errstate(over="ignore"):
            while call(rejection.draw_many, *arguments) == pauses.PAUSED:
                pauses.notify_listeners()

    def _draw_limits(self, max_passes: float, patience: float) -> DrawLimits:
        """Return sizes and limits of a draw."""
        # A fifth more proposals than needed on average, so that most blocks suffice.
        block_size = max(math.ceil(1.2 * self.group_size / self.candidate_rate), 1)
        return DrawLimits(
            size=min(block_size, self.max_block_size),
            group=self.group_size,
            proposals=float(patience / self.acceptances_per_proposal),
            records=float(max_passes * self.target.storage.num_records),
        )
