"""Independent runs of `minimize`, `release` or `sample` in threads, for studies.

The plan of a run depends on public facts only and is computed once for all runs. What
depends on the records is computed once for each set of records. Runs that share their
records form blocks. A thread draws a block in one call of compiled code where that is
possible. The size of a block cannot change a draw, because each run has its own stream
of random numbers.
"""

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample.api import minimize as minimizing_module
from dpsample.api.minimize import minimize
from dpsample.api.release import release
from dpsample.api.release_plan import plan_release
from dpsample.api.sample import sample
from dpsample.core import check, columns, pauses
from dpsample.core.arrays import Array, Values
from dpsample.core.markup import describe
from dpsample.core.renamed import rename_options
from dpsample.core.streams import Children, Seed, seed_sequence, streams
from dpsample.optimizers.loop.optimizer import Calibration, Optimizer
from dpsample.privacy import Budget, Certificate, EventCertificate, Ledger, LedgerFile
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.problem.problem import Problem
from dpsample.running import progress as screen
from dpsample.running.descent import Program
from dpsample.targets.gibbs import Gibbs

Seeds = Sequence[np.random.SeedSequence]
# Records of one run, a function of a stream: features, response and perhaps an offset.
Records = Callable[[np.random.Generator], tuple[Any, ...]]
# One theta for each seed, and the certificate that all of them share.
Answer = tuple[Array, Certificate | EventCertificate | None]
Runs = Callable[[Seeds], Answer]
Evaluate = Callable[[Array], ArrayLike] | Problem
# Options of `release` that observe or limit a single call. A release with one of them
# is drawn alone, not in a block.
WATCHED = {"deadline", "constant_time", "num_passes", "ledger"}
# Number of the child of a run's seed from which its records are drawn. The repeated
# function spawns children 0, 1, ..., so a large number cannot collide with them.
RECORDS_STREAM = 2**31
INTERRUPTED = "replicate was interrupted. No replicate is returned."


@dataclass(frozen=True, kw_only=True, eq=False)
class Replicates:
    """Results of independent runs, none of which is releasable.

    Attributes
    ----------
    thetas : array of shape (num_replicates, dim)
        One row per run. For `sample` the shape is (num_replicates, chain, draw, dim).
    certificate : Certificate, EventCertificate or None
        The certificate that all runs share, which says that they are seeded. It is
        None without a budget, and for `sample`.
    values : array of shape (num_replicates, ...) or None
        Values of ``evaluate`` at each theta.
    seed : int
        Entropy of the root from which the runs' seeds were spawned.
    """

    thetas: Array
    certificate: Certificate | EventCertificate | None
    values: Array | None = None
    seed: Any = field(default=None)

    @property
    def mean(self) -> Values:
        """Mean of ``values`` over the runs."""
        mean: Values = self._values().mean(axis=0)
        return mean

    @property
    def standard_error(self) -> Values:
        """Standard error of `mean`: NaN for one run."""
        values = self._values()
        error: Values = np.full(values.shape[1:], math.nan)[()]
        if len(values) > 1:
            error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
        return error

    def _values(self) -> Array:
        if self.values is None:
            check.fail("evaluate", "given", "None", "Pass it to dps.replicate.")
        return self.values

    def _repr_html_(self) -> str:
        """Return shape, mean and guarantee of one run as a table, for notebooks."""
        rows: list[tuple[str, object]] = [("thetas", f"shape {self.thetas.shape}")]
        if self.values is not None and self.values.ndim == 1:
            mean = f"{self.mean:.6g} ± {self.standard_error:.2g} (standard error)"
            rows.append(("mean value", mean))
        if self.certificate is not None:
            rows.append(("each run", self.certificate.statement))
        rows.append(("publication", "Not for publication: the random bits are seeded."))
        return describe("Replicates", rows)

    def __repr__(self) -> str:
        """Shape, and the mean of one value per run."""
        text = f"Replicates(thetas of shape {self.thetas.shape}"
        if self.values is not None and self.values.ndim == 1:
            text += f", mean value {self.mean:.6g} +- {self.standard_error:.2g}"
        return text + "; NOT releasable)"


