"""Instances and chains whose record evaluations are counted.

All counts are deterministic numbers of a seed: evaluations of one record's loss or
slope, as kernels count them.
"""

import functools

import numpy as np

import dpsample as dps
from dpsample.numerics.norms import dual
from dpsample.problem.facts import PublicFacts
from dpsample.samplers import gaussian_fit
from dpsample.samplers.chain import COUNT, NUM_STATS, STAT
from dpsample.samplers.proximal import alternation, metric, proximal
from dpsample.samplers.proximal.proximal import Pilot

SMOOTH, KINKS, WORST = "logistic", "kinks at the mode", "worst rows"
DELTA = 1e-6
SHARE = 0.1  # of delta, for the sampler
WIDER = 1.0 + 1e-12  # of declared bounds: rounding of norms


def facts(params):
    """Public facts of the instance: losses are 1-Lipschitz in l_p, the radius is 1.

    "kinks at the mode": mean of |theta_j|, j = record mod d. "worst rows": absolute
    losses of rows that are as long in l2 as the norm of l_p allows.
    """
    is_smooth = params["records"] == SMOOTH
    return PublicFacts(
        num_records=params["n"],
        dim=params["d"],
        loss=dps.losses.Logistic() if is_smooth else dps.losses.Absolute(),
        domain=dps.domains.Ball(1.0, p=params["p"]),
        row_bound=WIDER,
        row_norm=dual(params["p"]),
        response_bound=None if is_smooth else WIDER,
    )


def rows(params, rng):
    """Feature rows and responses."""
    n, dim, p = params["n"], params["d"], params["p"]
    if params["records"] == SMOOTH:
        seed = int(rng.integers(2**31))
        data = dps.datasets.logistic(n, dim, seed=seed, signal=0.5)
        return data.features, data.response
    if params["records"] == KINKS or p > 2.0:
        return np.eye(dim)[np.arange(n) % dim], np.zeros(n)
    size = dim ** (-1.0 / dual(p))
    return np.where(rng.random((n, dim)) < 0.5, size, -size), np.zeros(n)


def mechanism(params):
    """Calibrate k and mu of Theorem 3 at the budget."""
    budget = dps.Budget(epsilon=params["epsilon"], delta=DELTA)
    return dps.calibrate(
        facts(params), budget, p=params["p"], risk="empirical", sampler_share=SHARE
    )


def target(params, rng):
    """Density of the mechanism on fresh records, and its mechanism."""
    public, (features, response) = facts(params), rows(params, rng)
    problem = dps.Problem(
        features,
        response,
        loss=public.loss,
        domain=public.domain,
        row_bound=public.row_bound,
        row_norm=public.row_norm,
        response_bound=public.response_bound,
    )
    mechanism_at = mechanism(params)
    return mechanism_at.target(problem), mechanism_at


def walk(prepared, state, rng, num_steps, **options):
    """Draws of a chain that goes on, and its record evaluations."""
    draws = np.empty((num_steps, state.position.size))
    stats = np.empty((num_steps, NUM_STATS))
    prepared.runner(**options)(state, rng, draws, stats)
    return draws, float(stats[:, STAT.num_records].sum())


class CountingPilot(Pilot):
    """Pilot run that adds up what its trials evaluate."""

    evaluations = 0

    def trial(self, step, num_steps):
        """One trial."""
        trial = super().trial(step, num_steps)
        self.evaluations += int(self.state.counts[COUNT.records])
        return trial


def pilot_evaluations(density, oracle, rng, gamma):
    """Record evaluations of the pilot run of `Proximal.prepare`, made once more."""
    start, total = gaussian_fit.minimize(density)[0], 0
    for option in metric.candidates(density, oracle=oracle):
        bound = proximal.start_bound(density, option, start)
        steps_for = functools.partial(alternation.num_steps, gamma, start_bound=bound)
        pilot = CountingPilot(density, option, start, rng, steps_for)
        pilot.search()
        total += pilot.evaluations
    return total
