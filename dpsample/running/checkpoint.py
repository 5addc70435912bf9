"""Checkpoints: draws of a run, and the states with which it goes on bit for bit.

A file is read as untrusted: arrays of other names, shapes or types, compressed ones and
pickled objects are errors.
"""

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arithmetic import arithmetic
from dpsample.core.arrays import Array
from dpsample.core.files import replacing
from dpsample.core.streams import restore_state, save_state
from dpsample.samplers.chain import COUNT, NUM_STATS, ChainState

Saved = NDArray[np.generic]
# Arrays of a chain's state that a file holds, and all arrays of a file.
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
        *,
        num_stats: int = NUM_STATS,
        keeps_warmup: bool = False,
    ) -> None:
        self.states, self.streams = states, streams
        # Draws of every chain, and the number of them that belong to the warm-up.
        self.done, self.num_warmup = 0, num_warmup
        # Number of the first draws that are discarded.
        self.num_dropped = 0 if keeps_warmup else num_warmup
        # (chain, draw, ...), for as many draws as were reserved.
        self.draws = np.empty((len(states), 0, states[0].position.size))
        self.stats = np.empty((len(states), 0, num_stats))
        # Statistics of the last part of a discarded warm-up, for the live line.
        self.warmup_stats = np.empty((len(states), 0, num_stats))

    @property
    def keeps_warmup(self) -> bool:
        """Whether draws of the warm-up are kept, before the others."""
        return self.num_dropped < self.num_warmup

    def reserve(self, goal: int) -> None:
        """Allocate memory for ``goal`` draws per chain, warm-up included."""
        num_draws = goal - self.num_dropped
        if num_draws > self.draws.shape[1]:
            try:
                self.draws = _extend(self.draws, self.num_kept, num_draws)
                self.stats = _extend(self.stats, self.num_kept, num_draws)
            except (MemoryError, ValueError):
                remedy = "Draw in several runs, or keep fewer: num_steps of a sampler."
                check.fail("num_draws", "few enough for memory", num_draws, remedy)

    @property
    def num_kept(self) -> int:
        """Number of draws of every chain that are kept."""
        return max(0, self.done - self.num_dropped)

    def arrays_until(self, stop: int) -> tuple[Array, Array]:
        """Return the arrays for the draws up to ``stop`` and their statistics."""
        if self.done >= self.num_dropped:
            part = slice(self.num_kept, stop - self.num_dropped)
            return self.draws[:, part], self.stats[:, part]
        shape = (len(self.states), stop - self.done)
        self.warmup_stats = np.zeros((*shape, self.stats.shape[2]))
        return np.empty((*shape, self.draws.shape[2])), self.warmup_stats


# Function that is called with the number of draws done, their total, and the run.
Progress = Callable[[int, int, CheckpointRun], None]


def _extend(array: Array, done: int, length: int) -> Array:
    result = np.empty((array.shape[0], length, array.shape[2]))
    result[:, :done] = array[:, :done]
    return result


def identity_of(*arrays: object) -> str:
    """Return a hash of numbers and arrays that define the density and its chains."""
    digest = hashlib.sha256()
    for value in arrays:
        array = np.ascontiguousarray(value)
        # Arrays of other shapes or types may have the same bytes.
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(path: Path, identity: str, run: CheckpointRun) -> None:
    """Write a whole file, or leave the old one if the process is killed.

    If the disk is full, the run goes on with a warning, because its draws are in
    memory.
    """
    arrays: dict[str, Saved] = {
        "identity": np.array(identity),
        "arithmetic": np.array(json.dumps(arithmetic())),
        "done": np.array(run.done),
        "num_warmup": np.array(run.num_warmup),
        "draws": run.draws[:, : run.num_kept],
        "stats": run.stats[:, : run.num_kept],
        "streams": np.array(json.dumps([save_state(rng) for rng in run.streams])),
        **{name: _stack(run, name) for name in STATE},
    }
    try:
        with (
            replacing(path, is_private=True) as draft,
            draft.open("wb") as file,
            ZipFile(file, "w", ZIP_STORED) as archive,
        ):
            # `np.savez` of NumPy 2.0 leaves the archive open after an error.
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        message = f"The checkpoint {path} could not be written ({error})."
        message += " The run goes on."
        warnings.warn(message, RuntimeWarning, stacklevel=check.user_stack_level())


def _stack(run: CheckpointRun, name: str) -> Saved:
    return np.array([getattr(state, name) for state in run.states])


def snapshot(run: CheckpointRun) -> Callable[[], None]:
    """Copy states and streams. The function that is returned restores them."""
    states = [{name: getattr(s, name).copy() for name in STATE} for s in run.states]
    streams = [save_state(rng) for rng in run.streams]

    def undo() -> None:
        for state, copies in zip(run.states, states, strict=True):
            for name in STATE:
                getattr(state, name)[:] = copies[name]
        run.streams = [restore_state(saved) for saved in streams]

    return undo


