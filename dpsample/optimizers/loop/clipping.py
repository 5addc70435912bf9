r"""Clipped losses, heavy tails and growing blocks: public thresholds, noise and sizes.

For a loss phi(<a, w>) of a linear margin, clipping gradients at C is not a heuristic.
The clipped gradient is the gradient of the convex loss whose slope is phi' clipped at
C/|a|.

**Moments.** The k-th moment of gradients (``order`` k) may be bounded although their
norms are not: (E sup_w |gradient|^k)^(1/k) <= r, where r is the ``moment``. Clipping
then has a bias, which Markov's inequality bounds.

**Growing blocks** of records are used by the iterated methods of Xu et al. (arXiv
2026), Algorithms 5 and 7. Each run reads its own block, and allows for half of the
distance of the run before. They are for risks with *growth* :math:`F(w) - F^* \ge
\lambda |w - w^*|^\theta`, theta above a known bound. There a run with mean excess risk
g ends at :math:`E|w - w^*|^\theta \le g/\lambda`, and the next one starts there.
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

# Function from a bound of E |w_0 - w*|^2, for the start w_0 of a run, to a bound of the
# run's mean excess clipped risk.
Gap = Callable[[float], float]


def clipped_smoothness(facts: PublicFacts, clip: float) -> float:
    """Return a bound of the curvature of one record's loss, clipped at ``clip``.

    A quartic loss has phi'' = 12 e^2 at the residual e. Clipped at C it keeps this
    curvature only where 4 |e|^3 |a| <= C. So the curvature is at most 12 (C/4)^(2/3)
    |a|^(4/3), on any domain.
    """
    if not isinstance(facts.loss, PowerFour) or math.isinf(clip):
        return smoothness(facts)
    # The largest length of a row, of which slope and curvature are multiples.
    row_bound = float(facts.full_row_bound * facts.dual_ratio(2.0))
    # 12 e^2 |a|^2 at the largest e with 4 e^3 |a| = C.
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
    """Return the largest distance by which one record moves w_T of full-batch descent.

    A projected step of size eta on a convex loss with a ridge lambda is rho-Lipschitz,
    rho = max(|1 - eta lambda|, |1 - eta (lambda + smoothness)|). A record of bound C
    shifts it by eta C/n. So T steps move by eta C/n (1 + rho + ... + rho^(T-1)), which
    is at most C/(n lambda) for eta <= 2/(smoothness + 2 lambda). (It is false for
    losses that are not a function of the margin: gradient-E15.)
    """
    # Eigenvalues of I - eta times the Hessian are between 1 - high and 1 - low.
    low, high = step_size * ridge, step_size * (ridge + smoothness)
    rho = max(abs(1.0 - low), abs(1.0 - high))
    if rho > 1.0 and num_steps * math.log(rho) > 700.0:  # the power would overflow
        return math.inf
    away = 1.0 - rho
    # The geometric sum is (1 - rho^T)/(1 - rho), and T if rho is 1 up to rounding.
    total = float(num_steps)
    if abs(away) * num_steps > 1e-12:
        total = -math.expm1(num_steps * math.log(rho)) / away if rho > 0.0 else 1.0
    return step_size * record_bound / num_records * total


class HeavyTailedScales(NamedTuple):
    """Public numbers of one problem and budget."""

    dim: int  # d
    gdp: float  # infinite without a budget
    shift: float  # move of a sum between neighbors, in units of the record bound
    lipschitz: float  # of one record's loss, perhaps infinite
    moment: float  # r, at most the Lipschitz constant
    order: float  # k
    distance: float  # distance of the start from a minimizer
    diameter: float  # the domain's, or twice the distance if that is infinite
    clip: float | None  # chosen by the user, at most the Lipschitz constant

    def threshold(self, num_records: int) -> float:
        """Return the clipping threshold r (gdp n/(4 s sqrt(d)))^(1/k).

        It minimizes the risk bound, with s = ``shift``.
        """
        if self.clip is not None:
            return self.clip
        if math.isinf(self.gdp):
            return self.lipschitz
        # At this ratio the noise of a mean and the clipping bias balance.
        ratio = self.gdp * num_records / (4.0 * self.shift * math.sqrt(self.dim))
        return min(self.lipschitz, float(self.moment * ratio ** (1.0 / self.order)))

    def bias(self, clip: float) -> float:
        """Return a bound of |E clipped gradient - E gradient|.

        With Markov's inequality it is r^k C^(1-k)/(k - 1) for the threshold C. It is
        also at most E |gradient|, and so at most the moment r.
        """
        if clip >= self.lipschitz or math.isinf(clip):
            return 0.0
        moment, power = self.moment, self.order - 1.0
        # In logarithms, because powers of large orders overflow.
        log = power * math.log(moment / clip) - math.log(power)
        return float(moment * math.exp(min(log, 0.0)))

    def root_mean_square(self, clip: float) -> float:
        """Return a bound of (E |clipped gradient|^2)^(1/2)."""
        moment, order = self.moment, self.order
        if order >= 2.0:
            return min(moment, clip)
        # |g|^2 <= C^(2 - k) |g|^k for |g| <= C.
        return min(math.sqrt(clip ** (2.0 - order) * moment**order), clip)


@dataclass(frozen=True, kw_only=True)
class HeavyTailed(Optimizer):
    """Base of the methods that clip gradients with a bounded moment.

    Parameters
    ----------
    moment : float, optional
        Public bound of (E sup_w |gradient|^k)^(1/k). The default is the Lipschitz
        constant, which must be finite then.
    order : float
        k > 1 of the moment.
    clip : float, optional
        Threshold. The default is the minimizer of the risk bound. Thresholds above the
        Lipschitz constant are lowered to it.
    distance : float, optional
        Public bound of the l2 distance from the start to a minimizer. The default is
        the domain's radius.
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
        """Return the public numbers of a problem and a budget."""
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
    """Return the diameter of the domain, or twice the distance if it is infinite."""
    radius = facts.radius
    return 2.0 * (start_distance(facts, distance) if math.isinf(radius) else radius)


