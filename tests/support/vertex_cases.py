"""Problems and the textbook algorithm for tests of private Frank-Wolfe methods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-5)


def problem(
    num_records: int = 60, dim: int = 3, *, radius: float = 2.0, **options: Any
) -> dps.Problem:
    """Least squares on an l1 ball with heavy-tailed features and errors."""
    rng = np.random.default_rng(21)
    rows = rng.standard_t(3.0, (num_records, dim))
    y = rows[:, 0] + rng.standard_t(2.0, num_records)
    given: dict[str, Any] = {
        "loss": dps.losses.Squared(),
        "domain": dps.domains.Ball(radius, p=1.0),
        "row_bound": 1e3,
        "response_bound": math.inf,
    }
    given |= options
    transform = given.pop("transform", lambda x: x)
    return dps.Problem(transform(rows), y, **given)


def frank_wolfe(rows: list, responses: list, radius: float) -> np.ndarray:
    """Textbook Frank-Wolfe with steps 2/(t + 2), t = 1, ...; one batch for each."""
    theta = np.zeros(rows[0].shape[1])
    for t, (a, y) in enumerate(zip(rows, responses, strict=True), start=1):
        gradient = a.T @ (a @ theta - y) / len(y)
        j = int(np.argmax(np.abs(gradient)))
        vertex = np.zeros_like(theta)
        vertex[j] = -radius * np.sign(gradient[j])
        theta += 2.0 / (t + 2.0) * (vertex - theta)
    return theta
