"""Data with public bounds: synthetic problems and well-known public files."""

from dpsample.core.public import dir_of
from dpsample.datasets.catalog import load
from dpsample.datasets.synthetic import (
    halfspace,
    heavy_tailed_logistic,
    heavy_tailed_regression,
    logistic,
    regression,
)
from dpsample.papers.growth import (
    GrowthRegression,
    HardInstance,
    growth_constant,
    growth_regression,
    rare_records,
    tilted_signs,
)
from dpsample.tables.read import Dataset

__all__ = [
    "Dataset",
    "GrowthRegression",
    "HardInstance",
    "growth_constant",
    "growth_regression",
    "halfspace",
    "heavy_tailed_logistic",
    "heavy_tailed_regression",
    "load",
    "logistic",
    "rare_records",
    "regression",
    "tilted_signs",
]
__dir__ = dir_of(__all__)
