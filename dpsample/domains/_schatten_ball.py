"""The ball of a Schatten norm."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample.domains._directions import as_rows
from dpsample.domains._domain import Body, Domain, Vector, body_around
from dpsample.domains._schatten_pieces import (
    schatten_chord,
    schatten_contains,
    schatten_project,
)
from dpsample.domains._width import mean_length
from dpsample.norms import conversion, dual, norm, schatten

ROWS_AT_ONCE = 4096


def checked_shape(shape: Any) -> tuple[int, int]:
    """Return the sides of a matrix as two integers >= 1."""
    rows, columns = check.shape("shape", shape, length=2)
    return rows, columns


@dataclass(frozen=True, eq=False)
class SchattenBall(Domain):
    """Matrices whose singular values have l_p norm at most ``radius``.

    Points are matrices flattened row by row. p = 1 is the nuclear-norm ball, p = 2 the
    Frobenius ball, p = inf the ball of the operator norm.

    Parameters
    ----------
    radius : float
        Radius > 0.
    p : float
        Exponent in [1, inf].
    shape : tuple of two int
        Rows and columns of a matrix.

    Raises
    ------
    ValueError
        If the radius is not positive, p < 1, or the shape is not a pair.

    Examples
    --------
    >>> ball = SchattenBall(1.0, p=1.0, shape=(2, 2))
    >>> ball.contains([0.5, 0.0, 0.0, 0.5]), ball.contains([1.0, 0.0, 0.0, 0.5])
    (True, False)
    >>> float(ball.support([2.0, 0.0, 0.0, 1.0]))
    2.0
    """

    name: ClassVar[str] = "schatten_ball"
    contains_piece: ClassVar[Any] = staticmethod(schatten_contains)
    project_piece: ClassVar[Any] = staticmethod(schatten_project)
    chord_piece: ClassVar[Any] = staticmethod(schatten_chord)

    radius: float
    _: KW_ONLY
    p: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.positive(radius=self.radius)
        check.at_least(1.0, p=self.p)
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "p", float(self.p))
        object.__setattr__(self, "shape", checked_shape(self.shape))

    def check(self, dim: int) -> None:
        """Raise unless the matrices have ``dim`` entries."""
        super().check(dim)
        if self.shape[0] * self.shape[1] != dim:
            check.fail("shape", f"of a matrix with {dim} entries", self.shape)

    def _flat(self, name: str, value: Any) -> Vector:
        if np.ndim(value) == 2:
            value = check.array(name, value, shape=self.shape).reshape(-1)
        return super()._flat(name, value)

    def body(self, dim: int) -> Body:
        """Return the parameters of the pieces, in fresh arrays."""
        return body_around(
            self.default_center(dim),
            lower=np.full(dim, -self.radius),
            upper=np.full(dim, self.radius),
            radius=self.radius,
            p=self.p,
            num_rows=self.shape[0],
            num_columns=self.shape[1],
        )

    def support(self, directions: Any) -> Any:
        """Exact: ``radius`` times the dual Schatten norm."""
        rows = as_rows(directions, self.shape[0] * self.shape[1])
        if not hasattr(rows, "tocsr"):
            return self.radius * schatten(rows, dual(self.p), self.shape)
        parts = [
            schatten(rows[k : k + ROWS_AT_ONCE].toarray(), dual(self.p), self.shape)
            for k in range(0, rows.shape[0], ROWS_AT_ONCE)
        ]
        return self.radius * np.concatenate(parts or [np.zeros(0)])

    def max_norm(self, p: float, center: Any, dim: int) -> float:
        """Upper bound in the norm of the entries, by the triangle inequality.

        Around 0 it is exact for p >= 2, where the norm of the entries is at most the
        Schatten norm; for p < 2 it goes through the Frobenius norm.
        """
        middle = self._middle(p, center, dim)
        through = max(2.0, float(p))
        ratio = conversion(min(self.shape), self.p, through) * conversion(
            dim, through, p
        )
        return float(norm(middle, p)) + self.radius * ratio

    def max_schatten(
        self, p: float, center: Any, dim: int, *, shape: tuple[int, int] | None = None
    ) -> float:
        """Upper bound in the Schatten norm, exact around 0."""
        middle = self._middle(p, center, dim)
        if shape is not None and check.shape("shape", shape, length=2) != self.shape:
            return super().max_schatten(p, center, dim, shape=shape)
        offset = float(schatten(middle, p, self.shape))
        return offset + self.radius * conversion(min(self.shape), self.p, p)

    def _gauge_rows(self, rows: Vector) -> Vector:
        """Exact: a ratio of norms."""
        return np.asarray(schatten(rows, self.p, self.shape) / self.radius)

    def _exact_width(self, dim: int) -> float | None:
        """Return the radius times E ||g||_2 for p = 2 and for vectors."""
        if self.p == 2.0 or min(self.shape) == 1:
            return self.radius * mean_length(dim)
        return None
