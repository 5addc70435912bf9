# mypy: allow-untyped-defs
"""Vectors in kernels."""

from dpsample.core.jit import kernel


@kernel(forceinline=True, counts_references=False)
def copy_into(source, out):
    """Copy a vector into another one of its length.

    A slice assignment would guard against overlaps first, and compiles the text of an
    error about shapes: four seconds at the first call of a process.
    """
    for j in range(len(out)):
        out[j] = source[j]
