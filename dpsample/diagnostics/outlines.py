"""Outlines of domains: where the boundary is, seen from an inner point.

Chords from one inner point find the boundary of every convex set, so that no domain
needs a formula here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Half degrees, so that curves have the corners of boxes, diamonds and the simplex.
NUM_ANGLES = 721
# Orthonormal directions of the simplex of three coefficients: they add up to zero.
HULL = np.array([[1.0, -1.0, 0.0], [-1.0, -1.0, 2.0]]) / np.sqrt([[2.0], [6.0]])
# Meridians and parallels of a body in three dimensions.
NUM_MERIDIANS, NUM_PARALLELS = 13, 7


def reach(domain: Any, center: Array, directions: Array) -> Array:
    """Boundary points in the given directions, NaN where there is no boundary.

    Parameters
    ----------
    domain : Domain
        Any domain.
    center : array of shape (dim,)
        An inner point.
    directions : array of shape (..., dim)
        Directions within the affine hull.

    Returns
    -------
    array of shape (..., dim)
        Points.
    """
    rows = directions.reshape(-1, len(center))
    ends = np.array([domain.chord(center, row)[1] for row in rows])
    ends = np.where(np.isfinite(ends), ends, np.nan)
    return np.asarray((center + ends[:, None] * rows).reshape(directions.shape))


def plane_curve(domain: Any, dim: int) -> Array:
    """Boundary of a domain of affine dimension 2: a closed curve (point, dim)."""
    angles = np.linspace(0.0, 2.0 * np.pi, NUM_ANGLES)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    plane = np.eye(2) if dim == 2 else HULL
    return reach(domain, domain.interior_point(dim), circle @ plane)


def space_curves(domain: Any) -> list[Array]:
    """Edges of a box, else meridians and parallels of the boundary, in dimension 3."""
    if domain.name == "box" and domain.is_bounded:
        return _edges(domain.body(3))
    center = domain.interior_point(3)
    turn = np.linspace(0.0, 2.0 * np.pi, NUM_ANGLES)
    curves = []
    for longitude in np.linspace(0.0, np.pi, NUM_MERIDIANS)[:-1]:
        plane = [np.cos(longitude), np.sin(longitude)]
        curves.append(np.stack([*np.outer(plane, np.sin(turn)), np.cos(turn)], axis=1))
    for latitude in np.linspace(0.0, np.pi, NUM_PARALLELS + 2)[1:-1]:
        ring = np.sin(latitude) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        level = np.full((NUM_ANGLES, 1), np.cos(latitude))
        curves.append(np.concatenate([ring, level], axis=1))
    return [reach(domain, center, curve) for curve in curves]


def _edges(body: Any) -> list[Array]:
    """Draw the twelve edges of a box, in enough points to be cut off by a view."""
    sides, along = np.stack([body.lower, body.upper]), np.linspace(0.0, 1.0, NUM_ANGLES)
    edges = []
    for axis in range(3):
        for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
            others = sides[[first, second], [(axis + 1) % 3, (axis + 2) % 3]]
            run = sides[0, axis] + along * (sides[1, axis] - sides[0, axis])
            edge = np.tile(np.roll([0.0, *others], axis), (NUM_ANGLES, 1))
            edge[:, axis] = run
            edges.append(edge)
    return edges
