# mypy: allow-untyped-defs
"""Exponential, softplus, log Phi and log P(a, x) in kernels, without cancellation.

Phi is the normal distribution function, P the regularized incomplete gamma function.

`vexp` and `softplus_sigmoid` have no branches and no library calls, so that a loop over
an array compiles to vector instructions. The exponential is 2**k e**r with r in
[-log(2)/2, log(2)/2], a polynomial of degree 11 in r and k written into the exponent
bits. The logarithm is log(1 + z) = 2 artanh(z / (2 + z)), a polynomial of degree 20 in
z / (2 + z). Both come from Chebyshev interpolation at 60 digits; their own error is
below 2e-17.

Measured against mpmath: relative error below 1e-15 on |x| <= 700. Below -708 they
return 0 instead of a subnormal number. `log_ndtr` has relative error below 3e-13 on
[-1e5, 37] (1e-14 for x <= 5) and is -0.0 above 38.5, where 1 - Phi(x) underflows.

The regularized incomplete gamma function P stays in log space: P(a, x) itself
underflows when x is far below a. With t = x - a and M(u) = log(1 + u) - u the common
factor is

    D(a, x) = x**a e**-x / Gamma(a + 1) = exp(a M(t / a) - w(a)) / sqrt(2 pi a),

w(a) the remainder of Stirling's formula, which does not cancel for x near a.
P = D * (power series) for x < a + 1, Q = 1 - P = D * (continued fraction) above [1].
Measured for a in [0.5, 1e4], x in [1e-300, 1e6]: relative error of `log_gammainc`
below 5e-13.

References
----------
.. [1] NIST Digital Library of Mathematical Functions, 8.7.1, 8.9.2 and 5.11.1.
"""

import math

import numpy as np

from dpsample.core.jit import kernel

HALF_LOG_2PI = 0.9189385332046727  # log(2 pi) / 2
_INVERSE_SQRT2 = 0.7071067811865476
_LOG2_E = 1.4426950408889634
# log(2) in two parts; the first has 21 trailing zero bits, so k * _LN2_HIGH is exact.
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
# Adding 1.5 * 2**52 rounds to an integer and leaves it in the low mantissa bits.
_ROUND = 6755399441055744.0
# Logarithms of about the smallest normal number and of the largest one.
_LOWEST = -708.0
_HIGHEST = 709.782712893384
# Normal tails above this bound are proposed from an exponential. More than 98 % of the
# proposals are accepted there, and the quantile would need more digits.
FAR = 10.0
# Maximum number of terms of the series and the fraction for the incomplete gamma
# function. They need about sqrt(a) terms.
_MAX_TERMS = 100_000

# 'reassoc' would let the compiler remove _ROUND, 'nnan' the tests for NaN. A caller may
# use 'reassoc' itself, because a function with fastmath is compiled separately.
_EXACT = {"contract", "nsz"}


@kernel(fastmath=_EXACT)
def vexp(x):
    """Return e**x. It is 0 below -708, infinity above 709.78, and NaN for NaN."""
    y = _LOWEST if x < _LOWEST else x
    y = _HIGHEST if y > _HIGHEST else y
    shifted = np.float64(y * _LOG2_E + _ROUND)
    k = shifted - _ROUND
    r = (y - k * _LN2_HIGH) - k * _LN2_LOW
    s = 2.5100375832561234e-08
    s = s * r + 2.7620075879983367e-07
    s = s * r + 2.7557268480310024e-06
    s = s * r + 2.4801521322368692e-05
    s = s * r + 1.9841269863040545e-04
    s = s * r + 1.3888888917196719e-03
    s = s * r + 8.3333333333300650e-03
    s = s * r + 4.1666666666624164e-02
    s = s * r + 0.16666666666666669
    s = s * r + 0.5000000000000001
    p = r * r * s + r + 1.0
    # One power of two is applied apart: 2**1024 itself is not a double.
    bits = np.int64((shifted.view(np.int64) + np.int64(1022)) << np.int64(52))
    value = p * bits.view(np.float64) * 2.0
    value = 0.0 if x < _LOWEST else value
    return np.inf if x > _HIGHEST else value


@kernel(fastmath=_EXACT)
def _half_log1p_series(f):
    """Return artanh(f) for f in [0, 1/3]."""
    s = f * f
    p = 0.07815288900461426
    p = p * s + 0.03746071897775383
    p = p * s + 0.05422589197440007
    p = p * s + 0.05867139530651599
    p = p * s + 0.06667589315724629
    p = p * s + 0.07692271982430275
    p = p * s + 0.09090909948981357
    p = p * s + 0.11111111099118386
    p = p * s + 0.1428571428580005
    p = p * s + 0.19999999999999762
    p = p * s + 0.3333333333333333
    return f + f * s * p


