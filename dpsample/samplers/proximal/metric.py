# mypy: allow-untyped-defs
r"""Metrics in which the energy is 1-strongly convex, and the exact draw of each.

With P such that :math:`V - \frac12 x^\top P x` is convex on the domain, the strong
convexity in the norm of P is 1. A full matrix P needs fewest steps of the chain of
`alternation`. If P is proportional to I on a ball, or diagonal on a box, there are
draws that are always inside the domain.

A draw is a compiled function. Its density is the Gaussian N(mean, spread^2 P^{-1}),
restricted to the domain or a set that contains it, and times e^{-psi} if the draw has
the factor of the regularizer exactly. Such a set is a halfspace that contains the
domain but not the mean, or on a polytope a corner: the intersection of the facets that
contain the P-projection of the mean. `Support` holds both.

**Corners.** In coordinates in which the Gaussian is standard let C have the unit
normals of these facets as rows, G = C C^T = L L^T, l the distances of the mean behind
them, and v the move from the point where all hold with equality. With the slacks
s = -C v >= 0 and multipliers lambda = G^{-1} l > 0 the density is

.. math:: e^{-\langle\lambda, s\rangle - s^\top G^{-1} s / 2} e^{-|w|^2 / 2},

where w is the part of v that changes no slack, a free normal. With 1 / kappa_i =
sum_j |G_ij|, G <= diag(1 / kappa). Proposals have the density e^{-lambda_i s_i -
kappa_i s_i^2 / 2}, a truncated normal for each slack. They are accepted with
probability e^{-(s' G^{-1} s - sum kappa_i s_i^2) / 2}, which is at most 1, and close to
1 if the mean is far from the corner. No large numbers are subtracted.

If the mean is near the domain, the halfspace is better. Proposals from both have the
density of the same Gaussian on the domain, so after a few proposals both are used in
turn.
"""

from dataclasses import dataclass, replace

import numpy as np
from numba import types

from dpsample.core.arrays import Array
from dpsample.core.jit import Pointer, generator, kernel, matrix, pointer, vector
from dpsample.core.spec import lazy_property
from dpsample.domains import BODY, Domain
from dpsample.domains.domain import Body
from dpsample.domains.polytope import find_active, inner
from dpsample.numerics.vectors import (
    copy_into,
    multiply,
    multiply_rows,
    solve_lower,
    solve_upper,
)
from dpsample.problem.records import curvature_matrix
from dpsample.regularizers import REGULARIZER, SquaredNorm
from dpsample.samplers.errors import NoCertificate
from dpsample.samplers.proximal.alternation import (
    BALL_HALFSPACE,
    DIRECTION,
    NO_HALFSPACE,
    NOISE,
    PLAN,
    PROJECTED_HALFSPACE,
    SUPPORT,
    ProximalPlan,
)
from dpsample.samplers.proximal.ball_gaussian import gaussian_in_ball, gaussian_in_box
from dpsample.samplers.proximal.lp_tilt import draw_lp
from dpsample.samplers.univariate.log_concave import FAR, tail_excess, truncated_normal
from dpsample.targets.gibbs import Gibbs, Target

# Arguments: body, regularizer, plan, mean, support, scratch, rng, out.
DRAW = types.void(BODY, REGULARIZER, PLAN, vector, SUPPORT, matrix, generator, vector)
# Coordinates that one call of a draw by rejection may propose, which takes about 20 ms.
MAX_COORDINATES = 200_000
# Number of proposals in a halfspace before a corner is searched for.
HALFSPACE_PROPOSALS = 8
# Slacks of a corner that one draw may reject. The next draw factors the facets again.
CORNER_PROPOSALS = 16
# A facet is independent of others if the sine of its angle to them is larger.
MIN_SINE = 1e-5
# A point may be moved by this share of the way to the center to undo rounding errors.
MAX_PULL = 1e-12
# Lower bounds of eigenvalues are reduced by this share of the largest eigenvalue, for
# the rounding errors of the Gram matrix and of its eigenvectors.
EIGENVALUE_SLACK = 1e-11
MAX_STEP = 1e4
# Limit of `ProximalMetric.steps`.
MAX_OVERSHOOT = 0.25


