"""Test log-loss on a9a at true epsilon: python benchmarks/optimizers_real_data.py.

--data FOLDER, or DPSAMPLE_DATA, is where a9a.bz2 and a9a.t.bz2 are. Every method gets
its defaults, which depend on public facts alone, except DP-SGD, which needs a sampling
rate and a number of steps: it is shown with the step of its risk bound and with 4 =
1/beta, beta = 1/4 the smoothness of a record's logistic loss. Its numbers of steps were
chosen after a look at these test losses (1000 steps of the first kind were too few).
The radius of the domain is one public choice for all. No intercept (most rows have 14
indicators), replace-one neighbors.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpsample as dps
from dpsample import optimizers

EPSILONS = (0.5, 1.0, 2.0, 4.0)
# Name: (verb, what it takes after the problem and before the budget).
METHODS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "DPSGD": (dps.minimize, (optimizers.DPSGD(sampling_rate=0.02, num_steps=4000),)),
    "DPSGD, step 1/beta": (
        dps.minimize,
        (optimizers.DPSGD(sampling_rate=0.02, num_steps=1000, step_size=4.0),),
    ),
    "LocalizedClippedGD": (dps.minimize, (optimizers.LocalizedClippedGD(),)),
    "AcceleratedClippedSGD": (dps.minimize, (optimizers.AcceleratedClippedSGD(),)),
    "ObjectivePerturbation": (dps.minimize, (optimizers.ObjectivePerturbation(),)),
    "release": (dps.release, ()),
}


def load(folder: Path | None, split: str, radius: float) -> dps.Problem:
    """a9a, rows divided by sqrt(14), over a ball."""
    data = dps.datasets.load("a9a", folder=folder, split=split)
    return dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(radius),
        row_bound=data.row_bound,
    )


def without_privacy(train: dps.Problem, test: dps.Problem) -> tuple[float, float]:
    """Training and test log-loss of the constrained minimizer."""
    method = optimizers.ClippedGD(num_steps=5000, clip=1.0)
    theta = dps.minimize(train, method).theta
    return train.risk(theta), test.risk(theta)


def main() -> int:
    """Print one line per method: mean test log-loss and its standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of a9a.bz2 and a9a.t.bz2")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--radius", type=float, default=5.0)
    parser.add_argument("--delta", type=float, help="default: n^-1.1")
    parser.add_argument("--only", help="methods whose name begins so")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=Path, help="also write a CSV file")
    given = parser.parse_args()
    if given.data is None and "DPSAMPLE_DATA" not in os.environ:
        parser.error("pass --data FOLDER or set DPSAMPLE_DATA")
    train = load(given.data, "train", given.radius)
    test = load(given.data, "test", given.radius)
    delta = given.delta or train.num_records**-1.1
    risk, tested = without_privacy(train, test)
    print(
        f"a9a, n = {train.num_records}, d = {train.dim}, ball of radius "
        f"{given.radius:g}, delta = {delta:.2e}, replace_one, {given.runs} runs\n"
        f"without privacy: test log-loss {tested:.4f} (training {risk:.4f})\n"
        f"{'method':<24}" + "".join(f"   epsilon = {e:<10g}" for e in EPSILONS),
        flush=True,
    )
    rows = []
    for name, (verb, arguments) in METHODS.items():
        if given.only and not name.startswith(given.only):
            continue
        line = f"{name:<24}"
        for epsilon in EPSILONS:
            budget = dps.Budget(epsilon=epsilon, delta=delta)
            begin = time.perf_counter()
            runs = dps.replicate(
                verb,
                train,
                *arguments,
                budget,
                num_replicates=given.runs,
                threads=given.threads,
                evaluate=test,
            )
            seconds = (time.perf_counter() - begin) / given.runs
            proved = getattr(runs.certificate, "epsilon_proved", None)
            line += f"   {runs.mean:.4f} +- {runs.standard_error:.5f}"
            rows.append(
                {
                    "method": name,
                    "epsilon": epsilon,
                    "epsilon_proved": epsilon if proved is None else proved,
                    "test_log_loss": runs.mean,
                    "standard_error": runs.standard_error,
                    "seconds_per_run": seconds,
                }
            )
        print(line, flush=True)
    if given.output is not None:
        with given.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
