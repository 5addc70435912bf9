# mypy: allow-untyped-defs
r"""Exact normal and exponential random numbers, by comparisons of random words.

No library function is called. A number is drawn bit by bit from a distribution on the
reals, not from one on the doubles near it. The two doubles that are returned, high +
low, are its digits, cut off at 2^-97 for exponentials and 2^-102 for normals.

**Exponential** (von Neumann [1]_). Uniforms U_1 > U_2 > ... > U_n with U_n <= U_{n+1}
have length n with P(n >= m | U_1 = u) = u^(m-1)/(m-1)!, so that n is odd with
probability e^-u. Given that, U_1 has the density of the fraction of an exponential.
Otherwise 1 is added to the integer part, and a new run begins. The probability of that
is 1/e.

**Normal** (Forsythe [2]_, Ahrens and Dieter [3]_). |z| is proposed from steps over
[j/32, (j+1)/32), j < 256, of height exp(-(j/32)^2/2), and over z >= 8 from the density
proportional to e^(-8 z). The point z = (j + u)/32 is accepted with probability e^-t,

    t = z^2/2 - (j/32)^2/2 = u (2 j + u) / 2048 < 1/4,

by the same kind of run: t/1, t/2, t/3, ... are compared with uniforms until one fails,
and the number that held is even with probability e^-t. Beyond 8, e^(-(z-8)^2/2) is the
probability that an exponential exceeds (z-8)^2/2. The step is found by Walker's alias
method [4]_, whose thresholds are irrational and stored to 119 bits.

Accuracy. Uniforms are compared by their first 64 bits and, if these agree, by 64 more.
Four events make a number wrong, with these probabilities:

* The second words agree as well, or one is drawn twice: 2^-124. Each is 2^-128 in a
  comparison, and an exponential takes fewer than three comparisons on average.
* A threshold is rounded by up to 2^-119 of its column: 2^-118, because fewer than two
  columns are drawn on average.
* t and its uniform are too close for pairs of doubles, whose error is below 2^-95, so
  that an interval of length 2^-94 is in doubt: 2^-93, because fewer than two
  comparisons are made on average.
* A number is in the tail, which has mass 2^-49, and is compared by single doubles with
  an error below 2^-43: 2^-92.

By the union bound a number has the exact distribution, except with probability
`TOTAL_VARIATION` = 2^-90.

References
----------
.. [1] J. von Neumann, Various techniques used in connection with random digits, 1951.
.. [2] G. E. Forsythe, Von Neumann's comparison method for random sampling from the
   normal and other distributions, Mathematics of Computation 26, 1972.
.. [3] J. H. Ahrens and U. Dieter, Extensions of Forsythe's method for random sampling
   from the normal distribution, Mathematics of Computation 27, 1973.
.. [4] A. J. Walker, An efficient method for generating discrete random variables with
   general distributions, ACM TOMS 3, 1977.
   C. F. F. Karney, Sampling exactly from the normal distribution, ACM TOMS 42, 2016,
   has another exact method, of some 18 words a number where this takes 3.1.
"""

import numpy as np
from numba.np.random.generator_core import next_uint64

from dpsample.core.jit import kernel

# Bound of the distance between the distribution of a number and the exact one.
TOTAL_VARIATION = 2.0**-90
# Number of steps below 8, 32 in each unit. Step 256 stands for the tail.
NUM_STEPS = 256
_STEPS_PER_UNIT = 32.0
# Number of columns of the alias table. Nine bits of a word choose the column, and the
# other 55 are a fraction of its height.
_COLUMNS = 512
_FRACTION_BITS = 55
# Number of bits of the integers from which the table is computed.
_BITS = 256
# Units of the first and the second double of a fraction.
_UNIT = 2.0**-44
_LOW_UNIT = 2.0**-97
# The first 30 bits of a word.
_FIRST_BITS = np.uint64(2**64 - 2**34)
# 2^27 + 1, with which Dekker's product splits a double into halves of 26 bits.
_SPLITTER = 134217729.0


