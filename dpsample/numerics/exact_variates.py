"""Stand-in for exact variates: the signatures, and not yet the proof.

Numbers come as hi + lo, within `ERROR` of what the bits define.
"""

from __future__ import annotations

import numpy as np

from dpsample.core.arrays import Array

ERROR = 2.0**-86  # absolute, of normals and exponentials below 16


def exact_normals(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return independent standard normals as hi + lo."""
    return _with_low_part(rng, rng.standard_normal(shape))


def exact_exponentials(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return independent standard exponentials as hi + lo."""
    return _with_low_part(rng, rng.standard_exponential(shape))


def _with_low_part(rng: np.random.Generator, hi: Array) -> tuple[Array, Array]:
    return hi, (rng.random(hi.shape) - 0.5) * np.spacing(np.abs(hi))
