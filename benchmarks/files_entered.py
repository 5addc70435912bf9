"""Files entered, the measure of how short the way from a verb to its kernel is.

    python benchmarks/files_entered.py

For each call: the files of the package in which at least one Python function runs,
with the numbers of their calls. The first call, which compiles, is not counted.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dpsample as dps

PACKAGE = str(Path(dps.__file__).parent) + os.sep


def files_entered(run: Callable[[], object]) -> Counter[str]:
    """Count calls of Python functions in each file of the package."""
    run()
    calls: Counter[str] = Counter()

    def count(frame, event, arg):
        del arg
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_filename.removeprefix(PACKAGE)] += 1

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    """Print the files of two minimizations and a release."""
    data = dps.datasets.logistic(500, 3, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    dp_sgd = dps.optimizers.DPSGD(sampling_rate=0.1, num_steps=20)
    runs = {
        "minimize(NoisyGD)": lambda: dps.minimize(
            problem, dps.optimizers.NoisyGD(), budget, seed=1
        ),
        "minimize(DPSGD)": lambda: dps.minimize(problem, dp_sgd, budget, seed=1),
        "release": lambda: dps.release(problem, budget, seed=1),
    }
    for name, run in runs.items():
        calls = files_entered(run)
        print(f"{name}: {len(calls)} files, {calls.total()} calls")
        for file, count in sorted(calls.items()):
            print(f"  {count:6d}  {file}")


if __name__ == "__main__":
    main()