@kernel(counts_references=False)
def add_to_nearest_point(plan, mean, support, slack, change, scratch, out):
    """Finish a draw in a halfspace that is far from the mean.

    The distance from the halfspace is what was drawn: ``change`` is subtracted from the
    noise along the direction. The move is added to the nearest point of the halfspace.
    Added to the mean, it would be lost in the mean's rounding errors.
    """
    dim, normal = mean.shape[0], support.normal
    noise, direction = scratch[NOISE], scratch[DIRECTION]
    square = np.dot(direction, direction)
    for j in range(dim):
        noise[j] -= change * direction[j] / np.sqrt(square)
    multiply(plan.factor, noise, out)
    multiply(plan.factor, direction, noise)
    # The computed nearest point is outside by this rounding error.
    error = -support.status[0].offset
    for j in range(dim):
        noise[j] = mean[j] + slack / square * noise[j]
        error += normal[j] * noise[j]
    for j in range(dim):
        out[j] = (noise[j] - error * normal[j]) + plan.spread * out[j]


@kernel(counts_references=False)
def draw_in_halfspace(body, regularizer, plan, mean, support, scratch, rng, out):
    """Draw from the Gaussian, in the supporting halfspace if there is one.

    The coordinate of the noise along factor^T n, with n the normal, is a truncated
    normal. The others are free.
    """
    dim = mean.shape[0]
    noise, direction = scratch[NOISE], scratch[DIRECTION]
    for j in range(dim):
        noise[j] = rng.standard_normal()
    if support.status[0].has_halfspace:
        multiply_rows(support.normal, plan.factor, direction)
        size = np.sqrt(np.dot(direction, direction))
        slack = support.status[0].offset - np.dot(support.normal, mean)
        along = np.dot(direction, noise) / size
        limit = slack / (plan.spread * size)
        if limit < -FAR:
            change = along + tail_excess(rng, -limit, np.inf)
            add_to_nearest_point(plan, mean, support, slack, change, scratch, out)
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
    if not sine > MIN_SINE:
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
    # In standard normal coordinates about the mean the projection is Euclidean.
    bounds, shape = (body.center, body.lower, body.upper), (body.radius, body.p)
    transformed = Body(*bounds, rows, limits, *shape, 0, 0, 0.0)
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
    while k < count and pull < MAX_PULL:
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
    for k in range(count):
        rates[k] /= plan.spread
    fill_kappa(root, kappa)
    for _ in range(CORNER_PROPOSALS):
        if draw_slacks(rng, rates, kappa, root, slacks, parts):
            break
    else:
        return
    move_to_corner(body, plan, facets, basis, root, sizes, slacks, noise, out)
    # The component of the noise in the span of the normals is replaced by the slacks.
    for j in range(dim):
        noise[j] = rng.standard_normal()
    for k in range(count):
        parts[k] += np.dot(basis[k], noise)
        for j in range(dim):
            noise[j] -= parts[k] * basis[k, j]
    add_scaled(plan, noise, plan.spread, out)
    pull_inside(body, facets, count, out)


@kernel(counts_references=False)
def draw_in_polytope(body, regularizer, plan, mean, support, scratch, rng, out):
    """Draw in the halfspace, and after a few proposals in turn in the corner."""
    status, facets = support.status[0], support.facets
    num_draws = status.num_draws
    status.num_draws += 1
    if status.has_halfspace and num_draws >= HALFSPACE_PROPOSALS:
        if num_draws == HALFSPACE_PROPOSALS:
            status.num_facets = find_corner(body, plan, mean, facets)
        count = status.num_facets
        if count > 0 and num_draws % 2 == 0:
            draw_in_corner(body, plan, mean, facets, count, scratch[NOISE], rng, out)
            return
    draw_in_halfspace(body, regularizer, plan, mean, support, scratch, rng, out)


@kernel(counts_references=False)
def draw_in_ball(body, regularizer, plan, mean, support, scratch, rng, out):
    """Draw from the Gaussian in a Euclidean ball, with P proportional to I."""
    deviation = plan.spread * plan.factor[0, 0]
    gaussian_in_ball(rng, mean, deviation, body.center, body.radius, out)


