"""Privacy curve of a unit Gaussian shifted by ``gdp``, and its inverses.

delta(epsilon) = Phi(-z) - e^epsilon Phi(-z - gdp),   z = epsilon/gdp - gdp/2.

A mechanism whose curve is below this one is called gdp-Gaussian differentially
private. With Mills' ratio M(x) = Phi(-x)/phi(x) the curve is
phi(z) (M(z) - M(z + gdp)): no exponential of epsilon appears, nothing overflows. Two
closed forms of gdp, one proved and one only printed, end the file.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array

# The computed logarithm is off by less than 5e-13 where its exponential is a normal
# number: deltas are rounded up by the second number, and inverses hold with the first.
LOG_MARGIN = 1e-12
ROUND_UP = 1.0 + 0.8 * LOG_MARGIN
# Above this ratio M(z + gdp)/M(z) the difference loses digits: integrate -M' instead.
CANCELLATION = 0.9
# The asymptotic series of -M' has relative error < 1e-16 from here on.
ASYMPTOTIC_FROM = 12.0
LARGE = 100.0  # gdp, beyond which a difference loses digits
SMALLEST_GDP = 1e-300
LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@check.unwrap_numpy
def gaussian_delta(epsilon: float, gdp: float) -> float:
    """Smallest delta for which a ``gdp``-GDP mechanism is (epsilon, delta)-DP.

    Balle and Wang (2018), equation (6).

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    gdp : float
        Distance of the two unit Gaussians, >= 0.

    Returns
    -------
    float
        delta in [0, 1], increasing in ``gdp`` and decreasing in ``epsilon``. It is
        rounded up, by a part 2e-12 at most unless the true number is below the smallest
        normal double, which is returned then; 0 if ``gdp`` is 0.

    Raises
    ------
    ValueError
        If a number is negative, infinite or not a number.

    Examples
    --------
    >>> print(f"{gaussian_delta(1.0, 0.2367):.3e}")
    9.996e-07
    """
    check.non_negative(epsilon=epsilon, gdp=gdp)
    if gdp == 0.0:
        return 0.0
    delta = math.exp(_log_delta(float(epsilon), float(gdp))) * ROUND_UP
    return min(max(delta, check.MIN_NORMAL), 1.0)


@check.unwrap_numpy
def gaussian_epsilon(delta: float, gdp: float) -> float:
    """Smallest epsilon for which a ``gdp``-GDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    gdp : float
        Distance of the two unit Gaussians, >= 0.

    Returns
    -------
    float
        epsilon >= 0, rounded up.

    Raises
    ------
    ValueError
        If ``delta`` is not inside (0, 1) or ``gdp`` is not a finite number >= 0.

    Guarantee
    ---------
    The mechanism is (epsilon, delta)-DP: ``gaussian_delta(gaussian_epsilon(delta, gdp),
    gdp) <= delta`` unless ``delta`` is subnormal, as no answer is.

    Examples
    --------
    >>> print(f"{gaussian_epsilon(1e-6, 0.2367):.4f}")
    1.0000
    """
    check.open_interval(0.0, 1.0, delta=delta)
    check.non_negative(gdp=gdp)
    limit = math.log(delta) - LOG_MARGIN

    def is_safe(epsilon: float) -> bool:
        return _log_delta(epsilon, float(gdp)) <= limit

    if is_safe(0.0):
        return 0.0
    safe = max(float(gdp), 1.0)
    while not is_safe(safe):
        safe *= 2.0
    return bisect(is_safe, safe=safe, unsafe=0.0)


@check.unwrap_numpy
def gdp_from_budget(epsilon: float, delta: float) -> float:
    """Largest ``gdp`` whose curve passes below (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    delta : float
        Probability, > 0 and < 1.

    Returns
    -------
    float
        gdp > 0, rounded down.

    Raises
    ------
    ValueError
        If ``epsilon`` is not a finite number >= 0 or ``delta`` is not inside (0, 1).

    Guarantee
    ---------
    Every ``gdp``-GDP mechanism is (epsilon, delta)-DP: ``gaussian_delta(epsilon,
    gdp_from_budget(epsilon, delta)) <= delta`` unless ``delta`` is subnormal.

    Examples
    --------
    >>> print(f"{gdp_from_budget(1.0, 1e-6):.5f}")
    0.23670
    """
    check.non_negative(epsilon=epsilon)
    check.open_interval(0.0, 1.0, delta=delta)
    return _largest_gdp(float(epsilon), float(delta))


@functools.lru_cache(maxsize=256)  # calibration and its verification ask alike
def _largest_gdp(epsilon: float, delta: float) -> float:
    """Invert the curve by bisection."""
    limit = math.log(delta) - LOG_MARGIN

    def is_safe(gdp: float) -> bool:
        return _log_delta(epsilon, gdp) <= limit

    safe, unsafe = 1.0, 1.0
    while not is_safe(safe):
        unsafe, safe = safe, safe / 2.0
        if safe < SMALLEST_GDP:
            check.fail(
                "epsilon and delta",
                f"large enough for a gdp >= {SMALLEST_GDP:g}",
                f"({epsilon:g}, {delta:g})",
                "Spend a larger epsilon or delta.",
            )
    while is_safe(unsafe):
        safe, unsafe = unsafe, 2.0 * unsafe
    return bisect(is_safe, safe=safe, unsafe=unsafe)


def _log_delta(epsilon: float, gdp: float) -> float:
    """Logarithm of the curve; -inf where it is 0."""
    from scipy.special import erfcx, log_ndtr

    if gdp == 0.0:
        return -math.inf
    z = epsilon / gdp - gdp / 2.0
    if gdp > LARGE and epsilon < math.inf:  # the difference of two large numbers
        z = float(Fraction(epsilon) / Fraction(gdp) - Fraction(gdp) / 2)
    if z > 1e150:
        return -math.inf
    if gdp < SMALLEST_GDP:  # a bound of the curve at 0, the total variation
        return math.log(gdp) - LOG_SQRT_TWO_PI
    log_tail = float(log_ndtr(-z))
    near, far = (float(erfcx(x / math.sqrt(2.0))) for x in (z, z + gdp))
    if math.isinf(near) or far < CANCELLATION * near:
        return log_tail + math.log1p(-far / near)
    nodes, weights = _quadrature()
    slope = float(weights @ _minus_mills_slope(z + gdp * nodes))
    # Apart where the product is no longer a float.
    parts = (gdp * slope,) if gdp * slope > SMALLEST_GDP else (gdp, slope)
    change = sum(map(math.log, parts))
    return log_tail + change - math.log(math.sqrt(math.pi / 2.0) * near)


def _minus_mills_slope(x: Array) -> Array:
    """Return -M'(x) = 1 - x M(x) > 0, by its asymptotic series where that cancels."""
    from scipy.special import erfcx

    large = x > ASYMPTOTIC_FROM
    safe = np.where(large, 0.0, x)
    direct = 1.0 - safe * math.sqrt(math.pi / 2.0) * erfcx(safe / math.sqrt(2.0))
    inverse = 1.0 / np.where(large, x, np.inf) ** 2
    series: Any = 0.0
    for order in range(41, 1, -2):  # 1 - 3/x^2 (1 - 5/x^2 (1 - ...)), Horner
        series = order * inverse * (1.0 - series)
    return np.where(large, inverse * (1.0 - series), direct)


@functools.cache
def _quadrature() -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def bisect(
    is_safe: Callable[[float], bool], *, safe: float, unsafe: float, width: float = 0.0
) -> float:
    """Float >= 0 on the safe side of the border between ``safe`` and ``unsafe``.

    The last one, or one within ``width``, relative to the larger end of the bracket.
    """
    while abs(safe - unsafe) > width * max(safe, unsafe):
        middle = 0.5 * (safe + unsafe)
        if middle in (safe, unsafe):
            break
        safe, unsafe = (middle, unsafe) if is_safe(middle) else (safe, middle)
    return safe


@check.unwrap_numpy
def closed_form_gdp(epsilon: float, delta: float) -> float:
    """Closed-form gdp that is always valid: sqrt(2L + 2 epsilon) - sqrt(2L).

    Gopi, Lee, Liu, Shen and Tian (2022), Fact 2, with L = log(1/(2 delta)). It is
    proved by delta <= Phi(-z) <= e^{-z^2/2}/2 and wastes 6 to 103 percent of
    `gdp_from_budget`.

    Parameters
    ----------
    epsilon : float
        Privacy loss, > 0.
    delta : float
        Probability, > 0 and < 1/2.

    Returns
    -------
    float
        gdp > 0.

    Raises
    ------
    ValueError
        If ``epsilon`` is not a finite number > 0 or ``delta`` is not inside (0, 1/2).

    Guarantee
    ---------
    ``gaussian_delta(epsilon, closed_form_gdp(epsilon, delta)) <= delta``.

    Examples
    --------
    >>> print(f"{closed_form_gdp(1.0, 1e-6):.5f}")
    0.19162
    """
    log_term = _log_term(epsilon, delta)
    # The difference of the roots, without its cancellation, and without 2 epsilon,
    # which may overflow.
    half = 0.5 * log_term
    roots = math.sqrt(half + epsilon) + math.sqrt(half)
    return math.sqrt(2.0) * epsilon / roots


@check.unwrap_numpy
def paper_gdp(epsilon: float, delta: float) -> float:
    """Gdp that the printed theorems use: epsilon / sqrt(2L), L = log(1/(2 delta)).

    It is larger than Fact 2 allows (erratum GLLST-E2): the curve passes below
    (epsilon, delta) only for epsilon up to about 4.7, 5.5, 6.6, 7.0, 8.2 at
    delta = 1e-2, 1e-3, 1e-5, 1e-6, 1e-10. For reproduction only.

    Parameters
    ----------
    epsilon, delta : float
        As in `closed_form_gdp`.

    Returns
    -------
    float
        gdp > 0, without a guarantee.

    Raises
    ------
    ValueError
        As from `closed_form_gdp`.

    Examples
    --------
    >>> from dpsample.privacy import gaussian_epsilon
    >>> gdp = paper_gdp(16.0, 1e-6)
    >>> print(f"{gaussian_epsilon(1e-6, gdp):.1f}")
    19.1
    """
    return epsilon / math.sqrt(_log_term(epsilon, delta))


def _log_term(epsilon: float, delta: float) -> float:
    """Return 2 log(1/(2 delta)) after the checks that both closed forms need."""
    check.positive(epsilon=epsilon)
    remedy = "Use calibration='exact' for a larger delta."
    check.open_interval(0.0, 0.5, delta=delta, remedy=remedy)
    return -2.0 * math.log(2.0 * delta)
