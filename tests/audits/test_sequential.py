"""Sequential audits: wealth, false alarms at any time, speed, going on."""

import numpy as np
import pytest
from scipy.stats import binom

import dpsample as dps
from dpsample.audits.sequential import SequentialTest
from dpsample.privacy import gaussian_delta, gdp_from_budget
from tests.support.statistics import rejected, spend
from tests.support.tiers import slow, usual

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
GDP = gdp_from_budget(1.0, 1e-6)
ALPHA = 0.05


def new_test(epsilons, gdp=GDP):
    claimed = np.array([gaussian_delta(e, gdp) for e in epsilons])
    return SequentialTest(
        epsilons=np.array(epsilons), claimed_deltas=claimed, alpha=ALPHA
    )


def played(epsilons, shift, most, seed, *, gdp=GDP):
    """Test of N(shift, 1) against N(0, 1) after at most so many rounds."""
    rng, test = np.random.default_rng(seed), new_test(epsilons, gdp)
    while test.rounds < most and test.stopped_at is None:
        first, second = rng.standard_normal((2, 512))
        test.update(first + shift, second)
    return test


def assert_few_alarms(tests, alarms):
    """At most as many as have probability ``ALPHA``, at the suite's level."""
    most = binom.isf(spend(), tests, ALPHA)
    assert alarms <= most, f"alarms statistic {alarms} of {tests}, bound {most}"


@usual("667")
@pytest.mark.parametrize(
    ("epsilons", "median"),
    [((0.0,), 452), ((0.0, 0.25, 0.5, 1.0), 667), ((0.5,), 2147)],
)
def test_half_of_the_noise_is_refuted_as_soon_as_betting_can(epsilons, median):
    stops = [played(epsilons, 2.0 * GDP, 20_000, i).stopped_at for i in range(60)]
    assert None not in stops
    assert np.median(stops) < 1.2 * median


@pytest.mark.slow
@pytest.mark.parametrize("epsilons", [(0.0,), slow((0.0, 0.25, 0.5, 1.0))])
def test_tight_claims_are_refuted_as_rarely_as_alpha_says(epsilons):
    tests = [played(epsilons, GDP, 1024, (7, i)) for i in range(150)]
    assert_few_alarms(len(tests), sum(t.stopped_at is not None for t in tests))
    # The grid's least true claim is at or above the truth.
    assert_few_alarms(len(tests), sum(t.gdp_lower > GDP for t in tests))


@pytest.mark.parametrize("share", [0.05, 1.0])
def test_outputs_that_only_one_law_has_refute_soon(share):
    """Their log ratio is infinite; all others have one of 0 here."""
    rng, test = np.random.default_rng(4), new_test((0.0, 0.5, 1.0))
    first = np.where(rng.random(4000) < share, np.inf, 0.0)
    test.update(first, -np.where(rng.random(4000) < share, np.inf, 0.0))
    assert test.stopped_at is not None and test.stopped_at < 60 / share


@pytest.mark.slow
@pytest.mark.parametrize("epsilons", [(0.0,), (0.0, 0.25, 0.5, 1.0)])
def test_tight_claims_in_a_thousand_long_runs(epsilons):
    tests = [played(epsilons, GDP, 8192, (8, i)) for i in range(1000)]
    assert_few_alarms(len(tests), sum(t.stopped_at is not None for t in tests))
    assert_few_alarms(len(tests), sum(t.gdp_lower > GDP for t in tests))


def test_a_delta_that_is_left_out_is_caught():
    tests = [played((0.0,), GDP, 2048, (9, i), gdp=0.0) for i in range(50)]
    with rejected():
        assert_few_alarms(len(tests), sum(t.stopped_at is not None for t in tests))


