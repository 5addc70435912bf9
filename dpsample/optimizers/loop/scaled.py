# mypy: allow-untyped-defs
r"""Descent that reads the scale of its steps from its own noisy gradients.

The path of steps :math:`w_{t+1} = P(w_t - \eta g_t)`, g_t the noisy gradients of a
public number of steps, of known deviation sigma in each coordinate. At the end of
every stage (a quarter, a quarter and a half of the steps), with u = w_t - c, c the
start, or, of the last stage, the mean iterate less c,

.. math:: a = -\langle \bar g, u\rangle - \eta\sigma^2 d, \qquad
   b = a + \frac1N \sum \langle g_t, w_t - c\rangle, \qquad
   f = p + (1 - p) \frac{\max(a, 0) + 2 v}{\max(b, 0) + 2 v}, \qquad
   p = \frac{\langle \bar w - c, u\rangle}{|u|^2} \in [0, 1],

:math:`\bar g` the mean gradient of the first stage and :math:`\bar w` the mean of the
points where it was read; the sum is over the N steps of the stage, of the first over
its second half. At the end an f above 1 becomes 1 + (1 - p)(f - 1): slopes at noisy
points, where curvature falls along u, ask for more than the mean of those points needs,
and the nearer p is to 1, the less is known beyond. Then u and eta are multiplied by f,
which is kept in [1/4, 4], and the point is projected. If that moves it, eta is
multiplied only by the growth of the distance to c. At the boundary of the domain the
risk may decrease outwards without end, and longer steps would only be noisier. No step
is longer than a public size, 2/beta.

If f u is at least 1.5 times as long as the domain allows, the probabilities that the
loss suggests do not fit into the domain. Later stages may then read another loss, no
steeper, whose minimizer inside suffers less from noise.

*Reason.* -a estimates the risk's slope at c + p u along u and b - a that at c + u: the
noise of g_t is independent of w_t, and that of :math:`\bar g` is in u with a factor of
-eta. Were the risk quadratic, c + (p + (1 - p) a/b) u would minimize it along u. Where
the records are informative, the first stage comes near u, and a/b alone would be far
from 1. The estimates have no factor sqrt(d) except in a; two deviations of theirs,

.. math:: v^2 = \sigma^2\Bigl(\frac{|u|^2}{N_1} + d \eta^2\sigma^2 +
   \frac{1}{N^2} \sum |w_t - c|^2\Bigr),

N_1 the steps of the first stage, hold f back from leaving 1 for noise. It is a rule,
not a theorem.

*Privacy.* Gradients are read at points that depend on the records only through earlier
noisy gradients. So the run consists of T adaptive Gaussian steps, for any sizes of the
steps. All numbers here are computed from noisy gradients.
"""

import math
from typing import NamedTuple

from dpsample.core.jit import kernel


class ScaledStage(NamedTuple):
    """Codes of the stages."""

    first: int = 1
    middle: int = 2
    last: int = 3


class ScaleSum(NamedTuple):
    """Positions in `Memory.scale`. The center c and the step u are of the module."""

    factor: int = 0  # eta over its first value
    slopes: int = 1  # sum of <g_t, w_t - c>
    squares: int = 2  # sum of |w_t - c|^2
    num_terms: int = 3  # number of terms of both sums
    num_first: int = 4  # steps of the first stage
    outside: int = 5  # largest ratio of |f u| to the part of it that the domain left
    # Both numbers of a decaying descent, see `decaying`.
    distance: int = 6  # r_t
    mean_square: int = 7  # v_t, in units of the step


STAGE = ScaledStage()
SUM = ScaleSum()
# The domain holds the point back if |f u| is this many times the distance it leaves.
HELD_BACK = 1.5


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def scaled_size(step, memory):
    """Return the size of a step, the smaller of eta and the longest one."""
    return min(step.size * memory.scale[SUM.factor], step.longest)


@kernel(counts_references=False)
def observe(step, t, num_steps, memory):
    """Add a noisy gradient and its point to the stage's sums, before the step.

    ``t`` counts the steps of the stage.
    """
    sums = memory.scale
    if t == 0:
        if step.stage == STAGE.first:
            memory.first_gradient[:] = 0.0
            memory.first_point[:] = 0.0
            sums[SUM.factor], sums[SUM.num_first], sums[SUM.outside] = 1.0, 0.0, 1.0
            # A start that noisy labels have moved away from 0 is near the minimizer.
            if step.moved_factor != 1.0 and memory.anchor.any():
                sums[SUM.factor] = step.moved_factor
        sums[SUM.slopes], sums[SUM.squares], sums[SUM.num_terms] = 0.0, 0.0, 0.0
    if step.stage == STAGE.first:
        sums[SUM.num_first] += 1.0
        for j in range(len(memory.theta)):
            memory.first_gradient[j] += memory.gradient[j]
            memory.first_point[j] += memory.theta[j] - memory.anchor[j]
        # The other sums of the first stage are over its second half.
        if 2 * t < num_steps - 1:
            return
    slope, square = 0.0, 0.0
    for j in range(len(memory.theta)):
        offset = memory.theta[j] - memory.anchor[j]
        slope += memory.gradient[j] * offset
        square += offset * offset
    sums[SUM.slopes] += slope
    sums[SUM.squares] += square
    sums[SUM.num_terms] += 1.0


@kernel(counts_references=False)
def factor_of(step, memory, point):
    """Return the factor f of the module, for ``point`` at the end of a stage."""
    # One change of the scale is between 1/4 and 4.
    max_factor = 4.0
    sums, slope, square, early = memory.scale, 0.0, 0.0, 0.0
    for j in range(len(point)):
        offset = point[j] - memory.anchor[j]
        slope -= memory.first_gradient[j] * offset
        early += memory.first_point[j] * offset
        square += offset * offset
    noise = step.stddev * step.stddev  # sigma^2
    eta, count = scaled_size(step, memory), sums[SUM.num_terms]
    pull = eta * noise * len(point)
    # a and b of the module, and f with both raised by 2 v.
    start = slope / sums[SUM.num_first] - pull
    change = start + sums[SUM.slopes] / count
    variance = noise * (
        square / sums[SUM.num_first] + sums[SUM.squares] / count / count
    )
    # The estimates a and b are trusted up to this many standard deviations v.
    slack = 2.0 * math.sqrt(variance + eta * noise * pull)
    top, bottom = max(start, 0.0) + slack, max(change, 0.0) + slack
    if not bottom > 0.0 or not top < math.inf:  # no noise and no slope, or overflow
        return 1.0
    # p of the module. f - 1 is (1 - p) times the quotient less 1.
    part = early / (sums[SUM.num_first] * square) if square > 0.0 else 0.0
    part = min(max(part, 0.0), 1.0)
    growth = (1.0 - part) * (top / bottom - 1.0)
    if step.stage == STAGE.last and growth > 0.0:
        growth *= 1.0 - part
    return min(max(1.0 + growth, 1.0 / max_factor), max_factor)
