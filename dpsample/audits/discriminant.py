"""A score that tells two samples apart, learned when no likelihood is known.

Logistic regression on the standardized outputs and their squares, which sees shifts and
changes of spread. Outputs are cut at `CUT` spreads, so that heavy tails cannot decide
the fit. Any function is a valid score: a bad one makes an audit weak, not wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CUT = 8.0
RIDGE = 1e-3  # relative to the number of draws
MAX_ITERATIONS = 25
TOLERANCE = 1e-8
# Most coefficients for which squares are fitted too.
MAX_SQUARED = 200
# Draws of each law that the fit looks at.
MAX_FITTED = 50_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Discriminant:
    """Score of a vector of outputs: larger means more like the second law."""

    center: Array  # (dim,)
    scale: Array  # (dim,)
    weights: Array  # (dim,) or (2 dim,)

    def __call__(self, outputs: Array) -> Array:
        """Score of each row of outputs, shape (num_draws,)."""
        return np.asarray(self._features(outputs) @ self.weights)

    def _features(self, outputs: Array) -> Array:
        cut = np.clip((outputs - self.center) / self.scale, -CUT, CUT)
        return cut if self.weights.size == cut.shape[1] else np.hstack([cut, cut**2])


def learn(outputs_p: Array, outputs_q: Array) -> Discriminant:
    """Fit the score to draws of both laws.

    Parameters
    ----------
    outputs_p, outputs_q : array of shape (num_draws, dim)
        Draws; at most `MAX_FITTED` of each are used.

    Returns
    -------
    Discriminant
        The score.
    """
    p, q = outputs_p[:MAX_FITTED], outputs_q[:MAX_FITTED]
    both = np.concatenate([p, q])
    low, center, high = np.quantile(both, [0.25, 0.5, 0.75], axis=0)
    # A discrete output can have no spread between its quartiles.
    scale = np.where(high > low, (high - low) / 1.35, both.std(axis=0))
    scale = np.where(scale > 0.0, scale, 1.0)
    dim = both.shape[1]
    size = 2 * dim if dim <= MAX_SQUARED else dim
    blank = Discriminant(center=center, scale=scale, weights=np.zeros(size))
    labels = np.repeat([0.0, 1.0], [len(p), len(q)])
    weights = _logistic(blank._features(both), labels)
    return Discriminant(center=center, scale=scale, weights=weights)


def _logistic(features: Array, labels: Array) -> Array:
    """Ridge logistic regression by Newton's method; the intercept is dropped."""
    from scipy.special import expit

    rows = np.column_stack([features, np.ones(len(features))])
    penalty = np.full(rows.shape[1], RIDGE * len(rows))
    penalty[-1] = 0.0
    weights = np.zeros(rows.shape[1])
    for _ in range(MAX_ITERATIONS):
        share = expit(rows @ weights)
        slope = rows.T @ (share - labels) + penalty * weights
        curvature = (rows * np.maximum(share * (1.0 - share), 1e-6)[:, None]).T @ rows
        curvature[np.diag_indices_from(curvature)] += penalty + 1e-9 * len(rows)
        step = np.linalg.solve(curvature, slope)
        weights -= step
        if np.abs(step).max() < TOLERANCE:
            break
    return np.asarray(weights[:-1])