@pauses.single_threaded_blas()
def replicate(
    verb: Callable[..., object],
    *arguments: object,
    num_replicates: int,
    seed: Seed | Sequence[np.random.SeedSequence] = 0,
    threads: int | None = None,
    evaluate: Evaluate | None = None,
    data: Records | None = None,
    progress: bool = True,
    **options: object,
) -> Replicates:
    """Run `minimize`, `release` or `sample` many times, in threads.

    Run i calls the function with the i-th child of the root seed,
    ``np.random.SeedSequence(seed).spawn(num_replicates)[i]``, so neither the number of
    threads nor the number of replicates can change it. For `minimize`, noise is
    calibrated and checked once. Compiled code runs without the interpreter lock, so
    threads run at the same time.

    Parameters
    ----------
    verb : {dps.minimize, dps.release, dps.sample}
        Function that is repeated.
    *arguments, **options
        Arguments of this function. Every replicate of `sample` runs its chains
        one after the other.
    num_replicates : int
        Number of runs.
    seed : int, SeedSequence or sequence of SeedSequence, optional
        Root of the seeds, or one seed for each run. None takes fresh entropy, which
        `Replicates.seed` records.
    threads : int, optional
        Number of threads; by default the number of processors.
    evaluate : Problem or callable, optional
        The risk of this problem, or ``evaluate(theta)``, is recorded for each theta. A
        problem must have the columns of the one that is minimized or drawn from. A
        callable is called in the calling thread, in the order of the runs.
    data : callable, optional
        Function that draws fresh records for each run. ``data(rng)`` returns the
        arguments of `Problem.with_records`, within the bounds of the problem, whose
        own records are not used then. Each run has its own stream ``rng``, and calls
        come from all threads.
    progress : bool
        Show the number of finished runs in a terminal or notebook.

    Returns
    -------
    Replicates
        ``thetas``, ``values`` with their ``mean`` and ``standard_error``, and the
        ``certificate`` of one run.

    Raises
    ------
    ValueError
        If an argument is malformed, here or in the repeated function.
    KeyboardInterrupt
        After Ctrl-C, and nothing is returned.

    Notes
    -----
    **Guarantee.** There is none, because every run is seeded, and the certificate is
    about one run. To publish one answer, call the repeated function without a seed.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=20)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> runs = dps.replicate(dps.minimize, problem, method, budget,
    ...                      num_replicates=10, evaluate=problem)
    >>> runs.thetas.shape, runs.values.shape, runs.certificate.releasable
    ((10, 3), (10,), False)
    """
    check.integer(1, num_replicates=num_replicates)
    check.instance(bool, progress=progress)
    if threads is not None:
        check.integer(1, threads=threads)
    if not (evaluate is None or isinstance(evaluate, Problem) or callable(evaluate)):
        check.fail("evaluate", "a Problem or a callable", evaluate)
    if options.get("max_seconds") is not None:
        remedy = "Choose num_draws: the lengths of replicates must not differ."
        check.fail("max_seconds", "left out", options["max_seconds"], remedy)
    # `replicate` itself sets these parameters of the functions that it calls.
    for name in ("seed", "threads", "progress", "checkpoint", "evaluation"):
        if name in options:
            check.fail(name, "left to replicate", options[name])
    if not (data is None or callable(data)):
        check.fail("data", "None or a callable", data)
    seeds = _seeds(seed, num_replicates)
    # A warning about a former name must show the caller's line. Level 1 is this
    # function, level 2 its decorator, and level 3 the caller.
    options = rename_options(verb, options, stacklevel=3)
    runs = _runs(verb, arguments, options, data)
    risks = evaluate if isinstance(evaluate, Problem) else None
    if risks is not None:
        _check_columns(risks, *arguments, **options)
    title = f"replicates of {verb.__name__}"
    with screen.counter(title, "runs", num_replicates, is_wanted=progress) as on_done:
        results = _run(runs, seeds, risks, threads or os.cpu_count() or 1, on_done)
    thetas, values = np.concatenate([theta for (theta, _), _ in results]), None
    if risks is not None:
        values = np.concatenate([value for _, value in results])
    elif callable(evaluate):
        values = _along_last(evaluate, thetas)
    certificate = results[0][0][1]
    return Replicates(
        thetas=thetas, certificate=certificate, values=values, seed=seeds[0].entropy
    )


def _check_columns(
    evaluate: Problem, first_argument: object = None, *_: object, **options: object
) -> None:
    """Raise unless ``evaluate`` has the columns of the problem or target."""
    first = options.get("problem", options.get("target", first_argument))
    problem = getattr(first, "problem", first)
    # Another type is an error that the repeated function reports itself.
    if isinstance(problem, Problem):
        columns.require_same("evaluate", evaluate.feature_names, problem.feature_names)


def _seeds(seed_argument: Seed | Seeds, number: int) -> Seeds:
    """Return one seed for each run."""
    if not isinstance(seed_argument, Sequence):
        return Children(seed_sequence(seed_argument), range(number))
    if len(seed_argument) != number:
        check.fail("seed", f"one or {number}, as many as runs", f"{len(seed_argument)}")
    for seed in seed_argument:
        check.instance(np.random.SeedSequence, seed=seed)
    return [seed_sequence(seed) for seed in seed_argument]


def _runs(
    verb: Callable[..., object],
    arguments: tuple[object, ...],
    options: dict[str, object],
    data: Records | None,
) -> Runs:
    """Return a function that takes seeds and makes one run for each of them."""
    if not any(verb is function for function in (minimize, release, sample)):
        check.fail("verb", "one of dps.minimize, dps.release, dps.sample", verb)
    try:
        bound = inspect.signature(verb).bind(*arguments, **options)
    except TypeError as error:
        check.fail("arguments", f"those of {verb.__name__}", str(error))
    if verb is minimize:
        return _minimizations(data, **bound.arguments)
    if verb is release and not WATCHED & bound.arguments.keys():
        bound.apply_defaults()
        return _releases(data, bound.arguments)

    def run(seeds: Seeds) -> Answer:
        answers = []
        for seed in seeds:
            pauses.notify_listeners()
            answers.append(_one(verb, data, seed, dict(bound.arguments)))
        return np.array([theta for theta, _ in answers]), answers[0][1]

    return run


