"""Volumes of unit balls of Schatten norms, in closed form.

The singular values t of an m x k matrix, m <= k, carry the volume element

    C prod_i t_i^(k - m) prod_{i<j} |t_i^2 - t_j^2| dt.

Its integral against exp(-sum t_i^r) is Selberg's for r = 2 and, for every other r, a
Pfaffian of incomplete beta functions by de Bruijn's formula [1]_; on [0, 1]^m, the ball
of r = inf, it is Selberg's again.

References
----------
.. [1] N. G. de Bruijn, On some multiple integrals involving determinants, Journal of
   the Indian Mathematical Society 19, 1955.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsample import _check as check

_LOG_GAMMA_3_2 = math.lgamma(1.5)
# Entries of the Pfaffian are at most 1 and right to about 1e-15.
_ENTRY_ERROR = 1e-15
WORST_ERROR = 1e-6


def log_gaussian_spectrum(m: int, k: float) -> float:
    """Logarithm of the integral of exp(-sum t_i^2) over the spectrum, k > m - 1 real.

    Laguerre form of Selberg's integral in w = t^2, without C.
    """
    total = -m * math.log(2.0)
    for j in range(m):
        total += math.lgamma(0.5 * (k - m + 1 + j)) + math.lgamma(0.5 * (j + 3))
    return total - m * _LOG_GAMMA_3_2


def log_cube_spectrum(m: int, k: int) -> float:
    """Logarithm of the integral over t in [0, 1]^m, without C."""
    a = 0.5 * (k - m + 1)
    total = -m * math.log(2.0)
    for j in range(m):
        total += math.lgamma(a + 0.5 * j) + math.lgamma(1.0 + 0.5 * j)
        total += math.lgamma(0.5 * (j + 3)) - math.lgamma(a + 0.5 * (m + j + 1))
    return total - m * _LOG_GAMMA_3_2


def log_power_spectrum(m: int, k: int, r: float) -> float:
    """Logarithm of the integral of exp(-sum t_i^r), r < inf; NaN if not accurate."""
    from scipy import special

    if r == 2.0 or m == 1:
        return log_gaussian_spectrum(m, k) if r == 2.0 else _log_single(k, r)
    a = (k - m + 1.0 + 2.0 * np.arange(m)) / r
    entries = 2.0 * special.betainc(a[:, None], a[None, :], 0.5) - 1.0
    entries = 0.5 * (entries - entries.T)
    if m % 2 == 1:
        border = np.ones((m, 1))
        entries = np.block([[entries, border], [-border.T, np.zeros((1, 1))]])
    log_pfaffian = _log_abs_pfaffian(entries)
    if not math.isfinite(log_pfaffian) or _log_error(entries) > WORST_ERROR:
        return math.nan
    single = float(special.gammaln(a).sum()) - m * math.log(r)
    return math.lgamma(m + 1.0) + single + log_pfaffian


def _log_single(k: int, r: float) -> float:
    return math.lgamma(k / r) - math.log(r)


def _log_abs_pfaffian(matrix: Any) -> float:
    """Logarithm of |Pf| by skew elimination with pivots (Parlett and Reid)."""
    a = np.array(matrix)
    total = 0.0
    for i in range(0, len(a), 2):
        pivot = i + 1 + int(np.argmax(np.abs(a[i + 1 :, i])))
        a[[i + 1, pivot]] = a[[pivot, i + 1]]
        a[:, [i + 1, pivot]] = a[:, [pivot, i + 1]]
        if a[i, i + 1] == 0.0:
            return -math.inf
        total += math.log(abs(a[i, i + 1]))
        ratio = a[i, i + 2 :] / a[i, i + 1]
        step = np.outer(ratio, a[i + 2 :, i + 1])
        a[i + 2 :, i + 2 :] += step - step.T
    return total


def _log_error(matrix: Any) -> float:
    """First-order bound of the error of log |Pf|, from d log Pf = tr(A^-1 dA) / 2."""
    return 0.5 * _ENTRY_ERROR * float(np.abs(np.linalg.inv(matrix)).sum())


def log_schatten_volume(shape: tuple[int, int], r: float) -> float:
    """Logarithm of the volume of the unit ball of the Schatten norm.

    Parameters
    ----------
    shape : tuple of two int
        Rows and columns of the matrices.
    r : float
        Exponent in [1, inf].

    Returns
    -------
    float
        The logarithm, in the coordinates of the entries.

    Raises
    ------
    ValueError
        If the matrices are so large that the Pfaffian cancels.

    Examples
    --------
    >>> round(math.exp(log_schatten_volume((2, 2), math.inf)), 6)
    6.579736
    """
    m, k = sorted(shape)
    dim = m * k
    # C from the Gaussian integral of all entries, pi^(d/2).
    log_c = 0.5 * dim * math.log(math.pi) - log_gaussian_spectrum(m, k)
    if math.isinf(r):
        return log_c + log_cube_spectrum(m, k)
    inside = log_power_spectrum(m, k, r)
    if math.isnan(inside):
        remedy = f"The constant of r = {r:g} needs smaller matrices, or r = 2 or inf."
        check.fail("shape", "small enough for an accurate volume", shape, remedy)
    return log_c + inside - math.lgamma(1.0 + dim / r)
