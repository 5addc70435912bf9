"""Memory and time of a release by numbers of records and of coefficients.

    python benchmarks/memory.py --records 1e4,1e5,1e6 --dims 20 --kinds float32,csr
    python benchmarks/memory.py --records 5e7 --kinds float32 --folder DIR --workers 2

Each row of the table has a process of its own. A small release compiles, the records
are generated, and the peak resident size is reset (Linux only). Then `Problem`,
`release` and a non-private fit with the same passes over the records are timed. Columns
of the table:

- ``peak``: rise of the resident size, over the size of features and response.
- ``resident_mb``: largest resident size of the process, in megabytes. With
  ``--workers`` those of the Dask workers follow, which read the files of the folder.
- ``*_s``, ``*_cpu``: wall seconds, and CPU seconds of all processes.
- ``theta``: digest of the coefficients. Storage backends with equal digests gave the
  same bits.

At the end are log-log slopes of seconds from each row to the next.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

import dpsample as dps
from dpsample.core.pauses import single_threaded_blas
from dpsample.problem.records import block_size
from dpsample.samplers.localized import mode

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
# Number of records that are generated at once.
CHUNK = 2**16
# Largest dimension of a release, which needs square matrices of this size. Problems
# with more coefficients are minimized by so many steps of NoisyGD.
MAX_DIM = 5000
NUM_STEPS = 20
# Without these limits in bytes, which are those of docs/how-to/large-records.md,
# workers return the memory of every array to Linux, and get it back at once.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "33554432"}
# Number of entries of a sparse row.
NONZERO = 20


def resident(field: str) -> float:
    """Return the resident bytes, now (VmRSS) or at the peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024.0 * next(int(s.split()[1]) for s in lines if s.startswith(field))


def fill(features: Any, response: Any) -> None:
    """Fill arrays with rows in the unit ball and labels of a logistic model."""
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


def sparse_records(num_records: int, dim: int) -> tuple[Any, Any]:
    """Return sparse rows in the unit ball and their labels."""
    from scipy import sparse

    few, response = np.empty((num_records, NONZERO)), np.empty(num_records)
    fill(few, response)
    columns = np.random.default_rng(1).integers(0, dim, few.shape)
    columns[:, :2] = 0, 1  # every row has these two features
    starts = np.arange(0, few.size + 1, NONZERO)
    rows = sparse.csr_matrix((few.ravel(), columns.ravel(), starts), (num_records, dim))
    rows.sum_duplicates()
    # Entries of the same column were added, which can make a row longer.
    rows *= 0.5
    return rows, response


def problem_of(features: Any, response: Any) -> dps.Problem:
    """Return a problem of logistic regression on the unit ball."""
    return dps.Problem(
        features,
        response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )


def make_records(
    num_records: int, dim: int, dtype: str, folder: str
) -> tuple[Any, Any]:
    """Return records in memory, or in files of a folder, which are mapped to memory."""
    if dtype == "csr":
        return sparse_records(num_records, dim)
    if not folder:
        features, response = np.empty((num_records, dim), dtype), np.empty(num_records)
        fill(features, response)
        return features, response
    kind = f"{num_records}-{dim}-{dtype}"
    paths = [Path(folder) / f"{name}-{kind}" for name in ("features", "response")]
    shapes = ((num_records, dim), (num_records,))
    if not paths[0].exists():
        arrays = [
            np.memmap(path, dtype, "w+", shape=shape)
            for path, shape in zip(paths, shapes, strict=True)
        ]
        fill(*arrays)
    features, response = (
        np.memmap(path, dtype, "r", shape=shape)
        for path, shape in zip(paths, shapes, strict=True)
    )
    return features, response


def read(mapped: Any, start: int, stop: int) -> Any:
    """Read rows of a file, in the worker that uses them."""
    width = mapped["shape"][1:]
    offset = start * math.prod(width) * np.dtype(mapped["dtype"]).itemsize
    count = (stop - start) * math.prod(width)
    rows = np.fromfile(mapped["path"], mapped["dtype"], count, offset=offset)
    return rows.reshape(-1, *width)


def on_workers(mapped: Any, dim: int) -> Any:
    """Return a mapped file as a Dask array, in partitions of whole blocks."""
    from dask import array, delayed

    facts = {"path": mapped.filename, "shape": mapped.shape, "dtype": mapped.dtype}
    parts, size = [], 64 * block_size(dim)
    for start in range(0, len(mapped), size):
        stop = min(start + size, len(mapped))
        part = delayed(read)(facts, start, stop)
        shape = (stop - start, *mapped.shape[1:])
        parts.append(array.from_delayed(part, shape, mapped.dtype))
    return array.concatenate(parts)


