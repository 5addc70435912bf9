"""Verdict on draws: what has converged, who is worst, and when a warning comes."""

import warnings

import numpy as np
import pytest
from arviz_stats.base import array_stats

import dpsample as dps
from dpsample.api.warm import LOGISTIC, make
from dpsample.numerics.r_hat_and_ess import (
    nested_r_hats,
    plain_r_hats,
    verdicts,
    with_squares,
)
from dpsample.running import convergence
from dpsample.running.convergence import Convergence, effective_size
from tests.support.autoregressions import autoregression

TARGET = make(LOGISTIC, dps.domains.Ball(1.0))
NAMES = ("a", "b", "c")


def test_independent_draws_have_converged():
    verdict = Convergence.judge(autoregression(0.0, num_chains=4, length=1000), NAMES)
    assert verdict.has_converged
    assert verdict.attributes()["converged"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict.warn("")


def test_the_worst_coefficient_is_named():
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[0, :, 1] += 2.0
    verdict = Convergence.judge(draws, NAMES)
    assert verdict.worst == "theta[b]"
    with pytest.warns(RuntimeWarning, match=r"worst for theta\[b\]. Do that."):
        verdict.warn("Do that.")
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[0, :, 2] *= 5.0
    assert Convergence.judge(draws, NAMES).worst == "theta[c]"  # R-hat is folded, too
    noise = np.random.default_rng(1).choice([-1.0, 1.0], size=draws.shape[:2])
    draws[:, :, 2] = (
        noise * np.abs(autoregression(0.99, num_chains=4, length=1000))[:, :, 0]
    )
    assert Convergence.judge(draws, NAMES).worst.endswith("theta[c]")


def test_ranks_find_what_values_of_a_skewed_coefficient_hide():
    draws = autoregression(0.0, num_chains=4, length=1000)
    decoys = [autoregression(0.6, num_chains=4, length=1000) for _ in range(10)]
    skewed = draws[:, :, :1] + np.array([0.5, 0.0, 0.0, 0.0])[:, None, None]
    draws = np.concatenate([*decoys, np.exp(6.0 * skewed)], axis=2)
    assert plain_r_hats(draws)[-1] < np.sort(plain_r_hats(draws))[-9]  # planted
    names = [str(i) for i in range(draws.shape[2])]
    verdict = Convergence.judge(draws, names)
    values = with_squares(draws)
    assert verdict.worst.endswith(f"theta[{names[-1]}]")
    wanted = np.max(array_stats.rhat(values, chain_axis=0, draw_axis=1))
    assert verdict.r_hat == pytest.approx(wanted, rel=1e-9)


def test_a_short_run_is_blamed_for_what_chance_does_not_do():
    short = autoregression(0.0, num_chains=2, length=50)
    verdict = Convergence.judge(short, NAMES)
    assert not verdict.has_converged  # its size is below 400
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict.warn("")
    short[0] += 2.0
    with pytest.warns(RuntimeWarning, match="have not converged"):
        Convergence.judge(short, NAMES).warn("")


@pytest.mark.parametrize(("num_chains", "length"), [(1, 8), (1, 200), (2, 20), (4, 8)])
def test_independent_draws_of_any_number_of_chains_are_not_blamed(num_chains, length):
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(50):
            Convergence.judge(rng.normal(size=(num_chains, length, 3)), NAMES).warn("")


def test_a_draw_that_is_no_number_has_not_converged():
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[2, 500, 1] = np.nan
    verdict = Convergence.judge(draws, NAMES)
    assert not verdict.has_converged and verdict.worst.endswith("theta[b]")


def test_constant_coefficients_and_tiny_runs_are_left_alone():
    draws = autoregression(0.0, num_chains=4, length=1000)
    draws[:, :, 0] = 1.0
    assert Convergence.judge(draws, NAMES).has_converged
    for tiny in (np.ones((2, 100, 3)), draws[:, :3]):
        verdict = Convergence.judge(tiny, NAMES)
        assert not verdict.has_converged
        assert verdict.ess == 0.0


@pytest.mark.parametrize("places", [[0.0, 0.0], [0.0, 1.0], [0.1, 0.7]])
def test_chains_that_never_move_are_blamed_in_short_runs_too(places):
    """Without a spread R-hat is NaN, infinite or huge, as rounding has it."""
    stuck = np.array(places)[:, None, None] * np.ones((2, 200, 3))
    verdict = Convergence.judge(stuck, NAMES)
    assert not verdict.has_converged
    with pytest.warns(RuntimeWarning, match="have not converged"):
        verdict.warn("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Convergence.judge(stuck[:, :3], NAMES).warn("")  # nothing is known of these


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


def many_short(phi=0.8, *, length=5, offset=0.0, num_chains=512, seed=1):
    """Stationary chains, or with superchains that remember a start so far off."""
    shape = {"num_chains": num_chains, "length": length, "seed": seed}
    draws = autoregression(phi, **shape) * np.sqrt(1.0 - phi**2)
    groups = convergence.superchains(num_chains)
    starts = np.random.default_rng(seed).normal(size=(8, 3))
    return draws + offset * starts[groups][:, None], groups


def test_nested_r_hat_is_the_published_one():
    draws, groups = many_short(offset=0.3)
    for series in (draws, draws[:, :1]):
        found, noise = nested_r_hats(series, groups)
        wanted = array_stats.rhat_nested(
            series, groups, method="identity", chain_axis=0, draw_axis=1
        )
        if series.shape[1] > 3:  # ArviZ wants four draws
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        means = series.mean(axis=1)
        parts = [means[groups == group] for group in range(8)]
        apart = np.mean([part.var(axis=0, ddof=1) for part in parts], axis=0)
        between = np.var([part.mean(axis=0) for part in parts], axis=0, ddof=1)
        np.testing.assert_allclose((found**2 - 1.0) / noise, 64 * between / apart)
    unequal = nested_r_hats(draws[:509], groups[:509])[0]
    np.testing.assert_allclose(unequal, nested_r_hats(draws, groups)[0], rtol=0.1)


@pytest.mark.parametrize(("num_chains", "length"), [(512, 5), (1000, 2), (2000, 1)])
def test_many_short_chains_that_forgot_their_starts_are_not_blamed(num_chains, length):
    shape = {"num_chains": num_chains, "length": length}
    for seed in range(20):
        draws, groups = many_short(**shape, seed=seed)
        verdict = Convergence.judge(draws, NAMES, groups)
        assert verdict.is_nested and verdict.has_converged
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            verdict.warn("")
    if length > 3:  # planted: halves of such chains tell that they are short
        assert Convergence.judge(draws, NAMES).r_hat > 1.1


@pytest.mark.parametrize("length", [1, 2, 5, 20])
def test_many_short_chains_that_remember_their_starts_are_blamed(length):
    draws, groups = many_short(length=length, offset=0.7)
    verdict = Convergence.judge(draws, NAMES, groups)
    assert not verdict.has_converged
    with pytest.warns(RuntimeWarning, match="nested R-hat .* Do that"):
        verdict.warn("Do that.")
    stuck = draws[groups][:, :1].repeat(length, axis=1)  # all chains at their starts
    verdict = Convergence.judge(stuck, NAMES, groups)
    assert verdict.ess < 8.1  # points
    with pytest.warns(RuntimeWarning, match="nested R-hat"):
        verdict.warn("")


@pytest.mark.parametrize("length", [2, 5, 20, 99])
def test_many_short_chains_that_drift_together_are_blamed(length):
    """Planted: nested R-hat of what all superchains do alike."""
    draws, groups = many_short(length=length)
    draws[:, :, 1] += 4.0 * np.linspace(0.0, 1.0, length)
    draws[:, :, 2] *= np.geomspace(1.0, 9.0, length)  # only squares tell
    assert nested_r_hats(draws, groups)[0].max() < 1.02
    verdict = Convergence.judge(draws[:, :, :2], NAMES[:2], groups)
    assert not verdict.has_converged and verdict.worst == "theta[b]"
    with pytest.warns(RuntimeWarning, match="nested R-hat .* Do that"):
        verdict.warn("Do that.")
    assert not Convergence.judge(draws[:, :, 2:], NAMES[2:], groups).has_converged


def test_starts_of_their_own_are_not_nested_for_that_would_see_nothing():
    draws, groups = many_short()
    starts = 3.0 * np.random.default_rng(1).normal(size=(512, 1, 3))
    verdict = Convergence.judge(draws + starts, NAMES)
    assert not verdict.is_nested and verdict.r_hat > 1.2
    blind = Convergence.judge(draws + starts, NAMES, groups)
    assert blind.r_hat < 1.02  # planted: groups that share no start
    assert convergence.groups_of(list(starts[:, 0])) is None
    shared = list(starts[groups, 0])
    found = convergence.groups_of(shared)
    assert len(np.unique(found)) == 8
    assert all(len(np.unique(found[groups == group])) == 1 for group in range(8))
    assert convergence.groups_of(shared[:1] * 512) is None
    assert convergence.groups_of(shared[:100]) is None
    assert convergence.superchains(127) is None


@pytest.mark.parametrize("length", [2, 5, 20])
def test_sizes_of_many_short_chains_are_those_of_the_variance_of_their_mean(length):
    phi, lags = 0.8, np.arange(length)
    correlations = phi ** np.abs(lags[:, None] - lags)
    exact = 512 / correlations.mean()
    draws, groups = many_short(phi, length=length)
    verdict = Convergence.judge(draws, NAMES, groups)
    assert verdict.ess == pytest.approx(exact, rel=0.35)
    assert effective_size(draws) == verdict.ess
    if length == 5:  # planted: autocorrelations of halves of two draws
        assert verdicts(draws)[1].min() > 4.0 * exact


@pytest.mark.slow
def test_sample_judges_many_short_chains_by_what_they_forgot():
    options = {"num_chains": 512, "num_draws": 5, "progress": False}
    sampler = dps.samplers.RandomWalk(num_steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = dps.sample(TARGET, sampler=sampler, num_warmup=100, **options)
    assert tree.attrs["converged"] == 1 and tree.attrs["r_hat"] < 1.02
    with pytest.warns(RuntimeWarning, match=r"nested .* Discard more \(num_warmup\)"):
        slow = dps.samplers.RandomWalk(step_size=0.02)
        tree = dps.sample(TARGET, sampler=slow, num_warmup=0, **options)
    assert tree.attrs["converged"] == 0


@pytest.mark.parametrize("length", [2, 5])
def test_chains_of_one_start_have_no_nested_r_hat_and_a_size(length):
    draws, _ = many_short(length=length)
    verdict = Convergence.judge(draws, NAMES)
    assert not verdict.is_nested and not verdict.has_converged
    assert 300.0 < verdict.ess < 1000.0
    assert np.isnan(verdict.r_hat) == (length == 2)


REMEDIES = [
    ({}, "standardize the features, lower k or raise mu", "sampler="),
    ({"is_automatic": False}, 'use sampler="auto"', "num_warmup"),
    ({"has_loss": False}, "Draw more", "features"),
    ({"has_loss": False, "is_bounded": True}, "the domain is much narrower", "lower k"),
    ({"has_settled": False}, "metric has not settled. Draw more", "sampler="),
    ({"is_independent": True}, "the draws are independent", "features"),
]


@pytest.mark.parametrize(("facts", "said", "unsaid"), REMEDIES)
def test_remedies_fit_the_run(facts, said, unsaid):
    text = convergence.RunFacts(**facts).remedy()
    assert said in text and unsaid not in text


def test_a_uniform_polytope_has_no_features_to_standardize():
    square = dps.domains.Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 1, 1, 1])
    rows = np.zeros((1, 2))
    problem = dps.Problem(
        rows, [1.0], loss=dps.losses.Linear(), domain=square, row_bound=1.0
    )
    uniform = dps.Gibbs(problem, k=1.0, mu=0.0)
    slow = dps.samplers.RandomWalk(step_size=1e-3)
    with pytest.warns(RuntimeWarning, match="domain is much narrower") as seen:
        dps.sample(uniform, sampler=slow, num_draws=300, progress=False)
    assert "features" not in str(seen[0].message)


def test_too_few_independent_draws_do_not_mix_slowly(monkeypatch):
    monkeypatch.setattr(convergence, "MAX_GROWTH", 2)
    linear = make(dps.losses.Linear(), dps.domains.Ball(1.0))
    with pytest.warns(RuntimeWarning, match="Use a larger num_draws") as seen:
        tree = dps.sample(linear, num_draws=10, target_ess=1e5, progress=False)
    assert tree.attrs["exactness"] == "iid"
    assert "mix" not in str(seen[0].message)
    (few,) = [
        finding
        for finding in dps.diagnostics.check(tree).problems
        if finding.name == "too few draws"
    ]
    assert "sampler" not in few.remedy
