"""Domains, records and steps whose rounding errors are compared with their bounds."""

from __future__ import annotations

import mpmath
import numpy as np

import dpsample as dps
from dpsample import losses
from dpsample.domains import Ball, Box, WholeSpace

DOMAINS = {
    "ball": Ball(0.7),
    "ball far away": Ball(0.01, center=[3.0, -5.0, 1.0]),
    "box": Box([-0.2, 0.1, -3.0], [0.3, 0.4, 3.0]),
    "whole space": WholeSpace(),
}


def slope(loss, u, y):
    """Slope of a loss, in mpmath."""
    if isinstance(loss, losses.Linear):
        return -y
    if isinstance(loss, losses.Logistic):
        return -y / (1 + mpmath.exp(y * u))
    if isinstance(loss, losses.CappedLogistic):
        return -y * min(1 / (1 + mpmath.exp(y * u)), mpmath.mpf(loss.cap))
    if isinstance(loss, losses.SmoothedHinge):
        return -y * min(max((1 - y * u) / mpmath.mpf(loss.width), 0), 1)
    if isinstance(loss, losses.Huber):
        return min(max(u - y, -mpmath.mpf(loss.width)), mpmath.mpf(loss.width))
    return u - y


def data(loss, domain, *, scale=1.0, number=40, offset=None):
    """Records whose gradients and sums round: no short numbers, both signs."""
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(number, 3))
    rows *= (
        scale
        * rng.uniform(0.2, 1.0, (number, 1))
        / np.linalg.norm(rows, axis=1, keepdims=True)
    )
    y = np.where(rng.random(number) < 0.5, -1.0, 1.0)
    if not loss.is_classification:
        y *= rng.random(number)
    options = {} if offset is None else {"offset": offset, "offset_bound": 30.0}
    return dps.Problem(
        rows,
        y,
        loss=loss,
        domain=domain,
        row_bound=scale,
        response_bound=None if loss.is_classification else 1.0,
        **options,
    )


def projected(domain, w, center):
    if isinstance(domain, Box):
        low, high = np.broadcast_to(domain.lower, 3), np.broadcast_to(domain.upper, 3)
        return [
            min(max(x, mpmath.mpf(a)), mpmath.mpf(b))
            for x, a, b in zip(w, low, high, strict=True)
        ]
    if isinstance(domain, WholeSpace):
        return w
    away = [x - c for x, c in zip(w, center, strict=True)]
    length = mpmath.sqrt(mpmath.fsum(x * x for x in away))
    radius = mpmath.mpf(domain.radius)
    if length <= radius:
        return w
    return [c + x * radius / length for c, x in zip(center, away, strict=True)]