@pytest.mark.slow
def test_wealth_stays_positive_and_its_bound_of_gdp_rises_to_the_truth():
    test = new_test((0.0, 0.5, 1.0, 2.0))
    rng = np.random.default_rng(3)
    bounds = []
    for _ in range(6):
        first, second = rng.standard_normal((2, 5000))
        test.update(first + 2.0, second)
        bounds.append(test.gdp_lower)
    assert bounds == sorted(bounds) and 1.6 < bounds[-1] <= 2.0
    hostile = np.array([0.0, 1e300, -1e300, 1e-300] * 64)
    for scores in ((hostile, -hostile), (hostile * 0.0, hostile * 0.0)):
        test = new_test((0.0, 1.0))
        with np.errstate(over="ignore", invalid="ignore"):
            test.update(*scores)
        assert np.isfinite(test.log_wealth).all() and test.e_value >= 0.0


def half_noise(data, rng, num_draws):
    return data + rng.normal(0.0, 0.5 / GDP, (num_draws, 3))


def test_a_function_with_half_of_its_noise_is_refuted():
    problem, neighbor = np.zeros(3), np.array([0.6, 0.0, 0.8])
    report = dps.audit(
        half_noise,
        problem,
        neighbor,
        BUDGET,
        gdp=GDP,
        alpha=ALPHA,
        seed=1,
        sequential=True,
    )
    assert report.is_refuted and report.test.stopped_at < 4000
    assert GDP < report.test.gdp_lower < 2.0 * GDP
    assert "REFUTED in round" in repr(report)
    assert report.to_dict()["stopped_at"] == report.test.stopped_at


def test_a_claim_of_a_huge_epsilon_beside_a_small_gdp_is_refuted():
    budget, claims = dps.Budget(epsilon=800.0, delta=1e-5), {"gdp": 0.1}
    options = {"alpha": ALPHA, "seed": 1, "sequential": True}
    report = dps.audit(half_noise, np.zeros(3), np.ones(3), budget, **claims, **options)
    assert report.is_refuted and report.test.gdp_lower > GDP


def test_an_audit_goes_on_to_the_same_bits():
    mechanism = dps.noise.gaussian_mechanism(BUDGET, sensitivity=1.0)
    run = {"alpha": ALPHA, "seed": 2}
    whole = dps.audit(
        mechanism, 0.0, 1.0, BUDGET, num_draws=6000, sequential=True, **run
    )
    part = dps.audit(
        mechanism, 0.0, 1.0, BUDGET, num_draws=1000, sequential=True, **run
    )
    before = part.test.rounds
    again = dps.audit(
        mechanism, 0.0, 1.0, BUDGET, num_draws=6000, sequential=part, **run
    )
    assert part.test.rounds == before < again.test.rounds == whole.test.rounds
    assert (again.test.log_wealth == whole.test.log_wealth).all()
    assert not whole.is_refuted and 0.0 < whole.test.gdp_lower <= GDP
    wider = dps.Budget(epsilon=2.0 * BUDGET.epsilon, delta=BUDGET.delta)
    for name, budget, change in (
        ("budget", wider, {}),
        ("gdp", BUDGET, {"gdp": 0.1}),
        ("alpha", BUDGET, {"alpha": 0.5 * ALPHA}),
        ("event", BUDGET, {"event": dps.privacy.GaussianEvent(1.0)}),
    ):
        with pytest.raises(ValueError, match=f"{name} must be that of the report"):
            dps.audit(mechanism, 0.0, 1.0, budget, sequential=part, **run | change)


def test_releases_are_audited_pair_by_pair():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]] * 4)
    labels = np.array([1.0, -1.0, 1.0] * 4)
    problems = [
        dps.Problem(
            rows,
            np.append(labels[:-1], label),
            row_bound=1.0,
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(1.0),
        )
        for label in (1.0, -1.0)
    ]
    mechanism = dps.calibrate(problems[0], BUDGET)
    report = dps.audit(
        mechanism,
        *problems,
        BUDGET,
        num_draws=1500,
        alpha=ALPHA,
        seed=1,
        sequential=True,
    )
    assert not report.is_refuted and report.test.rounds == 1536
