"""Localized draws have the law of the quadrature; every premise holds at points."""

import math
import os
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy import linalg, special
from scipy.stats import chi, norm

import dpsample as dps
from dpsample.diagnostics.laws import views
from dpsample.numerics.stable import log_quantile
from dpsample.samplers import SamplingError
from dpsample.samplers.localized import mode as modes
from dpsample.samplers.localized import proposals, tilting
from dpsample.samplers.localized import region as regions
from dpsample.samplers.localized.columns import RecordColumns, Weights
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.prepared import Localization
from dpsample.samplers.localized.tilting import TiltedOrthant, new_orthant
from dpsample.targets.gibbs_target import form_in_basis, rows_in_basis, times_basis
from tests.support.allowances import Allowance, assert_same_bits
from tests.support.localized_laws import LocalCase, accepted, line_levels
from tests.support.planes import PLANE, D, L, local
from tests.support.replicates import law_margin
from tests.support.statistics import (
    assert_frequency,
    assert_law,
    assert_mean,
    assert_rejected,
    assert_same_law,
    rejected,
)
from tests.support.tiers import one_in, usual

COUNT = 12_000
DIRECTIONS = np.array([[0.0], [0.7], [1.0], [2.1]]) * np.pi / 2


LINES = {
    "logistic, d = 1": (
        local(L.Logistic(), D.Ball(0.3), dim=1, num_records=4, k=100.0),
        [[1.0]],
    ),
    "box, d = 1": (
        local(L.Huber(0.5), D.Box([-2.0], [0.1]), dim=1, num_records=4, k=200.0),
        [[1.0]],
    ),
    "simplex, d = 2": (local(L.Logistic(), D.Simplex(), k=1e3), [[1.0, -1.0]]),
    "simplex, d = 3": (
        local(L.Logistic(), D.Simplex(), dim=3, k=2e3),
        [[1, -1, 0], [0, 1, -1], [2, -1, -1]],
    ),
    "entropy": (
        local(
            L.Logistic(),
            D.Simplex(),
            dim=3,
            k=2e3,
            mu=0.3,
            entropy=dps.regularizers.Entropy(),
        ),
        [[1, -1, 0], [0, 1, -1]],
    ),
    "ball, d = 4": (
        local(L.Logistic(), D.Ball(0.3), dim=4, num_records=10, k=2e3),
        [[1, 0, 0, 0], [0.3, -1, 0.4, 1]],
    ),
}


@cache
def draws(name):
    case = PLANE[name] if name in PLANE else LINES[name][0]
    return accepted(case.prepared(), np.random.default_rng(2), COUNT)


@usual("huber, narrow", "p = 1.3", "off center", "degenerate corner")
@pytest.mark.parametrize("name", PLANE)
def test_draws_have_the_law_of_the_quadrature(name):
    case = PLANE[name]
    assert case.inside(draws(name)).all()
    assert law_margin(case, draws(name)) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_draws_have_their_law_along_lines(name):
    case, directions = LINES[name]
    sample = draws(name)[:4_000]
    assert case.inside(sample).all()
    for direction in directions:
        assert_law(line_levels(case, sample, direction), lambda u: u)


@usual("mode on the sphere")
@pytest.mark.parametrize("name", ["logistic", "mode on the sphere", "corner"])
def test_single_draws_have_the_same_law(name):
    case, rng = PLANE[name], np.random.default_rng(3)
    prepared = case.prepared()
    points = [prepared.draw(rng)[0] for _ in range(2_000)]
    assert all(point is not None for point in points)
    assert law_margin(case, np.array(points)) < 1.0


@pytest.mark.parametrize("name", ["held", "inside, rare"])
def test_the_work_of_a_draw_is_known_before(name):
    radius, seed = {"held": (0.5, 1), "inside, rare": (12.0, 2)}[name]
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((2_000, 8))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(rows[:, 0] + 0.1 * rng.standard_normal(2_000) > 0.0, 1.0, -1.0)
    facts = {"row_bound": 1.0, "loss": L.Logistic(), "domain": D.Ball(radius)}
    target = dps.Gibbs(dps.Problem(rows, labels, **facts), k=500.0, mu=2e-3)
    found = Localization.find(target, 1e-8).prepare(rng)
    assert found.is_on_boundary == (name == "held")
    passes = [found.draw(rng)[1]["records"] / len(rows) for _ in range(300)]
    assert 0.7 < np.mean(passes) / found.expected_passes < 1.4


