# mypy: allow-untyped-defs
r"""Certified minimization of a smooth, strongly convex objective; projected SVRG.

Accelerated projected gradients of known smoothness l and strong convexity m. With
y+ = P(y - grad J(y)/l) the certificate

    J(y+) - min J <= (1/(2 m) - 1/(2 l)) l^2 |y - y+|^2

holds at every y of the domain, so the accuracy is checked on the data set at hand,
whatever it is. In exact arithmetic it is reached after `enough_steps` at the latest: a
private run ends there and never refuses, since a failure that depends on the records is
an output.

Nothing is declared of a loss outside the domain, where the usual extrapolation
y = w+ + beta (w+ - w) leads. So with q = m/l a second point v of the domain is kept:

.. math:: y = \frac{w + \sqrt q v}{1 + \sqrt q}, \quad w^+ = P(y - \nabla J(y)/l),
    \quad v^+ = P((1 - \sqrt q) v + \sqrt q y - \nabla J(y) / \sqrt{m l}).

*Proof of the rate.* By smoothness J(w+) is at most the model <g, . - y> + l/2 |. - y|^2
above J(y) at its minimizer w+, so also at (1 - sqrt q) w + sqrt q v+, which is
sqrt q (v+ - (1 - sqrt q) v - sqrt q y) away from y. By convexity of the square,

.. math:: J(w^+) \le (1 - \sqrt q) J(w) + \sqrt q (J(y) + \langle g, v^+ - y \rangle
    + \tfrac m2 |v^+ - y|^2) + (1 - \sqrt q) \tfrac m2 |v^+ - v|^2,

whose right side v+ minimizes, an m-strongly convex function: at the minimizer w* it is
at least m/2 |v+ - w*|^2 larger. So J(w) - J* + m/2 |v - w*|^2 falls by 1 - sqrt q.
Without constraints both schemes are one (Nesterov 2018, section 2.2.1).

**SVRG**: stochastic steps whose noise vanishes at a snapshot's gradient. From a
snapshot y with full gradient grad J(y), K steps

    w <- P(w - (grad f_i(w) - grad f_i(y) + grad J(y)) / (10 l))

on random records, and the mean of the steps' points is the next snapshot. K = 100 l/m
makes the error shrink by 0.834 on average; with projections the published 20 l/m does
not (BFTT-11). A mean proves nothing of one run: the certificate above at every
snapshot does.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.exact import exact_normal
from dpsample.numerics.norms import distance
from dpsample.numerics.vectors import copy_into
from dpsample.optimizers.loop.advance import into_both
from dpsample.optimizers.loop.estimate import (
    CERTIFIED,
    CURSOR,
    FAILED,
    RUNNING,
    add_scattered,
    estimate,
    limited_slopes,
    scattered_margins,
)
from dpsample.problem.records import any_record

MOST = 12.0  # standard deviations of a tilt; beyond with probability below 2^-107
# Position in the control record's ``saved`` numbers of the turn that is not finished.
TURN = CURSOR + 1
# Kinds of turns: a step with a certificate, one followed by an epoch, or one without
# either. The last brings any two points nearer by 1 - m/l, so its errors do not add up.
ACCELERATED, SVRG, CONTRACTION = range(3)
STEPS_PER_CONDITION = 100.0
STEPS_PER_SMOOTHNESS = 10.0
# Stage of the control record while an epoch is paused.
IN_EPOCH = 2
# Position in ``saved`` of the number of its steps so far.
STEPS_DONE = TURN + 1


@by_address
class Objective(NamedTuple):
    """The quadratic part and the constants of an objective."""

    tilt: Array  # (dim,): <tilt, w>
    center: Array  # (dim,): of the ridge
    ridge: float
    smoothness: float  # l, of the whole objective
    gap: float
    local_radius: float = math.inf  # radius of the ball that cuts the domain
    method: int = ACCELERATED


def enough_steps(
    objective: Objective, record_bound: float, start: Array, ball: Array | None = None
) -> int:
    r"""Return how many steps prove J(w) - min J <= gap, in exact arithmetic.

    With q = m/l and start w_0 = v_0 the iterates satisfy :math:`J(w_k) - J^* \le
    (1 - \sqrt q)^k (J(w_0) - J^* + \frac m2 |w_0 - w^*|^2)`, and the bracket is at most
    :math:`|\nabla J(w_0)|^2/m`. ``record_bound`` is one of the gradient of the mean
    loss, ``start`` is w_0 before it is projected, perhaps towards ``ball``, the center
    of a local ball.
    """
    away = float(np.linalg.norm(start - objective.center))
    if ball is not None:
        away += float(np.linalg.norm(start - ball))
    slope = record_bound + float(np.linalg.norm(objective.tilt))
    slope += objective.ridge * away
    log = 2.0 * math.log(max(slope, 1e-300)) - math.log(objective.ridge)
    log -= math.log(objective.gap)
    root = math.sqrt(objective.smoothness / objective.ridge)
    return 2 + math.ceil(root * max(log, 0.0))


@kernel(counts_references=False)
def objective_gradient(data, loss, gradient, objective, w, memory, rng):
    """Fill memory.gradient with grad J(w); return RUNNING, PAUSED or FAILED."""
    outcome = estimate(data, loss, gradient, 0, w, memory, rng)
    if outcome == RUNNING:
        for j in range(len(w)):
            memory.gradient[j] += objective.tilt[j]
            memory.gradient[j] += objective.ridge * (w[j] - objective.center[j])
    return outcome


@kernel
def fill_tilt(rng, size, out):
    """Fill ``out`` with exact normals times ``size``, within `MOST` of it."""
    for j in range(len(out)):
        high, low = exact_normal(rng)
        out[j] = size * min(max(high + low, -MOST), MOST)


@kernel
def solve(data, loss, feasible, pieces, objective, memory, rng, start, stop):
    """Take turns ``start``, ..., ``stop - 1``; return RUNNING, CERTIFIED or FAILED.

    A turn is a step, by SVRG one and an epoch. Once certified, memory.theta is the
    point. ``pieces`` are batches and estimator. After PAUSED the next call, with the
    same arguments, goes on in the middle of a turn. One kernel for all methods: nearly
    all of it is the gradient's code.
    """
    m, top, method = objective.ridge, objective.smoothness, objective.method
    root = math.sqrt(m / top)
    bound = np.inf  # a quadratic of one curvature: a single step is exact
    if top > m:
        bound = math.sqrt(objective.gap / (0.5 / m - 0.5 / top)) / top
    w, v, y = memory.theta, memory.average, memory.middle
    control, gradient = memory.control[0], memory.gradient
    if control.stage != 0:
        start = int(control.saved[TURN])
    elif start == 0 and method != CONTRACTION:
        into_both(feasible, objective.local_radius, memory, w)
        copy_into(w, v)
    for turn in range(start, stop):
        control.saved[TURN] = turn
        if control.stage != IN_EPOCH:
            copy_into(w, y)
            if method == ACCELERATED:
                for j in range(len(w)):
                    y[j] = (w[j] + root * v[j]) / (1.0 + root)
            outcome = objective_gradient(data, loss, pieces, objective, y, memory, rng)
            if outcome != RUNNING:
                return outcome
            for j in range(len(w)):
                w[j] = y[j] - gradient[j] / top
            into_both(feasible, objective.local_radius, memory, w)
            if method == CONTRACTION:
                continue
            step_length = distance(w, y, 2.0)
            if not step_length < np.inf:
                return FAILED
            if step_length <= bound:
                return CERTIFIED
            if method == SVRG:
                copy_into(gradient, memory.aggregate)
                copy_into(y, w)
                control.saved[STEPS_DONE] = 0.0
                v[:] = 0.0
        if method == SVRG:
            outcome = epoch(data, loss, feasible, pieces, objective, memory, rng)
            if outcome != RUNNING:
                return outcome
        else:
            for j in range(len(w)):
                v[j] = (1.0 - root) * v[j] + root * y[j] - root / m * gradient[j]
            into_both(feasible, objective.local_radius, memory, v)
    return RUNNING


@kernel(counts_references=False)
def epoch(data, loss, feasible, pieces, objective, memory, rng):
    """Replace memory.theta by the mean of one epoch; RUNNING, PAUSED or FAILED."""
    control = memory.control[0]
    w, snapshot, gradient = memory.theta, memory.middle, memory.aggregate
    total, direction = memory.average, memory.gradient
    num_steps = math.ceil(STEPS_PER_CONDITION * objective.smoothness / objective.ridge)
    size = 1.0 / (STEPS_PER_SMOOTHNESS * objective.smoothness)
    is_over, control.stage = False, 0
    while control.saved[STEPS_DONE] < num_steps:
        if is_over:
            control.stage = IN_EPOCH
            return PAUSED
        control.saved[STEPS_DONE] += 1.0
        is_over = is_due(control)
        i = any_record(rng, pieces.batches.first, pieces.batches.last)
        memory.rows[0] = memory.rows[1] = i
        if not two_slopes(data, loss, pieces.estimator.functions, w, snapshot, memory):
            return FAILED
        memory.slopes[0] -= memory.slopes[1]
        direction[:] = 0.0
        add_scattered(data, memory.rows, 1, memory.slopes, direction)
        for j in range(len(w)):
            step = direction[j] + objective.ridge * (w[j] - snapshot[j]) + gradient[j]
            w[j] -= size * step
        into_both(feasible, objective.local_radius, memory, w)
        for j in range(len(w)):
            total[j] += w[j]
    memory.counts[0] += 2 * num_steps
    for j in range(len(w)):
        w[j] = total[j] / num_steps
    return RUNNING


@kernel(counts_references=False)
def two_slopes(data, loss, pieces, w, snapshot, memory):
    """Slopes of one record's loss, memory.rows[0], at both points."""
    scattered_margins(data, memory.rows, 1, snapshot, memory.margins)
    memory.margins[1] = memory.margins[0]
    scattered_margins(data, memory.rows, 1, w, memory.margins)
    memory.response[:2] = data.response[memory.rows[0]]
    return limited_slopes(data, loss, pieces, 2, memory)
