"""Verdict on draws: what has converged, who is worst, and when a warning comes."""

import warnings

import numpy as np
import pytest
from arviz_stats.base import array_stats

import dpsample as dps
from dpsample.numerics.mixing import split_r_hats, with_squares
from dpsample.running.convergence import Convergence
from dpsample.verbs.warm import LOGISTIC, make
from tests.running.test_trial_runs import autoregression

TARGET = make(LOGISTIC, dps.domains.Ball(1.0))
NAMES = ("a", "b", "c")


def test_independent_draws_have_converged():
    verdict = Convergence.of(autoregression(0.0, num_chains=4, length=1000), NAMES)
    assert verdict.has_converged
    assert verdict.attributes()["converged"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict.warn("")


def test_the_worst_coefficient_is_named():
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[0, :, 1] += 2.0
    verdict = Convergence.of(draws, NAMES)
    assert verdict.worst == "theta[b]"
    with pytest.warns(RuntimeWarning, match=r"worst for theta\[b\]. Do that."):
        verdict.warn("Do that.")
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[0, :, 2] *= 5.0
    assert Convergence.of(draws, NAMES).worst == "theta[c]"  # R-hat is folded, too
    noise = np.random.default_rng(1).choice([-1.0, 1.0], size=draws.shape[:2])
    draws[:, :, 2] = (
        noise * np.abs(autoregression(0.99, num_chains=4, length=1000))[:, :, 0]
    )
    assert Convergence.of(draws, NAMES).worst.endswith("theta[c]")


def test_ranks_find_what_values_of_a_skewed_coefficient_hide():
    draws = autoregression(0.0, num_chains=4, length=1000)
    decoys = [autoregression(0.6, num_chains=4, length=1000) for _ in range(10)]
    skewed = draws[:, :, :1] + np.array([0.5, 0.0, 0.0, 0.0])[:, None, None]
    draws = np.concatenate([*decoys, np.exp(6.0 * skewed)], axis=2)
    assert split_r_hats(draws)[-1] < np.sort(split_r_hats(draws))[-9]  # planted
    names = [str(i) for i in range(draws.shape[2])]
    verdict = Convergence.of(draws, names)
    values = with_squares(draws)
    assert verdict.worst.endswith(f"theta[{names[-1]}]")
    wanted = np.max(array_stats.rhat(values, chain_axis=0, draw_axis=1))
    assert verdict.r_hat == pytest.approx(wanted, rel=1e-9)


def test_a_short_run_is_blamed_for_what_chance_does_not_do():
    short = autoregression(0.0, num_chains=2, length=50)
    verdict = Convergence.of(short, NAMES)
    assert not verdict.has_converged  # its size is below 400
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict.warn("")
    short[0] += 2.0
    with pytest.warns(RuntimeWarning, match="have not converged"):
        Convergence.of(short, NAMES).warn("")


@pytest.mark.parametrize(("num_chains", "length"), [(1, 8), (1, 200), (2, 20), (4, 8)])
def test_independent_draws_of_any_number_of_chains_are_not_blamed(num_chains, length):
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(50):
            Convergence.of(rng.normal(size=(num_chains, length, 3)), NAMES).warn("")


def test_a_draw_that_is_no_number_has_not_converged():
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[2, 500, 1] = np.nan
    verdict = Convergence.of(draws, NAMES)
    assert not verdict.has_converged and verdict.worst.endswith("theta[b]")


def test_constant_coefficients_and_tiny_runs_are_left_alone():
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[:, :, 0] = 1.0
    assert Convergence.of(draws, NAMES).has_converged
    for tiny in (np.ones((2, 100, 3)), draws[:, :3]):
        verdict = Convergence.of(tiny, NAMES)
        assert not verdict.has_converged
        assert verdict.ess == 0.0


@pytest.mark.parametrize("places", [[0.0, 0.0], [0.0, 1.0], [0.1, 0.7]])
def test_chains_that_never_move_are_blamed_in_short_runs_too(places):
    """Without a spread R-hat is NaN, infinite or huge, as rounding has it."""
    stuck = np.array(places)[:, None, None] * np.ones((2, 200, 3))
    verdict = Convergence.of(stuck, NAMES)
    assert not verdict.has_converged
    with pytest.warns(RuntimeWarning, match="have not converged"):
        verdict.warn("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Convergence.of(stuck[:, :3], NAMES).warn("")  # nothing is known of these


def test_sample_says_what_has_not_converged_and_how_to_silence_it():
    slow = {"sampler": dps.samplers.RandomWalk(step_size=1e-4), "num_draws": 300}
    with pytest.warns(RuntimeWarning, match='use sampler="auto"') as seen:
        tree = dps.sample(TARGET, progress=False, **slow)
    assert seen[0].filename == __file__
    assert tree.attrs["converged"] == 0
    assert tree.attrs["r_hat"] > 1.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = dps.sample(TARGET, progress=False, check=False, **slow)
    assert "converged" not in quiet.attrs
    good = dps.sample(TARGET, progress=False)
    assert good.attrs["converged"] == 1
    assert good.attrs["ess"] > 400.0
