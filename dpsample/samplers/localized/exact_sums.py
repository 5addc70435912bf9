# mypy: allow-untyped-defs
"""Sums over the records with the rounding errors of their additions.

A sum of gradients is stored as a total and a *rest*, the sum of the errors that each
addition to the total makes. These errors are floats, and `two_sum` computes them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.exact import two_sum
from dpsample.problem.records import Data
from dpsample.samplers.localized.columns import RecordColumns


class RecordTotals(NamedTuple):
    """Sums and maxima over some records, at the mode."""

    sizes: Array  # (4,): sums of |margins|, |slopes|, |values|, |margins| |slopes|
    largest: Array  # (2,): largest |offset|, largest |margin| plus largest |value|
    total: Array  # (dim,): total + rest is the sum of gradients
    rest: Array


def sum_records(part: RecordColumns) -> RecordTotals:
    """Return the sums of one chunk."""
    margins, slopes, values = (
        np.abs(part.margins),
        np.abs(part.slopes),
        np.abs(part.values),
    )
    sizes = np.array([margins.sum(), slopes.sum(), values.sum(), margins @ slopes])
    max_offset = np.abs(part.part.offset).max(initial=0.0)
    largest = np.array([max_offset, margins.max() + values.max()])
    return RecordTotals(sizes, largest, *sum_scaled(part.part, part.slopes))


def add_sums(left: RecordTotals, right: RecordTotals) -> RecordTotals:
    """Return the sums of two parts."""
    # The interpreted function adds whole arrays.
    total, error = two_sum.py_func(left.total, right.total)
    largest = np.maximum(left.largest, right.largest)
    rest = left.rest + right.rest + error
    return RecordTotals(left.sizes + right.sizes, largest, total, rest)


def sum_scaled(data: Data, scales: Array) -> tuple[Array, Array]:
    """Return the sum of scales_i a_i as two parts.

    The second part has the errors of the additions of the first. Its own errors are
    lost.
    """
    total, rest = np.zeros(data.dim), np.zeros(data.dim)
    # A call adds two million terms, so that Ctrl-C is served soon.
    count = max(1, 2_000_000 // data.dim)
    for start in range(0, data.num_records, count):
        stop = min(start + count, data.num_records)
        add_scaled(data, scales, start, stop, total, rest)
        pauses.notify_listeners()
    return total, rest


@kernel
def add_scaled(data, scales, start, stop, total, rest):
    """Add the sum of scales_i a_i over some records to total + rest (Knuth's sum)."""
    if data.dense.shape[0] > 0:
        for i in range(start, stop):
            row = data.dense[i]
            for j in range(total.shape[0]):
                add_to(scales[i] * row[j], j, total, rest)
    else:
        for i in range(start, stop):
            for m in range(data.starts[i], data.starts[i + 1]):
                add_to(scales[i] * data.values[m], data.columns[m], total, rest)


@kernel
def add_to(term, j, total, rest):
    """Add one term to entry j of total, and the error of this addition to rest."""
    total[j], error = two_sum(total[j], term)
    rest[j] += error
