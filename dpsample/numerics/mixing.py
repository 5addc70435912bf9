# mypy: allow-untyped-defs
"""Mixing of chains at a glance: effective draws per draw, and split R-hat.

Vectorized over coefficients, for live lines and warm-ups that ask often; reports use
the rank-normalized versions of ArviZ.
"""

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpsample.core.arrays import Array, Ints
from dpsample.core.jit import call, kernel
from dpsample.numerics.ranked import lagged_sum, rank_quantiles

STUCK = 0.999  # largest autocorrelation that is told
HALF = 500  # draws of half a chain of the default length
DIRECT = 2_000_000  # products for all lags of a column, above which a transform pays
LEAST_SHARE, MAX_THINNING = 0.3, 1000  # of draws that are thinned as wanted
# Multiply-adds that take as long as preparing and judging a call on a small target.
FIXED = 1e8


def effective_shares(series: Array) -> Array:
    """Effective draws per draw, of each column of (chain, draw, column).

    Geyer's initial monotone sequence: autocorrelations, averaged over the chains, are
    summed in pairs, none larger than the pair before, up to the first that is not
    positive. NaN for columns without a spread, or with a NaN.
    """
    num, length, num_columns = series.shape
    count = length - length % 2
    moving, shares = np.ptp(series, axis=(0, 1)) > 0.0, np.full(num_columns, np.nan)
    if num * count * count > DIRECT:
        return np.where(moving, _transformed_shares(series[:, :count]), np.nan)
    for j in np.flatnonzero(moving):
        column = np.array(series[:, :count, j], order="C")
        shares[j] = call(share_of_column, column - column.mean())
    return shares


def _transformed_shares(series: Array) -> Array:
    """Return the same of an even number of draws, all lags by Fourier transforms."""
    count = series.shape[1]
    centered = series - series.mean(axis=(0, 1))
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centered, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.mean(axis=0), size, axis=0)[:count]
    with np.errstate(invalid="ignore", divide="ignore"):
        pairs = (covariance[0::2] + covariance[1::2]) / covariance[0]
    pairs = np.maximum(np.minimum.accumulate(pairs, axis=0), 0.0)
    times = np.maximum(2.0 * pairs.sum(axis=0) - 1.0, 1.0 / count)
    return np.asarray(1.0 / times)


@kernel(counts_references=False)
def share_of_column(chains):
    """Effective draws per draw of centered rows; lags are summed while they count."""
    count = chains.shape[1]
    square, time, least = np.nan, -1.0, np.inf
    for lag in range(0, count, 2):
        even = lagged_sum(chains, lag)
        if lag == 0:
            square = even
        pair = (even + lagged_sum(chains, lag + 1)) / square
        if not pair > 0.0:
            break
        least = min(least, pair)
        time += 2.0 * least
    return 1.0 / max(time, 1.0 / count)


def normal_scores(series: Array) -> Array:
    """Ranks of each column of (chain, draw, column) as normal quantiles (Blom, 1958).

    Equal values share the mean of theirs.
    """
    columns = np.ascontiguousarray(series.reshape(-1, series.shape[2]).T)
    quantiles, scores = rank_quantiles(columns.shape[1])[::2].copy(), columns.copy()
    for column, row, order in zip(
        columns, scores, np.argsort(columns, axis=1), strict=True
    ):
        call(score_by_means, column, order, quantiles, row)
    return scores.T.reshape(series.shape)


@kernel(counts_references=False)
def score_by_means(values, order, quantiles, scores):
    """Fill scores with quantiles of the ranks; equal values share their mean."""
    start, count = 0, order.shape[0]
    while start < count:
        value, total, stop = values[order[start]], quantiles[start], start + 1
        while stop < count and values[order[stop]] == value:
            total += quantiles[stop]
            stop += 1
        for i in range(start, stop):
            scores[order[i]] = total / (stop - start)
        start = stop


def effective_share(series: Array) -> float:
    """Smallest of `effective_shares`; NaN if no column has one."""
    shares = effective_shares(series)
    known = shares[np.isfinite(shares)]
    return float(known.min()) if known.size else math.nan


def with_squares(draws: Array) -> Array:
    """Draws (chain, draw, column), and squared deviations from the mean as columns."""
    return np.concatenate([draws, (draws - draws.mean(axis=(0, 1))) ** 2], axis=2)


def share_of(correlation: ArrayLike) -> Any:
    """Effective draws per draw as if autocorrelations fell geometrically, at most 1."""
    most = np.clip(correlation, 0.0, STUCK)
    return (1.0 - most) / (1.0 + most)


def lag_share(series: Array) -> float:
    """`share_of` the column of (chain, draw, column) that is most correlated.

    It is far less noisy than `effective_share` for short chains of many columns, and
    too small by what the largest of many estimates is too large. Columns that never
    move are left out.
    """
    centered = series - series.mean(axis=(0, 1))
    total = (centered**2).sum(axis=(0, 1))
    lagged = (centered[:, 1:] * centered[:, :-1]).sum(axis=(0, 1))
    moving = total > 0.0
    if not moving.any():
        return float(share_of(1.0))
    return float(share_of((lagged[moving] / total[moving]).max()))


