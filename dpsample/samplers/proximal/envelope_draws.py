# mypy: allow-untyped-defs
r"""Exact draws from the envelopes of the proximal sampler, in a metric P.

A draw is a compiled function. Its density is the Gaussian N(mean, spread^2 P^{-1}),
restricted to the domain or a set that contains it. It is multiplied by e^{-psi}, with
psi a multiple of the regularizer, if `alternation` leaves that factor to the draw. Such
a set is a halfspace that contains the domain but not the mean. On a polytope it may be
a *corner*, the intersection of the halfspaces of those facets that contain the
P-projection of the mean. `Support` holds both.

**Corners.** Take coordinates in which the Gaussian is standard. Let C have the unit
normals of these facets as rows, and G = C C^T = L L^T. Let l be the distances of the
mean behind them, and v the move from the point where all hold with equality. With
slacks s = -C v >= 0 and multipliers lambda = G^{-1} l > 0 the density is

.. math:: e^{-\langle\lambda, s\rangle - s^\top G^{-1} s / 2} e^{-|w|^2 / 2},

where w is the part of v that changes no slack, a free normal. With 1 / kappa_i =
sum_j |G_ij|, G <= diag(1 / kappa). Proposals have the density e^{-lambda_i s_i -
kappa_i s_i^2 / 2}, a truncated normal for each slack. They are accepted with
probability e^{-(s' G^{-1} s - sum kappa_i s_i^2) / 2}, which is at most 1, and close to
1 if the mean is far from the corner. In the code s is ``slacks``, lambda ``rates``,
C = L times ``basis``, and L ``root``. No large numbers are subtracted, so the digits of
a draw do not depend on the distance of the mean.

If the mean is near the domain, the halfspace is better. Proposals from both have the
density of the same Gaussian on the domain, so after a few proposals both are used in
turn.
"""

import numpy as np
from numba import types

from dpsample.core.jit import generator, kernel, matrix, vector
from dpsample.domains import BODY
from dpsample.domains.domain import Body
from dpsample.domains.polytope import find_active, inner
from dpsample.numerics.vectors import (
    copy_into,
    multiply,
    multiply_rows,
    solve_lower,
    solve_upper,
)
from dpsample.regularizers import REGULARIZER
from dpsample.samplers.proximal.alternation import PLAN, ROW, SUPPORT
from dpsample.samplers.proximal.ball_gaussian import gaussian_in_ball, gaussian_in_box
from dpsample.samplers.proximal.lp_tilt import draw_lp
from dpsample.samplers.univariate.log_concave import FAR, tail_excess, truncated_normal

# Arguments: body, regularizer, plan, mean, support, vectors, rng, out.
DRAW = types.void(BODY, REGULARIZER, PLAN, vector, SUPPORT, matrix, generator, vector)
# Number of proposals in a halfspace before a corner is searched for.
HALFSPACE_PROPOSALS = 8


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def add_to_nearest_point(plan, mean, support, slack, change, vectors, out):
    """Finish a draw in a halfspace that is far from the mean.

    The distance from the halfspace is what was drawn: ``change`` is subtracted from the
    noise along the direction. The move is added to the nearest point of the halfspace.
    Added to the mean, which is far away, a short move would be lost in rounding errors.
    """
    dim, normal = mean.shape[0], support.normal
    noise, direction = vectors[ROW.noise], vectors[ROW.direction]
    square = np.dot(direction, direction)
    for j in range(dim):
        noise[j] -= change * direction[j] / np.sqrt(square)
    multiply(plan.factor, noise, out)
    multiply(plan.factor, direction, noise)
    # The halfspace is <normal, theta> <= offset, with a unit normal. The computed
    # nearest point is off by this rounding error.
    error = -support.status[0].offset
    for j in range(dim):
        noise[j] = mean[j] + slack / square * noise[j]
        error += normal[j] * noise[j]
    for j in range(dim):
        out[j] = (noise[j] - error * normal[j]) + plan.spread * out[j]


