"""Couplings with a lag: total variation seen from meeting times, unbiased moments."""

from dpsample._public import dir_of
from dpsample.samplers.couplings.curve import TotalVariationCurve
from dpsample.samplers.couplings.meeting import MeetingTimes, meeting_times
from dpsample.samplers.couplings.moments import UnbiasedMoments, unbiased_moments

__all__ = [
    "MeetingTimes",
    "TotalVariationCurve",
    "UnbiasedMoments",
    "meeting_times",
    "unbiased_moments",
]
__dir__ = dir_of(__all__)
