# mypy: allow-untyped-defs
"""Vectors in kernels: copies, products, and solutions of triangular systems."""

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def copy_into(source, out):
    """Copy a vector into another one of its length.

    A slice assignment would test for overlaps first, and compile the text of an error
    about shapes, which takes four seconds at the first call of a process.
    """
    for j in range(len(out)):
        out[j] = source[j]


@kernel(counts_references=False)
def add_multiple(factor, vector, out):
    """Add a multiple of a vector to another one."""
    for j in range(len(out)):
        out[j] += factor * vector[j]


@kernel
def solve_lower(root: Array, x: Array) -> None:
    """Replace x by L^{-1} x."""
    for i in range(x.shape[0]):
        for j in range(i):
            x[i] -= root[i, j] * x[j]
        x[i] /= root[i, i]


@kernel
def solve_upper(root: Array, x: Array) -> None:
    """Replace x by L^{-T} x."""
    for i in range(x.shape[0] - 1, -1, -1):
        x[i] /= root[i, i]
        for j in range(i):
            x[j] -= root[i, j] * x[i]


@kernel
def multiply(matrix, vector, out):
    """Fill out with matrix times vector.

    This product is compiled once for all callers. It counts references, because Numba's
    product would copy arrays of another layout, but its callers need not.
    """
    np.dot(matrix, vector, out)


@kernel
def multiply_rows(vector, matrix, out):
    """Fill out with vector times matrix; see `multiply`."""
    np.dot(vector, matrix, out)


# The sums may be taken in any order, so that the loop is vectorized.
@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def multiply_both(matrix, first, second, first_out, second_out):
    """Fill outs with matrix times each of two vectors.

    A large matrix is read from memory once, which takes as long as one product.
    """
    for i in range(matrix.shape[0]):
        total, other = 0.0, 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * first[j]
            other += matrix[i, j] * second[j]
        first_out[i], second_out[i] = total, other
