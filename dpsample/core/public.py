"""Public names, modules that moved, and the version.

``dir`` and completion show the public names of a module, which are those in its
``__all__``.
"""

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.1.0"

# Former and present names of modules, or of packages with all that is in them, below
# `dpsample`. Former names work in this version, with a DeprecationWarning.
MOVED = {
    "audits.clipping_instance": "papers.clipping_instance",
    "datasets.growth": "papers.growth",
    "privacy.ball_checker": "verification.ball_checker",
    "privacy.printed": "papers",
    "samplers.couplings": "diagnostics.couplings",
    "verbs": "api",
    "verbs.predictions": "answers.predictions",
    "verbs.results": "answers.answer",
    "verbs.sandwich": "inference.sandwich",
    "verbs.verify": "verification.verify",
}


def present_name(former: str) -> str | None:
    """Return the name that a moved module has now, or None if it did not move."""
    package, *parts = former.split(".")
    for count in range(len(parts), 0, -1):
        if (new_path := MOVED.get(".".join(parts[:count]))) is not None:
            return ".".join([package, new_path, *parts[count:]])
    return None


def import_moved(former: str, *, stacklevel: int) -> ModuleType:
    """Import a module by its former name, with a DeprecationWarning."""
    present = present_name(former)
    warnings.warn(
        f"{former} is now {present}. The former name goes with the next version.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
    return importlib.import_module(str(present))


class MovedModules(MetaPathFinder, Loader):
    """Finder of modules by their former names.

    It must be the first finder. Otherwise the usual one would look for a submodule in
    the folder of the present package, and load it a second time.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return a specification of a moved module, or None for any other."""
        del path, target
        return None if present_name(fullname) is None else ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put the present module in the place of the former one."""
        # Frames of the import machinery are not counted: level 2 is the import.
        sys.modules[module.__name__] = import_moved(module.__name__, stacklevel=2)


def dir_of(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a module whose ``__all__`` is ``names``."""
    public = sorted(names)
    return lambda: list(public)


def public_modules(package: ModuleType) -> list[str]:
    """Return packages and modules in some ``__all__`` that have public names."""
    walked = pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}.")
    pending = [package.__name__, *(info.name for info in walked if info.ispkg)]
    names = set()
    while pending:
        module = importlib.import_module(name := pending.pop())
        values = [getattr(module, public) for public in getattr(module, "__all__", ())]
        if values and name not in names:
            names.add(name)
            pending += [v.__name__ for v in values if isinstance(v, ModuleType)]
    return sorted(names)
