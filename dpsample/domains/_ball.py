"""The l_p ball."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample._spec import frozen
from dpsample.domains._ball_chord import ball_chord
from dpsample.domains._ball_pieces import ball_contains, ball_project
from dpsample.domains._directions import as_rows
from dpsample.domains._domain import Body, Domain, Vector, body_around
from dpsample.domains._width import mean_norm
from dpsample.norms import conversion, dual, norm


@dataclass(frozen=True, eq=False)
class Ball(Domain):
    """Ball ``||theta - center||_p <= radius``.

    Parameters
    ----------
    radius : float
        Radius > 0.
    p : float, default 2.0
        Exponent in [1, inf].
    center : array_like, optional
        Center; the origin by default.

    Raises
    ------
    ValueError
        If the radius is not positive, p < 1, or the center is not finite.

    Examples
    --------
    >>> ball = Ball(radius=2.0, p=1.0)
    >>> ball.contains([1.0, -1.0]), ball.contains([1.5, 1.5])
    (True, False)
    >>> ball.project([3.0, 1.0]).tolist(), float(ball.support([3.0, 1.0]))
    ([2.0, 0.0], 6.0)
    """

    name: ClassVar[str] = "ball"
    contains_piece: ClassVar[Any] = staticmethod(ball_contains)
    project_piece: ClassVar[Any] = staticmethod(ball_project)
    chord_piece: ClassVar[Any] = staticmethod(ball_chord)

    radius: float
    _: KW_ONLY
    p: float = 2.0
    center: Any = None

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.positive(radius=self.radius)
        check.at_least(1.0, p=self.p)
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "p", float(self.p))
        if self.center is not None:
            center = check.array("center", self.center, shape=(None,))
            object.__setattr__(self, "center", frozen(center))

    def check(self, dim: int) -> None:
        """Raise unless the center has ``dim`` coordinates."""
        super().check(dim)
        if self.center is not None and len(self.center) != dim:
            check.fail("center", f"of shape ({dim},)", f"shape {self.center.shape}")

    def default_center(self, dim: int) -> Vector:
        """Center of the ball."""
        self.check(dim)
        return np.zeros(dim) if self.center is None else np.array(self.center)

    def body(self, dim: int) -> Body:
        """Return the parameters of the pieces, in fresh arrays."""
        center = self.default_center(dim)
        return body_around(
            center,
            lower=center - self.radius,
            upper=center + self.radius,
            radius=self.radius,
            p=self.p,
        )

    def support(self, directions: Any) -> Any:
        """Exact: ``<v, center> + radius ||v||_dual(p)``."""
        rows = as_rows(directions)
        size = self.radius * norm(rows, dual(self.p))
        return size if self.center is None else rows @ self.center + size

    def max_norm(self, p: float, center: Any, dim: int) -> float:
        """Upper bound by the triangle inequality, exact if the centers agree."""
        middle = self._middle(p, center, dim)
        offset = float(norm(self.default_center(dim) - middle, p))
        return offset + self.radius * conversion(dim, self.p, p)

    def _gauge_rows(self, rows: Vector) -> Vector:
        """Exact: a ratio of norms around 0, a quadratic for p = 2, else chords."""
        if self.center is None or not self.center.any():
            return np.asarray(norm(rows, self.p) / self.radius)
        if self.p != 2.0:
            return super()._gauge_rows(rows)
        # The least t > 0 with ||theta - t c|| <= t R: depth t^2 + 2 cross t >= size.
        center = self.center / self.radius
        points = rows / self.radius
        depth = (1.0 - norm(center, 2.0)) * (1.0 + norm(center, 2.0))
        cross, size = points @ center, (points**2).sum(axis=1)
        root = np.sqrt(cross**2 + depth * size)
        far = cross >= 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(far, size / (cross + root), (root - cross) / depth)
        return np.where(size == 0.0, 0.0, np.where(np.isnan(value), np.inf, value))

    def _exact_width(self, dim: int) -> float | None:
        """Return the radius times E ||g||_dual(p); the center does not matter."""
        size = mean_norm(dim, dual(self.p))
        return None if size is None else self.radius * size
