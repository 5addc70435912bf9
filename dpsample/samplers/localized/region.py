r"""Region that holds all but gamma of the target, and a Gaussian envelope there.

V is the energy, x0 a point of the domain K, w = x - x0, g = q + e the slope of V at x0
with <q, w> >= 0 on K (`mode`). A record's margin moves by t_i = <a_i, w>. With lower
bounds c_i^S of [phi'(u + t) - phi'(u)] / t and c_i^B of 2 B(t) / t^2, B(t) = phi(u + t)
- phi(u) - phi'(u) t, valid for all t_i on a set S, and m_r the strong convexity of r,

.. math:: M^x = \frac kn \sum_i c_i^x a_i a_i^\top + k \mu m_r I.

**Theorem A.** S within K star-shaped about x0, 0 < P <= M^S, eps = ||e||_{P^{-1}}. For
X from the target on S, and rho > eps,

.. math:: P(\|X - x_0\|_P > \rho) \le e^{\epsilon^2/2}
   \Bigl(1 + \frac{\epsilon}{\rho - \epsilon}\Bigr)^{d-1} P(\chi_d > \rho - \epsilon):

along a ray V - r^2/2 + eps r does not fall, so that the radius is stochastically below
the law with density r^{d-1} e^{-r^2/2 + eps r}. On a Euclidean ball with x0 on its
sphere and q = -nu (x0 - center), P <= M^S + (nu/2) I is allowed, as <q, w> >= (nu/2)
||w||^2.

**Theorem C.** Each round adds the ellipsoid of Theorem A to S, with constants valid on
the S before it. At most `MAX_ROUNDS` rounds, a public number, with a share gamma /
`MAX_ROUNDS` each: the target conditioned on the last S is within total variation gamma
of the target, for every data set.

**Theorem B.** M <= M^B on S and Q(x) = <g, w> + ||w||_M^2 / 2: then D = V - V(x0) - Q
>= 0 on S, and a draw from e^{-Q} on S that is accepted with probability e^{-D} follows
the target on S exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, stats

from dpsample.core.arrays import Array
from dpsample.problem.records import curvature_matrix
from dpsample.samplers.localized.mode import Mode, is_round
from dpsample.targets.gibbs import MARGIN_SLACK, Gibbs, as_rows

MAX_ROUNDS = 8
THEOREMS = (
    "Localization (Theorem A): ||X - x0||_P is stochastically below a chi variable "
    "where P bounds the secant curvature of the energy from below; at most "
    f"{MAX_ROUNDS} rounds with gamma / {MAX_ROUNDS} each (Theorem C)",
    "Rejection (Theorem B): a quadratic by Bregman curvature is below the energy on "
    "the localized set, so accepted draws follow the target there exactly",
)
# Outward rounding of half-widths and radii, and inward of matrices.
WIDENED, LOWERED = 1.0 + 1e-9, 1e-11
TINY = 1e-150  # squares of smaller entries are lost
# Rounding of the slope at x0, relative to the sum of its terms' sizes.
SLOPE_ROUNDING = 1e-12
# A larger residual tells that Newton's method failed.
MAX_RESIDUAL = 1.0
# A round is worth its share if half-widths shrink by this factor on average.
WORTHWHILE = 0.9
# Mean of D from which no further round pays, and records of a block of products.
NEGLIGIBLE, BLOCK = 0.05, 8192


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """Metric P = ``gram`` + ridge I with P <= M^S wherever weights_i <= c_i^S."""

    weights: Array  # (num_records,)
    gram: Array  # (m, m)
    root: Array  # (m, m): lower Cholesky factor of P
    sizes: Array  # (num_records,): ||a_i|| in the norm of P^{-1}, rounded up

    @classmethod
    def of(
        cls, target: Gibbs, mode: Mode, weights: Array, ridge: float
    ) -> Frame | None:
        """Frame of given weights; None if P is numerically singular."""
        gram = _gram(target, mode, weights)
        return cls.around(target, mode, weights, gram, ridge)

    @classmethod
    def around(
        cls, target: Gibbs, mode: Mode, weights: Array, gram: Array, ridge: float
    ) -> Frame | None:
        """Frame whose Gram matrix is known."""
        lowered = lowered_root(gram, ridge)
        if lowered is None:
            return None
        root, _ = lowered
        inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
        map_, rows = mode.basis @ inverse.T, as_rows(target.data)
        sizes = np.empty(target.data.num_records)
        for start in range(0, len(sizes), BLOCK):
            block = rows[start : start + BLOCK] @ map_
            sizes[start : start + BLOCK] = np.sqrt(np.einsum("ij,ij->i", block, block))
        return cls(weights=weights, gram=gram, root=root, sizes=sizes * WIDENED)

    def share(self, curvature: Array) -> float:
        """Largest theta <= 1 with theta weights <= curvature: theta P is valid."""
        counts = self.weights > 0.0
        if not counts.any():
            return 1.0
        return min(1.0, float((curvature[counts] / self.weights[counts]).min()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Ellipsoid:
    """Vectors v with ||root^T v|| <= radius."""

    root: Array
    radius: float

    def contains(self, vectors: Array) -> Array:
        """Whether each row is inside."""
        return np.asarray(np.linalg.norm(vectors @ self.root, axis=1) <= self.radius)


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Localized set S, and the envelope's M there."""

    ellipsoids: tuple[Ellipsoid, ...]
    lower: Array  # (num_records,): how far margins move on S, at most
    upper: Array
    weights: Array  # (num_records,): at most c_i^B on S
    root: Array  # lower Cholesky factor of M, lowered by ``slack`` I
    slack: float
    mean_excess: float  # estimate of the mean of D

    def contains(self, vectors: Array) -> Array:
        """Whether each row v is in S, as far as ellipsoids say."""
        inside = [each.contains(vectors) for each in self.ellipsoids]
        return np.asarray(np.all(inside, axis=0))


