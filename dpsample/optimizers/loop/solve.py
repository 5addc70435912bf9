# mypy: allow-untyped-defs
r"""Certified minimization of a smooth, strongly convex objective; projected SVRG.

Accelerated projected gradients of known smoothness l and strong convexity m. With
y+ = P(y - grad J(y)/l) the certificate

    J(y+) - min J <= (1/(2 m) - 1/(2 l)) l^2 |y - y+|^2

holds at every y of the domain, so the accuracy is checked on the data set at hand,
whatever it is. In exact arithmetic it is reached after `enough_steps` at the latest. A
private run stops there whether or not it is certified, because a failure that depends
on the records would be an output about them.

The bounds of a loss hold on the domain only, and the usual extrapolation
y = w+ + beta (w+ - w) may leave it. So with q = m/l a second point v of the domain is
kept:

.. math:: y = \frac{w + \sqrt q v}{1 + \sqrt q}, \quad w^+ = P(y - \nabla J(y)/l),
    \quad v^+ = P((1 - \sqrt q) v + \sqrt q y - \nabla J(y) / \sqrt{m l}).

*Proof of the rate.* Let g = grad J(y) and M(x) = J(y) + <g, x - y> + l/2 |x - y|^2.

1. By smoothness J(w+) <= M(w+). As w+ minimizes M on the domain, this is at most
   M(x) at the point x = (1 - sqrt q) w + sqrt q v+ of the domain.
2. The definition of y gives x - y = sqrt q (v+ - (1 - sqrt q) v - sqrt q y). By
   convexity of the square, l/2 |x - y|^2 <= sqrt q m/2 |v+ - y|^2 + (1 - sqrt q) m/2
   |v+ - v|^2.
3. The linear part of M(x) is (1 - sqrt q) times that at w, which is at most J(w) by
   convexity, plus sqrt q times that at v+. Together

.. math:: J(w^+) \le (1 - \sqrt q) J(w) + \sqrt q (J(y) + \langle g, v^+ - y \rangle
    + \tfrac m2 |v^+ - y|^2) + (1 - \sqrt q) \tfrac m2 |v^+ - v|^2,

4. The right side is an m-strongly convex function of v+, which v+ minimizes. So at the
   minimizer w* of J it is at least m/2 |v+ - w*|^2 larger than at v+. At w* strong
   convexity of J bounds the bracket by J*, so J(w) - J* + m/2 |v - w*|^2 falls by the
   factor 1 - sqrt q.

Without constraints both schemes are one (Nesterov 2018, section 2.2.1).

**SVRG**: stochastic steps whose noise vanishes at a snapshot's gradient. From a
snapshot y with full gradient grad J(y), K steps

    w <- P(w - (grad f_i(w) - grad f_i(y) + grad J(y)) / (10 l))

on random records, where f_i is the objective with the loss of record i only. The mean
of the steps' points is the next snapshot. K = 100 l/m makes the error shrink by 0.834
on average. With projections the published 20 l/m does not (erratum BFTT-11 in
docs/errata.md). An average proves nothing about one run, so the certificate above is
checked at every snapshot.

**Arguments of kernels.** ``data`` holds the records, ``loss`` the compiled loss,
``feasible`` the domain's compiled functions, ``pieces`` the batches and the estimator
of gradients, and ``memory`` the arrays of a run (`pieces.Memory`). Points are in
``theta``, ``average`` and ``middle``, and gradients in ``gradient`` and ``aggregate``.
``memory.control`` says whether a run is paused, and where.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.exact import exact_exponential, exact_normal
from dpsample.numerics.norms import distance
from dpsample.numerics.vectors import copy_into
from dpsample.optimizers.loop.advance import into_both
from dpsample.optimizers.loop.estimate import (
    CURSOR,
    OUTCOME,
    add_scattered,
    estimate,
    limited_slopes,
    scattered_margins,
)
from dpsample.problem.records import any_record

# A tilt is cut at this number of standard deviations. It is beyond with a probability
# below 2^-107.
MOST = 12.0
# Position in ``memory.control``'s ``saved`` numbers of the turn that is not finished.
SAVED_TURN = CURSOR + 1


# Methods, which differ in a turn: an accelerated step with a certificate, a step with a
# certificate and an epoch, or a projected gradient step without either. The last brings
# any two points nearer by the factor 1 - m/l, so its rounding errors do not add up.
class Method(NamedTuple):
    """Codes of the methods."""

    accelerated: int = 0
    svrg: int = 1
    contraction: int = 2


METHOD = Method()
# An epoch has this number times l/m of steps.
STEPS_PER_CONDITION = 100.0
# The step size of an epoch is 1 / (INVERSE_STEP l).
INVERSE_STEP = 10.0
# Stage of the control record while an epoch is paused.
IN_EPOCH = 2
# Position in ``saved`` of the number of steps of the epoch so far.
SAVED_STEPS = SAVED_TURN + 1


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class TiltedObjective(NamedTuple):
    """The quadratic part and the constants of an objective J.

    J(w) is the mean loss plus <tilt, w> + ridge/2 |w - center|^2.
    """

    tilt: Array  # (dim,): random, for objective perturbation, or 0
    center: Array  # (dim,): of the ridge
    ridge: float  # also m, the strong convexity that is known
    smoothness: float  # l, of the whole objective
    gap: float  # J(w) - min J that is certified
    local_radius: float = math.inf  # radius of the ball that cuts the domain
    method: int = METHOD.accelerated


def enough_steps(
    objective: TiltedObjective,
    record_bound: float,
    start: Array,
    ball: Array | None = None,
) -> int:
    r"""Return how many steps prove J(w) - min J <= gap, in exact arithmetic.

    With q = m/l and start w_0 = v_0 the iterates satisfy :math:`J(w_k) - J^* \le
    (1 - \sqrt q)^k (J(w_0) - J^* + \frac m2 |w_0 - w^*|^2)`, and the bracket is at most
    :math:`|\nabla J(w_0)|^2/m`. ``record_bound`` bounds the norm of the gradient of the
    mean loss. ``start`` is w_0 before it is projected. ``ball`` is the center of a
    local ball, into which it may be projected as well.
    """
    # The projection w_0 is the nearest point of a set that contains the ball's center.
    # So by the triangle inequality it is at most this far from the ridge's center.
    away = float(np.linalg.norm(start - objective.center))
    if ball is not None:
        away += float(np.linalg.norm(start - ball))
    slope = record_bound + float(np.linalg.norm(objective.tilt))
    slope += objective.ridge * away
    # The limit is for a gradient of 0, which has no logarithm.
    log_ratio = 2.0 * math.log(max(slope, 1e-300)) - math.log(objective.ridge)
    log_ratio -= math.log(objective.gap)
    root = math.sqrt(objective.smoothness / objective.ridge)
    return 2 + math.ceil(root * max(log_ratio, 0.0))


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def objective_gradient(data, loss, pieces, objective, w, memory, rng):
    """Fill memory.gradient with grad J(w), and return an `Outcome` or PAUSED."""
    outcome = estimate(data, loss, pieces, 0, w, memory, rng)
    if outcome == OUTCOME.running:
        for j in range(len(w)):
            memory.gradient[j] += objective.tilt[j]
            memory.gradient[j] += objective.ridge * (w[j] - objective.center[j])
    return outcome


@kernel
def fill_tilt(rng, stddev, out):
    """Fill ``out`` with normals times ``stddev``, cut at `MOST` standard deviations.

    A normal is the sum of two doubles, without the errors of one double.
    """
    for j in range(len(out)):
        high, low = exact_normal(rng)
        out[j] = stddev * min(max(high + low, -MOST), MOST)


@kernel
def fill_norm_tilt(rng, scale, longest, out):
    """Fill ``out`` with a vector of density proportional to exp(-|v| / scale).

    Its direction comes from a normal vector, and its length, a Gamma(d) variable times
    the scale, is the sum of d exponentials. A longer one is shortened to ``longest``.
    """
    length = 0.0
    for _ in range(len(out)):
        high, low = exact_exponential(rng)
        length += high + low
    square = 0.0
    while square == 0.0:  # z = 0 has no direction
        for j in range(len(out)):
            high, low = exact_normal(rng)
            out[j] = high + low
            square += out[j] * out[j]  # no underflow: out[j] is 0 or above 2^-103
    length, norm = min(scale * length, longest), math.sqrt(square)
    for j in range(len(out)):
        out[j] = length * (out[j] / norm)


@kernel
def solve(data, loss, feasible, pieces, objective, memory, rng, start, stop):
    """Take turns ``start``, ..., ``stop - 1``.

    A turn is a gradient step. With SVRG an epoch follows it. Return OUTCOME.certified
    if memory.theta has the accuracy of the objective, OUTCOME.running after the last
    turn, OUTCOME.failed if a number is not finite, or PAUSED. After PAUSED the next
    call with the same arguments continues in the middle of the turn. One kernel serves
    all methods, because the gradient's code, which takes longest to compile, is the
    same.
    """
    m, smoothness, method = objective.ridge, objective.smoothness, objective.method
    root = math.sqrt(m / smoothness)
    # Length of a step at which the module's certificate proves the gap. If l = m, J is
    # a quadratic of one curvature, and the first step is exact.
    bound = np.inf
    if smoothness > m:
        bound = math.sqrt(objective.gap / (0.5 / m - 0.5 / smoothness)) / smoothness
    # In an epoch `average` holds a sum, because SVRG has no v.
    w, v, y = memory.theta, memory.average, memory.middle
    control, gradient = memory.control[0], memory.gradient
    if control.stage != 0:  # continue the turn that was paused
        start = int(control.saved[SAVED_TURN])
    elif start == 0 and method != METHOD.contraction:
        into_both(feasible, objective.local_radius, memory, w)
        copy_into(w, v)
    for turn in range(start, stop):
        control.saved[SAVED_TURN] = turn
        if control.stage != IN_EPOCH:
            copy_into(w, y)
            if method == METHOD.accelerated:
                for j in range(len(w)):
                    y[j] = (w[j] + root * v[j]) / (1.0 + root)
            outcome = objective_gradient(data, loss, pieces, objective, y, memory, rng)
            if outcome != OUTCOME.running:
                return outcome
            for j in range(len(w)):
                w[j] = y[j] - gradient[j] / smoothness
            into_both(feasible, objective.local_radius, memory, w)
            if method == METHOD.contraction:
                continue
            step_length = distance(w, y, 2.0)
            if not step_length < np.inf:
                return OUTCOME.failed
            if step_length <= bound:
                return OUTCOME.certified
            if method == METHOD.svrg:
                # The step was for the certificate. The epoch begins at its snapshot y.
                copy_into(gradient, memory.aggregate)
                copy_into(y, w)
                control.saved[SAVED_STEPS] = 0.0
                v[:] = 0.0
        if method == METHOD.svrg:
            outcome = epoch(data, loss, feasible, pieces, objective, memory, rng)
            if outcome != OUTCOME.running:
                return outcome
        else:
            for j in range(len(w)):
                v[j] = (1.0 - root) * v[j] + root * y[j] - root / m * gradient[j]
            into_both(feasible, objective.local_radius, memory, v)
    return OUTCOME.running


@kernel(counts_references=False)
def epoch(data, loss, feasible, pieces, objective, memory, rng):
    """Replace memory.theta by the mean of one epoch.

    Return OUTCOME.running at its end, PAUSED, or OUTCOME.failed.
    """
    control = memory.control[0]
    w, snapshot, gradient = memory.theta, memory.middle, memory.aggregate
    total, direction = memory.average, memory.gradient
    num_steps = math.ceil(STEPS_PER_CONDITION * objective.smoothness / objective.ridge)
    size = 1.0 / (INVERSE_STEP * objective.smoothness)
    is_over, control.stage = False, 0
    while control.saved[SAVED_STEPS] < num_steps:
        if is_over:
            control.stage = IN_EPOCH
            return PAUSED
        control.saved[SAVED_STEPS] += 1.0
        is_over = is_due(control)
        i = any_record(rng, pieces.batches.first, pieces.batches.last)
        # Twice, because `limited_slopes` reads a row for each of both slopes.
        memory.rows[0] = memory.rows[1] = i
        if not two_slopes(data, loss, pieces.estimator.functions, w, snapshot, memory):
            return OUTCOME.failed
        memory.slopes[0] -= memory.slopes[1]
        direction[:] = 0.0
        add_scattered(data, memory.rows, 1, memory.slopes, direction)
        for j in range(len(w)):
            step = direction[j] + objective.ridge * (w[j] - snapshot[j]) + gradient[j]
            w[j] -= size * step
        into_both(feasible, objective.local_radius, memory, w)
        for j in range(len(w)):
            total[j] += w[j]
    memory.counts[0] += 2 * num_steps  # gradients of one record
    for j in range(len(w)):
        w[j] = total[j] / num_steps
    return OUTCOME.running


@kernel(counts_references=False)
def two_slopes(data, loss, pieces, w, snapshot, memory):
    """Write the slopes of the loss of record memory.rows[0] at ``w`` and ``snapshot``.

    They are the first two of memory.slopes. Return False if the loss failed.
    """
    scattered_margins(data, memory.rows, 1, snapshot, memory.margins)
    memory.margins[1] = memory.margins[0]
    scattered_margins(data, memory.rows, 1, w, memory.margins)
    memory.response[:2] = data.response[memory.rows[0]]
    return limited_slopes(data, loss, pieces, 2, memory)
