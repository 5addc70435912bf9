"""Scores of additive noise, whose privacy loss is known exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._streams import Seed, seed_sequence, streams
from dpsample.audits.scores import NUM_STREAMS, Scores, draw_outputs
from dpsample.noise import AdditiveMechanism

Array = NDArray[np.float64]
Progress = Callable[[float], None]

NOTE = "independent draws; the privacy loss of every output is known exactly"


def additive_scores(
    mechanism: AdditiveMechanism,
    value: Any,
    neighbor: Any,
    *,
    num_draws: int,
    seed: Seed,
    threads: int | None,
    on_progress: Progress,
) -> Scores:
    """Log ratios of value + noise and neighbor + noise."""
    first = check.array("problem", _vector("problem", value), shape=(None,))
    second = check.array("neighbor", _vector("neighbor", neighbor), shape=first.shape)
    roots = seed_sequence(seed).spawn(4)

    def draw(i: int) -> Array:
        center = (first, second)[i % 2]
        found = draw_outputs(
            lambda rng, count: center + mechanism.noise.draw(rng, (count, center.size)),
            streams(roots[i], NUM_STREAMS),
            num_draws // 2,
            threads=threads,
            score=lambda outputs: mechanism.privacy_loss(outputs, second, first),
        )
        on_progress((i + 1) / 4)
        return found

    p, q, later_p, later_q = (draw(i) for i in range(4))
    return Scores(
        first=(p, q), second=(later_p, later_q), kind="log ratio", notes=(NOTE,)
    )


def _vector(name: str, value: Any) -> Any:
    """Return a number as a vector of length one."""
    return np.atleast_1d(check.entries(name, value))
