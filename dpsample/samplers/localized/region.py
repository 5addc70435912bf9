r"""Region that holds all but gamma of the target, and a Gaussian envelope there.

V = k (F + mu r) is the energy, with the mean F of the losses phi of n records, a
regularizer r of weight mu and an inverse temperature k. Further x0 is a point of the
domain K, usually the mode, and w = x - x0. The gradient g = q + e of V at x0 has a part
q with <q, w> >= 0 on K, and a small rest e (see `mode`). A record's margin u_i at x0
moves by t_i = <a_i, w>. On a set S let c_i^S be lower bounds of the *secant* curvature
[phi'(u + t) - phi'(u)] / t, and c_i^B of the *Bregman* curvature 2 B(t) / t^2, where
B(t) = phi(u + t) - phi(u) - phi'(u) t. With the strong convexity m_r of r,

.. math:: M^x = \frac kn \sum_i c_i^x a_i a_i^\top + k \mu m_r I.

**Theorem A.** S within K star-shaped about x0, 0 < P <= M^S, eps = ||e||_{P^{-1}}. For
X from the target on S, and rho > eps,

.. math:: P(\|X - x_0\|_P > \rho) \le e^{\epsilon^2/2}
   \Bigl(1 + \frac{\epsilon}{\rho - \epsilon}\Bigr)^{d-1} P(\chi_d > \rho - \epsilon):

Along a ray V - r^2/2 + eps r does not fall, so that the radius is stochastically below
the distribution with density r^{d-1} e^{-r^2/2 + eps r}. On a Euclidean ball with x0 on
its sphere and q = -nu (x0 - center), P <= M^S + (nu/2) I is allowed, as <q, w> >=
(nu/2) ||w||^2. If x0 is near the boundary and not on it, <q, w> >= -delta on K. Then
eps is ||e|| + delta / rho, because other rays from x0 have no point at distance rho.

**Theorem C.** Each *round* intersects S with the ellipsoid of Theorem A, with constants
valid on the S before it. There are at most `MAX_ROUNDS` rounds, a public number, and
each has the share gamma / `MAX_ROUNDS`. So the target conditioned on the last S is
within total variation gamma of the target, for every data set.

**Theorem B.** Let M <= M^B on S and Q(x) = <g, w> + ||w||_M^2 / 2. Then the *excess* D
= V - V(x0) - Q is >= 0 on S, and a draw from e^{-Q} on S that is accepted with
probability e^{-D} follows the target on S exactly. With p = E e^{-D} its density is at
most the density of the draw divided by p.

**Slabs.** With x0 in the interior e^{-Q} is the Gaussian N(x0 - M^{-1} g, M^{-1}), and
with s_i = ||a_i|| and eps = ||g|| in the norm of M^{-1} the target on S has at most

.. math:: 2 n \Phi(-z) / (N(S) p)

outside of the *slabs* |t_i| <= s_i (z + eps), where N(S) is the Gaussian's mass on S.
N(S) >= 1/2 is proved by union bounds, and log(1/p) <= E_N[D; S] / N(S) (Jensen). The
mean of B_i is bounded by the largest curvature near the mode, and far from it by the
largest curvature on S. In high dimensions slabs are narrower than the ellipsoid.

A round may use an ellipsoid or slabs. Both bound the moves of margins by half-widths,
see `columns`. Radius, slack and weights include the rounding errors of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from dpsample.core import jit
from dpsample.core.arrays import Array
from dpsample.problem.records import block_size, weighted_gram
from dpsample.problem.storage import MemoryStorage, Result, add_entries
from dpsample.samplers.localized import columns
from dpsample.samplers.localized.columns import (
    WIDENING,
    ChunkColumns,
    MarginWidths,
    RecordColumns,
    Weights,
    largest_share,
)
from dpsample.samplers.localized.mode import Mode, in_basis
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import as_kernel_array, times_basis

# Maximum number of rounds, a public number, among which gamma is divided.
MAX_ROUNDS = 8
# Cost of a round, in passes over the records, per 8 + dim / 5. It is smaller than the
# time of a round, because all later draws gain from a smaller region.
ROUND_COST = 0.25


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundingMetric:
    """Metric P = ``gram`` + ridge I with P <= M^S if weights_i <= c_i^S."""

    weights: Weights
    gram: Array  # (m, m)
    root: Array  # (m, m): lower Cholesky factor of P
    back: Array  # (dim, m): ||a_i back|| is the norm of a_i for P^{-1}

    @classmethod
    def from_weights(
        cls, target: Gibbs, mode: Mode, weights: Weights, ridge: float
    ) -> BoundingMetric | None:
        """Return the metric of weights, or None if P is numerically singular."""
        gram = gram_of(target, mode, weights)
        return cls.from_gram(target, mode, weights, gram, ridge)

    @classmethod
    def from_gram(
        cls, target: Gibbs, mode: Mode, weights: Weights, gram: Array, ridge: float
    ) -> BoundingMetric | None:
        """Return the metric of a Gram matrix, or None if P is singular."""
        reduced = factor_reduced(gram, ridge, target)
        if reduced is None:
            return None
        root, _ = reduced
        inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
        back = times_basis(mode.basis, inverse.T)
        return cls(
            weights=weights, gram=gram, root=root, back=np.ascontiguousarray(back)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionEllipsoid:
    """Vectors v with ||root^T v|| <= radius."""

    root: Array
    radius: float

    def contains(self, vectors: Array) -> Array:
        """Return whether each row is inside."""
        return np.asarray(np.linalg.norm(vectors @ self.root, axis=1) <= self.radius)


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Localized set S, and the envelope's M there."""

    ellipsoids: tuple[RegionEllipsoid, ...]
    half_widths: tuple[MarginWidths, ...]  # bounds of margin moves on S
    num_rounds: int  # rounds that were used, at most `MAX_ROUNDS`
    has_slabs: bool  # whether slabs, not ellipsoids alone, give the half-widths
    weights: Weights  # at most c_i^B on S
    root: Array  # lower Cholesky factor of M - slack I
    slack: float
    mean_excess: float  # estimate of the mean of D

    def select_columns(self, part: RecordColumns) -> ChunkColumns:
        """Return the columns of some records for compiled rejection on the region."""
        return part.select(self.weights, self.half_widths if self.has_slabs else ())

    def contains(self, vectors: Array) -> Array:
        """Return whether each row v is in all ellipsoids."""
        inside = [ellipsoid.contains(vectors) for ellipsoid in self.ellipsoids]
        return np.asarray(
            np.all(np.reshape(inside, (len(inside), len(vectors))), axis=0)
        )


