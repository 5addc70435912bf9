"""Checkpoint files: every array is checked before a run goes on from it."""

import io
import json
import os
import warnings
import zipfile

import numpy as np
import pytest

from dpsample.running import checkpoint
from tests.support.message_grammar import GRAMMAR
from tests.support.tiers import one_in
from tests.support.walks import DIM, assert_same, run

CHAINS, DONE = 3, 30


@pytest.fixture
def saved(tmp_path):
    """A checkpoint, and its arrays."""
    path = tmp_path / "run.npz"
    run(DONE, checkpoint=path, identity="a")
    with np.load(path) as file:
        return path, dict(file)


def header_of_a_giant(path, arrays):
    """A member whose header promises 2**60 numbers that are not there."""
    text = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (CHAINS, 2**60, DIM)}
    np.lib.format.write_array_header_2_0(text, header)
    np.savez(path, **{k: v for k, v in arrays.items() if k != "draws"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("draws.npy", text.getvalue())


def bomb(path, arrays):
    """Zeros that take a thousand times the room of the file."""
    big = np.zeros((CHAINS, 200_000, DIM))
    np.savez_compressed(path, **(arrays | {"draws": big}))


def one_state(**changes):
    def change(arrays):
        states = json.loads(str(arrays["streams"]))
        states[1] |= changes
        return np.array(json.dumps(states))

    return change


def of(name, change):
    return lambda path, arrays: np.savez(
        path, **(arrays | {name: change(arrays[name])})
    )


def streams(make):
    return lambda path, arrays: np.savez(path, **(arrays | {"streams": make(arrays)}))


CRAFTED = {
    "no streams": streams(lambda _: np.array("[]")),
    "a stream too many": streams(
        lambda a: np.array(json.dumps([*json.loads(str(a["streams"])), {}]))
    ),
    "streams of numbers": streams(lambda _: np.array("[1, 2, 3]")),
    "streams of text": streams(lambda _: np.array("no list")),
    "one number for streams": streams(lambda _: np.array("3")),
    "deep streams": streams(lambda _: np.array("[" * 100_000)),
    "another generator": streams(one_state(bit_generator="PCG64")),
    "a stream without a state": streams(one_state(state=None)),
    "a state too large": streams(one_state(state={"state": 2**200, "inc": 1})),
    "a negative state": streams(one_state(state={"state": -1, "inc": -1})),
    "draws of no dimension": of("draws", lambda _: np.float64(1.0)),
    "draws of one dimension": of("draws", lambda _: np.zeros(CHAINS)),
    "draws of a wider target": of("draws", lambda d: np.dstack((d, d))),
    "NaN draws": of("draws", lambda d: np.full_like(d, np.nan)),
    "complex draws": of("draws", lambda d: d + 0j),
    "draws of float32": of("draws", lambda d: d.astype(np.float32)),
    "swapped bytes": of("draws", lambda d: d.astype(">f8")),
    "statistics too short": of("stats", lambda s: s[:, :-1]),
    "statistics too narrow": of("stats", lambda s: s[:, :, :-1]),
    "one statistic": of("stats", lambda _: np.zeros(1)),
    "a position for all": of("position", lambda p: p[:1]),
    "no position": of("position", lambda p: p[:0]),
    "an infinite position": of("position", lambda p: p + np.inf),
    "an energy too many": of("energy", lambda e: np.hstack((e, e))),
    "a memory too short": of("memory", lambda m: m[:, :0]),
    "counts of floats": of("counts", lambda c: c.astype(float)),
    "counts of text": of("counts", lambda c: c.astype("U9")),
    "objects": of("draws", lambda d: d.astype(object)),
    "an identity of two": of("identity", lambda i: np.array([i, i])),
    "header of a giant": header_of_a_giant,
    "bomb": bomb,
}


@one_in(4)
@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED)
def test_a_crafted_checkpoint_is_refused_and_left_as_it_is(saved, craft):  # S8
    path, arrays = saved
    craft(path, arrays)
    before = path.read_bytes()
    with pytest.raises(ValueError) as refusal:
        run(100, checkpoint=path, identity="a")
    message = str(refusal.value)
    assert GRAMMAR.match(message) and path.name in message, message
    assert path.read_bytes() == before


def test_every_cut_and_a_flip_anywhere_are_refused_or_harmless(saved):  # S8
    path, _ = saved
    content, rng = path.read_bytes(), np.random.default_rng(1)
    spoiled = [content[:size] for size in rng.integers(len(content), size=60)]
    for place in rng.integers(len(content), size=120):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        spoiled.append(bytes(flipped))
    refused = 0
    for text in spoiled:
        path.write_bytes(text)
        try:
            resumed = run(DONE, checkpoint=path, identity="a")
        except ValueError as error:
            refused += 1
            assert GRAMMAR.match(str(error)), error
        else:  # a date of the archive, or the like
            assert_same(resumed, run(DONE))
    assert refused > 150


def test_a_place_that_cannot_be_written_is_refused_before_the_first_draw(tmp_path):
    calls = []
    with pytest.raises(ValueError, match="checkpoint must be a file in an existing"):
        run(
            10,
            runner=lambda *state: calls.append(state),
            checkpoint=tmp_path / "no such folder" / "run.npz",
        )
    assert not calls


def test_a_disk_that_fills_up_costs_no_draw_and_leaves_the_old_file(saved, monkeypatch):
    path, _ = saved
    before = path.read_bytes()

    def full(member, array, allow_pickle):
        member.write(b"some")
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.np.lib.format, "write_array", full)
        with pytest.warns(RuntimeWarning, match="could not be written .*No space left"):
            result = run(100, checkpoint=path, identity="a")
    assert_same(result, run(100))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(run(100, checkpoint=path, identity="a"), run(100))
