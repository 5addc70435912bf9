"""Choice of the proposal for spectra: the largest acceptance, in closed form."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.noise.schatten_constant import (
    log_cube_spectrum,
    log_gaussian_spectrum,
    log_power_spectrum,
)
from dpsample.noise.schatten_spectrum import (
    OPERATOR,
    ORDERED,
    WISHART,
    SchattenPlan,
)

MIN_ACCEPTANCE = 1e-4
_GRID = np.exp(np.linspace(-40.0, 0.0, 2001))
_NUM_DOF = 24
# The bound is a maximum found numerically.
_MARGIN = 1e-9


def schatten_plan(shape: Any, r: float) -> SchattenPlan:
    """Return what the kernels need to draw with Schatten cone-measure direction.

    Parameters
    ----------
    shape : tuple of two int
        Rows and columns of a matrix.
    r : float
        Exponent in [1, inf].

    Returns
    -------
    SchattenPlan
        The proposal with the largest acceptance, and that acceptance.

    Raises
    ------
    ValueError
        If r < 1, ``shape`` is not a pair of positive integers, or no exact method
        accepts one in 10 000 proposals.

    Notes
    -----
    r = 2 and r = inf accept always, at every size. The acceptance is the ratio of two
    volumes; it falls as the smaller side of the matrix grows.

    Examples
    --------
    >>> plan = schatten_plan((2, 2), 1.0)
    >>> round(plan.acceptance, 6)
    0.75
    """
    from dpsample.domains import SchattenBall

    check.at_least(1.0, r=r)
    sides = SchattenBall(1.0, p=r, shape=shape).shape
    return _plan(sides, float(r))


@lru_cache(maxsize=256)
def _plan(shape: tuple[int, int], r: float) -> SchattenPlan:
    m, k = sorted(shape)
    if r == 2.0 or m == 1:
        return SchattenPlan(2.0 if m == 1 else r, *shape, WISHART, float(k), 0.0, 1.0)
    if math.isinf(r):
        return SchattenPlan(r, *shape, OPERATOR, float(k), 0.0, 1.0)
    options = _large_exponent(m, k, r) if r > 2.0 else _small_exponent(m, k, r)
    log_best, method, dof, bound = max(options)
    if not log_best >= math.log(MIN_ACCEPTANCE):
        remedy = (
            "Use r = 2 or r = inf, which are exact at every size, or Gaussian noise."
        )
        condition = f"small enough for exact Schatten noise with r = {r:g}"
        check.fail("shape", condition, shape, remedy)
    return SchattenPlan(r, *shape, method, dof, bound, math.exp(log_best))


Option = tuple[float, int, float, float]


def _large_exponent(m: int, k: int, r: float) -> list[Option]:
    """Log acceptance, method, dof and bound for r > 2."""
    dim = m * k
    flat = dim * (0.5 - 1.0 / r) * math.log(m)
    target = _log_direction(log_power_spectrum(m, k, r), dim, r)
    square = _log_direction(log_gaussian_spectrum(m, k), dim, 2.0)
    cube = log_cube_spectrum(m, k) + math.log(dim)
    # Without the volume, the least value of the ratio.
    wishart = -flat if math.isnan(target) else target - square - flat
    operator = -dim * math.log(m) / r if math.isnan(target) else target - cube
    return [(wishart, WISHART, float(k), flat), (operator, OPERATOR, float(k), 0.0)]


def _small_exponent(m: int, k: int, r: float) -> list[Option]:
    """Log acceptance, method, dof and bound for r < 2."""
    dim = m * k
    power = log_power_spectrum(m, k, r)
    if math.isnan(power):
        flat = -dim * (1.0 / r - 0.5) * math.log(m)
        return [(flat, WISHART, float(k), 0.0)]
    shapes = (k + m + 1.0 - 2.0 * np.arange(1, m + 1)) / r
    single = sum(math.lgamma(a) for a in shapes) - m * math.log(r)
    ordered = power - math.lgamma(m + 1.0) - single
    options = [(ordered, ORDERED, float(k), 0.0)]
    for dof in np.linspace(m, k, _NUM_DOF if k > m else 1).tolist():
        bound = wishart_bound(m, k, dof, r)
        proposal = _log_direction(log_gaussian_spectrum(m, dof), m * dof, 2.0)
        accept = _log_direction(power, dim, r) - proposal - bound
        options.append((accept, WISHART, dof, bound))
    return options


def _log_direction(log_integral: float, dim: float, r: float) -> float:
    """Integral over directions, given that of exp(-||t||_r^r) over all spectra."""
    return log_integral - math.lgamma(dim / r) + math.log(r)


def wishart_bound(m: int, k: int, dof: float, r: float) -> float:
    """Upper bound of (k - dof) sum log t + m dof log||t||_2 - m k log||t||_r, r < 2.

    At a maximum each t_i solves a + b t^2 - c t^r = 0 with a >= 0 and b, c > 0; the
    left side is convex in t^r, so that the t_i have at most two values. One dimension
    is left, where q of them are 1 and the others are x <= 1.
    """
    best = -math.inf
    for q in range(1, m + 1):
        grid = _GRID
        for _ in range(6):
            values = _two_values(grid, q, m, k, dof, r)
            i = int(np.argmax(values))
            best = max(best, float(values[i]))
            low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
            grid = np.linspace(low, high, 41)
    return best + _MARGIN * max(1.0, abs(best))


def _two_values(
    x: NDArray[np.float64], q: int, m: int, k: int, dof: float, r: float
) -> NDArray[np.float64]:
    square = np.log(q + (m - q) * x**2)
    power = np.log(q + (m - q) * x**r)
    logs = (k - dof) * (m - q) * np.log(x)
    return np.asarray(logs + 0.5 * m * dof * square - m * k / r * power)