@kernel(fastmath=_EXACT)
def softplus_sigmoid(x):
    """Return log(1 + e**x) and its derivative 1 / (1 + e**-x).

    Both need one exponential and one division.
    """
    z = vexp(-abs(x))
    one, two = 1.0 + z, 2.0 + z
    inverse = 1.0 / (one * two)
    positive = x if x > 0.0 else 0.0
    top = z if x < 0.0 else 1.0
    value = positive + 2.0 * _half_log1p_series(z * one * inverse)
    return value, top * two * inverse


@kernel
def softplus(x):
    """Return log(1 + e**x) for each number of a vector, vectorized.

    Energies of a `dpsample.Density` may call it. A loop over NumPy's ``exp`` and
    ``log1p`` takes about three times as long, because compiled code calls them for one
    number after another.

    Parameters
    ----------
    x : array of float64, shape (n,)
        Any numbers.

    Returns
    -------
    array, shape (n,)
        The values.

    Notes
    -----
    **Guarantee.** Relative error below 1e-15 for x >= -700, as measured. Below -708 the
    value is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.losses import softplus
    >>> softplus(np.array([-1000.0, 0.0, 1000.0])).round(4).tolist()
    [0.0, 0.6931, 1000.0]
    """
    values = np.empty(len(x))
    for i in range(len(x)):
        values[i] = softplus_sigmoid(x[i])[0]
    return values


@kernel
def softplus_and_sigmoid(x):
    """Return log(1 + e**x) and its derivative for each number of a vector.

    The derivative is the sigmoid 1 / (1 + e**-x). See `softplus`, which takes as long.

    Parameters
    ----------
    x : array of float64, shape (n,)
        Any numbers.

    Returns
    -------
    values : array, shape (n,)
        Values log(1 + e**x).
    slopes : array, shape (n,)
        Values 1 / (1 + e**-x).

    Notes
    -----
    **Guarantee.** Relative errors below 1e-15 for x >= -700, as measured. Below -708
    both are 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.losses import softplus_and_sigmoid
    >>> values, slopes = softplus_and_sigmoid(np.array([0.0, 2.0]))
    >>> slopes.round(4).tolist()
    [0.5, 0.8808]
    """
    values, slopes = np.empty(len(x)), np.empty(len(x))
    for i in range(len(x)):
        values[i], slopes[i] = softplus_sigmoid(x[i])
    return values, slopes


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def log_ndtr(x):
    """Return log Phi(x)."""
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * _INVERSE_SQRT2))
    if x > -20.0:
        return math.log(0.5 * math.erfc(-x * _INVERSE_SQRT2))
    if x != x:
        return x
    # Asymptotic series of the Mills ratio; its ninth term is below 3e-16 at -20.
    z = 1.0 / (x * x)
    term, tail = 1.0, 0.0
    for n in range(1, 10):
        term *= -(2.0 * n - 1.0) * z
        tail += term
    return -0.5 * x * x - math.log(-x) - HALF_LOG_2PI + math.log1p(tail)


@kernel(counts_references=False)
def log_quantile(y):
    """Return x with log Phi(x) = y < 0, by Halley's method."""
    # If Phi(x) is close to 1, its logarithm has lost the digits of the upper tail.
    if y > -0.5:
        return -log_lower_quantile(np.log(-np.expm1(y)))
    return log_lower_quantile(y)


@kernel(counts_references=False)
def log_lower_quantile(y):
    """Return x with log Phi(x) = y <= -1/2."""
    if not y > -np.inf:
        return y
    x = 1.9 + 1.55 * y + 0.13 * y * y if y > -3.0 else 0.0
    if y <= -3.0:  # Phi(x) is nearly phi(x) / -x
        square = -2.0 * y - np.log(-2.0 * y) - 2.0 * HALF_LOG_2PI
        x = -np.sqrt(max(square, 1.0))
    for _ in range(20):
        value = log_ndtr(x)
        hazard = np.exp(-0.5 * x * x - HALF_LOG_2PI - value)
        gap = value - y
        step = gap / (hazard + 0.5 * gap * (x + hazard))
        x -= step
        # Convergence is cubic, so the next step would be below rounding errors.
        if not abs(step) > 1e-5 * (1.0 + abs(x)):
            break
    return x


