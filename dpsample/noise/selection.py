# mypy: allow-untyped-defs
r"""Selection: exact draws of the exponential mechanism, over scores on a public grid.

One of 2 d candidates, the two signs of d values v_j, is drawn with probability
proportional to exp(h s m_j), s = -1 or 1, where h, a public power of two, is the size
of a cell and m_j the number of cells of v_j, a whole number.

**Rounding costs nothing.** Let neighbors' values, as they are computed, be apart by at
most D, and let a D <= k, k even and 2 k h <= epsilon. Then m = rint(a v), cut off at
+-2^51, moves by at most k cells: rint is monotone and rint(x + k) = rint(x) + k for
even k, and the cut moves no two numbers apart. So no log weight moves by more than k h,
nor does that of their sum: the draw is epsilon-private, and its log ratios stay inside
an interval of length epsilon (McSherry and Talwar 2007, Theorem 6; Cesar and Rogers
2021). k is from 2^24 to 2^25, of which rounding to an even number takes at most 2:
epsilon loses a part below 2^-23. The product a v is rounded once, which the caller
counts among the errors of v. NaN counts as 0.

**Exact draws.** A candidate is proposed uniformly: by some bits of a word, another
one if they name none. It is kept with probability e^-x, x = (max m - s m_j) h, that
is if an exponential variate E is at least x. All these numbers are exact: whole numbers
below 2^53 times a power of two. x is a multiple of 2^-97 and the digits of E are cut
off there, so that E >= x if and only if this holds for its digits. What is kept has the
law of the mechanism (von Neumann 1951), but for what the digits' own law is off
(`numerics.exact`): three comparisons of uniforms in the mean, each wrong with
probability below 2^-122, for at most 2 d proposals in the mean. For d < 2^38 the law is
exact but with probability `TOTAL_VARIATION`.
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.noise.grid import REACH
from dpsample.numerics.exact import exact_exponential, word

TOTAL_VARIATION = 2.0**-80
# More than the rounding errors of the few products of a number of cells per unit.
BELOW = 1.0 - 16.0 * 2.0**-53
_FINENESS = 26
_LEAST_CELL = 2.0**-97  # digits of an exponential


def selection_grid(epsilon: float, sensitivity: float) -> tuple[float, float]:
    """Cells in a unit of the values, and the size of a cell; see the module's proof.

    Parameters
    ----------
    epsilon : float
        Of one selection, finite and > 0.
    sensitivity : float
        Bound > 0 of what one record moves a value, rounding errors included.

    Returns
    -------
    tuple of float
        a and h. Their product, the inverse temperature, is epsilon / (2 sensitivity)
        but for a part below 2^-22. It is 0 where epsilon is below the digits of an
        exponential: then all are chosen alike.

    Examples
    --------
    >>> per_unit, cell = selection_grid(1.0, 0.5)
    >>> cell == 2.0**-25, round(per_unit * cell, 9)
    (True, 1.0)
    """
    exponent = math.frexp(epsilon)[1] - _FINENESS
    cell = max(math.ldexp(1.0, exponent), _LEAST_CELL)
    cells = 2.0 * math.floor(0.25 * epsilon / cell)
    return cells / sensitivity * BELOW, cell


@kernel
def _exceeds(rng, x):
    """Whether a standard exponential is at least x, a multiple of 2^-97."""
    if x == 0.0:
        return True
    high, low = exact_exponential(rng)
    return low >= x - high  # exact where they are close


@kernel
def signed_choice(rng, values, per_unit, cell):
    """Choose a value and a sign; return its index and the sign.

    ``values`` are replaced by their numbers of cells.
    """
    top, mask = 0.0, 0
    while mask < len(values) - 1:
        mask = 2 * mask + 1
    for j in range(len(values)):
        cells = values[j] * per_unit
        cells = cells if cells == cells else 0.0
        values[j] = np.rint(min(max(cells, -REACH), REACH))
        top = max(top, abs(values[j]))
    while True:
        drawn = word(rng)
        j = int(drawn >> np.uint64(1)) & mask
        sign = 1.0 - 2.0 * np.float64(drawn & np.uint64(1))
        if j < len(values) and _exceeds(rng, (top - sign * values[j]) * cell):
            return j, sign
