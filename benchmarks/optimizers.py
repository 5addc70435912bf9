"""Speed of the gradient loop: python benchmarks/optimizers.py [--only WORD].

Warm CPU seconds of one thread, the fastest of several runs. DP-SGD is held against the
same algorithm in NumPy and as a naive loop over records in Numba, in this process, and
against JAX, JAX Privacy and Opacus, each in a process of its own under --peer-python.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import numpy as np

import dpsample as dps
from dpsample import optimizers
from dpsample.core import pauses
from dpsample.optimizers.loop.batches import Slices
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Loop, Optimizer, Recipe
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.running import descent

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
CLIP = 0.5
SIZE = 0.5
RADIUS = 5.0
PEERS = ("jax", "jax-privacy", "opacus")
PEER_FILE = Path(__file__).with_name("optimizer_peers.py")
Run = Callable[[int], np.ndarray]


def problem(num_records: int, dim: int) -> dps.Problem:
    """Logistic regression on rows of norm 1 over a ball."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.linalg.norm(rows, axis=1)[:, None] * (1.0 + 1e-14)
    labels = np.where(rng.random(num_records) < 1 / (1 + np.exp(-rows.sum(1))), 1.0, -1)
    return dps.Problem(
        rows,
        labels,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(RADIUS),
        row_bound=1.0,
    )


def in_numpy(data: dps.Problem, rate: float, steps: int, stddev: float) -> Run:
    """DP-SGD as one writes it in NumPy."""
    rows, labels = data.data.dense, data.data.response
    norms, (count, dim) = np.linalg.norm(rows, axis=1), rows.shape

    def run(seed: int) -> np.ndarray:
        rng, w = np.random.default_rng(seed), np.zeros(dim)
        for _ in range(steps):
            batch = np.flatnonzero(rng.random(count) < rate)
            a, y = rows[batch], labels[batch]
            slopes = -y / (1.0 + np.exp(y * (a @ w)))
            slopes *= np.minimum(1.0, CLIP / (np.abs(slopes) * norms[batch]))
            g = slopes @ a / (rate * count) + stddev * rng.standard_normal(dim)
            w = w - SIZE * g
            w *= min(1.0, RADIUS / np.linalg.norm(w))
        return w

    return run


@numba.njit
def _naive(rng, rows, labels, rate, steps, stddev, clip, size, radius):  # type: ignore[no-untyped-def]
    count, dim = rows.shape
    w, total, g = np.zeros(dim), np.zeros(dim), np.zeros(dim)
    for _ in range(steps):
        total[:] = 0.0
        for i in range(count):
            if rng.random() >= rate:
                continue
            u = 0.0
            for j in range(dim):
                u += rows[i, j] * w[j]
            slope = -labels[i] / (1.0 + math.exp(labels[i] * u))
            square = 0.0
            for j in range(dim):
                g[j] = slope * rows[i, j]
                square += g[j] * g[j]
            factor = min(1.0, clip / math.sqrt(square))
            for j in range(dim):
                total[j] += factor * g[j]
        square = 0.0
        for j in range(dim):
            noise = stddev * rng.standard_normal()
            w[j] -= size * (total[j] / (rate * count) + noise)
            square += w[j] * w[j]
        if square > radius * radius:
            w *= radius / math.sqrt(square)
    return w


