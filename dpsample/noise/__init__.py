"""Noise for private mechanisms: exact draws, normalized densities, compiled fills."""

from __future__ import annotations

from dpsample.noise._base import Noise
from dpsample.noise.cone_table import ConeTable, cone_table
from dpsample.noise.elementary import Gaussian, Laplace, gaussian, laplace
from dpsample.noise.fills import (
    fill_gaussian,
    fill_generalized_gaussian,
    fill_laplace,
)
from dpsample.noise.generalized_gaussian import (
    GeneralizedGaussian,
    generalized_gaussian,
)

__all__ = [
    "ConeTable",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "Noise",
    "cone_table",
    "fill_gaussian",
    "fill_generalized_gaussian",
    "fill_laplace",
    "gaussian",
    "generalized_gaussian",
    "laplace",
]
