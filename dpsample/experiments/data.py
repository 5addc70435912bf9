"""Optional libraries, imported where they are used.

Data sets of a study: each loaded once per process, read-only, the same everywhere.

A loader may return memory-mapped arrays: then every process of one machine shares the
pages, and nothing is sent. What it returned is digested, so that rows of different data
are never mixed and a worker that finds another file says so.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.experiments.loading import Bundle
from dpsample.experiments.study import Study


def required(module: str, extra: str) -> Any:
    """Import a library of an extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        message = f"Studies need {name} here. Run: pip install 'dpsample[{extra}]'"
        raise ImportError(message) from error


_lock = threading.Lock()
_loaded: dict[tuple[str, str], tuple[Any, str]] = {}


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


def _load(package: str, name: str, loaders: Mapping[str, Any]) -> tuple[Any, str]:
    with _lock:
        if (package, name) not in _loaded:
            value = loaders[name]()
            _freeze(value)
            digest = required("joblib", "studies").hash(value, coerce_mmap=True)
            _loaded[package, name] = value, digest
        return _loaded[package, name]


def _freeze(value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, Mapping):
        _freeze(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            _freeze(part)
