r"""Mean powers of l_q norms of independent coordinates, by one-dimensional quadrature.

Coordinates have a density proportional to exp(-|y|^r). For r = 2 they are Gaussian with
variance 1/2. Let T = |y|^q, let S be the sum of d copies, and M(s) = E e^{-sT}. Then
for 0 < a < 2

    E S^a = 1/Gamma(2-a) int_0^inf s^{1-a} E[S^2 e^{-sS}] ds,
    E[S^2 e^{-sS}] = d M^{d-2} (M M'' + (d-1) M'^2).

In s = e^x and |y| = e^w both integrals are trapezoidal sums of analytic functions, and
M is a convolution on a common grid.
"""

import functools
import math

import numpy as np

from dpsample.core.arrays import Array

# Step of a trapezoidal sum times the rate, where the function is analytic in a strip of
# half-width pi/(2 rate). The relative error is exp(-pi^2/(rate step)) = 5e-15.
PER_RATE = 0.3
# Integrals are cut where the integrand has fallen by about e^{-40}.
REACH = 40.0
# Largest exponent for which the sum is computed, because its cost grows with the
# exponent. Beyond, the norm is bounded by the maximum times a factor close to 1.
LARGEST = 4096.0


def mean_norm_power(order: float, *, q: float, r: float, dim: int) -> float:
    """Return E ||y||_q^order for independent coordinates with density exp(-|y|^r).

    ``order`` is 1 or 2 and at most 2 q. The relative error is about 1e-11. Above q =
    4096 the value is an upper bound, too large by less than a factor of
    dim**(order/4096).
    """
    # Cases with closed forms come first. In one dimension all norms are |y|.
    if dim == 1:
        return _coordinate(order, r)
    if order == q:
        return dim * _coordinate(order, r)
    if q == 1.0:  # order 2
        return dim * _coordinate(2.0, r) + dim * (dim - 1) * _coordinate(1.0, r) ** 2
    if q == r:
        return math.exp(math.lgamma((dim + order) / r) - math.lgamma(dim / r))
    if q > LARGEST:
        largest = _largest_power(order, r, dim)
        return float(largest * (1.0 if math.isinf(q) else dim ** (order / q)))
    return _sum_power(order, q, r, dim)


def _coordinate(order: float, r: float) -> float:
    """Return E |y|^order of one coordinate."""
    return math.exp(_log_coordinate(order, r))


def _log_coordinate(order: float, r: float) -> float:
    """Return the logarithm of E |y|^order."""
    return math.lgamma((order + 1.0) / r) - math.lgamma(1.0 / r)


@functools.lru_cache(maxsize=1024)
def _largest_power(order: float, r: float, dim: int) -> float:
    """Return E max |y_i|^order, the integral of order e^{order w} P(max > e^w) dw."""
    from scipy.special import gammaincc

    # Away from the real line the power dim of the distribution function grows fast, so
    # the strip is narrower than its half-width for one coordinate.
    step = 0.25 * PER_RATE / r
    # P(max > e^w) < d exp(-e^{r w}), which is e^{-REACH} at the last w. The first one
    # is where e^{order w} = e^{-REACH}.
    last = math.log(REACH + math.log(dim)) / r
    w = np.arange(-REACH / order, last + step, step)
    tail = gammaincc(1.0 / r, np.exp(r * w))
    with np.errstate(divide="ignore"):
        above = -np.expm1(dim * np.log1p(-tail))
    return float(step * order * (np.exp(order * w) * above).sum())


@functools.lru_cache(maxsize=1024)
def _sum_power(order: float, q: float, r: float, dim: int) -> float:
    """Return E S^a with a = order/q < 2, where S is the sum of |y_i|^q."""
    a = order / q
    # Step of w. The step of x is q times this, so x + q w stays on a grid.
    step = PER_RATE / max(q, r)
    # At the last w the density exp(w - e^{r w}) of log |y| is about exp(-e^4).
    w = step * np.arange(-math.ceil(REACH / step), math.ceil(4.0 / r / step))
    weights = np.exp(w - np.exp(r * w))
    weights /= weights.sum()
    # For x far below -log E S the expectation is E S^2, so that terms are geometric in
    # x. Their sum is added at the end. For large x, M falls like s^{-1/q}, so terms
    # fall like exp(-(order + d) x/q), and are negligible beyond the last x.
    scale = math.log(dim) + _log_coordinate(q, r)  # log E S
    first = math.floor((-scale - REACH / max(2.0 - a, 1.1)) / (q * step))
    last = math.ceil((REACH + 5.0) / (order + dim) / step + 40.0 / (q * step))
    x = q * step * np.arange(first, last)
    # log(s T) = x + q w, on the common grid. Limits keep the exponentials finite. They
    # are above log 745, from which on e^{-sT} is 0 in doubles.
    shifted = q * step * np.arange(first, last + len(w) - 1) + q * w[0]
    with np.errstate(over="ignore", under="ignore"):
        decay = np.exp(-np.exp(np.minimum(shifted, 700.0)))
        tilted = np.exp(np.minimum(shifted, 50.0)) * decay
        twice = np.exp(np.minimum(shifted, 50.0)) * tilted
    # s^j E[T^j e^{-sT}] for j = 0, 1, 2.
    m0, m1, m2 = (_correlate(f, weights, q) for f in (decay, tilted, twice))
    with np.errstate(divide="ignore", under="ignore"):
        others = m0 ** (dim - 2) * np.exp(-a * x)
    # The integrand of the module, times ds/dx = s. It has s^{2-a} = s^2 s^{-a}.
    terms = others * dim * (m0 * m2 + (dim - 1) * m1**2)
    # sum_{k > 0} e^{-c k} = 1/(e^c - 1) with c = (2 - a) q step.
    total = terms.sum() + terms[0] / math.expm1((2.0 - a) * q * step)
    return float(q * step * total / math.gamma(2.0 - a))


def _correlate(values: Array, weights: Array, q: float) -> Array:
    """Return sums of values[k + j] weights[j]. All terms are >= 0.

    For small q, small sums are multiplied by large factors later, and a Fourier
    transform would lose their digits.
    """
    # Long grids belong to large q only, and there direct sums would take long.
    if q <= 16.0:
        return np.correlate(values, weights, "valid")
    size = 1 << (len(values) - 1).bit_length()
    product = np.fft.rfft(values, size) * np.conj(np.fft.rfft(weights, size))
    count = len(values) - len(weights) + 1
    return np.maximum(np.fft.irfft(product, size)[:count], 0.0)
