"""Releases per minute and exact draws per second: python benchmarks/throughput.py.

Calls are warm: one of each before the clock compiles. Wall time is that of the machine
with all its other work; CPU time is this process's own, so 60 / CPU seconds per release
is what an idle processor does in a minute. `--threads` is for releases, and says how
many processes share the same seeds, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def fastest(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Least wall and CPU seconds of a warm call."""
    call()
    times = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*times, strict=True)
    return min(walls), min(cpus)


def records(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """2000 fresh records with five columns."""
    rows = rng.standard_normal((2000, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 + 1e-12)
    chance = 1.0 / (1.0 + np.exp(-3.0 * rows[:, 0]))
    return rows, np.where(rng.random(2000) < chance, 1.0, -1.0)


def fresh_releases(
    problem: dps.Problem, seeds: Sequence[np.random.SeedSequence]
) -> np.ndarray:
    """Thetas of one release for each seed, of records of its own."""
    options = {"seed": seeds, "threads": 1, "data": records}
    return dps.replicate(
        dps.release, problem, BUDGET, num_replicates=len(seeds), **options
    ).thetas


def releases(number: int, threads: int, repeats: int) -> str:
    """Certified releases: logistic loss, unit l2 ball, 2000 records, d = 5."""
    data = dps.datasets.logistic(2000, 5, seed=0)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )

    def many(
        count: int, workers: int, data: Callable[..., object] | None
    ) -> Callable[[], object]:
        options = {"num_replicates": count, "threads": workers, "data": data}
        return lambda: dps.replicate(dps.release, problem, BUDGET, **options)

    def one_by_one() -> object:
        return [dps.release(problem, BUDGET) for _ in range(number)]

    fixed, fresh = 100 * number, 5 * number
    seeds = np.random.SeedSequence(0).spawn(fresh)
    parts = [seeds[i::threads] for i in range(threads)]
    lines = []
    pool = ProcessPoolExecutor(threads, mp_context=get_context("spawn"))
    for words, count, call in (
        ("fixed records, 1 thread", fixed, many(fixed, 1, None)),
        (f"fixed records, {threads} threads", fixed, many(fixed, threads, None)),
        ("fresh records, 1 thread", fresh, many(fresh, 1, records)),
        (f"fresh records, {threads} threads", fresh, many(fresh, threads, records)),
        (
            f"fresh records, {threads} processes",
            fresh,
            lambda: list(pool.map(partial(fresh_releases, problem), parts)),
        ),
        ("release, one after the other", number, one_by_one),
    ):
        wall, cpu = fastest(call, repeats)
        lines.append(
            f"{words}: {60.0 * count / wall:.0f} per minute of wall time,"
            f" {1e3 * wall / count:.3f} ms each, {1e3 * cpu / count:.3f} ms CPU"
        )
    pool.shutdown()
    return "\n  ".join(lines)


def exact_draws(number: int, repeats: int) -> str:
    """Exact draws: linear losses, unit l2 ball, 2000 records, d = 20, one thread."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = dps.Problem(
        rows,
        np.ones(2000),
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0 + 1e-9,
    )
    target = dps.calibrate(problem, BUDGET).target(problem)
    sampler = dps.samplers.Exact()

    def draw() -> object:
        return dps.sample(
            target,
            sampler=sampler,
            num_draws=number,
            num_chains=1,
            threads=1,
            progress=False,
        )

    wall, cpu = fastest(draw, repeats)
    return (
        f"sample, {number} draws: {number / wall:.0f} per second of wall time,"
        f" {number / cpu:.0f} per second of CPU"
    )


def main() -> None:
    """Print both lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--draws", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for part, words in (
        (releases, (options.releases, options.threads, options.repeats)),
        (exact_draws, (options.draws, options.repeats)),
    ):
        print(f"{part.__doc__}\n  {part(*words)}", flush=True)


if __name__ == "__main__":
    main()
