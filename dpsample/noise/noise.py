# mypy: allow-untyped-defs
"""Base class of additive noise, and the public grid on which noisy values lie.

**Grid.** In doubles q + noise is not additive noise. Which doubles it can be depends on
q, and its last bits distinguish queries (Mironov, CCS 2012). Here the *step* s is the
largest power of two up to 2^-10 times the scale of the noise, a public number, and the
answer is the multiple of s next to q + noise in real arithmetic, ties up. Rounding the
result of a private mechanism is post-processing. No sensitivity grows in any dimension,
and the privacy is as for continuous noise. The rounding adds s^2/12 < 1e-7 scale^2 to
the variance.

**The nearest multiple, certified.** q/s = b + f, b whole and |f| <= 1/2, is exact
because s is a power of two. The noise over its scale has the digits high + low, each a
double. So f + (scale/s)(high + low) is rounded, scale/s < 2^11. Product and sum of the
high parts are exact as pairs of doubles, and the pair is compared exactly with the
borders of its cell. The low parts are off by less than 2^-83. They are at most 2^-33,
three of their operations are rounded to 53 bits, and the digits are cut off at 2^-97 of
a scale. The sum is so close to a border with probability below 2^-81. Together with the
small error of the digits' own distribution (`numerics.exact`), each number has the
ideal rounded distribution except with probability `TOTAL_VARIATION`.

**Range.** Queries are cut off at +-2^51 s, which moves no two of them apart in any l_p
norm. NaN, which no declared sensitivity allows, counts as 0. So no value of a query
raises an error, and a number of the answer is below 2^52 s, hence exact in a double.
"""

import math
import numbers
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import kernel
from dpsample.core.spec import Spec
from dpsample.numerics.exact import (
    exact_exponential,
    exact_normal,
    random_word,
    two_product,
    two_sum,
)

# Number of steps of the grid at which queries are cut off. Answers stay below twice as
# many, which doubles hold exactly.
MAX_QUERY_STEPS = 2.0**51
TOTAL_VARIATION = 2.0**-80
# Smallest and largest scale. Products with them, and the whole range of an answer, are
# normal doubles.
MIN_SCALE = 1e-280
MAX_SCALE = 1e280
SCALES = ("stddev", "sigma", "scale")  # every kind of noise has one of these fields
Size = int | tuple[int, ...]
# Gaussian numbers that a compiled call makes in about 20 ms.
CALL_NUMBERS = 200_000


def grid_step(scale: float) -> float:
    """Return the largest power of two up to 2^-10 of the scale of the noise.

    Raises
    ------
    ValueError
        If the scale is beyond 1e-280 to 1e280.

    Examples
    --------
    >>> grid_step(1.0) == grid_step(1.9) == 2.0**-10
    True
    """
    if not MIN_SCALE <= scale <= MAX_SCALE:
        condition = f"from {MIN_SCALE:g} to {MAX_SCALE:g}"
        check.fail("the scale of the noise", condition, scale, "Use other units.")
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - 10)


@kernel
def nearest_multiple(query, ratio, step, high, low):
    """Return the multiple of ``step`` next to query + ratio step (high + low)."""
    cells = query / step
    if np.isnan(cells):
        cells = 0.0
    cells = min(max(cells, -MAX_QUERY_STEPS), MAX_QUERY_STEPS)
    base = np.rint(cells)  # the distance from a floor would not always be exact
    product, product_error = two_product(ratio, high)
    total, remainder = two_sum(cells - base, product)
    remainder += product_error + ratio * low
    # The pair total + remainder is rounded. The offset and its distances to close
    # borders are exact.
    nearest = np.rint(total)
    offset = total - nearest
    if remainder >= 0.5 - offset:
        nearest += 1.0
    elif remainder < -0.5 - offset:
        nearest -= 1.0
    return (base + nearest + 0.0) * step  # adding 0.0 turns -0.0 into 0.0


@kernel
def add_gaussian(rng, stddev, step, values):
    """Replace each value by the multiple next to it + N(0, stddev^2)."""
    for i in range(len(values)):
        high, low = exact_normal(rng)
        values[i] = nearest_multiple(values[i], stddev / step, step, high, low)


@kernel
def add_laplace(rng, scale, step, values):
    """Replace each value by the multiple next to it + Laplace noise of this scale."""
    for i in range(len(values)):
        high, low = exact_exponential(rng)
        if random_word(rng) & np.uint64(1) == np.uint64(1):  # a fair sign
            high, low = -high, -low
        values[i] = nearest_multiple(values[i], scale / step, step, high, low)