def test_squared_losses_on_the_whole_space_give_a_gaussian():
    case = local(L.Squared(), D.WholeSpace(), dim=3, k=300.0)
    hessian = case.k * (case.rows.T @ case.rows / 6.0 + case.mu * np.eye(3))
    mean = np.linalg.solve(hessian, case.k * case.rows.T @ case.response / 6.0)
    sample = accepted(case.prepared(), np.random.default_rng(4), COUNT)
    noise = (sample - mean) @ np.linalg.cholesky(hessian)
    for column in noise.T:
        assert_law(column, norm.cdf)
        assert_mean(column, 0.0, 1.0, detects=0.15)
    with rejected():
        assert_law(1.3 * noise[:, 0], norm.cdf)


# Deterministic premises, at points of the region.


def points_of(case, region, rng, count=400):
    """Vectors v of points of the region, many of them at its extremes."""
    mode = case.place.mode
    last = region.ellipsoids[-1]
    rays = rng.standard_normal((count, len(last.root)))
    rays /= np.linalg.norm(rays, axis=1)[:, None]
    vectors = linalg.solve_triangular(last.root, rays.T, lower=True, trans="T").T
    vectors *= (last.radius * 10 ** (-5.0 * rng.random((count, 1)) ** 3)) * (1 - 1e-9)
    points = mode.point + vectors @ mode.basis.T
    is_in = case.inside(points) & region.contains(vectors)
    moves = vectors @ mode.basis.T @ case.rows.T
    lower, upper = case.columns.ends(region.half_widths)
    is_in &= (moves >= lower).all(axis=1) & (moves <= upper).all(axis=1)
    return vectors[is_in]


def least_excess(case, region=None, envelope=None):
    """Least D at points of the region, relative to energies there."""
    region = case.place.region if region is None else region
    envelope = region if envelope is None else envelope
    mode = case.place.mode
    vectors = points_of(case, region, np.random.default_rng(5))
    if len(vectors) < 10:  # the region is far wider than the domain
        return np.nan
    points = mode.point + vectors @ mode.basis.T
    risen = case.energy(points) - case.energy(mode.point[None])
    quadratic = vectors @ mode.gradient
    quadratic += 0.5 * np.square(vectors @ envelope.root).sum(axis=1)
    return float(((risen - quadratic) / (1.0 + np.abs(risen))).min())


def random_cases(number=60):
    rng = np.random.default_rng(6)
    losses = [
        L.Logistic(),
        L.Huber(0.5),
        L.Huber(0.05),
        L.SmoothedHinge(0.5),
        L.SmoothedHinge(0.05),
        L.PowerFour(),
        L.Squared(),
    ]
    domains = [D.WholeSpace(), D.Ball(0.4), D.Ball(3.0), D.Box(-0.2, 0.3), D.Simplex()]
    while number:
        case = local(
            losses[rng.integers(len(losses))],
            domains[rng.integers(len(domains))],
            num_records=int(rng.integers(1, 12)),
            k=10 ** rng.uniform(0.0, 5.0),
            mu=10 ** rng.uniform(-3.0, 0.0),
            p=float(rng.choice([2.0, 1.4])),
            seed=int(rng.integers(1000)),
            gamma=10 ** rng.uniform(-9.0, -1.0),
        )
        if Localization.find(case.target, case.gamma) is not None:
            number -= 1
            yield case


def test_the_envelope_is_below_the_energy_on_the_region():
    least = np.array([least_excess(case) for case in random_cases()])
    assert np.isfinite(least).sum() >= 50
    assert np.nanmin(least) > -1e-9


@pytest.mark.parametrize("name", ["logistic", "huber, narrow", "power four on a ball"])
def test_an_envelope_by_the_curvature_at_the_mode_is_caught(name):
    case = PLANE[name]
    mode, region = case.place.mode, case.place.region
    ridge = case.k * case.mu
    root = np.linalg.cholesky(mode.gram + ridge * np.eye(2))
    steep = replace(region, root=root, weights=Weights("mode"))
    assert least_excess(case, envelope=steep) < -1e-6
    with pytest.raises(SamplingError, match="acceptance ratio was above 1"):
        accepted(case.prepared(region=steep), np.random.default_rng(7), COUNT)


def test_a_dropped_round_is_caught(monkeypatch):
    """Constants that hold on the last ellipsoid are used on the one before."""
    monkeypatch.setattr(regions, "ROUND_COST", 0.0)
    case = local(L.Logistic(), D.WholeSpace(), k=300.0, mu=0.01)
    region = case.place.region
    assert len(region.ellipsoids) > 1 and least_excess(case) > -1e-9
    dropped = replace(region, ellipsoids=region.ellipsoids[:1], half_widths=())
    assert least_excess(case, region=dropped) < -1e-6


