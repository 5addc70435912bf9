"""Public grid on which releases lie, multiples of a power of two.

The last bits of a double depend on how it was computed, and so on the records. A draw
is rounded to a grid that depends on public facts alone. The rounded draw is a function
of the draw, so it is as private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import call, kernel, pointer
from dpsample.core.spec import lazy_property
from dpsample.domains import CONTAINS, PROJECT, Body, Domain
from dpsample.numerics.vectors import copy_into
from dpsample.problem.facts import PublicFacts, smoothness_or_inf
from dpsample.targets.gibbs import Gibbs

# The step is 2^-10 of the least standard deviation that a target can have. So rounding
# adds less than 1e-7 of the variance.
BITS = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicGrid:
    """Multiples of ``step`` in coordinates v of the domain's hull, theta = c + N v.

    If the domain has an interior, v is theta.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> PublicGrid(domain=Ball(1.0), dim=2, step=0.25).round([0.6, 0.8]).tolist()
    [0.5, 0.75]
    """

    domain: Domain
    dim: int
    step: float
    # Radius of a ball about the interior point, see `hull_inner_radius`.
    inner_radius: float = math.inf

    @classmethod
    def for_target(cls, target: Gibbs) -> PublicGrid:
        """Return the grid of a target, which depends on public facts alone.

        In any direction the variance of the target is at least about 1 / c for an
        energy of curvature at most c, and about 1 / b^2 for slopes of at most b. On a
        narrower domain it is about the squared width.
        """
        return cls.from_facts(target.problem.facts, k=target.k, mu=target.mu)

    @classmethod
    def from_facts(cls, facts: PublicFacts, *, k: float, mu: float) -> PublicGrid:
        """Return the grid of all targets with these facts and numbers.

        Certificates list them, so that a verifier can compute the same grid.
        """
        dim = facts.dim
        curvature = k * (smoothness_or_inf(facts) + mu)
        slope = k * facts.lipschitz_or_inf(2.0) / math.sqrt(dim)
        inner_radius = hull_inner_radius(facts.domain, dim)
        narrow = math.sqrt(dim) / inner_radius
        scales = [math.sqrt(k * mu), math.sqrt(curvature), slope, narrow]
        largest = max(scale for scale in scales if math.isfinite(scale))
        step = math.ldexp(1.0, -BITS - math.ceil(math.log2(largest)))
        return cls(domain=facts.domain, dim=dim, step=step, inner_radius=inner_radius)

    def round(self, point: Sequence[Decimal] | Sequence[float] | Array) -> Array:
        """Return theta of the nearest v on the grid, or of one nearby in the domain.

        If the nearest point is outside, grid points on the way from it to an interior
        point are tried. If none of them is inside, the result is a projection. It is a
        projection, too, if rounding errors of c + N v put theta outside. All this
        depends on the nearest grid point and the domain alone.

        Parameters
        ----------
        point : sequence of numbers
            Theta, or v if it is shorter than theta.

        Returns
        -------
        array of shape (dim,)
            A point of the domain that depends on ``point`` by its cell alone.
        """
        if self.hull is None:
            return self._move_inside(self._nearest(point))
        origin, basis = self.hull
        vector = np.asarray(point, dtype=np.float64)
        v = basis.T @ (vector - origin) if len(vector) == self.dim else vector
        theta = np.asarray(origin + basis @ self._nearest(v))
        return theta if self.domain.contains(theta) else self.domain.project(theta)

    def holds(self, theta: Array) -> bool:
        """Return whether ``theta`` can be a result of `round`, as far as is decidable.

        Multiples of a smaller step are accepted, because the step may differ between
        machines. On domains without an interior, points near the boundary are accepted,
        because a projection may have moved them there.
        """
        # `holds` accepts steps that are smaller by up to 2^4. The logarithm may be
        # rounded to the next integer, and linear programs of a polytope may have
        # several solutions.
        fine = replace(self, step=self.step * 2.0**-4)
        rounded = fine.round(theta)
        if self.hull is None:
            is_same = np.array_equal(rounded, theta)
            return is_same and not np.signbit(theta[theta == 0.0]).any()
        # Relative rounding error of a point that is computed from coordinates of its
        # hull.
        slack = 1e-12 * (1.0 + np.abs(theta).max() + np.abs(self.hull[0]).max())
        if np.abs(rounded - theta).max() <= slack:
            return True
        inner = self.domain.interior_point(self.dim)
        farther = theta + self.step * math.sqrt(self.dim) / self.inner_radius * (
            theta - inner
        )
        return not self.domain.contains(farther)

    @lazy_property
    def hull(self) -> tuple[Array, Array] | None:
        """Point and basis of the domain's hull, None if the domain has an interior."""
        origin, basis = self.domain.hull(self.dim)
        return None if basis.shape[1] == self.dim else (origin, basis)

    def _nearest(self, point: Sequence[Decimal] | Sequence[float] | Array) -> Array:
        """Return the nearest point of the grid, of doubles or of exact decimals."""
        if isinstance(point, np.ndarray):
            return nearest.py_func(point, self.step)
        per_step = Decimal(1.0 / self.step)
        # With 400 digits the products below are exact.
        with localcontext(Context(prec=400, rounding=ROUND_HALF_EVEN)):
            cells = [int((Decimal(x) * per_step).to_integral_value()) for x in point]
        return self.step * np.array([float(cell) for cell in cells])

    def _move_inside(self, nearest: Array) -> Array:
        """Return a grid point in the domain, near one that may be outside."""
        # To mypy the compiled functions would be methods.
        domain: Any = self.domain
        out, status = np.empty(self.dim), np.full(1, np.nan)
        call(domain.contains_piece, self.numbers.body, nearest, status)
        # Usually the point is inside, and the rest need not be compiled.
        if status[0] == 1.0:
            return nearest
        contains = pointer(domain.contains_piece, CONTAINS)
        project = pointer(domain.project_piece, PROJECT)
        go_inside(contains, project, self.numbers, nearest, out)
        return out

    @lazy_property
    def numbers(self) -> GridNumbers:
        """Numbers that kernels read."""
        inner = self.domain.interior_point(self.dim)
        return GridNumbers(self.domain.body(self.dim), inner, self.step)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class GridNumbers(NamedTuple):
    """Domain and grid as kernels read them."""

    body: Body
    inner: Array  # (dim,)
    step: float


