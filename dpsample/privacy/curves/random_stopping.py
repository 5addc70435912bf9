r"""Best of a random number of runs: the privacy curve of private tuning.

A base mechanism Q draws a candidate (say, the settings of a fit), runs it and scores
it, all of it privately. It is run K times, and the outcome with the best score is
released. K is random and stays secret. If two scores are equal, the earlier run wins.

Q has the *privacy curve* delta_Q: for every epsilon and every two neighboring data
sets, Q is (epsilon, delta_Q(epsilon))-indistinguishable in both directions. Letters
with a prime belong to the second data set. The *distribution of K* (`Stop`) is

- geometric or logarithmic: P(K = j) is proportional to (1 - gamma)^j or to
  (1 - gamma)^j / j for j >= 1. These are truncated negative binomial distributions
  with eta = 1 and eta = 0. We write odds = 1/gamma - 1.
- Poisson: K may be 0, and then nothing is released.

**Theorem.** Let phi be the generating function of K and m = phi'(1) its mean. Let F and
F' be the probabilities, on the two data sets, that one outcome ranks no higher than a
given one. If phi'(F) <= e^s phi'(F') for all such pairs, then for every epsilon >= 0

.. math:: \delta(\epsilon) \le m\, \delta_Q(\epsilon - s).

*Proof* (as Koskela, Redberg and Wang, arXiv:2402.06701). Equal scores are ordered by an
independent uniform number that is part of the outcome, so no two outcomes are equal. Q
has the density q, and the best of K outcomes has the density phi'(F(y)) q(y). As phi'
increases, phi' <= m. So for every set S

.. math:: \int_S \phi'(F) q - e^{\epsilon} \phi'(F') q'
   \le \int_S \phi'(F) (q - e^{\epsilon - s} q') \le m\, \delta_Q(\epsilon - s).

The event K = 0 has the same probability on all data sets, which only helps.

**The shift s.** Let T = 1 - F and T' = 1 - F' be the probabilities of a higher rank. By
privacy T' <= e^c T + delta_Q(c) for every c >= 0.

- Negative binomial: phi'(F) is proportional to (1 + odds T)^-(eta + 1). Choose c with

  .. math:: e^c - 1 \ge \mathrm{odds}\; \delta_Q(c).

  Then 1 + odds T' <= 1 + odds delta_Q(c) + e^c odds T <= e^c (1 + odds T), which gives
  s = (eta + 1) c. The smallest such c is used. It is below the shift that any epsilon'
  gives in the form exp(epsilon') + odds delta_Q(epsilon').
- Poisson: phi'(F) = m e^{-m T}. T' - T is at most the total variation delta_Q(0), which
  gives s = m delta_Q(0).

The mean is m = 1 + odds if K is geometric, m = odds / log(1 + odds) if logarithmic.

**Below and near s** the theorem says little. A second bound starts from any loss b
above epsilon at which it says enough. If a mechanism is (b, f)-indistinguishable in
both directions, then for epsilon < b its delta is at most

.. math:: f + (1 - f)\, \frac{e^b - e^{\epsilon}}{1 + e^b},

because randomized response that fails with probability f dominates it (Kairouz, Oh and
Viswanath, arXiv:1311.0776). Every b gives a valid bound, so b may be searched roughly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

from dpsample.core import check
from dpsample.privacy.curves.gaussian import GOLDEN, LOG_MARGIN, bisect, gaussian_delta

Stop = Literal["logarithmic", "geometric", "poisson"]
STOPS = ("logarithmic", "geometric", "poisson")
# This factor exceeds the relative errors of a curve and of a few operations.
ROUND_UP = 1.0 + 2.0 * LOG_MARGIN
Curve = Callable[[float], float]  # delta at a privacy loss >= 0


def check_stop(stop: object, mean_tries: object) -> None:
    """Raise unless the distribution of K is known and its mean is in [1, 1000]."""
    check.one_of(STOPS, stop=stop)
    check.at_least(1.0, mean_tries=mean_tries)
    if not float(mean_tries) <= 1000.0:  # type: ignore[arg-type]
        check.fail("mean_tries", "<= 1000", mean_tries)


@functools.lru_cache(maxsize=256)
def stopping_odds(stop: str, mean_tries: float) -> float:
    """Return odds = 1/gamma - 1 of the distribution of K, rounded down.

    It is 0 if K is always 1.

    Examples
    --------
    >>> stopping_odds("geometric", 10.0), round(stopping_odds("logarithmic", 10.0), 3)
    (9.0, 36.15)
    """
    if stop != "logarithmic":
        # If K is geometric, m = 1 + odds.
        return mean_tries - 1.0

    # With t = log(1 + odds), the mean is (e^t - 1)/t.
    def is_mean_small(t: float) -> bool:
        return math.expm1(t) <= mean_tries * t

    # e^t - 1 >= t + t^2/2 bounds t by 2 (m - 1). At t = 20 the mean is above 1000.
    max_t = min(2.0 * (mean_tries - 1.0), 20.0)
    return math.expm1(bisect(is_mean_small, safe=0.0, unsafe=max_t))


def stopping_shift(curve: Curve, stop: str, mean_tries: float) -> float:
    """Return the shift s of the theorem, rounded up, for a base with this curve."""
    if stop == "poisson":
        return mean_tries * curve(0.0) * ROUND_UP
    odds = stopping_odds(stop, mean_tries) * ROUND_UP
    if odds == 0.0:
        return 0.0

    def is_safe(c: float) -> bool:
        return math.expm1(c) >= odds * curve(c)

    # e^c - 1 = odds is safe, because no delta is above 1.
    largest = math.log1p(odds) * ROUND_UP
    c = bisect(is_safe, safe=largest, unsafe=0.0, width=1e-13)
    return (2.0 if stop == "geometric" else 1.0) * c * ROUND_UP  # eta + 1


def best_of_delta(
    curve: Curve, epsilon: float, *, mean_tries: float, shift: float
) -> float:
    """Return delta at ``epsilon`` of the best of K outcomes.

    Parameters
    ----------
    curve : callable
        delta_Q(epsilon) of the base for epsilon >= 0, an upper bound in both directions
        that does not rise.
    epsilon : float
        Privacy loss, >= 0.
    mean_tries : float
        Mean of K.
    shift : float
        From `stopping_shift`.

    Returns
    -------
    float
        delta in [0, 1].

    Examples
    --------
    >>> base = lambda epsilon: gaussian_delta(epsilon, 0.2367)
    >>> shift = stopping_shift(base, "logarithmic", 10.0)
    >>> print(f"{best_of_delta(base, 1.5, mean_tries=10.0, shift=shift):.2e}")
    2.81e-07
    """

    def theorem_bound(loss: float) -> float:
        # It may exceed 1. The golden sections below need its slope there.
        return mean_tries * curve(max(loss - shift, 0.0)) * ROUND_UP

    def response_bound(loss: float) -> float:
        # The bound "below and near s" with b = loss, divided by e^b on both sides.
        fails = theorem_bound(loss)
        excess = -math.expm1(epsilon - loss) / (1.0 + math.exp(-loss))
        return (fails + (1.0 - fails) * excess) * ROUND_UP

    low, best = max(epsilon, shift), 1.0
    if epsilon >= shift:
        best = theorem_bound(epsilon)
        # The curve is convex. If a small step costs more excess than it saves, so does
        # every longer one.
        if response_bound(epsilon + 0.01 * best) >= best:
            return min(best, 1.0)
    # Double the range of b until the theorem's part is negligible next to the excess.
    # Beyond 4 times a small best bound, the excess alone is larger than that bound.
    width = min(shift, 4.0 * best)
    while theorem_bound(low + width) > 1e-3 * min(width, 1.0) and 0.0 < width < 100.0:
        width *= 2.0
    high = low + width
    for _ in range(16):  # each golden section keeps 0.62 of the range
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = response_bound(left), response_bound(right)
        best = min(best, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return min(best, 1.0)


def best_of_gdp(epsilon: float, delta: float, *, stop: str, mean_tries: float) -> float:
    """Return the largest gdp of a base whose best of K meets (epsilon, delta).

    Examples
    --------
    >>> gdp = best_of_gdp(1.0, 1e-6, stop="logarithmic", mean_tries=10.0)
    >>> print(f"{gdp:.4f}")
    0.1670
    """

    def is_safe(gdp: float) -> bool:
        def curve(loss: float) -> float:
            return gaussian_delta(loss, gdp) * ROUND_UP

        shift = stopping_shift(curve, stop, mean_tries)
        best = best_of_delta(curve, epsilon, mean_tries=mean_tries, shift=shift)
        return best <= delta

    # Brackets of the largest safe gdp, which differ by a factor of 2.
    unsafe = 1.0
    while is_safe(unsafe):
        unsafe *= 2.0
    safe = 0.5 * unsafe
    while not is_safe(safe):
        unsafe, safe = safe, 0.5 * safe
        if safe < 1e-100:
            remedy = "Spend a larger epsilon or delta."
            check.fail("epsilon and delta", "large enough", (epsilon, delta), remedy)
    return bisect(is_safe, safe=safe, unsafe=unsafe, width=1e-12)
