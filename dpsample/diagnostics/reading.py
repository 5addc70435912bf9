"""What the diagnostics read from draws: arrays and words, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check

Array = NDArray[np.float64]

# Fewer draws in a chain have no effective sample size: halves need two each.
MIN_DRAWS = 4


class Chains(NamedTuple):
    """Draws and what is known of each.

    Attributes
    ----------
    theta : array of shape (chain, draw, dim)
        Draws.
    names : tuple of str
        Names of the coefficients.
    stats : dict of str to array of shape (chain, draw)
        Statistics of the draws; empty if there are none.
    attributes : dict
        Sampler, exactness, step size, seed, ...
    """

    theta: Array
    names: tuple[str, ...]
    stats: dict[str, Array]
    attributes: dict[str, Any]


def chosen(coefficients: Any, names: Sequence[str]) -> list[str]:
    """Names of some coefficients, each of them once."""
    is_list = isinstance(coefficients, list | tuple) and len(coefficients) > 0
    if not is_list:
        check.fail("coefficients", "a list of names", check.shown(coefficients))
    for name in coefficients:
        check.one_of(names, coefficients=name)
    if len(set(coefficients)) < len(coefficients):
        check.fail("coefficients", "distinct", coefficients)
    return list(coefficients)


def read(draws: Any) -> Chains:
    """Chains of a DataTree as `sample` makes it.

    Raises
    ------
    ValueError
        If there is no ``posterior["theta"]`` of dims (chain, draw, coefficient), a
        chain has fewer than `MIN_DRAWS` draws, or a draw is not finite.
    """
    remedy = "Pass what dps.sample returned."
    try:
        theta = draws["posterior"]["theta"]
        stats = draws["sample_stats"] if "sample_stats" in draws.children else {}
    except (AttributeError, LookupError, TypeError, ValueError):
        check.fail("draws", 'a DataTree with posterior["theta"]', draws, remedy)
    if theta.dims[:2] != ("chain", "draw") or theta.ndim != 3:
        check.fail("draws", "of dims (chain, draw, coefficient)", theta.dims, remedy)
    values = check.array("draws", theta.values, shape=(None, None, None))
    if values.shape[1] < MIN_DRAWS:
        check.fail(
            "draws",
            f"at least {MIN_DRAWS} per chain",
            values.shape[1],
            "Sample more: num_draws=1000, say.",
        )
    last = theta.coords.get(theta.dims[2])
    names = range(values.shape[2]) if last is None else last.values
    return Chains(
        theta=values,
        names=tuple(str(name) for name in names),
        stats={name: np.asarray(stats[name].values) for name in stats},
        attributes=dict(draws.attrs),
    )
