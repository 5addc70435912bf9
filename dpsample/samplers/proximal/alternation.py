# mypy: allow-untyped-defs
r"""Alternating chain of the proximal sampler, with the tangent oracle, and its proof.

The chain is block Gibbs on the joint density :math:`e^{-V(x) - \|x - y\|_P^2 / (2h)}`.
P is a matrix, the metric, and h the step. Each step draws

    y ~ N(x, h P^{-1}),    x ~ exp(-V(x) - ||x - y||_P^2 / (2h)) on the domain.

V = k (F + mu r) is minus the log density, with the mean loss F of the records, a
regularizer r of weight mu and an inverse temperature k. The second draw is exact, by
rejection. U is V, or k F alone if proposals have the regularizer's factor e^{-k mu r}
exactly. Let
w(y), the *tangent point*, be the projection of y to the domain. U is at least its
tangent at w plus the quadratic ``tangent / 2 ||x - w||_P^2``, with a constant
``tangent`` >= 0. The difference is the *gap*. The *envelope* is the Gaussian with the
sum of tangent, quadratic and ||x - y||_P^2 / (2h) as its energy. A proposal from the
envelope is accepted with probability ``exp(-gap)``, which is at most 1.

If the envelope's mean is far outside the domain, hardly any proposal would be inside.
Then proposals are made in a halfspace that contains the domain but not the mean, or in
a corner of a polytope (see `envelope_draws`). An *oracle* evaluates U and its tangent
at w, and tests proposals: here on all records, in `thinned` and `screened` on few of
them.

**Proof of the error.** In the metric of P the energy is 1-strongly convex on the
domain. A step with exact draws multiplies the Kullback-Leibler divergence of the chain
from the target by at most :math:`(1+h)^{-2}`. After the first step from a point it is
at most :math:`W_0^2 / (2h)`, where W_0 bounds the root mean squared distance of the
point from the target. Pinsker's inequality gives the total variation, see `tv_bound`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import typeof

from dpsample.core import check
from dpsample.core.arrays import Array, Ints, RecordArray, record_dtype
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import Kernel, Pointer, f8, i8, kernel, matrix, vector
from dpsample.core.pauses import PAUSED, is_due
from dpsample.domains import Domain
from dpsample.numerics.vectors import copy_into, multiply, multiply_rows
from dpsample.samplers import chain
from dpsample.samplers.chain import (
    ChainState,
    compile_run,
    displace,
    fill_with_normals,
    new_state,
)
from dpsample.samplers.errors import (
    BOUND_VIOLATED,
    DRAW_FAILED,
    EXHAUSTED,
    FUNCTION_FAILED,
    OK,
)
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs


class AlternationVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    y_noise: int = 0  # standard normals of y
    y: int = 1
    tangent_point: int = 2  # w
    gradient: int = 3  # gradient of U at w
    mean: int = 4  # mean of the envelope
    proposal: int = 5
    difference: int = 6  # x - w
    product: int = 7  # a matrix times the difference
    noise: int = 8  # this and the next row: exact draws of `envelope_draws`
    direction: int = 9


ROW = AlternationVectorRow()
# Number of proposals inside the domain, in addition to the counts of all chains.
INSIDE = len(chain.COUNT)
# Limits of the proposals of one step. A study gives up after the first number, because
# hours would pass. A release has no limit, because giving up would reveal something
# about the records.
MAX_PROPOSALS = 10**7
NO_LIMIT = 2**62
# Results of `propose`, in addition to 1 (inside the domain), 0 (outside) and NaN (a
# function failed): the draw needs more proposals of its own, or it failed.
UNFINISHED = 2.0
NO_DRAW = 3.0


class DrawStage(NamedTuple):
    """Stages of a conditional draw that a pause interrupted, or 0 if there is none."""

    proposing: int = 1
    testing: int = 2


STAGE = DrawStage()


class HalfspaceKind(NamedTuple):
    """Kinds of halfspaces, by how they are found."""

    none: int = 0
    projected: int = 1
    ball: int = 2


HALFSPACE = HalfspaceKind()
# A conditional draw under way.
ConditionalDraw = record_dtype(
    num_proposals=int,
    tangent_value=float,  # U at w
)
# Halfspace <normal, x> <= offset, and corner of a polytope, of a conditional draw.
SupportStatus = record_dtype(
    has_halfspace=bool,
    offset=float,
    num_draws=int,  # proposals of this conditional draw
    num_facets=int,  # facets that contain the P-projection of the mean
)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class Support(NamedTuple):
    """Set that contains the domain but not the envelope's mean."""

    normal: Array  # (dim,): outward unit normal of the halfspace
    facets: Ints  # (dim + 1,): rows of the polytope's matrix
    status: RecordArray  # one record of `SupportStatus`

    @classmethod
    def empty(cls, dim: int) -> "Support":
        """Return memory for a support, without a halfspace."""
        facets = np.zeros(dim + 1, dtype=np.int64)
        return cls(np.zeros(dim), facets, np.zeros(1, SupportStatus))


