# mypy: allow-untyped-defs
r"""Interior rejection that no rounding error decides: doubles, a bound, or 80 digits.

Stored doubles (records, x0, m, F, C, domain, k, mu) *are* real numbers. With exact
normals z and an exact exponential E, a try v = m + F z is accepted if it is in the
region, x = x0 + v is in the domain K and E >= G(z),

.. math:: G(z) = V(x_0 + v) - V(x_0) + C - \tfrac12 |z|^2.

**Law.** F defines the proposal, so its density in z is e^{-|z|^2/2} whatever rounding
made of F. Where G >= 0 the accepted x follow e^{-V} on region and K exactly.

**Decisions.** `excess` computes G with an error of at most ``tolerance``; if E is
farther from it, the sign is right. Else G is computed with decimals, to 1e-35. An error
only costs time, so its constants are generous: products of vectors count (d + 4) u
sizes, u = 2^-53, in every order of summation, the losses 16 u relative, and the sum of
all is doubled, which holds for terms of second order while d u < 1e-3.

**G >= 0** on the region: by Theorem B, V - V(x0) >= <g, v> + |v|_M^2 / 2 with the real
Gram matrix M; R R^T <= M, for `lowered_root` takes more than the errors of Gram matrix
and Cholesky factor away. Let R^T F = (1 + eta)(I + E) and q = g + R R^T m. Then

.. math:: G = \text{(terms} \ge 0) + C + \langle g, m\rangle + \tfrac12 |R^\top m|^2
   + \langle q, F z\rangle + \tfrac12 |R^\top F z|^2 - \tfrac12 |z|^2,

and eta and C are raised until they pay for E, q (lambda |z| <= eta |z|^2 / 4 + lambda,
if 2 lambda <= eta), margins that are not those at x0, and 1e-9 of every weight. They
cost a share of about d eta + lift of the tries. A slope g that is summed with the
errors of its additions is within 4 u of its terms' sizes.

**What is left** is charged: z and E come with an error of at most `ERROR` = h, however
many bits decide. Let B bound the slope of V and D the diameter of K, let K hold the
ball of radius rho about c, s be the grid's step, and c_z = |F| sqrt(d) h.

* A variate is that of the exact law except with probability `FAULT`: the sum over all
  that `MOST_TRIES` take.
* A density within a factor e^{+-e}, e = h (1 + sqrt(d) sup |grad G|), is within e^e - 1
  in total variation.
* The test of K errs in the shell |dist(x, bd K)| <= c_z at most. x -> (1 - a) x + a c
  takes K to depth a rho and K + c_z, for a = c_z / rho, into K; volumes shrink by (1 -
  a)^d and V rises by a B D. So the shells have at most 2 (c_z / rho)(d + B D) of the
  law, to first order. In the whole space there is none, but the law is only followed
  to a distance beyond which it has `TAIL` gamma.
* Rounding differs if x_j is within c_z of the border of a cell. A marginal density f_j
  is log-concave and so unimodal: 2 c_z / s + 4 c_z sup f_j. On K sup f_j <= (d + B D) /
  rho, as x -> (1 - a) x + a p with p in the ball, on its ends along e_j, moves the
  highest slice by a rho; in the whole space 2 sup f_j <= E |d_j V| <= (E d_jj V)^(1/2).

All of it is public, and usually 1e-15: `floating_bound`. A residual at x0 that is off
by delta raises the mass outside of an ellipsoid of radius rho by a factor e^{3 rho
delta}; where that is above 1 + 1e-4, or a root is too ill-conditioned for the region's
allowances of 1e-9, `ExactRejection.of` returns None, and nothing is claimed.
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
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.losses import Loss
from dpsample.numerics.exact import (
    TOTAL_VARIATION,
    exact_exponential,
    exact_normal,
    two_product,
    two_sum,
)
from dpsample.problem.facts import smoothness_or_inf
from dpsample.problem.records import Data
from dpsample.problem.storage import add_entries
from dpsample.regularizers import SquaredNorm
from dpsample.samplers.errors import WorkLimitError
from dpsample.samplers.localized import columns, proposals
from dpsample.samplers.localized.columns import RecordColumns
from dpsample.samplers.localized.prepared import PreparedLocalized
from dpsample.samplers.localized.tries import BLOCK_NUMBERS
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.grid import PublicGrid

# Share of gamma that pays for floating point, and of that what the bound may take: the
# rest is for the region, see above.
SHARE, MOST = 1e-3, 0.8
TAIL = 1e-4  # of gamma, beyond the whole space's public radius
UNIT = 2.0**-53
# Digits of an exact variate end there; the probability that it is another one; tries
# for which that is charged, before a draw falls back: hours of work, at least.
ERROR, FAULT, MOST_TRIES = 2.0**-96, TOTAL_VARIATION, 2**34
LEAST = 1e-6  # of lift and growth
MOST_GROWTH = 0.1
RECORDS_AT_ONCE = 64  # of decimals, between looks at Ctrl-C
# Shrinking of a point before a test of the domain that may only refuse what is outside.
INWARD = 1.0 - 1e-9


def floating_bound(target: Gibbs, grid: PublicGrid, gamma: float) -> float:
    """Total variation that floating point costs, from public facts; or infinity.

    For interior rejection alone: the module says what it is made of.
    """
    facts, dim, domain = target.problem.facts, target.dim, target.problem.domain
    ridge = target.k * target.mu * target.curvature[0]
    bend = target.k * smoothness_or_inf(facts) + ridge
    if not (_is_known(target) and math.isfinite(bend)):
        return math.inf
    if domain.is_whole_space:
        tail, shells = 2.0 * TAIL * gamma, 0.0
        reach = math.sqrt(dim) + math.sqrt(-2.0 * math.log(TAIL * gamma)) + 2.0
        reach /= math.sqrt(ridge)
        slope, density = bend * reach, 0.5 * math.sqrt(bend)
    else:
        inner, radius = domain.interior_point(dim), grid.inner_radius
        reach = 2.0 * domain.max_norm(2.0, inner, dim)
        size = float(np.linalg.norm(inner)) + reach
        if not size * dim < 1e5 * radius:  # the doubles' test of K errs by more
            return math.inf
        center = target.regularizer_params.center
        slope = target.k * facts.lipschitz_or_inf(2.0)
        slope += ridge * domain.max_norm(2.0, center, dim)
        density = (dim + slope * reach) / radius
        tail, shells = 0.0, 4.0 * density
    root = 1.2 / math.sqrt(ridge)  # bounds F
    moved = root * math.sqrt(dim) * ERROR
    farthest = 1.2 * math.sqrt(bend) * (2.0 * reach + 1.5 * slope / ridge)  # |z|
    factor = ERROR * (2.0 + math.sqrt(dim) * (root * slope + farthest))
    if not factor < 700.0:  # more than any distance, and than doubles hold
        return math.inf
    cells = 2.0 * moved / grid.step + 4.0 * moved * density
    faults = MOST_TRIES * (dim + 1) * FAULT
    return math.expm1(factor) + moved * shells + 2.0 * dim * cells + tail + faults


def _is_known(target: Gibbs) -> bool:
    """Whether every piece has its values to any number of digits."""
    domain, (least, most) = target.problem.domain, target.curvature
    is_quadratic = isinstance(target.regularizer, SquaredNorm) and least == most
    is_body = domain.has_exact_test and (domain.is_whole_space or domain.is_bounded)
    return is_quadratic and is_body and target.problem.loss.has_digits


class Tries(NamedTuple):
    """Tries that region and domain do not refuse, each number as high + low."""

    noise: Array  # (size, dim): z
    noise_low: Array
    budget: Array  # (size,): E
    budget_low: Array
    vectors: Array  # (size, dim): m + F z in doubles

    def part(self, rows: slice | Array | NDArray[np.bool_]) -> Tries:
        """Return some of the tries."""
        return Tries(*(each[rows] for each in self))

    @property
    def nearest(self) -> tuple[Array, Array]:
        """Noise and budget in doubles: an error relative to each, as low parts are not.

        What one lacks of a number is up to 2^-44, far above a small one's last bit.
        """
        return self.noise + self.noise_low, self.budget + self.budget_low


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactRejection:
    """Interior rejection of one place, with what its decisions need."""

    prepared: PreparedLocalized
    shift: Array  # (dim,): m
    root: Array  # (dim, dim): F
    height: float  # C
    lift: float  # of G above the excess at z = 0,
    growth: float  # and this times |z|^2
    error: tuple[float, float, float]  # of the excess: a + b |z| + c |z|^2
    digits: int

    @classmethod
    def of(cls, prepared: PreparedLocalized) -> ExactRejection | None:
        """Bounds for a place; None if it is no interior one, or ill-conditioned."""
        target, mode, region = prepared.target, prepared.mode, prepared.region
        if not (_is_known(target) and region.ellipsoids) or prepared.is_on_boundary:
            return None
        if not proposals.is_gaussian(mode, region):
            return None
        dim, num_records = target.dim, target.storage.num_records
        unit, k = (dim + 4) * UNIT, target.k
        ridge = k * target.mu * target.curvature[0]
        center = target.regularizer_params.center
        facts = target.problem.facts
        length = 1.01 * facts.full_row_bound * facts.dual_ratio(2.0)
        here = float(np.linalg.norm(mode.point))
        sums = columns.folded(target, mode, _joined, _sums)
        away = 2.0 * unit * (length * here + sums.largest[0])
        bend = 1.1 * k * smoothness_or_inf(facts) / length**2
        margins, slopes, values, mixed = k * (sums.sizes / num_records)
        # The slope at x0 that belongs to the records' slopes, and its error.
        gradient = k / num_records * (sums.total + sums.rest)
        gradient += ridge * (mode.point - center)
        far = here + float(np.linalg.norm(center))
        slope_error = 4.0 * UNIT * (slopes * length + ridge * far)
        off = gradient - mode.gradient, slope_error + 2.0 * bend * length * away
        if not all(_is_sharp(e.root, e.radius, off, unit) for e in region.ellipsoids):
            return None
        # F, and how far R^T F is from a multiple of the identity.
        size = float(np.linalg.norm(region.root))
        root = linalg.solve_triangular(region.root, np.eye(dim), lower=True).T
        spread = 1.1 * float(np.linalg.norm(root))
        flaw = float(np.linalg.norm(region.root.T @ root - np.eye(dim)))
        flaw += 2.0 * unit * size * spread
        # m, what it leaves of the slope, and what it gains.
        shift = -linalg.cho_solve((region.root, True), gradient)
        back = region.root.T @ shift
        moved, steep = float(np.linalg.norm(shift)), float(np.linalg.norm(gradient))
        left = float(np.linalg.norm(gradient + region.root @ back)) + slope_error
        left = 1.2 * spread * (left + 4.0 * unit * (size**2 * moved + steep))
        gain = -float(gradient @ shift) - 0.5 * float(back @ back)
        gain_error = 4.0 * unit * (steep + size**2 * moved) * moved
        gain_error += slope_error * moved
        # What terms may be below 0, per |v|.
        below = (bend * away + 16.0 * UNIT * slopes) * length
        linear = below * spread + left
        growth = LEAST + 4.0 * flaw + 2.0 * linear
        growth += 8.0 * unit * bend * (length * spread) ** 2
        # Where x0 has no digits to move by, nothing is claimed.
        if not (growth <= MOST_GROWTH and here <= 1e15 * spread):
            return None
        lift = LEAST + 2.0 * (gain_error + below * moved) + linear
        lift += 2e-9 * float(back @ back)
        # Error of the excess, in powers of |z|: |v| <= |m| + |F| |z|.
        spread *= 1.0 + growth
        one = bend * length * 1.1 * away
        one += 40.0 * UNIT * length * (slopes + bend / k * margins)
        two = bend * length**2 * (7.0 * unit + 40.0 * UNIT) + region.slack * unit
        least = 40.0 * UNIT * (values + mixed) + gain_error
        error = (
            2.0 * (least + one * moved + 2.0 * two * moved**2),
            2.0 * (one * spread + 1.5 * left),
            2.0 * (2.0 * two * spread**2 + 1.5 * flaw),
        )
        largest = (1.0 + k + ridge) * num_records * (1.0 + sums.largest[1])
        return cls(
            prepared=prepared,
            shift=shift,
            root=(1.0 + growth) * root,
            height=gain + lift,
            lift=lift,
            growth=growth + 0.5 * growth**2,
            error=error,
            digits=60 + math.ceil(math.log10(largest * (1.0 + here + far))),
        )

    def draw(
        self,
        rng: np.random.Generator,
        most: float = math.inf,
        *,
        on_passes: Callable[[float], None] | None = None,
    ) -> tuple[list[Decimal] | None, dict[str, int]]:
        """One draw, in decimals, or None after `MOST_TRIES`.

        `WorkLimitError` says that ``most`` passes over the records did not suffice;
        ``on_passes`` is told of them. The limit of tries is public, and no draw depends
        on how many there were: what falls back has its own proof of gamma.
        """
        group, num_records = (
            self.prepared.group_size,
            self.prepared.target.storage.num_records,
        )
        wanted = math.ceil(1.2 * group / self.prepared.candidate_rate)
        size = min(max(wanted, 1), self.prepared.max_block_size)
        counts = {"proposals": 0, "asked": 0, "records": 0}
        while counts["proposals"] < MOST_TRIES:
            tries = self.tries(rng, size)
            counts["proposals"] += size
            for start in range(0, len(tries.budget), group):
                some = tries.part(slice(start, start + group))
                is_accepted, records = self.decide(some)
                counts["asked"] += len(some.budget)
                counts["records"] += records
                if counts["records"] > most * num_records:
                    raise WorkLimitError
                for i in np.flatnonzero(is_accepted).tolist():
                    point = self.point(some, i)
                    if self.contains(point):
                        return point, counts
            if on_passes is not None:
                on_passes(counts["records"] / num_records)
            pauses.notify_listeners()
        return None, counts

    def tries(self, rng: np.random.Generator, size: int) -> Tries:
        """Return those of ``size`` tries that doubles do not show to be outside."""
        noise, noise_low, budget, budget_low = variates(rng, size, len(self.shift))
        vectors = self.shift + (noise + noise_low) @ self.root.T
        made = Tries(noise, noise_low, budget, budget_low, vectors)
        made = made.part(self.prepared.region.contains(vectors))
        target = self.prepared.target
        inner = target.problem.domain.interior_point(target.dim)
        points = self.prepared.to_points(made.vectors)
        return made.part(self.prepared.is_inside(inner + INWARD * (points - inner)))

    def decide(self, tries: Tries) -> tuple[NDArray[np.bool_], int]:
        """Whether E >= G for each try, and the records read."""
        noise, budget = tries.nearest
        about, error = self._start(noise), self.tolerance(tries)
        excess, records = self.prepared.evaluate_excess(
            tries.vectors, budget + error, is_checked=False
        )
        above = budget - (excess + about)
        answer = above > 0.0
        for i in np.flatnonzero(np.abs(above) <= error).tolist():
            with self.decimals():
                exact = Decimal(tries.budget[i]) + Decimal(tries.budget_low[i])
                answer[i] = exact >= self.exact_excess(tries, i)
        return answer, records

    def tolerance(self, tries: Tries) -> Array:
        """Bound of the error of `excess` and of its difference to the budget."""
        noise, budget = tries.nearest
        size, num_records = np.linalg.norm(noise, axis=1), self._num_records
        error = self.error[0] + (self.error[1] + self.error[2] * size) * size
        # Of the Gram matrix and its root.
        square = np.einsum("ij,ij->i", tries.vectors, tries.vectors)
        error += 1.1 * self.prepared.region.slack * square
        # Sums of terms that are not negative, at most up to the budget.
        added = min(num_records, BLOCK_NUMBERS) + num_records / 64 + 16
        return np.asarray(error + 2.0 * added * UNIT * (budget + 1.0 + error))

    @property
    def _num_records(self) -> int:
        return self.prepared.target.storage.num_records

    def _start(self, noise: Array) -> Array:
        square = np.einsum("ij,ij->i", noise, noise)
        return np.asarray(self.lift + self.growth * square)

    def decimals(self) -> AbstractContextManager[object]:
        """Context whose digits put the error of sums over records below 1e-50."""
        return _decimals(self.digits)

    def point(self, tries: Tries, i: int) -> list[Decimal]:
        """Return x0 + m + F z of one try."""
        base = self.prepared.mode.point
        return self._summed([base[:, None], *self._moves(tries, i)])

    def _moves(self, tries: Tries, i: int) -> list[Array]:
        """Columns whose sum is m + F z, exactly."""
        products = (
            *two_product.py_func(self.root, tries.noise[i]),
            *two_product.py_func(self.root, tries.noise_low[i]),
        )
        return [self.shift[:, None], *products]

    def _summed(self, columns: list[Array]) -> list[Decimal]:
        """Return sums of rows to 159 bits."""
        found = []
        with self.decimals():
            for row in np.hstack(columns).tolist():
                total = Decimal(0)
                for _ in range(3):
                    part = math.fsum(row)
                    row.append(-part)
                    total += Decimal(part)
                found.append(total)
        return found

    def exact_excess(self, tries: Tries, i: int) -> Decimal:
        """Return G of one try in decimals, whose error is below 1e-35."""
        with self.decimals():
            return self._excess(tries, i)

    def _excess(self, tries: Tries, i: int) -> Decimal:
        target, loss = self.prepared.target, self.prepared.target.problem.loss
        move = self._summed(self._moves(tries, i))
        base = [Decimal(x) for x in self.prepared.mode.point.tolist()]
        given = loss, base, move, self.digits
        fold = partial(_added, self.digits)
        total: Decimal = target.storage.fold(fold, _exact_rise, *given)[0]
        center = map(Decimal, target.regularizer_params.center.tolist())
        bent = sum(
            v * (2 * (x - c) + v) for v, x, c in zip(move, base, center, strict=True)
        )
        scale = Decimal(target.curvature[0])
        ridge = Decimal(target.k) * Decimal(target.mu) * scale
        energy = Decimal(target.k) * total / self._num_records + ridge * bent / 2
        square = Decimal(0)
        for high, low in zip(tries.noise[i], tries.noise_low[i], strict=True):
            square += (Decimal(high) + Decimal(low)) ** 2
        return energy + Decimal(self.height) - square / 2

    def contains(self, point: list[Decimal]) -> bool:
        """Whether the domain contains a point, exactly."""
        with self.decimals():
            return self.prepared.target.problem.domain.contains_exactly(point)


def _is_sharp(
    root: Array, radius: float, off: tuple[Array, float], unit: float
) -> bool:
    """Whether an ellipsoid's allowances cover rounding, and a slope that is off."""
    inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
    spread, size = float(np.linalg.norm(inverse)), float(np.linalg.norm(root))
    shift = float(np.linalg.norm(inverse @ off[0])) + spread * off[1]
    return 8.0 * unit * spread * size <= 1e-9 and 3.0 * radius * shift <= 1e-4