def slack_share(target: Gibbs) -> float:
    """Return a share of the trace above the errors of Gram matrix and its factor.

    The rounding error of a sum of m terms is at most m u times the sum of their sizes,
    with u = 2^-53. The sizes of weights_i a_i a_i^T add up to the trace. The error of a
    factor of M is at most (dim + 1) u trace(M). Sparse rows are added one by one, dense
    rows in blocks, and chunks of blocks in a tree, no path of which is longer than the
    sum in order.
    """
    count, dim = target.storage.num_records, target.dim
    is_sparse = (
        isinstance(target.storage, MemoryStorage) and target.data.dense.shape[0] == 0
    )
    block = block_size(dim)
    terms = float(count) if is_sparse else min(block, count) + count / min(block, count)
    # Matrices are reduced by at least this share of their trace, for rounding errors.
    return max(1e-11, 1.5 * (terms + 2.0 * dim + 16.0) * 2.0**-52)


def factor_reduced(
    gram: Array, ridge: float, target: Gibbs
) -> tuple[Array, float] | None:
    """Return the Cholesky factor of gram + (ridge - s) I, and s.

    The slack s is above all rounding errors. Return None if the matrix is too close to
    singular for that.
    """
    matrix = 0.5 * (gram + gram.T) + ridge * np.eye(len(gram))
    slack = slack_share(target) * float(np.trace(matrix))
    if slack > 0.1 * ridge and slack > 0.1 * float(np.linalg.eigvalsh(matrix)[0]):
        return None
    root = np.linalg.cholesky(matrix - slack * np.eye(len(matrix)))
    return np.asarray(root, dtype=np.float64), slack


