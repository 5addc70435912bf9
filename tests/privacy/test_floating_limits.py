"""No number that floating point has mangled enters a certificate."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpsample as dps
from dpsample import losses, verify
from dpsample.api import release, release_plan
from dpsample.privacy import (
    Budget,
    Certificate,
    CertificateError,
    calibrate,
    gaussian_delta,
    gaussian_epsilon,
)
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    GaussianEvent,
    NearEvent,
)
from dpsample.privacy.curves.additive import pure_scale
from tests.support.public_facts import final
from tests.support.public_facts import linear_facts as facts

TINY = float(np.finfo(np.float64).tiny)
LINEAR = losses.Linear()
NUMBERS = ("lipschitz", "diff_lipschitz", "range_bound", "k", "mu", "gdp")


def problem():
    rows = np.random.default_rng(1).uniform(-0.5, 0.5, (40, 2))
    return dps.Problem(
        rows,
        np.where(rows[:, 0] > 0.0, 1.0, -1.0),
        loss=losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )


# Each gave a releasable certificate with gamma = 0 or subnormal.
EPSILON = r"^epsilon must be below [0-9]+, where the sampler's part of delta is "
GAMMA = r"^gamma must be finite and >= 2\.225e-308, got "
LOST_GAMMA = {
    "large epsilon, small delta": (50.0, 1e-300, 0.1, EPSILON),
    "large epsilon": (700.0, 1e-10, 0.1, EPSILON),
    "epsilon beyond exponentials": (1e17, 1e-6, 0.1, EPSILON),
    "a share that rounds away": (1.0, 1e-6, 5e-17, GAMMA),
    "a share that is almost zero": (1.0, 1e-6, 1e-300, GAMMA),
    "a share that is subnormal": (1.0, 1e-6, 5e-324, GAMMA),
}


@pytest.mark.parametrize("case", LOST_GAMMA)
@pytest.mark.parametrize("verb", ["calibrate", "release"])
def test_an_error_of_the_sampler_that_rounds_away_is_refused(case, verb):  # P5
    epsilon, delta, share, words = LOST_GAMMA[case]
    budget, run = Budget(epsilon=epsilon, delta=delta), getattr(dps, verb)
    with pytest.raises(ValueError, match=f"{words}.*Spend a larger delta, "):
        run(problem(), budget, sampler_share=share)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"epsilon": 1.0, "delta": 1e-310}, "^delta must be finite and >= 2.225e-308"),
        ({"epsilon": 1e-310, "delta": 0.1}, "^epsilon must be finite and >= 2.225e"),
    ],
)
def test_a_subnormal_budget_is_refused(numbers, words):  # P5
    with pytest.raises(ValueError, match=words):
        Budget(**numbers)


def test_what_the_sampler_leaves_of_delta_is_no_subnormal():  # P5
    with pytest.raises(ValueError, match="^delta_exact must be finite and >= 2.225e"):
        calibrate(facts(), Budget(epsilon=1.0, delta=3e-308), sampler_share=0.5)
    with pytest.raises(ValueError, match="^delta_exact must be .*a smaller sampler_"):
        calibrate(facts(), Budget(epsilon=1.0, delta=1e-300), sampler_share=1 - 1e-16)


@pytest.mark.parametrize("row_bound", [1e-200, 1e-160, 1e155, 1e200, 1e300])
def test_bounds_beyond_floating_point_are_refused_in_words(row_bound):  # P5
    with pytest.raises(
        ValueError, match=r"^row_bound must be from 1e-60 to .*, got 1e"
    ):
        calibrate(facts(row_bound=row_bound), Budget(epsilon=1.0, delta=1e-6))


LOG_BUDGETS = st.tuples(
    st.floats(-306.0, 306.0), st.floats(-307.0, -0.001), st.floats(-320.0, 0.0)
)


@given(
    logs=LOG_BUDGETS,
    loss=st.sampled_from([LINEAR, losses.PowerFour()]),
    row=st.floats(-300.0, 300.0),
    radius=st.floats(-300.0, 300.0),
    ridge=st.none() | st.floats(-300.0, 300.0),
    p=st.sampled_from([1.0, 2.0, math.inf]),
)
@example(
    logs=(math.log10(50.0), -300.0, -1.0),
    loss=LINEAR,
    row=0.0,
    radius=0.0,
    ridge=None,
    p=2.0,
)
@example(logs=(0.0, -6.0, -16.5), loss=LINEAR, row=0.0, radius=0.0, ridge=None, p=2.0)
@settings(max_examples=150, deadline=None)
def test_calibration_refuses_or_its_certificate_verifies(
    logs, loss, row, radius, ridge, p
):  # P5
    epsilon, delta, share = (10.0**x for x in logs)
    try:
        ball = dps.domains.Ball(10.0**radius)
        known = facts(row_bound=10.0**row, domain=ball, loss=loss, response_bound=1.0)
        certificate = calibrate(
            known,
            Budget(epsilon=epsilon, delta=delta),
            p=p,
            sampler_share=share,
            strong_convexity=0.0 if ridge is None else 10.0**ridge,
        ).certificate
    except ValueError as error:
        assert " must be " in str(error) and ", got " in str(error)
        return
    verify(certificate)
    assert certificate.gamma >= TINY or certificate.sampler_share == 0.0
    for name in NUMBERS:
        assert TINY <= getattr(certificate, name) < math.inf


def test_no_file_brings_a_lost_number_into_a_certificate():  # P5
    text = final(sampler_share=0.1).to_json()
    gamma = f'"gamma": {final(sampler_share=0.1).gamma!r}'
    assert text.count(gamma) == 1
    for number in ("1e-310", "0.0"):
        with pytest.raises(ValueError, match="^gamma must be finite and >= 2.225e"):
            Certificate.from_json(text.replace(gamma, f'"gamma": {number}'))


def test_events_hold_no_subnormal():  # P5
    for make in (
        lambda: GaussianEvent(1e-310),
        lambda: NearEvent(GaussianEvent(1.0), 1e-310),
        lambda: ApproximateEvent(epsilon=1.0, delta=1e-310),
    ):
        with pytest.raises(ValueError, match=r"must be finite and >= 2\.225e-308"):
            make()
    assert GaussianEvent(0.0).gdp == 0.0


def test_a_scale_of_noise_is_no_subnormal():  # P5
    budget = Budget(epsilon=1e300, delta=1e-6)
    with pytest.raises(ValueError, match="scale of the noise.* beyond floating point"):
        pure_scale(budget, 1e-60)


def test_the_curve_of_a_tiny_gdp_is_not_rounded_down_to_zero():
    # 2 Phi(g/2) - 1 = g/sqrt(2 pi) up to O(g^3).
    for gdp in (1e-301, 1e-307):
        want = gdp / math.sqrt(2.0 * math.pi)
        assert want * (1 - 1e-12) <= gaussian_delta(0.0, gdp) <= want * (1 + 1e-12)
    assert gaussian_epsilon(1e-305, 1e-301) > 0.0


def test_release_verifies_its_certificate_before_it_draws(monkeypatch):  # P5
    real = release_plan.calibrate

    def wrong(*arguments, **options):
        mechanism = real(*arguments, **options)
        object.__setattr__(mechanism, "gamma", 2.0 * mechanism.gamma)
        return mechanism

    def drawing(*arguments, **options):
        raise AssertionError("something was drawn")

    monkeypatch.setattr(release_plan, "calibrate", wrong)
    monkeypatch.setattr(release, "release_streams", drawing)
    words = "does not verify, so nothing was drawn: certificate.gamma must be .*report"
    with pytest.raises(CertificateError, match=words):
        dps.release(problem(), Budget(epsilon=1.0, delta=1e-6))
