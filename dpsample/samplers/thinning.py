"""Thinning of chains: how many transitions make one draw, from a pilot run's shares.

The *share* of a chain is its number of effective draws per draw. Shares are estimated
by Geyer's sum (`dpsample.numerics.r_hat_and_ess`) or, in windows of a warm-up that are
too short for it, by the autocorrelation at lag 1.
"""

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpsample.core.arrays import Array
from dpsample.numerics.r_hat_and_ess import (
    effective_shares,
    normal_scores,
    with_squares,
)

# Number of draws of half a chain of the default length, of which R-hat compares the
# means.
HALF = 500
# Minimum share after thinning, and the maximum number of transitions per draw.
MIN_SHARE = 0.3
MAX_THINNING = 1000
# Multiply-adds that take as long as the work of a call on a small target before and
# after its transitions.
FIXED_WORK = 1e8


def share_of(correlation: ArrayLike) -> Any:
    """Return the share if autocorrelations fall geometrically, at most 1.

    With the autocorrelations c^t it is 1 / (1 + 2 sum c^t) = (1 - c) / (1 + c).
    """
    # Maximum autocorrelation that counts. A chain that never moved has this one, so
    # that its share is small and positive.
    clipped = np.clip(correlation, 0.0, 0.999)
    return (1.0 - clipped) / (1.0 + clipped)


def lag_share(series: Array) -> float:
    """Return `share_of` the most correlated column of (chain, draw, column).

    It is far less noisy than `effective_shares` for short chains of many columns. It is
    too small, because the largest of many estimates is too large. Columns that never
    move are left out.
    """
    # The autocorrelation at lag 1, with the mean of all chains.
    centered = series - series.mean(axis=(0, 1))
    total = (centered**2).sum(axis=(0, 1))
    lagged = (centered[:, 1:] * centered[:, :-1]).sum(axis=(0, 1))
    moving = total > 0.0
    if not moving.any():
        return float(share_of(1.0))
    return float(share_of((lagged[moving] / total[moving]).max()))


def rank_shares(draws: Array) -> Array:
    """Return shares of the normal scores of coefficients and squares, sorted.

    The least of a hundred estimates is too small by a fifth, which thinning needs as
    its margin. If there are more columns, the smallest hundredth of the shares is
    raised to the next one, because those estimates are too small by more. An exception
    is a column that is the worst in one half of the chains, and has a small share in
    the other half as well. Columns that never move are left out.
    """
    scores = normal_scores(with_squares(draws))
    shares = effective_shares(scores)
    moving = np.isfinite(shares)
    if not moving.any():
        return np.array([share_of(1.0)])
    sorted_shares, scores = np.sort(shares[moving]), scores[:, :, moving]
    one, other = (effective_shares(half) for half in (scores[::2], scores[1::2]))
    # The worst column of each half, with its share in the other half. That estimate is
    # not biased by the choice of the column.
    worst = [other[np.nan_to_num(one).argmin()], one[np.nan_to_num(other).argmin()]]
    hundredth = float(sorted_shares[sorted_shares.size // 100])
    min_share = min(hundredth, float(np.nan_to_num(worst).mean()))
    sorted_shares[0] = min_share
    return np.maximum(sorted_shares, max(min_share, share_of(1.0)))


def wanted_thinning(shares: Array, work: float = math.inf) -> int:
    """Return about how many transitions a draw let 4 x 1000 draws pass R-hat <= 1.01.

    Shares are those of the columns, with a transition a draw. The means of eight halves
    of H draws of variance W have the variance W / (H share) times chi^2_7 / 7, so that
    a column fails if that exceeds W (1.01^2 - 1 + 1 / H). In at most one of a hundred
    runs any does, and no share is less than `MIN_SHARE`, because they are estimates.
    Autocorrelations are taken to fall geometrically.

    The result is the smallest number that passes, or a larger one if that gives more
    effective draws for all work of a call, which is `FIXED_WORK` in addition to
    ``work`` multiply-adds a transition.
    """
    # c of the autocorrelations c^t, from share = (1 - c) / (1 + c).
    slow = np.maximum((1.0 - shares) / (1.0 + shares), 0.0)  # 0 if antithetic

    def passes(thinning: int) -> bool:
        # After thinning by t the autocorrelation at lag 1 is c^t.
        thinned = share_of(slow**thinning)
        ratio = thinned * (HALF * (1.01**2 - 1.0) + 1.0)
        # P(chi^2_7 > 7 ratio) of each column. Their sum bounds the probability of any.
        failing = special.gammaincc(3.5, 3.5 * ratio).sum()
        return bool(failing <= 0.01 and thinned.min() >= MIN_SHARE)

    def rate(thinning: int) -> float:
        # Effective draws of the slowest column for all work of eight halves of H draws.
        share = float(share_of(slow.max() ** thinning))
        return share / (FIXED_WORK + 8.0 * HALF * thinning * work)

    # If a thinning passes, so does every longer one.
    thinning = 1 + bisect_left(range(1, MAX_THINNING), True, key=passes)
    while thinning < MAX_THINNING and rate(thinning + 1) > rate(thinning):
        thinning += 1
    return thinning
