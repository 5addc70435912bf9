"""Clipped, median and soft-truncated means: references and what one record can do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsample.optimizers.loop.batches import Poisson
from dpsample.optimizers.loop.contributions import PSI_BOUND, smoothed_psi
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Estimator,
    Mean,
)
from tests.support.gradient_vectors import estimate
from tests.support.tiers import one_in

ESTIMATORS = (
    ClippedMean(threshold=0.7),
    BucketedMedian(width=2.0, num_buckets=3),
    BucketedMedian(width=2.0, num_buckets=4, num_central=2),
    BucketedMedian(width=1.0, num_buckets=8, num_central=4),
    CatoniMean(scale=0.5, precision=1.5),
)


def median_reference(
    vectors: np.ndarray, estimator: BucketedMedian, seed: int
) -> np.ndarray:
    """Means of the central order statistics of bucket means, in NumPy."""
    labels = np.random.default_rng(seed)
    count, central = estimator.num_buckets, estimator.num_central
    sums = np.zeros((count, vectors.shape[1]))
    for vector in np.clip(vectors, -0.5 * estimator.width, 0.5 * estimator.width):
        sums[int(count * labels.random())] += vector
    skipped = (count - central) // 2
    middle = np.sort(sums, axis=0)[skipped : skipped + central]
    return middle.mean(axis=0) * count / len(vectors)


@pytest.mark.parametrize("estimator", ESTIMATORS[1:4])
def test_median_of_buckets_is_the_textbook_one(estimator: BucketedMedian) -> None:
    vectors = np.random.default_rng(1).standard_t(2.0, (50, 3))
    found = estimate(vectors, estimator, seed=9)
    assert found == pytest.approx(median_reference(vectors, estimator, 9), abs=1e-13)


def test_soft_truncation_is_the_textbook_one() -> None:
    vectors = np.random.default_rng(2).standard_t(2.0, (40, 3))
    spread = 1.0 / math.sqrt(1.5)
    smooth = np.vectorize(lambda x: smoothed_psi(x / 0.5, abs(x) / 0.5 * spread))
    expected = 0.5 * smooth(vectors).mean(axis=0)
    found = estimate(vectors, CatoniMean(scale=0.5, precision=1.5))
    assert found == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize(
    "estimator",
    [
        Mean(),
        ClippedMean(threshold=1e9),
        BucketedMedian(width=math.inf, num_buckets=1),
        BucketedMedian(width=math.inf, num_buckets=4, num_central=4),
        CatoniMean(scale=1e9),
    ],
)
def test_without_limits_every_estimator_is_the_mean(estimator: Estimator) -> None:
    vectors = np.random.default_rng(3).standard_normal((30, 4))
    assert estimate(vectors, estimator) == pytest.approx(
        vectors.mean(axis=0), abs=1e-12
    )


@one_in(2)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_record_moves_an_estimate_by_more_than_declared(
    estimator: Estimator,
) -> None:
    """Replacing moves by at most 2 bounds, zeroing by one; labels stay the same."""
    rng = np.random.default_rng(5)
    num_records, dim = 8, 2
    bound = estimator.record_bound(dim) / num_records
    largest = {1.0: 0.0, 2.0: 0.0}
    for seed in range(60):
        vectors = rng.choice([-9.0, -1.0, 0.0, 0.3, 9.0], (num_records, dim))
        before = estimate(vectors, estimator, seed=seed)
        for shift, value in ((1.0, 0.0), (2.0, rng.choice([-9.0, 9.0], dim))):
            vectors[3] = value
            moved = np.linalg.norm(estimate(vectors, estimator, seed=seed) - before)
            assert moved <= shift * bound * (1.0 + 1e-12)
            largest[shift] = max(largest[shift], moved / (shift * bound))
    assert min(largest.values()) >= 0.7  # the search is not idle


@pytest.mark.parametrize(
    ("buckets", "central"), [(3, 1), (5, 1), (4, 2), (8, 4), (6, 2)]
)
def test_median_bound_is_attained(buckets: int, central: int) -> None:
    """A record whose bucket is central moves the estimate by all that is declared."""
    estimator = BucketedMedian(width=2.0, num_buckets=buckets, num_central=central)
    # Half of the other buckets far below, half far above, one of them between.
    labels = (buckets * np.random.default_rng(0).random(400)).astype(int)
    chosen = int(np.flatnonzero(labels == 0)[0])
    level = np.where(labels <= buckets // 2 - 1 + buckets % 2, -1.0, 1.0)
    level[labels == 0] = 0.0
    vectors = level[:, None]
    moves = []
    for value in (-1.0, 1.0):
        vectors[chosen] = value
        moves.append(estimate(vectors, estimator, seed=0)[0])
    declared = 2.0 * estimator.record_bound(1) / len(vectors)
    assert moves[1] - moves[0] == pytest.approx(declared, rel=1e-12)


def test_one_coordinate_of_soft_truncation_attains_its_bound() -> None:
    estimator = CatoniMean(scale=0.5, precision=1e6)
    vectors = np.zeros((4, 1))
    vectors[0] = 1e9
    bound = estimator.record_bound(1) / 4.0
    assert 0.0 <= bound - PSI_BOUND * 0.5 / 4.0 <= 1e-15  # rounded up
    assert estimate(vectors, estimator)[0] == pytest.approx(bound, rel=1e-12)


def test_scaling_vectors_and_thresholds_scales_estimates() -> None:
    vectors = np.random.default_rng(6).standard_t(2.0, (40, 3))
    for small, large in (
        (ClippedMean(threshold=0.5), ClippedMean(threshold=2.0)),
        (
            BucketedMedian(width=1.0, num_buckets=3),
            BucketedMedian(width=4.0, num_buckets=3),
        ),
        (CatoniMean(scale=0.5), CatoniMean(scale=2.0)),
    ):
        assert estimate(4.0 * vectors, large) == pytest.approx(
            4.0 * estimate(vectors, small), abs=1e-13
        )


def test_coordinates_are_treated_alike() -> None:
    vectors = np.random.default_rng(7).standard_t(2.0, (40, 3))
    order = [2, 0, 1]
    for estimator in ESTIMATORS:
        assert estimate(vectors[:, order], estimator) == pytest.approx(
            estimate(vectors, estimator)[order], abs=1e-13
        )


def test_poisson_batches_are_divided_by_a_constant() -> None:
    vectors = np.ones((60, 1))
    found = {
        estimate(vectors, CatoniMean(scale=1e9), batches=Poisson(rate=0.5), seed=s)[0]
        for s in range(20)
    }
    counts = np.array(sorted(found)) * 30.0
    assert len(found) > 1 and np.abs(counts - counts.round()).max() <= 1e-9


def test_estimators_refuse_impossible_numbers() -> None:
    for make, message in (
        (lambda: BucketedMedian(width=0.0, num_buckets=3), "width must be"),
        (lambda: BucketedMedian(width=math.nan, num_buckets=3), "width must be"),
        (lambda: BucketedMedian(width=1.0, num_buckets=4), "num_central must be"),
        (
            lambda: BucketedMedian(width=1.0, num_buckets=3, num_central=5),
            "num_central must be",
        ),
        (lambda: CatoniMean(scale=math.inf), "scale must be"),
        (lambda: CatoniMean(scale=1.0, precision=1e9), "precision must be <= 1e"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
