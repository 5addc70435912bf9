"""Public names: what ``dir`` and completion show, which modules have any; version."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType

__version__ = "0.1.0"


def dir_of(names: Iterable[str]) -> Callable[[], list[str]]:
    """``__dir__`` of a module whose ``__all__`` is ``names``."""
    public = sorted(names)
    return lambda: list(public)


def public_modules() -> list[str]:
    """Return packages and modules in some ``__all__`` that have public names."""
    package = importlib.import_module("dpsample")
    walked = pkgutil.walk_packages(package.__path__, prefix="dpsample.")
    pending = ["dpsample", *(info.name for info in walked if info.ispkg)]
    found = set()
    while pending:
        module = importlib.import_module(name := pending.pop())
        values = [getattr(module, each) for each in getattr(module, "__all__", ())]
        if values and name not in found:
            found.add(name)
            pending += [v.__name__ for v in values if isinstance(v, ModuleType)]
    return sorted(found)
