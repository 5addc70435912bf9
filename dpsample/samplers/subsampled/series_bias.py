r"""Proved bias of the randomized-series oracle, and the steps that keep it small.

A trial of `randomized_series` draws x, z from a 1/h'-strongly log-concave density g,
and accepts x with probability rho / 2, clipped to [0, 1]. E[rho | x, z] is the exact
ratio. An accepted draw is within total variation E[o] of the exact conditional
distribution, where o = max(rho - 2, 0) + max(-rho, 0) is the overshoot. Between z and x
the loss of a record changes by a sub-Gaussian amount with variance proxy v = 2 L^2 h',
where L is the Lipschitz constant. So for all integers K >= 1 and r >= 2

    E[o] <= (sum_{a <= K} (2 Gamma(r a / 2 + 1) / a!)^{1/r} (2 v)^{a/2})^r
            + sum_{a >= 1} 2 Gamma(a / 2 + 1) (2 v)^{a/2} / max(a, K + 1)!
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.samplers import record_terms
from dpsample.samplers.proximal import alternation, metric
from dpsample.targets.gibbs import Gibbs

# The bound is minimized over r < MAX_POWER and K <= MAX_CUT. The second sum includes
# NUM_TERMS terms and a bound of the others.
MAX_POWER = 400
MAX_CUT = 120
NUM_TERMS = 300
# With v = 1 / (12 log(1/b)) the bound is below b for all b between these numbers.
MIN_BIAS = 1e-40
MAX_BIAS = 1e-3


def overshoot_bound(variance_proxy: float) -> float:
    """Return the bound of E[o], minimized over K and r. It may exceed 1.

    ``variance_proxy`` is v, the sub-Gaussian proxy of the change of one record's loss.

    Examples
    --------
    >>> from dpsample.samplers.subsampled.series_bias import overshoot_bound
    >>> overshoot_bound(1.0 / (12.0 * 10.0)) < 4.6e-5 < overshoot_bound(0.02)
    True
    """
    check.non_negative(variance_proxy=variance_proxy)
    if variance_proxy == 0.0:
        return 0.0
    # The logarithm of (2 v)^{1/2}.
    half_log = 0.5 * math.log(2.0 * variance_proxy)
    power = np.arange(2.0, MAX_POWER)[:, None]
    factor = np.arange(1.0, MAX_CUT + 1.0)
    # Logarithms of the terms (2 Gamma(r a / 2 + 1) / a!)^{1/r} (2 v)^{a/2}, by r and a.
    terms = (
        math.log(2.0) + gammaln(0.5 * power * factor + 1.0) - gammaln(factor + 1.0)
    ) / power + factor * half_log
    # Sums over a <= K, for all K at once.
    first_sum = (power * np.logaddexp.accumulate(terms, axis=1)).min(axis=0)
    log_bounds = np.logaddexp(first_sum, _log_second_sum(half_log))
    # A larger exponential would overflow, and any bound above 1 is as good.
    return float(np.exp(min(log_bounds.min(), 700.0)))


def _log_second_sum(half_log: float) -> Array:
    """Return the log of the second sum for K = 1, 2, ..., or infinity.

    Each term after the last one included is at most half of the one before it, so that
    their sum is at most the last term. Otherwise the sum is not known to converge.
    """
    factor = np.arange(1.0, NUM_TERMS + 1.0)
    cut = np.arange(1.0, MAX_CUT + 1.0)[:, None]
    logs = math.log(2.0) + gammaln(0.5 * factor + 1.0) + factor * half_log
    logs = logs - gammaln(np.maximum(factor, cut + 1.0) + 1.0)
    # Gamma(s + 1/2) / Gamma(s) <= sqrt(s) bounds the ratio of two terms, which falls.
    ratio = half_log + 0.5 * math.log(0.5 * NUM_TERMS + 1.0) - math.log(NUM_TERMS + 1.0)
    if ratio > -math.log(2.0):
        return np.full(MAX_CUT, np.inf)
    return np.asarray(np.logaddexp(logsumexp(logs, axis=1), logs[:, -1]))


def proxy_for(bias: float) -> float:
    """Return a variance proxy v whose `overshoot_bound` is at most ``bias``.

    It is 1 / (12 log(1 / bias)) where that is proved to suffice, and smaller elsewhere.
    ``bias``, in (0, 1), is the total-variation error of one conditional draw.

    Examples
    --------
    >>> from dpsample.samplers.subsampled.series_bias import proxy_for
    >>> round(1.0 / proxy_for(1e-6), 6)
    165.786127
    """
    check.open_interval(0.0, 1.0, bias=bias)
    rule = 1.0 / (12.0 * math.log(1.0 / bias))
    if MIN_BIAS <= bias <= MAX_BIAS:
        return rule
    # The bound increases with v, so shorter steps end this.
    while overshoot_bound(rule) > bias:
        rule *= 0.9
    return rule


@dataclass(frozen=True, kw_only=True)
class SeriesSchedule:
    """Step, number of steps, and their proved errors."""

    step: float
    num_steps: int
    overshoot: float  # bound of the total-variation error of one step
    mixing: float  # bound of the exact chain's error after ``num_steps`` steps

    @property
    def bias(self) -> float:
        """Bound of the total variation after ``num_steps`` steps from the start."""
        return self.mixing + self.num_steps * self.overshoot


@dataclass(frozen=True, kw_only=True)
class SeriesNumbers:
    """Constants of a target on which the bias depends."""

    lipschitz: float  # L: bound of |l_j(z) - l_j(x)| / ||z - x||_2, l_j = k f(.; s_j)
    regularity: float  # strong convexity of -log g without its Gaussian factor, >= 0
    convexity: float  # strong convexity m > 0 of the energy in l2
    # Bound of the root mean squared distance from start to target, times sqrt(m).
    start_bound: float

    def proxy(self, step: float) -> float:
        """Return the variance proxy 2 L^2 h' with 1/h' = 1/h + regularity."""
        return 2.0 * self.lipschitz**2 / (1.0 / step + self.regularity)

    def step_for(self, bias: float) -> float:
        """Return the step h = 1 / (24 L^2 log(1 / bias)) of the rule, or a shorter one.

        Losses that hardly change would allow any step. It is at most 100 / m, because a
        longer one would save no steps.
        """
        max_step = 100.0 / self.convexity
        proxy = proxy_for(bias)
        if 2.0 * self.lipschitz**2 * max_step <= proxy:
            return max_step
        return 0.5 * proxy / self.lipschitz**2

    def schedule_for_step(self, step: float, gamma: float) -> SeriesSchedule:
        """Return the schedule of a step that the user chose. Its bound may exceed 1."""
        return self._schedule(step, gamma, overshoot_bound(self.proxy(step)))

    def schedule(self, gamma: float) -> SeriesSchedule:
        """Return step and number of steps with total variation at most gamma.

        Half of gamma is for mixing, and half for T steps of error b = gamma / (2 T).
        """
        check.open_interval(0.0, 1.0, gamma=gamma)
        bias = min(0.5 * gamma, MAX_BIAS)
        # T depends on b through the step. Each round reduces b a little more than the
        # last T requires, so that it ends.
        for _ in range(100):
            plan = self._schedule(self.step_for(bias), gamma, bias)
            if plan.num_steps * bias <= 0.5 * gamma:
                break
            bias = 0.5 * gamma / (1.01 * plan.num_steps)
        # This is proved for all biases of the rule. The test would find a mistake in
        # it.
        is_proved = overshoot_bound(self.proxy(plan.step)) <= bias * (1.0 + 1e-9)
        if not (is_proved and plan.bias <= gamma):
            raise AssertionError("The steps of the randomized series prove too little.")
        return plan

    def _schedule(self, step: float, gamma: float, overshoot: float) -> SeriesSchedule:
        """Return the schedule of a step, with half of gamma for mixing."""
        numbers = {"step": step * self.convexity, "start_bound": self.start_bound}
        steps = alternation.num_steps(0.5 * gamma, **numbers)
        return SeriesSchedule(
            step=step,
            num_steps=steps,
            overshoot=overshoot,
            mixing=alternation.tv_bound(steps, **numbers),
        )


def numbers(target: Gibbs, start: Array, slopes: Array | None = None) -> SeriesNumbers:
    """Return the constants of the bias bound, for chains that begin at ``start``.

    `NoCertificate` is raised if the energy is not strongly convex.
    """
    precision = metric.candidates(target, oracle="metric")[0].precision
    convexity = float(np.linalg.eigvalsh(precision)[0])
    domain, eye = target.domain, np.eye(target.dim)
    gradient = target.gradient(start)
    bound = alternation.distance_to_minimizer(
        domain, start, gradient, eye / convexity, convexity * eye
    )
    # In the metric of m, the root mean squared distance of the target from its
    # minimizer is at most sqrt(dim).
    bound += math.sqrt(target.dim)
    if domain.is_bounded:
        max_distance = domain.max_norm(2.0, start, target.dim)
        bound = min(bound, math.sqrt(convexity) * max_distance)
    min_curvature = target.regularizer.curvature_l2(target.dim)[0]
    return SeriesNumbers(
        lipschitz=target.k * record_terms.lipschitz_bound(target, slopes),
        regularity=target.k * target.mu * min_curvature,
        convexity=convexity,
        start_bound=bound,
    )
