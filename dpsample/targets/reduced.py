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
from typing import Any, NamedTuple

import numpy as np

from dpsample.core.arrays import Array, Bools
from dpsample.domains.domain import Coordinates, Domain
from dpsample.losses.custom import Custom
from dpsample.numerics.norms import conversion
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.problem.storage import IN_MEMORY
from dpsample.regularizers import Regularizer, RegularizerParams, SquaredNorm
from dpsample.targets.density import Density
from dpsample.targets.gibbs import Gibbs, as_rows
from dpsample.targets.gibbs_target import GibbsTarget


def find_free_coefficients(basis: Array) -> Bools:
    """Return which coefficients change along the directions of a hull."""
    # Smaller entries are rounding errors.
    return np.asarray(np.abs(basis).max(axis=1) > 1e-12)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedTarget:
    """Target of v, and the map from v to theta."""

    target: Any  # a `Density` or `Gibbs`, as the original is
    original: GibbsTarget
    origin: Array  # (dim,): c
    basis: Array  # (dim, m): N
    inverse: Array  # (m, dim): left inverse of N
    shift: float  # energy of theta less the energy of v

    def lift(self, vectors: Array) -> Array:
        """Return points c + N v of rows v, moved inside if rounding leads outside."""
        points = self.origin + vectors @ self.basis.T
        return self.original.domain.move_inside(points)

    @property
    def is_free(self) -> Bools:
        """Mask (dim,) of the coefficients that the domain leaves free."""
        return find_free_coefficients(self.basis)

    def drop(self, point: Array) -> Array:
        """Return the coordinates v of a point of the hull."""
        return np.asarray(self.inverse @ (point - self.origin))


def has_equalities(target: GibbsTarget) -> bool:
    """Return whether the domain is given with equalities."""
    return target.domain.has_equalities


def reduction_obstacle(target: GibbsTarget) -> str:
    """Return why a target has no reduced target, or "" if it has one."""
    if isinstance(target, Density):
        if target.mu == 0.0:
            return ""
        return regularizer_obstacle(target.regularizer, target.regularizer_params)
    assert isinstance(target, Gibbs)
    if not target.problem.storage.is_in_memory:
        return f"Equalities need records in memory. {IN_MEMORY}"
    return facts_obstacle(target.problem.facts, target.regularizer)


def facts_obstacle(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why public facts exclude a reduced target, or "" if they do not."""
    if not facts.loss.has_margin:
        return "Equalities need losses of a margin."
    params = regularizer.params(facts.dim, facts.center)
    return regularizer_obstacle(regularizer, params)


def regularizer_obstacle(regularizer: Regularizer, params: RegularizerParams) -> str:
    """Return why a regularizer is not quadratic, or "" if it is."""
    if not isinstance(regularizer, SquaredNorm) or params.exponent != 2.0:
        return (
            f"The {regularizer.name} regularizer is not quadratic: on a domain "
            "without an interior use p = 2."
        )
    if len(params.weights) > 0:
        return (
            "The weights of the regularizer are not kept by a change of coordinates: "
            "on a domain without an interior use none."
        )
    return ""


def reduce(target: GibbsTarget, *, is_for_release: bool = False) -> ReducedTarget:
    """Return the target in free coordinates of the domain's hull.

    They are orthonormal if a regularizer measures distances, and for a release, whose
    proof uses bounds of the records in these coordinates.
    """
    domain, dim = target.domain, target.dim
    if is_for_release or target.mu > 0.0:
        origin, basis = domain.hull(dim)
        # For orthonormal columns the transpose is a left inverse.
        coordinates = Coordinates(origin, basis, basis.T, is_orthonormal=True)
        inner_domain = domain.in_hull_coordinates(dim)
    else:
        coordinates = domain.coordinates(dim)
        inner_domain = domain.in_coordinates(dim)
    if isinstance(target, Density):
        return _reduce_density(target, coordinates, inner_domain)
    assert isinstance(target, Gibbs)
    return _reduce_gibbs(target, coordinates, inner_domain)


class _Penalty(NamedTuple):
    """A quadratic regularizer in free coordinates."""

    weight: float
    regularizer: SquaredNorm
    shift: float  # part of the energy that is from D, the distance to the hull


def _reduce_penalty(target: GibbsTarget, coordinates: Coordinates) -> _Penalty:
    """Return the regularizer in v, by the identity of the module docstring."""
    origin, basis, inverse, _ = coordinates
    params = target.regularizer_params
    center = inverse @ (params.center - origin)
    # Projection of z - c to the hull, in coordinates.
    # Its length is D of the module docstring.
    off = params.center - origin - basis @ center
    weight = target.mu * params.scale
    shift = 0.5 * target.k * weight * float(off @ off)
    return _Penalty(weight, SquaredNorm(center=center), shift)


def _reduce_density(
    target: Density, coordinates: Coordinates, domain: Domain
) -> ReducedTarget:
    """Return a density's reduced target on ``domain``, which is one of v."""
    origin, basis, inverse, _ = coordinates
    penalty = _reduce_penalty(target, coordinates)
    inner = Density(
        functions=target.functions.in_coordinates(origin, basis),
        dim=basis.shape[1],
        domain=domain,
        k=target.k,
        mu=penalty.weight,
        regularizer=penalty.regularizer,
        convex=False,  # the target itself has been compared
    )
    object.__setattr__(inner, "is_convex", target.is_convex)
    return ReducedTarget(
        target=inner,
        original=target,
        origin=origin,
        basis=basis,
        inverse=inverse,
        shift=penalty.shift,
    )


def _reduce_gibbs(
    target: Gibbs, coordinates: Coordinates, domain: Domain
) -> ReducedTarget:
    """Return a Gibbs target's reduced target on ``domain``, which is one of v."""
    # Factor by which public bounds of the records in v are widened for rounding errors.
    widened = 1.0 + 1e-9
    problem, dim = target.problem, target.dim
    origin, basis, inverse, is_orthonormal = coordinates
    stretch = 1.0
    if not is_orthonormal:
        # A bound of the largest singular value of N, the root of the product of its
        # norms of columns and of rows.
        # |N|_2^2 <= |N|_1 |N|_inf.
        sums = [np.abs(basis).sum(axis=axis).max() for axis in (0, 1)]
        stretch = float(np.sqrt(sums[0] * sums[1]))
    # Rows N^T a and offsets b + <a, c>.
    rows, data = np.asarray(as_rows(problem.data) @ basis), problem.data
    offset = as_rows(data) @ origin + (data.offset if data.offset.size else 0.0)
    penalty = _reduce_penalty(target, coordinates)
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
        domain=domain,
        row_bound=max(stretch * size * widened, 1e-30),
        response_bound=problem.response_bound,
        offset=offset,
        offset_bound=max(reach * widened, 1e-30),
    )
    inner_target = Gibbs(
        inner, k=target.k, mu=penalty.weight, regularizer=penalty.regularizer
    )
    shift = penalty.shift
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
