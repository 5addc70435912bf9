"""Runs that a check has to flag, and correct ones that it must not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.running import chains
from dpsample.running import draws as packing
from dpsample.samplers import chain
from dpsample.samplers.chain import COUNT
from dpsample.samplers.errors import OK
from dpsample.samplers.metropolis import mirror_langevin
from dpsample.targets import gibbs_target
from tests.support import sampler_mutants as mutants
from tests.support.unchecked_losses import unchecked


def gibbs(domain, *, k, mu=0.1, loss=None, dim=2, num_records=60):
    """Target with random records."""
    data = dps.datasets.logistic(num_records, dim, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic() if loss is None else loss,
        domain=domain,
        row_bound=1.0,
    )
    return dps.Gibbs(problem, k=k, mu=mu)


def cube(side=1.0, dim=2):
    return dps.domains.Box(np.full(dim, -side), np.full(dim, side))


compiled = cache(mutants.run_of)


def run_with(step, target, sampler, *, num_draws=1000, num_chains=4, seed=0):
    """Draws of a sampler whose step is replaced by a planted bug."""
    pilot, *rest = streams(seed, num_chains + 1)
    prepared = replace(sampler.prepare(target, pilot), run=compiled(step))
    found = chains.run(
        prepared,
        [prepared.draw_start(rng) for rng in rest],
        rest,
        num_draws=num_draws,
        num_warmup=200,
    )
    return packing.to_datatree(
        found.draws,
        packing.name_statistics(found.stats, step_size=prepared.settings["step_size"]),
        coefficients=target.feature_names,
        constant_data={"k": np.array(target.k), "mu": np.array(target.mu)},
        attributes={"sampler": repr(sampler), **prepared.settings},
    )


def tree(theta, *, energies=None, **attributes) -> Any:
    """Draws (chain, draw, dim) as a DataTree."""
    theta = np.asarray(theta)
    stats = {} if energies is None else {"energy": np.asarray(energies)}
    if not stats:
        stats = {"acceptance_rate": np.ones(theta.shape[:2])}
    return packing.to_datatree(
        theta,
        stats,
        coefficients=[f"x{j}" for j in range(theta.shape[2])],
        constant_data={},
        attributes=attributes,
    )


def unadjusted(target, pieces, plan, state, rng):
    """Mirror Langevin that accepts every proposal."""
    gradient, proposal, new_gradient = state.memory, state.vectors[0], state.vectors[1]
    here, there = state.vectors[2], state.vectors[3]
    state.counts[COUNT.proposals] += 1
    is_inside = mirror_langevin.propose(
        plan, state.position, gradient, rng, here, there, proposal
    )
    if (
        gibbs_target.inside(target, pieces, proposal, state.work) == 0.0
        or not is_inside
    ):
        return OK
    energy = chain.evaluate_gradient(target, pieces, state, proposal, new_gradient)
    mirror_langevin.drop_last_coordinate(plan.mirror, new_gradient)
    return chain.decide_with_gradient(state, proposal, energy, new_gradient, 1.0, 0.0)


@cache
def wells():
    """Loss with minima at the margins 10 and 18 and a barrier between them.

    It is not convex: every problem would refuse it.
    """
    from numba import njit

    @njit
    def value(u, y):
        t = u - 14.0
        if abs(t) > 8.0:
            return 0.5 + 0.375 * (abs(t) - 8.0)
        return (0.25 * t**4 - 8.0 * t * t) / 1024.0

    @njit
    def slope(u, y):
        t = u - 14.0
        if abs(t) > 8.0:
            return 0.375 * np.sign(t)
        return t * (t * t - 16.0) / 1024.0

    return unchecked(value, slope, slope_bound=0.375)


def two_modes(*, barrier):
    """Target with two modes and the energy of the barrier between them."""
    problem = dps.Problem(
        [[1.0]],
        [1.0],
        loss=wells(),
        domain=dps.domains.Box([0.0], [28.0]),
        row_bound=1.0,
        response_bound=1.0,
    )
    return dps.Gibbs(problem, k=16.0 * barrier, mu=0.0)
