# mypy: allow-untyped-defs
r"""Billiard HMC: Hamiltonian Monte Carlo that is exact at walls, under a fixed force.

With a mass matrix Sigma^-1 and a fixed vector g, about the mean of grad V, the energy

    H = V(theta) + v^T Sigma^-1 v / 2

is split into two parts whose flows are exact,

    H_0 = v^T Sigma^-1 v / 2 + <g, theta>   on the domain, with reflecting walls,
    H_1 = V(theta) - <g, theta>.

The first moves on parabolas of acceleration -Sigma g and turns at a wall of normal nu,

    v' = v - 2 <nu, v> / <nu, Sigma nu> Sigma nu,

the second is a kick, and they alternate as in the leapfrog method. Near a mode on the
boundary grad V is large but nearly constant: with g = 0 a leap is off at every bounce
by the whole gradient, with g by its variation only. In the whole space the first part
is |theta - pivot|^2 / 2 in the metric instead, and its flow a rotation.

Where such a quadratic is nearly all of the energy between flat or round walls, there
are no kicks: one rotation with its reflections is the proposal, and Metropolis' test
alone sees what the quadratic leaves out. Kinks make slopes rough where they leave the
energy smooth, so that kicks would refuse more than they gain. Now and then a short
rotation has kicks, for states that refuse the others.

Leapfrogs for split energies are in Neal (2011, arXiv:1206.1901, section 5.1), exact
flows between walls in Pakman and Paninski (2014, arXiv:1208.4118), and the conservation
of volume by reflections in Afshar and Domke (2015, "Reflection, refraction, and
Hamiltonian Monte Carlo"). Both flows are reversed by v -> -v, and size and number of
leaps are drawn whatever the state: Metropolis' test makes the target invariant.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import (
    Kernel,
    PieceType,
    call,
    f8,
    i8,
    kernel,
    matrix,
    pointer,
    vector,
)
from dpsample.core.pauses import PAUSED, is_due
from dpsample.domains import Simplex
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.problem.records import WORK
from dpsample.samplers.adaptive import exits
from dpsample.samplers.adaptive.mass_matrix import (
    MASS_MATRIX,
    MassMatrix,
    column,
    kinetic,
    times,
    velocity,
)
from dpsample.samplers.chain import (
    PROPOSALS,
    RECORDS,
    VALUES,
    ChainState,
    compile_run,
    decide_with_gradient,
    evaluate_gradient,
    new_state,
    retreat_from_boundary,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.targets import gibbs
from dpsample.targets.gibbs import TARGET, Gibbs, TargetFunctions

LENGTH, MAX_LEAPS = 1.5, 1000
# Longest step, in lengths. Kicks take a Gaussian's point to 1 - step^2 / 2 of it, and
# to nothing by a step of 1.4; between flat walls more is flight, which may be longer.
LONGEST_STEP, LONGEST_FLAT = 0.95, 1.3
LONGEST_TURN = 3.0  # of a rotation between walls: less than half a turn
# A step is jittered, and now and then short: some states refuse the usual one.
LEAST_STEP, STEP_RANGE, RARELY, RESCUE = 0.8, 0.4, 0.1, 0.3
# Of rotations without kicks, half as many are followed by a few short leaps instead.
KICKED, KICKED_LEAPS = 0.05, 4.0
LEAST_LENGTH, LENGTH_RANGE = 0.4, 1.2
# Height of a hill, and bounces in one leap, that refuse a trajectory.
HILL, MAX_BOUNCES = 1e4, 20_000
DISPERSED = 1000  # bounces after which a flight that only disperses ends
HOPELESS = 1000.0  # energy too high for any accept test
# In a Euclidean ball the principal axes, where Sigma is diagonal, cost two passes over
# them.
FEW_BOUNCES = 3
# Rounding must not carry a point through the wall that it has just met.
SHORT_OF = 1.0 - 1e-13
NUM_ROWS = 5  # of scratch memory: point, velocity, slope there, and two vectors
REFUSED = -1  # of a trajectory, beside the codes of `errors`

# Numbers of a trajectory, in the control while it is under way.
STEP, LEAPS, DONE, REMAINING, ENERGY, TOP, KINETIC = range(7)
BOUNCES, EARLIER = range(7, 9)  # all, and those before this leap
IS_TURNED = 9  # whether the flight is in the metric's principal axes
IS_UNKICKED = 10  # whether this trajectory has no kicks
IS_FLYING = 11  # whether a flight is under way
# Entries of a report: of the last transition, and summed over all since it was cleared.
(
    LAST_ACCEPTANCE,
    LAST_LEAPS,
    LAST_BOUNCES,
    ALL_ACCEPTANCE,
    ALL_LEAPS,
    ALL_BOUNCES,
    NUM_REPORTED,
) = range(7)
# Entries of the tuning; without the first the plan's step is used.
IS_TUNED, RATE, ANCHOR, LOG_STEP, MEAN_LOG_STEP, DEFICIT, TURNS, NUM_TUNED = range(8)
GAMMA, DELAY, KAPPA = 0.05, 10.0, 0.75  # of dual averaging


@by_address
class BilliardPlan(NamedTuple):
    """Numbers of the sampler, and the piece that finds exits."""

    step: float
    longest_step: float  # of a tuning
    length: float  # mean length of a trajectory, in units of the metric
    max_leaps: int
    hill: float  # above both ends of a trajectory, that refuses it
    max_bounces: int  # of a leap, that refuse it
    center: Array  # (dim,): a point of the domain near the mean
    mass: MassMatrix
    force: Array  # (dim,): g
    pull: Array  # (dim,): -Sigma g, or the pivot of rotations
    is_harmonic: int  # flights are rotations
    is_free: int  # there are no walls
    has_kicks: int  # or rotations between walls are proposals themselves
    exit: Any
    axes: (
        Array  # (dim, dim): principal axes of Sigma in a Euclidean ball, else (0, dim)
    )
    spectrum: Array  # (dim,): Sigma in them
    turned_pull: Array  # (dim,): the pull in them
    turns: Array  # (m, dim): A Sigma of a polytope's m inequalities, else (0, dim)
    gram: Array  # (m, m): A Sigma A^T
    bends: Array  # (m,): second derivatives of the slacks, -A pull
    origin: Array  # (dim,): a point of the domain's affine hull
    normals: Array  # (dim - rank, dim): orthonormal, to the hull


@by_address
class BilliardWork(NamedTuple):
    """What a chain needs beside its state; nothing but the tuning must survive."""

    scratch: Array  # of the mass matrix
    room: Array  # of the exit's piece
    normal: Array  # (dim,)
    pull: Array  # (dim,): the plan's, in the axes of the flight
    held: Array  # (dim,): the last normal of this trajectory, NaN before the first
    product: Array  # (dim,): Sigma times that
    exit: Array  # (2,): time, and face
    slacks: Array  # (m,): of a polytope
    rates: Array  # (m,)
    report: Array  # (NUM_REPORTED,): of the transitions
    slopes: Array  # (dim,): sum of the slopes after each transition
    tuning: Array  # (NUM_TUNED,): dual averaging of the step, while it is on


PLAN = frame_type(
    (
        *(f8, f8, f8, i8, f8, i8, vector, MASS_MATRIX, vector, vector, i8, i8, i8),
        PieceType(exits.EXIT),
        *(matrix, vector, vector, matrix, matrix, vector, vector, matrix),
    ),
    BilliardPlan,
)
STATE = frame_type(
    (
        *(vector, vector, types.int64[::1], vector, matrix, WORK),
        frame_type((vector,) * len(BilliardWork._fields), BilliardWork),
    ),
    ChainState,
)
FLY = i8(TARGET, PLAN, STATE)  # to a code: OK, PAUSED or REFUSED


@by_address
class BilliardPieces(NamedTuple):
    """C functions of a step: those of the target, and the flight of a plan."""

    target: TargetFunctions
    fly: Any


def new_plan(
    target: Gibbs,
    mass: MassMatrix,
    *,
    center: Array,
    force: Array,
    step: float,
    length: float = LENGTH,
    max_leaps: int = MAX_LEAPS,
    pivot: Array | None = None,
) -> BilliardPlan:
    """Plan of a target; flights without kicks turn about a pivot if there is one.

    In the whole space they turn about the center, with kicks.
    """
    domain, body = target.problem.domain, target.numbers.body
    matrix, piece = body.matrix, exits.find_exit_function(domain)
    is_free = domain.name == "whole_space"
    held = np.array(force, dtype=np.float64)
    if is_free or pivot is not None:
        held[:] = 0.0
    turns = np.ascontiguousarray(mass.apply(matrix))
    pull, middle = -mass.apply(held), np.zeros(target.dim)
    if is_free or pivot is not None:
        pull = np.array(center if pivot is None else pivot, dtype=np.float64)
        middle = body.center
    axes, spectrum = np.empty((0, target.dim)), np.empty(0)
    if mass.is_dense and piece is exits.euclidean_exit:
        spectrum, axes = np.linalg.eigh(mass.covariance)
    flat = (exits.box_exit, exits.simplex_exit, exits.l1_exit)
    is_flat = len(matrix) > 0 or piece in flat
    longest = length * (LONGEST_FLAT if is_flat else LONGEST_STEP)
    turning = None if pivot is None else exits.find_rotation_exit(domain)
    if turning is not None:
        piece = turning
    return BilliardPlan(
        step=float(step),
        longest_step=float(longest),
        length=float(length),
        max_leaps=int(max_leaps),
        hill=HILL,
        max_bounces=MAX_BOUNCES,
        center=np.array(center, dtype=np.float64),
        mass=mass,
        force=held,
        pull=pull,
        is_harmonic=int(is_free or pivot is not None),
        is_free=int(is_free),
        has_kicks=int(pivot is None),
        exit=pointer(piece, exits.EXIT),
        axes=np.ascontiguousarray(axes),
        spectrum=spectrum,
        turned_pull=middle + (pull - middle) @ axes if len(axes) else np.empty(0),
        turns=turns,
        gram=np.ascontiguousarray(turns @ matrix.T),
        bends=-(matrix @ pull),
        **_normals(target),
    )


def _normals(target: Gibbs) -> dict[str, Array]:
    """Point of the domain's affine hull, and rows that are normal to it."""
    domain, dim = target.problem.domain, target.dim
    if isinstance(domain, Simplex):  # whose hull has too many columns at times
        return {
            "origin": np.full(dim, 1.0 / dim),
            "normals": np.full((1, dim), dim**-0.5),
        }
    rank = domain.affine_dim(dim)
    if rank == dim:
        return {"origin": np.zeros(dim), "normals": np.empty((0, dim))}
    origin, basis = domain.hull(dim)
    normals = np.linalg.svd(basis)[0][:, rank:].T
    return {"origin": np.array(origin), "normals": np.ascontiguousarray(normals)}