def begun() -> float:
    """Reset the peak of this process, and return the bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


@contextmanager
def everywhere(workers: int) -> Iterator[Any]:
    """Yield a function that calls another one here and in the workers."""
    if not workers:
        yield lambda function: [function()]
        return
    from distributed import Client, LocalCluster

    # Workers inherit the environment, and the C library reads it when they start.
    os.environ.update(MALLOC)
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
        yield lambda function: [function(), *client.run(function).values()]


def draw(problem: dps.Problem) -> tuple[Any, str]:
    """Return private coefficients, and the method that was used."""
    if problem.dim > MAX_DIM:
        steps = dps.optimizers.NoisyGD(num_steps=NUM_STEPS)
        fit = dps.minimize(problem, steps, BUDGET, seed=1)
        return fit.theta, f"{NUM_STEPS} steps of NoisyGD"
    answer = dps.release(problem, BUDGET, seed=1)
    return answer.theta, str(answer.nonprivate_diagnostics["method"])


def fit(problem: dps.Problem) -> None:
    """Minimize the risk without privacy, by the passes with which a release begins."""
    target = dps.calibrate(problem, BUDGET).target(problem)
    with single_threaded_blas():
        assert mode.find(target, 0.0) is not None


def one(
    num_records: int, dim: int, kind: str, folder: str, workers: int
) -> dict[str, Any]:
    """Return a row of the table, for one size."""
    # These calls compile, so that no compilation is measured below.
    if kind == "csr":
        draw(problem_of(*make_records(3000, dim, kind, "")))
    for small in ("float32", "float64"):
        for size in (3000, 60_000):  # one chunk, and more
            dps.release(problem_of(*make_records(size, 20, small, "")), BUDGET)
    features, response = make_records(num_records, dim, kind, folder)
    parts = [features] if kind != "csr" else [features.data, features.indices]
    num_bytes = sum(part.nbytes for part in parts) + response.nbytes
    with everywhere(workers) as call:
        if workers:
            features, response = on_workers(features, dim), on_workers(response, dim)
        before = call(begun)
        clocks = [(time.perf_counter(), sum(call(time.process_time)))]
        problem = problem_of(features, response)
        clocks.append((time.perf_counter(), sum(call(time.process_time))))
        theta, method = draw(problem)
        clocks.append((time.perf_counter(), sum(call(time.process_time))))
        after = call(lambda: resident("VmHWM"))
        is_fitted = method == "rejection"
        if is_fitted:
            fit(problem)
        clocks.append((time.perf_counter(), sum(call(time.process_time))))
    row = {"n": num_records, "dim": dim, "kind": kind, "given_mb": num_bytes / 1e6}
    row |= {"home": "dask" if workers else "file" if folder else "memory"}
    row |= {"peak": round((after[0] - before[0]) / num_bytes, 3)}
    row |= {"resident_mb": [round(peak / 1e6) for peak in after]}
    row |= {"method": method}
    for i, name in enumerate(("problem", "release", "fit")[: 2 + is_fitted]):
        start, stop = clocks[i : i + 2]
        row[f"{name}_s"] = round(stop[0] - start[0], 3)
        row[f"{name}_cpu"] = round(stop[1] - start[1], 3)
    row["theta"] = hashlib.sha256(theta.tobytes()).hexdigest()[:12]
    row["load"] = round(os.getloadavg()[0], 1)
    return row


def slopes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield exponents of seconds between rows that differ in one size."""
    for axis, other in (("n", "dim"), ("dim", "n")):
        ordered = sorted(rows, key=lambda row: (row["kind"], row[other], row[axis]))
        for a, b in pairwise(ordered):
            if a["kind"] == b["kind"] and a[other] == b[other]:
                log_ratio = math.log(b[axis] / a[axis])
                rise = {
                    name: round(math.log(b[name] / a[name]) / log_ratio, 2)
                    for name in ("problem_s", "release_s", "problem_cpu", "release_cpu")
                }
                where = f"{a['kind']}, {other} = {a[other]}"
                yield f"{where}: {axis} from {a[axis]:g} to {b[axis]:g}: {rise}"


def main() -> None:
    """Print the table and the slopes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", default="10000,100000,1000000")
    parser.add_argument("--dims", default="20")
    parser.add_argument("--kinds", default="float64,float32", help="or csr")
    parser.add_argument("--folder", default="", help="for files; left as they are")
    parser.add_argument("--workers", type=int, default=0, help="of Dask, on the files")
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    if options.workers and not options.folder:
        parser.error("--workers read files: name a --folder.")
    sizes = [int(float(size)) for size in options.records.split(",")]
    dims = [int(float(size)) for size in options.dims.split(",")]
    kinds, rows = options.kinds.split(","), []
    if options.one:
        print(
            json.dumps(
                one(sizes[0], dims[0], kinds[0], options.folder, options.workers)
            )
        )
        return
    for kind, dim, size in product(kinds, dims, sizes):
        words = ["--one", "--records", str(size), "--dims", str(dim), "--kinds", kind]
        words += ["--folder", options.folder, "--workers", str(options.workers)]
        run = [sys.executable, __file__, *words]
        output = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True)
        print(output.stdout.strip(), flush=True)
        rows.append(json.loads(output.stdout))
    print(*slopes(rows), sep="\n")


if __name__ == "__main__":
    main()