@kernel(counts_references=False)
def draw_in_halfspace(body, regularizer, plan, mean, support, vectors, rng, out):
    """Draw from the Gaussian, in the supporting halfspace if there is one.

    The coordinate of the noise along factor^T n, with n the normal, is a truncated
    normal. The others are free.
    """
    dim = mean.shape[0]
    noise, direction = vectors[ROW.noise], vectors[ROW.direction]
    for j in range(dim):
        noise[j] = rng.standard_normal()
    if support.status[0].has_halfspace:
        multiply_rows(support.normal, plan.factor, direction)
        size = np.sqrt(np.dot(direction, direction))
        slack = support.status[0].offset - np.dot(support.normal, mean)
        along = np.dot(direction, noise) / size
        limit = slack / (plan.spread * size)
        # `FAR` is 100 standard deviations of the Gaussian beyond the halfspace.
        if limit < -FAR:
            change = along + tail_excess(rng, -limit, np.inf)
            add_to_nearest_point(plan, mean, support, slack, change, vectors, out)
            return
        coordinate = truncated_normal(rng, -np.inf, limit)
        for j in range(dim):
            noise[j] += (coordinate - along) * direction[j] / size
    multiply(plan.factor, noise, out)
    for j in range(dim):
        out[j] = mean[j] + plan.spread * out[j]


@kernel(counts_references=False)
def add_facet(row, plan, count, basis, root):
    """Append a facet to C = root basis, unit normals in standard normal coordinates.

    Root is lower triangular, and basis has orthonormal rows. Return the length of the
    normal, or 0 if it depends on the others.
    """
    residual = basis[count]
    multiply_rows(row, plan.factor, residual)
    size = np.sqrt(np.dot(residual, residual))
    for j in range(residual.shape[0]):
        residual[j] /= size
    for m in range(count):
        root[count, m] = 0.0
    # Gram-Schmidt is repeated, because rounding errors of the first time would leave
    # nearly dependent rows that are not orthogonal.
    for _ in range(2):
        for m in range(count):
            part = np.dot(basis[m], residual)
            root[count, m] += part
            for j in range(residual.shape[0]):
                residual[j] -= part * basis[m, j]
    sine = np.sqrt(np.dot(residual, residual))
    root[count, count] = sine
    # A facet counts as independent of the others if its angle to them is larger.
    # Smaller ones would lose more than five digits.
    if not sine > 1e-5:
        return 0.0
    for j in range(residual.shape[0]):
        residual[j] /= sine
    return size


@kernel(counts_references=False)
def factor_facets(body, plan, mean, facets, basis, root, sizes, multipliers):
    """Factor C, fill in the multipliers, and return how many facets are independent."""
    count = sizes.shape[0]
    for k in range(count):
        row = facets[k]
        sizes[k] = add_facet(body.matrix[row], plan, k, basis, root)
        if sizes[k] == 0.0:
            return k
        distance = np.dot(body.matrix[row], mean) - body.bounds[row]
        multipliers[k] = distance / sizes[k]
    # lambda = G^{-1} l = L^{-T} L^{-1} l
    solve_lower(root, multipliers)
    solve_upper(root, multipliers)
    return count


