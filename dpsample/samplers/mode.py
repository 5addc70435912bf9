"""A good starting point: accelerated projected gradients with restarts.

Its accuracy moves the running time only, never the law of a draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import targets

Array = NDArray[np.float64]

MAX_ITERATIONS = 1000
WINDOW = 10


def minimize(
    target: Any, *, mu: float | None = None, tolerance: float = 0.01
) -> tuple[Array, float]:
    """Approximate minimizer of the energy on the domain, and the energy there.

    Parameters
    ----------
    target : Gibbs
        The target; with ``mu=0.0`` its empirical risk alone is minimized.
    mu : float, optional
        Replaces the target's weight of the regularizer.
    tolerance : float
        Stop when ten iterations gain less than this, in units of the energy.

    Returns
    -------
    theta : array of shape (dim,)
        A point of the domain.
    energy : float
        Its energy.
    """
    numbers = target.numbers if mu is None else target.numbers._replace(mu=float(mu))
    pieces, work = target.pieces, target.new_work()
    domain = target.problem.domain
    theta = domain.interior_point(target.dim)
    gradient, trial = np.empty(target.dim), np.empty(target.dim)
    value = targets.energy(numbers, pieces, theta, work)
    ahead, momentum, smoothness = theta.copy(), 1.0, 1.0
    history = [value]
    for _ in range(MAX_ITERATIONS):
        value_ahead = targets.energy_gradient(numbers, pieces, ahead, work, gradient)
        smoothness *= 0.7
        for _ in range(100):
            targets.project(numbers, pieces, ahead - gradient / smoothness, trial)
            move = trial - ahead
            model = gradient @ move + 0.5 * smoothness * (move @ move)
            new = targets.energy(numbers, pieces, trial, work)
            if not new > value_ahead + model + 1e-12 * abs(value_ahead):
                break
            smoothness *= 2.0
        if not new < value:  # also true for NaN
            if momentum == 1.0:
                break
            ahead, momentum = theta.copy(), 1.0
            continue
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = trial + (momentum - 1.0) / after * (trial - theta)
        if not domain.contains(ahead):
            ahead = domain.project(ahead)
        theta, value, momentum = trial.copy(), new, after
        history.append(value)
        if len(history) > WINDOW and history[-1 - WINDOW] - value < tolerance:
            break
    return theta, float(value)
