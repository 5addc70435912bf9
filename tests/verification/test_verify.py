"""`dps.verify`: forged and mutated certificates of every kind, with new digests."""

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dpsample as dps
from dpsample import optimizers as opt
from dpsample.api import minimize
from dpsample.optimizers import certification
from dpsample.optimizers.certification import certify
from dpsample.privacy import Certificate, EventCertificate
from dpsample.privacy.certificates.registry import registry
from dpsample.samplers.errors import NoCertificate
from dpsample.samplers.proximal import constant_time
from dpsample.verification.ball_checker import NotProved, prove
from tests.support.former_certificates import KINDS, as_former, spec_of
from tests.support.golden_certificates import BUDGET, GOLDEN, PRINTED, golden, problem
from tests.support.tiers import one_in, usual

FORMATS = KINDS


def test_there_is_a_golden_certificate_of_every_kind():
    # Schemes are mixed only where the first blocks are small and the last ones large.
    # The other kind is one of former versions.
    rare = {"accelerated/one_pass", "localized/paper"}
    assert set(GOLDEN) == set(registry().kinds) - rare


@one_in(2)
@pytest.mark.parametrize("kind", GOLDEN)
def test_certificates_of_every_kind_verify_and_survive_json(kind):
    made = golden(kind)
    again = type(made).from_json(made.to_json())
    assert again == made and dps.verify(again).statement == made.statement
    assert made.releasable == (
        kind not in PRINTED and registry().kinds[kind].releasable
    )


def test_a_mechanism_names_the_loss_at_the_wall():
    capped = dps.losses.CappedLogistic(0.5)
    method = opt.NoisyGD(output="scaled", boundary_loss=capped)
    for candidate in (method, dps.advise(problem().facts, BUDGET).choice):
        known = problem(loss=dps.losses.CalibratedLogistic())
        plan = minimize.plan_minimization(
            known, candidate, BUDGET, "exact", seeded=False
        )
        text = plan.certificate.to_json()
        made = EventCertificate.from_json(text)
        assert dps.verify(made).statement == plan.certificate.statement
        assert "boundary_loss=CappedLogistic(cap=0.5)" in str(made.mechanism)
        prove(text)
        renamed = as_former(text).replace("boundary_loss=", "wall_loss=")
        former_text = json.dumps(resealed(json.loads(renamed)))
        former = EventCertificate.from_json(former_text)
        assert "wall_loss=CappedLogistic(cap=0.5)" in str(former.mechanism)
        assert json.loads(former.to_json()) == json.loads(former_text)
        assert dps.verify(former).statement == plan.certificate.statement.replace(
            "boundary_loss=", "wall_loss="
        )
        prove(former_text)
    renamed = text.replace('"boundary_loss"', '"wall_loss"')
    assert refuses(json.dumps(resealed(json.loads(renamed))))
    own = made.mechanism.get("boundary_loss").to_dict()
    assert own == {"type": "CappedLogistic", "parameters": {"cap": 0.5}}
    for other in (
        {**own, "parameters": {"cap": 0.9}},
        {**own, "parameters": {"cap": 0.5, "label": "own"}},
        {"type": "Logistic", "parameters": {}},
        {"type": "Nothing", "parameters": {}},
        {"type": "NoisyGD", "parameters": {}},
        {"type": "Custom", "parameters": {}},
        {"name": "capped_logistic", "cap": 0.5},
    ):
        content = json.loads(text)
        content["mechanism"]["parameters"]["boundary_loss"] = other
        changed = json.dumps(resealed(content))
        assert refuses(changed) and refuses(as_former(changed))


