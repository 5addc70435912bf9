"""Samplers of Gibbs targets, one file each."""

from types import ModuleType

from dpsample.core.public import dir_of, import_moved
from dpsample.samplers.adaptive.billiard_hmc import BilliardHMC
from dpsample.samplers.adaptive.whitened_slice import WhitenedSlice
from dpsample.samplers.coordinate.chord_slice import ChordSlice
from dpsample.samplers.coordinate.coordinate_hit_and_run import CoordinateHitAndRun
from dpsample.samplers.coordinate.hit_and_run import HitAndRun
from dpsample.samplers.errors import NoCertificate, SamplingError
from dpsample.samplers.exact.exact import Exact
from dpsample.samplers.localized.localized import Localized
from dpsample.samplers.metropolis.ball_walk import BallWalk
from dpsample.samplers.metropolis.laplace_independence import LaplaceIndependence
from dpsample.samplers.metropolis.mala import MALA
from dpsample.samplers.metropolis.mirror_langevin import MirrorLangevin
from dpsample.samplers.metropolis.preconditioned_crank_nicolson import (
    PreconditionedCrankNicolson,
)
from dpsample.samplers.metropolis.random_walk import RandomWalk
from dpsample.samplers.metropolis.tilted_gibbs import TiltedGibbs
from dpsample.samplers.proximal.proximal import Proximal
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.subsampled.factorized_metropolis import FactorizedMetropolis
from dpsample.samplers.subsampled.randomized_series import RandomizedSeries
from dpsample.samplers.subsampled.tuna_mh import TunaMH
from dpsample.samplers.whole_body.global_draws import Global
from dpsample.samplers.whole_body.tangent_cells import TangentCells

__all__ = [
    "MALA",
    "BallWalk",
    "BilliardHMC",
    "ChordSlice",
    "CoordinateHitAndRun",
    "Exact",
    "FactorizedMetropolis",
    "Global",
    "HitAndRun",
    "LaplaceIndependence",
    "Localized",
    "MirrorLangevin",
    "NoCertificate",
    "PreconditionedCrankNicolson",
    "Proximal",
    "RandomWalk",
    "RandomizedSeries",
    "Sampler",
    "SamplingError",
    "TangentCells",
    "TiltedGibbs",
    "TunaMH",
    "WhitenedSlice",
]
__dir__ = dir_of(__all__)


def __getattr__(name: str) -> ModuleType:
    if name != "couplings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_moved(f"{__name__}.{name}", stacklevel=2)
