"""Regularizers: what each offers, compiled pieces, one parameter tuple and a range."""

import math
from typing import ClassVar, NamedTuple

import numpy as np
from numba import types
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import Piece, f8, i8, kernel, vector
from dpsample.core.spec import Spec
from dpsample.domains import Domain
from dpsample.numerics.norms import distance, thin_svd, write_product


class RegularizerParams(NamedTuple):
    """``r(x) = scale/2 ||x - center||_exponent^2``; the sides are those of a matrix.

    Examples
    --------
    >>> from dpsample.regularizers import SquaredNorm
    >>> SquaredNorm(1.5).params(2, [0.0, 0.0]).scale
    2.0
    """

    center: Array
    scale: float
    exponent: float
    num_rows: int
    num_columns: int


REGULARIZER = types.NamedTuple((vector, f8, f8, i8, i8), RegularizerParams)
REG_VALUE = types.void(REGULARIZER, vector, vector)  # out[0]: r(x)
REG_GRADIENT = types.void(REGULARIZER, vector, vector)  # out: gradient of r at x


@kernel(counts_references=False)
def squared_norm_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``scale/2 ||theta - center||^2``."""
    length = distance(theta, params.center, params.exponent)
    out[0] = 0.5 * params.scale * length * length


@kernel(counts_references=False)
def squared_norm_gradient(params: RegularizerParams, theta: Array, out: Array) -> None:
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


@kernel(counts_references=False)
def entropy_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``sum theta log theta``; infinite at a negative coordinate."""
    total = 0.0
    for value in theta:
        if value < 0.0:
            total = np.inf
        elif value != 0.0:
            total += value * math.log(value)
    out[0] = total


@kernel(counts_references=False)
def entropy_gradient(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``1 + log theta``; -inf at 0, NaN at a negative coordinate."""
    for i in range(len(theta)):
        out[i] = 1.0 + math.log(theta[i]) if theta[i] > 0.0 else np.nan
        if theta[i] == 0.0:
            out[i] = -np.inf


@kernel
def schatten_squared_value(params: RegularizerParams, theta: Array, out: Array) -> None:
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
    params: RegularizerParams, theta: Array, out: Array
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


class Regularizer(Spec):
    """Strongly convex function of theta.

    Attributes
    ----------
    name : str
        Word used in ``to_dict``.
    p : float
        Norm in which the function is 1-strongly convex.
    value_piece, gradient_piece : compiled functions
        Pieces with the signatures ``REG_VALUE`` and ``REG_GRADIENT``.

    Examples
    --------
    >>> from dpsample.regularizers import SquaredNorm
    >>> SquaredNorm().value([1.0, 1.0]), SquaredNorm().curvature_l2(dim=2)
    (1.0, (1.0, 1.0))
    """

    value_piece: ClassVar[Piece]
    gradient_piece: ClassVar[Piece]

    p: float

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays."""
        raise NotImplementedError

    def range_on(self, domain: Domain, dim: int) -> float:
        """Upper bound of ``max r - min r`` over the domain, infinite if unbounded."""
        raise NotImplementedError

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Lower and upper bound of the Hessian in l2."""
        raise NotImplementedError

    def value(self, theta: ArrayLike, default_center: ArrayLike | None = None) -> float:
        """Value at theta; the default center is the origin."""
        point, params = self._point(theta, default_center)
        out = np.full(1, np.nan)
        self.value_piece(params, point, out)
        return float(out[0])

    def gradient(
        self, theta: ArrayLike, default_center: ArrayLike | None = None
    ) -> Array:
        """Gradient at theta; the default center is the origin."""
        point, params = self._point(theta, default_center)
        out = np.full(len(point), np.nan)
        self.gradient_piece(params, point, out)
        return out.reshape(np.shape(theta))

    def _point(
        self, theta: ArrayLike, default_center: ArrayLike | None
    ) -> tuple[Array, RegularizerParams]:
        point = check.array("theta", theta, shape=(None,))
        origin = np.zeros(len(point)) if default_center is None else default_center
        center = check.array("default_center", origin, shape=point.shape)
        return point, self.params(len(point), center)
