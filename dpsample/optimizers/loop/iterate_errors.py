r"""Rounding errors of gradient steps: how far computed iterates are from exact ones.

Output perturbation assumes exact steps. An exact step moves no two points apart, so one
record moves the end of a phase by at most a bound s. The computed ends of neighbors are
then at most s + 2 E apart, where E, computed here, bounds |computed - exact|. So noise
of standard deviation (s + 2 E)/t makes the computed output t-GDP (Dong, Roth and Su
2022, Theorem 2.7). E depends on public numbers only, and on the point where the phase
starts, which was released before.

**One step** from a point w with |w| <= M, in l2 norms, with u = 2^-53. There are d
parameters and n records. A row has |a| <= B, an offset is at most O, one record's
gradient has norm at most C, and its loss has curvature at most beta. eta is the step
size, lambda the ridge about w_0. The parts of the error are:

* margins, beta (d + 4) u (M + O/B): a dot product in any order is off by (d + 2) u
  |a| |w| (Higham 2002, section 3.1), and slopes change by beta/B^2 of that;
* slopes, 16 u C: the losses in `LOSSES` take an exponential and at most five
  operations, which cancel nothing but the margin. Limits on slopes are exact slopes of
  another convex loss, and clipping to them moves no two slopes apart;
* sums, gamma C: see `perturbations.rounding_excess`;
* the update w - eta (g + lambda (w - w_0)), 6 u (M + eta (C + 2 lambda M));
* the projection: boxes have none; the l2 ball about c scales by R over a length that is
  off by (d + 8) u, then by factors 1 - 2 u, 1 - 4 u, ... until the length as computed
  is at most R. If that takes k factors, all but the last shrink by less than the
  excess, N u = (2 d + 20) u R + 2 (k + 2) u (|c| + R), and k <= 60: in total less than
  2 N u + 2 u R, and every product and sum adds its rounding: (5 d + 430) u (|c| + R).

The first three are multiplied by eta. Noise is added to the difference from the last
released point r. Unless r is 0, rounding that difference adds 2 u (M + |r|) once.

If eta (beta + lambda) <= 2, a step moves no two points apart, and the errors of steps
add up. For the last iterate E is T times the error of one step. The mean of all has the
same error plus (T + 8) u M for its sum. M is the largest norm in the domain, or if that
is infinite the norm of the start plus 1.01 T eta C. Rows may exceed B by a part 1e-12
(`dpsample.Problem`), and curvatures by 2e-12. So steps move points apart by 4e-12 at
most, and s grows by 2e-12 + 5e-12 T. The products of these bounds, of second order, are
below 2 % of them.

**Minimizers.** On an m-strongly convex objective of smoothness l, with a tilt of length
at most b, a step of length 1/l is off by e as above, ridge and tilt adding 8 u (C + b +
2 m M) to the gradient. That includes the tilt's own rounding, for exact normal numbers
within 12 standard deviations. Let w* be the minimizer, y a point, y+ the exact step
from it and c = sqrt(l^2/m^2 - l/m). By the certificate of `solve`, |y+ - w*| <= c |y -
y+|. Let a be the gap and r = sqrt(2 a/m)/c. If |y - y+| as computed is at most r + e,
the computed step is within

    sqrt(2 a/m) + c (2 e + ((d + 9) u + 8 u l/(l - m)) (r + e)) + e

of w*, where the term in (r + e) is for rounding the length and r. If no step is so
short, `solve.CONTRACTION` follows, whose errors do not add up. After log(2 R
sqrt(m/2a))/-log(1 - m/l) steps, R the radius, it is within sqrt(2 a/m) + e l/m. This is
less, because l/m <= 2 c + 1.

A tilt of density exp(-|G|/s) is a length times a direction z/|z|, z standard normal
(`solve.fill_norm_tilt`). A sum of d exponentials is off by (d + 1) u, entries of z by
u, |z| by (d/2 + 3) u, and products and quotients by 6 u. That is in total less than (2
d + 24) u times the largest length. Digits are cut off at 2^-97 of s and 2^-102, which
is far less. For that |z| >= 2^-41 if d >= 2, except with probability below 2^-80. For d
= 1 the direction is a sign.

`perturbations` has the rounding errors of noise, and `last_iterate` those of noisy
steps. Without this file no certificate of output perturbation would include the
rounding of the steps that are perturbed at the end.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.domains import Domain
from dpsample.losses import (
    CalibratedLogistic,
    CappedLogistic,
    Huber,
    Linear,
    Logistic,
    SmoothedHinge,
    Squared,
)
from dpsample.optimizers.loop.estimators import ClippedMean, Mean
from dpsample.optimizers.loop.optimizer import Descent, Loop, Minimization
from dpsample.optimizers.loop.perturbations import sum_error
from dpsample.optimizers.loop.solve import MOST
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts, smoothness

LOSSES = (Linear, Logistic, CappedLogistic, SmoothedHinge, Huber, Squared)
# This exceeds all that subnormal numbers lose.
_SUBNORMAL_LOSS = 1e-290


def iterate_error(facts: PublicFacts, loop: Loop, start: Array) -> float:
    """Return a bound E of the l2 distance of a loop's computed and exact outputs.

    It is infinite for losses, domains, estimators and steps that have no proof.
    """
    step, estimator, dim = loop.step, loop.estimator, facts.dim
    if not (isinstance(facts.loss, LOSSES) and _is_plain(loop)):
        return math.inf
    assert isinstance(step, GradientStep)
    bound = estimator.record_bound(dim)
    size, beta = float(np.asarray(step.sizes).max()), smoothness(facts)
    if math.isinf(bound) or size * (beta + step.ridge) > 2.0:
        return math.inf
    # The parts of one step's error, in the order of the module's docstring.
    reach = _reach(facts, loop, start)  # M
    count = loop.largest_batch(facts.num_records)
    gradient = _gradient_error(facts, reach, bound, count)
    update = 6.0 * UNIT_ROUNDOFF * (reach + size * (bound + 2.0 * step.ridge * reach))
    step_error = size * gradient + update + _projection_error(facts.domain, dim, reach)
    # No step moves two points apart, so the errors of all steps add up.
    total = loop.num_steps * step_error
    if loop.weights is not None:  # the sum of a mean of iterates
        total += (loop.num_steps + 8.0) * UNIT_ROUNDOFF * reach
    return 1.02 * total + _SUBNORMAL_LOSS  # 2 % cover terms of second order


def counted_stddev(
    facts: PublicFacts, phase: Descent, start: Array, released: Array
) -> float:
    """Return the deviation of the output noise, which covers rounding errors of steps.

    It is the phase's own if these are not included (``output_gdp`` 0). The noise is
    added to the difference from ``released``, whose rounding is included, too.
    """
    if phase.output_gdp == 0.0:
        return phase.output_stddev
    # The noise s/t for exact steps, with s enlarged for rows above their bound, plus
    # 2 E/t for the errors of both neighbors.
    num_steps = phase.num_steps if isinstance(phase, Loop) else 0
    longer = phase.output_stddev * (1.0 + 2e-12 + 5e-12 * num_steps)
    error = phase_error(facts, phase, start)
    if released.any():
        reach = _reach(facts, phase, start) + float(np.linalg.norm(released))
        error += 2.0 * UNIT_ROUNDOFF * reach
    return round_up(longer + 2.0 * error / phase.output_gdp)


def counted_scale(
    facts: PublicFacts, phase: Minimization, start: Array, released: Array
) -> float:
    """Return the scale of Laplace output noise, which covers rounding errors.

    It is `counted_stddev` of noise whose l1 sensitivity counts: a distance in l2 is at
    most sqrt(d) times as long in l1.
    """
    if phase.output_epsilon == 0.0:
        return phase.output_scale
    error = phase_error(facts, phase, start)
    if released.any():
        reach = _reach(facts, phase, start) + float(np.linalg.norm(released))
        error += 2.0 * UNIT_ROUNDOFF * reach
    more = 2.0 * math.sqrt(facts.dim) * error / phase.output_epsilon
    return round_up(phase.output_scale * (1.0 + 2e-12) + more)


def has_error_bound(facts: PublicFacts, *phases: Descent) -> bool:
    """Return whether these phases' rounding errors have a bound from any start."""
    return all(math.isfinite(phase_error(facts, x, facts.center)) for x in phases)


