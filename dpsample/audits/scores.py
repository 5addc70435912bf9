"""Scores of the draws of two distributions, in two independent halves.

P and Q are the distributions of a mechanism's output on two neighboring data sets. A
score is a number for each draw. It is best if it increases with the likelihood ratio
(Neyman and Pearson 1933). Every other score gives valid but weaker bounds, so a bad one
makes an audit weak, not wrong. The first half of the draws is for choices, the second
one for the bounds.

The privacy loss of additive noise is known exactly. For a mechanism that can only be
run, a score that distinguishes two samples is learned by logistic regression on the
standardized outputs and their squares, which shows shifts and changes of spread.
Outputs are cut off at `CUT` spreads, so that heavy tails cannot decide the fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.noise import AdditiveMechanism

Draw = Callable[[np.random.Generator, int], Array]
# A function (data, rng, num_draws) that returns outputs, for any kind of data.
Mechanism = Callable[[Any, np.random.Generator, int], Array]
Kind = Literal["log ratio", "ratio up to a constant", "score"]
# Called with the share of draws that are done, and a text about results so far.
Progress = Callable[..., None]
Score = Callable[[Array], Array]

# Number of streams for one half of the draws of one distribution. It is fixed, so that
# the number of threads cannot change a draw.
NUM_STREAMS = 16
# The logistic regression cuts standardized outputs off at this absolute value.
CUT = 8.0
# Ridge of the logistic regression, relative to the number of draws.
RIDGE = 1e-3
# Larger outputs count as outputs of this size, so that their squares do not overflow.
FARTHEST = 1e150
# Maximum number of draws of each distribution for the fit.
MAX_FITTED = 50_000

GIVEN_NOTE = "the score was given; a better one may find more"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """Scores of independent draws of P (first data set) and Q (second)."""

    first: tuple[Array, Array]  # (n,) each, of the draws of P and of Q, in one half
    second: tuple[Array, Array]  # in the other half
    kind: Kind  # whether the score is log(Q/P), that plus a constant, or anything
    notes: tuple[str, ...] = ()  # sentences about the draws and the score

    def __post_init__(self) -> None:
        """Reject scores that cannot be ordered."""
        for values in (*self.first, *self.second):
            if np.isnan(values).any():
                check.fail("scores", "numbers", "NaN", "Check score and log_ratio.")


def draw_outputs(
    draw: Draw,
    streams: list[np.random.Generator],
    num_draws: int,
    *,
    threads: int | None,
    score: Score | None = None,
) -> Array:
    """Draw in threads, with a part of the draws per stream.

    ``draw`` maps a generator and a count to outputs (count, ...), which become rows.
    They depend on the streams and not on the number of threads. The result has the
    shape (num_draws, dim). With a ``score`` it has one number for each row, the shape
    (num_draws,), and the rows themselves are not kept.
    """
    # Sizes that differ by at most one.
    sizes = [len(part) for part in np.array_split(np.empty(num_draws), len(streams))]

    def work(rng: np.random.Generator, size: int) -> list[Array]:
        pieces = []
        while size > 0:
            pauses.notify_listeners()
            # Draws that are in memory at once, per stream.
            count = min(size, 65_536)
            rows = as_rows(draw(rng, count), count)
            pieces.append(rows if score is None else _numbers(score(rows), count))
            size -= count
        return pieces

    parts = pauses.run_in_threads(work, zip(streams, sizes, strict=True), threads)
    return np.concatenate([piece for part in parts for piece in part])


def as_rows(outputs: Array, count: int) -> Array:
    """Return outputs as finite rows."""
    rows = np.asarray(outputs, dtype=np.float64)
    if rows.ndim == 0 or len(rows) != count:
        condition = f"a function that returns outputs of shape ({count}, ...)"
        check.fail("mechanism", condition, f"shape {rows.shape}")
    if not np.isfinite(rows).all():
        check.fail("mechanism", "a function of finite outputs", "NaN or infinity")
    return rows.reshape(count, -1)


def _numbers(values: Array, count: int) -> Array:
    """Return scores as floats, or raise unless there is one for each row."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (count,):
        check.fail("scores", f"of shape ({count},)", f"shape {numbers.shape}")
    return numbers


def check_pair(
    mechanism: AdditiveMechanism, value: Array, neighbor: Array, relation: str
) -> None:
    """Reject values that are farther apart than neighbors can be.

    A replacement of a record is a path of two steps, to zero and from zero. So it moves
    the query at most twice as far as setting the record's loss to zero. There is no
    such bound in the other direction.
    """
    declared_relation, reach = mechanism.budget.relation, mechanism.sensitivity
    if declared_relation != relation:
        if relation != "replace_one":
            remedy = "Calibrate a mechanism for the relation that is tested."
            check.fail(
                "budget",
                f"under {declared_relation!r} for this mechanism",
                relation,
                remedy,
            )
        # Twice the distance of the same mechanism under "zero_out".
        reach = 2.0 * reach
    size = mechanism.change(value, neighbor)
    # The distance of a pair may be rounded up, so a little more than allowed passes.
    if size > reach * (1.0 + 1e-9):
        norm = dict(mechanism.certificate.inputs).get("norm", "gauge of K")
        check.fail(
            "neighbor",
            f"within {reach:g} of problem (the sensitivity, {norm}, {relation})",
            f"a distance of {size:g}",
            "Values farther apart are no neighbors, so they refute nothing.",
        )


