# mypy: allow-untyped-defs
"""Kernels that move the iterate: projected, proximal, mirror and other steps.

`steps` has the classes of their constants, which arrive here as ``step``. A step of
signature `ADVANCE` moves the iterate w = memory.theta along the estimate g =
memory.gradient and projects it to the domain.

A mirror step that leaves its l_p ball takes the Bregman projection for the potential
kappa/2 |w|_s^2, s > p. With the dual point theta it is the minimizer of kappa/2 |w|_s^2
- <theta, w> over |w|_p <= R, where the constraint is active. With multipliers A = kappa
|w|_s^(2-s) and nu > 0, A |w_j|^(s-1) + nu |w_j|^(p-1) = |theta_j|. Scaling w = T u
turns both multipliers into one scalar g = A T^(s-1) = nu T^(p-1):

    u_j^(s-1) + u_j^(p-1) = |theta_j|/g,  w = R u/|u|_p,
    g = kappa R |u|_s^(2-s)/|u|_p.

The last equation has one root, because the minimizer is unique. It is solved for x =
log g, and its *mismatch* is the log of the ratio of both sides. All is computed with
logarithms, because near p = 1 powers of u leave the range of floating point.
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.noise.selection import pure_signed_choice, signed_choice
from dpsample.numerics.norms import distance
from dpsample.numerics.vectors import copy_into
from dpsample.optimizers.loop.contributions import saturate
from dpsample.optimizers.loop.scaled import (
    STAGE,
    SUM,
    factor_of,
    observe,
    scaled_size,
)

# Limit of both searches, for cases in which rounding errors prevent the end.
MAX_ROUNDS = 200
# Relative error at which a search ends, two roundings.
ROUNDING = 4e-16
# Logarithm of the largest number. Beyond it compiled exp is infinite, Python's raises.
MAX_EXPONENT = 709.782712893384


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def log_root(a, b, c):
    """Return log u for the u with u^a + u^b = e^c, 0 <= b < a, -inf if there is none.

    Newton's method solves log(e^(a x) + e^(b x)) = c for x = log u. The left side is
    convex and the start is above the root, so that x only decreases.
    """
    if b == 0.0:
        return math.log(math.expm1(c)) / a if c > 0.0 else -np.inf
    if math.isinf(c):
        return c
    x = min(c / a, c / b)
    for _ in range(MAX_ROUNDS):
        exponent = (b - a) * x
        # Share of u^a in the sum, by which the slopes a and b are weighted.
        share = 1.0 / (1.0 + math.exp(exponent)) if exponent <= MAX_EXPONENT else 0.0
        # The larger of both powers is factored out, so that exp does not overflow.
        if x > 0.0:
            value = a * x + math.log1p(math.exp((b - a) * x))
        else:
            value = b * x + math.log1p(math.exp((a - b) * x))
        newton_step = (value - c) / (share * a + (1.0 - share) * b)
        x -= newton_step
        if newton_step <= ROUNDING * abs(x):
            break
    return x


@kernel(counts_references=False)
def log_norm(logs, exponent):
    """Return the log of the norm of a vector, given by the logs of its entries."""
    top = -np.inf
    for j in range(len(logs)):
        top = max(top, logs[j])
    if math.isinf(top):
        return top
    total = 0.0
    for j in range(len(logs)):
        total += math.exp(exponent * (logs[j] - top))
    return top + math.log(total) / exponent


@kernel(counts_references=False)
def log_mismatch(step, dual, x, logs):
    """Return the log of the ratio of both sides of the scalar equation at g = e^x.

    ``logs`` (dim,) is filled with the logs of u, -inf where the dual point is 0.
    """
    for j in range(len(dual)):
        size = abs(dual[j])
        c = math.log(size) - x if size > 0.0 else -np.inf
        logs[j] = log_root(step.exponent - 1.0, step.ball_exponent - 1.0, c)
    log_potential_norm = log_norm(logs, step.exponent)
    if math.isinf(log_potential_norm):  # g is above all duals
        return np.inf
    scale = math.log(step.kappa * step.radius)
    return (
        scale
        + (2.0 - step.exponent) * log_potential_norm
        - log_norm(logs, step.ball_exponent)
        - x
    )


@kernel(counts_references=False)
def into_lp_ball(step, dual, w, logs):
    """Fill ``w``, whose l_p norm is too large, with the Bregman projection.

    Return False if the constraint's multiplier is below rounding errors. Then ``w`` is
    so near the ball that it can be scaled down instead.
    """
    top = 0.0
    for j in range(len(dual)):
        top = max(top, abs(dual[j]))
    # There u = 1 for the largest coordinate, since 1 + 1 = |theta_j|/g with g = top/2.
    low = high = math.log(0.5 * top)
    low_mismatch = high_mismatch = log_mismatch(step, dual, low, logs)
    stride = 1.0
    # Strides that look for a bracket double each time.
    for _ in range(60):
        if low_mismatch < 0.0 <= high_mismatch:
            break
        if low_mismatch >= 0.0:
            high, high_mismatch = low, low_mismatch
            low -= stride
            low_mismatch = log_mismatch(step, dual, low, logs)
        else:
            low, low_mismatch = high, high_mismatch
            high += stride
            high_mismatch = log_mismatch(step, dual, high, logs)
        stride *= 2.0
    if not low_mismatch < 0.0 <= high_mismatch:
        return False
    # The Illinois variant of regula falsi: when the same end moves twice in a row, the
    # mismatch of the other end is halved, or one end could stay for ever.
    side = 0  # -1 if the lower end was the last to move, 1 if the upper
    for _ in range(MAX_ROUNDS):
        x = 0.5 * (low + high)
        if high_mismatch < np.inf:
            x = low + (high - low) * low_mismatch / (low_mismatch - high_mismatch)
        mismatch = log_mismatch(step, dual, x, logs)
        if mismatch < 0.0:
            low, low_mismatch = x, mismatch
            high_mismatch *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, high_mismatch = x, mismatch
            low_mismatch *= 0.5 if side > 0 else 1.0
            side = 1
        if abs(mismatch) <= ROUNDING or high - low <= ROUNDING * abs(x):
            break
    # w = R u/|u|_p, with the signs of the dual point.
    size = log_norm(logs, step.ball_exponent)
    for j in range(len(w)):
        w[j] = math.copysign(step.radius * math.exp(logs[j] - size), dual[j])
    return True


@kernel(counts_references=False)
def size_of(step, t):
    """Return the size of step ``t``, from one number for all or one for each."""
    return step.sizes[t] if len(step.sizes) > 1 else step.sizes[0]


@kernel(counts_references=False)
def into_domain(feasible, memory, point):
    """Project ``point`` to the domain in place.

    In a private run the whole space is a box of side 2e300, so that nothing overflows
    later. A projection that fails leads to the domain's center there, because an
    exception would reveal something about the records.
    """
    saturate(point, feasible.reach)
    memory.scratch[:] = np.nan
    projection = memory.scratch
    feasible.project(feasible.body, point, projection)
    has_failed = projection[0] != projection[0]  # all of it is NaN then
    if has_failed and feasible.reach < np.inf:
        copy_into(feasible.body.center, point)
    else:
        copy_into(memory.scratch, point)


@kernel(counts_references=False)
def into_both(feasible, radius, memory, point):
    """Project to the intersection of the domain and the local ball.

    The ball's center lies in the domain. The nearest point to x is the projection to
    the domain of center + share (x - center), with the largest share up to 1 for which
    it lies in the ball. (The ball's multiplier of Karush, Kuhn and Tucker acts as a
    ridge about the center.) The distance from the center grows with the share, so the
    share is found by bisection, down to neighboring doubles.
    """
    center, target, inside = memory.ball_center, memory.query, memory.low_dim
    saturate(point, feasible.reach)
    copy_into(point, target)
    # The projection to the domain is the answer if it is in the ball.
    into_domain(feasible, memory, point)
    # A point that is not finite, of a run without noise, stays what it is.
    if not distance(point, center, 2.0) > radius:
        return
    copy_into(center, inside)
    low, share, high = 0.0, 0.5, 1.0
    while low < share < high:
        for j in range(len(point)):
            point[j] = center[j] + share * (target[j] - center[j])
        into_domain(feasible, memory, point)
        if distance(point, center, 2.0) <= radius:
            low = share
            copy_into(point, inside)
        else:
            high = share
        share = 0.5 * (low + high)
    copy_into(inside, point)


@kernel(counts_references=False)
def gradient_step(feasible, step, t, num_steps, memory, rng):
    """Take a projected gradient step with a ridge about the anchor, see `ADVANCE`."""
    w, g, size = memory.theta, memory.gradient, size_of(step, t)
    for j in range(len(w)):
        w[j] -= size * (g[j] + step.ridge * (w[j] - memory.anchor[j]))
    into_both(feasible, step.local_radius, memory, w)


@kernel(counts_references=False)
def scaled_step(feasible, step, t, num_steps, memory, rng):
    """Take a projected gradient step of a scaled descent, see `ADVANCE`."""
    observe(step, t, num_steps, memory)
    w, g, size = memory.theta, memory.gradient, scaled_size(step, memory)
    for j in range(len(w)):
        w[j] -= size * g[j]
    into_domain(feasible, memory, w)


@kernel(counts_references=False)
def end_stage(feasible, step, weight, memory):
    """Scale the iterate at the end of a stage, and the size of later steps.

    After the last stage the mean iterate is scaled instead. ``weight`` is the sum of
    the weights in `memory.average`.
    """
    # The mean is scaled outside of its sum, which then is multiplied by the total
    # weight again.
    point, total = memory.theta, 1.0
    if step.stage == STAGE.last:
        point, total = memory.query, weight
        for j in range(len(point)):
            point[j] = memory.average[j] / total
    factor, before = factor_of(step, memory, point), distance(point, memory.anchor, 2.0)
    for j in range(len(point)):
        point[j] = memory.anchor[j] + factor * (point[j] - memory.anchor[j])
    into_domain(feasible, memory, point)
    if 0.0 < before < math.inf:
        # Only the distance that the domain allows lengthens the steps.
        after = distance(point, memory.anchor, 2.0)
        memory.scale[SUM.outside] = max(
            memory.scale[SUM.outside], factor * before / after
        )
        factor = after / before
    size = min(scaled_size(step, memory) * factor, step.longest)
    memory.scale[SUM.factor] = size / step.size
    if step.stage == STAGE.last:
        for j in range(len(point)):
            memory.average[j] = total * point[j]


@kernel(counts_references=False)
def add_to_average(feasible, numbers, t, num_steps, memory):
    """Add the iterate times its weight, see `AVERAGE`."""
    weight = numbers.weights[t if len(numbers.weights) > 1 else 0]
    for j in range(len(memory.theta)):
        memory.average[j] += weight * memory.theta[j]


@kernel(counts_references=False)
def keep_last(feasible, numbers, t, num_steps, memory):
    """Do nothing, so that the last iterate is the output, see `AVERAGE`."""


@kernel(counts_references=False)
def average_and_scale(feasible, numbers, t, num_steps, memory):
    """Average, and end the stage of a scaled descent, see `AVERAGE`."""
    weight = 1.0
    if len(numbers.weights) > 0:
        add_to_average(feasible, numbers, t, num_steps, memory)
        weight = num_steps * numbers.weights[0]
    if t == num_steps - 1:
        end_stage(feasible, numbers, weight, memory)


@kernel(counts_references=False)
def shrink(step, size, w, group_norms, group_sizes):
    """Replace ``w`` by the proximal point of size times the penalty.

    It shrinks coordinates, or groups of coordinates, towards 0 by soft thresholding.
    ``group_norms`` and ``group_sizes`` are workspace.
    """
    if len(step.groups) == 0:
        for j in range(len(w)):
            reduced = abs(w[j]) - size * step.l1
            w[j] = math.copysign(max(reduced, 0.0), w[j]) / (1.0 + size * step.l2)
        return
    group_norms[:] = 0.0
    group_sizes[:] = 0.0
    for j in range(len(w)):
        group_norms[step.groups[j]] += w[j] * w[j]
        group_sizes[step.groups[j]] += 1.0
    for j in range(len(w)):
        group_norm = math.sqrt(group_norms[step.groups[j]])
        shrinkage = size * step.l1 * math.sqrt(group_sizes[step.groups[j]])
        factor = max(1.0 - shrinkage / group_norm, 0.0) if group_norm > 0.0 else 0.0
        w[j] *= factor / (1.0 + size * step.l2)


@kernel(counts_references=False)
def proximal_step(feasible, step, t, num_steps, memory, rng):
    """Take a gradient step, shrink and project the point, see `ADVANCE`."""
    w, size = memory.theta, size_of(step, t)
    for j in range(len(w)):
        w[j] -= size * memory.gradient[j]
    shrink(step, size, w, memory.query, memory.middle)
    into_domain(feasible, memory, w)


@kernel(counts_references=False)
def dual_point(w, exponent, kappa, out):
    """Fill ``out`` with the gradient of kappa/2 |w|_s^2, which is 0 at 0."""
    largest = 0.0
    for j in range(len(w)):
        largest = max(largest, abs(w[j]))
    if largest == 0.0:
        out[:] = 0.0
        return
    total = 0.0
    for j in range(len(w)):
        total += (abs(w[j]) / largest) ** exponent
    # |w|_s^(2 - s) |w_j|^(s - 1), with the largest magnitude factored out
    factor = kappa * largest * total ** ((2.0 - exponent) / exponent)
    for j in range(len(w)):
        out[j] = math.copysign(factor * (abs(w[j]) / largest) ** (exponent - 1.0), w[j])


@kernel(counts_references=False)
def mirror_step(feasible, step, t, num_steps, memory, rng):
    """Take a mirror step on the whole space or on an l_p ball, see `ADVANCE`.

    On the l_s ball the Bregman projection is a multiple of the point.
    """
    w, g, dual = memory.theta, memory.gradient, memory.low_dim
    gamma = 1.0 / size_of(step, t)
    dual_point(w, step.exponent, step.kappa, dual)
    # The gradient of the objective, g + gamma (grad Phi(w') - grad Phi(w)) + alpha grad
    # Phi(w'), is 0 at the next iterate w'.
    for j in range(len(w)):
        dual[j] = (gamma * dual[j] - g[j]) / (gamma + step.alpha)
    saturate(dual, feasible.reach)
    # The inverse of grad Phi is the gradient of the conjugate |.|_s'^2/(2 kappa).
    conjugate = step.exponent / (step.exponent - 1.0)
    dual_point(dual, conjugate, 1.0 / step.kappa, w)
    saturate(w, feasible.reach)
    memory.scratch[:] = 0.0
    ball_norm = distance(w, memory.scratch, step.ball_exponent)
    if ball_norm <= step.radius:
        return
    if step.ball_exponent < step.exponent:
        if into_lp_ball(step, dual, w, memory.high_dim):
            saturate(w, feasible.reach)
            return
    for j in range(len(w)):
        w[j] *= step.radius / ball_norm


@kernel(counts_references=False)
def accelerated_step(feasible, step, t, num_steps, memory, rng):
    """Take a step of AC-SA, see `ADVANCE`, with the gradient at memory.middle."""
    w, aggregate = memory.theta, memory.aggregate
    # Steps of the theory begin with 1, and t with 0.
    alpha, next_alpha = 2.0 / (t + 2.0), 2.0 / (t + 3.0)
    size = 0.5 * (t + 1.0) * step.size
    for j in range(len(w)):
        w[j] -= size * memory.gradient[j]
    into_both(feasible, step.local_radius, memory, w)
    for j in range(len(w)):
        aggregate[j] = alpha * w[j] + (1.0 - alpha) * aggregate[j]
        memory.middle[j] = (1.0 - next_alpha) * aggregate[j] + next_alpha * w[j]


@kernel(counts_references=False)
def frank_wolfe_step(feasible, step, t, num_steps, memory, rng):
    """Move towards a vertex of the l1 ball, see `ADVANCE`.

    The exponential mechanism chooses it, or the largest coordinate of the gradient
    without privacy.
    """
    w, g, size = memory.theta, memory.gradient, size_of(step, t)
    vertex, sign = 0, 1.0
    if math.isinf(step.selection):
        for j in range(len(w)):
            if abs(g[j]) > abs(g[vertex]):
                vertex = j
        sign = 1.0 if g[vertex] >= 0.0 else -1.0
    elif step.is_pure:
        vertex, sign = pure_signed_choice(rng, g, step.selection, step.cell)
    else:
        vertex, sign = signed_choice(rng, g, step.selection, step.cell)
    # The vertex -sign R e_j has the least inner product with a gradient of this sign.
    for j in range(len(w)):
        w[j] *= 1.0 - size
    w[vertex] -= size * sign * step.radius
