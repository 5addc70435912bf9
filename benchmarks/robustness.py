"""Whether `dps.sample(target)` converges on targets that nobody chose for it.

    python benchmarks/robustness.py [--cells PATTERN] [--seed 0,1] [--out FILE.csv]
        [--plot FILE.png] [--limit 20] [--peers] [--peer-python PATH] [--list]

One line per cell (`robust_cells.py`): rank-normalized R-hat and bulk ESS at their worst
over theta and (theta - mean)^2, CPU seconds of the whole call with its warm-up, without
compilation, and a verdict:

ok          R-hat <= 1.01 and ESS >= 400
warned      not ok, and the call said so
SILENT      not ok, without a warning
over time   more than --limit CPU seconds; the call was interrupted
crash       it raised

A run goes on from the rows of --out that are there; the seed makes the records as well
as the draws. With --peers the same targets are given to blackjax, numpyro and nutpie
with dense or low-rank mass matrices, in the coordinates of a standard transform on l2
balls, boxes and simplices, and to hopsy, rounded and not, on polytopes.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import ours
import peers
import report
import robust_cells
import samplers
import targets
from numba.core import event

import dpsample as dps

MOST_R_HAT = 1.01
LEAST_ESS = 400.0
VERDICTS = {
    "ok": "#1b6ca8",
    "warned": "#e08e2b",
    "SILENT": "#d1495b",
    "over time": "#7a7a7a",
    "crash": "#000000",
}
PEERS = (
    "blackjax-dense",
    "numpyro-dense",
    "nutpie-low-rank",
    "hopsy",
    "hopsy-rounded",
)
FACTS = ("cell", "seed", "verdict", "r_hat", "ess", "seconds", "sampler", "num_warned")
FIELDS = (*FACTS, "message", "dim", "records", "k", "best_peer", "ratio", "peers")
# A worker that has not answered by then hangs in compiled code.
PATIENCE = 60.0
# Runs of a cell until one needs no compiler. A quick one is repeated, lest the loading
# of compiled code and libraries be counted.
TRIES = 4
QUICK = 3.0


class Compiler(event.Listener):
    """Whether the compiler is at work, and passes it made; cached code needs none."""

    def __init__(self) -> None:
        self.depth = self.num_passes = 0

    def on_start(self, started: event.Event) -> None:
        """Count."""
        self.depth += 1
        self.num_passes += started.kind == "numba:run_pass"

    def on_end(self, ended: event.Event) -> None:
        """Count."""
        self.depth -= 1


compiler = Compiler()


def interrupt(number: int, frame: Any) -> None:
    """Press Ctrl-C when the CPU time is over, which keeps the draws made so far.

    Not in the middle of LLVM, which would end the process.
    """
    if compiler.depth == 0:
        signal.raise_signal(signal.SIGINT)


def prepare_worker(parent: int) -> None:
    """Listen to the timer, to the compiler and for the end of the parent."""
    signal.signal(signal.SIGPROF, interrupt)
    # A shell lets programs in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for kind in ("numba:compiler_lock", "numba:run_pass"):
        event.register(kind, compiler)
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()


def end_with(parent: int) -> None:
    """End this process when its parent is killed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def call(target: dps.Gibbs, seed: int, limit: float) -> dict[str, Any]:
    """One default call: what it returned, said and cost."""
    result: dict[str, Any] = {"verdict": ""}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        try:
            # A second signal raises where the first one was held back.
            signal.setitimer(signal.ITIMER_PROF, limit, 1.0)
            draws = dps.sample(target, seed=seed, threads=1, progress=False)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            result["sampler"] = str(draws.attrs["sampler"])
            result["converged"] = draws.attrs.get("converged")
            result["draws"] = draws.posterior["theta"].values
            if draws.attrs["is_interrupted"]:
                result["verdict"] = "over time"
        except KeyboardInterrupt:
            result["verdict"] = "over time"
        except Exception as error:
            result["verdict"] = "crash"
            result["message"] = f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    result["seconds"] = time.process_time() - begin
    result["num_warned"] = len(caught)
    if caught and "message" not in result:
        result["message"] = str(caught[0].message)
    return result


