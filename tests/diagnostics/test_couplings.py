"""Meeting times and total-variation curves against chains whose law is known."""

import numpy as np
import pytest

from dpsample.core.streams import streams
from dpsample.diagnostics import couplings
from dpsample.diagnostics.couplings import MeetingTimes
from dpsample.samplers import (
    MALA,
    BallWalk,
    LaplaceIndependence,
    PreconditionedCrankNicolson,
    Proximal,
    RandomWalk,
    TiltedGibbs,
)
from tests.support.exact_mixing import autoregressive_tv, standard_normal
from tests.support.gibbs_targets import CASES
from tests.support.tiers import one_in, slow

DIM, START = 10, np.full(10, 3.0)
STEPS = np.array([5, 10, 15, 20, 25])


@pytest.fixture(scope="module")
def gaussian():
    return standard_normal(DIM)


def exact_tv(t):
    return autoregressive_tv(t, 0.8, START)


def test_exact_distances_are_those_of_the_formula():
    # 2 Phi(|m| / 2) - 1 up to the change of the variance.
    expected = [0.1325, 0.0437, 0.0047]
    np.testing.assert_allclose([exact_tv(t) for t in (15, 20, 30)], expected, atol=1e-3)


def check_curve(found, steps=STEPS):
    """Limits above the exact distance, estimates within a small factor of it."""
    curve = found.tv_curve(steps, confidence=0.999)
    exact = np.array([exact_tv(t) for t in steps])
    assert (curve.upper > exact).all(), "statistic: a limit below the distance"
    seen = ~curve.is_extrapolated
    assert seen.sum() >= 3 and (curve.estimate[seen] < 4.0 * exact[seen]).all()


@pytest.mark.slow
def test_curve_of_an_autoregressive_chain(gaussian):
    # Always accepted: x' = 0.8 x + 0.6 z.
    found = couplings.meeting_times(
        PreconditionedCrankNicolson(step_size=0.6),
        gaussian,
        lag=40,
        replicates=1000,
        seed=51,
        init=START,
    )
    check_curve(found)
    early = MeetingTimes(**(vars(found) | {"times": found.times - 10}))
    with pytest.raises(AssertionError, match="statistic"):
        check_curve(early)


@pytest.mark.slow
def test_curve_of_the_proximal_sampler(gaussian):
    # The exact conditional draw gives x' = x / 1.25 plus noise: the same chain.
    found = couplings.meeting_times(
        Proximal(step_size=0.25),
        gaussian,
        lag=40,
        replicates=400,
        seed=52,
        init=START,
    )
    check_curve(found)
    # 0.254 and 0.081 in the specification's own run of the coupling.
    assert found.tv_bound(15) == pytest.approx(0.254, abs=0.12)
    assert found.tv_bound(20) == pytest.approx(0.081, abs=0.08)


@one_in(5)
@pytest.mark.parametrize(
    "sampler",
    [
        RandomWalk(step_size=1.2),
        slow(MALA(step_size=0.5)),
        PreconditionedCrankNicolson(step_size=0.7),
        LaplaceIndependence(),
        LaplaceIndependence(tail=5.0),
        TiltedGibbs(step_size=1.0),
        slow(Proximal()),
        slow(Proximal(oracle="thinned")),
    ],
)
@pytest.mark.parametrize("case_name", ["logistic on a ball", "hinge on the plane"])
def test_chains_meet(sampler, case_name):
    target = CASES[case_name].target
    found = couplings.meeting_times(
        sampler, target, lag=5, replicates=30, seed=53, max_steps=3000
    )
    assert not found.is_censored.any() and (found.times >= 5).all()
    assert found.sampler == repr(sampler) and repr(sampler) in repr(found)
    assert len(set(found.times.tolist())) > 1


