"""Runs of the exact sampler, and targets in three dimensions for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dpsample as dps
from dpsample.samplers import Exact
from dpsample.samplers.chain import NUM_STATS

L = dps.losses


def prepare(target):
    return Exact().prepare(target, np.random.default_rng(1))


def run(prepared, seed, count, plan=None):
    """Draws, statistics and counts."""
    dim = prepared.start.size
    draws, stats = np.full((count, dim), np.nan), np.empty((count, NUM_STATS))
    prepared = prepared if plan is None else replace(prepared, plan=plan)
    state = prepared.init()
    prepared.runner()(state, np.random.default_rng(seed), draws, stats)
    return draws, stats, state.counts


# Slope and interval.


def three_dimensions(domain, loss=None, *, dim=3, k=20.0, mu=0.1, regularizer=None):
    """Target with six random records."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(6, dim)) / np.sqrt(dim)
    problem = dps.Problem(
        rows,
        np.where(rng.random(6) < 0.5, 1.0, -1.0),
        loss=L.Logistic() if loss is None else loss,
        domain=domain,
        row_bound=10.0,
    )
    return dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)
