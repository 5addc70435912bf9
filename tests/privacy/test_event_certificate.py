"""Event certificates: epsilon from the event, exact JSON, no unnoticed edit."""

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from dpsample import verify
from dpsample.noise import gaussian_mechanism
from dpsample.privacy import (
    Budget,
    ComposedEvent,
    EventCertificate,
    GaussianEvent,
    NearEvent,
    PoissonGaussianEvent,
    PureEvent,
    gdp_from_budget,
    poisson_noise_multiplier,
)
from tests.support.public_facts import final, logistic_facts

BUDGET = Budget(epsilon=1.0, delta=1e-6)
EVENT = GaussianEvent(gdp_from_budget(1.0, 1e-6))
LAPLACE = "laplace noise added to a query"
INPUTS = {"sensitivity": 0.5, "dim": 3, "p": math.inf, "law": "Gaussian", "r": None}


def made(**changes):
    fields = {
        "mechanism": "Gaussian noise on a mean",
        "budget": BUDGET,
        "event": EVENT,
        "inputs": INPUTS,
    }
    return EventCertificate.of(**fields | changes)


def of_noise(**changes):
    """Certificate of a kind that the registry knows."""
    made = gaussian_mechanism(BUDGET, sensitivity=0.5).certificate
    return dataclasses.replace(made, **changes)


def sampled():
    noise = poisson_noise_multiplier(BUDGET, sampling_rate=0.3, num_steps=5)
    return PoissonGaussianEvent(sampling_rate=0.3, noise_multiplier=noise, num_steps=5)


ZERO_OUT = Budget(epsilon=0.5, delta=1e-9, relation="zero_out")
CASES = {
    "gaussian": lambda: made(),
    "seeded": lambda: made(seeded=True),
    "unproved": lambda: made(event=None, calibration="paper"),
    "printed": lambda: made(event=GaussianEvent(1.0), calibration="paper"),
    "zero out": lambda: made(budget=ZERO_OUT, event=PureEvent(0.5)),
    "nested": lambda: made(
        event=NearEvent(ComposedEvent((GaussianEvent(0.1), PureEvent(0.1))), 1e-9)
    ),
    "sampled": lambda: made(event=sampled()),
    "no inputs": lambda: made(inputs=()),
}


@pytest.mark.parametrize("case", CASES)
def test_json_round_trip_is_exact_and_verifies(case):
    certificate = CASES[case]()
    text = certificate.to_json()
    again = EventCertificate.from_json(text)
    assert again == certificate and again.to_json() == text
    assert json.loads(text) == json.loads(text, parse_constant=pytest.fail)
    report = verify(again)
    assert report.statement == certificate.statement
    assert "epsilon_proved" in str(report) and "digest" in str(report)


def test_epsilon_is_that_of_the_event():
    assert made().epsilon_proved == pytest.approx(1.0, rel=1e-10)
    assert made(event=PureEvent(0.25)).epsilon_proved == pytest.approx(0.25, rel=1e-5)
    assert made(event=None, calibration="paper").epsilon_proved == math.inf
    assert 0.999 < made(event=sampled()).epsilon_proved <= 1.0 + 1e-9


def test_poisson_events_are_counted_under_the_budgets_relation():
    event = PoissonGaussianEvent(sampling_rate=0.3, noise_multiplier=9.0, num_steps=5)
    zeroed = made(event=event, budget=dataclasses.replace(BUDGET, relation="zero_out"))
    assert zeroed.epsilon_proved < 0.6 * made(event=event).epsilon_proved


def test_exact_demands_the_budget():
    with pytest.raises(ValueError, match="event must be such that epsilon <= 1.0 is"):
        made(event=GaussianEvent(EVENT.gdp * (1 + 1e-6)))
    with pytest.raises(ValueError, match="got epsilon = inf. Add noise, or record it"):
        made(event=None)
    with pytest.raises(ValueError, match="budget.epsilon must be <= 600, got 700"):
        gaussian_mechanism(Budget(epsilon=700.0, delta=1e-6), sensitivity=1.0)


def test_releasable_needs_a_proof_and_ideal_bits():
    assert of_noise().releasable
    assert not of_noise(seeded=True, digest="").releasable
    assert not made().releasable  # the event is declared, not proved
    assert not made(calibration="paper").releasable
    assert not made(event=None, calibration="paper").releasable


def test_statements_in_words():
    assert made().statement == (
        "(1, 1e-06)-DP under replace_one: one release of Gaussian noise on a mean is "
        "(1, 1e-06)-differentially private when one record is replaced by any other."
    )
    assert "one record's loss is set to zero" in CASES["zero out"]().statement
    assert "not a proof" in CASES["printed"]().statement
    assert CASES["unproved"]().statement == (
        "No epsilon is proved at delta = 1e-06: Gaussian noise on a mean."
    )


def test_inputs_are_plain_and_ordered():
    certificate = made(inputs={"a": np.float64(0.5), "b": np.int64(3), "c": True})
    assert certificate.inputs == (("a", 0.5), ("b", 3), ("c", True))
    assert [type(value) for _, value in certificate.inputs] == [float, int, bool]


def test_repr_is_short_and_a_print_shows_all_a_reader_needs():
    assert "releasable" in repr(of_noise()) and "NOT" not in repr(of_noise())
    assert "NOT releasable" in repr(made(seeded=True))
    for certificate, words in (
        (made(), ("guarantee", "replace_one", "sensitivity = 0.5", "are ideal")),
        (
            made(seeded=True, event=None, calibration="paper"),
            ("NO: the random bits are seeded, the published", "no privacy is proved"),
        ),
    ):
        out = io.StringIO()
        Console(file=out, width=200).print(certificate)
        assert out.getvalue() == f"{certificate}\n"
        for word in words:
            assert word in " ".join(certificate.details().split())


