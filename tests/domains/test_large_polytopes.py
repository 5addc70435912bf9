"""Polytopes in many coordinates: hidden equalities, sparse rows, hostile input."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.core.spec import from_dict
from dpsample.domains import KINDS, Polytope, polytope_reduction
from dpsample.domains.polytope import polytope_contains
from tests.support.tiers import one_in

DIM = 60


def ordered(dim, *, is_simplex=True, scale=1.0):
    """0 <= x_1 <= ... <= x_d, with sum ``scale`` or all at most ``scale``."""
    steps = sparse.diags_array(
        [np.ones(dim - 1), -np.ones(dim - 1)], offsets=[0, 1], shape=(dim - 1, dim)
    )
    lower, upper = np.full(dim, -np.inf), np.full(dim, np.inf)
    lower[0] = 0.0
    if is_simplex:
        ones = np.ones((1, dim))
        return Polytope(steps, np.zeros(dim - 1), ones, [scale], lower=lower)
    upper[-1] = scale
    return Polytope(steps, np.zeros(dim - 1), lower=lower, upper=upper)


def planted(rank, seed):
    """Arguments of a box cut by hyperplanes, hidden in pairs or sums of rows."""
    rng = np.random.default_rng(seed)
    equal = rng.integers(-2, 3, (rank, DIM)) * (rng.random((rank, DIM)) < 0.3)
    equal[:, :rank] += 5 * np.eye(rank, dtype=int)
    point = rng.uniform(0.3, 0.7, DIM)
    level = equal @ point
    pairs = np.vstack([equal[0], -3.0 * equal[0], equal[1:], -equal[1:].sum(axis=0)])
    limits = np.concatenate(
        [[level[0], -3.0 * level[0]], level[1:], [-level[1:].sum()]]
    )
    cuts = rng.standard_normal((20, DIM))
    rows = np.vstack([pairs, cuts])
    limits = np.append(limits, cuts @ point + rng.uniform(0.1, 1.0, 20))
    return rows, limits, equal, level


def points_of(body, count=50):
    """Points of the domain, given by round coordinates."""
    origin, basis = body.coordinates(DIM)[:2]
    noise = np.random.default_rng(1).standard_normal((count, basis.shape[1]))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return body.move_inside(origin + noise @ basis.T)


def misses_equalities(body, equal, level):
    """Whether points of the domain violate the planted equalities."""
    points = points_of(body)
    return bool(np.abs(points @ equal.T - level).max() > 1e-9)


@one_in(4)
@pytest.mark.parametrize("seed", range(4))
def test_planted_equalities_are_found(seed):
    rank = 2 + 3 * seed
    rows, limits, equal, level = planted(rank, seed)
    body = Polytope(rows, limits, lower=0.0, upper=1.0)
    assert body.affine_dim(DIM) == DIM - rank and body.is_bounded
    assert not misses_equalities(body, equal, level)
    assert all(body.contains(point) for point in points_of(body))
    # The same set, with the equalities given.
    shown = Polytope(rows[rank + 1 :], limits[rank + 1 :], equal, level, 0.0, 1.0)
    assert shown.contains(body.default_center(DIM))
    assert body.contains(shown.default_center(DIM))
    low, high = (-body.support(-np.eye(DIM)), body.support(np.eye(DIM)))
    np.testing.assert_allclose(shown.support(np.eye(DIM)), high, atol=1e-6)
    assert (points_of(body) >= low).all() and (points_of(body) <= high).all()


def test_an_equality_that_is_removed_with_a_wrong_offset_is_caught(monkeypatch):
    rows, limits, equal, level = planted(5, 0)
    presolve = polytope_reduction.presolve

    def wrong(system, error):
        solved = presolve(system, error)
        return solved._replace(shift=solved.shift + 1e-6)

    monkeypatch.setattr(polytope_reduction, "presolve", wrong)
    body = Polytope(rows, limits, lower=0.0, upper=1.0)
    assert misses_equalities(body, equal, level)
    assert not body.contains(body.default_center(DIM))


@one_in(4)
@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "lil_array"])
def test_sparse_and_dense_rows_give_the_same(kind):
    rows, limits, equal, level = planted(5, 1)
    make = getattr(sparse, kind)
    bounds = {"lower": np.zeros(DIM), "upper": np.ones(DIM)}
    dense = Polytope(rows[6:], limits[6:], equal, level, **bounds)
    thin = Polytope(make(rows[6:]), limits[6:], make(equal), level, **bounds)
    direction = np.random.default_rng(0).standard_normal((3, DIM))
    np.testing.assert_array_equal(dense.default_center(DIM), thin.default_center(DIM))
    np.testing.assert_array_equal(dense.support(direction), thin.support(direction))
    np.testing.assert_array_equal(dense.hull(DIM)[1], thin.hull(DIM)[1])
    assert sparse.issparse(thin.A) and isinstance(dense.A, np.ndarray)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_tiny_and_huge_polytopes_are_the_same(scale):
    body, unit = ordered(DIM, scale=scale), ordered(DIM)
    assert body.affine_dim(DIM) == DIM - 1
    np.testing.assert_allclose(
        body.default_center(DIM), scale * unit.default_center(DIM), rtol=1e-6
    )
    assert body.contains(body.default_center(DIM))
    assert not body.contains(1.01 * body.default_center(DIM))


def test_coordinates_of_many_scales_keep_their_ranges():
    widths = 10.0 ** np.linspace(-7, 3, DIM)
    body = Polytope(A_eq=np.ones((1, DIM)), b_eq=[0.0], lower=-widths, upper=widths)
    assert body.affine_dim(DIM) == DIM - 1
    high = np.asarray(body.support(np.eye(DIM)))
    np.testing.assert_allclose(high[:-1], widths[:-1], rtol=1e-5)
    points = points_of(body)
    assert (points.std(axis=0)[:-1] > 1e-3 * widths[:-1]).all()
    assert (np.abs(points.sum(axis=1)) < 1e-9).all()


def test_projections_chords_and_facets_are_in_the_users_coordinates():
    rng, body = np.random.default_rng(3), ordered(DIM)
    center = body.default_center(DIM)
    for point in center + rng.standard_normal((5, DIM)):
        near, other = body.project(point), points_of(body, 1)[0]
        assert body.contains(near) and not body.contains(point)
        assert (point - near) @ (other - near) <= 1e-7 * np.linalg.norm(point)
    along = rng.standard_normal(DIM)
    assert body.chord(center, along) == (0.0, 0.0)
    along -= along.mean()
    first, last = body.chord(center, along)
    assert first < 0.0 < last
    assert body.contains(center + last * along)
    assert not body.contains(center + 1.0001 * last * along)
    rows, limits = body.facets(DIM)
    gaps = body.slacks(center[None])[0]
    np.testing.assert_allclose(gaps, limits - rows @ center)
    assert (gaps > 0.0).all()
    numbers = body.body(DIM)
    assert numbers.matrix.shape == (len(gaps) + 1, DIM)


def test_membership_is_that_of_sums_from_left_to_right():
    """Also on facets, where rounding decides and another order decides otherwise."""
    rng, dim = np.random.default_rng(3), 40
    rows = rng.standard_normal((30, dim))
    body = Polytope(rows, np.ones(30)).body(dim)
    matrix, bounds, out = body.matrix, body.bounds, np.empty(1)
    others = 0
    for _ in range(400):
        theta = rng.standard_normal(dim)
        theta *= np.min(bounds / np.maximum(matrix @ theta, 1e-300))
        theta *= 1.0 + 2e-16 * rng.integers(-3, 4)
        sums = np.zeros(len(bounds))
        for j in range(dim):
            sums += matrix[:, j] * theta[j]
        polytope_contains(body, theta, out)
        assert out[0] == (sums <= bounds).all()
        others += (matrix @ theta <= bounds).all() != out[0]
    assert others > 0


def test_copies_are_equal():
    body = ordered(DIM)
    again = from_dict(KINDS, json.loads(json.dumps(body.to_dict())))
    assert again == body and hash(again) == hash(body)
    copy = pickle.loads(pickle.dumps(body))
    assert copy == body
    np.testing.assert_array_equal(copy.default_center(DIM), body.default_center(DIM))


def test_unbounded_polytopes_are_known_to_be():
    body = Polytope(np.ones((1, DIM)), [1.0], lower=0.0)
    half = Polytope(np.ones((1, DIM)), [1.0])
    assert body.is_bounded and not half.is_bounded
    assert half.support(np.ones(DIM)) == pytest.approx(1.0, rel=1e-3)
    assert half.support(np.arange(DIM)) == np.inf
    assert half.contains(half.default_center(DIM))
    assert half.max_norm(2.0, np.zeros(DIM), DIM) == np.inf


CUBE = {"lower": np.zeros(DIM), "upper": np.ones(DIM)}
FIRST = np.eye(DIM)[:1]
HOSTILE = {
    "Lower bound 0 and upper bound 0 contradict": {
        "lower": np.append(2.0, np.zeros(DIM - 1)),
        "upper": 1.0,
    },
    "Row 1 of A and lower bounds .* contradict": {
        "A": np.vstack([np.ones(DIM), -np.ones(DIM) + FIRST[0]]) * [[1.0], [-1.0]],
        "b": [50.0, -0.1],
        **CUBE,
    },
    "Rows 0 and 2 of A contradict": {
        "A": np.vstack([FIRST, np.ones(DIM), -FIRST]),
        "b": [0.5, 40.0, -2.0],
        **CUBE,
    },
    "Rows 0 and 1 of A_eq contradict": {
        "A_eq": [np.ones(DIM), 2.0 * np.ones(DIM)],
        "b_eq": [1.0, 3.0],
        **CUBE,
    },
    "got the single point": {"A": np.ones((1, DIM)), "b": [0.0], **CUBE},
    "zeros in row 1, which are never 1": {
        "A_eq": [np.ones(DIM), np.zeros(DIM)],
        "b_eq": [1.0, 1.0],
        **CUBE,
    },
    "nonzero, got zeros in row 0": {"A": np.zeros((1, DIM)), "b": [1.0], **CUBE},
    "A must be finite": {"A": np.full((1, DIM), np.nan), "b": [1.0]},
    "lower must be finite or -inf, got nan at index 3": {
        "lower": np.where(np.arange(DIM) == 3, np.nan, 0.0)
    },
    "upper must be finite or inf, got -inf": {"upper": np.full(DIM, -np.inf)},
    r"b must be of shape \(1,\)": {"A": FIRST, "b": [1.0, 2.0]},
    "A_eq must be of shape": {"A_eq": [[1.0]], "b_eq": [1.0], "A": FIRST, "b": [1.0]},
    "given together, got A alone": {"A": FIRST},
}


@pytest.mark.parametrize("words", HOSTILE)
def test_refusals_name_what_is_wrong(words):
    with pytest.raises(ValueError, match=words):
        Polytope(**HOSTILE[words])


def test_messages_have_the_names_of_tables():
    names = [f"flux {j}" for j in range(DIM)]
    table = pd.DataFrame([np.ones(DIM)], index=["carbon"], columns=names)
    with pytest.raises(ValueError, match="Row 'carbon' of A_eq and lower bounds 'flux"):
        Polytope(A_eq=table, b_eq=[-1.0], **CUBE)


def test_duplicate_rows_and_integers_change_nothing():
    rows = np.vstack([np.ones((3, DIM), dtype=int), np.eye(DIM, dtype=int)])
    limits = np.append([1, 1, 2], np.full(DIM, 1))
    body = Polytope(rows, limits, lower=np.zeros(DIM, dtype=int))
    plain = Polytope(np.ones((1, DIM)), [1.0], lower=0.0)
    assert body.affine_dim(DIM) == DIM and body.is_bounded
    directions = np.random.default_rng(0).standard_normal((3, DIM))
    np.testing.assert_allclose(
        body.support(directions), plain.support(directions), rtol=1e-5
    )


def test_equal_bounds_fix_coordinates():
    lower, upper = np.zeros(DIM), np.ones(DIM)
    lower[5] = upper[5] = 0.25
    body = Polytope(lower=lower, upper=upper)
    assert body.affine_dim(DIM) == DIM - 1
    assert (points_of(body)[:, 5] == 0.25).all()


def uniform(body, dim):
    """Uniform distribution, with names of the coordinates."""
    problem = dps.Problem(
        np.zeros((1, dim)),
        [1.0],
        loss=dps.losses.Linear(),
        domain=body,
        row_bound=1.0,
        response_bound=1.0,
        feature_names=[f"x{j}" for j in range(dim)],
    )
    return dps.Gibbs(problem, k=1.0, mu=0.0)


@pytest.mark.slow
def test_ordered_shares_have_the_means_of_sorted_dirichlet_variables():
    body = ordered(DIM)
    tree = dps.sample(
        uniform(body, DIM),
        sampler=dps.samplers.BilliardHMC(),
        num_draws=500,
        num_chains=4,
        seed=1,
        progress=False,
        check=False,
    )
    theta = tree.posterior["theta"]
    draws = theta.values.reshape(-1, DIM)
    assert "x7" in [str(name) for name in theta.coords[theta.dims[-1]].values]
    assert all(body.contains(point) for point in draws[::50])
    # E x_i = sum_{j <= i} 1 / (d (d - j + 1))
    means = np.cumsum(1.0 / np.arange(DIM, 0, -1)) / DIM
    error = draws.std(axis=0) / np.sqrt(len(draws) / 10.0)
    assert (np.abs(draws.mean(axis=0) - means) < 5.0 * error).all()
    # The test sees a mean that is off by a tenth of a standard deviation.
    assert not (np.abs(1.1 * draws.mean(axis=0) - means) < 5.0 * error).all()
