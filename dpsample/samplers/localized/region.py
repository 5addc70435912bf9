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
||w||^2. If only <q, w> >= -delta on K, as x0 is near the boundary and not on it, eps is
||e|| + delta / rho: other rays from x0 have no point that far.

**Theorem C.** Each round adds the ellipsoid of Theorem A to S, with constants valid on
the S before it. At most `MAX_ROUNDS` rounds, a public number, with a share gamma /
`MAX_ROUNDS` each: the target conditioned on the last S is within total variation gamma
of the target, for every data set.

**Theorem B.** M <= M^B on S and Q(x) = <g, w> + ||w||_M^2 / 2: then D = V - V(x0) - Q
>= 0 on S, and a draw from e^{-Q} on S that is accepted with probability e^{-D} follows
the target on S exactly. Its law is at most that of e^{-Q} on S divided by p = E e^{-D}.

**Slabs.** With x0 in the interior e^{-Q} is the Gaussian N(x0 - M^{-1} g, M^{-1}), and
with s_i = ||a_i|| and eps = ||g|| in the norm of M^{-1} the target on S has at most

.. math:: 2 n \Phi(-z) / (N(S) p)

outside of the slabs |t_i| <= s_i (z + eps). N(S) >= 1/2 is proved by union bounds, and
log(1/p) <= E_N[D; S] / N(S) (Jensen), with E_N B_i bounded by the largest curvature
near the mode, and by that on S far from it. In high dimensions slabs are narrower
than the ellipsoid.
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
    WIDENED,
    ChunkColumns,
    Half,
    RecordColumns,
    Weights,
    share_of,
)
from dpsample.samplers.localized.mode import Mode, in_basis
from dpsample.targets.gibbs import Gibbs, as_kernel_array, times_basis

MAX_ROUNDS = 8
LOWERED = 1e-11  # inward rounding of matrices
EPSILON = 2.0**-52
# Rounding of the slope at x0, relative to the sum of its terms' sizes.
SLOPE_ROUNDING = 1e-12
# A larger residual tells that Newton's method failed.
MAX_RESIDUAL = 1.0
# Passes over the records that one round takes, in units of 8 + dim / 5, less what it
# gains for further draws.
ROUND_COST = 0.25
# Slabs are of use if they are narrower than the ellipsoid by this factor.
NARROWER = 1.25
# Standard deviations of a margin within which the Gaussian's mean of a loss is bounded
# by the curvature there, and E[t^2; |t| > NEAR] = 2 (NEAR phi(NEAR) + Phi(-NEAR)).
NEAR, FAR_SHARE = 4.0, 1.2e-3
NEGLIGIBLE = 0.1  # mean of D from which no further round pays


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundingMetric:
    """Metric P = ``gram`` + ridge I with P <= M^S wherever weights_i <= c_i^S."""

    weights: Weights
    gram: Array  # (m, m)
    root: Array  # (m, m): lower Cholesky factor of P
    back: Array  # (dim, m): ||a_i back|| is the norm of a_i for P^{-1}

    @classmethod
    def of(
        cls, target: Gibbs, mode: Mode, weights: Weights, ridge: float
    ) -> BoundingMetric | None:
        """Metric of given weights; None if P is numerically singular."""
        gram = gram_of(target, mode, weights)
        return cls.around(target, mode, weights, gram, ridge)

    @classmethod
    def around(
        cls, target: Gibbs, mode: Mode, weights: Weights, gram: Array, ridge: float
    ) -> BoundingMetric | None:
        """Metric whose Gram matrix is known."""
        lowered = lowered_root(gram, ridge, target)
        if lowered is None:
            return None
        root, _ = lowered
        inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
        back = times_basis(mode.basis, inverse.T)
        return cls(
            weights=weights, gram=gram, root=root, back=np.ascontiguousarray(back)
        )


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
    halves: tuple[Half, ...]  # within which margins move on S
    num_rounds: int
    has_slabs: bool  # whether the ellipsoids do not keep margins there
    weights: Weights  # at most c_i^B on S
    root: Array  # lower Cholesky factor of M, lowered by ``slack`` I
    slack: float
    mean_excess: float  # estimate of the mean of D

    def select_columns(self, part: RecordColumns) -> ChunkColumns:
        """Return the columns of some records that kernels read for this region."""
        return part.select(self.weights, self.halves if self.has_slabs else ())

    def contains(self, vectors: Array) -> Array:
        """Whether each row v is in S, as far as ellipsoids say."""
        inside = [each.contains(vectors) for each in self.ellipsoids]
        return np.asarray(
            np.all(np.reshape(inside, (len(inside), len(vectors))), axis=0)
        )


