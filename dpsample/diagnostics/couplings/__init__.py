"""Couplings with a lag: total variation seen from meeting times, unbiased moments."""

from dpsample.core.public import dir_of
from dpsample.diagnostics.couplings.meeting import (
    MeetingTimes,
    TotalVariationCurve,
    meeting_times,
)
from dpsample.diagnostics.couplings.unbiased import UnbiasedMoments, unbiased_moments

__all__ = [
    "MeetingTimes",
    "TotalVariationCurve",
    "UnbiasedMoments",
    "meeting_times",
    "unbiased_moments",
]
__dir__ = dir_of(__all__)
