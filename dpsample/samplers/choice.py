"""Which sampler suits a target."""

from __future__ import annotations

from typing import Any

from dpsample.samplers.proximal import Proximal
from dpsample.samplers.sampler import Sampler
from dpsample.samplers.tilted_gibbs import TiltedGibbs


def choose(target: Any) -> tuple[Sampler, str]:
    """Return a sampler and the reason for it, in a few words."""
    if Proximal().supports(target)[0]:
        return Proximal(), "strongly convex"
    return TiltedGibbs(), "no certificate"
