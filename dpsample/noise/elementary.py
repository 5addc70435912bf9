"""Independent Gaussian and Laplace numbers and integers, and Gaussian matrices.

A noisy answer is the multiple of a public *step* next to query + noise, see `noise`. No
rounding error of the sum changes it, except with a probability below 2^-80.

A symmetric d x d matrix gets noise of standard deviation s on the diagonal and
s/sqrt(2) off it. The upper triangle, with its off-diagonal entries times sqrt(2), is a
vector with the Frobenius norm of the matrix, so that its noise has standard deviation s
in each coordinate. The spectral norm of the noise is about s sqrt(2d).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.noise.noise import (
    MAX_QUERY_STEPS,
    Noise,
    Size,
    add_gaussian,
    add_laplace,
    check_rng,
    checked_size,
    grid_step,
    parts,
)
from dpsample.numerics.lazy_reals import BLOCK_WORDS, LazyReal, is_less, uniform


class IndependentNoise(Noise):
    """Base of noise in independent coordinates.

    The real sum of value and noise is rounded to the nearest multiple of the step.
    """

    # Kernel (rng, scale, step, values) that adds noise to the values in place.
    _add: ClassVar[Callable[..., None]]

    def _as_independent(self, dim: int) -> Noise:
        """Return this noise: `Noise._noisy` draws noise of all classes in this form."""
        del dim
        return self

    def _noisy(self, rng: np.random.Generator, values: Array) -> Array:
        """Return values, shape (dim,), plus one draw of the noise, on the grid."""
        # Exact digits take about eight times as long as an ordinary Gaussian number.
        # Scale and step are the same for each coordinate, so they are asked for one.
        out = values.copy()
        for part in parts(out[:, None], cost=8):
            self._add(rng, self._min_scale(1), self._step(1), part[:, 0])
        return out


@dataclass(frozen=True, eq=False)
class Gaussian(IndependentNoise):
    """Independent N(0, stddev^2) coordinates.

    Parameters
    ----------
    stddev : float
        Standard deviation > 0, absolute.

    Raises
    ------
    ValueError
        If stddev is not a finite number > 0.

    Examples
    --------
    >>> float(Gaussian(2.0).log_density([0.0]).round(6))
    -1.612086
    """

    name: ClassVar[str] = "gaussian"
    _add = staticmethod(add_gaussian)

    stddev: float

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw an array of shape ``size``."""
        return np.asarray(gaussian(rng, size=checked_size(size), stddev=self.stddev))

    def _log_density(self, points: Array) -> Values:
        points = points / self.stddev
        constant = 0.5 * math.log(2.0 * math.pi) + math.log(self.stddev)
        log: Values = -0.5 * (points**2).sum(axis=-1) - points.shape[-1] * constant
        return log


@dataclass(frozen=True, eq=False)
class Laplace(IndependentNoise):
    """Independent coordinates with density exp(-|z| / scale) / (2 scale).

    Parameters
    ----------
    scale : float
        Mean absolute value > 0.

    Raises
    ------
    ValueError
        If scale is not a finite number > 0.

    Examples
    --------
    >>> float(Laplace(0.5).log_density([1.0, 0.0]))
    -2.0
    """

    name: ClassVar[str] = "laplace"
    _add = staticmethod(add_laplace)

    scale: float

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw an array of shape ``size``."""
        return np.asarray(laplace(rng, size=checked_size(size), scale=self.scale))

    def _noisy_purely(self, rng: np.random.Generator, values: Array) -> Array:
        step, word = self._step(1), _words_in_turn(rng).__next__
        numbers = np.nan_to_num(values, nan=0.0).tolist()
        sums = [_rounded_laplace_sum(word, x, self.scale, step) for x in numbers]
        return np.array([_cut_off(cells) * step + 0.0 for cells in sums])

    def _log_density(self, points: Array) -> Values:
        points = np.abs(points) / self.scale
        constant = points.shape[-1] * (math.log(2.0) + math.log(self.scale))
        log: Values = -points.sum(axis=-1) - constant
        return log


@dataclass(frozen=True, eq=False)
class DiscreteLaplace(Noise):
    r"""Independent integers z with probability proportional to exp(-|z| / scale).

    Their sums with integers are integers. They are drawn without rounding (see
    `discrete_laplace_integer`).

    Parameters
    ----------
    scale : float
        Inverse > 0 of the rate at which logarithms of probabilities fall.

    Raises
    ------
    ValueError
        If scale is not a finite number > 0.

    Examples
    --------
    >>> float(DiscreteLaplace(1.0).log_density([0.0]).round(6))
    -0.771937
    """

    name: ClassVar[str] = "discrete_laplace"

    scale: float

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw an array of shape ``size``, of integers up to 2^52 in size."""
        check_rng(rng)
        shape = checked_size(size)
        integers = self._integers(rng, math.prod(shape))
        return np.array([_cut_off(z) for z in integers], np.float64).reshape(shape)

    def _integers(self, rng: np.random.Generator, count: int) -> list[int]:
        """Draw a list of integers."""
        scale = Fraction(self.scale)  # a double is a fraction, without rounding
        return [discrete_laplace_integer(rng, scale) for _ in range(count)]

    def _as_independent(self, dim: int) -> Noise:
        """Return this noise, whose coordinates are independent."""
        del dim
        return self

    def _step(self, dim: int) -> float:
        """Return the step of the grid of answers, which are integers."""
        del dim
        return 1.0

    def _noisy(self, rng: np.random.Generator, values: Array) -> Array:
        """Return values, shape (dim,), plus one draw of the noise."""
        # Queries are cut off at 2^51 before the noise is added, which moves no two of
        # them apart. So the sensitivity holds.
        whole = np.floor(np.nan_to_num(values, nan=0.0))
        whole = np.clip(whole, -MAX_QUERY_STEPS, MAX_QUERY_STEPS)
        noise = self._integers(rng, len(whole))
        # The sums are cut off, and not the noise, whose end would reveal the query.
        sums = [_cut_off(int(v) + z) for v, z in zip(whole, noise, strict=True)]
        return np.array(sums, np.float64)

    def _log_density(self, points: Array) -> Values:
        """Return the log probability, minus infinity except at integers."""
        rate = 1.0 / self.scale
        # The sum of e^(-rate |z|) over all integers is coth(rate / 2).
        constant = math.log(math.tanh(0.5 * rate))
        logs = constant - np.abs(points) * rate
        is_whole = points == np.rint(points)
        log: Values = np.where(is_whole, logs, -np.inf).sum(axis=-1)
        return log


