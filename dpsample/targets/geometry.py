"""Geometry of a domain: its hull, its flat sides, whether it is round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.domains import Ball, Body, Box, Domain, Polytope, Simplex


class DomainGeometry(NamedTuple):
    """What algorithms ask of a domain of one dimension, again and again."""

    body: Body
    basis: Array  # (dim, m): orthonormal columns that span the affine hull
    sides: Array  # (num_sides, dim): all inequalities <row, x> <= bound of a domain
    bounds: Array  # (num_sides,)         with flat sides; else none
    is_round: bool  # a Euclidean ball

    @classmethod
    def of(cls, domain: Domain, dim: int) -> DomainGeometry:
        """Geometry of a domain."""
        body, eye = domain.body(dim), np.eye(dim)
        rows, bounds = np.zeros((0, dim)), np.zeros(0)
        if isinstance(domain, Polytope):
            rows, bounds = body.matrix, body.bounds
        elif isinstance(domain, Simplex):
            rows, bounds = -eye, np.zeros(dim)
        elif isinstance(domain, Box) or (
            isinstance(domain, Ball) and domain.p == np.inf
        ):
            rows = np.concatenate([eye, -eye])
            bounds = np.concatenate([body.upper, -body.lower])
            rows, bounds = rows[np.isfinite(bounds)], bounds[np.isfinite(bounds)]
        is_round = isinstance(domain, Ball) and domain.p == 2.0
        return cls(body, domain.hull(dim)[1], rows, bounds, is_round)
