"""Correct runs are not flagged: 1000 seeds, with a confidence limit of the rate."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import beta

import dpsample as dps
from tests.support import planted_failures as planted
from tests.support.tiers import usual

S = dps.samplers
# The rate of false alarms is below this with confidence 0.95 (Clopper-Pearson).
RATE, CONFIDENCE = 0.01, 0.95
NUM_SEEDS = 1000


def upper_limit(count, total):
    return float(beta.ppf(CONFIDENCE, count + 1, total - count))


@cache
def cases():
    """Targets and samplers at their defaults: edges, kinks, one dimension and six."""
    hinge, ball = dps.losses.Hinge(), dps.domains.Ball
    gibbs, cube, space = planted.gibbs, planted.cube, dps.domains.WholeSpace()
    triangle = dps.domains.Polytope(
        [[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.5, 0.5, 0.5]
    )
    return [
        (gibbs(ball(1.0), k=30.0, dim=1), "auto"),
        (gibbs(cube(0.3), k=100.0, mu=0.0, loss=hinge), "auto"),
        (gibbs(ball(1.0), k=20.0), S.RandomWalk()),
        (gibbs(ball(0.2, p=1.5), k=200.0, dim=3), S.HitAndRun()),
        (gibbs(dps.domains.Simplex(), k=50.0, dim=3), S.CoordinateHitAndRun()),
        # One step per draw is worth 100 draws here, at the limit of what is enough.
        (gibbs(triangle, k=40.0, loss=hinge), S.BallWalk(num_steps=5)),
        (gibbs(space, k=500.0, dim=6, num_records=200), "auto"),
        (gibbs(space, k=50.0, dim=4), S.MALA()),
    ]


def alarm(seed):
    """Names of the problems in a correct run."""
    target, sampler = cases()[seed % len(cases())]
    options = {"seed": seed, "progress": False, "threads": 1, "check": False}
    draws = dps.sample(target, sampler=sampler, **options)
    return [f.name for f in dps.diagnostics.check(draws, target).problems]


def autoregression(seed, *, share, num_chains=4, num_draws=1000):
    """Stationary normal chains, each worth ``share`` of its draws, in 3 dimensions."""
    rng = np.random.default_rng(seed)
    correlation = (1.0 - share) / (1.0 + share)
    noise = rng.normal(size=(num_draws, num_chains, 3))
    values = np.empty_like(noise)
    values[0] = noise[0]
    for t in range(1, num_draws):
        values[t] = correlation * values[t - 1]
        values[t] += np.sqrt(1.0 - correlation**2) * noise[t]
    return planted.tree(values.swapaxes(0, 1))


def slow_chain_alarm(seed):
    draws = autoregression(seed, share=0.1)
    return [f.name for f in dps.diagnostics.check(draws).problems]


@usual("slow_chain_alarm")
@pytest.mark.parametrize(("alarm", "few"), [(alarm, 16), (slow_chain_alarm, 60)])
def test_correct_runs_pass(alarm, few):
    assert not [found for seed in range(few) if (found := alarm(seed))]


@pytest.mark.slow
@pytest.mark.parametrize("alarm", [alarm, slow_chain_alarm])
def test_the_rate_of_false_alarms_is_below_one_in_a_hundred(alarm):
    found = {seed: names for seed in range(NUM_SEEDS) if (names := alarm(seed))}
    assert upper_limit(len(found), NUM_SEEDS) < RATE, found


def test_the_limit_rules_out_what_it_says():
    """Five alarms would already be too many; none leaves 0.3 %."""
    assert upper_limit(0, NUM_SEEDS) < 0.0031 < RATE
    assert upper_limit(4, NUM_SEEDS) < RATE < upper_limit(5, NUM_SEEDS)