def ray_excess(case, region=None):
    """Least of <V'(x) - e, w> - ||w||_P^2 on the set before each round of Theorem A.

    P is the ellipsoid's metric, scaled so that its radius is Theorem A's.
    """
    mode = case.place.mode
    region = case.place.region if region is None else region
    rng, least = np.random.default_rng(8), np.inf
    for number, ellipsoid in enumerate(region.ellipsoids):
        dim = len(ellipsoid.root)
        size = np.linalg.norm(linalg.solve_triangular(ellipsoid.root, mode.residual))
        rho = regions.radius(dim, size, case.gamma / regions.MAX_ROUNDS)
        scale = (rho / ellipsoid.radius) ** 2 * (1.0 - 1e-6)
        rays = rng.standard_normal((2_000, dim))
        reach = 10.0 if number == 0 else region.ellipsoids[number - 1].radius
        root = ellipsoid.root if number == 0 else region.ellipsoids[number - 1].root
        rays *= (reach / np.linalg.norm(rays @ root, axis=1))[:, None]
        if case.domain.name == "ball":  # to the sphere
            outward = mode.point - case.center
            rays = rng.standard_normal((2_000, dim))
            rays /= np.linalg.norm(rays, axis=1)[:, None]
            along = rays @ outward
            room = case.domain.radius**2 - outward @ outward
            ends = -along + np.sqrt(np.maximum(along**2 + room, 0.0))
            rays = (0.999999 * ends[:, None] * rays)[ends > 0.01 * case.domain.radius]
        for vectors in (rays, 0.5 * rays, 0.05 * rays):
            points = mode.point + vectors @ mode.basis.T
            slopes = np.array([case.target.gradient(x) @ mode.basis for x in points])
            gain = np.einsum("ij,ij->i", slopes - mode.residual, vectors)
            square = scale * np.square(vectors @ ellipsoid.root).sum(axis=1)
            least = min(least, float(((gain - square) / (1e-300 + square)).min()))
        if case.domain.name == "ball":
            break
    return least


RAYS = ["logistic", "huber, narrow", "smoothed hinge", "mode on the sphere"]


@one_in(2)
@pytest.mark.parametrize("name", RAYS)
def test_energies_rise_along_rays_as_theorem_a_says(name):
    assert ray_excess(PLANE[name]) > -1e-5


def test_bregman_curvatures_in_theorem_a_are_caught(monkeypatch):
    # c^S <= c^B: secants in the envelope are safe, Bregman ones on rays are not.
    case = local(L.Huber(0.1), D.Ball(3.0), dim=1, num_records=1, k=2e3, mu=1e-4)
    assert ray_excess(case) > -1e-5
    curvature = RecordColumns.curvature
    monkeypatch.setattr(
        RecordColumns,
        "curvature",
        lambda self, order, halves: curvature(self, "bregman", halves),
    )
    wrong = regions.localize(case.target, replace(case.place.mode), case.gamma)
    assert ray_excess(case, region=wrong) < -1e-2


def test_nu_instead_of_half_of_nu_is_caught():
    case = local(L.Linear(), D.Ball(0.5), k=200.0, mu=0.01)
    assert case.place.mode.multiplier > 0.0 and ray_excess(case) > -1e-5
    mode = case.place.mode
    doubled = replace(mode, multiplier=2.0 * mode.multiplier)
    wrong = regions.localize(case.target, doubled, case.gamma)
    assert ray_excess(case, region=wrong) < -1e-2


# Masses outside of every round's ellipsoid, by quadrature.


def moved(case, shift):
    """Mode that is off the minimizer, with all of its slope as residual."""
    point = case.place.mode.point + shift
    gradient = case.target.gradient(point)
    return replace(case.place.mode, point=point, gradient=gradient, residual=gradient)


def worst_mass(case, mode: Mode, region) -> float:
    """Largest mass outside a round, in units of its share, on a line."""
    reach = 40.0 / np.sqrt(case.k * case.mu)
    w = np.linspace(-reach, reach, 400_001)
    energies = case.energy((mode.point + w)[:, None])
    weights = np.exp(energies.min() - energies)
    worst, share = 0.0, case.gamma / regions.MAX_ROUNDS
    for each in region.ellipsoids:
        is_in = each.contains(w[:, None])
        outside = weights[~is_in].sum() / weights.sum()
        worst, weights = max(worst, outside / share), np.where(is_in, weights, 0.0)
    return worst


def line_case(loss, **options):
    return local(loss, D.WholeSpace(), dim=1, num_records=5, **options)


@usual("0.02-0.001")
@pytest.mark.parametrize("gamma", [0.5, 1e-3])
@pytest.mark.parametrize("shift", [0.0, 0.02, -0.05])
def test_masses_outside_are_below_their_shares(gamma, shift):
    for loss in (L.Logistic(), L.Huber(0.1), L.Squared(), L.SmoothedHinge(0.2)):
        case = line_case(loss, k=100.0, mu=0.1, gamma=gamma)
        mode = moved(case, np.array([shift]))
        region = regions.localize(case.target, mode, gamma)
        assert region is not None
        assert worst_mass(case, mode, region) < 1.0 + 2e-3


