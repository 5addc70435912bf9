"""Convex losses of a linear margin, with declared bounds and compiled functions."""

from dpsample.core.public import dir_of
from dpsample.losses.classification import (
    CalibratedLogistic,
    CappedLogistic,
    Hinge,
    Linear,
    Logistic,
    SmoothedHinge,
)
from dpsample.losses.custom import Custom, custom
from dpsample.losses.loss import Loss, from_dict, registry
from dpsample.losses.record_gradient import RecordGradient, record_gradient
from dpsample.losses.regression import Absolute, Huber, PowerFour, Quantile, Squared
from dpsample.numerics.stable import softplus, softplus_and_sigmoid

__all__ = [
    "Absolute",
    "CalibratedLogistic",
    "CappedLogistic",
    "Custom",
    "Hinge",
    "Huber",
    "Linear",
    "Logistic",
    "Loss",
    "PowerFour",
    "Quantile",
    "RecordGradient",
    "SmoothedHinge",
    "Squared",
    "custom",
    "from_dict",
    "record_gradient",
    "softplus",
    "softplus_and_sigmoid",
]
__dir__ = dir_of(__all__)
# By name, all that need no function of the user: what commands and `warm` know.
BUILT_IN = {name: kind for name, kind in registry.items() if kind.is_cached}
