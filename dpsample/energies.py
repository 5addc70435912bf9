"""Energies and slopes of a target at many points, in one compiled call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import targets
from dpsample._jit import kernel

Array = NDArray[np.float64]


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
    rows, out = np.ascontiguousarray(points), np.empty(len(points))
    fill_energies(target.numbers, target.pieces, rows, target.new_work(), out)
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
    rows = np.ascontiguousarray(points)
    out = np.empty_like(rows)
    fill_slopes(target.numbers, target.pieces, rows, target.new_work(), out)
    return out
