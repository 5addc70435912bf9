"""Audits of additive noise: calibrated mechanisms stand, half the noise does not."""

import dataclasses

import numpy as np
import pytest

import dpsample as dps
from dpsample import domains
from dpsample.audits import neighbors
from dpsample.noise import (
    gaussian_mechanism,
    generalized_gaussian_mechanism,
    k_norm_mechanism,
    laplace_mechanism,
    schatten_gaussian_mechanism,
)
from dpsample.numerics.norms import dual
from tests.support.statistics import IS_FRESH, spend
from tests.support.tiers import usual

BUDGET = dps.Budget(epsilon=1.0, delta=1e-3)


def quiet():
    """Options of an audit, whose level is spent."""
    return {"seed": 31, "progress": False, "alpha": spend()}


def generalized(r, dim, p=1.5):
    return generalized_gaussian_mechanism(BUDGET, dim=dim, sensitivity=1.0, p=p, r=r)


# name: mechanism, norm of the sensitivity, dimension.
MECHANISMS = {
    "gaussian": lambda: (gaussian_mechanism(BUDGET, sensitivity=1.0), 2.0, 3),
    "GG 2": lambda: (generalized(2.0, 2), dual(1.5), 2),
    "GG 3": lambda: (generalized(3.0, 2), dual(1.5), 2),
    "GG 4": lambda: (generalized(4.0, 3), dual(1.5), 3),
    "laplace": lambda: (laplace_mechanism(BUDGET, sensitivity=1.0), 1.0, 2),
    "K-norm, disk": lambda: (
        k_norm_mechanism(BUDGET, domain=domains.Ball(1.0), dim=2, sensitivity=1.0),
        2.0,
        2,
    ),
    "K-norm, box": lambda: (
        k_norm_mechanism(BUDGET, domain=domains.Box(-1.0, 1.0), dim=2, sensitivity=1.0),
        np.inf,
        2,
    ),
}


def scaled(mechanism, share):
    """Mechanism that adds a share of its noise and still claims the same."""
    sizes = {
        name: share * getattr(mechanism.noise, name)
        for name in ("stddev", "sigma", "scale")
        if hasattr(mechanism.noise, name)
    }
    return dataclasses.replace(
        mechanism, noise=dataclasses.replace(mechanism.noise, **sizes)
    )


@usual("laplace", "gaussian")
@pytest.mark.parametrize("name", MECHANISMS)
def test_calibrated_noise_is_not_refuted_and_half_of_it_is(name):
    mechanism, p, dim = MECHANISMS[name]()
    for pair in neighbors.shifts(dim, sensitivity=1.0, p=p):
        report = dps.audit(mechanism, *pair, BUDGET, num_draws=100_000, **quiet())
        assert not report.is_refuted, report
        half = dps.audit(
            scaled(mechanism, 0.5), *pair, BUDGET, num_draws=200_000, **quiet()
        )
        assert half.is_refuted, half


@pytest.mark.slow
def test_schatten_noise_is_not_refuted_and_half_of_it_is():
    mechanism = schatten_gaussian_mechanism(
        BUDGET, shape=(2, 2), sensitivity=1.0, p=1.5, r=3.0
    )
    shift = np.array([1.0, 0.0, 0.0, 0.0])
    report, half = (
        dps.audit(m, np.zeros(4), shift, BUDGET, num_draws=100_000, **quiet())
        for m in (mechanism, scaled(mechanism, 0.4))
    )
    assert not report.is_refuted, report
    assert half.is_refuted, half


@pytest.mark.slow
def test_gaussian_noise_attains_its_curve():
    mechanism = gaussian_mechanism(BUDGET, sensitivity=1.0)
    report = dps.audit(mechanism, 0.0, 1.0, BUDGET, num_draws=1_000_000, **quiet())
    curve = report.curve
    seen = curve.claimed > 1e-4
    assert seen.sum() >= 6
    assert curve.delta_estimate[seen] == pytest.approx(curve.claimed[seen], rel=0.1)
    # The part that an audit finds depends on where its first draws put the threshold.
    assert report.gdp_lower > (0.8 if IS_FRESH else 0.92) * mechanism.gdp


@pytest.mark.parametrize("value", [2.0**52, 1e18])
def test_values_that_round_the_noise_away_refute_nothing(value):
    budget = dps.Budget(epsilon=5.0, delta=1e-2)
    step = float(np.spacing(value))
    mechanism = gaussian_mechanism(budget, sensitivity=step)
    pair = [value], [value + step]
    report = dps.audit(mechanism, *pair, budget, num_draws=100_000, **quiet())
    assert not report.is_refuted, report
    half = dps.audit(
        scaled(mechanism, 0.5), *pair, budget, num_draws=100_000, **quiet()
    )
    assert half.is_refuted, half


def test_noise_for_zeroed_records_is_refuted_under_replacement():
    zeroed = dps.Budget(epsilon=1.0, delta=1e-3, relation="zero_out")
    # A mean of vectors of norm 1: zeroing one moves it by 1/n, replacing one by 2/n.
    mechanism = gaussian_mechanism(zeroed, sensitivity=0.01)
    same = dps.audit(mechanism, 0.0, 0.01, zeroed, **quiet())
    wrong = dps.audit(mechanism, -0.01, 0.01, BUDGET, **quiet())
    assert not same.is_refuted and wrong.is_refuted
    assert wrong.gdp_claimed is None