def rank_shares(draws: Array) -> Array:
    """Effective draws per draw of coefficients and squares, as verdicts count.

    The least of a hundred estimates is too small by a fifth, which thinning needs as
    its margin. Of more columns the hundredth part that is below counts as the next one,
    but a column that one half of the chains names is believed by what the other tells.
    Columns that never move are left out.
    """
    scores = normal_scores(with_squares(draws))
    shares = effective_shares(scores)
    moving = np.isfinite(shares)
    if not moving.any():
        return np.array([share_of(1.0)])
    known, scores = np.sort(shares[moving]), scores[:, :, moving]
    one, other = (effective_shares(half) for half in (scores[::2], scores[1::2]))
    named = [other[np.nan_to_num(one).argmin()], one[np.nan_to_num(other).argmin()]]
    least = min(float(known[known.size // 100]), float(np.nan_to_num(named).mean()))
    known[0] = least
    return np.maximum(known, max(least, share_of(1.0)))


def wanted_thinning(shares: Array, work: float = math.inf) -> int:
    """Transitions a draw for which 4 x 1000 draws pass R-hat <= 1.01, about.

    Shares are those of the columns, with a transition a draw. The means of eight halves
    of H draws of variance W have the variance W / (H share) times chi^2_7 / 7, so that
    a column fails if that exceeds W (1.01^2 - 1 + 1 / H). In at most one of a hundred
    runs any does, and no share is less than `LEAST_SHARE`, because they are estimates.
    Autocorrelations are taken to fall geometrically.

    These are the fewest that pass; more if that gives more effective draws for all work
    of a call, which is `FIXED` beside ``work`` multiply-adds a transition.
    """
    slow = np.maximum((1.0 - shares) / (1.0 + shares), 0.0)  # 0 if antithetic

    def passes(thinning: int) -> bool:
        thinned = share_of(slow**thinning)
        ratio = thinned * (HALF * (1.01**2 - 1.0) + 1.0)
        failing = special.gammaincc(3.5, 3.5 * ratio).sum()
        return bool(failing <= 0.01 and thinned.min() >= LEAST_SHARE)

    def rate(thinning: int) -> float:
        share = float(share_of(slow.max() ** thinning))
        return share / (FIXED + 8.0 * HALF * thinning * work)

    thinning = 1 + bisect_left(range(1, MAX_THINNING), True, key=passes)
    while thinning < MAX_THINNING and rate(thinning + 1) > rate(thinning):
        thinning += 1
    return thinning


def nested_r_hats(series: Array, groups: Ints) -> tuple[Array, Array]:
    """Nested R-hat of each column of (chain, draw, column), and its noise.

    Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari, Gelman (2024), equations 4 to
    8: sqrt(1 + B / W). Chains of a group, a superchain, have one start. B is the
    variance of the means of the groups; W is the mean over groups of the variance of a
    group's chain means plus the mean variance within its chains. The noise is the part
    of B / W that is expected of chains that have forgotten their starts: the variance
    of chain means in a group by the number of chains in it, over W. ``groups`` holds a
    number for each chain, the same for at least two.
    """
    means, within = series.mean(axis=1), np.zeros((len(series), series.shape[2]))
    if series.shape[1] > 1:
        within = series.var(axis=1, ddof=1)
    parts = [groups == group for group in np.unique(groups)]
    apart = np.array([means[part].var(axis=0, ddof=1) for part in parts])
    inside = (apart + [within[part].mean(axis=0) for part in parts]).mean(axis=0)
    between = np.var([means[part].mean(axis=0) for part in parts], axis=0, ddof=1)
    sizes = np.array([[part.sum()] for part in parts])
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = (apart / sizes).mean(axis=0) / inside
        return np.sqrt(1.0 + between / inside), noise


def sizes_of_means(series: Array) -> Array:
    """Effective sizes of columns of (chain, draw, column), of independent chains.

    The variance of all draws by that of a chain's mean, times the number of chains. It
    needs no autocorrelations, which chains of a few draws do not show. NaN for columns
    without a spread.
    """
    num_chains, num_draws, num_columns = series.shape
    count = num_chains * num_draws
    total = series.reshape(count, num_columns).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = num_chains * total / series.mean(axis=1).var(axis=0, ddof=1)
    return np.asarray(np.minimum(sizes, count * math.log10(count)))


def split_r_hats(draws: Array) -> Array:
    """Split R-hat of each column of (chain, draw, column), without ranks."""
    half = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt((half - 1.0) / half + between / within))


def split_r_hat(draws: Array) -> float:
    """Largest of `split_r_hats`; columns without a spread are left out."""
    return float(np.max(np.nan_to_num(split_r_hats(draws), nan=1.0), initial=1.0))
