"""Specs of mechanisms: one form for each mechanism, the same numbers, no other file."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

import dpsample as dps
from dpsample import losses, optimizers, samplers
from dpsample.inference.sandwich import Sandwich
from dpsample.noise import totals
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.privacy import EventCertificate, GaussianEvent, Ledger
from dpsample.privacy.accounting import events
from dpsample.privacy.certificates import former_calls
from dpsample.privacy.certificates.former_calls import read_mechanism
from dpsample.privacy.certificates.mechanism_spec import MAX_DEPTH, MechanismSpec
from dpsample.privacy.certificates.registry import check_parameters, registry
from dpsample.privacy.curves.random_stopping import STOPS
from dpsample.samplers.proximal.constant_time import ConstantTime
from dpsample.verification.ball_checker import NotProved, prove
from dpsample.verification.verify import _build, _mechanism_types
from tests.support.former_certificates import as_former, call_text, resealed
from tests.support.tiers import one_in, slow

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
LOSSES = {kind.__name__ for kind in losses.BUILT_IN.values()}
TYPES = sorted(set(registry().types) - {"Tuned"} - LOSSES)
# Values among which an option is drawn, for every type of option.
WORDS = ("population", "empirical", "poisson", "allocation", "disjoint", "shuffle")
WORDS += ("tail", "last", "scaled", "metric", "tangent", "objective", "descent")
WORDS += ("clip", "catoni", "output", "gaussian", "generalized_gaussian")
VALUES = (None, True, False, 1, 2, 7, 0.0, 0.1, 1.0, 1.5, 1 / 3, 1e-12, 3e7, math.inf)
VALUES += (((0, 1), (2,)), losses.CappedLogistic(0.5), *WORDS)


REQUIRED: dict[str, Any] = {
    "ConstantTime": {"step_size": 0.5, "num_steps": 3, "num_gradients": 2, "work": 20},
    "Sandwich": {"base": "objective", "share": 0.5, "robust": True, "bandwidth": None},
}


def examples(name, rng, count):
    """Objects of a type with random options, from those that it accepts."""
    kind, found = _mechanism_types()[name], []
    fields = [field for field in dataclasses.fields(kind) if field.init]
    for _ in range(4000):
        options = dict(REQUIRED.get(name, {}))
        for field in fields:
            has_default = field.default is not dataclasses.MISSING
            is_open = not has_default and name not in REQUIRED
            if is_open or rng.random() < 0.35:
                options[field.name] = VALUES[rng.integers(len(VALUES))]
        try:
            found.append(kind(**options))
        except (ValueError, TypeError):
            continue
        if len(found) == count or not fields:
            break
    return found


def test_the_registry_has_the_parameters_of_all_classes():
    public = {
        kind.__name__: kind
        for kind in (ConstantTime, Sandwich, *totals.MECHANISMS)
        + tuple(getattr(samplers, n) for n in samplers.__all__)
        + tuple(getattr(optimizers, n) for n in optimizers.__all__)
    }
    made_by = {name for kind in registry().kinds.values() for name in kind.by}
    classes = {name for name in made_by if " " not in name} | {"Sandwich"}
    assert set(TYPES) == classes
    for name in TYPES:
        fields = [f.name for f in dataclasses.fields(public[name]) if f.init]
        assert [p.removesuffix("?") for p in registry().types[name]] == fields
    of_losses = set(registry().types) & LOSSES
    assert of_losses == LOSSES and registry().types["Tuned"] == ("candidates",)


@one_in(4)
@pytest.mark.parametrize("name", TYPES)
def test_a_mechanism_survives_its_json_and_no_other_has_it(name):
    """Also as the text of the former format, which is the object's repr."""
    made = examples(name, np.random.default_rng(8), 60)
    assert made
    forms: dict[str, Any] = {}
    for mechanism in made:
        spec = MechanismSpec.of(mechanism)
        check_parameters(spec, field="mechanism")
        text = json.dumps(spec.to_dict(), allow_nan=False)
        again = MechanismSpec.from_dict(json.loads(text))
        assert again == spec == repr(mechanism) and again.to_dict() == spec.to_dict()
        built = _build(again, field="mechanism")
        assert repr(built) == repr(mechanism) and built == mechanism
        former = read_mechanism(repr(mechanism))
        assert former == spec and call_text(spec.to_dict()) == repr(mechanism)
        # The text decides: 1 and 1.0 are equal numbers, and different options.
        assert forms.setdefault(text, repr(mechanism)) == repr(mechanism)
    assert len(forms) == len({repr(mechanism) for mechanism in made})


