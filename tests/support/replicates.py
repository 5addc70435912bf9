"""Independent runs of the proximal kernel in one compiled loop, and their check."""

from __future__ import annotations

from functools import cache

import numpy as np

from dpsample.core.jit import kernel
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.errors import OK, raise_unless_ok
from dpsample.samplers.proximal import alternation
from tests.support.statistics import spend


@kernel
def _replicate(target, pieces, plan, state, rng, starts, num_steps, out):
    draws = np.empty((num_steps, starts.shape[1]))
    stats = np.empty((num_steps, NUM_STATS))
    for i in range(starts.shape[0]):
        state.position[:] = starts[i]
        code, _ = alternation.run(target, pieces, plan, state, rng, 1, draws, stats)
        if code != OK:
            return code
        out[i] = draws[num_steps - 1]
    return OK


def replicate(
    target, metric, starts, rng, *, step, num_steps=1, plan=None, numbers=None
):
    """Last position of one run from each start; raises if a run fails."""
    out = np.full_like(starts, np.nan)
    numbers = metric.numbers(target) if numbers is None else numbers
    plan = metric.plan(step) if plan is None else plan
    code = _replicate(
        numbers,
        target.pieces,
        alternation.TangentPlan(plan, metric.draw, alternation.MAX_PROPOSALS),
        alternation.init(target, starts[0]),
        rng,
        starts,
        num_steps,
        out,
    )
    raise_unless_ok(code)
    return out


def certified(prepared, gamma, count, rng):
    """Draws as `release` makes them: T(gamma) steps from the start, each time anew."""
    starts = np.tile(prepared.start, (count, 1))
    return replicate(
        prepared.target,
        prepared.metric,
        starts,
        rng,
        step=prepared.trial.step,
        num_steps=prepared.certified_steps(gamma),
    )


def law_margin(case, sample):
    """Largest deviation of the sample from the case's law, in units of its bound.

    Kolmogorov distances of the coordinates, their sum and the energy by the DKW bound,
    first and second moments by Bernstein's: above 1 with probability below the suite's
    share for one check if the law is right.
    """
    laws, found = _laws(case), _views(case, sample)
    size, number = len(sample), 3 * len(laws)
    log_term = np.log(2.0 * number / spend())
    margins, ranks = [], np.arange(size + 1) / size
    for (values, cdf, center, moments), drawn in zip(laws, found, strict=True):
        level = np.interp(np.sort(drawn), values, cdf)
        distance = max(
            np.abs(level - ranks[1:]).max(), np.abs(level - ranks[:-1]).max()
        )
        margins.append(distance / np.sqrt(log_term / (2.0 * size)))
        for power, (mean, variance, reach) in zip((1, 2), moments, strict=True):
            bound = np.sqrt(2.0 * variance * log_term / size)
            bound += reach * log_term / (3.0 * size)
            drift = ((drawn - center) ** power).mean() - mean
            margins.append(abs(drift) / bound)
    return max(margins)


@cache
def _laws(case):
    """Values in order, distribution function, mean and moments of each view."""
    points, weights = case.law
    laws = []
    for values in _views(case, points):
        order, center = np.argsort(values), weights @ values
        moments = []
        for power in (1, 2):
            terms = (values - center) ** power
            mean = weights @ terms
            variance = weights @ (terms - mean) ** 2
            moments.append((mean, variance, np.abs(terms).max() + abs(mean)))
        laws.append((values[order], np.cumsum(weights[order]), center, moments))
    return laws


def _views(case, points):
    energy = case.energy(points)
    mixed = points @ np.arange(1.0, case.dim + 1.0)
    return [*points.T, mixed, energy] if case.dim > 1 else [*points.T, energy]
