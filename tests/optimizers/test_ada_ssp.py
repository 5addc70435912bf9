"""Noisy normal equations: what a record moves, what is solved, the law of the error."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize as search
from scipy.sparse import csr_matrix

import dpsample as dps
from dpsample import losses
from dpsample.core.streams import streams
from dpsample.domains import Ball, Box, WholeSpace
from dpsample.noise.elementary import add_symmetric_gaussian
from dpsample.optimizers import AdaSSP
from dpsample.optimizers.algorithms.ada_ssp import NormalEquations, joint_square
from dpsample.optimizers.loop.optimizer import Recipe
from tests.support.descents import descend
from tests.support.statistics import assert_scale, rejected
from tests.support.tiers import usual

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
EXACT = {"matrix_stddev": 0.0, "vector_stddev": 0.0}


def records(number=200, dim=3, *, seed=1, domain=None, sparse=False, **options):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(number, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 + 1e-14)
    theta = np.linspace(-0.5, 0.5, dim)
    y = np.clip(rows @ theta + 0.1 * rng.normal(size=number), -1.0, 1.0)
    return dps.Problem(
        csr_matrix(rows) if sparse else rows,
        y,
        loss=losses.Squared(),
        domain=domain or WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
        **options,
    )


def moved(parameters, a, c, dim):
    """Squared distance of S and r in units of the noise; vectors go into the balls."""
    x, u = parameters[:dim], parameters[dim : 2 * dim]
    y, z = np.clip(parameters[2 * dim :], -1.0, 1.0)
    x, u = (v / max(1.0, np.linalg.norm(v)) for v in (x, u))
    matrix = np.outer(x, x) - np.outer(u, u)
    return a * (matrix**2).sum() + c * ((x * y - u * z) ** 2).sum()


@usual("0.3-2", "0.7-2")
@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.3, 0.34, 0.5, 0.7, 0.97])
def test_no_pair_of_records_is_farther_apart_and_one_is_as_far(share, dim):
    """Climbs from many pairs: short, long, equal, opposite, orthogonal."""
    rng = np.random.default_rng(3)
    a, c, worst = share, 1.0 - share, 0.0
    bound = joint_square(a, c, "replace_one")
    for _ in range(30):
        start = rng.normal(size=2 * dim + 2) * rng.choice([0.1, 1.0, 5.0])
        found = search(
            lambda p: -moved(p, a, c, dim), start, method="Nelder-Mead", tol=1e-10
        )
        assert -found.fun <= bound * (1.0 + 1e-12)
        worst = max(worst, -found.fun)
    # By hand: full length, the cosine of the proof.
    t = min(1.0, c / (2.0 * a))
    x, u = np.eye(dim)[0], np.eye(dim)[0] * t + np.eye(dim)[1] * math.sqrt(1.0 - t * t)
    hand = moved(np.concatenate([x, u, [1.0, -1.0]]), a, c, dim)
    assert hand == pytest.approx(bound, rel=1e-12)
    assert worst > 0.99 * bound
    assert bound < 2.0 * a + 4.0 * c
    one = np.concatenate([x, 0.0 * x, [1.0, 0.0]])
    assert moved(one, a, c, dim) == pytest.approx(joint_square(a, c, "zero_out"))


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_computed_means_of_neighbors_are_within_the_budget(relation, share):
    """Hostile records: all duplicates, large units; the pair of the proof."""
    budget, worst = replace(BUDGET, relation=relation), 0.0
    row, y = np.array([3e5, 4e5]) * (1.0 - 1e-15), 70.0
    t = min(1.0, (1.0 - share) / (2.0 * share))
    other = t * row + math.sqrt(1.0 - t * t) * row[::-1] * [1.0, -1.0]
    for end, z in ((other, -y), (0.0 * row, 0.0), (-row, y), (row, -y)):
        means = []
        for last, response in ((row, y), (end, z)):
            rows = np.vstack([np.tile(row, (999, 1)), last])
            problem = dps.Problem(
                rows,
                np.append(np.full(999, y), response),
                loss=losses.Squared(),
                domain=WholeSpace(),
                row_bound=5e5,
                response_bound=70.0,
            )
            seen = []
            query = NormalEquations(**EXACT, ridge=0.0)
            look = lambda facts, s, r, seen=seen: seen.extend((s, r)) or r  # noqa: E731
            object.__setattr__(query, "solve", look)
            query.answer(problem, np.random.default_rng(1))
            means.append(seen)
        noise = AdaSSP(matrix_share=share).recipe(problem.facts, budget)
        (one, other_mean), (two, vector) = means
        square = (((one - two) / noise.inputs["matrix_stddev"]) ** 2).sum()
        square += (((other_mean - vector) / noise.inputs["vector_stddev"]) ** 2).sum()
        if relation == "replace_one" or not end.any():
            assert square <= noise.event.gdp**2
            worst = max(worst, square / noise.event.gdp**2)
    assert worst > 1.0 - 1e-6


@pytest.mark.parametrize("sparse", [False, True])
def test_without_noise_it_is_ridge_regression(sparse):
    problem = records(sparse=sparse, intercept=True)
    rows = np.hstack([records().data.dense, np.ones((200, 1))])
    for ridge in (0.0, 0.3):
        found = dps.minimize(problem, AdaSSP(ridge=ridge), None, seed=1).theta
        gram = rows.T @ rows / 200 + ridge * np.eye(4)
        expected = np.linalg.solve(gram, rows.T @ problem.data.response / 200)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    # Fewer records than columns: the shortest of the solutions.
    few = records(2, 5)
    found = dps.minimize(few, AdaSSP(), None, seed=1).theta
    expected = np.linalg.lstsq(few.data.dense, few.data.response, rcond=None)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_offsets_count_as_part_of_the_response():
    plain = records()
    offset = np.linspace(-0.3, 0.3, 200)
    shifted = dps.Problem(
        plain.data.dense,
        plain.data.response,
        loss=losses.Squared(),
        domain=WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
        offset=offset,
        offset_bound=0.3,
    )
    found = dps.minimize(shifted, AdaSSP(), None, seed=1).theta
    y = plain.data.response - offset
    expected = np.linalg.lstsq(plain.data.dense, y, rcond=None)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    noise = [
        AdaSSP().recipe(p.facts, BUDGET).inputs["vector_stddev"]
        for p in (plain, shifted)
    ]
    assert noise[1] == pytest.approx(1.3 * noise[0])


def test_on_balls_it_is_the_minimizer_and_in_boxes_the_projection():
    center = [0.2, 0.1, -0.3]
    problem = records(domain=Ball(0.1, center=center))
    found = dps.minimize(problem, AdaSSP(), None, seed=1).theta
    away = found - center
    assert np.linalg.norm(away) == pytest.approx(0.1)
    a, y = problem.data.dense, problem.data.response
    slope = a.T @ (a @ found - y) / 200  # opposite to the way from the center
    assert slope @ away == pytest.approx(-0.1 * np.linalg.norm(slope), rel=1e-9)
    free = dps.minimize(records(), AdaSSP(), None, seed=1).theta
    boxed = dps.minimize(records(domain=Box(-0.2, 0.2)), AdaSSP(), None, seed=1).theta
    np.testing.assert_allclose(boxed, np.clip(free, -0.2, 0.2), rtol=1e-9)


def test_noisy_matrices_are_symmetric_and_spherical():
    draws = []
    for rng in streams(4, 2000):
        add_symmetric_gaussian(rng, 0.7, matrix := np.zeros((3, 3)))
        assert (matrix == matrix.T).all()
        draws.append(matrix)
    found = np.array(draws) / 0.7
    i, j = np.triu_indices(3)
    scaled = found[:, i, j] * np.where(i == j, 1.0, math.sqrt(2.0))
    assert_scale(scaled.ravel(), detects=0.5)
    with rejected():
        assert_scale(0.5 * scaled.ravel(), detects=0.5)


def test_errors_have_the_stated_covariance():
    problem = records(20_000, 2)
    recipe = AdaSSP().recipe(problem.facts, BUDGET)
    tau, s = recipe.inputs["matrix_stddev"], recipe.inputs["vector_stddev"]
    exact = dps.minimize(problem, AdaSSP(), None, seed=1).theta
    ends = np.array([descend(problem, recipe, g).theta for g in streams(2, 1500)])
    a = problem.data.dense
    inverse = np.linalg.inv(a.T @ a / 20_000)
    inner = (s**2 + 0.5 * tau**2 * exact @ exact) * np.eye(2)
    inner += 0.5 * tau**2 * np.outer(exact, exact)
    root = np.linalg.cholesky(inverse @ inner @ inverse)
    errors = np.linalg.solve(root, (ends - exact).T)
    assert_scale(errors.ravel(), detects=0.5)
    with rejected():
        assert_scale(0.5 * errors.ravel(), detects=0.5)


def test_noise_larger_than_the_records_still_gives_a_finite_answer():
    for domain in (WholeSpace(), Ball(2.0)):
        problem = records(20, 12, domain=domain)
        recipe = AdaSSP().recipe(problem.facts, BUDGET)
        ends = [descend(problem, recipe, g).theta for g in streams(3, 50)]
        assert np.isfinite(ends).all()
        assert np.linalg.norm(ends, axis=1).max() <= 10.0


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_certificates_are_proved_by_both_checkers(relation):
    budget = replace(BUDGET, relation=relation)
    fit = dps.minimize(records(domain=Ball(2.0)), AdaSSP(), budget)
    assert fit.certificate.kind == "normal_equations" and fit.certificate.releasable
    assert "ARITHMETIC" not in fit.certificate.assumptions
    for checker in ("standard", "ball"):
        dps.verify(fit.certificate, checker=checker)
    less = dict(fit.certificate.inputs) | {"vector_stddev": 1e-3}
    forged = replace(fit.certificate, inputs=tuple(less.items()), digest="")
    with pytest.raises(ValueError, match="vector_stddev"):
        dps.verify(forged)


def test_it_beats_methods_that_pay_for_the_radius():
    """Error on the records, means of ten fits: half, or less."""
    problem, errors = records(5000, 5, domain=Ball(3.0)), {}
    least = problem.risk(dps.minimize(problem, AdaSSP(), None, seed=1).theta)
    advised = dps.optimizers.NoisyGD(output="tail")
    for method in (AdaSSP(), advised):
        fits = [dps.minimize(problem, method, BUDGET, seed=k).theta for k in range(10)]
        errors[method.name] = np.mean([problem.risk(w) for w in fits]) - least
    assert 2.0 * errors["ada_ssp"] < errors["noisy_gd"]


def test_what_it_cannot_fit_is_refused():
    facts = records().facts
    for known, words in (
        (replace(facts, loss=losses.Huber()), "loss must be dps.losses.Squared"),
        (replace(facts, response_bound=math.inf), "response_bound must be finite"),
        (replace(facts, dim=5001), "at most 5000 coefficients"),
    ):
        with pytest.raises(ValueError, match=words):
            AdaSSP().recipe(known, BUDGET)
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        AdaSSP().recipe(facts, BUDGET, "paper")
    for options, words in (
        ({"ridge": -1.0}, "ridge must be"),
        ({"matrix_share": 1.0}, "matrix_share must be"),
    ):
        with pytest.raises(ValueError, match=words):
            AdaSSP(**options)


def test_queries_are_phases():
    query = NormalEquations(**EXACT, ridge=0.0)
    with pytest.raises(ValueError, match=r"phases\[0\] must be a Loop"):
        Recipe(phases=(3,), event=None, inputs={})
    assert not Recipe(phases=(query,), event=None, inputs={}).is_noisy
