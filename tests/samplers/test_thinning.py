"""Autocorrelations of short chains of many columns: fair, safe and telling."""

import numpy as np
import pytest

from dpsample.numerics.r_hat_and_ess import largest_r_hat, with_squares
from dpsample.samplers.thinning import (
    lag_share,
    rank_shares,
    share_of,
    wanted_thinning,
)
from tests.support.mixing_series import series_of
from tests.support.tiers import usual


def test_the_worst_share_is_told_with_a_small_margin():
    many = series_of(0.6, 60, draws=300)
    assert 0.5 * share_of(0.6) < rank_shares(many).min() < share_of(0.6)
    many[:, :, 7] = np.exp(4.0 * series_of(0.9, 1, draws=300)[:, :, 0])
    assert 0.5 * share_of(0.9) < rank_shares(many).min() < 1.5 * share_of(0.9)


def test_stuck_columns_and_chains_have_a_small_share_and_never_none():
    moving = series_of(0.0, 3)
    stuck = moving.copy()
    stuck[:2, :, 1] = 0.0
    constant = moving.copy()
    constant[:, :, 1] = 0.5
    assert rank_shares(stuck).min() < 0.01
    assert rank_shares(constant).min() > 0.5
    for share in (rank_shares, lag_share):
        assert 0.0 < np.min(share(np.zeros((4, 9, 2)))) < 0.001


def num_passed(correlations, thinning):
    power = correlations**thinning
    runs = (series_of(power, len(power), draws=1000, seed=i) for i in range(12))
    return sum(largest_r_hat(with_squares(run)) <= 1.01 for run in runs)


MANY, ONE = np.full(200, 0.97), np.append(np.full(199, 0.3), 0.97)


@usual("200_1")
@pytest.mark.parametrize("correlations", [MANY[:2], MANY, ONE], ids=len)
def test_draws_that_are_thinned_as_wanted_pass(correlations):
    squares = correlations**2
    thinning = wanted_thinning(share_of(np.append(correlations, squares)))
    assert num_passed(correlations, thinning) >= 9


@pytest.mark.slow
def test_many_slow_columns_need_more_thinning_than_one():
    assert wanted_thinning(share_of(ONE)) < wanted_thinning(share_of(MANY))
    assert num_passed(MANY, wanted_thinning(share_of(MANY)) // 3) <= 6
    assert wanted_thinning(np.ones(9)) == 1


def test_more_thinning_where_transitions_are_cheap():
    shares = np.array([0.3])
    assert wanted_thinning(shares, 1e3) > wanted_thinning(shares, 1e9)
    assert wanted_thinning(shares, 1e9) == wanted_thinning(shares)
