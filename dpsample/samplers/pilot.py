"""Pilot run: the step with the least expected work, on a random stream of its own.

The proximal sampler's conditional draw is exact for every step, so the choice moves the
running time only. It depends on the records and is fixed before the certified run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _pauses
from dpsample.samplers import proximal_kernel as kernel
from dpsample.samplers.chain import GRADIENTS, NUM_STATS, PROPOSALS, VALUES
from dpsample.samplers.errors import EXHAUSTED, raise_unless_ok
from dpsample.samplers.metric import Metric

Array = NDArray[np.float64]

MAX_TRIES = 200  # per step, in the pilot only: a step that needs more is hopeless
FIRST_STEPS, LAST_STEPS = 12, 40
MIN_STEP = 1e-12
REFINE = math.sqrt(2.0)
# The tries of a step have a heavy tail, of which a short trial sees too little: step
# sizes that accept fewer of the proposals inside the domain are left alone.
MIN_ACCEPTANCE = 0.4


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a step is expected to cost in all, and what was seen of it."""

    step: float
    work: float
    acceptance: float  # of the proposals inside the domain
    step_work: float = 0.0  # of one step, in multiply-adds

    @property
    def is_steady(self) -> bool:
        """Whether few proposals are rejected, so that no step may take forever."""
        return self.acceptance >= MIN_ACCEPTANCE


class Pilot:
    """Chain in one metric that tries steps; its state carries over between trials."""

    def __init__(
        self, target: Any, metric: Metric, start: Array, rng: np.random.Generator
    ) -> None:
        self.target, self.metric, self.rng = target, metric, rng
        self.state = kernel.init(target, start)
        self.numbers = metric.numbers(target)
        self.first, self.longest = metric.steps()
        data = target.data
        size = data.dense.size or data.values.size
        # In units of one multiply-add: two passes for a gradient, one for a value.
        self.costs = np.zeros(kernel.NUM_COUNTS)
        self.costs[GRADIENTS] = 2.0 * size + 8.0 * data.num_records
        self.costs[VALUES] = size + 4.0 * data.num_records
        self.costs[PROPOSALS] = metric.draw_cost

    def trial(
        self, step: float, num_steps: int, steps_for: Callable[..., int]
    ) -> Trial:
        """Run ``num_steps`` steps; infinite work if one needs too many tries."""
        counts = self.state.counts
        counts[:] = 0
        draws = np.empty((num_steps, self.target.dim))
        stats = np.empty((num_steps, NUM_STATS))
        fixed = self.numbers, self.target.pieces, self.metric.plan(step)
        chain = self.metric.draw, self.state, self.rng, MAX_TRIES

        def rows(first: int) -> tuple[int, int]:
            return kernel.run(*fixed, *chain, draws[first:], stats[first:])  # type: ignore[no-any-return]

        code = _pauses.fill(self.state.work.control, rows)
        if code == EXHAUSTED:
            return Trial(step=step, work=math.inf, acceptance=0.0)
        raise_unless_ok(code)
        step_work = float(counts @ self.costs) / num_steps
        return Trial(
            step=step,
            work=step_work * steps_for(step=step),
            acceptance=num_steps / int(counts[kernel.INSIDE]),
            step_work=step_work,
        )

    def search(self, steps_for: Callable[..., int]) -> Trial:
        """Walk down to a workable step, climb by doubling, refine with more steps."""
        best = self._walk_down(self.first, 4.0, FIRST_STEPS, steps_for)
        for factor in (2.0, 0.5):
            best = self._climb(best, factor, FIRST_STEPS, steps_for)
        best = self._walk_down(best.step, REFINE, LAST_STEPS, steps_for)
        for factor in (REFINE, 1.0 / REFINE):
            best = self._climb(best, factor, LAST_STEPS, steps_for)
        return best

    def _walk_down(
        self, step: float, factor: float, num_steps: int, steps_for: Callable[..., int]
    ) -> Trial:
        trial = self.trial(step, num_steps, steps_for)
        while not trial.is_steady and step > MIN_STEP:
            step /= factor
            trial = self.trial(step, num_steps, steps_for)
        return trial

    def _climb(
        self, best: Trial, factor: float, num_steps: int, steps_for: Callable[..., int]
    ) -> Trial:
        while MIN_STEP < best.step * factor <= self.longest:
            other = self.trial(best.step * factor, num_steps, steps_for)
            if not (other.is_steady and other.work < best.work):
                break
            best = other
        return best
