"""Calls that `paired` measures in a process of one version of the package.

``python benchmarks/paired_calls.py NAME ...`` prints the least CPU seconds of each call
whose name begins with one of these, and the peak memory of a release in megabytes.
"""

import json
import resource
import sys
import time
import warnings

import numpy as np

import dpsample as dps

budget = dps.Budget(epsilon=1.0, delta=1e-6)


def problem_of(num_records, dim, *, loss=None, p=2.0, radius=1.0, row_norm=2.0):
    """Return a logistic model of synthetic records in a ball."""
    data = dps.datasets.logistic(num_records, dim, seed=0)
    rows = data.features
    rows = rows / np.maximum(1.0, np.linalg.norm(rows, row_norm, axis=1))[:, None]
    return dps.Problem(
        rows,
        data.response,
        loss=loss or dps.losses.Logistic(),
        row_norm=row_norm,
        domain=dps.domains.Ball(radius, p=p),
        row_bound=1.0 + 1e-9,
    )


def chain(problem, sampler, num_draws):
    """Return the call that draws one chain of a release's density."""
    target = dps.calibrate(problem, budget).target(problem)
    options = {"num_draws": num_draws, "num_chains": 1, "threads": 1}
    return lambda: dps.sample(
        target, sampler=sampler, seed=1, progress=False, **options
    )


def descent(problem, optimizer):
    """Return the call of an optimizer."""
    return lambda: dps.minimize(problem, optimizer, budget, seed=1)


def measure(name, call):
    """Print the least CPU seconds of a call, which is compiled before."""
    call()
    best, end = np.inf, time.process_time() + 0.5
    while time.process_time() < end:
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    print(json.dumps([name, best]), flush=True)


def measure_memory(name):
    """Print the peak memory of this process after a large release."""
    dps.release(problem_of(200_000, 20), budget, seed=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000.0
    print(json.dumps([name, peak]), flush=True)


def calls():
    """Return the calls by their names."""
    samplers, optimizers = dps.samplers, dps.optimizers
    small, middle = problem_of(2000, 5), problem_of(10_000, 20, radius=3.0)
    linear = problem_of(2000, 20, loss=dps.losses.Linear())
    hinge = problem_of(2000, 5, loss=dps.losses.Hinge())
    return {
        "release, n = 2000, d = 5": lambda: dps.release(small, budget, seed=1),
        "release, n = 10 000, d = 20": lambda: dps.release(middle, budget, seed=1),
        "release, hinge": lambda: dps.release(hinge, budget, seed=1),
        "replicate release, 200 of fixed records": lambda: dps.replicate(
            dps.release, small, budget, num_replicates=200, seed=1, threads=1
        ),
        "sample BilliardHMC, 500": chain(small, samplers.BilliardHMC(), 500),
        "sample MALA, 5000": chain(small, samplers.MALA(), 5000),
        "sample HitAndRun, 5000": chain(small, samplers.HitAndRun(), 5000),
        "sample WhitenedSlice, 5000": chain(small, samplers.WhitenedSlice(), 5000),
        "sample Proximal, 50": chain(small, samplers.Proximal(), 50),
        "sample Exact, 20 000": chain(linear, samplers.Exact(), 20_000),
        "minimize NoisyGD": descent(small, optimizers.NoisyGD()),
        "minimize DPSGD": descent(
            small, optimizers.DPSGD(sampling_rate=0.1, num_steps=200)
        ),
        "minimize SVRG": descent(small, optimizers.SVRG()),
        "minimize ObjectivePerturbation": descent(
            small, optimizers.ObjectivePerturbation()
        ),
        "noise, 10 000 x 5, r = 3": lambda: dps.noise.generalized_gaussian(
            np.random.default_rng(1), size=(10_000, 5), r=3.0
        ),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    beginnings = tuple(sys.argv[1:]) or ("",)
    for name, call in calls().items():
        if name.startswith(beginnings):
            try:
                measure(name, call)
            except Exception as error:
                print(f"{name}: {error!r}", file=sys.stderr)
    if "memory".startswith(beginnings):
        measure_memory("memory of release, n = 200 000, d = 20, in MB")