def _fresh(problem: Problem, data: Records, seed: np.random.SeedSequence) -> Problem:
    """Return the problem with the records of one run."""
    key = (*seed.spawn_key, RECORDS_STREAM)
    child = np.random.SeedSequence(seed.entropy, spawn_key=key)
    records: object = data(np.random.Generator(np.random.PCG64DXSM(child)))
    if not (isinstance(records, tuple) and len(records) in (2, 3)):
        condition = "a function that returns features, response and perhaps an offset"
        check.fail("data", condition, check.describe(records))
    return problem.with_records(*records)


def _minimizations(
    data: Records | None,
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None = None,
    *,
    calibration: Calibration = "exact",
    ledger: Ledger | LedgerFile | None = None,
) -> Runs:
    """Return a function that runs an optimizer for each seed."""
    plan = minimizing_module.plan_minimization(
        problem, optimizer, budget, calibration, seeded=True
    )

    def report_progress(_done: int) -> None:
        pauses.notify_listeners()

    def run(seeds: Seeds) -> Answer:
        thetas, program = [], plan.program
        for seed in seeds:
            spend(ledger, plan.certificate)
            if data is not None:
                program = Program(_fresh(problem, data, seed), program.recipe)
            thetas.append(
                program.run(streams(seed, 1)[0], on_chunk=report_progress).theta
            )
        return np.array(thetas), plan.certificate

    return run


def _releases(data: Records | None, arguments: dict[str, Any]) -> Runs:
    """Return a function that makes releases for seeds, by one plan."""
    problem = arguments["problem"]
    others = WATCHED | {"seed", "progress"}
    options = {k: v for k, v in arguments.items() if k not in others}
    plan = plan_release(seeded=True, **options)

    def run(seeds: Seeds) -> Answer:
        if data is None:
            # All draws share the work that depends on the records.
            return plan.draw_many(seeds), plan.certificate
        thetas = [
            plan.with_records(_fresh(problem, data, seed)).draw_many([seed])
            for seed in seeds
        ]
        return np.concatenate(thetas), plan.certificate

    return run


def _one(
    verb: Callable[..., object],
    data: Records | None,
    seed: np.random.SeedSequence,
    arguments: dict[str, Any],
) -> Answer:
    """Call `release` or `sample` itself with one seed."""
    if verb is release:
        if data is not None:
            arguments["problem"] = _fresh(arguments["problem"], data, seed)
        answer = release(**arguments, seed=seed, progress=False)
        return answer.theta, answer.certificate
    if data is not None and isinstance(target := arguments["target"], Gibbs):
        fresh = _fresh(target.problem, data, seed)
        numbers = {"k": target.k, "mu": target.mu, "regularizer": target.regularizer}
        arguments["target"] = Gibbs(fresh, **numbers)  # type: ignore[arg-type]
    draws = sample(**arguments, seed=seed, threads=1, progress=False)
    return draws.posterior["theta"].to_numpy(), None


def _run(
    runs: Runs,
    seeds: Seeds,
    risks: Problem | None,
    threads: int,
    on_done: Callable[[int], None],
) -> list[tuple[Answer, Array]]:
    """Return answers and risks in the order of the seeds. One failure ends all runs."""
    # Eight tasks for each thread, so that none waits long for the last one. A task
    # has at most 512 runs, because progress is reported between tasks.
    size = max(1, min(512, len(seeds) // (8 * threads)))
    blocks = [seeds[i : i + size] for i in range(0, len(seeds), size)]

    def one(block: Seeds) -> tuple[Answer, Array]:
        answer = runs(block)
        if risks is None:
            return answer, np.empty(0)
        flat = answer[0].reshape(-1, answer[0].shape[-1])
        return answer, risks._risks(flat).reshape(answer[0].shape[:-1])

    def on_results(results: list[tuple[Answer, Array]]) -> None:
        on_done(sum(len(thetas) for (thetas, _), _ in results))

    try:
        return pauses.run_in_threads(one, ((b,) for b in blocks), threads, on_results)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None


def _along_last(function: Callable[[Array], ArrayLike], thetas: Array) -> Array:
    """Return the values of a function of vectors, which are on the last axis."""
    flat = thetas.reshape(-1, thetas.shape[-1])
    values_of_rows = [function(theta) for theta in flat]
    try:
        values = np.array(values_of_rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        check.fail("evaluate", "a function that returns numbers", str(error))
    return values.reshape((*thetas.shape[:-1], *values.shape[1:]))
