"""Zero-concentrated privacy: as (epsilon, delta) and back, and from other kinds.

rho-zCDP bounds every Renyi divergence of order a by rho a (Bun and Steinke 2016), so
the rhos of composed mechanisms add up. The docstrings prove which rho follows from
other kinds of privacy. `compose_gdp` composes Gaussian privacy in closed form as well.
"""

import math
from collections.abc import Iterable
from typing import Any

from dpsample.core import check
from dpsample.privacy.accounting.renyi import (
    MARGIN,
    log_factor,
    rdp_delta,
    rdp_epsilon,
    search_minimum,
)


@check.unwrap_numpy
def zcdp_delta(epsilon: float, rho: float) -> float:
    """Return delta at ``epsilon`` of a rho-zCDP mechanism.

    Canonne, Kamath and Steinke (2020), Proposition 7, with the best order.

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    rho : float
        Bound of the Renyi divergence over the order, >= 0.

    Returns
    -------
    float
        delta in [0, 1], rounded up.

    Raises
    ------
    ValueError
        If a number is negative, infinite or not a number.

    Guarantee
    ---------
    Every rho-zCDP mechanism is (epsilon, delta)-DP.

    Examples
    --------
    >>> print(f"{zcdp_delta(1.0, 0.02):.2e}")
    8.83e-08
    """
    check.non_negative(epsilon=epsilon, rho=rho)
    return 0.0 if rho == 0.0 else rdp_delta(epsilon, lambda order: rho * order)


@check.unwrap_numpy
def zcdp_epsilon(delta: float, rho: float) -> float:
    """Return epsilon at ``delta`` of a rho-zCDP mechanism.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    rho : float
        Bound of the Renyi divergence over the order, >= 0.

    Returns
    -------
    float
        epsilon >= 0, rounded up.

    Raises
    ------
    ValueError
        If ``delta`` is not inside (0, 1) or ``rho`` is not a finite number >= 0.

    Guarantee
    ---------
    Every rho-zCDP mechanism is (epsilon, delta)-DP.

    Examples
    --------
    >>> print(f"{zcdp_epsilon(1e-6, 0.02):.4f}")
    0.8999
    """
    check.open_interval(0.0, 1.0, delta=delta)
    check.non_negative(rho=rho)
    return 0.0 if rho == 0.0 else rdp_epsilon(delta, lambda order: rho * order)


@check.unwrap_numpy
def rho_from_budget(epsilon: float, delta: float) -> float:
    """Return the largest ``rho`` that `zcdp_delta` allows at (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Privacy loss, > 0.
    delta : float
        Probability, > 0 and < 1.

    Returns
    -------
    float
        rho > 0, rounded down.

    Raises
    ------
    ValueError
        If ``epsilon`` is not a finite number > 0, ``delta`` is not inside (0, 1), or
        both are so small that no rho > 0 is found.

    Guarantee
    ---------
    ``zcdp_delta(epsilon, rho_from_budget(epsilon, delta)) <= delta``.

    Examples
    --------
    >>> print(f"{rho_from_budget(1.0, 1e-6):.5f}")
    0.02436
    """
    check.positive(epsilon=epsilon)
    check.open_interval(0.0, 1.0, delta=delta)
    # `zcdp_delta` rounds up by such margins, which are left free here.
    log_delta = math.log(delta) - 3.0 * MARGIN

    # log delta = t ((1 + t) rho - epsilon) + h(t), solved for rho at every order 1 + t.
    def minus_rho(t: float) -> float:
        return ((log_factor(t) - log_delta) / t - epsilon) / (1.0 + t)

    # The best order allows the largest rho, which is rounded down.
    rho = -search_minimum(minus_rho) * (1.0 - MARGIN)
    remedy = "Spend a larger epsilon or delta."
    check.normal(**{"rho of epsilon and delta": rho}, remedy=remedy)
    return rho


