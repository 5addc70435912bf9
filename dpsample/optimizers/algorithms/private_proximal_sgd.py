"""Private proximal gradient descent with clipped, median or soft-truncated gradients.

Xie et al. (2022), Algorithms 1 (clip), 2 and 3 (bucketed median) and 4 (Catoni): the
steps of `ProximalSGD` with a robust estimate of the gradient over a Poisson sample of
rate m/n, divided by the constant m, plus Gaussian noise. One record's part in m times
the estimate is bounded by construction, whatever the tails of the data. Widths and
scales trade the bias of truncation for noise, whose size is proportional to them.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsample.core import check
from dpsample.optimizers.algorithms.proximal_sgd import ProximalSGD, excess_bound
from dpsample.optimizers.loop import perturbations
from dpsample.optimizers.loop.batches import Batches, Full, Poisson
from dpsample.optimizers.loop.contributions import PSI_BOUND
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Estimator,
)
from dpsample.optimizers.loop.optimizer import EQUAL_WEIGHTS, Calibration, Loop, Recipe
from dpsample.optimizers.loop.perturbations import CalibratedNoise, GaussianNoise
from dpsample.privacy.accounting.events import GaussianEvent, PoissonGaussianEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True)
class PrivateProximalSGD(ProximalSGD):
    r"""Private proximal gradient descent for heavy-tailed data.

    It is DP-SPGD of Xie et al. (2022), and with medians DP-SPGD(K), whose mean is
    DPRME, and with soft truncation DP-SPGD(H).

    These parameters are in addition to those of `ProximalSGD`. p is the dimension, n
    the number of records, and z the standard deviation of the noise over the largest l2
    norm that one record adds to a sum.

    Parameters
    ----------
    estimator : {"clip", "bucketed_median", "catoni"}
        How the gradients :math:`g_i` of a batch become one vector. "clip" is the mean
        of :math:`g_i \min(1, C/\|g_i\|)`. "bucketed_median" clips coordinates to
        :math:`\pm\varrho/2`, divides the batch into Q buckets, and is the mean of the j
        central values of the means of buckets. "catoni" is a smoothed soft truncation
        of every coordinate at scale s, with precision :math:`\nu =
        \sqrt{\log(1/\zeta)}`.
    threshold : float, optional
        C, width :math:`\varrho` or scale s. The default of C is the Lipschitz constant
        of a record's loss, with which nothing is clipped. The default width minimizes
        noise plus truncation bias, and the default scale the estimator's deviation plus
        noise.
    moment_bound : float
        Public bound of :math:`E |g_j - E g_j|^k` ("bucketed_median") or of :math:`E
        g_j^2` ("catoni") for every coordinate j. Only the defaults depend on it.
    moment_order : float
        Order k > 1 of the moment.
    mean_bound : float
        Public bound of :math:`|E g_j|`. The default width is at least 4 times this.
    failure_probability : float
        :math:`\zeta` in (0, 1), the probability of the paper's deviation bounds.
    num_buckets : int, optional
        Q, by default :math:`2 \lceil\frac32 \log(2 p/\zeta)\rceil`.
    num_central : int, optional
        j, by default 1 for odd and 2 for even Q, which is the median. Q/2 is the
        interquartile mean, whose noise is smaller by the factor 2 j/Q.
    batch_size : int, optional
        m, the expected size of a batch. Defaults: n/6 ("clip"); :math:`(n^k
        p^{(4k-1)/2} \epsilon^{1-k})^{1/(2k-1)}` ("bucketed_median"); :math:`(np)^{2/3}
        \epsilon^{-1/3}` ("catoni"), at most n, which means all records in every step.
    num_steps : int, optional
        The default is :math:`5 n^2/m^2`, and at least 100 unless the calibration is
        "paper", because the 5 published steps of m = n end far from the minimum.

    Raises
    ------
    ValueError
        If a number is out of its range or a word is unknown.

    Notes
    -----
    Without a budget there is no noise, and the defaults are those of epsilon = 1. The
    published noise, :math:`z = \sqrt{\log(1/\delta)}/\epsilon` ("clip") or twice that,
    does not grow with the number of steps. Its true epsilon is 2.4 to 8.5 times the
    stated one (entry gradient-E25 of the errata). With calibration "paper" the
    certificate has the true epsilon.

    **Guarantee.** The output is (epsilon, delta)-DP under the budget's relation, for
    any records. ``risk_bound`` of the recipe, which medians do not have, bounds the
    mean excess of the empirical risk plus penalty. For "clip" the risk is that of
    clipped gradients. For "catoni" ``moment_bound`` must hold for the means over the
    records. Both need a bounded domain and a valid ``smoothness``.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.regression(2000, 3, seed=5, degrees=3.0)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Huber(), domain=dps.domains.Ball(2.0))
    >>> lasso = dps.optimizers.PrivateProximalSGD(l1=0.01, batch_size=2000, num_steps=9)
    >>> fit = dps.minimize(problem, lasso, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> fit.certificate.releasable, fit.num_gradients
    (True, 18000)
    """

    estimator: str = "clip"
    threshold: float | None = None
    moment_bound: float = 1.0
    moment_order: float = 2.0
    mean_bound: float = 0.0
    failure_probability: float = 0.1
    num_buckets: int | None = None
    num_central: int | None = None
    name: ClassVar[str] = "private_proximal_sgd"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.one_of(("clip", "bucketed_median", "catoni"), estimator=self.estimator)
        if self.threshold is not None:
            check.greater_than(0.0, threshold=self.threshold)
        check.positive(moment_bound=self.moment_bound)
        check.open_interval(1.0, math.inf, moment_order=self.moment_order)
        check.non_negative(mean_bound=self.mean_bound)
        check.open_interval(0.0, 1.0, failure_probability=self.failure_probability)
        self._check_given(count="num_buckets")
        self._check_given(count="num_central")

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return phases and event for a problem with these facts."""
        size = self.checked_batch_size(facts, self._batch_size(facts, budget))
        # ``printed`` is the budget if the published noise is used, and otherwise None.
        printed = None if calibration == "exact" else budget
        num_steps = self.steps_of(facts, size)
        if printed is None and self.num_steps is None:
            # The 5 published steps of full batches end far from the minimum.
            num_steps = max(num_steps, 100)
        rate = size / facts.num_records
        # The noise is computed for a record that adds a vector of norm 1, because the
        # best threshold depends on it. Then it is multiplied by the estimator's bound.
        unit = self._unit_noise(budget, printed, facts, size, num_steps)
        estimator = self._estimator(facts, size, unit.stddev * size, printed)
        record_bound = estimator.record_bound(facts.dim)
        stddev = 0.0 if budget is None else round_up(unit.stddev * record_bound)
        batches: Batches = Full() if size == facts.num_records else Poisson(rate=rate)
        loop = Loop(
            num_steps=num_steps,
            step=self.proximal_step(facts, num_steps),
            batches=batches,
            estimator=estimator,
            noise=GaussianNoise(stddev),
            weights=EQUAL_WEIGHTS,
        )
        inputs: dict[str, Any] = {
            "batch_size": size,
            "num_steps": num_steps,
            "record_bound": record_bound,
            "stddev": stddev,
        }
        bound = self._risk_bound(facts, estimator, stddev, size, num_steps)
        if math.isfinite(bound):
            inputs["risk_bound"] = bound
        return Recipe(
            phases=(loop,),
            event=unit.event if budget is not None else None,
            inputs=inputs,
            kind=f"proximal/{self.estimator}/"
            + ("full" if size == facts.num_records else "poisson"),
        )

    def _unit_noise(
        self,
        budget: Budget | None,
        printed: Budget | None,
        facts: PublicFacts,
        size: int,
        num_steps: int,
    ) -> CalibratedNoise:
        """Return the noise for a record bound of 1, and its privacy event."""
        n, rate = facts.num_records, size / facts.num_records
        if budget is None:
            return CalibratedNoise(0.0, GaussianEvent(0.0))
        if printed is not None:
            z = self._printed_multiplier(facts.dim, printed)
            if rate == 1.0:
                shift = SHIFTS[budget.relation] * math.sqrt(num_steps)
                return CalibratedNoise(z / n, GaussianEvent(round_up(shift / z)))
            event = PoissonGaussianEvent(
                sampling_rate=rate, noise_multiplier=z, num_steps=num_steps
            )
            return CalibratedNoise(z / size, event)
        if rate == 1.0:
            return perturbations.full_batch(
                budget, record_bound=1.0, num_records=n, num_steps=num_steps
            )
        return perturbations.poisson(
            budget,
            record_bound=1.0,
            num_records=n,
            sampling_rate=rate,
            num_steps=num_steps,
        )

    def _risk_bound(
        self,
        facts: PublicFacts,
        estimator: Estimator,
        stddev: float,
        size: int,
        num_steps: int,
    ) -> float:
        """Return the bound of the mean excess risk, or infinity if there is none."""
        # A clipped loss is convex only if it is a function of a margin.
        if not facts.loss.has_margin:
            return math.inf
        # A full batch has no sampling variance.
        skipped = 1.0 - size / facts.num_records
        if isinstance(estimator, ClippedMean):
            variance, bias = estimator.threshold**2, 0.0
        elif isinstance(estimator, CatoniMean):
            # |psi(t) - t| <= t^2/2 and |psi(t)| <= |t|, also after smoothing.
            spread = facts.dim * self.moment_bound * (1.0 + 1.0 / estimator.precision)
            variance = spread
            bias = 0.5 * math.sqrt(facts.dim) * spread / facts.dim / estimator.scale
        else:
            return math.inf
        return excess_bound(
            self.sizes(facts, num_steps),
            smoothness=self.curvature(facts),
            diameter=2.0 * facts.radius if facts.domain.is_bounded else math.inf,
            variance=skipped * variance / size + facts.dim * stddev**2,
            bias=bias,
        )

    def _batch_size(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Return the batch size of the paper, before it is rounded and limited to n.

        It minimizes the rates after Corollary 1 (median) and Corollary 2 (Catoni).
        """
        n, dim, k = facts.num_records, facts.dim, self.moment_order
        epsilon = 1.0 if budget is None else budget.epsilon
        if self.estimator == "clip":
            return n / 6.0
        if self.estimator == "catoni":
            return float((n * dim) ** (2.0 / 3.0) * epsilon ** (-1.0 / 3.0))
        # In logarithms, because powers of large k overflow.
        size = k * math.log(n) + (2.0 * k - 0.5) * math.log(dim)
        return math.exp((size + (1.0 - k) * math.log(epsilon)) / (2.0 * k - 1.0))

    def _buckets(self, dim: int, printed: Budget | None) -> tuple[int, int]:
        """Return the numbers of buckets and of central values."""
        num_buckets, central = self.num_buckets, self.num_central
        if num_buckets is None:
            count = 3.0 * math.log(2.0 * dim / self.failure_probability)
            # One record can move one of the two central values of an even number of
            # buckets, and so their mean by half as much.
            even = 2 * math.ceil(0.5 * count)
            num_buckets = even if printed is None else math.ceil(count)
        return num_buckets, 2 - num_buckets % 2 if central is None else central

    def _printed_multiplier(self, dim: int, budget: Budget) -> float:
        """Return the published noise over the l2 bound of one record."""
        multiplier = math.sqrt(math.log(1.0 / budget.delta)) / budget.epsilon
        if self.estimator == "catoni":
            return 2.0 * multiplier
        # The published noise is for one central value.
        if self.estimator == "bucketed_median":
            return 2.0 * self._buckets(dim, budget)[1] * multiplier
        return multiplier

    def _estimator(
        self, facts: PublicFacts, size: int, multiplier: float, printed: Budget | None
    ) -> Estimator:
        """Return the estimator. ``multiplier`` is z."""
        if self.estimator == "clip":
            threshold = self.threshold
            return ClippedMean(
                threshold=facts.lipschitz(2.0) if threshold is None else threshold
            )
        choose = self._catoni if self.estimator == "catoni" else self._median
        return choose(facts.dim, size, multiplier, printed)

    def _median(
        self, dim: int, size: int, multiplier: float, printed: Budget | None
    ) -> BucketedMedian:
        """Return the median with the user's, the published, or the best width."""
        num_buckets, central = self._buckets(dim, printed)
        arguments: Any = {"dim": dim, "batch_size": size, "order": self.moment_order}
        width = self.threshold
        if width is None and printed is not None:
            width = printed_width(printed, **arguments)
        elif width is None:
            arguments |= {"multiplier": multiplier, "ratio": num_buckets / central}
            width = median_width(moment_bound=self.moment_bound, **arguments)
            width = max(width, 4.0 * self.mean_bound)
        return BucketedMedian(width=width, num_buckets=num_buckets, num_central=central)

    def _catoni(
        self, dim: int, size: int, multiplier: float, printed: Budget | None
    ) -> CatoniMean:
        """Return the soft truncation of the user's, published or best scale."""
        arguments: Any = {
            "batch_size": size,
            "moment_bound": self.moment_bound,
            "failure_probability": self.failure_probability,
        }
        precision = math.sqrt(math.log(1.0 / self.failure_probability))
        scale = self.threshold
        if scale is None and printed is not None:
            scale = printed_scale(printed, **arguments)
        elif scale is None:
            arguments |= {"multiplier": multiplier, "dim": dim, "precision": precision}
            scale = catoni_scale(**arguments)
        return CatoniMean(scale=scale, precision=precision)


def median_width(
    *,
    multiplier: float,
    dim: int,
    batch_size: int,
    ratio: float,
    moment_bound: float,
    order: float,
) -> float:
    r"""Return the width that minimizes noise plus truncation bias of a coordinate.

    The noise is :math:`z \varrho\, (Q/j) \sqrt p/(2 m)` with ``ratio`` Q/j. For a mean
    within :math:`\varrho/4` of 0, the bias of clipping to :math:`\pm\varrho/2` is at
    most

    .. math:: E(|g - Eg| - \varrho/4)_+
        \le \frac{(k-1)^{k-1}}{k^k} \Big(\frac4\varrho\Big)^{k-1} E|g - Eg|^k.
    """
    slope = 0.5 * multiplier * ratio * math.sqrt(dim) / batch_size
    if slope == 0.0:
        return math.inf
    k = order
    # The sum is slope w + bias w^(1 - k), whose derivative vanishes at the result.
    bias = moment_bound * ((k - 1.0) / k) ** (k - 1.0) / k * 4.0 ** (k - 1.0)
    return float(((k - 1.0) * bias / slope) ** (1.0 / k))


def printed_width(budget: Budget, *, dim: int, batch_size: int, order: float) -> float:
    r"""Return :math:`(\epsilon m/\sqrt{p \log(1/\delta)})^{1/k}` of Xie et al."""
    noise = math.sqrt(dim * math.log(1.0 / budget.delta))
    return float((budget.epsilon * batch_size / noise) ** (1.0 / order))


def catoni_scale(
    *,
    multiplier: float,
    dim: int,
    batch_size: int,
    moment_bound: float,
    precision: float,
    failure_probability: float,
) -> float:
    r"""Return the scale that minimizes deviation plus noise of a coordinate.

    With probability :math:`1 - 2\zeta` the estimate of a mean is within

    .. math:: \frac{\tau (1 + 1/\nu)}{2 s}
        + \frac sm \Big(\frac\nu2 + \log\frac1\zeta\Big)

    of it, and the noise within :math:`\frac sm \frac{2\sqrt2}3 z
    \sqrt{2 p \log(1/\zeta)}`.
    """
    log = math.log(1.0 / failure_probability)
    # The sum has the form spread m / s + s slope / m, which the root minimizes.
    noise = PSI_BOUND * multiplier * math.sqrt(2.0 * dim * log)
    slope = 0.5 * precision + log + noise
    spread = 0.5 * moment_bound * (1.0 + 1.0 / precision)
    return math.sqrt(spread * batch_size / slope)


def printed_scale(
    budget: Budget, *, batch_size: int, moment_bound: float, failure_probability: float
) -> float:
    r"""Return :math:`\sqrt{m\epsilon\tau}/(\log(1/\zeta) \log^{1/4}(1/\delta))`."""
    log = math.log(1.0 / failure_probability)
    size = math.sqrt(batch_size * budget.epsilon * moment_bound)
    return float(size / (log * math.log(1.0 / budget.delta) ** 0.25))