@kernel(counts_references=False)
def draw_in_box(body, regularizer, plan, mean, support, scratch, rng, out):
    """Draw from the Gaussian in a box, with diagonal P."""
    deviations = scratch[NOISE]
    for j in range(mean.shape[0]):
        deviations[j] = plan.spread * plan.factor[j, j]
    gaussian_in_box(rng, mean, deviations, body.lower, body.upper, out)


@kernel(counts_references=False)
def draw_with_regularizer(body, regularizer, plan, mean, support, scratch, rng, out):
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
        max(1, MAX_COORDINATES // dim),
        out,
    )
    if num_proposals == -1:
        out[:] = np.inf


@dataclass(frozen=True, kw_only=True)
class ProximalMetric:
    """A valid choice of P with its exact draw. Fields not explained are a plan's."""

    name: str
    precision: Array  # P
    upper: Array | None  # bound of the Hessian of U
    draw: Pointer
    halfspace: int = NO_HALFSPACE
    max_distance: float = 0.0
    tangent: float = 1.0
    keeps_regularizer: bool = False  # the draw has its factor, which is not part of U
    kappa: float = 0.0
    kept_weight: float = 0.0
    draw_cost: float = 0.0  # multiply-adds of a draw, roughly
    has_corners: bool = False  # whether draws in corners are possible, but not used yet

    @property
    def dim(self) -> int:
        """Dimension of the domain."""
        return len(self.precision)

    def with_corners(self) -> "ProximalMetric":
        """Return a copy that draws in corners, too. This compiles another function."""
        return replace(self, draw=pointer(draw_in_polytope, DRAW), has_corners=False)

    def numbers(self, target: Gibbs) -> Target:
        """Return the numbers of U, the part of the energy that has tangents."""
        if self.keeps_regularizer:
            return target.numbers._replace(mu=0.0)
        return target.numbers

    @lazy_property
    def matrices(self) -> dict[str, Array]:
        """Matrices of all plans, computed once, because that may take seconds."""
        diagonal = np.diag(self.precision).copy()
        if np.any(self.precision - np.diag(diagonal)):
            eigenvalues, basis = np.linalg.eigh(self.precision)
            factor = np.ascontiguousarray(basis / np.sqrt(eigenvalues))
            inverse = np.ascontiguousarray((basis / eigenvalues) @ basis.T)
        else:
            eigenvalues, basis = diagonal, np.eye(self.dim)
            factor, inverse = np.diag(1.0 / np.sqrt(diagonal)), np.diag(1.0 / diagonal)
        gap_curvature = np.zeros_like(self.precision)
        if self.upper is not None:
            gap_curvature = self.upper - self.tangent * self.precision
        return {
            "inverse": inverse,
            "factor": factor,
            "basis": np.ascontiguousarray(basis),
            "eigenvalues": eigenvalues,
            "gap_curvature": np.ascontiguousarray(gap_curvature),
        }

    @lazy_property
    def gap_eigenvalues(self) -> Array:
        """Eigenvalues of the gap's curvature in the metric, given an upper bound."""
        assert self.upper is not None
        curvature = self.upper - self.tangent * self.precision
        return np.asarray(
            np.linalg.eigvals(np.linalg.solve(self.precision, curvature)).real
        )

    @property
    def first_gap(self) -> float:
        """Approximate mean gap at the pilot's first step."""
        if self.upper is None:
            return 0.5
        return 0.5 * self.pilot_steps()[0] * float(self.gap_eigenvalues.sum())

    def plan(self, step: float, *, squeeze: bool = True) -> ProximalPlan:
        """Return the numbers of the kernel for a step."""
        return ProximalPlan(
            step=float(step),
            tangent=float(self.tangent),
            spread=float(np.sqrt(step / (1.0 + self.tangent * step))),
            kappa=float(self.kappa),
            kept_weight=float(self.kept_weight),
            max_distance=float(self.max_distance),
            halfspace=int(self.halfspace),
            squeeze=int(squeeze and self.upper is not None),
            precision=self.precision,
            **self.matrices,
        )

    def pilot_steps(self) -> tuple[float, float]:
        """Return the first step of the pilot run, and the longest possible one.

        At the first step the mean gap is about a half. If y is at a large distance, the
        envelope's mean overshoots by at most (h / (1 + t h)) Lambda ||y - x*||_P. Here
        t is the curvature ``tangent``, Lambda the largest curvature of U and x* its
        minimizer. If (h / (1 + t h))^2 (Lambda - t) Lambda (1 + h Lambda) is well below
        1, the expected number of proposals, the mean of e^gap, is finite.
        """
        if self.upper is None:
            return 1.0 / self.dim, MAX_STEP
        gap, tangent = max(float(self.gap_eigenvalues.max()), 1e-12), self.tangent

        def overshoot(step: float) -> float:
            weight, curvature = step / (1.0 + tangent * step), gap + tangent
            return weight**2 * gap * curvature * (1.0 + step * curvature)

        max_step = MAX_STEP
        while overshoot(max_step) > MAX_OVERSHOOT:
            max_step *= 0.9
        first_step = 1.0 / max(float(self.gap_eigenvalues.sum()), 1e-3)
        return min(first_step, max_step), max_step


