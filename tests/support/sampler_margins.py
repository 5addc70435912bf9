"""How far samples are from what exact chains do, in units of proved bounds.

A margin above 1 has probability below the level of one check if the law is right.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.support.statistics import spend


def views(case, points):
    """Coordinates, a mix of them, and the energy."""
    mixed = points @ np.arange(1.0, case.dim + 1.0)
    return [*points.T, mixed, case.energy(points)]


@cache
def law_of_views(case):
    """Sorted values and distribution function of each view, with its moments."""
    points, weights = case.law
    found = []
    for values in views(case, points):
        order = np.argsort(values)
        mean = weights @ values
        moments = [moment(values - mean, weights, power) for power in (1, 2)]
        found.append((values[order], np.cumsum(weights[order]), mean, moments))
    return found


def moment(values, weights, power=1):
    """Mean, variance and reach of a power."""
    mean = weights @ values**power
    variance = weights @ (values**power - mean) ** 2
    return mean, variance, np.abs(values).max() ** power + abs(mean)


def bernstein(drift, variance, reach, size, log_term):
    """Deviation of a mean of independent terms in units of Bernstein's bound."""
    bound = np.sqrt(2.0 * variance * log_term / size) + reach * log_term / (3.0 * size)
    return abs(drift) / bound


def law_margin(case, sample):
    """Kolmogorov distances of the views by the DKW bound, two moments by Bernstein."""
    laws, size = law_of_views(case), len(sample)
    log_term = np.log(2.0 * 3.0 * len(laws) / spend())
    ranks = np.arange(size + 1) / size
    margins = []
    for (values, cdf, mean, moments), drawn in zip(
        laws, views(case, sample), strict=True
    ):
        level = np.interp(np.sort(drawn), values, cdf)
        distance = max(
            np.abs(level - ranks[1:]).max(), np.abs(level - ranks[:-1]).max()
        )
        margins.append(distance / np.sqrt(log_term / (2.0 * size)))
        for power, (center, variance, reach) in zip((1, 2), moments, strict=True):
            drift = ((drawn - mean) ** power).mean() - center
            margins.append(bernstein(drift, variance, reach, size, log_term))
    return max(margins)


def asymmetry_margin(case, before, after):
    """Means of antisymmetric functions of stationary pairs: 0 under detailed balance.

    Functions of the ranks of the views, with values in [-2, 2], by the empirical
    Bernstein bound of Maurer and Pontil (2009).
    """
    ranks = paired_ranks(case, before, after)
    terms = [0.5 * (y**3 * x - x**3 * y) for x, y in ranks]
    terms += [0.25 * (y - x) ** 3 for x, y in ranks]
    for i, (x, y) in enumerate(ranks):
        terms += [x * v - y * u for u, v in ranks[:i]]
        terms += [x * v * abs(v) - y * u * abs(u) for u, v in ranks[:i]]
    alpha = spend() / len(terms)
    return max(empirical_bernstein(term, 4.0, alpha) for term in terms)


def dependence_margin(case, before, after):
    """Mean products of the ranks of a start and of the next draw: 0 if independent."""
    ranks = paired_ranks(case, before, after)
    terms = [x * v for x, _ in ranks for _, v in ranks]
    alpha = spend() / len(terms)
    return max(empirical_bernstein(term, 2.0, alpha) for term in terms)


def paired_ranks(case, before, after):
    """Ranks in [-1, 1] of each view, for both ends of the pairs."""
    return [
        [2.0 * np.interp(v, values, cdf) - 1.0 for v in pair]
        for (values, cdf, *_), *pair in zip(
            law_of_views(case), views(case, before), views(case, after), strict=True
        )
    ]


def empirical_bernstein(term, width, alpha):
    """Mean of values in an interval of the given width, in units of its bound."""
    size, log_term = len(term), np.log(4.0 / alpha)
    bound = np.sqrt(2.0 * term.var(ddof=1) * log_term / size)
    bound += 7.0 * width * log_term / (3.0 * (size - 1))
    return abs(term.mean()) / bound
