# mypy: allow-untyped-defs
"""What all chains carry, count and report, their one loop, and Metropolis steps."""

import json
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
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs, Target, TargetFunctions

# Entries of the counts; a sampler may append entries of its own.
PROPOSALS, ACCEPTED, VALUES, GRADIENTS, RECORDS = range(5)
COUNT_NAMES = ("proposals", "accepted", "values", "gradients", "records")
NUM_COUNTS = len(COUNT_NAMES)
# Columns of the statistics of a draw.
ENERGY, ACCEPTANCE, NUM_VALUES, NUM_GRADIENTS, NUM_RECORDS = range(5)
STAT_NAMES = ("energy", "acceptance_rate", "num_values", "num_gradients", "num_records")
NUM_STATS = len(STAT_NAMES)


@by_address
class ChainState(NamedTuple):
    """Position, scratch memory and counts of one chain of any sampler.

    All of ``position``, ``energy``, ``memory`` and ``counts`` is what a checkpoint
    keeps; ``own`` holds arrays that one sampler alone needs.
    """

    position: Array  # (dim,)
    energy: Array  # (1,): k (F + mu r) at the position, NaN if it is not known
    counts: Ints  # (NUM_COUNTS,) or more
    memory: Array  # whatever else the next step needs, as a vector
    scratch: Array  # (rows, dim): nothing in it survives a step
    work: Any  # scratch memory of the passes over the records
    own: Any = ()


# Share of the way to an interior point from a boundary without a slope.
RETREAT = 1e-3
# Reflections after which a start is the projection of the end of its move. In a corner
# one is enough for all walls that are orthogonal in the metric of the starts.
MAX_REFLECTIONS = 200
# Numbers and words that describe a plan, for attributes of the draws.
Settings = dict[str, float | int | str]
Runner = Callable[[ChainState, np.random.Generator, Array, Array], None]


def new_state(
    target: Gibbs,
    position: Array,
    *,
    is_weighed: bool = True,
    memory: ArrayLike = (),
    rows: int = 8,
    own: tuple[object, ...] = (),
) -> ChainState:
    """State at a position of the domain; ``is_weighed`` if the energy is needed."""
    point, work = np.array(position, dtype=np.float64), target.new_work()
    energy = np.nan
    if is_weighed:
        energy = target.calls.energy(target.numbers, target.pieces, point, work)
    return ChainState(
        position=point,
        energy=np.array([energy]),
        counts=np.zeros(NUM_COUNTS, dtype=np.int64),
        memory=np.array(memory, dtype=np.float64),
        scratch=np.empty((rows, point.size)),
        work=work,
        own=own,
    )


def retreat_from_boundary(target: Gibbs, position: Array) -> Array:
    """Point a little off the boundary, on which a slope may be infinite."""
    interior = target.problem.domain.interior_point(target.dim)
    return np.asarray(position + RETREAT * (interior - position))


def reflect_move(target: Gibbs, start: Array, factor: Array, noise: Array) -> Array:
    """Point at the end of a move ``factor noise`` that the boundary reflects.

    If the end p of the move is outside, it goes to the boundary, and the rest v of it
    is mirrored there. With the normal n = p - projection of p, and the covariance
    S = factor factor^T, it becomes v - 2 <n, v> S n / <n, S n>. So a reflected move is
    as long as before in the metric of S, and starts are as dispersed beside a wall, or
    in a corner, as they are inside. <n, v> > 0, because the domain is convex. Without a
    finite projection or chord the start is where the move came to.
    """
    domain: Any = target.problem.domain  # its pieces are kernels
    point, move, rest = start, factor @ noise, 1.0
    chord, nearest = np.empty(2), np.empty_like(start)
    for _ in range(MAX_REFLECTIONS):
        end = point + rest * move
        if target._is_inside(end):
            return np.asarray(end)
        chord[:] = nearest[:] = np.nan
        call(domain.chord_piece, target.body, point, move, chord)
        call(domain.project_piece, target.body, end, nearest)
        share = min(float(chord[1]), rest)
        normal = end - nearest
        across = factor.T @ normal
        square = float(across @ across)
        is_known = share >= 0.0 and np.isfinite(square) and square > 0.0
        exit_point = point + share * move if is_known else point
        if not (is_known and target._is_inside(exit_point)):
            return np.array(point)
        point, rest = exit_point, rest - share
        move = move - 2.0 * float(normal @ move) / square * (factor @ across)
    return retreat_from_boundary(target, nearest)


