"""Effective draws per CPU second: our samplers beside their peers, in one run.

    python benchmarks/samplers.py [--only T1] [--peers blackjax,nutpie] [--output DIR]

Each sampler runs alone in a process with one thread. Everybody's draws go through the
same ESS. `--peer-python` is the interpreter of an environment with
requirements-peers.txt; a peer that is not there is reported as missing. a9a needs the
folder of public data sets in DPSAMPLE_DATA.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ours
import peers
import report
import targets

HERE = Path(__file__).parent
SAMPLERS = (
    "auto",
    "FactorizedMetropolis",
    "LaplaceIndependence",
    "MALA",
    "PreconditionedCrankNicolson",
    "TiltedGibbs",
    "Proximal",
    "HitAndRun",
    "CoordinateHitAndRun",
    "Exact",
    "RandomWalk",
)
# Samplers that are timed on the cube as a Box too, beside the cube as a Polytope.
ON_BOX = ("auto", "Exact", "HitAndRun", "CoordinateHitAndRun", "TiltedGibbs")
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA")


def run_process(python: str, command: list[str], seconds: float) -> tuple[Any, Any]:
    """Draws and facts of a process; its last words instead if it fails."""
    threads = {f"{library}_NUM_THREADS": "1" for library in THREADS}
    limit = 300.0 + 100.0 * seconds
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "draws.npz")
        call = [python, "-W", "ignore", command[0], *command[1:3], str(output)]
        call += ["--seconds", str(seconds), *command[3:]]
        try:
            done = subprocess.run(
                call,
                env=os.environ | threads,
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, {"missing": f"took more than {limit:g} s"}
        if done.returncode != 0 or not output.exists():
            words = done.stderr.strip().splitlines() or ["no message"]
            return None, {"missing": words[-1]}
        with np.load(output) as arrays:
            facts = json.loads(str(arrays["facts"]))
            return arrays.get("draws", None), facts


def plan_of(case: targets.Case, samplers: list[str]) -> tuple[list[str], list[str]]:
    """Names of our rows for a target, and why the others are left out."""
    rows, missing = [], []
    for suffix in ("", " [box]") if "cube" in case.name else ("",):
        target = ours.gibbs(case, as_box=bool(suffix))
        for name in samplers:
            if suffix and name not in ON_BOX:
                continue
            sampler = None if name == "auto" else getattr(ours.samplers, name)()
            reason = "" if sampler is None else sampler.supports(target)[1]
            if reason:
                missing.append(f"{case.name}, {name}{suffix}: {reason}")
            else:
                rows.append(name + suffix)
    return rows, missing


def our_row(name: str, case: targets.Case, path: Path, seconds: float) -> Any:
    """Row of one of our samplers, or why there is none."""
    sampler, *words = name.split(" ")
    box = ["--box"] if words else []
    command = [str(HERE / "ours.py"), sampler, str(path), *box]
    draws, facts = run_process(sys.executable, command, seconds)
    if draws is None:
        return facts["missing"]
    if facts["num_compiled"]:  # what counts is a process with a warm cache
        second_run = run_process(sys.executable, command, 0.0)[1]
        facts |= {clock: second_run[clock] for clock in ("first", "prepare")}
    if sampler == "auto":
        facts["note"] = facts["chosen"]
        name = " ".join([facts["chosen"].split("(")[0], *words, "= auto"])
    return report.row_of(case.name, name, report.OURS, draws, facts)


def peer_row(
    name: str, case: targets.Case, path: Path, python: str, seconds: float
) -> Any:
    """Row of a peer, or why there is none."""
    command = [str(HERE / "peers.py"), name, str(path)]
    draws, facts = run_process(python, command, seconds)
    if draws is None:
        return facts["missing"]
    family = report.ENSEMBLE if name == "emcee" else report.WALK
    if name in peers.FREE:
        family = report.GRADIENT
    return report.row_of(case.name, name, family, draws, facts)


def compare(rows: list[report.Row]) -> list[report.Row]:
    """Ratios to the best of all peers in all their configurations."""
    rivals = [row.rate for row in rows if row.family != report.OURS]
    if not rivals or max(rivals) == 0.0:
        return rows
    best = max(rivals)
    return [dataclasses.replace(row, ratio=row.rate / best) for row in rows]


def run_case(case: targets.Case, options: Any) -> tuple[list[Any], list[str]]:
    """Measure everything that fits a target; print the table."""
    print(f"\n{case.title}", flush=True)
    rows: list[report.Row] = []
    mine, missing = plan_of(case, options.samplers)
    rivals = [peer for peer in peers.PEERS if peer.split("-")[0] in options.peers]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "target.npz")
        targets.save(case, path)
        for name in mine + [peer for peer in rivals if peers.fits(peer, case)]:
            if any(row.sampler == f"{name} = auto" for row in rows):
                continue
            if sys.stderr.isatty():
                print(f"\r\033[K  {name}", end="", file=sys.stderr, flush=True)
            if name in peers.PEERS:
                seconds = options.budget * (4.0 if case.dim > 100 else 1.0)
                result = peer_row(name, case, path, options.peer_python, seconds)
            else:
                result = our_row(name, case, path, options.budget)
            if isinstance(result, str):
                missing.append(f"{case.name}, {name}: {result}")
            else:
                rows.append(result)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    rows = compare(rows)
    print(report.table(rows), flush=True)
    for line in missing:
        print(f"  not run: {line}", flush=True)
    return rows, missing


def names(text: str) -> list[str]:
    """Words between commas; none for an empty text or "none"."""
    return [word for word in text.split(",") if word not in ("", "none")]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names, help="targets by name or its beginning")
    every = ",".join(dict.fromkeys(peer.split("-")[0] for peer in peers.PEERS))
    parser.add_argument("--peers", type=names, default=names(every), help=every)
    parser.add_argument("--samplers", type=names, default=list(SAMPLERS))
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--budget", type=float, default=5.0, help="seconds per sampler")
    parser.add_argument("--output", type=Path, default=Path("benchmark-samplers"))
    options = parser.parse_args()
    allowed_samplers = ["auto", *ours.NAMES]
    for requested, allowed in (
        (options.peers, names(every)),
        (options.samplers, allowed_samplers),
    ):
        if unknown := sorted(set(requested) - set(allowed)):
            parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(allowed)}")
    rows, missing, titles = [], [], {}
    for name, build in targets.CASES.items():
        if options.only and not name.startswith(tuple(options.only)):
            continue
        if name.startswith("a9a") and not targets.has_a9a():
            missing.append(f"{name}: set DPSAMPLE_DATA to the folder of data sets")
            print(f"\nnot run: {missing[-1]}")
            continue
        case = build()
        titles[name] = case.title
        case_rows, lost = run_case(case, options)
        rows, missing = rows + case_rows, missing + lost
        facts = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "num_processors": os.cpu_count(),
            "budget": options.budget,
        }
        report.write(rows, missing, facts, options.output)
    if not titles and not missing:
        parser.error(f"--only must begin one of {', '.join(targets.CASES)}")
    if rows:
        report.plot(rows, titles, options.output / "samplers.png")
        print(f"\nsamplers.csv, samplers.json and samplers.png are in {options.output}")


if __name__ == "__main__":
    main()
