"""Problems with a record of extreme size."""

from __future__ import annotations

import numpy as np

import dpsample as dps
from dpsample import losses
from dpsample.domains import Ball

TINY = 5e-324


def problem(
    rows: object,
    response: object,
    loss: losses.Loss | None = None,
    **facts: object,
) -> dps.Problem:
    """Records whose slopes are as large as they like."""
    defaults = {"domain": Ball(1.0), "row_bound": 1.0, "response_bound": np.inf}
    loss = losses.PowerFour() if loss is None else loss
    return dps.Problem(rows, response, loss=loss, **(defaults | facts))


def others(count: int, row: object, response: float) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary records after one of any kind."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.5, 0.5, (count, 2))
    y = rng.uniform(-1.0, 1.0, count)
    rows[0], y[0] = row, response
    return rows, y
