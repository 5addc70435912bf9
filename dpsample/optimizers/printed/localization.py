r"""The printed schedule of localized clipped gradient descent, and what it proves.

Xu et al. (arXiv 2026), Algorithm 3: :math:`\lambda_1 = 1/(\eta_1 n_1^{2p})`,
:math:`\lambda_i = 1/(\eta_i n_i^p)`, about :math:`2 \log n/(\lambda_i\eta_i)` steps and
:math:`\sigma_i = 8 C_i \sqrt{\log(1/\delta)}/(n_i\lambda_i\epsilon)`. Since the first
phase asks for more than n^2 passes, steps are capped.
"""

import math
from typing import NamedTuple

from dpsample.core import check
from dpsample.optimizers.loop.batches import Full
from dpsample.optimizers.loop.clipping import (
    HeavyTailedScales,
    clipped_smoothness,
    descent_sensitivity,
)
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Loop
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import Event, GaussianEvent
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts


class PrintedLocalization(NamedTuple):
    """Printed numbers of one phase."""

    first: int
    size: int
    eta: float
    ridge: float
    clip: float
    num_steps: float  # as printed, not capped
    stddev: float
    radius: float


def printed_phases(
    scales: HeavyTailedScales,
    budget: Budget | None,
    *,
    first: int,
    count: int,
    distance: float,
    failure: float,
) -> tuple[PrintedLocalization, ...]:
    """Return the printed schedule on ``count`` records; ``order`` is its 2k."""
    if not scales.order > 2.0:
        remedy = "The printed schedule uses the moment of order 2k, k > 1."
        check.fail("order", "> 2 with calibration='paper'", scales.order, remedy)
    if count < 3:
        check.fail("num_records", "at least 3 in every localized run", count)
    lipschitz = scales.lipschitz
    if math.isinf(lipschitz):
        remedy = "The printed step needs a Lipschitz constant: bound the domain."
        check.fail("domain", "bounded with calibration='paper'", "unbounded", remedy)
    k, log_n = 0.5 * scales.order, math.log(count)
    inverse = math.inf  # epsilon / sqrt(d log(1/delta) log n)
    if budget is not None:
        inverse = budget.epsilon / math.sqrt(
            scales.dim * math.log(1.0 / budget.delta) * log_n
        )
    privacy = (inverse * count) ** ((1.0 - k) / k)
    rate = scales.moment * (count**-0.5 + privacy)
    p = max(1.0, 2.0 * math.log(lipschitz / rate) / log_n)
    logs = math.sqrt(log_n * math.log(1.0 / failure))
    eta = min(
        1.0 / lipschitz,
        1.0 / (scales.moment * count ** (0.5 * (p + 1.0)) * max(privacy, 1e-300)),
        1.0 / (count ** (0.5 * (p - 1.0)) * lipschitz**2 * logs),
    )
    eta *= distance / count ** (0.5 * p)
    phases = []
    for i in range(1, count.bit_length()):
        size, step = count >> i, eta * 0.25**i
        contraction = size ** -(2.0 * p if i == 1 else p)
        ridge = contraction / step
        clip = scales.moment * (inverse * size) ** (1.0 / k)
        stddev = 0.0
        if budget is not None:
            root = math.sqrt(math.log(1.0 / budget.delta))
            stddev = 8.0 * clip * root / (size * ridge * budget.epsilon)
        phases.append(
            PrintedLocalization(
                first=first,
                size=size,
                eta=step,
                ridge=ridge,
                clip=clip,
                num_steps=math.ceil(2.0 * log_n / contraction),
                stddev=stddev,
                radius=2.0 * lipschitz / ridge,
            )
        )
        first += size
    return tuple(phases)


def printed_loops(
    phases: tuple[PrintedLocalization, ...],
    max_steps: int,
    local_radius: float,
) -> tuple[Loop, ...]:
    """Gradient loops of the printed phases.

    A ball of ``local_radius`` about the first start stands for the printed ones about
    each phase's start, which never bind: |minimizer - start| <= L/lambda.
    """
    is_local = math.isfinite(local_radius)
    return tuple(
        Loop(
            num_steps=int(min(phase.num_steps, max_steps)),
            step=GradientStep(
                phase.eta,
                ridge=phase.ridge,
                local_radius=local_radius if is_local else phase.radius,
            ),
            batches=Full(first=phase.first, last=phase.first + phase.size),
            estimator=ClippedMean(threshold=phase.clip),
            output_stddev=phase.stddev,
            keeps_ball=is_local and index > 0,
        )
        for index, phase in enumerate(phases)
    )


def printed_event(
    facts: PublicFacts,
    scales: HeavyTailedScales,
    phases: tuple[PrintedLocalization, ...],
    max_steps: int,
) -> Event | None:
    """Return what the printed noise proves of losses of a linear margin."""
    gdp = 0.0
    for phase in phases:
        moved = scales.shift * descent_sensitivity(
            record_bound=min(phase.clip, scales.lipschitz),
            num_records=phase.size,
            step_size=phase.eta,
            smoothness=clipped_smoothness(facts, phase.clip),
            ridge=phase.ridge,
            num_steps=int(min(phase.num_steps, max_steps)),
        )
        gdp = max(gdp, moved / phase.stddev)
    return GaussianEvent(gdp * (1.0 + 1e-12)) if math.isfinite(gdp) else None
