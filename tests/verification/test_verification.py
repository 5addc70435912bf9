"""Verification: no number, fact or word of a certificate is edited unnoticed."""

import dataclasses
import math

import numpy as np
import pytest

from dpsample import domains, losses, regularizers, verify
from dpsample.privacy import Budget, Certificate
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from tests.support.public_facts import final
from tests.support.public_facts import logistic_facts as facts


def test_report_lists_every_number():
    report = verify(final(sampler_share=0.1))
    names = [line.name for line in report.checks]
    for name in ("k", "mu", "gdp", "delta_exact", "gamma", "lipschitz", "range_bound"):
        assert name in names
    assert "(1+e^epsilon)*gamma<=delta-delta_0" in names
    lines = str(report).splitlines()
    assert lines[0] == f"Consistent: {len(names)} numbers recomputed."
    assert lines[1] == f"Stated: {report.statement}"
    assert lines[2].split() == ["number", "stated", "[recomputed]"]
    assert lines[-1].startswith("Not checked: that the program was run as stated")
    assert len(lines) == len(names) + 4 and "Verified" not in str(report)
    assert repr(report) == str(report)


TAMPERED = {
    "facts": facts(num_records=10_001),
    "budget": Budget(epsilon=0.9, delta=1e-6),
    "p": 1.5,
    "risk": "empirical",
    "calibration": "closed_form",
    "sampler_share": 0.2,
    "strong_convexity": 0.5,
    "confidence": 0.95,
    "regularizer": regularizers.SquaredNorm(2.0, center=np.ones(6)),
    "lipschitz": 0.5,
    "diff_lipschitz": 1.0,
    "range_bound": 0.25,
    "k": 7.0,
    "mu": 7.0,
    "gdp": 0.1,
    "delta_exact": 1e-7,
    "gamma": 1e-12,
    "epsilon_proved": 0.5,
    "risk_bound": 1e-3,
    "theorems": ("COMPARISON",),
    "sampler": MechanismSpec("Exact"),
    "max_work": 7.0,
    "assumptions": (),
    "seeded": True,
    "digest": "0" * 64,
}


def test_every_field_is_tampered_with():
    assert set(TAMPERED) == {f.name for f in dataclasses.fields(Certificate)}


@pytest.mark.parametrize("name", TAMPERED)
def test_every_edit_is_noticed(name):
    edited = dataclasses.replace(final(sampler_share=0.1), **{name: TAMPERED[name]})
    with pytest.raises(ValueError, match="certificate[.].* must be .*, got "):
        verify(edited)


@pytest.mark.parametrize(
    "name",
    [
        "lipschitz",
        "diff_lipschitz",
        "range_bound",
        "k",
        "mu",
        "gdp",
        "delta_exact",
        "gamma",
        "epsilon_proved",
        "risk_bound",
        "theorems",
        "assumptions",
        "regularizer",
    ],
)
def test_a_new_seal_does_not_hide_a_wrong_number(name):
    edited = {name: TAMPERED[name], "digest": ""}
    with pytest.raises(ValueError, match=rf"^certificate[.]{name} must be "):
        verify(dataclasses.replace(final(sampler_share=0.1), **edited))


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 7},
        {"row_bound": 0.5},
        {"row_norm": 1.0},
        {"offset_bound": 0.1},
        {"response_bound": 1.0},
        {"intercept": True},
        {"loss": losses.Hinge()},
        {"domain": domains.Ball(2.0)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_edited_fact_is_noticed(change):
    edited = dataclasses.replace(final(), facts=facts(**change))
    with pytest.raises(ValueError, match="certificate[.].* must be "):
        verify(edited)


@pytest.mark.parametrize("name", ["k", "mu", "gdp", "delta_exact", "gamma"])
def test_numbers_that_are_not_numbers_are_noticed(name):
    for value in (math.nan, math.inf, None, "1"):
        with pytest.raises(ValueError, match=rf"(certificate[.])?{name} must be "):
            verify(dataclasses.replace(final(), **{name: value}, digest="0"))


def test_only_certificates_are_verified():
    with pytest.raises(ValueError, match="a Certificate or EventCertificate"):
        verify({})