def our_row(name: str, seed: int, limit: float) -> dict[str, Any]:
    """Row of a cell, from a call that needed no compiler; runs in the worker."""
    case = robust_cells.cells()[0][name](seed)
    row = {"dim": case.dim, "records": case.num_records, "k": f"{case.k:g}"}
    for attempt in range(TRIES):
        target = ours.gibbs(case)  # a new one, which knows no fit yet
        before = compiler.num_passes
        result = call(target, seed, limit)
        has_compiled = compiler.num_passes > before
        if not has_compiled and (attempt or result["seconds"] > QUICK):
            break
    draws, converged = result.pop("draws", None), result.pop("converged", None)
    row |= result
    if draws is not None and draws.shape[1] >= 8:
        row["r_hat"], row["ess"] = report.mixing(draws)
    if not row["verdict"]:
        is_ok = row["r_hat"] <= MOST_R_HAT and row["ess"] >= LEAST_ESS
        has_said = row["num_warned"] > 0 or converged is False
        row["verdict"] = "ok" if is_ok else "warned" if has_said else "SILENT"
    return row


class Worker:
    """A process that measures cell after cell, and is replaced if it dies or hangs."""

    def __init__(self) -> None:
        self.pool = self.start()

    @staticmethod
    def start() -> ProcessPoolExecutor:
        """Process with one thread and compiled code of its own."""
        os.environ.update({f"{name}_NUM_THREADS": "1" for name in samplers.THREADS})
        return ProcessPoolExecutor(
            1,
            mp_context=get_context("spawn"),
            initializer=prepare_worker,
            initargs=(os.getpid(),),
        )

    def row(self, name: str, seed: int, limit: float) -> dict[str, Any]:
        """Row of a cell, whatever happens to the process."""
        future = self.pool.submit(our_row, name, seed, limit)
        try:
            return future.result(timeout=TRIES * PATIENCE + 10.0 * limit)
        except Late:
            for process in list(self.pool._processes.values()):
                process.kill()
            result = {"verdict": "over time", "message": "did not react to Ctrl-C"}
        except BrokenProcessPool:
            result = {"verdict": "crash", "message": "the process died"}
        self.pool.shutdown(wait=False)
        self.pool = self.start()
        return result


def with_peers(row: dict[str, Any], case: targets.Case, options: Any) -> None:
    """Run the peers that fit a cell; ESS per CPU second, warm-up charged."""
    rates, notes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "target.npz")
        # Draws per chain of a peer with two chains: as many as four chains of ours
        # make.
        targets.save(dataclasses.replace(case, max_draws=2000), path)
        for name in (peer for peer in PEERS if peers.fits(peer, case)):
            command = [str(samplers.HERE / "peers.py"), name, str(path)]
            draws, facts = samplers.run_process(
                options.peer_python, command, options.peer_seconds
            )
            if draws is None:
                notes[name] = facts["missing"]
                continue
            r_hat, ess = report.mixing(draws)
            rates[name] = ess / (facts["cpu"] + facts["warm"])
            notes[name] = f"{rates[name]:.3g} ESS/s, R-hat {r_hat:.3f}"
    row["peers"] = json.dumps(notes)
    if rates:
        best = max(rates, key=lambda name: rates[name])
        row["best_peer"] = best
        if "ess" in row and row["verdict"] in ("ok", "warned", "SILENT"):
            row["ratio"] = row["ess"] / row["seconds"] / rates[best]


def run(options: Any) -> list[dict[str, Any]]:
    """Measure all cells that are not in the file yet, appending to it."""
    builders, missing = robust_cells.cells()
    for line in missing:
        print(f"not run: {line}")
    names = [name for name in builders if re.search(options.cells, name)]
    rows = read(options.out)
    done = {(row["cell"], int(row["seed"])) for row in rows}
    todo = [(s, n) for s in options.seed for n in names if (n, s) not in done]
    selection = {(name, seed) for seed in options.seed for name in names}
    rows = [row for row in rows if (row["cell"], int(row["seed"])) in selection]
    worker = Worker() if todo else None
    for position, (seed, name) in enumerate(todo, 1):
        row = {"cell": name, "seed": seed} | worker.row(name, seed, options.limit)
        if options.peers:
            with_peers(row, builders[name](seed), options)
        rows.append({field: row.get(field, "") for field in FIELDS})
        append(options.out, rows[-1])
        print(f"{position:4}/{len(todo)}  {line_of(rows[-1])}", flush=True)
    if worker:
        worker.pool.shutdown()
    return rows