SUPPORT = typeof(Support.empty(1))


@by_address
class ProximalPlan(NamedTuple):
    """One chain's metric and step, which are fixed before the chain starts."""

    step: float  # h
    tangent: float  # curvature of the quadratic below U
    spread: float  # the envelope is N(mean, spread^2 P^{-1})
    kappa: float  # the draw has the factor e^{-kappa ||x - center||^2 / 2} exactly
    kept_weight: float  # k mu if the regularizer is this factor, not part of U, or 0
    max_distance: float  # from the domain's center to its points
    halfspace: int  # code in `HalfspaceKind`
    squeeze: int  # whether gap_curvature may accept a proposal without its energy
    precision: Array  # (dim, dim): P, as the next two
    inverse: Array  # P^{-1} = factor factor^T
    factor: Array
    basis: Array  # (dim, dim): eigenvectors of P, as columns
    eigenvalues: Array  # (dim,)
    gap_curvature: Array  # (dim, dim): bound of the gap's Hessian, 0 if there is none


PLAN = frame_type(
    (f8, f8, f8, f8, f8, f8, i8, i8, matrix, matrix, matrix, matrix, vector, matrix),
    ProximalPlan,
)


@by_address
class TangentPlan(NamedTuple):
    """All numbers of a chain."""

    metric: ProximalPlan
    draw: Pointer  # compiled draw of `envelope_draws`
    max_proposals: int  # per step
    bounds: tuple[Any, ...] = ()  # numbers of the thinned or screened oracle


@by_address
class ProximalWork(NamedTuple):
    """Memory of a chain in addition to the rest of its state."""

    support: Support
    draw: RecordArray  # one record of `ConditionalDraw`

    @classmethod
    def new(cls, dim: int) -> "ProximalWork":
        """Return memory for a chain in this dimension."""
        return cls(Support.empty(dim), np.zeros(1, ConditionalDraw))


