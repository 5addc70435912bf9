"""Noise by other means, right or with one mistake; NumPy code of its own."""

from __future__ import annotations

import numpy as np


def magnitudes(z, r):
    """l_r norms of rows, without the package's norm."""
    size = np.abs(z)
    if np.isinf(r):
        return size.max(axis=-1)
    top = size.max(axis=-1, keepdims=True)
    return top[..., 0] * ((size / top) ** r).sum(axis=-1) ** (1.0 / r)


def directions(rng, r, num_draws, dim, mistake=""):
    """Directions of l_r norm 1: the cone measure through Gamma variables."""
    if mistake == "r + 0.2":
        y = directions(rng, r + 0.2, num_draws, dim)
    elif mistake == "sphere":
        y = rng.standard_normal((num_draws, dim))
    elif np.isinf(r):
        y = rng.uniform(-1.0, 1.0, (num_draws, dim))
    else:
        y = rng.standard_gamma(1.0 / r, (num_draws, dim)) ** (1.0 / r)
        y *= rng.choice([-1.0, 1.0], y.shape)
    y /= magnitudes(y, r)[:, None]
    if mistake == "surface area":
        # Its density to the cone measure is the length of the norm's gradient.
        weight = np.sqrt((np.abs(y) ** (2.0 * r - 2.0)).sum(axis=1))
        y = y[rng.random(num_draws) * max(1.0, dim ** (1.0 / r - 0.5)) < weight]
    if mistake == "signs":
        y = np.abs(y)
    return y


def without_wedges(table):
    """Layers whose wedges count as lying under the density."""
    layers = table.layers.copy()
    layers[1:, 1] = 1.0
    return table._replace(layers=layers)


def without_tail(table):
    """Layers whose base ends at x_1."""
    layers = table.layers.copy()
    layers[0, :2] = layers[1, 0], 1.0
    return table._replace(layers=layers)


def unequal_layers(table):
    """Layers of other areas that are chosen equally often."""
    layers = table.layers.copy()
    layers[0, 0] *= 1.2
    layers[0, 1] /= 1.2
    return table._replace(layers=layers)
