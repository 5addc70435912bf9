"""Samplers of Gibbs targets, one file each."""

from dpsample.samplers.errors import NoCertificate, SamplingError
from dpsample.samplers.proximal import Proximal

__all__ = ["NoCertificate", "Proximal", "SamplingError"]
