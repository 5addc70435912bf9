"""Closed forms for the Gaussian parameter: one proved, one only printed."""

from __future__ import annotations

import math

from dpsample import _check as check


@check.plain
def fact2_gdp(epsilon: float, delta: float) -> float:
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
    ``gaussian_delta(epsilon, fact2_gdp(epsilon, delta)) <= delta``.

    Examples
    --------
    >>> print(f"{fact2_gdp(1.0, 1e-6):.5f}")
    0.19162
    """
    log_term = _log_term(epsilon, delta)
    # The difference of the roots, without its cancellation.
    return 2.0 * epsilon / (math.sqrt(log_term + 2.0 * epsilon) + math.sqrt(log_term))


@check.plain
def paper_gdp(epsilon: float, delta: float) -> float:
    """Gdp that the printed theorems use: epsilon / sqrt(2L), L = log(1/(2 delta)).

    It is larger than Fact 2 allows (erratum GLLST-E2): the curve passes below
    (epsilon, delta) only for epsilon up to about 4.7, 5.5, 6.6, 7.0, 8.2 at
    delta = 1e-2, 1e-3, 1e-5, 1e-6, 1e-10. For reproduction only.

    Parameters
    ----------
    epsilon : float
        Privacy loss, > 0.
    delta : float
        Probability, > 0 and < 1/2.

    Returns
    -------
    float
        gdp > 0, without a guarantee.

    Raises
    ------
    ValueError
        If ``epsilon`` is not a finite number > 0 or ``delta`` is not inside (0, 1/2).

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
