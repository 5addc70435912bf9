"""What coordinate hit-and-run must know of a target, fixed before the first draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.losses import Absolute, Hinge, Linear, Quantile, Squared
from dpsample.records import curvature_matrix
from dpsample.regularizers import SchattenSquared, SquaredNorm
from dpsample.samplers.columns import make_columns, no_columns
from dpsample.samplers.coordinate_moves import KINKED, QUADRATIC, SMOOTH, Plan
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.slacks import BALL, make_room

Array = NDArray[np.float64]


def has_quadratic_regularizer(target: Any) -> bool:
    """Whether the regularizer is half a squared Euclidean distance, up to a factor."""
    is_norm = isinstance(target.regularizer, SquaredNorm | SchattenSquared)
    return bool(is_norm and target.numbers.regularizer.exponent == 2.0)


def conditional_of(target: Any) -> int:
    """Kind of the conditional densities."""
    loss = target.problem.loss
    if not (has_quadratic_regularizer(target) or target.mu == 0.0):
        return SMOOTH
    if isinstance(loss, Linear | Squared):
        return QUADRATIC
    return KINKED if isinstance(loss, Hinge | Absolute | Quantile) else SMOOTH


def make_plan(target: Any, found: GaussianFit) -> Plan:
    """Plan of a target with a Gaussian fit."""
    data, loss = target.data, target.problem.loss
    dim, center = target.dim, found.center
    conditional = conditional_of(target)
    is_quadratic = conditional == QUADRATIC
    stddevs = np.sqrt((found.factor**2).sum(axis=1))
    room = make_room(target, center, stddevs)
    ridge, hessian = 0.0, np.empty((0, 0))
    if is_quadratic and target.mu > 0.0:
        ridge = target.k * target.mu * target.numbers.regularizer.scale
    if isinstance(loss, Squared) and is_quadratic:
        hessian = target.k * curvature_matrix(data, np.ones(data.num_records))
        hessian = np.ascontiguousarray(hessian + ridge * np.eye(dim))
    left = np.zeros(2)
    jump = 0.0
    if conditional == KINKED:
        # One slope on each side of the kink at u = y, the same for labels of one sign.
        labels = np.array([1.0, -1.0])
        left = loss.slope(labels - 1.0, labels)
        jump = float((loss.slope(labels + 1.0, labels) - left)[0])
    return Plan(
        room=room,
        columns=no_columns() if is_quadratic else make_columns(data),
        conditional=conditional,
        is_quadratic=int(has_quadratic_regularizer(target) or target.mu == 0.0),
        num_slacks=1 if room.kind == BALL else len(room.limits),
        num_margins=0 if is_quadratic else data.num_records,
        num_slopes=len(hessian),
        center=center,
        precision=np.ascontiguousarray(found.whiten.T @ found.whiten),
        base=target.energy(center),
        slope=target.gradient(center) if is_quadratic else np.zeros(dim),
        ridge=float(ridge),
        hessian=hessian,
        left_positive=float(left[0]),
        left_negative=float(left[1]),
        jump=jump,
    )
