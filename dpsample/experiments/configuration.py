"""Configuration of a study, and the import of its file.

The configuration is a dictionary of texts that determine the numbers of a study: a
digest of its code, digests of its data, its seed, and the versions of libraries.
Results of two runs are put into one store only if their configurations are equal.

A study is a grid of *cells*, one for each choice of its parameters. The code is the
cell function, which computes the numbers of a cell, and everything it uses: definitions
in the study's file that it names, directly or indirectly, and the files of the same
folder that the study imports. Comments and docstrings, titles, figures, bounds and the
grid are not part of it.

Data sets are loaded once per process, read-only. A loader may return memory-mapped
arrays. Then all processes of one machine share the pages, and nothing is sent. The data
are digested, so that results of different data are never mixed, and a worker that finds
another file reports it.

A worker need not have the folder. It gets a `Bundle` with the texts of the study's file
and of the files that this imports (``from .instances import linear``). So an edit
during a run changes nothing, and a module with the same text is imported once per
process.
"""

import ast
import hashlib
import importlib
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arithmetic import arithmetic
from dpsample.core.cache import PACKAGE
from dpsample.core.public import __version__
from dpsample.experiments.study import Study

Configuration = dict[str, str]
Loaders = Mapping[str, Callable[[], object]]
# Modules of studies are imported under names that begin with this.
PREFIX = "dpsample_studies_"
# Data sets of this process and their digests, by `Bundle.package` and the data's name.
_loaded: dict[tuple[str, str], tuple[object, str]] = {}
# Threads run cells of one study, so imports, and uses of `_loaded`, come one at a time.
_import_lock = threading.Lock()
_data_lock = threading.Lock()


class Source(NamedTuple):
    """A file of Python: the name of its module, its path and its text."""

    name: str
    path: str
    text: str


class Bundle(NamedTuple):
    """The file of a study, after the files that it imports."""

    sources: tuple[Source, ...]

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.sources[-1].name

    @property
    def package(self) -> str:
        """Name under which the files are imported, which depends on their texts."""
        text = "\0".join(f"{s.name}\0{s.path}\0{s.text}" for s in self.sources)
        return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:16]


def study_names(folder: Path) -> list[str]:
    """Return the names of the files of a folder that declare a study."""
    if not folder.is_dir():
        remedy = "Name the folder of the studies with --studies DIR."
        check.fail("studies", "a folder", str(folder), remedy)
    return [path.stem for path in sorted(folder.glob("*.py")) if _declares_study(path)]


