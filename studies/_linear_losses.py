"""The exponential mechanism on linear losses, drawn exactly or with a proof.

For the losses -<s, x> the density depends on the mean of the records only. So one row,
the mean, stands for all n: the law of a draw is that of `release` on the records.
"""

import numpy as np

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.running import chains
from dpsample.samplers import Exact, Proximal

# In units of the target's own width: a few steps suffice. Every step is exact.
LONG_STEP = 1000.0
FIXED = np.random.SeedSequence(0)


def target(mechanism, mean):
    """Density of a calibrated mechanism on records with this mean."""
    facts = mechanism.facts
    problem = dps.Problem(
        mean[None, :],
        [1.0],
        loss=facts.loss,
        domain=facts.domain,
        row_bound=facts.row_bound,
        row_norm=facts.row_norm,
    )
    return dps.Gibbs(
        problem, k=mechanism.k, mu=mechanism.mu, regularizer=mechanism.regularizer
    )


class Draws:
    """Draws of one target; what is tuned depends on the pilot's stream only.

    Independent exact draws if the package has them, else the certified ones of
    `release`: within total variation ``mechanism.gamma``, which the bounds include.
    """

    def __init__(self, mechanism, mean, pilot):
        density = target(mechanism, mean)
        if Exact().supports(density)[0]:
            self.prepared, self.num_steps = Exact().prepare(density, pilot), 1
        else:
            is_kept = not np.isfinite(density.regularizer.curvature_l2(len(mean))[1])
            is_ball = isinstance(density.problem.domain, dps.domains.Ball)
            sampler = Proximal(step_size=LONG_STEP if is_kept and is_ball else None)
            self.prepared = sampler.prepare(density, pilot, gamma=mechanism.gamma)
            self.num_steps = self.prepared.certified_steps(mechanism.gamma)

    def draw(self, rng):
        """One draw."""
        state = self.prepared.init()
        chains.advance(self.prepared.runner(), state, rng, self.num_steps)
        return state.position.copy()


def points(mechanism, mean, seeds):
    """One draw for each seed, all on the same records."""
    draws = Draws(mechanism, mean, streams(FIXED, 1)[0])
    return np.array([draws.draw(streams(seed, 1)[0]) for seed in seeds])


def fresh_points(mechanism, record_mean, seeds):
    """One draw for each seed on records of its own: ``record_mean(rng)``."""
    found = []
    for seed in seeds:
        records, pilot, chain = streams(seed, 3)
        draws = Draws(mechanism, record_mean(records), pilot)
        found.append(draws.draw(chain))
    return np.array(found)


def bound(mechanism):
    """Proved bound of the mean excess risk of a draw: losses range over [-1, 1]."""
    return mechanism.risk_bound + 2.0 * mechanism.gamma
