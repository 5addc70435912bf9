"""Numbers of the core, one line each: python benchmarks/core.py [--only NAME].

Set DPSAMPLE_DATA to the folder of public data sets for the a9a line.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dpsample as dps
from dpsample.api.warm import public_samplers
from dpsample.running import chains

TIGHT = 1e-12


def logistic_data(num_records: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the unit ball, labels of a logistic model with coefficients of norm 3."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= rng.random((num_records, 1)) ** (1.0 / dim)
    theta = rng.standard_normal(dim)
    theta *= 3.0 / np.linalg.norm(theta)
    labels = np.where(rng.random(num_records) < 1 / (1 + np.exp(-rows @ theta)), 1, -1)
    return rows, labels.astype(float)


def numpy_pass(rows: np.ndarray, labels: np.ndarray, repeats: int = 30) -> float:
    """Seconds of one NumPy value and gradient of the logistic risk."""
    theta = np.full(rows.shape[1], 0.1)
    best = math.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        margins = labels * (rows @ theta)
        np.logaddexp(0.0, -margins).mean()
        rows.T @ (-labels / (1.0 + np.exp(margins))) / len(labels)
        best = min(best, time.perf_counter() - begin)
    return best


def report_certified_draw(problem: dps.Problem, *, p: float = 2.0) -> str:
    """One certified draw at total variation 1e-12: steps, seconds, evaluations."""
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    target = dps.calibrate(problem, budget, p=p).target(problem)
    seconds = []
    for seed in (1, 2, 3):  # the first call compiles
        rng = np.random.default_rng(seed)
        begin = time.perf_counter()
        prepared = dps.Proximal().prepare(target, rng, gamma=TIGHT)
        middle = time.perf_counter()
        num_steps = prepared.certified_steps(TIGHT)
        state = prepared.init()
        chains.advance(prepared.runner(squeeze=True), state, rng, num_steps)
        seconds.append((middle - begin, time.perf_counter() - middle))
    setup, draw = min(seconds[1:], key=sum)
    counts = prepared.counts(state)
    return (
        f"T = {num_steps}, draw {draw:.4f} s, set-up with pilot {setup:.4f} s, "
        f"metric {prepared.metric.name}, h = {prepared.trial.step:.3g}, {counts}"
    )


def logistic() -> str:
    """Logistic, n = 10 000, d = 20, R = 1 and 3, total variation 1e-12."""
    rows, labels = logistic_data(10_000, 20)
    lines = []
    for radius in (1.0, 3.0):
        problem = dps.Problem(
            rows,
            labels,
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(radius),
            row_bound=1.0,
        )
        lines.append(f"R = {radius:g}: {report_certified_draw(problem)}")
    pass_seconds = numpy_pass(rows, labels)
    lines.append(f"one NumPy value+gradient pass: {pass_seconds * 1e6:.0f} us")
    return "\n  ".join(lines)


def hinge() -> str:
    """Hinge, n = 10 000, d = 20, R = 5, total variation 1e-12."""
    rows, labels = logistic_data(10_000, 20)
    problem = dps.Problem(
        rows,
        labels,
        loss=dps.losses.Hinge(),
        domain=dps.domains.Ball(5.0),
        row_bound=1.0,
    )
    return report_certified_draw(problem)


def lp() -> str:
    """Logistic, p = 1.5 on the unit l_1.5 ball, d = 20, total variation 1e-12."""
    rows, labels = logistic_data(10_000, 20)
    problem = dps.Problem(
        rows,
        labels,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0, p=1.5),
        row_bound=1.0,
    )
    return report_certified_draw(problem, p=1.5)


def a9a() -> str:
    """Release on a9a: rows / sqrt(14), radius 3, epsilon 1, delta 1e-6."""
    # load() scales rows by the public 1 / sqrt(14)
    train = dps.datasets.load("a9a")
    test = dps.datasets.load("a9a", split="test")
    problem = dps.Problem(
        train.features,
        train.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(3.0),
        row_bound=train.row_bound,
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        answer = dps.release(problem, budget, p=2.0, sampler_share=0.1)
        seconds.append(time.perf_counter() - begin)
    dps.verify(answer.certificate)
    spent = (1.0 + math.e) * answer.certificate.gamma
    notes = answer.nonprivate_diagnostics

    def test_loss(theta: np.ndarray) -> float:
        margins = test.response * (test.features @ theta)
        return float(np.logaddexp(0.0, -margins).mean())

    return (
        f"{seconds[-1]:.3f} s warm, (1+e)gamma = {spent:.3g}, by {notes['method']},"
        f" {notes['counts']}\n"
        f"  log-loss on a9a.t: private {test_loss(answer.theta):.4f}, "
        f"not private {test_loss(notes['non_private_theta']):.4f}"
    )


def startup() -> str:
    """CPU seconds of imports and of a first release in a new process, warm cache."""
    script = (
        "import time\nimport dpsample as dps\n"
        "data = dps.datasets.logistic(200, 3, seed=0)\n"
        "problem = dps.Problem(data.features, data.response, row_bound=1.0,\n"
        "    loss=dps.losses.Logistic(), domain=dps.domains.Ball(1.0))\n"
        "dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6))\n"
        "print(time.process_time())\n"
    )
    clock = "import time, {0}; print(time.process_time())"

    def cpu(code: str) -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, capture_output=True, check=True).stdout)

    with tempfile.TemporaryDirectory() as cache:
        os.environ["NUMBA_CACHE_DIR"] = cache
        cold = cpu(script)
        files = sum(path.is_file() for path in Path(cache).rglob("*"))
        warm = min(cpu(script) for _ in range(3))
        new = sum(path.is_file() for path in Path(cache).rglob("*")) - files
    numba = min(cpu(clock.format("numba")) for _ in range(5))
    ours = min(cpu(clock.format("dpsample")) for _ in range(5))
    return (
        f"import numba {numba:.2f} s, import dpsample {ours:.2f} s; first release cold "
        f"{cold:.1f} s, warm {warm:.2f} s CPU with {new} new cache files"
    )


def samplers() -> str:
    """CPU seconds to a first draw, and to a finished tree, in new warm processes."""
    script = (
        "import time\nimport dpsample as dps\nfrom dpsample.running import chains\n"
        "run, first = chains.run, []\n"
        "def timed(*args, **options):\n"
        "    made = run(*args, **options)\n"
        "    first.append(time.process_time())\n"
        "    return made\n"
        "chains.run = timed\n"
        "data = dps.datasets.logistic(200, 3, seed=0)\n"
        "problem = dps.Problem(data.features, data.response, row_bound=1.0,\n"
        "    loss=dps.losses.Logistic(), domain=dps.domains.Ball(1.0))\n"
        "dps.sample(dps.Gibbs(problem, k=20.0, mu=0.5), num_draws=1, num_warmup=0,\n"
        "    num_chains=1, sampler=dps.samplers.{0}(), progress=False)\n"
        "print(first[0], time.process_time())\n"
    )
    rows = []
    for kind in public_samplers():
        command = [sys.executable, "-c", script.format(kind.__name__)]
        runs = []
        for _ in range(3):  # the first fills the cache if it is cold
            printed = subprocess.run(command, capture_output=True, check=True).stdout
            runs.append([float(number) for number in printed.split()])
        draw, tree = (min(column) for column in zip(*runs, strict=True))
        rows.append(f"{kind.__name__}: {draw:.2f} s, tree {tree:.2f} s")
    return "\n  ".join(rows)


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part for part in (logistic, hinge, lp, a9a, startup, samplers)
}


def main() -> None:
    """Print every part, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    only = parser.parse_args().only
    for name, part in PARTS.items():
        if only in (None, name):
            print(f"{name}: {part.__doc__}\n  {part()}", flush=True)


if __name__ == "__main__":
    main()
