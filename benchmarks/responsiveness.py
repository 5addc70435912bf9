"""Longest time between two returns from compiled code, and the delay of Ctrl-C.

    python benchmarks/responsiveness.py [--only release] [--limit 10] [--small]

Python runs the handler of an interval timer only between two bytecodes, not during a
call of compiled code. So the longest pause between two calls of the handler is the
longest time that Ctrl-C, a progress line or a time limit can have waited. Tasks of
worker threads run in the main thread here, so that their pauses are included. Pauses of
the compiler are not. The longest pause is the one with the most CPU time, because other
processes may have interrupted it. A case that takes longer than the limit gets Ctrl-C,
and the delay is the time from then to its end.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any

import numpy as np

import dpsample as dps
from dpsample import samplers
from dpsample.api.minimize import plan_minimization
from dpsample.api.warm import public_samplers
from dpsample.running import chains

# Seconds between two calls of the handler.
TICK = 0.003
# Parts of the names of files whose code belongs to the compiler.
COMPILER = ("numba/core/compiler", "numba/core/caching", "llvmlite")
L = dps.losses
D = dps.domains


class Inline:
    """Pool of threads whose tasks run immediately, in the main thread."""

    def __init__(self, threads: int | None = None) -> None:
        del threads

    def __enter__(self) -> Inline:
        """Start no thread."""
        return self

    def __exit__(self, *error: Any) -> None:
        """End no thread."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Done:
        """Run the task."""
        return Done(task(*arguments))


class Done:
    """Outcome of a task."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the task."""
        return self.value

    def exception(self, timeout: float | None = None) -> None:
        """Return None, because the task has raised no exception."""

    def done(self) -> bool:
        """Return True, because the task has run."""
        return True


class Watch:
    """Pauses between calls of the timer's handler, and Ctrl-C at the limit."""

    def __init__(self, limit: float) -> None:
        self.begin = self.last = time.perf_counter()
        # Seconds of the case, time of the first Ctrl-C, and number of them.
        self.limit, self.pressed, self.presses = limit, np.inf, 0
        # Longest pause in wall seconds, and the line of code that followed it.
        self.longest, self.line_after = 0.0, ""
        # CPU seconds at the last call of the handler, and of the longest pause.
        self.used, self.longest_used = time.thread_time(), 0.0

    def tick(self, number: int, frame: Any) -> None:
        """Record the pause, and send Ctrl-C if the time is over."""
        now = time.perf_counter()
        pause, used = now - self.last, time.thread_time() - self.used
        stack = [(f.f_code.co_filename, line) for f, line in walk_stack(frame)]
        if any(word in name for name, _ in stack for word in COMPILER):
            self.begin = now  # the time limit begins again after compilation
        elif used > self.longest_used:
            ours = [line for line in stack if "dpsample" in line[0]]
            name, line = ours[0] if ours else stack[0]
            self.line_after = f"{os.path.basename(name)}:{line}"
            self.longest, self.longest_used = pause, used
        if now - self.begin > self.limit + self.presses:
            # Ctrl-C is repeated each second, because a callback of C code may lose it.
            self.presses += 1
            self.pressed = min(self.pressed, now)
            os.kill(os.getpid(), signal.SIGINT)
        self.last, self.used = time.perf_counter(), time.thread_time()
        # The timer is started again for each tick. With a repeating timer, a handler
        # that takes longer than a tick on a busy machine would never return.
        signal.setitimer(signal.ITIMER_REAL, TICK)


@contextmanager
def watched(limit: float) -> Iterator[Watch]:
    """Watch the pauses of a block, which runs without worker threads."""
    watch, pool = Watch(limit), chains.ThreadPoolExecutor
    chains.ThreadPoolExecutor = Inline  # type: ignore[misc, assignment]
    before = signal.signal(signal.SIGALRM, watch.tick)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    signal.setitimer(signal.ITIMER_REAL, TICK)
    watch.last = watch.begin = time.perf_counter()
    try:
        yield watch
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        chains.ThreadPoolExecutor = pool  # type: ignore[misc]


def measure(name: str, task: Callable[[], Any], limit: float) -> None:
    """Run a case and print its row of the table."""
    outcome = "done"
    # The first run loads the kernels, and the second one counts.
    for _ in range(2):
        with watched(limit) as watch:
            try:
                task()
            except KeyboardInterrupt:
                outcome = "stopped"
            except Exception as error:
                outcome = f"{type(error).__name__}: {str(error)[:40]}"
            else:
                outcome = "done" if watch.pressed == np.inf else "stopped"
            end = time.perf_counter()
    delay = max(0.0, end - watch.pressed)
    print(
        f"| {name} | {1e3 * watch.longest:.0f} | "
        f"{1e3 * watch.longest_used:.0f} | {watch.line_after} | "
        f"{1e3 * delay:.0f} | {end - watch.begin:.1f} | {outcome} |",
        flush=True,
    )


def regression(
    loss: Any,
    domain: Any,
    num_records: int,
    dim: int,
    *,
    distance: float,
    seed: int = 1,
) -> dps.Problem:
    """Responses of a parameter ``far`` from the center: the mode is on the boundary."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    margins = rows @ np.full(dim, distance / np.sqrt(dim))
    margins += 0.1 * rng.standard_normal(num_records)
    if loss.name in ("logistic", "hinge", "smoothed_hinge"):
        response = np.where(margins > 0.0, 1.0, -1.0)
        return dps.Problem(rows, response, loss=loss, domain=domain, row_bound=1.0)
    bound = float(np.abs(margins).max())
    return dps.Problem(
        rows, margins, loss=loss, domain=domain, row_bound=1.0, response_bound=bound
    )


def badly_scaled(dim: int = 30) -> dps.Problem:
    """Logistic records whose columns differ by ten orders of magnitude."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((2_000, dim)) * np.logspace(0.0, -10.0, dim)
    rows /= np.linalg.norm(rows, axis=1).max()
    response = np.where(rng.random(len(rows)) < 0.5, 1.0, -1.0)
    return dps.Problem(
        rows, response, loss=L.Logistic(), domain=D.Ball(1.0), row_bound=1.0
    )