def init(target: Gibbs, position: Array) -> ChainState:
    """Return a new state at a position inside the domain.

    The next step depends on the position alone.
    """
    work = ProximalWork.new(position.size)
    state = new_state(target, position, is_weighed=False, rows=len(ROW), workspace=work)
    return state._replace(counts=np.zeros(INSIDE + 1, dtype=np.int64))


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def set_ball_halfspace(plan, body, mean, support, a, b):
    """Set the tangent halfspace of a Euclidean ball at mean's P-projection.

    With P = sum lambda_i q_i q_i^T and mean = c + sum a_i q_i, the projection is
    c + sum lambda_i a_i / (lambda_i + nu) q_i, with nu >= 0 such that it is on the
    sphere. ``a`` and ``b`` are scratch vectors. Any normal gives a valid halfspace, so
    the root nu need not be exact.
    """
    dim, normal = mean.shape[0], support.normal
    for j in range(dim):
        a[j] = mean[j] - body.center[j]
    multiply_rows(a, plan.basis, b)
    nu = 0.0
    for _ in range(50):
        size, slope = 0.0, 0.0
        for j in range(dim):
            ratio = plan.eigenvalues[j] * b[j] / (plan.eigenvalues[j] + nu)
            size += ratio * ratio
            slope += ratio * ratio / (plan.eigenvalues[j] + nu)
        size = np.sqrt(size)
        change = (size - body.radius) / body.radius * size * size / slope
        # Newton's method for 1 / size, which is concave in nu, is monotone from below.
        nu += change
        if abs(change) <= 1e-10 * nu:
            break
    for j in range(dim):
        a[j] = plan.eigenvalues[j] * b[j] / (plan.eigenvalues[j] + nu)
    multiply(plan.basis, a, b)
    size = np.sqrt(np.dot(b, b))
    for j in range(dim):
        normal[j] = b[j] / size
    # The maximum of <normal, x> on the ball is <normal, c> + R.
    support.status[0].offset = np.dot(normal, body.center) + body.radius
    support.status[0].has_halfspace = True


@kernel(counts_references=False)
def project_outside_point(target, pieces, point, normal, projection):
    """Set normal to point minus its projection, and return its length."""
    gibbs_target.project(target, pieces, point, projection)
    square = 0.0
    for j in range(projection.shape[0]):
        normal[j] = point[j] - projection[j]
        square += normal[j] * normal[j]
    return np.sqrt(square)


@kernel(counts_references=False)
def set_projected_halfspace(target, pieces, plan, mean, support, projection, b):
    """Set the halfspace through the Euclidean projection of mean, normal to the rest.

    By the variational inequality of a projection it contains the domain. The projection
    on a polytope has the rounding errors of a distant mean. Then another point of the
    same ray, which is near the domain, is projected again.
    """
    dim, normal, status = mean.shape[0], support.normal, support.status[0]
    size = project_outside_point(target, pieces, mean, normal, projection)
    scale = 2.0 * plan.max_distance
    for j in range(dim):
        scale += abs(projection[j])
    # If the distance is more than two sizes of the domain, the digits of the mean are
    # too coarse for the direction, and a closer point is projected again.
    if size > 2.0 * scale:
        for j in range(dim):
            b[j] = projection[j] + normal[j] * (scale / size)
        size = project_outside_point(target, pieces, b, normal, projection)
    if not size > 0.0:
        status.has_halfspace = False
        return
    for j in range(dim):
        normal[j] /= size
    # The projection has a relative rounding error of 1e-12 of the domain's size. Its
    # ratio to the distance is the angle by which the normal is wrong. The halfspace
    # must contain the domain, so it is moved outwards by the largest effect of that
    # angle.
    slack = 1e-12 * scale * (1.0 + scale / size)
    status.offset = np.dot(normal, projection) + slack
    status.has_halfspace = True


@kernel(counts_references=False)
def set_halfspace(target, pieces, plan, state, mean):
    """If mean is outside, set a halfspace that contains the domain but not mean."""
    support, status = state.workspace.support, state.workspace.support.status[0]
    status.has_halfspace, status.num_draws = False, 0
    if plan.halfspace == HALFSPACE.none:
        return OK
    is_inside = gibbs_target.inside(target, pieces, mean, state.work)
    if np.isnan(is_inside):
        return FUNCTION_FAILED
    if is_inside == 0.0:
        a, b = state.vectors[ROW.noise], state.vectors[ROW.direction]
        if plan.halfspace == HALFSPACE.ball:
            set_ball_halfspace(plan, target.body, mean, support, a, b)
        else:
            set_projected_halfspace(target, pieces, plan, mean, support, a, b)
        if np.isnan(support.normal[0]):
            return FUNCTION_FAILED
    return OK


@kernel(counts_references=False)
def quadratic(form, difference, scratch):
    """Return difference^T form difference."""
    multiply(form, difference, scratch)
    return np.dot(difference, scratch)


