# mypy: allow-untyped-defs
"""Powers with a real exponent; half-integer exponents by multiplication.

Vectors whose direction follows the cone measure of an l_r ball.

Coordinates with density proportional to exp(-|y|^r / r), divided by their l_r norm,
are independent of that norm and follow the cone measure [1]_. The coordinates come from
the layers of `cone_table`, and their powers serve the norm as well.

References
----------
.. [1] G. Schechtman and J. Zinn, On the volume of the intersection of two L_p^n balls,
   Proceedings of the AMS 110, 1990.
"""

from __future__ import annotations

import math

import numpy as np

from dpsample.core.jit import kernel

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


# One uniform number picks one of 256 layers and a sign.
_CODES = 512.0
_HALF_STEP = 2.0**-53
_TINY = 1e-290


@kernel
def chi(rng, dim):
    """Draw the Euclidean norm of ``dim`` standard normals."""
    return math.sqrt(2.0 * rng.standard_gamma(0.5 * dim))


@kernel
def _outside(rng, r, twice, tail, layer, y, low, high):
    """Finish a draw that is not surely under f; -1 stands for a rejection."""
    if layer > 0:
        powered = power(y, r, twice)
        if low + (high - low) * rng.random() < math.exp(-powered / r):
            return y, powered
        return -1.0, powered
    # In s = y^r / r the tail has density s^(1/r - 1) e^-s, below a shifted exponential.
    while True:
        s = tail + rng.standard_exponential()
        if rng.random() < (tail / s) ** (1.0 - 1.0 / r):
            return (r * s) ** (1.0 / r), r * s


@kernel
def _scaled_norm(out, r):
    """l_r norm with the largest magnitude factored out."""
    largest = 0.0
    for i in range(len(out)):
        largest = max(largest, abs(out[i]))
    total = 0.0
    for i in range(len(out)):
        total += (abs(out[i]) / largest) ** r
    return largest * total ** (1.0 / r)


@kernel
def _plain_vector(rng, r, out):
    """Uniform numbers for r = inf, normals for r = 2; returns the norm."""
    if r == 2.0:
        total = 0.0
        for i in range(len(out)):
            out[i] = rng.standard_normal()
            total += out[i] * out[i]
        return math.sqrt(total)
    largest = 0.0
    for i in range(len(out)):
        # Odd multiples of 2^-53: symmetric and never 0.
        x = 2.0 * rng.random() - 1.0 + _HALF_STEP
        out[i] = x
        largest = max(largest, abs(x))
    return largest


@kernel
def cone_vector(rng, table, out):
    """Write a vector with cone-measure direction; return its l_r norm, > 0."""
    if len(out) == 1:
        out[0] = 1.0 if rng.random() < 0.5 else -1.0
        return 1.0
    r, twice, tail = table.r, table.twice, table.tail
    if r == 2.0 or r == np.inf:
        return _plain_vector(rng, r, out)
    # A local: passing an array to a function per coordinate costs more than the draw.
    layers = table.layers
    total = 0.0
    i = 0
    while i < len(out):
        code = int(_CODES * rng.random())
        layer = code >> 1
        u = 1.0 - rng.random()
        y = u * layers[layer, 0]
        if u < layers[layer, 1]:
            powered = power(y, r, twice)
        else:
            low, high = layers[layer, 2], layers[layer + 1, 2]
            y, powered = _outside(rng, r, twice, tail, layer, y, low, high)
            if y < 0.0:
                continue
        out[i] = y * (1.0 - 2.0 * (code & 1))
        total += powered
        i += 1
    return total ** (1.0 / r) if total > _TINY else _scaled_norm(out, r)


@kernel
def scale_to(norm, radius, out):
    """Scale a vector of the given norm to the norm ``radius``."""
    factor = radius / norm
    for i in range(len(out)):
        out[i] *= factor