def lowered_root(gram: Array, ridge: float) -> tuple[Array, float] | None:
    """Lower Cholesky factor of gram + (ridge - s) I, and s, above all rounding errors.

    None if the matrix is too close to singular for that.
    """
    matrix = 0.5 * (gram + gram.T) + ridge * np.eye(len(gram))
    slack = LOWERED * float(np.trace(matrix))
    if slack > 0.1 * ridge and slack > 0.1 * float(np.linalg.eigvalsh(matrix)[0]):
        return None
    root = np.linalg.cholesky(matrix - slack * np.eye(len(matrix)))
    return np.asarray(root, dtype=np.float64), slack


def radius(dim: int, residual: float, gamma: float) -> float:
    """Rho of Theorem A for a mass of at most gamma outside.

    The factor before the chi tail falls with rho; it is taken at a smaller one.
    """
    first = float(stats.chi.isf(gamma, dim))
    factor = 0.5 * residual**2 + (dim - 1) * np.log1p(residual / first)
    return WIDENED * (residual + float(stats.chi.isf(gamma * np.exp(-factor), dim)))


def localize(target: Gibbs, mode: Mode, gamma: float) -> Region | None:
    """Make rounds of Theorem A, then the envelope; None if none is of use."""
    problem, response = target.problem, target.data.response
    strength = target.regularizer.curvature_l2(target.dim)[0]
    ridge = target.k * target.mu * strength
    held = ridge + 0.5 * mode.multiplier
    first = Frame.around(target, mode, mode.weights, mode.gram, held)
    if first is None:
        return None
    frames = [first]
    lower, upper = _ends_on(target, mode)
    ellipsoids: list[Ellipsoid] = []
    per_record = target.k / target.data.num_records

    def curvature(order: str) -> Array:
        bound = getattr(problem.loss, f"{order}_curvature")
        low, high = mode.margins + lower, mode.margins + upper
        return np.asarray(bound(mode.margins, low, high, response))

    def excess(weights: Array) -> float:
        """Mean of D for an envelope with these weights, up to higher orders."""
        lost = np.maximum(mode.weights - weights, 0.0)
        return 0.5 * per_record * float(lost @ first.sizes**2)

    while len(ellipsoids) < MAX_ROUNDS:
        secant = curvature("secant")
        if ellipsoids and excess(secant) < NEGLIGIBLE:
            break
        found = _best_ellipsoid(target, mode, frames, secant, gamma / MAX_ROUNDS)
        widths = upper - lower
        if found is None or not _shrunk(widths, found[1]) < WORTHWHILE:
            frame = Frame.of(target, mode, secant, held)
            if frame is None:
                break
            frames = [first, frame]
            found = _best_ellipsoid(target, mode, frames, secant, gamma / MAX_ROUNDS)
            if found is None or not _shrunk(widths, found[1]) < WORTHWHILE:
                break
        ellipsoid, half = found
        ellipsoids.append(ellipsoid)
        lower, upper = np.maximum(lower, -half), np.minimum(upper, half)
    if not ellipsoids:
        return None
    weights = curvature("bregman")
    share = first.share(weights)
    scaled = share * first.weights
    # One more Gram matrix costs about dim / 10 passes over the records.
    if excess(scaled) - excess(weights) > 0.002 * len(first.root):
        gram = _gram(target, mode, weights)
    else:
        weights, gram = scaled, share * first.gram
    lowered = lowered_root(gram, ridge)
    if lowered is None:
        return None
    root, slack = lowered
    return Region(
        ellipsoids=tuple(ellipsoids),
        lower=lower,
        upper=upper,
        weights=weights,
        root=root,
        slack=slack,
        mean_excess=excess(weights),
    )


