"""Privacy curve of a unit Gaussian shifted by ``gdp``, and its inverses.

delta(epsilon) = Phi(-z) - e^epsilon Phi(-z - gdp),   z = epsilon/gdp - gdp/2.

A mechanism whose curve is below this one is called gdp-Gaussian differentially private
(gdp-GDP). Phi is the standard normal distribution function, phi its density. With
Mills' ratio M(x) = Phi(-x)/phi(x) the curve is

delta(epsilon) = phi(z) (M(z) - M(z + gdp)) = Phi(-z) (1 - M(z + gdp)/M(z)).

This form has no exponential of epsilon, so nothing overflows. All functions work with
the logarithm of delta. They find gdp or epsilon by bisection and return the *safe* end
of the bracket, at which the guarantee holds for the computed curve with a margin for
its rounding errors. Two closed forms of gdp end the file: one is proved, and the other
is the published one, which is not always valid.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array

# The computed logarithm of delta is off by less than 5e-13 where delta is a normal
# number. Inverses ask for a logarithm that is this much smaller.
LOG_MARGIN = 1e-12
# A computed delta is multiplied by this factor. It is below the margin of the inverses,
# so that a delta at an inverse is not above the one that was asked for.
ROUND_UP = 1.0 + 0.8 * LOG_MARGIN
SMALLEST_GDP = 1e-300
# Part of a bracket that a golden section keeps.
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@check.unwrap_numpy
def gaussian_delta(epsilon: float, gdp: float) -> float:
    """Return the smallest delta for which ``gdp``-GDP implies (epsilon, delta)-DP.

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
        delta in [0, 1], increasing in ``gdp`` and decreasing in ``epsilon``. It is 0 if
        ``gdp`` is 0. Otherwise it is rounded up, by a relative amount of at most 2e-12,
        or to the smallest normal double if the true number is below that.

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
    """Return the smallest epsilon for which ``gdp``-GDP implies (epsilon, delta)-DP.

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
    gdp) <= delta`` unless ``delta`` is subnormal, which no result is.

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
    """Return the largest ``gdp`` whose curve passes below (epsilon, delta).

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


@functools.lru_cache(maxsize=256)  # calibration and verification call it alike
def _largest_gdp(epsilon: float, delta: float) -> float:
    """Invert the curve by bisection."""
    limit = math.log(delta) - LOG_MARGIN

    def is_safe(gdp: float) -> bool:
        return _log_delta(epsilon, gdp) <= limit

    # Delta increases with gdp. Halve or double 1 until both ends are known.
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
    """Return the logarithm of the curve, -inf where it is 0."""
    from scipy.special import erfcx, log_ndtr

    if gdp == 0.0:
        return -math.inf
    z = epsilon / gdp - gdp / 2.0
    # For a large gdp this is the difference of two large numbers, so it is exact there.
    if gdp > 100.0 and epsilon < math.inf:
        z = float(Fraction(epsilon) / Fraction(gdp) - Fraction(gdp) / 2)
    if z > 1e150:
        return -math.inf
    if gdp < SMALLEST_GDP:  # the curve is at most its value at 0, the total variation
        return math.log(gdp) - 0.5 * math.log(2.0 * math.pi)
    log_tail = float(log_ndtr(-z))
    # M(x) = sqrt(pi/2) erfcx(x / sqrt(2)). Both quotients leave the factor out.
    mills_first, mills_second = (float(erfcx(x / math.sqrt(2.0))) for x in (z, z + gdp))
    if math.isinf(mills_first) or mills_second < 0.9 * mills_first:
        return log_tail + math.log1p(-mills_second / mills_first)
    # For closer values the difference loses digits. It is the integral of -M' instead.
    nodes, weights = _quadrature()
    mean_slope = float(weights @ _minus_mills_slope(z + gdp * nodes))
    difference = gdp * mean_slope
    # Where the product underflows the logarithms of its factors are added.
    parts = (difference,) if difference > SMALLEST_GDP else (gdp, mean_slope)
    log_difference = sum(map(math.log, parts))
    return log_tail + log_difference - math.log(math.sqrt(math.pi / 2.0) * mills_first)


def _minus_mills_slope(x: Array) -> Array:
    """Return -M'(x) = 1 - x M(x) > 0, by its asymptotic series where that cancels."""
    from scipy.special import erfcx

    # From x = 12 on the series has a relative error below 1e-16.
    is_large = x > 12.0
    small_x = np.where(is_large, 0.0, x)
    direct = 1.0 - small_x * math.sqrt(math.pi / 2.0) * erfcx(small_x / math.sqrt(2.0))
    inverse = 1.0 / np.where(is_large, x, np.inf) ** 2
    series: Any = 0.0
    for order in range(41, 1, -2):  # Horner's rule for 3/x^2 (1 - 5/x^2 (1 - ...))
        series = order * inverse * (1.0 - series)
    return np.where(is_large, inverse * (1.0 - series), direct)


@functools.cache
def _quadrature() -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def bisect(
    is_safe: Callable[[float], bool], *, safe: float, unsafe: float, width: float = 0.0
) -> float:
    """Return a number >= 0 on the safe side of a border, near to it.

    ``is_safe`` is true on the side of ``safe`` and false on the side of ``unsafe``,
    either of which may be the larger one. The bracket is halved until its width,
    relative to its larger end, is at most ``width``, or no float is inside.
    """
    while abs(safe - unsafe) > width * max(safe, unsafe):
        middle = 0.5 * (safe + unsafe)
        if middle in (safe, unsafe):
            break
        safe, unsafe = (middle, unsafe) if is_safe(middle) else (safe, middle)
    return safe


@check.unwrap_numpy
def closed_form_gdp(epsilon: float, delta: float) -> float:
    """Return a closed-form gdp that is always valid, sqrt(2L + 2 epsilon) - sqrt(2L).

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
    # sqrt(x + y) - sqrt(x) = y / (sqrt(x + y) + sqrt(x)) does not cancel. A factor 2 is
    # taken out of the roots, because 2 epsilon may overflow.
    half = 0.5 * log_term
    sum_of_roots = math.sqrt(half + epsilon) + math.sqrt(half)
    return math.sqrt(2.0) * epsilon / sum_of_roots


@check.unwrap_numpy
def paper_gdp(epsilon: float, delta: float) -> float:
    """Return the published gdp, epsilon / sqrt(2L) with L = log(1/(2 delta)).

    It is larger than Fact 2 allows (erratum GLLST-E2). The curve passes below
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
    """Return 2L = 2 log(1/(2 delta)) after the checks that both closed forms need."""
    check.positive(epsilon=epsilon)
    remedy = "Use calibration='exact' for a larger delta."
    check.open_interval(0.0, 0.5, delta=delta, remedy=remedy)
    return -2.0 * math.log(2.0 * delta)