@kernel
def find_corner(body, plan, mean, facets):
    """Fill in the facets that contain the P-projection of mean. Return their number.

    The draw is exact for any independent facets with positive multipliers. If rounding
    errors made a facet dependent or its multiplier negative, the facet is left out.
    """
    num_rows, dim = body.matrix.shape
    size = min(num_rows, dim) + 1
    active, multipliers = np.zeros(size, dtype=np.int64), np.zeros(size)
    rows, limits = np.empty((num_rows, dim)), np.empty(num_rows)
    for i in range(num_rows):
        multiply_rows(body.matrix[i], plan.factor, rows[i])
        limits[i] = body.bounds[i] - np.dot(body.matrix[i], mean)
    origin, basis, root = np.zeros(dim), np.empty((size, dim)), np.empty((size, size))
    point = np.empty(dim)
    # In standard normal coordinates about the mean the projection is Euclidean. The
    # polytope has no equalities there, so their number and tolerance are 0.
    bounds, shape = (body.center, body.lower, body.upper), (body.radius, body.p)
    transformed = Body(
        *bounds, rows, limits, *shape, 0, 0, 0.0, body.root, body.addresses
    )
    count = find_active(transformed, origin, point, active, multipliers)[1]
    for k in range(count):
        facets[k] = active[k]
    while count > 0:
        # The limits are not needed any more, so their memory holds the sizes.
        sizes, rates = limits[:count], multipliers[:count]
        worst = factor_facets(body, plan, mean, facets, basis, root, sizes, rates)
        if worst == count:
            worst = np.argmin(rates)
            if rates[worst] > 0.0:
                break
        count -= 1
        for k in range(worst, count):
            facets[k] = facets[k + 1]
    return count


@kernel(counts_references=False)
def draw_slacks(rng, rates, kappa, root, slacks, parts):
    """Propose slacks and parts = L^{-1} slacks. Return whether they are accepted."""
    lost = 0.0
    for k in range(rates.shape[0]):
        # In units of 1 / sqrt(kappa) a slack is the tail of a standard normal.
        width = np.sqrt(kappa[k])
        slacks[k] = tail_excess(rng, rates[k] / width, np.inf) / width
        parts[k] = slacks[k]
        for m in range(k):
            parts[k] -= root[k, m] * parts[m]
        parts[k] /= root[k, k]
        lost += 0.5 * (parts[k] * parts[k] - kappa[k] * slacks[k] * slacks[k])
    return rng.standard_exponential() >= lost


@kernel(counts_references=False)
def fill_kappa(root, kappa):
    """Fill in kappa, the reciprocal sums of absolute values of the rows of G."""
    count = kappa.shape[0]
    for k in range(count):
        total = 0.0
        for m in range(count):
            term = 0.0
            for j in range(min(k, m) + 1):
                term += root[k, j] * root[m, j]
            total += abs(term)
        kappa[k] = 1.0 / total


@kernel(counts_references=False)
def move_to_corner(body, plan, facets, basis, root, sizes, lengths, noise, out):
    """Move a point to the P-nearest point on all facets.

    The second move corrects the rounding errors of the first one, which may be long.
    """
    for _ in range(2):
        for k in range(sizes.shape[0]):
            row = facets[k]
            residual = body.bounds[row] - np.dot(body.matrix[row], out)
            lengths[k] = residual / sizes[k]
        solve_lower(root, lengths)
        for j in range(noise.shape[0]):
            noise[j] = 0.0
            for k in range(sizes.shape[0]):
                noise[j] += lengths[k] * basis[k, j]
        add_scaled(plan, noise, 1.0, out)


@kernel(counts_references=False)
def add_scaled(plan, move, scale, out):
    """Add scale times a move in standard normal coordinates to a point."""
    dim = out.shape[0]
    for i in range(dim):
        total = 0.0
        for j in range(dim):
            total += plan.factor[i, j] * move[j]
        out[i] += scale * total


@kernel(counts_references=False)
def pull_inside(body, facets, count, out):
    """Pull a point to the center until rounding errors no longer violate its facets."""
    k, pull = 0, 2.0**-52
    # Moves of at most 1e-12 of the way to the center undo rounding errors. A point that
    # is farther outside is left for the caller's test.
    while k < count and pull < 1e-12:
        row = facets[k]
        if inner(body.matrix[row], out) <= body.bounds[row]:
            k += 1
            continue
        for j in range(out.shape[0]):
            out[j] = body.center[j] + (1.0 - pull) * (out[j] - body.center[j])
        k, pull = 0, 2.0 * pull


