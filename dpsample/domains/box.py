"""Product of intervals ``lower <= theta <= upper``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.core.spec import freeze
from dpsample.domains.domain import (
    Body,
    Domain,
    as_rows,
    body_around,
    box_facets,
    box_support,
)
from dpsample.domains.exits import box_exit
from dpsample.numerics.norms import norm

# Factor of the ends of chords. Four rounding errors (of the difference, the ratio, this
# product and t d) cannot undo it. As the rounding of theta + t d is monotone, both ends
# of a chord are inside.
SAFE = 1.0 - 8.0 * 2.0**-53


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def box_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if every coordinate is between its bounds, otherwise 0."""
    inside = 1.0
    for i in range(len(theta)):
        if not body.lower[i] <= theta[i] <= body.upper[i]:
            inside = 0.0
    out[0] = inside


@kernel(counts_references=False)
def box_project(body: Body, theta: Array, out: Array) -> None:
    """Clip every coordinate."""
    for i in range(len(theta)):
        out[i] = min(max(theta[i], body.lower[i]), body.upper[i])
        if theta[i] != theta[i]:  # `min` and `max` may lose a NaN
            out[i] = np.nan


@kernel(counts_references=False)
def box_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Intersect the intervals of the coordinates."""
    first, last = -np.inf, np.inf
    for i in range(len(theta)):
        if theta[i] != theta[i] or direction[i] != direction[i]:
            return
        if direction[i] != 0.0:
            low = SAFE * ((body.lower[i] - theta[i]) / direction[i])
            high = SAFE * ((body.upper[i] - theta[i]) / direction[i])
            first = max(first, min(low, high))
            last = min(last, max(low, high))
    # t = 0 is in the chord, also if rounding has put the point outside.
    out[0] = min(first, 0.0)
    out[1] = max(last, 0.0)


def _bound_array(name: str, value: ArrayLike, shape: tuple[int | None, ...]) -> Array:
    """Return bounds as an array. The infinite ones have the right sign."""
    bounds = np.array(check.entries(name, value, finite=False), dtype=np.float64)
    worst = math.inf if name == "lower" else -math.inf
    if np.isnan(bounds).any() or (bounds == worst).any():
        condition = f"free of NaN and of {worst:g}"
        check.fail(name, condition, check.describe(bounds.tolist()))
    is_finite = np.isfinite(bounds)
    checked = check.array(name, np.where(is_finite, bounds, 0.0), shape=shape)
    return np.array(np.where(is_finite, checked, bounds))


@dataclass(frozen=True, eq=False)
class Box(Domain):
    """Box ``lower <= theta <= upper``, coordinate by coordinate.

    Parameters
    ----------
    lower, upper : float or array_like
        Bounds, ``lower < upper``. A number is the bound of every coordinate. Infinite
        bounds are for a `Density`: `Problem` needs finite ones.

    Raises
    ------
    ValueError
        If a bound is NaN, the lengths differ, a side is empty or not infinite and of a
        length outside of 1e-150 to 1e150, or a lower bound is infinity.

    Examples
    --------
    >>> box = Box(-1.0, 1.0)
    >>> box.project([0.5, 3.0]).tolist(), float(box.support([2.0, -3.0]))
    ([0.5, 1.0], 5.0)
    """

    name: ClassVar[str] = "box"
    contains_piece: ClassVar[Piece] = staticmethod(box_contains)
    project_piece: ClassVar[Piece] = staticmethod(box_project)
    chord_piece: ClassVar[Piece] = staticmethod(box_chord)

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        """Check and convert the bounds."""
        for name in ("lower", "upper"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float | np.number)
            shape = () if is_number else (None,)
            side = freeze(_bound_array(name, value, shape))
            object.__setattr__(self, name, side)
        if self.lower.ndim and self.upper.ndim and self.lower.shape != self.upper.shape:
            condition, got = f"of shape {self.lower.shape}", f"shape {self.upper.shape}"
            check.fail("upper", condition, got)
        is_wide = np.atleast_1d(self.lower < self.upper)
        if not is_wide.all():
            where = int(np.argmin(is_wide))
            low, high = (
                float(np.broadcast_to(s, is_wide.shape)[where]) for s in self._sides
            )
            check.fail("upper", f"> lower = {low:.12g} at index {where}", high)
        with np.errstate(over="ignore"):
            widths = np.atleast_1d(self.upper - self.lower)
        # Squares of other widths are 0 or overflow.
        is_squarable = (widths >= 1e-150) & (widths <= 1e150)
        is_endless = np.isinf(self.upper) | np.isinf(self.lower)
        odd = np.flatnonzero(~(is_squarable | is_endless))
        if len(odd):
            condition = "infinite or of lengths from 1e-150 to 1e150"
            got = f"{widths[odd[0]]:.3g} at index {odd[0]}"
            check.fail("sides of a box", condition, got, "Use other units.")

    @property
    def is_box(self) -> bool:
        """Whether all bounds are finite."""
        return all(bool(np.isfinite(side).all()) for side in self._sides)

    @property
    def is_product(self) -> bool:
        """True."""
        return True

    @property
    def is_bounded(self) -> bool:
        """Whether all bounds are finite."""
        return self.is_box

    @property
    def has_public_bounds(self) -> bool:  # type: ignore[override]
        """Whether all bounds are finite, as a `Problem` needs them."""
        return self.is_box

    @property
    def has_exact_test(self) -> bool:
        """True."""
        return True

    def contains_exactly(self, point: Sequence[Decimal]) -> bool:
        """Compare each coordinate with its bounds."""
        lower, upper = self._bounds(len(point))
        bounds = zip(lower.tolist(), point, upper.tolist(), strict=True)
        return all(Decimal(low) <= x <= Decimal(high) for low, x, high in bounds)

    def facets(self, dim: int) -> tuple[Array, Array]:
        """Return two inequalities for each coordinate."""
        return box_facets(self.body(dim))

    def slacks(self, points: Array) -> Array:
        """Return distances from the lower and from the upper bounds."""
        lower, upper = self._bounds(points.shape[1])
        sides = np.concatenate([points - lower, upper - points], axis=1)
        return np.asarray(sides[:, np.isfinite(sides).all(axis=0)])

    @property
    def _sides(self) -> tuple[Array, Array]:
        return self.lower, self.upper

    def check(self, dim: int) -> None:
        """Raise unless the bounds fit ``dim`` coordinates."""
        super().check(dim)
        for name, side in zip(("lower", "upper"), self._sides, strict=True):
            if side.ndim and len(side) != dim:
                check.fail(name, f"of shape ({dim},)", f"shape {side.shape}")

    def _bounds(self, dim: int) -> tuple[Array, Array]:
        self.check(dim)
        lower, upper = (np.array(np.broadcast_to(side, dim)) for side in self._sides)
        return lower, upper

    def default_center(self, dim: int) -> Array:
        """Return the midpoint, or a point a little inside of the only finite bound."""
        lower, upper = self._bounds(dim)
        # The distance grows with the bound, so that rounding keeps the point inside.
        # Without any finite bound the interval is [-1, 1], and the center 0.
        finite = np.where(
            np.isfinite(lower), lower, np.where(upper < np.inf, upper, 1.0)
        )
        width = 2.0 * np.maximum(1.0, 1e-3 * np.abs(finite))
        low = np.where(np.isfinite(lower), lower, finite - width)
        high = np.where(np.isfinite(upper), upper, low + width)
        return np.asarray(0.5 * low + 0.5 * high)

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        lower, upper = self._bounds(dim)
        return body_around(self.default_center(dim), lower=lower, upper=upper)

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        return box_exit

    def support(self, directions: Directions) -> Values:
        """Return the exact maxima, at the better bound of each coordinate."""
        rows = as_rows(directions)
        return box_support(rows, *self._bounds(rows.shape[-1]))

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return the exact maximum, which a corner attains."""
        middle = self._check_center(p, center, dim)
        lower, upper = self._bounds(dim)
        return float(norm(np.maximum(upper - middle, middle - lower), p))

    def _gauge_rows(self, rows: Array) -> Array:
        """Return the largest ratio of a coordinate and its bound."""
        lower, upper = self._bounds(rows.shape[1])
        # The bound on the side to which the coordinate points.
        sides = np.where(rows > 0.0, upper, lower)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(rows == 0.0, 0.0, np.abs(rows / sides))
        return np.asarray(shares.max(axis=1))

    def _exact_width(self, dim: int) -> float:
        """Return the sum of the sides over sqrt(2 pi)."""
        lower, upper = self._bounds(dim)
        return float((upper - lower).sum()) / math.sqrt(2.0 * math.pi)
