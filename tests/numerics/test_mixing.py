"""Autocorrelations of short chains of many columns: fair, safe and telling."""

import numpy as np
import pytest

from dpsample.numerics.mixing import (
    fair_lag_share,
    lag_share,
    share_of,
    split_r_hat,
    wanted_share,
    with_squares,
)


def series_of(correlation, columns, chains=4, draws=500, seed=1):
    """Stationary autoregressive chains."""
    noise = np.random.default_rng(seed).normal(size=(draws, chains, columns))
    found = [noise[0]]
    for step in noise[1:]:
        found.append(correlation * found[-1] + np.sqrt(1.0 - correlation**2) * step)
    return np.array(found).swapaxes(0, 1)


@pytest.mark.parametrize("lag", [1, 3])
def test_a_fair_share_is_right_where_the_least_of_many_is_too_small(lag):
    many = series_of(0.6, 1000, draws=60)
    assert fair_lag_share(many, lag) == pytest.approx(share_of(0.6), rel=0.35)
    assert lag_share(many) < 0.8 * share_of(0.6)


def test_one_slow_column_among_many_is_told():
    many = series_of(0.0, 1000)
    many[:, :, 7] = series_of(0.9, 1)[:, :, 0]
    assert fair_lag_share(many) == pytest.approx(share_of(0.9), rel=0.4)


def test_stuck_columns_and_chains_have_a_small_share_and_never_none():
    moving = series_of(0.0, 3)
    stuck = moving.copy()
    stuck[:2, :, 1] = 0.0  # which chains 1 and 3 name, and 2 and 4 cannot
    stuck[2, :, 1] = 0.0
    constant = moving.copy()
    constant[:, :, 1] = 0.5
    assert fair_lag_share(stuck) <= share_of(1.0) < 0.001
    assert fair_lag_share(constant) > 0.5
    assert 0.0 < fair_lag_share(np.zeros((4, 9, 2))) < 0.001
    assert 0.0 < lag_share(np.zeros((4, 9, 2))) < 0.001


@pytest.mark.parametrize("dim", [2, 100])
def test_draws_of_the_wanted_share_pass_and_those_of_a_third_of_it_fail(dim):
    def passes(share):
        correlation = (1.0 - share) / (1.0 + share)
        runs = (series_of(correlation, dim, draws=1000, seed=i) for i in range(12))
        return sum(split_r_hat(with_squares(run)) <= 1.01 for run in runs)

    assert passes(wanted_share(dim)) >= 9
    assert passes(wanted_share(dim) / 3.0) <= 6
