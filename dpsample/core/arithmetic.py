# mypy: allow-untyped-defs
"""Floating-point arithmetic of this process: its libraries, and a self-test.

OpenBLAS chooses its kernels by the processor, and so does LLVM when it vectorizes sums.
Each adds in its own order. So draws of one seed agree to rounding errors everywhere,
and to the last bit only if both are the same. Accelerate and other libraries that
threadpoolctl does not know are named "unknown".

A library that was compiled with unsafe options may set the processor to flush small
numbers to zero, or to round in another direction. A compiler may contract a product and
a sum into one operation. The proofs of released answers assume that none of this
happens, so `require_arithmetic` is called before each release.
"""

from decimal import Context, Decimal
from functools import cache
from typing import NamedTuple

import llvmlite.binding
import numba
import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel

DIGITS = Context(prec=60)


class Fault(NamedTuple):
    """Positions in the array of faults that `probe` fills."""

    rounds: int = 0
    contracts: int = 1
    flushes: int = 2
    reorders: int = 3


FAULT = Fault()
FAULTS = {
    FAULT.rounds: "rounding is not to the nearest number",
    FAULT.contracts: "a product and a sum are contracted into one operation",
    FAULT.flushes: "subnormal numbers are flushed to zero",
    FAULT.reorders: "sums are reordered",
}
# Points at which exp, expm1 and log1p are compared with exact values.
POINTS = np.concatenate([sign * np.geomspace(1e-12, 30.0, 24) for sign in (1.0, -1.0)])
# Numbers for `probe`, which the compiler must not know: 1, half a unit in its last
# place, a number whose square is below rounding, the smallest normal number, and 1/2.
INPUTS = np.array([1.0, 2.0**-53, 2.0**-30, 2.0**-1022, 0.5])


@cache
def _arithmetic() -> tuple[tuple[str, str], ...]:
    """Return the pairs of `arithmetic`, which nobody can change in the cache."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call
    from threadpoolctl import threadpool_info

    parts = ("internal_api", "version", "architecture")
    libraries = {
        " ".join(str(library.get(part, "")) for part in parts).strip()
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    processor = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    blas = ", ".join(sorted(libraries)) or "unknown"
    return ("blas", blas), ("processor", str(processor))


def arithmetic() -> dict[str, str]:
    """Return the names of BLAS libraries, of their kernels, and of the processor."""
    return dict(_arithmetic())


class ArithmeticFault(RuntimeError):
    """The process does not compute as the proofs assume; nothing is released."""


@kernel
def probe(inputs, faults):
    """Fill faults with 0 for each test that passes, and with 1 for others."""
    one, half_ulp, small, min_normal, half = inputs
    # Ties between two numbers are rounded to the even one, below and above.
    above = one + 2.0 * half_ulp  # the next number
    is_even = one + half_ulp == one and above + half_ulp == one + 4.0 * half_ulp
    is_odd = -one - half_ulp == -one and one - half * half_ulp == one
    faults[FAULT.rounds] = 0.0 if is_even and is_odd else 1.0
    # Without contraction the square loses small^2 when it is rounded.
    close_to_one = one + small
    faults[FAULT.contracts] = (
        0.0 if close_to_one * close_to_one - (one + 2.0 * small) == 0.0 else 1.0
    )
    below = min_normal * half
    is_kept = below > 0.0 and below + below == min_normal
    faults[FAULT.flushes] = 0.0 if is_kept else 1.0
    total = 0.0
    for term in (half_ulp, half_ulp, one, half_ulp, half_ulp, -one):
        total += term
    faults[FAULT.reorders] = 0.0 if total == 4.0 * half_ulp else 1.0


@kernel
def elementary(points, out):
    """Fill rows of out with exp and expm1 of points, and log1p of their magnitudes."""
    for i in range(points.shape[0]):
        out[0, i] = np.exp(points[i])
        out[1, i] = np.expm1(points[i])
        out[2, i] = np.log1p(abs(points[i]))


def _exact(point: float) -> list[Decimal]:
    x = Decimal(point)
    power = DIGITS.exp(x)
    return [power, DIGITS.subtract(power, 1), DIGITS.ln(DIGITS.add(1, abs(x)))]


@cache
def _references() -> list[tuple[Decimal, ...]]:
    return list(zip(*(_exact(float(point)) for point in POINTS), strict=True))


def _largest_error(computed: Array) -> float:
    """Return the largest error of `elementary`, in units in the last place."""
    errors = [
        abs(Decimal(float(value)) - exact) / Decimal(float(np.spacing(abs(value))))
        for row, references in zip(computed, _references(), strict=True)
        for value, exact in zip(row, references, strict=True)
    ]
    return float(max(errors))


@cache
def _require_elementary() -> None:
    """Raise unless elementary functions are accurate at points that were chosen."""
    computed = np.empty((3, len(POINTS)))
    elementary(POINTS, computed)
    error = _largest_error(computed) if np.isfinite(computed).all() else np.inf
    # Good libraries are off by less than one unit in the last place.
    if not error <= 2.0:
        _reject(f"exp, expm1 or log1p is off by {error:.1f} units in the last place")


def require_arithmetic() -> None:
    """Raise `ArithmeticFault` unless doubles are those of IEEE 754.

    Rounding to nearest, gradual underflow, contraction and the order of sums are tested
    at each call, because a library that is loaded later may change them. The errors of
    exp, expm1 and log1p on a sample of points are tested once in a process.

    Examples
    --------
    >>> require_arithmetic()
    """
    faults = np.ones(len(FAULT))
    probe(INPUTS, faults)
    for fault, words in FAULTS.items():
        if faults[fault] != 0.0:
            _reject(words)
    _require_elementary()


def _reject(words: str) -> None:
    raise ArithmeticFault(
        f"arithmetic must be that of IEEE 754, got a process in which {words}. Release "
        "from a new process that does not load the library at fault."
    )
