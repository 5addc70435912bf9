"""Starts of chains whose mode is on a wall or in a corner: inside, and dispersed."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import chain
from dpsample.samplers.chain import reflect_move

D, S = dps.domains, dps.samplers
DIM = 12


def facets(dim, count):
    """Polytope in a cube, with a vertex at the origin of more facets than it needs."""
    rows = np.random.default_rng(3).standard_normal((count, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, 0] = -np.abs(rows[:, 0]) - 0.3
    sides = np.concatenate([np.eye(dim), -np.eye(dim)])
    return D.Polytope(
        np.concatenate([rows, sides]),
        np.concatenate([np.zeros(count), np.full(2 * dim, 3.0)]),
    )


FIRST = np.eye(DIM)[0]
WALLS = {
    "corner of a box": (D.Box(-1.0, 1.0), -np.ones(DIM)),
    "side of a box": (D.Box(-1.0, 1.0), FIRST),
    "l2 ball": (D.Ball(1.0), FIRST),
    "vertex of an l1 ball": (D.Ball(1.0, p=1.0), FIRST),
    "l1.5 ball": (D.Ball(1.0, p=1.5, center=FIRST), 2.0 * FIRST),
    "corner of an l_inf ball": (D.Ball(1.0, p=np.inf), np.ones(DIM)),
    "vertex of a polytope": (facets(DIM, 3 * DIM), np.zeros(DIM)),
    "vertex of a simplex": (D.Simplex(), FIRST),
    "nuclear ball": (D.SchattenBall(1.0, p=1.0, shape=(3, 4)), FIRST),
    "spectral ball": (
        D.SchattenBall(1.0, p=np.inf, shape=(3, 4)),
        np.eye(3, 4).ravel(),
    ),
}


def starts_at(name, *, is_stretched, num_starts=40):
    """Mode, starts and whitened moves, the last of unit scale."""
    domain, mode = WALLS[name]
    rows = np.zeros((1, DIM))
    problem = dps.Problem(
        rows, [1.0], loss=dps.losses.Linear(), domain=domain, row_bound=1.0
    )
    target = dps.Gibbs(problem, k=1.0, mu=0.0)
    basis = domain.hull(DIM)[1]
    rank, rng = basis.shape[1], np.random.default_rng(1)
    scales = np.full(rank, 0.05)
    if is_stretched:
        basis = basis @ np.linalg.qr(rng.standard_normal((rank, rank)))[0]
        scales = np.geomspace(0.001, 0.05, rank)
    start = mode + 1e-3 * (domain.interior_point(DIM) - mode)
    factor = np.ascontiguousarray(basis * scales)
    noise = rng.standard_normal((num_starts, rank))
    found = np.array([reflect_move(target, start, factor, z) for z in noise])
    assert all(map(domain.contains, found))
    return start, found, (found - start) @ basis / scales, noise


@pytest.mark.slow
@pytest.mark.parametrize("is_stretched", [False, True])
@pytest.mark.parametrize("name", WALLS)
def test_starts_at_a_wall_are_as_dispersed_as_inside(name, is_stretched):
    _, found, moves, noise = starts_at(name, is_stretched=is_stretched)
    assert len(np.unique(found, axis=0)) == len(found)
    lengths = np.linalg.norm(moves, axis=1) / np.linalg.norm(noise, axis=1)
    assert np.median(lengths) > 0.7
    assert lengths.min() > 0.15  # a move that comes back is shorter


def test_a_move_that_stays_inside_is_not_changed():
    start, found, _, noise = starts_at("side of a box", is_stretched=False)
    inward = noise[:, 0] < 0.0
    exact = start + 0.05 * noise
    np.testing.assert_allclose(found[inward], exact[inward], rtol=1e-12)
    exact[:, 0] = 1.0 - 0.001 - np.abs(0.05 * noise[:, 0])
    np.testing.assert_allclose(found[~inward], exact[~inward], atol=0.0021)


def test_a_corner_reflects_all_of_its_walls_at_once(monkeypatch):
    monkeypatch.setattr(chain, "MAX_REFLECTIONS", 2)
    start, found, _, noise = starts_at("corner of a box", is_stretched=False)
    np.testing.assert_allclose(found - start, 0.05 * np.abs(noise), atol=0.0021)


@pytest.mark.parametrize("name", ["corner of a box", "vertex of a simplex"])
def test_after_too_many_reflections_a_start_is_projected(monkeypatch, name):
    monkeypatch.setattr(chain, "MAX_REFLECTIONS", 3)
    start, found, _, _ = starts_at(name, is_stretched=True)
    assert np.median(np.linalg.norm(found - start, axis=1)) > 0.01


@pytest.mark.parametrize(
    "sampler", [S.RandomWalk(), S.MALA(), S.CoordinateHitAndRun(), S.HitAndRun()]
)
def test_chains_of_samplers_start_dispersed_beside_the_mode_on_a_wall(sampler):
    rng = np.random.default_rng(2)
    rows = rng.uniform(-0.3, 0.3, size=(200, 6))
    rows[:, 0] += 0.5
    problem = dps.Problem(
        rows,
        np.ones(200),
        loss=dps.losses.Logistic(),
        domain=D.Box(-0.2, 0.2),
        row_bound=2.0,
    )
    target = dps.Gibbs(problem, k=400.0, mu=0.01)
    prepared = sampler.prepare(target, rng)
    starts = [prepared.draw_start(np.random.default_rng(i)) for i in range(40)]
    assert len(np.unique(starts, axis=0)) == 40
    spreads = np.std(starts, axis=0)
    scales = np.sqrt((prepared.scatter**2).sum(axis=1))
    assert (spreads > 0.2 * np.minimum(scales, 0.2)).all()
