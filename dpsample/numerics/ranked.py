# mypy: allow-untyped-defs
"""Rank-normalized R-hat and bulk effective size, the numbers that ArviZ gives.

Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021, arXiv:1903.08008), for theta and
(theta - mean)^2. One sort serves a coefficient: its distances from the mean or the
median fall on one side and rise on the other, so that a merge sorts them, and twice
folded ones too. Autocovariances are summed lag by lag, as far as they are asked for.
"""

import math
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from scipy import special

from dpsample.core.arrays import Array, Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import call, kernel

# Products for the lags of one column that are summed directly; then a transform pays.
DIRECT = 2_000_000
LEAST_LAGS = 16
PART = 32  # columns that are copied together
# ArviZ calls a column constant if its scores have this range.
CONSTANT = 1e-15


@lru_cache(maxsize=4)
def rank_quantiles(count: int) -> Array:
    """Return normal quantiles of ranks 1, 1.5, 2, ..., count (Blom, 1958)."""
    ranks = np.arange(1.0, count + 0.5, 0.5)
    return np.asarray(special.ndtri((ranks - 0.375) / (count + 0.25)))


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def lagged_sum(chains, lag):
    """Sum of x_t x_{t + lag} over the rows."""
    total = 0.0
    for c in range(chains.shape[0]):
        for t in range(chains.shape[1] - lag):
            total += chains[c, t] * chains[c, t + lag]
    return total


@kernel(counts_references=False)
def lagged(chains, sums, lag):
    """Return a sum of products; it is kept, unless it was known."""
    if np.isnan(sums[lag]):
        sums[lag] = lagged_sum(chains, lag)
    return sums[lag]


@kernel(counts_references=False)
def score(values, order, quantiles, scores):
    """Fill scores with the quantiles of ranks; equal values share their mean rank."""
    start, count = 0, order.shape[0]
    while start < count:
        value, stop = values[order[start]], start + 1
        while stop < count and values[order[stop]] == value:
            stop += 1
        quantile = quantiles[start + stop - 1]
        for i in range(start, stop):
            scores[order[i]] = quantile
        start = stop


@kernel(counts_references=False)
def fold(values, order, center, power, folded, folded_order):
    """Fill folded with |x - center|^power, and with their order that of x implies."""
    count, right = order.shape[0], 0
    for i in range(count):
        distance = abs(values[i] - center)
        folded[i] = distance * distance if power == 2 else distance
    while right < count and values[order[right]] < center:
        right += 1
    left = right - 1
    for i in range(count):
        is_left = right == count
        if left >= 0 and right < count:
            is_left = folded[order[left]] <= folded[order[right]]
        if is_left:
            folded_order[i] = order[left]
            left -= 1
        else:
            folded_order[i] = order[right]
            right += 1


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def split_r_hat(chains, means):
    """R-hat of rows, whose means are filled in."""
    num, length = chains.shape
    within, total = 0.0, 0.0
    for c in range(num):
        mean = 0.0
        for t in range(length):
            mean += chains[c, t]
        mean /= length
        square = 0.0
        for t in range(length):
            square += (chains[c, t] - mean) ** 2
        within += square / (length - 1.0) / num
        means[c] = mean
        total += mean
    return math.sqrt((length * spread(means) / within + length - 1.0) / length)


@kernel(counts_references=False)
def spread(means):
    """Sample variance."""
    mean, square = 0.0, 0.0
    for c in range(means.shape[0]):
        mean += means[c] / means.shape[0]
    for c in range(means.shape[0]):
        square += (means[c] - mean) ** 2
    return square / (means.shape[0] - 1.0)


@kernel(counts_references=False)
def geyer_size(chains, between, sums, rho):
    """Effective size of centered rows by Geyer's initial monotone sequence.

    ``between`` is the variance of their means, ``sums`` and ``rho`` hold a number per
    lag; NaN if a longer one is needed. As ArviZ has it, that is Stan.
    """
    num, length = chains.shape
    count = float(num * length)
    within = lagged(chains, sums, 0) / count * length / (length - 1.0)
    plus = within * (length - 1.0) / length + between
    even, odd = 1.0, 1.0 - (within - lagged(chains, sums, 1) / count) / plus
    rho[:] = 0.0
    rho[0], rho[1] = even, odd
    t = 1
    while t < length - 3 and even + odd > 0.0:
        if t + 2 >= sums.shape[0]:
            return np.nan
        even = 1.0 - (within - lagged(chains, sums, t + 1) / count) / plus
        odd = 1.0 - (within - lagged(chains, sums, t + 2) / count) / plus
        if even + odd >= 0.0:
            rho[t + 1], rho[t + 2] = even, odd
        t += 2
    last = t - 2
    if even > 0.0:
        rho[last + 1] = even
    t = 1
    while t <= last - 2:
        if rho[t + 1] + rho[t + 2] > rho[t - 1] + rho[t]:
            rho[t + 1] = rho[t + 2] = 0.5 * (rho[t - 1] + rho[t])
        t += 2
    time = rho[last + 1] - 1.0
    for k in range(last + 1):
        time += 2.0 * rho[k]
    return count / max(time, 1.0 / math.log10(count))


