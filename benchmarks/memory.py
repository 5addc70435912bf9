"""Memory and time of a release by number of records: python benchmarks/memory.py.

Each row is a process of its own: a small release compiles, then the records are made,
then peak resident size is reset (Linux), and `Problem` and `release` are timed. Peak
above what was resident before, over the size of features and response as given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
CHUNK = 2**16


def resident(field: str) -> float:
    """Bytes of VmRSS or VmHWM."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024.0 * next(int(s.split()[1]) for s in lines if s.startswith(field))


def fill(features: Any, response: Any) -> None:
    """Rows in the unit ball and logistic labels, in place."""
    rng = np.random.default_rng(0)
    dim = features.shape[1]
    theta = np.ones(dim) / np.sqrt(dim)
    for start in range(0, len(features), CHUNK):
        part = slice(start, start + CHUNK)
        rows = rng.standard_normal(features[part].shape)
        rows *= 0.99 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        chance = 1.0 / (1.0 + np.exp(-5.0 * rows @ theta))
        features[part] = rows
        response[part] = np.where(rng.random(len(rows)) < chance, 1.0, -1.0)


def problem_of(features: Any, response: Any) -> dps.Problem:
    """Logistic regression on the unit ball."""
    return dps.Problem(
        features,
        response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )


def one(num_records: int, dim: int, dtype: str) -> dict[str, Any]:
    """Peak and seconds of one size."""
    for small in ("float32", "float64"):
        rows, labels = np.empty((3000, dim), small), np.empty(3000)
        fill(rows, labels)
        dps.release(problem_of(rows, labels), BUDGET)
    features, response = np.empty((num_records, dim), dtype), np.empty(num_records)
    fill(features, response)
    given = features.nbytes + response.nbytes
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, begin = resident("VmRSS"), time.process_time()
    problem = problem_of(features, response)
    built = time.process_time()
    after = resident("VmHWM")
    answer = dps.release(problem, BUDGET, seed=1)
    done = time.process_time()
    return {
        "n": num_records,
        "dim": dim,
        "dtype": dtype,
        "given_mb": given / 1e6,
        "problem_peak": (after - before) / given,
        "peak": (resident("VmHWM") - before) / given,
        "problem_cpu": built - begin,
        "release_cpu": done - built,
        "method": answer.nonprivate_diagnostics["method"],
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", default="10000,100000,1000000")
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--one", action="store_true")
    given = parser.parse_args()
    sizes = [int(float(each)) for each in given.records.split(",")]
    dtypes = given.dtypes.split(",")
    if given.one:
        print(json.dumps(one(sizes[0], given.dim, dtypes[0])))
        return
    for dtype in dtypes:
        for size in sizes:
            words = ["--one", "--records", str(size), "--dim", str(given.dim)]
            words += ["--dtypes", dtype]
            run = [sys.executable, __file__, *words]
            found = subprocess.run(run, check=True, capture_output=True, text=True)
            print(found.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
