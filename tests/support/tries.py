"""The law of the number of tries of a tuned fit."""

import math

from dpsample.privacy.curves.random_stopping import stopping_odds


def tries_probability(stop: str, mean_tries: float, tries: int) -> float:
    """Probability that K is ``tries``."""
    if stop == "poisson":
        log = tries * math.log(mean_tries) - mean_tries - math.lgamma(tries + 1.0)
        return math.exp(log)
    odds = stopping_odds(stop, mean_tries)
    if tries < 1 or odds == 0.0:
        return float(tries == 1)
    ratio = odds / (1.0 + odds)
    if stop == "geometric":
        return ratio ** (tries - 1) / (1.0 + odds)
    return ratio**tries / (tries * math.log1p(odds))
