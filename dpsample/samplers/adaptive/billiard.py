# mypy: allow-untyped-defs
r"""Billiard HMC: Hamiltonian Monte Carlo with exact reflections, under a fixed force.

The target is the density proportional to e^{-V} on a convex domain. A *trajectory*
starts with a random velocity v and proposes its end theta. With a mass matrix Sigma^-1
and a fixed vector g, about the mean of grad V, the energy

    H = V(theta) + v^T Sigma^-1 v / 2

of position and velocity is split into two parts whose flows are exact,

    H_0 = v^T Sigma^-1 v / 2 + <g, theta>   on the domain, with reflecting boundary,
    H_1 = V(theta) - <g, theta>.

The first flow is a *flight* on parabolas of acceleration -Sigma g. At a boundary point
with normal nu it reflects the velocity (the code counts *bounces*),

    v' = v - 2 <nu, v> / <nu, Sigma nu> Sigma nu.

The second flow is a *kick*, a change of the velocity. A *leap* is a kick and a flight,
as in the leapfrog method, whose first and last kicks have half the size.
Near a mode on the boundary grad V is large but nearly constant. With g = 0 the error of
a leap at a reflection is of the order of the gradient, and with g only of the order of
its variation. In the whole space the first part is |theta - pivot|^2 / 2 in the metric
instead, and its flow is a rotation of theta and v.

If such a quadratic is nearly all of the energy, and the boundary flat or round, there
are no kicks. The proposal is one rotation with its reflections, and only the Metropolis
test depends on the rest of the energy. For a non-smooth loss the gradient is rough but
the energy is not, so kicks would cause more rejections than they avoid. One trajectory
in twenty has kicks and short leaps, for states at which rotations are rejected.

Leapfrogs for split energies are in Neal (2011, arXiv:1206.1901, section 5.1), exact
flows between boundaries in Pakman and Paninski (2014, arXiv:1208.4118), and the
conservation of volume by reflections in Afshar and Domke (2015, "Reflection,
refraction, and Hamiltonian Monte Carlo"). Both flows are reversed by v -> -v. Size and
number of leaps are drawn independently of the state. So the Metropolis test leaves the
target invariant.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from dpsample.core import pauses
from dpsample.core.arrays import Array, record_dtype
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import (
    Kernel,
    Piece,
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
from dpsample.domains import Domain, exits
from dpsample.numerics.vectors import (
    add_multiple,
    copy_into,
    multiply,
    multiply_both,
)
from dpsample.problem.records import WORK
from dpsample.samplers.adaptive.mass_matrix import (
    MASS_MATRIX,
    MassMatrix,
    column,
    draw_velocity,
    kinetic,
    times,
)
from dpsample.samplers.chain import (
    COUNT,
    NUM_STATS,
    STAT,
    ChainState,
    compile_run,
    decide_with_gradient,
    evaluate_gradient,
    fill_statistics,
    new_state,
    retreat_from_boundary,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK, STUCK
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs_target import TARGET, GibbsTarget, TargetFunctions

# Mean length of a trajectory, a time. In a time of 1 a point moves by about one
# standard deviation of the metric.
LENGTH = 1.5
# Maximum number of leaps of a trajectory.
MAX_LEAPS = 1000
# A trajectory is rejected if its energy rises by more than this above both of its ends.
MAX_RISE = 1e4
# Share of the time to an exit that is moved, so that rounding leaves the point inside.
EXIT_SHARE = 1.0 - 1e-13
# Code of a rejected trajectory, in addition to the codes of `errors`.
REJECTED = -1
# Among more facets a flight moves the slacks alone, and the point at its end.
MANY_FACETS = 300


class BilliardVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    point: int = 0
    velocity: int = 1
    gradient: int = 2
    residual: int = 3  # intermediate result of products with the metric
    change: int = 4  # intermediate result, mostly a change of the velocity


ROW = BilliardVectorRow()


class OwnCount(NamedTuple):
    """Positions of this sampler's counts, after those of `COUNT`."""

    leaps: int = len(COUNT)
    divergences: int = len(COUNT) + 1  # trajectories that rose too high


