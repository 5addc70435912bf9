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
FIELDS = ("identity", "done", "num_warmup", "draws", "stats", "streams", *STATE)


class Run:
    """Draws so far, and the state and stream of each chain.

    Attributes
    ----------
    draws, stats : array of shape (chain, draw, dim) and (chain, draw, NUM_STATS)
        Room for as many draws after the warm-up as were reserved.
    num_warmup : int
        Draws of each chain that are not kept.
    warmup_stats : array of shape (chain, draw, NUM_STATS)
        Of the last part of the warm-up, for those who watch.
    done : int
        Draws that every chain has made, warm-up included.
    """

    def __init__(
        self,
        states: list[Any],
        streams: list[np.random.Generator],
        num_warmup: int = 0,
    ) -> None:
        self.states, self.streams, self.done = states, streams, 0
        self.num_warmup = num_warmup
        self.warmup_stats = np.empty((len(states), 0, NUM_STATS))
        self.draws = np.empty((len(states), 0, states[0].position.size))
        self.stats = np.empty((len(states), 0, NUM_STATS))

    def reserve(self, num_draws: int) -> None:
        """Make room for at least so many draws per chain, beside its warm-up."""
        if num_draws > self.draws.shape[1]:
            try:
                self.draws = _longer(self.draws, self.num_kept, num_draws)
                self.stats = _longer(self.stats, self.num_kept, num_draws)
            except (MemoryError, ValueError):
                remedy = "Draw in several runs, or keep fewer: num_steps of a sampler."
                check.fail("num_draws", "few enough for memory", num_draws, remedy)

    @property
    def num_kept(self) -> int:
        """Draws of every chain after its warm-up."""
        return max(0, self.done - self.num_warmup)

    def room(self, stop: int) -> tuple[Array, Array]:
        """Where the draws up to ``stop`` and their statistics go."""
        if self.done >= self.num_warmup:
            part = slice(self.num_kept, stop - self.num_warmup)
            return self.draws[:, part], self.stats[:, part]
        shape = (len(self.states), stop - self.done)
        self.warmup_stats = np.zeros((*shape, NUM_STATS))
        return np.empty((*shape, self.draws.shape[2])), self.warmup_stats


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
            done=np.array(run.done),
            num_warmup=np.array(run.num_warmup),
            draws=run.draws[:, : run.num_kept],
            stats=run.stats[:, : run.num_kept],
            streams=np.array(json.dumps([save_state(rng) for rng in run.streams])),
            **states,
        )
    draft.replace(path)


def snapshot(run: Run) -> Callable[[], None]:
    """Remember states and streams; the function that is returned restores them."""
    states = [{name: getattr(s, name).copy() for name in STATE} for s in run.states]
    streams = [save_state(rng) for rng in run.streams]

    def undo() -> None:
        for state, kept in zip(run.states, states, strict=True):
            for name in STATE:
                getattr(state, name)[:] = kept[name]
        run.streams = [restore(saved) for saved in streams]

    return undo


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
    if int(file["num_warmup"]) != run.num_warmup:
        check.fail("num_warmup", f"{file['num_warmup']} of the file", run.num_warmup)
    run.reserve(kept.shape[1])
    run.draws[:, : kept.shape[1]], run.stats[:, : kept.shape[1]] = kept, file["stats"]
    run.done = int(file["done"])
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
