"""Law of additive noise: what each one offers, and checks of generators and sizes."""

import math
import numbers
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.spec import Spec
from dpsample.noise.grid import grid_step, rounded_sum

Size = int | tuple[int, ...]

# Gaussian numbers that a compiled call makes in about 20 ms.
CALL_NUMBERS = 200_000


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
        for name in ("r", "stddev", "sigma", "scale"):
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
        return float(vars(self)["sigma"])

    def _noisy(self, rng: np.random.Generator, values: Array) -> Array:
        """Values, shape (dim,), plus one draw of the noise, on the grid.

        Only with ``_coordinates`` is it the ideal sum that is rounded (`noise.grid`);
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
        check.fail("size", "an integer >= 0 or a tuple of them", check.shown(size))
    shape = tuple(int(side) for side in size)
    if math.prod(shape) > check.LONGEST:
        check.fail("size", f"of at most {check.LONGEST} numbers", check.shown(size))
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