OWN_COUNT = OwnCount()
# Statistics of a draw beside those of all samplers, in the order of their columns: the
# Hamiltonian of the state after the last trajectory, and numbers of leaps and of
# diverging trajectories.
OWN_STATISTICS = ("hamiltonian", "num_leaps", "num_divergences")
# A trajectory while it is under way.
Trajectory = record_dtype(
    step=float,  # duration of a leap
    num_leaps=int,
    leaps_done=int,
    flight_left=float,  # time left of a leap, or tan(angle / 2) of a rotation
    energy=float,  # V after the last leap
    max_energy=float,  # largest V so far
    initial_kinetic=float,
    kinetic=float,  # kinetic energy at the end of the transition
    num_bounces=int,
    bounces_before_leap=int,
    num_parts=int,  # number of times that the search for an exit went on
    has_kicks=bool,
    is_flying=bool,  # whether a flight has begun and not ended
    is_in_axes=bool,  # whether point and velocity are in the principal axes
)
# Sums over transitions. A transition is a trajectory with its accept test.
Totals = record_dtype(acceptance=float, leaps=float, bounces=float)
# Dual averaging of the step.
StepTuning = record_dtype(
    is_on=bool,  # otherwise the plan's step is used
    target_rate=float,  # mean acceptance probability
    anchor=float,  # log step to which the average is drawn
    log_step=float,
    mean_log_step=float,
    deficit=float,  # mean of target rate minus acceptance probability
    num_updates=int,
)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class BilliardPlan(NamedTuple):
    """Numbers of the sampler, and the compiled function that finds exits.

    The order of the fields is part of the identity of checkpoints.
    """

    step: float
    longest_step: float  # upper limit for a tuning
    length: float  # mean length of a trajectory, in units of the metric
    max_leaps: int
    max_rise: float  # rise of the energy above both ends of a trajectory
    max_bounces: int  # reflections of a leap, above which it is rejected
    center: Array  # (dim,): a point of the domain near the mean
    mass: MassMatrix
    force: Array  # (dim,): g
    pull: Array  # (dim,): acceleration -Sigma g, or the pivot of rotations
    is_harmonic: int  # flights are rotations
    is_free: int  # the domain has no boundary
    has_kicks: int  # otherwise rotations are the proposals
    find_exit: Any  # compiled function of `exits`
    axes: Array  # (dim, dim): principal axes of Sigma, (0, dim) except in l2 balls
    variances: Array  # (dim,): Sigma in these axes
    pull_in_axes: Array  # (dim,)
    facet_directions: Array  # (m, dim): A Sigma of m inequalities A x <= b
    facet_gram: Array  # (m, m): A Sigma A^T
    slack_accelerations: Array  # (m,): second derivatives of the slacks, -A pull
    hull_origin: Array  # (dim,): a point of the domain's affine hull
    hull_normals: Array  # (dim - rank, dim): orthonormal rows

    @property
    def rotates(self) -> bool:
        """Whether a bounded body's plan has leaps of rotations with kicks."""
        return bool(self.is_harmonic and self.has_kicks and not self.is_free)


@by_address
class BilliardWork(NamedTuple):
    """Memory of a chain in addition to its state.

    A transition reads only the tuning of the last one.
    """

    scratch: Array  # for products with the mass matrix
    # For the function that finds exits. In a large polytope, sums of each facet: of
    # factors of reflections, and of their products with times, and the time of flight.
    exit_scratch: Array
    normal: Array  # (dim,): outward normal at the last exit
    pull: Array  # (dim,): the plan's, in the axes of the flight
    last_normal: Array  # (dim,): in this trajectory, NaN before the first
    last_product: Array  # (dim,): Sigma times the last normal
    exit: Array  # (2,): time, and facet
    slacks: Array  # (m,): b - A x of a polytope
    rates: Array  # (m,): derivatives of the slacks
    totals: NDArray[np.void]  # one record of `Totals`
    gradient_sum: Array  # (dim,): over the ends of transitions
    tuning: NDArray[np.void]  # one record of `StepTuning`
    trajectory: NDArray[np.void]  # one record of `Trajectory`


# Types of the tuples above. The signature of a flight needs them before there is one.
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
        frame_type(
            (
                *(vector,) * 9,
                typeof(np.zeros(1, Totals)),
                vector,
                typeof(np.zeros(1, StepTuning)),
                typeof(np.zeros(1, Trajectory)),
            ),
            BilliardWork,
        ),
    ),
    ChainState,
)
FLIGHT = i8(TARGET, PLAN, STATE)  # returns OK, PAUSED or REJECTED


@by_address
class StepFunctions(NamedTuple):
    """C functions of a step: the target's functions, and the flight of a plan."""

    target: TargetFunctions
    fly: Any


def find_exit_function(domain: Domain, dim: int) -> Piece:
    """Return the exit function of flights in a domain.

    Flights in a polytope need none, because they follow the slacks of its facets.
    """
    return exits.no_exit if domain.is_polytope else domain.exit_piece(dim)


