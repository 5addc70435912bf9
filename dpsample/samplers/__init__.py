"""Samplers of Gibbs targets, one file each."""

from dpsample._public import dir_of
from dpsample.samplers import couplings
from dpsample.samplers.ball_walk import BallWalk
from dpsample.samplers.coordinate_hit_and_run import CoordinateHitAndRun
from dpsample.samplers.errors import NoCertificate, SamplingError
from dpsample.samplers.exact import Exact
from dpsample.samplers.factorized_metropolis import FactorizedMetropolis
from dpsample.samplers.hit_and_run import HitAndRun
from dpsample.samplers.laplace_independence import LaplaceIndependence
from dpsample.samplers.mala import MALA
from dpsample.samplers.mirror_langevin import MirrorLangevin
from dpsample.samplers.preconditioned_crank_nicolson import (
    PreconditionedCrankNicolson,
)
from dpsample.samplers.proximal import Proximal
from dpsample.samplers.random_walk import RandomWalk
from dpsample.samplers.randomized_series import RandomizedSeries
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.tilted_gibbs import TiltedGibbs
from dpsample.samplers.tuna_mh import TunaMH

__all__ = [
    "MALA",
    "BallWalk",
    "CoordinateHitAndRun",
    "Exact",
    "HitAndRun",
    "FactorizedMetropolis",
    "LaplaceIndependence",
    "MirrorLangevin",
    "NoCertificate",
    "PreconditionedCrankNicolson",
    "Proximal",
    "RandomWalk",
    "RandomizedSeries",
    "Sampler",
    "SamplingError",
    "TiltedGibbs",
    "TunaMH",
    "couplings",
]
__dir__ = dir_of(__all__)
