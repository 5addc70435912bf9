"""Certificates and answers of earlier commits verify and show their own sentences.

The files were written by the package as it was when the registry had their version.
"""

import json
from functools import cache
from pathlib import Path

import pytest

import dpsample as dps
from dpsample.answers.answer import parse_answer
from dpsample.answers.statistic import parse_statistic
from dpsample.privacy import Ledger
from dpsample.privacy.certificates.registry import registry
from dpsample.verification import ball_checker
from tests.support.former_certificates import KINDS, resealed
from tests.support.golden_certificates import golden
from tests.support.tiers import one_in

FILES = {
    "2": "certificates_of_version_2.json",
    "3": "answers_of_version_3.json",
}
NUM_CERTIFICATES = {"2": 8, "3": 20}
# Kinds whose events the ball checker does not know: composed and Poisson-sampled ones.
NOT_KNOWN = ("intervals/", "clipped/poisson")


@cache
def content(version):
    return json.loads(Path(__file__).with_name(FILES[version]).read_text())


def certificates():
    for version in FILES:
        for fields in content(version)["certificates"]:
            name = fields.get("kind") or str(fields["sampler"])
            yield pytest.param(version, fields, id=f"{version} {name[:40]}")


@one_in(2)
@pytest.mark.parametrize(("version", "fields"), [*certificates()])
def test_a_certificate_of_an_earlier_version_verifies(version, fields):
    text = json.dumps(fields)
    made = KINDS[fields["format"]].from_json(text)
    assert made.version == int(version) < registry().version
    assert json.loads(made.to_json()) == fields
    assert dps.verify(made).checks
    shown = " ".join(made.details().split())
    for name in (*made.theorems, *made.assumptions):
        for words in registry().words((name,), version=int(version)):
            assert " ".join(words.split()) in shown, name
    assert str(made) and made.to_html()


@pytest.mark.parametrize(("version", "fields"), [*certificates()])
def test_the_independent_checker_proves_it(version, fields):
    if fields.get("kind", "").startswith(NOT_KNOWN):
        pytest.skip("the checker says that it does not know this event")
    assert ball_checker.prove(json.dumps(fields))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_kind_of_today_is_not_one_of_an_earlier_version(version):
    """Else a certificate could leave out what only later ones assume."""
    fields = json.loads(golden("draw/tangentcells").to_json())
    assert ball_checker.prove(json.dumps(fields))
    later = ("COMPOSITION", "UNIT")
    fields["assumptions"] = [x for x in fields["assumptions"] if x not in later]
    names = (*fields["theorems"], *fields["assumptions"])
    fields["registry"] = registry().seal(names, version)
    text = json.dumps(resealed(fields))
    with pytest.raises(ValueError, match="certificate.theorems must be"):
        dps.verify(KINDS[fields["format"]].from_json(text))
    with pytest.raises(ball_checker.NotProved, match="has no such theorems"):
        ball_checker.prove(text)


def test_the_files_hold_the_kinds_that_are_released_most():
    for version, count in NUM_CERTIFICATES.items():
        assert len(content(version)["certificates"]) == count
    kinds = {fields.get("kind") for fields in content("3")["certificates"]}
    released = {"objective/rounded", "objective/pure/rounded", "steps/full"}
    assert kinds >= released | {"noise/gaussian", "stats/mean", "declared"}


@pytest.mark.parametrize("name", content("3")["answers"])
def test_an_answer_of_an_earlier_version_verifies(name):
    written = json.dumps(content("3")["answers"][name]).encode()
    is_statistic = b"dpsample-statistic" in written
    answer = (parse_statistic if is_statistic else parse_answer)(written, name)
    assert answer.verify().checks and answer.certificate.version == 3
    assert ball_checker.prove(written.decode())


def test_a_ledger_of_an_earlier_version_has_its_total():
    stated = content("3")["ledger"]
    ledger = Ledger.from_json(json.dumps(stated))
    assert len(ledger.entries) == len(content("3")["answers"])
    assert json.loads(ledger.to_json()) == stated
