"""The verb for Monte Carlo studies: independent runs of another verb, in threads."""

import inspect
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check, columns
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.optimizers.loop.optimizer import Calibration, Optimizer
from dpsample.privacy import Budget, Certificate, EventCertificate
from dpsample.problem.problem import Problem
from dpsample.running import chains
from dpsample.verbs import minimize as minimizing_module
from dpsample.verbs.minimize import minimize
from dpsample.verbs.release import release
from dpsample.verbs.results import Replicates
from dpsample.verbs.sample import sample

Answer = tuple[Array, Certificate | EventCertificate | None]  # theta, what is proved
Task = Callable[[np.random.SeedSequence], Answer]
Evaluate = Callable[[Array], ArrayLike] | Problem
# Parameters of the verbs that replicate sets itself.
RESERVED = ("seed", "threads", "progress", "checkpoint", "evaluation")
POLL_SECONDS = 0.2
INTERRUPTED = "replicate was interrupted. No replicate is returned."


@chains.single_threaded_blas()
def replicate(
    verb: Callable[..., object],
    *arguments: Any,
    num_replicates: int,
    seed: Seed | Sequence[np.random.SeedSequence] = 0,
    threads: int | None = None,
    evaluate: Evaluate | None = None,
    progress: bool = False,
    **options: Any,
) -> Replicates:
    """Run `minimize`, `release` or `sample` many times, in threads.

    Run i is the verb with the i-th child of the root seed,
    ``np.random.SeedSequence(seed).spawn(num_replicates)[i]``, so neither the number of
    threads nor the number of replicates can change it. For `minimize`, noise is
    calibrated and checked once; kernels release the interpreter lock.

    Parameters
    ----------
    verb : {dps.minimize, dps.release, dps.sample}
        What is repeated.
    *arguments, **options
        Of the verb. Every replicate of `sample` runs its chains one after the other.
    num_replicates : int
        Number of runs.
    seed : int, SeedSequence or sequence of SeedSequence, optional
        Root of the seeds, or one for each run; None for fresh entropy, which
        `Replicates.seed` records.
    threads : int, optional
        Number of threads; by default the number of processors.
    evaluate : Problem or callable, optional
        Its risk, or ``evaluate(theta)``, is recorded for each theta. A problem has
        the columns of the one that is minimized or drawn from. A callable is
        called in the calling thread, in the order of the runs.
    progress : bool
        Show the runs done in a terminal or notebook.

    Returns
    -------
    Replicates
        ``thetas``, ``values`` with their ``mean`` and ``standard_error``, and the
        ``certificate`` of one run.

    Raises
    ------
    ValueError
        If an argument is malformed, here or in the verb.
    KeyboardInterrupt
        After Ctrl-C; nothing is returned then.

    Notes
    -----
    **Guarantee.** None: every run is seeded, and the certificate is about one run. To
    publish one answer, call the verb without a seed.

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
    for name in RESERVED:
        if name in options:
            check.fail(name, "left to replicate", options[name])
    seeds, stop = _seeds(seed, num_replicates), threading.Event()
    task = _task(verb, arguments, options, stop)
    risks = evaluate if isinstance(evaluate, Problem) else None
    if risks is not None:
        _check_columns(risks, *arguments, **options)
    title, shown = f"replicates of {verb.__name__}", minimizing_module.display
    with shown(progress, title, "runs", num_replicates) as on_done:
        runs = _run(task, seeds, risks, threads or os.cpu_count() or 1, stop, on_done)
    thetas = np.array([theta for (theta, _), _ in runs])
    values = None
    if risks is not None:
        values = np.array([value for _, value in runs])
    elif callable(evaluate):
        values = _along_last(evaluate, thetas)
    certificate = runs[0][0][1]
    return Replicates(
        thetas=thetas, certificate=certificate, values=values, seed=seeds[0].entropy
    )


def _check_columns(
    evaluate: Problem, given: object = None, *_: object, **options: object
) -> None:
    """Refuse records of other columns than those of the problem or target."""
    first = options.get("problem", options.get("target", given))
    problem = getattr(first, "problem", first)
    if isinstance(problem, Problem):  # else the verb says what is wrong with it
        columns.same("evaluate", evaluate.feature_names, problem.feature_names)


def _seeds(
    given: Seed | Sequence[np.random.SeedSequence], number: int
) -> list[np.random.SeedSequence]:
    """One seed for each run."""
    if not isinstance(given, Sequence):
        return seed_sequence(given).spawn(number)
    if len(given) != number:
        check.fail("seed", f"one or {number}, as many as runs", f"{len(given)}")
    for seed in given:
        check.instance(np.random.SeedSequence, seed=seed)
    return [seed_sequence(seed) for seed in given]


class _StoppedError(Exception):
    """Another thread was interrupted or failed."""


def _task(
    verb: Callable[..., object],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    stop: threading.Event,
) -> Task:
    """One run as a function of its seed, which gives theta and the certificate."""
    check.one_of((minimize, release, sample), verb=verb)
    try:
        inspect.signature(verb).bind(*arguments, **options)
    except TypeError as error:
        check.fail("arguments", f"those of {verb.__name__}", str(error))
    if verb is minimize:
        return _minimization(stop, *arguments, **options)

    def one(seed: np.random.SeedSequence) -> Answer:
        if verb is release:
            answer = release(*arguments, seed=seed, **options)
            return answer.theta, answer.certificate
        draws = sample(*arguments, seed=seed, threads=1, progress=False, **options)
        return draws.posterior["theta"].to_numpy(), None

    return one


def _minimization(
    stop: threading.Event,
    problem: Problem,
    optimizer: Optimizer,
    budget: Budget | None = None,
    *,
    calibration: Calibration = "exact",
) -> Task:
    plan = minimizing_module.planned(
        problem, optimizer, budget, calibration, seeded=True
    )

    def on_chunk(_done: int) -> None:
        if stop.is_set():
            raise _StoppedError

    def one_minimization(seed: np.random.SeedSequence) -> Answer:
        run = plan.program.run(streams(seed, 1)[0], on_chunk=on_chunk)
        return run.theta, plan.certificate

    return one_minimization


def _run(
    task: Task,
    seeds: list[np.random.SeedSequence],
    risks: Problem | None,
    threads: int,
    stop: threading.Event,
    on_done: Callable[[int], None],
) -> list[tuple[Answer, Array | None]]:
    """Results in the order of the seeds; the first failure ends all of them."""

    def one(seed: np.random.SeedSequence) -> tuple[Answer, Array | None]:
        answer = task(seed)
        return answer, None if risks is None else _along_last(risks.risk, answer[0])

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(one, seed) for seed in seeds]
        try:
            pending = set(futures)
            while pending:
                # A wait without end is deaf to a signal that another thread received.
                done, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
                on_done(len(futures) - len(pending))
        except BaseException as error:
            stop.set()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(INTERRUPTED) from None
            raise
    return [future.result() for future in futures]


def _along_last(function: Callable[[Array], ArrayLike], thetas: Array) -> Array:
    """Values of a function of vectors on the last axis."""
    flat = thetas.reshape(-1, thetas.shape[-1])
    values = np.array([function(theta) for theta in flat], dtype=np.float64)
    return values.reshape((*thetas.shape[:-1], *values.shape[1:]))
