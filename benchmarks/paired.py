"""CPU seconds of two versions of the package, side by side.

    python benchmarks/paired.py OTHER [--rounds N] [--only NAME,NAME]

OTHER is the folder of another version. Processes of both alternate, so that a change of
the machine's load meets both. Each measures all calls, compiled before, with one thread
and by CPU time, and the peak memory of one release. A line has the least seconds of
each version, their ratio, and the smallest and largest ratio of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median


def measures(folder: Path, names: list[str]) -> dict[str, float]:
    """Run the calls in a process of a version. A call that raises is left out."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    environment |= {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    program = Path(__file__).with_name("paired_calls.py")
    done = subprocess.run(
        [sys.executable, str(program), *names],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def main() -> None:
    """Alternate, then print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    other, this = options.other.resolve(), Path(__file__).parents[1]
    pairs = []
    for k in range(options.rounds):
        order = (other, this) if k % 2 == 0 else (this, other)
        row = {folder: measures(folder, options.only) for folder in order}
        pairs.append((row[other], row[this]))
    print("| call | other, s | here, s | ratio | median | ratios of one round |")
    print("|---|---|---|---|---|---|")
    for name in pairs[0][0]:
        seconds = [(a[name], b[name]) for a, b in pairs if name in a and name in b]
        if seconds:
            before, after = (min(values) for values in zip(*seconds, strict=True))
            ratios = [b / a for a, b in seconds]
            print(
                f"| {name} | {before:.4g} | {after:.4g} | {after / before:.2f} | "
                f"{median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
