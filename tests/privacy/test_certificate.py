"""Certificates: words, exact round trips, and no edit that goes unnoticed."""

import dataclasses
import io
import json
import math
import re

import numpy as np
import pytest
from rich.console import Console

from dpsample import domains, losses
from dpsample.privacy import Budget, Certificate, calibrate
from dpsample.privacy.certificates.json_form import round_up
from dpsample.verification.recomputation import recompute as verify
from tests.support.public_facts import BUDGET, final
from tests.support.public_facts import logistic_facts as facts

CUSTOM = losses.Custom(label="inf", declared_slope=2.0, third_derivative=math.inf)
SCHATTEN = domains.SchattenBall(1.0, p=1.0, shape=(3, 2))
CASES = {
    "default": lambda: final(),
    "sampler share": lambda: final(sampler_share=0.1),
    "printed": lambda: final(calibration="paper", sampler_share=0.1),
    "fact 2, zero out": lambda: final(
        budget=Budget(epsilon=1 / 3, delta=1e-9, relation="zero_out"),
        calibration="closed_form",
    ),
    "ridge": lambda: final(
        facts(domain=domains.WholeSpace()), strong_convexity=0.1, confidence=0.9
    ),
    "intercept, box, sup norm": lambda: final(
        facts(domain=domains.Box(-1.0, 0.1), row_norm=math.inf, intercept=True),
        p=math.inf,
    ),
    "simplex": lambda: final(facts(domain=domains.Simplex()), p=1.0),
    "Schatten": lambda: final(facts(domain=SCHATTEN, row_norm=math.inf), p=1.0),
    "polytope": lambda: final(
        facts(domain=domains.Polytope(np.vstack([np.eye(6), -np.eye(6)]), np.ones(12)))
    ),
    "custom loss": lambda: final(
        facts(loss=CUSTOM, response_bound=1.0), risk="empirical"
    ),
    "responses and offsets": lambda: final(
        facts(loss=losses.Squared(), response_bound=2.5, offset_bound=0.3),
        confidence=0.95,
        risk="empirical",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_json_round_trip_is_exact_and_verifies(case):
    certificate = CASES[case]()
    text = certificate.to_json()
    again = Certificate.from_json(text)
    assert again == certificate
    assert again.to_json() == text
    assert json.loads(text) == json.loads(text, parse_constant=pytest.fail)
    assert verify(again).statement == certificate.statement


@pytest.mark.parametrize("case", CASES)
def test_a_mechanism_and_its_certificate_agree(case):
    certificate = CASES[case]()
    assert verify(dataclasses.replace(certificate, digest=""))
    assert certificate.budget.delta >= certificate.delta_exact + certificate.gamma


def test_releasable_needs_a_sampler_ideal_bits_and_a_proof():
    assert final().releasable
    assert not calibrate(facts(), BUDGET).certificate.releasable
    assert not final(seeded=True).releasable
    assert not final(calibration="paper").releasable


def test_sampler_is_added_behind_the_calibration():
    before = calibrate(facts(), BUDGET).certificate
    after = final()
    assert after.theorems == (*before.theorems, "EXACT")
    assert after.assumptions[: len(before.assumptions)] == before.assumptions
    assert (before.sampler, after.sampler) == (None, "Exact()")
    assert before.digest != after.digest
    for bad in (
        {"sampler": ""},
        {"sampler": 3},
        {"sampler": "Exact()", "seeded": 1},
        {"sampler": "UnadjustedLangevin()"},
        {"sampler": "Exact(really='no error at all')"},
        {"sampler": "Proximal()"},  # gamma is 0
        {"sampler": "Exact()", "max_work": 0.5},
    ):
        with pytest.raises(ValueError, match=" must be .*, got "):
            before.with_sampler(**bad)


def test_statement_names_relation_budget_and_records():
    assert final().statement == (
        "(1, 1e-06)-DP under replace_one: one draw is (1, 1e-06)-differentially "
        "private when one record is replaced by any other (n = 10000, public)."
    )
    zero_out = Budget(epsilon=0.5, delta=1e-9, relation="zero_out")
    assert "one record's loss is set to zero" in final(budget=zero_out).statement


@pytest.mark.parametrize("n", [49, 10_000])  # 49 times the double 1/49 is below 1
@pytest.mark.parametrize(("share", "is_weak"), [(0.99, False), (1.0, True)])
def test_statement_says_that_a_delta_of_1_over_n_lets_a_record_out(n, share, is_weak):
    """A random one of n records, published, is (0, 1/n)-private."""
    budget = Budget(epsilon=1.0, delta=share / n)
    certificate = final(facts(num_records=n), budget=budget)
    assert ("publishing one record as it is" in certificate.statement) == is_weak


def test_printed_constants_confess_their_epsilon():
    certificate = final(calibration="paper")
    assert certificate.statement.startswith("(1.72, 1e-06)-DP under replace_one")
    assert "aim at epsilon = 1.0 and are not a proof" in certificate.statement
    assert certificate.epsilon_proved <= 1.72


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (12.345678, "12.345678"),
        (1 / 3, "0.3334"),
        (math.pi, "3.142"),
        (1999.99 + 1e-9, "2000"),
        (math.e * 1e-5, "2.719e-05"),
        (math.nextafter(0.1234, 1.0), "0.1235"),
        (math.nextafter(9.123e144, math.inf), "9.124e+144"),
        (2.2250738585072014e-308, "2.226e-308"),
    ],
)
def test_epsilon_is_shown_exactly_or_rounded_up(value, text):
    assert round_up(value) == text
    assert float(round_up(value)) >= value