@kernel(counts_references=False)
def gap_and_slack(plan, u_x, u_w, gradient, difference, scratch):
    """Return the gap, and a bound of its rounding error.

    The gap U(x) - U(w) - <g, x - w> - tangent / 2 ||x - w||_P^2 is minus the log
    acceptance probability. By convexity it is at least 0, up to the rounding error.
    """
    linear = np.dot(gradient, difference)
    square = 0.5 * plan.tangent * quadratic(plan.precision, difference, scratch)
    # This is above the relative rounding error of the energies at both ends.
    slack = 1e-12 * (1.0 + abs(u_x) + abs(u_w) + abs(linear) + square)
    return (u_x - u_w) - linear - square, slack


@kernel(counts_references=False)
def set_envelope_mean(plan, y, w, gradient, mean):
    """Set the mean (y + h t w - h P^{-1} g) / (1 + h t) of the envelope.

    Here t is the curvature ``tangent`` and g the gradient at w.
    """
    multiply(plan.inverse, gradient, mean)
    weight = 1.0 / (1.0 + plan.tangent * plan.step)
    for j in range(mean.shape[0]):
        mean[j] = weight * (
            y[j] + plan.step * plan.tangent * w[j] - plan.step * mean[j]
        )


@kernel(counts_references=False)
def propose(target, pieces, plan, draw, mean, state, rng, out):
    """Draw from the envelope, and return 1 inside the domain and 0 outside.

    NaN says that a function failed, and `NO_DRAW` that the draw failed although its
    mean is a number. `UNFINISHED` says that the draw uses rejection of its own and
    needs more proposals. It goes on in the next call.
    """
    out[:] = np.nan
    body, penalty, support = target.body, target.regularizer, state.workspace.support
    draw(body, penalty, plan, mean, support, state.vectors, rng, out)
    if np.isnan(out[0]):
        return NO_DRAW if np.isfinite(np.sum(mean)) else np.nan
    if out[0] == np.inf:
        return UNFINISHED
    return gibbs_target.inside(target, pieces, out, state.work)


def compile_draw_given_y(
    evaluate_tangent: Callable[..., float], check_proposal: Callable[..., int]
) -> Kernel[..., int]:
    """Return the compiled exact draw of the position given the scratch row of y.

    ``evaluate_tangent(target, pieces, plan, state, w, gradient)`` returns U at w and
    fills its gradient. A value that is not finite is a failure.
    ``check_proposal(target, pieces, plan, state, rng, is_resumed)`` returns 1 to accept
    the proposal, 0 to reject it, minus a code of `errors`, or `PAUSED`. The draw
    returns a code. After a pause it goes on with its next proposal or test when it is
    called again.
    """
    uncounted = kernel(counts_references=False)
    tangent_at, test = uncounted(evaluate_tangent), uncounted(check_proposal)

    def draw_given_y(target, pieces, plan, state, rng):
        control, progress = state.work.control[0], state.workspace.draw[0]
        mean, proposal = state.vectors[ROW.mean], state.vectors[ROW.proposal]
        is_over, stage = False, control.stage
        if stage == 0:
            w, gradient = state.vectors[ROW.tangent_point], state.vectors[ROW.gradient]
            gibbs_target.project(target, pieces, state.vectors[ROW.y], w)
            value = tangent_at(target, pieces, plan, state, w, gradient)
            if not np.isfinite(value):
                return FUNCTION_FAILED
            set_envelope_mean(plan.metric, state.vectors[ROW.y], w, gradient, mean)
            code = set_halfspace(target, pieces, plan.metric, state, mean)
            if code != OK:
                return code
            progress.num_proposals, progress.tangent_value = 0, value
            is_over = is_due(control)
        control.stage = 0
        while progress.num_proposals < plan.max_proposals or stage == STAGE.testing:
            if is_over:
                control.stage = STAGE.proposing
                return PAUSED
            if stage != STAGE.testing:
                metric, draw = plan.metric, plan.draw
                status = propose(
                    target, pieces, metric, draw, mean, state, rng, proposal
                )
                is_over = is_due(control)
                if status == UNFINISHED:
                    continue
                progress.num_proposals += 1
                state.counts[chain.COUNT.proposals] += 1
                if np.isnan(status):
                    return FUNCTION_FAILED
                if status == NO_DRAW:
                    return DRAW_FAILED
                if status == 0.0:
                    continue
                state.counts[INSIDE] += 1
            verdict = test(target, pieces, plan, state, rng, stage == STAGE.testing)
            stage = STAGE.proposing
            if verdict == PAUSED:
                control.stage = STAGE.testing
                return PAUSED
            if verdict < 0:
                return -verdict
            if verdict == 1:
                state.counts[chain.COUNT.accepted] += 1
                copy_into(proposal, state.position)
                return OK
        return EXHAUSTED

    return uncounted(draw_given_y)


