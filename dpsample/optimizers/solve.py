"""Certified minimization of a smooth, strongly convex objective.

Accelerated projected gradients with the momentum of known smoothness l and strong
convexity m. With w+ = P(w - grad J(w)/l) the certificate

    J(w+) - min J <= (1/(2 m) - 1/(2 l)) l^2 |w - w+|^2

holds at every step, so the accuracy is checked on the data set at hand, whatever it is.
In exact arithmetic it is reached after `enough_steps` at the latest: a private run ends
there and never refuses, since a failure that depends on the records is an output.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.norms import distance
from dpsample.optimizers.advance import into_both
from dpsample.optimizers.estimate import estimate

Array = NDArray[np.float64]

RUNNING, CERTIFIED, FAILED = range(3)


class Objective(NamedTuple):
    """The quadratic part and the constants of an objective."""

    tilt: Array  # (dim,): <tilt, w>
    center: Array  # (dim,): of the ridge
    ridge: float
    smoothness: float  # l, of the whole objective
    gap: float


def enough_steps(
    objective: Objective, record_bound: float, start: Array, ball: Array | None = None
) -> int:
    r"""Return how many steps prove J(w) - min J <= gap, in exact arithmetic.

    With q = m/l and start w_0 the iterates satisfy :math:`J(w_k) - J^* \le
    (1 - \sqrt q)^k (J(w_0) - J^* + \frac m2 |w_0 - w^*|^2)` (Nesterov 2018, section
    2.2.4, with projections), and the bracket is at most :math:`|\nabla J(w_0)|^2/m`.

    Parameters
    ----------
    objective : Objective
        Its constants.
    record_bound : float
        Bound of the gradient of the mean loss.
    start : ndarray of shape (dim,)
        w_0, before it is projected.
    ball : ndarray of shape (dim,), optional
        Center of a local ball, towards which the projection may move it.

    Returns
    -------
    int
    """
    away = float(np.linalg.norm(start - objective.center))
    if ball is not None:
        away += float(np.linalg.norm(start - ball))
    slope = record_bound + float(np.linalg.norm(objective.tilt))
    slope += objective.ridge * away
    log = 2.0 * math.log(max(slope, 1e-300)) - math.log(objective.ridge)
    log -= math.log(objective.gap)
    root = math.sqrt(objective.smoothness / objective.ridge)
    return 2 + math.ceil(root * max(log, 0.0))


@kernel
def objective_gradient(data, pieces, loop, objective, w, memory, rng):
    """Fill memory.gradient with grad J(w); False if the loss failed."""
    succeeded = estimate(data, pieces, loop.batches, loop.estimator, 0, w, memory, rng)
    for j in range(len(w)):
        memory.gradient[j] += objective.tilt[j]
        memory.gradient[j] += objective.ridge * (w[j] - objective.center[j])
    return succeeded


@kernel
def minimize(data, body, pieces, loop, objective, memory, rng, start, stop):
    """Take steps ``start``, ..., ``stop - 1``; return RUNNING, CERTIFIED or FAILED.

    Once certified, memory.theta is the point. ``loop`` gives batches, estimator and the
    local ball; its noise is not used.
    """
    m, top = objective.ridge, objective.smoothness
    momentum = (math.sqrt(top) - math.sqrt(m)) / (math.sqrt(top) + math.sqrt(m))
    bound = np.inf  # a quadratic of one curvature: a single step is exact
    if top > m:
        bound = math.sqrt(objective.gap / (0.5 / m - 0.5 / top)) / top
    ahead, w = memory.middle, memory.theta
    if start == 0:
        into_both(body, pieces, loop.step, memory, w)
        ahead[:] = w
    for _ in range(start, stop):
        if not objective_gradient(data, pieces, loop, objective, ahead, memory, rng):
            return FAILED
        trial = memory.aggregate
        for j in range(len(w)):
            trial[j] = ahead[j] - memory.gradient[j] / top
        into_both(body, pieces, loop.step, memory, trial)
        moved = distance(trial, ahead, 2.0)
        if not moved < np.inf:
            return FAILED
        if moved <= bound:
            w[:] = trial
            return CERTIFIED
        for j in range(len(w)):
            ahead[j] = trial[j] + momentum * (trial[j] - w[j])
            w[j] = trial[j]
    return RUNNING
