"""Streams: reproducible, distinct, prefix-stable, resumable, entropy without a seed."""

import numpy as np
import pytest

from dpsample.core import streams as streams_module

SEED = 20261121


def draws(streams, size=50):
    return np.array([rng.standard_normal(size) for rng in streams])


def test_a_seed_gives_the_same_streams_again():
    first = draws(streams_module.streams(SEED, 3))
    np.testing.assert_array_equal(first, draws(streams_module.streams(SEED, 3)))
    assert not np.array_equal(first, draws(streams_module.streams(SEED + 1, 3)))


def test_streams_are_those_of_numpy_spawned_from_the_seed():
    children = np.random.SeedSequence(SEED).spawn(2)
    expected = [np.random.Generator(np.random.PCG64DXSM(c)) for c in children]
    np.testing.assert_array_equal(
        draws(streams_module.streams(SEED, 2)), draws(expected)
    )


def test_more_streams_do_not_change_the_first_ones():
    np.testing.assert_array_equal(
        draws(streams_module.streams(SEED, 2)),
        draws(streams_module.streams(SEED, 7))[:2],
    )


def test_streams_of_one_seed_differ_from_one_another():
    assert len(np.unique(draws(streams_module.streams(SEED, 64), 1))) == 64


def test_without_a_seed_every_call_has_its_own_entropy():
    a, b = (
        draws(streams_module.streams(None, 1)),
        draws(streams_module.streams(None, 1)),
    )
    assert not np.any(a == b)


def test_a_seed_sequence_is_left_as_it_was():
    root = np.random.SeedSequence(SEED, spawn_key=(4,))
    first, second = (draws(streams_module.streams(root, 2)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert root.n_children_spawned == 0
    other = np.random.SeedSequence(SEED, spawn_key=(5,))
    assert not np.any(first == draws(streams_module.streams(other, 2)))


def test_a_restored_stream_continues_bit_for_bit():
    (rng,) = streams_module.streams(SEED, 1)
    rng.standard_normal(17)
    rng.integers(0, 3, size=5, dtype=np.uint32)  # leaves half a word in the buffer
    state = streams_module.save_state(rng)
    expected = rng.standard_normal(20), rng.integers(0, 2**32, size=5, dtype=np.uint32)
    for _ in range(2):  # the saved state is not used up
        again = streams_module.restore_state(state)
        np.testing.assert_array_equal(again.standard_normal(20), expected[0])
        resumed = again.integers(0, 2**32, size=5, dtype=np.uint32)
        np.testing.assert_array_equal(resumed, expected[1])


@pytest.mark.parametrize("bad", [-1, 1.5, "1", True])
def test_bad_seeds_are_refused(bad):
    with pytest.raises(
        ValueError, match=r"^seed must be an integer >= 0, got .*None\.$"
    ):
        streams_module.streams(bad, 1)


def test_a_reseeded_generator_starts_as_a_new_one_does():
    again = streams_module.ReusableGenerator()
    seeds = np.random.SeedSequence(SEED).spawn(100)
    assert again.is_known
    for seed, words in zip(seeds, streams_module.starts(seeds, 1), strict=True):
        with np.errstate(over="ignore"):  # interpreted, it counts modulo 2^64 too
            streams_module.set_state(again.memory, words)
        expected = streams_module.streams(seed, 2)[1]
        assert np.array_equal(again.rng.random(3), expected.random(3))


ENTROPIES = [
    0,
    3,
    2**32,
    2**128 - 1,
    2**200 + 5,
    [7, 2**70],
    np.array([2**40, 1]),
    ["9", "010", "0x10"],
]


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("key", [(), (0,), (2**40, 5)])
def test_words_are_those_of_a_seed_sequence(entropy, key):
    root = np.random.SeedSequence(entropy, spawn_key=key)
    seeds = streams_module.Children(root, range(5))[2:]
    expected = [
        np.random.SeedSequence(
            entropy, spawn_key=(*seed.spawn_key, 2**31)
        ).generate_state(4, np.uint64)
        for seed in seeds
    ]
    for given in (seeds, list(seeds)):
        assert np.array_equal(streams_module.starts(given, 2**31), expected)
