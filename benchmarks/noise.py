"""Cost of noise per coordinate against normals: python benchmarks/noise.py.

One process, CPU time, minimum over repeats; the first call of each case compiles.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np

from dpsample import noise

EXPONENTS = (1.0, 1.5, 2.0, 2.7, 3.0, 4.0, 10.0, math.inf)
DIMS = (3, 50, 1000)
SCHATTEN_SHAPES = ((2, 2), (2, 3), (4, 4), (5, 5), (5, 50))
NUM_NUMBERS = 300_000


def per_number(draw: Callable[[], object], count: int, repeats: int) -> float:
    """Nanoseconds per number, the best of several runs after a first one."""
    draw()
    best = math.inf
    for _ in range(repeats):
        begin = time.process_time()
        draw()
        best = min(best, time.process_time() - begin)
    return 1e9 * best / count


def vectors(repeats: int) -> None:
    """Generalized Gaussian vectors: nanoseconds and ratio to NumPy's normals."""
    rng = np.random.Generator(np.random.PCG64DXSM(0))
    print("generalized_gaussian(rng, size=(m, d), r=r): ns per coordinate (ratio)")
    print(f"{'d':>5} {'normal':>7}" + "".join(f"{f'r={r:g}':>13}" for r in EXPONENTS))
    for dim in DIMS:
        size = (NUM_NUMBERS // dim, dim)
        count = size[0] * dim
        normal = per_number(lambda s=size: rng.standard_normal(s), count, repeats)
        cells = []
        for r in EXPONENTS:
            ns = per_number(
                lambda r=r, s=size: noise.generalized_gaussian(rng, size=s, r=r),
                count,
                repeats,
            )
            cells.append(f"{f'{ns:.1f} ({ns / normal:.2f})':>13}")
        print(f"{dim:>5} {normal:>7.1f}" + "".join(cells))


def matrices(repeats: int) -> None:
    """Schatten matrices: acceptance of the proposal and microseconds per matrix."""
    rng = np.random.Generator(np.random.PCG64DXSM(0))
    print("\nschatten_gaussian(rng, size=(m, *shape), r=r): acceptance, us per matrix")
    for shape in SCHATTEN_SHAPES:
        cells = []
        for r in EXPONENTS:
            try:
                share = noise.schatten_plan(shape, r).acceptance
            except ValueError:
                cells.append(f"{'refused':>13}")
                continue
            size = (400, *shape)
            ns = per_number(
                lambda r=r, s=size: noise.schatten_gaussian(rng, size=s, r=r),
                size[0],
                repeats,
            )
            cells.append(f"{f'{share:.3f} {1e-3 * ns:.0f}':>13}")
        print(f"{shape[0]:>2} x {shape[1]:<3}" + "".join(cells))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    vectors(arguments.repeats)
    matrices(arguments.repeats)


if __name__ == "__main__":
    main()
