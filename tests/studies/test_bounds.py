"""Bounds of all studies: what is declared can still be evaluated, in every cell."""

import math

import pytest

from dpsample.experiments.configuration import bundle, load
from dpsample.experiments.run import declared_reasons
from dpsample.experiments.summaries import evaluate
from tests.support.processes import ROOT

STUDIES = sorted(path.stem for path in (ROOT / "studies").glob("[a-z]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_bound_of_a_study_is_a_number(name):
    study = load(bundle(ROOT / "studies", name))
    reasons = declared_reasons(study, quick=False)
    for cell in study.cells():
        evaluate(study.metrics, cell, reasons.get(cell.key, {}))


@pytest.mark.parametrize("name", ["heavy_tails", "mirror_descent", "tnc"])
def test_studies_of_loose_bounds_have_a_baseline(name):
    study = load(bundle(ROOT / "studies", name))
    baseline, params = study.metrics[0].baseline, study.cells()[0].params
    assert isinstance(baseline, str) or 0.0 < baseline(params) < math.inf
