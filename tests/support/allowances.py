"""Chains that pause after a counted amount of work."""

import numpy as np

from dpsample.core import pauses as pauses_module
from dpsample.core.pauses import PAUSED
from dpsample.samplers.chain import NUM_STATS


class Allowance:
    """Units of work that each call may do; how many were made, and how many paused."""

    def __init__(self, monkeypatch, units):
        self.units, self.calls, self.pauses = units, 0, 0
        self.call = pauses_module.call
        monkeypatch.setattr(pauses_module, "call", self)

    def __call__(self, control, function, *arguments):
        control["units_left"] = self.units
        self.calls += 1
        found = self.call(control, function, *arguments)
        code = found[0] if isinstance(found, tuple) else found
        self.pauses += code == PAUSED
        return found


def chain_of(prepared, monkeypatch, units, count):
    """Draws, statistics, state and stream of a chain whose calls are cut short."""
    state, rng = prepared.init(), np.random.default_rng(2)
    draws, stats = np.empty((count, state.position.size)), np.empty((count, NUM_STATS))
    with monkeypatch.context() as patch:
        allowance = Allowance(patch, units)
        prepared.runner()(state, rng, draws, stats)
    kept = [draws, stats, state.position, state.energy, state.memory, state.counts]
    return [*kept, rng.random(3)], allowance.pauses


def assert_same_bits(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
