"""Scores of a mechanism that can only be run, or whose log ratio is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample._streams import Seed, seed_sequence, streams
from dpsample.audits.discriminant import learn
from dpsample.audits.scores import NUM_STREAMS, Scores, draw_outputs

Array = NDArray[np.float64]
Progress = Callable[[float], None]
Score = Callable[[Array], Array]

LEARNED_NOTE = (
    "the score is a logistic discriminant of the outputs, learned on the first half of "
    "the draws: a better score may find more"
)
GIVEN_NOTE = "the score was given; a better one may find more"
RATIO_NOTE = "the given log ratio is trusted to be that of the two laws"
STREAM_NOTE = "every run has its own part of an independent random stream"


def black_box_scores(
    mechanism: Callable[[Any, np.random.Generator, int], Array],
    first: Any,
    second: Any,
    *,
    num_draws: int,
    seed: Seed,
    threads: int | None,
    on_progress: Progress,
    log_ratio: Score | None = None,
    score: Score | None = None,
) -> Scores:
    """Scores of a callable's outputs on two data sets."""
    known = log_ratio if log_ratio is not None else score
    per_half = num_draws // 2
    roots = seed_sequence(seed).spawn(4)

    def draw(i: int, chosen: Score | None) -> Array:
        data = (first, second)[i % 2]
        found = draw_outputs(
            lambda rng, count: mechanism(data, rng, count),
            streams(roots[i], NUM_STREAMS),
            per_half,
            threads=threads,
            score=chosen,
        )
        on_progress((i + 1) / 4)
        return found

    half = draw(0, known), draw(1, known)
    note = RATIO_NOTE if log_ratio is not None else GIVEN_NOTE
    if known is None:
        known, note = learn(*half), LEARNED_NOTE
        half = known(half[0]), known(half[1])
    return Scores(
        first=half,
        second=(draw(2, known), draw(3, known)),
        kind="score" if log_ratio is None else "log ratio",
        notes=(note, STREAM_NOTE),
    )
