# mypy: allow-untyped-defs
r"""Interior rejection in exact arithmetic: floats, an error bound, or 80 digits.

The stored floats (records, x0, m, F, C, domain, k, mu) *are* real numbers. With exact
normals z and an exact exponential E, the *threshold*, a proposal v = m + F z is
accepted if it is in the region, x = x0 + v is in the domain K and E >= G(z), where

.. math:: G(z) = V(x_0 + v) - V(x_0) + C - \tfrac12 |z|^2

is the *excess*, with the energy V = k (mean loss + mu r). A proposal in region and
domain is a *candidate*.

**Distribution.** F defines the proposal, so its density in z is e^{-|z|^2/2} whatever
the rounding errors of F are. If G >= 0, the accepted x follow e^{-V} on region and K
exactly.

**Decisions.** Floats give G with an error of at most ``tolerance``. If the distance of
E from G is larger, the decision is right. Otherwise G is computed with decimals, to
1e-35. A tolerance that is too large only takes time, so its constants are generous:
(d + 4) u times the sizes for products of vectors, with u = 2^-53, in every order of
summation, and 16 u relative for the losses. The sum is doubled, which includes terms of
second order if d u < 1e-3.

**G >= 0** on the region. By Theorem B, V - V(x0) >= <g, v> + |v|_M^2 / 2 with the real
Gram matrix M. And R R^T <= M, because `factor_reduced` subtracts more than the errors
of Gram matrix and Cholesky factor. Let R^T F = (1 + eta)(I + E) and q = g + R R^T m.
Then

.. math:: G = \text{(terms} \ge 0) + C + \langle g, m\rangle + \tfrac12 |R^\top m|^2
   + \langle q, F z\rangle + \tfrac12 |R^\top F z|^2 - \tfrac12 |z|^2,

Eta and C are raised until they cover E, q (lambda |z| <= eta |z|^2 / 4 + lambda, if
2 lambda <= eta), rounding errors of the margins at x0, and 1e-9 of every weight. This
rejects a share of about d eta + lift of the candidates. If the gradient g is summed
together with the errors of its additions, it is within 4 u of its terms' sizes.

**Remaining errors.** z and E get bits until their errors are at most `ERROR` = h. Let B
bound the gradient of V, D be the diameter of K, K contain the ball of radius rho about
c, s be the grid's step, and c_z = |F| sqrt(d) h.

* A variate has the exact distribution except with probability `FAULT`. The bound is for
  all variates of `MAX_PROPOSALS` proposals.
* A density within a factor e^{+-e}, e = h (1 + sqrt(d) sup |grad G|), is within e^e - 1
  in total variation.
* The test of K can be wrong in the shell |dist(x, bd K)| <= c_z only. The map x ->
  (1 - a) x + a c takes K to depth a rho, and K + c_z, for a = c_z / rho, into K. It
  shrinks volumes by (1 - a)^d and raises V by at most a B D. So the shells have at most
  2 (c_z / rho)(d + B D) of the distribution, to first order. In the whole space there
  are no shells, but the density is exact only up to a distance beyond which the
  distribution has the mass `TAIL_SHARE` gamma.
* Rounding to the grid differs if x_j is within c_z of the border of a cell. A marginal
  density f_j is log-concave and so unimodal: 2 c_z / s + 4 c_z sup f_j. On K sup f_j <=
  (d + B D) / rho, as x -> (1 - a) x + a p with p in the ball, on its ends along e_j,
  moves the highest slice by a rho. In the whole space 2 sup f_j <= E |d_j V| <=
  (E d_jj V)^(1/2).

`floating_bound` is the sum. It is public, and usually 1e-15. If the residual at x0 is
wrong by delta, the mass outside of an ellipsoid of radius rho rises by a factor
e^{3 rho delta}. If this is above 1 + 1e-4, or a root is too ill-conditioned for the
region's allowances of 1e-9, `ExactRejection.from_prepared` returns None, and there is
no claim of exact decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.core.jit import kernel
from dpsample.losses import Loss
from dpsample.numerics.exact import (
    TOTAL_VARIATION,
    exact_exponential,
    exact_normal,
    two_product,
)
from dpsample.problem.facts import smoothness_or_inf
from dpsample.problem.records import Data
from dpsample.problem.storage import add_entries
from dpsample.samplers.errors import WorkLimitError
from dpsample.samplers.localized import columns, proposals
from dpsample.samplers.localized.exact_sums import add_sums, sum_records
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.prepared import PreparedLocalized
from dpsample.samplers.localized.region import RegionEllipsoid
from dpsample.samplers.localized.rejection import BLOCK_NUMBERS
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.grid import PublicGrid

# Share of gamma for floating-point errors. The rest is for the region.
FLOAT_SHARE = 1e-3
# Share of gamma beyond the public radius in the whole space.
TAIL_SHARE = 1e-4
# Largest error of an exact variate, and the probability that its distribution differs.
ERROR = 2.0**-96
FAULT = TOTAL_VARIATION
# Proposals before a draw falls back, for which the bound holds. They take hours.
MAX_PROPOSALS = 2**34
# Limits of lift and growth.
MIN_LIFT = 1e-6
MAX_GROWTH = 0.1
# Points are shrunk by this factor before the floats' test of the domain, so that it
# rejects no point inside.
INWARD = 1.0 - 1e-9


def floating_bound(target: Gibbs, grid: PublicGrid, gamma: float) -> float:
    """Return the total variation of floating-point errors, possibly infinite.

    It follows from public facts, and is valid for interior rejection only. The module
    lists its terms.
    """
    facts, dim, domain = target.problem.facts, target.dim, target.domain
    ridge = target.k * target.mu * target.curvature[0]
    smoothness = target.k * smoothness_or_inf(facts) + ridge
    if not (_has_digits(target) and math.isfinite(smoothness)):
        return math.inf
    if domain.is_whole_space:
        tail, shells = 2.0 * TAIL_SHARE * gamma, 0.0
        reach = math.sqrt(dim) + math.sqrt(-2.0 * math.log(TAIL_SHARE * gamma)) + 2.0
        reach /= math.sqrt(ridge)
        slope, density = smoothness * reach, 0.5 * math.sqrt(smoothness)
    else:
        inner, radius = domain.interior_point(dim), grid.inner_radius
        reach = 2.0 * domain.max_norm(2.0, inner, dim)
        size = float(np.linalg.norm(inner)) + reach
        # Otherwise the error of the floats' test of K is above the shrinking.
        if not size * dim < 1e5 * radius:
            return math.inf
        center = target.regularizer_params.center
        slope = target.k * facts.lipschitz_or_inf(2.0)
        slope += ridge * domain.max_norm(2.0, center, dim)
        density = (dim + slope * reach) / radius
        tail, shells = 0.0, 4.0 * density
    root_norm = 1.2 / math.sqrt(ridge)  # bounds |F|
    point_error = root_norm * math.sqrt(dim) * ERROR  # c_z
    max_noise = 1.2 * math.sqrt(smoothness) * (2.0 * reach + 1.5 * slope / ridge)
    factor = ERROR * (2.0 + math.sqrt(dim) * (root_norm * slope + max_noise))
    # expm1 would overflow, and any bound above 1 is useless.
    if not factor < 700.0:
        return math.inf
    cells = 2.0 * point_error / grid.step + 4.0 * point_error * density
    faults = MAX_PROPOSALS * (dim + 1) * FAULT
    return math.expm1(factor) + point_error * shells + 2.0 * dim * cells + tail + faults


def _has_digits(target: Gibbs) -> bool:
    """Return whether energy and domain can be computed to any number of digits."""
    domain, (min_curvature, max_curvature) = target.domain, target.curvature
    is_quadratic = target.regularizer.is_plain_norm and min_curvature == max_curvature
    is_body = domain.has_exact_test and (domain.is_whole_space or domain.is_bounded)
    return is_quadratic and is_body and target.problem.loss.has_digits


class Candidates(NamedTuple):
    """Proposals in region and domain. A number is the sum of a high and a low part."""

    noise: Array  # (size, dim): z
    noise_low: Array
    threshold: Array  # (size,): E
    threshold_low: Array
    vectors: Array  # (size, dim): m + F z in floats

    def part(self, rows: slice | Array | NDArray[np.bool_]) -> Candidates:
        """Return some of the candidates."""
        return Candidates(*(array[rows] for array in self))

    @property
    def rounded(self) -> tuple[Array, Array]:
        """Noise and threshold as floats, with small relative errors.

        The high part alone lacks up to 2^-44, which is far above the last bit of a
        small number.
        """
        return self.noise + self.noise_low, self.threshold + self.threshold_low


class RecordFacts(NamedTuple):
    """Sums over the records, and errors of numbers at x0."""

    row_length: float  # bound of the norm of a row
    curvature: float  # bound of the curvature of k F, per squared length of a row
    sizes: Array  # (4,): means of |margin|, |slope|, |loss|, |margin slope|, times k
    point_norm: float  # |x0|
    margin_error: float
    gradient: Array  # (dim,): g, of the records' slopes
    gradient_error: float
    largest_sum: float  # bound of the sums that decimals add up

    @classmethod
    def compute(cls, target: Gibbs, mode: Mode) -> RecordFacts:
        """Pass over the records, and return the numbers."""
        point = mode.point
        facts, num_records = target.problem.facts, target.storage.num_records
        k, unit = target.k, (target.dim + 4) * UNIT_ROUNDOFF
        ridge = k * target.mu * target.curvature[0]
        center = target.regularizer_params.center
        length = 1.01 * facts.full_row_bound * facts.dual_ratio(2.0)
        point_norm = float(np.linalg.norm(point))
        distance = point_norm + float(np.linalg.norm(center))
        sums = columns.fold_columns(target, mode, add_sums, sum_records)
        sizes = k * (sums.sizes / num_records)
        gradient = k / num_records * (sums.total + sums.rest)
        gradient += ridge * (point - center)
        largest = (1.0 + k + ridge) * num_records * (1.0 + sums.largest[1])
        return cls(
            row_length=length,
            curvature=1.1 * k * smoothness_or_inf(facts) / length**2,
            sizes=sizes,
            point_norm=point_norm,
            margin_error=2.0 * unit * (length * point_norm + sums.largest[0]),
            gradient=gradient,
            gradient_error=4.0 * UNIT_ROUNDOFF * (sizes[1] * length + ridge * distance),
            largest_sum=largest * (1.0 + point_norm + distance),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactRejection:
    """Interior rejection on one region, with the numbers of its decisions."""

    prepared: PreparedLocalized
    shift: Array  # (dim,): m
    root: Array  # (dim, dim): F
    height: float  # C
    lift: float  # difference of G and the excess of `region` at z = 0
    growth: float  # further difference, per |z|^2
    error: tuple[float, float, float]  # a, b, c of the error a + b |z| + c |z|^2
    digits: int

    @classmethod
    def from_prepared(cls, prepared: PreparedLocalized) -> ExactRejection | None:
        """Return exact rejection for a prepared sampler.

        Return None if its mode is not in the interior, or it is ill-conditioned.
        """
        target, mode, region = prepared.target, prepared.mode, prepared.region
        if not (_has_digits(target) and region.ellipsoids) or prepared.is_on_boundary:
            return None
        if not proposals.is_gaussian(mode, region):
            return None
        facts = RecordFacts.compute(target, mode)
        dim, unit = target.dim, (target.dim + 4) * UNIT_ROUNDOFF
        length, curvature = facts.row_length, facts.curvature
        margin_error, gradient_error = facts.margin_error, facts.gradient_error
        margins, slopes, values, mixed = facts.sizes
        gradient = facts.gradient
        difference = gradient - mode.gradient
        difference_error = gradient_error + 2.0 * curvature * length * margin_error
        for ellipsoid in region.ellipsoids:
            if not _is_accurate(ellipsoid, difference, difference_error, unit):
                return None
        # F, and the distance of R^T F from a multiple of the identity.
        size = float(np.linalg.norm(region.root))
        root = linalg.solve_triangular(region.root, np.eye(dim), lower=True).T
        spread = 1.1 * float(np.linalg.norm(root))
        flaw = float(np.linalg.norm(region.root.T @ root - np.eye(dim)))
        flaw += 2.0 * unit * size * spread
        # m, the norm of F^T q, and C without the lift.
        shift = -linalg.cho_solve((region.root, True), gradient)
        scaled_shift = region.root.T @ shift
        shift_norm = float(np.linalg.norm(shift))
        gradient_norm = float(np.linalg.norm(gradient))
        residual = float(np.linalg.norm(gradient + region.root @ scaled_shift))
        residual += gradient_error
        solve_error = 4.0 * unit * (size**2 * shift_norm + gradient_norm)
        residual = 1.2 * spread * (residual + solve_error)
        gain = -float(gradient @ shift) - 0.5 * float(scaled_shift @ scaled_shift)
        gain_error = 4.0 * unit * (gradient_norm + size**2 * shift_norm) * shift_norm
        gain_error += gradient_error * shift_norm
        # Terms of records may be below 0 by this, per |v|.
        negative = (curvature * margin_error + 16.0 * UNIT_ROUNDOFF * slopes) * length
        linear = negative * spread + residual
        growth = MIN_LIFT + 4.0 * flaw + 2.0 * linear
        growth += 8.0 * unit * curvature * (length * spread) ** 2
        # If x0 is so large that moves are below its digits, there is no claim.
        if not (growth <= MAX_GROWTH and facts.point_norm <= 1e15 * spread):
            return None
        lift = MIN_LIFT + 2.0 * (gain_error + negative * shift_norm) + linear
        lift += 2e-9 * float(scaled_shift @ scaled_shift)
        # The error of the excess has terms in |v| and |v|^2, and |v| <= |m| + |F| |z|.
        spread *= 1.0 + growth
        first = curvature * length * 1.1 * margin_error
        first += (
            40.0 * UNIT_ROUNDOFF * length * (slopes + curvature / target.k * margins)
        )
        second = curvature * length**2 * (7.0 * unit + 40.0 * UNIT_ROUNDOFF)
        second += region.slack * unit
        constant = 40.0 * UNIT_ROUNDOFF * (values + mixed) + gain_error
        error = (
            2.0 * (constant + first * shift_norm + 2.0 * second * shift_norm**2),
            2.0 * (first * spread + 1.5 * residual),
            2.0 * (2.0 * second * spread**2 + 1.5 * flaw),
        )
        return cls(
            prepared=prepared,
            shift=shift,
            root=(1.0 + growth) * root,
            height=gain + lift,
            lift=lift,
            growth=growth + 0.5 * growth**2,
            error=error,
            digits=60 + math.ceil(math.log10(facts.largest_sum)),
        )

    def draw(
        self,
        rng: np.random.Generator,
        max_passes: float = math.inf,
        *,
        on_passes: Callable[[float], None] | None = None,
    ) -> tuple[list[Decimal] | None, dict[str, int]]:
        """Return a draw, in decimals, and its counts. The draw may be None.

        That happens after `MAX_PROPOSALS` proposals. This limit is public, and no draw
        depends on the number of proposals. The sampler that takes over has its own
        proof of gamma. `WorkLimitError` says that ``max_passes`` passes over the
        records did not suffice. ``on_passes`` is called with the number of passes.
        """
        group_size, num_records = self.prepared.group_size, self._num_records
        # A fifth more proposals than needed on average, so that most blocks suffice.
        size = max(math.ceil(1.2 * group_size / self.prepared.candidate_rate), 1)
        size = min(size, self.prepared.max_block_size)
        counts = {"proposals": 0, "candidates": 0, "records": 0}
        while counts["proposals"] < MAX_PROPOSALS:
            block = self.draw_candidates(rng, size)
            counts["proposals"] += size
            for start in range(0, len(block.threshold), group_size):
                group = block.part(slice(start, start + group_size))
                is_accepted, num_read = self.decide(group)
                counts["candidates"] += len(group.threshold)
                counts["records"] += num_read
                if counts["records"] > max_passes * num_records:
                    raise WorkLimitError
                for i in np.flatnonzero(is_accepted).tolist():
                    point = self.point(group, i)
                    if self.contains(point):
                        return point, counts
            if on_passes is not None:
                on_passes(counts["records"] / num_records)
            pauses.notify_listeners()
        return None, counts

    def draw_candidates(self, rng: np.random.Generator, size: int) -> Candidates:
        """Return the ones among ``size`` proposals that floats do not reject."""
        noise, noise_low, threshold, threshold_low = draw_variates(
            rng, size, len(self.shift)
        )
        vectors = self.shift + (noise + noise_low) @ self.root.T
        block = Candidates(noise, noise_low, threshold, threshold_low, vectors)
        block = block.part(self.prepared.region.contains(vectors))
        target = self.prepared.target
        inner = target.domain.interior_point(target.dim)
        points = self.prepared.to_points(block.vectors)
        return block.part(self.prepared.is_inside(inner + INWARD * (points - inner)))

    def decide(self, candidates: Candidates) -> tuple[NDArray[np.bool_], int]:
        """Return whether E >= G for each candidate, and the number of records read."""
        noise, threshold = candidates.rounded
        offset, error = self._excess_offset(noise), self.tolerance(candidates)
        excess, num_read = self.prepared.evaluate_excess(
            candidates.vectors, threshold + error, is_checked=False
        )
        difference = threshold - (excess + offset)
        is_accepted = difference > 0.0
        for i in np.flatnonzero(np.abs(difference) <= error).tolist():
            with self.decimals():
                exact = Decimal(candidates.threshold[i])
                exact += Decimal(candidates.threshold_low[i])
                is_accepted[i] = exact >= self.exact_excess(candidates, i)
        return is_accepted, num_read

    def tolerance(self, candidates: Candidates) -> Array:
        """Return a bound of the error of the threshold minus the excess in floats."""
        noise, threshold = candidates.rounded
        size, num_records = np.linalg.norm(noise, axis=1), self._num_records
        error = self.error[0] + (self.error[1] + self.error[2] * size) * size
        # The errors of the Gram matrix and its root.
        square = np.einsum("ij,ij->i", candidates.vectors, candidates.vectors)
        error += 1.1 * self.prepared.region.slack * square
        # The terms of a sum are not negative, and it is at most the threshold.
        num_terms = min(num_records, BLOCK_NUMBERS) + num_records / 64 + 16
        return np.asarray(
            error + 2.0 * num_terms * UNIT_ROUNDOFF * (threshold + 1.0 + error)
        )

    @property
    def _num_records(self) -> int:
        return self.prepared.target.storage.num_records

    def _excess_offset(self, noise: Array) -> Array:
        """Return the difference of G and the excess of the region."""
        square = np.einsum("ij,ij->i", noise, noise)
        return np.asarray(self.lift + self.growth * square)

    def decimals(self) -> AbstractContextManager[object]:
        """Return a context in which errors of sums over records are below 1e-50."""
        return decimals(self.digits)

    def point(self, candidates: Candidates, i: int) -> list[Decimal]:
        """Return x0 + m + F z of one candidate."""
        base = self.prepared.mode.point
        return self._sum_rows([base[:, None], *self._move_terms(candidates, i)])

    def _move_terms(self, candidates: Candidates, i: int) -> list[Array]:
        """Return columns whose sum is m + F z, exactly."""
        products = (
            *two_product.py_func(self.root, candidates.noise[i]),
            *two_product.py_func(self.root, candidates.noise_low[i]),
        )
        return [self.shift[:, None], *products]

    def _sum_rows(self, columns: list[Array]) -> list[Decimal]:
        """Return sums of rows to 159 bits."""
        sums = []
        with self.decimals():
            for row in np.hstack(columns).tolist():
                total = Decimal(0)
                # Each sum is rounded once. The next one adds up the error of the last.
                for _ in range(3):
                    part = math.fsum(row)
                    row.append(-part)
                    total += Decimal(part)
                sums.append(total)
        return sums

    def exact_excess(self, candidates: Candidates, i: int) -> Decimal:
        """Return G of one candidate in decimals, with an error below 1e-35."""
        with self.decimals():
            return self._excess(candidates, i)

    def _excess(self, candidates: Candidates, i: int) -> Decimal:
        """Return G in the present context."""
        move = self._sum_rows(self._move_terms(candidates, i))
        base = self.prepared.mode.point
        energy = energy_rise(self.prepared.target, base, move, self.digits)
        square = Decimal(0)
        for high, low in zip(candidates.noise[i], candidates.noise_low[i], strict=True):
            square += (Decimal(high) + Decimal(low)) ** 2
        return energy + Decimal(self.height) - square / 2

    def contains(self, point: list[Decimal]) -> bool:
        """Return whether the domain contains a point, exactly."""
        with self.decimals():
            return self.prepared.target.domain.contains_exactly(point)


def _is_accurate(
    ellipsoid: RegionEllipsoid, difference: Array, difference_error: float, unit: float
) -> bool:
    """Return whether an ellipsoid's allowances cover rounding errors.

    ``difference`` is the error of the gradient that the ellipsoid was made for.
    """
    root = ellipsoid.root
    inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
    spread, size = float(np.linalg.norm(inverse)), float(np.linalg.norm(root))
    shift = float(np.linalg.norm(inverse @ difference)) + spread * difference_error
    is_well_conditioned = 8.0 * unit * spread * size <= 1e-9
    return is_well_conditioned and 3.0 * ellipsoid.radius * shift <= 1e-4


def energy_rise(
    target: Gibbs, point: Array, move: list[Decimal], digits: int
) -> Decimal:
    """Return V(x + move) - V(x) at a point x of doubles, in decimals.

    The context of decimals must have these ``digits``. The regularizer is a multiple of
    the squared l2 norm.
    """
    base = [Decimal(x) for x in point.tolist()]
    arguments = target.problem.loss, base, move, digits
    fold = partial(_add, digits)
    total: Decimal = target.storage.fold(fold, _exact_rise, *arguments)[0]
    center = map(Decimal, target.regularizer_params.center.tolist())
    # |x + v - c|^2 - |x - c|^2
    square_change = sum(
        v * (2 * (x - c) + v) for v, x, c in zip(move, base, center, strict=True)
    )
    scale = Decimal(target.curvature[0])
    ridge = Decimal(target.k) * Decimal(target.mu) * scale
    energy = Decimal(target.k) * total / target.storage.num_records
    return energy + ridge * square_change / 2


def decimals(digits: int) -> AbstractContextManager[object]:
    """Return a context of decimals without overflow."""
    return localcontext(Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX))


def _add(
    digits: int, left: tuple[Decimal], right: tuple[Decimal]
) -> tuple[Decimal, ...]:
    """Return the sum of two parts, with these digits in every process."""
    with decimals(digits):
        return add_entries(left, right)


def _exact_rise(
    part: Data, loss: Loss, base: list[Decimal], move: list[Decimal], digits: int
) -> tuple[Decimal]:
    """Return the rise of the losses from one point by a move, in decimals."""
    total = Decimal(0)
    with decimals(digits):
        for record in range(part.num_records):
            has_offset = part.offset.size > 0
            margin = Decimal(part.offset[record]) if has_offset else Decimal(0)
            step = Decimal(0)
            for j, a in _entries(part, record):
                entry = Decimal(a)
                margin, step = margin + entry * base[j], step + entry * move[j]
            response = float(part.response[record])
            total += loss._exact_value(margin + step, response)
            total -= loss._exact_value(margin, response)
            # Decimals are slow, and 64 records are short enough to notice Ctrl-C.
            if record % 64 == 0:
                pauses.notify_listeners()
    return (total,)


def _entries(data: Data, i: int) -> Iterator[tuple[int, float]]:
    """Yield columns and entries of one record."""
    if data.dense.shape[0]:
        yield from enumerate(data.dense[i].tolist())
    else:
        part = slice(data.starts[i], data.starts[i + 1])
        columns, values = data.columns[part].tolist(), data.values[part].tolist()
        yield from zip(columns, values, strict=True)


def draw_variates(
    rng: np.random.Generator, size: int, dim: int
) -> tuple[Array, Array, Array, Array]:
    """Return rows of normals, and exponentials, each as high and low part."""
    shape = size, dim
    noise, noise_low, threshold, threshold_low = (
        np.empty(shape),
        np.empty(shape),
        np.empty(size),
        np.empty(size),
    )
    count = max(1, 100_000 // dim)
    for start in range(0, size, count):
        rows = slice(start, start + count)
        fill_variates(
            rng, noise[rows], noise_low[rows], threshold[rows], threshold_low[rows]
        )
        pauses.notify_listeners()
    return noise, noise_low, threshold, threshold_low


@kernel
def fill_variates(rng, noise, noise_low, threshold, threshold_low):
    """Fill rows of normals, and exponentials."""
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            noise[i, j], noise_low[i, j] = exact_normal(rng)
        threshold[i], threshold_low[i] = exact_exponential(rng)
