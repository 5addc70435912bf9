"""Estimators with the interface of scikit-learn: fit, predict and a certificate.

They need scikit-learn: ``pip install 'dpsample[sklearn]'``.
"""

from dpsample.core import check
from dpsample.core.public import dir_of

try:
    import sklearn as sklearn
except ImportError as error:
    raise check.missing_library(__name__, "scikit-learn", "sklearn") from error

from dpsample.estimators.models import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PrivateSVC,
)

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PrivateSVC",
]

__dir__ = dir_of(__all__)
