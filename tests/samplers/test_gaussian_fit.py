"""The Gaussian fit is close to the target where it can be, and never outside."""

import numpy as np
import pytest
from numba import njit

import dpsample as dps
from dpsample.samplers import gaussian_fit
from tests.support.sampler_grid import DOMAINS, LOSSES, TARGETS, grid_case
from tests.support.tiers import one_in

L, D = dps.losses, dps.domains


def problem_of(loss, *, num_records=2_000, dim=3, domain=None, seed=1):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_records, dim)) / np.sqrt(dim)
    signal = rows @ np.array([1.0, -0.5, 0.2])[:dim] + 0.4 * rng.normal(size=len(rows))
    response = np.where(signal > 0.0, 1.0, -1.0)
    return dps.Problem(
        rows,
        response if loss.name in ("logistic", "hinge") else np.tanh(signal),
        loss=loss,
        domain=D.WholeSpace() if domain is None else domain,
        row_bound=10.0,
        response_bound=1.0,
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_center_and_covariance_are_those_of_the_law_on_the_plane(loss):
    case = grid_case("whole space", loss)
    points, weights = case.law
    mean = weights @ points
    covariance = (points - mean).T @ ((points - mean) * weights[:, None])
    found = gaussian_fit.fit(case.target)
    offset = found.whiten @ (found.center - mean)
    assert np.linalg.norm(offset) < 0.3
    ratios = np.linalg.eigvalsh(found.whiten @ covariance @ found.whiten.T)
    assert 0.6 < ratios.min() and ratios.max() < 1.6


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_with_many_records_the_fit_is_within_ten_percent(loss):
    """Against the exact sampler's draws in two dimensions, hinge and absolute too."""
    problem = problem_of(LOSSES[loss], dim=2)
    target = dps.Gibbs(problem, k=2_000.0, mu=0.01)
    prepared = dps.samplers.Exact().prepare(target, np.random.default_rng(1))
    draws, stats = np.empty((20_000, 2)), np.empty((20_000, 5))
    prepared.runner()(prepared.init(), np.random.default_rng(2), draws, stats)
    found = gaussian_fit.fit(target)
    offset = found.whiten @ (found.center - draws.mean(0))
    assert np.linalg.norm(offset) < 0.1
    ratios = np.linalg.eigvalsh(found.whiten @ np.cov(draws.T) @ found.whiten.T)
    # The draws' own error is 0.05 at the level of the suite.
    assert 0.85 < ratios.min() and ratios.max() < 1.15


@one_in(5)
@pytest.mark.parametrize(("domain", "loss"), TARGETS)
def test_factor_and_whiten_are_inverse_and_the_center_is_inside(domain, loss):
    target = grid_case(domain, loss).target
    found = gaussian_fit.fit(target)
    rank = target.domain.affine_dim(target.dim)
    assert found.factor.shape == (target.dim, rank)
    assert found.whiten.shape == (rank, target.dim)
    assert found.factor.flags.c_contiguous and found.whiten.flags.c_contiguous
    np.testing.assert_allclose(found.whiten @ found.factor, np.eye(rank), atol=1e-8)
    assert target.domain.contains(found.center)
    assert 0.0 <= found.share_inside <= 1.0
    if domain == "simplex":
        np.testing.assert_allclose(found.factor.sum(0), 0.0, atol=1e-9)


def test_a_target_cut_by_its_domain_is_known_as_such():
    wide = dps.Gibbs(problem_of(L.Logistic(), domain=D.Ball(10.0)), k=500.0, mu=0.1)
    cut = dps.Gibbs(problem_of(L.Logistic(), domain=D.Ball(0.2)), k=500.0, mu=0.1)
    assert gaussian_fit.fit(wide).share_inside > 0.99
    found = gaussian_fit.fit(cut)
    assert found.share_inside < 0.9
    # As wide as the domain at most, though the energy is flat there.
    assert np.linalg.norm(found.factor, ord=2) < 0.5


@one_in(3)
@pytest.mark.parametrize("domain", ["whole space", "ball", "simplex"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_degenerate_records(loss, domain):
    """One record, and rows that are all zero: the regularizer alone is left."""
    dim = 3 if domain == "simplex" else 2
    for rows in (np.zeros((4, dim)), np.ones((1, dim))):
        problem = dps.Problem(
            rows,
            np.ones(len(rows)),
            loss=loss,
            domain=DOMAINS[domain],
            row_bound=2.0,
            response_bound=1.0,
        )
        target = dps.Gibbs(problem, k=10.0, mu=0.5)
        found = gaussian_fit.fit(target)
        assert problem.domain.contains(found.center)
        assert np.isfinite(found.factor).all() and np.isfinite(found.whiten).all()
        if domain == "whole space" and not rows.any():
            np.testing.assert_allclose(found.center, 0.0, atol=1e-6)
            scale = found.factor @ found.factor.T
            np.testing.assert_allclose(scale, 0.2 * np.eye(dim), rtol=1e-3)


@one_in(3)
@pytest.mark.parametrize("num_records", [1, 2, 30])
@pytest.mark.parametrize("loss", [L.Logistic(), L.SmoothedHinge(), L.Hinge()], ids=repr)
def test_wide_domains_without_a_regularizer(loss, num_records):
    """Few records say nothing of most directions: variances 1e10 apart and more."""
    rng = np.random.default_rng(num_records)
    for domain in (D.Ball(70.0), D.Ball(1e3, p=np.inf)):
        for size in (0.1, 10.0, 1e3):
            rows = size * rng.standard_cauchy((num_records, 20))
            problem = dps.Problem(
                rows,
                rng.choice([-1.0, 1.0], num_records),
                loss=loss,
                domain=domain,
                row_bound=float(np.linalg.norm(rows, axis=1).max()),
            )
            found = gaussian_fit.fit(dps.Gibbs(problem, k=1e4, mu=0.0))
            assert domain.contains(found.center)
            variances = np.linalg.eigvalsh(found.factor @ found.factor.T)
            assert np.isfinite(variances).all() and variances[-1] > 0.0


def test_without_any_curvature_the_domain_sets_the_scale():
    problem = problem_of(L.Linear(), num_records=5, domain=D.Box(-1.0, 1.0))
    found = gaussian_fit.fit(dps.Gibbs(problem, k=1.0, mu=0.0))
    sizes = np.linalg.svd(found.factor, compute_uv=False)
    assert 0.1 < sizes.min() and sizes.max() < 2.0


@pytest.mark.parametrize("regularizer", [dps.regularizers.SquaredNorm(1.5)])
def test_other_regularizers_have_a_hessian_by_differences(regularizer):
    target = dps.Gibbs(problem_of(L.Hinge()), k=300.0, mu=0.2, regularizer=regularizer)
    found = gaussian_fit.fit(target)
    assert np.isfinite(found.factor).all()
    assert target.energy(found.center) < target.energy(found.center + 0.3)


def test_the_entropy_on_the_simplex():
    problem = problem_of(L.Squared(), domain=D.Simplex())
    target = dps.Gibbs(problem, k=50.0, mu=0.5, regularizer=dps.regularizers.Entropy())
    found = gaussian_fit.fit(target)
    assert D.Simplex().contains(found.center) and (found.center > 0.0).all()


def soft_value(u, y):
    return np.sqrt(1.0 + (u - y) ** 2)


def soft_slope(u, y):
    return (u - y) / np.sqrt(1.0 + (u - y) ** 2)


@pytest.mark.slow
def test_losses_of_the_user():
    loss = dps.losses.custom(njit(soft_value), njit(soft_slope), slope_bound=1.0)
    found = gaussian_fit.fit(dps.Gibbs(problem_of(loss), k=500.0, mu=0.1))
    assert np.isfinite(found.factor).all() and found.share_inside == 1.0


def test_rescaled_coordinates():
    found = gaussian_fit.fit(grid_case("ball", "logistic").target)
    center = found.center + 0.01
    inner = np.array([[2.0, 0.5], [0.5, 1.0]])
    other = found.rescale(center, inner)
    np.testing.assert_array_equal(other.center, center)
    np.testing.assert_allclose(
        other.factor @ other.factor.T, found.factor @ inner @ found.factor.T
    )
    np.testing.assert_allclose(other.whiten @ other.factor, np.eye(2), atol=1e-10)
