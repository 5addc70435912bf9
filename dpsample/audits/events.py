r"""Lower bounds of privacy loss from events, valid whatever the event.

(epsilon, delta)-privacy says Q(S) <= e^epsilon P(S) + delta for *every* event S. So the
event may come from anywhere - here it is {score > t}, with t chosen on the first half
of the draws - and confidence bounds of Q(S) and P(S) from the second half refute a
claim with no knowledge of the densities or their normalizing constants. In particular
an estimated constant that moves t makes the test weaker, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.audits.bounds import binomial_lower, binomial_upper

Array = NDArray[np.float64]

# Thresholds that are compared: tails of either sample, and evenly spread ones.
NUM_TAIL, NUM_EVEN = 150, 100
# Scores that are closer than this share of their spread count as equal. Otherwise the
# last bits of log ratios with atoms tell where a draw was rounded, and a correct
# mechanism is refuted for its floating-point arithmetic (Mironov 2012).
RESOLUTION = 2.0**-30


class Counts(NamedTuple):
    """How many of ``size`` draws of each law have a score above each threshold."""

    above_p: Array
    above_q: Array
    size: int

    def bounds(self, alpha: float) -> tuple[Array, Array]:
        """Upper bounds of P(S) and lower bounds of Q(S), each wrong with alpha."""
        upper = binomial_upper(self.above_p, self.size, alpha)
        return upper, binomial_lower(self.above_q, self.size, alpha)


class Events:
    """Events {score > t} of one direction: Q(S) is compared with e^epsilon P(S).

    Parameters
    ----------
    first, second : tuple of two arrays of shape (n,)
        Scores of draws of P and of Q; thresholds come from ``first``.
    """

    def __init__(self, first: tuple[Array, Array], second: tuple[Array, Array]) -> None:
        unit = RESOLUTION * _spread(first)
        sorted_first = _sorted(first, unit)
        thresholds = _candidates(sorted_first)
        self.first = _count(sorted_first, thresholds)
        self.second = _count(_sorted(second, unit), thresholds)
        self._known: dict[float, tuple[Array, Array]] = {}

    def epsilon(self, delta: float, alpha: float) -> float:
        """Lower bound of epsilon at delta, wrong with probability 2 alpha at most."""

        def gain(upper: Array, lower: Array) -> Array:
            with np.errstate(divide="ignore"):
                return np.log(np.maximum(lower - delta, 0.0)) - np.log(upper)

        best = self._best(gain, alpha)
        return max(0.0, float(gain(*self._bounds(best, alpha))[0]))

    def gdp(self, alpha: float) -> float:
        """Lower bound of gdp, wrong with probability 2 alpha at most.

        gdp-GDP says Phi^{-1}(Q(S)) - Phi^{-1}(P(S)) <= gdp for every event; both
        probabilities are bounded, jointly.
        """
        from scipy.special import ndtri

        def gain(upper: Array, lower: Array) -> Array:
            # -inf - (-inf) cannot occur: the upper bound is never 0.
            return np.asarray(ndtri(lower) - ndtri(upper))

        best = self._best(gain, alpha)
        return max(0.0, float(gain(*self._bounds(best, alpha))[0]))

    def delta(self, epsilon: float, alpha: float) -> float:
        """Lower bound of delta(epsilon), wrong with probability 2 alpha at most."""
        growth = np.exp(epsilon)
        best = self._best(lambda upper, lower: lower - growth * upper, alpha)
        upper, lower = self._bounds(best, alpha)
        return max(0.0, float((lower - growth * upper)[0]))

    def plain_delta(self, epsilon: float, alpha: float) -> float:
        """Estimate of delta(epsilon) on the second half, for the event of `delta`."""
        growth = np.exp(epsilon)
        best = self._best(lambda upper, lower: lower - growth * upper, alpha)
        gap = self.second.above_q[best] - growth * self.second.above_p[best]
        return max(0.0, float(gap) / self.second.size)

    def _best(self, gain: Callable[[Array, Array], Array], alpha: float) -> int:
        """Threshold with the best bounds if the second half were like the first."""
        if alpha not in self._known:
            self._known[alpha] = self.first.bounds(alpha)
        return int(np.argmax(gain(*self._known[alpha])))

    def _bounds(self, best: int, alpha: float) -> tuple[Array, Array]:
        """Bounds on the second half at the chosen threshold, of shape (1,)."""
        one = slice(best, best + 1)
        chosen = Counts(
            self.second.above_p[one], self.second.above_q[one], self.second.size
        )
        return chosen.bounds(alpha)


def _spread(scores: tuple[Array, Array]) -> float:
    """Distance of the quartiles of all finite scores, or 1 if there is none."""
    both = np.concatenate(scores)
    finite = both[np.isfinite(both)]
    if finite.size == 0:
        return 1.0
    low, high = np.quantile(finite, [0.25, 0.75])
    return float(high - low) or 1.0


def _sorted(scores: tuple[Array, Array], unit: float) -> tuple[Array, Array]:
    """Scores in units of the resolution, rounded and sorted."""
    return np.sort(np.round(scores[0] / unit)), np.sort(np.round(scores[1] / unit))


def _candidates(scores: tuple[Array, Array]) -> Array:
    """Thresholds: ranks that grow geometrically from both tops, and even ranks."""
    size = len(scores[0])
    tail = np.geomspace(1.0, size, NUM_TAIL)
    ranks = np.unique(np.concatenate([tail, np.linspace(1.0, size, NUM_EVEN)]).round())
    places = size - ranks.astype(np.int64)
    return np.unique(np.concatenate([values[places] for values in scores]))


def _count(scores: tuple[Array, Array], thresholds: Array) -> Counts:
    """Count sorted scores above thresholds."""
    size = len(scores[0])
    places = [np.searchsorted(v, thresholds, side="right") for v in scores]
    above = size - np.array(places, dtype=np.float64)
    return Counts(above[0], above[1], size)
