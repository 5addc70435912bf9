"""Checkpoints: what a run has made, and what it needs to go on bit for bit."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._arithmetic import arithmetic
from dpsample._streams import restore, save_state
from dpsample.samplers.chain import NUM_STATS

Array = NDArray[np.float64]
# Arrays of a state, and of a file.
STATE = ("position", "energy", "memory", "counts")
FIELDS = ("identity", "arithmetic", "draws", "stats", "streams", *STATE)


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


def check_writable(path: Path) -> None:
    """Refuse a place where nothing can be written, before the work and not after."""
    draft = _draft(path)
    try:
        draft.open("ab").close()
        draft.unlink()
    except OSError as error:
        check.fail("checkpoint", "a file that can be written", f"{path}: {error}")


def _draft(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def save(path: Path, identity: str, run: Run) -> None:
    """Write to a second file and rename: a kill leaves the old one whole.

    If the disk is full the run goes on, with a warning: its draws are in memory.
    """
    draft = _draft(path)
    states = {name: _stacked(run, name) for name in STATE}
    try:
        with draft.open("wb") as file:
            np.savez(
                file,
                identity=np.array(identity),
                arithmetic=np.array(json.dumps(arithmetic())),
                draws=run.draws[:, : run.done],
                stats=run.stats[:, : run.done],
                streams=np.array(json.dumps([save_state(rng) for rng in run.streams])),
                **states,
            )
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        message = f"The checkpoint {path} could not be written ({error})."
        warnings.warn(f"{message} The run goes on.", RuntimeWarning, stacklevel=2)


def _stacked(run: Run, name: str) -> Any:
    return np.array([getattr(state, name) for state in run.states])


def load(path: Path, identity: str, run: Run, init: Callable[[Array], Any]) -> None:
    """Fill the run from the file; ``init`` makes a state at a saved position."""
    file = _read(path)
    chains, done = len(run.states), file["draws"].shape[1:2]
    # The identity covers the starts, and so the number of chains.
    if str(file["identity"]) != identity or file["draws"].shape[:1] != (chains,):
        check.fail(
            "checkpoint",
            "of this target, sampler, seed, start and number of chains",
            f"another run's file {path.name}",
            "Choose another file, or delete it to start afresh.",
        )
    wanted = {
        "draws": np.empty((chains, *done, run.draws.shape[2])),
        "stats": np.empty((chains, *done, NUM_STATS)),
        **{name: _stacked(run, name) for name in STATE},
    }
    for name, like in wanted.items():
        _compare(path, name, file[name], like)
    streams = _streams(path, file["streams"], chains)
    if str(file["arithmetic"]) != json.dumps(arithmetic()):
        message = (
            f"{path.name} was written with {file['arithmetic']}, not {arithmetic()}."
        )
        remedy = "The run goes on, though not bit for bit."
        warnings.warn(f"{message} {remedy}", RuntimeWarning, stacklevel=2)
    run.reserve(done[0])
    run.draws[:, : done[0]], run.stats[:, : done[0]] = file["draws"], file["stats"]
    run.done = done[0]
    for c in range(chains):
        # What a state can rebuild from its position is in no file.
        run.states[c] = init(file["position"][c])
        for name in STATE:
            getattr(run.states[c], name)[:] = file[name][c]
        run.streams[c] = streams[c]


def _refuse(path: Path, got: str) -> NoReturn:
    remedy = "Choose another file, or delete it to start afresh."
    condition = "a file written by an earlier run"
    check.fail("checkpoint", condition, f"{path.name} with {got}", remedy)


def _compare(path: Path, name: str, array: Any, like: Any) -> None:
    """Refuse an array of another shape or type, or a place that is no place."""
    if array.shape != like.shape or array.dtype != like.dtype:
        wanted = f"{name} of shape {array.shape} and type {array.dtype}"
        _refuse(path, f"{wanted}, not {like.shape} and {like.dtype}")
    if name in ("draws", "position") and not np.isfinite(array).all():
        _refuse(path, f"a NaN or an infinity in {name}")


def _streams(path: Path, text: Any, chains: int) -> list[np.random.Generator]:
    try:
        states = json.loads(str(text))
        restored = [restore(state) for state in states]
    except Exception as error:  # of NumPy, on states that are none
        _refuse(path, f"streams that cannot be restored ({error!r})")
    if len(restored) != chains:
        _refuse(path, f"{len(restored)} streams for {chains} chains")
    return restored


def _read(path: Path) -> dict[str, Any]:
    """Arrays of a file; one that would take more memory than the file is refused."""
    with path.open("rb") as stream:
        try:
            with ZipFile(stream) as archive:
                members = archive.infolist()
            if any(m.compress_type != ZIP_STORED for m in members):
                raise ValueError("compressed arrays")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: file[name] for name in FIELDS}
        except Exception as error:  # crafted headers raise anything, MemoryError too
            _refuse(path, f"{type(error).__name__}: {' '.join(str(error).split())}")
