r"""Branches of proposals that together cover a body, with proved constants.

The energy V is k times the mean loss, plus k mu r with a regularizer r. x0 is a point,
w = x - x0, g the gradient of V at x0 and B(w) = V(x0 + w) - V(x0) - <g, w>. P = R R^T
is any positive definite matrix, and the *ellipsoid* is \|w\|_P <= rho. Within it each
record's margin moves by at most h_i = rho \|a_i\|_{P^{-1}}. Let c_i^B and c_i^S bound
the Bregman and the secant curvature for such moves from below (see
`dpsample.samplers.localized.region`). M^x is the sum of (k/n) c_i^x a_i a_i^T and k mu
times the identity, and theta_x P <= M^x. These are the names in the code:

=============================  ========================================================
x0, g                          ``mode.point``, ``facts.gradient``
R, R^{-T}                      ``Shape.metric_root``, ``Shape.back``
rho; lo, hi                    ``radius``; ``inner`` and ``outer`` of a shell
M^B, M^S                       ``Shape.lowered_gram`` of "bregman" and "secant"
theta_B, theta_S               ``theta_bregman``, ``theta_secant``
alpha, tau                     ``QuadraticBound.level`` (by `shell_level`), ``tau``
b, H; m, F                     ``slope``, ``matrix`` of a bound; ``shift``, ``root``
=============================  ========================================================

The *mass* of a quadratic bound q is the integral of e^-q, to which the expected number
of proposals is proportional.

**Theorem 1** (inside and outside). For x in K, r = \|w\|_P:

* r <= rho: B(w) >= \|w\|_{M^B}^2 / 2.
* r >= rho: B(w) >= theta_B rho^2/2 + theta_S rho (r - rho).

*Proof.* The first line is Theorem B of `region`. For the second, b(t) = B(t w/r) is
convex on [0, r], as K is convex. Its value at rho is at least theta_B rho^2/2, by the
first line. Its right derivative there is 1/rho times the sum of (k/n) [phi_i'(u_i +
t_i) - phi_i'(u_i)] t_i and k mu rho^2 \|w/r\|^2. Each bracket times t_i is at least
c_i^S t_i^2, so that the derivative is at least theta_S rho. Convexity completes the
proof. QED

It holds for all convex losses of margins, any x0, any P and every rho, and neither the
size of K nor the position of the mode matters. With theta = 0 it says little.

**Shells.** For lo <= r <= hi, lo >= rho and tau <= 2 theta_S rho / (lo + hi),

.. math:: B(w) \ge \alpha + \tau r^2 / 2, \qquad \alpha = \theta_B \rho^2 / 2
   + \theta_S \rho (lo - \rho) - \tau lo^2 / 2,

because the difference of the right sides is concave in r, 0 at lo and >= 0 at hi. So a
shell has a bound of the form of the ellipsoid's, with the matrix tau P. Shells double
their radius until they cover K.

**Theorem 2** (branches). Let the sets A_c cover K and be disjoint up to measure 0. Let
p_c be densities and C_c constants with e^{-(V - V(x0))} <= C_c p_c on A_c and K. Choose
c with probability C_c / C, C the sum, draw x from p_c, and accept it if it is in A_c
and in K, with probability e^{-(V - V(x0))} / (C_c p_c). Then accepted points have the
density e^{-V} / Z on K exactly, and their number of proposals is independent of them.
*Proof.* The density of "accepted at x" is the sum over c of (C_c / C) p_c 1[x in A_c]
e^{-(V - V(x0))} / (C_c p_c) = e^{-(V - V(x0))} / C on K. QED

No part of the target is left out, so there is no error gamma.

**Boundary.** On K a ball has s(x) = R^2 - \|x - center\|^2 >= 0, and a pair of parallel
sides l <= <a, x> <= b has s(x) = (b - <a, x>)(<a, x> - l) >= 0. So t s may be
subtracted from any bound, with a multiplier t >= 0. The result is a quadratic again,
steeper by 2 t, whose Gaussian wastes fewer proposals outside of K if x0 is at the
boundary.

**Proof of the constants.** A proposal is x = x0 + m + F z with a standard normal z.
`Branch.lowest` is at most the infimum over all w of q(w) - \|z\|^2 / 2, where q is the
quadratic bound, given as doubles. It is computed exactly (`dyadic_matrices`): with H
the matrix and b the slope of q, S = F^T H F, e = F^T (b + H m) and Gershgorin's sigma
<= the least eigenvalue of S - I,

.. math:: q - |z|^2/2 \ge q(m) - |e|^2 / (2 \sigma),

if sigma > 0. So no rounding error of F, m, or of what they were computed from, matters.
The doubles of H and b are lowered by bounds of all earlier rounding errors. These are
`slack_share` for Gram matrices, and 1e-9 of each record's weight. Errors of slopes and
margins are multiplied by the diameter of K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy import linalg

from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.core.check import MIN_NORMAL
from dpsample.numerics.dyadic_matrices import DyadicMatrix
from dpsample.samplers.errors import FUNCTION_FAILED, raise_unless_ok
from dpsample.samplers.localized.columns import (
    WIDENING,
    MarginWidths,
    Weights,
    forget_curvatures,
)
from dpsample.samplers.localized.exact_rejection import RecordFacts
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.region import gram_of, slack_share
from dpsample.samplers.whole_body.body import WIDENED, ExactBody
from dpsample.targets.gibbs import Gibbs


class BranchSearch:
    """Numbers that decide which branches are tried. None affects the distribution."""

    # P has at least this share of its trace as eigenvalues. So its root has an accurate
    # inverse, and margins of moves are bounded well.
    condition: float = 1e-8
    # Proposals are wider than their bounds by these shares, the first that is proved.
    growths: tuple[float, ...] = (1e-7, 1e-5, 1e-3, 0.1)
    # Shares that eigenvalues are lowered by, the first that is proved.
    lowerings: tuple[float, ...] = (1e-7, 1e-4, 1e-2, 0.5)
    # Radii that are tried grow by this factor. The search ends when the mass has been
    # above e^0.5 times the least one for this number of radii since that one.
    radius_growth: float = 1.3
    patience: int = 3
    # Shares of the multipliers that cancel the slope at the boundary, among which the
    # mass decides.
    multiplier_scales: tuple[float, ...] = (0.0, 0.5, 1.0)
    # Weights of branches are integers that sum to about this number.
    weight_units: int = 2**60


# Share of each weight by which Gram matrices are lowered, for rounding errors of the
# weights.
LOWERED = 1.0 - 2e-9
# Largest distance of R^{-1} R from the identity, which `WIDENING` covers.
MAX_INVERSE_ERROR = 1e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadraticBound:
    """Bound level + <slope, w> + ||w||_matrix^2 / 2 of V(x0 + w) - V(x0) on a set."""

    level: Fraction
    slope: Array  # (dim,)
    matrix: Array  # (dim, dim), symmetric

    def log_mass(self) -> float:
        """Return the logarithm of the integral of e^-bound, as computed."""
        # With the Cholesky factor L of H, the integral is (2 pi)^{d/2} / det L times
        # e^{|L^{-1} b|^2 / 2 - level}.
        root = np.linalg.cholesky(self.matrix)
        scaled = linalg.solve_triangular(root, self.slope, lower=True)
        size = 0.5 * len(root) * math.log(2.0 * math.pi)
        size -= float(np.log(np.diag(root)).sum())
        return size + 0.5 * float(scaled @ scaled) - float(self.level)


@dataclass(frozen=True, kw_only=True, eq=False)
class Branch:
    """Proposals x0 + shift + root z in a shell, and their constants."""

    inner: float  # the shell is inner < ||w||_P <= outer, and inner = -1 has its center
    outer: float
    shift: Array  # (dim,): m
    root: Array  # (dim, dim): F, upper triangular with a positive diagonal
    lowest: Fraction  # at most V - V(x0) - |z|^2 / 2 on the shell and K
    weights: Weights  # curvatures of records below which a term is never negative
    weight: int = 1  # its chance is proportional to it


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape:
    """Metric P and all that bounds of one target share."""

    target: Gibbs
    mode: Mode
    body: ExactBody
    facts: RecordFacts
    metric_root: Array  # (dim, dim): R, lower triangular
    back: Array  # (dim, dim): R^-T
    ridge: float  # at most k mu times the curvature of the regularizer

    @property
    def reach(self) -> float:
        """Bound of ||w||_P on K."""
        # ||w||_P = |R^T w| is at most the spectral norm of R times |w|.
        size = float(np.linalg.norm(self.metric_root, 2))
        return WIDENED * size * self.body.reach

    @property
    def level_loss(self) -> Fraction:
        """Bound of what rounding errors of slopes and margins change on K."""
        facts = self.facts
        # A slope of k F errs by its own rounding, and by the curvature times the error
        # of a margin. Both are sums over rows, whose lengths are at most
        # ``row_length``.
        slope = facts.gradient_error + 20.0 * UNIT_ROUNDOFF * (
            facts.sizes[1] * facts.row_length
        )
        slope += facts.curvature * facts.margin_error * facts.row_length
        return Fraction(1.01 * slope) * Fraction(self.body.reach)

    def widths(self, radius: float) -> tuple[MarginWidths, ...]:
        """Return half-widths of margin moves within the ellipsoid."""
        return (MarginWidths(self.back, radius * WIDENING),)

    def lowered_gram(self, weights: Weights) -> Array:
        """Return a matrix below the sum of weighted records and the ridge."""
        gram = gram_of(self.target, self.mode, weights)
        return self.lower_matrix(LOWERED * 0.5 * (gram + gram.T), self.ridge)

    def lower_matrix(self, matrix: Array, ridge: float) -> Array:
        """Return matrix + ridge I, less all rounding errors."""
        identity = np.eye(len(matrix))
        trace = float(np.trace(matrix)) + ridge * len(matrix)
        slack = 2.0 * slack_share(self.target) * trace
        return np.asarray(matrix + (ridge - slack) * identity)


def new_shape(target: Gibbs, mode: Mode, body: ExactBody) -> Shape:
    """Return the metric of a mode, or of the ridge if that is inaccurate."""
    # The factor makes up for the rounding of the product, so that the ridge is a lower
    # bound.
    ridge = target.k * target.mu * target.curvature[0] * (1.0 - 1e-12)
    facts = RecordFacts.compute(target, mode)
    if not np.isfinite(facts.gradient).all():
        raise_unless_ok(FUNCTION_FAILED)
    # A ridge that underflows to 0 would have no inverse.
    identity, curvature = np.eye(target.dim), max(ridge, MIN_NORMAL)
    root = math.sqrt(curvature) * identity
    back = identity / math.sqrt(curvature)
    gram = 0.5 * (mode.gram + mode.gram.T)
    trace = float(np.trace(gram))
    with suppress(np.linalg.LinAlgError, ValueError):
        matrix = gram + (ridge + BranchSearch.condition * trace) * identity
        better = np.linalg.cholesky(matrix)
        inverse = linalg.solve_triangular(better, identity, lower=True).T
        if is_inverse(np.asarray(inverse), np.asarray(better)):
            root, back = np.asarray(better), np.asarray(inverse)
    return Shape(
        target=target,
        mode=mode,
        body=body,
        facts=facts,
        metric_root=root,
        back=np.ascontiguousarray(back),
        ridge=ridge,
    )


def is_inverse(back: Array, root: Array) -> bool:
    """Return whether norms of a^T back bound those for P^{-1}, within `WIDENING`."""
    if not np.isfinite(back).all():
        return False
    unit = (len(root) + 4) * UNIT_ROUNDOFF
    product = float(np.linalg.norm(back)) * float(np.linalg.norm(root))
    # Rounding errors of the margins' moves, which are products with ``back``, must be
    # as small as the flaw below.
    if not 8.0 * unit * product <= MAX_INVERSE_ERROR:
        return False
    flaw = DyadicMatrix.from_doubles(back).T @ DyadicMatrix.from_doubles(root)
    flaw = flaw - DyadicMatrix.from_doubles(np.eye(len(root)))
    return flaw.square_norm() <= Fraction(MAX_INVERSE_ERROR) ** 2


def largest_multiple(matrix: Array, shape: Shape) -> float:
    """Return a proved theta with theta P <= matrix, or 0 if none > 0 is found.

    With eigenvectors U of the whitened matrix and T = R^{-T} U, the product T^T (matrix
    - theta P) T is close to a diagonal one. By Gershgorin's theorem it is positive
    definite, which is computed exactly.
    """
    back, root = shape.back, shape.metric_root
    eigenvalues, vectors = np.linalg.eigh(back.T @ matrix @ back)
    smallest = float(eigenvalues[0])
    if not smallest > 0.0:
        return 0.0
    turned = DyadicMatrix.from_doubles(back @ vectors)
    turned_root = turned.T @ DyadicMatrix.from_doubles(root)
    inside = turned.T @ DyadicMatrix.from_doubles(matrix) @ turned
    metric = turned_root @ turned_root.T
    for lowering in BranchSearch.lowerings:
        theta = smallest * (1.0 - lowering)
        if (inside - metric.times(theta)).least_dominance() > 0:
            return theta
    return 0.0


def estimate_multiple(matrix: Array, shape: Shape) -> float:
    """Return about the largest theta with theta P <= matrix."""
    whitened = shape.back.T @ matrix @ shape.back
    return float(np.linalg.eigvalsh(whitened)[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class EllipsoidBounds:
    """Theorem 1 for one radius: quadratics on the ellipsoid and on shells.

    ``ends`` are the inner and outer radius of each. The outermost covers K.
    """

    radius: float
    quadratics: list[QuadraticBound]
    ends: list[tuple[float, float]]

    def log_masses(self) -> Array:
        """Return the logarithms of the masses of all branches, as computed."""
        return np.array([quadratic.log_mass() for quadratic in self.quadratics])


def bounds_at(
    shape: Shape, radius: float, multiple: Callable[[Array, Shape], float]
) -> EllipsoidBounds | None:
    """Return the bounds of a radius, or None if there is none outside.

    ``multiple`` is `largest_multiple` or an estimate of it.
    """
    widths = shape.widths(radius)
    inside = shape.lowered_gram(Weights("bregman", widths))
    center = subtract_boundary(shape, Fraction(0), inside)
    if radius >= shape.reach:
        return EllipsoidBounds(
            radius=radius, quadratics=[center], ends=[(-1.0, math.inf)]
        )
    theta_bregman = multiple(inside, shape)
    secant = shape.lowered_gram(Weights("secant", widths))
    theta_secant = multiple(secant, shape)
    if not min(theta_bregman, theta_secant) > 0.0:
        return None
    quadratics, ends = [center], [(-1.0, radius)]
    metric = shape.metric_root @ shape.metric_root.T
    for inner, outer in _shells(radius, shape.reach):
        # Any tau up to the limit of the text is valid. With tau inner^2 above dim most
        # of the Gaussian would be within the inner radius, where its proposals are
        # rejected.
        tau = 2.0 * theta_secant * radius / (inner + outer) * (1.0 - 1e-12)
        tau = min(tau, len(secant) / inner**2)
        level = shell_level(radius, theta_bregman, theta_secant, inner, tau)
        quadratics.append(
            subtract_boundary(shape, level, shape.lower_matrix(tau * metric, 0.0))
        )
        ends.append((inner, math.inf if outer >= shape.reach else outer))
    return EllipsoidBounds(radius=radius, quadratics=quadratics, ends=ends)


def _shells(radius: float, reach: float) -> Iterator[tuple[float, float]]:
    """Yield inner and outer radii up to a reach."""
    inner = radius
    while inner < reach:
        yield inner, 2.0 * inner
        inner *= 2.0


def shell_level(
    radius: float, theta_bregman: float, theta_secant: float, inner: float, tau: float
) -> Fraction:
    """Return alpha of a shell, exactly."""
    rho, lo = Fraction(radius), Fraction(inner)
    level = Fraction(theta_bregman) * rho**2 / 2
    level += Fraction(theta_secant) * rho * (lo - rho)
    return level - Fraction(tau) * lo**2 / 2


def subtract_boundary(shape: Shape, level: Fraction, matrix: Array) -> QuadraticBound:
    """Return level + <g, w> + ||w||_matrix^2 / 2 less terms of the boundary.

    The multipliers t are those that leave about the least mass. Any t >= 0 is valid.
    """
    level = level - shape.level_loss
    if shape.body.is_round:
        return _subtract_sphere(shape, level, matrix)
    candidates = [
        _subtract_sides(shape, level, matrix, scale)
        for scale in BranchSearch.multiplier_scales
    ]
    return min(candidates, key=QuadraticBound.log_mass)


def _subtract_sphere(shape: Shape, level: Fraction, matrix: Array) -> QuadraticBound:
    """Return the bound less t (R^2 - |x - center|^2)."""
    body, gradient = shape.body, shape.facts.gradient
    # With o = x0 - center and ``depth`` = R^2 - |o|^2, s = depth - 2 <o, w> - |w|^2. So
    # -t s adds 2 t o to the slope and 2 t to all eigenvalues.
    outward = body.point - body.center
    offset = _fractions(body.point, body.center)
    depth = Fraction(body.radius) ** 2 - sum(x * x for x in offset)
    values, vectors = np.linalg.eigh(matrix)
    slopes, lengths = vectors.T @ gradient, vectors.T @ outward
    # At this multiplier the boundary's term dominates matrix and slope.
    highest = 4.0 * (float(values[-1]) + float(np.linalg.norm(gradient)) / body.radius)

    def best(multipliers: Array) -> int:
        # Twice the logarithm of the mass of each multiplier, up to a constant.
        sums = values + 2.0 * multipliers[:, None]
        along = slopes + 2.0 * multipliers[:, None] * lengths
        with np.errstate(all="ignore"):
            masses = (along**2 / sums - np.log(sums)).sum(axis=1)
        masses = masses + 2.0 * multipliers * float(depth)
        return int(np.nanargmin(np.where((sums > 0.0).all(axis=1), masses, np.nan)))

    if not values[0] > 0.0:
        raise np.linalg.LinAlgError
    # A coarse search over nine powers of ten is followed by a linear one between the
    # neighbors of its best multiplier.
    coarse = np.append(0.0, highest * np.geomspace(1e-9, 1.0, 60))
    at = best(coarse)
    fine = np.linspace(coarse[max(at - 1, 0)], coarse[min(at + 1, 60)], 40)
    t = float(fine[best(fine)]) if at else 0.0
    identity = np.eye(len(matrix))
    # The slope is rounded. Its error times |w| <= ``reach`` is taken off the level.
    sizes = float(np.linalg.norm(gradient))
    sizes += 2.0 * t * float(np.linalg.norm(np.abs(body.point) + np.abs(body.center)))
    error = 8.0 * UNIT_ROUNDOFF * sizes
    return QuadraticBound(
        level=level - Fraction(t) * depth - Fraction(error) * Fraction(body.reach),
        slope=gradient + 2.0 * t * outward,
        matrix=matrix + 2.0 * t * (1.0 - 1e-12) * identity,
    )


def _subtract_sides(
    shape: Shape, level: Fraction, matrix: Array, scale: float
) -> QuadraticBound:
    """Return the bound less sums of t_i (b_i - <a_i, x>)(<a_i, x> - l_i).

    Sides at which the energy presses x0 against them get multipliers. With scale 1
    they cancel the slope there.
    """
    body, gradient, unit = shape.body, shape.facts.gradient, UNIT_ROUNDOFF
    slope, matrix = gradient.copy(), matrix.copy()
    sizes, error = float(np.linalg.norm(gradient)), 0.0
    for i in np.flatnonzero(shape.mode.multipliers > 0.0).tolist():
        side, bound, lowest = body.sides[i], body.bounds[i], body.lowest[i]
        # In exact arithmetic, because the level is exact.
        height = sum(
            Fraction(a) * Fraction(x)
            for a, x in zip(side.tolist(), body.point.tolist(), strict=True)
        )
        # With v = <a, w>, s = (depth - v)(rest + v) = depth rest + (depth - rest) v -
        # v^2. So -t s adds t (rest - depth) a to the slope and 2 t a a^T to the matrix.
        depth, rest = Fraction(bound) - height, height - Fraction(lowest)
        width = float(depth + rest)
        if not width > 0.0:
            continue
        # At a side that x0 touches, depth = 0 and rest = width. There scale 1 adds just
        # the mode's multiplier times a, which cancels the slope.
        t = scale * float(shape.mode.multipliers[i]) / width
        level = level - Fraction(t) * depth * rest
        slope = slope + t * float(rest - depth) * side
        added = 2.0 * t * (1.0 - 1e-12) * np.outer(side, side)
        error += 8.0 * unit * float(np.trace(added))
        matrix = matrix + added
        sizes += t * float(abs(rest) + abs(depth)) * float(np.linalg.norm(side))
    num_terms = 4.0 + np.count_nonzero(shape.mode.multipliers > 0.0)
    slope_error = Fraction(2.0 * unit * num_terms * sizes)
    return QuadraticBound(
        level=level - slope_error * Fraction(body.reach),
        slope=slope,
        matrix=matrix - error * np.eye(len(matrix)),
    )


def _fractions(left: Array, right: Array) -> list[Fraction]:
    """Return the exact differences of two vectors."""
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    return [Fraction(x) - Fraction(y) for x, y in pairs]


def prove(
    quadratic: QuadraticBound, ends: tuple[float, float], weights: Weights
) -> Branch | None:
    """Return the branch of a bound, with exact constants, or None without a proof."""
    identity, matrix = np.eye(len(quadratic.matrix)), quadratic.matrix
    with suppress(np.linalg.LinAlgError, ValueError):
        # With H = L L^T, F is about L^{-T}, so that q at m + F z is about the minimum
        # of q plus |z|^2 / 2. The minimum is at m = -H^{-1} b.
        factor = np.linalg.cholesky(matrix)
        inverse = np.triu(linalg.solve_triangular(factor, identity, lower=True).T)
        shift = -linalg.cho_solve((factor, True), quadratic.slope)
        if not (np.isfinite(inverse).all() and np.isfinite(shift).all()):
            return None
        # A slightly wider F makes S - I positive definite in spite of rounding errors.
        for growth in BranchSearch.growths:
            root = (1.0 + growth) * inverse
            lowest = proved_minimum(quadratic, shift, root)
            if lowest is not None and (np.diag(root) > 0.0).all():
                return Branch(
                    inner=ends[0],
                    outer=ends[1],
                    shift=shift,
                    root=root,
                    lowest=lowest,
                    weights=weights,
                )
    return None


def proved_minimum(
    quadratic: QuadraticBound, shift: Array, root: Array
) -> Fraction | None:
    """Return a bound of inf over z of the quadratic at shift + root z, less |z|^2/2."""
    matrix, exact_root, exact_shift, slope = map(
        DyadicMatrix.from_doubles, (quadratic.matrix, root, shift, quadratic.slope)
    )
    # S - I, whose least eigenvalue is at least sigma by Gershgorin's theorem.
    product = exact_root.T @ matrix
    gap = product @ exact_root - DyadicMatrix.from_doubles(np.eye(len(root)))
    sigma = gap.least_dominance()
    if not sigma > 0:
        return None
    # H m, and then |e|^2 and q(m) of the text.
    pull = matrix @ exact_shift
    rest = (exact_root.T @ (slope + pull)).square_norm()
    at_shift = (slope @ exact_shift).fraction() + (pull @ exact_shift).fraction() / 2
    return quadratic.level + at_shift - rest / (2 * sigma)


def find_branches(shape: Shape) -> list[Branch]:
    """Return branches that cover K, with proved constants and weights.

    The radius has about the least mass. Where no radius has a proof, one branch
    covers K, if need be with the matrix of the regularizer alone. This always has a
    proof.
    """
    radius = _best_radius(shape)
    branches: list[Branch] | None = None
    if radius is not None:
        branches = _prove_all(shape, radius)
    if branches is None:
        branches = _prove_all(shape, WIDENED * shape.reach)
    # Without curvature of the losses the tangent at x0 and the ridge remain.
    if branches is None:
        ridge = shape.ridge * (1.0 - 1e-9) * np.eye(shape.target.dim)
        bound = QuadraticBound(
            level=-shape.level_loss, slope=shape.facts.gradient, matrix=ridge
        )
        branch = prove(bound, (-1.0, math.inf), Weights("none"))
        assert branch is not None  # its matrix is a multiple of the identity
        branches = [branch]
    return _weigh(branches)


def _prove_all(shape: Shape, radius: float) -> list[Branch] | None:
    """Return the branches of a radius, or None if one of them has no proof."""
    with suppress(np.linalg.LinAlgError):
        bounds = bounds_at(shape, radius, largest_multiple)
        if bounds is None:
            return None
        branches = []
        for i, quadratic in enumerate(bounds.quadratics):
            weights = Weights("none")
            if i == 0:
                weights = Weights("bregman", shape.widths(radius))
            branch = prove(quadratic, bounds.ends[i], weights)
            if branch is None:
                return None
            branches.append(branch)
            pauses.notify_listeners()
        return branches
    return None


def _weigh(branches: list[Branch]) -> list[Branch]:
    """Return the branches with weights that are about proportional to C_c."""
    # C_c is proportional to e^{-lowest} det F.
    sizes = np.array(
        [
            float(np.log(np.diag(branch.root)).sum()) - float(branch.lowest)
            for branch in branches
        ]
    )
    shares = np.exp(sizes - sizes.max())
    shares = shares / shares.sum()
    # A weight of 0 would leave a part of K without proposals.
    return [
        replace(branch, weight=max(1, int(BranchSearch.weight_units * share)))
        for branch, share in zip(branches, shares.tolist(), strict=True)
    ]


def _best_radius(shape: Shape) -> float | None:
    """Return about the radius whose branches have the least mass, by estimates."""
    # A standard normal vector has a length of about sqrt(dim).
    radius, last = 0.5 * math.sqrt(shape.target.dim), shape.reach
    best, best_radius, num_worse = math.inf, None, 0
    while num_worse < BranchSearch.patience:
        is_last = radius >= last
        radius = min(radius, WIDENED * last)
        mass = _estimate_mass(shape, radius)
        if mass < best:
            best, best_radius, num_worse = mass, radius, 0
        elif mass > best + 0.5:
            num_worse += 1
        if is_last:
            break
        radius *= BranchSearch.radius_growth
    if best_radius is None:
        return None
    # Two radii between those that were tried.
    masses = {best_radius: best}
    for power in (-0.4, 0.4):
        radius = min(best_radius * BranchSearch.radius_growth**power, WIDENED * last)
        masses[radius] = _estimate_mass(shape, radius)
    return min(masses, key=masses.__getitem__)


def _estimate_mass(shape: Shape, radius: float) -> float:
    """Return the logarithm of the mass of a radius's branches, or infinity."""
    forget_curvatures(shape.target, shape.mode)
    pauses.notify_listeners()
    with suppress(np.linalg.LinAlgError):
        bounds = bounds_at(shape, radius, estimate_multiple)
        if bounds is not None:
            return float(np.logaddexp.reduce(bounds.log_masses()))
    return math.inf
