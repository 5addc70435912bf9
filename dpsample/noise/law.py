# mypy: allow-untyped-defs
"""Law of additive noise: what each one offers, and the grid that its values are on.

**Grid.** In doubles q + noise is no additive noise: which doubles it can be depends on
q, and its last bits tell queries apart (Mironov, CCS 2012). Here the step s is the
largest power of two up to 2^-10 times the scale of the noise, a public number, and the
answer is the multiple of s next to q + noise in real arithmetic, ties up. Rounding what
a private mechanism returns is post-processing: no sensitivity grows, whatever the
dimension, and the accounting is that of continuous noise. The rounding adds s^2/12 <
1e-7 scale^2 to the variance.

**The nearest multiple, certified.** With q/s = b + f, b whole and |f| <= 1/2 (exact: s
is a power of two), and with the digits high + low of the noise over its scale, what is
rounded is f + (scale/s)(high + low), scale/s < 2^11. Product and sum of the high parts
are exact as pairs of doubles, and the pair is compared exactly with the borders of its
cell. The parts below are off by less than 2^-83: they are at most 2^-33, three of their
operations are rounded to 53 bits, and the digits are cut off at 2^-97 of a scale. That
close to a border the sum is with probability below 2^-81. With the little that the
digits' own law is off (`numerics.exact`), each number is that of the ideal rounded law
except with probability `TOTAL_VARIATION`.

**Range.** Queries are cut off at +-2^51 s, which moves no two of them apart in any l_p
norm; NaN, which no declared sensitivity allows, counts as 0. So nothing raises because
of a query's value, and a number of the answer is below 2^52 s: exact in a double.
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

# Bits between the step and the scale of the noise.
FINENESS = 10
REACH = 2.0**51
TOTAL_VARIATION = 2.0**-80
# Of the scale: products with it stay normal numbers, and so does the whole range.
_LEAST, _MOST = 1e-280, 1e280
SCALES = ("stddev", "sigma", "scale")  # fields of which a law has one
Size = int | tuple[int, ...]

# Gaussian numbers that a compiled call makes in about 20 ms.
CALL_NUMBERS = 200_000


def grid_step(scale: float) -> float:
    """Largest power of two up to 2^-10 of the scale of the noise.

    Raises
    ------
    ValueError
        If the scale is beyond 1e-280 to 1e280.

    Examples
    --------
    >>> grid_step(1.0) == grid_step(1.9) == 2.0**-10
    True
    """
    if not _LEAST <= scale <= _MOST:
        condition = f"from {_LEAST:g} to {_MOST:g}"
        check.fail("the scale of the noise", condition, scale, "Use other units.")
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - FINENESS)


@kernel
def nearest_multiple(query, ratio, step, high, low):
    """Multiple of ``step`` next to query + ratio step (high + low), ties up."""
    cells = query / step
    if np.isnan(cells):
        cells = 0.0
    cells = min(max(cells, -REACH), REACH)
    base = np.rint(cells)  # to a floor the distance would not always be exact
    product, error = two_product(ratio, high)
    total, rest = two_sum(cells - base, product)
    rest += error + ratio * low
    nearest = np.rint(total)
    gap = total - nearest  # exact, and so are its distances to close borders
    if rest >= 0.5 - gap:
        nearest += 1.0
    elif rest < -0.5 - gap:
        nearest -= 1.0
    return (base + nearest + 0.0) * step  # no sign of a zero


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
        if random_word(rng) & np.uint64(1) == np.uint64(1):
            high, low = -high, -low
        values[i] = nearest_multiple(values[i], scale / step, step, high, low)


def rounded_sum(values: Array, noise: Array, step: float) -> Array:
    """Multiples of ``step`` near values + noise, both as they are in doubles."""
    values = np.clip(np.nan_to_num(values, nan=0.0), -REACH * step, REACH * step)
    cells = np.clip(np.round((values + noise) / step), -2.0 * REACH, 2.0 * REACH)
    return np.asarray((cells + 0.0) * step)  # no sign of a zero


class Noise(Spec):
    """Law of additive noise with a density; frozen, compared by content.

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

    def _coordinates(self, dim: int) -> "Noise | None":
        """Independent Gaussian or Laplace coordinates of this very law, if it is one.

        Their sums with a query are rounded exactly; those of others are not.
        """
        del dim
        return None

    def _step(self, dim: int) -> float:
        """Step of the grid on which `_noisy` answers, a public power of two."""
        return grid_step(self._least_scale(dim))

    def _least_scale(self, dim: int) -> float:
        """Scale of a coordinate, of the order of its standard deviation or below."""
        del dim
        return float(next(vars(self)[name] for name in SCALES if name in vars(self)))

    def _noisy(self, rng: np.random.Generator, values: Array) -> Array:
        """Values, shape (dim,), plus one draw of the noise, on the grid.

        Only with ``_coordinates`` is it the ideal sum that is rounded (`noise.law`);
        else the sum in doubles, of whose law nothing is proved.
        """
        plain = self._coordinates(len(values))
        if plain is not None:
            return plain._noisy(rng, values)
        noise = self.draw(rng, len(values))
        return rounded_sum(values, noise, self._step(len(values)))

    @np.errstate(over="ignore")  # minus infinity
    def log_density(self, z: ArrayLike) -> Values:
        """Return the normalized log density of the vectors on the last axis."""
        return self._log_density(check.vectors("z", z))

    def _log_density(self, points: Array) -> Values:
        """Log density at vectors that were looked at."""
        raise NotImplementedError


def check_rng(rng: object) -> None:
    """Refuse what is not a Generator."""
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
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return False
    return int(value) >= 0


def parts(rows: Array, *, cost: int = 1) -> Iterator[Array]:
    """Split rows for calls of about 20 ms, between which Ctrl-C is heard.

    Rows have shape (num_rows, dim); ``cost`` is the work per number in units of one
    Gaussian.
    """
    count = max(1, CALL_NUMBERS // (cost * max(1, rows.shape[1])))
    for start in range(0, len(rows), count):
        yield rows[start : start + count]