def test_a_wrong_share_of_gamma_is_caught():
    case = line_case(L.Squared(), k=100.0, mu=0.1, gamma=0.1)
    mode = case.place.mode
    assert worst_mass(case, mode, case.place.region) == pytest.approx(1.0, abs=1e-3)
    wrong = regions.localize(case.target, mode, 0.1 * regions.MAX_ROUNDS * (1 - 1e-9))
    assert worst_mass(case, mode, wrong) > 5.0


@pytest.mark.parametrize("shift", [0.1, -0.1])
def test_a_residual_that_is_left_out_is_caught(shift):
    case = line_case(L.Squared(), k=100.0, mu=0.1, gamma=0.1)
    mode = replace(moved(case, np.array([shift])), residual=np.zeros(1))
    wrong = regions.localize(case.target, mode, 0.1)
    assert worst_mass(case, mode, wrong) > 1.5


@pytest.mark.parametrize("log_radius", [-8, -2, 0, 4])
def test_model_steps_in_a_ball_are_stationary(log_radius):
    rng, radius = np.random.default_rng(10), 10.0**log_radius
    for _ in range(50):
        root, center = rng.standard_normal((4, 4)), rng.standard_normal(4)
        hessian = root @ np.diag(10.0 ** rng.uniform(-3.0, 6.0, 4)) @ root.T
        gradient = hessian @ rng.standard_normal(4)
        center *= radius * rng.random() / np.linalg.norm(center)
        move = modes.step_in_ball(center, radius, gradient, hessian)
        end, slope = center + move, gradient + hessian @ move
        size, nu = np.linalg.norm(end), -(slope @ end) / (end @ end)
        assert size <= radius * (1.0 + 1e-14)
        if size < radius * (1.0 - 1e-9):
            nu = 0.0
        rest = np.linalg.norm(slope + nu * end)
        assert rest <= 1e-7 * np.linalg.norm(hessian) * (size + np.linalg.norm(move))
        assert nu >= -1e-9 * np.linalg.norm(hessian)


def test_pauses_change_no_bit_of_a_model_step_in_a_ball(monkeypatch):
    """In 3000 dimensions each turn takes a third of a second, and there are many."""
    rng = np.random.default_rng(11)
    root, gradient = rng.standard_normal((4, 4)), rng.standard_normal(4)
    given = np.zeros(4), 1e-2, gradient, root @ root.T
    whole = modes.step_in_ball(*given)
    allowance = Allowance(monkeypatch, 1)
    np.testing.assert_array_equal(modes.step_in_ball(*given), whole)
    assert allowance.pauses > 1


@pytest.mark.parametrize("name", ["mode on the sphere", "side nearby"])
def test_pauses_change_no_bit_of_tries(name, monkeypatch):
    """Among 3000 sides, or in 3000 dimensions, a block of tries may take seconds."""
    prepared, rng = PLANE[name].prepared(), np.random.default_rng

    def found():
        point, counts = prepared.draw(rng(6))
        return [*prepared.draw_candidates(rng(5), 40), point, list(counts.values())]

    whole, allowance = found(), Allowance(monkeypatch, 1)
    assert_same_bits(found(), whole)
    assert allowance.pauses >= 39


def test_no_matrix_is_multiplied_by_the_basis_of_a_full_domain():
    """It is the identity, and the product takes seconds in 3000 dimensions."""
    full, flat = D.Box(-1.0, 1.0).hull(3)[1], D.Simplex().hull(3)[1]
    matrix = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(full, np.eye(3))
    assert form_in_basis(matrix, full) is matrix
    assert rows_in_basis(matrix, full) is matrix
    assert times_basis(full, matrix) is matrix
    np.testing.assert_array_equal(form_in_basis(matrix, flat), flat.T @ matrix @ flat)


def test_radii_are_those_of_theorem_a():
    for dim in (1, 2, 7):
        assert regions.radius(dim, 0.0, 1e-9) == pytest.approx(chi.isf(1e-9, dim))
        for eps in (1e-3, 0.3, 1.0):
            rho = regions.radius(dim, eps, 1e-6)
            bound = np.exp(eps**2 / 2) * (1 + eps / (rho - eps)) ** (dim - 1)
            assert bound * chi.sf(rho - eps, dim) <= 1e-6


# Planted bugs in the proposals.


def test_a_missing_halfspace_costs_tries_and_is_caught_in_an_orthant():
    case = PLANE["side nearby"]
    mode = case.place.mode
    kept = np.arange(len(mode.sides)) != np.argmin(mode.depths)
    few = replace(
        mode,
        sides=mode.sides[kept],
        depths=mode.depths[kept],
        multipliers=mode.multipliers[kept],
    )
    # Each try asks the domain as well: the law survives.
    sample = accepted(case.prepared(mode=few), np.random.default_rng(9), COUNT)
    assert law_margin(case, sample) < 1.0
    open_side = BOUNDS["tail"] - np.array([40.0, 0.0, 0.0])
    slacks = orthant_draws(TiltedOrthant.from_saddle(CORRELATED, open_side))
    assert (slacks[:, 0] < 40.0).any()


