"""The verb `minimize`: seeds, certificates, refusals, interrupts, traces."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import TRACE_POINTS
from tests.support.ctrl_c import press_at_call
from tests.support.descent_problems import problem
from tests.support.probe_methods import BUDGET, GDP, METHOD, Probe
from tests.support.processes import run_python


def minimize(**changes):
    arguments = {"problem": problem(), "optimizer": METHOD, "budget": BUDGET}
    return dps.minimize(**(arguments | changes))


@pytest.mark.parametrize("epsilon", [700.0, 1000.0, 1e6])
def test_epsilon_beyond_what_is_accounted_for_is_told(epsilon):
    budget = dps.Budget(epsilon=epsilon, delta=1e-6)
    for optimizer in (dps.optimizers.NoisyGD(), dps.optimizers.ObjectivePerturbation()):
        with pytest.raises(ValueError, match="must be <= 600, got .* Accounting ends"):
            minimize(optimizer=optimizer, budget=budget)


def test_a_seed_reproduces_a_run_and_forbids_its_release():
    first, second, other = (minimize(seed=seed) for seed in (4, 4, 5))
    assert np.array_equal(first.theta, second.theta)
    assert not np.array_equal(first.theta, other.theta)
    assert first.certificate == second.certificate
    assert first.certificate.seeded and not first.certificate.releasable


def test_a_seed_sequence_can_be_used_again():
    root = np.random.SeedSequence(9)
    assert np.array_equal(minimize(seed=root).theta, minimize(seed=root).theta)


def test_without_a_seed_the_answer_is_fresh_and_releasable():
    first, second = minimize(), minimize()
    assert not np.array_equal(first.theta, second.theta)
    assert first.certificate.releasable and first.certificate == second.certificate


def test_the_certificate_is_verified_and_names_the_public_facts():
    fit = minimize(problem=problem(clip_rows=True))
    assert dps.verify(fit.certificate).checks
    assert fit.certificate.facts == problem().facts
    assert "RECORDS.CLIPPED" in fit.certificate.assumptions
    assert "RECORDS.REFUSED" in minimize().certificate.assumptions


def test_without_a_budget_there_is_neither_noise_nor_a_certificate():
    first = minimize(
        budget=None, optimizer=dps.optimizers.ClippedGD(num_steps=5, clip=1.0), seed=1
    )
    second = minimize(
        budget=None, optimizer=dps.optimizers.ClippedGD(num_steps=5, clip=1.0), seed=2
    )
    assert first.certificate is None
    assert np.array_equal(first.theta, second.theta)
    assert "no privacy" in repr(first) and first._repr_html_() is None


def test_an_answer_outside_of_the_domain_does_not_verify():
    fit = minimize()
    assert fit.verify().checks
    with pytest.raises(ValueError, match="theta must be in the domain"):
        replace(fit, theta=1e3 * fit.theta, digest="").verify()


def test_what_is_not_proved_is_refused_before_the_run():
    with pytest.raises(ValueError, match="privacy proof.*This is not proved here. Use"):
        minimize(optimizer=Probe(gdp=None, num_steps=10**9))
    with pytest.raises(ValueError, match="event must be"):
        minimize(optimizer=Probe(gdp=1.01 * GDP, num_steps=10**9))


def test_paper_calibration_states_what_is_true():
    loud = minimize(optimizer=Probe(gdp=3.0), calibration="paper").certificate
    assert loud.epsilon_proved > BUDGET.epsilon and not loud.releasable
    silent = minimize(optimizer=Probe(gdp=None), calibration="paper").certificate
    assert math.isinf(silent.epsilon_proved) and not silent.releasable
    assert "No epsilon is proved" in silent.statement


def test_the_class_of_an_optimizer_is_not_an_optimizer():
    with pytest.raises(ValueError, match=r"Call it: dps.optimizers.DPSGD\(...\)"):
        minimize(optimizer=dps.optimizers.DPSGD)


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_runs_in_one_thread():
    Probe.calls.clear()
    minimize(optimizer=Probe())
    assert Probe.calls == ["exact 1"]


def test_the_trace_is_the_risk_on_the_evaluation_data():
    p, public = problem(), problem(num_records=31)
    fit = minimize(problem=p, evaluation=public, seed=3)
    assert fit.trace["risk"].shape == (TRACE_POINTS + 1,)
    assert fit.trace["risk"][-1] == public.risk(fit.theta)
    assert fit.trace["num_gradients"][-1] == fit.num_gradients
    assert np.array_equal(fit.theta, minimize(problem=p, seed=3).theta)
    ledger = dps.privacy.Ledger()
    with pytest.raises(ValueError, match="evaluation must be a problem of 3 param"):
        minimize(evaluation=problem(dim=2), ledger=ledger)
    assert ledger.entries == ()  # nothing was drawn


def test_a_run_of_few_steps_has_a_trace_of_few_points():
    method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=3)
    public = problem(num_records=31)
    fit = minimize(optimizer=method, evaluation=public, seed=3)
    assert np.isfinite(fit.trace["risk"]).all()
    assert len(set(fit.trace["num_gradients"])) == 3


def test_names_of_coefficients_travel():
    fit = minimize(problem=problem(feature_names=["age", "cost", "sex"]))
    assert fit.feature_names == ("age", "cost", "sex")


def test_progress_needs_a_terminal(capfd):
    minimize(progress=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_ctrl_c_ends_a_long_run_at_once_and_returns_nothing(budget, monkeypatch):
    minimize(optimizer=Probe(), budget=budget)  # compiles
    press_at_call(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt, match="Nothing is returned") as caught:
        minimize(optimizer=Probe(num_steps=10**9), budget=budget)  # an hour
    # Neither the cause nor the context brings the state of the run along.
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


INTERPRETED = """
import dpsample as dps
from tests.support.descent_problems import problem
from tests.support.probe_methods import BUDGET, METHOD
for method in (METHOD, dps.optimizers.ObjectivePerturbation()):
    print(*dps.minimize(problem(), method, BUDGET, seed=1).theta)
print(*dps.release(problem(), BUDGET, seed=1).theta)
"""


@pytest.mark.slow
def test_interpreted_verbs_answer_the_same():
    """As a debugger runs them."""
    plain, compiled = (
        np.array(run_python(INTERPRETED, **given)[0].split(), dtype=float)
        for given in ({"NUMBA_DISABLE_JIT": "1"}, {})
    )
    np.testing.assert_allclose(plain, compiled, rtol=1e-9)
