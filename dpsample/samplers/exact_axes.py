"""Coordinates z in which cells are boxes, and the first cells."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.samplers import mode
from dpsample.samplers.gaussian_fit import GaussianFit

Array = NDArray[np.float64]

# Relative widening of the outer box: it covers rounding errors.
SLACK = 1e-9


def turned(target: Any, found: GaussianFit) -> GaussianFit:
    """Fit with its first axis along the gradient at the mode.

    At a mode on the boundary this is the normal, along which the density is steep: the
    faces of the cells are then parallel to the boundary.
    """
    slope = target.gradient(mode.minimize(target)[0])
    if not np.isfinite(slope).all():
        slope = target.gradient(found.center)
    slope = found.factor.T @ slope
    rank = len(slope)
    turn = np.linalg.qr(np.column_stack([slope, np.eye(rank)]))[0]
    return replace(
        found,
        factor=np.ascontiguousarray(found.factor @ turn),
        whiten=np.ascontiguousarray(turn.T @ found.whiten),
    )


def separate(target: Any, found: GaussianFit) -> GaussianFit:
    """Fit whose axes are those of the parameters, where these are free.

    Faces are then parallel to those of a box, and to the kinks of l_p norms.
    """
    if found.factor.shape[0] > found.factor.shape[1]:
        return turned(target, found)
    deviations = np.sqrt(np.einsum("ij,ij->i", found.factor, found.factor))
    return replace(found, factor=np.diag(deviations), whiten=np.diag(1.0 / deviations))


def first_cells(target: Any, found: GaussianFit) -> tuple[Array, Array]:
    """Outer box of the domain, possibly infinite, cut at the center on every axis."""
    domain = target.problem.domain
    shift = found.whiten @ found.center
    upper = domain.support(found.whiten) - shift
    lower = -domain.support(-found.whiten) - shift
    slack = SLACK * (1.0 + np.abs(shift))
    lower, upper = lower * (1.0 + SLACK) - slack, upper * (1.0 + SLACK) + slack
    sides = [((a, 0.0), (0.0, b)) for a, b in zip(lower, upper, strict=True)]
    boxes = np.array(list(itertools.product(*sides)))
    return boxes[:, :, 0], boxes[:, :, 1]
