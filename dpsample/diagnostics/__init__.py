"""Diagnostics: what chains show, and what they cannot show.

Nothing here is a proof of privacy: no diagnostic enters a certificate.
"""

from dpsample.diagnostics.calibration import simulation_based_calibration
from dpsample.diagnostics.check_report import CheckReport, Finding
from dpsample.diagnostics.checking import check
from dpsample.diagnostics.comparison import Comparison
from dpsample.diagnostics.expectations import Expectations
from dpsample.diagnostics.identities import gamma_check, stein_check
from dpsample.diagnostics.mixing import tv_bound
from dpsample.diagnostics.mixing_bound import MixingBound
from dpsample.diagnostics.moments import MomentCheck, unbiased_moments
from dpsample.diagnostics.ranks import Calibration
from dpsample.diagnostics.references import compare
from dpsample.diagnostics.summaries import summary

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
    "gamma_check",
    "simulation_based_calibration",
    "stein_check",
    "summary",
    "tv_bound",
    "unbiased_moments",
]
