"""Checkpoints: what a run has made, and what it needs to go on bit for bit."""

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arithmetic import arithmetic
from dpsample.core.arrays import Array
from dpsample.core.files import replacing
from dpsample.core.streams import restore_state, save_state
from dpsample.samplers.chain import NUM_STATS, ChainState

Saved = NDArray[np.generic]
# Arrays of a state, and of a file.
STATE = ("position", "energy", "memory", "counts")
REMEDY = "Choose another file, or delete it to start afresh."
FIELDS = (*"identity arithmetic done num_warmup draws stats streams".split(), *STATE)


class CheckpointRun:
    """Draws so far, and the state and stream of each chain."""

    def __init__(
        self,
        states: list[ChainState],
        streams: list[np.random.Generator],
        num_warmup: int = 0,
    ) -> None:
        self.states, self.streams = states, streams
        # Draws that every chain has made, and those of them that are not kept.
        self.done, self.num_warmup = 0, num_warmup
        # (chain, draw, ...): room for as many draws after the warm-up as were reserved.
        self.draws = np.empty((len(states), 0, states[0].position.size))
        self.stats = np.empty((len(states), 0, NUM_STATS))
        # Of the last part of the warm-up, for those who watch.
        self.warmup_stats = np.empty((len(states), 0, NUM_STATS))

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


def identity_of(*arrays: object) -> str:
    """Hash of numbers and arrays that define what is sampled."""
    digest = hashlib.sha256()
    for value in arrays:
        array = np.ascontiguousarray(value)
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(path: Path, identity: str, run: CheckpointRun) -> None:
    """Write a whole file or none: a kill leaves the old one.

    If the disk is full the run goes on, with a warning: its draws are in memory.
    """
    states: dict[str, Any] = {name: _stacked(run, name) for name in STATE}
    try:
        with replacing(path, is_private=True) as draft, draft.open("wb") as file:
            np.savez(
                file,
                identity=np.array(identity),
                arithmetic=np.array(json.dumps(arithmetic())),
                done=np.array(run.done),
                num_warmup=np.array(run.num_warmup),
                draws=run.draws[:, : run.num_kept],
                stats=run.stats[:, : run.num_kept],
                streams=np.array(json.dumps([save_state(rng) for rng in run.streams])),
                **states,
            )
    except OSError as error:
        message = f"The checkpoint {path} could not be written ({error})."
        message += " The run goes on."
        warnings.warn(message, RuntimeWarning, stacklevel=check.user_stack_level())


def _stacked(run: CheckpointRun, name: str) -> Saved:
    return np.array([getattr(state, name) for state in run.states])


def snapshot(run: CheckpointRun) -> Callable[[], None]:
    """Remember states and streams; the function that is returned restores them."""
    states = [{name: getattr(s, name).copy() for name in STATE} for s in run.states]
    streams = [save_state(rng) for rng in run.streams]

    def undo() -> None:
        for state, kept in zip(run.states, states, strict=True):
            for name in STATE:
                getattr(state, name)[:] = kept[name]
        run.streams = [restore_state(saved) for saved in streams]

    return undo


def load(
    path: Path, identity: str, run: CheckpointRun, init: Callable[[Array], ChainState]
) -> None:
    """Fill the run from the file; ``init`` makes a state at a saved position."""
    file = _read(path)
    chains = len(run.states)
    # The identity covers the starts, and so the number of chains.
    if str(file["identity"]) != identity or file["draws"].shape[:1] != (chains,):
        condition = "of this target, sampler, seed, start and number of chains"
        check.fail("checkpoint", condition, f"another run's file {path.name}", REMEDY)
    kept = _kept(path, file, run)
    wanted = {
        "draws": np.empty((chains, kept, run.draws.shape[2])),
        "stats": np.empty((chains, kept, NUM_STATS)),
        **{name: _stacked(run, name) for name in STATE},
    }
    for name, like in wanted.items():
        _compare(path, name, file[name], like)
    streams = _streams(path, file["streams"], chains)
    if str(file["arithmetic"]) != json.dumps(arithmetic()):
        message = (
            f"{path.name} was written with {file['arithmetic']}, not {arithmetic()}."
        )
        message += " The run goes on, though not bit for bit."
        warnings.warn(message, RuntimeWarning, stacklevel=check.user_stack_level())
    run.reserve(kept)
    run.draws[:, :kept], run.stats[:, :kept] = file["draws"], file["stats"]
    run.done = int(file["done"])
    for c in range(chains):
        # What a state can rebuild from its position is in no file.
        run.states[c] = init(file["position"][c])
        for name in STATE:
            getattr(run.states[c], name)[:] = file[name][c]
        run.streams[c] = streams[c]


def _kept(path: Path, file: dict[str, Saved], run: CheckpointRun) -> int:
    """Return how many draws of each chain a file holds after its warm-up."""
    for name in ("done", "num_warmup"):
        _compare(path, name, file[name], np.array(0))
    done, num_warmup = int(file["done"]), int(file["num_warmup"])
    if done < 0:
        _refuse(path, f"done = {done}")
    if num_warmup != run.num_warmup:
        check.fail("num_warmup", f"{num_warmup}, as in {path.name}", run.num_warmup)
    kept = max(0, done - num_warmup)
    if file["draws"].shape[1:2] != (kept,):
        _refuse(path, f"draws of shape {file['draws'].shape} for {kept} draws")
    return kept


def _refuse(path: Path, got: str) -> NoReturn:
    condition = "a file written by an earlier run"
    check.fail("checkpoint", condition, f"{path.name} with {got}", REMEDY)


def _compare(path: Path, name: str, array: Saved, like: Saved) -> None:
    """Refuse an array of another shape or type, or a place that is no place."""
    if array.shape != like.shape or array.dtype != like.dtype:
        wanted = f"{name} of shape {array.shape} and type {array.dtype}"
        _refuse(path, f"{wanted}, not {like.shape} and {like.dtype}")
    if name in ("draws", "position") and not np.isfinite(array).all():
        _refuse(path, f"a NaN or an infinity in {name}")


def _streams(path: Path, text: object, chains: int) -> list[np.random.Generator]:
    try:
        states = json.loads(str(text))
        restored = [restore_state(state) for state in states]
    except Exception as error:  # of NumPy, on states that are none
        _refuse(path, f"streams that cannot be restored ({error!r})")
    if len(restored) != chains:
        _refuse(path, f"{len(restored)} streams for {chains} chains")
    return restored


def _read(path: Path) -> dict[str, Saved]:
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