def test_a_halfspace_that_cuts_the_domain_is_caught():
    case = PLANE["side nearby"]
    mode = case.place.mode
    assert mode.depths.min() > 0.0
    wrong = replace(mode, depths=0.5 * mode.depths)
    sample = accepted(case.prepared(mode=wrong), np.random.default_rng(9), COUNT)
    assert_rejected(law_margin(case, sample))


def test_a_cost_that_is_left_out_is_caught():
    case = local(L.Logistic(), D.Ball(0.1), k=1e4)
    prepared = case.prepared()
    wrong = replace(prepared, proposal=prepared.proposal._replace(cost_rate=0.0))
    sample = accepted(wrong, np.random.default_rng(9), COUNT)
    right = accepted(prepared, np.random.default_rng(9), COUNT)
    assert law_margin(case, right) < 1.0
    assert_rejected(law_margin(case, sample))


# Truncated Gaussians.

CORRELATED = np.array([[1.0, 0.7, -0.3], [0.7, 1.0, 0.1], [-0.3, 0.1, 0.5]])
BOUNDS = {
    "negative": np.array([-1.0, -0.5, -2.0]),
    "zero": np.zeros(3),
    "tail": np.array([2.0, 1.0, 0.5]),
    "deep": np.array([60.0, 50.0, 10.0]),
    "very deep": CORRELATED @ np.array([3e3, 2e4, 1e5]),
    "mixed": np.array([-30.0, 3.0, 0.1]),
    # One bound so deep that its square has no digits left for the others.
    "far below": np.array([1e8, 0.0, -1.0]),
    "deep and shallow": np.array([1e8, 0.7e8, 1.0 - 0.3e8]),
    "deep and free": np.array([1e6, -1e8, 1.0 - 0.3e6]),
    "two deep": np.array([1e6, 1e6, 0.0]),
}


def orthant_levels(covariance, lower, slacks):
    """Levels of each coordinate in its law given the others."""
    precision = np.linalg.inv(covariance)
    levels = []
    for i in range(len(lower)):
        others = np.delete(np.arange(len(lower)), i)
        # Mean of X_i given the others, from the bound of X_i, in its own units.
        sd = 1.0 / np.sqrt(precision[i, i])
        at = precision[i] @ lower + slacks[:, others] @ precision[i, others]
        start, excess = at * sd, slacks[:, i] / sd
        end = start + excess
        tail = np.where(
            start > 5.0,
            np.log(
                special.erfcx(np.maximum(end, 0.0) / np.sqrt(2.0))
                / special.erfcx(np.maximum(start, 0.0) / np.sqrt(2.0))
            )
            - excess * (start + 0.5 * excess),
            special.log_ndtr(-end) - special.log_ndtr(-start),
        )
        levels.append(np.exp(tail))
    return levels


def orthant_draws(made, count=6_000):
    rng, found = np.random.default_rng(10), []
    while sum(map(len, found)) < count:
        found.append(made.draw(rng, 4_000))
        assert len(found[-1]) > 200
    return np.concatenate(found)[:count]


@pytest.mark.parametrize("make", [new_orthant, TiltedOrthant.from_saddle])
@pytest.mark.parametrize("name", BOUNDS)
def test_orthant_draws_have_their_conditional_laws(name, make):
    lower = BOUNDS[name]
    slacks = orthant_draws(make(CORRELATED, lower))
    assert (slacks >= 0.0).all()
    for level in orthant_levels(CORRELATED, lower, slacks):
        assert_law(level, lambda u: u)


@pytest.mark.parametrize("rank", [2, 3, 6])
def test_log_ratios_fall_from_any_center_by_gaps_below_tangents(rank):
    rng = np.random.default_rng(11)
    for _ in range(30):
        factor = rng.standard_normal((rank, rank))
        covariance = factor @ factor.T + 0.01 * np.eye(rank)
        lower = 10 ** rng.uniform(-3, 3) * rng.standard_normal(rank)
        made, center = (
            TiltedOrthant.from_saddle(covariance, lower),
            rng.standard_normal(rank),
        )
        scaled = lower[made.order] / np.diag(made.root)
        tilt, bounds, slopes = tilting._find_tilt(scaled, made.steps, center)
        levels = special.log_ndtr(-bounds)
        made = replace(made, bounds=bounds, slopes=slopes, levels=levels)
        moves = 10 ** rng.uniform(-3, 1) * rng.standard_normal((500, rank))
        shifts = -moves @ made.steps.T
        gaps = sum(made._gap(i, shifts[:, i]) for i in range(rank))
        linear = -moves @ tilt
        ends = special.log_ndtr(-(bounds + shifts))
        falls = -linear - (ends - levels).sum(axis=1)
        assert gaps.min() >= -1e-12
        size = np.abs(levels).sum() + np.abs(linear).max()
        np.testing.assert_allclose(gaps, falls, rtol=1e-9, atol=1e-13 * size)


