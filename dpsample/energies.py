"""Energies, slopes and chords of a target at many points, in one compiled call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import targets
from dpsample._jit import kernel

Array = NDArray[np.float64]

CALL_NUMBERS = 10**7  # numbers that one call reads, or as many as one point needs


@kernel
def fill_energies(target, pieces, points, work, out):
    """Fill out with V at each row of points, infinity outside the domain."""
    for i in range(points.shape[0]):
        status = targets.inside(target, pieces, points[i], work)
        out[i] = np.inf
        if status == 1.0:
            out[i] = targets.energy(target, pieces, points[i], work)
        elif np.isnan(status):
            out[i] = np.nan


@kernel
def fill_slopes(target, pieces, points, work, out):
    """Fill the rows of out with (sub)gradients of V at the rows of points."""
    for i in range(points.shape[0]):
        targets.energy_gradient(target, pieces, points[i], work, out[i])


@kernel
def fill_chords(target, pieces, points, directions, out):
    """Fill the rows of out with both ends of the chords through the points."""
    for i in range(points.shape[0]):
        targets.chord(target, pieces, points[i], directions[i], out[i])


def _rows(points: Any) -> Array:
    """Array as kernels want it: read-only ones are another type for Numba."""
    return np.require(points, np.float64, ["C", "W"])


def _parts(target: Any, num_points: int) -> Iterator[slice]:
    """Points of calls of a few hundredths of a second: Ctrl-C is heard in between."""
    data = target.data
    size = data.dense.size + data.values.size + data.num_records
    count = max(1, CALL_NUMBERS // max(size, 1000))
    for start in range(0, num_points, count):
        yield slice(start, start + count)


def energies(target: Any, points: Array) -> Array:
    """V at each row of points, shape (num_points,): infinity outside the domain.

    Parameters
    ----------
    target : Gibbs
        The target.
    points : array of shape (num_points, dim)
        Where.

    Returns
    -------
    array of shape (num_points,)
        The energies. Not private.
    """
    rows, out, work = _rows(points), np.empty(len(points)), target.new_work()
    for part in _parts(target, len(rows)):
        fill_energies(target.numbers, target.pieces, rows[part], work, out[part])
    return out


def slopes(target: Any, points: Array) -> Array:
    """(Sub)gradient of V at each row of points, shape (num_points, dim). Not private.

    Parameters
    ----------
    target : Gibbs
        The target.
    points : array of shape (num_points, dim)
        Where, inside the domain.

    Returns
    -------
    array of shape (num_points, dim)
        The gradients.
    """
    rows, work = _rows(points), target.new_work()
    out = np.empty_like(rows)
    for part in _parts(target, len(rows)):
        fill_slopes(target.numbers, target.pieces, rows[part], work, out[part])
    return out


def chords(target: Any, points: Array, directions: Array) -> Array:
    """Return the ends of the chords theta + t direction of the domain.

    Parameters
    ----------
    target : Gibbs
        The target.
    points : array of shape (num_points, dim)
        Points of the domain.
    directions : array of shape (num_points, dim) or (dim,)
        One direction for each point, or for all.

    Returns
    -------
    array of shape (num_points, 2)
        Lower end t, at most 0, and upper end.
    """
    rows = _rows(points)
    along = _rows(np.broadcast_to(directions, rows.shape))
    out = np.empty((len(rows), 2))
    fill_chords(target.numbers, target.pieces, rows, along, out)
    return out
