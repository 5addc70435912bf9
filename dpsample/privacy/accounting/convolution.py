r"""Convolution of privacy loss distributions on a grid, by Fourier transforms.

The privacy loss of a pair (P, Q) of distributions is log(P/Q) of a draw from P. Losses
of independent parts add up, so the loss distribution of a composition is a convolution.
Here a loss distribution is a vector of masses m_l on a grid of losses l = j h, where h
is the *interval* between neighbors. Its curve is

.. math:: \sum_l (1 - e^{\epsilon - l})_+ m_l.

The result is an upper bound of the composition's curve, all rounding errors included.

**Composition.** Masses are tilted to :math:`m_l e^{\theta l - k}`, where k makes their
sum 1 and theta is the largest on a list with a tilted mean loss of at most epsilon, so
that losses near epsilon are likely. They are convolved on a *circle* of N = 2^b cells,
one for each loss, by powers of transforms that are multiplied and transformed back. The
circle stands for a *window* of losses. Losses that leave it at one end come back at the
other, where they increase a mass, so that the result stays an upper bound. The mass
above the window is less than Chernoff's bound, which is added.

**Rounding**, with u = 2^-53. A transform by radices 2 and 4 is a sum along paths of b
levels, each with an addition, or two in two levels, and a product with a twiddle
factor. Twiddles within 4 u make each output off by less than :math:`\gamma = 8 u b`
times the sum of all inputs' absolute values (0.7 u b was seen). So at each frequency
the product of powers of computed transforms P_i, made of T products within 3 u each, is
off by at most

.. math:: E = \prod (|P_i| + \gamma)^{t_i} - (1 - 3 u T) \prod |P_i|^{t_i},

and a mass by (sum E + gamma sum of products) / N, which is added to it. After the tilt
is undone, that is a small part of delta, however small delta is.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import UNIT_ROUNDOFF, Array

MAX_LOSS = 700.0  # its exponential is a double
# Tilts are 0 and sqrt(2)^k / (standard deviation of the loss) for integers k >= this
# exponent. A tilt changes little if it is smaller than the first of these.
MIN_TILT_EXPONENT = -24
# Logarithm of the tilted probability that may lie outside either end of a window.
LOG_OUTSIDE = -30.0


class LossDistribution(NamedTuple):
    """Upper bound of a privacy loss distribution, on a grid with some interval.

    Attributes
    ----------
    first : int
        Index of the first loss. The loss of ``masses[j]`` is (first + j) times the
        interval.
    masses : ndarray of shape (num_losses,)
        Probabilities of the finite losses, raised by more than their errors.
    infinite : float
        Probability of an infinite loss.
    """

    first: int
    masses: Array
    infinite: float


class Window(NamedTuple):
    """Masses of a composition where its tilted distribution is, the tilt undone.

    Attributes
    ----------
    first : int
        Index of the first loss. The loss of ``masses[j]`` is (first + j) times the
        interval.
    masses : ndarray of shape (num_losses,)
        Probabilities, which are raised by the absolute errors already.
    level : float
        Logarithm k of the tilt's normalizer.
    tilt : float
        theta of the tilt.
    error_factor : float
        Factor >= 1 that covers the relative rounding errors of a mass.
    """

    first: int
    masses: Array
    level: float
    tilt: float
    error_factor: float


class Composition:
    """Convolution of powers of loss distributions on one grid.

    Parameters
    ----------
    factors : tuple of LossDistribution
        Different distributions.
    times : list of int
        How often each of them is composed.
    interval : float
        Interval of the grid.
    """

    def __init__(
        self, factors: tuple[LossDistribution, ...], times: list[int], interval: float
    ) -> None:
        self._times, self._interval = times, interval
        self._lowest = sum(t * x.first for x, t in zip(factors, times, strict=True))
        self._losses = [
            interval * (x.first + np.arange(len(x.masses))) for x in factors
        ]
        with np.errstate(divide="ignore"):
            self._log_masses = [np.log(x.masses) for x in factors]
        # All losses are finite with mass e^log_finite, which may exceed 1, as the
        # masses of factors are upper bounds. With infinite losses it grows by
        # e^log_growth.
        sums = [float(x.masses.sum()) for x in factors]
        ratios = [x.infinite / total for x, total in zip(factors, sums, strict=True)]
        log_growth = float(np.dot(times, np.log1p(ratios)))
        log_finite = float(np.dot(times, np.log(sums)))
        infinite = math.exp(log_finite + log_growth) * -math.expm1(-log_growth)
        # Relative errors in units u: a sum is off by less than 64 of them, a logarithm
        # and a product by one.
        size = log_growth + float(np.dot(times, np.abs(np.log(sums))))
        errors = 64.0 * (sum(times) + len(factors)) + 4.0 * (len(factors) + 2.0) * size
        self._infinite = infinite * math.exp(errors * UNIT_ROUNDOFF)
        self._deviation = self._moments(0.0)[2]
        # Mean losses and windows by the index of a tilt.
        self._means = dict[int, float]()
        self._windows = dict[int, Window]()

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at epsilon >= 0."""
        # At a tilt of 32 over the interval neighboring cells differ by a factor e^32,
        # so that nearly all mass is on one cell. A larger tilt changes nothing.
        max_tilt = 32.0 * self._deviation / self._interval
        low, high = MIN_TILT_EXPONENT - 1, math.floor(2.0 * math.log2(max_tilt))
        while high - low > 1:  # find the largest tilt with a mean loss <= epsilon
            middle = (low + high) // 2
            if middle not in self._means:
                self._means[middle] = self._moments(self._tilt(middle))[1]
            is_low = self._means[middle] <= epsilon
            low, high = (middle, high) if is_low else (low, middle)
        window = self._windows.get(low) or self._window(self._tilt(low))
        # At most 2^22 masses are kept in addition to the last window. The list is a
        # copy, because other threads may add windows to this composition.
        if sum(len(other.masses) for other in [*self._windows.values()]) > 2**22:
            self._windows.clear()
        self._windows[low] = window
        first, masses, level, tilt, error_factor = window
        # All losses above epsilon are included. 4 u exceeds the rounding error of the
        # product of a loss, and a larger loss only increases delta.
        start = min(max(math.floor(epsilon / self._interval) - first, 0), len(masses))
        cells = first + np.arange(start, len(masses))
        gains = -np.expm1(
            epsilon - self._interval * (1.0 + 4.0 * UNIT_ROUNDOFF) * cells
        )
        delta = float(np.maximum(gains, 0.0) @ masses[start:])
        end = max(self._interval * (first + len(masses)), epsilon)
        # The tilted mass above the window is at most e^LOG_OUTSIDE, and undoing the
        # tilt multiplies it by at most e^(k - tilt end). It is added twice, which
        # exceeds the rounding errors of this bound.
        delta += 2.0 * math.exp(min(level - tilt * end + LOG_OUTSIDE, 0.0))
        if tilt == 0.0:  # the window may begin above epsilon
            delta += 2.0 * math.exp(level + LOG_OUTSIDE)
        # Windows have different errors. A common minimum of the factor keeps the curve
        # from rising where it passes from one window to the next. The infinite mass
        # is the same for all of them and needs no factor.
        return min(delta * max(error_factor, 1.0 + 1e-10) + self._infinite, 1.0)

    def curve(self, losses: Array) -> Array:
        """Return upper bounds of delta at increasing epsilons ``losses`` >= 0.

        `delta` is evaluated at some 500 nodes. Between two nodes the curve of a pair of
        distributions is convex in e^epsilon, so a chord in e^epsilon is above it.
        """
        nodes = np.append(losses[:-1][:: 1 + len(losses) // 500], losses[-1:])
        deltas = np.array([self.delta(float(node)) for node in nodes])
        begin = np.searchsorted(nodes[1:], losses)
        end = np.minimum(begin + 1, len(nodes) - 1)
        # Losses of a grid, of which nodes are some: differences of neighbors are exact.
        widths, distances = nodes[end] - nodes[begin], losses - nodes[begin]
        ranges = np.maximum(np.expm1(widths), check.MIN_NORMAL)
        shares = np.expm1(distances) / ranges
        chords: Array = (1.0 - shares) * deltas[begin] + shares * deltas[end]
        return chords

    def _tilt(self, k: int) -> float:
        """Return the tilt with index k, which is 0 for the lowest index."""
        return 0.0 if k < MIN_TILT_EXPONENT else 2.0 ** (0.5 * k) / self._deviation

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Return log-normalizer, mean and standard deviation of the tilted loss."""
        level, mean, variance = 0.0, 0.0, 0.0
        for times, losses, log_masses in zip(
            self._times, self._losses, self._log_masses, strict=True
        ):
            exponents = tilt * losses + log_masses
            largest = float(exponents.max())
            weights = np.exp(exponents - largest)
            total = float(weights.sum())
            center = float(weights @ losses) / total
            level += times * (largest + math.log(total))
            mean += times * center
            variance += times * float(weights @ (losses - center) ** 2) / total
        return level, mean, max(math.sqrt(variance), self._interval)

    def _span(self, tilt: float) -> tuple[int, int]:
        """Return the first cell of a window and its number of cells, a power of two.

        The tilted distribution has at most e^LOG_OUTSIDE beyond either end.
        """
        level, _, deviation = self._moments(tilt)
        ends = []
        for sign in (-1.0, 1.0):
            # By Chernoff's bound with a further tilt the probability beyond ``end`` is
            # at most e^LOG_OUTSIDE. The end is convex in the inverse of that tilt,
            # which is halved as long as the end comes closer, from a large one on.
            further_tilt, end, previous = 16.0 / deviation, math.inf, math.inf
            while end <= previous:
                previous = end
                log_moment = self._moments(tilt + sign * further_tilt)[0] - level
                end = (log_moment - LOG_OUTSIDE) / further_tilt
                further_tilt = 0.5 * further_tilt
            ends.append(sign * previous / self._interval)
        first = math.floor(ends[0])
        # The transform is fast for powers of two. The one returned is above the number
        # of cells, and at least 16.
        return first, 1 << max(math.ceil(ends[1]) - first, 8).bit_length()

    def _window(self, tilt: float) -> Window:
        """Convolve the tilted distributions, as the module describes."""
        # Upper bound of the error of a sum of products by underflow.
        underflow = 1e-300
        first, size = self._span(tilt)
        if size > 2**25:
            # Too much memory. Without masses and tilt a logarithm k of 99 makes delta
            # 1.
            return Window(first, np.zeros(0), 99.0, 0.0, 1.0)
        gamma = 8.0 * UNIT_ROUNDOFF * math.log2(size)
        # T, and relative errors in units u that do not depend on the tilt.
        num_products = sum(self._times) + len(self._times)
        level, errors = 0.0, 64.0 * num_products + 2.0 * size
        num_frequencies = size // 2 + 1  # frequencies of a real transform
        product: Any = np.ones(num_frequencies, complex)
        # Logarithms of the product of |P_i| + gamma, relative to |P_i| and absolute.
        log_growth, log_raised = np.zeros(num_frequencies), np.zeros(num_frequencies)
        for times, losses, log_masses in zip(
            self._times, self._losses, self._log_masses, strict=True
        ):
            exponents = tilt * losses + log_masses
            log_total = float(np.logaddexp.reduce(exponents))
            tilted = np.exp(exponents - log_total)
            # Wrap the masses around the circle.
            wrapped = np.pad(tilted, (0, -len(tilted) % size)).reshape(-1, size)
            transform = np.fft.rfft(wrapped.sum(axis=0))
            product *= _power(transform, times)
            absolute = np.abs(transform)
            with np.errstate(divide="ignore"):
                log_growth += times * np.log1p(gamma / absolute)
            log_raised += times * np.log(absolute + gamma)
            level += times * log_total
            # Errors of an exponential are relative to the size of its exponent.
            exponent_sizes = np.abs(tilt * losses) + np.abs(log_masses)
            largest = float(exponent_sizes[tilted > 0.0].max())
            num_factors = len(self._times)
            terms = largest + (1 + num_factors) * abs(log_total) + len(wrapped)
            errors += 4.0 * times * terms
        absolute = np.abs(product)
        # E of the module without its term 3 u T, which is added below. The second form
        # holds where the first one is infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            by_growth = (absolute + underflow) * np.expm1(log_growth)
            error = np.fmin(by_growth, np.exp(log_raised))
        total_error = error + (3.0 * UNIT_ROUNDOFF * num_products + gamma) * absolute
        mass_error = float(total_error.sum())
        masses = np.fft.irfft(product, size)
        # Cell 0 of the convolution is the lowest loss. Cell 0 of the window is `first`.
        masses = np.roll(masses, (self._lowest - first) % size)
        # Twice, because the transform of real numbers lists half of all frequencies.
        # The factor exceeds the rounding errors of these sums.
        rise = 2.0 * (1.0 + 1e-6) * mass_error / size + underflow
        masses = np.maximum(masses, 0.0) + rise
        losses = self._interval * (first + np.arange(size))
        masses *= np.exp(np.minimum(level - tilt * losses, MAX_LOSS))
        furthest = max(abs(float(losses[0])), abs(float(losses[-1])))
        errors += 8.0 * (abs(level) + tilt * furthest)
        return Window(first, masses, level, tilt, math.exp(errors * UNIT_ROUNDOFF))


def _power(values: Any, times: int) -> Any:
    """Return the product of ``times`` copies, from at most that many products."""
    result = np.ones_like(values)
    while True:
        if times & 1:
            result = result * values
        times >>= 1
        if not times:
            return result
        values = values * values