TAMPERED = {
    "kind": "noise/generalized_gaussian",
    "mechanism": "laplace noise added to a query",
    "facts": logistic_facts(),
    "budget": Budget(epsilon=2.0, delta=1e-6),
    "calibration": "paper",
    "inputs": (),
    "event": GaussianEvent(0.1),
    "epsilon_proved": 0.5,
    "theorems": ("COMPARISON",),
    "assumptions": (),
    "seeded": True,
    "digest": "0" * 64,
}


def test_every_field_is_tampered_with():
    assert set(TAMPERED) == {f.name for f in dataclasses.fields(EventCertificate)}


@pytest.mark.parametrize("name", TAMPERED)
def test_every_edit_is_noticed(name):
    with pytest.raises(ValueError, match=" must be .*, got "):
        verify(of_noise(**{name: TAMPERED[name]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event": GaussianEvent(0.1)}, "certificate.epsilon_proved must be"),
        ({"event": None}, "certificate.epsilon_proved must be inf"),
        ({"epsilon_proved": 0.5}, "certificate.epsilon_proved must be"),
        ({"assumptions": ()}, "certificate.assumptions must be"),
        (
            {"event": GaussianEvent(1.0), "epsilon_proved": 5.299},
            "certificate.epsilon_proved must be",
        ),
        (
            {"budget": Budget(epsilon=0.5, delta=1e-6)},
            "epsilon_proved<=epsilon must be at most",
        ),
    ],
)
def test_a_new_seal_does_not_hide_a_wrong_number(changes, message):
    with pytest.raises(ValueError, match=message):
        verify(dataclasses.replace(made(), **changes, digest=""))


def edited_json(**changes):
    content = json.loads(made().to_json())
    for name, value in changes.items():
        content[name] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text must be the JSON of a"),
        ("[]", "text must be the JSON of a"),
        (None, "text must be the JSON of a"),
        (final().to_json(), 'text must be the JSON of a "dpsample event certificate'),
        (edited_json(extra=1), "text must be a certificate with exactly"),
        (edited_json(releasable=True), "releasable must be False"),
        (edited_json(kind="proof"), "kind must be one of the registry's"),
        (edited_json(kind=3), "kind must be one of the registry's"),
        (edited_json(kind="tuned/" * 5000 + "dp_sgd"), "kind must be of different"),
        (edited_json(mechanism=""), "mechanism must be a name .*, got ''"),
        (edited_json(mechanism=3), "mechanism must be a name .*, got 3"),
        (edited_json(mechanism="x: (0, 0)-DP!"), "mechanism must be a name .*, got"),
        (edited_json(inputs=[["a", "This is (0, 0)-DP"]]), "inputs.a must be a numbe"),
        (edited_json(inputs=[["K", '"(0, 0)-DP"']]), "inputs.K must be a number or"),
        (edited_json(budget={"epsilon": 1}), "budget must be a complete description"),
        (edited_json(calibration="best"), "calibration must be one of"),
        (edited_json(inputs=3), "inputs must be a list, got 3"),
        (edited_json(inputs=[3]), r"inputs\[0\] must be a name and a value"),
        (edited_json(inputs=[["a", []]]), "inputs.a must be a number or a word"),
        (edited_json(event={"name": "x"}), "name must be one of"),
        (edited_json(event=3), "data must be a dict, got 3"),
        (edited_json(epsilon_proved=-1), "epsilon_proved must be >= 0"),
        (edited_json(epsilon_proved="low"), "epsilon_proved must be >= 0"),
        (edited_json(theorems="x"), "theorems must be a list"),
        (edited_json(theorems=[3]), r"theorems\[0\] must be one of the registry"),
        (edited_json(seeded=1), "seeded must be a bool, got 1"),
    ],
)
def test_bad_json_is_refused_in_words(text, message):
    with pytest.raises(ValueError, match=message):
        EventCertificate.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanism": ""}, "mechanism must be a name"),
        ({"kind": "noise/gaussian"}, "mechanism must be made by gaussian noise"),
        ({"kind": "noise/laplace", "mechanism": LAPLACE}, "event must be pure for"),
        ({"budget": 1.0}, "budget must be a Budget, got 1"),
        ({"event": 0.5}, "event must be a Event or NoneType, got 0.5"),
        ({"inputs": {"a": math.nan}}, "inputs.a must be a number or a word, got nan"),
        ({"inputs": {"a": -math.inf}}, "inputs.a must be a number or a word"),
        ({"inputs": {"a": "inf"}}, "inputs.a must be a number or a word, got 'inf'"),
        ({"inputs": {"a": np.ones(2)}}, "inputs.a must be a number or a word"),
        ({"inputs": (("a", 1), ("a", 2))}, "inputs must be a list of different names"),
        ({"inputs": {"": 1}}, r"inputs\[0\]\[0\] must be a name"),
        ({"inputs": 3}, "inputs must be a tuple or list, got 3"),
        ({"calibration": "closed_form"}, "calibration must be one of 'exact', 'paper'"),
        ({"seeded": 1}, "seeded must be a bool, got 1"),
    ],
)
def test_bad_fields_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


def test_a_draw_describes_itself_as_an_event():
    exact, approximate = final(), final(sampler_share=0.1)
    assert exact.event == GaussianEvent(exact.gdp)
    assert approximate.event == NearEvent(
        GaussianEvent(approximate.gdp), approximate.gamma
    )
    for certificate in (exact, approximate, final(calibration="paper")):
        copy = EventCertificate.of(
            mechanism="a draw",
            budget=certificate.budget,
            event=certificate.event,
            calibration="exact" if certificate.is_proved else "paper",
        )
        assert copy.epsilon_proved == pytest.approx(certificate.epsilon_proved, 1e-9)
