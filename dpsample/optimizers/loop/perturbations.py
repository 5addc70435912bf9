# mypy: allow-untyped-defs
"""Noise that is added to gradient estimates, and its calibration to a budget.

An *estimate* is the sum of one vector per record of a batch, divided by a public
constant. The *record bound* C is the largest norm that a record's vector may have.
Replacing a record therefore moves the sum by at most 2 C, and setting its loss to zero
by at most C (`SHIFTS`). These are the two neighboring relations of a budget. The *gdp*
of a mechanism is its parameter in Gaussian differential privacy: the distance that a
record moves its output, in standard deviations of the noise.

The first half of the file has the noise that steps add. The second half says how much
is needed. An epoch of n records is cut into T batches in one of three schemes:

- "poisson": each batch is a Poisson sample at rate 1/T. It needs the least noise, but
  batches overlap.
- "disjoint": batches are consecutive slices. Every record is read once, so the whole
  budget protects each slice.
- "shuffle": slices of a random order. The noise of a sum is proportional to the root of
  the batch size, as if each record had its own (amplification by shuffling). It is
  worth its cost for many batches and small epsilon only.

**Bits.** A Gaussian step returns the multiple of a public power of two (the *grid*)
that is nearest to estimate + noise (`noise.noise`). This is a rounded draw of the ideal
mechanism, whose sensitivity is measured on the estimates that floating point gives. All
later numbers are computed from such multiples only, in any arithmetic.
`rounding_excess` bounds how much farther computed estimates of neighbors are apart than
exact ones, and the noise is larger by that factor. Generalized Gaussian steps lie on
such a grid, too, but their noise is drawn and added in doubles, whose rounding errors
no certificate includes.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import UNIT_ROUNDOFF
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
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up

Scheme = Literal["poisson", "disjoint", "shuffle", "best"]
SCHEMES = ("poisson", "disjoint", "shuffle", "best")


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class GaussianNumbers(NamedTuple):
    """Gaussian noise as its kernel reads it."""

    scale: float  # standard deviation in each coordinate
    step: float  # step of the grid on which noisy estimates lie


@by_address
class GeneralizedNumbers(NamedTuple):
    """Generalized Gaussian noise as its kernel reads it."""

    scale: float  # scale of each vector that is drawn
    copies: int  # number of vectors whose mean is the noise
    table: ConeTable  # distribution from which directions are drawn
    step: float  # step of the grid on which noisy estimates lie


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def add_nothing(numbers, rng, scratch, gradient):
    """Leave the gradient as it is, see `PERTURB`."""


@kernel(counts_references=False)
def add_gaussian_noise(numbers, rng, scratch, gradient):
    """Add Gaussian noise, as if in exact arithmetic, see `PERTURB`."""
    add_gaussian(rng, numbers.scale, numbers.step, gradient)


@kernel(counts_references=False)
def add_generalized_noise(numbers, rng, scratch, gradient):
    """Add generalized Gaussian noise in doubles, see `PERTURB`.

    ``scratch`` (dim,) holds one vector at a time. Rounding to the grid hides the last
    bits, but the noise has the distribution that doubles give it.
    """
    for _ in range(numbers.copies):
        fill_generalized_gaussian(rng, numbers.table, numbers.scale, scratch)
        for j in range(len(gradient)):
            gradient[j] += scratch[j] / numbers.copies
    # The step is a power of two, so that the quotient and the product are exact.
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
    extra_bits = 0  # the grid is finer than usual by this many bits

    @property
    def scale(self) -> float:
        """Scale of the noise in one coordinate, or 0 if there is none."""
        return 0.0

    def numbers(self, excess: float = 0.0) -> Numbers:
        """Return the kernel's numbers for noise 1 + ``excess`` times as large."""
        raise NotImplementedError

    def compile(self, excess: float = 0.0) -> CompiledNoise:
        """Return the compiled kernel and its numbers."""
        piece, numbers = self.piece, self.numbers(excess)
        if self.scale == 0.0:
            piece, numbers = add_nothing, AnyNumbers()
        return CompiledNoise(
            perturb=compile_piece(piece, PERTURB, numbers), numbers=numbers
        )


@dataclass(frozen=True)
class NoNoise(Perturbation):
    """No noise, as in the textbook algorithm."""

    name: ClassVar[str] = "none"
    piece: ClassVar[Piece] = staticmethod(add_nothing)

    def numbers(self, excess: float = 0.0) -> AnyNumbers:
        """Return an empty tuple."""
        del excess  # nothing is enlarged
        return AnyNumbers()