def read(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: dict[str, Any]) -> None:
    """Write a row, and the names of the columns before the first one."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def number(row: dict[str, Any], field: str) -> float:
    """Return a number of a row, NaN if it is missing."""
    return float(row[field]) if row[field] != "" else np.nan


def line_of(row: dict[str, Any]) -> str:
    """Row as words."""
    sampler = str(row["sampler"]).split("(")[0]
    words = f"{row['verdict']:9}  {row['cell']:42} {sampler:20}"
    words += f" R-hat {number(row, 'r_hat'):6.3f}  ESS {number(row, 'ess'):7.0f}"
    words += f"  {number(row, 'seconds'):7.2f} s"
    if row["ratio"] != "":
        words += f"  {number(row, 'ratio'):8.1f} x {row['best_peer']}"
    return f"{words}  {row['message']}"[:200].rstrip()


def summary(rows: list[dict[str, Any]]) -> str:
    """Cells that are not ok, shares by domain and by loss, totals."""
    lines = ["", "Cells that are not ok, or lose to a peer:"]
    for row in rows:
        if row["verdict"] != "ok" or number(row, "ratio") < 1.0:
            lines.append(f"  {line_of(row)}")
    for part, heading in ((2, "domain"), (1, "loss")):
        lines += ["", f"{heading:12} {'cells':>6} {'ok':>6} {'median s':>9}"]
        kinds = dict.fromkeys(row["cell"].split("/")[part] for row in rows)
        for kind in kinds:
            these = [row for row in rows if row["cell"].split("/")[part] == kind]
            good = sum(row["verdict"] == "ok" for row in these)
            middle = np.nanmedian([number(row, "seconds") for row in these])
            lines.append(f"{kind:12} {len(these):6} {good:6} {middle:9.2f}")
    counts = {word: sum(row["verdict"] == word for row in rows) for word in VERDICTS}
    alarms = sum(r["verdict"] == "ok" and int(r["num_warned"]) > 0 for r in rows)
    ratios = np.array([number(row, "ratio") for row in rows])
    ratios = ratios[np.isfinite(ratios)]
    lines += [
        "",
        f"{len(rows)} cells: "
        + ", ".join(f"{count} {word}" for word, count in counts.items())
        + f"; {100.0 * counts['ok'] / len(rows):.1f} % ok, {alarms} of them warned",
        f"median {np.nanmedian([number(r, 'seconds') for r in rows]):.2f} CPU seconds",
    ]
    if len(ratios):
        mean = np.exp(np.log(ratios).mean())
        lines.append(
            f"best peer: {len(ratios)} cells, geometric mean {mean:.1f} times its "
            f"ESS per CPU second, {np.sum(ratios < 1.0)} cells lost"
        )
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds of each cell, colored by verdict, one row per domain and loss."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    parts = [row["cell"].split("/") for row in rows]
    kinds = sorted({(part[2], part[1]) for part in parts}, reverse=True)
    figure, axis = plt.subplots(figsize=(9.0, 1.5 + 0.19 * len(kinds)))
    for verdict, color in VERDICTS.items():
        these = [i for i, row in enumerate(rows) if row["verdict"] == verdict]
        places = [kinds.index((parts[i][2], parts[i][1])) for i in these]
        seconds = [number(rows[i], "seconds") for i in these]
        label = f"{verdict} ({len(these)})"
        axis.scatter(seconds, places, s=22, color=color, label=label, alpha=0.75)
    axis.set_xscale("log")
    axis.set_xlabel("CPU seconds of dps.sample(target), 4 x 1000 draws")
    axis.set_yticks(range(len(kinds)), [", ".join(kind) for kind in kinds], fontsize=7)
    axis.set_ylim(-0.7, len(kinds) - 0.3)
    axis.grid(axis="both", color="#eeeeee")
    axis.set_axisbelow(True)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    seeds = {"type": lambda text: [int(word) for word in text.split(",")]}
    parser.add_argument("--cells", default="", help="regular expression of names")
    parser.add_argument("--seed", **seeds, default=[0], help="one or more, with commas")
    parser.add_argument("--out", type=Path, default=Path("robustness.csv"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--limit", type=float, default=20.0, help="CPU seconds a cell")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--peer-seconds", type=float, default=10.0)
    parser.add_argument("--list", action="store_true", help="print names and stop")
    options = parser.parse_args()
    if options.list:
        print(
            "\n".join(n for n in robust_cells.cells()[0] if re.search(options.cells, n))
        )
        return
    rows = run(options)
    if not rows:
        parser.error(f"no cell has a name like {options.cells}")
    print(summary(rows))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
