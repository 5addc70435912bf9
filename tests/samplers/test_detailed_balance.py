"""Detailed balance of Metropolis samplers by formulas.

By statistics, and for all samplers, it is held in test_sampler_invariance.py.

Given its random numbers a Metropolis step is deterministic. The references below are
textbook steps in NumPy on the same stream: proposal, log ratio of pi(x') q(x', x) to
pi(x) q(x, x') with densities of their own, and the coin.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from tests.support.sampler_grid import (
    LOSSES,
    exact_starts,
    grid_case,
    prepared_cell,
)
from tests.support.stein import gradient
from tests.support.tiers import one_in, slow


def log_normal(x, mean, covariance):
    return multivariate_normal(mean, covariance).logpdf(x)


def random_walk(case, plan, x, rng):
    y = x + plan.step * plan.factor @ rng.standard_normal(plan.factor.shape[1])
    return y, 0.0


def ball_walk(case, plan, x, rng):
    noise = rng.standard_normal(plan.factor.shape[1])
    size = rng.random() ** (1.0 / len(noise))
    return x + plan.step * plan.factor @ (size * noise / np.linalg.norm(noise)), 0.0


def mala(case, plan, x, rng):
    covariance = plan.factor @ plan.factor.T
    noise = rng.standard_normal(len(x))

    def center(point):
        return point - plan.step * covariance @ gradient(case, point[None])[0]

    y = center(x) + np.sqrt(2.0 * plan.step) * plan.factor @ noise
    spread = 2.0 * plan.step * covariance
    return y, log_normal(x, center(y), spread) - log_normal(y, center(x), spread)


def crank_nicolson(case, plan, x, rng):
    covariance = plan.factor @ plan.factor.T
    noise = rng.standard_normal(len(x))
    kept = np.sqrt(1.0 - plan.step**2)

    def center(point):
        return plan.center + kept * (point - plan.center)

    y = center(x) + plan.step * plan.factor @ noise
    spread = plan.step**2 * covariance
    return y, log_normal(x, center(y), spread) - log_normal(y, center(x), spread)


def tilted_gibbs(case, plan, x, rng):
    """Given z, Metropolis for pi(x | z) with a proposal that is independent of x."""
    h, covariance = plan.step, plan.factor @ plan.factor.T
    z = x + np.sqrt(h) * plan.factor @ rng.standard_normal(len(x))
    w = z if case.inside(z[None])[0] else case.domain.project(z)
    w = w if w is z else 0.99 * w + 0.01 * plan.center
    slope = gradient(case, w[None])[0]
    # The Gaussian of the tangent at w, half the squared norm from w, and z.
    mean = (z + h * (w - covariance @ slope)) / (1.0 + h)
    spread = h / (1.0 + h) * covariance
    y = mean + np.sqrt(h / (1.0 + h)) * plan.factor @ rng.standard_normal(len(x))
    ratio = log_normal(x, mean, spread) - log_normal(y, mean, spread)
    return y, ratio + log_normal(z, y, h * covariance) - log_normal(
        z, x, h * covariance
    )


REFERENCES = {
    "RandomWalk": random_walk,
    "BallWalk": ball_walk,
    "MALA": mala,
    "PreconditionedCrankNicolson": crank_nicolson,
    "TiltedGibbs": tilted_gibbs,
}


def reference_step(propose, case, plan, x, rng):
    """Next position, and how far the coin was from falling the other way."""
    y, log_ratio = propose(case, plan, x, rng)
    if not case.inside(y[None])[0]:
        return x, np.inf
    log_ratio += case.energy(x[None])[0] - case.energy(y[None])[0]
    room = log_ratio + rng.standard_exponential()
    return (y if room >= 0.0 else x), abs(room)


def disagreements(name, domain, loss, propose, *, count=150):
    """Steps of the kernel that are not the reference's."""
    case, prepared = grid_case(domain, loss), prepared_cell(name, domain, loss)
    starts = exact_starts(domain, loss, count)
    advance, out, stats = prepared.runner(), np.empty((1, case.dim)), np.empty((1, 5))
    wrong, moved = 0, 0
    for seed, start in enumerate(starts):
        advance(prepared.init(start), np.random.default_rng(seed), out, stats)
        rng = np.random.default_rng(seed)
        expected, room = reference_step(propose, case, prepared.plan, start, rng)
        moved += not np.array_equal(expected, start)
        if room > 1e-9:
            wrong += not np.allclose(out[0], expected, rtol=0.0, atol=1e-10)
    assert moved >= 10
    return wrong


@one_in(10)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "domain", ["whole space", slow("ball"), slow("l_1.5 ball"), "polytope"]
)
@pytest.mark.parametrize("name", REFERENCES)
def test_each_step_is_the_textbook_metropolis_step(name, domain, loss):
    assert disagreements(name, domain, loss, REFERENCES[name]) == 0


@one_in(2)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_with_another_ratio_disagrees(name):
    def wrong(case, plan, x, rng):
        y, log_ratio = REFERENCES[name](case, plan, x, rng)
        return y, log_ratio + 0.3 * np.sin(5.0 * (y - x).sum())

    assert disagreements(name, "ball", "logistic", wrong) > 0