def _gram(target: Gibbs, mode: Mode, weights: Array) -> Array:
    if not weights.any():
        return np.zeros((mode.basis.shape[1],) * 2)
    inner = curvature_matrix(target.data, weights)
    return np.asarray(target.k * (mode.basis.T @ inner @ mode.basis))


def _ends_on(target: Gibbs, mode: Mode) -> tuple[Array, Array]:
    """How far each margin can move on the domain."""
    domain = target.problem.domain
    if is_round(domain):  # one pass, where `margin_intervals` takes several
        body, rows = domain.body(target.dim), as_rows(target.data)
        along = rows @ (mode.point - body.center)
        reach = body.radius * (_lengths(rows) * WIDENED + TINY)
        slack = MARGIN_SLACK * (1.0 + np.abs(mode.margins))
        return np.minimum(-reach - along - slack, 0.0), np.maximum(
            reach - along + slack, 0.0
        )
    lower, upper = target.margin_intervals()
    return np.minimum(lower - mode.margins, 0.0), np.maximum(upper - mode.margins, 0.0)


def _lengths(rows: Any) -> Array:
    """Euclidean norms of dense or sparse rows; infinite above 1e154."""
    with np.errstate(over="ignore"):
        if isinstance(rows, np.ndarray):
            return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
        squares = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64)
        return np.sqrt(squares.reshape(-1))


def _shrunk(widths: Array, half: Array) -> float:
    """Mean ratio of new widths to old ones."""
    with np.errstate(invalid="ignore"):
        ratio = np.where(widths > 0.0, 2.0 * half / widths, 1.0)
    return float(np.minimum(ratio, 1.0).mean())


def _best_ellipsoid(
    target: Gibbs, mode: Mode, frames: list[Frame], secant: Array, gamma: float
) -> tuple[Ellipsoid, Array] | None:
    """Ellipsoid of the frame that makes half-widths smallest, and these."""
    found = []
    for frame in frames:
        share = frame.share(secant)
        if share <= 0.0:
            continue
        scale = np.sqrt(share)
        residual = _residual(target, mode, frame) / scale
        if residual <= MAX_RESIDUAL:
            reach = radius(len(frame.root), residual, gamma) / scale
            ellipsoid = Ellipsoid(root=frame.root, radius=reach)
            found.append((ellipsoid, frame.sizes * (reach * WIDENED)))
    return min(found, key=lambda each: float(each[1].sum()), default=None)


def _residual(target: Gibbs, mode: Mode, frame: Frame) -> float:
    """||e|| in the norm of P^{-1}, with the rounding errors of the slope."""
    size = linalg.solve_triangular(frame.root, mode.residual, lower=True)
    terms = target.k * float(np.mean(np.abs(mode.slopes) * frame.sizes))
    return float(np.linalg.norm(size)) + SLOPE_ROUNDING * terms
