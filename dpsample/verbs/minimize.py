"""The verb for gradient-based algorithms: one private minimization."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from dpsample.core import check, columns
from dpsample.core.streams import Seed, release_streams, seed_sequence
from dpsample.losses import Custom, RecordGradient
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Optimizer,
    check_any_loss,
    trusts_loss,
)
from dpsample.privacy import Budget, EventCertificate
from dpsample.privacy.certificates.certificate import DECLARED
from dpsample.problem.problem import Problem
from dpsample.running import chains, descent
from dpsample.running import progress as screen
from dpsample.verbs.results import Fit

TRACE_POINTS = 20
RECORDS_READ = (
    "num_gradients, the trace and the running time may depend on the records: only "
    "theta and this certificate are released"
)
OWN_LOSS = (
    "functions of the user's own loss return for every record and print nothing; where "
    "they raise or return NaN the record's gradient counts as 0"
)
INTERRUPTED = (
    "minimize was interrupted. Nothing is returned: the noise is calibrated to the end "
    "of the run, so no earlier iterate has a certificate."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimizationPlan:
    """All that runs with different random bits share."""

    program: descent.Program
    certificate: EventCertificate | None


@chains.single_threaded_blas()
def minimize(
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None = None,
    *,
    calibration: Calibration = "exact",
    seed: Seed = None,
    evaluation: Problem | None = None,
    progress: bool = False,
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
    seed : int or SeedSequence, optional
        Reproduces a study's run, which is then not releasable. By default the operating
        system's entropy is used.
    evaluation : Problem, optional
        Public or synthetic records with the same loss and columns, on which the risk
        along the way is recorded.
    progress : bool
        Show the steps done in a terminal or notebook.

    Returns
    -------
    Fit
        ``theta``, ``certificate``, ``num_gradients`` and ``trace``.

    Raises
    ------
    ValueError
        If an argument is malformed, the optimizer cannot serve the problem, or nothing
        is proved of it and calibration is "exact".
    DescentError
        If the output has overflowed, which the steps decide and no record; without a
        budget also if the loss raises or returns NaN, or a solver cannot certify its
        target.
    KeyboardInterrupt
        After Ctrl-C, within 50 ms or one step; nothing is returned then.

    Notes
    -----
    **Guarantee.** With calibration "exact" and declared bounds that hold for every
    possible record, theta is (epsilon, delta)-differentially private under the
    relation, by the theorems that the certificate names. The running time of a random
    batch or of a certified solver depends on the records: do not publish it. No legal
    record, whatever it holds, ends a run that has a budget.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=20)
    >>> fit = dps.minimize(problem, method, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> fit.theta.shape, fit.certificate.releasable, fit.num_gradients
    ((3,), True, 10000)
    """
    check.instance((Problem, type(None)), evaluation=evaluation)
    check.instance(bool, progress=progress)
    seed_sequence(seed)  # refuses what is no seed, before any work
    plan = planned(problem, optimizer, budget, calibration, seeded=seed is not None)
    num_points = 0
    if evaluation is not None:
        num_points = TRACE_POINTS
        columns.same("evaluation", evaluation.feature_names, problem.feature_names)
    title, total = repr(optimizer), plan.program.num_steps
    try:
        with (
            release_streams(seed, 1) as (rng,),
            display(progress, title, "steps", total) as on_chunk,
        ):
            run = plan.program.run(rng, num_points=num_points, on_chunk=on_chunk)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None
    trace = {}
    if evaluation is not None:
        trace = {
            "num_gradients": np.array([count for count, _ in run.trace]),
            "risk": np.array([evaluation.risk(point) for _, point in run.trace]),
        }
    return Fit(
        theta=run.theta,
        certificate=plan.certificate,
        feature_names=problem.feature_names,
        num_gradients=run.num_gradients,
        trace=trace,
    )


def planned(
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None,
    calibration: Calibration,
    *,
    seeded: bool,
) -> MinimizationPlan:
    """Check the arguments, calibrate, certify: before anything is run."""
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        name = optimizer.__name__
        remedy = f"Call it: dps.optimizers.{name}(...)."
        check.fail("optimizer", "an optimizer, not its class", name, remedy)
    check.instance(Optimizer, optimizer=optimizer, remedy="Use one of dps.optimizers.")
    check.instance((Budget, type(None)), budget=budget)
    check.one_of(("exact", "paper"), calibration=calibration)
    recipe = optimizer.recipe(problem.facts, budget, calibration)
    if isinstance(problem.loss, RecordGradient):
        check_any_loss(recipe, optimizer, is_private=budget is not None)
    certificate = None
    is_trusted = isinstance(problem.loss, Custom) and trusts_loss(recipe)
    if recipe.event is not None:
        recipe.check_private(problem.facts)
    if budget is not None:
        if calibration == "exact" and recipe.event is None:
            reasons = " ".join(recipe.assumptions)
            remedy = f"{reasons} Use calibration='paper' for studies.".strip()
            check.fail("optimizer", "one with a privacy proof", optimizer, remedy)
        certificate = EventCertificate.of(
            mechanism=repr(optimizer),
            budget=budget,
            event=recipe.event,
            inputs=_facts(problem) | recipe.inputs,
            theorems=recipe.theorems,
            assumptions=(
                *recipe.assumptions,
                RECORDS_READ,
                *((DECLARED,) if is_trusted else ()),
                *((OWN_LOSS,) if not problem.loss.is_cached else ()),
                *problem.assumptions,
            ),
            calibration=calibration,
            seeded=seeded,
        )
    program = descent.Program(problem, recipe)
    return MinimizationPlan(program=program, certificate=certificate)


def _facts(problem: Problem) -> dict[str, float | int | str]:
    """Public facts that every certificate names."""
    facts = problem.facts
    named: dict[str, float | int | str] = {
        "num_records": facts.num_records,
        "dim": facts.dim,
        "loss": facts.loss.name,
        "domain": facts.domain.name,
        "row_bound": facts.row_bound,
        "row_norm": facts.row_norm,
    }
    if facts.response_bound is not None:
        named["response_bound"] = facts.response_bound
    return named


def display(
    is_wanted: bool, title: str, unit: str, total: int
) -> AbstractContextManager[Callable[[int], None]]:
    """Live line of what is done, if it is wanted and somebody sees it."""
    if is_wanted and screen.is_shown():
        return screen.counter(title, unit, total)
    return nullcontext(lambda done: None)