def without_force(plan: BilliardPlan) -> BilliardPlan:
    """Plan of straight flights, except for the piece that finds exits."""
    return plan._replace(
        is_harmonic=0,
        has_kicks=1,
        force=0.0 * plan.force,
        pull=0.0 * plan.pull,
        turned_pull=0.0 * plan.turned_pull,
        bends=0.0 * plan.bends,
    )


@kernel(counts_references=False)
def flatten(plan, theta):
    """Take away what rounding has put between a point and the domain's affine hull.

    Rounding errors of metric and force are the same in each flight, so they add up: a
    long chain would leave the domain, and then stay where it is.
    """
    for i in range(plan.normals.shape[0]):
        height = 0.0
        for j in range(theta.shape[0]):
            height += plan.normals[i, j] * (theta[j] - plan.origin[j])
        for j in range(theta.shape[0]):
            theta[j] -= height * plan.normals[i, j]


@kernel(counts_references=False)
def launch(target, pieces, plan, state, rng):
    """Draw the velocity, and size and number of the leaps."""
    control = state.work.control[0]
    copy_into(state.position, state.scratch[0])
    flatten(plan, state.scratch[0])
    copy_into(state.memory, state.scratch[2])
    control.saved[KINETIC] = velocity(
        plan.mass, rng, state.own.scratch, state.scratch[1]
    )
    size = plan.step
    if state.own.tuning[IS_TUNED] == 1.0:
        size = math.exp(state.own.tuning[LOG_STEP])
    scale = LEAST_STEP + STEP_RANGE * rng.random()
    is_rescue = rng.random() < (RARELY if plan.has_kicks == 1 else KICKED)
    length = plan.length * (LEAST_LENGTH + LENGTH_RANGE * rng.random())
    size *= scale
    control.saved[IS_UNKICKED] = 0.0
    if plan.has_kicks == 0:
        size = length = min(length, LONGEST_TURN)
        control.saved[IS_UNKICKED] = 0.0 if is_rescue else 1.0
    if is_rescue:
        size *= RESCUE
    if plan.has_kicks == 0 and is_rescue:
        size *= rng.random()
        length = KICKED_LEAPS * size
        evaluate_gradient(
            target, pieces.target, state, state.position, state.scratch[2]
        )
    control.saved[STEP] = size
    # Rounded up, a long step would mostly be made twice, which leads back.
    leaps = math.floor(length / size + 0.5)
    control.saved[LEAPS] = min(max(leaps, 1.0), float(plan.max_leaps))
    control.saved[DONE] = control.saved[REMAINING] = control.saved[BOUNCES] = 0.0
    state.own.held[:] = np.nan
    control.saved[ENERGY] = control.saved[TOP] = state.energy[0]
    control.stage = 1
    state.counts[PROPOSALS] += 1


