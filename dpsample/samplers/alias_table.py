"""Alias tables: draw from a discrete law in constant time (Walker, Vose)."""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel

# One column in one place: a draw waits for memory once.
COLUMN = np.dtype([("share", np.float64), ("own", np.uint32), ("other", np.uint32)])


@kernel
def fill(weights, share, other):
    """Fill the table of one law: column c keeps c with probability share[c].

    The rest of column c belongs to other[c]. Weights need not sum to 1.
    """
    size = weights.shape[0]
    total = weights.sum()
    if not total > 0.0:
        return
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    num_small, num_large = 0, 0
    for c in range(size):
        share[c], other[c] = weights[c] * size / total, c
        if share[c] < 1.0:
            small[num_small] = c
            num_small += 1
        else:
            large[num_large] = c
            num_large += 1
    while num_small > 0 and num_large > 0:
        num_small -= 1
        poor, rich = small[num_small], large[num_large - 1]
        other[poor] = rich
        share[rich] -= 1.0 - share[poor]
        if share[rich] < 1.0:
            num_large -= 1
            small[num_small] = rich
            num_small += 1
    # What is left differs from 1 by rounding only.
    for t in range(num_small):
        share[small[t]] = 1.0
    for t in range(num_large):
        share[large[t]] = 1.0


@kernel
def fill_all(weights, labels, starts, table):
    """Fill one table for each segment starts[t] : starts[t + 1] of the weights."""
    share = np.ones(weights.shape[0])
    other = np.zeros(weights.shape[0], np.int64)
    for t in range(starts.shape[0] - 1):
        start, stop = starts[t], starts[t + 1]
        fill(weights[start:stop], share[start:stop], other[start:stop])
        for c in range(start, stop):
            table[c]["share"] = share[c]
            table[c]["own"] = labels[c]
            table[c]["other"] = labels[start + other[c]]


@kernel
def draw(table, rng):
    """Draw a label."""
    size = table.shape[0]
    place = rng.random() * size
    c = min(int(place), size - 1)
    # The fraction is as good as a second uniform number while size is far below 2^53.
    column = table[c]
    return np.int64(column["own"] if place - c < column["share"] else column["other"])
