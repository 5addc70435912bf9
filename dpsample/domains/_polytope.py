"""Polytopes given by inequalities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample._spec import frozen
from dpsample.domains import _polytope_bounds as bounds
from dpsample.domains._directions import as_rows, box_support
from dpsample.domains._domain import Body, Domain, Vector, body_around
from dpsample.domains._polytope_pieces import (
    polytope_chord,
    polytope_contains,
    polytope_project,
)
from dpsample.norms import norm

# One linear program per direction is affordable up to here.
MAX_PROGRAMS = 200


@dataclass(frozen=True, eq=False)
class Polytope(Domain):
    """Polytope ``A theta <= b`` with interior points.

    Parameters
    ----------
    A : array_like, shape (m, d)
        One nonzero row per inequality.
    b : array_like, shape (m,)
        Right-hand sides.

    Raises
    ------
    ValueError
        If shapes disagree, a row is zero, or no point satisfies all inequalities
        strictly (a linear program decides).

    Examples
    --------
    >>> triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    >>> triangle.is_bounded, triangle.contains([0.2, 0.2])
    (True, True)
    >>> triangle.project([1.0, 1.0]).round(12).tolist()
    [0.5, 0.5]
    """

    name: ClassVar[str] = "polytope"
    contains_piece: ClassVar[Any] = staticmethod(polytope_contains)
    project_piece: ClassVar[Any] = staticmethod(polytope_project)
    chord_piece: ClassVar[Any] = staticmethod(polytope_chord)
    width_draws: ClassVar[int] = 1000

    A: Any
    b: Any

    def __post_init__(self) -> None:
        """Check the inequalities and find an interior point."""
        rows = check.array("A", self.A, shape=(None, None))
        limits = check.array("b", self.b, shape=(len(rows),))
        if rows.size == 0:
            check.fail("A", "of shape (>= 1, >= 1)", f"shape {rows.shape}")
        zero = np.flatnonzero(~rows.any(axis=1))
        if len(zero):
            check.fail("every row of A", "nonzero", f"zeros in row {zero[0]}")
        object.__setattr__(self, "A", frozen(rows))
        object.__setattr__(self, "b", frozen(limits))
        if self._chebyshev is None:
            remedy = "Write an equality by eliminating a coordinate."
            got = "inequalities that no point satisfies strictly"
            check.fail("A theta <= b", "a set with interior points", got, remedy)

    @cached_property
    def _chebyshev(self) -> Vector | None:
        return bounds.chebyshev_center(self.A, self.b)

    @cached_property
    def _is_bounded(self) -> bool:
        return bounds.is_bounded(self.A)

    @cached_property
    def _box(self) -> tuple[Vector, Vector]:
        return bounds.outer_box(self.A, self.b, self.default_center(self.A.shape[1]))

    @property
    def is_bounded(self) -> bool:
        """Whether the rows positively span the space (a linear program decides)."""
        return self._is_bounded

    def check(self, dim: int) -> None:
        """Raise unless the rows have ``dim`` coordinates."""
        super().check(dim)
        if self.A.shape[1] != dim:
            check.fail("A", f"of shape (any, {dim})", f"shape {self.A.shape}")

    def default_center(self, dim: int) -> Vector:
        """Center of a largest inscribed ball (of one of them, if there are many)."""
        self.check(dim)
        return np.array(self._chebyshev)

    def body(self, dim: int) -> Body:
        """Return the parameters of the pieces, in fresh arrays."""
        center = self.default_center(dim)
        return body_around(center, matrix=np.array(self.A), bounds=np.array(self.b))

    def support(self, directions: Any) -> Any:
        """Maxima by linear programs, rounded up through their dual solutions.

        For more than 200 directions, upper bounds from the bounding box, itself found
        by 2 d linear programs.
        """
        rows = as_rows(directions, self.A.shape[1])
        count = int(np.prod(rows.shape[:-1], dtype=np.int64))
        if count > MAX_PROGRAMS:
            return box_support(rows, *self._box)
        dense = rows.toarray() if hasattr(rows, "tocsr") else rows
        center = self.default_center(self.A.shape[1])
        values = [
            bounds.support_value(self.A, self.b, center, self._box, v)
            for v in dense.reshape(count, -1)
        ]
        return np.array(values).reshape(dense.shape[:-1])[()]

    def max_norm(self, p: float, center: Any, dim: int) -> float:
        """Upper bound: the farthest corner of the bounding box."""
        middle = self._middle(p, center, dim)
        lower, upper = self._box
        return float(norm(np.maximum(upper - middle, middle - lower), p))

    def _gauge_rows(self, rows: Vector) -> Vector:
        """Exact: the largest <a, theta>/b over the inequalities that are violated."""
        heights = rows @ self.A.T
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(heights > 0.0, heights / self.b, 0.0)
        return np.asarray(shares.max(axis=1))
