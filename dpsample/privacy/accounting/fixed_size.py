r"""Gaussian steps on batches of a fixed size, drawn without replacement.

Every batch is a uniformly random set of m of n records, and a step adds Gaussian noise
to the sum of its vectors. When a record is replaced, the sum moves by at most 2 C, with
C the bound of one record's vector. Let z be the noise's standard deviation over 2 C,
q = m / n, and eps(a) = a / (2 z^2) the Renyi divergence of order a of one step on all
records. For integers a >= 2 the divergence D_a of a step on a batch satisfies (Wang,
Balle and Kasiviswanathan 2019, arXiv:1808.00087, Theorem 27)

.. math:: e^{(a-1) D_a} \le 1 + \sum_{j=2}^a q^j \binom aj s_j,

s_2 = min(4 (e^{eps(2)} - 1), 2 e^{eps(2)}) and, for j > 2,

.. math:: s_j = \min\Bigl(4 \sqrt{B_{2 \lfloor j/2 \rfloor} B_{2 \lceil j/2 \rceil}},
    2 e^{(j-1) eps(j)}\Bigr), \quad
    B_l = \sum_{i=0}^l (-1)^{l-i} \binom li e^{i (i-1) / (2 z^2)}.

The logarithm of the left side is convex in a, so that a chord bounds it between two
integers (their Corollary 10). `renyi` turns divergences of all steps into epsilon.

**Rounding.** B_l is the l-th central moment of a likelihood ratio. Its terms cancel, so
that doubles would lose all digits for large z. It is computed with p decimal digits.
The relative error of term i is below (2 + 1/z^2) (i + 2)^2 units of 10^(1-p): the
argument of the exponential counts, and a few operations for each factor. B_l is raised
by the error of all terms. If that exceeds a part 10^-12 of B_l, p is doubled. All other
sums have positive terms. Logarithms of up to 1024 terms have relative errors below
1e-12, and `ROUND_UP` exceeds these.
"""

import decimal
import functools
import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import partial

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy.accounting.renyi import log_factor
from dpsample.privacy.curves.gaussian import gaussian_epsilon

