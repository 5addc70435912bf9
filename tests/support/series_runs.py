"""Independent runs of the randomized series."""

import numpy as np

from dpsample.core.jit import entry
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.errors import OK
from dpsample.samplers.subsampled.randomized_series import RandomizedSeries


def prepared(case, **options):
    sampler = RandomizedSeries(**options)
    return sampler.prepare(case.target, np.random.default_rng(0))


def advance(chain, starts, rng, *, num_steps, numbers=None, plan=None):
    """Last position of one run from each start."""
    state, out = chain.init(starts[0]), np.empty_like(starts)
    draws, stats = np.empty((1, starts.shape[1])), np.empty((1, NUM_STATS))
    target = chain.target
    arguments = (
        target.numbers if numbers is None else numbers,
        target.pieces,
        chain.plan if plan is None else plan,
        state,
        rng,
        num_steps,
        draws,
        stats,
    )
    run = entry(chain.run, *arguments)
    for i, start in enumerate(starts):
        state.position[:] = start
        code, _ = run(*arguments)
        assert code == OK, code
        out[i] = draws[0]
    return out, state
