r"""Rounding errors of gradient steps: how far computed iterates are from exact ones.

Output perturbation rests on exact steps: they move no two points apart, so one record
moves their end by s. Computed ends of neighbors are then at most s + 2 E apart, E the
bound here of |computed - exact|, and noise of deviation (s + 2 E)/t is t-GDP for what
is computed (Dong, Roth and Su 2022, Theorem 2.7). E depends on public numbers and on
the point where the phase starts, which was released before.

**One step**, u = 2^-53, in l2 norms, from a point w with |w| <= M. A row has |a| <= B,
an offset is at most O, one record's gradient has norm at most C, its loss curvature
beta. The parts of the error are:

* margins, beta (d + 4) u (M + O/B): a dot product in any order is off by (d + 2) u
  |a| |w| (Higham 2002, section 3.1), and slopes change by beta/B^2 of that;
* slopes, 16 u C: those of the losses in `LOSSES` take an exponential and at most five
  operations without cancellation beyond that of the margin; limits on slopes
  are those of another convex loss, exactly, and clipping to them moves no two slopes
  apart;
* sums, gamma C: see `perturbations.rounding_excess`;
* the update w - eta (g + lambda (w - w_0)), 6 u (M + eta (C + 2 lambda M));
* the projection: boxes have none; the l2 ball about c scales by R over a length that is
  off by (d + 8) u, then by factors 1 - 2 u, 1 - 4 u, ... until the length as computed
  is at most R. If that takes k factors, all but the last shrink by less than the
  excess, N u = (2 d + 20) u R + 2 (k + 2) u (|c| + R), and k <= 60: in total less than
  2 N u + 2 u R, and every product and sum adds its rounding: (5 d + 430) u (|c| + R).

The first three count eta times. After a step that moves no two points apart, eta (beta
+ lambda) <= 2, errors add up: T times that of one step for the last iterate, and for
the mean of all, whose sum adds (T + 8) u M. M is that of the domain, or 1.01 T eta C
beyond the start. Rows may exceed B by a part 1e-12 (`dpsample.Problem`): curvatures by
2e-12, so that steps move points apart by 4e-12 at most, and s by 2e-12 + 5e-12 T. The
products of these bounds, of second order, are below 2 % of them.
"""

import math

import numpy as np

from dpsample.core.arrays import Array
from dpsample.domains import Ball, Box, Domain, WholeSpace
from dpsample.losses import Huber, Linear, Logistic, SmoothedHinge, Squared
from dpsample.optimizers.loop.estimators import ClippedMean, Mean
from dpsample.optimizers.loop.optimizer import Loop
from dpsample.optimizers.loop.perturbations import UNIT, sum_error
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.curves.additive import up
from dpsample.problem.facts import PublicFacts, smoothness

LOSSES = (Linear, Logistic, SmoothedHinge, Huber, Squared)
_LONGEST = 10**9  # steps; second-order terms stay below 2 % of the first
_LEAST = 1e-290  # beyond all that subnormal numbers lose


def iterate_error(facts: PublicFacts, loop: Loop, start: Array) -> float:
    """Bound E of the l2 distance of a loop's computed output from the exact one.

    Infinite where none is proved: for other losses, domains, estimators and steps.
    """
    step, estimator, dim = loop.step, loop.estimator, facts.dim
    if not (isinstance(facts.loss, LOSSES) and _is_plain(loop)):
        return math.inf
    assert isinstance(step, GradientStep)
    bound = estimator.record_bound(dim)
    size, beta = float(np.max(step.sizes)), smoothness(facts)
    if math.isinf(bound) or size * (beta + step.ridge) > 2.0:
        return math.inf
    center = float(np.linalg.norm(facts.center))
    reach = center + facts.radius
    if math.isinf(reach):
        reach = float(np.linalg.norm(start)) + 1.01 * loop.num_steps * size * bound
    offset = facts.offset_bound / (facts.full_row_bound * facts.dual_ratio(2.0))
    gradient = beta * (dim + 4.0) * UNIT * (reach + offset) + 16.0 * UNIT * bound
    gradient += sum_error(loop.largest_batch(facts.num_records)) * bound
    update = 6.0 * UNIT * (reach + size * (bound + 2.0 * step.ridge * reach))
    one = size * gradient + update + _projection_error(facts.domain, dim, reach)
    total = loop.num_steps * one
    if loop.weights is not None:
        total += (loop.num_steps + 8.0) * UNIT * reach
    return 1.02 * total + _LEAST


def counted_stddev(facts: PublicFacts, loop: Loop, start: Array) -> float:
    """Deviation of the output noise, enlarged for the rounding errors of the steps.

    As it is if the loop does not say that they count.
    """
    if loop.output_gdp == 0.0:
        return loop.output_stddev
    longer = loop.output_stddev * (1.0 + 2e-12 + 5e-12 * loop.num_steps)
    return up(longer + 2.0 * iterate_error(facts, loop, start) / loop.output_gdp)


def counts(facts: PublicFacts, *loops: Loop) -> bool:
    """Whether rounding errors of all these loops have a bound, wherever they start."""
    return all(math.isfinite(iterate_error(facts, x, facts.center)) for x in loops)


def _is_plain(loop: Loop) -> bool:
    """Whether the loop takes gradient steps of means that the module's proof covers."""
    step, estimator = loop.step, loop.estimator
    is_mean = isinstance(estimator, Mean | ClippedMean) and estimator.smoothing == 0.0
    is_step = isinstance(step, GradientStep) and math.isinf(step.local_radius)
    return is_mean and is_step and loop.num_steps <= _LONGEST


def _projection_error(domain: Domain, dim: int, reach: float) -> float:
    if isinstance(domain, Box | WholeSpace):
        return 0.0
    if isinstance(domain, Ball) and domain.p == 2.0:
        return 1.01 * (5.0 * dim + 430.0) * UNIT * reach
    return math.inf
