"""Sample Gibbs targets over convex bodies; release one draw with a privacy proof.

Names are loaded when they are first used, so importing the package costs little more
than importing Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsample.core.public import __version__ as __version__
from dpsample.core.public import dir_of

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
        regularizers,
        samplers,
        tables,
    )
    from dpsample.audits import audit
    from dpsample.privacy import Budget, Certificate, calibrate
    from dpsample.problem import problem
    from dpsample.problem.facts import PublicFacts
    from dpsample.problem.problem import Problem
    from dpsample.samplers import NoCertificate, Proximal, SamplingError
    from dpsample.targets.gibbs import Gibbs
    from dpsample.verbs.advise import advise
    from dpsample.verbs.intervals import Intervals, intervals
    from dpsample.verbs.minimize import minimize
    from dpsample.verbs.release import release
    from dpsample.verbs.replicate import replicate
    from dpsample.verbs.results import Fit, Release
    from dpsample.verbs.sample import sample
    from dpsample.verbs.tune import tune
    from dpsample.verbs.verify import verify

__all__ = [
    "Budget",
    "Certificate",
    "Fit",
    "Gibbs",
    "Intervals",
    "NoCertificate",
    "Problem",
    "Proximal",
    "PublicFacts",
    "Release",
    "SamplingError",
    "advise",
    "audit",
    "audits",
    "calibrate",
    "datasets",
    "diagnostics",
    "domains",
    "intervals",
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
    "tables",
    "tune",
    "verify",
]

__dir__ = dir_of([*__all__, "__version__"])

_HOME = {
    "Budget": "privacy",
    "Certificate": "privacy",
    "Fit": "verbs.results",
    "Gibbs": "targets.gibbs",
    "Intervals": "verbs.intervals",
    "NoCertificate": "samplers",
    "Problem": "problem.problem",
    "Proximal": "samplers",
    "PublicFacts": "problem.facts",
    "Release": "verbs.results",
    "SamplingError": "samplers",
    "advise": "verbs.advise",
    "audit": "audits",
    "calibrate": "privacy",
    "intervals": "verbs.intervals",
    "minimize": "verbs.minimize",
    "release": "verbs.release",
    "replicate": "verbs.replicate",
    "sample": "verbs.sample",
    "tune": "verbs.tune",
    "verify": "verbs.verify",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsample' has no attribute {name!r}")
    module = importlib.import_module(f"dpsample.{_HOME.get(name, name)}")
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value