def _lower_bound_matrix(risk_bound: Array, ridge: float) -> Array:
    """Return P = risk + ridge I minus its rounding errors, symmetric and positive.

    The risk's part may be replaced by any share of it. If it is so large that its
    rounding errors exceed the ridge, a smaller share is taken. So this fails only
    without a ridge.
    """
    risk = 0.5 * (risk_bound + risk_bound.T)
    eye, largest = np.eye(len(risk)), float(np.linalg.eigvalsh(risk)[-1])
    share = min(1.0, 0.1 * ridge / max(EIGENVALUE_SLACK * largest, 1e-300))
    for symmetric in (risk + ridge * eye, share * risk + ridge * eye):
        eigenvalues = np.linalg.eigvalsh(symmetric)
        slack = EIGENVALUE_SLACK * eigenvalues[-1]
        if eigenvalues[0] > 2.0 * slack:
            break
    else:
        raise NoCertificate(
            "The energy has no strong convexity on the domain, so no number of steps "
            "is proved to suffice: give the regularizer a weight mu > 0."
        )
    return np.asarray(symmetric - slack * eye)


def _hessian_bounds(target: Gibbs, use_data: bool) -> tuple[Array, Array | None]:
    """Return bounds of k times the Hessian of F on the domain.

    The upper bound is None if it is infinite.
    """
    problem, dim = target.problem, target.dim
    lower_margin, upper_margin = target.margin_intervals()
    low, high = problem.loss.curvature(lower_margin, upper_margin, target.data.response)
    lower = np.zeros((dim, dim))
    if use_data and np.any(low > 0.0):
        lower = target.k * curvature_matrix(target.data, low)
        # If the sums overflow, 0 is a valid bound.
        if not np.isfinite(lower).all():
            lower = np.zeros((dim, dim))
    upper = None
    if np.isfinite(high).all():
        upper = target.k * curvature_matrix(target.data, high)
        upper += EIGENVALUE_SLACK * np.trace(upper) * np.eye(dim)
    return lower, upper


def is_flat(domain: Domain, dim: int) -> bool:
    """Return whether the domain has no interior."""
    return domain.affine_dim(dim) < dim


def require_interior(domain: Domain, dim: int, draws: str, remedy: str) -> None:
    """Raise for a domain without interior, or on which draws may take forever."""
    if is_flat(domain, dim):
        raise NoCertificate(
            f"The {domain.name} has no interior: {draws} draws need a full-dimensional "
            f"domain. {remedy}"
        )
    if not (domain.is_bounded or domain.is_whole_space):
        raise NoCertificate(
            f"The {domain.name} is unbounded: exact draws need a bounded domain or the "
            "whole space. Add inequalities that hold anyway."
        )


