# mypy: allow-untyped-defs
r"""R-hat and effective sample size (ESS): the only implementation of either.

Definitions are those of Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021, Bayesian
Analysis 16(2), arXiv:1903.08008), and tests compare the numbers with ArviZ's. For M
chains of N draws, S = M N, let W be the mean variance within chains and B / N the
variance of their means (equations 1 and 2):

    var+ = (N - 1) / N W + B / N                                   (equation 3)
    R-hat = sqrt(var+ / W)                                         (equation 4)
    rho_t = 1 - (W - covariance at lag t) / var+                   (equation 10)
    ESS = S / tau,  tau = -1 + 2 (P_0 + P_1 + ...)                 (equations 12 and 13)

P_k = rho_{2k} + rho_{2k+1} are the pairs of Geyer's initial monotone sequence. It ends
before the first pair that is not positive, and a pair that is larger than the one
before is replaced by it. Stan and ArviZ add the even autocorrelation after the last
pair if it is positive, and so does this file. Chains are *split*: their halves count as
chains. Draws are *rank-normalized*: normal quantiles of (rank - 3/8) / (S + 1/4)
replace them, and ties have their mean rank (equation 14). R-hat is the larger one of
the scores of theta and of the *folded* draws \|theta - median\| (equation 15). *Bulk*
ESS is that of the scores. *Tail* ESS is the smaller one of the indicators of theta <=
its 5 % and 95 % quantiles (section 4.3).

One sort for each coefficient is enough for theta and for the square (theta - mean)^2.
Distances from a center decrease on one side of it and increase on the other, so a merge
sorts them. Covariances are summed lag by lag as long as they are needed, or by one
Fourier transform if that takes less work. That takes an eighth of ArviZ's processor
time.

Many short chains show no autocorrelations. They are compared by *nested* R-hat, and by
the variance of their means, at the end of this file.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from scipy import special

from dpsample.core.arrays import Array, Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import call, kernel

# Maximum number of products for the lags of one column. Beyond it a Fourier transform
# is faster. At least 16 lags are summed first, because fast chains need no more.
MAX_PRODUCTS = 2_000_000
# Number of columns that are copied together, because the numbers of one column are far
# apart in memory.
BLOCK = 32
# ArviZ calls a column constant if its numbers have a smaller range.
CONSTANT_RANGE = 1e-15
TAIL_PROB = 0.05  # probability of each tail whose indicators are judged


@lru_cache(maxsize=4)
def rank_quantiles(count: int) -> Array:
    """Return normal quantiles of the ranks 1, 1.5, 2, ..., count (equation 14)."""
    ranks = np.arange(1.0, count + 0.5, 0.5)
    return np.asarray(special.ndtri((ranks - 0.375) / (count + 0.25)))


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def lagged_sum(chains, lag):
    """Return the sum of x_t x_{t + lag} over the rows."""
    total = 0.0
    for c in range(chains.shape[0]):
        for t in range(chains.shape[1] - lag):
            total += chains[c, t] * chains[c, t + lag]
    return total


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def covariance_sum(chains, sums, lag):
    """Return `lagged_sum`, which is kept in ``sums`` from its first use on."""
    if np.isnan(sums[lag]):
        sums[lag] = lagged_sum(chains, lag)
    return sums[lag]


@kernel(counts_references=False)
def score(values, order, quantiles, scores):
    """Fill scores with the quantiles of ranks. Equal values share their mean rank."""
    start, count = 0, order.shape[0]
    while start < count:
        value, stop = values[order[start]], start + 1
        while stop < count and values[order[stop]] == value:
            stop += 1
        # Quantiles are those of ranks in steps of 1/2, so this is the mean rank's.
        quantile = quantiles[start + stop - 1]
        for i in range(start, stop):
            scores[order[i]] = quantile
        start = stop


@kernel(counts_references=False)
def fold(values, order, center, power, folded, folded_order):
    """Fill ``folded`` with |x - center|^power, and ``folded_order`` with their order.

    ``order`` is that of the values x. The next distance is the smaller one of the two
    next to the center, to the left and to the right.
    """
    count, right = order.shape[0], 0
    for i in range(count):
        distance = abs(values[i] - center)
        folded[i] = distance * distance if power == 2 else distance
    # Distances from the center increase from it to both sides of the sorted values. So
    # their order is a merge of the two sides, without another sort.
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
def r_hat_of_rows(chains, means):
    """Return R-hat of rows as they are, and fill in their means."""
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
    return math.sqrt((length * variance(means) / within + length - 1.0) / length)


@kernel(counts_references=False)
def variance(means):
    """Return the sample variance."""
    mean, square = 0.0, 0.0
    for c in range(means.shape[0]):
        mean += means[c] / means.shape[0]
    for c in range(means.shape[0]):
        square += (means[c] - mean) ** 2
    return square / (means.shape[0] - 1.0)


@kernel(counts_references=False)
def geyer_sum(chains, offset, scale, sums):
    """Return -1 + 2 (P_0 + P_1 + ...) and the even autocorrelation after these pairs.

    Autocorrelations of centered rows are offset + (sum of products at lag t) / scale,
    and 1 at lag 0. ``sums`` has a number for each lag. Both results are NaN if more
    lags are needed.
    """
    length = chains.shape[1]
    even = 1.0
    odd = offset + covariance_sum(chains, sums, 1) / scale
    time, smallest, t = -1.0, np.inf, 1
    while t < length - 3 and even + odd > 0.0:
        if t + 2 >= sums.shape[0]:
            return np.nan, np.nan
        # Sums of pairs of autocorrelations decrease for reversible chains. A larger one
        # is noise.
        smallest = min(smallest, even + odd)
        time += 2.0 * smallest
        even = offset + covariance_sum(chains, sums, t + 1) / scale
        odd = offset + covariance_sum(chains, sums, t + 2) / scale
        t += 2
    # The last pair is not positive, or ends at the last lag. Only its even term may
    # count, which is negative only in the second case.
    is_counted = even > 0.0 or even + odd >= 0.0
    return time, even if is_counted else 0.0


@kernel(counts_references=False)
def size_of_rows(chains, between, sums):
    """Return the effective size of centered rows.

    ``between`` is the variance of their means. The result is NaN if more lags are
    needed than ``sums`` has.
    """
    num, length = chains.shape
    count = float(num * length)
    # W and var+ of R-hat: the mean variance within chains, and an estimate of the
    # variance that is too large as long as chains are apart.
    within = covariance_sum(chains, sums, 0) / count * length / (length - 1.0)
    plus = within * (length - 1.0) / length + between
    time, even = geyer_sum(chains, 1.0 - within / plus, count * plus, sums)
    # Antithetic chains have tau near 0. Stan limits the ESS to S log10(S).
    return count / max(time + even, 1.0 / math.log10(count))


@kernel(counts_references=False)
def share_of_rows(chains, sums):
    """Return effective draws per draw of rows that are centered by their joint mean.

    There is no term for the variance of the means and no even term at the end. The
    result is NaN if more lags are needed than ``sums`` has.
    """
    time, _ = geyer_sum(chains, 0.0, covariance_sum(chains, sums, 0), sums)
    return 1.0 / max(time, 1.0 / chains.shape[1])


@kernel(counts_references=False)
def judge(values, order, quantiles, workspace, chains, is_folded, out):
    """Fill in R-hat and effective size of one column, whose order is known.

    A column that ``is_folded`` raises R-hat if its own is larger. The chains are a view
    of the workspace's scores.
    """
    scores = workspace.scores
    score(values, order, quantiles, scores)
    if is_folded:
        out[0] = max(out[0], r_hat_of_rows(chains, workspace.means))
        return
    is_constant = scores[order[-1]] - scores[order[0]] < CONSTANT_RANGE
    out[0] = r_hat_of_rows(chains, workspace.means)
    for c in range(chains.shape[0]):
        for t in range(chains.shape[1]):
            chains[c, t] -= workspace.means[c]
    workspace.sums[:] = np.nan
    out[1] = scores.shape[0]
    if not is_constant:
        out[1] = size_of_rows(chains, variance(workspace.means), workspace.sums)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class Workspace(NamedTuple):
    """Scratch memory for columns of one length."""

    scores: Array
    folded: Array
    squares: Array
    folded_order: Ints
    square_order: Ints
    means: Array  # a number for each chain
    sums: Array  # sums of products, a number for each lag

    @classmethod
    def for_chains(cls, num_chains: int, length: int) -> Self:
        """Return the memory for so many split chains of a length."""
        count = num_chains * length
        return cls(
            scores=np.empty(count),
            folded=np.empty(count),
            squares=np.empty(count),
            folded_order=np.empty(count, dtype=np.int64),
            square_order=np.empty(count, dtype=np.int64),
            means=np.empty(num_chains),
            sums=unknown_sums(count, length),
        )


Workspaces = dict[tuple[int, int], Workspace]


def unknown_sums(count: int, length: int) -> Array:
    """Return a NaN for each lag that is summed directly, two at least."""
    num_lags = min(length, max(16, MAX_PRODUCTS // count))
    return np.full(max(num_lags, 2), np.nan)


def transformed_sums(centered: Array) -> Array:
    """Return the sums of products of rows at all lags, by a Fourier transform."""
    length = centered.shape[1]
    # Zeros behind each row keep products of its end and its begin out of the sums.
    size = 1 << (2 * length - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centered, size))
    return np.fft.irfft(np.square(spectrum).sum(axis=0))[:length].copy()


def verdicts(draws: Array) -> tuple[Array, Array]:
    """Return R-hat and bulk ESS of draws (chain, draw, column), each (2, column).

    The first row is that of the coefficients, the second that of their squares. R-hat
    of one chain is that of its halves, as if they were two chains. Both numbers are NaN
    for a column with a number that is not finite. A chain has at least four draws.
    """
    num_columns = draws.shape[2]
    r_hats, sizes = np.full((2, 2, num_columns), np.nan)
    workspaces: Workspaces = {}
    for j, column in enumerate(columns_of(draws)):
        if np.isfinite(column).all():
            r_hats[:, j], sizes[:, j] = _judge_column(column, workspaces)
    return r_hats, sizes


def columns_of(draws: Array) -> Iterator[Array]:
    """Yield each column of (chain, draw, column) as an array (chain, draw)."""
    for start in range(0, draws.shape[2], BLOCK):
        block = draws[:, :, start : start + BLOCK].transpose(2, 0, 1)
        yield from np.array(block, dtype=np.float64, order="C")


def _judge_column(column: Array, workspaces: Workspaces) -> tuple[Array, Array]:
    """Return R-hat, and ESS, of a column (chain, draw) and of its squares."""
    mean = float(column.mean())
    measures = _judge_rows(_split(column), mean, workspaces)
    if len(column) > 1:
        return measures[:, 0], measures[:, 1]
    # The halves of a single chain are the two chains of R-hat, which are split again.
    even = column.shape[1] // 2 * 2
    quarters = _split(_split(column[:, :even]))
    return _judge_rows(quarters, mean, workspaces)[:, 0], measures[:, 1]


def _split(draws: Array) -> Array:
    """Return first and last halves of chains, without the draw between them."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _judge_rows(chains: Array, mean: float, workspaces: Workspaces) -> Array:
    """Return R-hat and effective size, a row each for a column and its squares.

    ``workspaces`` are those of the columns before, by number and length of chains.
    """
    values, (num, length) = np.ravel(chains), chains.shape
    if (num, length) not in workspaces:
        workspaces[num, length] = Workspace.for_chains(num, length)
    workspace = workspaces[num, length]
    quantiles, out = rank_quantiles(values.size), np.empty((2, 2))
    order = np.argsort(values)
    chains = workspace.scores.reshape(num, -1)
    squares = workspace.squares, workspace.square_order
    folded = workspace.folded, workspace.folded_order
    call(fold, values, order, mean, 2, *squares)
    for (column, ranks), row in zip(((values, order), squares), out, strict=True):
        call(judge, column, ranks, quantiles, workspace, chains, False, row)
        call(fold, column, ranks, median(column, ranks), 1, *folded)
        call(judge, *folded, quantiles, workspace, chains, True, row)
    # Slow chains need more lags than were summed directly.
    if len(workspace.sums) < length and np.isnan(out[:, 1]).any():
        for row, column in zip(out, (values, (values - mean) ** 2), strict=True):
            row[1] = transformed_size(_score_column(column).reshape(num, -1))
    return out