@kernel(counts_references=False)
def kick(plan, state, duration):
    """Change the velocity by the slope of what the flight leaves out."""
    theta, moving, gradient = state.scratch[0], state.scratch[1], state.scratch[2]
    rest, turn = state.scratch[3], state.scratch[4]
    for j in range(theta.shape[0]):
        rest[j] = gradient[j] - plan.force[j]
    times(plan.mass, rest, state.own.scratch, turn)
    for j in range(theta.shape[0]):
        if plan.is_harmonic == 1:
            turn[j] -= theta[j] - plan.pull[j]
        moving[j] -= duration * turn[j]


@kernel(counts_references=False)
def rotate(pivot, theta, moving, cosine, sine):
    """Turn point and velocity around the pivot."""
    for j in range(theta.shape[0]):
        offset = theta[j] - pivot[j]
        theta[j] = pivot[j] + cosine * offset + sine * moving[j]
        moving[j] = cosine * moving[j] - sine * offset


@kernel
def turn_rows(rows, axes, is_back, out):
    """Fill out with rows times axes, or the transposed ones; counts as `multiply`."""
    if is_back:
        np.dot(rows, axes.T, out)
    else:
        np.dot(rows, axes, out)


@kernel(counts_references=False)
def turn_axes(target, plan, state):
    """Turn the flight about the ball's center, into the axes or back."""
    control, center = state.work.control[0], target.body.center
    both, turned = state.scratch[3:5], state.scratch[0:2]  # point and velocity
    for j in range(center.shape[0]):
        both[0, j], both[1, j] = turned[0, j] - center[j], turned[1, j]
    is_back = control.saved[IS_TURNED] == 1.0
    turn_rows(both, plan.axes, is_back, turned)
    if not is_back:
        copy_into(plan.turned_pull, state.own.pull)
    control.saved[IS_TURNED] = 0.0 if is_back else 1.0
    for j in range(center.shape[0]):
        turned[0, j] += center[j]