@pytest.mark.parametrize("bound", [-1e8, -3.0, 0.0, 9.9, 10.1, 1e3, 1e8])
def test_gaps_below_tangents_keep_their_digits(bound):
    slope, excess = tilting._hazard(np.array([0.0, bound]))
    made = TiltedOrthant(
        order=np.arange(2),
        root=np.eye(2),
        steps=np.zeros((2, 2)),
        bounds=np.array([0.0, bound]),
        offsets=np.zeros(2),
        levels=special.log_ndtr(np.array([0.0, -bound])),
        slopes=slope,
    )
    with mpmath.workdps(60):

        def level(x):
            return mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2)

        start = mpmath.mpf(bound)
        hazard = mpmath.exp(-(start**2) / 2 - level(start)) / mpmath.sqrt(2 * mpmath.pi)
        assert slope[1] == pytest.approx(float(hazard), rel=1e-14, abs=1e-300)
        if bound > 0.0:
            assert excess[1] == pytest.approx(float(hazard - start), rel=1e-11)
        for shift in (-5.0, -0.3, -1e-6, 1e-6, 0.3, 5.0):
            gap = level(start) - hazard * shift - level(start + shift)
            found = float(made._gap(1, np.array([shift]))[0])
            assert found == pytest.approx(float(gap), rel=1e-12, abs=1e-13)


def test_many_sides_are_tilted_as_few_are_without_singular_values(monkeypatch):
    """Least squares of 1200 rows took 4 s a step, of 6000 minutes, deaf to Ctrl-C."""
    rng = np.random.default_rng(12)
    cases, num_tilted = [], 0
    for rank in (2, 3, 5, 8) * 5:
        factor = rng.standard_normal((rank, rank))
        covariance, lower = factor @ factor.T + 0.01 * np.eye(rank), rng.random(rank)
        cases.append((covariance, lower))
    few = [TiltedOrthant.from_saddle(*each) for each in cases]
    monkeypatch.setattr(tilting, "MIN_ELIMINATED", 1)
    monkeypatch.delattr(np.linalg, "lstsq")
    monkeypatch.delattr(linalg, "lstsq")
    for case, old in zip(cases, few, strict=True):
        new = TiltedOrthant.from_saddle(*case)
        for name in ("bounds", "offsets", "slopes"):
            given, made = getattr(old, name), getattr(new, name)
            np.testing.assert_allclose(made, given, rtol=0.0, atol=1e-6)
        num_tilted += new.slopes.any()
    assert num_tilted >= 10


def test_a_tilt_that_accepts_too_often_is_caught():
    covariance, lower = np.array([[1.0, -0.95], [-0.95, 1.0]]), np.zeros(2)
    made = TiltedOrthant.from_saddle(covariance, lower)
    wrong = replace(made, slopes=0.0 * made.slopes, levels=made.levels - 100.0)
    for level in orthant_levels(covariance, lower, orthant_draws(made)):
        assert_law(level, lambda u: u)
    with rejected():
        for level in orthant_levels(covariance, lower, orthant_draws(wrong)):
            assert_law(level, lambda u: u)


def test_rounding_is_not_taken_for_a_broken_word():
    """All losses and slopes are 0 at the mode, and margins of one size of 1e6 moves."""
    ones = np.ones((20, 1))
    problem = dps.Problem(
        ones,
        ones[:, 0],
        loss=dps.losses.Squared(),
        domain=dps.domains.Box([-1.0], [1.0]),
        row_bound=1.0,
        response_bound=1.0,
    )
    rng = np.random.default_rng(0)
    made = Localization.find(dps.Gibbs(problem, k=1e12, mu=1e-12), 1e-9).prepare(rng)
    draws = [made.draw(rng)[0][0] for _ in range(200)]
    assert 0.0 < 1.0 - np.median(draws) < 1e-5


