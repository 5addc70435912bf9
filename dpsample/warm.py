"""Compile every kernel once, so that later processes only load them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpsample import domains, losses, regularizers
from dpsample.problem import Problem
from dpsample.samplers import Proximal, metric, mode
from dpsample.samplers.pilot import Pilot
from dpsample.samplers.proximal import start_bound
from dpsample.targets import Gibbs

DIM = 4
LOSSES = (
    losses.Logistic(),
    losses.Linear(),
    losses.Hinge(),
    losses.SmoothedHinge(),
    losses.Absolute(),
    losses.Quantile(),
    losses.Huber(),
    losses.Squared(),
    losses.PowerFour(),
)
DOMAINS = (
    domains.Ball(1.0),
    domains.WholeSpace(),
    domains.Box(-1.0, 1.0),
    domains.Ball(1.0, p=1.0),
    domains.Ball(1.0, p=1.5),
    domains.Polytope(np.vstack([np.eye(DIM), -np.eye(DIM)]), np.ones(2 * DIM)),
    domains.SchattenBall(1.0, p=1.0, shape=(2, 2)),
)
REGULARIZERS = (
    regularizers.SquaredNorm(1.5),
    regularizers.SquaredNorm(1.0),
    regularizers.SchattenSquared(1.5, shape=(2, 2)),
)


def targets() -> Iterator[tuple[str, Gibbs]]:
    """Small targets that use every built-in piece between them."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, DIM))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def make(
        loss: Any, domain: Any, regularizer: Any = None, features: Any = rows
    ) -> Gibbs:
        problem = Problem(
            features,
            [1.0, -1.0, 1.0],
            loss=loss,
            domain=domain,
            row_bound=1.0,
            response_bound=1.0,
        )
        return Gibbs(problem, k=3.0, mu=1.0, regularizer=regularizer)

    for loss in LOSSES:
        yield f"loss {loss.name}", make(loss, DOMAINS[0])
    for domain in DOMAINS[1:]:
        yield f"domain {domain.name}", make(LOSSES[0], domain)
    for regularizer in REGULARIZERS:
        yield (
            f"regularizer {regularizer.name}",
            make(LOSSES[0], DOMAINS[0], regularizer),
        )
    yield "sparse records", make(LOSSES[0], DOMAINS[0], None, sparse.csr_array(rows))


def warm(on_progress: Callable[[str], None] | None = None) -> int:
    """Run each target for a moment in every metric that is valid for it.

    Parameters
    ----------
    on_progress : callable, optional
        Called with the name of each part before it is compiled.

    Returns
    -------
    int
        Number of parts.
    """
    count = 0
    for name, target in targets():
        if on_progress is not None:
            on_progress(name)
        start, _ = mode.minimize(target)
        for option in metric.candidates(target, oracle=Proximal().oracle):
            pilot = Pilot(target, option, start, np.random.default_rng(0))
            pilot.trial(0.1, 2, lambda *, step: 1)
            start_bound(target, option, start)
        # Called from Python, a piece is compiled apart from its pointer.
        target.log_density(start)
        target.regularizer.value(start)
        target.problem.loss.value(0.0, 1.0)
        count += 1
    return count
