"""Bounds of all studies: what is declared can still be evaluated, in every cell."""

import math

import pytest

from dpsample.experiments.configuration import bundle, load
from dpsample.experiments.run import declared_reasons
from dpsample.experiments.summaries import evaluate
from studies import _convex_methods as methods
from studies import printed_sgd
from tests.support.processes import ROOT

STUDIES = sorted(path.stem for path in (ROOT / "studies").glob("[a-z]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_bound_of_a_study_is_a_number(name):
    study = load(bundle(ROOT / "studies", name))
    reasons = declared_reasons(study, quick=False)
    for cell in study.cells():
        evaluate(study.metrics, cell, reasons.get(cell.key, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heavy_tails", "mirror_descent", "tnc"])
def test_studies_of_loose_bounds_have_a_baseline(name):
    study = load(bundle(ROOT / "studies", name))
    baseline, params = study.metrics[0].baseline, study.cells()[0].params
    assert isinstance(baseline, str) or 0.0 < baseline(params) < math.inf


def test_studies_of_bassily_compare_with_the_published_bounds():
    """At the largest epsilon that the theorems state, and at no larger one."""
    facts = printed_sgd.facts("linear", 2000, 5)
    unit = methods.radius(facts) * facts.lipschitz(2.0)
    rate = max(math.sqrt(5.0 * math.log(1.0 / methods.DELTA)) / 2000.0, 2000**-0.5)
    assert methods.noisy_gd(facts, 1.0).printed == pytest.approx(10.0 * unit * rate)
    assert math.isinf(methods.noisy_gd(facts, 1.5).printed)
    assert methods.run_perturbed_objective(facts, 1.0).printed < math.inf