@kernel(counts_references=False)
def begin_between_walls(target, plan, state):
    """Set the pull."""
    copy_into(plan.pull, state.own.pull)
    state.work.control[0].saved[IS_TURNED] = 0.0


@kernel(counts_references=False)
def meet_wall(target, plan, state, duration):
    """Return the time of the next exit, infinity if it is later, and the face."""
    own = state.own
    own.exit[:] = np.nan
    theta, moving = state.scratch[0], state.scratch[1]
    plan.exit(
        target.body, theta, moving, own.pull, duration, own.room, own.normal, own.exit
    )
    return own.exit[0], int(own.exit[1])


@kernel(counts_references=False)
def move_on_parabola(plan, state, duration):
    """Move with the acceleration of the flight."""
    theta, moving, pull = state.scratch[0], state.scratch[1], state.own.pull
    for j in range(theta.shape[0]):
        theta[j] += duration * (moving[j] + 0.5 * duration * pull[j])
        moving[j] += duration * pull[j]


@kernel(counts_references=False)
def move_between_walls(plan, state, duration):
    """Move on the parabola, or turn by an angle whose half has that tangent."""
    if plan.is_harmonic == 1:
        square = duration * duration
        cosine, sine = (1.0 - square) / (1.0 + square), 2.0 * duration / (1.0 + square)
        rotate(state.own.pull, state.scratch[0], state.scratch[1], cosine, sine)
    else:
        move_on_parabola(plan, state, duration)


