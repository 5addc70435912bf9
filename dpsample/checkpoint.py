"""Checkpoints: what a run has made, and what it needs to go on bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._streams import restore, save_state

Array = NDArray[np.float64]
FIELDS = ("identity", "draws", "energies", "positions", "counts", "streams")


class Run(NamedTuple):
    """Draws so far, and the state and stream of each chain; all are modified."""

    draws: Array  # (chain, draw, dim)
    energies: Array  # (chain, draw)
    states: Sequence[Any]
    streams: list[np.random.Generator]


def identity_of(*arrays: Any) -> str:
    """Hash of numbers and arrays that define what is sampled."""
    digest = hashlib.sha256()
    for value in arrays:
        array = np.ascontiguousarray(value)
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(path: Path, identity: str, done: int, run: Run) -> None:
    """Write to a second file and rename: a kill leaves the old one whole."""
    draft = path.with_name(path.name + ".part")
    with draft.open("wb") as file:
        np.savez(
            file,
            identity=np.array(identity),
            draws=run.draws[:, :done],
            energies=run.energies[:, :done],
            positions=np.array([state.position for state in run.states]),
            counts=np.array([state.counts for state in run.states]),
            streams=np.array(json.dumps([save_state(rng) for rng in run.streams])),
        )
    draft.replace(path)


def load(path: Path, identity: str, run: Run) -> int:
    """Fill the run from the file and return how many draws it has."""
    file = _read(path)
    kept = file["draws"]
    if str(file["identity"]) != identity or kept.shape[0] != run.draws.shape[0]:
        check.fail(
            "checkpoint",
            "of this target, sampler, seed and number of chains",
            f"another run's file {path.name}",
            "Choose another file, or delete it to start afresh.",
        )
    done = int(kept.shape[1])
    if done > run.draws.shape[1]:
        check.fail(
            "num_draws",
            f">= the {done} draws (with warm-up) of the checkpoint",
            run.draws.shape[1],
            "Ask for as many draws, or choose another file.",
        )
    run.draws[:, :done] = kept
    run.energies[:, :done] = file["energies"]
    for c, saved in enumerate(json.loads(str(file["streams"]))):
        run.states[c].position[:] = file["positions"][c]
        run.states[c].counts[:] = file["counts"][c]
        run.streams[c] = restore(saved)
    return done


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
