"""Which records a step reads."""

import itertools

import numpy as np

from dpsample.optimizers.loop.batches import Full, Poisson, Slices, WithReplacement
from tests.support.clipped_cases import batch
from tests.support.statistics import assert_mean, rejected


def test_full_batch_is_every_record_of_the_phase_once():
    rng = np.random.default_rng(0)
    assert batch(Full(first=3, last=17), 20, 2, rng) == list(range(3, 17))


def test_slices_partition_the_phase_and_drop_the_remainder():
    rng = np.random.default_rng(0)
    for shuffled in (False, True):
        slices = Slices(first=2, last=13, size=3, is_shuffled=shuffled)
        read = [batch(slices, 20, t, rng, block=2) for t in range(3)]
        assert all(len(one) == 3 for one in read)
        flat = [record for one in read for record in one]
        assert len(set(flat)) == 9 and set(flat) <= set(range(2, 13))
        if not shuffled:
            assert flat == list(range(2, 11))
        else:
            assert flat != sorted(flat)


def test_poisson_batches_take_every_record_independently():
    rng, rate, draws = np.random.default_rng(1), 0.3, 4000
    scheme = Poisson(first=1, last=4, rate=rate)
    found = [tuple(batch(scheme, 9, t, rng, block=2)) for t in range(draws)]
    for size in range(4):
        for subset in itertools.combinations((1, 2, 3), size):
            p = rate**size * (1.0 - rate) ** (3 - size)
            hits = np.array([one == subset for one in found], dtype=float)
            assert_mean(hits, p, p * (1.0 - p), detects=0.25)
    empty = np.array([one == () for one in found], dtype=float)
    with rejected():  # a batch without the last record
        p = (1.0 - rate) ** 2
        assert_mean(empty, p, p * (1.0 - p), detects=0.25)


def test_poisson_at_rate_one_is_the_full_batch():
    rng = np.random.default_rng(0)
    assert batch(Poisson(rate=1.0), 11, 0, rng) == list(range(11))


def test_sampling_with_replacement_is_uniform():
    rng = np.random.default_rng(2)
    drawn = np.array(batch(WithReplacement(first=2, last=5, size=6000), 9, 0, rng))
    assert drawn.min() == 2 and drawn.max() == 4
    for record in (2, 3, 4):
        assert_mean((drawn == record) * 1.0, 1 / 3, 2 / 9, detects=0.2)
    with rejected():
        assert_mean((drawn <= 3) * 1.0, 1 / 3, 2 / 9, detects=0.2)
