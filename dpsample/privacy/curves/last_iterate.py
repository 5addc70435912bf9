r"""Last iterate: Gaussian privacy of noisy contractions that release only their end.

A *contraction* is a step f_k that brings points closer, such as a gradient step on a
strongly convex loss. Noise of early steps protects more than the composition of all
steps counts, because later steps shrink what they see.

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
:math:`\tilde X_T = X_T`. Given :math:`\tilde X_{k-1} = X'_{k-1} = x` and even
:math:`u_k`, :math:`\tilde X_k` and :math:`X'_k` are as hard to distinguish as two
Gaussians at distance :math:`a_k/\sqrt{v_k}`. By adaptive composition :math:`\mu^2 \le
\sum_k a_k^2/v_k`. In :math:`q_k = w_k a_k` this is the sum of :math:`q_k^2/(w_k^2 v_k)`
under :math:`\sum_{i \le k} q_i \le S_k`, equal at T. Its minimum is the taut string
below the points, that is their greatest convex minorant.

The slopes of the taut string are the isotonic regression of dS/dV with weights dV. With
constant c < 1, s and v the string is straight, and :math:`\mu = (s/\sqrt v) \sqrt{T'}`
with :math:`T' = \frac{1 - c^T}{1 + c^T} \frac{1 + c}{1 - c}` instead of the T of
composition. Quadratics attain this. On a set of diameter D any k may be the start, with
z = D.

**Rounding.** Let computed steps be off by at most e: :math:`|\hat X_k - P_k(f_k(\hat
X_{k-1}) + Z_k)| \le e`. In k < T the noise :math:`Z_k` is drawn exactly and added to
the gradient as computed. The last noise is added to the last point as computed,
exactly. The function that takes a noisy gradient and the point before it to the next
point is the same on both data sets. So shifts of the noise have the same effect as
above, and :math:`z_k` grows by 2e. The theorem holds with :math:`s_k + 2 c_k e` in
place of :math:`s_k`, k > 1, and 2e more in :math:`s_T`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check
from dpsample.core.arrays import Array


def last_iterate_gdp(
    *,
    contractions: ArrayLike,
    shifts: ArrayLike,
    stddevs: ArrayLike,
    start_distance: float = 0.0,
) -> float:
    r"""Return the Gaussian-DP parameter of the last iterate of noisy contractions.

    Bok, Su and Altschuler (arXiv:2403.00278). The module proves it.

    Parameters
    ----------
    contractions : ndarray of shape (num_steps,)
        Lipschitz constants c_k > 0 of the steps on either data set, before projections.
        Gradient steps on an m-strongly convex, l-smooth loss have max(1 - eta m, eta l
        - 1).
    shifts : float or ndarray of shape (num_steps,)
        Distances s_k >= 0 of the neighbors' steps from the same point. They are 0 where
        a step does not read the record, as in cycles of batches.
    stddevs : float or ndarray of shape (num_steps,)
        Standard deviations > 0 of the Gaussian noise in each coordinate of a step.
    start_distance : float
        Largest distance z_0 >= 0 of the starts. With the diameter of a bounded domain,
        any iterate may be the start.

    Returns
    -------
    float
        mu, rounded up.

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
    s = _one_per_step("shifts", shifts, c)
    stddev = _one_per_step("stddevs", stddevs, c)
    for name, values in (("contractions", c), ("stddevs", stddev)):
        if not (values > 0.0).all():
            check.fail(name, "> 0", float(values.min()))
    if not (s >= 0.0).all():
        check.fail("shifts", ">= 0", float(s.min()))
    check.non_negative(start_distance=start_distance)
    return _string_length(c, s, stddev, start_distance)


def _one_per_step(name: str, value: ArrayLike, steps: Array) -> Array:
    """Return an array with one number per step, from such an array or one number."""
    if np.ndim(value) == 0:
        value = np.full(steps.shape, value)
    return check.array(name, value, shape=steps.shape)


def _string_length(c: Array, s: Array, stddev: Array, start: float) -> float:
    """Return mu, the root of the sum of (dS)^2/dV over the taut string, rounded up.

    ``c``, ``s`` and ``stddev`` hold c_k, s_k and sqrt(v_k) of the steps k = 1..T.
    """
    from scipy.optimize import isotonic_regression

    products, powers = _suffix_products(c)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # All lengths are in units of the last noise. mu itself has no unit.
        unit = stddev[-1]
        rises = _in_units(unit, s, products[1:], powers[1:])  # dS
        rises[:1] += _in_units(unit, start, products[:1], powers[:1])
        widths = _in_units(unit, stddev, products[1:], powers[1:]) ** 2  # dV
        # Steps with a vanishing variance join the next step that has one. Their points
        # are right above the points before them, where the minorant does not touch. The
        # last step has the width 1, so there is a next one.
        noisy = np.flatnonzero(widths > 1e-200)
        rises = np.add.reduceat(rises, np.append(0, noisy[:-1] + 1))
        slopes = rises / widths[noisy]
        # A slope that underflows to 0 would leave its part of mu out.
        slopes[rises > 0.0] = np.maximum(slopes[rises > 0.0], check.MIN_NORMAL)
        sums = widths.sum(), rises.sum(), slopes.sum()  # the regression forms them
    if not np.isfinite(sums).all():
        remedy = "Use other units, or fewer steps."
        check.fail("steps", "of numbers within floating point", "larger ones", remedy)
    slopes = isotonic_regression(slopes, weights=widths[noisy]).x
    lengths = np.sqrt(widths[noisy]) * slopes
    if max(s.max(), start) > 0.0:  # no positive length underflows to 0
        lengths = np.maximum(lengths, check.MIN_NORMAL)
    longest = float(lengths.max())
    if longest == 0.0:
        return 0.0
    # Sums of T positive terms have a relative error of T roundings. There are a few of
    # them, and a constant number of other operations.
    rounding = 1.0 + (8.0 * len(c) + 96.0) * 2.0**-53
    return longest * math.sqrt(float(np.sum((lengths / longest) ** 2)) * rounding)


def _suffix_products(c: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return w_k, the product of c_i over i > k, for k = 0, ..., T.

    Mantissas and powers of two are separate arrays, because as doubles the products of
    many factors may underflow although other factors make up for it.
    """
    products, powers = np.frexp(np.append(1.0, c[::-1]))
    powers = np.cumsum(powers, dtype=np.int64)
    # Factors are mantissas in [1/2, 1), so products of 512 do not underflow.
    size = 512
    shift = 0  # power of two that earlier blocks have split off their products
    for first in range(0, len(products), size):
        block, end = products[first : first + size], first + size
        block[:], block_powers = np.frexp(np.cumprod(block))
        powers[first:end] += shift + block_powers
        shift += int(block_powers[-1])
        # The next block continues from the mantissa of this one's last product.
        products[end : end + 1] *= block[-1]
    return products[::-1], powers[::-1]


def _in_units(
    unit: float, values: ArrayLike, products: Array, powers: NDArray[np.int64]
) -> Array:
    """Return values times products, over a unit. Positive numbers do not underflow."""
    (mantissas, exponents), (mantissa, exponent) = np.frexp(values), np.frexp(unit)
    quotients = products * (mantissas / mantissa)
    scaled = np.ldexp(quotients, powers + exponents - exponent)
    return np.where(mantissas > 0.0, np.maximum(scaled, check.MIN_NORMAL), 0.0)
