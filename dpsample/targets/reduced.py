"""Reduced target, the density in free coordinates of the domain's affine hull.

theta = c + N v with orthonormal columns N. Margins <a, theta> + b = <N^T a, v> + (b +
<a, c>), so the records are rows N^T a with other offsets. Half the squared distance
from a center z splits by Pythagoras: |theta - z|^2 = |v - N^T (z - c)|^2 + D^2, D the
distance of z from the hull. So the density of theta with respect to the volume on the
hull is that of v up to a factor: a draw of v gives one of theta, with the same error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpsample.core.arrays import Array, Bools
from dpsample.domains import Domain, Polytope, Simplex
from dpsample.losses.custom import Custom
from dpsample.losses.record_gradient import RecordGradient
from dpsample.numerics.norms import conversion
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.problem.storage import IN_MEMORY
from dpsample.regularizers import Regularizer, SquaredNorm
from dpsample.targets.gibbs import Gibbs, as_rows

WIDENED, SMALLEST = 1.0 + 1e-9, 1e-30
FIXED = 1e-12  # share of a coefficient in the hull's directions that is rounding


def find_free_coefficients(basis: Array) -> Bools:
    """Which coefficients move along the directions of a hull."""
    return np.asarray(np.abs(basis).max(axis=1) > FIXED)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedTarget:
    """Target of v, and the map back."""

    target: Gibbs
    original: Gibbs
    origin: Array  # (dim,): c
    basis: Array  # (dim, m): N
    shift: float  # energy of theta less that of v

    def lift(self, vectors: Array) -> Array:
        """Points c + N v of rows v, in the domain in spite of rounding errors."""
        points = self.origin + vectors @ self.basis.T
        domain = self.original.problem.domain
        for point in points.reshape(-1, len(self.origin)):  # views
            if not domain.contains(point):
                point[:] = domain.project(point)
        return np.asarray(points)

    @property
    def moves(self) -> Bools:
        """Which coefficients the domain leaves free."""
        return find_free_coefficients(self.basis)

    def drop(self, point: Array) -> Array:
        """Coordinates v of a point of the hull."""
        return np.asarray(self.basis.T @ (point - self.origin))


def has_equalities(target: Gibbs) -> bool:
    """Whether the domain is a polytope with equalities."""
    return are_stated(target.problem.domain)


def are_stated(domain: Domain) -> bool:
    """Whether equalities are stated: a simplex, which has one, has its own draws."""
    return isinstance(domain, Polytope) and domain.A_eq is not None


def reduction_obstacle(target: Gibbs) -> str:
    """Why there is no reduced target, by public facts; empty if there is."""
    if not target.problem.storage.is_in_memory:
        return f"Equalities need records in memory. {IN_MEMORY}"
    return facts_obstacle(target.problem.facts, target.regularizer)


def facts_obstacle(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Why no records of these facts have a reduced target; empty if some have."""
    if isinstance(facts.loss, RecordGradient):
        return "Equalities need losses of a margin."
    exponent = regularizer.params(facts.dim, facts.center).exponent
    if not isinstance(regularizer, SquaredNorm) or exponent != 2.0:
        return (
            f"The {regularizer.name} regularizer is not quadratic: on a domain "
            "without an interior use p = 2."
        )
    return ""


def reduce(target: Gibbs) -> ReducedTarget:
    """Target in free coordinates of a simplex or a polytope with equalities."""
    problem, dim = target.problem, target.dim
    origin, basis = problem.domain.hull(dim)
    domain = problem.domain
    if isinstance(domain, Simplex):
        domain = Polytope(-basis, origin)
    assert isinstance(domain, Polytope)
    rows, data = np.asarray(as_rows(problem.data) @ basis), problem.data
    offset = as_rows(data) @ origin + (data.offset if data.offset.size else 0.0)
    params = target.regularizer_params
    center = basis.T @ (params.center - origin)
    off = params.center - origin - basis @ center
    # Public bounds, so that what they refuse is refused for all records: |N^T a| <=
    # |a|, and the offset is <a, c> more.
    facts, loss = problem.facts, problem.loss
    size = facts.full_row_bound * conversion(dim, facts.row_norm, 2.0)
    reach = facts.offset_bound + size * float(np.linalg.norm(origin))
    if isinstance(loss, Custom):  # compared on the margins of theta, which these are
        loss = replace(loss, is_compared=True)
    inner = Problem(
        rows,
        data.response,
        loss=loss,
        domain=domain.free,
        row_bound=max(size * WIDENED, SMALLEST),
        response_bound=problem.response_bound,
        offset=offset,
        offset_bound=max(reach * WIDENED, SMALLEST),
    )
    weight = target.mu * params.scale
    regularizer = SquaredNorm(center=center)
    inner_target = Gibbs(inner, k=target.k, mu=weight, regularizer=regularizer)
    shift = 0.5 * target.k * weight * float(off @ off)
    if not np.array_equal(inner_target.data.response, target.data.response):
        # Responses beyond all margins are moved to them, here to the inner problem's.
        shift = target.energy(origin) - inner_target.energy(np.zeros(basis.shape[1]))
    return ReducedTarget(
        target=inner_target, original=target, origin=origin, basis=basis, shift=shift
    )
