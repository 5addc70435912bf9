"""How replicates scale with threads: python benchmarks/replicates.py [--repeats 7].

DP-SGD on 10 000 records with 50 coefficients, sampling rate 0.05, 1000 steps. Times are
the least of the repeats, one thread and two in turn, so that other work on the machine
hits both.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import dpsample as dps


def main() -> None:
    """Print seconds for each number of threads and the speed-up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--replicates", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((10_000, 50))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = dps.Problem(
        rows,
        np.sign(rng.standard_normal(10_000)),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(2.0),
        row_bound=1.0 + 1e-9,
    )
    method = dps.optimizers.DPSGD(sampling_rate=0.05, num_steps=1000)
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    best: dict[int, float] = {}
    thetas = []
    for _ in range(options.repeats + 1):  # the first round compiles and calibrates
        for threads in (1, options.threads):
            begin = time.perf_counter()
            runs = dps.replicate(
                dps.minimize,
                problem,
                method,
                budget,
                num_replicates=options.replicates,
                threads=threads,
            )
            seconds = time.perf_counter() - begin
            best[threads] = min(best.get(threads, math.inf), seconds)
            thetas.append(runs.thetas)
    assert all(np.array_equal(theta, thetas[0]) for theta in thetas)
    for threads, seconds in best.items():
        seconds_per_run = seconds / options.replicates
        print(
            f"{threads} threads: {seconds:.3f} s, {1e3 * seconds_per_run:.1f} ms a run"
        )
    print(f"speed-up {best[1] / best[options.threads]:.2f}")


if __name__ == "__main__":
    main()
