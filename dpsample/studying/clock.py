"""Time left of a run, from what replicates of each cell cost so far."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable

from dpsample.studying.cells import key_of
from dpsample.studying.tasks import Row, Task


class Clock:
    """Counts rows; cells differ a thousandfold in cost, so each has its own mean."""

    def __init__(self, todo: Iterable[Task]) -> None:
        self._waiting: Counter[str] = Counter()
        for task in todo:
            self._waiting[key_of(task.params)] += len(task.replicates)
        self._unknown = sum(self._waiting.values())  # replicates of cells without rows
        self._costs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._known = 0.0  # seconds of work that wait in cells with rows
        self._begin = time.monotonic()
        self.done, self._spent = 0, 0.0

    def add(self, rows: Iterable[Row]) -> None:
        """Count rows that are done."""
        for row in rows:
            cost = self._costs[row.key]
            if cost[1] == 0.0:
                self._unknown -= self._waiting[row.key]
            else:
                self._known -= self._waiting[row.key] * cost[0] / cost[1]
            cost[0] += row.seconds
            cost[1] += 1.0
            self._waiting[row.key] -= 1
            self._known += self._waiting[row.key] * cost[0] / cost[1]
            self._spent += row.seconds
            self.done += 1

    def left(self, now: float) -> float:
        """Seconds left at the pace so far; NaN before the first row."""
        if self._spent <= 0.0:
            return math.nan
        work = self._known + self._unknown * self._spent / self.done
        return max(work, 0.0) * (now - self._begin) / self._spent
