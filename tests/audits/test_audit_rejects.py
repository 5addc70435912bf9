"""Audits refute the claims that are known to be false, each within seconds."""

import numpy as np
import pytest

import dpsample as dps
from dpsample import domains, losses
from dpsample.audits import neighbors
from dpsample.papers import clipping_instance
from dpsample.privacy import (
    PoissonGaussianEvent,
    epsilon_of,
    gdp_from_budget,
    paper_gdp,
)
from dpsample.privacy.curves.additive import gaussian_stddev
from tests.support.audit_mechanisms import (
    descend_against,
    poisson_descent,
    printed_nsgd,
    with_replacement_step,
)
from tests.support.statistics import spend
from tests.support.tiers import one_in, usual

LINEAR = dps.PublicFacts(
    num_records=10_000,
    dim=50,
    loss=losses.Linear(),
    domain=domains.Ball(1.0),
    row_bound=1.0,
    row_norm=2.0,
)
BUDGET = dps.Budget(epsilon=1.0, delta=1e-3)


def quiet():
    """Options of an audit, whose level is spent."""
    return {"seed": 1, "progress": False, "alpha": spend()}


def printed_audit(**options):
    mech = dps.calibrate(LINEAR, BUDGET, risk="empirical", calibration="paper")
    pair = neighbors.worst_case(LINEAR)
    return dps.audit(mech, *pair, BUDGET, **{**quiet(), **options})


@pytest.mark.slow
def test_printed_constants_of_the_exponential_mechanism_are_refuted():
    report = printed_audit(num_draws=400_000)
    assert report.is_refuted and report.epsilon_lower > 1.05
    # The Gaussian comparison is attained: the mechanism's own gdp is not refuted.
    assert report.gdp_lower <= report.gdp_claimed


def test_the_printed_distance_is_refuted_too():
    claimed = paper_gdp(BUDGET.epsilon, BUDGET.delta)
    report = printed_audit(gdp=claimed, num_draws=50_000)
    assert report.gdp_lower > 1.5 * claimed
    assert any(reason.startswith("gdp") for reason in report.reasons)


@pytest.mark.slow
def test_many_draws_show_a_true_epsilon_above_1_3():
    report = printed_audit(num_draws=4_000_000)
    assert report.epsilon_lower > 1.3 and report.delta_lower > 0.01


def test_a_mechanism_for_zeroed_records_is_refuted_under_replacement():
    zeroed = dps.Budget(epsilon=1.0, delta=1e-3, relation="zero_out")
    mech = dps.calibrate(LINEAR, zeroed, risk="empirical")
    report = dps.audit(mech, *neighbors.worst_case(LINEAR), BUDGET, **quiet())
    assert report.is_refuted and report.gdp_claimed is None
    same = dps.audit(mech, *neighbors.zero_out(LINEAR), zeroed, **quiet())
    assert not same.is_refuted and same.gdp_claimed == mech.gdp


def gaussian_release(stddev):
    def mechanism(value, rng, num_draws):
        return value + stddev * rng.standard_normal((num_draws, 2))

    return mechanism


@usual("0.001")
@pytest.mark.parametrize(("delta", "num_draws"), [(1e-3, 200_000), (1e-6, 800_000)])
def test_half_of_the_gaussian_noise_is_refuted_with_a_learned_score(delta, num_draws):
    budget = dps.Budget(epsilon=1.0, delta=delta)
    stddev = gaussian_stddev(budget, sensitivity=1.0)
    shift = np.array([0.6, 0.8])
    half, full = (
        dps.audit(
            gaussian_release(share * stddev),
            0.0,
            shift,
            budget,
            num_draws=num_draws,
            **quiet(),
        )
        for share in (0.5, 1.0)
    )
    assert half.is_refuted and not full.is_refuted
    true = 2.0 * gdp_from_budget(1.0, delta)
    assert 0.9 * true < half.gdp_lower < true


@pytest.mark.slow
def test_printed_noisy_sgd_of_one_step_is_refuted():
    budget = dps.Budget(epsilon=1.0, delta=1e-8)
    mechanism, log_ratio = with_replacement_step(**printed_nsgd(1.0, 1e-8))
    report = dps.audit(
        mechanism,
        1.0,
        -1.0,
        budget,
        log_ratio=log_ratio,
        num_draws=4_000_000,
        **quiet(),
    )
    assert report.is_refuted
    # The exact value is 3.54e-5.
    assert 5e-6 < report.delta_lower < 3.54e-5


def test_the_same_step_with_the_noise_of_a_full_batch_is_not_refuted():
    budget = dps.Budget(epsilon=1.0, delta=1e-8)
    printed = printed_nsgd(1.0, 1e-8)
    # Any multiplicity up to 12 is then within the budget of the full sum.
    stddev = 12.0 * gaussian_stddev(budget, sensitivity=2.0 / printed["batch_size"])
    mechanism, log_ratio = with_replacement_step(**{**printed, "stddev": stddev})
    report = dps.audit(mechanism, 1.0, -1.0, budget, log_ratio=log_ratio, **quiet())
    assert not report.is_refuted


@one_in(3)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_noise_of_proximal_sgd_as_printed_is_refuted(epsilon):
    """Xie et al. (2026), Algorithm 1: erratum gradient-E25, no T in the noise."""
    budget = dps.Budget(epsilon=epsilon, delta=1e-4)
    printed = float(np.sqrt(np.log(1e4))) / epsilon
    mechanism = poisson_descent(
        sampling_rate=1.0 / 6.0, noise_multiplier=printed, num_steps=180
    )
    report = dps.audit(
        mechanism, 1.0, -1.0, budget, score=descend_against, num_draws=40_000, **quiet()
    )
    assert report.is_refuted
    event = PoissonGaussianEvent(
        sampling_rate=1.0 / 6.0, noise_multiplier=printed, num_steps=180
    )
    true = epsilon_of(event, delta=1e-4, relation="replace_one")
    assert 1.5 * epsilon < report.epsilon_lower < true


def test_clipping_without_noise_in_the_steps_is_refuted():
    """Xu et al. (2026), Algorithm 3: erratum privacy-9."""
    budget = dps.Budget(epsilon=1.0, delta=1e-5)

    def release(is_neighbor, rng, num_draws):
        return clipping_instance.printed_release(
            rng, size=num_draws, neighbor=is_neighbor, epsilon=1.0, delta=1e-5
        )

    report = dps.audit(release, False, True, budget, num_draws=25_000, **quiet())
    assert report.is_refuted
    assert report.epsilon_lower > 5.0 and report.delta_lower > 0.99
