"""Prepared chains of public samplers, and their draws."""

import numpy as np

from dpsample.samplers import chain
from tests.support.sampler_grid import (
    SAMPLERS,
    TARGETS,
    grid_case,
    supported,
)


def cell_of(name):
    """A cell that the sampler supports: a bounded domain if there is one."""
    cells = [cell for cell in TARGETS if supported(name, *cell)[0]]
    return next((cell for cell in cells if cell[0] == "ball"), cells[0])


def prepare(name, target=None, seed=1, sampler=None):
    target = grid_case(*cell_of(name)).target if target is None else target
    sampler = SAMPLERS[name] if sampler is None else sampler
    return sampler.prepare(target, np.random.default_rng(seed))


def draw(prepared, chunks, seed=2, state=None):
    """Draws and statistics of one chain in chunks of the given lengths."""
    state = prepared.init() if state is None else state
    rng, advance = np.random.default_rng(seed), prepared.runner()
    draws = np.full((sum(chunks), state.position.size), np.nan)
    stats = np.full((len(draws), chain.NUM_STATS), np.nan)
    first = 0
    for size in chunks:
        rows = slice(first, first + size)
        advance(state, rng, draws[rows], stats[rows])
        first += size
    return draws, stats, state
