"""Memory and time of a release by number of records: python benchmarks/memory.py.

Each row is a process of its own: a small release compiles, the records are made, the
peak resident size is reset (Linux), then `Problem`, `release` and a non-private fit by
the same passes are timed. ``peak`` is the rise of the resident size over the size of
features and response as given, ``resident_mb`` the whole process at its peak.
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
from dpsample.running.chains import single_threaded_blas
from dpsample.samplers.localized import mode

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
    theta = np.ones(dim) / (4.0 * np.sqrt(dim))
    for start in range(0, len(features), CHUNK):
        part = slice(start, start + CHUNK)
        rows = rng.standard_normal(features[part].shape)
        rows *= 0.99 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        chance = 1.0 / (1.0 + np.exp(-2.0 * rows @ theta))
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


def made(num_records: int, dim: int, dtype: str, folder: str) -> tuple[Any, Any]:
    """Make records in memory, or in files of a folder, which are mapped."""
    if not folder:
        features, response = np.empty((num_records, dim), dtype), np.empty(num_records)
        fill(features, response)
        return features, response
    kind = f"{num_records}-{dim}-{dtype}"
    paths = [Path(folder) / f"{name}-{kind}" for name in ("features", "response")]
    shapes = ((num_records, dim), (num_records,))
    if not paths[0].exists():
        both = [
            np.memmap(path, dtype, "w+", shape=shape)
            for path, shape in zip(paths, shapes, strict=True)
        ]
        fill(*both)
    features, response = (
        np.memmap(path, dtype, "r", shape=shape)
        for path, shape in zip(paths, shapes, strict=True)
    )
    return features, response


def fit(problem: dps.Problem) -> None:
    """Minimize the risk by the passes of a release: what a private draw adds to."""
    target = dps.calibrate(problem, BUDGET).target(problem)
    with single_threaded_blas():
        assert mode.find(target, 0.0) is not None


def one(num_records: int, dim: int, dtype: str, folder: str) -> dict[str, Any]:
    """Peak and seconds of one size."""
    for small in ("float32", "float64"):
        rows, labels = np.empty((3000, dim), small), np.empty(3000)
        fill(rows, labels)
        dps.release(problem_of(rows, labels), BUDGET)
    features, response = made(num_records, dim, dtype, folder)
    given = features.nbytes + response.nbytes
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident("VmRSS")
    clocks = [(time.perf_counter(), time.process_time())]
    problem = problem_of(features, response)
    clocks.append((time.perf_counter(), time.process_time()))
    answer = dps.release(problem, BUDGET, seed=1)
    clocks.append((time.perf_counter(), time.process_time()))
    after = resident("VmHWM")
    fit(problem)
    clocks.append((time.perf_counter(), time.process_time()))
    row = {"n": num_records, "dim": dim, "dtype": dtype, "given_mb": given / 1e6}
    row |= {"home": "file" if folder else "memory"}
    row |= {"peak": round((after - before) / given, 3), "resident_mb": after / 1e6}
    row |= {"method": answer.nonprivate_diagnostics["method"]}
    for i, name in enumerate(("problem", "release", "fit")):
        start, stop = clocks[i : i + 2]
        row[f"{name}_s"] = round(stop[0] - start[0], 3)
        row[f"{name}_cpu"] = round(stop[1] - start[1], 3)
    return row


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", default="10000,100000,1000000")
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--folder", default="", help="for files; left as they are")
    parser.add_argument("--one", action="store_true")
    given = parser.parse_args()
    sizes = [int(float(each)) for each in given.records.split(",")]
    dtypes = given.dtypes.split(",")
    if given.one:
        print(json.dumps(one(sizes[0], given.dim, dtypes[0], given.folder)))
        return
    for dtype in dtypes:
        for size in sizes:
            words = ["--one", "--records", str(size), "--dim", str(given.dim)]
            words += ["--dtypes", dtype, "--folder", given.folder]
            run = [sys.executable, __file__, *words]
            found = subprocess.run(run, check=True, capture_output=True, text=True)
            print(found.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