def evaluate_tangent(target, pieces, plan, state, w, gradient):
    """Return U at w, and fill its gradient."""
    return chain.evaluate_gradient(target, pieces, state, w, gradient)


@kernel(counts_references=False)
def set_difference(state):
    """Set the scratch row of x - w, for the proposal x."""
    w, proposal = state.vectors[ROW.tangent_point], state.vectors[ROW.proposal]
    difference = state.vectors[ROW.difference]
    for j in range(w.shape[0]):
        difference[j] = proposal[j] - w[j]


@kernel(counts_references=False)
def compare_gap(target, pieces, metric, state, threshold, u_x):
    """Compare the gap of the proposal, which has the energy U(x), with a threshold.

    Return 1, 0, or minus a failure code.
    """
    gradient, u_w = state.vectors[ROW.gradient], state.workspace.draw[0].tangent_value
    difference, product = state.vectors[ROW.difference], state.vectors[ROW.product]
    set_difference(state)
    gap, slack = gap_and_slack(metric, u_x, u_w, gradient, difference, product)
    if not np.isfinite(gap):
        return -FUNCTION_FAILED
    if gap < -slack:
        return -BOUND_VIOLATED
    if threshold < gap:
        # If the energies are so large that their difference has no correct digits, the
        # gap is replaced by its upper bound.
        if not (slack > 1.0 and metric.gap_curvature[0, 0] > 0.0):
            return 0
        # The gap is at most this quadratic, so a threshold above it accepts.
        if threshold < 0.5 * quadratic(metric.gap_curvature, difference, product):
            return 0
    state.energy[0] = u_x
    if metric.kept_weight > 0.0:
        proposal = state.vectors[ROW.proposal]
        penalty = gibbs_target.regularizer(target, pieces, proposal, state.work)
        state.energy[0] += metric.kept_weight * penalty
    return 1


def check_proposal(target, pieces, plan, state, rng, is_resumed):
    """Return 1 to accept the proposal, 0 to reject it, or minus a failure code."""
    metric, proposal = plan.metric, state.vectors[ROW.proposal]
    threshold = rng.standard_exponential()
    state.energy[0] = np.nan
    if metric.squeeze == 1:
        difference, product = state.vectors[ROW.difference], state.vectors[ROW.product]
        set_difference(state)
        # The gap is at most this quadratic. If the threshold is above it, no pass over
        # the records is needed.
        ceiling = 0.5 * quadratic(metric.gap_curvature, difference, product)
        if ceiling <= threshold:
            return 1
    u_x = gibbs_target.energy(target, pieces, proposal, state.work)
    state.counts[chain.COUNT.values] += 1
    state.counts[chain.COUNT.records] += target.data.num_records
    return compare_gap(target, pieces, metric, state, threshold, u_x)


draw_given_y = compile_draw_given_y(evaluate_tangent, check_proposal)


