"""The verb for gradient-based algorithms: one private minimization."""

from __future__ import annotations

import numpy as np

from dpsample import _check as check
from dpsample import chains, descent
from dpsample._streams import Seed, streams
from dpsample.fits import Fit
from dpsample.optimizers.optimizer import Calibration, Optimizer, Recipe
from dpsample.privacy import Budget, EventCertificate
from dpsample.problem import Problem

TRACE_POINTS = 20
CLIPPED = "rows and responses above their bounds were scaled down to them"


@chains.single_threaded_blas()
def minimize(
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None = None,
    *,
    calibration: Calibration = "exact",
    seed: Seed = None,
    evaluation: Problem | None = None,
) -> Fit:
    """Run a gradient-based algorithm of the literature with provable noise.

    Parameters
    ----------
    problem : Problem
        Records, loss, domain and declared bounds.
    optimizer : Optimizer
        One of `dpsample.optimizers`.
    budget : Budget or None
        Epsilon, delta and the neighboring relation; None: no noise, no certificate.
    calibration : {"exact", "paper"}
        Noise that is proved for the relation and the batches, or the printed one, whose
        certificate states the epsilon that is true of it, or that none is proved.
    seed : int, optional
        Reproduces a study's run, which is then not releasable. By default the operating
        system's entropy is used.
    evaluation : Problem, optional
        Public or synthetic records with the same loss, on which the risk along the way
        is recorded.

    Returns
    -------
    Fit
        ``theta``, ``certificate``, ``num_gradients`` and ``trace``.

    Raises
    ------
    ValueError
        If an argument is malformed, or the optimizer cannot serve the problem.
    DescentError
        If the loss raises or returns NaN, or a solver cannot certify its target.

    Notes
    -----
    **Guarantee.** With calibration "exact" and declared bounds that hold for every
    possible record, theta is (epsilon, delta)-differentially private under the
    relation, by the theorems that the certificate names. The running time of a random
    batch or of a certified solver depends on the records: do not publish it.
    """
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Optimizer, optimizer=optimizer, remedy="Use one of dps.optimizers.")
    check.instance((Budget, type(None)), budget=budget)
    check.one_of(("exact", "paper"), calibration=calibration)
    check.instance((Problem, type(None)), evaluation=evaluation)
    recipe = optimizer.recipe(problem.facts, budget, calibration)
    rng = streams(seed, 1)[0]
    num_points = 0 if evaluation is None else TRACE_POINTS
    run = descent.run(problem, recipe, rng, num_points=num_points)
    trace = {}
    if evaluation is not None:
        trace = {
            "num_gradients": np.array([count for count, _ in run.trace]),
            "risk": np.array([evaluation.risk(point) for _, point in run.trace]),
        }
    return Fit(
        theta=run.theta,
        certificate=_certificate(problem, optimizer, budget, recipe, calibration, seed),
        feature_names=problem.feature_names,
        num_gradients=run.num_gradients,
        trace=trace,
    )


def _certificate(
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None,
    recipe: Recipe,
    calibration: Calibration,
    seed: Seed,
) -> EventCertificate | None:
    if budget is None:
        return None
    assumptions = recipe.assumptions + ((CLIPPED,) if problem.clip_rows else ())
    return EventCertificate.of(
        mechanism=repr(optimizer),
        budget=budget,
        event=recipe.event,
        inputs={
            "num_records": problem.num_records,
            "dim": problem.dim,
            **recipe.inputs,
        },
        theorems=recipe.theorems,
        assumptions=assumptions,
        calibration=calibration,
        seeded=seed is not None,
    )
