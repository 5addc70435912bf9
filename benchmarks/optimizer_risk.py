"""Excess risks against their explicit bounds: python benchmarks/optimizer_risk.py.

Every optimizer runs on a reference instance of its own class, with its default exact
calibration at (1, 1e-6) and without a budget. Population risks are measured on fresh
records in every run, empirical ones on one data set. Where there is no explicit bound,
records are fresh, and the risk must not rise from n to 4n. The exit code is 1 if a
measured mean is above its bound, or rises, by more than 3 standard errors.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dpsample as dps
from dpsample.core import pauses

sys.path.insert(0, str(Path(__file__).parent))
from risk_cases import Case, cases

Array = NDArray[np.float64]
SEED = 20
QUICK_SIZE = 2000
ERRORS = 3.0
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    case: Case
    num_records: int
    dim: int
    epsilon: float
    start: float
    mean: float
    error: float
    bound: float
    seconds: float
    is_refuted: bool


def excesses(
    case: Case,
    num_records: int,
    budget: dps.Budget | None,
    replicates: int,
    *,
    on_one_data_set: bool,
) -> Array:
    """Excess risks of independent runs, in threads."""
    root = np.random.SeedSequence(SEED)
    if on_one_data_set:
        problem, excess = case.make(num_records, np.random.default_rng(root))
        runs = dps.replicate(
            dps.minimize,
            problem,
            case.method,
            budget,
            num_replicates=replicates,
            seed=SEED,
            evaluate=excess,
        )
        assert runs.values is not None
        return runs.values

    def fresh(seed: np.random.SeedSequence) -> float:
        data, noise = seed.spawn(2)
        problem, excess = case.make(num_records, np.random.default_rng(data))
        fit = dps.minimize(problem, case.method, budget, seed=noise)
        return excess(fit.theta)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.array(list(pool.map(fresh, root.spawn(replicates))))


def measure(case: Case, size: int, replicates: int) -> Iterator[Row]:
    """Rows of a case: one for each budget, or two where there is no bound."""
    for budget in case.budgets:
        problem, excess = case.make(size, np.random.default_rng(SEED))
        bound = case.bound_of(problem.facts, budget)
        before: tuple[float, float] | None = None
        for count in (size,) if math.isfinite(bound) else (size, 4 * size):
            begin = time.perf_counter()
            # Means at two sizes differ by their records too: these are drawn anew.
            is_one = case.risk == "empirical" and math.isfinite(bound)
            values = excesses(case, count, budget, replicates, on_one_data_set=is_one)
            mean = float(values.mean())
            error = float(values.std(ddof=1)) / math.sqrt(replicates)
            is_refuted = mean - ERRORS * error > bound
            if before is not None:
                noise = max(ERRORS * math.hypot(error, before[1]), ROUNDING)
                is_refuted = mean - before[0] > noise
            before = mean, error
            yield Row(
                case=case,
                num_records=count,
                dim=problem.dim,
                epsilon=math.inf if budget is None else budget.epsilon,
                start=excess(np.zeros(problem.dim)),
                mean=mean,
                error=error,
                bound=bound,
                seconds=time.perf_counter() - begin,
                # Below 0 the minimum is wrong.
                is_refuted=is_refuted or not -1e-9 < mean < math.inf,
            )


HEADER = (
    f"{'optimizer':34} {'instance':36} {'risk':10} {'n':>6} {'d':>3} {'eps':>4}"
    f" {'at 0':>8} {'excess':>9} {'+-':>8} {'bound':>9} {'ratio':>7} {'s':>5}"
)


def line(row: Row) -> str:
    """Words of a row below `HEADER`."""
    has_bound = math.isfinite(row.bound)
    bound = f"{row.bound:9.2e}" if has_bound else f"{'-':>9}"
    ratio = f"{row.mean / row.bound:7.4f}" if has_bound else f"{'-':>7}"
    epsilon = "none" if math.isinf(row.epsilon) else f"{row.epsilon:g}"
    return (
        f"{type(row.case.method).__name__:34} {row.case.instance:36}"
        f" {row.case.risk:10} {row.num_records:6} {row.dim:3} {epsilon:>4}"
        f" {row.start:8.1e} {row.mean:9.2e} {row.error:8.1e}"
        f" {bound} {ratio} {row.seconds:5.1f}"
        f"{'  REFUTED' if row.is_refuted else ''}"
    )


def main(
    arguments: list[str] | None = None, selection: list[Case] | None = None
) -> int:
    """Print the table; return 1 if a bound is refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="three small cases")
    options = parser.parse_args(arguments)
    selection = cases() if selection is None else selection
    if options.quick:
        selection = selection[:3]
    begin, refuted, total = time.perf_counter(), 0, 0
    print(HEADER)
    with pauses.single_threaded_blas():
        for case in selection:
            size = QUICK_SIZE if options.quick else case.num_records
            for row in measure(case, size, options.replicates):
                print(line(row), flush=True)
                refuted, total = refuted + row.is_refuted, total + 1
    seconds = time.perf_counter() - begin
    print(f"{total} rows, {refuted} refuted, {seconds:.0f} s")
    return int(refuted > 0)


if __name__ == "__main__":
    sys.exit(main())