def _declares_study(path: Path) -> bool:
    """Return whether a file assigns the name ``study``, without importing it."""
    return any(
        isinstance(target, ast.Name) and target.id == "study"
        for node in _parse(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file; a ValueError names the line of an error."""
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
    """Yield a file after all files that it imports.

    ``seen`` has the files that are done (True) or being read (False). The latter are
    found again if imports are circular.
    """
    if name in seen:
        if not seen[name]:
            check.fail("studies", "without circular imports", f"one through {name}")
        return
    seen[name] = False
    path = folder / f"{name}.py"
    if not path.is_file():
        check.fail("import", f"of a file in {folder}", f"{name}.py")
    text = path.read_text(encoding="utf-8")
    for sibling in _sibling_names(_parse(path)):
        yield from _with_siblings(folder, sibling, seen)
    seen[name] = True
    yield Source(name, str(path), text)


def _sibling_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules in relative imports.

    A dotted name, of a file in a subfolder, is rejected later, as there is no such file
    in the folder.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            if node.module is None:
                yield from (alias.name for alias in node.names)
            else:
                yield node.module


def load(source_bundle: Bundle) -> Study:
    """Return a study, whose module is imported once per process."""
    with _import_lock:
        if source_bundle.package not in sys.modules:
            _import(source_bundle)
        module = sys.modules[f"{source_bundle.package}.{source_bundle.study}"]
    study = module.study
    check.instance(Study, study=study)
    if study.name != source_bundle.study:
        remedy = "The file and the study have one name."
        check.fail("name", repr(source_bundle.study), repr(study.name), remedy)
    return study  # type: ignore[no-any-return]


def _import(source_bundle: Bundle) -> None:
    """Import all files of a bundle as modules of a new package, or none."""
    # The package exists in memory only. An empty path makes relative imports in it
    # work.
    package = ModuleType(source_bundle.package)
    package.__path__ = []
    modules = {source_bundle.package: package}
    try:
        sys.modules[source_bundle.package] = package
        for source in source_bundle.sources:
            full = f"{source_bundle.package}.{source.name}"
            module = ModuleType(full)
            # Modules are registered before they run, as the import system does it.
            module.__file__, module.__package__ = source.path, source_bundle.package
            modules[full] = sys.modules[full] = module
            code = compile(source.text, source.path, "exec", dont_inherit=True)
            exec(code, vars(module))
            setattr(package, source.name, module)
    except BaseException:
        # Half-imported modules would be found by the next import.
        for name in modules:
            sys.modules.pop(name, None)
        raise


def import_extra(module: str, extra: str) -> ModuleType:
    """Import a library of an optional extra; an error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        raise check.missing_library("This use of studies", name, extra) from error


def configuration(source_bundle: Bundle, study: Study) -> Configuration:
    """Return the texts that two runs must share for results that belong together."""
    return {
        **declaration(source_bundle, study),
        **{
            f"data {name}": text for name, text in digests(source_bundle, study).items()
        },
        **environment(),
    }


def declaration(source_bundle: Bundle, study: Study) -> Configuration:
    """Return the part of the configuration that follows from the study's files.

    ``paired`` parameters belong to it because the seeds ignore them.
    """
    return {
        "study": study.name,
        "seed": str(study.seed),
        "paired": ", ".join(sorted(study.paired)),
        "code": code_digest(source_bundle),
    }


def differences(first: Configuration, second: Configuration) -> list[str]:
    """Return the names of the entries in which two configurations differ."""
    return [n for n in {**first, **second} if first.get(n) != second.get(n)]


def _package_digest() -> str:
    """Return a digest of all files of the package, except the command line.

    The cache of compiled functions depends on fewer files. But a cell may call any
    function of the package.
    """
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        relative = path.relative_to(PACKAGE)
        if path.suffix in (".py", ".toml") and relative.parts[0] != "cli":
            digest.update(f"{relative.as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _environment() -> tuple[tuple[str, str], ...]:
    """Return the pairs of `environment`, which nobody can change in the cache."""
    return (
        ("dpsample", f"{__version__} {_package_digest()}"),
        ("python", ".".join(platform.python_version_tuple()[:2])),
        *((name, version(name)) for name in ("numpy", "scipy", "numba")),
        ("machine", platform.machine()),
        *arithmetic().items(),
    )


def environment() -> Configuration:
    """Return versions, arithmetic and a digest of the package in this process."""
    return dict(_environment())


def check_environment(expected: Configuration) -> None:
    """Raise a ValueError unless this process has the versions of the run."""
    present = environment()
    for name in differences(expected, present):
        check.fail(
            f"{name} of a worker",
            repr(expected.get(name)),
            repr(present.get(name)),
            "Every worker needs the same versions, the same processor and BLAS kernel "
            "(OPENBLAS_CORETYPE and NUMBA_CPU_NAME set them).",
        )


def code_digest(source_bundle: Bundle) -> str:
    """Return a digest of the code that determines the results of a cell."""
    # All statements of imported files belong to the code, but only some of the study's
    # own.
    *sibling_trees, study_tree = (
        ast.parse(source.text) for source in source_bundle.sources
    )
    nodes: list[ast.AST] = [node for tree in sibling_trees for node in tree.body]
    nodes += _reachable(study_tree)
    text = "\n".join(ast.dump(_without_docstrings(node)) for node in nodes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reachable(tree: ast.Module) -> list[ast.AST]:
    """Return the parts of a study's file on which its results may depend.

    These are the keywords of the cell, the batch and the data in the declaration, all
    definitions that they name directly or indirectly, and statements that define
    nothing, such as a call at the top level.

    If the declaration does not show these keywords, for example because it calls a
    function of the study's own, it is the whole file except titles and texts.
    """
    definitions: dict[str, list[ast.stmt]] = {}
    # Names whose definitions are not collected yet.
    todo: list[str] = []
    # Statements that belong to the code, by their id.
    used: set[int] = set()
    for node in tree.body:
        defined = list(_bound_names(node))
        for name in defined:
            definitions.setdefault(name, []).append(node)
        # A statement that defines nothing may change what others defined.
        if not defined and not _is_docstring(node):
            used.add(id(node))
            todo += _used_names(node)
    roots = [
        part
        for node in definitions["study"]
        for part in ast.walk(node)
        if isinstance(part, ast.keyword) and part.arg in ("cell", "batch", "data")
    ]
    if not roots:
        # Texts may change without an effect on results. They are removed in place,
        # because the tree has no other use.
        for call in (p for n in definitions["study"] for p in ast.walk(n)):
            if isinstance(call, ast.Call):
                texts = ("title", "question", "answer")
                call.keywords = [k for k in call.keywords if k.arg not in texts]
        return list(tree.body)
    todo += [name for part in roots for name in _used_names(part)]
    # Only the roots of the declaration itself belong to the code.
    seen = {"study"}
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            for node in definitions.get(name, ()):
                used.add(id(node))
                todo += _used_names(node)
    return [*roots, *(node for node in tree.body if id(node) in used)]


def _bound_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top level binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((a.asname or a.name).split(".")[0] for a in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        # The value is not searched, because names of a comprehension are local to it.
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def _used_names(node: ast.AST) -> list[str]:
    """Return all names that occur in a part of a tree."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _without_docstrings(node: ast.AST) -> ast.AST:
    """Remove the docstrings from a tree, in place, and return it.

    A body of a docstring only keeps it, because a body must not be empty.
    """
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            part.body = [n for n in part.body if not _is_docstring(n)] or part.body[:1]
    return node


class StudyData(Mapping[str, Any]):
    """Data sets by name, which are loaded at their first use.

    They must have the ``digests`` of the run.
    """

    def __init__(
        self, source_bundle: Bundle, study: Study, digests: Mapping[str, str]
    ) -> None:
        self._package, self._loaders = source_bundle.package, study.data
        self._digests = digests

    def __getitem__(self, name: str) -> Any:
        """Return a data set; a ValueError if it is not the one of the run."""
        check.one_of(tuple(self._loaders), data=name)
        value, digest = _load(self._package, name, self._loaders)
        if digest != self._digests[name]:
            remedy = "Give every worker the same files and environment variables."
            check.fail(f"data {name}", self._digests[name], f"digest {digest}", remedy)
        return value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._loaders)

    def __len__(self) -> int:
        """Return the number of data sets."""
        return len(self._loaders)


def digests(source_bundle: Bundle, study: Study) -> dict[str, str]:
    """Return the digest of every data set of the study."""
    return {
        name: _load(source_bundle.package, name, study.data)[1] for name in study.data
    }


def _load(package: str, name: str, loaders: Loaders) -> tuple[object, str]:
    """Return a data set and its digest, which are kept for the process."""
    with _data_lock:
        # The lock lets threads wait for a loader that one of them has called.
        if (package, name) not in _loaded:
            value = loaders[name]()
            _freeze(value)
            # Memory-mapped arrays have the digest of equal arrays in memory.
            digest = import_extra("joblib", "studies").hash(value, coerce_mmap=True)
            _loaded[package, name] = value, digest
        return _loaded[package, name]


def _freeze(value: object) -> None:
    """Make all arrays in a data set read-only."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, Mapping):
        _freeze(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            _freeze(part)
