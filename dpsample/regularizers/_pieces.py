"""Compiled values and gradients of the regularizers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpsample._jit import f8, i8, kernel, vector
from dpsample.norms import distance, thin_svd, write_product

Vector = NDArray[np.float64]


class RegularizerParams(NamedTuple):
    """``r(x) = scale/2 ||x - center||_exponent^2``; the sides are those of a matrix.

    Examples
    --------
    >>> from dpsample.regularizers import SquaredNorm
    >>> SquaredNorm(1.5).params(2, [0.0, 0.0]).scale
    2.0
    """

    center: Vector
    scale: float
    exponent: float
    num_rows: int
    num_columns: int


REGULARIZER = types.NamedTuple((vector, f8, f8, i8, i8), RegularizerParams)
REG_VALUE = types.void(REGULARIZER, vector, vector)  # out[0]: r(x)
REG_GRADIENT = types.void(REGULARIZER, vector, vector)  # out: gradient of r at x


@kernel
def squared_norm_value(params: RegularizerParams, theta: Vector, out: Vector) -> None:
    """Write ``scale/2 ||theta - center||^2``."""
    length = distance(theta, params.center, params.exponent)
    out[0] = 0.5 * params.scale * length * length


@kernel
def squared_norm_gradient(
    params: RegularizerParams, theta: Vector, out: Vector
) -> None:
    """Write ``scale N (|z_i|/N)^(q-1) sign(z_i)``, z = theta - center, N = ||z||_q."""
    length = distance(theta, params.center, params.exponent)
    for i in range(len(theta)):
        offset = theta[i] - params.center[i]
        if params.exponent == 2.0:
            out[i] = params.scale * offset
        elif length > 0.0:
            share = (abs(offset) / length) ** (params.exponent - 1.0)
            out[i] = params.scale * length * math.copysign(share, offset)
        else:
            out[i] = params.scale * length  # 0, or NaN for failure


@kernel
def entropy_value(params: RegularizerParams, theta: Vector, out: Vector) -> None:
    """Write ``sum theta log theta``; infinite at a negative coordinate."""
    total = 0.0
    for value in theta:
        if value < 0.0:
            total = np.inf
        elif value != 0.0:
            total += value * math.log(value)
    out[0] = total


@kernel
def entropy_gradient(params: RegularizerParams, theta: Vector, out: Vector) -> None:
    """Write ``1 + log theta``; -inf at 0, NaN at a negative coordinate."""
    for i in range(len(theta)):
        out[i] = 1.0 + math.log(theta[i]) if theta[i] > 0.0 else np.nan
        if theta[i] == 0.0:
            out[i] = -np.inf


@kernel
def schatten_squared_value(
    params: RegularizerParams, theta: Vector, out: Vector
) -> None:
    """Write ``scale/2`` times the squared norm of the singular values."""
    if params.exponent == 2.0:
        squared_norm_value(params, theta, out)
    elif np.isfinite(theta).all():
        offset = theta - params.center
        values = thin_svd(offset, params.num_rows, params.num_columns)[1]
        length = distance(values, np.zeros(len(values)), params.exponent)
        out[0] = 0.5 * params.scale * length * length


@kernel
def schatten_squared_gradient(
    params: RegularizerParams, theta: Vector, out: Vector
) -> None:
    """Write U diag(g) V', g the gradient at the singular values."""
    if params.exponent == 2.0:
        squared_norm_gradient(params, theta, out)
    elif np.isfinite(theta).all():
        offset = theta - params.center
        left, values, right = thin_svd(offset, params.num_rows, params.num_columns)
        length = distance(values, np.zeros(len(values)), params.exponent)
        if length > 0.0:
            power = params.exponent - 1.0
            for k in range(len(values)):
                values[k] = params.scale * length * (values[k] / length) ** power
        write_product(left, values, right, out)
