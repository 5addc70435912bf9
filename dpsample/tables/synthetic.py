"""Random rows of norm 1, and a `Dataset` of synthetic records."""

import math

import numpy as np

from dpsample.core.arrays import Array
from dpsample.numerics.norms import norm
from dpsample.tables.read import Dataset

# Largest exponent of a norm or a power. Larger ones overflow.
LARGEST_EXPONENT = 1000.0


def unit_rows(rng: np.random.Generator, size: tuple[int, int], q: float) -> Array:
    """Draw Gaussian directions, scaled to q-norm 1 except for rounding downwards."""
    rows = rng.standard_normal(size)
    if math.isinf(q):
        norms = np.max(np.abs(rows), axis=1)
    else:
        with np.errstate(all="ignore"):
            powers = np.sum(np.abs(rows) ** q, axis=1)
            norms = powers ** (1.0 / q)
            is_odd = ~((powers > 1e-290) & (powers < 1e290))  # no number, or few digits
            norms[is_odd] = norm(rows[is_odd], q)
    return np.asarray(rows / norms[:, None] * (1.0 - 1e-14))


def dataset_of(
    rows: Array, response: Array, theta: Array, *, source: str, **bounds: float | None
) -> Dataset:
    """Return synthetic records, named x0, x1, ... and by default of size 1."""
    return Dataset(
        features=rows,
        response=response,
        feature_names=tuple(f"x{j}" for j in range(rows.shape[1])),
        source=source,
        theta=theta,
        **({"row_bound": 1.0} | bounds),  # type: ignore[arg-type]
    )
