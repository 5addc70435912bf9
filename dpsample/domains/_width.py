"""Gaussian widths: the mean of the largest <g, theta> over a set, g standard normal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._moments import LARGEST, mean_norm_power
from dpsample._streams import streams

Vector = NDArray[np.float64]
# Not above the number of linear programs that `Polytope.support` solves at once.
BLOCK = 200


class Width(NamedTuple):
    """Gaussian width and the standard error of its simulation, 0 if computed exactly.

    Examples
    --------
    >>> from dpsample.domains import Box
    >>> width, error = Box(-1.0, 1.0).gaussian_width(3)
    >>> round(width, 6), error
    (2.393654, 0.0)
    """

    value: float
    standard_error: float


def mean_length(dim: int) -> float:
    """E ||g||_2 = sqrt(2) Gamma((d+1)/2) / Gamma(d/2)."""
    return math.sqrt(2.0) * mean_norm_power(1.0, q=2.0, r=2.0, dim=dim)


def mean_norm(dim: int, q: float) -> float | None:
    """E ||g||_q, or None for huge finite q, where quadrature is not worth it."""
    if LARGEST < q < math.inf:
        return None
    return math.sqrt(2.0) * mean_norm_power(1.0, q=q, r=2.0, dim=dim)


def mean_largest(dim: int) -> float:
    """E max g_i: the trapezoidal sum of t times its density, analytic on the line."""
    from scipy.special import log_ndtr

    step = 0.02
    t = step * np.arange(-2000, 2001)
    log_density = math.log(dim) - 0.5 * t**2 + (dim - 1) * log_ndtr(t)
    with np.errstate(under="ignore"):
        density = np.exp(log_density - 0.5 * math.log(2.0 * math.pi))
    return float(step * (t * density).sum())


def simulated_width(
    support: Callable[[Any], Any], dim: int, *, seed: int, num_draws: int
) -> Width:
    """Return the mean of the support function over random directions.

    The length of g is independent of its direction u and h is homogeneous: E h(g) =
    E ||g|| E h(u), so only the direction is simulated.
    """
    check.integer(2, num_draws=num_draws)
    rng = streams(seed, 1)[0]
    values = []
    for begin in range(0, num_draws, BLOCK):
        g = rng.standard_normal((min(BLOCK, num_draws - begin), dim))
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        values.append(np.asarray(support(g)))
    heights = np.concatenate(values)
    if not np.isfinite(heights).all():
        return Width(math.inf, 0.0)
    length = mean_length(dim)
    error = float(heights.std(ddof=1)) / math.sqrt(num_draws)
    return Width(length * float(heights.mean()), length * error)
