# mypy: allow-untyped-defs
r"""Metrics in which the energy is 1-strongly convex, and the exact draw of each.

With P such that :math:`V - \frac12 x^\top P x` is convex on the domain, the strong
convexity in the norm of P is 1. A full P needs fewest steps; P proportional to I on a
ball, or diagonal on a box, allows a draw that never leaves the domain.

A draw is a piece: its density is proportional to the Gaussian N(mean, spread^2 P^{-1}),
times e^{-psi} where the regularizer is kept, on the domain or a set that contains it.
``normal`` holds a supporting halfspace: dim entries of a unit normal, its offset, and a
flag that is 1 when the halfspace is in use. On a polytope follow how often a point was
drawn, the number of faces that hold the P-projection of the mean, and their rows.

**Corners.** In coordinates in which the Gaussian is standard let C have the unit
normals of these faces as rows, G = C C^T = L L^T, l the distances of the mean behind
them, and v the move from the point where all hold with equality. With the slacks
s = -C v >= 0 and multipliers lambda = G^{-1} l > 0 the density is

.. math:: e^{-\langle\lambda, s\rangle - s^\top G^{-1} s / 2} e^{-|w|^2 / 2},

w the part of v that keeps all slacks, a free normal. G <= diag(1 / kappa) with 1 /
kappa_i = sum_j |G_ij|: proposals of the density e^{-lambda_i s_i - kappa_i s_i^2 / 2},
truncated normals, are kept with probability e^{-(s' G^{-1} s - sum kappa_i s_i^2) / 2},
at most 1. The deeper the corner, the nearer to 1 it is. Nothing large is subtracted.
A halfspace is best near the domain. Either gives proposals of the same Gaussian, which
is all that the test of a proposal asks for: from a few tries on they take turns.
"""

from dataclasses import dataclass, replace

import numpy as np
from numba import types

from dpsample.core.arrays import Array
from dpsample.core.jit import Pointer, generator, kernel, matrix, pointer, vector
from dpsample.core.spec import lazy_property
from dpsample.domains import BODY, Ball, Box, Domain, Polytope, WholeSpace
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
from dpsample.samplers.proximal.alternation import DIRECTION, NOISE, PLAN, ProximalPlan
from dpsample.samplers.proximal.restricted import (
    draw_lp,
    gaussian_in_ball,
    gaussian_in_box,
)
from dpsample.samplers.univariate.log_concave import FAR, tail_excess, truncated_normal
from dpsample.targets.gibbs import Gibbs, Target

# (body, regularizer, plan, mean, normal, scratch, rng, out)
DRAW = types.void(BODY, REGULARIZER, PLAN, vector, vector, matrix, generator, vector)
# Coordinates that one call of a draw by rejection may propose: about 20 ms.
MAX_COORDINATES = 200_000
# Draws behind a halfspace before a corner is looked for, and slacks of a corner that
# one draw may refuse: to factor the faces anew takes longer.
HALFSPACE_TRIES, CORNER_TRIES = 8, 16
# Sine of the angle between a face and the others from which on it is one of its own.
DEPENDENT = 1e-5
# Share of the way to the center that may stand for rounding errors.
EPSILON, MOST_PULL = 2.0**-52, 1e-12
# Lower bounds are lowered by this much, relative to the largest eigenvalue: it covers
# the rounding of the Gram matrix and of its eigenvectors.
EIGENVALUE_SLACK = 1e-11
TINY = 1e-300
MAX_STEP = 1e4
MAX_OVERSHOOT = 0.25  # see `ProximalMetric.steps`


@kernel(counts_references=False)
def behind(plan, mean, normal, room, change, scratch, out):
    """Finish a draw behind a halfspace far from the mean.

    What is drawn is the distance from the halfspace (``change`` is what is taken from
    the noise along the direction). It is added to the nearest point on it, in that
    point's own digits: next to the mean's it would be lost.
    """
    dim = mean.shape[0]
    noise, direction = scratch[NOISE], scratch[DIRECTION]
    square = np.dot(direction, direction)
    for j in range(dim):
        noise[j] -= change * direction[j] / np.sqrt(square)
    multiply(plan.factor, noise, out)
    multiply(plan.factor, direction, noise)
    above = -normal[dim]  # of the computed nearest point
    for j in range(dim):
        noise[j] = mean[j] + room / square * noise[j]
        above += normal[j] * noise[j]
    for j in range(dim):
        out[j] = (noise[j] - above * normal[j]) + plan.spread * out[j]


