"""Zero-concentrated privacy that follows from other kinds, with proofs."""

from __future__ import annotations

import math

from dpsample import _check as check


@check.plain
def rho_from_gdp(gdp: float) -> float:
    """Zero-concentrated privacy of a ``gdp``-GDP mechanism: gdp^2/2.

    Bun and Steinke (2016), Proposition 1.6: two unit Gaussians at distance gdp have
    Renyi divergence a gdp^2/2, and post-processing lowers divergences.

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
    return 0.5 * gdp * gdp


@check.plain
def rho_from_pure(epsilon: float) -> float:
    """Zero-concentrated privacy of an epsilon-DP mechanism: epsilon tanh(epsilon/2).

    It is below the epsilon^2/2 of Bun and Steinke (2016), Proposition 1.4, and no
    smaller number is true of randomized response, whose divergence of order 1 it is.
    Proof: every epsilon-DP mechanism post-processes randomized response (Kairouz, Oh
    and Viswanath 2015), whose order 1 + t has t D = f(t + 1/2) - f(1/2) with f(x) =
    log cosh(epsilon x). As a function of x^2, f is concave (tanh(x)/x decreases), so
    that the difference is at most its slope at x = 1/2 times (t + 1/2)^2 - 1/4 =
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
    return epsilon * math.tanh(0.5 * epsilon)


@check.plain
def rho_from_bounded_range(epsilon: float) -> float:
    """Zero-concentrated privacy of an exponential mechanism: epsilon^2/8.

    Cesar and Rogers (2021): log-likelihood ratios L of density exp(epsilon u /
    (2 sensitivity)) stay inside an interval of length epsilon. Proof: psi(s) = log
    E_Q e^{sL} has psi(0) = psi(1) = 0 and, as a variance on that interval, psi'' <=
    epsilon^2/4; so psi(s) - (epsilon^2/8) s (s - 1) is concave with zeros at 0 and 1,
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
    return 0.125 * epsilon * epsilon
