"""Compiled K-norm noise: a Gamma(d) radius times a cone-measure direction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.noise.cone import cone_vector, scale_to
from dpsample.noise.cone_table import ConeTable
from dpsample.noise.schatten_spectrum import SchattenPlan, fill_schatten

Vector = NDArray[np.float64]

COORDINATES, SPECTRUM, FACETS = 0, 1, 2


class KNormTable(NamedTuple):
    """Parameters of K-norm noise, one compiled type for every domain."""

    kind: int
    cone: ConeTable
    plan: SchattenPlan
    sides: Vector  # (d,), semi-axes of balls and boxes; (1,) the radius of a spectrum
    simplices: Vector  # (num_simplices, d, d)
    shares: Vector  # (num_simplices,), cumulative shares of the volume


@kernel
def _fill_from_facets(rng, table, scale, out):
    """Exponential weights on the corners of one simplex of the boundary.

    Their sum is a Gamma(d) variable, independent of the point they weigh out.
    """
    last = len(table.shares) - 1
    level = table.shares[last] * rng.random()
    # Rounding may carry the level to the last share.
    which = min(np.searchsorted(table.shares, level, "right"), last)
    out[:] = 0.0
    for i in range(len(out)):
        weight = scale * rng.standard_exponential()
        for j in range(len(out)):
            out[j] += weight * table.simplices[which, i, j]


@kernel
def fill_k_norm(rng, table, scale, out):
    """Fill ``out`` with one draw; ``table = k_norm_table(domain, dim)``."""
    if table.kind == FACETS:
        _fill_from_facets(rng, table, scale, out)
        return
    radius = scale * rng.standard_gamma(1.0 * len(out))
    if table.kind == SPECTRUM:
        fill_schatten(rng, table.plan, radius * table.sides[0], out)
        return
    norm = cone_vector(rng, table.cone, out)
    scale_to(norm, radius, out)
    for i in range(len(out)):
        out[i] *= table.sides[i]


@kernel
def fill_k_norm_rows(rng, table, scale, out):
    """Fill every row of ``out`` with one draw."""
    for i in range(out.shape[0]):
        fill_k_norm(rng, table, scale, out[i])