def _cut_off(value: int) -> int:
    """Return the nearest integer up to 2^52 in size, which is exact in a double.

    It is twice the limit of queries, so noise of the size of 2^51 is not cut off.
    """
    largest = int(2.0 * MAX_QUERY_STEPS)
    return min(max(value, -largest), largest)


def _words_in_turn(rng: np.random.Generator) -> Iterator[int]:
    """Yield words of 64 fair bits of a generator, in their order."""
    while True:
        yield from rng.integers(0, 2**64, BLOCK_WORDS, dtype=np.uint64).tolist()


def _rounded_laplace_sum(
    word: Callable[[], int], query: float, scale: float, step: float
) -> int:
    """Return the number of steps next to the query + Laplace noise, exactly, ties up.

    The noise is an exponential number E times the scale, with a fair sign. E lies in an
    interval whose length is a power of two, and digits of E are drawn until both ends
    of the interval give the same whole number. A step is a power of two.
    """
    size = _exponential_in_turn(word)
    query = min(max(query, -MAX_QUERY_STEPS * step), MAX_QUERY_STEPS * step)
    center, center_bits = _shift_to_integer(query, step)
    factor, factor_bits = _shift_to_integer(scale if word() & 1 == 0 else -scale, step)
    while True:
        noise_bits = factor_bits + size.bits
        bits = max(center_bits, noise_bits, 1)
        base = (center << (bits - center_bits)) + (1 << (bits - 1))
        shift = bits - noise_bits
        first = (base + (factor * size.digits << shift)) >> bits
        if first == (base + (factor * (size.digits + 1) << shift)) >> bits:
            return first
        size.refine()


def _shift_to_integer(number: float, step: float) -> tuple[int, int]:
    """Return whole numbers a and b >= 0 with number / step = a / 2^b."""
    top, bottom = number.as_integer_ratio()
    bits = bottom.bit_length() - 1 + math.frexp(step)[1] - 1
    return (top, bits) if bits >= 0 else (top << -bits, 0)


def _exponential_in_turn(word: Callable[[], int]) -> LazyReal:
    """Draw a standard exponential number from words in the order of `add_laplace`.

    So a seed gives the same answers for all budgets, except with the probability by
    which digits that are cut off are wrong. `numerics.lazy_reals` has the algorithm.
    """
    whole = 0
    while True:
        number = uniform(word)
        number.refine()
        length, last = 1, number
        while is_less(other := uniform(word), last):
            length, last = length + 1, other
        if length % 2 == 1:
            number.digits += whole << number.bits
            return number
        whole += 1


def discrete_laplace_integer(rng: np.random.Generator, scale: Fraction) -> int:
    r"""Draw an integer z with probability proportional to exp(-|z| / scale), exactly.

    Canonne, Kamath and Steinke (2020), Algorithm 2, in whole numbers. With scale = t/s,
    x >= 0 has :math:`P(x) \propto e^{-x/t}`, and floor(x/s) is the size of z. x is u +
    t v. A uniform u < t is accepted with probability e^(-u/t), and v counts successes
    of coins of probability 1/e. 0 would come with both signs, so -0 is drawn again.
    """
    while True:
        # u + t v with a uniform u below t = numerator and geometric v.
        u = integer_below(rng, scale.numerator)
        if not _exponential_coin(rng, u, scale.numerator):
            continue
        v = 0
        while _exponential_coin(rng, 1, 1):
            v += 1
        size = (u + scale.numerator * v) // scale.denominator
        is_negative = integer_below(rng, 2) == 1
        if size > 0 or not is_negative:
            return -size if is_negative else size


