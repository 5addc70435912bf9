"""A random walk as a compiled chain, and comparisons of its runs."""

from typing import NamedTuple

import numpy as np

from dpsample.core.streams import streams
from dpsample.running import chains

DIM = 2


class State(NamedTuple):
    position: np.ndarray
    energy: np.ndarray
    counts: np.ndarray
    memory: np.ndarray
    cache: np.ndarray


def walk(state, rng, draws, stats):
    """Gaussian autoregression that needs all of its state and its stream."""
    for t in range(len(draws)):
        state.memory[:] = 0.5 * state.memory + rng.standard_normal()
        state.position[:] = 0.9 * state.cache + state.memory + 0.1 * state.energy
        state.energy[0] = np.cos(state.energy[0]) + rng.standard_normal()
        state.cache[:] = state.position
        state.counts[0] += 1
        draws[t], stats[t] = state.position, state.counts[0] * np.arange(5)
        stats[t, 0] = state.energy[0]


class Prepared:
    """A chain of `walk`; what its states cache is a copy of the position."""

    def __init__(self, runner=walk):
        self.runner = lambda: runner

    def init(self, position):
        point = np.zeros(DIM) if position is None else position.copy()
        counts = np.zeros(1, dtype=np.int64)
        return State(point, np.zeros(1), counts, np.zeros(DIM), point.copy())


def run(num_draws, *, runner=walk, num_chains=3, **options):
    starts, rngs = [None] * num_chains, streams(11, num_chains)
    return chains.run(Prepared(runner), starts, rngs, num_draws=num_draws, **options)


def assert_same(a, b):
    np.testing.assert_array_equal(a.draws, b.draws)
    np.testing.assert_array_equal(a.stats, b.stats)
