"""Records for the gradient loop that are not in memory: window after window.

A step over all records pauses at the end of a window and goes on in the next one. Its
blocks are those of records in memory, and so are the bits of its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.pauses import STAGE
from dpsample.optimizers.loop.batches import BLOCK, Full
from dpsample.optimizers.loop.estimate import AT_END, CURSOR, IN_ESTIMATE
from dpsample.optimizers.loop.optimizer import Loop, Minimization, PhaseNumbers, Recipe
from dpsample.problem.homes import Home
from dpsample.problem.records import Data


def by_passes(recipe: Recipe) -> bool:
    """Whether each step reads all records of its phase, in order."""
    return all(
        isinstance(phase.batches, Full)
        if isinstance(phase, Loop)
        else isinstance(phase, Minimization) and phase.solver != "svrg"
        for phase in recipe.phases
    )


class Windows:
    """Calls of kernels that read a phase's records, one step at a time."""

    def __init__(
        self, home: Home, numbers: PhaseNumbers, clip: Callable[[Data], Data]
    ) -> None:
        self.home, self.numbers, self.clip = home, numbers, clip
        self.first, self.last = numbers.batches.first, numbers.batches.last
        self.parts = self._parts()
        self.given: tuple[Data, PhaseNumbers] | None = None

    def _parts(self) -> Iterator[tuple[Data, PhaseNumbers]]:
        """Windows of one step: records, and numbers that count from their first."""
        batches, estimator = self.numbers.batches, self.numbers.estimator
        for start, part in self.home.windows(self.first, self.last, BLOCK):
            stop = start + part.num_records
            is_partial = int(stop < self.last)
            local = batches._replace(first=0, last=stop - start, is_partial=is_partial)
            limits = {
                name: np.ascontiguousarray(_some(getattr(estimator, name), start, stop))
                for name in ("norms", "limits")
            }
            now = self.numbers._replace(
                batches=local, estimator=estimator._replace(**limits)
            )
            yield self.clip(part), now

    def call(
        self, control: Array, kernel: Callable[..., int], fixed: Any, *rest: Any
    ) -> int:
        """Call a kernel for one step, until it ends or a pause is due."""
        while True:
            if self.given is None:
                self.given = next(self.parts)
            data, numbers = self.given
            outcome = pauses.call(control, kernel, data, *fixed, numbers, *rest)
            if control[STAGE] == IN_ESTIMATE and control[CURSOR] != AT_END:
                return outcome
            self.given = None
            if control[STAGE] != IN_ESTIMATE:
                self.parts = self._parts()
                return outcome
            control[CURSOR] = 0.0
            pauses.heard()


def _some(column: Array, start: int, stop: int) -> Array:
    return column[start:stop] if column.size else column