@kernel(counts_references=False)
def draw_y(metric, state, rng):
    """Draw y given x into its scratch row."""
    noise, deviation = state.vectors[ROW.y_noise], np.sqrt(metric.step)
    fill_with_normals(rng, noise)
    displace(metric, state.position, noise, deviation, state.vectors[ROW.y])


def step(target, pieces, plan, state, rng):
    """Draw y given x, then x given y."""
    if state.work.control[0].stage == 0:
        draw_y(plan.metric, state, rng)
    return draw_given_y(target, pieces, plan, state, rng)


run = compile_run(step)


def tv_bound(num_steps: int, *, step: float, start_bound: float) -> float:
    r"""Return a bound of the total variation after T = ``num_steps`` >= 1 steps.

    :math:`TV \le \frac{W_0}{2\sqrt h} (1+h)^{-(T-1)}`, where h is the ``step`` in the
    metric in which the energy is 1-strongly convex. ``start_bound`` is W_0, a bound of
    the root mean squared distance from the start, a point, to the target.

    Examples
    --------
    >>> from dpsample.samplers.proximal.alternation import tv_bound
    >>> tv_bound(50, step=1.0, start_bound=4.0) < 1e-14
    True
    """
    check.integer(1, maximum=None, num_steps=num_steps)
    check.positive(step=step, start_bound=start_bound)
    log_bound = (
        math.log(start_bound)
        - 0.5 * math.log(4.0 * step)
        - (num_steps - 1) * math.log1p(step)
    )
    return math.exp(min(0.0, log_bound))


def num_steps(gamma: float, *, step: float, start_bound: float) -> int:
    r"""Return the smallest T with `tv_bound` at most gamma, an error in (0, 1).

    :math:`T(\gamma) = 1 + \lceil \log(W_0^2 / (4 h \gamma^2)) / (2 \log(1+h)) \rceil`.

    Examples
    --------
    >>> from dpsample.samplers.proximal.alternation import num_steps
    >>> num_steps(1e-12, step=1.0, start_bound=4.0)
    42
    """
    check.open_interval(0.0, 1.0, gamma=gamma)
    check.positive(step=step, start_bound=start_bound)
    excess = 2.0 * (math.log(start_bound) - math.log(gamma)) - math.log(4.0 * step)
    return 1 + max(0, math.ceil(excess / (2.0 * math.log1p(step))))


def distance_to_minimizer(
    domain: Domain, point: Array, gradient: Array, inverse: Array, precision: Array
) -> float:
    r"""Return a bound of :math:`\|x_0 - x^\star\|_P` for a 1-strongly convex energy.

    Strong convexity gives :math:`\frac12\|x_0-x^\star\|_P^2 \le c = \max_{v \in X}
    \langle g, x_0 - v\rangle - \frac12\|x_0-v\|_P^2`, and Fenchel's inequality :math:`c
    \le \frac12\|z\|_{P^{-1}}^2 + \langle g-z, x_0\rangle + h_X(z-g)` with the support
    function h_X of the domain X. This is valid for every z, and the smallest of a few
    bounds is returned. ``point`` is x_0 in X, ``gradient`` a (sub)gradient g of the
    energy there. ``inverse`` and ``precision`` are P^{-1} and P.
    """
    # The best z is P (x_0 - v) for the maximizing v. Candidates are the gradient, a
    # projected gradient step in two metrics, and 0, which gives the size of the domain.
    step = point - domain.project(point - gradient / np.trace(precision))
    candidates = [gradient, step * np.trace(precision), precision @ step]
    if domain.is_bounded:
        candidates.append(np.zeros_like(gradient))
    bounds = []
    for z in candidates:
        direction = z - gradient
        support = float(domain.support(direction)) if np.any(direction) else 0.0
        if math.isfinite(support):
            # More than the rounding errors of the support function and the product.
            slack = 1e-9 * (abs(support) + abs(float(direction @ point)))
            bounds.append(0.5 * z @ inverse @ z - direction @ point + support + slack)
    return math.sqrt(2.0 * max(0.0, min(bounds)))
