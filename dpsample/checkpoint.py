"""Checkpoints: what a run has made, and what it needs to go on bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._streams import restore, save_state
from dpsample.samplers.chain import NUM_STATS

Array = NDArray[np.float64]
# Arrays of a state, and of a file.
STATE = ("position", "energy", "memory", "counts")
FIELDS = ("identity", "draws", "stats", "streams", *STATE)


class Run:
    """Draws so far, and the state and stream of each chain.

    Attributes
    ----------
    draws, stats : array of shape (chain, draw, dim) and (chain, draw, NUM_STATS)
        Room for as many draws as were reserved.
    done : int
        Draws that every chain has made.
    """

    def __init__(self, states: list[Any], streams: list[np.random.Generator]) -> None:
        self.states, self.streams, self.done = states, streams, 0
        self.draws = np.empty((len(states), 0, states[0].position.size))
        self.stats = np.empty((len(states), 0, NUM_STATS))

    def reserve(self, num_draws: int) -> None:
        """Make room for at least so many draws per chain."""
        if num_draws > self.draws.shape[1]:
            self.draws = _longer(self.draws, self.done, num_draws)
            self.stats = _longer(self.stats, self.done, num_draws)


def _longer(array: Array, done: int, length: int) -> Array:
    result = np.empty((array.shape[0], length, array.shape[2]))
    result[:, :done] = array[:, :done]
    return result


def identity_of(*arrays: Any) -> str:
    """Hash of numbers and arrays that define what is sampled."""
    digest = hashlib.sha256()
    for value in arrays:
        array = np.ascontiguousarray(value)
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(path: Path, identity: str, run: Run) -> None:
    """Write to a second file and rename: a kill leaves the old one whole."""
    draft = path.with_name(path.name + ".part")
    states: dict[str, Any] = {
        name: np.array([getattr(s, name) for s in run.states]) for name in STATE
    }
    with draft.open("wb") as file:
        np.savez(
            file,
            identity=np.array(identity),
            draws=run.draws[:, : run.done],
            stats=run.stats[:, : run.done],
            streams=np.array(json.dumps([save_state(rng) for rng in run.streams])),
            **states,
        )
    draft.replace(path)


def load(path: Path, identity: str, run: Run, init: Callable[[Array], Any]) -> None:
    """Fill the run from the file; ``init`` makes a state at a saved position."""
    file = _read(path)
    kept = file["draws"]
    if str(file["identity"]) != identity or kept.shape[0] != len(run.states):
        check.fail(
            "checkpoint",
            "of this target, sampler, seed, start and number of chains",
            f"another run's file {path.name}",
            "Choose another file, or delete it to start afresh.",
        )
    done = int(kept.shape[1])
    run.reserve(done)
    run.draws[:, :done], run.stats[:, :done] = kept, file["stats"]
    run.done = done
    for c, saved in enumerate(json.loads(str(file["streams"]))):
        # What a state can rebuild from its position is in no file.
        run.states[c] = init(file["position"][c])
        for name in STATE:
            getattr(run.states[c], name)[:] = file[name][c]
        run.streams[c] = restore(saved)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream, np.load(stream) as file:
            return {name: file[name] for name in FIELDS}
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile):
        check.fail(
            "checkpoint",
            "a file written by an earlier run",
            path.name,
            "Choose another file, or delete it to start afresh.",
        )
