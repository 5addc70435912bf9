"""Print the CPU milliseconds of imports, by ``python benchmarks/imports.py``.

Imported are the package, Numba, and each library of pyproject.toml. A time is the least
of several new processes. Other libraries are imported after NumPy and Numba, which
every process has. Files are in the page cache of the system, as byte code.
"""

from __future__ import annotations

import argparse
import subprocess
import sys


def milliseconds(before: str, name: str, repeats: int) -> float | None:
    """Return the least CPU milliseconds of an import, None if it is not installed."""
    code = "\n".join(
        [
            f"import {before or 'time'}, time",
            "begin = time.process_time()",
            f"import {name}",
            "print(1e3 * (time.process_time() - begin))",
        ]
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        for _ in range(repeats)
    ]
    if any(run.returncode for run in runs):
        return None
    return min(float(run.stdout) for run in runs)


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    # Modules to import before, and the module that is timed, by name.
    imports = {
        "numpy": ("", "numpy"),
        "numba": ("", "numba"),
        "dpsample": ("", "dpsample"),
        **{
            name: ("numpy, numba", name)
            for name in (
                "scipy.special scipy.optimize highspy xarray h5netcdf threadpoolctl"
                " narwhals.stable.v2 pandas typer rich.table"
            ).split()
        },
    }
    for name, (before, timed) in imports.items():
        cost = milliseconds(before, timed, options.repeats)
        print(f"{name:20} {'not installed' if cost is None else f'{cost:6.0f} ms'}")


if __name__ == "__main__":
    main()