def chi_quantile(tail: float, dim: int) -> float:
    """Return x with P(chi_dim > x) = tail."""
    return math.sqrt(2.0 * float(special.gammainccinv(0.5 * dim, tail)))


def radius(dim: int, residual: float, gamma: float, shortfall: float = 0.0) -> float:
    """Return rho of Theorem A for a mass of at most gamma outside.

    The factor before the chi tail, and delta / rho, fall with rho. Both are taken at a
    smaller radius, which is safe.
    """
    first = chi_quantile(gamma, dim)
    residual = residual + shortfall / first
    factor = 0.5 * residual**2 + (dim - 1) * math.log1p(residual / first)
    return WIDENING * (residual + chi_quantile(gamma * math.exp(-factor), dim))


def localize(target: Gibbs, mode: Mode, gamma: float) -> Region | None:
    """Make rounds with ellipsoids and slabs, and return the last region.

    It contains the envelope. Return None if no region is useful.
    """
    ridge = target.k * target.mu * target.curvature[0]
    # On a sphere half of the multiplier may be added to the metric.
    metric_ridge = ridge + 0.5 * mode.multiplier
    weights = Weights("mode")
    first = BoundingMetric.from_gram(target, mode, weights, mode.gram, metric_ridge)
    if first is None:
        return None
    rounds = _Rounds(target, mode, first, gamma / MAX_ROUNDS, ridge)
    while rounds.num_rounds < MAX_ROUNDS and rounds.shrink_region(metric_ridge):
        pass
    if not rounds.ellipsoids:
        return None
    weights, loss = rounds.envelope, rounds.loss
    # A new Gram matrix takes as long as about dim / 10 passes over the records. Without
    # one the envelope is a share of the first metric.
    if loss.scaled - loss.excess > 0.002 * len(first.root):
        gram, excess = gram_of(target, mode, weights), loss.excess
    else:
        weights = first.weights._replace(scale=loss.share)
        gram, excess = loss.share * first.gram, loss.scaled
    reduced = factor_reduced(gram, ridge, target)
    if reduced is None:
        return None
    root, slack = reduced
    return Region(
        ellipsoids=tuple(rounds.ellipsoids),
        half_widths=rounds.half_widths,
        num_rounds=rounds.num_rounds,
        has_slabs=bool(rounds.slabs),
        weights=weights,
        root=root,
        slack=slack,
        mean_excess=excess,
    )


def whole_domain(target: Gibbs, mode: Mode) -> Region:
    """Return the whole domain, with the regularizer's quadratic alone as the envelope.

    Theorem B holds there. Without an ellipsoid no point is left out, and x0 may be any
    point.
    """
    ridge = target.k * target.mu * target.curvature[0]
    return Region(
        ellipsoids=(),
        half_widths=(),
        num_rounds=0,
        has_slabs=False,
        weights=Weights("none"),
        root=math.sqrt(ridge) * np.eye(mode.basis.shape[1]),
        slack=0.0,
        mean_excess=math.inf,
    )


class ExcessEstimate(NamedTuple):
    """Estimates, to first order, of the mean of D for two envelopes."""

    excess: float  # with Bregman curvatures on S as weights
    scaled: float  # with the weights of the first metric times ``share``
    share: float  # largest factor with which these are valid