def new_plan(
    target: GibbsTarget,
    mass: MassMatrix,
    *,
    center: Array,
    force: Array,
    step: float,
    length: float = LENGTH,
    max_leaps: int = MAX_LEAPS,
    pivot: Array | None = None,
    rotates: bool = False,
) -> BilliardPlan:
    """Return the plan of a target. With a pivot, flights are rotations without kicks.

    In the whole space they are rotations about the center, with kicks. A plan that
    ``rotates`` has the same in a domain for which there are exits of rotations.
    """
    domain, body = target.domain, target.numbers.body
    exit_function = find_exit_function(domain, target.dim)
    is_free = domain.is_whole_space
    is_harmonic = is_free or rotates or pivot is not None
    force = np.array(force, dtype=np.float64)
    facet_directions = np.ascontiguousarray(mass.apply(body.matrix))
    pull, middle = -mass.apply(force), np.zeros(target.dim)
    if is_harmonic:
        force[:] = 0.0
        pull = np.array(center if pivot is None else pivot, dtype=np.float64)
        middle = body.center
    axes, variances = np.empty((0, target.dim)), np.empty(0)
    if mass.is_dense and exit_function is exits.euclidean_exit:
        variances, axes = np.linalg.eigh(mass.covariance)
    flat_exits = (exits.box_exit, exits.simplex_exit, exits.l1_exit)
    is_flat = len(body.matrix) > 0 or exit_function in flat_exits
    # Longest step of the tuning, in lengths of a trajectory. For a Gaussian target a
    # leap multiplies the point by 1 - step^2 / 2, which is 0 for a step of 1.4. Between
    # flat facets a leap is mostly flight, and its step may be longer.
    longest_step = length * (1.3 if is_flat else 0.95)
    is_rotated = rotates or pivot is not None
    rotation_exit = exits.rotation_exit(exit_function) if is_rotated else None
    hull_origin, hull_normals = domain.hull_normals(target.dim)
    return BilliardPlan(
        step=float(step),
        longest_step=float(longest_step),
        length=float(length),
        max_leaps=int(max_leaps),
        max_rise=MAX_RISE,
        max_bounces=20_000,
        center=np.array(center, dtype=np.float64),
        mass=mass,
        force=force,
        pull=pull,
        is_harmonic=int(is_harmonic),
        is_free=int(is_free),
        has_kicks=int(pivot is None),
        find_exit=pointer(rotation_exit or exit_function, exits.EXIT),
        axes=np.ascontiguousarray(axes),
        variances=variances,
        # The change of axes keeps the center of the ball.
        pull_in_axes=middle + (pull - middle) @ axes if len(axes) else np.empty(0),
        facet_directions=facet_directions,
        facet_gram=np.ascontiguousarray(facet_directions @ body.matrix.T),
        slack_accelerations=-(body.matrix @ pull),
        hull_origin=hull_origin,
        hull_normals=hull_normals,
    )


def without_force(plan: BilliardPlan) -> BilliardPlan:
    """Return a plan of straight flights. Its `find_exit` must still be replaced."""
    return plan._replace(
        is_harmonic=0,
        has_kicks=1,
        force=0.0 * plan.force,
        pull=0.0 * plan.pull,
        pull_in_axes=0.0 * plan.pull_in_axes,
        slack_accelerations=0.0 * plan.slack_accelerations,
    )


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def project_on_hull(plan, theta):
    """Remove the distance that rounding has put between a point and the affine hull.

    Rounding errors of metric and force are the same in each flight, so they add up. A
    long chain would leave the domain, and then stay where it is.
    """
    for i in range(plan.hull_normals.shape[0]):
        height = 0.0
        for j in range(theta.shape[0]):
            height += plan.hull_normals[i, j] * (theta[j] - plan.hull_origin[j])
        for j in range(theta.shape[0]):
            theta[j] -= height * plan.hull_normals[i, j]


@kernel(counts_references=False)
def start_trajectory(target, pieces, plan, state, rng):
    """Draw the velocity, and size and number of the leaps."""
    workspace, trajectory = state.workspace, state.workspace.trajectory[0]
    theta, velocity = state.vectors[ROW.point], state.vectors[ROW.velocity]
    copy_into(state.position, theta)
    project_on_hull(plan, theta)
    copy_into(state.memory, state.vectors[ROW.gradient])
    trajectory.initial_kinetic = draw_velocity(
        plan.mass, rng, workspace.scratch, velocity
    )
    trajectory.kinetic = trajectory.initial_kinetic
    size = plan.step
    if workspace.tuning[0].is_on:
        size = math.exp(workspace.tuning[0].log_step)
    # Random sizes avoid periodic orbits. The step is multiplied by a uniform number
    # from 0.8 to 1.2, and the length by one from 0.4 to 1.6. The three random numbers
    # are drawn in this order, whatever the plan.
    step_factor = 0.8 + 0.4 * rng.random()
    # Some states reject all usual steps, so one trajectory in ten is a rescue with
    # shorter steps. Among rotations without kicks it is one in twenty.
    is_rescue = rng.random() < (0.1 if plan.has_kicks else 0.05)
    length = plan.length * (0.4 + 1.2 * rng.random())
    size *= step_factor
    trajectory.has_kicks = plan.has_kicks == 1 or is_rescue
    if not plan.has_kicks:
        # Exits of rotations are found for angles below pi.
        size = length = min(length, 3.0)
    if is_rescue:
        size *= 0.3
    if not plan.has_kicks and is_rescue:
        # A rescue among rotations is about four short leaps with kicks. The memory of a
        # plan without kicks holds no gradient.
        size *= rng.random()
        length = 4.0 * size
        evaluate_gradient(
            target, pieces.target, state, state.position, state.vectors[ROW.gradient]
        )
    trajectory.step = size
    # The quotient is rounded to the nearest integer. Rounded up, a long step would
    # mostly be made twice, and the second leap leads back.
    num_leaps = math.floor(length / size + 0.5)
    trajectory.num_leaps = int(min(max(num_leaps, 1.0), float(plan.max_leaps)))
    trajectory.leaps_done = trajectory.num_bounces = 0
    trajectory.flight_left = 0.0
    # A step that failed may have left a flight.
    trajectory.is_flying = False
    trajectory.energy = trajectory.max_energy = state.energy[0]
    workspace.last_normal[:] = np.nan
    state.work.control[0].stage = 1
    state.counts[COUNT.proposals] += 1


