"""HTML forms of objects in notebooks: escaped, short, and without the records."""

import re

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.replicate import Replicates
from dpsample.core import markup
from dpsample.diagnostics.summaries import CheckReport, Finding
from tests.support.golden_certificates import BUDGET, golden, problem
from tests.support.html_pages import HOSTILE, Page

# Longest form, in characters. A screen of a notebook holds about so many.
LONGEST = 9_000


def hostile_problem():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((9, len(HOSTILE)))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return dps.Problem(
        features,
        np.where(features[:, 0] > 0.0, 1.0, -1.0),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        feature_names=list(HOSTILE),
    )


def replicates():
    runs = np.arange(6.0).reshape(3, 2)
    return Replicates(thetas=runs, certificate=golden("steps/full"), values=runs[0])


def check_report():
    findings = [
        Finding(name=words, evidence=words, remedy=words, is_problem=False)
        for words in HOSTILE
    ]
    return CheckReport(
        findings=tuple(findings), looked_at=HOSTILE, skipped=(), false_alarm=3e-4
    )


FORMS = {
    "Problem": hostile_problem,
    "Gibbs": lambda: dps.Gibbs(hostile_problem(), k=2.0, mu=0.5),
    "ExponentialMechanism": lambda: dps.calibrate(hostile_problem(), BUDGET),
    "AdditiveMechanism": lambda: dps.noise.gaussian_mechanism(BUDGET, sensitivity=1.0),
    "Advice": lambda: dps.advise(problem(), BUDGET),
    "CheckReport": check_report,
    "Consistent": lambda: dps.verify(golden("noise/gaussian")),
    "Replicates": replicates,
}


@pytest.mark.parametrize("title", FORMS)
def test_a_form_is_escaped_short_and_whole(title):
    shown = FORMS[title]()._repr_html_()
    page = Page(shown)  # every element is closed
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not any(key.startswith("on") for _, key, _ in page.attributes)
    assert len(shown) < LONGEST and shown.encode()
    assert page.text["caption"][0].startswith(title)
    assert not re.search("[\u202e\u2066\x00]", shown)


def test_a_hostile_name_is_shown_as_text():
    shown = hostile_problem()._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown


def test_the_test_sees_a_form_that_does_not_escape(monkeypatch):
    monkeypatch.setattr(markup.html, "escape", lambda text: text)
    with pytest.raises(AssertionError):
        test_a_form_is_escaped_short_and_whole("Problem")


def test_a_form_holds_nothing_of_the_records():
    known = problem()
    features = dps.datasets.logistic(400, 3, seed=1).features
    numbers = {f"{value:.4f}" for value in features.ravel()[:50]}
    shown = known._repr_html_() + dps.Gibbs(known, k=1.0, mu=1.0)._repr_html_()
    assert not any(number in shown for number in numbers)