class _Rounds:
    """The present region S. Each round uses one share of gamma."""

    def __init__(
        self,
        target: Gibbs,
        mode: Mode,
        first: BoundingMetric,
        share: float,
        ridge: float,
    ) -> None:
        self.target, self.mode, self.first = target, mode, first
        self.share, self.ridge = share, ridge
        self.metrics = [first]
        self.half_widths: tuple[MarginWidths, ...] = ()
        self.ellipsoids: list[RegionEllipsoid] = []
        self.num_rounds = 0
        self.slabs: tuple[MarginWidths, ...] = ()  # half-widths that come from slabs
        self.loss = ExcessEstimate(math.inf, math.inf, 0.0)

    def sums(self, function: Callable[..., Result], *args: object) -> Result:
        """Return the sum of ``function(columns, *args)`` over the chunks."""
        return columns.fold_columns(
            self.target, self.mode, add_entries, function, *args
        )

    @property
    def envelope(self) -> Weights:
        """Bregman curvatures on S."""
        return Weights("bregman", self.half_widths)

    def shrink_region(self, metric_ridge: float) -> bool:
        """Make a round if one is worth its cost, and return whether there was one.

        Rounds that are not expensive are tried first.
        """
        excess = self.loss.excess
        # The work of a draw is proportional to e^excess. Below this limit a round would
        # save at most a tenth of it.
        if excess < 0.1:
            return False
        secant = Weights("secant", self.half_widths)
        if self._accept_round(self._best_ellipsoid(secant), 0.8):
            return True
        # A round is worth its cost if draws become faster by more than it takes.
        cost = ROUND_COST * (8.0 + 0.2 * len(self.first.root))
        max_share = 1.0 - max(0.02, cost * math.exp(-excess) / excess)
        if self._are_slabs_narrow() and self._accept_round(self._slabs(), max_share):
            return True
        metric = BoundingMetric.from_weights(
            self.target, self.mode, secant, metric_ridge
        )
        if metric is None:
            return False
        self.metrics = [self.first, metric]
        # The first ellipsoid is always used, because tilting needs a bounded region.
        max_share = max_share if self.ellipsoids else math.inf
        return self._accept_round(self._best_ellipsoid(secant), max_share)

    def _accept_round(
        self,
        candidate: tuple[RegionEllipsoid | None, MarginWidths] | None,
        max_share: float,
    ) -> bool:
        """Use a round if on average at most this share of the widths remains."""
        if candidate is None:
            return False
        ellipsoid, widths = candidate
        remaining, *estimate = columns.fold_columns(
            self.target,
            self.mode,
            _add_but_last,
            _compare_widths,
            self.first,
            self.half_widths,
            widths,
        )
        if not remaining / self.target.storage.num_records < max_share:
            return False
        if ellipsoid is not None:
            self.ellipsoids.append(ellipsoid)
        else:
            self.slabs = (*self.slabs, widths)
        self.half_widths = (*self.half_widths, widths)
        self.num_rounds += 1
        excess, total, share = estimate
        scale = 0.5 * self.target.k / self.target.storage.num_records
        self.loss = ExcessEstimate(
            scale * excess, scale * (1.0 - share) * total, float(share)
        )
        return True

    def _best_ellipsoid(
        self, secant: Weights
    ) -> tuple[RegionEllipsoid, MarginWidths] | None:
        """Return the ellipsoid with the smallest half-widths, and these."""
        candidates = []
        for metric in self.metrics:
            terms, sizes, theta = columns.fold_columns(
                self.target, self.mode, _add_but_last, _sum_sizes, metric, secant
            )
            if theta <= 0.0:
                continue
            # theta P is at most M^S.
            scale = math.sqrt(theta)
            residual = self._norm(self.mode.residual, metric, terms) / scale
            shortfall = self.mode.shortfall
            # A larger residual shows that Newton's method has not found the mode.
            if residual + shortfall <= 1.0:
                rho = radius(len(metric.root), residual, self.share, shortfall) / scale
                ellipsoid = RegionEllipsoid(root=metric.root, radius=rho)
                widths = MarginWidths(metric.back, rho * WIDENING)
                candidates.append((float(sizes * widths.factor), ellipsoid, widths))
        best = min(candidates, key=lambda candidate: candidate[0], default=None)
        return None if best is None else best[1:]

    def _norm(self, gradient: Array, metric: BoundingMetric, terms: float) -> float:
        """Return the norm of a gradient at x0 for P^{-1}, plus its rounding errors."""
        scaled = linalg.solve_triangular(metric.root, gradient, lower=True)
        mean = self.target.k * terms / self.target.storage.num_records
        # Rounding error of the gradient at x0, relative to the sum of its terms' sizes.
        return float(np.linalg.norm(scaled)) + 1e-12 * mean

    def _are_slabs_narrow(self) -> bool:
        """Return whether slabs are valid, and narrower than the ellipsoid."""
        mode, bounds = self.mode, self.target.curvature
        if not self.ellipsoids or mode.multiplier > 0.0 or mode.multipliers.any():
            return False
        log_tail = np.log(self.share / (4.0 * self.target.storage.num_records))
        z = -float(special.ndtri_exp(log_tail))
        is_quadratic = bounds[0] == bounds[1]
        radius_in_deviations = chi_quantile(self.share, len(self.first.root))
        # Slabs take another Gram matrix. So they are used only if they are narrower
        # than the ellipsoid by a quarter.
        return is_quadratic and 1.25 * z < radius_in_deviations

    def _slabs(self) -> tuple[None, MarginWidths] | None:
        """Return half-widths of slabs on S, if N(S) >= 1/2 is proved."""
        weights = self.envelope
        metric = BoundingMetric.from_weights(
            self.target, self.mode, weights, self.ridge
        )
        if metric is None:
            return None
        target, dim = self.target, len(metric.root)
        num_records = target.storage.num_records
        terms = columns.fold_columns(
            target, self.mode, _add_but_last, _sum_sizes, metric, weights
        )[0]
        eps = self._norm(self.mode.gradient, metric, terms)
        if eps > 0.1:
            return None
        outside = self._mass_outside(metric, eps)
        if not outside <= 0.5:
            return None
        sums = self.sums(_sum_gaps, metric, weights, eps)
        scale = target.k / num_records
        inverse = linalg.solve_triangular(metric.root, np.eye(dim), lower=True)
        trace = float(np.sum(inverse**2))
        # The mean of D under the Gaussian has parts of curvatures above the weights, of
        # the root's slack, of the shift eps of the mean, and of points outside of S.
        mean = 0.5 * scale * float(sums[0])
        matrix_trace = float(np.trace(metric.gram)) + self.ridge * dim
        mean += 0.5 * slack_share(target) * matrix_trace * trace
        curvature = scale * float(sums[1]) + self.ridge * trace
        mean += 0.5 * eps**2 * curvature
        # The root mean square of ||v||_M^2, for Cauchy and Schwarz.
        square = np.sqrt((dim + eps**2) ** 2 + 2.0 * dim + 4.0 * eps**2)
        mean += 0.5 * float(square) * math.sqrt(outside)
        log_p = -mean / (1.0 - outside)
        log_tail = math.log(self.share) + math.log1p(-outside) + log_p
        z = -float(special.ndtri_exp(log_tail - math.log(2.0 * num_records)))
        return None, MarginWidths(metric.back, (z + eps) * WIDENING)

    def _mass_outside(self, metric: BoundingMetric, eps: float) -> float:
        """Return a bound of the Gaussian's mass outside of S."""
        move = -linalg.cho_solve((metric.root, True), self.mode.gradient)
        total = mass_outside_domain(self.target, self.mode, metric.root, move)
        for ellipsoid in self.ellipsoids:
            # The largest ball of the metric inside the ellipsoid.
            ratio = linalg.solve_triangular(metric.root, ellipsoid.root, lower=True)
            ball_radius = ellipsoid.radius / float(np.linalg.norm(ratio, 2))
            half_square = 0.5 * max(ball_radius / WIDENING - eps, 0.0) ** 2
            total += float(special.gammaincc(0.5 * len(metric.root), half_square))
        if self.slabs:
            (tail,) = self.sums(_sum_tails, metric, self.slabs, eps)
            total += 2.0 * float(tail)
        return total


