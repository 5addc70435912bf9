"""Draws and their statistics as an ArviZ `DataTree`, which is not releasable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numba
import numpy as np

from dpsample.core.arrays import Array, Ints
from dpsample.core.public import __version__
from dpsample.samplers.chain import STAT
from dpsample.targets.gibbs_target import GibbsTarget, energy

if TYPE_CHECKING:
    from xarray import DataTree


def fill_energies(target: GibbsTarget, draws: Array, stats: Array) -> None:
    """Fill in energies that a sampler did without, unless they cost much.

    The rule counts evaluations, not seconds, and so does not depend on the machine.
    """
    missing = np.argwhere(np.isnan(stats[:, :, STAT.energy]))
    records = target.num_records
    # Energies are computed later only if that takes at most a tenth of the record
    # evaluations of the draws.
    if len(missing) * records > 0.1 * stats[:, :, STAT.num_records].sum():
        return
    work = target.new_work()
    for c, t in missing:
        numbers, pieces = target.numbers, target.pieces
        stats[c, t, STAT.energy] = energy(numbers, pieces, draws[c, t], work)


def name_statistics(
    stats: Array, *, step_size: float | str | None
) -> dict[str, Array | Ints]:
    """Columns of the statistics by name, numbers of evaluations as integers.

    The integers take the place of the floats in ``stats``: new memory would cost more
    time than the conversion, and after Ctrl-C somebody waits.
    """
    # Number of draws whose statistics are converted at once.
    block = 8192
    counts = stats.view(np.int64)
    is_count = [name.startswith("num_") for name in STAT._fields]
    for chain, draws in enumerate(stats):
        for start in range(0, len(draws), block):
            part = slice(start, start + block)
            counts[chain][part, is_count] = draws[part, is_count].astype(np.int64)
    named: dict[str, Array | Ints] = {
        name: (counts if is_count[column] else stats)[:, :, column]
        for column, name in enumerate(STAT._fields)
    }
    if step_size is not None:
        named["step_size"] = np.broadcast_to(step_size, stats.shape[:2])
    return named


def to_datatree(
    draws: Array,
    sample_stats: Mapping[str, Array | Ints],
    *,
    coefficients: Sequence[str],
    constant_data: Mapping[str, Array],
    attributes: Mapping[str, object],
) -> DataTree:
    """Pack chains as an ArviZ DataTree that says it is not releasable.

    Draws have shape (chain, draw, dim), what is known of each (chain, draw); they and
    the target's numbers are the groups posterior, sample_stats and constant_data. To
    the attributes versions are added. Flags are stored as 0 and 1: a netCDF file, in
    which a tree must fit, has no booleans.
    """
    import xarray as xr  # arviz_base would pack the same in three times as long

    origin = {
        "created_at": datetime.now(UTC).isoformat(),
        "creation_library": "dpsample",
        "creation_library_version": __version__,
        "creation_library_language": "Python",
    }
    chain, draw = (np.arange(size) for size in draws.shape[:2])
    chain_and_draw = xr.Coordinates({"chain": chain, "draw": draw})
    coordinates = {"chain": chain, "draw": draw, "coefficient": list(coefficients)}
    groups = {
        "posterior": xr.Dataset(
            {"theta": (tuple(coordinates), draws)}, coordinates, origin
        ),
        "sample_stats": xr.Dataset(
            {
                name: (("chain", "draw"), values)
                for name, values in sample_stats.items()
            },
            chain_and_draw,
            origin,
        ),
        "constant_data": xr.Dataset(
            {name: ((), value) for name, value in constant_data.items()}, attrs=origin
        ),
    }
    tree = xr.DataTree()
    tree.children = {name: xr.DataTree(g) for name, g in groups.items()}  # no copies
    flags = {k: int(v) if isinstance(v, bool) else v for k, v in attributes.items()}
    versions = {
        "dpsample_version": __version__,
        "numba_version": numba.__version__,
        "numpy_version": np.__version__,
    }
    tree.attrs.update(flags, **versions, releasable=0)
    return tree