@kernel
def nearest(point: Array, step: float) -> Array:
    """Return the nearest multiples of a power of two, ties to even.

    The quotient is exact. Adding 0 removes the sign of a zero, which would reveal more
    than the nearest multiple.
    """
    return (np.rint(point / step) + 0.0) * step


@kernel
def go_inside(
    contains: Any, project: Any, grid: GridNumbers, first: Array, out: Array
) -> None:
    """Fill out with a point of the domain near ``first``, see `PublicGrid.round`."""
    copy_into(first, out)
    share, status = 2.0**-52, np.empty(1)
    while True:
        status[0] = np.nan
        contains(grid.body, out, status)
        if status[0] == 1.0:
            return
        if not share <= 1.0:
            project(grid.body, first, out)
            return
        for j in range(out.shape[0]):
            toward = grid.inner[j] + (1.0 - share) * (first[j] - grid.inner[j])
            out[j] = (np.rint(toward / grid.step) + 0.0) * grid.step
        share *= 2.0


def hull_inner_radius(domain: Domain, dim: int) -> float:
    """Return the radius of a ball about the interior point, in the domain's hull.

    The domain contains the chords along the axes of the hull's basis. So it contains
    the l1 ball of the shortest one, and a Euclidean ball whose radius is smaller by the
    square root of the dimension.
    """
    center, axes = domain.interior_point(dim), domain.hull(dim)[1].T
    body, out, reach = domain.body(dim), np.empty(2), math.inf
    for axis in np.ascontiguousarray(axes):
        domain.chord_piece(body, center, axis, out)
        reach = min(reach, -out[0], out[1])
    return float(reach) / math.sqrt(len(axes))
