"""Bodies whose points are decided exactly: a Euclidean ball, or flat sides.

The body K is what the doubles of a domain's parameters say in real arithmetic: all x
with |x - c|^2 <= R^2, or with <a_i, x> <= b_i for all sides. Both are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.domains import Domain
from dpsample.targets.gibbs import MARGIN_SLACK

# Computed norms and distances are raised by this share, which exceeds rounding errors.
WIDENED = 1.0 + 1e-9


def explain_unsupported_domain(domain: Domain, dim: int) -> str:
    """Return why a domain is not supported, or "" if it is a body of this module."""
    if not domain.is_bounded:
        return (
            "The domain is unbounded, and the range of the losses infinite. Use "
            "Localized or Proximal."
        )
    has_interior = not domain.has_equalities and domain.affine_dim(dim) == dim
    is_known = domain.has_exact_test and has_interior and domain.lp_exponent != 1.0
    if not is_known:
        return (
            f"{type(domain).__name__} is neither an l2 ball nor a box or polytope with "
            "an interior, whose points are decided exactly. Use Proximal."
        )
    return ""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactBody:
    """Body K, and the point x0 from which moves w = x - x0 are measured."""

    point: Array  # (dim,): x0
    center: Array  # (dim,): center of a ball
    radius: float  # radius of a ball, 0 for flat sides
    sides: Array  # (num_sides, dim): none for a ball
    bounds: Array  # (num_sides,)
    lowest: Array  # (num_sides,): at most the least <a_i, x> on K
    reach: float  # at least |w| on K

    @classmethod
    def from_domain(cls, domain: Domain, point: Array) -> ExactBody:
        """Return the body of a domain that `explain_unsupported_domain` accepts."""
        dim = len(point)
        if domain.lp_exponent == 2.0:
            body = domain.body(dim)
            center, radius = np.asarray(body.center), float(body.radius)
            reach = float(np.linalg.norm(point - center)) + radius
            sides, bounds = np.zeros((0, dim)), np.zeros(0)
        else:
            center, radius = point, 0.0
            reach = domain.max_norm(2.0, point, dim)
            sides, bounds = domain.facets(dim)
        lowest = np.zeros(0)
        if len(sides):
            heights = np.asarray(domain.support(-np.ascontiguousarray(sides)))
            lowest = -heights - MARGIN_SLACK * (1.0 + np.abs(heights))
        return cls(
            point=point,
            center=center,
            radius=radius,
            sides=np.asarray(sides),
            bounds=np.asarray(bounds),
            lowest=lowest,
            reach=WIDENED * reach,
        )

    @property
    def is_round(self) -> bool:
        """Whether K is a Euclidean ball."""
        return self.radius > 0.0

    def side_of(self, points: Array, errors: Array) -> Array:
        """Return 1 for rows inside, -1 for rows outside, and 0 if doubles cannot tell.

        ``errors`` are bounds of the distance of each row from the point it stands for.
        """
        unit = (points.shape[1] + 4) * UNIT_ROUNDOFF
        if self.is_round:
            moves = points - self.center
            sizes = np.linalg.norm(moves, axis=1)
            scale = np.linalg.norm(points, axis=1) + np.linalg.norm(self.center)
            slacks = self.radius - sizes
            error = errors + 2.0 * unit * (scale + sizes + self.radius)
            return np.asarray(np.sign(slacks) * (np.abs(slacks) > error))
        slacks = self.bounds - points @ self.sides.T
        norms = WIDENED * np.linalg.norm(self.sides, axis=1)
        sizes = np.linalg.norm(points, axis=1)[:, None] * norms
        error = errors[:, None] * norms
        error = error + 2.0 * unit * (sizes + np.abs(self.bounds))
        is_inside, is_outside = slacks > error, slacks < -error
        certain = is_inside.all(axis=1) * 1.0 - is_outside.any(axis=1) * 1.0
        return np.asarray(certain)

    def decide(self, point: list[Fraction], error: Fraction) -> bool | None:
        """Return whether K contains all points, or none, within ``error`` of a point.

        None says that neither is certain.
        """
        if self.is_round:
            center = map(Fraction, self.center.tolist())
            square = sum((x - c) ** 2 for x, c in zip(point, center, strict=True))
            radius = Fraction(self.radius)
            if radius >= error and square <= (radius - error) ** 2:
                return True
            return False if square > (radius + error) ** 2 else None
        is_certain = True
        for row, bound in zip(self.sides.tolist(), self.bounds.tolist(), strict=True):
            side = list(map(Fraction, row))
            slack = Fraction(bound) - sum(
                a * x for a, x in zip(side, point, strict=True)
            )
            # The sum of sizes is at least the norm of the row.
            change = error * sum(map(abs, side))
            if slack < -change:
                return False
            is_certain = is_certain and slack >= change
        return True if is_certain else None