@kernel(counts_references=False)
def kick(plan, state, duration):
    """Change the velocity by -duration Sigma grad H_1, the part that flights omit."""
    theta, velocity = state.vectors[ROW.point], state.vectors[ROW.velocity]
    gradient = state.vectors[ROW.gradient]
    residual, change = state.vectors[ROW.residual], state.vectors[ROW.change]
    force, is_zero = plan.force, not plan.is_harmonic
    for j in range(theta.shape[0]):
        residual[j] = gradient[j] - force[j]
        is_zero = is_zero and residual[j] == 0.0
    # The uniform distribution needs no product with the metric.
    if is_zero:
        return
    times(plan.mass, residual, state.workspace.scratch, change)
    for j in range(theta.shape[0]):
        if plan.is_harmonic:
            change[j] -= theta[j] - plan.pull[j]
        velocity[j] -= duration * change[j]


@kernel(counts_references=False)
def rotate(pivot, theta, velocity, cosine, sine):
    """Rotate point and velocity about the pivot."""
    for j in range(theta.shape[0]):
        offset = theta[j] - pivot[j]
        theta[j] = pivot[j] + cosine * offset + sine * velocity[j]
        velocity[j] = cosine * velocity[j] - sine * offset


@kernel
def multiply_by_axes(rows, axes, is_transposed, out):
    """Fill out with rows times axes, or rows times their transpose."""
    if is_transposed:
        np.dot(rows, axes.T, out)
    else:
        np.dot(rows, axes, out)


@kernel(counts_references=False)
def change_axes(target, plan, state):
    """Rotate point and velocity about the ball's center, into the axes or back."""
    trajectory, center = state.workspace.trajectory[0], target.body.center
    flight = state.vectors[ROW.point : ROW.velocity + 1]
    centered = state.vectors[ROW.residual : ROW.change + 1]
    for j in range(center.shape[0]):
        centered[0, j], centered[1, j] = flight[0, j] - center[j], flight[1, j]
    multiply_by_axes(centered, plan.axes, trajectory.is_in_axes, flight)
    if not trajectory.is_in_axes:
        copy_into(plan.pull_in_axes, state.workspace.pull)
    trajectory.is_in_axes = not trajectory.is_in_axes
    for j in range(center.shape[0]):
        flight[0, j] += center[j]


@kernel(counts_references=False)
def begin_in_body(target, plan, state):
    """Set the pull."""
    copy_into(plan.pull, state.workspace.pull)
    state.workspace.trajectory[0].is_in_axes = False


@kernel(counts_references=False)
def find_next_exit(target, plan, state, duration):
    """Return the time of the next exit, infinite if it is later, and the facet."""
    workspace = state.workspace
    workspace.exit[:] = np.nan
    plan.find_exit(
        target.body,
        state.vectors[ROW.point],
        state.vectors[ROW.velocity],
        workspace.pull,
        duration,
        workspace.exit_scratch,
        workspace.normal,
        workspace.exit,
    )
    return workspace.exit[0], int(workspace.exit[1])


@kernel(counts_references=False)
def move_on_parabola(plan, state, duration):
    """Move with the acceleration of the flight."""
    theta, velocity = state.vectors[ROW.point], state.vectors[ROW.velocity]
    pull = state.workspace.pull
    for j in range(theta.shape[0]):
        theta[j] += duration * (velocity[j] + 0.5 * duration * pull[j])
        velocity[j] += duration * pull[j]


@kernel(counts_references=False)
def move_in_body(plan, state, duration):
    """Move on the parabola, or rotate by 2 arctan(duration)."""
    if plan.is_harmonic:
        square = duration * duration
        cosine, sine = (1.0 - square) / (1.0 + square), 2.0 * duration / (1.0 + square)
        theta, velocity = state.vectors[ROW.point], state.vectors[ROW.velocity]
        rotate(state.workspace.pull, theta, velocity, cosine, sine)
    else:
        move_on_parabola(plan, state, duration)


@kernel(counts_references=False)
def multiply_normal(plan, state, out):
    """Fill out with Sigma times the normal.

    If few entries differ from the last normal's, the last product is updated.
    """
    workspace, covariance = state.workspace, plan.mass.covariance
    dim, num_new = out.shape[0], 0
    if workspace.trajectory[0].is_in_axes:
        for j in range(dim):
            out[j] = plan.variances[j] * workspace.normal[j]
        return
    for j in range(dim):
        num_new += workspace.normal[j] != workspace.last_normal[j]
    if covariance.shape[0] == 0 or 4 * num_new > dim:
        times(plan.mass, workspace.normal, workspace.scratch, workspace.last_product)
        copy_into(workspace.normal, workspace.last_normal)
    else:
        for j in range(dim):
            change = workspace.normal[j] - workspace.last_normal[j]
            if change != 0.0:
                workspace.last_normal[j] = workspace.normal[j]
                for i in range(dim):
                    workspace.last_product[i] += change * covariance[j, i]
    copy_into(workspace.last_product, out)