def lowered_by(target: Gibbs) -> float:
    """Share of the trace that exceeds the errors of Gram matrix and Cholesky factor.

    A sum of m terms errs by m u of their sizes, which for weights_i a_i a_i^T are at
    most the trace in norm; a factor of M by (dim + 1) u trace(M). Sparse rows are
    added one by one, dense ones by blocks, and chunks of blocks in a tree: no path of
    it is longer than the sum in order.
    """
    count, dim = target.storage.num_records, target.dim
    is_sparse = (
        isinstance(target.storage, MemoryStorage) and target.data.dense.shape[0] == 0
    )
    block = block_size(dim)
    terms = float(count) if is_sparse else min(block, count) + count / min(block, count)
    return max(LOWERED, 1.5 * (terms + 2.0 * dim + 16.0) * EPSILON)


def lowered_root(
    gram: Array, ridge: float, target: Gibbs
) -> tuple[Array, float] | None:
    """Lower Cholesky factor of gram + (ridge - s) I, and s, above all rounding errors.

    None if the matrix is too close to singular for that.
    """
    matrix = 0.5 * (gram + gram.T) + ridge * np.eye(len(gram))
    slack = lowered_by(target) * float(np.trace(matrix))
    if slack > 0.1 * ridge and slack > 0.1 * float(np.linalg.eigvalsh(matrix)[0]):
        return None
    root = np.linalg.cholesky(matrix - slack * np.eye(len(matrix)))
    return np.asarray(root, dtype=np.float64), slack


def chi_quantile(tail: float, dim: int) -> float:
    """Return x with P(chi_dim > x) = tail."""
    return math.sqrt(2.0 * float(special.gammainccinv(0.5 * dim, tail)))


def radius(dim: int, residual: float, gamma: float, shortfall: float = 0.0) -> float:
    """Rho of Theorem A for a mass of at most gamma outside.

    The factor before the chi tail falls with rho, as delta / rho does; both are taken
    at a smaller one.
    """
    first = chi_quantile(gamma, dim)
    residual = residual + shortfall / first
    factor = 0.5 * residual**2 + (dim - 1) * math.log1p(residual / first)
    return WIDENED * (residual + chi_quantile(gamma * math.exp(-factor), dim))


def localize(target: Gibbs, mode: Mode, gamma: float) -> Region | None:
    """Make rounds of Theorem A and slabs, then the envelope; None if none is of use."""
    strength = target.curvature[0]
    ridge = target.k * target.mu * strength
    held = ridge + 0.5 * mode.multiplier
    first = BoundingMetric.around(target, mode, Weights("mode"), mode.gram, held)
    if first is None:
        return None
    rounds = _Rounds(target, mode, first, gamma / MAX_ROUNDS, ridge)
    while rounds.num_rounds < MAX_ROUNDS and rounds.go_on(held):
        pass
    if not rounds.ellipsoids:
        return None
    weights, loss = rounds.envelope, rounds.loss
    scaled = first.weights._replace(scale=loss.share)
    # One more Gram matrix costs about dim / 10 passes over the records.
    if loss.scaled - loss.excess > 0.002 * len(first.root):
        gram, excess = gram_of(target, mode, weights), loss.excess
    else:
        weights, gram, excess = scaled, loss.share * first.gram, loss.scaled
    lowered = lowered_root(gram, ridge, target)
    if lowered is None:
        return None
    root, slack = lowered
    return Region(
        ellipsoids=tuple(rounds.ellipsoids),
        halves=rounds.halves,
        num_rounds=rounds.num_rounds,
        has_slabs=bool(rounds.slabs),
        weights=weights,
        root=root,
        slack=slack,
        mean_excess=excess,
    )


