"""Pages about certificates: whole, safe, readable by machines, at any width."""

import base64
import dataclasses
import itertools
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import dpsample as dps
from dpsample.answers.answer import Release
from dpsample.privacy import Certificate, EventCertificate
from dpsample.privacy.certificates.registry import registry
from tests.support.golden_certificates import GOLDEN, golden
from tests.support.html_pages import HOSTILE, Page
from tests.support.public_facts import final, logistic_facts
from tests.support.tiers import one_in, slow, usual

INSIDE = "data:application/json;base64,"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def checked(source):
    """The page, after all that holds of every page."""
    page = Page(source)
    assert source.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
    assert not any(key.startswith("on") for _, key, _ in page.attributes)
    assert len(set(page.of("id"))) == len(page.of("id"))
    assert set(page.of("aria-labelledby")) <= set(page.of("id"))
    assert all(
        link.startswith("data:application/json;base64,") for link in page.of("href")
    )
    assert "src" not in {key for _, key, _ in page.attributes}
    assert "url(" not in source and "@import" not in source
    headings = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(headings))
    assert page.tags.count("th") == len(page.of("scope"))
    assert page.tags.count("table") == page.tags.count("caption")
    return page


def release(names, values=None):
    facts = logistic_facts(dim=len(names), domain=dps.domains.Ball(9.0))
    values = (
        np.linspace(-1.0, 2.0, len(names)) / len(names) if values is None else values
    )
    certificate = final(facts, sampler_share=0.1)
    values = np.round(256.0 * values) / 256.0  # on the public grid
    return Release(theta=values, certificate=certificate, feature_names=tuple(names))


@usual("noise/gaussian]")
@pytest.mark.parametrize("kind", GOLDEN)
def test_there_is_a_page_about_every_kind_of_certificate(kind):
    certificate = dataclasses.replace(golden(kind))  # made here, and not read
    page = checked(certificate.to_html())
    told = " ".join(" ".join(page.text["p"]).split())
    assert certificate.statement in " ".join(page.text["td"])
    assert ("✔ May be published if" in told) == certificate.releasable
    assert ("Not for publication" in told) != certificate.releasable
    assert ("No protection is proved." in told) == (certificate.event is None)
    assert ("svg" in page.tags) == (certificate.event is not None)
    Page(certificate._repr_html_())


def test_there_is_a_page_where_delta_alone_is_proved():
    budget = dps.Budget(epsilon=1e-6, delta=1e-6)
    made = dps.noise.laplace_mechanism(budget, sensitivity=1.0).certificate
    assert made.epsilon_proved == 0.0 and checked(made.to_html())


def test_the_page_holds_the_file_that_verifies(tmp_path):
    answer = release(["age", "cost"])
    for source, kind in ((answer, Release), (answer.certificate, Certificate)):
        (link,) = checked(source.to_html()).of("href")
        file = tmp_path / "inside.json"
        file.write_bytes(base64.b64decode(link.partition(",")[2]))
        assert file.read_text() == source.to_json()
        if kind is Release:
            Release.load(file).verify()


def test_the_page_shows_the_bounds_of_attacks_and_the_assumptions():
    certificate = final()
    page = checked(certificate.to_html())
    assert "10%" in page.text["th"]
    numbers = " ".join(page.text["td"]) + " ".join(page.text["p"])
    for line in str(certificate.attack_risk).splitlines()[1:]:
        if "minus" not in line:
            assert line.split()[-1] in numbers
    told = " ".join(page.text["li"])
    for n in ("BITS", "PUBLIC", "COMPOSITION"):
        assert registry().confirm[n].format(released="coefficients") in told
    for words in registry().words(certificate.assumptions):
        assert words in " ".join(page.text["td"])


def test_every_assumption_is_confirmed_or_excluded_or_settled():
    known = registry()
    plain = (known.confirm, known.excluded, known.settled)
    assert {name for table in plain for name in table} == {*known.assumptions}
    assert not known.settled.keys() & {*known.confirm, *known.excluded}
    for table in plain:
        assert max(len(words) for words in table.values()) < 300


def test_hostile_names_are_shown_and_do_nothing():
    source = release(HOSTILE).to_html()
    page = checked(source)
    shown = page.text["bdi"]
    assert shown[:3] == list(HOSTILE[:3]) and shown[4] == HOSTILE[4]
    assert shown[3].endswith(r"\u202e\u2066 abc\u2069")
    assert shown[5] == r"\x00\x1b[31m\ud800"
    assert shown[6] == "x" * 120 + "… (10000 characters)"
    assert "evil.example" not in "".join(map(str, page.of("href")))
    source.encode()  # no lone surrogates
    Page(release(HOSTILE)._repr_html_())


