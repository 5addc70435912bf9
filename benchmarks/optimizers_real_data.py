"""Test log-loss on a9a at true epsilon: python benchmarks/optimizers_real_data.py.

--data FOLDER, or DPSAMPLE_DATA, is where a9a.bz2 and a9a.t.bz2 are. Every method gets
its defaults, which depend on public facts alone. DP-SGD has no default for the rate and
the number of steps: rate 0.02, and steps and their size by `dp_sgd` below, from the
bound for smooth losses, a rule stated before any run. The radius of the domain is one
public choice for all. No intercept (most rows have 14 indicators), replace-one
neighbors. "proved" is the epsilon that the certificate states: never above the asked.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dpsample as dps
from dpsample import optimizers

EPSILONS = (0.5, 1.0, 2.0, 4.0)
RATE = 0.02
# Largest curvature of the logistic loss for a row of norm 1.
SMOOTHNESS = 0.25


def dp_sgd(facts: dps.PublicFacts, budget: dps.Budget) -> optimizers.DPSGD:
    r"""DP-SGD with the step size and number of steps of the bound for smooth losses.

    beta D^2 / (2 T) + D sqrt(V / T), at 1 / eta = beta + sqrt(T V) / D, for V the mean
    square of a step's error: noise and sampling. T is doubled from 125 until the bound
    falls by less than a tenth.
    """
    radius = facts.domain.radius
    last, best = math.inf, optimizers.DPSGD(sampling_rate=RATE, num_steps=1)
    for steps in (125 * 2**i for i in range(12)):
        method = optimizers.DPSGD(sampling_rate=RATE, num_steps=steps)
        noise = float(method.recipe(facts, budget).inputs["noise_stddev"])
        error = facts.dim * noise**2 + (1.0 - RATE) / (RATE * facts.num_records)
        slope = math.sqrt(steps * error) / radius
        bound = radius**2 / steps * (0.5 * SMOOTHNESS + slope)
        if bound > 0.9 * last:
            break
        size = 1.0 / (SMOOTHNESS + slope)
        last, best = bound, replace(method, step_size=size)
    return best


METHODS = (
    "DPSGD",
    "NoisyGD",
    "LocalizedClippedGD",
    "AcceleratedClippedSGD",
    "ObjectivePerturbation",
    "release",
)


def call(name: str, problem: dps.Problem, budget: dps.Budget) -> tuple[Any, ...]:
    """Verb of a method and its arguments."""
    if name == "release":
        return dps.release, problem, budget
    if name == "DPSGD":
        return dps.minimize, problem, dp_sgd(problem.facts, budget), budget
    return dps.minimize, problem, getattr(optimizers, name)(), budget


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


def measure(
    name: str,
    budget: dps.Budget,
    train: dps.Problem,
    test: dps.Problem,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """One row of the table; the time covers calibration, runs and test losses."""
    begin = time.process_time()
    runs = dps.replicate(
        *call(name, train, budget),
        num_replicates=options.runs,
        threads=options.threads,
        evaluate=test,
    )
    return {
        "method": name,
        "epsilon": budget.epsilon,
        "epsilon_proved": runs.certificate.epsilon_proved,
        "test_log_loss": runs.mean,
        "standard_error": runs.standard_error,
        "cpu_seconds_per_run": (time.process_time() - begin) / options.runs,
    }


def parse() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of a9a.bz2 and a9a.t.bz2")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--radius", type=float, default=5.0)
    parser.add_argument("--delta", type=float, help="default: n^-1.1")
    parser.add_argument("--only", help="methods whose name begins so")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=Path, help="also write a CSV file")
    options = parser.parse_args()
    if options.data is None and "DPSAMPLE_DATA" not in os.environ:
        parser.error("pass --data FOLDER or set DPSAMPLE_DATA")
    return options


def main() -> int:
    """Print a line per method and epsilon: mean test log-loss, its standard error."""
    options = parse()
    train = load(options.data, "train", options.radius)
    test = load(options.data, "test", options.radius)
    delta = options.delta or train.num_records**-1.1
    risk, tested = without_privacy(train, test)
    print(
        f"a9a, n = {train.num_records}, d = {train.dim}, ball of radius "
        f"{options.radius:g}, delta = {delta:.2e}, replace_one, {options.runs} runs\n"
        f"without privacy: test log-loss {tested:.4f} (training {risk:.4f})\n"
        f"{'method':<22}{'epsilon':>8}{'proved':>10}{'test log-loss':>15}"
        f"{'s.e.':>9}{'CPU s/run':>11}",
        flush=True,
    )
    line = "{:<22}{:>8g}{:>10.6f}{:>15.4f}{:>9.5f}{:>11.2f}"
    rows = []
    for name in METHODS:
        if options.only and not name.startswith(options.only):
            continue
        for epsilon in EPSILONS:
            budget = dps.Budget(epsilon=epsilon, delta=delta)
            rows.append(measure(name, budget, train, test, options))
            print(line.format(*rows[-1].values()), flush=True)
    print(f"CPU seconds of all: {time.process_time():.0f}")
    if options.output is not None:
        with options.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
