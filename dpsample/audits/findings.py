"""All bounds of an audit, which hold together with probability 1 - alpha.

Half of alpha pays for epsilon and gdp, half for the curve, shared equally by the
confidence bounds in each (union bound). Both directions count: P against Q and Q
against P.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample.audits.bounds import mean_lower
from dpsample.audits.bridge import log_constant
from dpsample.audits.events import Events
from dpsample.audits.scores import Scores

Array = NDArray[np.float64]

# Binomial bounds behind epsilon (two directions) and gdp (one event serves both).
NUM_HEADLINE = 6


class Findings(NamedTuple):
    """Lower bounds, and an estimate without a bound."""

    epsilon_lower: float
    gdp_lower: float
    delta_lower: Array  # (num_epsilons,)
    delta_estimate: Array  # (num_epsilons,)


def find(scores: Scores, epsilons: Array, *, delta: float, alpha: float) -> Findings:
    """Bounds from scores.

    Parameters
    ----------
    scores : Scores
        Scores of both laws in two halves.
    epsilons : array of shape (num_epsilons,)
        Where the curve is bounded.
    delta : float
        Where epsilon is bounded.
    alpha : float
        Probability that any bound is wrong.

    Returns
    -------
    Findings
        The bounds.
    """
    directions = (
        Events(scores.first, scores.second),
        Events(_reversed(scores.first), _reversed(scores.second)),
    )
    own = 0.5 * alpha / NUM_HEADLINE
    epsilon_lower = max(events.epsilon(delta, own) for events in directions)
    gdp_lower = directions[0].gdp(own)
    # Two binomial bounds per event, and a mean where the ratio is known.
    per_point = 3 if scores.kind == "log ratio" else 2
    shared = 0.5 * alpha / (2 * per_point * len(epsilons))
    lower = np.array(
        [max(events.delta(e, shared) for events in directions) for e in epsilons]
    )
    if scores.kind == "log ratio":
        means, estimate = _expected_losses(scores, epsilons, shared)
        lower = np.maximum(lower, means)
    elif scores.kind == "ratio up to a constant":
        estimate = _bridged(scores, epsilons)
    else:
        plain = [[d.plain_delta(e, shared) for e in epsilons] for d in directions]
        estimate = np.max(plain, axis=0)
    # A point of the curve above delta is a bound of epsilon too.
    beyond = epsilons[lower > delta]
    epsilon_lower = max(epsilon_lower, float(beyond.max(initial=0.0)))
    return Findings(epsilon_lower, gdp_lower, lower, estimate)


def loss(ratio: Array, epsilon: float) -> Array:
    """Return (1 - e^{epsilon - ratio})_+, whose mean is delta(epsilon)."""
    return np.asarray(-np.expm1(np.minimum(epsilon - ratio, 0.0)))


def _reversed(scores: tuple[Array, Array]) -> tuple[Array, Array]:
    """Scores for Q against P."""
    return -scores[1], -scores[0]


def _expected_losses(
    scores: Scores, epsilons: Array, alpha: float
) -> tuple[Array, Array]:
    """Bounds and estimates of E_Q (1 - e^{epsilon - L})_+, larger direction of both.

    Nothing is chosen, so both halves count.
    """
    forward = np.concatenate([scores.first[1], scores.second[1]])
    backward = -np.concatenate([scores.first[0], scores.second[0]])
    bounds, means = [], []
    for epsilon in epsilons:
        losses = [loss(ratio, epsilon) for ratio in (forward, backward)]
        bounds.append(max(mean_lower(values, alpha) for values in losses))
        means.append(max(float(values.mean()) for values in losses))
    return np.array(bounds), np.array(means)


def _bridged(scores: Scores, epsilons: Array) -> Array:
    """Estimate the curve with a normalizing constant estimated on the first half.

    The error of that constant has no bound here, so this is an estimate only.
    """
    constant = log_constant(*scores.first)
    forward, backward = scores.second[1] - constant, constant - scores.second[0]
    return np.array(
        [
            max(float(loss(r, epsilon).mean()) for r in (forward, backward))
            for epsilon in epsilons
        ]
    )
