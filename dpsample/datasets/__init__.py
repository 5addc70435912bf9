"""Data with public bounds: synthetic problems and well-known public files."""

from dpsample.datasets.load import load
from dpsample.datasets.synthetic import halfspace, logistic, regression
from dpsample.tables.dataset import Dataset

__all__ = ["Dataset", "halfspace", "load", "logistic", "regression"]
