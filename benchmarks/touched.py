"""What draws of FactorizedMetropolis read of a file: python benchmarks/touched.py.

    python benchmarks/touched.py --records 1e5,1e6 --folder DIR

Each row is a process of its own; files are those of `benchmarks/memory.py`. The chain
is set up by passes. Then the mapped records are dropped from memory (Linux) and the
draws are timed: ``records`` are tried, ``pages`` are page faults, ``kilobytes`` come
from the disk, all per draw. TMPDIR says where the mapped copies are.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import memory
import numpy as np

import dpsample as dps
from dpsample.core.pauses import single_threaded_blas
from dpsample.core.streams import streams
from dpsample.samplers.chain import NUM_STATS, STAT


def drop(columns: list[Any]) -> None:
    """Have mapped columns on the disk alone."""
    for column in columns:
        if isinstance(column.base, np.memmap):
            column.base._mmap.flush()
            # MADV_PAGEOUT, which Python has no name for.
            column.base._mmap.madvise(21)


def bytes_read() -> int:
    """Bytes that this process had from a disk."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def one(num_records: int, dim: int, num_draws: int, folder: str) -> dict[str, Any]:
    """Cost of the draws from one file."""
    sampler = dps.samplers.FactorizedMetropolis(step_size=1.0)
    for size, directory in ((3000, ""), (10**5, folder), (num_records, folder)):
        features, response = memory.make_records(size, dim, "float32", directory)
        begin = time.perf_counter(), time.process_time()
        problem = memory.problem_of(features, response)
        target = dps.Gibbs(problem, k=float(size), mu=1.0 / size)
        prepared = sampler.prepare(target, np.random.default_rng(0))
        state, run = prepared.init(), prepared.runner()
        draws, stats = np.empty((num_draws, dim)), np.empty((num_draws, NUM_STATS))
        run(state, streams(0, 1)[0], draws[:10], stats[:10])
        ready = time.perf_counter(), time.process_time()
    drop([target.data.dense, target.data.response, prepared.plan.records])
    read, before = bytes_read(), resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter(), time.process_time()
    run(state, streams(1, 1)[0], draws, stats)
    stop = time.perf_counter(), time.process_time()
    after = resource.getrusage(resource.RUSAGE_SELF)
    faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
    return {
        "n": num_records,
        "setup_s": round(ready[0] - begin[0], 2),
        "setup_cpu": round(ready[1] - begin[1], 2),
        "peak_mb": round(memory.resident("VmHWM") / 1e6),
        "draw_us": round(1e6 * (stop[0] - start[0]) / num_draws, 1),
        "draw_cpu_us": round(1e6 * (stop[1] - start[1]) / num_draws, 1),
        "records": round(float(stats[:, STAT.num_records].mean()), 2),
        "pages": round(faults / num_draws, 2),
        "kilobytes": round((bytes_read() - read) / num_draws / 1e3, 2),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", default="1e5,1e6")
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--folder", required=True, help="for files; left as they are")
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    sizes = [int(float(size)) for size in options.records.split(",")]
    if options.one:
        with single_threaded_blas():
            print(json.dumps(one(sizes[0], options.dim, options.draws, options.folder)))
        return
    for size in sizes:
        words = ["--one", "--records", str(size), "--dim", str(options.dim)]
        words += ["--draws", str(options.draws), "--folder", options.folder]
        subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
