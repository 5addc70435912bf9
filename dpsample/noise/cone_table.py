"""Ziggurat tables for the densities exp(-y^r / r), y >= 0 [1]_.

256 layers of equal area v cover the region under f(y) = exp(-y^r / r). Layer 0 is the
rectangle [0, x_1] x [0, f(x_1)] together with the tail beyond x_1; layer i >= 1 is the
rectangle [0, x_i] x [f(x_i), f(x_{i+1})] with x_256 = 0. The one free number, the
height of the tail, is chosen so that the layers end exactly at f = 1.

References
----------
.. [1] G. Marsaglia and W. W. Tsang, The ziggurat method for generating random
   variables, Journal of Statistical Software 5(8), 2000.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.noise.cone import twice_exponent

NUM_LAYERS = 256
# Beyond, no double tells the law from that of r = inf.
LARGEST_EXPONENT = 1e18
_MAX_BISECTIONS = 200


class ConeTable(NamedTuple):
    """Layers of exp(-y^r / r); one compiled type for every r.

    Attributes
    ----------
    r : float
        Exponent in [1, inf].
    twice : int
        2 r where powers are products, else 0.
    tail : float
        x_1^r / r.
    layers : ndarray, shape (257, 3)
        In row i an edge, the next edge over it and a height. The edges are v / f(x_1),
        x_1, ..., x_256 = 0, the heights 0, f(x_1), ..., f(x_256) = 1.

    Examples
    --------
    >>> table = cone_table(2.0)
    >>> table.layers[:3, 0].round(4).tolist()
    [3.9108, 3.6542, 3.4493]
    """

    r: float
    twice: int
    tail: float
    layers: Array


def cone_table(r: float) -> ConeTable:
    """Return what the kernels need to draw cone measures of l_r balls.

    Parameters
    ----------
    r : float
        Exponent in [1, inf].

    Returns
    -------
    ConeTable
        The layers, in a fresh array; they are computed once per exponent.

    Raises
    ------
    ValueError
        If r is not a number >= 1.

    Examples
    --------
    >>> rng, out = np.random.default_rng(0), np.empty(3)
    >>> from dpsample.noise import fill_generalized_gaussian
    >>> fill_generalized_gaussian(rng, cone_table(3.0), 1.0, out)
    >>> out.shape
    (3,)
    """
    check.at_least(1.0, r=r)
    table = _table(math.inf if r > LARGEST_EXPONENT else float(r))
    return table._replace(layers=table.layers.copy())


@lru_cache(maxsize=64)
def _table(r: float) -> ConeTable:
    layers = np.zeros((NUM_LAYERS + 1, 3))
    if math.isinf(r):
        # Directions of the cube need no layers, only the same types.
        return ConeTable(r, 0, 0.0, layers)
    tail = _tail(r)
    area, edges, heights = _layers(r, tail)
    layers[:, 0] = [area / heights[0], *edges, 0.0]
    layers[:-1, 1] = layers[1:, 0] / layers[:-1, 0]
    layers[:, 2] = [0.0, *heights, 1.0]
    return ConeTable(r, twice_exponent(r), tail, layers)


def _tail(r: float) -> float:
    """Height of the tail for which the layers end at 1, by bisection."""
    low, high = 1e-3, 50.0
    for _ in range(_MAX_BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        area, edges, heights = _layers(r, middle)
        is_short = len(edges) < NUM_LAYERS - 1
        too_large = is_short or heights[-1] + area / edges[-1] > 1.0
        low, high = (middle, high) if too_large else (low, middle)
    return high


def _layers(r: float, tail: float) -> tuple[float, list[float], list[float]]:
    """Return v, x_1 ... x_255 and their heights; fewer if the layers pass 1."""
    from scipy import special

    # The integral of f beyond x_1 is r^(1/r - 1) Gamma(1/r, x_1^r / r).
    beyond = special.gammaincc(1.0 / r, tail) * special.gamma(1.0 + 1.0 / r)
    edges = [_edge(r, tail)]
    heights = [math.exp(-tail)]
    area = edges[0] * heights[0] + float(beyond) * r ** (1.0 / r)
    while len(edges) < NUM_LAYERS - 1:
        height = heights[-1] + area / edges[-1]
        if not height < 1.0:
            break
        heights.append(height)
        edges.append(_edge(r, -math.log(height)))
    return area, edges, heights


def _edge(r: float, level: float) -> float:
    """Return the y with y^r / r = level."""
    return math.exp((math.log(r) + math.log(level)) / r)
