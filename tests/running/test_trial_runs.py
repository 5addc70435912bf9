"""Stopping by effective sample size: the same draws for all threads and resumes."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

import dpsample as dps
from dpsample.api.warm import LOGISTIC, make
from dpsample.running import convergence
from dpsample.running.convergence import TrialRun, effective_size
from tests.support.autoregressions import autoregression


def test_the_size_is_the_smallest_of_coefficients_and_squares():
    draws = autoregression(0.5)
    draws[:, :, 1] = autoregression(0.9, dim=1, seed=2)[:, :, 0]
    views = (draws, (draws - draws.mean(axis=(0, 1))) ** 2)
    sizes = [
        array_stats.ess(view[:, :, j], chain_axis=0, draw_axis=1)
        for view in views
        for j in range(3)
    ]
    assert effective_size(draws) == pytest.approx(min(sizes))


def test_a_spread_that_mixes_slowly_counts():
    """The sign is redrawn every time, the size hardly ever."""
    rng = np.random.default_rng(3)
    sizes = np.repeat(rng.exponential(size=(2, 20, 1)), 100, axis=1)
    draws = sizes * rng.choice([-1.0, 1.0], size=sizes.shape)
    assert array_stats.ess(draws, chain_axis=0, draw_axis=1)[0] > 1_000
    assert effective_size(draws) < 200


@pytest.mark.parametrize(
    "draws", [np.ones((2, 50, 1)), np.random.default_rng(0).normal(size=(2, 3, 1))]
)
def test_chains_that_stand_still_or_are_short_have_no_size(draws):
    assert effective_size(draws) == 0.0


def test_rounds_grow_until_the_trial_run_knows_and_stop_at_the_limit():
    draws, rule = autoregression(0.9), TrialRun(1e5, 100)
    assert 120 <= rule(draws[:, :100]) <= 300
    size = rule.size
    assert size < convergence.ENOUGH
    assert rule.length == min(
        np.ceil(convergence.RESERVE * 1e5 / size * 100), rule.longest
    )
    assert TrialRun(size, 100)(draws[:, :100]) == 100
    assert 120 <= TrialRun(1.01 * size, 100)(draws[:, :100]) <= 130
    assert TrialRun(1e5, 100)(np.ones((2, 100, 1))) == 300
    assert TrialRun(1e9, 1)(np.ones((2, 1000, 1))) == convergence.MAX_GROWTH * 1
    assert TrialRun(1e9, 100).length == 100 * convergence.MAX_GROWTH


def test_a_trial_run_that_is_cut_asks_for_no_more_than_time_allows():
    draws = autoregression(0.99, length=50)
    cut = TrialRun(1e9, 20)
    cut.cut(draws)
    assert 0.0 < cut.size < convergence.ENOUGH and cut.is_cut
    assert cut.length == convergence.CUT_GROWTH * 50
    early = TrialRun(1e9, 1_000)  # the compiler had the time
    early.cut(draws)
    assert early.length == 1_000
    whole = TrialRun(300.0, 1_000)
    whole.cut(autoregression(0.5))
    assert not whole.is_cut and whole.length < 1_000


TARGET = make(LOGISTIC, dps.domains.Ball(1.0))


def sample(**options):
    fixed = {"sampler": dps.samplers.TiltedGibbs(), "num_draws": 40, "check": False}
    chosen = fixed | {"seed": 2}
    return dps.sample(TARGET, progress=False, **(chosen | options))


def same(a, b):
    return np.array_equal(a.posterior["theta"], b.posterior["theta"])


@pytest.mark.slow
def test_the_size_is_reached_at_the_same_draw_for_all_threads_and_resumes(tmp_path):
    path = tmp_path / "run.npz"
    whole = sample(target_ess=400.0, threads=1)
    assert whole.posterior["theta"].shape[1] > 40
    assert effective_size(whole.posterior["theta"].values) >= 400.0
    assert whole.attrs["ess_reached"] >= whole.attrs["target_ess"] == 400.0
    assert whole.attrs["is_target_ess_reached"] == 1
    assert same(sample(target_ess=400.0, threads=3), whole)
    longer = sample(num_draws=2 * whole.posterior["theta"].shape[1])
    length = whole.posterior["theta"].shape[1]
    np.testing.assert_array_equal(
        longer.posterior["theta"][:, :length], whole.posterior["theta"]
    )
    # A run that stopped within a round, one at its end, and one that went further.
    for options in ({"num_draws": 50}, {"target_ess": 300.0}, {"target_ess": 800.0}):
        path.unlink(missing_ok=True)
        sample(checkpoint=path, **options)
        assert same(sample(target_ess=400.0, checkpoint=path), whole)


def test_a_chain_that_does_not_mix_ends_with_a_warning(monkeypatch):
    monkeypatch.setattr(convergence, "MAX_GROWTH", 4)
    with pytest.warns(RuntimeWarning, match="the chains mix too slowly"):
        tree = sample(target_ess=1e6)
    assert tree.posterior["theta"].shape[1] == 160
    assert tree.attrs["is_target_ess_reached"] == 0
    with pytest.warns(RuntimeWarning, match="is 0 after"):
        still = dps.samplers.RandomWalk(step_size=1e9)
        sample(target_ess=10.0, sampler=still, init=np.zeros(4))


def test_the_draws_that_are_kept_did_not_decide_how_many_they_are():
    """Runs are returned whatever they show: the first draws do not know the target."""
    sizes = {}
    for wanted in (300.0, 400.0):
        tree = sample(target_ess=wanted)
        sizes[wanted] = tree.posterior["theta"].values
    length = sizes[300.0].shape[1]
    assert sizes[400.0].shape[1] > length
    np.testing.assert_array_equal(sizes[400.0][:, :length], sizes[300.0])
    np.testing.assert_array_equal(
        sample(num_draws=length).posterior["theta"].values, sizes[300.0]
    )


def test_without_a_size_nothing_is_said_of_it():
    assert "target_ess" not in sample().attrs