def median(values: Array, order: Ints) -> float:
    """Return the median of values whose order is known."""
    half = len(order) // 2
    if len(order) % 2 == 1:
        return float(values[order[half]])
    return float(0.5 * (values[order[half - 1]] + values[order[half]]))


def _score_column(values: Array) -> Array:
    """Return the scores of some values."""
    scores = np.empty_like(values)
    call(score, values, np.argsort(values), rank_quantiles(values.size), scores)
    return scores


def normal_scores(series: Array) -> Array:
    """Return normal scores (equation 14) of each column of (chain, draw, column)."""
    scores = [_score_column(column.ravel()) for column in columns_of(series)]
    return np.array(scores).T.reshape(series.shape)


def transformed_size(chains: Array) -> float:
    """Return the effective size of chains (chain, draw) by a Fourier transform."""
    means = chains.mean(axis=1)
    centered = chains - means[:, None]
    between = float(means.var(ddof=1)) if len(means) > 1 else 0.0
    sums = transformed_sums(centered)
    return float(call(size_of_rows, centered, between, sums))


def plain_sizes(values: Array, *, is_split: bool = True) -> Array:
    """Return ESS for the mean of each column of (chain, draw, column), without ranks.

    Constant columns have the number of draws. A chain has at least four draws.
    """
    sizes = np.empty(values.shape[2])
    for j, column in enumerate(columns_of(values)):
        chains = _split(column) if is_split else column
        if np.ptp(chains) < CONSTANT_RANGE:
            sizes[j] = chains.size
            continue
        means = chains.mean(axis=1)
        between = float(means.var(ddof=1)) if len(means) > 1 else 0.0
        sums = unknown_sums(chains.size, chains.shape[1])
        sizes[j] = call(size_of_rows, chains - means[:, None], between, sums)
        if np.isnan(sizes[j]) and len(sums) < chains.shape[1]:
            sizes[j] = transformed_size(chains)
    return sizes