@pytest.mark.slow
def test_lag_moves_the_times_and_tightens_the_bound(gaussian):
    sampler = PreconditionedCrankNicolson(step_size=0.6)
    bounds = []
    for lag in (1, 40):
        found = couplings.meeting_times(
            sampler, gaussian, lag=lag, replicates=200, seed=54, init=START
        )
        bounds.append(found.tv_bound(0))
    assert bounds[0] > 5.0 and bounds[1] < 1.5


def test_threads_and_preparation_do_not_change_a_time():
    target = CASES["logistic on a ball"].target
    options = {"lag": 4, "replicates": 40, "seed": 55}
    one, many = (
        couplings.meeting_times(RandomWalk(), target, threads=n, **options)
        for n in (1, 3)
    )
    np.testing.assert_array_equal(one.times, many.times)
    prepared = RandomWalk().prepare(target, streams(55, 41)[0])
    again = couplings.meeting_times(prepared, target, **options)
    np.testing.assert_array_equal(one.times, again.times)
    assert again.sampler == "RandomWalk"
    other = couplings.meeting_times(prepared, target, **(options | {"seed": 56}))
    assert (one.times != other.times).any()


def test_steps_are_draws():
    target = CASES["logistic on a ball"].target
    options = {"lag": 4, "replicates": 60, "seed": 57}
    one = couplings.meeting_times(RandomWalk(step_size=1.0), target, **options)
    ten = couplings.meeting_times(
        RandomWalk(step_size=1.0, num_steps=10), target, **options
    )
    assert (one.num_steps, ten.num_steps) == (1, 10)
    assert (ten.times - 4).mean() < 0.5 * (one.times - 4).mean()


def test_a_short_cap_is_reported():
    target = CASES["logistic on a ball"].target
    found = couplings.meeting_times(
        RandomWalk(step_size=0.05), target, lag=2, replicates=20, seed=58, max_steps=9
    )
    assert found.is_censored.sum() > 10
    assert (found.times[found.is_censored] == 9).all()


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (BallWalk(step_size=1.0), "one that has a coupling.*MALA"),
        (RandomWalk(p=1.5, step_size=1.0), "Gaussian proposals.*p = 1.5.*RandomWalk"),
        ("mala", "a sampler or what its prepare returned, got 'mala'"),
    ],
)
def test_samplers_without_a_coupling_are_refused(sampler, message):
    target = CASES["logistic on a ball"].target
    with pytest.raises(ValueError, match=message):
        couplings.meeting_times(sampler, target, lag=2, replicates=2)


def test_a_chain_prepared_for_another_target_is_refused():
    one, other = (CASES[n].target for n in ("logistic on a ball", "hinge on a ball"))
    prepared = MALA(step_size=0.5).prepare(one, np.random.default_rng(59))
    with pytest.raises(ValueError, match="prepared for the target"):
        couplings.meeting_times(prepared, other, lag=2, replicates=2)


BAD = {
    "max_steps": {"not above the lag": 2},
    "init": {"nan": [np.nan, 0.0], "long": [0.0] * 3, "outside": [2.0, 0.0]},
}
BAD_MOMENTS = BAD | {"moments": {"unknown": ["nonsense"], "number": [3]}}


def bad_arguments():
    for function, table in (
        (couplings.meeting_times, BAD),
        (couplings.unbiased_moments, BAD_MOMENTS),
    ):
        for parameter, values in table.items():
            for kind, value in values.items():
                label = f"{function.__name__}-{parameter}-{kind}"
                yield pytest.param(function, parameter, value, id=label)


@pytest.mark.parametrize(("function", "parameter", "value"), list(bad_arguments()))
def test_malformed_arguments_are_named(function, parameter, value):
    valid = {
        "sampler": RandomWalk(step_size=1.0),
        "target": CASES["logistic on a ball"].target,
        "lag": 2,
        "replicates": 2,
    }
    if function is couplings.unbiased_moments:
        valid["burn_in"] = 1
    with pytest.raises(ValueError, match=f"^{parameter} must be .*, got "):
        function(**(valid | {parameter: value}))