def _alias_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return thresholds of the columns, their next 64 bits, and the aliases.

    Integers have 256 bits. The heights exp(-j^2/2048) are computed by the recurrence
    h <- h r, r <- r q^2 from q = exp(-1/2048). Each product is cut off at 2^-256, and
    the total error is below 2^-246. The tail has 32 times the integral of
    exp(-32 - 8 (z - 8)) as its weight, that is 4 exp(-32).
    """
    one = 1 << _BITS
    root, term, k = 0, one, 0  # the series of exp(-1/2048)
    while term:
        root += term if k % 2 == 0 else -term
        k += 1
        term = term // (2048 * k)
    heights, height, ratio = [], one, root
    for _ in range(NUM_STEPS + 1):
        heights.append(height)
        height = height * ratio >> _BITS
        ratio = ratio * root * root >> 2 * _BITS
    heights[-1] *= 4
    shares = [h * _COLUMNS for h in heights] + [0] * (_COLUMNS - len(heights))
    full = sum(heights)  # the height of one column
    limits, aliases = [full] * _COLUMNS, list(range(_COLUMNS))
    small = [j for j, share in enumerate(shares) if share < full]
    large = [j for j, share in enumerate(shares) if share >= full]
    while small and large:
        j, k = small.pop(), large[-1]
        limits[j], aliases[j] = shares[j], k
        shares[k] -= full - shares[j]
        if shares[k] < full:
            small.append(large.pop())
    # Thresholds are in units of 2^-119 of a column. That of a full column is just below
    # its end, which makes no difference, because the column is its own alias.
    cut = [(limit << 119) // full for limit in limits]
    cut = [min(c, (1 << 119) - 1) for c in cut]
    first = [(j << _FRACTION_BITS) + (c >> 64) for j, c in enumerate(cut)]
    low = [c & (2**64 - 1) for c in cut]
    return (
        np.array(first, np.uint64),
        np.array(low, np.uint64),
        np.array(aliases, np.int64),
    )


_LIMITS, _LOW_LIMITS, _ALIASES = _alias_table()

# Kernels of this file allocate nothing and return no array, so none of them needs to
# count references.


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def random_word(rng):
    """Draw 64 bits."""
    return np.uint64(next_uint64(rng.bit_generator))


@kernel(counts_references=False)
def _high(first):
    """Return the first 44 bits of a fraction as a double.

    They leave 9 of a double's 53 bits for an integer part below 512, or for a factor.
    """
    return np.float64(first >> np.uint64(20)) * _UNIT


@kernel(counts_references=False)
def _low(first, second):
    """Return the next 53 bits of a fraction as a double."""
    rest = ((first & np.uint64(0xFFFFF)) << np.uint64(33)) | (second >> np.uint64(31))
    return np.float64(rest) * _LOW_UNIT


@kernel(counts_references=False)
def two_sum(a, b):
    """Compute a + b as a rounded sum and its error, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel(counts_references=False)
def two_product(a, b):
    """Compute a b as a rounded product and its error, exactly (Dekker 1971).

    It must not overflow: |a|, |b| < 2^995, and a b = 0 or |a b| > 2^-969.
    """
    product = a * b
    cut = _SPLITTER * a
    a_high = cut - (cut - a)
    cut = _SPLITTER * b
    b_high = cut - (cut - b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low) + a_low * b_high
    return product, error + a_low * b_low


@kernel(counts_references=False)
def _run_is_odd(rng, first, second):
    """Return whether the length of a decreasing run of uniforms is odd.

    The first uniform begins with these 128 bits.
    """
    length, last = 1, first
    while True:
        other = random_word(rng)
        is_below = other < last
        if other == last:  # the next 64 bits of both are compared
            low = second if length == 1 else random_word(rng)
            is_below = random_word(rng) < low
        if not is_below:
            return length & 1 == 1
        length, last = length + 1, other


@kernel(counts_references=False)
def exact_exponential(rng):
    """Draw a standard exponential, whose digits are two doubles, high + low.

    ``high`` is a multiple of 2^-44 and 0 <= low < 2^-44, a multiple of 2^-97.
    """
    whole = 0.0
    while True:
        first, second = random_word(rng), random_word(rng)
        if _run_is_odd(rng, first, second):
            return whole + _high(first), _low(first, second)
        whole += 1.0


@kernel(counts_references=False)
def _is_accepted(rng, j, first, second):
    """Return whether (j + u)/32 is accepted, which has probability e^-t."""
    # Bits 1 to 30 of the second word are not part of u. They begin the first uniform.
    words = (second << np.uint64(33)) & _FIRST_BITS
    if words >= np.uint64(2 * j + 1) << np.uint64(53):  # at least the largest t
        return True
    words |= random_word(rng) >> np.uint64(30)
    high, low = _high(first), _low(first, second)
    edge = 2.0 * j + high  # exact: 9 + 44 bits
    t, rest = two_product(high, edge)
    t, rest = t / 2048.0, (rest + low * (edge + high)) / 2048.0
    n = 1.0
    while True:
        # The uniform, of 44 + 53 bits, is compared with t/n. The product of n and its
        # first 44 bits is exact for n < 2^9, and so is its difference from a close t.
        # The product with the next 53 bits is rounded, far behind the first double.
        gap = n * _high(words) - t
        if gap + (n * _low(words, random_word(rng)) - rest) >= 0.0:
            return n % 2.0 == 1.0  # n - 1 comparisons held, an even number
        n, words = n + 1.0, random_word(rng)


@kernel(counts_references=False)
def _tail(rng):
    """Return the digits of a normal above 8."""
    while True:
        high, low = exact_exponential(rng)
        excess = high / 8.0
        if exact_exponential(rng)[0] > 0.5 * excess * excess:
            return 8.0 + excess, low / 8.0


@kernel(counts_references=False)
def exact_normal(rng):
    """Draw a standard normal, whose digits are two doubles, high + low.

    Both have the same sign. ``high`` is a multiple of 2^-49, and ``low`` is one of
    2^-102 with |low| < 2^-47.
    """
    while True:
        words = random_word(rng)
        j = np.int64(words >> np.uint64(_FRACTION_BITS))
        if words > _LIMITS[j] or (
            words == _LIMITS[j] and random_word(rng) >= _LOW_LIMITS[j]
        ):
            j = _ALIASES[j]
        first, second = random_word(rng), random_word(rng)
        sign = 1.0 - 2.0 * np.float64(second & np.uint64(1))
        if j == NUM_STEPS:
            high, low = _tail(rng)
            return sign * high, sign * low
        if _is_accepted(rng, j, first, second):
            high, low = (
                (j + _high(first)) / _STEPS_PER_UNIT,
                _low(first, second) / _STEPS_PER_UNIT,
            )
            return sign * high, sign * low
