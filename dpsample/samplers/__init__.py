"""Samplers of Gibbs targets, one file each."""

from dpsample.samplers.ball_walk import BallWalk
from dpsample.samplers.coordinate_hit_and_run import CoordinateHitAndRun
from dpsample.samplers.errors import NoCertificate, SamplingError
from dpsample.samplers.factorized_metropolis import FactorizedMetropolis
from dpsample.samplers.hit_and_run import HitAndRun
from dpsample.samplers.laplace_independence import LaplaceIndependence
from dpsample.samplers.mala import MALA
from dpsample.samplers.preconditioned_crank_nicolson import (
    PreconditionedCrankNicolson,
)
from dpsample.samplers.proximal import Proximal
from dpsample.samplers.random_walk import RandomWalk
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.tilted_gibbs import TiltedGibbs

__all__ = [
    "MALA",
    "BallWalk",
    "CoordinateHitAndRun",
    "HitAndRun",
    "FactorizedMetropolis",
    "LaplaceIndependence",
    "NoCertificate",
    "PreconditionedCrankNicolson",
    "Proximal",
    "RandomWalk",
    "Sampler",
    "SamplingError",
    "TiltedGibbs",
]
