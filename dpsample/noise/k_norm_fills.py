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
    """Parameters of K-norm noise, one compiled type for every domain.

    Attributes
    ----------
    kind : int
        COORDINATES (balls, boxes), SPECTRUM (Schatten balls) or FACETS (polytopes).
    cone : ConeTable
        Directions of balls and boxes.
    plan : SchattenPlan
        Directions of Schatten balls.
    sides : ndarray, shape (d,) or (1,)
        Semi-axes of balls and boxes; the radius of a Schatten ball.
    simplices : ndarray, shape (num_simplices, d, d)
        Corners of the simplices that cover the boundary of a polytope.
    shares : ndarray, shape (num_simplices,)
        Their cumulative volumes, up to a factor.

    Examples
    --------
    >>> from dpsample.domains import Ball
    >>> from dpsample.noise import k_norm_table
    >>> k_norm_table(Ball(2.0, p=1.0), dim=3).sides.tolist()
    [2.0, 2.0, 2.0]
    """

    kind: int
    cone: ConeTable
    plan: SchattenPlan
    sides: Vector
    simplices: Vector
    shares: Vector


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
    """Fill ``out`` with one draw of K-norm noise.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    table : KNormTable
        Result of `k_norm_table` for the domain and ``len(out)``.
    scale : float
        Scale: the gauge of the draw is scale times a Gamma(d) variable.
    out : ndarray, shape (d,)
        Written; matrices row by row.
    """
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