@kernel
def draw_in_corner(body, plan, mean, facets, count, noise, rng, out):
    """Draw from the Gaussian in a corner.

    Return the mean, which is outside the domain, if too many slacks were rejected.
    """
    dim = mean.shape[0]
    basis, root = np.empty((count, dim)), np.empty((count, count))
    sizes, rates, kappa = np.empty(count), np.empty(count), np.empty(count)
    slacks, parts = np.empty(count), np.empty(count)
    copy_into(mean, out)
    factor_facets(body, plan, mean, facets, basis, root, sizes, rates)
    # Slacks and noise are in units of the spread, which multiplies them at the end.
    for k in range(count):
        rates[k] /= plan.spread
    fill_kappa(root, kappa)
    # A draw may reject 16 proposals of slacks, so that a call is short. The next draw
    # factors the facets again.
    for _ in range(16):
        if draw_slacks(rng, rates, kappa, root, slacks, parts):
            break
    else:
        return
    move_to_corner(body, plan, facets, basis, root, sizes, slacks, noise, out)
    # The component of the noise in the span of the normals is replaced by -L^{-1} s,
    # because s = -C v. So the sum of both is subtracted.
    for j in range(dim):
        noise[j] = rng.standard_normal()
    for k in range(count):
        parts[k] += np.dot(basis[k], noise)
        for j in range(dim):
            noise[j] -= parts[k] * basis[k, j]
    add_scaled(plan, noise, plan.spread, out)
    pull_inside(body, facets, count, out)


@kernel(counts_references=False)
def draw_in_polytope(body, regularizer, plan, mean, support, vectors, rng, out):
    """Draw in the halfspace, and after a few proposals in turn in the corner."""
    status, facets = support.status[0], support.facets
    num_draws = status.num_draws
    status.num_draws += 1
    if status.has_halfspace and num_draws >= HALFSPACE_PROPOSALS:
        if num_draws == HALFSPACE_PROPOSALS:
            status.num_facets = find_corner(body, plan, mean, facets)
        count = status.num_facets
        if count > 0 and num_draws % 2 == 0:
            draw_in_corner(
                body, plan, mean, facets, count, vectors[ROW.noise], rng, out
            )
            return
    draw_in_halfspace(body, regularizer, plan, mean, support, vectors, rng, out)


@kernel(counts_references=False)
def draw_in_ball(body, regularizer, plan, mean, support, vectors, rng, out):
    """Draw from the Gaussian in a Euclidean ball, with P proportional to I."""
    deviation = plan.spread * plan.factor[0, 0]
    gaussian_in_ball(rng, mean, deviation, body.center, body.radius, out)


@kernel(counts_references=False)
def draw_in_box(body, regularizer, plan, mean, support, vectors, rng, out):
    """Draw from the Gaussian in a box, with diagonal P."""
    deviations = vectors[ROW.noise]
    for j in range(mean.shape[0]):
        deviations[j] = plan.spread * plan.factor[j, j]
    gaussian_in_box(rng, mean, deviations, body.lower, body.upper, out)


@kernel(counts_references=False)
def draw_with_regularizer(body, regularizer, plan, mean, support, vectors, rng, out):
    """Draw from the Gaussian times e^{-psi}, with P ~ I and psi a squared l_q norm.

    The draw is in the domain if that is a box, or a ball about the regularizer's
    center. The caller tests whether it is in any other domain. Infinity says that the
    allowed number of proposals did not suffice. They are independent, so the next call
    goes on with others.
    """
    dim = mean.shape[0]
    radius = body.radius if np.isfinite(body.p) else np.inf
    for j in range(dim):
        if body.center[j] != regularizer.center[j]:
            radius = np.inf
    # The limit of proposals keeps one call to 200,000 coordinates, about 20 ms.
    num_proposals = draw_lp(
        rng,
        mean,
        plan.spread * plan.spread * plan.inverse[0, 0],
        plan.kappa,
        regularizer.exponent,
        regularizer.center,
        body.lower,
        body.upper,
        radius,
        body.p if np.isfinite(body.p) else 2.0,
        max(1, 200_000 // dim),
        out,
    )
    if num_proposals == -1:
        out[:] = np.inf
