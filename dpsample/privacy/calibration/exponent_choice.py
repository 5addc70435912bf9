r"""Exponent of the generalized Gaussian that is least noisy for a sensitivity.

Noise z in d coordinates with exponent r has density proportional to exp(-||z||_r^2/(2
sigma^2)). At a fixed gdp and sensitivity 1 in the dual norm l_q it has sigma =
sqrt(r-1) max ||v||_r/||v||_q / gdp. Its radius ||z||_r is independent of its direction,
so with independent coordinates y of density proportional to exp(-|y|^r),

    E ||z||_s^2 = d sigma^2 Gamma(d/r)/Gamma((d+2)/r) E ||y||_s^2.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.numerics.moments import LARGEST, mean_norm_power
from dpsample.numerics.norms import dual
from dpsample.privacy.curves.additive import unit_gdp

Criterion = Literal["dual", "euclidean", "dual_bound"]


class ExponentChoice(NamedTuple):
    """Exponent of the least noisy generalized Gaussian, and what it gains.

    Attributes
    ----------
    r : float
        The best exponent, in [2, q].
    cost : float
        Mean squared norm of its noise at sensitivity 1 and gdp 1.
    gaussian_cost : float
        Mean squared norm of plain Gaussian noise.

    Examples
    --------
    >>> best_exponent(50, 1.2).gaussian_is_best
    True
    """

    r: float
    cost: float
    gaussian_cost: float

    @property
    def gaussian_is_best(self) -> bool:
        """Whether plain Gaussian noise, r = 2, is the best choice."""
        return self.r == 2.0


@check.unwrap_numpy
def noise_cost(dim: int, p: float, r: float, *, criterion: Criterion = "dual") -> float:
    """Return the mean squared norm of the noise at sensitivity 1 and gdp 1.

    Parameters
    ----------
    dim : int
        Length of the query.
    p : float
        Exponent in [1, inf]. Sensitivity is in the dual norm l_q, q = p/(p-1).
    r : float
        Exponent of the noise, 2 <= r < inf.
    criterion : {"dual", "euclidean", "dual_bound"}
        Norm of the noise. "dual" is l_q, "euclidean" is l2, both exact to about 1e-10
        (for q above 4096, "dual" is bounded through the largest coordinate).
        "dual_bound" is the bound d sigma^2 of "dual" (r <= q) that risk bounds in the
        literature use. It makes the bound small, and not the noise.

    Returns
    -------
    float
        The mean square. For other numbers multiply it by (sensitivity/gdp)^2.

    Raises
    ------
    ValueError
        If an argument is out of range, or r > q with "dual_bound".

    Examples
    --------
    >>> round(noise_cost(10, 2.0, 2.0), 9)
    10.0
    """
    check.one_of(("dual", "euclidean", "dual_bound"), criterion=criterion)
    check.half_open(1.0, LARGEST + 1.0, r=r)
    variance = unit_gdp(sensitivity=1.0, dim=dim, p=p, r=r) ** 2  # sigma^2
    q = dual(p)
    if criterion == "dual_bound":
        if r > max(q, 2.0):
            check.fail("r", f"<= q = {q:g} for the bound of the dual norm", float(r))
        # For q < 2, ||z||_q^2 <= d^(2/q - 1) ||z||_2^2.
        return dim * variance * (1.0 if q >= 2.0 else dim ** (2.0 / q - 1.0))
    # The equation of the module, with s = target.
    target = q if criterion == "dual" else 2.0
    radius = math.exp(math.lgamma(dim / r) - math.lgamma((dim + 2.0) / r))
    # E ||y||_s^2 of independent coordinates.
    moment = mean_norm_power(2.0, q=target, r=float(r), dim=dim)
    return float(dim * variance * radius * moment)


@check.unwrap_numpy
def best_exponent(
    dim: int, p: float, *, criterion: Criterion = "dual"
) -> ExponentChoice:
    """Return the exponent of the generalized Gaussian with the smallest `noise_cost`.

    Plain Gaussian noise, r = 2, is a candidate and usually the best. Its actual noise
    is smaller although its bound d sigma^2 is larger. At sensitivity in the maximum
    norm (p = 1) another exponent wins from about 4100 coordinates on.

    Parameters
    ----------
    dim, p, criterion
        As in `noise_cost`.

    Returns
    -------
    ExponentChoice
        The exponent in [2, q] and the costs.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Guarantee
    ---------
    ``cost <= gaussian_cost``, because plain Gaussian noise is a candidate.
    The choice reads public numbers only.

    Examples
    --------
    >>> choice = best_exponent(100_000, 1.0)
    >>> print(f"{choice.r:.1f} {choice.cost / choice.gaussian_cost:.2f}")
    4.4 0.87
    >>> print(f"{best_exponent(50, 1.0, criterion='dual_bound').r:.2f}")
    6.65
    """
    gaussian = noise_cost(dim, p, 2.0, criterion=criterion)
    # l_r norms hardly change from r = log(dim) on, but the factor r - 1 grows.
    largest = min(dual(p), 4.0 * math.log(dim) + 2.0)
    if largest <= 2.0:
        return ExponentChoice(2.0, gaussian, gaussian)
    from scipy.optimize import minimize_scalar

    def cost(r: float) -> float:
        return noise_cost(dim, p, r, criterion=criterion)

    # The cost may have two minima, so a grid finds the better one first.
    grid = np.geomspace(2.0, largest, 33)
    grid[-1] = largest  # which rounding may have passed
    costs = [cost(float(r)) for r in grid]
    k = int(np.argmin(costs))
    bracket = (grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)])
    refined = minimize_scalar(cost, bounds=bracket, method="bounded")
    pairs = [(gaussian, 2.0), (costs[k], float(grid[k]))]
    pairs.append((float(refined.fun), float(refined.x)))
    best_cost, exponent = min(pairs)
    return ExponentChoice(exponent, best_cost, gaussian)
