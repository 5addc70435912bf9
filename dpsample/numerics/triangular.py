"""Solutions of triangular systems, in compiled code."""

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel


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
