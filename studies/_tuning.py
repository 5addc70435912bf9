"""Tuning, the same for all: geometric grids, widened until the best is inside."""

import math
from itertools import product

import numpy as np

MOST = 4  # times the tries that every method has


def search_grid(score, starts, factors, tries):
    """Least score on the grid of points starts * factors**k, k integer.

    Every method has ``tries`` of them; one that has a neighbor untried, along an axis,
    has not been found to be the best, and the grid goes on around it.

    Returns
    -------
    point, score : tuple of float, float
    tries : int
    is_inside : bool
        Whether all neighbors of the best were tried.
    """
    starts, factors = np.array(starts), np.array(factors)
    axes = np.eye(len(starts), dtype=int)
    width = math.ceil(tries ** (1.0 / len(starts)))
    rings = product(range(-width, width + 1), repeat=len(starts))
    directions = sorted(rings, key=lambda steps: sum(map(abs, steps)))
    scores, best = {}, (0,) * len(starts)

    def new_points(steps):
        return (
            k for s in steps if (k := tuple(np.add(best, s).tolist())) not in scores
        )

    while True:
        key = next(new_points([0 * axes[0], *axes, *-axes]), None)
        is_inside = key is None
        if is_inside and len(scores) < tries:
            key = next(new_points(directions), None)
        if key is None or len(scores) >= MOST * tries:
            break
        scores[key] = score(*(starts * factors**key).tolist())
        best = min(scores, key=scores.get)
    point = tuple((starts * factors**best).tolist())
    return point, scores[best], len(scores), is_inside
