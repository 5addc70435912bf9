"""Reflection-maximal coupling alone: both laws, and meetings as often as possible."""

import numpy as np
import pytest
from scipy.stats import chi2, norm

from dpsample.diagnostics.couplings.coupled_steps import FAR, couple_noise
from tests.support.coupling_mutants import coupled_noise
from tests.support.statistics import assert_law, assert_mean, rejected

SHIFTS = [[0.3, -0.2, 0.1], [1.0, 1.0, 0.0], [0.0, 0.0, 2.5]]
COUNT = 40_000
MISTAKES = [
    "sign of the shift in the ratio",
    "the whole square",
    "common noise after a lost coin",
]


def sample(rng, shift, count):
    """Noise of the second chain from the kernel, and where proposals coincide."""
    noise = rng.standard_normal((count, len(shift)))
    coins = rng.standard_exponential(count)
    others = np.full_like(noise, np.nan)
    flags = [
        couple_noise(shift, z, coin, np.inf, other)
        for z, coin, other in zip(noise, coins, others, strict=True)
    ]
    return noise, others, np.array(flags)


def check_law(others, shift):
    """Standard normal along the shift, across it, and in length."""
    unit = shift / np.linalg.norm(shift)
    across = np.cross(unit, [0.6, -0.3, 0.7])
    assert_law(others @ unit, norm.cdf)
    assert_law(others @ (across / np.linalg.norm(across)), norm.cdf)
    assert_law((others**2).sum(axis=1), chi2(3).cdf)


def check_meetings(is_shared, shift):
    overlap = 2.0 * norm.cdf(-0.5 * np.linalg.norm(shift))
    assert_mean(is_shared, overlap, overlap * (1.0 - overlap), detects=0.07)


@pytest.mark.parametrize("shift", SHIFTS)
def test_noise_is_normal_and_meetings_are_as_likely_as_the_overlap(shift):
    shift = np.array(shift)
    _, others, is_shared = sample(np.random.default_rng(11), shift, COUNT)
    check_law(others, shift)
    check_meetings(is_shared, shift)


@pytest.mark.parametrize("shift", SHIFTS[1:])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_bugs_are_rejected(shift, mistake):
    shift, rng = np.array(shift), np.random.default_rng(12)
    check_law(coupled_noise(rng, shift, COUNT)[0], shift)
    others, is_shared = coupled_noise(rng, shift, COUNT, mistake)
    with rejected():
        check_law(others, shift)
        check_meetings(is_shared, shift)


def test_fresh_noise_after_a_lost_coin_has_a_wrong_law():
    shift, rng = np.array(SHIFTS[1]), np.random.default_rng(13)
    with rejected():
        check_law(
            coupled_noise(rng, shift, COUNT, "fresh noise after a lost coin")[0], shift
        )


@pytest.mark.parametrize("shift", SHIFTS)
def test_proposals_coincide_or_mirror_one_another(shift):
    shift = np.array(shift)
    noise, others, is_shared = sample(np.random.default_rng(14), shift, 500)
    np.testing.assert_array_equal(others[is_shared], (noise + shift)[is_shared])
    lost = ~is_shared
    np.testing.assert_allclose(
        np.linalg.norm(others[lost], axis=1), np.linalg.norm(noise[lost], axis=1)
    )
    np.testing.assert_allclose(others[lost] @ shift, -(noise[lost] @ shift), atol=1e-12)


def test_equal_centers_always_meet():
    _, others, is_shared = sample(np.random.default_rng(15), np.zeros(3), 300)
    assert is_shared.all() and np.isfinite(others).all()


def test_far_chains_move_alike_before_any_coin():
    noise, other = np.array([0.3, -1.0]), np.empty(2)
    shift = np.array([FAR, 0.1])
    assert not couple_noise(shift, noise, 1e9, FAR, other)
    np.testing.assert_array_equal(other, noise)
    assert couple_noise(shift, noise, 1e9, np.inf, other)
