"""Estimators with the interface of scikit-learn: fit, predict and a certificate.

They need scikit-learn: ``pip install 'dpsample[sklearn]'``.
"""

try:
    import sklearn as sklearn
except ImportError as error:
    message = "dpsample.estimators needs scikit-learn: pip install 'dpsample[sklearn]'."
    raise ImportError(message) from error

from dpsample.core.public import dir_of
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
