"""What every domain offers: compiled pieces, one parameter tuple, bounds.

A piece writes into its last argument and returns nothing; an entry left NaN is failure.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._jit import f8, i8, matrix, vector
from dpsample._spec import Spec
from dpsample.norms import canonical, conversion

Vector = NDArray[np.float64]


class Body(NamedTuple):
    """Parameters of every domain, one compiled type for all of them.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> body = Ball(2.0).body(dim=3)
    >>> body.radius, body.center.shape, body.matrix.shape
    (2.0, (3,), (0, 3))
    """

    center: Vector  # (d,), in the domain
    lower: Vector  # (d,), with `upper` an outer box, exact for `Box`
    upper: Vector  # (d,)
    matrix: Vector  # (m, d)
    bounds: Vector  # (m,)
    radius: float
    p: float
    num_rows: int
    num_columns: int
    tolerance: float


BODY = types.NamedTuple(
    (vector, vector, vector, matrix, vector, f8, f8, i8, i8, f8), Body
)
CONTAINS = types.void(BODY, vector, vector)  # out[0]: 1 inside, 0 outside
PROJECT = types.void(BODY, vector, vector)  # out: Euclidean projection
CHORD = types.void(BODY, vector, vector, vector)  # point, direction, out of length 2


def body_around(center: Vector, **fields: Any) -> Body:
    """Body with the given fields and harmless values elsewhere."""
    dim = len(center)
    return Body(
        center=center,
        lower=np.full(dim, -np.inf),
        upper=np.full(dim, np.inf),
        matrix=np.zeros((0, dim)),
        bounds=np.zeros(0),
        radius=math.inf,
        p=2.0,
        num_rows=dim,
        num_columns=1,
        tolerance=0.0,
    )._replace(**fields)


class Domain(Spec):
    """Closed convex set of parameters.

    Attributes
    ----------
    name : str
        Word used in `to_dict`.
    contains_piece, project_piece, chord_piece : compiled functions
        Pieces with the signatures ``CONTAINS``, ``PROJECT`` and ``CHORD``.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> Ball(1.0).project([3.0, 4.0]).round(12).tolist()
    [0.6, 0.8]
    >>> Ball(1.0).chord([0.6, 0.0], [0.0, 2.0])
    (-0.4, 0.4)
    """

    contains_piece: ClassVar[Any]
    project_piece: ClassVar[Any]
    chord_piece: ClassVar[Any]

    @property
    def is_bounded(self) -> bool:
        """Whether the domain has a finite diameter."""
        return True

    def check(self, dim: int) -> None:
        """Raise unless the domain is a set of vectors of length ``dim``."""
        check.integer(1, dim=dim)

    def default_center(self, dim: int) -> Vector:
        """Point of the domain from which distances are measured."""
        self.check(dim)
        return np.zeros(dim)

    def interior_point(self, dim: int) -> Vector:
        """Point strictly inside (relative to the affine hull)."""
        return self.default_center(dim)

    def affine_dim(self, dim: int) -> int:
        """Dimension of the affine hull."""
        self.check(dim)
        return dim

    def body(self, dim: int) -> Body:
        """Return the parameters of the pieces, in fresh arrays."""
        return body_around(self.default_center(dim))

    def _flat(self, name: str, value: Any) -> Vector:
        """Return ``value`` as a vector that fits the domain."""
        flat = check.array(name, value, shape=(None,))
        self.check(len(flat))
        return flat

    def contains(self, theta: Any) -> bool:
        """Whether ``theta`` is in the domain; no tolerance except for `Simplex`."""
        point = self._flat("theta", theta)
        out = np.full(1, np.nan)
        self.contains_piece(self.body(len(point)), point, out)
        return bool(out[0] == 1.0)

    def project(self, theta: Any) -> Vector:
        """Nearest point of the domain in l2; it passes `contains`."""
        point = self._flat("theta", theta)
        out = np.full(len(point), np.nan)
        self.project_piece(self.body(len(point)), point, out)
        return out.reshape(np.shape(theta))

    def chord(self, theta: Any, direction: Any) -> tuple[float, float]:
        """Interval of t with ``theta + t direction`` in the domain; it contains 0.

        Both ends are inside in floating point, unless ``theta`` is not.
        """
        point = self._flat("theta", theta)
        along = self._flat("direction", direction)
        out = np.full(2, np.nan)
        self.chord_piece(self.body(len(point)), point, along, out)
        return float(out[0]), float(out[1])

    def support(self, directions: Any) -> Any:
        """Largest ``<v, theta>`` over the domain, for every row v of ``directions``.

        Parameters
        ----------
        directions : array_like or scipy.sparse matrix, shape (..., d)
            One direction in every row.

        Returns
        -------
        float or ndarray, shape (...)
            The maxima, infinite where there is none.
        """
        raise NotImplementedError

    def max_norm(self, p: float, center: Any, dim: int) -> float:
        """Upper bound of ``||theta - center||_p`` over the domain."""
        raise NotImplementedError

    def max_schatten(
        self, p: float, center: Any, dim: int, *, shape: tuple[int, int]
    ) -> float:
        """Upper bound of the Schatten norm of ``theta - center`` over the domain.

        For p < 2 through the Frobenius norm, whose ratio is at most
        ``min(shape)**(1/p - 1/2)``; for p >= 2 the Frobenius norm itself.
        """
        ratio = conversion(min(shape), 2.0, max(1.0, min(p, 2.0)))
        return ratio * self.max_norm(2.0, center, dim)


def as_rows(directions: Any, dim: int | None = None) -> Any:
    """Directions as a CSR matrix or a float array with ``dim`` columns."""
    if hasattr(directions, "tocsr"):
        rows = canonical(directions)
    else:
        rows = np.asarray(directions, dtype=np.float64)
        if rows.ndim == 0:
            check.fail("directions", "of shape (..., d)", f"shape {rows.shape}")
    if dim is not None and rows.shape[-1] != dim:
        check.fail("directions", f"of shape (..., {dim})", f"shape {rows.shape}")
    return rows


def box_support(rows: Any, lower: Vector, upper: Vector) -> Any:
    """Largest ``<v, x>`` over a box with possibly infinite sides, for every row v."""
    if hasattr(rows, "tocsr"):
        return _box_support_sparse(rows, lower, upper)
    with np.errstate(invalid="ignore"):
        return np.where(rows == 0.0, 0.0, np.maximum(rows * lower, rows * upper)).sum(
            -1
        )


def _box_support_sparse(rows: Any, lower: Vector, upper: Vector) -> Vector:
    best = rows.astype(np.float64)
    low, high = lower[rows.indices], upper[rows.indices]
    with np.errstate(invalid="ignore"):
        reached = np.maximum(best.data * low, best.data * high)
    best.data = np.where(best.data == 0.0, 0.0, reached)
    return np.asarray(best.sum(axis=1)).reshape(-1)
