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


# More than rounding moves a pair at the very distance that is allowed.
ROUNDING = 1e-9


def check_pair(
    mechanism: AdditiveMechanism, value: Array, neighbor: Array, relation: str
) -> None:
    """Refuse values that are farther apart than neighbors can be.

    A record that is replaced moves the query at most twice as far as one whose loss is
    set to zero: by way of zero. Nothing is known of the reverse.
    """
    own, reach = mechanism.budget.relation, mechanism.sensitivity
    if own != relation:
        if relation != "replace_one":
            remedy = "Calibrate a mechanism for the relation that is tested."
            check.fail("budget", f"under {own!r} for this mechanism", relation, remedy)
        reach = 2.0 * reach
    size = mechanism.change(value, neighbor)
    if size > reach * (1.0 + ROUNDING):
        norm = dict(mechanism.certificate.inputs).get("norm", "gauge of K")
        check.fail(
            "neighbor",
            f"within {reach:g} of problem (the sensitivity, {norm}, {relation})",
            f"a distance of {size:g}",
            "Values farther apart are no neighbors, so they refute nothing.",
        )


def additive_scores(
    mechanism: AdditiveMechanism,
    value: Any,
    neighbor: Any,
    *,
    relation: str,
    num_draws: int,
    seed: Seed,
    threads: int | None,
    on_progress: Progress,
) -> Scores:
    """Log ratios of value + noise and neighbor + noise."""
    first = check.array("problem", _vector("problem", value), shape=(None,))
    second = check.array("neighbor", _vector("neighbor", neighbor), shape=first.shape)
    check_pair(mechanism, first, second, relation)
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