@kernel(counts_references=False)
def change_velocity(state, factor):
    """Subtract factor Sigma nu from the velocity. The row of changes holds Sigma nu."""
    velocity, change = state.vectors[ROW.velocity], state.vectors[ROW.change]
    for j in range(velocity.shape[0]):
        velocity[j] -= factor * change[j]


@kernel(counts_references=False)
def reflect_in_body(target, plan, state, facet):
    """Reflect the velocity at a coordinate's facet, or if that is negative, a normal.

    After three reflections in a Euclidean ball a leap changes to the principal axes.
    There Sigma is diagonal, which makes reflections short. The change and the way back
    cost two products with a matrix, which only many reflections are worth.
    """
    velocity, change, workspace = (
        state.vectors[ROW.velocity],
        state.vectors[ROW.change],
        state.workspace,
    )
    along, square = 0.0, 0.0  # <nu, v> and <nu, Sigma nu>
    if facet >= 0:
        column(plan.mass, facet, workspace.scratch, change)
        along, square = velocity[facet], change[facet]
    else:
        multiply_normal(plan, state, change)
        for j in range(velocity.shape[0]):
            along += workspace.normal[j] * velocity[j]
            square += workspace.normal[j] * change[j]
    change_velocity(state, 2.0 * along / square)
    trajectory = workspace.trajectory[0]
    num_bounces = trajectory.num_bounces - trajectory.bounces_before_leap
    if num_bounces == 3 and plan.axes.shape[0] > 0:
        change_axes(target, plan, state)


@kernel(counts_references=False)
def end_in_body(target, plan, state):
    """Change back to the axes of the coefficients."""
    if state.workspace.trajectory[0].is_in_axes:
        change_axes(target, plan, state)


@kernel(counts_references=False)
def begin_in_polytope(target, plan, state):
    """Set the pull, and the slacks of the inequalities with their rates."""
    body, workspace = target.body, state.workspace
    copy_into(plan.pull, workspace.pull)
    multiply(body.matrix, state.vectors[ROW.point], workspace.slacks)
    multiply(body.matrix, state.vectors[ROW.velocity], workspace.rates)
    for i in range(workspace.slacks.shape[0]):
        workspace.slacks[i] = body.bounds[i] - workspace.slacks[i]
        workspace.rates[i] = -workspace.rates[i]


@kernel(counts_references=False)
def find_next_facet(target, plan, state, duration):
    """Return the time and the facet of the next exit, found by the slacks."""
    workspace = state.workspace
    return exits.find_nearest_facet(
        workspace.slacks, workspace.rates, plan.slack_accelerations, duration
    )


@kernel(counts_references=False)
def move_slacks(slacks, rates, accelerations, duration):
    """Move the slacks of a polytope on parabolas, with their rates."""
    for i in range(slacks.shape[0]):
        acceleration = accelerations[i]
        slacks[i] += duration * (rates[i] + 0.5 * duration * acceleration)
        rates[i] += duration * acceleration


@kernel(counts_references=False)
def move_in_polytope(plan, state, duration):
    """Move on the parabola, and update the slacks and their rates."""
    move_on_parabola(plan, state, duration)
    slacks, rates = state.workspace.slacks, state.workspace.rates
    move_slacks(slacks, rates, plan.slack_accelerations, duration)


@kernel(counts_references=False)
def reflect_in_polytope(target, plan, state, facet):
    """Reflect the velocity, and update the rates of the slacks."""
    rates, products = state.workspace.rates, plan.facet_gram[facet]
    copy_into(plan.facet_directions[facet], state.vectors[ROW.change])
    factor = 2.0 * -rates[facet] / products[facet]
    change_velocity(state, factor)
    for i in range(rates.shape[0]):
        rates[i] += factor * products[i]


@kernel(counts_references=False)
def end_in_polytope(target, plan, state):
    """Do nothing, because coordinates have not been changed."""


@kernel(counts_references=False)
def begin_in_large_polytope(target, plan, state):
    """Set pull, slacks and rates. No time has passed, and no facet has been hit."""
    body, workspace = target.body, state.workspace
    copy_into(plan.pull, workspace.pull)
    theta, velocity = state.vectors[ROW.point], state.vectors[ROW.velocity]
    slacks, rates = workspace.slacks, workspace.rates
    multiply_both(body.matrix, theta, velocity, slacks, rates)
    for i in range(slacks.shape[0]):
        slacks[i] = body.bounds[i] - slacks[i]
        rates[i] = -rates[i]
    for i in range(2 * slacks.shape[0] + 1):
        workspace.exit_scratch[i] = 0.0


