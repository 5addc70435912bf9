"""Losses of a real response, as functions of the residual u - y."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.losses.loss import ROUNDING, Curvatures, Loss

# Responses farther from 0 than this many margins are replaced by nearer ones, because
# differences between their losses would be lost to rounding.
FARTHEST = 1024.0
# Factor that rounds a lower bound down.
DOWN = 1.0 - ROUNDING


def _clip_far_responses(response: Array, reach: float) -> Array:
    """Clip responses to `FARTHEST` times the largest margin."""
    limit = FARTHEST * reach
    return np.clip(response, -limit, limit)


class _PiecewiseLinear(Loss):
    """Loss whose slope is constant on both sides of u = y."""

    def kink(self, response: Array) -> Array:
        """Return the responses."""
        return response

    def near_response(self, response: Array, margin_bound: float) -> Array:
        """Return responses with the same slopes, see `Loss.near_response`."""
        return _clip_far_responses(response, margin_bound)


@dataclass(frozen=True, kw_only=True)
class Absolute(_PiecewiseLinear):
    r"""Absolute loss :math:`|u - y|`. Its minimizer is a conditional median.

    Examples
    --------
    >>> from dpsample.losses import Absolute
    >>> Absolute().value([1.0, 3.0], 2.0)
    array([1., 1.])
    """

    name: ClassVar[str] = "absolute"
    largest_slope: ClassVar[float] = 1.0

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        residual = u - y
        return abs(residual), np.sign(residual)

    @staticmethod
    def _exact_kinked(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        return abs(u - y)

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Return the proximal point, by a soft threshold of the residual."""
        residual = u - y
        shrunk = np.maximum(np.abs(residual) - c, 0.0)
        return np.asarray(y + np.sign(residual) * shrunk)