def releases(small: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Releases of the instances that once did not return."""
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    n, big = (2_000, 20_000) if small else (28_000, 180_000)

    def one(problem: dps.Problem, **options: Any) -> Callable[[], Any]:
        return lambda: dps.release(problem, budget, seed=1, **options)

    for loss in (L.Quantile(0.9), L.Absolute()):
        for domain in (D.Ball(1.0), D.Box(-0.5, 0.5)):
            problem = regression(loss, domain, n, 10, distance=3.0)
            yield f"release {loss.name} {domain.name} edge", one(problem)
    wide = regression(L.Logistic(), D.Ball(40.0), big, 34, distance=3.0)
    yield f"release logistic R=40, {big} x 34", one(wide)
    huge = regression(L.Logistic(), D.Ball(1e8), n, 5, distance=3.0)
    yield "release logistic R=1e8", one(huge)
    huge = regression(L.Absolute(), D.Ball(1e8), n, 5, distance=3.0)
    yield "release absolute R=1e8", one(huge)


def chains_of(small: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every sampler on large targets, and a proximal chain on bad scales."""
    target = dps.Gibbs(badly_scaled(), k=1e6, mu=1e-4)

    def one(target: Any, sampler: Any, num_draws: int) -> Callable[[], Any]:
        return lambda: dps.sample(
            target,
            sampler=sampler,
            num_draws=num_draws,
            num_chains=2,
            progress=False,
            seed=1,
        )

    yield "sample Proximal, bad scales", one(target, samplers.Proximal(), 1_000)
    n = 2_000 if small else 60_000
    problems = [
        regression(L.Logistic(), D.Ball(2.0), n, 20, distance=1.0),
        regression(L.Absolute(), D.Box(-0.5, 0.5), n, 20, distance=3.0),
        regression(L.Hinge(), D.Ball(1.0), n, 3, distance=1.0),
        regression(L.Absolute(), D.Simplex(), n, 20, distance=0.5),
    ]
    targets = [dps.Gibbs(problem, k=0.02 * n, mu=0.1) for problem in problems]
    for kind in public_samplers():
        for target in targets:
            if kind().supports(target)[0]:
                problem = target.problem
                name = f"{problem.loss.name} {problem.domain.name} d={problem.dim}"
                yield f"sample {kind.__name__}, {name}", one(target, kind(), 10**6)


def descents(small: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every optimizer that works without an argument or with few."""
    from dpsample import optimizers

    n = 2_000 if small else 60_000
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    smooth = regression(L.Logistic(), D.Ball(2.0), n, 20, distance=1.0)
    kinked = regression(L.Absolute(), D.Ball(1.0), n, 20, distance=3.0)
    few = {"num_steps": 1_000, "clip": 1.0, "ridge": 1.0, "sampling_rate": 0.1}
    for name in optimizers.__all__:
        kind = getattr(optimizers, name)
        if not isinstance(kind, type) or not hasattr(kind, "recipe"):
            continue
        fields = getattr(kind, "__dataclass_fields__", {})
        needed = {k: few[k] for k in fields if k in few}
        long = {"num_steps": 10**5} if "num_steps" in fields else {}
        for options in ({}, needed, needed | long):
            try:
                optimizer = kind(**options)
                plan_minimization(smooth, optimizer, budget, "exact", seeded=True)
            except (TypeError, ValueError) as error:
                del error
                continue
            yield (
                f"minimize {name} {options or ''}",
                lambda o=optimizer: dps.minimize(smooth, o, budget, seed=1),
            )
        try:
            plain = kind()
            plan_minimization(kinked, plain, budget, "exact", seeded=True)
        except (TypeError, ValueError):
            continue
        yield (
            f"minimize {name}, absolute",
            lambda o=plain: dps.minimize(kinked, o, budget, seed=1),
        )


def others(small: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Noise, warm-up of the cache, bounds of total variation."""
    del small
    from dpsample.api import warm

    rng = np.random.default_rng(0)
    size = (1_000_000, 10)
    yield (
        "noise generalized_gaussian",
        lambda: dps.noise.generalized_gaussian(rng, size=size, r=3.0),
    )
    yield (
        "noise schatten_gaussian",
        lambda: dps.noise.schatten_gaussian(rng, size=(200_000, 3, 4), r=3.0),
    )
    yield "noise k_norm", lambda: dps.noise.k_norm(rng, size=size, domain=D.Ball(1.0))
    yield "warm", warm.warm


def main() -> None:
    """Measure all cases whose name contains the text of --only."""
    # If Ctrl-C interrupted this import, the module would stay broken.
    import xarray  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| case | longest ms | of it CPU | where | Ctrl-C ms | seconds | outcome |")
    print("|---|---|---|---|---|---|---|")
    for family in (releases, chains_of, descents, others):
        for name, task in family(options.small):
            if options.only in name:
                measure(name, task, options.limit)


if __name__ == "__main__":
    main()