def resealed(content):
    """What a forger does: the seal of the words and the digest are made again."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        used = (*content["theorems"], *content["assumptions"])
        content["registry"] = registry().seal(used)
    digest = content | {"digest": ""}
    text = json.dumps(digest, sort_keys=True)
    return content | {"digest": hashlib.sha256(text.encode()).hexdigest()}


def refuses(text):
    """Whether a text fails; anything but a ValueError would be an error."""
    try:
        made = FORMATS[json.loads(text)["format"]].from_json(text)
        dps.verify(made)
    except (ValueError, KeyError):
        return True
    return False


def forged(kind, **changes):
    """A certificate with other fields, and seals that fit."""
    return json.dumps(resealed(json.loads(golden(kind).to_json()) | changes))


def words(kind, name, change):
    return {name: change(json.loads(golden(kind).to_json())[name])}


def forged_facts(kind, **changes):
    facts = json.loads(golden(kind).to_json())["facts"]
    return forged(kind, facts=facts | changes)


def with_input(kind, name, value):
    """A certificate with one input changed."""
    inputs = dict(json.loads(golden(kind).to_json())["inputs"]) | {name: value}
    return forged(kind, inputs=[list(pair) for pair in inputs.items()])


def other_plan(**changes):
    """The golden plan with numbers added to some of its own."""
    mech = dps.calibrate(problem(), BUDGET, sampler_share=0.1)
    plan = constant_time.new_plan(mech)
    numbers = {name: getattr(plan, name) + more for name, more in changes.items()}
    return spec_of(repr(dataclasses.replace(plan, **numbers)))


L1_BODY = {"name": "ball", "radius": 1.0, "p": 1.0, "center": None}
INVENTED = "This draw is (0.01, 0)-DP"
FORGERIES = {
    "another sampler": lambda: forged(
        "draw/proximal", sampler=spec_of("UnadjustedLangevin()")
    ),
    "a text for a sampler": lambda: forged("draw/proximal", sampler="Proximal()"),
    "no sampler": lambda: forged("draw/proximal", sampler=""),
    "a theorem less": lambda: forged(
        "draw/proximal", **words("draw/proximal", "theorems", lambda t: t[:-1])
    ),
    "a theorem more": lambda: forged(
        "draw/proximal",
        **words("draw/proximal", "theorems", lambda t: [*t, INVENTED]),
    ),
    "an assumption less": lambda: forged(
        "draw/proximal", **words("draw/proximal", "assumptions", lambda a: a[:-1])
    ),
    "no error allowed": lambda: forged(
        "draw/exact", sampler=spec_of("Proximal(oracle='metric', step_size=None)")
    ),
    "a known theorem more": lambda: forged(
        "draw/proximal",
        **words("draw/proximal", "theorems", lambda t: [*t, "EXACT"]),
    ),
    "a sentence as a sampler": lambda: forged(
        "draw/proximal",
        sampler={"type": "Proximal", "parameters": {"oracle": INVENTED}},
    ),
    "a pass less": lambda: forged("draw/constanttime", sampler=other_plan(work=-1)),
    "a step less": lambda: forged(
        "draw/constanttime", sampler=other_plan(num_steps=-1)
    ),
    "fewer tries": lambda: forged(
        "draw/constanttime", sampler=other_plan(num_gradients=1)
    ),
    "a plan for another domain": lambda: forged_facts(
        "draw/constanttime",
        domain={"name": "ball", "radius": 1.0, "p": 1.0, "center": None},
    ),
    "a plan for a loss with a kink": lambda: forged_facts(
        "draw/constanttime", loss={"name": "hinge"}
    ),
    "a sentence as an input": lambda: forged(
        "noise/gaussian", inputs=[["norm", INVENTED]]
    ),
    "a smaller event": lambda: forged(
        "noise/gaussian", event={"name": "gaussian", "gdp": 0.1}
    ),
    "an optimizer with another event": lambda: forged(
        "clipped/poisson", mechanism=spec_of("DPSGD(sampling_rate=0.5, num_steps=2)")
    ),
    "declared as releasable": lambda: forged("declared", releasable=True),
    "an option that no sampler has": lambda: forged(
        "draw/localized", sampler=spec_of("Localized(rounds=None)")
    ),
    "responses without a bound": lambda: forged_facts(
        "draw/proximal", loss={"name": "squared"}, response_bound=None
    ),
    "a box without an inside": lambda: forged_facts(
        "draw/proximal", domain={"name": "box", "lower": 1.0, "upper": -1.0}
    ),
    "facts beside a query": lambda: forged(
        "noise/gaussian", facts=json.loads(golden("steps/full").to_json())["facts"]
    ),
    "another grid": lambda: with_input("noise/gaussian", "grid", 2.0**-900),
    "a coarser grid": lambda: with_input("noise/k_norm", "grid", 1024.0),
    "a body about another point": lambda: with_input(
        "noise/k_norm", "K", json.dumps(L1_BODY | {"center": [5.0, 0.0, 0.0]})
    ),
    "a body of another size": lambda: with_input(
        "noise/k_norm", "K", json.dumps(L1_BODY | {"radius": 7.0})
    ),
    "a body without a size": lambda: with_input(
        "noise/k_norm", "K", json.dumps(L1_BODY | {"radius": 0.0})
    ),
    "quadratics below kinks": lambda: of_problem(
        "Localized()", loss=dps.losses.Hinge()
    ),
    "a fit of nothing": lambda: forged(
        "steps/full",
        facts=None,
        **words("steps/full", "assumptions", lambda a: a[: a.index("FIT.WORK")]),
    ),
    "a matrix of other sides": lambda: forged_shape(),
}


def of_problem(sampler, **options):
    mech = dps.calibrate(problem(**options), BUDGET, sampler_share=0.1)
    return mech.certificate.with_sampler(sampler=sampler).to_json()


def forged_shape():
    body = dps.domains.SchattenBall(1.0, p=1.0, shape=(1, 3))
    content = json.loads(of_problem("Proximal()", domain=body))
    content["facts"]["dim"] = 300
    return json.dumps(resealed(content))


L2, SIMPLEX = dps.domains.Ball(1.0), dps.domains.Simplex()
PLANE = dps.domains.Polytope(
    [[1.0, 0, 0, 0, 0], *-np.eye(5)], [1.0] + [0.0] * 5, [[0, 0, 1.0, -1.0, 0]], [0.0]
)
# Facts of five coefficients, and the samplers that can draw from their targets.
DRAWN = [
    (L2, dps.losses.Logistic(), 2.0, ["Localized()", "Proximal()"]),
    (L2, dps.losses.Linear(), 2.0, ["Localized()", "Proximal()", "Exact()"]),
    (L2, dps.losses.Linear(), 1.5, ["Localized()", "Proximal()"]),
    (SIMPLEX, dps.losses.Logistic(), 2.0, ["Localized()", "Proximal()"]),
    (SIMPLEX, dps.losses.Logistic(), 1.0, ["Localized()"]),
    (SIMPLEX, dps.losses.Hinge(), 1.5, []),
    (PLANE, dps.losses.Logistic(), 2.0, ["Localized()"]),  # unbounded
    (PLANE, dps.losses.Logistic(), 1.5, []),
]


@pytest.mark.parametrize(("domain", "loss", "p", "able"), DRAWN)
def test_verify_asks_of_a_sampler_what_release_asks(domain, loss, p, able):
    facts = dataclasses.replace(problem().facts, dim=5, domain=domain, loss=loss)
    ridge = 0.0 if domain.is_bounded else 0.1
    options = {"p": p, "sampler_share": 0.1, "strong_convexity": ridge}
    mech = dps.calibrate(facts, BUDGET, **options)
    for sampler in ("Localized()", "Proximal()", "Exact()"):
        certificate = mech.certificate.with_sampler(sampler=sampler)
        if sampler in able:
            dps.verify(certificate)
            continue
        with pytest.raises(ValueError, match="sampler must be one that draws"):
            dps.verify(certificate)
        if sampler == "Exact()":
            continue
        given = dps.Problem(
            np.zeros((facts.num_records, 5)),
            np.ones(facts.num_records),
            domain=domain,
            loss=loss,
            row_bound=facts.row_bound,
        )
        chosen = getattr(dps.samplers, sampler[:-2])()
        with pytest.raises((ValueError, NoCertificate)):
            dps.release(given, BUDGET, sampler=chosen, seed=0, **options)


def test_losses_of_no_margin_are_refused_where_proofs_need_one(monkeypatch):
    facts = dataclasses.replace(
        problem().facts, loss=dps.losses.RecordGradient(label="own", smoothness=0.25)
    )
    monkeypatch.setattr(certification, "check_any_loss", lambda *_, **__: None)
    texts = []
    for method in (
        opt.ClippedGD(num_steps=20, clip=0.5),
        opt.LocalizedClippedGD(moment=0.5),
    ):
        recipe = method.recipe(facts, BUDGET, "exact")
        args = method, recipe, facts, BUDGET, "exact"
        texts.append(certify(*args, clip_rows=False).to_json())
    monkeypatch.undo()
    for text in texts:
        assert refuses(text)
        with pytest.raises(NotProved, match="a loss of the margin"):
            prove(text)


def test_a_proof_is_a_call_of_few_levels():
    assert refuses(forged("clipped/poisson", mechanism="DPSGD"))
    content = json.loads(golden("objective").to_json())
    content["kind"] = "intervals/" * 3000 + "objective"
    assert refuses(json.dumps(resealed(content)))


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgeries_fail(forgery):  # P6
    """In today's format and in the former one."""
    text = FORGERIES[forgery]()
    forms = [text]
    if forgery != "a text for a sampler":  # which a sampler is in the former format
        forms.append(as_former(text))
    for form in forms:
        assert refuses(form)
        with pytest.raises(NotProved):
            prove(form)