@kernel
def tail_excess(low, rng, above):
    """Fill above with Z - low for standard normals Z above low, to full accuracy.

    Random numbers are used in the order of the arrays. Rejected proposals are replaced
    after all others.
    """
    num_left, last, log_mass = 0, np.nan, 0.0
    pending = np.empty(above.shape[0], np.int64)  # indices that need a proposal
    for i in range(above.shape[0]):
        if low[i] != last:
            last, log_mass = low[i], log_ndtr(-low[i])
        # The tail probability of Z is uniform between 0 and that of low.
        log_tail = log_mass - rng.standard_exponential()
        if low[i] > FAR:
            pending[num_left] = i
            num_left += 1
        else:
            above[i] = -log_quantile(log_tail) - low[i]
            above[i] = above[i] if above[i] > 0.0 else 0.0
    # Proposals t from Exp(low) are accepted with probability exp(-t^2 / 2).
    while num_left > 0:
        for j in range(num_left):
            above[pending[j]] = rng.standard_exponential() / low[pending[j]]
        num_rejected = 0
        for j in range(num_left):
            t = above[pending[j]]
            if rng.standard_exponential() < 0.5 * t * t:
                pending[num_rejected] = pending[j]
                num_rejected += 1
        num_left = num_rejected


@kernel(counts_references=False)
def _log1p_minus(u):
    """Return log(1 + u) - u without cancellation near 0."""
    if abs(u) > 0.4:
        return math.log1p(u) - u
    # log(1 + u) = 2 artanh(f), f = u / (2 + u), and 2 f - u = -u f. The sum is of the
    # terms of artanh from f^3/3 on.
    f = u / (2.0 + u)
    square = f * f
    power = f * square
    total = 0.0
    for n in range(1, 16):
        total += power / (2.0 * n + 1.0)
        power *= square
    return 2.0 * total - u * f


@kernel(counts_references=False)
def _stirling_remainder(a):
    """Return w(a) of Gamma(a + 1) = sqrt(2 pi a) (a / e)**a exp(w(a)), a >= 10."""
    z = 1.0 / (a * a)
    s = 1.0 / 156.0
    s = -691.0 / 360360.0 + z * s
    s = 1.0 / 1188.0 + z * s
    s = -1.0 / 1680.0 + z * s
    s = 1.0 / 1260.0 + z * s
    s = -1.0 / 360.0 + z * s
    return (1.0 / 12.0 + z * s) / a


@kernel(counts_references=False)
def log_gamma_factor(a, x):
    """Return log D(a, x) = a log x - x - log Gamma(a + 1)."""
    # From 10 on the remainder of Stirling's formula has full accuracy.
    if a < 10.0:
        return a * math.log(x) - x - math.lgamma(a + 1.0)
    if x < 0.5 * a:
        center = a * (math.log(x) - math.log(a) + 1.0) - x
    else:
        center = a * _log1p_minus((x - a) / a)
    return center - _stirling_remainder(a) - HALF_LOG_2PI - 0.5 * math.log(a)


@kernel(counts_references=False)
def _log_lower_series(a, x):
    """Return log P(a, x) by the power series, for x < a + 1."""
    term, total = 1.0, 1.0
    for n in range(1, _MAX_TERMS):
        term *= x / (a + n)
        total += term
        if not term > 1e-17 * total:
            break
    return log_gamma_factor(a, x) + math.log(total)


@kernel(counts_references=False)
def _log_upper_fraction(a, x):
    """Return log Q(a, x) by the continued fraction, for x >= a + 1 (Lentz)."""
    # Lentz's method. c is infinite at first, for which a huge number stands.
    b = x + 1.0 - a
    c = 1e300
    d = 1.0 / b
    h = d
    for n in range(1, _MAX_TERMS):
        numerator = -n * (n - a)
        b += 2.0
        d = 1.0 / (numerator * d + b)
        c = b + numerator / c
        factor = c * d
        h *= factor
        if not abs(factor - 1.0) > 1e-16:
            break
    return log_gamma_factor(a, x) + math.log(a) + math.log(h)


@kernel(counts_references=False)
def log_gammainc(a, x):
    """Return log P(a, x), P the distribution function of Gamma(a, 1); -inf at x = 0."""
    if not (a > 0.0 and x >= 0.0):
        return np.nan
    if x == 0.0:
        return -np.inf
    if x < a + 1.0:
        return _log_lower_series(a, x)
    if x == np.inf:
        return 0.0
    return math.log1p(-math.exp(_log_upper_fraction(a, x)))