def everywhere(target: Gibbs, mode: Mode) -> Region:
    """All of the domain, with the regularizer's quadratic alone: Theorem B holds there.

    Without an ellipsoid, so that nothing is left out and x0 may be any point.
    """
    ridge = target.k * target.mu * target.curvature[0]
    return Region(
        ellipsoids=(),
        halves=(),
        num_rounds=0,
        has_slabs=False,
        weights=Weights("none"),
        root=math.sqrt(ridge) * np.eye(mode.basis.shape[1]),
        slack=0.0,
        mean_excess=math.inf,
    )


class Lost(NamedTuple):
    """Mean of D, up to higher orders, for an envelope and for the first weights."""

    excess: float
    scaled: float  # for theta times the first weights,
    share: float  # the largest theta with which they are below the envelope


class _Rounds:
    """The region S so far; every round takes one share of gamma."""

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
        self.frames = [first]
        self.halves: tuple[Half, ...] = ()
        self.ellipsoids: list[Ellipsoid] = []
        self.num_rounds = 0
        self.slabs: tuple[Half, ...] = ()  # those of the halves
        self.loss = Lost(math.inf, math.inf, 0.0)

    def sums(self, function: Callable[..., Result], *args: object) -> Result:
        """Add up what ``function(columns, *args)`` returns."""
        return columns.folded(self.target, self.mode, add_entries, function, *args)

    @property
    def envelope(self) -> Weights:
        """Bregman curvatures on S."""
        return Weights("bregman", self.halves)

    def go_on(self, held: float) -> bool:
        """One round, by what pays first; whether there was one."""
        lost = self.loss.excess
        if lost < NEGLIGIBLE:
            return False
        secant = Weights("secant", self.halves)
        if self._shrink(self._best_ellipsoid(secant), 0.8):
            return True
        # What a round must lower the mean of D by, to save as much as it costs.
        cost = ROUND_COST * (8.0 + 0.2 * len(self.first.root))
        most = 1.0 - max(0.02, cost * math.exp(-lost) / lost)
        if self._are_slabs_narrow() and self._shrink(self._slab(), most):
            return True
        fresh = BoundingMetric.of(self.target, self.mode, secant, held)
        if fresh is None:
            return False
        self.frames = [self.first, fresh]
        # The first is taken anyway: tilting needs a bounded region.
        most = most if self.ellipsoids else math.inf
        return self._shrink(self._best_ellipsoid(secant), most)

    def _shrink(self, found: tuple[Ellipsoid | None, Half] | None, most: float) -> bool:
        """Take a round if it leaves at most such a share of the widths, on average."""
        if found is None:
            return False
        ellipsoid, half = found
        halves = (*self.halves, half)
        given = self.first, self.halves, half
        left, *lost = columns.folded(self.target, self.mode, _join, _left, *given)
        if not left / self.target.storage.num_records < most:
            return False
        if ellipsoid is not None:
            self.ellipsoids.append(ellipsoid)
        else:
            self.slabs = (*self.slabs, half)
        self.halves, self.num_rounds = halves, self.num_rounds + 1
        excess, total, share = lost
        scale = 0.5 * self.target.k / self.target.storage.num_records
        self.loss = Lost(scale * excess, scale * (1.0 - share) * total, float(share))
        return True

    def _best_ellipsoid(self, secant: Weights) -> tuple[Ellipsoid, Half] | None:
        """Ellipsoid of the frame that makes half-widths smallest, and these."""
        found = []
        for frame in self.frames:
            terms, sizes, theta = columns.folded(
                self.target, self.mode, _join, _measured, frame, secant
            )
            if theta <= 0.0:
                continue
            scale = math.sqrt(theta)
            residual = self._norm(self.mode.residual, frame, terms) / scale
            if residual + self.mode.shortfall <= MAX_RESIDUAL:
                dim, held = len(frame.root), self.mode.shortfall
                reach = radius(dim, residual, self.share, held) / scale
                ellipsoid = Ellipsoid(root=frame.root, radius=reach)
                half = Half(frame.back, reach * WIDENED)
                found.append((sizes * half.factor, ellipsoid, half))
        best = min(found, key=lambda each: float(each[0]), default=None)
        return None if best is None else best[1:]

    def _norm(self, slope: Array, frame: BoundingMetric, terms: float) -> float:
        """Norm of a slope at x0 for P^{-1}, with the rounding errors of the sum."""
        size = linalg.solve_triangular(frame.root, slope, lower=True)
        mean = self.target.k * terms / self.target.storage.num_records
        return float(np.linalg.norm(size)) + SLOPE_ROUNDING * mean

    def _are_slabs_narrow(self) -> bool:
        """Whether slabs are allowed, and would be narrower than the ellipsoid."""
        mode, bounds = self.mode, self.target.curvature
        if not self.ellipsoids or mode.multiplier > 0.0 or mode.multipliers.any():
            return False
        log_tail = np.log(self.share / (4.0 * self.target.storage.num_records))
        z = -float(special.ndtri_exp(log_tail))
        is_quadratic = bounds[0] == bounds[1]
        widest = chi_quantile(self.share, len(self.first.root))
        return is_quadratic and NARROWER * z < widest

    def _slab(self) -> tuple[None, Half] | None:
        """Half-widths of slabs for the envelope on S, if N(S) >= 1/2 is proved."""
        weights = self.envelope
        frame = BoundingMetric.of(self.target, self.mode, weights, self.ridge)
        if frame is None:
            return None
        target, dim, count = (
            self.target,
            len(frame.root),
            self.target.storage.num_records,
        )
        terms = columns.folded(target, self.mode, _join, _measured, frame, weights)[0]
        eps = self._norm(self.mode.gradient, frame, terms)
        if eps > 0.1:
            return None
        outside = self._outside(frame, eps)
        if not outside <= 0.5:
            return None
        sums = self.sums(_bent, frame, weights, eps)
        scale = target.k / count
        inverse = linalg.solve_triangular(frame.root, np.eye(dim), lower=True)
        trace = float(np.sum(inverse**2))
        mean = 0.5 * scale * float(sums[0])
        full = float(np.trace(frame.gram)) + self.ridge * dim
        mean += 0.5 * lowered_by(target) * full * trace
        moved = scale * float(sums[1]) + self.ridge * trace
        mean += 0.5 * eps**2 * moved
        square = np.sqrt((dim + eps**2) ** 2 + 2.0 * dim + 4.0 * eps**2)
        mean += 0.5 * float(square) * math.sqrt(outside)
        log_p = -mean / (1.0 - outside)
        log_tail = math.log(self.share) + math.log1p(-outside) + log_p
        z = -float(special.ndtri_exp(log_tail - math.log(2.0 * count)))
        return None, Half(frame.back, (z + eps) * WIDENED)

    def _outside(self, frame: BoundingMetric, eps: float) -> float:
        """Bound of the Gaussian's mass outside of S."""
        move = -linalg.cho_solve((frame.root, True), self.mode.gradient)
        total = mass_outside(self.target, self.mode, frame.root, move)
        for each in self.ellipsoids:
            ratio = linalg.solve_triangular(frame.root, each.root, lower=True)
            reach = each.radius / float(np.linalg.norm(ratio, 2))
            half = 0.5 * max(reach / WIDENED - eps, 0.0) ** 2
            total += float(special.gammaincc(0.5 * len(frame.root), half))
        if self.slabs:
            (beyond,) = self.sums(_beyond, frame, self.slabs, eps)
            total += 2.0 * float(beyond)
        return total


