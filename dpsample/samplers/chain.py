# mypy: allow-untyped-defs
"""State, counts and statistics of all chains, their one loop, and Metropolis steps.

A sampler is a compiled step (target, pieces, plan, state, rng) that returns a code of
`errors`. ``target`` holds the numbers of the density, ``pieces`` its C functions,
``plan`` the numbers of the sampler, and ``state`` the arrays that a step changes. A
*draw* is the position after ``num_steps`` steps. A step may pause: it returns `PAUSED`,
Python looks for Ctrl-C, and the next call goes on as if nothing had happened.

The energy V = k (F + mu r) is minus the log density, up to a constant. F is the mean
loss of the records or a function of the user, r a regularizer of weight mu, and k an
inverse temperature.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import pauses
from dpsample.core.arrays import Array, Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import Kernel, call, entry, kernel
from dpsample.core.pauses import PAUSED, abandon_step, is_due
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.samplers.errors import FUNCTION_FAILED, OK, raise_unless_ok
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs_target import GibbsTarget, Target, TargetFunctions


class CountIndex(NamedTuple):
    """Positions in the counts of a chain since its start.

    A sampler may append counts of its own.
    """

    proposals: int = 0
    accepted: int = 1
    values: int = 2  # evaluations of the energy
    gradients: int = 3  # evaluations of the gradient
    records: int = 4  # records that these evaluations read


COUNT = CountIndex()


class ChainVectorRow(NamedTuple):
    """Rows of the scratch vectors of Metropolis steps."""

    noise: int = 0
    proposal: int = 1


ROW = ChainVectorRow()


class StatColumn(NamedTuple):
    """Columns of the statistics of a draw. The last three are differences of counts."""

    energy: int = 0
    acceptance_rate: int = 1
    num_values: int = 2
    num_gradients: int = 3
    num_records: int = 4


STAT = StatColumn()
NUM_STATS = len(STAT)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class ChainState(NamedTuple):
    """Position, counts and scratch memory of one chain of any sampler.

    A checkpoint keeps ``position``, ``energy``, ``memory`` and ``counts``. The other
    arrays hold nothing that the next step needs, except while a step is paused.
    """

    position: Array  # (dim,)
    energy: Array  # (1,): k (F + mu r) at the position, NaN if it is not known
    counts: Ints  # (len(COUNT),) or more
    memory: Array  # numbers of the last step that the next one needs, as a gradient
    vectors: Array  # (rows, dim), whose rows have names in each sampler
    work: Any  # scratch memory of passes over the records, and the control of pauses
    workspace: Any = ()  # arrays of this sampler alone


# Reflections after which a start is the projection of the end of its move. In a corner
# one reflection is enough for all facets that are orthogonal in the metric of the
# starts.
MAX_REFLECTIONS = 200
# Description of a plan, for attributes of the draws.
Settings = dict[str, float | int | str]
Runner = Callable[[ChainState, np.random.Generator, Array, Array], None]


def new_state(
    target: GibbsTarget,
    position: Array,
    *,
    is_weighed: bool = True,
    memory: ArrayLike = (),
    rows: int = 8,
    workspace: tuple[object, ...] = (),
) -> ChainState:
    """Return a state at a position of the domain.

    Its energy is NaN unless it ``is_weighed``.
    """
    point, work = np.array(position, dtype=np.float64), target.new_work()
    energy = np.nan
    if is_weighed:
        energy = target.calls.energy(target.numbers, target.pieces, point, work)
    return ChainState(
        position=point,
        energy=np.array([energy]),
        counts=np.zeros(len(COUNT), dtype=np.int64),
        memory=np.array(memory, dtype=np.float64),
        vectors=np.empty((rows, point.size)),
        work=work,
        workspace=workspace,
    )


def retreat_from_boundary(target: GibbsTarget, position: Array) -> Array:
    """Return a point a little off the boundary, where a gradient may be infinite.

    It has moved by a thousandth of the way to an interior point.
    """
    interior = target.domain.interior_point(target.dim)
    return np.asarray(position + 1e-3 * (interior - position))


def _is_infinite(target: GibbsTarget, point: Array) -> bool:
    """Return whether the energy is infinite at a point."""
    arguments = target.numbers, target.pieces, point, target.new_work()
    return target.calls.energy(*arguments) == np.inf


def reflect_move(
    target: GibbsTarget, start: Array, factor: Array, noise: Array
) -> Array:
    """Return the end of a move ``factor noise`` that the boundary reflects.

    If the end p of the move is outside, the move goes to the boundary, and the rest v
    of it is mirrored there. With the normal n = p - projection of p, and the covariance
    S = factor factor^T, it becomes v - 2 <n, v> S n / <n, S n>. So a reflected move is
    as long as before in the metric of S, and starts at a facet or in a corner are as
    dispersed as in the interior. <n, v> > 0, because the domain is convex. Without a
    finite projection or chord the result is the point that the move has come to.
    """
    domain: Any = target.domain  # its compiled functions are kernels
    point, move, share_left = start, factor @ noise, 1.0
    chord, nearest = np.empty(2), np.empty_like(start)
    for _ in range(MAX_REFLECTIONS):
        end = point + share_left * move
        if target._is_inside(end):
            return np.asarray(end)
        chord[:] = nearest[:] = np.nan
        # A function that fails writes nothing, and NaN remains.
        call(domain.chord_piece, target.body, point, move, chord)
        call(domain.project_piece, target.body, end, nearest)
        # Share of the move up to the boundary.
        share = min(float(chord[1]), share_left)
        # The difference from the projection is an outward normal.
        normal = end - nearest
        # <n, S n> = |factor^T n|^2.
        along = factor.T @ normal
        square = float(along @ along)  # <n, S n>
        is_valid = share >= 0.0 and np.isfinite(square) and square > 0.0
        exit_point = point + share * move if is_valid else point
        if not (is_valid and target._is_inside(exit_point)):
            return np.array(point)
        point, share_left = exit_point, share_left - share
        move = move - 2.0 * float(normal @ move) / square * (factor @ along)
    return retreat_from_boundary(target, nearest)


def draw_near(
    target: GibbsTarget, point: Array, factor: Array, rng: np.random.Generator
) -> Array:
    """Draw a start about a point of the domain, with the factor of a covariance.

    A density of the user may be 0 at a point of the domain. No step of a chain that is
    there may find another. So shorter moves follow until the energy is finite.
    """
    for shrinkage in 0.8 ** np.arange(50):
        noise = rng.standard_normal((factor.shape[1],))
        start = reflect_move(target, point, shrinkage * factor, noise)
        if not (target.may_be_infinite and _is_infinite(target, start)):
            return start
    return point.copy()


def init(target: GibbsTarget, plan: object, position: Array) -> ChainState:
    """Return a new state of a sampler whose memory is empty.

    Its vectors have the rows of `ROW`.
    """
    del plan  # samplers with a memory have an `init` of their own
    return new_state(target, position)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def fill_statistics(state, before, row):
    """Fill the statistics of one draw from the counts before and after it."""
    proposals = state.counts[COUNT.proposals] - before[COUNT.proposals]
    row[STAT.energy] = state.energy[0]
    row[STAT.acceptance_rate] = np.nan
    if proposals > 0:
        row[STAT.acceptance_rate] = (
            state.counts[COUNT.accepted] - before[COUNT.accepted]
        ) / proposals
    row[STAT.num_values] = state.counts[COUNT.values] - before[COUNT.values]
    row[STAT.num_gradients] = state.counts[COUNT.gradients] - before[COUNT.gradients]
    row[STAT.num_records] = state.counts[COUNT.records] - before[COUNT.records]


@kernel(counts_references=False)
def remember_counts(state, before, control):
    """Copy the counts before a draw, unless it goes on after a pause."""
    if control.steps_done == 0 and control.stage == 0:
        for j in range(before.shape[0]):
            before[j] = state.counts[j]


def compile_run(
    step: Callable[..., int], fill_row: Kernel[..., None] = fill_statistics
) -> Kernel[..., tuple[int, int]]:
    """Compile the loop of a sampler with its step (target, pieces, plan, state, rng).

    The kernel makes ``num_steps`` steps per row of ``draws`` and returns a code of
    `errors`, or `PAUSED`, with the number of rows filled. A step that may be long
    pauses itself, with its stage in ``state.work.control``. ``fill_row`` fills the
    statistics of a draw, and more columns than `STAT` has if the rows have them.

    The step does not count references to arrays, which would take longer than the rest
    of a short step. So it must not allocate arrays: Numba's error is "NRT required".
    """
    move = kernel(counts_references=False)(step)

    def run(target, pieces, plan, state, rng, num_steps, draws, stats):
        control = state.work.control[0]
        # A control has room for the counts of any sampler.
        before = control.counts_before[: state.counts.shape[0]]
        for t in range(draws.shape[0]):
            remember_counts(state, before, control)
            is_over = False
            while control.steps_done < num_steps:
                # A pause comes before the next step, so a draw that is finished is
                # returned.
                if is_over:
                    return PAUSED, t
                code = move(target, pieces, plan, state, rng)
                if code == PAUSED:
                    return PAUSED, t
                if code != OK:
                    abandon_step(control)
                    return code, t
                control.steps_done += 1
                is_over = is_due(control)
            control.steps_done = 0
            copy_into(state.position, draws[t])
            fill_row(state, before, stats[t])
            if is_over and t + 1 < draws.shape[0]:
                return PAUSED, t + 1
        return OK, draws.shape[0]

    return kernel(run)


def compile_filler(
    run: Kernel[..., tuple[int, int]],
    numbers: Target,
    pieces: tuple[object, ...],
    plan: object,
    num_steps: int = 1,
) -> Callable[[ChainState, np.random.Generator, Array, Array], int]:
    """Return a function (state, rng, draws, stats) that runs the loop to its end.

    It goes on after each pause and returns the code. Its arguments must always have the
    same types, because it calls the machine code of the first call.
    """
    # Numba's dispatcher would look it up again for each call, which takes microseconds.
    machine_code: Callable[..., tuple[int, int]] | None = None

    def fill(
        state: ChainState, rng: np.random.Generator, draws: Array, stats: Array
    ) -> int:
        nonlocal machine_code
        fixed = numbers, pieces, plan, state, rng, num_steps
        if machine_code is None:
            machine_code = entry(run, *fixed, draws, stats)
        run_rows = machine_code

        def fill_from(first: int) -> tuple[int, int]:
            return run_rows(*fixed, draws[first:], stats[first:])

        return pauses.fill(state.work.control, fill_from)

    return fill


class Prepared(Protocol):
    """Result of `Sampler.prepare`: all is fixed, and may depend on the records."""

    @property
    def target(self) -> GibbsTarget:
        """Density of the draws."""

    @property
    def num_warmup(self) -> int:
        """Number of draws that are discarded by default."""

    @property
    def settings(self) -> Settings:
        """Description of the plan."""

    def init(self, position: Array | None = None) -> ChainState:
        """Return a new chain at a position of the domain, or at the usual start."""

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Draw a start in the domain."""

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays."""

    def numbers(self) -> list[object]:
        """Return all arrays and numbers that define the chain and its checkpoints."""


def target_functions(target: GibbsTarget, plan: object) -> TargetFunctions:
    """Return the C functions of the target, which most samplers use."""
    del plan  # samplers with C functions of their own choose them by the plan
    return target.pieces


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedChain:
    """Chain ready to run. Plan and start are fixed, and may depend on the records."""

    target: GibbsTarget
    plan: Any  # numbers of the sampler, a NamedTuple, as its kernel reads them
    run: Kernel[..., tuple[int, int]]  # result of `compile_run`
    init_fn: Callable[[Any, Any, Array], ChainState]
    start: Array  # (dim,): a point of the domain near the mode
    functions_fn: Callable[[Any, Any], tuple[object, ...]] = target_functions
    num_steps: int = 1  # steps of the kernel per draw
    num_warmup: int = 500  # draws that are discarded by default
    settings: Settings = field(default_factory=dict)
    scatter: Array | None = None  # (dim, m): factor of the covariance of starts
    start_fn: Callable[[np.random.Generator], Array] | None = None  # in place of it
    # Statistics of a draw that only this sampler has, columns after those of `STAT`.
    own_statistics: tuple[str, ...] = ()

    def init(self, position: Array | None = None) -> ChainState:
        """Return a new chain at a position of the domain, or at the usual start."""
        position = self.start if position is None else position
        return self.init_fn(self.target, self.plan, position)

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Draw a start in the domain, with about the covariance of the target."""
        if self.start_fn is not None:
            return self.start_fn(rng)
        if self.scatter is None:
            return self.start.copy()
        return draw_near(self.target, self.start, self.scatter, rng)

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays."""
        numbers, pieces = self.target.numbers, self.functions_fn(self.target, self.plan)
        fill = compile_filler(self.run, numbers, pieces, self.plan, self.num_steps)
        return lambda *chain: raise_unless_ok(fill(*chain), self.target)

    def numbers(self) -> list[object]:
        """Return all arrays and numbers that define the chain and its checkpoints."""
        return [
            *flatten_plan(self.plan),
            self.num_steps,
            *flatten_plan(self.target.numbers.without_addresses()),
            *self.target.identity(self.start),
        ]


def own_statistics(prepared: Prepared) -> tuple[str, ...]:
    """Return the names of the statistics that only this sampler has."""
    return prepared.own_statistics if isinstance(prepared, PreparedChain) else ()


def flatten_plan(value: object) -> list[object]:
    """Return arrays and numbers of a nested NamedTuple, without C functions."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in flatten_plan(part)]
    is_number = isinstance(value, int | float | np.ndarray | np.generic)
    return [value] if is_number else []


