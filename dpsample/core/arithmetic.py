# mypy: allow-untyped-defs
"""Arithmetic of this process: what decides its last bits, and its self-test.

OpenBLAS picks its kernels by the processor, and so does LLVM when it vectorizes sums.
Each adds up in an order of its own, so one seed gives draws that agree to rounding, and
bit for bit only where both agree. Accelerate and other libraries that threadpoolctl
does not know are named "unknown".

A library compiled with unsafe options may set the processor to flush small numbers to
zero, another the direction of rounding, and a compiler may contract a product and a sum
into one operation. Proofs of released answers assume neither: whatever is to be
released asks first.
"""

from decimal import Context, Decimal
from functools import cache

import llvmlite.binding
import numba
import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel

# Units in the last place that exp, expm1 and log1p may be off.
MOST_ULP = 2.0
DIGITS = Context(prec=60)
ROUNDS, CONTRACTS, FLUSHES, REORDERS, NUM_FAULTS = range(5)
FAULTS = {
    ROUNDS: "rounding is not to the nearest number",
    CONTRACTS: "a product and a sum are contracted into one operation",
    FLUSHES: "subnormal numbers are flushed to zero",
    REORDERS: "sums are reordered",
}
POINTS = np.concatenate([sign * np.geomspace(1e-12, 30.0, 24) for sign in (1.0, -1.0)])
INPUTS = np.array([1.0, 2.0**-53, 2.0**-30, 2.0**-1022, 0.5])


@cache
def _arithmetic() -> tuple[tuple[str, str], ...]:
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
    """Names of the BLAS libraries with their kernels, and of the processor."""
    return dict(_arithmetic())


class ArithmeticFault(RuntimeError):
    """The process does not compute as the proofs assume; nothing is released."""


@kernel
def probe(inputs, faults):
    """Fill faults with 0 where all is well; inputs are not known to the compiler."""
    one, tiny, small, least, half = inputs
    above = one + 2.0 * tiny  # the next number
    is_even = one + tiny == one and above + tiny == one + 4.0 * tiny
    is_odd = -one - tiny == -one and one - half * tiny == one
    faults[ROUNDS] = 0.0 if is_even and is_odd else 1.0
    near = one + small
    faults[CONTRACTS] = 0.0 if near * near - (one + 2.0 * small) == 0.0 else 1.0
    below = least * half
    is_kept = below > 0.0 and below + below == least
    faults[FLUSHES] = 0.0 if is_kept else 1.0
    total = 0.0
    for term in (tiny, tiny, one, tiny, tiny, -one):
        total += term
    faults[REORDERS] = 0.0 if total == 4.0 * tiny else 1.0


@kernel
def elementary(points, out):
    """Fill rows of out with exp, expm1 and log1p of points; log1p of their sizes."""
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


def _largest_error(found: Array) -> float:
    """Error of `elementary` in units of the last place."""
    errors = [
        abs(Decimal(float(value)) - exact) / Decimal(float(np.spacing(abs(value))))
        for row, references in zip(found, _references(), strict=True)
        for value, exact in zip(row, references, strict=True)
    ]
    return float(max(errors))


@cache
def _require_elementary() -> None:
    found = np.empty((3, len(POINTS)))
    elementary(POINTS, found)
    error = _largest_error(found) if np.isfinite(found).all() else np.inf
    if not error <= MOST_ULP:
        _refuse(f"exp, expm1 or log1p is off by {error:.1f} units in the last place")


def require_arithmetic() -> None:
    """Raise `ArithmeticFault` unless doubles are those of IEEE 754.

    Rounding to nearest, gradual underflow, no contraction, no reordering: each time,
    for a library that is loaded later may change them. Errors of exp, expm1 and log1p
    on a sample of points: once in a process.

    Examples
    --------
    >>> require_arithmetic()
    """
    faults = np.ones(NUM_FAULTS)
    probe(INPUTS, faults)
    for fault, words in FAULTS.items():
        if faults[fault] != 0.0:
            _refuse(words)
    _require_elementary()


def _refuse(words: str) -> None:
    raise ArithmeticFault(
        f"arithmetic must be that of IEEE 754, got a process in which {words}. Release "
        "from a new process that does not load the library at fault."
    )