@kernel(counts_references=False)
def times_normal(plan, state, out):
    """Fill out with Sigma normal, from the last product if few entries are new."""
    own, covariance = state.own, plan.mass.covariance
    dim, num_new = out.shape[0], 0
    if state.work.control[0].saved[IS_TURNED] == 1.0:
        for j in range(dim):
            out[j] = plan.spectrum[j] * own.normal[j]
        return
    for j in range(dim):
        num_new += own.normal[j] != own.held[j]
    if covariance.shape[0] == 0 or 4 * num_new > dim:
        times(plan.mass, own.normal, own.scratch, own.product)
        copy_into(own.normal, own.held)
    else:
        for j in range(dim):
            change = own.normal[j] - own.held[j]
            if change != 0.0:
                own.held[j] = own.normal[j]
                for i in range(dim):
                    own.product[i] += change * covariance[j, i]
    copy_into(own.product, out)


@kernel(counts_references=False)
def turn_velocity(plan, state, factor):
    """Take away Sigma normal, which is in the scratch memory, times a factor."""
    moving, turn = state.scratch[1], state.scratch[4]
    for j in range(moving.shape[0]):
        moving[j] -= factor * turn[j]


@kernel(counts_references=False)
def reflect_at_wall(target, plan, state, face):
    """Turn the velocity, and after a few bounces in a ball the axes."""
    moving, turn, own = state.scratch[1], state.scratch[4], state.own
    along, square = 0.0, 0.0
    if face >= 0:
        column(plan.mass, face, own.scratch, turn)
        along, square = moving[face], turn[face]
    else:
        times_normal(plan, state, turn)
        for j in range(moving.shape[0]):
            along += own.normal[j] * moving[j]
            square += own.normal[j] * turn[j]
    turn_velocity(plan, state, 2.0 * along / square)
    control = state.work.control[0]
    is_bouncing = control.saved[BOUNCES] - control.saved[EARLIER] == FEW_BOUNCES
    if is_bouncing and plan.axes.shape[0] > 0:
        turn_axes(target, plan, state)


@kernel(counts_references=False)
def end_between_walls(target, plan, state):
    """Turn back into the axes of the coefficients."""
    if state.work.control[0].saved[IS_TURNED] == 1.0:
        turn_axes(target, plan, state)


