# mypy: allow-untyped-defs
"""Noise of a step: its laws, and how little of it the batches need.

A batch estimate is a sum over records divided by a public constant; one record's part
in the sum is at most ``record_bound``. Replacing a record moves the sum by twice that,
setting its loss to zero by once (`SHIFTS`).

An epoch is cut into T batches of n/T records: Poisson samples at rate 1/T, consecutive
disjoint slices (every record is read once, so the worst batch counts), or slices of a
random order with noise on every record (amplification by shuffling). Shuffling pays
only for many batches and small epsilon; Poisson sampling is best, but its batches
overlap.

**Bits.** What a Gaussian step gives is the multiple of a public power of two next to
estimate + noise (`noise.noise`): a rounded draw of the ideal mechanism, whose
sensitivity is that of the estimate as it is computed. All that follows, in whatever
arithmetic, is computed from such multiples alone. `rounding_excess` bounds how much
farther computed estimates of neighbors are apart than exact ones, and the noise is
larger by that much. Generalized Gaussian steps lie on such a grid, too, but their
noise is drawn and added in doubles, which no certificate counts.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece, kernel
from dpsample.core.spec import Spec
from dpsample.noise import ConeTable, cone_table
from dpsample.noise.generalized_gaussian import fill_generalized_gaussian
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers.loop.batches import Batches, Poisson, Slices
from dpsample.optimizers.loop.pieces import (
    BLOCK,
    PERTURB,
    AnyNumbers,
    CompiledNoise,
    Numbers,
    compile_piece,
)
from dpsample.privacy import (
    allocated_noise_multiplier,
    gdp_from_budget,
    poisson_noise_multiplier,
    shuffle_local_noise,
)
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
)
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.additive import round_up

UNIT = 2.0**-53
SHIFTS = {"replace_one": 2.0, "zero_out": 1.0}
Scheme = Literal["poisson", "disjoint", "shuffle", "best"]
SCHEMES = ("poisson", "disjoint", "shuffle", "best")


@by_address
class GaussianNumbers(NamedTuple):
    """Gaussian noise as its kernel reads it."""

    scale: float
    step: float  # step of the grid on which noisy estimates lie


@by_address
class GeneralizedNumbers(NamedTuple):
    """Generalized Gaussian noise as its kernel reads it."""

    scale: float
    copies: int
    table: ConeTable
    step: float  # step of the grid on which noisy estimates lie


@kernel(counts_references=False)
def add_nothing(numbers, rng, scratch, gradient):
    """Leave the gradient as it is, see `PERTURB`."""


@kernel(counts_references=False)
def add_gaussian_noise(numbers, rng, scratch, gradient):
    """Add Gaussian noise in real arithmetic, see `PERTURB`."""
    add_gaussian(rng, numbers.scale, numbers.step, gradient)


@kernel(counts_references=False)
def add_generalized_noise(numbers, rng, scratch, gradient):
    """Add generalized Gaussian noise in doubles, see `PERTURB`.

    The grid hides the last bits, but the law of the noise is that of doubles.
    """
    for _ in range(numbers.copies):
        fill_generalized_gaussian(rng, numbers.table, numbers.scale, scratch)
        for j in range(len(gradient)):
            gradient[j] += scratch[j] / numbers.copies
    for j in range(len(gradient)):
        gradient[j] = numbers.step * np.rint(gradient[j] / numbers.step)


class Perturbation(Spec):
    """Base of all perturbations.

    Attributes
    ----------
    piece : compiled function
        Kernel of signature `PERTURB`.
    """

    piece: ClassVar[Piece]
    extra_bits = 0  # by so many bits the grid is finer than the usual one

    @property
    def scale(self) -> float:
        """Scale of the noise in one coordinate; 0: there is none."""
        return 0.0

    def numbers(self, excess: float = 0.0) -> Numbers:
        """Return what the piece reads; the noise is 1 + ``excess`` times as large."""
        raise NotImplementedError

    def compile(self, excess: float = 0.0) -> CompiledNoise:
        """Return what the loop calls."""
        piece, numbers = self.piece, self.numbers(excess)
        if self.scale == 0.0:
            piece, numbers = add_nothing, AnyNumbers()
        return CompiledNoise(
            perturb=compile_piece(piece, PERTURB, numbers), numbers=numbers
        )


@dataclass(frozen=True)
class NoNoise(Perturbation):
    """Nothing: the textbook algorithm."""

    name: ClassVar[str] = "none"
    piece: ClassVar[Piece] = staticmethod(add_nothing)

    def numbers(self, excess: float = 0.0) -> AnyNumbers:
        """Return none."""
        del excess
        return AnyNumbers()


@dataclass(frozen=True)
class GaussianNoise(Perturbation):
    """N(0, stddev^2) in every coordinate.

    ``extra_bits``, up to 20, make the grid so much finer; then sums are only near their
    multiple, within half a step: for steps before the one that is seen.
    """

    stddev: float
    extra_bits: int = 0
    name: ClassVar[str] = "gaussian"
    piece: ClassVar[Piece] = staticmethod(add_gaussian_noise)

    def __post_init__(self) -> None:
        """Check the size."""
        check.non_negative(stddev=self.stddev)

    @property
    def scale(self) -> float:
        """Standard deviation."""
        return float(self.stddev)

    def numbers(self, excess: float = 0.0) -> GaussianNumbers:
        """Return the standard deviation and the grid."""
        scale = self.scale * (1.0 + excess)
        step = grid_step(scale) * 2.0**-self.extra_bits if scale > 0.0 else 0.0
        return GaussianNumbers(scale, step)


@dataclass(frozen=True, kw_only=True)
class GeneralizedGaussianNoise(Perturbation):
    """Mean of ``copies`` generalized Gaussian vectors, one for each record."""

    r: float
    sigma: float
    copies: int = 1
    name: ClassVar[str] = "generalized_gaussian"
    piece: ClassVar[Piece] = staticmethod(add_generalized_noise)

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.at_least(1.0, r=self.r)
        check.non_negative(sigma=self.sigma)
        check.integer(1, copies=self.copies)

    @property
    def scale(self) -> float:
        """Scale of one of the vectors."""
        return float(self.sigma)

    def numbers(self, excess: float = 0.0) -> GeneralizedNumbers:
        """Return the scale, the grid and the table that vectors are drawn by."""
        scale = self.scale * (1.0 + excess)
        step = grid_step(scale / self.copies) if scale > 0.0 else 0.0
        return GeneralizedNumbers(scale, int(self.copies), cone_table(self.r), step)


def rounding_excess(
    *,
    num_records: int,
    dim: int,
    num_central: int = 1,
    is_blocked: bool = True,
    is_soft: bool = False,
) -> float:
    """Bound the added distance of neighbors' estimates, relative to their bound.

    A sum of ``num_records`` vectors v_i of norm at most C, no term of which passes k
    roundings (its product and the division by the constant included), is off by e with
    |e_j| <= gamma sum_i |v_ij|, gamma = k u/(1 - k u) and u = 2^-53, in any order of
    summation (Higham 2002, section 4.2). So |e| <= gamma sum_i |v_i| <= gamma n C in
    every norm of absolute values, and neighbors are apart by 2 gamma n C more. Blocks
    are summed on their own: k < block + number of blocks + 4. Bucket sums are not;
    their middle values move by as much as they do, which is num_central times the
    record's part. Slopes may differ by 8 u where vector instructions compute them in
    one sample and scalar ones in another; then the pieces of a soft truncation, whose
    ends meet within 70 u, move the records of one block by less than 128 u each. Rows
    may exceed their bound by what `dpsample.Problem` allows of rounding, 1e-12, and by
    that of a computed norm.

    Examples
    --------
    >>> f"{rounding_excess(num_records=1000, dim=10):.1e}"
    '2.3e-10'
    """
    gamma = sum_error(num_records, num_central, is_blocked=is_blocked)
    jumps = 128.0 * min(num_records, BLOCK) * UNIT if is_soft else 0.0
    sums = 2.0 * gamma * num_records * num_central
    return sums + jumps + 2e-12 + 8.0 * (dim + 16) * UNIT


def sum_error(
    num_records: int, num_central: int = 1, *, is_blocked: bool = True
) -> float:
    """Bound gamma of the error of a sum over the sum of the sizes of its terms."""
    longest = num_records + 19 + num_central
    if is_blocked and num_records > BLOCK:
        longest = BLOCK + math.ceil(num_records / BLOCK) + 19
    return 1.01 * longest * UNIT  # 1.01 for all terms of second order


@lru_cache(maxsize=1024)
def gdp_of(budget: Budget | None) -> float:
    """Gaussian-DP parameter of the budget; infinite without one."""
    return math.inf if budget is None else gdp_from_budget(budget.epsilon, budget.delta)


class CalibratedNoise(NamedTuple):
    """Standard deviation of the noise of an estimate, and what it proves."""

    stddev: float
    event: Event


@check.unwrap_numpy
@lru_cache(maxsize=1024)
def full_batch(
    budget: Budget, *, record_bound: float, num_records: int, num_steps: int = 1
) -> CalibratedNoise:
    """Gaussian noise of each of ``num_steps`` adaptive means over all records.

    Gaussian differential privacy composes by the root of the sum of squares.
    """
    gdp = gdp_of(budget)
    sensitivity = SHIFTS[budget.relation] * record_bound / num_records
    return CalibratedNoise(
        round_up(sensitivity * math.sqrt(num_steps) / gdp), GaussianEvent(gdp)
    )


@check.unwrap_numpy
@lru_cache(maxsize=1024)  # accounting takes longer than many fits; inputs are public
def poisson(
    budget: Budget,
    *,
    record_bound: float,
    num_records: int,
    sampling_rate: float,
    num_steps: int,
) -> CalibratedNoise:
    """Gaussian noise of means over Poisson samples, by the accountant."""
    multiplier = poisson_noise_multiplier(
        budget, sampling_rate=sampling_rate, num_steps=num_steps
    )
    event = PoissonGaussianEvent(
        sampling_rate=sampling_rate,
        noise_multiplier=multiplier,
        num_steps=num_steps,
    )
    return CalibratedNoise(
        round_up(multiplier * record_bound / (sampling_rate * num_records)), event
    )


@check.unwrap_numpy
@lru_cache(maxsize=1024)
def allocation_noise(
    budget: Budget,
    *,
    record_bound: float,
    num_records: int,
    num_batches: int,
    num_epochs: int,
) -> CalibratedNoise:
    """Gaussian noise of means over randomly allocated records, by the accountant."""
    multiplier = allocated_noise_multiplier(
        budget, num_steps=num_batches, num_epochs=num_epochs
    )
    event = AllocatedGaussianEvent(
        noise_multiplier=multiplier, num_steps=num_batches, num_epochs=num_epochs
    )
    return CalibratedNoise(
        round_up(multiplier * record_bound * num_batches / num_records), event
    )


class Epoch(NamedTuple):
    """Batches of one epoch, the noise of their means and what it proves."""

    batches: Batches
    stddev: float
    event: Event | None
    scheme: str


def epoch(
    scheme: Scheme,
    budget: Budget | None,
    *,
    record_bound: float,
    first: int,
    count: int,
    num_steps: int,
) -> Epoch:
    """Batches and noise of ``num_steps`` clipped means of ``count`` records.

    "best" takes the smaller noise of the two one-pass schemes; without a budget there
    is none. ``record_bound`` is that of one record's vector.
    """
    size, last = count // num_steps, first + count
    if scheme == "poisson":
        batches = Poisson(rate=1.0 / num_steps, first=first, last=last)
        if budget is None:
            return Epoch(batches, 0.0, None, "poisson")
        noise = poisson(
            budget,
            record_bound=record_bound,
            num_records=count,
            sampling_rate=1.0 / num_steps,
            num_steps=num_steps,
        )
        return Epoch(batches, noise.stddev, noise.event, "poisson")
    slices = Slices(size=size, first=first, last=last)
    shuffled = Slices(size=size, first=first, last=last, is_shuffled=True)
    if budget is None:
        return Epoch(shuffled if scheme == "shuffle" else slices, 0.0, None, "disjoint")
    one_pass = []
    if scheme != "shuffle":
        noise = full_batch(budget, record_bound=record_bound, num_records=size)
        one_pass.append(Epoch(slices, noise.stddev, noise.event, "disjoint"))
    if scheme != "disjoint":
        local = shuffle_local_noise(budget, num_records=count)
        stddev = round_up(local.noise_multiplier * record_bound / math.sqrt(size))
        event = ApproximateEvent(epsilon=budget.epsilon, delta=budget.delta)
        one_pass.append(Epoch(shuffled, stddev, event, "shuffle"))
    return min(one_pass, key=lambda candidate: candidate.stddev)


class NoiseForecast(NamedTuple):
    """Noise of a batch mean, over the record bound, before calibration.

    It chooses the number of batches; the noise itself comes from `epoch`.
    """

    scheme: str
    num_records: int
    gdp: float
    shift: float
    local: float  # noise multiplier of shuffled records; infinite: not used

    def __call__(self, num_steps: int) -> float:
        """Noise of the mean of num_records/num_steps records.

        Poisson: the central limit of the privacy loss, whose variance per step is
        4 q^2 sinh(1/z^2) for a replaced record and q^2 (e^(1/z^2) - 1) for one set to
        zero.
        """
        if math.isinf(self.gdp):
            return 0.0
        size = self.num_records // num_steps
        if self.scheme == "poisson":
            if num_steps == 1:
                return self.shift / (self.gdp * self.num_records)
            power = self.gdp**2 * num_steps
            total = math.asinh(0.25 * power) if self.shift > 1.0 else math.log1p(power)
            return num_steps / (math.sqrt(total) * self.num_records)
        multiplier = self.local / math.sqrt(size)
        if self.scheme != "shuffle":
            multiplier = min(multiplier, self.shift / (self.gdp * size))
        return multiplier


def forecast(scheme: Scheme, budget: Budget | None, count: int) -> NoiseForecast:
    """Forecast of the noise of ``count`` records' batch means."""
    if budget is None:
        return NoiseForecast(scheme, count, math.inf, 2.0, math.inf)
    local = math.inf
    if scheme in ("shuffle", "best"):
        local = shuffle_local_noise(budget, num_records=count).noise_multiplier
    gdp = gdp_of(budget)
    return NoiseForecast(scheme, count, gdp, SHIFTS[budget.relation], local)
