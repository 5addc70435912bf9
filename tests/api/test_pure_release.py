"""Releases at delta = 0: certificates, both checkers, refusals and ledgers."""

from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.api import release_plan
from dpsample.privacy import BoundedRangeEvent, Certificate, Ledger
from dpsample.problem.facts import PublicFacts
from dpsample.samplers import NoCertificate
from dpsample.targets.grid import PublicGrid
from dpsample.verification.ball_checker import NotProved
from tests.support.tiers import usual

L, D = dps.losses, dps.domains
PURE = dps.Budget(epsilon=1.0, delta=0.0)
KITE = D.Polytope([[1, 1], [-1, 2], [0, -1], [-1, -1]], [1.0, 1.0, 0.5, 0.8])
DATA = dps.datasets.logistic(200, 2, seed=1)


def problem_on(domain, loss=None):
    return dps.Problem(
        DATA.features,
        DATA.response,
        loss=loss or L.Logistic(),
        domain=domain,
        row_bound=1.0,
        response_bound=None if loss is None or loss.is_classification else 1.0,
    )


@usual("replace_one-domain0", "zero_out-domain1")
@pytest.mark.parametrize("domain", [D.Ball(1.0), D.Ball(1.0, p=np.inf), KITE])
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_certificates_are_pure_and_verify(domain, relation):
    problem = problem_on(domain)
    answer = dps.release(problem, replace(PURE, relation=relation))
    certificate = answer.certificate
    assert certificate.releasable
    assert certificate.gamma == certificate.delta_exact == 0.0
    assert "1-differentially private (pure)" in certificate.statement
    assert isinstance(certificate.event, BoundedRangeEvent)
    assert 1.0 - 1e-11 < certificate.event.range <= 1.0
    words = " ".join(certificate.words(certificate.assumptions))
    assert "2^-" not in words
    assert "idealized" not in words
    assert "ARITHMETIC" not in certificate.assumptions
    assert Certificate.from_json(certificate.to_json()) == certificate
    dps.verify(certificate)
    if domain is not KITE:  # the other checker has no table of polytopes
        dps.verify(certificate, checker="ball")
    assert domain.contains(answer.theta)
    grid = PublicGrid.from_facts(problem.facts, k=certificate.k, mu=certificate.mu)
    assert grid.holds(answer.theta)


@pytest.mark.parametrize("loss", [L.Hinge(), L.Absolute(), L.Quantile(0.9)])
@pytest.mark.parametrize("domain", [D.Ball(1.0), D.Box(-1.0, 0.5), KITE])
def test_losses_that_are_not_smooth_are_drawn_by_cells(domain, loss):
    problem = problem_on(domain, loss)
    answer = dps.release(problem, PURE)
    certificate = answer.certificate
    assert certificate.sampler.type == "TangentCells"
    assert certificate.releasable
    assert certificate.gamma == certificate.delta_exact == 0.0
    assert "1-differentially private (pure)" in certificate.statement
    assert "ARITHMETIC" not in certificate.assumptions
    dps.verify(certificate)
    if domain is not KITE:  # the other checker has no table of polytopes
        dps.verify(certificate, checker="ball")
    assert domain.contains(answer.theta)
    grid = PublicGrid.from_facts(problem.facts, k=certificate.k, mu=certificate.mu)
    assert grid.holds(answer.theta)
    again = [dps.release(problem, PURE, seed=3).theta for _ in range(2)]
    assert (again[0] == again[1]).all()


def test_cells_of_four_dimensions_are_rejected_by_both_checkers():
    facts = PublicFacts(
        num_records=200,
        dim=4,
        row_bound=1.0,
        row_norm=2.0,
        loss=L.Hinge(),
        domain=D.Ball(1.0),
    )
    certificate = dps.calibrate(facts, PURE).certificate
    forged = certificate.with_sampler(sampler="TangentCells()")
    with pytest.raises(ValueError, match="draws this target"):
        dps.verify(forged)
    with pytest.raises(NotProved, match="more than 3 dimensions"):
        dps.verify(forged, checker="ball")


def forge(loss=None, sampler="Global()", **changes):
    mechanism = dps.calibrate(problem_on(D.Ball(1.0), loss), PURE)
    certificate = mechanism.certificate.with_sampler(sampler=sampler)
    return replace(certificate, **changes, digest="")


