# mypy: allow-untyped-defs
"""Projected SVRG: stochastic steps whose noise vanishes at a snapshot's gradient.

From a snapshot y with full gradient grad J(y), K steps

    w <- P(w - (grad f_i(w) - grad f_i(y) + grad J(y)) / (10 l))

on random records, and the mean of the steps' points is the next snapshot. K = 100 l/m
makes the error shrink by 0.834 in the mean; with projections the printed 20 l/m does
not (BFTT-11). A mean proves nothing of one run: the certificate of `solve` at every
snapshot does.
"""

import math

import numpy as np

from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, STAGE, is_due
from dpsample.numerics.norms import distance
from dpsample.numerics.vectors import copy_into
from dpsample.optimizers.loop.advance import into_both
from dpsample.optimizers.loop.contributions import are_finite, limit_slopes
from dpsample.optimizers.loop.estimate import (
    CERTIFIED,
    FAILED,
    RUNNING,
    add_scattered,
    keep_margins,
    scattered_margins,
    single_slopes,
    slopes_of,
)
from dpsample.optimizers.loop.solve import TURN, objective_gradient

STEPS_PER_CONDITION = 100.0
STEPS_PER_SMOOTHNESS = 10.0
# A paused epoch has this stage and keeps its steps so far.
IN_EPOCH, STEPS_DONE = 2.0, TURN + 1


@kernel
def minimize_by_svrg(data, body, pieces, loop, objective, memory, rng, start, stop):
    """Run epochs ``start``, ..., ``stop - 1``; return RUNNING, CERTIFIED or FAILED.

    Arguments are those of `solve.minimize`, and memory.theta is the point. After PAUSED
    the next call, with the same arguments, goes on where this one was.
    """
    m, top = objective.ridge, objective.smoothness
    bound = np.inf
    if top > m:
        bound = math.sqrt(objective.gap / (0.5 / m - 0.5 / top)) / top
    w, snapshot, gradient = memory.theta, memory.middle, memory.aggregate
    if start == 0 and memory.control[STAGE] == 0.0:
        into_both(body, pieces, loop.step, memory, w)
    control = memory.control
    begin = start if control[STAGE] == 0.0 else int(control[TURN])
    for turn in range(begin, stop):
        control[TURN] = turn
        if control[STAGE] == IN_EPOCH:
            outcome = epoch(data, body, pieces, loop, objective, memory, rng)
            if outcome != RUNNING:
                return outcome
            continue
        copy_into(w, snapshot)
        outcome = objective_gradient(data, pieces, loop, objective, w, memory, rng)
        if outcome != RUNNING:
            return outcome
        copy_into(memory.gradient, gradient)
        for j in range(len(w)):
            w[j] -= gradient[j] / top
        into_both(body, pieces, loop.step, memory, w)
        moved = distance(w, snapshot, 2.0)
        if not moved < np.inf:
            return FAILED
        if moved <= bound:
            return CERTIFIED
        copy_into(snapshot, w)
        control[STEPS_DONE] = 0.0
        memory.average[:] = 0.0
        outcome = epoch(data, body, pieces, loop, objective, memory, rng)
        if outcome != RUNNING:
            return outcome
    return RUNNING


@kernel
def epoch(data, body, pieces, loop, objective, memory, rng):
    """Replace memory.theta by the mean of one epoch; RUNNING, PAUSED or FAILED."""
    control = memory.control
    w, snapshot, gradient = memory.theta, memory.middle, memory.aggregate
    total, direction = memory.average, memory.gradient
    num_steps = math.ceil(STEPS_PER_CONDITION * objective.smoothness / objective.ridge)
    size = 1.0 / (STEPS_PER_SMOOTHNESS * objective.smoothness)
    is_over, control[STAGE] = False, 0.0
    while control[STEPS_DONE] < num_steps:
        if is_over:
            control[STAGE] = IN_EPOCH
            return PAUSED
        control[STEPS_DONE] += 1.0
        is_over = is_due(control)
        memory.rows[:2] = rng.integers(loop.batches.first, loop.batches.last)
        if not two_slopes(data, pieces, loop.estimator, w, snapshot, memory):
            return FAILED
        memory.slopes[0] -= memory.slopes[1]
        direction[:] = 0.0
        add_scattered(data, memory.rows, 1, memory.slopes, direction)
        for j in range(len(w)):
            step = direction[j] + objective.ridge * (w[j] - snapshot[j]) + gradient[j]
            w[j] -= size * step
        into_both(body, pieces, loop.step, memory, w)
        for j in range(len(w)):
            total[j] += w[j]
    memory.counts[0] += 2 * num_steps
    for j in range(len(w)):
        w[j] = total[j] / num_steps
    return RUNNING


@kernel
def two_slopes(data, pieces, estimator, w, snapshot, memory):
    """Slopes of one record's loss, memory.rows[0], at both points."""
    scattered_margins(data, memory.rows, 1, snapshot, memory.margins)
    memory.margins[1] = memory.margins[0]
    scattered_margins(data, memory.rows, 1, w, memory.margins)
    keep_margins(2, memory)
    memory.response[:2] = data.response[memory.rows[0]]
    if not slopes_of(data, pieces, estimator, 2, memory):
        if not estimator.is_total:
            return False
        single_slopes(data, pieces, estimator, 2, memory)
    if not (estimator.is_total or are_finite(memory.slopes, 2)):
        return False
    limit_slopes(estimator, memory.rows, 2, memory.slopes)
    return True