def mass_outside(target: Gibbs, mode: Mode, root: Array, move: Array) -> float:
    """Bound of P(x0 + basis v outside of the domain) for v ~ N(move, M^{-1})."""
    if target.problem.domain.is_whole_space:
        return 0.0
    if len(mode.sides):
        scaled = linalg.solve_triangular(root, mode.sides.T, lower=True)
        depths = mode.depths - mode.sides @ move
        return float(special.ndtr(-depths / np.linalg.norm(scaled, axis=0)).sum())
    if not target.geometry.is_round:
        return 1.0
    body = target.geometry.body
    center = mode.point + move - body.center
    inverse = linalg.cho_solve((root, True), np.eye(len(root)))
    room = body.radius**2 - float(center @ center) - float(np.trace(inverse))
    variance = 2.0 * float(np.sum(inverse**2)) + 4.0 * float(center @ inverse @ center)
    return variance / (variance + room**2) if room > 0.0 else 1.0


def gram_of(target: Gibbs, mode: Mode, weights: Weights) -> Array:
    """Return k times the mean of weights_i a_i a_i^T, in the basis."""
    (gram,) = columns.folded(target, mode, add_entries, _gram, weights)
    return in_basis(target, gram, mode.basis)


# Passes: sums over the records of one chunk.


def _gram(part: RecordColumns, weights: Weights) -> tuple[Array]:
    each = part.weights(weights)
    if not each.any():
        return (np.zeros((part.part.dim,) * 2),)
    return (weighted_gram(part.part, each),)