def phase_error(facts: PublicFacts, phase: Descent, start: Array) -> float:
    """Return a bound E of a phase's rounding error, in addition to its gap.

    It is infinite if none is proved.
    """
    if isinstance(phase, Loop):
        return iterate_error(facts, phase, start)
    return solver_precision(facts, replace(phase, output_gdp=1.0)).error


def _reach(facts: PublicFacts, phase: Descent, start: Array) -> float:
    """Return the largest l2 norm of an iterate.

    It follows from the domain, or from the clipped steps if the domain is unbounded.
    """
    reach = float(np.linalg.norm(facts.center)) + facts.radius
    if math.isinf(reach) and isinstance(phase, Loop):
        assert isinstance(phase.step, GradientStep)
        size = float(np.asarray(phase.step.sizes).max())
        path_length = phase.num_steps * size * phase.estimator.record_bound(facts.dim)
        reach = float(np.linalg.norm(start)) + 1.01 * path_length
    return reach


class SolverPrecision(NamedTuple):
    """Numbers with which a minimization is run, and its rounding error."""

    smoothness: float  # smoothness constant of the objective
    gap: float  # J(w) - min J that the solver certifies in its own arithmetic
    error: float  # distance to the minimizer in addition to that of the phase's gap
    num_steps: int  # plain steps that are enough without a certificate, 0 if unproved