def mass_outside_domain(target: Gibbs, mode: Mode, root: Array, move: Array) -> float:
    """Return a bound of P(x0 + basis v not in the domain) for v ~ N(move, M^{-1})."""
    if target.domain.is_whole_space:
        return 0.0
    if len(mode.sides):
        scaled = linalg.solve_triangular(root, mode.sides.T, lower=True)
        depths = mode.depths - mode.sides @ move
        return float(special.ndtr(-depths / np.linalg.norm(scaled, axis=0)).sum())
    if not target.geometry.is_round:
        return 1.0
    # The squared distance from the center is above R^2 with this probability at most,
    # by Cantelli's inequality.
    body = target.geometry.body
    center = mode.point + move - body.center
    inverse = linalg.cho_solve((root, True), np.eye(len(root)))
    depth = body.radius**2 - float(center @ center) - float(np.trace(inverse))
    variance = 2.0 * float(np.sum(inverse**2)) + 4.0 * float(center @ inverse @ center)
    return variance / (variance + depth**2) if depth > 0.0 else 1.0


def gram_of(target: Gibbs, mode: Mode, weights: Weights) -> Array:
    """Return k times the mean of weights_i a_i a_i^T, in the basis."""
    (gram,) = columns.fold_columns(target, mode, add_entries, _sum_gram, weights)
    return in_basis(target, gram, mode.basis)