@kernel(counts_references=False)
def find_next_of_many_facets(target, plan, state, duration):
    """Return the time and the facet of the next exit, found by the slacks."""
    workspace = state.workspace
    return exits.find_nearest_of_many_facets(
        workspace.slacks, workspace.rates, plan.slack_accelerations, duration
    )


@kernel(counts_references=False)
def move_in_large_polytope(plan, state, duration):
    """Update the slacks and their rates, and the time that has passed."""
    slacks, rates = state.workspace.slacks, state.workspace.rates
    move_slacks(slacks, rates, plan.slack_accelerations, duration)
    state.workspace.exit_scratch[2 * slacks.shape[0]] += duration


@kernel(counts_references=False)
def reflect_in_large_polytope(target, plan, state, facet):
    """Update the rates of the slacks, and the facet's sums of factors.

    The velocity changes by -factor Sigma nu at the time t. So at the end of the flight,
    at the time T, the point has moved by -(T - t) factor Sigma nu. Summed over the
    reflections at a facet this needs the factors and their products with t.
    """
    workspace, products = state.workspace, plan.facet_gram[facet]
    rates, num_facets = workspace.rates, workspace.slacks.shape[0]
    factor = 2.0 * -rates[facet] / products[facet]
    add_multiple(factor, products, rates)
    time = workspace.exit_scratch[2 * num_facets]
    workspace.exit_scratch[facet] += factor
    workspace.exit_scratch[num_facets + facet] += factor * time


@kernel(counts_references=False)
def end_in_large_polytope(target, plan, state):
    """Move point and velocity, which have stayed as they were at the start."""
    num_facets, sums = state.workspace.slacks.shape[0], state.workspace.exit_scratch
    duration = sums[2 * num_facets]
    move_on_parabola(plan, state, duration)
    theta, velocity = state.vectors[ROW.point], state.vectors[ROW.velocity]
    for i in range(num_facets):
        factor, product = sums[i], sums[num_facets + i]
        if factor != 0.0 or product != 0.0:
            add_multiple(-factor, plan.facet_directions[i], velocity)
            add_multiple(product - duration * factor, plan.facet_directions[i], theta)


def compile_flight(
    begin: Kernel[..., None],
    find_exit: Kernel[..., tuple[float, int]],
    move: Kernel[..., None],
    reflect: Kernel[..., None],
    end: Kernel[..., None],
) -> Kernel[..., int]:
    """Return the flight in domains of one kind, a kernel of the signature `FLIGHT`.

    It flies for the time that is left in the trajectory. Each kind is compiled apart
    and called by its pointer, so that a first call compiles one of them.
    """

    def fly(target, plan, state):
        trajectory = state.workspace.trajectory[0]
        if not trajectory.is_flying:
            begin(target, plan, state)
            trajectory.is_flying = True
        while True:
            time_left = trajectory.flight_left
            time, facet = find_exit(target, plan, state, time_left)
            if time >= time_left:
                move(plan, state, time_left)
                trajectory.flight_left, code = 0.0, OK
                break
            # NaN shows that the start is outside of the domain.
            if not time >= 0.0:
                code = REJECTED
                break
            move(plan, state, EXIT_SHARE * time)
            time_left -= EXIT_SHARE * time
            if plan.is_harmonic:
                # tan(a - b) = (tan a - tan b) / (1 + tan a tan b)
                time_left /= 1.0 + trajectory.flight_left * (EXIT_SHARE * time)
            trajectory.flight_left = time_left
            if facet != exits.OPEN:
                trajectory.num_bounces += 1
                reflect(target, plan, state, facet)
            else:
                trajectory.num_parts += 1
                # A rejection would not be reversible.
                if trajectory.num_parts > 1_000_000:
                    code = STUCK
                    break
            num_bounces = trajectory.num_bounces - trajectory.bounces_before_leap
            if num_bounces > plan.max_bounces:
                code = REJECTED
                break
            if is_due(state.work.control[0]):
                return PAUSED
        end(target, plan, state)
        trajectory.is_flying = False
        return code

    return kernel(counts_references=False)(fly)


fly_in_body = compile_flight(
    begin_in_body, find_next_exit, move_in_body, reflect_in_body, end_in_body
)
fly_in_polytope = compile_flight(
    begin_in_polytope,
    find_next_facet,
    move_in_polytope,
    reflect_in_polytope,
    end_in_polytope,
)
fly_in_large_polytope = compile_flight(
    begin_in_large_polytope,
    find_next_of_many_facets,
    move_in_large_polytope,
    reflect_in_large_polytope,
    end_in_large_polytope,
)


def step_functions(target: GibbsTarget, plan: BilliardPlan) -> StepFunctions:
    """Return the C functions of a plan's steps."""
    num_facets = len(plan.facet_gram)
    fly = fly_in_polytope if num_facets else fly_in_body
    if num_facets > MANY_FACETS:
        fly = fly_in_large_polytope
    return StepFunctions(target.pieces, pointer(fly, FLIGHT))