def load(
    path: Path, identity: str, run: CheckpointRun, init: Callable[[Array], ChainState]
) -> None:
    """Fill the run from the file. ``init`` makes a state at a saved position."""
    file = _read(path)
    chains = len(run.states)
    # The identity covers the starts, and so the number of chains.
    if str(file["identity"]) != identity or file["draws"].shape[:1] != (chains,):
        condition = "of this target, sampler, seed, start and number of chains"
        check.fail("checkpoint", condition, f"another run's file {path.name}", REMEDY)
    num_saved = _count_saved(path, file, run)
    expected = {
        "draws": np.empty((chains, num_saved, run.draws.shape[2])),
        "stats": np.empty((chains, num_saved, run.stats.shape[2])),
        **{name: _stack(run, name) for name in STATE},
    }
    # Earlier versions had no statistics of one sampler alone. They stay unknown.
    file["stats"] = _widen(file["stats"], NUM_STATS, expected["stats"], np.nan)
    file["counts"] = _widen(file["counts"], len(COUNT), expected["counts"], 0)
    for name, like in expected.items():
        _check_array(path, name, file[name], like)
    streams = _restore_streams(path, file["streams"], chains)
    if str(file["arithmetic"]) != json.dumps(arithmetic()):
        message = (
            f"{path.name} was written with {file['arithmetic']}, not {arithmetic()}."
        )
        message += " The run goes on, though not bit for bit."
        warnings.warn(message, RuntimeWarning, stacklevel=check.user_stack_level())
    run.reserve(int(file["done"]))
    run.done = int(file["done"])
    last = slice(num_saved - run.num_kept, None)
    run.draws[:, : run.num_kept] = file["draws"][:, last]
    run.stats[:, : run.num_kept] = file["stats"][:, last]
    for c in range(chains):
        # The other arrays of a state are computed from its position.
        run.states[c] = init(file["position"][c])
        for name in STATE:
            getattr(run.states[c], name)[:] = file[name][c]
        run.streams[c] = streams[c]


def _widen(array: Saved, width: int, like: Saved, value: float) -> Saved:
    """Append columns of a value to an array of a width, up to the width of another."""
    num_missing = like.shape[-1] - width
    is_narrow = array.shape == (*like.shape[:-1], width) and array.dtype == like.dtype
    if num_missing == 0 or not is_narrow:
        return array
    missing = np.full((*like.shape[:-1], num_missing), value, like.dtype)
    return np.concatenate([array, missing], axis=-1)


def _count_saved(path: Path, file: dict[str, Saved], run: CheckpointRun) -> int:
    """Return the number of draws of each chain in a file, which may have its warm-up.

    They are as many as the run keeps, or more.
    """
    for name in ("done", "num_warmup"):
        _check_array(path, name, file[name], np.array(0))
    done, num_warmup = int(file["done"]), int(file["num_warmup"])
    if done < 0:
        _reject(path, f"done = {done}")
    if num_warmup != run.num_warmup:
        check.fail("num_warmup", f"{num_warmup}, as in {path.name}", run.num_warmup)
    num_kept = max(0, done - num_warmup)
    if file["draws"].shape[1:2] not in {(num_kept,), (done,)}:
        _reject(path, f"draws of shape {file['draws'].shape} for {num_kept} draws")
    num_saved = int(file["draws"].shape[1])
    if run.keeps_warmup and num_saved < done:
        remedy = "Its warm-up was not kept. Choose another file, or go on without it."
        check.fail("keep_warmup", f"False, as in {path.name}", True, remedy)
    return num_saved


def _reject(path: Path, got: str) -> NoReturn:
    condition = "a file written by an earlier run"
    check.fail("checkpoint", condition, f"{path.name} with {got}", REMEDY)


def _check_array(path: Path, name: str, array: Saved, like: Saved) -> None:
    """Raise an error for another shape or type, or coordinates that are not finite."""
    if array.shape != like.shape or array.dtype != like.dtype:
        got = f"{name} of shape {array.shape} and type {array.dtype}"
        _reject(path, f"{got}, not {like.shape} and {like.dtype}")
    if name in ("draws", "position") and not np.isfinite(array).all():
        _reject(path, f"a NaN or an infinity in {name}")


def _restore_streams(
    path: Path, text: object, chains: int
) -> list[np.random.Generator]:
    """Return the streams of a checkpoint, or raise if they cannot be restored."""
    try:
        states = json.loads(str(text))
        restored = [restore_state(state) for state in states]
    # NumPy raises various errors for states that it did not write.
    except Exception as error:
        _reject(path, f"streams that cannot be restored ({error!r})")
    if len(restored) != chains:
        _reject(path, f"{len(restored)} streams for {chains} chains")
    return restored


def _read(path: Path) -> dict[str, Saved]:
    """Return the arrays of a file, unless they take more memory than the file."""
    with path.open("rb") as stream:
        try:
            with ZipFile(stream) as archive:
                members = archive.infolist()
            # A small compressed file may fill the memory.
            if any(m.compress_type != ZIP_STORED for m in members):
                raise ValueError("compressed arrays")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: file[name] for name in FIELDS}
        # Crafted headers raise any error, a MemoryError too.
        except Exception as error:
            _reject(path, f"{type(error).__name__}: {' '.join(str(error).split())}")