@kernel(counts_references=False)
def begin_between_facets(target, plan, state):
    """Set the pull, and the slacks of a polytope's inequalities with their rates."""
    body, own = target.body, state.own
    copy_into(plan.pull, own.pull)
    multiply(body.matrix, state.scratch[0], own.slacks)
    multiply(body.matrix, state.scratch[1], own.rates)
    for i in range(own.slacks.shape[0]):
        own.slacks[i] = body.bounds[i] - own.slacks[i]
        own.rates[i] = -own.rates[i]


@kernel(counts_references=False)
def meet_facet(target, plan, state, duration):
    """As `meet_wall`, by the slacks."""
    own = state.own
    return exits.nearest_face(own.slacks, own.rates, plan.bends, duration)


@kernel(counts_references=False)
def move_between_facets(plan, state, duration):
    """Move on the parabola, and the slacks with it."""
    move_on_parabola(plan, state, duration)
    own = state.own
    for i in range(own.slacks.shape[0]):
        own.slacks[i] += duration * (own.rates[i] + 0.5 * duration * plan.bends[i])
        own.rates[i] += duration * plan.bends[i]


@kernel(counts_references=False)
def reflect_at_facet(target, plan, state, face):
    """Turn the velocity, and the rates of the slacks with it."""
    own = state.own
    copy_into(plan.turns[face], state.scratch[4])
    factor = 2.0 * -own.rates[face] / plan.gram[face, face]
    turn_velocity(plan, state, factor)
    for i in range(own.rates.shape[0]):
        own.rates[i] += factor * plan.gram[face, i]


@kernel(counts_references=False)
def end_between_facets(target, plan, state):
    """Leave the flight as it is."""


def compile_flight(
    begin: Kernel[..., None],
    meet: Kernel[..., tuple[float, int]],
    move: Kernel[..., None],
    reflect: Kernel[..., None],
    end: Kernel[..., None],
) -> Kernel[..., int]:
    """Flight between walls of one kind: a kernel of the signature `FLY`.

    It flies for the remaining time that the control tells.
    """

    def fly(target, plan, state):
        control = state.work.control[0]
        if control.saved[IS_FLYING] == 0.0:
            begin(target, plan, state)
            control.saved[IS_FLYING] = 1.0
        while True:
            remaining = control.saved[REMAINING]
            time, face = meet(target, plan, state, remaining)
            if time >= remaining:
                move(plan, state, remaining)
                control.saved[REMAINING], code = 0.0, OK
                break
            if not time >= 0.0:
                code = REFUSED
                break
            move(plan, state, SHORT_OF * time)
            remaining -= SHORT_OF * time
            if plan.is_harmonic == 1:  # the tangent of a difference
                remaining /= 1.0 + control.saved[REMAINING] * (SHORT_OF * time)
            control.saved[REMAINING] = remaining
            if face != exits.OPEN:
                control.saved[BOUNCES] += 1.0
                reflect(target, plan, state, face)
            if control.saved[BOUNCES] - control.saved[EARLIER] > plan.max_bounces:
                code = REFUSED
                break
            if is_due(control):
                return PAUSED
        end(target, plan, state)
        control.saved[IS_FLYING] = 0.0
        return code

    return kernel(counts_references=False)(fly)


fly_between_walls = compile_flight(
    begin_between_walls,
    meet_wall,
    move_between_walls,
    reflect_at_wall,
    end_between_walls,
)
fly_between_facets = compile_flight(
    begin_between_facets,
    meet_facet,
    move_between_facets,
    reflect_at_facet,
    end_between_facets,
)


def step_pieces(target: Gibbs, plan: BilliardPlan) -> BilliardPieces:
    """C functions of a plan's steps."""
    fly = fly_between_facets if len(plan.gram) else fly_between_walls
    return BilliardPieces(target.pieces, pointer(fly, FLY))