class Block(NamedTuple):
    """Records of one run, the distance it allows for, and its ball if it has one."""

    first: int  # number of the first record
    num_records: int
    distance: float  # from the run's start to a minimizer
    local_radius: float = math.inf  # radius of the ball about the start


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
    r"""Return a bound of the last run's mean excess risk.

    ``gaps`` bound each run's excess *clipped* risk from :math:`E|w_0 - w^*|^2`. The
    clipped and the true risk differ by at most the run's clipping bias times the
    distance to :math:`w^*`. The mean of this distance is at most
    :math:`(g/\lambda)^{1/\theta}`, where theta > 1 is the ``exponent`` and lambda > 0
    the ``constant``. The start is at ``distance`` from the minimizer.
    """
    spread, risk = distance**2, math.inf
    for gap, bias in zip(gaps, biases, strict=True):
        risk = _fixed_point(gap(spread), bias, diameter, exponent, constant)
        square_move = risk / constant  # bounds E |w - w*|^theta
        # E |w - w*|^2 follows by Jensen's inequality for theta >= 2, and otherwise
        # because no distance is above the diameter.
        if exponent >= 2.0:
            square_move = square_move ** (2.0 / exponent)
        else:
            square_move *= diameter ** (2.0 - exponent)
        spread = min(square_move, diameter**2)
    return risk


def _fixed_point(
    gap: float, bias: float, diameter: float, exponent: float, constant: float
) -> float:
    """Return the largest g <= gap + bias min(diameter, (g/constant)^(1/exponent)).

    The right side increases with g, so iteration from above ends at the largest root or
    a little above it.
    """
    risk = gap + bias * diameter
    for _ in range(200):
        move = min(diameter, (risk / constant) ** (1.0 / exponent))
        risk = gap + bias * move
    return risk


def block_sizes(num_records: int, least_exponent: float) -> tuple[int, ...]:
    r"""Return the sizes :math:`\lfloor 2^{i-1} n/(\log_2 n)^A \rfloor` of the blocks.

    There are :math:`l = \lfloor A \log_2 \log_2 n \rfloor` blocks, at least one, with
    :math:`A = \log_{\bar\theta} 2`. The sum of the sizes is at most n.

    Examples
    --------
    >>> block_sizes(10_000, 2.0)
    (752, 1505, 3010)
    """
    check.half_open(1.01, 1e3, least_exponent=least_exponent)
    check.integer(3, num_records=num_records)
    # A = log_theta 2 = 1 / log2(theta).
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
        r"""Return a bound of the mean excess population risk under growth.

        It is for the calibration "exact". Each run's bound takes the distance that
        growth proves of the run before, see `growth_bound`.

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
            # The distance is halved from block to block.
            Block(sum(sizes[:i]), size, scales.distance * 0.5**i)
            for i, size in enumerate(sizes)
        )

    def run_bounds(
        self, facts: PublicFacts, scales: HeavyTailedScales, budget: Budget | None
    ) -> list[tuple[Gap, float]]:
        """Return for each run the `Gap` that bounds it, and its threshold."""
        raise NotImplementedError