@pytest.mark.parametrize("share", [0.5, 1.0 - 1e-9])
@pytest.mark.parametrize("kind", [{}, {"loss": L.Hinge(), "sampler": "TangentCells()"}])
def test_a_smaller_range_of_a_loss_is_rejected(share, kind):
    """With half of the sensitivity k is too large, and mu keeps the other numbers."""
    true = forge(**kind)
    bad = forge(**kind, k=true.k / share, mu=true.mu / share)
    for checker, error in (("standard", ValueError), ("ball", NotProved)):
        with pytest.raises(error):
            dps.verify(bad, checker=checker)
        dps.verify(true, checker=checker)


def test_no_other_sampler_may_be_stated():
    mechanism = dps.calibrate(problem_on(D.Ball(1.0)), PURE)
    for sampler in ("Exact()", "Localized()", "Proximal()"):
        with pytest.raises(ValueError, match=r"must be Global\(\) or TangentCells"):
            mechanism.certificate.with_sampler(sampler=sampler)


def test_log_ratios_of_the_worst_neighbors_attain_epsilon():
    """By quadrature in one dimension: never above epsilon, and near it."""
    rows, x = np.full((20, 1), 1.0), np.linspace(-3.0, 3.0, 40_001)[:, None]
    labels = np.where(np.arange(20) % 2 == 0, 1.0, -1.0)
    logs = []
    for flip in (1.0, -1.0):
        response = np.r_[flip, labels[1:]]
        problem = dps.Problem(
            rows, response, loss=L.Logistic(), domain=D.Ball(3.0), row_bound=1.0
        )
        mechanism = dps.calibrate(problem, PURE)
        target = mechanism.target(problem)
        energy = np.array([target.energy(point) for point in x[::40]])
        weights = np.exp(-energy + energy.min())
        logs.append(np.log(weights / weights.sum()))
    # Half of the range is on either side for these neighbors.
    assert 0.45 < np.abs(logs[0] - logs[1]).max() <= 1.0
    assert 0.49 < np.ptp(logs[0] - logs[1]) <= 1.0


def test_a_seed_gives_the_same_draw_and_no_release():
    problem = problem_on(D.Ball(1.0))
    first, second = (dps.release(problem, PURE, seed=3) for _ in range(2))
    assert (first.theta == second.theta).all()
    assert not first.certificate.releasable
    assert first.nonprivate_diagnostics["decisions"] == "exact"
    many = dps.replicate(dps.release, problem, PURE, num_replicates=2, seed=3)
    assert np.isfinite(many.thetas).all()


@pytest.mark.parametrize("calibration", ["exact", "auto", "range"])
def test_every_calibration_with_a_proof_is_the_range(calibration):
    problem = problem_on(D.Ball(1.0))
    mechanism = dps.calibrate(problem, PURE, calibration=calibration)
    assert mechanism.calibration == "range"
    assert mechanism == dps.calibrate(problem, PURE, calibration="range")


def test_global_draws_pay_no_gamma_at_larger_delta():
    problem = problem_on(D.Ball(1.0))
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    answer = dps.release(problem, budget, sampler=dps.samplers.Global(), seed=1)
    assert answer.certificate.registered.exact
    dps.verify(answer.certificate)
    dps.verify(answer.certificate, checker="ball")