def candidates(target: Gibbs, *, oracle: str) -> list[ProximalMetric]:
    """Return all metrics that are valid for the target, in no particular order.

    Only ``oracle="metric"`` includes the curvature of the data in the lower bound. If
    the energy is not strongly convex, or the domain has no interior, `NoCertificate` is
    raised.
    """
    domain, dim = target.problem.domain, target.dim
    require_interior(domain, dim, "certified", "Use a WholeSpace, Ball or Box domain.")
    risk_low, risk_high = _hessian_bounds(target, oracle == "metric")
    reg_low, reg_high = target.regularizer.curvature_l2(dim)
    weight = target.k * target.mu
    low = _lower_bound_matrix(risk_low, weight * reg_low)
    reg_high = weight * reg_high if weight > 0.0 else 0.0
    if np.isfinite(reg_high):
        high = None if risk_high is None else risk_high + reg_high * np.eye(dim)
        return _gaussian_metrics(domain, low, high)
    if _is_separable(target):
        # A proposal from the tangent of a regularizer of unbounded curvature would be
        # rejected for long.
        return [_separable_metric(target, risk_low, risk_high, weight * reg_low)]
    return _gaussian_metrics(domain, low, None)


def _is_separable(target: Gibbs) -> bool:
    """Return whether draws with the regularizer's factor are inside the domain.

    Rejection from the whole space would need an infinite expected number of proposals,
    because the mean over y of 1 / P(inside | y) is an integral of 1 over all y.
    """
    domain, dim = target.problem.domain, target.dim
    is_centered = np.array_equal(
        domain.default_center(dim), target.numbers.regularizer.center
    )
    is_ball = domain.lp_exponent is not None and is_centered
    is_inside = domain.is_whole_space or domain.is_product or is_ball
    return isinstance(target.regularizer, SquaredNorm) and is_inside


def _gaussian_metrics(
    domain: Domain, low: Array, high: Array | None
) -> list[ProximalMetric]:
    """Return the full metric, and the one whose draws are inside if there is one."""
    dim = len(low)
    is_ball = domain.lp_exponent == 2.0
    halfspace, max_distance = NO_HALFSPACE, 0.0
    if is_ball:
        halfspace = BALL_HALFSPACE
    elif not domain.is_whole_space:
        halfspace = PROJECTED_HALFSPACE
        max_distance = domain.max_norm(2.0, domain.default_center(dim), dim)
    full = ProximalMetric(
        name="full",
        precision=low,
        upper=high,
        draw=pointer(draw_in_halfspace, DRAW),
        has_corners=domain.is_polytope and not domain.is_product,
        halfspace=halfspace,
        max_distance=max_distance,
        draw_cost=2.0 * dim * dim + 20.0 * dim,
    )
    if is_ball:
        smallest = float(np.linalg.eigvalsh(low)[0]) * (1.0 - EIGENVALUE_SLACK)
        inner = ProximalMetric(
            name="isotropic",
            precision=smallest * np.eye(dim),
            upper=high,
            draw=pointer(draw_in_ball, DRAW),
            draw_cost=20.0 * dim + 500.0,
        )
        return [full, inner]
    if domain.is_product:
        # The largest diagonal matrix below P of the form share * diag(P).
        root = np.sqrt(np.diag(low))
        share = float(np.linalg.eigvalsh(low / np.outer(root, root))[0])
        inner = ProximalMetric(
            name="diagonal",
            precision=np.diag((1.0 - 1e-9) * share * root**2),
            upper=high,
            draw=pointer(draw_in_box, DRAW),
            draw_cost=60.0 * dim,
        )
        return [full, inner]
    return [full]


def _separable_metric(
    target: Gibbs, risk_low: Array, risk_high: Array | None, ridge: float
) -> ProximalMetric:
    """Return P proportional to I, with the regularizer's factor in the draw."""
    dim = len(risk_low)
    smallest = float(np.linalg.eigvalsh(risk_low)[0])
    risk_share = max(0.0, smallest - EIGENVALUE_SLACK * float(np.trace(risk_low)))
    total = ridge + risk_share
    return ProximalMetric(
        name="separable",
        precision=total * np.eye(dim),
        upper=risk_high,
        draw=pointer(draw_with_regularizer, DRAW),
        tangent=risk_share / total,
        keeps_regularizer=True,
        kappa=target.k * target.mu * target.numbers.regularizer.scale,
        kept_weight=target.k * target.mu,
        draw_cost=1000.0 * dim,
    )