def test_a_tuning_survives_its_json():
    rng = np.random.default_rng(5)
    kinds = [name for name in TYPES if issubclass(_mechanism_types()[name], Optimizer)]
    made = tuple(examples(name, rng, 1)[0] for name in kinds)
    candidates = tuple(map(MechanismSpec.of, made))
    spec = MechanismSpec("Tuned", (("candidates", candidates),))
    again = MechanismSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    check_parameters(again, field="mechanism")
    assert again == spec == f"Tuned(candidates=({', '.join(map(repr, made))}))"
    assert _build(again.get("candidates"), field="mechanism") == made
    assert read_mechanism(str(spec)) == spec


def random_event(kind, rng, depth=2):
    """An event of a kind, with random numbers for its fields."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        share = float(10.0 ** rng.uniform(-9, 0))
        values[field.name] = {
            "num_steps": int(rng.integers(2, 99)),
            "num_epochs": int(rng.integers(1, 9)),
            "mean_tries": float(rng.uniform(2, 50)),
            "stop": STOPS[0],
            "event": GaussianEvent(share),
            "events": tuple(
                random_event(other, rng, depth - 1)
                for other in events.KINDS
                if depth and events.BestOfEvent not in (kind, other)
            )
            or (GaussianEvent(share),),
        }.get(field.name, share)
    return kind(**values)


@pytest.mark.parametrize(("num_tries", "least"), [(12, 1), slow(200, 20)])
@pytest.mark.parametrize("kind", events.KINDS, ids=lambda kind: kind.name)
def test_an_event_survives_its_json_to_the_last_bit(kind, num_tries, least):
    rng, made = np.random.default_rng(3), 0
    for _ in range(num_tries):
        try:
            event = random_event(kind, rng)
        except ValueError:  # numbers that do not belong together
            continue
        made += 1
        text = json.dumps(event.to_dict(), allow_nan=False)
        again = events.from_dict(json.loads(text))
        assert again == event and repr(again) == repr(event)
        assert json.dumps(again.to_dict()) == text
    assert made >= least


PROBLEM_FACTS = dps.Problem(
    np.zeros((400, 3)),
    np.ones(400),
    loss=losses.Logistic(),
    domain=dps.domains.Ball(1.0),
    row_bound=1.0,
).facts


def certificate(method=None):
    from dpsample.optimizers.certification import certify

    chosen = method or optimizers.ClippedGD(num_steps=3, clip=0.5, noise="steps")
    recipe = chosen.recipe(PROBLEM_FACTS, BUDGET, "exact")
    return certify(chosen, recipe, PROBLEM_FACTS, BUDGET, "exact", clip_rows=False)


def test_numbers_and_verdict_are_those_of_the_former_format():
    for made in (certificate(), certificate(optimizers.NoisyGD(num_steps=3))):
        today, former = made.to_json(), as_former(made.to_json())
        again = EventCertificate.from_json(former)
        assert json.loads(again.to_json()) == json.loads(former)
        for name in ("event", "epsilon_proved", "inputs", "facts", "mechanism"):
            assert getattr(again, name) == getattr(made, name)
        assert again.statement == made.statement and again.digest != made.digest
        reports = [dps.verify(c).checks for c in (again, made)]
        numbers = [
            [(c.name, c.stated, c.recomputed) for c in checks if c.name != "digest"]
            for checks in reports
        ]
        assert numbers[0] == numbers[1] and prove(today) == prove(former)
        assert dataclasses.replace(again, digest="").to_json() == today
        ledgers = [Ledger(), Ledger()]
        for ledger, each in zip(ledgers, (again, made), strict=True):
            ledger.spend(each)
        assert repr(ledgers[0]) == repr(ledgers[1])
        for ledger in ledgers:
            assert Ledger.from_json(ledger.to_json()).to_json() == ledger.to_json()


def nested(depth):
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def parameters(**changes):
    known = MechanismSpec.of(certificate_method).to_dict()["parameters"]
    return {"type": "ClippedGD", "parameters": known | changes}


certificate_method = optimizers.ClippedGD(num_steps=3, clip=0.5, noise="steps")
GOOD = MechanismSpec.of(certificate_method).to_dict()["parameters"]
EVIL = "__import__('os').system('true')"
HOSTILE: dict[str, Any] = {
    "an unknown type": {"type": "Better", "parameters": GOOD},
    "a type of another kind": {"type": "Exact", "parameters": {}},
    "a module": {"type": "os", "parameters": GOOD},
    "a path": {"type": "os.system", "parameters": {"command": "true"}},
    "no name": {"type": "", "parameters": GOOD},
    "a number for a type": {"type": 3, "parameters": GOOD},
    "a type alone": {"type": "ClippedGD"},
    "no type": {"parameters": GOOD},
    "a third field": {"type": "ClippedGD", "parameters": GOOD, "note": 1},
    "a list of parameters": {"type": "ClippedGD", "parameters": [["clip", 0.5]]},
    "nothing": {},
    "a list": [],
    "a number": 3,
    "a flag": True,
    "a bare name": "ClippedGD",
    "a text that was a call": repr(certificate_method),
    "code": EVIL,
    "code as a value": parameters(noise=EVIL),
    "code as a type": {"type": EVIL, "parameters": GOOD},
    "a parameter less": {
        "type": "ClippedGD",
        "parameters": {k: v for k, v in GOOD.items() if k != "ridge"},
    },
    "a parameter more": parameters(rate=0.5),
    "a name that is no name": parameters(**{"cl ip": 0.5}),
    "another order": {"type": "ClippedGD", "parameters": dict(reversed(GOOD.items()))},
    "a negative clip": parameters(clip=-0.5),
    "a clip of 0": parameters(clip=0.0),
    "a text for a number": parameters(clip="0.5"),
    "a word for a number": parameters(clip="half"),
    "infinity": parameters(clip="inf"),
    "less than all": parameters(clip="-inf"),
    "NaN as a text": parameters(clip="nan"),
    "a float for a count": parameters(num_steps=3.0),
    "a flag for a count": parameters(num_steps=True),
    "a huge count": parameters(num_steps=10**38),
    "a negative count": parameters(num_steps=-3),
    "a list for a number": parameters(clip=[0.5]),
    "a part for a number": parameters(clip={"type": "Logistic", "parameters": {}}),
    "an event for a number": parameters(clip={"name": "gaussian", "gdp": 0.5}),
    "itself": parameters(clip={"type": "ClippedGD", "parameters": GOOD}),
    "many levels": parameters(clip=nested(100)),
    "one level too many": parameters(clip=nested(MAX_DEPTH)),
    "a long list": parameters(clip=[1] * 20_000),
    "a subnormal number": parameters(clip=5e-324),
    "another number": parameters(clip=0.500001),
    "a whole number": parameters(clip=1),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_mechanism_is_refused_in_one_sentence(case, monkeypatch):
    content = json.loads(certificate().to_json())
    assert content["mechanism"]["parameters"] == GOOD
    monkeypatch.setattr(former_calls, "ast", None)  # nothing is parsed
    text = json.dumps(resealed(content | {"mechanism": HOSTILE[case]}))
    with pytest.raises(ValueError) as refusal:
        dps.verify(EventCertificate.from_json(text))
    message = str(refusal.value)
    assert " must be " in message and "\n" not in message and len(message) < 700
    changed = HOSTILE[case]
    stated = changed.get("parameters") if isinstance(changed, dict) else None
    is_whole = isinstance(stated, dict) and list(stated) == list(GOOD)
    if not is_whole:  # the checker alone does not build the optimizer again
        with pytest.raises(NotProved):
            prove(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"clip": 0.5', '"clip": 0.5,\n "clip": 0.5', "without repeated keys"),
        ('"clip": 0.5', '"clip": NaN', "of finite numbers"),
        ('"clip": 0.5', '"clip": Infinity', "of finite numbers"),
        ('"clip": 0.5', '"clip": 0.50', "shortest numbers"),
        ('"clip": 0.5', '"clip": 5e-1', "shortest numbers"),
        ('"clip": 0.5', '"clip": 1e999', "shortest numbers"),
        ('"num_steps": 3', '"num_steps": 03', "the JSON of a"),
        ('"num_steps": 3', f'"num_steps": {"9" * 5000}', "shortest numbers"),
        ('"num_steps": 3', '"num_steps": ' + "[" * 100_000, "the JSON of a"),
        ('"type"', '"type": "DPSGD", "type"', "without repeated keys"),
    ],
)
def test_a_mechanism_has_one_spelling(old, new, message):
    text = certificate().to_json()
    assert text.count(old) == 1
    changed = text.replace(old, new)
    with pytest.raises(ValueError, match=message):
        EventCertificate.from_json(changed)
    with pytest.raises(NotProved):
        prove(changed)


FORMER_HOSTILE = (
    "ClippedGD",
    "ClippedGD(3, 0.5)",
    "ClippedGD(num_steps=3, num_steps=4)",
    "ClippedGD(num_steps=3,clip=0.5)",
    "ClippedGD(num_steps=0x3)",
    "ClippedGD(num_steps=1_0)",
    "ClippedGD(num_steps=--3)",
    "ClippedGD(num_steps=-True)",
    "ClippedGD(num_steps=nan)",
    "ClippedGD(num_steps=3j)",
    "ClippedGD(num_steps=[3])",
    "ClippedGD(clip='inf')",
    "ClippedGD(clip=1e999)",
    "ClippedGD(**{'clip': 0.5})",
    "ClippedGD(clip=open('x'))",
    "ClippedGD(clip=inf.real)",
    "ClippedGD(clip=(lambda: 1)())",
    "opt.ClippedGD(clip=0.5)",
    "ClippedGD(clip=0.5) # (0, 0)-DP",
    "ClippedGD(clip=" + "A(a=" * 50 + "1" + ")" * 51,
    "ClippedGD(clip=" + "(" * 5000 + ")" * 5000 + ")",
    EVIL,
)


@pytest.mark.parametrize("text", FORMER_HOSTILE, ids=lambda text: text[:30])
def test_a_hostile_text_of_the_former_format_is_refused(text):
    assert read_mechanism(text) == text  # it is no mechanism
    content = json.loads(as_former(certificate().to_json()))
    changed = json.dumps(resealed(content | {"mechanism": text}))
    with pytest.raises(ValueError, match="mechanism must be made by NoisyGD or Clip"):
        EventCertificate.from_json(changed)
    with pytest.raises(NotProved):
        prove(changed)


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True),
        (0, 0.0, -0.0, False),
        (math.inf, -math.inf),
        (None, "none"),
        ((1,), 1, ((1,),)),
        ((), None),
        (0.1, 0.1000000001),
        ("a", MechanismSpec("a")),
    ],
    ids=repr,
)
def test_values_that_differ_have_different_forms(values):
    specs = [MechanismSpec("Mine", (("a", value),)) for value in values]
    assert len({json.dumps(spec.to_dict()) for spec in specs}) == len(values)
    assert len(set(specs)) == len({str(spec) for spec in specs}) == len(values)
    for spec in specs:
        content = json.loads(json.dumps(spec.to_dict()))
        again = MechanismSpec.from_dict(content).get("a")
        assert repr(again) == repr(spec.get("a"))


@pytest.mark.parametrize("value", ["inf", "-inf", "A", "", "a b", "a" * 41, math.nan])
def test_a_value_without_a_form_of_its_own_is_refused(value):
    with pytest.raises(ValueError, match=r"Mine\.a must be "):
        MechanismSpec("Mine", (("a", value),))


def test_a_declared_mechanism_may_have_parameters_of_its_own():
    fields = {"budget": BUDGET, "event": GaussianEvent(0.2)}
    text = "Mine(a=-inf, b=Other(c=(1, 'x')), _d=10000000000)"
    made = EventCertificate.of(mechanism=text, **fields)
    assert made.mechanism.get("b").get("c") == (1, "x")
    for form in (made.to_json(), as_former(made.to_json())):
        again = EventCertificate.from_json(form)
        assert again.mechanism == text and not again.releasable
        dps.verify(again)
    assert json.loads(made.to_json())["mechanism"]["parameters"]["a"] == "-inf"
