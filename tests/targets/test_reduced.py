"""Draws on equalities have the law of the quadrature; releases are certified."""

from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.targets import reduced as module
from tests.support.localized_laws import LocalCase, line_levels
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import usual

L, D = dps.losses, dps.domains
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
DIRECTIONS = ([1.0, -1.0, 0.0], [1.0, 1.0, -2.0])


def simplex(dim):
    return D.Polytope(-np.eye(dim), np.zeros(dim), np.ones((1, dim)), [1.0])


def case(loss):
    rng = np.random.default_rng(4)
    rows, ones = rng.standard_normal((6, 3)), np.ones(6)
    offset = np.linspace(-1.0, 1.0, 6)
    return LocalCase(loss, D.Simplex(), rows, ones, 60.0, 0.3, offset=offset)


def with_equalities(given, response_bound=1.0, **options):
    problem = dps.Problem(
        given.rows,
        given.response,
        loss=given.loss,
        domain=simplex(3),
        row_bound=10.0,
        offset=given.offset,
        offset_bound=1.0,
        response_bound=response_bound,
    )
    return dps.Gibbs(problem, k=given.k, mu=given.mu, **options)


def draws_of(target, num_draws=2_000):
    tree = dps.sample(target, num_draws=num_draws, num_chains=2, seed=5, progress=False)
    assert tree.attrs["exactness"] == "iid"
    energies = -tree.sample_stats["lp"].to_numpy().ravel()
    return tree.posterior["theta"].to_numpy().reshape(-1, 3), energies


@usual("loss0")
@pytest.mark.parametrize("loss", [L.Logistic(), L.Hinge()])
def test_draws_have_the_law_of_the_simplex(loss, monkeypatch):
    given = case(loss)
    target = with_equalities(given)
    points, energies = draws_of(target)
    assert all(target.domain.contains(point) for point in points)
    assert energies[7] == pytest.approx(target.energy(points[7]))
    for direction in DIRECTIONS:
        assert_law(line_levels(given, points, direction), lambda u: u)

    def without_offset(given):
        found = module.reduce(given)
        data = found.target.problem.data
        wrong = dps.Problem(
            data.dense,
            data.response,
            loss=loss,
            domain=found.target.domain,
            row_bound=10.0,
        )
        regularizer = found.target.regularizer
        changed = dps.Gibbs(wrong, k=given.k, mu=given.mu, regularizer=regularizer)
        return replace(found, target=changed)

    monkeypatch.setattr("dpsample.api.sample.reduce", without_offset)
    wrong, _ = draws_of(target, 500)
    with rejected():
        for direction in DIRECTIONS:
            assert_law(line_levels(given, wrong, direction), lambda u: u)


def test_energies_are_those_of_the_whole_target():
    rng = np.random.default_rng(6)
    center = np.array([0.5, 2.0, -1.0])
    target = with_equalities(
        case(L.Logistic()), regularizer=dps.regularizers.SquaredNorm(center=center)
    )
    found = module.reduce(target)
    for point in rng.dirichlet(np.ones(3), 5):
        below = found.target.energy(found.drop(point))
        assert below + found.shift == pytest.approx(target.energy(point), rel=1e-12)
        np.testing.assert_allclose(found.lift(found.drop(point)), point, atol=1e-12)


def test_energies_of_responses_beyond_all_margins_are_those_of_the_whole_target():
    rng = np.random.default_rng(6)
    given = case(L.Absolute())
    far = replace(given, response=np.array([1e5, -2e5, 0.3, 3e5, -0.1, 1e4]))
    problem = with_equalities(far, response_bound=1e6)
    found = module.reduce(problem)
    for point in rng.dirichlet(np.ones(3), 5):
        below = found.target.energy(found.drop(point))
        assert below + found.shift == pytest.approx(problem.energy(point), rel=1e-12)


def test_draws_on_equalities_are_not_called_draws_on_the_boundary():
    target = with_equalities(case(L.Logistic()))
    draws = dps.sample(target, num_draws=1_000, seed=5, progress=False)
    report = dps.diagnostics.check(draws, target)
    assert "boundary" not in repr(report), report


def test_effective_sizes_are_those_of_coefficients_that_move():
    """One is fixed, and counts for nothing."""
    fixed = D.Polytope(
        np.vstack([np.eye(3), -np.eye(3)]), np.full(6, 2.0), [[1.0, 0, 0]], [1 / 3]
    )
    rows = np.random.default_rng(1).uniform(-0.5, 0.5, (20, 3))
    problem = dps.Problem(
        rows, np.ones(20), loss=L.Logistic(), domain=fixed, row_bound=1.0
    )
    target = dps.Gibbs(problem, k=20.0, mu=0.1)
    options = {"num_draws": 100, "seed": 1, "progress": False}
    walk = dps.samplers.HitAndRun()
    tree = dps.sample(target, sampler=walk, target_ess=500.0, **options)
    assert tree.attrs["is_target_ess_reached"]
    assert tree.posterior.sizes["draw"] < 10_000
    assert "too few" not in repr(dps.diagnostics.check(tree, target))
    # One that never moved though it could is told, with and without a target.
    stuck = tree.copy(deep=True)
    stuck.posterior["theta"].values[..., 1] = 0.25
    for given in ((stuck, target), (stuck,)):
        assert "too few" in repr(dps.diagnostics.check(*given))


def public(domain, loss):
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((400, 4))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(rows @ [2.0, 1.0, -1.0, 0.0] > 0.0, 1.0, -1.0)
    return dps.Problem(rows, labels, loss=loss, domain=domain, row_bound=1.0)


CUT = D.Polytope(
    np.vstack([np.eye(4), -np.eye(4)]),
    np.ones(8),
    [[1, 1, 0, 0], [0, 1, -2, 3]],
    [0.3, 0.1],
)


@pytest.mark.parametrize("domain", [simplex(4), CUT, D.Simplex()])
@pytest.mark.parametrize(
    ("loss", "method"), [(L.Logistic(), "rejection"), (L.Hinge(), "proximal")]
)
def test_releases_are_certified(domain, loss, method, tmp_path):
    problem = public(domain, loss)
    answer = dps.release(problem, BUDGET)
    assert answer.nonprivate_diagnostics["method"] == method
    assert domain.contains(answer.theta) and answer.certificate.releasable
    dps.verify(answer.certificate)
    answer.save(tmp_path / "answer.json")
    assert dps.Release.load(tmp_path / "answer.json").certificate == answer.certificate
    again = dps.release(problem, BUDGET, sampler=dps.Proximal())
    assert domain.contains(again.theta)


def test_what_cannot_be_reduced_is_refused_by_public_facts():
    with pytest.raises(dps.NoCertificate, match="not quadratic.*p = 2"):
        dps.release(public(CUT, L.Logistic()), BUDGET, p=1.5)
    norm = dps.regularizers.SquaredNorm(1.5)
    target = dps.Gibbs(public(CUT, L.Logistic()), k=10.0, mu=0.1, regularizer=norm)
    is_supported, reason = dps.samplers.MALA().supports(target)
    assert not is_supported and "not quadratic" in reason


def test_samplers_support_what_they_draw_from_in_free_coordinates():
    target = with_equalities(case(L.Logistic()))
    for name in ("Exact", "Localized", "HitAndRun", "Proximal"):
        sampler = getattr(dps.samplers, name)()
        is_supported, reason = sampler.supports(target)
        assert is_supported == sampler.supports(module.reduce(target).target)[0], reason
        with pytest.raises(ValueError, match="domain must be without equalities here"):
            sampler.require(target)