def init(target: Gibbs, plan: object, position: Array) -> ChainState:
    """Fresh state of a sampler that needs no more than the energy."""
    del plan  # samplers with caches have an `init` of their own
    return new_state(target, position)


@kernel(counts_references=False)
def report(state, before, row):
    """Fill the statistics of one draw from the counts before it and after."""
    proposals = state.counts[PROPOSALS] - before[PROPOSALS]
    row[ENERGY] = state.energy[0]
    row[ACCEPTANCE] = np.nan
    if proposals > 0:
        row[ACCEPTANCE] = (state.counts[ACCEPTED] - before[ACCEPTED]) / proposals
    row[NUM_VALUES] = state.counts[VALUES] - before[VALUES]
    row[NUM_GRADIENTS] = state.counts[GRADIENTS] - before[GRADIENTS]
    row[NUM_RECORDS] = state.counts[RECORDS] - before[RECORDS]


@kernel(counts_references=False)
def begin(state, before, control):
    """Keep the counts before a draw, unless a pause has cut it."""
    if control.steps_done == 0 and control.stage == 0:
        for j in range(before.shape[0]):
            before[j] = state.counts[j]


def compile_run(step: Callable[..., int]) -> Kernel[..., tuple[int, int]]:
    """Loop of a sampler, compiled with its step (target, pieces, plan, state, rng).

    The kernel makes ``num_steps`` steps per row of ``draws`` and returns a code of
    `errors`, or `PAUSED`, with the number of rows filled. A step that may be long
    pauses itself, with a stage and what it needs in ``state.work.control``.

    The step counts no references to arrays, which would take longer than the rest of a
    short one. What makes arrays is for a kernel of its own: "NRT required" says Numba.
    """
    move = kernel(counts_references=False)(step)

    def run(target, pieces, plan, state, rng, num_steps, draws, stats):
        control = state.work.control[0]
        before = control.counts_before[: state.counts.shape[0]]
        for t in range(draws.shape[0]):
            begin(state, before, control)
            is_over = False
            while control.steps_done < num_steps:
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
            report(state, before, stats[t])
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
    """Return a function (state, rng, draws, stats) to a code, after all pauses.

    Its arguments must always have the same types.
    """
    code: Callable[..., tuple[int, int]] | None = None

    def fill(
        state: ChainState, rng: np.random.Generator, draws: Array, stats: Array
    ) -> int:
        nonlocal code
        fixed = numbers, pieces, plan, state, rng, num_steps
        if code is None:
            code = entry(run, *fixed, draws, stats)
        machine_code = code

        def rows(first: int) -> tuple[int, int]:
            return machine_code(*fixed, draws[first:], stats[first:])

        return pauses.fill(state.work.control, rows)

    return fill


class Prepared(Protocol):
    """What `Sampler.prepare` returns: all is fixed, and may depend on the records."""

    @property
    def target(self) -> Gibbs:
        """What is drawn from."""

    @property
    def num_warmup(self) -> int:
        """Draws that are discarded by default."""

    @property
    def settings(self) -> Settings:
        """What describes the plan."""

    def init(self, position: Array | None = None) -> ChainState:
        """Fresh chain at a position of the domain; the starting point by default."""

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Random start of the domain."""

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays."""

    def numbers(self) -> list[object]:
        """All arrays and numbers that define the chain, for a checkpoint's identity."""