@pytest.mark.parametrize(
    ("domain", "loss", "options", "reason"),
    [
        (
            D.Ball(1.0),
            L.Hinge(),
            {"sampler": dps.samplers.Global()},
            "no bounded curvature",
        ),
        (D.Ball(1.0, p=1.0), L.Hinge(), {}, "neither an l2 ball"),
        (D.Ball(1.0, p=1.0), None, {}, "neither an l2 ball"),
        (D.Simplex(), None, {}, "neither an l2 ball"),
        (D.Ball(1.0), None, {"p": 1.5}, "use p = 2"),
        (
            D.Ball(1.0),
            None,
            {"sampler": dps.samplers.Localized()},
            "use dps.samplers.Global",
        ),
        (
            D.Ball(1.0),
            None,
            {"sampler": dps.samplers.Proximal()},
            "use dps.samplers.Global",
        ),
    ],
)
def test_targets_without_a_proof_are_rejected_by_public_facts(
    domain, loss, options, reason
):
    with pytest.raises(NoCertificate, match=reason):
        dps.release(problem_on(domain, loss), PURE, **options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_work": 10.0}, "max_work must be None at delta = 0"),
        ({"deadline": 10.0}, "deadline must be None at delta = 0"),
        ({"constant_time": True}, "constant_time must be False at delta = 0"),
        ({"calibration": "closed_form"}, "budget.delta must be > 0"),
        ({"strong_convexity": 0.1}, "strong_convexity must be 0"),
        ({"confidence": 0.9}, "confidence must be None"),
    ],
)
def test_options_with_an_error_are_rejected(options, reason):
    with pytest.raises(ValueError, match=reason):
        dps.release(problem_on(D.Ball(1.0)), PURE, **options)


def test_unbounded_domains_are_rejected():
    facts = PublicFacts(
        num_records=10,
        dim=2,
        row_bound=1.0,
        row_norm=2.0,
        loss=L.Logistic(),
        domain=D.WholeSpace(),
    )
    with pytest.raises(ValueError, match="domain must be bounded"):
        dps.calibrate(facts, PURE)


def test_ledgers_of_pure_releases_stay_pure():
    problem = problem_on(D.Ball(1.0))
    ledger = Ledger(budget=dps.Budget(epsilon=2.0, delta=0.0))
    for _ in range(2):
        dps.release(problem, PURE, ledger=ledger)
    assert ledger.delta(epsilon=2.0) == 0.0
    with pytest.raises(ValueError, match="ledger"):
        dps.release(problem, dps.Budget(epsilon=0.1, delta=0.0), ledger=ledger)


HUBER = L.Huber(0.5)


def problem_of(num_records, dim, radius, loss=HUBER):
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    response = np.clip(rows[:, 0] + 0.1 * rng.standard_normal(num_records), -1.0, 1.0)
    return dps.Problem(
        rows,
        np.sign(response) if loss.is_classification else response,
        loss=loss,
        domain=D.Ball(radius),
        row_bound=1.0 + 1e-9,
        response_bound=1.0,
    )


def test_global_draws_at_larger_delta_are_made_by_name():
    """It saves thousands of passes here, but no public fact says where it does."""
    budget = dps.Budget(epsilon=0.37, delta=1e-6)
    problem = problem_of(10_000, 20, 10.0)
    target = dps.calibrate(problem, budget).target(problem)
    chosen = release_plan._choose_sampler(None, target, is_pure=False)
    assert isinstance(chosen, dps.samplers.Localized)
    answer = dps.release(problem, budget, sampler=dps.samplers.Global())
    assert answer.certificate.sampler.type == "Global"
    assert answer.nonprivate_diagnostics["counts"]["candidates"] < 1000
    dps.verify(answer.certificate)
    dps.verify(answer.certificate, checker="ball")


@pytest.mark.parametrize("loss", [L.Absolute(), L.Quantile(0.75)])
def test_public_facts_choose_cells_at_larger_delta(loss):
    def favors(num_records, dim, radius, epsilon=0.3, loss=loss):
        budget = dps.Budget(epsilon=epsilon, delta=1e-6)
        problem = problem_of(num_records, dim, radius, loss)
        target = dps.calibrate(problem, budget).target(problem)
        return release_plan.favors_cells(target)

    budget = dps.Budget(epsilon=0.3, delta=1e-6)
    answer = dps.release(problem_of(10_000, 1, 3.0, loss), budget)
    assert answer.certificate.sampler.type == "TangentCells"
    assert answer.certificate.budget.delta == 1e-6 and answer.certificate.releasable
    dps.verify(answer.certificate)
    dps.verify(answer.certificate, checker="ball")
    assert favors(10_000, 1, 3.0)
    # Each condition decides.
    assert not favors(9_999, 1, 3.0)
    assert not favors(10_000, 2, 3.0)
    assert not favors(10_000, 1, 0.5)
    assert not favors(10_000, 1, 3.0, 20.0)
    assert not favors(10_000, 1, 3.0, loss=L.Hinge())
    assert not favors(10_000, 1, 3.0, loss=HUBER)
