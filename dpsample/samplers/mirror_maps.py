r"""Strictly convex functions phi whose gradients map a body's interior to all of R^m.

==========  ==================================================  =====================
geometry    phi                                                 coordinates
==========  ==================================================  =====================
BOX         -w_i log(x_i - a_i) - w_i log(b_i - x_i), summed    x
BALL        -w log(R^2 - |x - c|^2)                             x
SIMPLEX     w sum x_i log x_i                                   all but the last x_i
POWER       sum (u_i^2 + 1)^(p/2) / (p (p - 1))                 u_i = (x_i - c_i) / s_i
==========  ==================================================  =====================

Vectors have the length of x; on the simplex the last entry of a dual vector is 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.norms import distance

Array = NDArray[np.float64]

BOX, BALL, SIMPLEX, POWER = range(4)
MAX_NEWTON = 60
# Points nearer to the boundary than this count as outside: squares stay finite.
TINY = 1e-140


class Map(NamedTuple):
    """A mirror map; unused fields hold harmless values."""

    geometry: int
    weight: Array  # (dim,): w_i, or the scales s_i
    center: Array  # (dim,)
    lower: Array  # (dim,)
    upper: Array  # (dim,)
    radius: float
    p: float


@kernel
def slope(mirror, x, out):
    """Fill out with the gradient of phi; False if x is not strictly inside."""
    dim = x.shape[0]
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        room = (mirror.radius - r) * (mirror.radius + r)
        for j in range(dim):
            out[j] = 2.0 * mirror.weight[0] * (x[j] - mirror.center[j]) / room
        return room > TINY
    is_inside = True
    for j in range(dim):
        if mirror.geometry == BOX:
            left, right = x[j] - mirror.lower[j], mirror.upper[j] - x[j]
            is_inside = is_inside and left > TINY and right > TINY
            out[j] = mirror.weight[j] * (1.0 / right - 1.0 / left)
        elif mirror.geometry == SIMPLEX:
            is_inside = is_inside and x[j] > TINY and x[dim - 1] > TINY
            if is_inside:
                out[j] = mirror.weight[0] * (math.log(x[j]) - math.log(x[dim - 1]))
        else:
            u = (x[j] - mirror.center[j]) / mirror.weight[j]
            out[j] = u * (u * u + 1.0) ** (0.5 * mirror.p - 1.0)
            out[j] /= (mirror.p - 1.0) * mirror.weight[j]
    return is_inside


@kernel
def root(size, p):
    """Solve u (u^2 + 1)^(p/2 - 1) = size > 0, by Newton's method in log u.

    The logarithm of the left side is concave in log u and below log u, so the
    iteration increases from log(size) to the root.
    """
    goal = math.log(size)
    t = goal
    for _ in range(MAX_NEWTON):
        tail = math.exp(-2.0 * abs(t))
        value = t + (0.5 * p - 1.0) * (2.0 * max(t, 0.0) + math.log1p(tail))
        rate = 1.0 + (p - 2.0) * (1.0 if t > 0.0 else tail) / (1.0 + tail)
        move = (goal - value) / rate
        t += move
        if not abs(move) > 1e-15 * (1.0 + abs(t)):
            break
    return math.exp(t)


@kernel
def inverse(mirror, y, out):
    """Fill out with the point whose gradient is y; entries of y may be infinite."""
    dim = y.shape[0]
    if mirror.geometry == SIMPLEX:
        largest, total = -np.inf, 0.0
        for j in range(dim):
            largest = max(largest, y[j])
        for j in range(dim):
            out[j] = math.exp((y[j] - largest) / mirror.weight[0])
            total += out[j]
        for j in range(dim):
            out[j] /= total
        return
    size = 0.0
    for j in range(dim):
        size += (y[j] / mirror.weight[j]) ** 2
    for j in range(dim):
        v = y[j] / mirror.weight[j]
        if mirror.geometry == POWER:
            v = (mirror.p - 1.0) * y[j] * mirror.weight[j]
            u = math.copysign(root(abs(v), mirror.p), v) if v != 0.0 else 0.0
            out[j] = mirror.center[j] + mirror.weight[j] * u
        elif mirror.geometry == BALL:
            scaled = mirror.radius * mirror.radius
            scaled /= 1.0 + math.sqrt(1.0 + size * mirror.radius * mirror.radius)
            out[j] = mirror.center[j] + v * scaled
        else:
            half = 0.5 * (mirror.upper[j] - mirror.lower[j])
            middle = 0.5 * (mirror.upper[j] + mirror.lower[j])
            out[j] = middle + v * half * half / (1.0 + math.hypot(1.0, v * half))


@kernel
def curvature(mirror, x, j):
    """Entry j of the Hessian's diagonal part."""
    if mirror.geometry == BOX:
        left, right = x[j] - mirror.lower[j], mirror.upper[j] - x[j]
        return mirror.weight[j] * (1.0 / (left * left) + 1.0 / (right * right))
    if mirror.geometry == SIMPLEX:
        return mirror.weight[0] / x[j]
    u = (x[j] - mirror.center[j]) / mirror.weight[j]
    square = u * u + 1.0
    value = square ** (0.5 * mirror.p - 2.0) * (1.0 + (mirror.p - 1.0) * u * u)
    return value / ((mirror.p - 1.0) * mirror.weight[j] ** 2)


@kernel
def noise(mirror, x, z, out):
    """Fill out with B z, B B^T the Hessian at x, for a vector z of dim normals."""
    dim = x.shape[0]
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        room = (mirror.radius - r) * (mirror.radius + r)
        across = math.sqrt(2.0 * mirror.weight[0] / room)
        along, rise = 0.0, across * math.sqrt(1.0 + 2.0 * r * r / room) - across
        for j in range(dim):
            along += (x[j] - mirror.center[j]) * z[j]
        for j in range(dim):
            out[j] = across * z[j]
            if r > 0.0:
                out[j] += rise * (along / r) * ((x[j] - mirror.center[j]) / r)
        return
    for j in range(dim):
        out[j] = math.sqrt(curvature(mirror, x, j)) * z[j]
    if mirror.geometry == SIMPLEX:
        shared = out[dim - 1]
        for j in range(dim):
            out[j] -= shared


@kernel
def log_det(mirror, x):
    """Log determinant of the Hessian, without constants of the simplex."""
    dim, total = x.shape[0], 0.0
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        square = mirror.radius * mirror.radius
        room = (mirror.radius - r) * (mirror.radius + r)
        total = dim * math.log(2.0 * mirror.weight[0] / room)
        return total + math.log((square + r * r) / room)
    for j in range(dim):
        total += math.log(curvature(mirror, x, j))
    return total


@kernel
def inverse_form(mirror, x, v):
    """v^T H^{-1} v."""
    dim, total, along = x.shape[0], 0.0, 0.0
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        room = (mirror.radius - r) * (mirror.radius + r)
        for j in range(dim):
            total += v[j] * v[j]
            along += (x[j] - mirror.center[j]) * v[j]
        total -= 2.0 * along * along / (mirror.radius * mirror.radius + r * r)
        return 0.5 * room / mirror.weight[0] * total
    if mirror.geometry == SIMPLEX:
        for j in range(dim):
            along += x[j] * v[j]
        for j in range(dim):
            total += x[j] * (v[j] - along) ** 2
        return total / mirror.weight[0]
    for j in range(dim):
        total += v[j] * v[j] / curvature(mirror, x, j)
    return total