@kernel(counts_references=False)
def leap(target, pieces, plan, state):
    """Make a kick and a flight. Return OK, PAUSED, REJECTED or FUNCTION_FAILED."""
    trajectory, theta = state.workspace.trajectory[0], state.vectors[ROW.point]
    step = trajectory.step
    # After a pause some time is left, and the kick was made.
    if trajectory.flight_left == 0.0:
        if trajectory.has_kicks:
            kick(plan, state, step * (0.5 if trajectory.leaps_done == 0 else 1.0))
        trajectory.flight_left = step
        trajectory.bounces_before_leap = trajectory.num_bounces
        trajectory.num_parts = 0
        if plan.is_harmonic:
            trajectory.flight_left = math.tan(0.5 * step)
    if plan.is_free:
        velocity = state.vectors[ROW.velocity]
        rotate(plan.pull, theta, velocity, math.cos(step), math.sin(step))
        trajectory.flight_left = 0.0
    else:
        code = pieces.fly(target, plan, state)
        if code != OK:
            return code
    if trajectory.has_kicks:
        gradient = state.vectors[ROW.gradient]
        energy = evaluate_gradient(target, pieces.target, state, theta, gradient)
    else:
        state.counts[COUNT.values] += 1
        state.counts[COUNT.records] += target.data.num_records
        energy = gibbs_target.energy(target, pieces.target, theta, state.work)
    trajectory.energy = energy
    trajectory.max_energy = max(trajectory.max_energy, energy)
    trajectory.leaps_done += 1
    # A trajectory with a higher energy ends early. If it went on, it would end below
    # its maximum by more than the largest rise, or so high that the accept test passes
    # with a probability below e^-1000.
    largest = plan.max_rise + 1000.0 + trajectory.initial_kinetic
    if energy - state.energy[0] < largest:
        return OK
    is_nan = np.isnan(energy)
    if is_nan and gibbs_target.inside(target, pieces.target, theta, state.work) != 0.0:
        return FUNCTION_FAILED
    # Rounding has put a point outside whose energy is NaN, which is no divergence.
    if not is_nan:
        state.counts[OWN_COUNT.divergences] += 1
    return REJECTED


@kernel(counts_references=False)
def end_trajectory(target, pieces, plan, state, rng):
    """Make the last half kick and the accept test. Return code and probability."""
    trajectory, theta = state.workspace.trajectory[0], state.vectors[ROW.point]
    energy = trajectory.energy
    # The rise is measured from the higher end, so that the reverse trajectory is
    # rejected as well. Otherwise the transition would not be reversible.
    if trajectory.max_energy > max(state.energy[0], energy) + plan.max_rise:
        state.counts[OWN_COUNT.divergences] += 1
        return OK, 0.0
    # 1 inside, 0 outside, NaN if the domain's function failed.
    status = gibbs_target.inside(target, pieces.target, theta, state.work)
    if status != 1.0:
        return (OK if status == 0.0 else FUNCTION_FAILED), 0.0
    if trajectory.has_kicks:
        kick(plan, state, 0.5 * trajectory.step)
    final = kinetic(plan.mass, state.vectors[ROW.velocity], state.workspace.scratch)
    log_ratio = (state.energy[0] - energy) + (trajectory.initial_kinetic - final)
    if not log_ratio > -np.inf:
        return OK, 0.0
    threshold = -rng.standard_exponential()
    gradient = state.vectors[ROW.gradient]
    # A rejected trajectory leaves the state where it began, with its first velocity.
    if threshold <= log_ratio:
        trajectory.kinetic = final
    code = decide_with_gradient(state, theta, energy, gradient, log_ratio, threshold)
    return code, math.exp(min(log_ratio, 0.0))


@kernel(counts_references=False)
def update_step(tuning, probability, longest_step):
    """Update the step by dual averaging (Hoffman and Gelman, 2014, algorithm 5).

    Its constants are gamma = 0.05, t_0 = 10 and kappa = 0.75.
    """
    record = tuning[0]
    record.num_updates += 1
    t = float(record.num_updates)
    weight = 1.0 / (t + 10.0)
    record.deficit += weight * (record.target_rate - probability - record.deficit)
    log_step = record.anchor - math.sqrt(t) / 0.05 * record.deficit
    record.log_step = min(log_step, math.log(longest_step))
    record.mean_log_step += t**-0.75 * (record.log_step - record.mean_log_step)


@kernel(counts_references=False)
def end_transition(plan, state, probability):
    """Add the transition to the totals, and update the step if the tuning is on."""
    workspace, trajectory, totals = (
        state.workspace,
        state.workspace.trajectory[0],
        state.workspace.totals[0],
    )
    totals.acceptance += probability
    totals.leaps += trajectory.leaps_done
    totals.bounces += trajectory.num_bounces
    state.counts[OWN_COUNT.leaps] += trajectory.leaps_done
    for j in range(state.memory.shape[0]):
        workspace.gradient_sum[j] += state.memory[j]
    if workspace.tuning[0].is_on:
        update_step(workspace.tuning, probability, plan.longest_step)
    state.work.control[0].stage = 0


