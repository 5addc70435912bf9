# mypy: allow-untyped-defs
"""Heaps and a sort of pairs in place, which need no memory."""

from dpsample.core.jit import kernel


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def sift_down(keys, values, start, count):
    """Restore a heap, largest key first, whose entry at ``start`` may be too small."""
    key, value, hole = keys[start], values[start], start
    while 2 * hole + 1 < count:
        child = 2 * hole + 1
        if child + 1 < count and keys[child] < keys[child + 1]:
            child += 1
        if key >= keys[child]:
            break
        keys[hole], values[hole] = keys[child], values[child]
        hole = child
    keys[hole], values[hole] = key, value


@kernel(counts_references=False)
def sort_pairs(keys, rises, count):
    """Sort the first ``count`` keys and their rises in place, by heaps."""
    for start in range(count // 2 - 1, -1, -1):
        sift_down(keys, rises, start, count)
    for last in range(count - 1, 0, -1):
        keys[0], keys[last] = keys[last], keys[0]
        rises[0], rises[last] = rises[last], rises[0]
        sift_down(keys, rises, 0, last)