@dataclass(frozen=True)
class GaussianNoise(Perturbation):
    """Noise N(0, stddev^2) in every coordinate.

    The grid is finer by ``extra_bits``, at most 20. A sum is then only near a multiple,
    within half a step, so this is meant for steps whose results are not released.
    """

    stddev: float
    extra_bits: int = 0
    name: ClassVar[str] = "gaussian"
    piece: ClassVar[Piece] = staticmethod(add_gaussian_noise)

    def __post_init__(self) -> None:
        """Check the standard deviation."""
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
        """Check exponent, scale and number of vectors."""
        check.at_least(1.0, r=self.r)
        check.non_negative(sigma=self.sigma)
        check.integer(1, copies=self.copies)

    @property
    def scale(self) -> float:
        """Scale of one of the vectors."""
        return float(self.sigma)

    def numbers(self, excess: float = 0.0) -> GeneralizedNumbers:
        """Return the scale, the grid and the table from which vectors are drawn."""
        scale = self.scale * (1.0 + excess)
        # The mean of the copies has a scale of at least scale/copies.
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

    The estimate is a sum of n = ``num_records`` vectors v_i of norm at most C. Four
    kinds of errors are added, all relative to C.

    *Sum.* Let k be the largest number of roundings that a term passes, its product and
    the division by the constant included, u = 2^-53, and gamma = k u/(1 - k u). Then
    the sum is off by e with |e_j| <= gamma sum_i |v_ij|, in any order of summation
    (Higham 2002, section 4.2). So |e| <= gamma sum_i |v_i| <= gamma n C in every norm
    of absolute values, and neighbors are apart by 2 gamma n C more. Each block of
    records has its own sum (``is_blocked``), hence k < block + number of blocks + 4.
    Bucket sums have no blocks. Their central values move by as much as the sums do,
    which is ``num_central`` times the record's part.

    *Jumps.* Slopes may differ by 8 u where vector instructions compute them in one
    sample and scalar ones in another. A soft truncation (``is_soft``) is made of
    polynomials whose ends meet within 70 u. So it moves each record of the block in
    question by less than 128 u.

    *Rows.* They may exceed their bound by the rounding error that `dpsample.Problem`
    allows, 1e-12. *Norms* of ``dim`` entries are computed with rounding errors as well.

    Examples
    --------
    >>> f"{rounding_excess(num_records=1000, dim=10):.1e}"
    '2.3e-10'
    """
    gamma = sum_error(num_records, num_central, is_blocked=is_blocked)
    jumps = 128.0 * min(num_records, BLOCK) * UNIT_ROUNDOFF if is_soft else 0.0
    sums = 2.0 * gamma * num_records * num_central
    return sums + jumps + 2e-12 + 8.0 * (dim + 16) * UNIT_ROUNDOFF


def sum_error(
    num_records: int, num_central: int = 1, *, is_blocked: bool = True
) -> float:
    """Bound gamma of the error of a sum over the sum of the sizes of its terms."""
    # A term passes the additions of its block, and then one for each block.
    num_roundings = num_records + 19 + num_central
    if is_blocked and num_records > BLOCK:
        num_roundings = BLOCK + math.ceil(num_records / BLOCK) + 19
    # The factor 1.01 covers all terms of second order.
    return 1.01 * num_roundings * UNIT_ROUNDOFF


@lru_cache(maxsize=1024)
def gdp_of(budget: Budget | None) -> float:
    """Return the Gaussian-DP parameter of the budget, infinite without a budget."""
    return math.inf if budget is None else gdp_from_budget(budget.epsilon, budget.delta)


class CalibratedNoise(NamedTuple):
    """Noise of each of several estimates, and the proved privacy of all of them."""

    stddev: float  # in each coordinate of an estimate
    event: Event  # the accountant's description of all steps


@check.unwrap_numpy
@lru_cache(maxsize=1024)
def full_batch(
    budget: Budget, *, record_bound: float, num_records: int, num_steps: int = 1
) -> CalibratedNoise:
    """Calibrate the Gaussian noise of ``num_steps`` adaptive means over all records.

    The squares of the gdp of several steps add up.
    """
    gdp = gdp_of(budget)
    sensitivity = SHIFTS[budget.relation] * record_bound / num_records
    return CalibratedNoise(
        round_up(sensitivity * math.sqrt(num_steps) / gdp), GaussianEvent(gdp)
    )


# Accounting takes longer than many fits. All arguments are public, so that results can
# be kept.
@check.unwrap_numpy
@lru_cache(maxsize=1024)
def poisson(
    budget: Budget,
    *,
    record_bound: float,
    num_records: int,
    sampling_rate: float,
    num_steps: int,
) -> CalibratedNoise:
    """Calibrate the Gaussian noise of means over Poisson samples, by the accountant."""
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
    """Calibrate the noise of means over randomly allocated records.

    Each epoch puts every record into one of ``num_batches`` batches at random.
    """
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
    """Batches of one epoch, the noise of their means and its proved privacy."""

    batches: Batches
    stddev: float  # 0 without a budget
    event: Event | None  # None without a budget
    scheme: str  # name of the chosen scheme


def epoch(
    scheme: Scheme,
    budget: Budget | None,
    *,
    record_bound: float,
    first: int,
    count: int,
    num_steps: int,
) -> Epoch:
    """Plan ``num_steps`` batches of ``count`` records, and the noise of their means.

    The records are numbered from ``first``. The scheme "best" takes the smaller noise
    of the two schemes that read each record once. Without a budget there is no noise.
    """
    # Records beyond the last full batch of `size` records are not read in this epoch.
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
    # Each record is in one batch, so the noise of a batch need not be composed.
    one_pass = []
    if scheme != "shuffle":
        noise = full_batch(budget, record_bound=record_bound, num_records=size)
        one_pass.append(Epoch(slices, noise.stddev, noise.event, "disjoint"))
    if scheme != "disjoint":
        # `local` is the noise of one record's vector. A mean of `size` records has the
        # mean of `size` independent noises.
        local = shuffle_local_noise(budget, num_records=count)
        stddev = round_up(local.noise_multiplier * record_bound / math.sqrt(size))
        event = ApproximateEvent(epsilon=budget.epsilon, delta=budget.delta)
        one_pass.append(Epoch(shuffled, stddev, event, "shuffle"))
    return min(one_pass, key=lambda candidate: candidate.stddev)


class NoiseForecast(NamedTuple):
    """Approximate noise of a batch mean, over the record bound, as a function of T.

    Calibration is slow, so this formula chooses the number T of batches. The noise that
    is used comes from `epoch`.
    """

    scheme: str
    num_records: int
    gdp: float  # infinite without a budget
    shift: float  # see `SHIFTS`
    local: float  # noise multiplier of shuffled records, infinite if they are not used

    def __call__(self, num_steps: int) -> float:
        """Return the noise of the mean of num_records/num_steps records.

        For Poisson samples at rate q = 1/T with noise multiplier z this is the central
        limit of the privacy loss. Its variance per step is 4 q^2 sinh(1/z^2) for a
        replaced record and q^2 (e^(1/z^2) - 1) for one whose loss is set to zero. The
        sum of T steps is set to gdp^2 and solved for z.
        """
        if math.isinf(self.gdp):
            return 0.0
        size = self.num_records // num_steps
        if self.scheme == "poisson":
            if num_steps == 1:  # rate 1: no sampling, an exact formula
                return self.shift / (self.gdp * self.num_records)
            power = self.gdp**2 * num_steps
            # 1/z^2, from gdp^2 = T 4 q^2 sinh(1/z^2) or T q^2 (e^(1/z^2) - 1), q = 1/T.
            total = math.asinh(0.25 * power) if self.shift > 1.0 else math.log1p(power)
            # A sum of q n records on average has noise z, and the mean z/(q n).
            return num_steps / (math.sqrt(total) * self.num_records)
        multiplier = self.local / math.sqrt(size)
        if self.scheme != "shuffle":
            multiplier = min(multiplier, self.shift / (self.gdp * size))
        return multiplier


def forecast(scheme: Scheme, budget: Budget | None, count: int) -> NoiseForecast:
    """Forecast the noise of batch means of ``count`` records."""
    if budget is None:
        return NoiseForecast(scheme, count, math.inf, 2.0, math.inf)
    local = math.inf
    if scheme in ("shuffle", "best"):
        local = shuffle_local_noise(budget, num_records=count).noise_multiplier
    gdp = gdp_of(budget)
    return NoiseForecast(scheme, count, gdp, SHIFTS[budget.relation], local)
