r"""Clipped losses, heavy tails and growing blocks: slopes, noise and sizes are public.

For a loss phi(<a, w>) of a linear margin, clipping gradients at C is not a heuristic:
the clipped gradient is that of the convex loss whose slope is phi' clipped at C/|a|.

**Growing blocks** of records, each run from half the last one's distance: Xu et al.
(arXiv 2026), Algorithms 5 and 7. For growth :math:`F(w) - F^* \ge \lambda |w -
w^*|^\theta` with any theta above a known bound. There a run with mean excess risk g
ends at :math:`E|w - w^*|^\theta \le g/\lambda`, and the next one starts there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dpsample.core import check
from dpsample.losses import PowerFour
from dpsample.optimizers.loop.optimizer import Optimizer, start_distance
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.problem.facts import PublicFacts, smoothness

Gap = Callable[[float], float]


def clipped_smoothness(facts: PublicFacts, clip: float) -> float:
    """Bound of the curvature of one record's loss, clipped at ``clip``.

    A quartic loss keeps phi'' = 12 e^2 only where 4 |e|^3 |a| <= C: clipped, its
    curvature is at most 12 (C/4)^(2/3) |a|^(4/3), on any domain.
    """
    if not isinstance(facts.loss, PowerFour) or math.isinf(clip):
        return smoothness(facts)
    row_bound = float(facts.full_row_bound * facts.dual_ratio(2.0))
    clipped = float(12.0 * (0.25 * clip * row_bound**2) ** (2.0 / 3.0))
    if math.isinf(facts.lipschitz_or_inf(2.0)):
        return clipped
    return min(clipped, smoothness(facts))


def descent_sensitivity(
    *,
    record_bound: float,
    num_records: int,
    step_size: float,
    smoothness: float,
    ridge: float,
    num_steps: int,
) -> float:
    """Return how far one record moves w_T of full-batch projected descent.

    A step on a convex loss with a ridge is rho-Lipschitz, rho = max(|1 - eta lambda|,
    |1 - eta (lambda + smoothness)|), and a record of bound C shifts it by eta C/n:
    eta C/n (1 + rho + ... + rho^(T-1)), at most C/(n lambda) for eta <= 2/(smoothness +
    2 lambda). (Not so for other losses: gradient-E15.)
    """
    low, high = step_size * ridge, step_size * (ridge + smoothness)
    rho = max(abs(1.0 - low), abs(1.0 - high))
    if rho > 1.0 and num_steps * math.log(rho) > 700.0:
        return math.inf
    away = 1.0 - rho
    total = float(num_steps)
    if abs(away) * num_steps > 1e-12:
        total = -math.expm1(num_steps * math.log(rho)) / away if rho > 0.0 else 1.0
    return step_size * record_bound / num_records * total


class HeavyTailedScales(NamedTuple):
    """Public numbers of one problem and budget."""

    dim: int
    gdp: float  # infinite without a budget
    shift: float  # move of a sum between neighbors, in units of the record bound
    lipschitz: float
    moment: float
    order: float
    distance: float  # distance of the start from a minimizer
    diameter: float  # the domain's, or twice the distance if that is infinite
    clip: float | None  # chosen by the user, at most the Lipschitz constant

    def threshold(self, num_records: int) -> float:
        """Clipping threshold r (gdp n/(4 s sqrt(d)))^(1/k), the bound's minimizer."""
        if self.clip is not None:
            return self.clip
        if math.isinf(self.gdp):
            return self.lipschitz
        ratio = self.gdp * num_records / (4.0 * self.shift * math.sqrt(self.dim))
        return min(self.lipschitz, float(self.moment * ratio ** (1.0 / self.order)))

    def bias(self, clip: float) -> float:
        """Bound of |E clipped - E gradient|, E |gradient|^k <= moment^k: Markov's.

        It is at most E |gradient|, and so at most the moment.
        """
        if clip >= self.lipschitz or math.isinf(clip):
            return 0.0
        moment, power = self.moment, self.order - 1.0
        log = power * math.log(moment / clip) - math.log(power)
        return float(moment * math.exp(min(log, 0.0)))

    def root_mean_square(self, clip: float) -> float:
        """Bound of (E |clipped gradient|^2)^(1/2), E |gradient|^k <= moment^k."""
        moment, order = self.moment, self.order
        if order >= 2.0:
            return min(moment, clip)
        return min(math.sqrt(clip ** (2.0 - order) * moment**order), clip)


@dataclass(frozen=True, kw_only=True)
class HeavyTailed(Optimizer):
    """Base of the methods that clip gradients with a bounded moment.

    Parameters
    ----------
    moment : float, optional
        Public bound of (E sup_w |gradient|^k)^(1/k); None: the Lipschitz constant,
        which has to be finite.
    order : float
        k > 1 of the moment.
    clip : float, optional
        Threshold; None: the minimizer of the risk bound. Thresholds above the Lipschitz
        constant are lowered to it.
    distance : float, optional
        Public bound of the l2 distance from the start to a minimizer; None: the
        domain's radius.
    """

    moment: float | None = None
    order: float = 2.0
    clip: float | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._check_given("moment", "distance")
        if self.clip is not None:
            check.greater_than(0.0, clip=self.clip)
        check.open_interval(1.0, 1e6, order=self.order)

    def scales(self, facts: PublicFacts, budget: Budget | None) -> HeavyTailedScales:
        """Public numbers of a problem and a budget."""
        lipschitz = facts.lipschitz_or_inf(2.0)
        moment = lipschitz if self.moment is None else min(self.moment, lipschitz)
        if math.isinf(moment):
            remedy = "Pass moment=..., a public bound of the gradients' k-th moment."
            check.fail("moment", "given without a Lipschitz constant", "None", remedy)
        return HeavyTailedScales(
            dim=facts.dim,
            gdp=gdp_of(budget),
            shift=2.0 if budget is None else SHIFTS[budget.relation],
            lipschitz=lipschitz,
            moment=moment,
            order=self.order,
            distance=start_distance(facts, self.distance),
            diameter=diameter(facts, self.distance),
            clip=None if self.clip is None else min(self.clip, lipschitz),
        )