def _exponential_coin(rng: np.random.Generator, top: int, bottom: int) -> bool:
    """Return True with probability e^(-x), x = top / bottom <= 1 (von Neumann).

    The n-th coin succeeds with probability x/n. The first failure is at n with
    probability x^(n-1)/(n-1)! - x^n/n!, so n is odd with probability e^(-x).
    """
    n = 1
    while integer_below(rng, bottom * n) < top:
        n += 1
    return n % 2 == 1


def integer_below(rng: np.random.Generator, bound: int) -> int:
    """Draw from 0 to bound - 1, each with the same probability."""
    bits = (bound - 1).bit_length()
    num_bytes = (bits + 7) // 8
    while True:  # at least half of all numbers of so many bits are below the bound
        number = int.from_bytes(rng.bytes(num_bytes), "little")
        number >>= 8 * num_bytes - bits
        if number < bound:
            return number


def gaussian(
    rng: np.random.Generator, *, size: Size | None = None, stddev: float = 1.0
) -> float | Array:
    """Draw independent N(0, stddev^2) numbers.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    size : int or tuple of int, optional
        Shape of the result. Without it, one number is drawn.
    stddev : float, default 1.0
        Standard deviation > 0.

    Returns
    -------
    float or ndarray
        The draws: ``stddev * rng.standard_normal(size)``.

    Raises
    ------
    ValueError
        If ``rng`` is not a Generator, ``size`` is not a shape, or stddev is not a
        finite number > 0.

    Examples
    --------
    >>> gaussian(np.random.default_rng(0), size=(2, 3), stddev=0.1).shape
    (2, 3)
    """
    check_rng(rng)
    shape = None if size is None else checked_size(size)
    check.positive(stddev=stddev)
    draws = rng.standard_normal(shape)
    draws *= float(stddev)
    return draws


def laplace(
    rng: np.random.Generator, *, size: Size | None = None, scale: float = 1.0
) -> float | Array:
    """Draw independent numbers with density exp(-|z| / scale) / (2 scale).

    Parameters
    ----------
    rng, size
        As in `gaussian`.
    scale : float, default 1.0
        Mean absolute value > 0.

    Returns
    -------
    float or ndarray
        The draws.

    Raises
    ------
    ValueError
        If ``rng`` is not a Generator, ``size`` is not a shape, or scale is not a
        finite number > 0.

    Examples
    --------
    >>> type(laplace(np.random.default_rng(0)))
    <class 'float'>
    """
    check_rng(rng)
    shape = None if size is None else checked_size(size)
    check.positive(scale=scale)
    return rng.laplace(0.0, float(scale), shape)


def add_symmetric_gaussian(
    rng: np.random.Generator, stddev: float, matrix: Array
) -> None:
    """Add the module's noise to a symmetric matrix in place, on a public grid.

    Off-diagonal entries are grid points over sqrt(2).
    """
    # Independent noise of one size goes on the upper triangle as a vector. An entry off
    # the diagonal is twice in the Frobenius norm, so it is scaled by sqrt(2) before and
    # by its inverse after.
    i, j = np.triu_indices(len(matrix))
    scale = np.where(i == j, 1.0, math.sqrt(2.0))
    entries = matrix[i, j] * scale
    add_gaussian(rng, stddev, grid_step(stddev), entries)
    matrix[i, j] = matrix[j, i] = entries / scale


def denoise(matrix: Array, stddev: float) -> tuple[Array, Array]:
    r"""Estimate A from M = A + noise, as eigenvalues and M's eigenvectors v_i.

    The noise E has the standard deviation s = ``stddev`` of the module. It pushes the
    eigenvalues l_i of M apart. Stein's identity for Gaussian noise is E[<E, f(M)>] =
    s^2 E[div f(M)]. For f(M) = v_i v_i^T perturbation theory gives dv_i =
    sum_{j != i} v_j (v_j^T dM v_i) / (l_i - l_j), hence the divergence is
    sum_{j != i} 1 / (l_i - l_j):

    .. math:: \mathbb E\, v_i^T E v_i
       = s^2\, \mathbb E \sum_{j \ne i} 1/(l_i - l_j).

    So l_i minus that sum is an unbiased estimate of v_i^T A v_i, the best eigenvalue in
    the Frobenius norm for these vectors. It has an infinite variance, because gaps g =
    l_i - l_j may be near 0. So g/(g^2 + s^2/2) takes the place of 1/g, which it
    resembles for gaps above the standard deviation s / sqrt(2) of an off-diagonal
    entry. (Bun, Allez, Bouchaud and Potters, arXiv:1502.06736, have this estimate with
    a width for the eigenvalues of pure noise, a semicircle of deviation s sqrt(d/2).)
    This is post-processing, so it costs no privacy.
    """
    eigenvalues, vectors = np.linalg.eigh(matrix)
    gaps = eigenvalues[:, None] - eigenvalues
    # For j = i the gap is 0, which adds 0.
    shifts = stddev**2 * (gaps / (gaps**2 + 0.5 * stddev**2)).sum(axis=1)
    return eigenvalues - shifts, vectors