def tail_sizes(draws: Array) -> Array:
    """Return tail ESS of each column of (chain, draw, column)."""
    return np.fmin(*map(plain_sizes, tail_indicators(draws)))


def tail_indicators(draws: Array) -> Array:
    """Return indicators of draws up to the 5 % and up to the 95 % quantile."""
    ends = np.quantile(draws, [TAIL_PROB, 1.0 - TAIL_PROB], axis=(0, 1))
    return np.array([draws <= end for end in ends], dtype=np.float64)


def plain_r_hats(draws: Array) -> Array:
    """Return split R-hat of each column of (chain, draw, column), without ranks.

    It needs no sort, so a warm-up can afford it after each window. It is NaN without a
    spread.
    """
    r_hats = np.full(draws.shape[2], np.nan)
    for j, column in enumerate(columns_of(draws)):
        halves = _split(column)
        if np.ptp(halves) > 0.0:
            r_hats[j] = call(r_hat_of_rows, halves, np.empty(len(halves)))
    return r_hats


def largest_r_hat(draws: Array) -> float:
    """Return the largest of `plain_r_hats`, without columns that have no spread."""
    return float(np.max(np.nan_to_num(plain_r_hats(draws), nan=1.0), initial=1.0))


def effective_shares(series: Array) -> Array:
    """Return effective draws per draw of each column of (chain, draw, column).

    It is Geyer's sum for whole chains, which are centered by their joint mean. In short
    pilot runs the means of halves have too large errors to be compared. It is NaN for
    columns without a spread, or with a NaN.
    """
    count = series.shape[1] // 2 * 2
    shares = np.full(series.shape[2], np.nan)
    for j, column in enumerate(columns_of(series[:, :count])):
        if not np.ptp(column) > 0.0:
            continue
        centered = column - column.mean()
        sums = unknown_sums(column.size, count)
        shares[j] = call(share_of_rows, centered, sums)
        if np.isnan(shares[j]) and len(sums) < count:
            shares[j] = call(share_of_rows, centered, transformed_sums(centered))
    return shares