def test_risk_statement_says_what_is_covered():
    for options, words in {
        ("empirical", None): "<= 0.\\d+ in expectation over the draw$",
        ("population", None): "in expectation over the draw and the records$",
        ("empirical", 0.9): "with probability 0.9 over the draw$",
        (
            "population",
            0.9,
        ): "the 0.9-quantile over the draw of F_pop.* averaged over the records, is <=",
    }.items():
        risk, confidence = options
        certificate = final(risk=risk, confidence=confidence)
        assert re.search(words, certificate.risk_statement)
    ridge = final(strong_convexity=0.1)
    assert ridge.risk_statement.startswith("(F_pop + mu r)(theta)")


def test_repr_is_short_and_a_print_shows_all_a_reader_needs():
    certificate = final(sampler_share=0.1)
    assert len(repr(certificate)) < 400
    assert "releasable" in repr(certificate) and "NOT" not in repr(certificate)
    assert "NOT releasable" in repr(final(seeded=True))
    out = io.StringIO()
    Console(file=out, width=100).print(certificate)
    for words in (
        "epsilon = 1, delta = 1e-6",
        "10,000 records",
        certificate.digest[32:],
    ):
        assert words in out.getvalue() and words in str(certificate)
    assert max(map(len, str(certificate).splitlines())) <= 80
    for words in ("guarantee", "replace_one", "k = ", "G_Delta = 2", "are ideal"):
        assert words in certificate.details()
    assert max(map(len, certificate.details().splitlines())) <= 88
    out = io.StringIO()
    Console(file=out, width=100).print(final(calibration="paper", seeded=True))
    shown = " ".join(out.getvalue().split())
    assert "Not for publication: the random bits are seeded, the published" in shown


def edited_json(**changes):
    content = json.loads(final().to_json())
    for name, value in changes.items():
        if value is None:
            del content[name]
        else:
            content[name] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text must be the JSON of a"),
        ("[]", "text must be the JSON of a"),
        (3, "text must be the JSON of a"),
        ('{"format": "other"}', "text must be the JSON of a"),
        (edited_json(k=None), "text must be a certificate with exactly"),
        (edited_json(extra=1), "text must be a certificate with exactly"),
        (edited_json(releasable=False), "releasable must be True"),
        (edited_json(statement="(0.1, 0)-DP"), "text must be a certificate with ex"),
        (edited_json(format="dpsample certificate 1"), "text must be the JSON of a"),
        (edited_json(registry="1:00"), "registry must be '1:"),
        (edited_json(k=1), "k must be a float, got 1"),
        (edited_json(theorems=["Trust me."]), "theorems[0] must be one of the reg"),
        (edited_json(theorems=["BITS", "BITS"]), "theorems[1] must be one of the re"),
        (final().to_json().replace('"k":', '"k": 1.0,\n "k":'), "text must be without"),
        (final().to_json().replace('"p": 2.0', '"p": 2.00'), "text must be written w"),
        (edited_json(seeded=True), "releasable must be False"),
        (edited_json(budget={"epsilon": 1}), "budget must be a complete description"),
        (edited_json(facts={"dim": 1}), "loss must be one of"),
        (edited_json(facts=3), "facts must be a dict, got 3"),
        (edited_json(regularizer={"name": "x"}), "name must be one of"),
        (edited_json(p=0.5), "p must be >= 1"),
        (edited_json(theorems=3), "theorems must be a list, got 3"),
        (
            edited_json(sampler=3),
            "sampler must be the type of a sampler with its param",
        ),
        (edited_json(seeded="no"), "seeded must be a bool, got 'no'"),
        (edited_json(k="many"), "k must be >= 0, got 'many'"),
        (edited_json(mu=math.nan), "text must be of finite numbers, got NaN"),
        (edited_json(confidence="high"), "confidence must be >= 0, got 'high'"),
    ],
)
def test_text_that_is_no_certificate_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        Certificate.from_json(text)
    assert str(caught.value).startswith(message)
    assert ", got " in str(caught.value)


def test_nothing_that_depends_on_the_records_is_a_field():
    names = {f.name for f in dataclasses.fields(Certificate)}
    private = {"num_steps", "step_size", "metric", "acceptance", "counts", "theta"}
    assert not names & private


def test_certificates_compare_and_hash_by_content():
    assert final() == final() and hash(final()) == hash(final())
    assert final() != final(seeded=True)
