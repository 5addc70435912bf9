"""Boundary of a symmetric polytope, cut into simplices."""

from __future__ import annotations

import math

import numpy as np

from dpsample import _check as check
from dpsample.noise.sizes import Vector

MAX_DIM = 6
MAX_VERTICES = 2000
_TOLERANCE = 1e-9
_FLAT = 1e-14
_REMEDY = "Use a ball or a box that contains the polytope."


def symmetric_facets(rows: Vector, limits: Vector) -> tuple[Vector, float]:
    """Return simplices that cover the boundary of ``rows z <= limits``.

    Parameters
    ----------
    rows : ndarray, shape (m, d)
        Normals.
    limits : ndarray, shape (m,)
        Right-hand sides.

    Returns
    -------
    simplices : ndarray, shape (num_simplices, d, d)
        The corners of each, one per row.
    log_volume : float
        Logarithm of the volume of the polytope.

    Raises
    ------
    ValueError
        If the polytope is not symmetric about 0, not bounded, has more than 6
        dimensions or 2000 vertices, or Qhull's triangulation is not accurate.
    """
    vertices = _vertices(rows, limits)
    reach = (vertices @ rows.T + limits).min(axis=0) / limits
    if reach.min() < -_TOLERANCE:
        got = f"a set that -z leaves through row {int(np.argmin(reach))}"
        check.fail("domain", "symmetric about 0", got)
    simplices, volume = _triangulated(vertices)
    sizes = np.abs(np.linalg.det(simplices))
    # Qhull cuts facets with many corners into simplices that may be flat.
    simplices = simplices[sizes > _FLAT * sizes.sum()]
    parts = sizes.sum() / math.factorial(rows.shape[1])
    if not abs(parts / volume - 1.0) < _TOLERANCE:
        got = f"simplices of volume {parts:.12g} in a hull of {volume:.12g}"
        check.fail("the triangulation", "exact", got, _REMEDY)
    return simplices, math.log(parts)


def _vertices(rows: Vector, limits: Vector) -> Vector:
    from scipy.spatial import HalfspaceIntersection

    dim = rows.shape[1]
    if dim > MAX_DIM:
        check.fail("the polytope's dimension", f"<= {MAX_DIM}", dim, _REMEDY)
    unit = rows / limits[:, None]
    if dim == 1:
        ends = np.array([1.0 / unit.max(), 1.0 / unit.min()])
        return ends[:, None]
    half = np.column_stack([unit, -np.ones(len(unit))])
    vertices = np.unique(
        HalfspaceIntersection(half, np.zeros(dim)).intersections, axis=0
    )
    if len(vertices) > MAX_VERTICES:
        got = f"{len(vertices)}"
        check.fail("the number of vertices", f"<= {MAX_VERTICES}", got, _REMEDY)
    return vertices


def _triangulated(vertices: Vector) -> tuple[Vector, float]:
    from scipy.spatial import ConvexHull

    if vertices.shape[1] == 1:
        return vertices[:, :, None], float(np.ptp(vertices))
    hull = ConvexHull(vertices)
    return vertices[hull.simplices], float(hull.volume)
