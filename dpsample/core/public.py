"""Public names: what ``dir``, and with it completion, shows of a module; a list."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType


def dir_of(names: Iterable[str]) -> Callable[[], list[str]]:
    """``__dir__`` of a module whose ``__all__`` is ``names``."""
    public = sorted(names)
    return lambda: list(public)


def public_modules() -> list[str]:
    """Packages, and modules that some ``__all__`` names, if they have public names."""
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