def compose_gdp(values: Iterable[float]) -> float:
    """Return the gdp of composed Gaussian mechanisms, the root of the sum of squares.

    Dong, Roth and Su (2022), Corollary 3.3. It holds for adaptive composition, too.

    Parameters
    ----------
    values : iterable of float
        Each finite and >= 0.

    Returns
    -------
    float
        gdp >= 0.

    Raises
    ------
    ValueError
        If a number is negative, infinite or not a number.

    Guarantee
    ---------
    Mechanisms that are gdp_i-GDP are together compose_gdp(gdp_1, gdp_2, ...)-GDP, if
    the numbers do not depend on the answers.

    Examples
    --------
    >>> compose_gdp([3.0, 4.0])
    5.0
    """
    try:
        listed = list(values)
    # A generator is read once.
    except (TypeError, ValueError):
        check.fail("values", "an iterable of numbers", check.describe(values))
    for index, gdp in enumerate(listed):
        named: dict[str, Any] = {f"values[{index}]": gdp}
        check.non_negative(**named)
    return math.hypot(*listed)  # squares do not overflow in it


@check.unwrap_numpy
def rho_from_gdp(gdp: float) -> float:
    """Return the zero-concentrated privacy of a ``gdp``-GDP mechanism, gdp^2/2.

    Two unit Gaussians at distance gdp have Renyi divergence a gdp^2/2, and
    post-processing lowers divergences (Bun and Steinke 2016, Proposition 1.6).

    Parameters
    ----------
    gdp : float
        Finite and >= 0.

    Returns
    -------
    float
        rho >= 0.

    Raises
    ------
    ValueError
        If ``gdp`` is negative, infinite or not a number.

    Guarantee
    ---------
    A gdp-GDP mechanism is rho-zCDP, and with Gaussian noise no smaller rho is true.

    Examples
    --------
    >>> rho_from_gdp(2.0)
    2.0
    """
    check.non_negative(gdp=gdp)
    return _avoid_zero(0.5 * gdp * gdp, gdp)


def _avoid_zero(rho: float, parameter: float) -> float:
    """Return a positive rho where it underflows although its parameter is positive."""
    return max(rho, check.MIN_NORMAL) if parameter > 0.0 else 0.0


@check.unwrap_numpy
def rho_from_pure(epsilon: float) -> float:
    """Return the zero-concentrated privacy of epsilon-DP, epsilon tanh(epsilon/2).

    It is below the epsilon^2/2 of Bun and Steinke (2016), Proposition 1.4, and no
    smaller number holds for randomized response, because it is its divergence of order
    1. Proof: every epsilon-DP mechanism post-processes randomized response (Kairouz, Oh
    and Viswanath 2015), whose order 1 + t has t D = f(t + 1/2) - f(1/2) with f(x) =
    log cosh(epsilon x). As a function of x^2, f is concave (tanh(x)/x decreases), so
    the difference is at most its slope at x = 1/2 times (t + 1/2)^2 - 1/4 =
    t (1 + t).

    Parameters
    ----------
    epsilon : float
        Finite and >= 0.

    Returns
    -------
    float
        rho >= 0.

    Raises
    ------
    ValueError
        If ``epsilon`` is negative, infinite or not a number.

    Guarantee
    ---------
    An epsilon-DP mechanism is rho-zCDP.

    Examples
    --------
    >>> print(f"{rho_from_pure(1.0):.4f}")
    0.4621
    """
    check.non_negative(epsilon=epsilon)
    return _avoid_zero(epsilon * math.tanh(0.5 * epsilon), epsilon)


@check.unwrap_numpy
def rho_from_bounded_range(epsilon: float) -> float:
    """Return the zero-concentrated privacy of an exponential mechanism, epsilon^2/8.

    By Cesar and Rogers (2021), log-likelihood ratios L of density exp(epsilon u /
    (2 sensitivity)) stay inside an interval of length epsilon. Proof: psi(s) = log
    E_Q e^{sL} has psi(0) = psi(1) = 0 and, as a variance on that interval, psi'' <=
    epsilon^2/4. So psi(s) - (epsilon^2/8) s (s - 1) is concave with zeros at 0 and 1,
    and (a - 1) D_a = psi(a) <= (epsilon^2/8) a (a - 1) for a > 1.

    Parameters
    ----------
    epsilon : float
        Length of the interval, finite and >= 0.

    Returns
    -------
    float
        rho >= 0.

    Raises
    ------
    ValueError
        If ``epsilon`` is negative, infinite or not a number.

    Guarantee
    ---------
    A mechanism whose log-likelihood ratios between neighbors stay inside an interval
    of that length, wherever it lies, is rho-zCDP.

    Examples
    --------
    >>> rho_from_bounded_range(1.0)
    0.125
    """
    check.non_negative(epsilon=epsilon)
    return _avoid_zero(0.125 * epsilon * epsilon, epsilon)