def test_formats_of_the_past_are_refused_in_words():
    text = forged("draw/proximal", format="dpsample certificate 1")
    with pytest.raises(ValueError, match="got one of 'dpsample certificate 1'.*again"):
        Certificate.from_json(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seeded": false', '"seeded": false,\n "seeded": false'),
        ('"gamma": ', '"gamma": 1e-7,\n "gamma": '),
        ('"p": 2.0', '"p": 2.00'),
        ('"p": 2.0', '"p": 2'),
        ('"p": 2.0', '"p": NaN'),
        ('"p": 2.0', '"p": Infinity'),
        ('"p": 2.0', '"p": 0.2e1'),
        ('"num_records": 400', '"num_records": 400.0'),
    ],
)
def test_a_text_has_one_reading(old, new):
    text = golden("draw/proximal").to_json()
    assert old in text and not refuses(text)
    changed = text.replace(old, new, 1)
    assert refuses(changed)
    with pytest.raises(NotProved):
        prove(changed)


# Every field, identifier and digit.


def digits(number: float) -> Iterator[float]:
    """The number with one digit changed, one after the other."""
    text = repr(number)
    for place, digit in enumerate(text):
        if digit.isdigit():
            changed = text[:place] + str((int(digit) + 1) % 10) + text[place + 1 :]
            yield type(number)(changed)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in a JSON value, containers included."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))