@dataclass(frozen=True)
class Quantile(_PiecewiseLinear):
    r"""Pinball loss :math:`\max(\tau(y-u), (\tau-1)(y-u))` of level :math:`\tau`.

    Parameters
    ----------
    level : float
        Share of the responses below the prediction, > 0 and < 1.

    Examples
    --------
    >>> from dpsample.losses import Quantile
    >>> Quantile(level=0.75).value([0.0, 2.0], 1.0)
    array([0.75, 0.25])
    """

    level: float = 0.5
    name: ClassVar[str] = "quantile"

    def __post_init__(self) -> None:
        """Raise for a level outside (0, 1)."""
        check.open_interval(0.0, 1.0, level=self.level)

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        residual = y - u
        if residual > 0.0:
            return params[0] * residual, -params[0]
        return (params[0] - 1.0) * residual, 1.0 - params[0]

    @staticmethod
    def _exact_kinked(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        return (params[0] * (y - u)).max((params[0] - 1) * (y - u))

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return max(level, 1 - level)."""
        del margin_bound, response_bound
        return max(self.level, 1.0 - self.level)

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Move the residual towards 0 by level or 1 - level steps."""
        residual = y - u
        high, low = c * self.level, c * (1.0 - self.level)
        # The residual loses level or 1 - level steps, and stops at 0.
        shrunk = np.where(
            residual > high,
            residual - high,
            np.where(residual < -low, residual + low, 0.0),
        )
        return np.asarray(y - shrunk)


@dataclass(frozen=True)
class Huber(Loss):
    r"""Huber loss: :math:`e^2/2` for :math:`|e| \le w`, else :math:`w|e| - w^2/2`.

    Here :math:`e = u - y`. The slope is at most :math:`w`.

    Parameters
    ----------
    width : float
        Largest residual w > 0 that is squared, in the units of the response.

    Examples
    --------
    >>> from dpsample.losses import Huber
    >>> Huber(width=1.0).value([0.5, 3.0], 0.0)
    array([0.125, 2.5  ])
    """

    width: float = 1.0
    name: ClassVar[str] = "huber"
    has_unimodal_curvature: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise for a width with which formulas overflow or underflow."""
        check.scale(width=self.width)

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        residual = u - y
        size = abs(residual)
        if size <= params[0]:
            return 0.5 * residual * residual, residual
        return params[0] * (size - 0.5 * params[0]), np.sign(residual) * params[0]

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        size, width = abs(u - y), params[0]
        return size * size / 2 if size <= width else width * (size - width / 2)

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return the width."""
        del margin_bound, response_bound
        return self.width

    def near_response(self, response: Array, margin_bound: float) -> Array:
        """Return responses with the same slopes, see `Loss.near_response`."""
        return _clip_far_responses(response, margin_bound + self.width)

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return 1 where the interval meets the quadratic part."""
        low, high = lower - response, upper - response
        inside = (low > -self.width) & (high < self.width)
        meets = (low <= self.width) & (high >= -self.width)
        return inside.astype(np.float64), meets.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Squared(Loss):
    r"""Squared loss :math:`(u - y)^2 / 2`.

    Its slope is bounded only on a bounded domain and for a bounded response, which
    must be declared.

    Examples
    --------
    >>> from dpsample.losses import Squared
    >>> Squared().value([1.0, 3.0], 0.0)
    array([0.5, 4.5])
    """

    name: ClassVar[str] = "squared"
    largest_third_derivative: ClassVar[float] = 0.0
    needs_response_bound: ClassVar[bool] = True

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        residual = u - y
        return 0.5 * residual * residual, residual

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        return (u - y) ** 2 / 2

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return margin_bound + response_bound, the largest residual."""
        return margin_bound + response_bound

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return ones."""
        del upper, response
        return np.ones_like(lower), np.ones_like(lower)

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Return the proximal point, a weighted mean of margin and response."""
        return np.asarray((u + c * y) / (1.0 + c))


@dataclass(frozen=True, kw_only=True)
class PowerFour(Loss):
    r"""Fourth power of the residual, :math:`(u - y)^4`.

    Examples
    --------
    >>> from dpsample.losses import PowerFour
    >>> PowerFour().value([1.0, 2.0], 0.0)
    array([ 1., 16.])
    """

    name: ClassVar[str] = "power_four"
    needs_response_bound: ClassVar[bool] = True

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        residual = u - y
        square = residual * residual
        return square * square, 4.0 * square * residual

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        return (u - y) ** 4

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return 4 (margin_bound + response_bound)^3."""
        residual = margin_bound + response_bound
        # In Python a power that overflows is an error.
        return 4.0 * residual**3 if residual < 1e100 else math.inf

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return 12 e^2 at the smallest and the largest residual."""
        low, high = lower - response, upper - response
        smallest = np.maximum(0.0, np.maximum(low, -high))
        largest = np.maximum(np.abs(low), np.abs(high))
        with np.errstate(under="ignore"):
            return 12.0 * smallest**2, 12.0 * largest**2

    def secant_curvature(
        self, margins: Array, lower: Array, upper: Array, response: Array
    ) -> Array:
        """Return the least 4 (e^2 + e f + f^2), f the residual at the margin."""
        # e^2 + e f + f^2 = (e + f/2)^2 + 3 f^2 / 4 is least at e = -f/2, or at the end
        # nearest to it. This sum of squares has no cancellation.
        f = margins - response
        e = np.clip(-0.5 * f, lower - response, upper - response)
        return DOWN * (4.0 * (e + 0.5 * f) ** 2 + 3.0 * f**2)

    def bregman_curvature(
        self, margins: Array, lower: Array, upper: Array, response: Array
    ) -> Array:
        """Return the least 2 (e + f)^2 + 4 f^2, f the residual at the margin."""
        # The least value is at e = -f, or at the end nearest to it.
        f = margins - response
        e = np.clip(-f, lower - response, upper - response)
        return DOWN * (2.0 * (e + f) ** 2 + 4.0 * f**2)

    def third_derivative_bound(
        self, margin_bound: float, response_bound: float
    ) -> float:
        """Return 24 (margin_bound + response_bound)."""
        return 24.0 * (margin_bound + response_bound)
