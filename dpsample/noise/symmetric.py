"""Symmetric Gaussian noise, spherical in the Frobenius norm, and what it hides.

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


def denoised(matrix: Array, stddev: float) -> tuple[Array, Array]:
    r"""Estimate A from M = A + noise: eigenvalues, and M's eigenvectors v_i.

    The noise E pushes the eigenvalues l_i of M apart. By Stein's identity, with the
    derivative of v_i v_i^T in M,

    .. math:: \mathbb E\, v_i^T E v_i
       = s^2\, \mathbb E \sum_{j \ne i} 1/(l_i - l_j),

    so l_i less that sum is without bias for v_i^T A v_i, the best eigenvalue in the
    Frobenius norm for these vectors. With g = l_i - l_j, g/(g^2 + s^2/2) in place of
    1/g bounds its variance (Bun, Allez, Bouchaud and Potters, arXiv:1502.06736, whose
    width for a semicircle of deviation s sqrt(d/2) this is). Post-processing.
    """
    noisy, vectors = np.linalg.eigh(matrix)
    gaps = noisy[:, None] - noisy
    push = stddev**2 * (gaps / (gaps**2 + 0.5 * stddev**2)).sum(axis=1)
    return noisy - push, vectors