@kernel(counts_references=False)
def gaussian(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian, restricted to the supporting halfspace if there is one.

    The coordinate of the noise along factor^T n is a truncated normal, the rest free.
    """
    dim = mean.shape[0]
    noise, direction = scratch[NOISE], scratch[DIRECTION]
    for j in range(dim):
        noise[j] = rng.standard_normal()
    if normal[dim + 1] == 1.0:
        multiply_rows(normal[:dim], plan.factor, direction)
        size = np.sqrt(np.dot(direction, direction))
        room = normal[dim] - np.dot(normal[:dim], mean)
        along = np.dot(direction, noise) / size
        limit = room / (plan.spread * size)
        if limit < -FAR:
            excess = tail_excess(rng, -limit, np.inf)
            behind(plan, mean, normal, room, along + excess, scratch, out)
            return
        drawn = truncated_normal(rng, -np.inf, limit)
        for j in range(dim):
            noise[j] += (drawn - along) * direction[j] / size
    multiply(plan.factor, noise, out)
    for j in range(dim):
        out[j] = mean[j] + plan.spread * out[j]


@kernel(counts_references=False)
def add_face(row, plan, count, basis, root):
    """Append a face to root basis, unit normals in standard normal coordinates.

    Gram-Schmidt, twice: root is lower triangular, basis has orthonormal rows. Returns
    the length of the normal, or 0 if it depends on those before.
    """
    rest = basis[count]
    multiply_rows(row, plan.factor, rest)
    size = np.sqrt(np.dot(rest, rest))
    for j in range(rest.shape[0]):
        rest[j] /= size
    for m in range(count):
        root[count, m] = 0.0
    for _ in range(2):
        for m in range(count):
            part = np.dot(basis[m], rest)
            root[count, m] += part
            for j in range(rest.shape[0]):
                rest[j] -= part * basis[m, j]
    left = np.sqrt(np.dot(rest, rest))
    root[count, count] = left
    if not left > DEPENDENT:
        return 0.0
    for j in range(rest.shape[0]):
        rest[j] /= left
    return size


@kernel(counts_references=False)
def factor_faces(body, plan, mean, faces, basis, root, sizes, rates):
    """Factor faces, and fill in their multipliers; how many are independent."""
    count = sizes.shape[0]
    for k in range(count):
        row = int(faces[k])
        sizes[k] = add_face(body.matrix[row], plan, k, basis, root)
        if sizes[k] == 0.0:
            return k
        rates[k] = (np.dot(body.matrix[row], mean) - body.bounds[row]) / sizes[k]
    solve_lower(root, rates)
    solve_upper(root, rates)
    return count


@kernel
def find_corner(body, plan, mean, faces):
    """Fill in the faces that hold the P-projection of mean; how many they are.

    The draw is exact for any independent faces with positive multipliers: those that
    rounding has made others are left out.
    """
    num_rows, dim = body.matrix.shape
    room = min(num_rows, dim) + 1
    active, rates = np.zeros(room, dtype=np.int64), np.zeros(room)
    rows, limits = np.empty((num_rows, dim)), np.empty(num_rows)
    for i in range(num_rows):
        multiply_rows(body.matrix[i], plan.factor, rows[i])
        limits[i] = body.bounds[i] - np.dot(body.matrix[i], mean)
    origin, basis, root = np.zeros(dim), np.empty((room, dim)), np.empty((room, room))
    point = np.empty(dim)
    # In standard normal coordinates the projection is Euclidean.
    sides, others = (body.center, body.lower, body.upper), (body.radius, body.p)
    turned = Body(*sides, rows, limits, *others, 0, 0, 0.0)
    count = find_active(turned, origin, point, active, rates)[1]
    for k in range(count):
        faces[k] = active[k]
    while count > 0:
        sizes = limits[:count]  # no longer needed
        worst = factor_faces(body, plan, mean, faces, basis, root, sizes, rates[:count])
        if worst == count:
            worst = np.argmin(rates[:count])
            if rates[worst] > 0.0:
                break
        count -= 1
        for k in range(worst, count):
            faces[k] = faces[k + 1]
    return count


@kernel(counts_references=False)
def draw_slacks(rng, rates, shares, root, slacks, parts):
    """Draw slacks of a corner, and parts = L^{-1} slacks; whether they are kept."""
    cost = 0.0
    for k in range(rates.shape[0]):
        width = np.sqrt(shares[k])
        slacks[k] = tail_excess(rng, rates[k] / width, np.inf) / width
        parts[k] = slacks[k]
        for m in range(k):
            parts[k] -= root[k, m] * parts[m]
        parts[k] /= root[k, k]
        cost += 0.5 * (parts[k] * parts[k] - shares[k] * slacks[k] * slacks[k])
    return rng.standard_exponential() >= cost


@kernel(counts_references=False)
def fill_shares(root, shares):
    """Fill in kappa, of which G = root root^T is at most diag(1 / kappa)."""
    count = shares.shape[0]
    for k in range(count):
        total = 0.0
        for m in range(count):
            term = 0.0
            for j in range(min(k, m) + 1):
                term += root[k, j] * root[m, j]
            total += abs(term)
        shares[k] = 1.0 / total


@kernel(counts_references=False)
def move_to_corner(body, plan, faces, basis, root, sizes, lengths, noise, out):
    """Move a point to the P-nearest one on all faces, twice for its own digits."""
    for _ in range(2):
        for k in range(sizes.shape[0]):
            row = int(faces[k])
            rest = body.bounds[row] - np.dot(body.matrix[row], out)
            lengths[k] = rest / sizes[k]
        solve_lower(root, lengths)
        for j in range(noise.shape[0]):
            noise[j] = 0.0
            for k in range(sizes.shape[0]):
                noise[j] += lengths[k] * basis[k, j]
        add_scaled(plan, noise, 1.0, out)


@kernel(counts_references=False)
def add_scaled(plan, move, scale, out):
    """Add a move in standard normal coordinates to a point; the move is lost."""
    dim = out.shape[0]
    for i in range(dim):
        total = 0.0
        for j in range(dim):
            total += plan.factor[i, j] * move[j]
        out[i] += scale * total


@kernel(counts_references=False)
def settle_behind(body, faces, count, out):
    """Pull a point to the center over what rounding has left it before its faces."""
    k, pull = 0, EPSILON
    while k < count and pull < MOST_PULL:
        row = int(faces[k])
        if inner(body.matrix[row], out) <= body.bounds[row]:
            k += 1
            continue
        for j in range(out.shape[0]):
            out[j] = body.center[j] + (1.0 - pull) * (out[j] - body.center[j])
        k, pull = 0, 2.0 * pull


@kernel
def gaussian_corner(body, plan, mean, faces, count, noise, rng, out):
    """Gaussian behind faces; the mean, which is outside, if it was refused."""
    dim = mean.shape[0]
    basis, root = np.empty((count, dim)), np.empty((count, count))
    sizes, rates, shares = np.empty(count), np.empty(count), np.empty(count)
    slacks, parts = np.empty(count), np.empty(count)
    copy_into(mean, out)
    factor_faces(body, plan, mean, faces, basis, root, sizes, rates)
    for k in range(count):
        rates[k] /= plan.spread
    fill_shares(root, shares)
    for _ in range(CORNER_TRIES):
        if draw_slacks(rng, rates, shares, root, slacks, parts):
            break
    else:
        return
    move_to_corner(body, plan, faces, basis, root, sizes, slacks, noise, out)
    for j in range(dim):
        noise[j] = rng.standard_normal()
    for k in range(count):
        parts[k] += np.dot(basis[k], noise)
        for j in range(dim):
            noise[j] -= parts[k] * basis[k, j]
    add_scaled(plan, noise, plan.spread, out)
    settle_behind(body, faces, count, out)


@kernel(counts_references=False)
def gaussian_polytope(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian behind a halfspace, from a few tries on in turn with the corner."""
    dim = mean.shape[0]
    tries, faces = normal[dim + 2], normal[dim + 4 :]
    normal[dim + 2] += 1.0
    if normal[dim + 1] == 1.0 and tries >= HALFSPACE_TRIES:
        if tries == HALFSPACE_TRIES:
            normal[dim + 3] = find_corner(body, plan, mean, faces)
        count = int(normal[dim + 3])
        if count > 0 and tries % 2 == 0:
            gaussian_corner(body, plan, mean, faces, count, scratch[NOISE], rng, out)
            return
    gaussian(body, regularizer, plan, mean, normal, scratch, rng, out)


@kernel(counts_references=False)
def gaussian_ball(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian with P proportional to I, restricted to a Euclidean ball."""
    deviation = plan.spread * plan.factor[0, 0]
    gaussian_in_ball(rng, mean, deviation, body.center, body.radius, out)


@kernel(counts_references=False)
def gaussian_box(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian with diagonal P, restricted to a box."""
    deviations = scratch[NOISE]
    for j in range(mean.shape[0]):
        deviations[j] = plan.spread * plan.factor[j, j]
    gaussian_in_box(rng, mean, deviations, body.lower, body.upper, out)


@kernel(counts_references=False)
def separable(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian with P proportional to I times e^{-psi}, psi a squared l_q norm.

    A ball about the regularizer's center and a box are kept exactly; any other domain
    is left to the caller's test. Infinity says that the allowed tries did not suffice:
    they are independent, so the next call goes on with them.
    """
    dim = mean.shape[0]
    radius = body.radius if np.isfinite(body.p) else np.inf
    for j in range(dim):
        if body.center[j] != regularizer.center[j]:
            radius = np.inf
    tries = draw_lp(
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
    if tries == -1:
        out[:] = np.inf


@dataclass(frozen=True, kw_only=True)
class ProximalMetric:
    """One valid choice of P with its exact draw."""

    name: str
    precision: Array
    upper: Array | None  # bound of the Hessian of the linearized part U
    draw: Pointer
    halfspace: int = 0
    reach: float = 0.0
    tangent: float = 1.0
    keeps_regularizer: bool = False
    kappa: float = 0.0
    kept: float = 0.0
    draw_cost: float = 0.0
    has_corners: bool = False  # which `cornered` draws in, at once

    @property
    def dim(self) -> int:
        """Dimension of the domain."""
        return len(self.precision)

    def cornered(self) -> "ProximalMetric":
        """With draws in corners, which are compiled for those that need them."""
        return replace(self, draw=pointer(gaussian_polytope, DRAW), has_corners=False)

    def numbers(self, target: Gibbs) -> Target:
        """Numbers of the linearized part U of the energy."""
        if self.keeps_regularizer:
            return target.numbers._replace(mu=0.0)
        return target.numbers

    @lazy_property
    def parts(self) -> dict[str, Array]:
        """Matrices of a plan, which no step changes: eigenvectors take seconds."""
        diagonal = np.diag(self.precision).copy()
        if np.any(self.precision - np.diag(diagonal)):
            eigenvalues, basis = np.linalg.eigh(self.precision)
            factor = np.ascontiguousarray(basis / np.sqrt(eigenvalues))
            inverse = np.ascontiguousarray((basis / eigenvalues) @ basis.T)
        else:
            eigenvalues, basis = diagonal, np.eye(self.dim)
            factor, inverse = np.diag(1.0 / np.sqrt(diagonal)), np.diag(1.0 / diagonal)
        excess = np.zeros_like(self.precision)
        if self.upper is not None:
            excess = self.upper - self.tangent * self.precision
        return {
            "inverse": inverse,
            "factor": factor,
            "basis": np.ascontiguousarray(basis),
            "eigenvalues": eigenvalues,
            "excess": np.ascontiguousarray(excess),
        }

    @lazy_property
    def gaps(self) -> Array:
        """Eigenvalues of ``excess`` in the metric, if there is an upper bound."""
        assert self.upper is not None
        excess = self.upper - self.tangent * self.precision
        return np.asarray(
            np.linalg.eigvals(np.linalg.solve(self.precision, excess)).real
        )

    @property
    def first_gap(self) -> float:
        """Mean gap at the pilot's first step, about."""
        if self.upper is None:
            return 0.5
        return 0.5 * self.steps()[0] * float(self.gaps.sum())

    def plan(self, step: float, *, squeeze: bool = True) -> ProximalPlan:
        """Numbers for the kernel at a given step."""
        return ProximalPlan(
            step=float(step),
            tangent=float(self.tangent),
            spread=float(np.sqrt(step / (1.0 + self.tangent * step))),
            kappa=float(self.kappa),
            kept=float(self.kept),
            reach=float(self.reach),
            halfspace=int(self.halfspace),
            squeeze=int(squeeze and self.upper is not None),
            precision=self.precision,
            **self.parts,
        )

    def steps(self) -> tuple[float, float]:
        """Where the pilot starts, and the longest step it may try.

        It starts where the mean gap is about a half. Far out, at y, the envelope's mean
        overshoots by up to (h / (1 + t h)) Lambda ||y - x*||_P, Lambda the largest
        curvature of U; while (h / (1 + t h))^2 (Lambda - t) Lambda (1 + h Lambda) is
        well below 1 the expected number of tries, the mean of e^gap, is finite.
        """
        if self.upper is None:
            return 1.0 / self.dim, MAX_STEP
        gap, tangent = max(float(self.gaps.max()), 1e-12), self.tangent

        def overshoot(step: float) -> float:
            moved, curvature = step / (1.0 + tangent * step), gap + tangent
            return moved**2 * gap * curvature * (1.0 + step * curvature)

        longest = MAX_STEP
        while overshoot(longest) > MAX_OVERSHOOT:
            longest *= 0.9
        return min(1.0 / max(float(self.gaps.sum()), 1e-3), longest), longest


def _lowered(from_risk: Array, ridge: float) -> Array:
    """P = risk + ridge I minus its rounding errors; symmetric and positive definite.

    Any share of the risk's part is as valid as all of it: one that rounding errors
    leave below the ridge, if all is too much. Only without a ridge P may be refused.
    """
    risk = 0.5 * (from_risk + from_risk.T)
    eye, largest = np.eye(len(risk)), float(np.linalg.eigvalsh(risk)[-1])
    share = min(1.0, 0.1 * ridge / max(EIGENVALUE_SLACK * largest, TINY))
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
    """Bounds of k times the Hessian of F on the domain (upper None if infinite)."""
    problem, dim = target.problem, target.dim
    lower_margin, upper_margin = target.margin_intervals()
    low, high = problem.loss.curvature(lower_margin, upper_margin, target.data.response)
    lower = np.zeros((dim, dim))
    if use_data and np.any(low > 0.0):
        lower = target.k * curvature_matrix(target.data, low)
        if not np.isfinite(lower).all():  # too large for numbers: left out
            lower = np.zeros((dim, dim))
    upper = None
    if np.isfinite(high).all():
        upper = target.k * curvature_matrix(target.data, high)
        upper += EIGENVALUE_SLACK * np.trace(upper) * np.eye(dim)
    return lower, upper


def is_flat(domain: Domain, dim: int) -> bool:
    """Whether the domain has no interior."""
    return domain.affine_dim(dim) < dim


def require_room(domain: Domain, dim: int, draws: str, remedy: str) -> None:
    """Refuse a domain without an interior, or on which exact draws may take forever."""
    if is_flat(domain, dim):
        raise NoCertificate(
            f"The {domain.name} has no interior: {draws} draws need a full-dimensional "
            f"domain. {remedy}"
        )
    if not (domain.is_bounded or isinstance(domain, WholeSpace)):
        raise NoCertificate(
            f"The {domain.name} is unbounded: exact draws need a bounded domain or the "
            "whole space. Add inequalities that hold anyway."
        )


def candidates(target: Gibbs, *, oracle: str) -> list[ProximalMetric]:
    """All metrics that are valid for the target, in no particular order.

    ``oracle="tangent"`` ignores the curvature of the data. Raises `NoCertificate` if
    the energy is not strongly convex, or the domain has no interior.
    """
    domain, dim = target.problem.domain, target.dim
    require_room(domain, dim, "certified", "Use a WholeSpace, Ball or Box domain.")
    risk_low, risk_high = _hessian_bounds(target, oracle == "metric")
    reg_low, reg_high = target.regularizer.curvature_l2(dim)
    weight = target.k * target.mu
    low = _lowered(risk_low, weight * reg_low)
    reg_high = weight * reg_high if weight > 0.0 else 0.0
    if np.isfinite(reg_high):
        high = None if risk_high is None else risk_high + reg_high * np.eye(dim)
        return _gaussian_metrics(domain, low, high)
    if _is_separable(target):
        # Tangents to a regularizer of unbounded curvature would be refused for long.
        return [_separable_metric(target, risk_low, risk_high, weight * reg_low)]
    return _gaussian_metrics(domain, low, None)


def _is_separable(target: Gibbs) -> bool:
    """Whether the draw can keep regularizer and domain, without plain rejection.

    Rejection from the whole space needs an infinite expected number of tries: the mean
    over y of 1 / P(inside | y) is an integral of 1 over all y.
    """
    domain, dim = target.problem.domain, target.dim
    centered = np.array_equal(
        domain.default_center(dim), target.numbers.regularizer.center
    )
    is_ball = isinstance(domain, Ball) and centered
    is_kept = isinstance(domain, WholeSpace) or is_box(domain) or is_ball
    return isinstance(target.regularizer, SquaredNorm) and is_kept


def is_box(domain: Domain) -> bool:
    """Whether the sides of the domain's body are all of it."""
    if isinstance(domain, Polytope):
        return domain.box is not None
    return isinstance(domain, Box) or (isinstance(domain, Ball) and np.isinf(domain.p))


def _gaussian_metrics(
    domain: Domain, low: Array, high: Array | None
) -> list[ProximalMetric]:
    dim = len(low)
    is_ball = isinstance(domain, Ball) and domain.p == 2.0
    halfspace = 0 if isinstance(domain, WholeSpace) else (2 if is_ball else 1)
    reach = 0.0
    if halfspace == 1:
        reach = domain.max_norm(2.0, domain.default_center(dim), dim)
    full = ProximalMetric(
        name="full",
        precision=low,
        upper=high,
        draw=pointer(gaussian, DRAW),
        has_corners=isinstance(domain, Polytope) and not is_box(domain),
        halfspace=halfspace,
        reach=reach,
        draw_cost=2.0 * dim * dim + 20.0 * dim,
    )
    if is_ball:
        smallest = float(np.linalg.eigvalsh(low)[0]) * (1.0 - EIGENVALUE_SLACK)
        inner = ProximalMetric(
            name="isotropic",
            precision=smallest * np.eye(dim),
            upper=high,
            draw=pointer(gaussian_ball, DRAW),
            draw_cost=20.0 * dim + 500.0,
        )
        return [full, inner]
    if is_box(domain):
        root = np.sqrt(np.diag(low))
        share = float(np.linalg.eigvalsh(low / np.outer(root, root))[0])
        inner = ProximalMetric(
            name="diagonal",
            precision=np.diag((1.0 - 1e-9) * share * root**2),
            upper=high,
            draw=pointer(gaussian_box, DRAW),
            draw_cost=60.0 * dim,
        )
        return [full, inner]
    return [full]


def _separable_metric(
    target: Gibbs, risk_low: Array, risk_high: Array | None, from_regularizer: float
) -> ProximalMetric:
    """P proportional to I; the regularizer stays exactly in the draw."""
    dim = len(risk_low)
    smallest = float(np.linalg.eigvalsh(risk_low)[0])
    from_risk = max(0.0, smallest - EIGENVALUE_SLACK * float(np.trace(risk_low)))
    total = from_regularizer + from_risk
    return ProximalMetric(
        name="separable",
        precision=total * np.eye(dim),
        upper=risk_high,
        draw=pointer(separable, DRAW),
        tangent=from_risk / total,
        keeps_regularizer=True,
        kappa=target.k * target.mu * target.numbers.regularizer.scale,
        kept=target.k * target.mu,
        draw_cost=1000.0 * dim,
    )
