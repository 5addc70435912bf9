"""Largest oscillation of one record's loss, in decimal arithmetic, rounded up.

The oscillation of a function on a set is the difference of its supremum and infimum.
The exponential mechanism's privacy follows from it (`PublicFacts.loss_range`), so a
value that is too small would be a false claim. Differences of losses lose all digits
of doubles where the margin's range is tiny or the response is huge. So losses are
evaluated with 60 digits more than such differences lose.

**Theorem.** Let phi(u, y) be convex in u. Let J be any interval of length at most W
inside [-U, U], with W <= 2U. For a fixed y the oscillation of phi on J is at most the
largest one of the two intervals [-U, W - U] and [U - W, U]. *Proof.* On J = [l, l + w]
a convex function is largest at an end. If at l, the oscillation is the supremum over
0 <= s <= w of phi(l) - phi(l + s). As slopes increase, no difference increases in l, so
it is largest at l = -U, and the supremum does not decrease in w. If at the other end,
the mirror image of this argument leads to [U - W, U]. QED

If phi is a function of u - y, then y shifts the interval by up to Y inside
[-U - Y, U + Y], and the same proof shows that y = Y and y = -Y are the worst.
"""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

# Rows may exceed their declared bound by a rounding error of 1e-12, and the margins'
# bounds are computed in doubles. Both are widened by more than that.
WIDENED = Decimal("1.000000000003")
# Relative rounding errors of the decimals are below 1e-50.
ROUND_UP = 1 + Decimal("1e-40")


def largest_oscillation(
    value: Callable[[Decimal, float], Decimal],
    *,
    margin_bound: float,
    width: float,
    response_bound: float,
) -> float:
    """Return the largest oscillation over all intervals of margins, rounded up.

    ``value`` is the loss phi(u, y) in the digits of the decimal context. It must be
    monotone in u, or least at u = y. So its minimum on an interval is at an end, or at
    the point that is nearest to y. ``margin_bound`` is U, ``width`` is W and
    ``response_bound`` is Y of the module's theorem, all finite. W is cut at 2U.
    """
    if min(margin_bound, width) <= 0.0:
        return 0.0
    with localcontext() as context:
        # A loss of width W among numbers of the size S loses log10(S/W) digits.
        size = Decimal(max(margin_bound, response_bound, 1.0))
        context.prec = 70 + max(0, size.adjusted() - Decimal(width).adjusted())
        reach = Decimal(margin_bound) * WIDENED
        length = min(Decimal(width) * WIDENED, 2 * reach)
        largest = Decimal(0)
        for y in (-response_bound, response_bound):
            for low in (-reach, reach - length):
                high = low + length
                least_at = min(max(Decimal(y), low), high)
                ends = [value(low, y), value(high, y)]
                minimum = min(*ends, value(least_at, y))
                largest = max(largest, max(ends) - minimum)
        return round_up(largest * ROUND_UP)


def round_up(number: Decimal) -> float:
    """Return the smallest double that is at least a decimal number, or infinity.

    Examples
    --------
    >>> tenth = Decimal("0.1")
    >>> round_up(tenth), Decimal(round_up(tenth)) >= tenth
    (0.1, True)
    """
    nearest = float(number)
    return nearest if nearest >= number else math.nextafter(nearest, math.inf)