def nearly_parallel(angle):
    """Squared losses that press against two sides at so small an angle."""
    rows = np.repeat(np.eye(2), 25, axis=0)
    sides_of = [[1.0, 0.0], [1.0, angle], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    problem = dps.Problem(
        rows,
        np.repeat([3.0, 0.0], 25),
        loss=dps.losses.Squared(),
        domain=dps.domains.Polytope(sides_of, np.ones(5)),
        row_bound=1.0,
        response_bound=3.0,
    )
    return Localization.find(dps.Gibbs(problem, k=2e4, mu=1e-3), 1e-9)


def given_error(angle):
    """By how much a move along one given side is seen by another one, both scaled."""
    made = nearly_parallel(angle).prepare(np.random.default_rng(0)).proposal
    seen = made.sides @ made.back
    return len(seen), np.abs(seen - np.eye(len(seen))).max()


@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-6, 3e-8])
def test_nearly_parallel_sides_are_not_given_together(angle):
    number, error = given_error(angle)
    assert number == (2 if angle == 1e-2 else 1)
    assert error < 1e-9


def test_only_entangled_sides_are_given_up():
    normals = np.array([[1.0, 0.0, 0.0], [1.0, 1e-7, 0.0], [0.0, 0.0, 1.0]])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    assert proposals.are_entangled(normals[:2])
    assert not proposals.are_entangled(normals[[0, 2]])
    assert not proposals.are_entangled(normals[[]])
    held, near = np.full(3, -1.0), np.arange(3)
    assert proposals.select_independent(
        normals, held, near, tests_entanglement=True
    ) == [0, 2]


def test_a_side_that_is_entangled_with_nothing_given_stays_given():
    """The second side has to go, and with it what makes the third one doubtful."""
    sides_of = [[1.0, 0.0, 0.0], [1.0, 1e-5, 0.0], [0.0, 1.0, 1e-4], *-np.eye(3)]
    problem = dps.Problem(
        np.repeat(np.eye(3), 20, axis=0),
        np.repeat([3.0, 1.0, 9.9995e-5], 20),
        loss=dps.losses.Squared(),
        domain=dps.domains.Polytope(sides_of, [1.0, 1.0, 0.0, 3.0, 3.0, 3.0]),
        row_bound=1.0,
        response_bound=3.0,
    )
    place = Localization.find(dps.Gibbs(problem, k=1e6, mu=1e-3), 1e-9)
    made = place.prepare(np.random.default_rng(0))
    assert len(made.proposal.sides) == 2
    assert made.accepts_in_time


def test_proposals_have_the_slacks_they_were_given():
    made = nearly_parallel(1e-2).prepare(np.random.default_rng(0)).proposal
    slacks = 10.0 ** np.arange(-8.0, 0.0).repeat(2).reshape(-1, 2)
    rounded = made.back * (1.0 + 1e-8 * np.array([1.0, -1.0]))
    given = SimpleNamespace(draw=lambda rng, num_tries: slacks)
    corner = replace(made, back=rounded, slacks=given)
    v = corner.draw(np.random.default_rng(1), len(slacks))
    seen = corner.depths - v @ corner.sides.T
    assert np.abs(seen - slacks).max() < 1e-13


@pytest.mark.parametrize("number", [3, 4, 6])
def test_sides_that_share_little_in_pairs_and_all_together_are_not_all_given(number):
    step = np.eye(number) + np.eye(number, k=-1)
    sides_of = np.eye(number, k=-1) + 2e-3 * np.eye(number)
    sides_of[0] = step[0]
    rows = sides_of / np.linalg.norm(sides_of, axis=1, keepdims=True)
    turned = rows @ np.linalg.qr(np.random.default_rng(1).normal(size=(number,) * 2))[0]
    assert not proposals.are_entangled(turned[:1])
    assert proposals.are_entangled(turned)


def test_sides_that_are_given_for_what_they_share_are_caught(monkeypatch):
    monkeypatch.setattr(proposals, "MAX_MIXING", math.inf)
    assert given_error(3e-8)[1] > 0.01


# Known defects: each mark goes with its mending.


def just_inside(radius, depth, spread):
    """Logistic loss on a line, mode so close to the end that it counts as active."""
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((40, 1))
    labels = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    best, weights = np.zeros(1), np.zeros(40)
    for _ in range(50):
        chance = special.expit(-labels * (rows @ best))
        weights = chance * (1.0 - chance)
        slope = -(rows * (labels * chance)[:, None]).sum(axis=0)
        best = best - slope / (rows[:, 0] ** 2 @ weights)
    return LocalCase(
        loss=L.Logistic(),
        domain=D.Ball(radius, center=[-radius]),
        rows=rows,
        response=labels,
        k=40.0 / (rows[:, 0] ** 2 @ weights) / spread**2,
        mu=1e-15 / radius,
        offset=rows @ (best + depth),
    )


@pytest.mark.slow
def test_a_mode_just_inside_the_sphere_loses_no_mass():
    # Rounding errors of the machine decide at which depth the sphere counts as active.
    depths = np.geomspace(1e-4, 1e-6, 20)
    cases = (just_inside(1e5, depth, depth) for depth in depths)
    case = next(case for case in cases if case.place.mode.multiplier > 0.0)
    sample = accepted(case.prepared(), np.random.default_rng(12), 2_000)
    assert_law(line_levels(case, sample, [1.0]), lambda u: u)


