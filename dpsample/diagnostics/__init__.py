"""Diagnostics: what chains show, and what they cannot show.

Nothing here is a proof of privacy: no diagnostic enters a certificate.
"""

from dpsample.core.public import dir_of
from dpsample.diagnostics import couplings
from dpsample.diagnostics.draw_check import check
from dpsample.diagnostics.draw_pictures import (
    plot_autocorrelation,
    plot_draws,
    plot_ess_evolution,
    plot_rank,
    plot_trace,
)
from dpsample.diagnostics.identities import Expectations, gamma_check, stein_check
from dpsample.diagnostics.mixing import MixingBound, tv_bound
from dpsample.diagnostics.moments import MomentCheck, unbiased_moments
from dpsample.diagnostics.references import Comparison, compare
from dpsample.diagnostics.simulation_based import (
    Calibration,
    simulation_based_calibration,
)
from dpsample.diagnostics.summaries import CheckReport, Finding, summary

__all__ = [
    "Calibration",
    "CheckReport",
    "Comparison",
    "Expectations",
    "Finding",
    "MixingBound",
    "MomentCheck",
    "check",
    "compare",
    "couplings",
    "gamma_check",
    "plot_autocorrelation",
    "plot_draws",
    "plot_ess_evolution",
    "plot_rank",
    "plot_trace",
    "simulation_based_calibration",
    "stein_check",
    "summary",
    "tv_bound",
    "unbiased_moments",
]
__dir__ = dir_of(__all__)