def additive_scores(
    mechanism: AdditiveMechanism,
    value: ArrayLike,
    neighbor: ArrayLike,
    *,
    relation: str,
    **running: Any,
) -> Scores:
    """Return log ratios of draws of value + noise and neighbor + noise."""
    first = check.array("problem", _vector("problem", value), shape=(None,))
    second = check.array("neighbor", _vector("neighbor", neighbor), shape=first.shape)
    check_pair(mechanism, first, second, relation)
    # Only the difference matters. Next to large values the noise would be rounded.
    first, second = np.zeros_like(first), second - first
    draw = _four_parts(
        lambda center, rng, count: (
            center + mechanism.noise.draw(rng, (count, center.size))
        ),
        (first, second),
        **running,
    )

    def loss(outputs: Array) -> Array:
        return np.asarray(mechanism.privacy_loss(outputs, second, first))

    p, q, later_p, later_q = (draw(i, loss) for i in range(4))
    note = "independent draws; the privacy loss of every output is known exactly"
    return Scores(
        first=(p, q), second=(later_p, later_q), kind="log ratio", notes=(note,)
    )


def _vector(name: str, value: ArrayLike) -> Array:
    """Return a number as a vector of length one."""
    return np.atleast_1d(check.entries(name, value))


def black_box_scores(
    mechanism: Mechanism,
    first: object,
    second: object,
    *,
    log_ratio: Score | None = None,
    score: Score | None = None,
    **running: Any,
) -> Scores:
    """Return scores of a callable's outputs on two data sets."""
    score_function = log_ratio if log_ratio is not None else score
    draw = _four_parts(mechanism, (first, second), **running)
    half = draw(0, score_function), draw(1, score_function)
    note = GIVEN_NOTE
    if log_ratio is not None:
        note = "the given log ratio is trusted to be that of the two laws"
    if score_function is None:
        score_function = learn(*half)
        note = (
            "the score is a logistic discriminant of the outputs, learned on the first "
            "half of the draws: a better score may find more"
        )
        half = score_function(half[0]), score_function(half[1])
    stream_note = "every run has its own part of an independent random stream"
    return Scores(
        first=half,
        second=(draw(2, score_function), draw(3, score_function)),
        kind="score" if log_ratio is None else "log ratio",
        notes=(note, stream_note),
    )


def _four_parts(
    mechanism: Mechanism,
    data: tuple[object, object],
    *,
    num_draws: int,
    seed: Seed,
    threads: int | None,
    on_progress: Progress,
) -> Callable[[int, Score | None], Array]:
    """Return a function that draws part i of four.

    Part i is of the distribution i % 2, in half i // 2 of the draws.
    """
    # One root for each part, so that no part depends on how much another one draws.
    roots = seed_sequence(seed).spawn(4)

    def draw(i: int, score: Score | None) -> Array:
        outputs = draw_outputs(
            lambda rng, count: mechanism(data[i % 2], rng, count),
            streams(roots[i], NUM_STREAMS),
            num_draws // 2,
            threads=threads,
            score=score,
        )
        on_progress((i + 1) / 4)
        return outputs

    return draw


@dataclass(frozen=True, kw_only=True, eq=False)
class Discriminant:
    """Score of a vector of outputs, which is larger for more typical draws of Q."""

    center: Array  # (dim,)
    scale: Array  # (dim,)
    weights: Array  # (dim,) or (2 dim,)

    def __call__(self, outputs: Array) -> Array:
        """Return the score of each row of outputs, shape (num_draws,)."""
        return np.asarray(self._features(outputs) @ self.weights)

    def _features(self, outputs: Array) -> Array:
        outputs = np.clip(outputs, -FARTHEST, FARTHEST)
        cut = np.clip((outputs - self.center) / self.scale, -CUT, CUT)
        return cut if self.weights.size == cut.shape[1] else np.hstack([cut, cut**2])


def learn(outputs_p: Array, outputs_q: Array) -> Discriminant:
    """Fit the score to draws of both distributions, each (num_draws, dim).

    At most `MAX_FITTED` of each are used.
    """
    p, q = outputs_p[:MAX_FITTED], outputs_q[:MAX_FITTED]
    pooled = np.clip(np.concatenate([p, q]), -FARTHEST, FARTHEST)
    low, center, high = np.quantile(pooled, [0.25, 0.5, 0.75], axis=0)
    # A discrete output can have no spread between its quartiles.
    # The quartiles of a normal distribution are 1.35 standard deviations apart.
    scale = np.where(high > low, (high - low) / 1.35, pooled.std(axis=0))
    scale = np.where(scale > 0.0, scale, 1.0)
    dim = pooled.shape[1]
    # Squares of the outputs are fitted too, for at most 200 coefficients.
    size = 2 * dim if dim <= 200 else dim
    blank = Discriminant(center=center, scale=scale, weights=np.zeros(size))
    labels = np.repeat([0.0, 1.0], [len(p), len(q)])
    weights = _logistic(blank._features(pooled), labels)
    return Discriminant(center=center, scale=scale, weights=weights)


def _logistic(features: Array, labels: Array) -> Array:
    """Fit a ridge logistic regression by Newton's method, and drop the intercept."""
    from scipy.special import expit

    rows = np.column_stack([features, np.ones(len(features))])
    penalty = np.full(rows.shape[1], RIDGE * len(rows))
    # The intercept, in the last column, is not penalized.
    penalty[-1] = 0.0
    weights = np.zeros(rows.shape[1])
    # Newton's method ends when no coefficient changes by 1e-8, usually after ten steps.
    for _ in range(25):
        share = expit(rows @ weights)
        slope = rows.T @ (share - labels) + penalty * weights
        # Weights p (1 - p) of saturated outputs are raised, so that the curvature
        # matrix stays invertible.
        curvature = (rows * np.maximum(share * (1.0 - share), 1e-6)[:, None]).T @ rows
        curvature[np.diag_indices_from(curvature)] += penalty + 1e-9 * len(rows)
        step = np.linalg.solve(curvature, slope)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return np.asarray(weights[:-1])