def _decimals(digits: int) -> AbstractContextManager[object]:
    return localcontext(Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX))


def _added(
    digits: int, left: tuple[Decimal], right: tuple[Decimal]
) -> tuple[Decimal, ...]:
    """Sum of two parts, with as many digits also in another process."""
    with _decimals(digits):
        return add_entries(left, right)


def _exact_rise(
    part: Data, loss: Loss, base: list[Decimal], move: list[Decimal], digits: int
) -> tuple[Decimal]:
    """How far losses rise from one point by a move, in decimals."""
    total = Decimal(0)
    with _decimals(digits):
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
            if record % RECORDS_AT_ONCE == 0:
                pauses.notify_listeners()
    return (total,)


def _entries(data: Data, i: int) -> Iterator[tuple[int, float]]:
    """Columns and entries of one record."""
    if data.dense.shape[0]:
        yield from enumerate(data.dense[i].tolist())
    else:
        part = slice(data.starts[i], data.starts[i + 1])
        columns, values = data.columns[part].tolist(), data.values[part].tolist()
        yield from zip(columns, values, strict=True)


def variates(
    rng: np.random.Generator, size: int, dim: int
) -> tuple[Array, Array, Array, Array]:
    """Return rows of normals and exponentials, each as high + low."""
    made = [np.empty(shape) for shape in ((size, dim), (size, dim), size, size)]
    count = max(1, 100_000 // dim)
    for start in range(0, size, count):
        fill(rng, *(each[start : start + count] for each in made))
        pauses.notify_listeners()
    noise, noise_low, budget, budget_low = made
    return noise, noise_low, budget, budget_low


@kernel
def fill(rng, noise, noise_low, budget, budget_low):
    """Fill rows of normals, and exponentials."""
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            noise[i, j], noise_low[i, j] = exact_normal(rng)
        budget[i], budget_low[i] = exact_exponential(rng)


class _Sums(NamedTuple):
    """What `ExactRejection.of` needs of the records."""

    sizes: Array  # (4,): sums of |margins|, |slopes|, |values|, |margins| |slopes|
    largest: Array  # (2,): |offset|, |margin| + |value| at most
    total: Array  # (dim,): total + rest is the sum of slopes
    rest: Array


def _sums(part: RecordColumns) -> _Sums:
    sizes = [np.abs(each) for each in (part.margins, part.slopes, part.values)]
    added = [*(each.sum() for each in sizes), sizes[0] @ sizes[1]]
    farthest = np.abs(part.part.offset).max(initial=0.0)
    largest = np.array([farthest, sizes[0].max() + sizes[2].max()])
    return _Sums(np.array(added), largest, *summed(part.part, part.slopes))


def _joined(left: _Sums, right: _Sums) -> _Sums:
    total, lost = two_sum.py_func(left.total, right.total)
    largest = np.maximum(left.largest, right.largest)
    rest = left.rest + right.rest + lost
    return _Sums(left.sizes + right.sizes, largest, total, rest)


def summed(data: Data, scales: Array) -> tuple[Array, Array]:
    """Sum of scales_i a_i in two parts; of additions only errors' errors are lost."""
    total, rest = np.zeros(data.dim), np.zeros(data.dim)
    count = max(1, 2_000_000 // data.dim)
    for start in range(0, data.num_records, count):
        stop = min(start + count, data.num_records)
        add_scaled(data, scales, start, stop, total, rest)
        pauses.notify_listeners()
    return total, rest


@kernel
def add_scaled(data, scales, start, stop, total, rest):
    """Add the sum of scales_i a_i over some records to total + rest (Knuth's sum)."""
    if data.dense.shape[0] > 0:
        for i in range(start, stop):
            row = data.dense[i]
            for j in range(total.shape[0]):
                add_to(scales[i] * row[j], j, total, rest)
    else:
        for i in range(start, stop):
            for m in range(data.starts[i], data.starts[i + 1]):
                add_to(scales[i] * data.values[m], data.columns[m], total, rest)


@kernel
def add_to(term, j, total, rest):
    """Add one term to entry j of total, and what that loses to rest."""
    total[j], lost = two_sum(total[j], term)
    rest[j] += lost
