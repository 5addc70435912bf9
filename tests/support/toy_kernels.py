"""A package of two kernels, one calling the other, with a copy of our decorator."""

from tests.support.processes import ROOT, run_python

CALLEE = """
from toy.core.jit import kernel

FACTOR = {factor}

@kernel
def scaled(x):
    return FACTOR * x
"""
CALLER = """
from toy.core.jit import kernel
from toy.callee import scaled

@kernel
def answer(x):
    return scaled(x) + 1.0
"""
# The decorator, and all that it imports.
COPIES = "arrays cache check compiling frames jit linking renamed".split()
SHOW = "from toy.caller import answer; print(answer(10.0))"


def make_toy(folder):
    """Write the package below a folder."""
    package = folder / "source" / "toy"
    (package / "core").mkdir(parents=True)
    for place in (package, package / "core"):
        (place / "__init__.py").touch()
    for name in COPIES:
        text = (ROOT / "dpsample" / "core" / f"{name}.py").read_text()
        (package / "core" / f"{name}.py").write_text(
            text.replace("from dpsample.", "from toy.")
        )
    (package / "callee.py").write_text(CALLEE.format(factor=2.0))
    (package / "caller.py").write_text(CALLER)
    return package


def show(toy, cache, code=SHOW, **environment):
    """Run code beside the package; its output and errors."""
    options = {"path": toy.parent, "NUMBA_CACHE_DIR": cache} | environment
    return run_python(code, **options)