def naive(data: dps.Problem, rate: float, steps: int, stddev: float) -> Run:
    """DP-SGD as a loop over the records, per-record gradients and all."""
    fields = (rate, steps, stddev, CLIP, SIZE, RADIUS)

    def run(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return _naive(rng, data.data.dense, data.data.response, *fields)

    return run


def ours(data: dps.Problem, recipe: Recipe) -> Run:
    """Our loop, calibrated beforehand."""
    program = descent.Program(data, recipe)
    return lambda seed: program.run(np.random.default_rng(seed)).theta


def best_seconds(run: Run, repeats: int) -> float:
    """Fastest of several runs in CPU seconds of this thread, after two to warm up."""
    seconds = []
    for seed in range(repeats + 2):
        begin = time.thread_time()
        run(seed)
        seconds.append(time.thread_time() - begin)
    return min(seconds[2:])


def peer_seconds(
    python: str, peer: str, data: dps.Problem, numbers: dict[str, float]
) -> tuple[str, float, np.ndarray] | None:
    """Name, seconds per step and point of a peer, or None if it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        task, output = Path(folder) / "task.npz", Path(folder) / "out.npz"
        records = {"rows": data.data.dense, "labels": data.data.response}
        np.savez(task, numbers=json.dumps(numbers), **records)
        command = [python, "-W", "ignore", PEER_FILE, peer, task, output]
        subprocess.run(command, check=True)
        with np.load(output) as result:
            if "missing" in result:
                return None
            name = f"{peer} {result['version']}"
            return name, float(result["seconds"]), result["theta"]


def dp_sgd(python: str) -> Iterator[str]:
    """DP-SGD, n = 10 000, d = 50, q = 0.05; the losses show that all do the same."""
    data, rate, steps = problem(10_000, 50), 0.05, 400
    method = optimizers.DPSGD(
        sampling_rate=rate,
        num_steps=steps,
        clip=CLIP,
        step_size=SIZE,
        averages=False,
    )
    recipe = method.recipe(data.facts, BUDGET)
    stddev = float(recipe.inputs["noise_stddev"])
    runs = {
        "dpsample": ours(data, recipe),
        "NumPy": in_numpy(data, rate, steps, stddev),
        "naive Numba": naive(data, rate, steps, stddev),
    }
    first = 0.0

    def line(name: str, seconds: float, theta: np.ndarray) -> str:
        cost = f"{1e6 * seconds:9.1f} us/step  {seconds / first:6.2f} x"
        return f"{'DP-SGD, ' + name:42s} {cost}  loss {data.risk(theta):.4f}"

    for name, run in runs.items():
        seconds = best_seconds(run, 8) / steps
        first = first or seconds
        yield line(name, seconds, run(0))
    numbers = {"rate": rate, "stddev": stddev, "num_steps": steps}
    numbers |= {"clip": CLIP, "size": SIZE, "radius": RADIUS}
    for peer in PEERS:
        measured = peer_seconds(python, peer, data, numbers)
        if measured is None:
            yield f"DP-SGD, {peer}: not installed; see benchmarks/README.md"
        else:
            yield line(*measured)


def one_pass(python: str) -> Iterator[str]:
    """Methods that read every record once, n = 1 000 000, d = 100; no peers."""
    del python
    data = problem(1_000_000, 100)
    step = Loop(
        num_steps=data.num_records,
        step=GradientStep(1e-3),
        batches=Slices(size=1),
        estimator=ClippedMean(threshold=CLIP),
    )
    recipes = {
        "one record a step": Recipe(phases=(step,), event=None, inputs={}),
        "PhasedSGD": optimizers.PhasedSGD().recipe(data.facts, BUDGET),
        "AcceleratedClippedSGD": optimizers.AcceleratedClippedSGD(
            scheme="disjoint"
        ).recipe(data.facts, BUDGET),
        "IteratedAcceleratedClippedSGD": optimizers.IteratedAcceleratedClippedSGD(
            scheme="disjoint"
        ).recipe(data.facts, BUDGET),
        "LocalizedClippedGD (many passes)": optimizers.LocalizedClippedGD().recipe(
            data.facts, BUDGET
        ),
    }
    for name, recipe in recipes.items():
        program = descent.Program(data, recipe)
        count = program.run(np.random.default_rng(0)).num_gradients
        seconds = best_seconds(ours(data, recipe), 2)
        passes = count / data.num_records
        yield f"{name:42s} {seconds:9.2f} s        {passes:6.2f} passes"


def heavy_tailed(python: str) -> Iterator[str]:
    """Time whole fits of Table 1 of Xie et al., p = 50, T = 5 n^2/m^2; no peers."""
    del python
    data = dps.datasets.heavy_tailed_regression(10_000, 50, seed=1, degrees=3.0)

    def task_of(loss: dps.losses.Loss, radius: float, p: float) -> dps.Problem:
        return dps.Problem(
            data.features,
            data.response,
            loss=loss,
            domain=dps.domains.Ball(radius, p=p),
            row_bound=data.row_bound,
            row_norm=data.row_norm,
            response_bound=math.inf,
        )

    huber = task_of(dps.losses.Huber(1.0), 10.0, 2.0)
    squares = task_of(dps.losses.Squared(), 10.0, 1.0)
    lasso = {"l1": 0.03, "smoothness": 1.3}
    robust = optimizers.PrivateProximalSGD
    few, many = {"batch_size": 10_000 // 6, "num_steps": 180}, {"num_steps": 5}
    methods = {  # with the seconds of the paper
        "ProximalSGD": (huber, optimizers.ProximalSGD(**lasso), None),
        "DP-SPGD": (huber, robust(threshold=5.0, **few, **lasso), 31.2866),
        "DP-SPGD(K)": (
            huber,
            robust(estimator="bucketed_median", **many, **lasso),
            20.1467,
        ),
        "DP-SPGD(H)": (huber, robust(estimator="catoni", **many, **lasso), 28.8785),
        "HTP-LASSO": (squares, optimizers.HeavyTailedLasso(entry_bound=3.0), 202.944),
        "HTDP-FW": (
            squares,
            optimizers.HeavyTailedFrankWolfe(moment_bound=15.0, smoothness=1.0),
            1.5017,
        ),
    }
    for name, (records, method, printed) in methods.items():
        budget = None if name == "ProximalSGD" else BUDGET

        def run(
            seed: int,
            records: dps.Problem = records,
            method: Optimizer = method,
            budget: dps.Budget | None = budget,
        ) -> object:
            return dps.minimize(records, method, budget, seed=seed)

        paper = "" if printed is None else f", {printed:g} s in the paper"
        yield f"{name:42s} {best_seconds(run, 3):9.4f} s per fit{paper}"


GROUPS = {"dp_sgd": dp_sgd, "one_pass": one_pass, "heavy_tailed": heavy_tailed}


def main() -> None:
    """Print the lines of the chosen groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(GROUPS), default=None)
    parser.add_argument("--peer-python", default=sys.executable)
    options = parser.parse_args()
    with pauses.single_threaded_blas():
        for name, group in GROUPS.items():
            if options.only in (None, name):
                for line in group(options.peer_python):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
