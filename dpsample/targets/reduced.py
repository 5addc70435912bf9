"""Reduced target, the density in free coordinates of the domain's affine hull.

The hull is all theta = c + N v, where the columns of N are orthonormal. The margin of a
record is <a, theta> + b = <N^T a, v> + (b + <a, c>). So in v the records are rows N^T a
with other offsets. The squared distance from the regularizer's center z is

    |theta - z|^2 = |v - N^T (z - c)|^2 + D^2,

where D is the distance of z from the hull. So the densities of theta on the hull and of
v differ by a constant factor. A draw of v gives a draw of theta with the same error in
total variation.
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
    shift: float  # energy of theta less the energy of v

    def lift(self, vectors: Array) -> Array:
        """Return points c + N v of rows v, projected if rounding leads outside."""
        points = self.origin + vectors @ self.basis.T
        domain = self.original.domain
        for point in points.reshape(-1, len(self.origin)):  # views
            if not domain.contains(point):
                point[:] = domain.project(point)
        return np.asarray(points)

    @property
    def moves(self) -> Bools:
        """Mask of the coefficients that the domain leaves free."""
        return find_free_coefficients(self.basis)

    def drop(self, point: Array) -> Array:
        """Return the coordinates v of a point of the hull."""
        return np.asarray(self.basis.T @ (point - self.origin))


def has_equalities(target: Gibbs) -> bool:
    """Return whether the domain is given with equalities."""
    return target.domain.has_equalities


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


def reduce(target: Gibbs) -> ReducedTarget:
    """Return the target in free coordinates of the domain's hull."""
    # Factor by which public bounds of the records in v are widened for rounding errors.
    widened = 1.0 + 1e-9
    problem, dim = target.problem, target.dim
    origin, basis = problem.domain.hull(dim)
    rows, data = np.asarray(as_rows(problem.data) @ basis), problem.data
    offset = as_rows(data) @ origin + (data.offset if data.offset.size else 0.0)
    params = target.regularizer_params
    center = basis.T @ (params.center - origin)
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
        domain=problem.domain.in_hull_coordinates(dim),
        row_bound=max(size * widened, 1e-30),
        response_bound=problem.response_bound,
        offset=offset,
        offset_bound=max(reach * widened, 1e-30),
    )
    weight = target.mu * params.scale
    regularizer = SquaredNorm(center=center)
    inner_target = Gibbs(inner, k=target.k, mu=weight, regularizer=regularizer)
    shift = 0.5 * target.k * weight * float(off @ off)
    if not np.array_equal(inner_target.data.response, target.data.response):
        # The replaced far responses depend on the bound of the margins, which differs.
        shift = target.energy(origin) - inner_target.energy(np.zeros(basis.shape[1]))
    return ReducedTarget(
        target=inner_target, original=target, origin=origin, basis=basis, shift=shift
    )