def step(target, pieces, plan, state, rng):
    """Make a trajectory and its accept test. The state's memory is the gradient.

    A plan without kicks does not read it.
    """
    control, trajectory = state.work.control[0], state.workspace.trajectory[0]
    # The stage, which `core.pauses` shares, is 0 unless a pause interrupted the step.
    if control.stage == 0:
        start_trajectory(target, pieces, plan, state, rng)
    while trajectory.leaps_done < trajectory.num_leaps:
        code = leap(target, pieces, plan, state)
        if code == REJECTED:
            end_transition(plan, state, 0.0)
            return OK
        if code != OK:
            return code
        if is_due(control):
            return PAUSED
    code, probability = end_trajectory(target, pieces, plan, state, rng)
    end_transition(plan, state, probability)
    return code


@kernel(counts_references=False)
def fill_row(state, before, row):
    """Fill the statistics of a draw, and `OWN_STATISTICS` if the row has room."""
    fill_statistics(state, before, row)
    if row.shape[0] > NUM_STATS:
        row[NUM_STATS] = row[STAT.energy] + state.workspace.trajectory[0].kinetic
        for j in range(len(OWN_COUNT)):
            i = len(COUNT) + j
            row[NUM_STATS + 1 + j] = state.counts[i] - before[i]


run = compile_run(step, fill_row)


def init(target: GibbsTarget, plan: BilliardPlan, position: Array) -> ChainState:
    """Return a new state at a position of the domain, with its gradient."""
    dim, num_facets = target.dim, len(plan.slack_accelerations)
    workspace = BilliardWork(
        scratch=np.empty(plan.mass.num_scratch),
        exit_scratch=np.empty(max(exits.SCRATCH_PER_DIM * dim, 2 * num_facets + 1)),
        normal=np.empty(dim),
        pull=np.empty(dim),
        last_normal=np.full(dim, np.nan),
        last_product=np.empty(dim),
        exit=np.empty(2),
        slacks=np.empty(num_facets),
        rates=np.empty(num_facets),
        totals=np.zeros(1, Totals),
        gradient_sum=np.zeros(dim),
        tuning=np.zeros(1, StepTuning),
        trajectory=np.zeros(1, Trajectory),
    )
    state = new_state(
        target, position, memory=np.empty(dim), rows=len(ROW), workspace=workspace
    )
    num_counts = len(COUNT) + len(OWN_COUNT)
    state = state._replace(counts=np.zeros(num_counts, dtype=np.int64))
    arguments = target.numbers, target.pieces, state.position, state.work, state.memory
    target.calls.energy_gradient(*arguments)
    # On the boundary a gradient may be infinite.
    if not np.isfinite(state.memory).all():
        state.position[:] = retreat_from_boundary(target, position)
        state.energy[:] = target.calls.energy_gradient(*arguments)
    return state


def new_tuning(step: float, *, target_rate: float) -> NDArray[np.void]:
    """Return a tuning that begins at a step, for a mean acceptance probability."""
    tuning = np.zeros(1, StepTuning)
    tuning["is_on"], tuning["target_rate"] = True, target_rate
    # The average is drawn to twice the first step, because trials of long steps need
    # fewer leaps.
    tuning["anchor"] = math.log(2.0 * step)
    tuning["log_step"] = tuning["mean_log_step"] = math.log(step)
    return tuning


@kernel
def fly_once(target, pieces, plan, state):
    """Fly without kicks. Return the flight's code and 0 rows, for `pauses.fill`."""
    control, trajectory = state.work.control[0], state.workspace.trajectory[0]
    if control.stage == 0:
        trajectory.num_bounces = trajectory.bounces_before_leap = 0
        trajectory.num_parts = 0
        control.stage = 1
    code = pieces.fly(target, plan, state)
    if code != PAUSED:
        control.stage = 0
    return code, 0


class FreeFlights:
    """Flights without force that the boundary reflects, in the metric of a plan.

    They end after 1000 reflections at the latest.
    """

    def __init__(self, target: GibbsTarget, plan: BilliardPlan) -> None:
        self.target, self.plan = target, plan
        exit_function = find_exit_function(target.domain, target.dim)
        find_exit = pointer(exit_function, exits.EXIT)
        self.free_plan = without_force(plan)._replace(
            max_bounces=1000, find_exit=find_exit
        )
        self.functions = step_functions(target, self.free_plan)

    def end(self, *, position: Array, velocity: Array, duration: float) -> Array:
        """Return the end of a flight."""
        target = self.target
        state = init(target, self.plan, position)
        state.vectors[ROW.point], state.vectors[ROW.velocity] = position, velocity
        state.workspace.trajectory["flight_left"] = duration
        arguments = target.numbers, self.functions, self.free_plan, state

        def fill_rows(first: int) -> tuple[int, int]:
            del first  # there is one flight
            code, num_rows = call(fly_once, *arguments)
            return code, num_rows

        pauses.fill(state.work.control, fill_rows)
        end = state.vectors[ROW.point].copy()
        is_inside = np.isfinite(end).all() and target._is_inside(end)
        return end if is_inside else np.array(position)