@kernel(counts_references=False)
def judge(values, order, quantiles, room, chains, is_folded, out):
    """R-hat and effective size of one column, whose order is known.

    Then R-hat of the column that ``is_folded``, if it is larger. The chains are a view
    of the room's scores.
    """
    scores = room.scores
    score(values, order, quantiles, scores)
    if is_folded:
        out[0] = max(out[0], split_r_hat(chains, room.means))
        return
    is_constant = scores[order[-1]] - scores[order[0]] < CONSTANT
    out[0] = split_r_hat(chains, room.means)
    for c in range(chains.shape[0]):
        for t in range(chains.shape[1]):
            chains[c, t] -= room.means[c]
    room.sums[:] = np.nan
    out[1] = scores.shape[0]
    if not is_constant:
        out[1] = geyer_size(chains, spread(room.means), room.sums, room.rho)


@by_address
class RankRoom(NamedTuple):
    """Scratch memory for columns of one length."""

    scores: Array
    folded: Array
    squares: Array
    folded_order: Ints
    square_order: Ints
    means: Array  # of chains
    sums: Array  # by lag
    rho: Array

    @classmethod
    def of(cls, num_chains: int, length: int, num_lags: int) -> Self:
        """RankRoom for so many split chains of a length, and at least two lags."""
        count, num_lags = num_chains * length, max(num_lags, 2)
        return cls(
            scores=np.empty(count),
            folded=np.empty(count),
            squares=np.empty(count),
            folded_order=np.empty(count, dtype=np.int64),
            square_order=np.empty(count, dtype=np.int64),
            means=np.empty(num_chains),
            sums=np.empty(num_lags),
            rho=np.empty(max(num_lags, length)),
        )


def verdicts(draws: Array) -> tuple[Array, Array]:
    """R-hat and bulk effective size of draws (chain, draw, column), each (2, column).

    The first row is that of the coefficients, the second that of the squares. R-hat of
    one chain is that of its halves; both are NaN for a column with a number that is not
    finite. There must be four draws of a chain.
    """
    columns = range(draws.shape[2])
    r_hats, sizes = np.full((2, 2, len(columns)), np.nan)
    for start in columns[::PART]:  # copied, since the numbers of one are far apart
        part = np.array(draws[:, :, start : start + PART].transpose(2, 0, 1), order="C")
        for j, column in enumerate(part, start):
            if np.isfinite(column).all():
                r_hats[:, j], sizes[:, j] = _judged(column)
    return r_hats, sizes


def _judged(column: Array) -> tuple[Array, Array]:
    """R-hat, and effective size, of a column (chain, draw) and of its squares."""
    mean = float(column.mean())
    found = _of_halves(_split(column), mean)
    if len(column) > 1:
        return found[:, 0], found[:, 1]
    even = column.shape[1] // 2 * 2
    return _of_halves(_split(_split(column[:, :even])), mean)[:, 0], found[:, 1]


def _split(draws: Array) -> Array:
    """First and last halves of chains; the draw between them is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _of_halves(chains: Array, mean: float) -> Array:
    """R-hat and effective size, a row each for a column (chain, draw) and squares."""
    values, (num, length) = np.ravel(chains), chains.shape
    num_lags = min(length, max(LEAST_LAGS, DIRECT // values.size))
    room = RankRoom.of(num, length, num_lags)
    quantiles, out = rank_quantiles(values.size), np.empty((2, 2))
    order = np.argsort(values)
    chains = room.scores.reshape(num, -1)
    call(fold, values, order, mean, 2, room.squares, room.square_order)
    columns = (values, order), (room.squares, room.square_order)
    for (column, ranks), row in zip(columns, out, strict=True):
        call(judge, column, ranks, quantiles, room, chains, False, row)
        middle, folded = median(column, ranks), (room.folded, room.folded_order)
        call(fold, column, ranks, middle, 1, *folded)
        call(judge, *folded, quantiles, room, chains, True, row)
    if num_lags < length and np.isnan(out[:, 1]).any():
        for row, column in zip(out, (values, (values - mean) ** 2), strict=True):
            row[1] = transformed_size(column, num)
    return out


def median(values: Array, order: Ints) -> float:
    """Median of values whose order is known."""
    half = len(order) // 2
    if len(order) % 2 == 1:
        return float(values[order[half]])
    return float(0.5 * (values[order[half - 1]] + values[order[half]]))


def transformed_size(values: Array, num_chains: int) -> float:
    """Effective size of the scores of chains, all lags by a Fourier transform."""
    scores = np.empty_like(values)
    call(score, values, np.argsort(values), rank_quantiles(values.size), scores)
    chains = scores.reshape(num_chains, -1)
    means = chains.mean(axis=1)
    centered = chains - means[:, None]
    size = 1 << (2 * chains.shape[1] - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centered, size))
    sums = np.fft.irfft(np.square(spectrum).sum(axis=0))[: chains.shape[1]]
    between = float(means.var(ddof=1))
    return float(call(geyer_size, centered, between, sums.copy(), np.empty_like(sums)))