# Orders at which the divergence is bounded: tenths up to 11, and integers.
ORDERS = (*(1.0 + i / 10.0 for i in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)
# Maximum l of B_l. Larger orders use 2 e^{(j-1) eps(j)} alone.
MAX_MOMENT = 256
# Relative error of B_l that is accepted.
MAX_ERROR = Decimal(10) ** -12
ROUND_UP = 1.0 + 1e-10


@check.unwrap_numpy
def fixed_size_epsilon(
    *,
    delta: float,
    num_records: int,
    batch_size: int,
    noise_multiplier: float,
    num_steps: int,
) -> float:
    """Return epsilon of Gaussian steps on batches of fixed size, without replacement.

    Wang, Balle and Kasiviswanathan (2019), Theorem 27, under "replace_one". The bound
    is loose. Poisson samples need about half of the noise.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    num_records, batch_size : int
        Sizes, 1 <= batch_size <= num_records.
    noise_multiplier : float
        Standard deviation of the noise on a batch's sum over the bound C of one
        record's vector, > 0.
    num_steps : int
        Number of batches, drawn independently, >= 1.

    Returns
    -------
    float
        epsilon >= 0, an upper bound.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    The released batch sums are (epsilon, delta)-DP under "replace_one".

    Examples
    --------
    >>> epsilon = fixed_size_epsilon(
    ...     delta=1e-5, num_records=100, batch_size=100, noise_multiplier=8.0,
    ...     num_steps=4,
    ... )
    >>> print(f"{epsilon:.3f}")
    1.993
    """
    check.open_interval(0.0, 1.0, delta=delta)
    check.integer(
        1, maximum=check.MAX_EXACT_INT, num_records=num_records, batch_size=batch_size
    )
    check.integer(1, num_steps=num_steps)
    check.positive(noise_multiplier=noise_multiplier)
    if batch_size > num_records:
        check.fail("batch_size", "<= num_records", check.describe(batch_size))
    # Without amplification by sampling: neighbors move a sum by 2 C in each step.
    unsampled = gaussian_epsilon(delta, 2.0 * math.sqrt(num_steps) / noise_multiplier)
    # Outside this range exponents leave the doubles, or B_l takes thousands of digits.
    if batch_size == num_records or not 1e-6 <= noise_multiplier <= 1e6:
        return unsampled
    # The rate is raised by more than the rounding error of the quotient.
    log_rate = math.log(batch_size / num_records) + 1e-15
    noise = 0.5 * noise_multiplier  # z
    log_moment = functools.cache(partial(_log_moment, log_rate, noise))
    epsilons = [_epsilon_at(a, log_moment, num_steps, delta) for a in ORDERS]
    # The other bound reveals which records were drawn. That can only add to epsilon.
    return min(unsampled, *epsilons)


def _epsilon_at(
    order: float, log_moment: Callable[[int], float], num_steps: int, delta: float
) -> float:
    """Return epsilon at one order, by the chord between its neighboring integers."""
    low, high = math.floor(order), math.ceil(order)
    share, t = order - low, order - 1.0
    chord = (1.0 - share) * log_moment(low) + share * log_moment(high)
    divergence = num_steps * chord / t * ROUND_UP
    # The total variation is at most sqrt(1 - e^{-D}), because D bounds the relative
    # entropy. If that is below delta, epsilon is 0.
    if delta * delta + math.expm1(-divergence) > 0.0:
        return 0.0
    epsilon = divergence + (log_factor(t) - math.log(delta)) / t
    return max(epsilon, 0.0) * (1.0 + 1e-9)


def _log_moment(log_rate: float, noise: float, order: int) -> float:
    """Return a bound of (a - 1) D_a of one step at an integer order a >= 1."""
    from scipy.special import gammaln, logsumexp

    if order == 1:
        return 0.0
    j = np.arange(2, order + 1)
    # log s_j, first without the central moments
    terms = math.log(2.0) + j * (j - 1.0) / (2.0 * noise * noise)
    if order <= MAX_MOMENT:
        logs = _log_central_moments(noise)  # logarithms of B_0, B_2, B_4, ...
        pairs = math.log(4.0) + 0.5 * (logs[j // 2] + logs[(j + 1) // 2])
        terms = np.minimum(terms, pairs)
    else:
        second = math.log(4.0) + _log_central_moments(noise)[1]
        terms[0] = min(terms[0], second)
    log_binomials = gammaln(order + 1.0) - gammaln(j + 1.0) - gammaln(order - j + 1.0)
    return float(np.logaddexp(0.0, logsumexp(terms + j * log_rate + log_binomials)))


@functools.lru_cache(maxsize=64)
def _log_central_moments(noise: float) -> Array:
    """Return log B_l, rounded up, for l = 0, 2, 4, ..., `MAX_MOMENT`."""
    digits, bounds = 100, None
    while bounds is None:
        with localcontext(_context(digits)):
            bounds = _central_moments(Decimal(noise), digits)
        digits *= 2
    # Logarithms of thousands of digits would take minutes.
    short = _context(40)
    return np.array([float(short.ln(short.plus(bound))) for bound in bounds])


def _context(digits: int) -> Context:
    """Return decimal arithmetic with the widest range of exponents."""
    return Context(digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _central_moments(noise: Decimal, digits: int) -> list[Decimal] | None:
    """Return bounds of B_0, B_2, ..., or None if there are too few digits."""
    exponent = 1 / (noise * noise)
    growth, power, powers = exponent.exp(), Decimal(1), [Decimal(1)]
    for _ in range(MAX_MOMENT):
        # e^{(i + 1) i / (2 z^2)} is e^{i / z^2} times that of i - 1.
        powers.append(powers[-1] * power)
        power *= growth
    unit = (2 + exponent) * Decimal(10) ** (1 - digits)
    bounds = []
    for order in range(0, MAX_MOMENT + 1, 2):
        terms = [math.comb(order, i) * powers[i] for i in range(order + 1)]
        total = sum(terms[::2]) - sum(terms[1::2])
        error = unit * (order + 2) ** 2 * sum(terms)
        if error > MAX_ERROR * total:
            return None
        bounds.append(total + error)
    return bounds