@pytest.mark.slow
def test_many_coefficients_are_all_listed_and_the_largest_come_first():
    values = np.zeros(500)
    values[[7, 400]] = 1.5, -2.5
    page = checked(release([f"f{j}" for j in range(500)], values).to_html())
    names = page.text["bdi"]
    assert {"f7", "f400"} < set(names[:12])
    assert names[12:] == [f"f{j}" for j in range(500)]


@pytest.mark.slow
def test_one_zero_and_a_nested_event_have_pages():
    checked(release(["only"], np.zeros(1)).to_html())
    event = dps.privacy.NearEvent(dps.privacy.PureEvent(0.1), 1e-9)
    budget = dps.Budget(epsilon=500.0, delta=1e-280)
    declared = {"mechanism": "mine", "budget": budget, "calibration": "paper"}
    checked(EventCertificate.of(**declared, event=event).to_html())


@one_in(3)
@pytest.mark.parametrize(
    "epsilon", [0.125, 0.12499999999999999, 1.2499999999999998e-300]
)
def test_budgets_whose_axis_ends_at_powers_of_ten_have_pages(epsilon):
    budget = dps.Budget(epsilon=epsilon, delta=1e-6)
    checked(final(logistic_facts(), budget=budget).to_html())


def test_no_page_says_what_a_changed_certificate_says():
    given = json.loads(golden("noise/gaussian").to_json()) | {"epsilon_proved": 0.01}
    changed = EventCertificate.from_json(json.dumps(given))
    with pytest.raises(ValueError, match="^digest must be .*The certificate was chang"):
        changed.to_html()
    assert "May be published" not in changed._repr_html_()
    assert "✘ Not for publication: the certificate was" in changed._repr_html_()


@pytest.mark.slow
def test_a_page_about_a_file_says_that_nobody_has_verified_it():
    text = golden("noise/gaussian").to_json()
    certificate = EventCertificate.from_json(text)
    for shown in (certificate.to_html(), certificate._repr_html_()):
        assert "⚠ Not verified: " in shown and "May be published" not in shown
    dps.verify(certificate)
    for shown in (certificate.to_html(), certificate._repr_html_()):
        assert "✔ May be published if" in shown and "Not verified" not in shown


def test_no_page_is_about_an_answer_that_does_not_verify():
    """Whoever edits a certificate can seal it again."""
    answer = release(["only"], np.zeros(1))
    edited = dataclasses.replace(answer.certificate, gdp=0.01, digest="")
    forged = dataclasses.replace(answer, certificate=edited, digest="")
    with pytest.raises(ValueError, match=r"^certificate\.gdp must be .*do not trust"):
        forged.to_html()


WIDTHS = """<!DOCTYPE html><body style="margin:0"><iframe id="page" src="page.html"
style="border:0;width:{width}px;height:900px"></iframe><pre id="found"></pre>
<script>onload = () => {{
  const page = document.getElementById("page").contentDocument;
  const texts = [...page.querySelectorAll("svg text")];
  const overlap = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  const boxes = texts.map(t =>
    [t.closest("svg"), t.getBoundingClientRect(), t.textContent]);
  const pairs = boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b => a[0] === b[0]
    && overlap(a[1], b[1])).map(b => a[2] + "/" + b[2]));
  document.getElementById("found").textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth, overlaps: pairs,
    smallest: Math.min(...boxes.map(b => b[1].height))}});
}}</script>"""


@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [390, slow(768), slow(1366)])
def test_a_page_fits_its_window_and_no_words_overlap(width, tmp_path):
    (tmp_path / "page.html").write_text(release(HOSTILE).to_html(), encoding="utf-8")
    (tmp_path / "frame.html").write_text(WIDTHS.format(width=width))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    profile = [f"--user-data-dir={tmp_path}/profile", "--allow-file-access-from-files"]
    place = (tmp_path / "frame.html").as_uri()
    command = [BROWSER, *options, *profile, "--window-size=1400,900", place]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600.0, check=True
    )
    found = json.loads(re.search(r'id="found">(.*?)</pre>', done.stdout).group(1))
    assert found["width"] <= width
    assert found["overlaps"] == []
    assert found["smallest"] >= 11.0


def printed_pages(source, folder):
    """Number of sheets of A4 on which Chromium prints a page."""
    page, pdf = folder / "page.html", folder / "page.pdf"
    page.write_text(source, encoding="utf-8")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
    command += [f"--print-to-pdf={pdf}", page.as_uri()]
    subprocess.run(command, capture_output=True, timeout=600.0, check=True)
    (count,) = re.findall(rb"/Type /Pages.*?/Count (\d+)", pdf.read_bytes(), re.DOTALL)
    return int(count)


@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_a_page_prints_on_one_sheet_with_all_its_statements(tmp_path):
    answer = release([f"feature {j}" for j in range(20)])
    stated = dict.fromkeys(registry().screen["publisher"], "some words " * 8)
    source = answer.to_html(publisher=stated)
    assert printed_pages(source, tmp_path) == 1
    assert printed_pages(source.replace("details:not([open])", ".x"), tmp_path) > 1