@kernel(counts_references=False)
def leap(target, pieces, plan, state):
    """One kick and one flight; return OK, PAUSED, REFUSED or FUNCTION_FAILED."""
    control, theta = state.work.control[0], state.scratch[0]
    if control.saved[REMAINING] == 0.0:
        if control.saved[IS_UNKICKED] == 0.0:
            kick(
                plan,
                state,
                control.saved[STEP] * (0.5 if control.saved[DONE] == 0.0 else 1.0),
            )
        control.saved[REMAINING], control.saved[EARLIER] = (
            control.saved[STEP],
            control.saved[BOUNCES],
        )
        if plan.is_harmonic == 1:
            control.saved[REMAINING] = math.tan(0.5 * control.saved[STEP])
    if plan.is_free == 1:
        angle = control.saved[STEP]
        cosine, sine = math.cos(angle), math.sin(angle)
        rotate(plan.pull, theta, state.scratch[1], cosine, sine)
        control.saved[REMAINING] = 0.0
    else:
        code = pieces.fly(target, plan, state)
        if code != OK:
            return code
    if control.saved[IS_UNKICKED] == 0.0:
        energy = evaluate_gradient(
            target, pieces.target, state, theta, state.scratch[2]
        )
    else:
        state.counts[VALUES] += 1
        state.counts[RECORDS] += target.data.num_records
        energy = gibbs.energy(target, pieces.target, theta, state.work)
    control.saved[ENERGY], control.saved[TOP] = energy, max(control.saved[TOP], energy)
    control.saved[DONE] += 1.0
    # From here it ends below the hill and is refused, or so high that the test fails.
    if energy - state.energy[0] < plan.hill + HOPELESS + control.saved[KINETIC]:
        return OK
    is_failed = np.isnan(energy)
    if is_failed and gibbs.inside(target, pieces.target, theta, state.work) != 0.0:
        return FUNCTION_FAILED
    return REFUSED


@kernel(counts_references=False)
def land(target, pieces, plan, state, rng):
    """Last half kick and accept test; return a code and the probability."""
    control, theta = state.work.control[0], state.scratch[0]
    energy = control.saved[ENERGY]
    # Refuse on grounds that the way back shares, or it would be no reversible refusal.
    if control.saved[TOP] > max(state.energy[0], energy) + plan.hill:
        return OK, 0.0
    status = gibbs.inside(target, pieces.target, theta, state.work)
    if status != 1.0:
        return (OK if status == 0.0 else FUNCTION_FAILED), 0.0
    if control.saved[IS_UNKICKED] == 0.0:
        kick(plan, state, 0.5 * control.saved[STEP])
    final = kinetic(plan.mass, state.scratch[1], state.own.scratch)
    log_ratio = (state.energy[0] - energy) + (control.saved[KINETIC] - final)
    if not log_ratio > -np.inf:
        return OK, 0.0
    threshold = -rng.standard_exponential()
    code = decide_with_gradient(
        state, theta, energy, state.scratch[2], log_ratio, threshold
    )
    return code, math.exp(min(log_ratio, 0.0))


@kernel(counts_references=False)
def tune(tuning, probability, longest):
    """Dual averaging of the step (Hoffman and Gelman, 2014, algorithm 5)."""
    tuning[TURNS] += 1.0
    turn = tuning[TURNS]
    share = 1.0 / (turn + DELAY)
    tuning[DEFICIT] += share * (tuning[RATE] - probability - tuning[DEFICIT])
    log_step = tuning[ANCHOR] - math.sqrt(turn) / GAMMA * tuning[DEFICIT]
    tuning[LOG_STEP] = min(log_step, math.log(longest))
    weight = turn**-KAPPA
    tuning[MEAN_LOG_STEP] += weight * (tuning[LOG_STEP] - tuning[MEAN_LOG_STEP])


@kernel(counts_references=False)
def finish(plan, state, probability):
    """End of a transition: report it, and tune the step if that is asked for."""
    control, report = state.work.control[0], state.own.report
    report[LAST_ACCEPTANCE] = probability
    report[LAST_LEAPS], report[LAST_BOUNCES] = (
        control.saved[DONE],
        control.saved[BOUNCES],
    )
    for k in range(3):
        report[ALL_ACCEPTANCE + k] += report[LAST_ACCEPTANCE + k]
    for j in range(state.memory.shape[0]):
        state.own.slopes[j] += state.memory[j]
    if state.own.tuning[IS_TUNED] == 1.0:
        tune(state.own.tuning, probability, plan.longest_step)
    control.stage = 0


