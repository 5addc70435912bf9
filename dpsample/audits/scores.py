"""Scores of the draws of two laws, in two independent halves.

A score is a number per draw. It is best when it increases with the likelihood ratio
(Neyman and Pearson 1933); every other score gives valid but weaker bounds. The first
half is for choices, the second for what is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]
Kind = Literal["log ratio", "ratio up to a constant", "score"]

# Streams of one half of one law: fixed, so that threads cannot change a draw.
NUM_STREAMS = 16
# Draws that are in memory at once, per stream.
MAX_CHUNK = 65_536


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """Scores of independent draws of P (first data set) and Q (second).

    Attributes
    ----------
    first, second : tuple of two arrays of shape (n,)
        Scores of the draws of P and of Q, in each half.
    kind : {"log ratio", "ratio up to a constant", "score"}
        Whether the score is log(Q/P), that plus an unknown constant, or anything.
    notes : tuple of str
        What was drawn and how, in words.
    """

    first: tuple[Array, Array]
    second: tuple[Array, Array]
    kind: Kind
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse scores that cannot be ordered."""
        for values in (*self.first, *self.second):
            if np.isnan(values).any():
                check.fail("scores", "numbers", "NaN", "Check score and log_ratio.")


def draw_outputs(
    draw: Draw,
    streams: list[np.random.Generator],
    num_draws: int,
    *,
    threads: int | None,
    score: Callable[[Array], Array] | None = None,
) -> Array:
    """Draw in threads, with a part of the draws per stream.

    Parameters
    ----------
    draw : callable
        (rng, count) to outputs of shape (count, ...), which become rows.
    streams : list of Generator
        Independent streams; the draws depend on them and not on the threads.
    num_draws : int
        Number of draws in total.
    threads : int or None
        Number of threads; by default the number of processors.
    score : callable, optional
        Maps rows to one number each; the rows are then forgotten.

    Returns
    -------
    array of shape (num_draws, dim), or (num_draws,) with ``score``
        Outputs or scores.
    """
    sizes = [len(part) for part in np.array_split(np.empty(num_draws), len(streams))]

    def work(rng: np.random.Generator, size: int) -> list[Array]:
        found = []
        while size > 0:
            count = min(size, MAX_CHUNK)
            rows = _as_rows(draw(rng, count), count)
            found.append(rows if score is None else _numbers(score(rows), count))
            size -= count
        return found

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(work, streams, sizes))
    return np.concatenate([piece for part in parts for piece in part])


def _as_rows(outputs: Array, count: int) -> Array:
    """Return outputs as finite rows."""
    rows = np.asarray(outputs, dtype=np.float64)
    if rows.ndim == 0 or len(rows) != count:
        check.fail(
            "mechanism",
            f"a function that returns outputs of shape ({count}, ...)",
            f"shape {rows.shape}",
        )
    if not np.isfinite(rows).all():
        check.fail("mechanism", "a function of finite outputs", "NaN or infinity")
    return rows.reshape(count, -1)


def _numbers(values: Array, count: int) -> Array:
    """One number per row."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (count,):
        check.fail("scores", f"of shape ({count},)", f"shape {numbers.shape}")
    return numbers
