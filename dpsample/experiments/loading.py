"""Find studies in a folder, and import them from text in any process.

A worker need not see the folder: it gets the text of the study's file and of the files
beside it that it imports (``from .instances import linear``). An edit during a run
changes nothing, and a module with the same text is imported once per process.
"""

import ast
import hashlib
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from dpsample.core import check
from dpsample.experiments.study import Study

PREFIX = "dpsample_studies_"
_lock = threading.Lock()


class Source(NamedTuple):
    """A file: the module's name, where it is, and its text."""

    name: str
    path: str
    text: str


class Bundle(NamedTuple):
    """A study's file, last, after the files that it imports."""

    sources: tuple[Source, ...]

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.sources[-1].name

    @property
    def package(self) -> str:
        """Name under which the text is imported: the same text has the same name."""
        text = "\0".join(f"{s.name}\0{s.path}\0{s.text}" for s in self.sources)
        return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:16]


def study_names(folder: Path) -> list[str]:
    """Files of the folder that declare a study."""
    if not folder.is_dir():
        remedy = "Name the folder of the studies with --studies DIR."
        check.fail("studies", "a folder", str(folder), remedy)
    return [path.stem for path in sorted(folder.glob("*.py")) if _declares(path)]


def _declares(path: Path) -> bool:
    return any(
        isinstance(target, ast.Name) and target.id == "study"
        for node in _parsed(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:  # bytes that are not text
        reason = getattr(error, "msg", None) or str(error)
        line = getattr(error, "lineno", None)
        where = path.name if line is None else f"{path.name}, line {line}"
        check.fail("study", "a file of valid Python", f"{where}: {reason}")


def bundle(folder: Path, name: str) -> Bundle:
    """Read a study and what it imports from its own folder."""
    check.one_of(tuple(study_names(folder)), study=name)
    return Bundle(tuple(_with_siblings(folder.resolve(), name, {})))


def _with_siblings(folder: Path, name: str, seen: dict[str, bool]) -> Iterator[Source]:
    """Files in an order in which each comes after those it imports."""
    if name in seen:
        if not seen[name]:
            check.fail("studies", "without circular imports", f"one through {name}")
        return
    seen[name] = False
    path = folder / f"{name}.py"
    if not path.is_file():
        check.fail("import", f"of a file in {folder}", f"{name}.py")
    text = path.read_text(encoding="utf-8")
    for sibling in _imported(_parsed(path)):
        yield from _with_siblings(folder, sibling, seen)
    seen[name] = True
    yield Source(name, str(path), text)


def _imported(tree: ast.Module) -> Iterator[str]:
    """Modules named in relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            if node.module is None:
                yield from (alias.name for alias in node.names)
            else:
                yield node.module


def load(given: Bundle) -> Study:
    """Import the study; the second time in a process it is there already."""
    with _lock:
        if given.package not in sys.modules:
            _import(given)
        module = sys.modules[f"{given.package}.{given.study}"]
    study = module.study
    check.instance(Study, study=study)
    if study.name != given.study:
        remedy = "The file and the study have one name."
        check.fail("name", repr(given.study), repr(study.name), remedy)
    return study  # type: ignore[no-any-return]


def _import(given: Bundle) -> None:
    package = ModuleType(given.package)
    package.__path__ = []
    made = {given.package: package}
    try:
        sys.modules[given.package] = package
        for source in given.sources:
            full = f"{given.package}.{source.name}"
            module = ModuleType(full)
            module.__file__, module.__package__ = source.path, given.package
            made[full] = sys.modules[full] = module
            code = compile(source.text, source.path, "exec", dont_inherit=True)
            exec(code, vars(module))
            setattr(package, source.name, module)
    except BaseException:
        for name in made:
            sys.modules.pop(name, None)
        raise


def required(module: str, extra: str) -> ModuleType:
    """Import a library of an extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        message = f"Studies need {name} here. Run: pip install 'dpsample[{extra}]'"
        raise ImportError(message) from error