def effective_share(series: Array) -> float:
    """Return the smallest of `effective_shares`, or NaN if no column has one."""
    shares = effective_shares(series)
    finite = shares[np.isfinite(shares)]
    return float(finite.min()) if finite.size else math.nan


def with_squares(draws: Array) -> Array:
    """Append squared deviations from the mean to draws (chain, draw, column)."""
    return np.concatenate([draws, (draws - draws.mean(axis=(0, 1))) ** 2], axis=2)


def nested_r_hats(series: Array, groups: Ints) -> tuple[Array, Array]:
    """Return nested R-hat of each column of (chain, draw, column), and its noise.

    It is sqrt(1 + B / W) of Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari, Gelman
    (2024), equations 4 to 8. Chains of a group, a superchain, have one start. B is the
    variance of the means of the groups. W is the mean over groups of the variance of a
    group's chain means plus the mean variance within its chains. The noise is the part
    of B / W that is expected if chains do not depend on their starts any more. It is
    the variance of chain means in a group, divided by the number of its chains and by
    W. ``groups`` has the number of each chain's group. A group has at least two chains.
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
    """Return effective sizes of columns of (chain, draw, column) by chain means only.

    It is the variance of all draws divided by the variance of a chain's mean, times the
    number of chains. It needs no autocorrelations, which chains of a few draws do not
    show. It is NaN for columns without a spread.
    """
    num_chains, num_draws, num_columns = series.shape
    count = num_chains * num_draws
    total = series.reshape(count, num_columns).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = num_chains * total / series.mean(axis=1).var(axis=0, ddof=1)
    return np.asarray(np.minimum(sizes, count * math.log10(count)))
