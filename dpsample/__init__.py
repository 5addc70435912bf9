"""Sample Gibbs targets over convex bodies; release one draw with a privacy proof.

Names are loaded when they are first used, so importing the package costs little more
than importing Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsample._public import dir_of
from dpsample._version import __version__ as __version__

if TYPE_CHECKING:
    from dpsample import (
        audits,
        datasets,
        diagnostics,
        domains,
        losses,
        noise,
        optimizers,
        privacy,
        problem,
        regularizers,
        samplers,
    )
    from dpsample.api import release
    from dpsample.audits import audit
    from dpsample.facts import PublicFacts
    from dpsample.fits import Fit
    from dpsample.minimizing import minimize
    from dpsample.privacy import Budget, Certificate, calibrate, verify
    from dpsample.problem import Problem
    from dpsample.replicating import replicate
    from dpsample.results import Release
    from dpsample.samplers import NoCertificate, Proximal, SamplingError
    from dpsample.sampling import sample
    from dpsample.targets import Gibbs

__all__ = [
    "Budget",
    "Certificate",
    "Fit",
    "Gibbs",
    "NoCertificate",
    "Problem",
    "Proximal",
    "PublicFacts",
    "Release",
    "SamplingError",
    "audit",
    "audits",
    "calibrate",
    "datasets",
    "diagnostics",
    "domains",
    "losses",
    "minimize",
    "noise",
    "optimizers",
    "privacy",
    "problem",
    "regularizers",
    "release",
    "replicate",
    "sample",
    "samplers",
    "verify",
]

__dir__ = dir_of([*__all__, "__version__"])

_HOME = {
    "Budget": "privacy",
    "Certificate": "privacy",
    "Fit": "fits",
    "Gibbs": "targets",
    "NoCertificate": "samplers",
    "Problem": "problem",
    "Proximal": "samplers",
    "PublicFacts": "facts",
    "Release": "results",
    "SamplingError": "samplers",
    "audit": "audits",
    "calibrate": "privacy",
    "minimize": "minimizing",
    "release": "api",
    "replicate": "replicating",
    "sample": "sampling",
    "verify": "privacy",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsample' has no attribute {name!r}")
    module = importlib.import_module(f"dpsample.{_HOME.get(name, name)}")
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value