def test_depths_below_a_sphere_keep_their_digits():
    case = local(L.Linear(), D.Ball(1.0), dim=1, num_records=3, k=1e8, mu=1e-8)
    sample = accepted(case.prepared(), np.random.default_rng(13), 2_000)
    assert len(np.unique(sample)) > 1_900


def test_an_entropy_whose_mode_underflows_is_no_error():
    rows, entropy = np.array([[1.0, 0.0], [0.5, 0.0]]), dps.regularizers.Entropy()
    domain, ones = D.Simplex(), np.ones(2)
    for k, mu in ((100.0, 0.01), (300.0, 1e-4)):
        case = LocalCase(L.Logistic(), domain, rows, ones, k, mu, entropy=entropy)
        sample = accepted(case.prepared(), np.random.default_rng(14), 2_000)
        assert_law(line_levels(case, sample, [1.0, -1.0]), lambda u: u)


def test_large_margins_break_no_bound():
    rng = np.random.default_rng(0)
    rows, far = rng.standard_normal((50, 2)), np.full(50, 1e5)
    response = far + rows @ np.array([0.3, -0.2]) + 0.1 * rng.standard_normal(50)
    problem = dps.Problem(
        rows,
        response,
        loss=L.Squared(),
        domain=D.Ball(2.0),
        row_bound=10.0,
        response_bound=2e5,
        offset=far,
        offset_bound=1e5,
    )
    place = Localization.find(dps.Gibbs(problem, k=1e4, mu=0.1), 1e-8)
    accepted(place.prepare(np.random.default_rng(1)), np.random.default_rng(2), 100)


REAL = {
    "mode on the sphere": (D.Ball(1.0), L.Logistic(), 300.0),
    "mode inside": (D.Ball(20.0), L.Logistic(), 800.0),
    "box": (D.Box(np.full(10, -0.3), np.full(10, 0.3)), L.SmoothedHinge(0.5), 500.0),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_real_records_give_the_law_of_the_proximal_sampler(name):
    domain, loss, k = REAL[name]
    data = dps.datasets.load("magic04", os.environ["DPSAMPLE_DATA"])
    rows, response = data.features[::10], data.response[::10]
    facts = {"row_bound": data.row_bound, "loss": loss, "domain": domain}
    target = dps.Gibbs(dps.Problem(rows, response, **facts), k=k, mu=0.05)
    options = {"num_chains": 2, "progress": False}
    exact = dps.sample(
        target, sampler=dps.samplers.Localized(), num_draws=1_000, seed=1, **options
    )
    chain = dps.sample(
        target, sampler=dps.Proximal(), num_draws=40_000, seed=2, **options
    )
    for view in views(target).values():
        ours = view(exact.posterior["theta"].to_numpy().reshape(-1, 10))
        theirs = view(chain.posterior["theta"].to_numpy()[:, ::40].reshape(-1, 10))
        assert_same_law(ours, theirs)
        with rejected():
            assert_same_law(ours + 0.7 * ours.std(), theirs)


@usual("10000000000000.0")
@pytest.mark.parametrize("rate", [1e11, 1e12, 1e13])
def test_a_held_bound_gets_the_cells_of_the_rounded_law(rate):
    """Doubles next to the corner of a box, against the exponential law there."""
    rows, width, count = np.full((20, 2), 0.5), 2.0**-53, 200_000
    problem = dps.Problem(
        rows, np.ones(20), row_bound=1.0, loss=L.Logistic(), domain=D.Box(-1.0, 1.0)
    )
    slope = 0.5 / (1.0 + math.e) - 0.01
    case = dps.Gibbs(problem, k=rate / slope, mu=0.01)
    prepared = dps.samplers.Localized().prepare(case, np.random.default_rng(0))
    drawn = accepted(prepared, np.random.default_rng(1), count)
    cells = np.rint((1.0 - drawn) / width)
    for column in cells.T:
        for last in (0, 3, round(1e16 / rate)):
            chance = math.exp(-rate * width * (last + 0.5))
            if chance < 1.0 - 1e-4:
                assert_frequency(int((column > last).sum()), len(column), chance)


def test_quantiles_of_tails_have_all_their_digits():
    logs = -np.concatenate([np.geomspace(1e-300, 1.0, 500), np.linspace(0.3, 300, 999)])
    found = np.array([log_quantile(each) for each in logs])
    np.testing.assert_allclose(found, special.ndtri_exp(logs), rtol=1e-11, atol=1e-12)
    assert log_quantile(-np.inf) == -np.inf and log_quantile(-0.0) == np.inf