# Pairs that are no neighbors: mechanism, value, neighbor, words.
FAR = {
    "gaussian": (
        gaussian_mechanism(BUDGET, sensitivity=0.1),
        [0.0],
        [5.0],
        (
            r"neighbor must be within 0.1 of problem \(the sensitivity, l2, "
            r"replace_one\), got a distance of 5. Values farther apart"
        ),
    ),
    "l2, not the largest coordinate": (
        gaussian_mechanism(BUDGET, sensitivity=1.0),
        [0.0, 0.0],
        [0.8, 0.8],
        "got a distance of 1.13137",
    ),
    "l3": (generalized(3.0, 2), [0.0, 0.0], [0.9, 0.9], "l_3, replace_one.* of 1.133"),
    "Schatten": (
        schatten_gaussian_mechanism(BUDGET, shape=(2, 2), sensitivity=1.0, p=1.5, r=3),
        np.zeros(4),
        [0.9, 0.0, 0.0, 0.9],
        "Schatten-3, .* of 1.133",
    ),
    "laplace": (
        laplace_mechanism(BUDGET, sensitivity=1.0),
        [0.0, 0.0],
        [0.6, -0.6],
        "l1, .* of 1.2",
    ),
    "gauge": (
        k_norm_mechanism(BUDGET, domain=domains.Box(-1.0, 1.0), dim=2, sensitivity=1),
        [0.0, 0.0],
        [0.6, -1.1],
        "gauge of K, .* of 1.1",
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_values_farther_apart_than_the_sensitivity_are_refused(name):  # P8
    mechanism, value, neighbor, words = FAR[name]
    with pytest.raises(ValueError, match=words):
        dps.audit(mechanism, value, neighbor, mechanism.budget, **quiet())


def test_the_relation_says_how_far_neighbors_are():  # P8
    zeroed = dps.Budget(epsilon=1.0, delta=1e-3, relation="zero_out")
    options = {**quiet(), "num_draws": 1000}
    mechanism = gaussian_mechanism(zeroed, sensitivity=1.0)
    dps.audit(mechanism, -1.0, 1.0, BUDGET, **options)
    with pytest.raises(ValueError, match="within 2 of .* replace_one"):
        dps.audit(mechanism, -1.0, 1.01, BUDGET, **options)
    with pytest.raises(ValueError, match="within 1 of .* zero_out"):
        dps.audit(mechanism, -1.0, 1.0, zeroed, **options)
    other = gaussian_mechanism(BUDGET, sensitivity=1.0)
    with pytest.raises(ValueError, match="budget must be under 'replace_one' for this"):
        dps.audit(other, 0.0, 1.0, zeroed, **options)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_values_at_the_very_sensitivity_are_neighbors(scale):  # P8
    options = {**quiet(), "num_draws": 100}
    for name, (mechanism, p, dim) in ((n, MECHANISMS[n]()) for n in MECHANISMS):
        for first, second in neighbors.shifts(dim, sensitivity=scale, p=p):
            large = dataclasses.replace(mechanism, sensitivity=scale)
            shift = 0.1 * scale
            dps.audit(large, first + shift, second + shift, BUDGET, **options)
            assert name


def test_rounding_of_outputs_is_not_taken_for_privacy_loss():
    """Log ratios of Laplace noise have atoms; their last bits differ between laws."""
    mechanism = laplace_mechanism(BUDGET, sensitivity=1.0)
    for seed in range(5):
        options = {**quiet(), "seed": seed}
        report = dps.audit(mechanism, [0.0, 0.0], [1.0, 0.0], BUDGET, **options)
        assert not report.is_refuted, report


def test_a_score_of_the_last_bits_refutes_floating_point_noise():
    """The attack of Mironov (2012): noise near 0 has bits that 1 + noise has not."""

    def release(value, rng, num_draws):
        return value + rng.laplace(0.0, 1.0, num_draws)

    def is_coarse(rows):
        unit = 2.0**-53
        return (np.abs(np.mod(rows[:, 0], 2.0 * unit)) == 0.0).astype(float)

    report = dps.audit(release, 0.0, 1.0, BUDGET, score=is_coarse, **quiet())
    assert report.is_refuted


@pytest.mark.parametrize(
    ("value", "neighbor", "message"),
    [
        ([0.0, np.nan], [0.0, 1.0], "problem must be finite"),
        ([0.0], [np.inf], "neighbor must be finite"),
        ([0.0], [0.0, 1.0], "neighbor must be of shape"),
        ("text", [0.0], "problem must be an array of numbers"),
        ([[0.0]], [[1.0]], "problem must be of shape"),
    ],
)
def test_values_that_are_no_vectors_are_refused(value, neighbor, message):
    mechanism = gaussian_mechanism(BUDGET, sensitivity=1.0)
    with pytest.raises(ValueError, match=message):
        dps.audit(mechanism, value, neighbor, BUDGET, **quiet())
