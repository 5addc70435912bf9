r"""Distances of draws to the sides of the domain, and what a log-concave law allows.

The slack s of a side is a concave function of theta, so P(s > t) is log-concave in t,
and with the median m of s

    P(s < c m) <= c log 2,    0 <= c <= 1.

A draw much nearer to a side than that comes from another law: one that projects onto
the domain, or clips, puts mass on the boundary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.diagnostics.check_report import Finding
from dpsample.diagnostics.reading import Chains
from dpsample.norms import schatten

Array = NDArray[np.float64]

# Median distance to a side, relative to that of an inner point: nearer, half of the
# draws are in a thin layer along it.
NEAR = 0.01


def slacks(domain: Any, points: Array) -> Array:
    """Concave functions that are >= 0 on the domain and 0 on its sides.

    Parameters
    ----------
    domain : Domain
        Any domain.
    points : array of shape (num_points, dim)
        Points.

    Returns
    -------
    array of shape (num_points, num_sides)
        Distances to sides, up to a constant each; no sides for the whole space.
    """
    dim = points.shape[1]
    if domain.name == "ball":
        gaps = points - domain.default_center(dim)
        sizes = np.linalg.norm(gaps, ord=domain.p, axis=1)
        return np.asarray(domain.radius - sizes)[:, None]
    if domain.name == "schatten_ball":
        sizes = schatten(points, domain.p, domain.shape)
        return np.asarray(domain.radius - sizes)[:, None]
    if domain.name == "simplex":
        return points
    body = domain.body(dim)
    if domain.name == "polytope":
        return np.asarray(body.bounds - points @ body.matrix.T)
    sides = np.concatenate([points - body.lower, body.upper - points], axis=1)
    return np.asarray(sides[:, np.isfinite(sides).all(axis=0)])


def look(target: Any, chains: Chains, alpha: float) -> list[Finding]:
    """Compare distances to sides with what a log-concave law allows at a level."""
    points = np.unique(chains.theta.reshape(-1, target.dim), axis=0)
    domain = target.problem.domain
    outside = points[~contained(domain, points)]
    if len(outside):
        return [_outside(outside[0], len(outside), len(points))]
    found = slacks(domain, points)
    if found.size == 0:
        return []
    medians = np.median(found, axis=0)
    limit = alpha / (math.log(2.0) * found.size)
    is_on = (found <= limit * medians).any(axis=1)
    if is_on.any():
        return [_on_the_boundary(float(is_on.mean()))]
    inner = slacks(domain, domain.interior_point(target.dim)[None])[0]
    sides = int(np.sum(medians < NEAR * inner))
    return [_along_the_boundary(sides)] if sides else []


def contained(domain: Any, points: Array) -> NDArray[np.bool_]:
    """Whether each row of points is in the domain."""
    body, out = domain.body(points.shape[1]), np.full(1, np.nan)
    found = np.zeros(len(points), dtype=bool)
    for i, point in enumerate(points):
        domain.contains_piece(body, point, out)
        found[i] = out[0] == 1.0
    return found


def _outside(point: Array, count: int, total: int) -> Finding:
    return Finding(
        name="draws outside of the domain",
        evidence=f"{count} of {total} draws, such as {np.array2string(point)}.",
        remedy="Check that the draws are of this target; if they are, the sampler is "
        "wrong.",
        is_problem=True,
    )


def _on_the_boundary(share: float) -> Finding:
    return Finding(
        name="mass on the boundary",
        evidence=f"A share {share:.2g} of all points are on the boundary of the "
        "domain, up to rounding. A density puts none there.",
        remedy="A sampler that rejects proposals outside of the domain: one that "
        "projects or clips them has another law.",
        is_problem=True,
    )


def _along_the_boundary(sides: int) -> Finding:
    where = f"{sides} sides" if sides > 1 else "one side"
    return Finding(
        name="mass along the boundary",
        evidence=f"Half of the draws are within {NEAR:g} of the way from {where} of "
        "the domain to its middle.",
        remedy="Nothing, if the domain is meant to bind. Normal approximations are "
        "wrong there, and walks that stay inside need short steps: CoordinateHitAndRun "
        "or Proximal suit such a target.",
        is_problem=False,
    )
