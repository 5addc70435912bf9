"""The compiled mirror step, its potential, and the noise of its geometry."""

import math

import numpy as np
import pytest

from dpsample.domains import WholeSpace
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.advance import mirror_step
from dpsample.optimizers.loop.pieces import new_memory
from dpsample.optimizers.loop.steps import MirrorStep, gaussian_mean_square, geometry
from dpsample.privacy import generalized_gaussian_gdp
from tests.support.descents import feasible_set
from tests.support.mirror_cases import bregman, potential, potential_gradient
from tests.support.mirror_divergences import divergence_ratios
from tests.support.tiers import one_in

CASES = [(1.05, 50), (1.1, 3), (1.3, 40), (1.5, 30), (1.8, 12), (2.0, 7)]


def stepped(w, g, step):
    memory = new_memory(len(w))
    memory.theta[:] = w
    memory.gradient[:] = g
    numbers, rng = step.numbers(len(w)), np.random.default_rng(0)
    feasible = feasible_set(WholeSpace(), len(w))
    mirror_step(feasible, numbers, 0, 1, memory, rng)
    return memory.theta.copy()


def residual(w, g, found, space, gamma, alpha):
    """Gradient of the step's objective at the point that was found."""
    there = potential_gradient(found, space.s, space.kappa)
    back = potential_gradient(w, space.s, space.kappa)
    return g + gamma * (there - back) + alpha * there


def case(seed, p, dim):
    rng = np.random.default_rng(seed)
    space = geometry(p, dim, "gaussian")
    w, g = rng.standard_normal(dim), 3.0 * rng.standard_normal(dim)
    return rng, space, w, g


@pytest.mark.parametrize(("p", "dim"), CASES)
def test_an_unconstrained_step_is_optimal(p, dim):
    _, space, w, g = case(1, p, dim)
    gamma, alpha = 1.7, 0.3
    step = MirrorStep(1.0 / gamma, exponent=space.s, kappa=space.kappa, alpha=alpha)
    found = stepped(w, g, step)
    size = np.abs(residual(w, g, found, space, gamma, alpha)).max()
    assert size < 1e-11
    wrong = residual(w, g, 1.001 * found, space, gamma, alpha)
    assert np.abs(wrong).max() > 1e-4


@pytest.mark.parametrize(("p", "dim"), CASES)
def test_a_step_on_the_ball_scales_radially_and_is_optimal(p, dim):
    rng, space, w, g = case(2, p, dim)
    gamma, radius = 0.4, 0.7
    w *= 0.5 * radius / norm(w, space.s)
    step = MirrorStep(1.0 / gamma, exponent=space.s, kappa=space.kappa, radius=radius)
    found = stepped(w, g, step)
    assert norm(found, space.s) == pytest.approx(radius, rel=1e-14)
    # Karush-Kuhn-Tucker: the residual is a negative multiple of the norm's gradient.
    left = residual(w, g, found, space, gamma, 0.0)
    normal = potential_gradient(found, space.s, 1.0)
    multiplier = -(left @ normal) / (normal @ normal)
    assert multiplier > 0.0
    assert np.abs(left + multiplier * normal).max() < 1e-11

    def objective(v):
        return g @ v + gamma * bregman(v, w, space.s, space.kappa)

    for _ in range(200):
        other = found + 0.1 * rng.standard_normal(dim) * radius
        other *= min(1.0, radius / norm(other, space.s))
        assert objective(other) >= objective(found) - 1e-12


def test_p_2_is_the_euclidean_step():
    _, space, w, g = case(3, 2.0, 9)
    assert (space.s, space.kappa, space.r) == (2.0, 1.0, 2.0)
    gamma, alpha = 1.3, 0.2
    step = MirrorStep(1.0 / gamma, exponent=2.0, alpha=alpha)
    expected = (gamma * w - g) / (gamma + alpha)
    assert np.allclose(stepped(w, g, step), expected, rtol=1e-14, atol=0.0)
    inside = MirrorStep(1.0 / gamma, exponent=2.0, radius=0.5)
    free = w - g / gamma
    expected = 0.5 * free / np.linalg.norm(free)
    assert np.allclose(stepped(w, g, inside), expected, rtol=1e-14, atol=0.0)


def test_in_one_dimension_all_norms_give_one_step():
    spaces = [geometry(p, 1, "gaussian") for p in (1.0, 1.2, 1.7, 2.0)]
    assert {space[2:5] for space in spaces} == {(2.0, 2.0, 1.0)}


def test_a_step_survives_the_ends_of_the_number_range():
    for scale in (1e-150, 1.0, 1e150):
        space = geometry(1.05, 20, "gaussian")
        w = scale * np.linspace(-1.0, 1.0, 20)
        step = MirrorStep(0.5, exponent=space.s, kappa=space.kappa)
        found = stepped(w, np.zeros(20), step)
        assert np.allclose(found, w, rtol=1e-12)
    assert not stepped(np.zeros(4), np.zeros(4), MirrorStep(1.0, exponent=1.5)).any()


@one_in(2)
@pytest.mark.parametrize(("p", "dim"), CASES)
def test_the_potential_is_1_strongly_convex(p, dim):
    space = geometry(p, dim, "gaussian")
    ratios = divergence_ratios(p, dim, space.s, space.kappa)
    assert ratios.min() >= 1.0 - 1e-6


def test_the_printed_potential_is_not_1_strongly_convex():
    kappa = 1.0 / (1.8 - 1.0)
    printed = kappa / (kappa - 1.0)  # gradient-E1
    assert divergence_ratios(1.8, 12, printed, kappa).min() < 0.1


def test_on_the_domain_the_potential_is_at_most_half_kappa_radius_squared():
    space = geometry(1.05, 30, "gaussian")
    rng = np.random.default_rng(6)
    points = rng.standard_normal((300, 30)) * rng.random((300, 30)) ** 5
    points /= norm(points, 1.05)[:, None]
    sizes = [potential(point, space.s, space.kappa) for point in points]
    assert max(sizes) <= 0.5 * space.kappa * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("q", "dim"), [(2.0, 10), (3.0, 50), (21.0, 50), (np.inf, 200)]
)
def test_gaussian_mean_squares_are_bounded(q, dim):
    draws = norm(np.random.default_rng(7).standard_normal((4000, dim)), q) ** 2
    bound = gaussian_mean_square(dim, q)
    error = draws.std() / math.sqrt(len(draws))
    assert draws.mean() - 6.0 * error <= bound
    assert bound <= 1.6 * draws.mean()
    assert 0.5 * bound < draws.mean() - 6.0 * error  # half the bound would be refuted


def test_generalized_gaussian_noise_costs_the_same_gdp():
    space = geometry(1.5, 40, "generalized_gaussian")
    for copies in (1, 9):
        noise = space.perturbation(0.3, copies)
        one = generalized_gaussian_gdp(
            sensitivity=0.02, sigma=noise.sigma, dim=40, p=1.5, r=space.r
        )
        assert math.sqrt(copies) * one == pytest.approx(0.02 / 0.3, rel=1e-12)
    assert space.perturbation(0.0).scale == 0.0
