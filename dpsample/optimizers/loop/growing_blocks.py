r"""Runs on growing blocks of records, each from half the last one's distance.

Xu et al. (arXiv 2026), Algorithms 5 and 7: for growth :math:`F(w) - F^* \ge \lambda
|w - w^*|^\theta` with any theta above a known bound. There a run with mean excess risk
g ends at :math:`E|w - w^*|^\theta \le g/\lambda`, and the next one starts there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dpsample.core import check
from dpsample.optimizers.loop.clipping import HeavyTailed, HeavyTailedScales
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts

Gap = Callable[[float], float]


class Block(NamedTuple):
    """Records of one run, the distance it allows for, and its ball if it has one."""

    first: int
    num_records: int
    distance: float
    local_radius: float = math.inf


def check_growth(exponent: float, constant: float) -> None:
    """Refuse growth with which powers leave floating point."""
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
        moved = risk / constant  # bounds E |w - w*|^theta
        if exponent >= 2.0:
            moved = moved ** (2.0 / exponent)
        else:
            moved *= diameter ** (2.0 - exponent)
        spread = min(moved, diameter**2)
    return risk


def _fixed_point(
    gap: float, bias: float, diameter: float, exponent: float, constant: float
) -> float:
    """Largest g with g <= gap + bias min(diameter, (g/constant)^(1/exponent))."""
    risk = gap + bias * diameter
    for _ in range(200):
        far = min(diameter, (risk / constant) ** (1.0 / exponent))
        risk = gap + bias * far
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