# The functions below return sums over the records of one chunk.


def _sum_gram(part: RecordColumns, weights: Weights) -> tuple[Array]:
    """Return the sum of weights_i a_i a_i^T."""
    values = part.weights(weights)
    if not values.any():
        return (np.zeros((part.part.dim,) * 2),)
    return (weighted_gram(part.part, values),)


def _add_but_last(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add all entries except the last ones, of which the smaller is taken."""
    return (*add_entries(left[:-1], right[:-1]), min(left[-1], right[-1]))


def _share(weights: Array, curvature: Array) -> float:
    """Return the largest theta <= 1 with theta weights <= curvature."""
    return float(
        jit.call(largest_share, as_kernel_array(weights), as_kernel_array(curvature))
    )


def _sum_sizes(
    part: RecordColumns, metric: BoundingMetric, secant: Weights
) -> tuple[float, float, float]:
    """Return sums of |slope| ||a_i|| and ||a_i||, for P^{-1}, and the share of P."""
    sizes = part.sizes(metric.back)
    share = _share(part.weights(metric.weights), part.weights(secant))
    return float((np.abs(part.slopes) * sizes).sum()), float(sizes.sum()), share


def _compare_widths(
    part: RecordColumns,
    first: BoundingMetric,
    half_widths: tuple[MarginWidths, ...],
    widths: MarginWidths,
) -> tuple[float, float, float, float]:
    """Return the sum of the remaining shares of widths, and an estimate of the excess.

    Its numbers are the sum of curvature above the envelope, the sum of all curvature,
    and the largest valid share of the first weights.
    """
    lower, upper = part.ends(half_widths)
    old_widths = upper - lower
    # The width of a very small row may be 0 although its half-width is not.
    with np.errstate(all="ignore"):
        ratio = 2.0 * part.evaluate(widths) / old_widths
        ratio = np.where(old_widths > 0.0, ratio, 1.0)
    remaining = float(np.minimum(ratio, 1.0).sum())
    envelope = part.curvature("bregman", (*half_widths, widths))
    curvature, squares = part.mode_weights, part.sizes(first.back) ** 2
    excess = float(np.maximum(curvature - envelope, 0.0) @ squares)
    share = _share(part.weights(first.weights), envelope)
    return remaining, excess, float(curvature @ squares), share


def _sum_gaps(
    part: RecordColumns, metric: BoundingMetric, weights: Weights, eps: float
) -> tuple[float, float]:
    """Return sums of a Gaussian's mean curvature above an envelope, and of all."""
    sizes, response = part.sizes(metric.back), part.response
    # Within a = 4 standard deviations of a margin, the mean of a loss is bounded by
    # the curvature there. The rest of E t^2 is 2 (a phi(a) + Phi(-a)) < 0.0012. It is
    # bounded by the curvature on S.
    bound, width = part.setting.loss.curvature, sizes * (4.0 + eps)
    curvature = bound(part.margins - width, part.margins + width, response)[1]
    lower, upper = part.ends(weights.half_widths)
    ends = part.margins + lower, part.margins + upper
    curvature = curvature + 1.2e-3 * bound(*ends, response)[1]
    squares = sizes**2
    gaps = curvature - part.weights(weights)
    return float(gaps @ squares), float(curvature @ squares)


def _sum_tails(
    part: RecordColumns,
    metric: BoundingMetric,
    slabs: tuple[MarginWidths, ...],
    eps: float,
) -> tuple[float]:
    """Return a bound of a Gaussian's mass beyond slabs, on one side."""
    sizes = part.sizes(metric.back)
    widths = np.min([part.evaluate(slab) for slab in slabs], axis=0)
    has_width = sizes > 0.0
    deviations = widths[has_width] / sizes[has_width]
    return (float(special.ndtr(eps - deviations).sum()),)
