"""Saved answers: every part follows from the others, or they do not verify."""

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dpsample as dps
from dpsample import cli
from dpsample.answers.answer import load_answer
from dpsample.privacy import Ledger
from dpsample.privacy.certificates.registry import registry
from dpsample.targets.grid import PublicGrid
from dpsample.verification.ball_checker import NotProved, prove
from tests.support.former_certificates import KINDS
from tests.support.golden_certificates import BUDGET, problem
from tests.support.tiers import one_in

FORMER = Path(__file__).with_name("answers_of_version_1.json")


@cache
def release():
    return dps.release(problem(), BUDGET)


@cache
def fit():
    return dps.minimize(problem(), dps.optimizers.NoisyGD(num_steps=3), BUDGET)


@cache
def table():
    """An answer with an encoding and an intercept."""
    import pandas as pd

    rng = np.random.default_rng(1)
    labels = ["no", "yes"] * 25
    frame = pd.DataFrame({"age": rng.uniform(0.0, 90.0, 50), "ill": labels})
    bounds = dps.tables.Schema(
        numeric={"age": (0, 100)}, categorical={"ill": ("no", "yes")}
    )
    data = dps.tables.from_frame(
        frame, bounds=bounds, target="ill", positive_label="yes"
    )
    given = dps.Problem.from_table(
        data,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        intercept=True,
    )
    return dps.release(given, BUDGET)


def resealed(answer, **changes):
    """What a forger writes: other parts, and a digest that fits."""
    return dataclasses.replace(answer, **changes, digest="")


@pytest.mark.parametrize("number", [0.1, 1e-300, -0.0, np.pi / 8.0, 5e-324])
def test_a_release_off_its_public_grid_does_not_verify(number, tmp_path, capsys):
    theta = np.zeros_like(release().theta)  # in the domain, whatever was drawn
    theta[1] = number
    forged = resealed(release(), theta=theta)
    with pytest.raises(ValueError, match="^theta must be on the public grid"):
        forged.verify()
    forged.save(tmp_path / "a.json")
    assert cli.main(["verify", str(tmp_path / "a.json")]) == 1
    assert "NOT verified: theta must be on the public grid" in capsys.readouterr().out


DOMAINS = {
    "l2 ball": dps.domains.Ball(1.0),
    "l1 ball": dps.domains.Ball(1.0, p=1.0),
    "box at 0": dps.domains.Box(0.0, 1.0),
    "small and far": dps.domains.Ball(1e-3, center=np.array([5.0, 1.0, 0.0])),
    "simplex": dps.domains.Simplex(),
    "equality": dps.domains.Polytope(
        np.vstack([np.eye(3), -np.eye(3)]), np.ones(6), [[1.0, 1.0, 0.0]], [0.3]
    ),
}


@one_in(2)
@pytest.mark.parametrize("name", DOMAINS)
def test_what_is_drawn_lies_on_the_grid_that_verification_knows(name):
    """The boundary included, to which large budgets push the draws."""
    given = problem(domain=DOMAINS[name])
    for epsilon in (0.01, 100.0):
        budget = dps.Budget(epsilon=epsilon, delta=1e-6)
        for seed in range(5):
            dps.release(given, budget, seed=seed).verify()


def test_a_point_inside_a_simplex_off_the_grid_does_not_verify():
    answer = dps.release(problem(domain=DOMAINS["simplex"]), BUDGET, seed=1)
    grid = PublicGrid.from_facts(
        answer.certificate.facts, k=answer.certificate.k, mu=answer.certificate.mu
    )
    moved = np.full(3, 1.0 / 3.0) + 0.3 * grid.step * np.array([1.0, -1.0, 0.0])
    assert not grid.holds(moved) and grid.holds(answer.theta)


@pytest.mark.parametrize("make", [release, fit], ids=["release", "fit"])
@pytest.mark.parametrize("entry", [True, 0, "0.0", None])
def test_a_file_with_an_entry_of_another_type_does_not_load(make, entry, tmp_path):
    theta = np.zeros(3) if not entry else np.array([1.0, 0.0, 0.0])
    resealed(make(), theta=theta).save(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["theta"][0] = entry
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=" must be .*, got "):
        load_answer(tmp_path / "a.json")


@pytest.mark.parametrize("make", [release, fit], ids=["release", "fit"])
def test_an_exchanged_theta_does_not_verify(make):
    assert make().verify().checks[-1].name == "theta"
    changed = dataclasses.replace(make(), theta=0.5 * make().theta)
    with pytest.raises(ValueError, match=r"digest must be .*another release"):
        changed.verify()