def rounded_sum(values: Array, noise: Array, step: float) -> Array:
    """Return multiples of ``step`` next to values + noise, computed in doubles."""
    limit = MAX_QUERY_STEPS * step
    values = np.clip(np.nan_to_num(values, nan=0.0), -limit, limit)
    cells = np.round((values + noise) / step)
    cells = np.clip(cells, -2.0 * MAX_QUERY_STEPS, 2.0 * MAX_QUERY_STEPS)
    return np.asarray((cells + 0.0) * step)  # no -0.0


class Noise(Spec):
    """Additive noise with a density, as frozen data that is compared by content.

    Examples
    --------
    >>> from dpsample.noise import Laplace
    >>> Laplace(2.0) == Laplace(2.0), Laplace(2.0).to_dict()
    (True, {'name': 'laplace', 'scale': 2.0})
    """

    def __post_init__(self) -> None:
        """Check the exponent and the scale, and keep them as floats."""
        for name in ("r", *SCALES):
            if name in vars(self):
                value = getattr(self, name)
                if name == "r":
                    check.at_least(1.0, r=value)
                else:
                    check.positive(**{name: value})
                object.__setattr__(self, name, float(value))

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw an array of shape ``size``, one vector on the last axis."""
        raise NotImplementedError

    def _as_independent(self, dim: int) -> "Noise | None":
        """Return the same noise as independent coordinates, or None if it has none.

        Only sums with independent Gaussian or Laplace coordinates are rounded exactly.
        """
        del dim
        return None

    def _step(self, dim: int) -> float:
        """Return the step of the grid of `_noisy` answers, a public power of two."""
        return grid_step(self._min_scale(dim))

    def _min_scale(self, dim: int) -> float:
        """Return the scale of a coordinate, about its standard deviation or less."""
        del dim
        return float(next(vars(self)[name] for name in SCALES if name in vars(self)))

    def _noisy(self, rng: np.random.Generator, values: Array) -> Array:
        """Return values, shape (dim,), plus one draw of the noise, on the grid.

        For independent coordinates the ideal sum is rounded, as the module proves.
        Otherwise the sum in doubles is rounded, and nothing is proved about its bits.
        """
        independent = self._as_independent(len(values))
        if independent is not None:
            return independent._noisy(rng, values)
        noise = self.draw(rng, len(values))
        return rounded_sum(values, noise, self._step(len(values)))

    def _noisy_purely(self, rng: np.random.Generator, values: Array) -> Array:
        """Return what `_noisy` does, for a budget without an error probability.

        The sum with Laplace noise is rounded with as many digits as that takes.
        """
        independent = self._as_independent(len(values))
        if independent is not None and independent is not self:
            return independent._noisy_purely(rng, values)
        return self._noisy(rng, values)

    @np.errstate(over="ignore")  # far out it is minus infinity
    def log_density(self, z: ArrayLike) -> Values:
        """Return the normalized log density of the vectors on the last axis."""
        return self._log_density(check.vectors("z", z))

    def _log_density(self, points: Array) -> Values:
        """Return the log density at vectors that have been checked."""
        raise NotImplementedError


def check_rng(rng: object) -> None:
    """Raise unless ``rng`` is a Generator."""
    remedy = "Use numpy.random.default_rng()."
    check.instance(np.random.Generator, rng=rng, remedy=remedy)


def checked_size(size: object, num_axes: int = 0) -> tuple[int, ...]:
    """Return ``size`` as a tuple whose last ``num_axes`` entries are >= 1."""
    if _is_side(size):
        size = (size,)
    if not (isinstance(size, tuple | list) and all(map(_is_side, size))):
        check.fail("size", "an integer >= 0 or a tuple of them", check.describe(size))
    shape = tuple(int(side) for side in size)
    if math.prod(shape) > check.MAX_LENGTH:
        check.fail(
            "size", f"of at most {check.MAX_LENGTH} numbers", check.describe(size)
        )
    if len(shape) < num_axes or 0 in shape[len(shape) - num_axes :]:
        remedy = "The last axes hold the coordinates of one draw."
        check.fail("size", f"of at least {num_axes} axes >= 1 at the end", size, remedy)
    return shape


def _is_side(value: object) -> bool:
    """Return whether a value is an integer >= 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return False
    return int(value) >= 0


def parts(rows: Array, *, cost: int = 1) -> Iterator[Array]:
    """Split rows for calls of about 20 ms, between which Ctrl-C is handled.

    Rows have shape (num_rows, dim). ``cost`` is the work per number, in units of one
    Gaussian number.
    """
    count = max(1, CALL_NUMBERS // (cost * max(1, rows.shape[1])))
    for start in range(0, len(rows), count):
        yield rows[start : start + count]
