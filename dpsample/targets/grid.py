"""Public grid on which releases lie: multiples of a power of two.

The last bits of a double tell what it was computed from. Rounded to a grid that depends
on public facts alone, a draw keeps its privacy, as every function of it does.
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

# Bits of the grid below the least standard deviation that a target can have: rounding
# adds less than 1e-7 of the variance.
BITS = 10
DIGITS = 400  # of products of decimals and powers of two
# Bits of a step that `holds` allows for: the logarithm may be rounded to the next whole
# number, and linear programs of a polytope have several solutions.
SPARE_BITS = 4
# Relative rounding error of a point that is computed from coordinates of its hull.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicGrid:
    """Multiples of ``step`` in coordinates v of the domain's hull, theta = c + N v.

    With an interior v is theta.

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
        """Grid of a target, by public facts.

        An energy of curvature at most c, or of slope at most b, has no variance below
        about 1 / c, or 1 / b^2, in any direction; nor has it on a domain that is
        narrower than that.
        """
        return cls.from_facts(target.problem.facts, k=target.k, mu=target.mu)

    @classmethod
    def from_facts(cls, facts: PublicFacts, *, k: float, mu: float) -> PublicGrid:
        """Grid of all targets with these facts and numbers, which certificates list."""
        dim = facts.dim
        bend = k * (smoothness_or_inf(facts) + mu)
        slope = k * facts.lipschitz_or_inf(2.0) / math.sqrt(dim)
        inner_radius = hull_inner_radius(facts.domain, dim)
        narrow = math.sqrt(dim) / inner_radius
        scales = [math.sqrt(k * mu), math.sqrt(bend), slope, narrow]
        largest = max(scale for scale in scales if math.isfinite(scale))
        step = math.ldexp(1.0, -BITS - math.ceil(math.log2(largest)))
        return cls(domain=facts.domain, dim=dim, step=step, inner_radius=inner_radius)

    def round(self, point: Sequence[Decimal] | Sequence[float] | Array) -> Array:
        """Theta of the nearest v on the grid; if it is outside, of one that is inside.

        The second step depends on the first one's answer and on the domain alone. It
        goes towards a point inside. Only where no other point of the grid is on the way
        the answer is a projection, as where the hull's own rounding puts theta outside.

        Parameters
        ----------
        point : sequence of numbers
            Theta, or, if it is shorter, v.

        Returns
        -------
        array of shape (dim,)
            A point of the domain that depends on ``point`` by its cell alone.
        """
        if self.hull is None:
            return self._within(self._nearest(point))
        origin, basis = self.hull
        vector = np.asarray(point, dtype=np.float64)
        v = basis.T @ (vector - origin) if len(vector) == self.dim else vector
        theta = np.asarray(origin + basis @ self._nearest(v))
        return theta if self.domain.contains(theta) else self.domain.project(theta)

    def holds(self, theta: Array) -> bool:
        """Return whether `round` can have made ``theta``, as far as is decidable.

        Multiples of a smaller step pass, for machines may differ in what the step
        follows from; so do, on domains without an interior, points near the boundary,
        which a projection may have moved.
        """
        fine = replace(self, step=self.step * 2.0**-SPARE_BITS)
        rounded = fine.round(theta)
        if self.hull is None:
            is_same = np.array_equal(rounded, theta)
            return is_same and not np.signbit(theta[theta == 0.0]).any()
        slack = ROUNDING * (1.0 + np.abs(theta).max() + np.abs(self.hull[0]).max())
        if np.abs(rounded - theta).max() <= slack:
            return True
        inner = self.domain.interior_point(self.dim)
        farther = theta + self.step * math.sqrt(self.dim) / self.inner_radius * (
            theta - inner
        )
        return not self.domain.contains(farther)

    @lazy_property
    def hull(self) -> tuple[Array, Array] | None:
        """Point and basis of the domain's hull; None with an interior: v is theta."""
        origin, basis = self.domain.hull(self.dim)
        return None if basis.shape[1] == self.dim else (origin, basis)

    def _nearest(self, point: Sequence[Decimal] | Sequence[float] | Array) -> Array:
        if isinstance(point, np.ndarray):
            return nearest.py_func(point, self.step)
        per_step = Decimal(1.0 / self.step)
        with localcontext(Context(prec=DIGITS, rounding=ROUND_HALF_EVEN)):
            cells = [int((Decimal(x) * per_step).to_integral_value()) for x in point]
        return self.step * np.array([float(cell) for cell in cells])

    def _within(self, nearest: Array) -> Array:
        domain: Any = self.domain  # whose pieces are kernels
        out, status = np.empty(self.dim), np.full(1, np.nan)
        call(domain.contains_piece, self.numbers.body, nearest, status)
        if status[0] == 1.0:  # usually: the rest need not be compiled
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


@by_address
class GridNumbers(NamedTuple):
    """Domain and grid as kernels see them."""

    body: Body
    inner: Array  # (dim,)
    step: float


@kernel
def nearest(point: Array, step: float) -> Array:
    """Nearest multiples of a power of two, ties to even: the quotient is exact.

    No sign of a zero, which would tell more than the cell, and doubles from decimals.
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
    """Radius of a Euclidean ball about the interior point in hull and domain.

    The chords along the hull's axes are in it, and the cross-polytope of the shortest.
    """
    center, axes = domain.interior_point(dim), domain.hull(dim)[1].T
    body, out, reach = domain.body(dim), np.empty(2), math.inf
    for axis in np.ascontiguousarray(axes):
        domain.chord_piece(body, center, axis, out)
        reach = min(reach, -out[0], out[1])
    return float(reach) / math.sqrt(len(axes))
