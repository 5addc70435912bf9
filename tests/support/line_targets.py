"""Targets for samplers that draw along lines: matrices, simplices, sparse features."""

from __future__ import annotations

import numpy as np
from scipy import sparse

import dpsample as dps
from dpsample.samplers.chain import NUM_STATS

L, D, R = dps.losses, dps.domains, dps.regularizers
SQUARE = np.vstack([np.eye(4), -np.eye(4)])


def target(loss, domain, dim, *, regularizer=None, num_records=9, seed=0, **options):
    """Gibbs target on random records, with an offset; ``is_sparse`` drops entries."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_records, dim)) / np.sqrt(dim)
    if options.get("is_sparse"):
        features = sparse.csr_matrix(features * (rng.random(features.shape) < 0.4))
    problem = dps.Problem(
        features,
        np.where(rng.random(num_records) < 0.5, 1.0, -1.0),
        loss=loss,
        domain=domain,
        row_bound=10.0,
        response_bound=1.0,
        offset=0.3 * rng.normal(size=num_records),
        offset_bound=5.0,
    )
    k, mu = options.get("k", 15.0), options.get("mu", 0.2)
    return dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)


TARGETS = {
    "logistic, whole space": target(L.Logistic(), D.WholeSpace(), 4),
    "sparse logistic, box": target(L.Logistic(), D.Box(-1.0, 0.5), 4, is_sparse=True),
    "hinge, l_1.5 ball": target(
        L.Hinge(), D.Ball(1.0, p=1.5), 4, regularizer=R.SquaredNorm(1.5)
    ),
    "sparse hinge, simplex": target(L.Hinge(), D.Simplex(), 4, is_sparse=True),
    "absolute, simplex, entropy": target(
        L.Absolute(), D.Simplex(), 4, regularizer=R.Entropy()
    ),
    "squared, ball": target(L.Squared(), D.Ball(0.8), 4),
    "squared, simplex": target(L.Squared(), D.Simplex(), 4),
    "linear, sparse polytope": target(L.Linear(), D.Polytope(SQUARE, np.ones(8)), 4),
    "quantile, polytope": target(
        L.Quantile(0.2),
        D.Polytope(np.vstack([SQUARE + 0.1, np.ones((1, 4))]), np.ones(9)),
        4,
        num_records=200,
    ),
    "hinge, nuclear ball, nuclear norm": target(
        L.Hinge(),
        D.SchattenBall(1.0, p=1.0, shape=(2, 2)),
        4,
        regularizer=R.SchattenSquared(1.5, shape=(2, 2)),
    ),
    "linear, operator ball": target(
        L.Linear(), D.SchattenBall(1.0, p=np.inf, shape=(2, 2)), 4
    ),
    "logistic, cube as a ball": target(L.Logistic(), D.Ball(1.0, p=np.inf), 4, mu=0.0),
}


def draw(prepared, state, rng, count):
    """Draws and statistics of one chain."""
    draws = np.empty((count, state.position.size))
    stats = np.empty((count, NUM_STATS))
    prepared.runner()(state, rng, draws, stats)
    return draws, stats


def one_draw_each(prepared, starts, rng, *, keep_caches=False):
    """One draw from every start, caches filled anew (unless a test forbids it)."""
    state = prepared.init(starts[0])
    out, row = np.empty_like(starts), np.empty((1, NUM_STATS))
    run = prepared.runner()
    for i, start in enumerate(starts):
        state.position[:] = start
        if not keep_caches or i == 0:
            state.memory[0] = -1.0
        run(state, rng, out[i : i + 1], row)
    return out


def copied(prepared, state):
    """Fresh state with what a checkpoint keeps of another one."""
    fresh = prepared.init(state.position)
    fresh.energy[:], fresh.memory[:] = state.energy, state.memory
    return fresh
