"""Reduced target, the density in free coordinates of the domain's affine hull.

The hull is all theta = c + N v, where the columns of N are independent. The margin of a
record is <a, theta> + b = <N^T a, v> + (b + <a, c>). So in v the records are rows N^T a
with other offsets. For orthonormal columns the squared distance from the regularizer's
center z is

    |theta - z|^2 = |v - N^T (z - c)|^2 + D^2,

where D is the distance of z from the hull. So the densities of theta on the hull and of
v differ by a constant factor. A draw of v gives a draw of theta with the same error in
total variation. Without a regularizer any independent columns will do, such as those of
coordinates in which a large polytope is round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpsample.core.arrays import Array, Bools
from dpsample.losses.custom import Custom
from dpsample.numerics.norms import conversion
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.problem.storage import IN_MEMORY
from dpsample.regularizers import Regularizer, SquaredNorm
from dpsample.targets.gibbs import Gibbs, as_rows

# Factor by which public bounds of the records in v are widened for rounding errors.
WIDENED = 1.0 + 1e-9


def find_free_coefficients(basis: Array) -> Bools:
    """Return which coefficients change along the directions of a hull."""
    # Smaller entries are rounding errors.
    return np.asarray(np.abs(basis).max(axis=1) > 1e-12)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedTarget:
    """Target of v, and the map from v to theta."""

    target: Gibbs
    original: Gibbs
    origin: Array  # (dim,): c
    basis: Array  # (dim, m): N
    inverse: Array  # (m, dim): left inverse of N
    shift: float  # energy of theta less the energy of v

    def lift(self, vectors: Array) -> Array:
        """Return points c + N v of rows v, moved inside if rounding leads outside."""
        points = self.origin + vectors @ self.basis.T
        return self.original.problem.domain.move_inside(points)

    @property
    def moves(self) -> Bools:
        """Mask of the coefficients that the domain leaves free."""
        return find_free_coefficients(self.basis)

    def drop(self, point: Array) -> Array:
        """Return the coordinates v of a point of the hull."""
        return np.asarray(self.inverse @ (point - self.origin))


def has_equalities(target: Gibbs) -> bool:
    """Return whether the domain is given with equalities."""
    return target.problem.domain.has_equalities


def reduction_obstacle(target: Gibbs) -> str:
    """Return why a target has no reduced target, or "" if it has one."""
    if not target.problem.storage.is_in_memory:
        return f"Equalities need records in memory. {IN_MEMORY}"
    return facts_obstacle(target.problem.facts, target.regularizer)


def facts_obstacle(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why public facts exclude a reduced target, or "" if they do not."""
    if not facts.loss.has_margin:
        return "Equalities need losses of a margin."
    exponent = regularizer.params(facts.dim, facts.center).exponent
    if not isinstance(regularizer, SquaredNorm) or exponent != 2.0:
        return (
            f"The {regularizer.name} regularizer is not quadratic: on a domain "
            "without an interior use p = 2."
        )
    return ""


def reduce(target: Gibbs, *, is_for_release: bool = False) -> ReducedTarget:
    """Return the target in free coordinates of the domain's hull.

    They are orthonormal if a regularizer measures distances, and for a release, whose
    proof uses bounds of the records in these coordinates.
    """
    problem, dim = target.problem, target.dim
    domain, stretch = problem.domain, 1.0
    if is_for_release or target.mu > 0.0:
        origin, basis = domain.hull(dim)
        inverse, inner_domain = basis.T, domain.in_hull_coordinates(dim)
    else:
        origin, basis, inverse, is_orthonormal = domain.coordinates(dim)
        inner_domain = domain.in_coordinates(dim)
        if not is_orthonormal:
            # A bound of the largest singular value of N.
            sums = (np.abs(basis).sum(axis=axis).max() for axis in (0, 1))
            stretch = float(np.sqrt(np.prod(list(sums))))
    rows, data = np.asarray(as_rows(problem.data) @ basis), problem.data
    offset = as_rows(data) @ origin + (data.offset if data.offset.size else 0.0)
    params = target.regularizer_params
    center = inverse @ (params.center - origin)
    off = params.center - origin - basis @ center
    # The bounds of the records in v follow from public bounds, because |N^T a| <= |a|
    # and the offset changes by <a, c>. So whether they hold reveals nothing.
    facts, loss = problem.facts, problem.loss
    size = facts.full_row_bound * conversion(dim, facts.row_norm, 2.0)
    reach = facts.offset_bound + size * float(np.linalg.norm(origin))
    # The margins are the same, and the loss was compared with its declaration on them.
    if isinstance(loss, Custom):
        loss = replace(loss, is_compared=True)
    # A bound must be positive, even if c = 0.
    inner = Problem(
        rows,
        data.response,
        loss=loss,
        domain=inner_domain,
        row_bound=max(stretch * size * WIDENED, 1e-30),
        response_bound=problem.response_bound,
        offset=offset,
        offset_bound=max(reach * WIDENED, 1e-30),
    )
    weight = target.mu * params.scale
    regularizer = SquaredNorm(center=center)
    inner_target = Gibbs(inner, k=target.k, mu=weight, regularizer=regularizer)
    shift = 0.5 * target.k * weight * float(off @ off)
    if not np.array_equal(inner_target.data.response, target.data.response):
        # The replaced far responses depend on the bound of the margins, which differs.
        shift = target.energy(origin) - inner_target.energy(np.zeros(basis.shape[1]))
    return ReducedTarget(
        target=inner_target,
        original=target,
        origin=origin,
        basis=basis,
        inverse=inverse,
        shift=shift,
    )
