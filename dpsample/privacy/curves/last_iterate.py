r"""Last iterate: Gaussian privacy of noisy contractions of which only the end is told.

**Theorem** (shifted interpolation: Bok, Su and Altschuler, arXiv:2403.00278). Two runs
start at most :math:`z_0` apart, :math:`X_k = P_k(f_k(X_{k-1}) + N(0, v_k I))` and
:math:`X'_k = P_k(f'_k(X'_{k-1}) + N(0, v_k I))`, k = 1..T, with :math:`P_k`
non-expansive and the same in both, :math:`f_k, f'_k` Lipschitz with constant
:math:`c_k`, and :math:`|f_k - f'_k| \le s_k` everywhere. With :math:`w_k = \prod_{j>k}
c_j` let :math:`V_k = \sum_{i \le k} w_i^2 v_i` and :math:`S_k = w_0 z_0 + \sum_{i \le
k} w_i s_i`. Then X_T is mu-GDP, mu^2 the sum of (dS)^2/dV over the pieces of the
greatest convex minorant of the points (0, 0), (V_1, S_1), ..., (V_T, S_T).

*Proof.* Choose :math:`0 \le a_k \le c_k z_{k-1} + s_k`, :math:`z_k = c_k z_{k-1} + s_k
- a_k`, with :math:`z_T = 0`. Let :math:`\tilde X_0 = X'_0` and, with the noise of
:math:`X_k`, :math:`\tilde X_k = P_k(f'_k(\tilde X_{k-1}) + u_k + \text{noise})`, where
:math:`u_k = l_k (f_k(X_{k-1}) - f'_k(\tilde X_{k-1}))`, :math:`l_k = a_k/(c_k z_{k-1} +
s_k)`. By induction :math:`|X_k - \tilde X_k| \le z_k` and :math:`|u_k| \le a_k`, so
:math:`\tilde X_T = X_T`. Given :math:`\tilde X_{k-1} = X'_{k-1} = x`, even who sees
:math:`u_k` tells :math:`\tilde X_k` from :math:`X'_k` no better than two Gaussians at
distance :math:`a_k/\sqrt{v_k}`; by adaptive composition :math:`\mu^2 \le \sum_k
a_k^2/v_k`. In :math:`q_k = w_k a_k` that is the sum of :math:`q_k^2/(w_k^2 v_k)` under
:math:`\sum_{i \le k} q_i \le S_k`, equal at T: the taut string below the points.

Its slopes are the isotonic regression of dS/dV with weights dV. With constant c < 1, s
and v the string is straight, and :math:`\mu = (s/\sqrt v) \sqrt{T'}`, :math:`T' =
\frac{1 - c^T}{1 + c^T} \frac{1 + c}{1 - c}` instead of the T of composition: what
quadratics attain. On a set of diameter D any k may be the start, with z = D.

**Rounding.** Let computed steps be off by at most e: :math:`|\hat X_k - P_k(f_k(\hat
X_{k-1}) + Z_k)| \le e` for noise :math:`Z_k` of exact law that is added to the gradient
as computed, in k < T; the last noise is added to the last point as computed, exactly.
What is computed from a noisy gradient and the point before it is the same function on
both data sets, so shifts of the noise cost what they did, and :math:`z_k` grows by 2e:
the theorem holds with :math:`s_k + 2 c_k e` for :math:`s_k`, k > 1, and 2e more in
:math:`s_T`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check
from dpsample.core.arrays import Array

BLOCK = 512  # factors from 1/2 to 1, whose product is above the least number


def last_iterate_gdp(
    *,
    contractions: ArrayLike,
    shifts: ArrayLike,
    stddevs: ArrayLike,
    start_distance: float = 0.0,
) -> float:
    r"""Gaussian-DP parameter of the last iterate of noisy contractions.

    Bok, Su and Altschuler (arXiv:2403.00278); the module proves it.

    Parameters
    ----------
    contractions : ndarray of shape (num_steps,)
        Lipschitz constants c_k > 0 of the steps on either data set, before projections.
        Gradient steps on an m-strongly convex, l-smooth loss have max(1 - eta m, eta l
        - 1).
    shifts : float or ndarray of shape (num_steps,)
        How far apart the neighbors' steps are from the same point, >= 0: zero where a
        step does not read the record, as in cycles of batches.
    stddevs : float or ndarray of shape (num_steps,)
        Deviations > 0 of the Gaussian noise of each coordinate of a step.
    start_distance : float
        How far apart the starts may be, >= 0: the diameter of a bounded domain makes
        any iterate a start.

    Returns
    -------
    float
        Rounded up.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    Exact steps with these numbers whose last iterate alone is released are gdp-GDP.

    Examples
    --------
    >>> c = np.full(1000, 0.99)
    >>> f"{last_iterate_gdp(contractions=c, shifts=0.1, stddevs=1.0):.4f}"  # not 3.16
    '1.4106'
    """
    c = check.array("contractions", contractions, shape=(None,))
    if len(c) == 0:
        check.fail("contractions", "those of one step at least", "none")
    s, stddev = _each("shifts", shifts, c), _each("stddevs", stddevs, c)
    for name, values in (("contractions", c), ("stddevs", stddev)):
        if not (values > 0.0).all():
            check.fail(name, "> 0", float(values.min()))
    if not (s >= 0.0).all():
        check.fail("shifts", ">= 0", float(s.min()))
    check.non_negative(start_distance=start_distance)
    return _length(c, s, stddev, start_distance)


def _each(name: str, value: ArrayLike, like: Array) -> Array:
    """One number for every step, or one for all."""
    if np.ndim(value) == 0:
        value = np.full(like.shape, value)
    return check.array(name, value, shape=like.shape)


def _length(c: Array, s: Array, stddev: Array, start: float) -> float:
    """Root of the sum of (dS)^2/dV over the taut string, rounded up."""
    from scipy.optimize import isotonic_regression

    products, powers = _suffix_products(c)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # In units of the last noise, which keeps its step.
        unit = stddev[-1]
        rises = _in_units(unit, s, products[1:], powers[1:])
        rises[:1] += _in_units(unit, start, products[:1], powers[:1])
        lengths = _in_units(unit, stddev, products[1:], powers[1:]) ** 2
        # What steps with hardly any variance have moved is moved by the next one.
        kept = np.flatnonzero(lengths > 1e-200)
        rises = np.add.reduceat(rises, np.append(0, kept[:-1] + 1))
        slopes = rises / lengths[kept]
        slopes[rises > 0.0] = np.maximum(slopes[rises > 0.0], check.MIN_NORMAL)
        sums = lengths.sum(), rises.sum(), slopes.sum()  # the regression takes them
    if not np.isfinite(sums).all():
        remedy = "Use other units, or fewer steps."
        check.fail("steps", "of numbers within floating point", "larger ones", remedy)
    slopes = isotonic_regression(slopes, weights=lengths[kept]).x
    parts = np.sqrt(lengths[kept]) * slopes
    if max(s.max(), start) > 0.0:  # no part is lost below the least number
        parts = np.maximum(parts, check.MIN_NORMAL)
    most = float(parts.max())
    if most == 0.0:
        return 0.0
    rounding = 1.0 + (8.0 * len(c) + 96.0) * 2.0**-53
    return most * math.sqrt(float(np.sum((parts / most) ** 2)) * rounding)


def _suffix_products(c: Array) -> tuple[Array, NDArray[np.int64]]:
    """Products of c_i over i > k for k = 0, ..., T: mantissas, and powers of two.

    As numbers they may be too small for the later ones, which they are factors of.
    """
    products, powers = np.frexp(np.append(1.0, c[::-1]))
    powers = np.cumsum(powers, dtype=np.int64)
    shift = 0
    for first in range(0, len(products), BLOCK):
        block, end = products[first : first + BLOCK], first + BLOCK
        block[:], more = np.frexp(np.cumprod(block))
        powers[first:end] += shift + more
        shift += int(more[-1])
        products[end : end + 1] *= block[-1]
    return products[::-1], powers[::-1]


def _in_units(
    unit: float, values: ArrayLike, products: Array, powers: NDArray[np.int64]
) -> Array:
    """Values times products, in a unit: nothing but 0 gets lost below the numbers."""
    (part, power), (whole, shift) = np.frexp(values), np.frexp(unit)
    found = np.ldexp(products * (part / whole), powers + power - shift)
    return np.where(part > 0.0, np.maximum(found, check.MIN_NORMAL), 0.0)
