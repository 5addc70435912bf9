r"""Proved bias of the randomized-series oracle, and the steps that keep it small.

A trial draws x, z from g, which is 1/h'-strongly log-concave, and accepts x with
probability rho / 2, cut off to [0, 1]; E[rho | x, z] is the exact ratio. One accepted
draw is within total variation E[o] of the exact conditional law, where o = max(rho - 2,
0) + max(-rho, 0) is the overshoot. The losses of one record change by a sub-Gaussian
amount of proxy v = 2 L^2 h' between z and x, L their Lipschitz constant, whence for all
integers K >= 1 and r >= 2

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

LARGEST_POWER, LARGEST_CUT, NUM_TERMS = 400, 120, 300
# The rule v = 1 / (12 log(1/b)) keeps the bound below b for b in this interval.
SMALLEST_BIAS, LARGEST_BIAS = 1e-40, 1e-3


def overshoot_bound(variance_proxy: float) -> float:
    """Bound of E[o], minimized over K and r; it may exceed 1.

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
    half_log = 0.5 * math.log(2.0 * variance_proxy)
    power = np.arange(2.0, LARGEST_POWER)[:, None]
    factor = np.arange(1.0, LARGEST_CUT + 1.0)
    terms = (
        math.log(2.0) + gammaln(0.5 * power * factor + 1.0) - gammaln(factor + 1.0)
    ) / power + factor * half_log
    series = (power * np.logaddexp.accumulate(terms, axis=1)).min(axis=0)
    both = np.logaddexp(series, _log_rest(half_log))
    return float(np.exp(min(both.min(), 700.0)))


def _log_rest(half_log: float) -> Array:
    """Logarithm of the second sum for K = 1, 2, ...; infinite if it may not converge.

    Beyond the last term each is at most half of the one before it.
    """
    factor = np.arange(1.0, NUM_TERMS + 1.0)
    cut = np.arange(1.0, LARGEST_CUT + 1.0)[:, None]
    logs = math.log(2.0) + gammaln(0.5 * factor + 1.0) + factor * half_log
    logs = logs - gammaln(np.maximum(factor, cut + 1.0) + 1.0)
    # Gamma(s + 1/2) / Gamma(s) <= sqrt(s): the ratio of two terms, and it falls.
    ratio = half_log + 0.5 * math.log(0.5 * NUM_TERMS + 1.0) - math.log(NUM_TERMS + 1.0)
    if ratio > -math.log(2.0):
        return np.full(LARGEST_CUT, np.inf)
    return np.asarray(np.logaddexp(logsumexp(logs, axis=1), logs[:, -1]))


def proxy_for(bias: float) -> float:
    """Variance proxy v whose `overshoot_bound` is at most ``bias``.

    The explicit rule v = 1 / (12 log(1 / bias)) in its proved range, elsewhere a
    solution of the bound; ``bias``, in (0, 1), is the total-variation error of one
    conditional draw.

    Examples
    --------
    >>> from dpsample.samplers.subsampled.series_bias import proxy_for
    >>> round(1.0 / proxy_for(1e-6), 6)
    165.786127
    """
    check.open_interval(0.0, 1.0, bias=bias)
    rule = 1.0 / (12.0 * math.log(1.0 / bias))
    if SMALLEST_BIAS <= bias <= LARGEST_BIAS:
        return rule
    while overshoot_bound(rule) > bias:
        rule *= 0.9
    return rule


@dataclass(frozen=True, kw_only=True)
class SeriesSchedule:
    """Step, number of steps, and what they prove."""

    step: float
    num_steps: int
    overshoot: float  # bound of the error of one step
    mixing: float  # bound of the exact chain's error after num_steps

    @property
    def bias(self) -> float:
        """Bound of the total variation after ``num_steps`` steps from the start."""
        return self.mixing + self.num_steps * self.overshoot


@dataclass(frozen=True, kw_only=True)
class SeriesNumbers:
    """What the bias depends on."""

    lipschitz: float  # L: bound of |l_j(z) - l_j(x)| / ||z - x||_2, l_j = k f(.; s_j)
    regularity: float  # strong convexity of -log g without its Gaussian factor, >= 0
    convexity: float  # strong convexity m > 0 of the energy in l2
    # Bound of the root mean squared distance from start to target, times sqrt(m).
    start_bound: float

    def proxy(self, step: float) -> float:
        """Variance proxy 2 L^2 h' with 1/h' = 1/h + regularity."""
        return 2.0 * self.lipschitz**2 / (1.0 / step + self.regularity)

    def step_for(self, bias: float) -> float:
        """Step h = 1 / (24 L^2 log(1 / bias)) of the explicit rule, or shorter.

        Losses that hardly change would allow any step: beyond 100 / m none is faster.
        """
        longest = 100.0 / self.convexity
        proxy = proxy_for(bias)
        if 2.0 * self.lipschitz**2 * longest <= proxy:
            return longest
        return 0.5 * proxy / self.lipschitz**2

    def given(self, step: float, gamma: float) -> SeriesSchedule:
        """Schedule of a step that the user chose: its bound may exceed 1."""
        return self._schedule(step, gamma, overshoot_bound(self.proxy(step)))

    def schedule(self, gamma: float) -> SeriesSchedule:
        """Step and number of steps with total variation at most gamma.

        Half of gamma pays for mixing and half for T steps of error b = gamma / (2 T).
        """
        check.open_interval(0.0, 1.0, gamma=gamma)
        bias = min(0.5 * gamma, LARGEST_BIAS)
        for _ in range(100):
            plan = self._schedule(self.step_for(bias), gamma, bias)
            if plan.num_steps * bias <= 0.5 * gamma:
                break
            bias = 0.5 * gamma / (1.01 * plan.num_steps)
        proved = overshoot_bound(self.proxy(plan.step)) <= bias * (1.0 + 1e-9)
        if not (proved and plan.bias <= gamma):
            raise AssertionError("The steps of the randomized series prove too little.")
        return plan

    def _schedule(self, step: float, gamma: float, overshoot: float) -> SeriesSchedule:
        numbers = {"step": step * self.convexity, "start_bound": self.start_bound}
        steps = alternation.num_steps(0.5 * gamma, **numbers)
        return SeriesSchedule(
            step=step,
            num_steps=steps,
            overshoot=overshoot,
            mixing=alternation.tv_bound(steps, **numbers),
        )


def numbers(target: Gibbs, start: Array, slopes: Array | None = None) -> SeriesNumbers:
    """Constants of the bias bound, for chains that begin at ``start``.

    Raises `NoCertificate` if the energy is not strongly convex.
    """
    precision = metric.candidates(target, oracle="metric")[0].precision
    convexity = float(np.linalg.eigvalsh(precision)[0])
    domain, eye = target.problem.domain, np.eye(target.dim)
    gradient = target.gradient(start)
    bound = alternation.distance_to_minimizer(
        domain, start, gradient, eye / convexity, convexity * eye
    )
    bound += math.sqrt(target.dim)
    if domain.is_bounded:
        reach = domain.max_norm(2.0, start, target.dim)
        bound = min(bound, math.sqrt(convexity) * reach)
    weakest = target.regularizer.curvature_l2(target.dim)[0]
    return SeriesNumbers(
        lipschitz=target.k * record_terms.lipschitz_bound(target, slopes),
        regularity=target.k * target.mu * weakest,
        convexity=convexity,
        start_bound=bound,
    )