@by_address
class MetropolisPlan(NamedTuple):
    """Numbers of a sampler whose proposals are shaped by a Gaussian.

    ``center``, ``factor`` and ``whiten`` come from a `GaussianFit`.
    """

    step: float
    center: Array  # (dim,)
    factor: Array  # (dim, m): the covariance is factor factor^T
    whiten: Array  # (m, dim): left inverse of the factor


@kernel(counts_references=False)
def evaluate_proposal(target, pieces, state, proposal):
    """Return the energy of a proposal, and count it.

    It is infinite outside the domain, and NaN if a function failed.
    """
    state.counts[COUNT.proposals] += 1
    status = gibbs_target.inside(target, pieces, proposal, state.work)
    if status == 1.0:
        state.counts[COUNT.values] += 1
        state.counts[COUNT.records] += target.data.num_records
        return gibbs_target.energy(target, pieces, proposal, state.work)
    return np.inf if status == 0.0 else np.nan


@kernel(counts_references=False)
def evaluate_gradient(target, pieces, state, theta, gradient):
    """Return the energy, fill its gradient, and count it."""
    state.counts[COUNT.gradients] += 1
    state.counts[COUNT.records] += target.data.num_records
    return gibbs_target.energy_gradient(target, pieces, theta, state.work, gradient)