def diameter(facts: PublicFacts, distance: float | None) -> float:
    """Diameter of the domain; twice the distance if that is infinite."""
    radius = facts.radius
    return 2.0 * (start_distance(facts, distance) if math.isinf(radius) else radius)


class Block(NamedTuple):
    """Records of one run, the distance it allows for, and its ball if it has one."""

    first: int
    num_records: int
    distance: float
    local_radius: float = math.inf


def check_growth(exponent: float, constant: float) -> None:
    """Reject growth with which powers leave floating point."""
    check.half_open(1.01, 1e3, exponent=exponent)
    check.scale(constant=constant)


def growth_bound(
    gaps: tuple[Gap, ...],
    biases: tuple[float, ...],
    *,
    distance: float,
    diameter: float,
    exponent: float,
    constant: float,
) -> float:
    r"""Bound of the last run's mean excess risk.

    ``gaps`` bound each run's excess *clipped* risk from :math:`E|w_0 - w^*|^2`; the
    risks differ by at most its clipping bias times the distance to :math:`w^*`, whose
    mean is at most :math:`(g/\lambda)^{1/\theta}`, theta > 1 and lambda > 0 being
    ``exponent`` and ``constant``. The start is at ``distance`` from the minimizer.
    """
    spread, risk = distance**2, math.inf
    for gap, bias in zip(gaps, biases, strict=True):
        risk = _fixed_point(gap(spread), bias, diameter, exponent, constant)
        square_move = risk / constant  # bounds E |w - w*|^theta
        if exponent >= 2.0:
            square_move = square_move ** (2.0 / exponent)
        else:
            square_move *= diameter ** (2.0 - exponent)
        spread = min(square_move, diameter**2)
    return risk


def _fixed_point(
    gap: float, bias: float, diameter: float, exponent: float, constant: float
) -> float:
    """Largest g with g <= gap + bias min(diameter, (g/constant)^(1/exponent))."""
    risk = gap + bias * diameter
    for _ in range(200):
        move = min(diameter, (risk / constant) ** (1.0 / exponent))
        risk = gap + bias * move
    return risk


def block_sizes(num_records: int, least_exponent: float) -> tuple[int, ...]:
    r"""Sizes :math:`\lfloor 2^{i-1} n/(\log_2 n)^A \rfloor` of the blocks.

    :math:`A = \log_{\bar\theta} 2`, :math:`l = \lfloor A \log_2 \log_2 n \rfloor`
    blocks, at least one; their sum is at most n.

    Examples
    --------
    >>> block_sizes(10_000, 2.0)
    (752, 1505, 3010)
    """
    check.half_open(1.01, 1e3, least_exponent=least_exponent)
    check.integer(3, num_records=num_records)
    a = 1.0 / math.log2(least_exponent)
    log_n = math.log2(num_records)
    count = max(1, math.floor(a * math.log2(log_n)))
    if log_n**a > num_records:
        remedy = "The first of the growing blocks would be empty."
        check.fail(
            "least_exponent", "larger for so few records", least_exponent, remedy
        )
    return tuple(math.floor(2.0**i * num_records / log_n**a) for i in range(count))


@dataclass(frozen=True, kw_only=True)
class GrowingBlocks(HeavyTailed):
    """Base of the iterated methods.

    Parameters
    ----------
    least_exponent : float
        theta-bar > 1, a lower bound of the growth exponent.
    """

    least_exponent: float = 2.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        check.open_interval(1.0, math.inf, least_exponent=self.least_exponent)

    def risk_bound(
        self,
        facts: PublicFacts,
        budget: Budget | None,
        *,
        exponent: float,
        constant: float,
    ) -> float:
        r"""Bound of the mean excess population risk under growth, for "exact".

        Each run's bound with the distance that growth proves of the last run's output;
        see `growth_bound`.

        Parameters
        ----------
        facts, budget
            As for `recipe`.
        exponent, constant : float
            theta, from 1.01 to 1000, and lambda, from 1e-60 to 1e60, of :math:`F(w) -
            F^* \ge \lambda |w - w^*|^\theta`.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            With Poisson samples, whose batches overlap: the bound needs fresh ones.
        """
        check_growth(exponent, constant)
        scales = self.scales(facts, budget)
        runs = self.run_bounds(facts, scales, budget)
        return growth_bound(
            tuple(gap for gap, _ in runs),
            tuple(scales.bias(clip) for _, clip in runs),
            distance=scales.distance,
            diameter=scales.diameter,
            exponent=exponent,
            constant=constant,
        )

    def blocks(
        self, facts: PublicFacts, scales: HeavyTailedScales
    ) -> tuple[Block, ...]:
        """Return the block of every run."""
        sizes = block_sizes(facts.num_records, self.least_exponent)
        return tuple(
            Block(sum(sizes[:i]), size, scales.distance * 0.5**i)
            for i, size in enumerate(sizes)
        )

    def run_bounds(
        self, facts: PublicFacts, scales: HeavyTailedScales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """Excess clipped risk, from the spread of the start, and threshold of runs."""
        raise NotImplementedError