def step(target, pieces, plan, state, rng):
    """One trajectory and its accept test; the state's memory is the gradient.

    A plan without kicks does not read it.
    """
    control = state.work.control[0]
    if control.stage == 0:
        launch(target, pieces, plan, state, rng)
    while control.saved[DONE] < control.saved[LEAPS]:
        code = leap(target, pieces, plan, state)
        if code == REFUSED:
            finish(plan, state, 0.0)
            return OK
        if code != OK:
            return code
        if is_due(control):
            return PAUSED
    code, probability = land(target, pieces, plan, state, rng)
    finish(plan, state, probability)
    return code


run = compile_run(step)


def init(target: Gibbs, plan: BilliardPlan, position: Array) -> ChainState:
    """Fresh state at a position of the domain, with its gradient."""
    dim, num_faces = target.dim, len(plan.bends)
    own = BilliardWork(
        scratch=np.empty(plan.mass.num_scratch),
        room=np.empty(exits.ROOM * dim),
        normal=np.empty(dim),
        pull=np.empty(dim),
        held=np.full(dim, np.nan),
        product=np.empty(dim),
        exit=np.empty(2),
        slacks=np.empty(num_faces),
        rates=np.empty(num_faces),
        report=np.zeros(NUM_REPORTED),
        slopes=np.zeros(dim),
        tuning=np.zeros(NUM_TUNED),
    )
    state = new_state(target, position, memory=np.empty(dim), rows=NUM_ROWS, own=own)
    given = target.numbers, target.pieces, state.position, state.work, state.memory
    target.calls.energy_gradient(*given)
    if not np.isfinite(state.memory).all():
        state.position[:] = retreat_from_boundary(target, position)
        state.energy[:] = target.calls.energy_gradient(*given)
    return state


def new_tuning(step: float, *, rate: float) -> Array:
    """Tuning that begins at a step and aims at a mean acceptance probability."""
    tuning = np.zeros(NUM_TUNED)
    tuning[IS_TUNED], tuning[RATE] = 1.0, rate
    tuning[ANCHOR] = math.log(2.0 * step)
    tuning[LOG_STEP] = tuning[MEAN_LOG_STEP] = math.log(step)
    return tuning


@kernel
def glide(target, pieces, plan, state):
    """Fly without kicks; return a code as a flight, for `pauses.fill`."""
    control = state.work.control[0]
    if control.stage == 0:
        control.saved[BOUNCES] = control.saved[EARLIER] = 0.0
        control.stage = 1
    code = pieces.fly(target, plan, state)
    if code != PAUSED:
        control.stage = 0
    return code, 0


def flight(
    target: Gibbs,
    plan: BilliardPlan,
    *,
    position: Array,
    velocity: Array,
    duration: float,
) -> Array:
    """Point after a flight without force that turns at the walls.

    One that bounces `DISPERSED` times ends there.
    """
    piece = pointer(exits.find_exit_function(target.problem.domain), exits.EXIT)
    free = without_force(plan)._replace(max_bounces=DISPERSED, exit=piece)
    state = init(target, plan, position)
    state.scratch[0], state.scratch[1] = position, velocity
    state.work.control[0].saved[REMAINING] = duration

    pieces = step_pieces(target, free)

    def rows(first: int) -> tuple[int, int]:
        del first  # there is one flight
        code, made = call(glide, target.numbers, pieces, free, state)
        return code, made

    pauses.fill(state.work.control, rows)
    end = state.scratch[0].copy()
    is_inside = np.isfinite(end).all() and target._is_inside(end)
    return end if is_inside else np.array(position)
