"""Losses of labels y in {-1, 1}, and the linear loss, as functions of y u."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.losses.loss import ROUNDING, Curvatures, Loss
from dpsample.numerics.stable import softplus_sigmoid, vexp


def _logistic_curvature(margins: Array) -> Array:
    """Return the second derivative of the logistic loss."""
    # 1 / (2 + 2 cosh u) = sech^2(u / 2) / 4, divided twice so that it does not overflow
    # before the curvature itself rounds to 0.
    with np.errstate(over="ignore", under="ignore"):
        half = np.cosh(0.5 * margins)
        return np.asarray(0.25 / half / half)


@dataclass(frozen=True, kw_only=True)
class Linear(Loss):
    r"""Linear loss :math:`-y u`: the worst case of every lower bound.

    Examples
    --------
    >>> from dpsample.losses import Linear
    >>> Linear().value([0.5, 2.0], [1.0, -1.0])
    array([-0.5,  2. ])
    """

    name: ClassVar[str] = "linear"
    largest_third_derivative: ClassVar[float] = 0.0

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        return -y * u, -y

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        return -y * u

    def oscillation(
        self, margin_bound: float, width: float, response_bound: float | None
    ) -> float:
        """Return the response bound times the width, see `Loss.oscillation`.

        Without a bound `Problem` accepts responses up to 1.
        """
        bound = 1.0 if response_bound is None else response_bound
        return super().oscillation(margin_bound, width, bound)

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return the response bound, because the slope is -y."""
        del margin_bound
        return response_bound

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return zeros, because the loss is linear."""
        return np.zeros_like(lower), np.zeros_like(lower)

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Return u + step y."""
        return np.asarray(u + c * y)


@dataclass(frozen=True, kw_only=True)
class Logistic(Loss):
    r"""Logistic loss :math:`\log(1 + e^{-yu})`, labels :math:`y \in \{-1, 1\}`.

    Slope at most 1, curvature at most 1/4, third derivative at most
    :math:`1 / (6 \sqrt 3)`.

    Examples
    --------
    >>> from dpsample.losses import Logistic
    >>> Logistic().value([0.0, -1000.0], 1.0).round(4).tolist()
    [0.6931, 1000.0]
    """

    name: ClassVar[str] = "logistic"
    has_unimodal_curvature: ClassVar[bool] = True
    largest_slope: ClassVar[float] = 1.0
    # Attained at u = log(2 + sqrt 3).
    largest_third_derivative: ClassVar[float] = 1.0 / (6.0 * math.sqrt(3.0))
    is_classification: ClassVar[bool] = True

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        value, share = softplus_sigmoid(-y * u)
        return value, -y * share

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        # The exponential is below the last digit long before its exponent underflows.
        small = (-abs(u)).max(Decimal(-1_000_000)).exp()
        return (-y * u).max(Decimal(0)) + (1 + small).ln()

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return 1 / (2 + 2 cosh u) at the farthest and nearest margin from 0."""
        del response
        if lower is upper:
            curvature = _logistic_curvature(lower)
            return curvature, curvature
        farthest = np.maximum(np.abs(lower), np.abs(upper))
        nearest = np.maximum(0.0, np.maximum(lower, -upper))
        return _logistic_curvature(farthest), _logistic_curvature(nearest)


@dataclass(frozen=True)
class CappedLogistic(Loss):
    r"""Logistic loss whose slope is capped, less sensitive and still convex.

    With :math:`z = yu`, the cap C and the entropy :math:`H(p) = -p \log p - (1 - p)
    \log(1 - p)`, it is :math:`\max_{0 \le p \le C} [H(p) - pz]`. This is
    :math:`\log(1 + e^{-z})` where the sigmoid of -z is at most C, and the tangent
    :math:`H(C) - Cz` elsewhere. With C = 1 it would be the logistic loss. Slope at most
    C, curvature at most 1/4, or :math:`C(1 - C)` if C is below 1/2, with a jump where
    the tangent ends.

    Noise can be smaller by the factor C. In return the loss is not a likelihood. If the
    logistic model is more certain of a record than C, the fit is too certain of it.

    Parameters
    ----------
    cap : float
        Slope C at which the loss is capped, > 0.01 and < 1.

    Examples
    --------
    >>> from dpsample.losses import CappedLogistic
    >>> CappedLogistic(cap=0.5).value([0.0, -1000.0], 1.0).round(4).tolist()
    [0.6931, 500.6931]
    """

    cap: float = 0.5
    name: ClassVar[str] = "capped_logistic"
    has_unimodal_curvature: ClassVar[bool] = True
    is_classification: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise for a cap outside (0.01, 1), as digits are lost near 0."""
        remedy = "Logistic() has the cap 1."
        check.open_interval(0.01, 1.0, cap=self.cap, remedy=remedy)

    @property
    def params(self) -> Array:
        """The cap, the margin y u where the tangent ends, and the loss there."""
        loss_at_end = -math.log1p(-self.cap)
        return np.array([self.cap, -math.log(self.cap) - loss_at_end, loss_at_end])

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        value, share = softplus_sigmoid(-y * u)
        if share > params[0]:  # not for NaN, which stays NaN below
            return params[2] + params[0] * (params[1] - y * u), -y * params[0]
        return value, -y * share

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        z, cap = y * u, params[0]
        # The tangent begins where -z is the log odds of the cap.
        odds = cap.ln() - (1 - cap).ln()
        if -z > odds:
            return -cap * (z + odds) - (1 - cap).ln()
        return Logistic._exact((), u, y)

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return the cap."""
        del margin_bound, response_bound
        return self.cap

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return the logistic curvature on the part that is not linear."""
        z_low, z_high = np.sort(np.stack([response * lower, response * upper]), axis=0)
        # Bounds of both kinds are safe near the end of the tangent, where rounding
        # decides on which side a margin is.
        end = float(self.params[1])
        slack = ROUNDING * (1.0 + abs(end))
        farthest = np.maximum(np.abs(z_low), np.abs(z_high))
        nearest = np.maximum(0.0, np.maximum(np.maximum(z_low, end), -z_high))
        inside, meets = z_low > end + slack, z_high >= end - slack
        largest = np.where(meets, _logistic_curvature(nearest), 0.0)
        return np.where(inside, _logistic_curvature(farthest), 0.0), largest


