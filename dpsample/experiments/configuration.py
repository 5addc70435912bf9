"""Configuration: what decides a study's numbers, as texts that are kept and compared.

The code is the cell function and what it uses: definitions in the study's file that it
names, directly or not, and the files imported beside it, without comments and
docstrings. Titles, figures, bounds and the grid are not part of it.

Data sets are loaded once per process, read-only. A loader may return memory-mapped
arrays: then every process of one machine shares the pages, and nothing is sent. What it
returned is digested, so that rows of different data are never mixed and a worker that
finds another file says so.
"""

import ast
import hashlib
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arithmetic import arithmetic
from dpsample.core.cache import fingerprint
from dpsample.core.public import __version__
from dpsample.experiments.loading import Bundle, required
from dpsample.experiments.study import Study

Configuration = dict[str, str]
Loaders = Mapping[str, Callable[[], object]]
ROOTS = ("cell", "batch", "data")
TEXTS = ("title", "question", "answer")
LIBRARIES = ("numpy", "scipy", "numba")


_lock = threading.Lock()
_loaded: dict[tuple[str, str], tuple[object, str]] = {}


def configuration(given: Bundle, study: Study) -> Configuration:
    """Return the texts that two runs must share to be one."""
    return {
        "study": study.name,
        "seed": str(study.seed),
        "paired": ", ".join(sorted(study.paired)),
        "code": code_digest(given),
        **{f"data {name}": text for name, text in digests(given, study).items()},
        **environment(),
    }


def differences(first: Configuration, second: Configuration) -> list[str]:
    """Names of the entries that differ."""
    return [n for n in {**first, **second} if first.get(n) != second.get(n)]


@cache
def _environment() -> tuple[tuple[str, str], ...]:
    return (
        ("dpsample", f"{__version__} {fingerprint()}"),
        ("python", ".".join(platform.python_version_tuple()[:2])),
        *((name, version(name)) for name in LIBRARIES),
        ("machine", platform.machine()),
        *arithmetic().items(),
    )


def environment() -> Configuration:
    """Versions and kernels in this process, and a digest of the package's sources."""
    return dict(_environment())


def check_environment(wanted: Configuration) -> None:
    """Refuse to compute in a process with other versions than the run's."""
    own = environment()
    for name in differences(wanted, own):
        check.fail(
            f"{name} of a worker",
            repr(wanted.get(name)),
            repr(own.get(name)),
            "Every worker needs the same versions, the same processor and BLAS kernel "
            "(OPENBLAS_CORETYPE and NUMBA_CPU_NAME set them).",
        )


def code_digest(given: Bundle) -> str:
    """Hash of the code that decides what a cell measures."""
    *beside, own = (ast.parse(source.text) for source in given.sources)
    nodes: list[ast.AST] = [node for tree in beside for node in tree.body]
    nodes += _reachable(own)
    text = "\n".join(ast.dump(_without_docstrings(node)) for node in nodes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reachable(tree: ast.Module) -> list[ast.AST]:
    """Find the cell's keyword, definitions that it names, and whatever defines nothing.

    A declaration that hides the cell may name anything: then it is all but its texts.
    """
    definitions: dict[str, list[ast.stmt]] = {}
    todo: list[str] = []
    kept: set[int] = set()
    for node in tree.body:
        defined = list(_defined(node))
        for name in defined:
            definitions.setdefault(name, []).append(node)
        if not defined and not _is_docstring(node):
            kept.add(id(node))
            todo += _named(node)
    roots = [
        part
        for node in definitions["study"]
        for part in ast.walk(node)
        if isinstance(part, ast.keyword) and part.arg in ROOTS
    ]
    if not roots:
        for call in (p for n in definitions["study"] for p in ast.walk(n)):
            if isinstance(call, ast.Call):
                call.keywords = [k for k in call.keywords if k.arg not in TEXTS]
        return list(tree.body)
    todo += [name for part in roots for name in _named(part)]
    seen = {"study"}
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            for node in definitions.get(name, ()):
                kept.add(id(node))
                todo += _named(node)
    return [*roots, *(node for node in tree.body if id(node) in kept)]


def _defined(node: ast.stmt) -> Iterator[str]:
    """Names that a statement at the top level binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((a.asname or a.name).split(".")[0] for a in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        # Not in the value: names of a comprehension are its own.
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def _named(node: ast.AST) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _without_docstrings(node: ast.AST) -> ast.AST:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            part.body = [n for n in part.body if not _is_docstring(n)] or part.body[:1]
    return node


class StudyData(Mapping[str, Any]):
    """Data sets by name, loaded when they are first asked for."""

    def __init__(self, given: Bundle, study: Study, wanted: Mapping[str, str]) -> None:
        self._package, self._loaders = given.package, study.data
        self._wanted = wanted

    def __getitem__(self, name: str) -> Any:
        """Return what the loader of this name returned."""
        check.one_of(tuple(self._loaders), data=name)
        value, digest = _load(self._package, name, self._loaders)
        if digest != self._wanted[name]:
            remedy = "Give every worker the same files and environment variables."
            check.fail(f"data {name}", self._wanted[name], f"digest {digest}", remedy)
        return value

    def __iter__(self) -> Iterator[str]:
        """Names."""
        return iter(self._loaders)

    def __len__(self) -> int:
        """Return the number of data sets."""
        return len(self._loaders)


def digests(given: Bundle, study: Study) -> dict[str, str]:
    """Digest of every data set of the study."""
    return {name: _load(given.package, name, study.data)[1] for name in study.data}


def _load(package: str, name: str, loaders: Loaders) -> tuple[object, str]:
    with _lock:
        if (package, name) not in _loaded:
            value = loaders[name]()
            _freeze(value)
            digest = required("joblib", "studies").hash(value, coerce_mmap=True)
            _loaded[package, name] = value, digest
        return _loaded[package, name]


def _freeze(value: object) -> None:
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, Mapping):
        _freeze(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            _freeze(part)