@kernel(counts_references=False)
def decide(state, proposal, energy, log_ratio, threshold):
    """Move to the proposal if the log ratio is at least the threshold.

    The threshold is the logarithm of a uniform number, that is, minus a standard
    exponential one.
    """
    # An energy is NaN if a function failed.
    if np.isnan(log_ratio):
        return FUNCTION_FAILED
    if threshold <= log_ratio:
        copy_into(proposal, state.position)
        state.energy[0] = energy
        state.counts[COUNT.accepted] += 1
    return OK


@kernel(counts_references=False)
def accept_or_reject(state, proposal, energy, log_ratio, rng):
    """Move to the proposal with probability min(1, e^log_ratio)."""
    return decide(state, proposal, energy, log_ratio, -rng.standard_exponential())


@kernel(counts_references=False)
def decide_with_gradient(state, proposal, energy, gradient, log_ratio, threshold):
    """Make the test of `decide` for a chain whose memory is the gradient."""
    if threshold <= log_ratio:
        copy_into(gradient, state.memory)
    return decide(state, proposal, energy, log_ratio, threshold)


@kernel(counts_references=False)
def displace(plan, origin, noise, scale, out):
    """Fill out with origin + scale factor noise."""
    multiply(plan.factor, noise, out)
    for j in range(out.shape[0]):
        out[j] = origin[j] + scale * out[j]


@kernel(counts_references=False)
def fill_with_normals(rng, noise):
    """Fill noise with standard normal numbers."""
    for j in range(noise.shape[0]):
        noise[j] = rng.standard_normal()


@kernel(counts_references=False)
def walk(target, pieces, plan, state, rng, noise):
    """Make a Metropolis step to position + step factor noise, for symmetric noise."""
    proposal = state.vectors[ROW.proposal]
    displace(plan, state.position, noise, plan.step, proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    return accept_or_reject(state, proposal, energy, state.energy[0] - energy, rng)