def target_pieces(target: Gibbs, plan: object) -> TargetFunctions:
    """C functions of a sampler that needs no more than those of its target."""
    del plan  # samplers with C functions of their own choose them by it
    return target.pieces


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedChain:
    """A chain ready to run: plan and start are fixed, and may depend on the records."""

    target: Gibbs
    plan: Any  # numbers of the sampler, a NamedTuple, as its kernel reads them
    run: Kernel[..., tuple[int, int]]  # what `compile_run` returned
    init_fn: Callable[[Gibbs, Any, Array], ChainState]
    start: Array  # (dim,): a point of the domain near the mode
    pieces_fn: Callable[[Gibbs, Any], tuple[object, ...]] = target_pieces
    num_steps: int = 1  # of the kernel, per draw
    num_warmup: int = 500  # draws that are discarded by default
    settings: Settings = field(default_factory=dict)
    scatter: Array | None = None  # (dim, m): factor of a covariance, to disperse starts
    disperse: Callable[[np.random.Generator], Array] | None = None  # instead of that

    def init(self, position: Array | None = None) -> ChainState:
        """Fresh chain at a position of the domain; the starting point by default."""
        where = self.start if position is None else position
        return self.init_fn(self.target, self.plan, where)

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Random start of the domain, about as spread as the target is guessed."""
        if self.disperse is not None:
            return self.disperse(rng)
        if self.scatter is None:
            return self.start.copy()
        noise = rng.standard_normal((self.scatter.shape[1],))
        return reflect_move(self.target, self.start, self.scatter, noise)

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays."""
        numbers, pieces = self.target.numbers, self.pieces_fn(self.target, self.plan)
        fill = compile_filler(self.run, numbers, pieces, self.plan, self.num_steps)
        return lambda *chain: raise_unless_ok(fill(*chain))

    def numbers(self) -> list[object]:
        """All arrays and numbers that define the chain, for a checkpoint's identity."""
        return [
            *flatten_plan(self.plan),
            self.num_steps,
            *identify_target(self.target, self.start),
        ]


def flatten_plan(value: object) -> list[object]:
    """Arrays and numbers of a nested NamedTuple; compiled functions are left out."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in flatten_plan(part)]
    is_number = isinstance(value, int | float | np.ndarray | np.generic)
    return [value] if is_number else []


def identify_target(target: Gibbs, start: Array) -> list[object]:
    """All that defines the target; two energies and a slope stand for own losses."""
    problem = target.problem
    specs = (problem.loss, problem.domain, target.regularizer)
    words = [json.dumps(spec.to_dict()) for spec in specs]
    energy, gradient = target.energy(start), target.gradient(start)
    return [*flatten_plan(target.numbers), start, energy, gradient, *words]


@by_address
class MetropolisPlan(NamedTuple):
    """Numbers of a sampler whose proposals are shaped by a Gaussian.

    ``factor`` (dim, m) and ``whiten`` (m, dim) are those of `GaussianFit`.
    """

    step: float
    center: Array
    factor: Array
    whiten: Array


@kernel(counts_references=False)
def evaluate_proposal(target, pieces, state, proposal):
    """Energy of a proposal: infinite outside the domain, NaN if a piece failed."""
    state.counts[PROPOSALS] += 1
    status = gibbs.inside(target, pieces, proposal, state.work)
    if status == 1.0:
        state.counts[VALUES] += 1
        state.counts[RECORDS] += target.data.num_records
        return gibbs.energy(target, pieces, proposal, state.work)
    return np.inf if status == 0.0 else np.nan


@kernel(counts_references=False)
def evaluate_gradient(target, pieces, state, theta, gradient):
    """Energy and its gradient, counted."""
    state.counts[GRADIENTS] += 1
    state.counts[RECORDS] += target.data.num_records
    return gibbs.energy_gradient(target, pieces, theta, state.work, gradient)


@kernel(counts_references=False)
def decide(state, proposal, energy, log_ratio, threshold):
    """Accept test: move to the proposal if the log ratio is above the threshold."""
    if np.isnan(log_ratio):
        return FUNCTION_FAILED
    if threshold <= log_ratio:
        copy_into(proposal, state.position)
        state.energy[0] = energy
        state.counts[ACCEPTED] += 1
    return OK


@kernel(counts_references=False)
def accept_or_reject(state, proposal, energy, log_ratio, rng):
    """Move to the proposal with probability min(1, e^log_ratio)."""
    return decide(state, proposal, energy, log_ratio, -rng.standard_exponential())


@kernel(counts_references=False)
def decide_with_gradient(state, proposal, energy, gradient, log_ratio, threshold):
    """As `decide`, for chains whose memory is the gradient."""
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
    """Fill noise with standard normals."""
    for j in range(noise.shape[0]):
        noise[j] = rng.standard_normal()


@kernel(counts_references=False)
def walk(target, pieces, plan, state, rng, noise):
    """Test the proposal at step factor noise from the position, if it is symmetric."""
    proposal = state.scratch[1]
    displace(plan, state.position, noise, plan.step, proposal)
    energy = evaluate_proposal(target, pieces, state, proposal)
    return accept_or_reject(state, proposal, energy, state.energy[0] - energy, rng)