def others(value: Any) -> Iterator[Any]:
    """Other values in the place of one."""
    if isinstance(value, bool):
        yield from (not value, int(value), None)
    elif isinstance(value, int | float):
        yield from digits(value)
        yield from (0.0, -value, 5e-324, str(value), None, True)
    elif isinstance(value, str):
        yield from ("", value + "x", value[1:], value.lower(), INVENTED, "inf", None, 1)
        yield from ("BITS", "EXACT", "Exact()", "paper", "zero_out", "declared")
        for place, letter in enumerate(value):
            if letter.isdigit():
                digit = str((int(letter) + 1) % 10)
                yield value[:place] + digit + value[place + 1 :]
    elif value is None:
        yield from (0.0, 1.0, 7, "inf", False)
    elif isinstance(value, list):
        for place in range(len(value)):
            yield value[:place] + value[place + 1 :]
        yield from (value + value[:1], value[::-1], [*value, "BITS"], [*value, 1.0])
    else:
        for name in value:
            yield {key: item for key, item in value.items() if key != name}
        yield value | {"note": INVENTED}


def replaced(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with one thing changed."""
    if not path:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[path[0]] = replaced(content[path[0]], path[1:], value)
    return copy


# Why a change that passes is harmless: the certificate still is a true one. Besides,
# ball arithmetic proves the changed numbers, unless loss distributions compose.
STATED = "the inequality is proved for the stated number"
HARMLESS = {
    "facts": "all numbers follow again from them, to the digits that are compared",
    "max_work": "a public limit: no part of what is claimed",
    "confidence": "of a bound of the risk",
    "risk_bound": "a bound of the risk, right to nine digits",
    "range_bound": "of the risk, nine digits",
    "lipschitz": "for the reader, nine digits: the inequality uses the facts'",
    "diff_lipschitz": "for the reader, nine digits: the inequality uses the facts'",
    "sampler_share": STATED,
    "k": STATED,
    "mu": STATED,
    "gdp": STATED,
    "delta_exact": STATED,
    "gamma": STATED,
    "budget.delta": STATED,
    "budget.epsilon": STATED,
    "seeded": "makes less of it: not releasable before and after",
    "calibration": "makes less of it: not releasable before and after",
    "budget.relation": "the sensitivity is declared for the stated relation",
    "epsilon_proved": STATED,
    "event": STATED,
    "inputs": "digits beyond the ninth; of risks and accuracies beyond the sixth",
    "mechanism": "a name of the user's own, or a digit on which no input depends",
    "sampler.parameters": "every option of a proved sampler has the error gamma",
}


def harmless(path: tuple[Any, ...]) -> bool:
    name = ".".join(map(str, path))
    return any(name == known or name.startswith(known + ".") for known in HARMLESS)


def is_composed(content: Any) -> bool:
    event = json.dumps(content.get("event"))
    return "poisson_gaussian" in event or "allocated_gaussian" in event


@pytest.mark.parametrize(
    ("kind", "path", "share"),
    [
        (
            "steps/full",
            ("facts", "row_bound"),
            1.0 + 5e-7,
        ),  # more than the noise is for
        ("steps/full", ("inputs", "noise_stddev"), 1.0 - 5e-7),
        ("clipped/output", ("inputs", "step_size"), 1.0 + 5e-7),
        ("frank_wolfe", ("inputs", "inverse_temperature"), 1.0 + 5e-7),
        ("frank_wolfe/pure", ("inputs", "inverse_temperature"), 1.0 + 5e-9),
        ("lasso", ("inputs", "score_sensitivity"), 1.0 + 5e-7),
        ("lasso/pure", ("inputs", "score_sensitivity"), 1.0 - 5e-9),
        ("mirror/gaussian", ("inputs", "noise_scale"), 1.0 - 5e-7),
        ("normal_equations", ("inputs", "matrix_stddev"), 1.0 - 5e-7),
        ("normal_equations", ("inputs", "vector_stddev"), 1.0 - 5e-7),
        ("objective", ("inputs", "gap"), 1.0 + 5e-7),
        ("objective", ("inputs", "output_stddev"), 1.0 - 5e-7),
        ("objective", ("inputs", "ridge"), 1.0 - 5e-7),
        ("objective", ("inputs", "tilt_stddev"), 1.0 - 5e-7),
        ("objective/pure", ("inputs", "gap"), 1.0 + 5e-9),
        ("objective/pure", ("inputs", "max_tilt"), 1.0 - 5e-9),
        ("objective/pure/rounded", ("inputs", "output_scale"), 1.0 - 5e-9),
        ("objective/pure/rounded", ("inputs", "ridge"), 1.0 - 5e-9),
        ("objective/pure/rounded", ("inputs", "tilt_scale"), 1.0 - 5e-9),
        ("proximal/catoni/full", ("inputs", "stddev"), 1.0 - 5e-7),
        ("svrg", ("inputs", "gap"), 1.0 + 5e-7),
        ("svrg", ("inputs", "output_stddev"), 1.0 - 5e-7),
        ("truncated/disjoint", ("inputs", "threshold"), 1.0 + 5e-7),
    ],
)
def test_noise_of_a_fit_agrees_to_the_digits_of_its_event(kind, path, share):
    content = json.loads(golden(kind).to_json())
    names = [name for name, _ in content["inputs"]]
    if path[0] == "inputs":
        path = ("inputs", names.index(path[1]), 1)
    at = content
    for key in path:
        at = at[key]
    assert not refuses(json.dumps(content))
    assert refuses(json.dumps(resealed(replaced(content, path, share * at))))


def test_an_accuracy_of_fewer_digits_has_the_noise_that_hides_it():
    """On a polytope it follows from linear programs, which differ by platform."""
    made = golden("objective")
    for noise, is_refused in ((1.0 + 5e-8, False), (1.0, True), (1.0 - 5e-8, True)):
        changes = {"gap": 1.0 + 1e-7, "output_stddev": noise}
        inputs = [(name, value * changes.get(name, 1)) for name, value in made.inputs]
        edited = dataclasses.replace(made, inputs=tuple(inputs), digest="")
        assert refuses(edited.to_json()) == is_refused


PROVED = ("event", "budget", "epsilon_proved")


def near(one: Any, other: Any) -> bool:
    numbers = isinstance(one, float) and isinstance(other, float)
    return numbers and math.isclose(one, other, rel_tol=2e-9)


@usual("draw/const", "noise/gaussian", "frank_wolfe", "declared")
@pytest.mark.parametrize("kind", GOLDEN)
def test_every_mutation_fails_or_is_harmless(kind):
    assert mutate(kind, lambda path: True) > 300


SPECS = [kind for kind in GOLDEN if kind != "draw" and not kind.startswith("noise")]


@usual("draw/const", "draw/global", "clipped/full")
@pytest.mark.parametrize("kind", [kind for kind in SPECS if kind != "declared"])
def test_every_mutation_of_a_mechanism_fails_or_is_harmless(kind):
    """In the former format, too, in which the mechanism is a text."""
    field = "sampler" if kind.startswith("draw/") else "mechanism"
    assert mutate(kind, lambda path: path[:1] == (field,)) >= 10
    assert mutate(kind, lambda path: path[:1] == (field,), form=as_former) >= 10


def mutate(kind, is_chosen, form=str):
    """Mutate parts of a golden certificate, and return how many mutations there were.

    ``form`` turns the text of each mutation into the format in which it is tried.
    """
    content = json.loads(golden(kind).to_json())
    count, passed = 0, []
    for path in filter(is_chosen, leaves(content)):
        at = content
        for key in path:
            at = at[key]
        changes = list(others(at))
        if is_composed(content) and path[:1] != ("event",) and isinstance(at, float):
            changes = changes[:: max(1, len(changes) // 4)]  # accounting takes its time
        for change in changes:
            changed = replaced(content, path, change)
            if changed == content and type(change) is type(at):
                continue
            count += 1
            is_seal = path[:1] in ((), ("registry",), ("digest",))
            text = form(json.dumps(changed if is_seal else resealed(changed)))
            if not refuses(text):
                passed.append((path, at, change, text))
    for path, at, change, text in passed:
        # Another plan of a constant-time draw is proved as a whole.
        is_plan = kind == "draw/constanttime" and path[:2] == ("sampler", "parameters")
        assert harmless(path) or is_plan, (path, at, change)
        changed = json.loads(text)
        try:
            prove(text)
        except NotProved as error:
            assert "account" in str(error), (path, at, change, error)
            same = (changed[name] == content[name] for name in PROVED)
            assert all(same) or near(at, change), (path, at, change)
    return count


def test_a_release_binds_theta_and_certificate(tmp_path):
    first, second = (dps.release(problem(), BUDGET) for _ in range(2))
    assert first.verify().checks and first.digest != second.digest
    first.save(tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    assert len(prove(text)) == 3
    other = dps.release(problem(), dps.Budget(epsilon=2.0, delta=1e-6))
    swaps = {
        "theta": second.theta.tolist(),
        "certificate": other.certificate.to_dict(),
        "feature_names": [name + "x" for name in first.feature_names],
        "digest": second.digest,
    }
    for name, value in swaps.items():
        changed = json.dumps(json.loads(text) | {name: value})
        (tmp_path / "b.json").write_text(changed)
        with pytest.raises(ValueError, match=r"digest must be .*another release"):
            dps.Release.load(tmp_path / "b.json")
        with pytest.raises(NotProved, match="not one release"):
            prove(changed)
    last = np.nextafter(first.theta, 2.0)
    for fields in ({"theta": last}, {"certificate": other.certificate}):
        edited = dps.Release(**vars(first) | fields)
        with pytest.raises(ValueError, match=r"digest must be .*another release"):
            edited.verify()


def test_a_signature_is_of_one_key_and_one_release():
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    first, second = (dps.release(problem(), BUDGET) for _ in range(2))
    keys = bytes(range(32)), bytes(32)
    public = [
        ed25519.Ed25519PrivateKey.from_private_bytes(key)
        .public_key()
        .public_bytes_raw()
        for key in keys
    ]
    signature = first.sign(keys[0])
    assert first.verify(signature=signature, public_key=public[0]).checks
    wrong = {
        "signature must be the one": [
            (second, signature, public[0]),
            (first, signature, public[1]),
            (first, bytes([signature[0] ^ 1]) + signature[1:], public[0]),
            (first, bytes(64), public[0]),
        ],
        "signature must be 64 bytes": [(first, None, public[0])],
        "public_key must be 32 bytes": [(first, signature, None)],
    }
    for message, cases in wrong.items():
        for answer, given, key in cases:
            with pytest.raises(ValueError, match=message):
                answer.verify(signature=given, public_key=key)
    with pytest.raises(ValueError, match="private_key must be 32 bytes"):
        first.sign(b"short")


@pytest.mark.parametrize("name", ["Localized", "Proximal", "ConstantTime", "Exact"])
def test_a_bare_name_is_no_sampler(name):
    mech = dps.calibrate(problem(), BUDGET, sampler_share=0.1)
    with pytest.raises(ValueError, match="sampler must be made by"):
        mech.certificate.with_sampler(sampler=name)
