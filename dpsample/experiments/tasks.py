"""One task: some replicates of one cell, in whichever process it happens to run."""

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from dpsample.core import check
from dpsample.experiments.configuration import (
    Configuration,
    StudyData,
    check_environment,
)
from dpsample.experiments.loading import Bundle, load
from dpsample.experiments.metrics import Params
from dpsample.experiments.study import Study, key_of, seeds_of


class CellError(RuntimeError):
    """A cell failed: a bug of the study, whose traceback is above."""


class Setting(NamedTuple):
    """What all tasks of a run share."""

    bundle: Bundle
    environment: Configuration
    digests: dict[str, str]


class Task(NamedTuple):
    """Replicates of one cell."""

    params: Params
    replicates: tuple[int, ...]


class Row(NamedTuple):
    """What one replicate measured; a block's time is shared out evenly."""

    key: str
    replicate: int
    seconds: float
    values: dict[str, float]


def run(setting: Setting, task: Task) -> list[Row]:
    """Compute the rows of a task; an error says in which cell it happened."""
    check_environment(setting.environment)
    study = load(setting.bundle)
    _limit_worker()
    seeds = seeds_of(
        study.name, task.params, task.replicates, root=study.seed, paired=study.paired
    )
    more: tuple[StudyData, ...] = ()
    if study.data:
        more = (StudyData(setting.bundle, study, setting.digests),)
    begin = time.perf_counter()
    try:
        values = _measure(study, task.params, seeds, more)
    except Exception as error:
        first, last = task.replicates[0], task.replicates[-1]
        raise CellError(
            f"Study {study.name} failed in cell {key_of(task.params)}, replicates"
            f" {first} to {last}: {type(error).__name__}: {error}"
        ) from error
    seconds = (time.perf_counter() - begin) / len(seeds)
    key = key_of(task.params)
    return [
        Row(key, replicate, seconds, own)
        for replicate, own in zip(task.replicates, values, strict=True)
    ]


def one_blas_thread() -> threadpool_limits:
    """Limit BLAS until the block that this opens is left: threads change last bits."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call

    return threadpool_limits(1, "blas")


# For good in a worker; a run sets its own process back.
_limit_worker = cache(one_blas_thread)


def _measure(
    study: Study,
    params: Params,
    seeds: list[np.random.SeedSequence],
    more: tuple[StudyData, ...],
) -> list[dict[str, float]]:
    """Values of each replicate; a cell gets its own copy of the parameters."""
    if study.cell is not None:
        rows = [study.cell(dict(params), seed, *more) for seed in seeds]
        return [_numbers(study, row) for row in rows]
    assert study.batch is not None
    columns = study.batch(dict(params), seeds, *more)
    check.instance(Mapping, batch=columns)
    for name, column in columns.items():
        if np.shape(column) != (len(seeds),):
            shape = f"shape {np.shape(column)}"
            check.fail(f"metric {name}", f"of shape ({len(seeds)},)", shape)
    return [
        _numbers(study, {name: column[i] for name, column in columns.items()})
        for i in range(len(seeds))
    ]


def _numbers(study: Study, given: Mapping[str, float]) -> dict[str, float]:
    """Values of declared metrics as floats, in the order declared."""
    check.instance(Mapping, cell=given)
    known = [metric.name for metric in study.metrics]
    for name in given:
        check.one_of(known, metric=name, remedy="Declare it in metrics.")
    values = {name: float(given[name]) for name in known if name in given}
    for name, value in values.items():
        if math.isnan(value):
            remedy = "Leave out what has no meaning in this cell."
            check.fail(f"metric {name}", "a number", "nan", remedy)
    return values
