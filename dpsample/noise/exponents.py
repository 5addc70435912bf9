"""Powers with a real exponent; half-integer exponents by multiplication."""

from __future__ import annotations

import math

from dpsample._jit import kernel

MAX_PRODUCT = 32.0


def twice_exponent(r: float) -> int:
    """Return 2 r if `power` can multiply, that is for r = 1/2, 1, ... 32; else 0."""
    return int(2.0 * r) if r <= MAX_PRODUCT and 2.0 * r == math.floor(2.0 * r) else 0


@kernel
def power(y, r, twice):
    """Compute y**r for y >= 0, given ``twice_exponent(r)``."""
    if twice == 0:
        return y**r
    result = math.sqrt(y) if twice & 1 else 1.0
    count = twice >> 1
    while count > 0:
        if count & 1:
            result *= y
        y *= y
        count >>= 1
    return result
