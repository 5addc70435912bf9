"""Couplings with a lag: total variation seen from meeting times, unbiased moments."""

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
