r"""Best of a random number of tries: the privacy curve of private tuning.

A base mechanism (draw a candidate, train it, score it, all of it private) has the
curve delta_Q, in both directions. It is run K times, K random and never told, and the
outcome with the best score is returned; ties go to the earlier try.

**Theorem.** Let phi be the generating function of K and m = phi'(1) its mean. If
phi'(F) <= e^s phi'(F') for the probabilities F, F' that both data sets give to any set
of worst ranks, then for every epsilon >= 0

.. math:: \delta(\epsilon) \le m\, \delta_Q(\epsilon - s).

*Proof* (the recipe of Koskela, Redberg and Wang, arXiv:2402.06701). Ties by order are
ties by an independent uniform number, which is part of the outcome: no two are equal.
The best of K has the density phi'(F(y)) q(y), F(y) the probability of what is not
better than y, and phi' <= m because it increases. So for every set S

.. math:: \int_S \phi'(F) q - e^{\epsilon} \phi'(F') q'
   \le \int_S \phi'(F) (q - e^{\epsilon - s} q') \le m\, \delta_Q(\epsilon - s).

That K = 0 has one probability on all data sets only helps.

**The shift s.** Write T = 1 - F and T' = 1 - F', so that T' <= e^c T + delta_Q(c) for
every c. Truncated negative binomial laws have phi'(F) proportional to (1 + odds T)
to the power -(eta + 1), odds = 1/gamma - 1: the geometric law has eta = 1 and
m = 1 + odds, the logarithmic one eta = 0 and m = odds / log(1 + odds). Take c with

.. math:: e^c - 1 \ge \mathrm{odds}\; \delta_Q(c).

Then 1 + odds T' <= 1 + odds delta_Q(c) + e^c odds T <= e^c (1 + odds T), which gives
s = (eta + 1) c.
No c gives less where the least one does: at e^c - 1 = odds delta_Q(c) the line
e^c T + delta_Q(c) is sharp. It is below what all choices of epsilon' in
exp(epsilon') + odds delta_Q(epsilon') give. For Poisson K, phi'(F) = m e^{-m T}, and
T' - T <= delta_Q(0), the total variation: s = m delta_Q(0).

Near s, and below it, that says little, but what is (b, delta)-indistinguishable in both
directions is (epsilon, delta + (1 - delta) (e^b - e^epsilon)/(1 + e^b))-
indistinguishable for epsilon < b (randomized response that fails with probability delta
dominates: Kairouz, Oh and Viswanath, arXiv:1311.0776), whichever b is tried.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

from dpsample.core import check
from dpsample.privacy.curves.gaussian import LOG_MARGIN, gaussian_delta

Stop = Literal["logarithmic", "geometric", "poisson"]
STOPS = ("logarithmic", "geometric", "poisson")
MOST_TRIES = 1000.0
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Search for b: to where delta is this share of the excess, but no farther than that.
FLAT, FARTHEST, RESPONSE_STEPS = 1e-3, 100.0, 16
# More than the errors of curves and of a few operations.
ROUND_UP = 1.0 + 2.0 * LOG_MARGIN
Curve = Callable[[float], float]


def check_stop(stop: object, mean_tries: object) -> None:
    """Refuse an unknown law, or a mean outside of [1, 1000]."""
    check.one_of(STOPS, stop=stop)
    check.at_least(1.0, mean_tries=mean_tries)
    if not float(mean_tries) <= MOST_TRIES:  # type: ignore[arg-type]
        check.fail("mean_tries", f"<= {MOST_TRIES:g}", mean_tries)


@functools.lru_cache(maxsize=256)
def stopping_odds(stop: str, mean_tries: float) -> float:
    """Return 1/gamma - 1 of the law of K, rounded down; 0 if K is always 1.

    Examples
    --------
    >>> stopping_odds("geometric", 10.0), round(stopping_odds("logarithmic", 10.0), 3)
    (9.0, 36.15)
    """
    if stop != "logarithmic":
        return mean_tries - 1.0
    # (e^t - 1) / t = m, t = log(1 + odds); e^t - 1 >= t + t^2/2 bounds t.
    safe, unsafe = 0.0, min(2.0 * (mean_tries - 1.0), 20.0)
    for _ in range(200):
        middle = 0.5 * (safe + unsafe)
        is_safe = math.expm1(middle) <= mean_tries * middle
        safe, unsafe = (middle, unsafe) if is_safe else (safe, middle)
    return math.expm1(safe)


def stopping_shift(curve: Curve, stop: str, mean_tries: float) -> float:
    """Return the shift s of the theorem, rounded up, for a base with this curve."""
    if stop == "poisson":
        return mean_tries * curve(0.0) * ROUND_UP
    odds = stopping_odds(stop, mean_tries) * ROUND_UP
    if odds == 0.0:
        return 0.0
    safe, unsafe = math.log1p(odds) * ROUND_UP, 0.0  # delta <= 1
    while safe - unsafe > 1e-13 * safe:
        middle = 0.5 * (safe + unsafe)
        is_safe = math.expm1(middle) >= odds * curve(middle)
        safe, unsafe = (middle, unsafe) if is_safe else (safe, middle)
    return (2.0 if stop == "geometric" else 1.0) * safe * ROUND_UP


def best_of_delta(
    curve: Curve, epsilon: float, *, mean_tries: float, shift: float
) -> float:
    """Delta at ``epsilon`` of the best of K outcomes.

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

    def direct(loss: float) -> float:
        return mean_tries * curve(max(loss - shift, 0.0)) * ROUND_UP

    def response(loss: float) -> float:
        fails = direct(loss)  # above 1, too: the search below has a slope there
        excess = -math.expm1(epsilon - loss) / (1.0 + math.exp(-loss))
        return (fails + (1.0 - fails) * excess) * ROUND_UP

    low, best = max(epsilon, shift), 1.0
    if epsilon >= shift:
        best = direct(epsilon)
        # Where the convex curve is so flat that no excess is below its fall.
        if response(epsilon + 0.01 * best) >= best:
            return min(best, 1.0)
    width = min(shift, 4.0 * best)  # beyond, the excess is above the best
    while direct(low + width) > FLAT * min(width, 1.0) and 0.0 < width < FARTHEST:
        width *= 2.0
    high = low + width
    for _ in range(RESPONSE_STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = response(left), response(right)
        best = min(best, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return min(best, 1.0)


def best_of_gdp(epsilon: float, delta: float, *, stop: str, mean_tries: float) -> float:
    """Largest gdp of a base whose best of K meets (epsilon, delta).

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
        found = best_of_delta(curve, epsilon, mean_tries=mean_tries, shift=shift)
        return found <= delta

    unsafe = 1.0
    while is_safe(unsafe):
        unsafe *= 2.0
    safe = 0.5 * unsafe
    while not is_safe(safe):
        unsafe, safe = safe, 0.5 * safe
        if safe < 1e-100:
            remedy = "Spend a larger epsilon or delta."
            check.fail("epsilon and delta", "large enough", (epsilon, delta), remedy)
    while unsafe - safe > 1e-12 * safe:
        middle = 0.5 * (safe + unsafe)
        safe, unsafe = (middle, unsafe) if is_safe(middle) else (safe, middle)
    return safe
