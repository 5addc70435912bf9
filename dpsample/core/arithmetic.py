"""What decides the last bits besides the code: BLAS kernels and the processor.

OpenBLAS picks its kernels by the processor, and so does LLVM when it vectorizes sums.
Each adds up in an order of its own, so one seed gives draws that agree to rounding, and
bit for bit only where both agree. Accelerate and other libraries that threadpoolctl
does not know are named "unknown".
"""

from functools import cache

import llvmlite.binding
import numba


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