def test_a_fit_verifies_with_the_facts_of_its_certificate_only():
    other = dataclasses.replace(problem().facts, num_records=7)
    with pytest.raises(ValueError, match="facts must be those of the certificate"):
        resealed(fit(), facts=other).verify()


FORGED = {
    "a whole number": {"scale": 1},
    "another bound": {"row_bound": 0.5, "scale": 0.5},
    "another norm": {"row_norm": 1.0},
}


@pytest.mark.parametrize("case", FORGED)
def test_an_encoding_that_the_certificate_does_not_imply_is_refused(case, tmp_path):
    answer = table()
    answer.verify()
    answer.save(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["encoding"] |= FORGED[case]
    encoding = dps.tables.Encoding.from_dict(content["encoding"])
    content["digest"] = resealed(answer, encoding=encoding).digest
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="^encoding must be "):
        load_answer(tmp_path / "a.json")


def test_the_name_of_the_intercept_follows():
    names = (*table().feature_names[:-1], "slope")
    with pytest.raises(ValueError, match="with 'intercept' at the end"):
        resealed(table(), feature_names=names).verify()


@pytest.mark.slow
def test_files_of_former_sentences_load_verify_and_show_them(tmp_path):
    former = json.loads(FORMER.read_text())
    assert registry().version > 1
    for content in former["certificates"]:
        text = json.dumps(content)
        made = KINDS[content["format"]].from_json(text)
        assert made.registry.startswith("1:") and json.loads(made.to_json()) == content
        dps.verify(made)
        shown = " ".join(made.details().split())
        assert ", but with probability " in shown or ", but for failures" in shown
        made.to_html()
        if made.facts is None:
            prove(text)
        assert made.format == content["format"] != type(made).FORMAT
        today = dataclasses.replace(made, digest="")
        assert today.format == type(made).FORMAT
        assert today.registry.startswith(f"{registry().version}:") and today != made
        with pytest.raises(ValueError, match="registry must be '1:"):
            KINDS[content["format"]].from_json(
                json.dumps(
                    content
                    | {
                        "registry": today.registry.replace(
                            f"{registry().version}:", "1:"
                        )
                    }
                )
            )
    for name in ("release", "fit"):
        (tmp_path / "a.json").write_text(json.dumps(former[name]))
        load_answer(tmp_path / "a.json").verify()
        prove((tmp_path / "a.json").read_text())
    ledger = Ledger.from_json(json.dumps(former["ledger"]))
    assert len(ledger.entries) == 2
    assert json.loads(ledger.to_json()) == former["ledger"]


def test_no_sentence_says_but_where_it_means_except():
    known = registry()
    tables = (known.theorems, known.assumptions, known.confirm, known.excluded)
    for words in [words for table in tables for words in table.values()]:
        assert "but with" not in words and "but for" not in words
        assert "fair coin" not in words


def forged_fit(**changes):
    """A fit whose event and epsilon say 0.01 for noise of 1e-12."""
    certificate = dps.minimize(
        problem(), changes.pop("method"), dps.Budget(epsilon=0.01, delta=1e-6)
    ).certificate
    inputs = tuple(
        (name, changes.get(name, value)) for name, value in certificate.inputs
    )
    return dataclasses.replace(certificate, inputs=inputs, digest="")


def test_balls_prove_the_noise_of_full_steps():
    honest = fit().certificate
    assert "event of the noise<=event" in [n for n, _, _ in prove(honest.to_json())]
    forged = forged_fit(method=dps.optimizers.NoisyGD(num_steps=3), noise_stddev=1e-12)
    with pytest.raises(NotProved, match="event of the noise<=event is false"):
        prove(forged.to_json())
    for name, value in (("num_steps", 1), ("lipschitz", 0.1)):
        smaller = forged_fit(
            method=dps.optimizers.NoisyGD(num_steps=3), **{name: value}
        )
        with pytest.raises(NotProved):
            prove(smaller.to_json())


def test_balls_say_what_they_take_as_stated_and_give_no_verdict(tmp_path, capsys):
    method = dps.optimizers.ObjectivePerturbation()
    forged = forged_fit(method=method, tilt_stddev=1e-12)
    report = dps.verify(forged, checker="ball")
    assert "that the listed noise gives the event" in report.unchecked[0]
    assert report.unchecked[1] == "bounds of the risk"
    with pytest.raises(ValueError, match="tilt_stddev"):
        dps.verify(forged)
    file = tmp_path / "c.json"
    file.write_text(forged.to_json())
    assert cli.main(["verify", str(file), "--checker", "ball"]) == 0
    out = capsys.readouterr().out
    assert "Not checked: that the listed noise gives the event" in out
    assert "May be published" not in out and "Verified" not in out
    assert out.splitlines()[-1].startswith("No verdict on publication")
