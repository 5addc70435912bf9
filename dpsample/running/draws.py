"""Draws and their statistics as an ArviZ `DataTree`, which is not releasable.

Names are those of ArviZ's InferenceData schema where they mean the same:

- ``lp`` is the log density of a draw up to a constant, that is, minus the energy V.
- ``energy`` is the Hamiltonian V + K, where K is the kinetic energy of the velocity
  after the last trajectory of the draw. ``n_steps`` is its number of leapfrog steps,
  and ``diverging`` tells whether a trajectory was rejected because its energy rose
  above the limit. Only Hamiltonian samplers have these.

There is no ``tree_depth``, because no sampler here builds trees.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numba
import numpy as np

from dpsample.core.arrays import Array, Bools, Ints
from dpsample.core.public import __version__
from dpsample.samplers.chain import NUM_STATS, STAT
from dpsample.targets.gibbs_target import GibbsTarget, count_outside, energies

if TYPE_CHECKING:
    from xarray import DataTree

# Energies that samplers did without are computed if that takes at most this number of
# losses, which is some seconds.
FREE_LOSSES = 500_000_000
# Maximum number of draws of a task of a thread. Between tasks Ctrl-C takes effect.
TASK_DRAWS = 256
Statistics = Mapping[str, Array | Ints | Bools]


def fill_energies(
    target: GibbsTarget, draws: Array, stats: Array, threads: int | None = None
) -> None:
    """Fill in energies that a sampler did without, unless they cost much.

    The rule counts evaluations, not seconds, and so does not depend on the machine.
    """
    missing = np.argwhere(np.isnan(stats[:, :, STAT.energy]))
    num_losses = len(missing) * target.num_records
    # A tenth of the record evaluations of the draws is allowed in any case.
    if num_losses > max(FREE_LOSSES, 0.1 * stats[:, :, STAT.num_records].sum()):
        return
    # A task has at most ten million losses.
    size = max(1, min(TASK_DRAWS, 10_000_000 // max(target.num_records, 1)))
    parts = [missing[i : i + size].T for i in range(0, len(missing), size)]
    with _pool(threads) as pool:
        values = pool.map(lambda part: energies(target, draws[tuple(part)]), parts)
        for (chains, rows), value in zip(parts, values, strict=True):
            stats[chains, rows, STAT.energy] = value


def count_violations(
    target: GibbsTarget, draws: Array, threads: int | None = None
) -> int:
    """Return the number of draws (chain, draw, dim) outside the domain."""
    starts = range(0, draws.shape[1], TASK_DRAWS)
    parts = [chain[i : i + TASK_DRAWS] for chain in draws for i in starts]
    with _pool(threads) as pool:
        return sum(pool.map(lambda part: count_outside(target, part), parts))


@contextmanager
def _pool(threads: int | None) -> Iterator[ThreadPoolExecutor]:
    """Yield threads, whose tasks are cancelled by Ctrl-C."""
    pool = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def name_statistics(
    stats: Array,
    *,
    step_size: float | str | None,
    own_statistics: Sequence[str] = (),
    energy_shift: float = 0.0,
) -> dict[str, Array | Ints | Bools]:
    """Columns of the statistics by ArviZ's names, numbers of evaluations as integers.

    The integers, and log densities, take the place of the floats in ``stats``: new
    memory would cost more time than the conversion, and after Ctrl-C somebody waits.
    ``own_statistics`` names the columns after those of `STAT`. ``energy_shift`` is
    added to energies.
    """
    # Number of draws whose statistics are converted at once.
    block = 8192
    counts = stats.view(np.int64)
    columns = (*STAT._fields, *own_statistics)
    # A number that is missing in a checkpoint of an earlier version stays a NaN.
    is_count = np.array([name.startswith("num_") for name in columns])
    is_count[NUM_STATS:] &= ~np.isnan(stats[:, :, NUM_STATS:]).any(axis=(0, 1))
    for chain, draws in enumerate(stats):
        for start in range(0, len(draws), block):
            part = slice(start, start + block)
            counts[chain][part, is_count] = draws[part, is_count].astype(np.int64)
    for column, name in enumerate(columns):
        if name in ("energy", "hamiltonian"):
            stats[:, :, column] += energy_shift
    # `np.negative` in place is wrong for rows of 8 numbers in NumPy 2.4.6.
    stats[:, :, STAT.energy] *= -1.0
    named: dict[str, Array | Ints | Bools] = {
        name: (counts if is_count[column] else stats)[:, :, column]
        for column, name in enumerate(columns)
    }
    named = {"lp": named.pop("energy"), **named}
    if step_size is not None:
        named["step_size"] = np.broadcast_to(step_size, stats.shape[:2])
    for name, present in {"hamiltonian": "energy", "num_leaps": "n_steps"}.items():
        if name in named:
            named[present] = named.pop(name)
    if "num_divergences" in named:
        named["diverging"] = named.pop("num_divergences") > 0
    return named


def to_datatree(
    draws: Array,
    sample_stats: Statistics,
    *,
    coefficients: Sequence[str],
    constant_data: Mapping[str, Array],
    attributes: Mapping[str, object],
    warmup: tuple[Array, Statistics] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> DataTree:
    """Pack chains as an ArviZ DataTree that says it is not releasable.

    Draws have shape (chain, draw, dim), what is known of each (chain, draw); they and
    the target's numbers are the groups posterior, sample_stats and constant_data. Those
    of the ``warmup`` are the groups warmup_posterior and warmup_sample_stats. To the
    attributes versions are added, and ``seconds`` to those of the draws' groups. Flags
    are stored as 0 and 1: the attributes of a netCDF file, in which a tree must fit,
    have no booleans.
    """
    import xarray as xr  # arviz_base would pack the same in three times as long

    from dpsample.running.sample_stats import SampleStats

    origin = {
        "created_at": datetime.now(UTC).isoformat(),
        "creation_library": "dpsample",
        "creation_library_version": __version__,
        "creation_library_language": "Python",
        "inference_library": "dpsample",
        "inference_library_version": __version__,
    }

    def pack(draws: Array, statistics: Statistics) -> tuple[xr.Dataset, xr.Dataset]:
        chain, draw = (np.arange(size) for size in draws.shape[:2])
        coordinates = {"chain": chain, "draw": draw, "coefficient": list(coefficients)}
        attributes = {**origin, **(seconds or {})}
        return (
            xr.Dataset({"theta": (tuple(coordinates), draws)}, coordinates, attributes),
            xr.Dataset(
                {name: (("chain", "draw"), v) for name, v in statistics.items()},
                xr.Coordinates({"chain": chain, "draw": draw}),
                attributes,
            ),
        )

    posterior, statistics = pack(draws, sample_stats)
    constants = {name: ((), value) for name, value in constant_data.items()}
    groups = {
        "posterior": xr.DataTree(posterior),
        "sample_stats": SampleStats(statistics),
        "constant_data": xr.DataTree(xr.Dataset(constants, attrs=origin)),
    }
    if warmup is not None:
        posterior, statistics = pack(*warmup)
        groups["warmup_posterior"] = xr.DataTree(posterior)
        groups["warmup_sample_stats"] = SampleStats(statistics)
    tree = xr.DataTree()
    tree.children = groups  # no copies
    flags = {k: int(v) if isinstance(v, bool) else v for k, v in attributes.items()}
    versions = {
        "dpsample_version": __version__,
        "numba_version": numba.__version__,
        "numpy_version": np.__version__,
    }
    tree.attrs.update(flags, **versions, releasable=0)
    return tree