def solver_precision(facts: PublicFacts, phase: Minimization) -> SolverPrecision:
    """Return gap, steps and rounding error of a solver, infinite without a proof."""
    m, top = float(phase.ridge), float(phase.smoothness + phase.ridge)
    unproved = SolverPrecision(top, float(phase.gap), math.inf, 0)
    if phase.output_gdp == phase.output_epsilon == 0.0:
        return unproved
    if phase.smoothness > 0.0:
        top *= 1.0 + 1e-11  # rows above their bound by a rounding error
    step_error = _solver_step_error(facts, phase, top)
    if math.isinf(step_error):
        return unproved
    if top == m:  # one exact step is the minimizer, and the solver takes it
        return SolverPrecision(
            top, float(phase.gap), 1.02 * step_error + _SUBNORMAL_LOSS, 1
        )
    # c = sqrt(l^2/m^2 - l/m), without a difference of large squares.
    c = math.sqrt(top / m) * math.sqrt(top / m - 1.0)
    # A point of gap a is that near the minimizer, by strong convexity.
    target_distance = math.sqrt(2.0 * phase.gap / m)
    longest = target_distance / c + step_error  # r + e, of the last step as computed
    relative = (facts.dim + 9.0 + 8.0 * top / (top - m)) * UNIT_ROUNDOFF
    error = (
        1.02 * (c * (2.0 * step_error + relative * longest) + step_error)
        + _SUBNORMAL_LOSS
    )
    # Each plain step shrinks the distance from the minimizer by 1 - m/l. Two steps more
    # make up for rounding.
    log_ratio = max(math.log(2.0 * facts.radius) - math.log(target_distance), 0.0)
    steps = 2 + math.ceil(1.01 * log_ratio / -math.log1p(-m / top))
    # The solver ends with a step that is at most `longest`, which certifies this gap.
    gap = 0.5 * m * (c * longest) ** 2
    return SolverPrecision(top, gap, error, steps)


def _solver_step_error(facts: PublicFacts, phase: Minimization, top: float) -> float:
    """Return a bound e of the rounding error of one projected gradient step.

    It is infinite if none is proved.
    """
    estimator, dim = phase.estimator, facts.dim
    is_mean = isinstance(estimator, Mean | ClippedMean) and estimator.smoothing == 0.0
    bound = estimator.record_bound(dim)
    reach = _reach(facts, phase, facts.center)
    is_plain = is_mean and math.isinf(phase.local_radius)
    # The calibrated loss has no more operations. It came later, and certificates with a
    # Gaussian tilt do not change.
    losses = (*LOSSES, CalibratedLogistic) if phase.tilt_scale > 0.0 else LOSSES
    if not (
        isinstance(facts.loss, losses) and is_plain and max(bound, reach) < math.inf
    ):
        return math.inf
    last = facts.num_records if phase.last is None else phase.last
    count = last - phase.first
    # All coordinates of a Gaussian tilt are within `MOST` standard deviations.
    tilt, tilt_error = MOST * phase.tilt_stddev / count * math.sqrt(dim), 0.0
    if phase.tilt_scale > 0.0:
        tilt = phase.max_tilt / count
        tilt_error = 1.01 * (2.0 * dim + 24.0) * UNIT_ROUNDOFF * tilt
    slopes = bound + tilt + 2.0 * phase.ridge * reach
    gradient = (
        _gradient_error(facts, reach, bound, count) + 8.0 * UNIT_ROUNDOFF * slopes
    )
    gradient += tilt_error
    update = 3.0 * UNIT_ROUNDOFF * (reach + slopes / top)
    return gradient / top + update + _projection_error(facts.domain, dim, reach)


def _gradient_error(
    facts: PublicFacts, reach: float, bound: float, count: int
) -> float:
    """Return a bound of the error of a mean gradient at a point of norm <= ``reach``.

    ``bound`` is C and ``count`` the number of records.
    """
    # O/B, with the bound B of rows in the l2 norm.
    offset = facts.offset_bound / (facts.full_row_bound * facts.dual_ratio(2.0))
    margins = smoothness(facts) * (facts.dim + 4.0) * UNIT_ROUNDOFF * (reach + offset)
    return margins + (16.0 * UNIT_ROUNDOFF + sum_error(count)) * bound


def _is_plain(loop: Loop) -> bool:
    """Return whether the module's proof covers the loop: gradient steps of means."""
    step, estimator = loop.step, loop.estimator
    is_mean = isinstance(estimator, Mean | ClippedMean) and estimator.smoothing == 0.0
    is_step = isinstance(step, GradientStep) and math.isinf(step.local_radius)
    # Up to this number of steps, terms of second order are below 2% of the first.
    return is_mean and is_step and loop.num_steps <= 10**9


def _projection_error(domain: Domain, dim: int, reach: float) -> float:
    """Return a bound of the error of a projection, infinite if none is proved."""
    if domain.is_whole_space or (domain.is_box and domain.lp_exponent is None):
        return 0.0
    if domain.lp_exponent == 2.0:
        return 1.01 * (5.0 * dim + 430.0) * UNIT_ROUNDOFF * reach
    return math.inf
