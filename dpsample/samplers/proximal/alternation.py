# mypy: allow-untyped-defs
r"""Alternating chain of the proximal sampler, with the tangent oracle, and its proof.

Block Gibbs on the joint density :math:`e^{-V(x) - \|x - y\|_P^2 / (2h)}`:

    y ~ N(x, h P^{-1}),    x ~ exp(-V(x) - ||x - y||_P^2 / (2h)) on the domain.

The second draw is exact: a tangent of U at a point w(y) of the domain, with the
quadratic ``tangent / 2 ||x - w||_P^2`` that U exceeds there, gives an envelope whose
acceptance ratio ``exp(-gap)`` is at most 1 by convexity. U is V, or only its risk part
when the draw keeps the regularizer exactly. Where the envelope's mean is outside the
domain, hardly any unrestricted proposal would fall inside: proposals are then made in a
halfspace that contains the domain but not the mean, or in a polytope's corner: see
`metric`.

**Proof of the error.** In the metric of P the energy is 1-strongly convex on the
domain. An exact conditional draw contracts the Kullback-Leibler divergence by
:math:`(1+h)^{-2}` per step; from a point, :math:`KL(x_1 \| \pi) \le W_0^2 / (2h)`;
Pinsker gives the total variation.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
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
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

# Rows of the chain's scratch memory that the exact draws use, and of all of them.
NOISE, DIRECTION, NUM_SCRATCH = 8, 9, 10
# Rounding of a Euclidean projection, relative to the domain's size.
PROJECTION_ERROR = 1e-12
# Sizes of the domain from which on a point's own digits are coarser than that.
FAR = 2.0
# Rounding of the energies at both ends, relative to their size: see `gap_and_slack`.
ROUNDING = 1e-12
# Counts beside the common ones: exact draws that fell inside the domain.
INSIDE = chain.NUM_COUNTS
COUNT_NAMES = (*chain.COUNT_NAMES, "inside")
NUM_COUNTS = len(COUNT_NAMES)
# What a paused conditional draw keeps in its control: tries, and U at w.
TRIES, U_AT_W = range(2)
# Its stages: between two tries, and among the tests of a proposal.
TRYING, TESTING = range(1, 3)
NO_CAP = 2**62  # of the tries
MOST_TRIES = 10**7  # of one step of a study: more say that the step is hopeless
# Rounding of a gap, as `gap_and_slack` bounds it, from which its upper bound helps.
COARSE = 1.0
# Of a proposal that is not complete: see `metric.separable`.
UNFINISHED = 2.0
NO_DRAW = 3.0


@by_address
class ProximalPlan(NamedTuple):
    """One chain's metric and step: fixed before the chain starts.

    ``precision`` is P, ``inverse`` P^{-1} = factor factor^T, ``excess`` bounds the
    Hessian of U minus the tangent's quadratic (0 if nothing is known; it spares
    energies if ``squeeze`` is 1), ``reach`` bounds distances from the domain's center,
    and ``kept`` is k mu if the draw keeps the regularizer, which is then no part of U,
    else 0.
    """

    step: float
    tangent: float
    spread: float
    kappa: float
    kept: float
    reach: float
    halfspace: int
    squeeze: int
    precision: Array
    inverse: Array
    factor: Array
    basis: Array
    eigenvalues: Array
    excess: Array


PLAN = frame_type(
    (f8, f8, f8, f8, f8, f8, i8, i8, matrix, matrix, matrix, matrix, vector, matrix),
    ProximalPlan,
)


@by_address
class TangentPlan(NamedTuple):
    """All that a chain reads."""

    metric: ProximalPlan
    draw: Pointer  # one of the pieces of `metric`
    max_tries: int  # of one step
    bounds: tuple[Any, ...] = ()  # what the thinned or screened oracle reads


@by_address
class ProximalWork(NamedTuple):
    """What a chain needs beside the rest of its state."""

    normal: Array  # (2 dim + 5,): supporting halfspace and corner, see `metric`

    @classmethod
    def of(cls, dim: int) -> "ProximalWork":
        """Without a halfspace."""
        return cls(np.zeros(2 * dim + 5))


def init(target: Gibbs, position: Array) -> ChainState:
    """Fresh state at a position inside the domain: the next step needs it alone."""
    own = ProximalWork.of(position.size)
    state = new_state(target, position, is_weighed=False, rows=NUM_SCRATCH, own=own)
    return state._replace(counts=np.zeros(NUM_COUNTS, dtype=np.int64))


@kernel(counts_references=False)
def support_ball(plan, body, mean, normal, a, b):
    """Set the unit outward normal of a Euclidean ball at mean's P-projection.

    One secular equation: the projection is c + sum lambda_i a_i / (lambda_i + nu) q_i
    with nu >= 0 such that it lies on the sphere. Any normal gives a valid halfspace,
    so the root need not be exact.
    """
    dim = mean.shape[0]
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
        nu += change  # Newton on 1/size, which is concave in nu: monotone from below
        if abs(change) <= 1e-10 * nu:
            break
    for j in range(dim):
        a[j] = plan.eigenvalues[j] * b[j] / (plan.eigenvalues[j] + nu)
    multiply(plan.basis, a, b)
    size = np.sqrt(np.dot(b, b))
    for j in range(dim):
        normal[j] = b[j] / size
    # <n, c> + R is the support of the ball in the direction n
    normal[dim] = np.dot(normal[:dim], body.center) + body.radius
    normal[dim + 1] = 1.0


@kernel(counts_references=False)
def outward(target, pieces, point, normal, a):
    """Set a to the projection of a point, and normal to the way back; its length."""
    gibbs.project(target, pieces, point, a)
    square = 0.0
    for j in range(a.shape[0]):
        normal[j] = point[j] - a[j]
        square += normal[j] * normal[j]
    return np.sqrt(square)


@kernel(counts_references=False)
def support_any(target, pieces, plan, mean, normal, a, b):
    """Halfspace through the Euclidean projection of mean, normal to mean - projection.

    By the variational inequality of a projection it contains the domain. A polytope's
    projection is rounded to the digits of a far mean: then a point of the way back that
    is near the domain is projected anew.
    """
    dim = mean.shape[0]
    size = outward(target, pieces, mean, normal, a)
    scale = 2.0 * plan.reach
    for j in range(dim):
        scale += abs(a[j])
    if size > FAR * scale:
        for j in range(dim):
            b[j] = a[j] + normal[j] * (scale / size)
        size = outward(target, pieces, b, normal, a)
    if not size > 0.0:
        normal[dim + 1] = 0.0
        return
    for j in range(dim):
        normal[j] /= size
    # The projection's rounding turns the normal by its ratio to the distance: outwards
    # by what that can cut off, because the halfspace must contain the domain.
    slack = PROJECTION_ERROR * scale * (1.0 + scale / size)
    normal[dim] = np.dot(normal[:dim], a) + slack
    normal[dim + 1] = 1.0


@kernel(counts_references=False)
def set_halfspace(target, pieces, plan, state, mean):
    """If mean is outside, store a halfspace that contains the domain but not mean."""
    dim = mean.shape[0]
    state.own.normal[dim + 1 : dim + 3] = 0.0
    if plan.halfspace == 0:
        return OK
    status = gibbs.inside(target, pieces, mean, state.work)
    if np.isnan(status):
        return FUNCTION_FAILED
    if status == 0.0:
        a, b = state.scratch[NOISE], state.scratch[DIRECTION]
        if plan.halfspace == 2:
            support_ball(plan, target.body, mean, state.own.normal, a, b)
        else:
            support_any(target, pieces, plan, mean, state.own.normal, a, b)
        if np.isnan(state.own.normal[0]):
            return FUNCTION_FAILED
    return OK


@kernel(counts_references=False)
def quadratic(form, difference, scratch):
    """Return difference^T form difference."""
    multiply(form, difference, scratch)
    return np.dot(difference, scratch)


@kernel(counts_references=False)
def gap_and_slack(plan, u_x, u_w, gradient, difference, scratch):
    """Gap U(x) - U(w) - <g, x - w> - tangent/2 ||x - w||_P^2, and its rounding error.

    The log acceptance ratio is minus the gap: >= 0 by the tangent's convexity.
    """
    linear = np.dot(gradient, difference)
    square = 0.5 * plan.tangent * quadratic(plan.precision, difference, scratch)
    slack = ROUNDING * (1.0 + abs(u_x) + abs(u_w) + abs(linear) + square)
    return (u_x - u_w) - linear - square, slack


@kernel(counts_references=False)
def aim(plan, y, w, gradient, mean):
    """Mean of the Gaussian envelope of exp(-U(x) - ||x - y||_P^2 / (2 h))."""
    multiply(plan.inverse, gradient, mean)
    weight = 1.0 / (1.0 + plan.tangent * plan.step)
    for j in range(mean.shape[0]):
        mean[j] = weight * (
            y[j] + plan.step * plan.tangent * w[j] - plan.step * mean[j]
        )


@kernel(counts_references=False)
def propose(target, pieces, plan, draw, mean, state, rng, out):
    """Draw from the envelope: 1 inside the domain, 0 outside, NaN if a piece failed.

    `UNFINISHED` if the draw needs more tries of its own: it goes on when called again.
    `NO_DRAW` if it failed, though its mean is a number.
    """
    out[:] = np.nan
    body, penalty = target.body, target.regularizer
    draw(body, penalty, plan, mean, state.own.normal, state.scratch, rng, out)
    if np.isnan(out[0]):
        return NO_DRAW if np.isfinite(np.sum(mean)) else np.nan
    if out[0] == np.inf:
        return UNFINISHED
    return gibbs.inside(target, pieces, out, state.work)


def compile_conditional(
    touch: Callable[..., float], judge: Callable[..., int]
) -> Kernel[..., int]:
    """Exact draw of the position given y in scratch[1], compiled with an oracle.

    ``touch(target, pieces, plan, state, w, gradient)`` returns U at w and fills its
    gradient; a value that is not finite is a failure.
    ``judge(target, pieces, plan, state, rng, is_resumed)`` accepts or refuses the
    proposal in scratch[5]: 1, 0, minus a code of `errors`, or `PAUSED`. The draw
    returns a code. Paused, it goes on with its next try or test when called again.
    """
    uncounted = kernel(counts_references=False)
    tangent_at, test = uncounted(touch), uncounted(judge)

    def conditional(target, pieces, plan, state, rng):
        control, mean, proposal = (
            state.work.control[0],
            state.scratch[4],
            state.scratch[5],
        )
        is_over, stage = False, control.stage
        if stage == 0:
            y, w, gradient = state.scratch[1], state.scratch[2], state.scratch[3]
            gibbs.project(target, pieces, y, w)
            control.saved[U_AT_W] = tangent_at(target, pieces, plan, state, w, gradient)
            if not np.isfinite(control.saved[U_AT_W]):
                return FUNCTION_FAILED
            aim(plan.metric, y, w, gradient, mean)
            code = set_halfspace(target, pieces, plan.metric, state, mean)
            if code != OK:
                return code
            control.saved[TRIES] = 0.0
            is_over = is_due(control)
        control.stage = 0
        while control.saved[TRIES] < plan.max_tries or stage == TESTING:
            if is_over:
                control.stage = TRYING
                return PAUSED
            if stage != TESTING:
                metric, draw = plan.metric, plan.draw
                status = propose(
                    target, pieces, metric, draw, mean, state, rng, proposal
                )
                is_over = is_due(control)
                if status == UNFINISHED:
                    continue
                control.saved[TRIES] += 1.0
                state.counts[chain.PROPOSALS] += 1
                if np.isnan(status):
                    return FUNCTION_FAILED
                if status == NO_DRAW:
                    return DRAW_FAILED
                if status == 0.0:
                    continue
                state.counts[INSIDE] += 1
            verdict = test(target, pieces, plan, state, rng, stage == TESTING)
            stage = TRYING
            if verdict == PAUSED:
                control.stage = TESTING
                return PAUSED
            if verdict < 0:
                return -verdict
            if verdict == 1:
                state.counts[chain.ACCEPTED] += 1
                copy_into(proposal, state.position)
                return OK
        return EXHAUSTED

    return uncounted(conditional)


def touch(target, pieces, plan, state, w, gradient):
    """U at w, and its gradient."""
    return chain.evaluate_gradient(target, pieces, state, w, gradient)


@kernel(counts_references=False)
def weigh(target, pieces, metric, state, threshold, u_x):
    """Compare the gap of the proposal in scratch[5], of energy U, with a threshold.

    Returns 1, 0, or minus a failure code.
    """
    w, gradient = state.scratch[2], state.scratch[3]
    proposal, difference = state.scratch[5], state.scratch[6]
    for j in range(w.shape[0]):
        difference[j] = proposal[j] - w[j]
    u_w = state.work.control[0].saved[U_AT_W]
    gap, slack = gap_and_slack(metric, u_x, u_w, gradient, difference, state.scratch[7])
    if not np.isfinite(gap):
        return -FUNCTION_FAILED
    if gap < -slack:
        return -BOUND_VIOLATED
    if threshold < gap:
        if not (slack > COARSE and metric.excess[0, 0] > 0.0):
            return 0
        # Energies have lost the gap: it is at most this quadratic.
        if threshold < 0.5 * quadratic(metric.excess, difference, state.scratch[7]):
            return 0
    state.energy[0] = u_x
    if metric.kept > 0.0:
        kept = gibbs.regularizer(target, pieces, proposal, state.work)
        state.energy[0] += metric.kept * kept
    return 1


def judge(target, pieces, plan, state, rng, is_resumed):
    """Accept or refuse the proposal in scratch[5]: 1, 0, or minus a failure code."""
    w, metric = state.scratch[2], plan.metric
    proposal, difference = state.scratch[5], state.scratch[6]
    threshold = rng.standard_exponential()
    state.energy[0] = np.nan
    if metric.squeeze == 1:
        for j in range(w.shape[0]):
            difference[j] = proposal[j] - w[j]
        # The gap is at most this quadratic: often no pass over the records is needed.
        ceiling = 0.5 * quadratic(metric.excess, difference, state.scratch[7])
        if ceiling <= threshold:
            return 1
    u_x = gibbs.energy(target, pieces, proposal, state.work)
    state.counts[chain.VALUES] += 1
    state.counts[chain.RECORDS] += target.data.num_records
    return weigh(target, pieces, metric, state, threshold, u_x)


conditional = compile_conditional(touch, judge)


@kernel(counts_references=False)
def displace_y(metric, state, rng):
    """Draw y given x into scratch[1]."""
    fill_with_normals(rng, state.scratch[0])
    spread = np.sqrt(metric.step)
    displace(metric, state.position, state.scratch[0], spread, state.scratch[1])


def step(target, pieces, plan, state, rng):
    """Draw y given x, then x given y."""
    if state.work.control[0].stage == 0:
        displace_y(plan.metric, state, rng)
    return conditional(target, pieces, plan, state, rng)


run = compile_run(step)


def tv_bound(num_steps: int, *, step: float, start_bound: float) -> float:
    r"""Bound, at most 1, of the total variation after T = ``num_steps`` >= 1 steps.

    :math:`TV \le \frac{W_0}{2\sqrt h} (1+h)^{-(T-1)}`, h the ``step`` in the metric in
    which the energy is 1-strongly convex; ``start_bound`` is W_0, a bound of the root
    mean squared distance from the start, a point, to the target.

    Examples
    --------
    >>> from dpsample.samplers.proximal.alternation import tv_bound
    >>> tv_bound(50, step=1.0, start_bound=4.0) < 1e-14
    True
    """
    check.integer(1, maximum=None, num_steps=num_steps)  # arithmetic, no loop
    check.positive(step=step, start_bound=start_bound)
    log_bound = (
        math.log(start_bound)
        - 0.5 * math.log(4.0 * step)
        - (num_steps - 1) * math.log1p(step)
    )
    return math.exp(min(0.0, log_bound))


def num_steps(gamma: float, *, step: float, start_bound: float) -> int:
    r"""Smallest T with `tv_bound` at most gamma, a total-variation error in (0, 1).

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
    r"""Bound of :math:`\|x_0 - x^\star\|_P` for a 1-strongly convex energy.

    Strong convexity gives :math:`\frac12\|x_0-x^\star\|_P^2 \le c = \max_{v \in X}
    \langle g, x_0 - v\rangle - \frac12\|x_0-v\|_P^2`, and Fenchel's inequality :math:`c
    \le \frac12\|z\|_{P^{-1}}^2 + \langle g-z, x_0\rangle + h_X(z-g)` with the support
    function h_X: valid for every z, sharp for the right one. ``point`` is x_0 in the
    domain X, ``gradient`` a (sub)gradient g of the energy there; ``inverse`` and
    ``precision`` are P^{-1} and P.
    """
    mapped = point - domain.project(point - gradient / np.trace(precision))
    candidates = [gradient, mapped * np.trace(precision), precision @ mapped]
    if domain.is_bounded:
        candidates.append(np.zeros_like(gradient))
    bounds = []
    for z in candidates:
        rest = z - gradient
        reach = float(domain.support(rest)) if np.any(rest) else 0.0
        if math.isfinite(reach):
            slack = 1e-9 * (abs(reach) + abs(float(rest @ point)))
            bounds.append(0.5 * z @ inverse @ z - rest @ point + reach + slack)
    return math.sqrt(2.0 * max(0.0, min(bounds)))
