"""The function for gradient-based algorithms: one private minimization."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpsample.answers.answer import Fit
from dpsample.core import check, columns, pauses
from dpsample.core.streams import Seed, release_streams, seed_sequence
from dpsample.optimizers.certification import certify
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Optimizer,
    check_any_loss,
)
from dpsample.privacy import Budget, EventCertificate, Ledger, LedgerFile
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.privacy.usefulness import gradient_noise_cost, warn_if_useless
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.running import descent
from dpsample.running import progress as screen

TRACE_POINTS = 20  # number of points at which the risk is recorded
INTERRUPTED = (
    "minimize was interrupted. Nothing is returned: the noise is calibrated to the end "
    "of the run, so no earlier iterate has a certificate."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimizationPlan:
    """What is common to runs that differ in their random bits only."""

    program: descent.Program
    certificate: EventCertificate | None
    risk_bound: float = math.nan  # NaN if it is not known


# The first call says that it compiles for about 5 s. BLAS has one thread, because the
# number of threads changes the last bits. NumPy scalars become Python numbers.
@screen.compiles_first(seconds=5.0)
@pauses.single_threaded_blas()
@check.unwrap_numpy
def minimize(
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None = None,
    *,
    calibration: Calibration = "exact",
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
    evaluation: Problem | None = None,
    progress: bool = True,
) -> Fit:
    """Run a gradient-based algorithm of the literature with provable noise.

    Parameters
    ----------
    problem : Problem
        Records, loss, domain and declared bounds.
    optimizer : Optimizer
        Method and its options, one of `dpsample.optimizers`.
    budget : Budget or None
        Epsilon, delta and the neighboring relation. With None there is no noise and no
        certificate.
    calibration : {"exact", "paper"}
        Noise that is proved for the relation and the batches, or the printed noise. The
        certificate of the latter states the epsilon that is proved for it, or that none
        is proved.
    ledger : Ledger or LedgerFile, optional
        Ledger in which the certificate is entered before anything is run. Nothing is
        run if it has no room for it.
    seed : int or SeedSequence, optional
        Reproduces a study's run, which is then not releasable. By default the operating
        system's entropy is used.
    evaluation : Problem, optional
        Public or synthetic records with the same columns. The risk of their own loss is
        recorded during the run.
    progress : bool
        Show the steps done in a terminal or notebook, until the end.

    Returns
    -------
    Fit
        ``theta``, ``certificate``, ``num_gradients`` and ``trace``.

    Raises
    ------
    ValueError
        If an argument is malformed, the optimizer cannot serve the problem, nothing is
        proved of it and calibration is "exact", or the ledger has no room for it.
    DescentError
        If the output has overflowed, which depends on the steps and not on a record.
        Without a budget also if the loss raises or returns NaN, or a solver cannot
        certify its target.
    KeyboardInterrupt
        After Ctrl-C, within 50 ms or one step. Nothing is returned then.

    Notes
    -----
    **Guarantee.** With calibration "exact" and declared bounds that hold for every
    possible record, theta is (epsilon, delta)-differentially private under the
    relation, by the theorems that the certificate names. The running time of a random
    batch or of a certified solver depends on the records, so do not publish it. No
    record within the declared bounds ends a run that has a budget.

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
    seed_sequence(seed)  # raises for a malformed seed, before any work
    plan = plan_minimization(
        problem, optimizer, budget, calibration, seeded=seed is not None
    )
    num_points = 0
    if evaluation is not None:
        num_points = TRACE_POINTS
        columns.require_same(
            "evaluation", evaluation.feature_names, problem.feature_names
        )
    if plan.certificate is not None and budget is not None:
        warn_if_useless(problem.facts, budget, plan.risk_bound)
    spend(ledger, plan.certificate)
    title, total = repr(optimizer), plan.program.num_steps
    try:
        with (
            release_streams(seed, 1) as (rng,),
            screen.counter(title, "steps", total, is_wanted=progress) as on_chunk,
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
        encoding=problem.encoding,
        facts=problem.facts,
        trace=trace,
    )


def _risk_bound(
    optimizer: Optimizer,
    facts: PublicFacts,
    budget: Budget,
    inputs: Mapping[str, str | float | bool | None],
) -> float:
    """Return the proved bound of the excess risk, or an estimate from the noise.

    The estimate is for a domain that is no larger than the steps can reach. It is NaN
    if there is no bound of the gradients.
    """
    numbers = {k: float(v) for k, v in inputs.items() if isinstance(v, int | float)}
    if "risk_bound" in numbers:
        return numbers["risk_bound"]
    length = numbers.get("clip", numbers.get("lipschitz"))
    if length is None:
        return math.nan
    num_steps = numbers.get("num_steps", getattr(optimizer, "num_steps", None))
    reach = facts.radius
    if num_steps is not None and "step_size" in numbers:
        reach = min(reach, float(num_steps * numbers["step_size"] * length))
    return gradient_noise_cost(facts, budget, lipschitz=length, reach=reach)


def plan_minimization(
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None,
    calibration: Calibration,
    *,
    seeded: bool,
) -> MinimizationPlan:
    """Check the arguments, calibrate and certify, before anything is run.

    The problem keeps the last plan, so that later runs begin at once.
    """
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        name = optimizer.__name__
        remedy = f"Call it: dps.optimizers.{name}(...)."
        check.fail("optimizer", "an optimizer, not its class", name, remedy)
    remedy = "Use one of dps.optimizers."
    if isinstance(optimizer, str) and optimizer == "release":  # as `advise` may say
        remedy = "Call dps.release(problem, budget)."
    check.instance(Optimizer, optimizer=optimizer, remedy=remedy)
    check.instance((Budget, type(None)), budget=budget)
    check.one_of(("exact", "paper"), calibration=calibration)
    # 1.0 and True are equal, but their texts differ, and one of them is an error.
    key = optimizer, repr(optimizer), problem.facts, budget, calibration, seeded

    def make_plan(problem: Problem) -> MinimizationPlan:
        recipe = optimizer.recipe(problem.facts, budget, calibration)
        certificate, risk_bound = None, math.nan
        if budget is None and not problem.loss.has_margin:
            check_any_loss(recipe, optimizer, is_private=False)
        if budget is not None:
            clipped = problem.clip_rows
            certificate = certify(
                optimizer, recipe, problem.facts, budget, calibration, clip_rows=clipped
            )
            inputs = dict(certificate.inputs)
            risk_bound = _risk_bound(optimizer, problem.facts, budget, inputs)
            if seeded:
                certificate = replace(certificate, seeded=True, digest="")
        program = descent.Program(problem, recipe)
        return MinimizationPlan(
            program=program, certificate=certificate, risk_bound=risk_bound
        )

    return problem._reuse_plan(key, make_plan)
