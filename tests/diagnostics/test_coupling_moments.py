"""Unbiased moments against closed forms, whatever the start and the burn-in."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.diagnostics import couplings
from dpsample.diagnostics.couplings import unbiased
from dpsample.diagnostics.couplings.meeting import Coupled, build
from dpsample.samplers import PreconditionedCrankNicolson
from dpsample.samplers.chain import NUM_STATS
from tests.support.statistics import rejected, spend

DIM, MEAN = 3, np.array([0.5, 0.0, -0.25])
# Proposals that the Gaussian fit leaves invariant are always accepted: an exact AR(1).
SAMPLER = PreconditionedCrankNicolson(step_size=0.6)
START = np.array([3.0, -3.0, 2.0])


@pytest.fixture(scope="module")
def target():
    """N(MEAN, I): k mu = 1 and one linear record."""
    problem = dps.Problem(
        MEAN[None],
        [1.0],
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    return dps.Gibbs(problem, k=1.0, mu=1.0)


def assert_unbiased(values, mean):
    """Self-normalized sums have Gaussian tails (exactly so for symmetric laws)."""
    z = (values.mean() - mean) / (values.std(ddof=1) / np.sqrt(len(values)))
    bound = np.sqrt(2.0 * np.log(2.0 / spend(is_exact=False)))
    assert abs(z) <= bound, f"mean statistic {z:.1f}, bound {bound:.1f}"


def run(target, *, count=1500, **changes):
    options = {
        "lag": 3,
        "burn_in": 2,
        "num_draws": 4,
        "replicates": count,
        "seed": 41,
        "init": START,
    }
    return couplings.unbiased_moments(SAMPLER, target, **(options | changes))


def check(found):
    for j in range(DIM):
        assert_unbiased(found.replicates[0][:, j], MEAN[j])
        assert_unbiased(found.replicates[1][:, j], 1.0 + MEAN[j] ** 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lag": 1, "burn_in": 0, "num_draws": 1},
        {"lag": 10, "burn_in": 5, "num_draws": 30},
    ],
)
def test_moments_have_no_bias_from_a_far_start(target, options):
    check(run(target, **options))


def test_a_lead_one_step_too_long_is_rejected(target, monkeypatch):
    continue_first = Coupled.continue_first

    def longer(self, position, rng, count):
        return continue_first(self, position, rng, count + 1)[1:]

    monkeypatch.setattr(Coupled, "continue_first", longer)
    with rejected():
        check(run(target, count=700, lag=1, burn_in=0, num_draws=1))


def test_without_the_correction_the_start_shows(target):
    prepared = SAMPLER.prepare(target, np.random.default_rng(44))
    draws, stats = np.empty((5, DIM)), np.empty((5, NUM_STATS))
    averages = []
    for rng in streams(44, 300):
        prepared.runner()(prepared.init(START), rng, draws, stats)
        averages.append(draws[1:, 0].mean())
    with rejected():
        assert_unbiased(np.array(averages), MEAN[0])


@pytest.mark.parametrize("lag", [1, 4])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 3), (2, 9)])
def test_weights_count_the_values_of_k(lag, first, last):
    t = np.arange(lag + 1, 40)
    expected = [
        sum((time - k) % lag == 0 and time - k >= lag for k in range(first, last + 1))
        / (last - first + 1)
        for time in t
    ]
    np.testing.assert_allclose(unbiased.weights(t, lag, first, last), expected)


def test_one_replicate_is_the_definition(target):
    lag, first, last = 2, 0, 3
    ahead, behind = {}, {}
    slow = PreconditionedCrankNicolson(step_size=0.3)

    class Recorder(Coupled):
        def meet(self, rng, on_rows=None):
            def record(time, draws, others):
                for i, row in enumerate(draws):
                    ahead[time + i] = row.copy()
                for i, row in enumerate(others):
                    behind[time + i - lag] = row.copy()
                on_rows(time, draws, others)

            return super().meet(rng, record)

    rng = np.random.default_rng(43)
    plain = build(slow, target, rng, lag=lag, max_steps=1000, init=START)
    coupled = Recorder(**vars(plain))
    total = unbiased._Sum([lambda draws: draws], lag, first, last)
    time, has_met, values = unbiased._replicate(coupled, total, rng)
    assert has_met and time > last + lag
    by_hand = []
    for k in range(first, last + 1):
        value, j = ahead[k].copy(), 1
        while k + j * lag < time:
            value += ahead[k + j * lag] - behind[k + (j - 1) * lag]
            j += 1
        by_hand.append(value)
    np.testing.assert_allclose(values[0], np.mean(by_hand, axis=0), rtol=1e-12)


@pytest.mark.slow
def test_functions_of_the_user_and_their_names(target):
    def radius(draws):
        return np.linalg.norm(draws - MEAN, axis=1)

    found = run(target, moments=("theta", radius), count=200)
    assert found.names == ("theta", "radius")
    assert found.estimates[0].shape == (DIM,) and found.estimates[1].shape == ()
    assert "radius" in repr(found) and "+-" in repr(found)
    expected = found.replicates[1].std(ddof=1) / np.sqrt(200)
    assert found.standard_errors[1] == pytest.approx(expected)


def test_threads_do_not_change_an_estimate(target):
    one, many = (run(target, count=50, threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one.replicates[0], many.replicates[0])


def test_pairs_that_did_not_meet_are_an_error(target):
    with pytest.raises(ValueError, match="Increase max_steps"):
        run(target, count=20, max_steps=4)
