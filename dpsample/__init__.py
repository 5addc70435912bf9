"""Sample Gibbs targets over convex bodies; release one draw with a privacy proof.

Names are loaded when they are first used, so importing the package costs little more
than importing Numba.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from dpsample.core.public import MovedModules, dir_of
from dpsample.core.public import __version__ as __version__

if TYPE_CHECKING:
    from dpsample import (
        audits,
        datasets,
        diagnostics,
        domains,
        interop,
        losses,
        noise,
        optimizers,
        papers,
        privacy,
        regularizers,
        samplers,
        stats,
        tables,
    )
    from dpsample.answers.answer import Fit, Release
    from dpsample.answers.statistic import Statistic
    from dpsample.api.advise import advise
    from dpsample.api.fit import fit
    from dpsample.api.intervals import Intervals, intervals
    from dpsample.api.minimize import minimize
    from dpsample.api.minimizer import Minimum, minimizer
    from dpsample.api.release import release
    from dpsample.api.replicate import replicate
    from dpsample.api.sample import sample
    from dpsample.api.tune import tune
    from dpsample.audits import audit
    from dpsample.privacy import Budget, Certificate, calibrate
    from dpsample.problem import problem
    from dpsample.problem.facts import PublicFacts
    from dpsample.problem.problem import Problem
    from dpsample.samplers import NoCertificate, Proximal, SamplingError
    from dpsample.targets.density import Density
    from dpsample.targets.gibbs import Gibbs
    from dpsample.verification.verify import verify

__all__ = [
    "Budget",
    "Certificate",
    "Density",
    "Fit",
    "Gibbs",
    "Intervals",
    "Minimum",
    "NoCertificate",
    "Problem",
    "Proximal",
    "PublicFacts",
    "Release",
    "SamplingError",
    "Statistic",
    "advise",
    "audit",
    "audits",
    "calibrate",
    "datasets",
    "diagnostics",
    "domains",
    "fit",
    "interop",
    "intervals",
    "losses",
    "minimize",
    "minimizer",
    "noise",
    "optimizers",
    "papers",
    "privacy",
    "problem",
    "regularizers",
    "release",
    "replicate",
    "sample",
    "samplers",
    "stats",
    "tables",
    "tune",
    "verify",
]

__dir__ = dir_of([*__all__, "__version__"])

if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
    sys.meta_path.insert(0, MovedModules())

_HOME = {
    "Budget": "privacy",
    "Certificate": "privacy",
    "Density": "targets.density",
    "Fit": "answers.answer",
    "Gibbs": "targets.gibbs",
    "Intervals": "api.intervals",
    "Minimum": "api.minimizer",
    "NoCertificate": "samplers",
    "Problem": "problem.problem",
    "Proximal": "samplers",
    "PublicFacts": "problem.facts",
    "Release": "answers.answer",
    "SamplingError": "samplers",
    "Statistic": "answers.statistic",
    "advise": "api.advise",
    "audit": "audits",
    "calibrate": "privacy",
    "fit": "api.fit",
    "intervals": "api.intervals",
    "minimize": "api.minimize",
    "minimizer": "api.minimizer",
    "release": "api.release",
    "replicate": "api.replicate",
    "sample": "api.sample",
    "tune": "api.tune",
    "verify": "verification.verify",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsample' has no attribute {name!r}")
    module = importlib.import_module(f"dpsample.{_HOME.get(name, name)}")
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value