def _join(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add entries; of the last ones take the smaller."""
    return (*add_entries(left[:-1], right[:-1]), min(left[-1], right[-1]))


def _share(weights: Array, curvature: Array) -> float:
    """Largest theta <= 1 with theta weights <= curvature: theta P is valid."""
    return float(
        jit.call(share_of, as_kernel_array(weights), as_kernel_array(curvature))
    )


def _measured(
    part: RecordColumns, frame: BoundingMetric, secant: Weights
) -> tuple[float, float, float]:
    """Return sums of |slope| ||a_i|| and ||a_i||, for P^{-1}, and the share of P."""
    sizes = part.sizes(frame.back)
    share = _share(part.weights(frame.weights), part.weights(secant))
    return float((np.abs(part.slopes) * sizes).sum()), float(sizes.sum()), share


def _left(
    part: RecordColumns, first: BoundingMetric, halves: tuple[Half, ...], half: Half
) -> tuple[float, float, float, float]:
    """Return the sum of the shares of widths that half-widths leave, and what is lost.

    Lost are the sum of curvature above the envelope there, of all, and its share.
    """
    lower, upper = part.ends(halves)
    widths = upper - lower
    with np.errstate(all="ignore"):  # widths of tiny rows are 0, half-widths are not
        ratio = np.where(widths > 0.0, 2.0 * part.half(half) / widths, 1.0)
    left = float(np.minimum(ratio, 1.0).sum())
    envelope, above = part.curvature("bregman", (*halves, half)), part.mode_weights
    squares = part.sizes(first.back) ** 2
    lost = float(np.maximum(above - envelope, 0.0) @ squares)
    share = _share(part.weights(first.weights), envelope)
    return left, lost, float(above @ squares), share


def _bent(
    part: RecordColumns, frame: BoundingMetric, weights: Weights, eps: float
) -> tuple[float, float]:
    """Return sums of curvature above an envelope that a Gaussian meets, and of all."""
    sizes, response = part.sizes(frame.back), part.response
    bound, near = part.scene.loss.curvature, sizes * (NEAR + eps)
    above = bound(part.margins - near, part.margins + near, response)[1]
    lower, upper = part.ends(weights.halves)
    ends = part.margins + lower, part.margins + upper
    above = above + FAR_SHARE * bound(*ends, response)[1]
    squares = sizes**2
    return float((above - part.weights(weights)) @ squares), float(above @ squares)


def _beyond(
    part: RecordColumns, frame: BoundingMetric, slabs: tuple[Half, ...], eps: float
) -> tuple[float]:
    """Bound of a Gaussian's mass beyond slabs, on one side."""
    sizes = part.sizes(frame.back)
    half, moves = np.min([part.half(each) for each in slabs], axis=0), sizes > 0.0
    return (float(special.ndtr(eps - half[moves] / sizes[moves]).sum()),)
