"""Symmetric Gaussian noise: spherical in the Frobenius norm of symmetric matrices.

Deviation s on the diagonal, s/sqrt(2) beside it: the upper triangle, its entries beside
the diagonal times sqrt(2), is a vector of that length. Spectral norm: about s sqrt(2d).
"""

import math

import numpy as np

from dpsample.core.arrays import Array
from dpsample.noise.grid import add_gaussian, grid_step


def add_symmetric_gaussian(
    rng: np.random.Generator, stddev: float, matrix: Array
) -> None:
    """Add the noise to a symmetric matrix; each number ends on a public grid."""
    i, j = np.triu_indices(len(matrix))
    scale = np.where(i == j, 1.0, math.sqrt(2.0))
    entries = matrix[i, j] * scale
    add_gaussian(rng, stddev, grid_step(stddev), entries)
    matrix[i, j] = matrix[j, i] = entries / scale
