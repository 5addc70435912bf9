"""Unbiased moments with exact values beside them, and couplings with planted bugs."""

from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.diagnostics import unbiased_moments
from dpsample.diagnostics.couplings import coupled_steps
from dpsample.diagnostics.couplings.coupled_steps import compile_pair
from dpsample.samplers import MALA, BallWalk, Proximal, RandomWalk
from dpsample.samplers.metropolis import random_walk
from tests.support.biased_draws import Planted
from tests.support.coupling_mutants import walk_with_common_noise
from tests.support.exact_mixing import standard_normal
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES
from tests.support.statistics import spend


def plain():
    """Options of a check, whose level is spent."""
    return {"replicates": 200, "seed": 121, "false_alarm": spend(is_exact=False)}


@pytest.mark.parametrize(
    ("case_name", "sampler", "reference"),
    [
        ("hinge", RandomWalk(step_size=2.0), "quadrature"),
        pytest.param(
            "squared on the plane", MALA(), "closed form", marks=pytest.mark.slow
        ),
        pytest.param(
            "linear on a box", RandomWalk(), "closed form", marks=pytest.mark.slow
        ),
        pytest.param(
            "logistic on a ball", Proximal(), "quadrature", marks=pytest.mark.slow
        ),
    ],
)
def test_moments_agree_with_exact_values_and_a_wrong_k_is_seen(
    case_name, sampler, reference
):
    target = CASES[case_name].target
    found = unbiased_moments(target, sampler, **plain())
    assert found.ok and found.reference == reference
    assert found.limit > 5.0 and len(found.exact) == 2
    wrong = dps.Gibbs(target.problem, k=0.3 * target.k, mu=target.mu)
    biased = unbiased_moments(wrong, sampler, **plain())
    exact, errors = found.exact, biased.moments.standard_errors
    rows = zip(biased.moments.estimates, exact, errors, strict=True)
    scores = tuple((e - x) / s for e, x, s in rows)
    assert not replace(found, moments=biased.moments, z_scores=scores).ok


@pytest.mark.slow
def test_a_coupling_that_changes_the_law_of_one_chain_is_seen(monkeypatch):
    target = standard_normal(1)
    honest = coupled_steps.COUPLINGS[random_walk.run]
    options = plain() | {"replicates": 3000, "lag": 1, "burn_in": 0, "num_draws": 1}
    options |= {"init": [2.0]}
    sampler = RandomWalk(step_size=2.0)
    assert unbiased_moments(target, sampler, **options).ok
    bug = compile_pair(walk_with_common_noise)
    mutant = replace(honest, run=bug)
    monkeypatch.setitem(coupled_steps.COUPLINGS, random_walk.run, mutant)
    assert not unbiased_moments(target, sampler, **options).ok


@pytest.mark.slow
def test_functions_of_the_user_are_integrated_by_quadrature():
    target = CASES["logistic on a ball"].target

    def product(draws):
        return draws[:, 0] * draws[:, 1]

    options = plain() | {"replicates": 100}
    found = unbiased_moments(target, MALA(), moments=("theta", product), **options)
    points, weights = CASES["logistic on a ball"].law
    assert found.exact[1] == pytest.approx(weights @ product(points), abs=1e-3)
    assert found.ok and "product[0]" in repr(found)


def test_without_an_exact_value_there_is_no_verdict():
    target = example(dps.losses.Logistic(), dps.domains.Ball(1.0), dim=3).target
    found = unbiased_moments(target, MALA(), replicates=20, seed=122)
    assert found.reference == "not known" and found.exact == (None, None)
    assert "no exact value to compare with" in repr(found)
    assert np.isnan(found.z_scores[0]).all()


@pytest.mark.slow
def test_report_shows_exact_values_beside_estimates():
    found = unbiased_moments(standard_normal(1), MALA(), replicates=50, seed=123)
    text = repr(found)
    assert "exact values: closed form" in text and "exact 1, z" in text
    assert "not a privacy proof" in text and max(map(len, text.splitlines())) <= 88
    off = replace(found, z_scores=tuple(z + 99.0 for z in found.z_scores))
    assert not off.ok and "NOT the target's moments" in repr(off)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": BallWalk(step_size=1.0)}, "one that has a coupling"),
        ({"sampler": Planted(inner=MALA())}, "prepared for the target"),
        ({"target": 3}, "target must be"),
        ({"lag": 0}, "lag must be"),
        ({"burn_in": -1}, "burn_in must be"),
        ({"num_draws": 0}, "num_draws must be"),
        ({"moments": ("variance",)}, "moments must be"),
        ({"false_alarm": 0.0}, "false_alarm must be"),
        ({"max_steps": 0}, "max_steps must be"),
    ],
)
def test_malformed_arguments_are_refused(change, message):
    options = {"target": standard_normal(1), "sampler": MALA(step_size=0.5)}
    options |= {"replicates": 3, "lag": 2} | change
    with pytest.raises(ValueError, match=message):
        unbiased_moments(**options)