@dataclass(frozen=True, kw_only=True)
class CalibratedLogistic(Loss):
    r"""Loss with the logistic loss's probabilities, half as sensitive.

    With :math:`z = yu`, half of :math:`e^{-z}` for :math:`z \ge 0`, half of :math:`1 -
    z` below. Slope at most 1/2, curvature at most 1/2, with a jump at 0.

    Its best margin is the logarithm of the odds, as of all losses with the slope
    :math:`-w(z)/(1 + e^z)` and an even w. Among those whose slope is at most 1/2, it
    has the largest mean curvature, w/4 sech^2(z/2), at every margin. Noise can be half
    of the logistic loss's, without the bias of `CappedLogistic`. In return the sampling
    error is larger where one label is rare.

    Examples
    --------
    >>> from dpsample.losses import CalibratedLogistic
    >>> CalibratedLogistic().value([0.0, 1.0, -1000.0], 1.0).round(4).tolist()
    [0.5, 0.1839, 500.5]
    """

    name: ClassVar[str] = "calibrated_logistic"
    has_unimodal_curvature: ClassVar[bool] = True
    largest_slope: ClassVar[float] = 0.5
    is_classification: ClassVar[bool] = True

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        z = y * u
        if z <= 0.0:  # not for NaN, which stays NaN below
            return 0.5 - 0.5 * z, -0.5 * y
        half = 0.5 * vexp(-z)
        return half, -y * half

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        # The exponential is below the last digit long before its exponent underflows.
        half, z = Decimal("0.5"), y * u
        return half * (1 - z if z <= 0 else max(-z, Decimal(-1_000_000)).exp())

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return half of exp(-z) on the part that is not linear."""
        z_low, z_high = np.sort(np.stack([response * lower, response * upper]), axis=0)
        with np.errstate(under="ignore"):
            lowest = 0.5 * np.exp(-np.maximum(z_high, 0.0))
            highest = 0.5 * np.exp(-np.maximum(z_low, 0.0))
        inside, meets = z_low > ROUNDING, z_high >= -ROUNDING
        return np.where(inside, lowest, 0.0), np.where(meets, highest, 0.0)


@dataclass(frozen=True, kw_only=True)
class Hinge(Loss):
    r"""Hinge loss :math:`\max(0, 1 - yu)`, labels :math:`y \in \{-1, 1\}`.

    Examples
    --------
    >>> from dpsample.losses import Hinge
    >>> Hinge().value([0.0, 2.0], 1.0)
    array([1., 0.])
    """

    name: ClassVar[str] = "hinge"
    largest_slope: ClassVar[float] = 1.0
    is_classification: ClassVar[bool] = True

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        gap = 1.0 - y * u
        # NaN must stay NaN, so the comparison decides for the non-zero branch.
        return (0.0, 0.0) if gap <= 0.0 else (gap, -y)

    @staticmethod
    def _exact_kinked(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        return (1 - y * u).max(Decimal(0))

    def kink(self, response: Array) -> Array:
        """Return the labels, because y u = 1 at u = y."""
        return response

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Move towards the non-smooth point y u = 1, by at most step."""
        z = y * u
        return np.asarray(y * np.where(z >= 1.0, z, np.minimum(z + c, 1.0)))


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    r"""Hinge loss smoothed over a width :math:`w` below the margin 1.

    With :math:`z = yu`: 0 for :math:`z \ge 1`, :math:`(1-z)^2 / (2w)` for
    :math:`1 - w < z < 1`, :math:`1 - z - w/2` below. Curvature at most :math:`1/w`.

    Parameters
    ----------
    width : float
        Length w > 0 of the smoothed range of margins.

    Examples
    --------
    >>> from dpsample.losses import SmoothedHinge
    >>> SmoothedHinge(width=0.5).value([1.0, 0.5, 0.0], 1.0)
    array([0.  , 0.25, 0.75])
    """

    width: float = 0.5
    name: ClassVar[str] = "smoothed_hinge"
    has_unimodal_curvature: ClassVar[bool] = True
    largest_slope: ClassVar[float] = 1.0
    is_classification: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise for a width with which formulas overflow or underflow."""
        check.scale(width=self.width, remedy="Use Hinge() for the loss itself.")

    @staticmethod
    def _scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        gap = 1.0 - y * u
        if gap <= 0.0:
            return 0.0, 0.0
        if gap < params[0]:
            return 0.5 * gap * gap / params[0], -y * gap / params[0]
        return gap - 0.5 * params[0], -y

    @staticmethod
    def _exact(params: tuple[Decimal, ...], u: Decimal, y: Decimal) -> Decimal:
        gap, width = (1 - y * u).max(Decimal(0)), params[0]
        return gap * gap / (2 * width) if gap < width else gap - width / 2

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return 1 / width where the interval meets the curved part."""
        z_low, z_high = np.sort(np.stack([response * lower, response * upper]), axis=0)
        inside = (z_low > 1.0 - self.width) & (z_high < 1.0)
        meets = (z_high >= 1.0 - self.width) & (z_low <= 1.0)
        return inside / self.width, meets / self.width
