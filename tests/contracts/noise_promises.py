"""What a law of noise declares, compared with its draws."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
from scipy.stats import binomtest, ks_2samp
from scipy.stats import norm as normal

from dpsample import noise
from tests.support.statistics import spend

NUM_DRAWS = 6000
NUM_NOISY = 400


def cases(law):
    """The law with a number of coordinates that fits."""
    dim = math.prod(getattr(law, "shape", (3,)))
    return [(law, 1 if is_whole(law, dim) else dim)]  # drawing integers is dear


@cache
def draws(law, dim, seed=1):
    return law.draw(np.random.default_rng(seed), (NUM_DRAWS, dim))


def is_whole(law, dim):
    """Whether the law is one of integers, with probabilities in place of densities."""
    z = law.draw(np.random.default_rng(1), (9, dim))
    return law._step(dim) == 1.0 and np.array_equal(z, np.rint(z))


def log_normal(law, z, shift, size):
    """Log density of a normal law, or its log probabilities of integers."""
    if not is_whole(law, z.shape[-1]):
        return (normal.logpdf((z - shift) / size) - np.log(size)).sum(-1)
    cells = [normal.cdf((z + half - shift) / size) for half in (-0.5, 0.5)]
    with np.errstate(divide="ignore"):  # a cell that is far out
        return np.log(cells[1] - cells[0]).sum(-1)


def log_density(law, dim):
    """The mean of q/density over draws is 1, whatever the density q.

    Holds for no other law and no other constant. With a q that is narrower than the
    noise the ratio is bounded, and in many dimensions q is wider: of few draws that
    count the mean would not be normal.
    """
    z = draws(law, dim)
    share = 0.4 ** (3.0 / max(dim, 3))
    logs, size = law.log_density(z), share * (z.std(axis=0) + is_whole(law, dim))
    z_max = normal.isf(spend(3, is_exact=False) / 2.0)
    for shift in (0.0, 1.0, -1.0):
        ratio = np.exp(log_normal(law, z, shift * size, size) - logs)
        assert np.isfinite(ratio).all(), "draws where the density is 0"
        error = ratio.std(ddof=1) / math.sqrt(NUM_DRAWS)
        assert error > 0.0, "a density that has no part of another one"
        gap = (ratio.mean() - 1.0) / error
        assert abs(gap) <= z_max, f"density statistic z = {gap:.1f}, bound {z_max:.1f}"


def step(law, dim):
    """Noise lies on a grid that is finer than each coordinate by 2^9 or more.

    Integers lie on that of integers, to which nothing of them is rounded.
    """
    width = law._step(dim)
    assert math.frexp(width)[0] == 0.5  # a power of two
    is_fine = width * 2.0**9 <= draws(law, dim).std(axis=0).min()
    assert is_fine or is_whole(law, dim)
    noisy = law._noisy(np.random.default_rng(2), np.linspace(0.0, 1.0, dim)) / width
    assert np.array_equal(noisy, np.rint(noisy))


def noisy(law, dim):
    """What is released is the value plus noise that has the law of the draws.

    Found are distances of 0.18 between the distribution functions of coordinates. Small
    noise of integers is mostly 0: its share of zeros is compared, too.
    """
    rng, value = np.random.default_rng(3), np.arange(dim, dtype=float)
    noise = np.array([law._noisy(rng, value) - value for _ in range(NUM_NOISY)])
    z, level = draws(law, dim), spend(2)
    for k in (0, -1):
        p_value = ks_2samp(noise[:, k], z[:, k]).pvalue
        assert p_value >= level, f"p-value {p_value:.1e} below {level:.1e}"
    if is_whole(law, dim):
        num_moved = int(np.count_nonzero(noise[:, 0]))
        p_value = binomtest(num_moved, NUM_NOISY, share_moved(law, dim)).pvalue
        assert p_value >= spend(), f"{num_moved} of {NUM_NOISY} draws are not 0"


def share_moved(law, dim):
    """Probability that noise of integers is not 0."""
    return -math.expm1(float(np.squeeze(law.log_density(np.zeros((1, dim))))))


def coordinates(law, dim):
    """Independent coordinates have the density of the law itself."""
    plain = law._as_independent(dim)
    if plain is not None:
        z = draws(law, dim)[:100]
        np.testing.assert_allclose(plain.log_density(z), law.log_density(z), rtol=1e-9)


def travels(law, dim):
    """Name and fields are all that a file needs to make the law again."""
    again = noise.from_dict(json.loads(json.dumps(law.to_dict(), allow_nan=False)))
    assert again.to_dict() == law.to_dict()
    z = draws(law, dim)[:9]
    assert np.array_equal(again.log_density(z), law.log_density(z))


PROMISES = {
    "draw": log_density,
    "log_density": log_density,
    "_step": step,
    "_min_scale": step,
    "_noisy": noisy,
    "_as_independent": coordinates,
    "to_dict": travels,
}
NO_PROMISES = {"name"}


def planted(law, dim, factor):
    """Pairs of a name and a false version of it, by a factor below 1."""
    kind = type(law)
    yield "draw", lambda self, rng, size: factor * kind.draw(self, rng, size)
    yield "log_density", lambda self, z: kind.log_density(self, z) + math.log(factor)
    if not is_whole(law, dim):
        yield "_min_scale", lambda self, dim: 99.0 * kind._min_scale(self, dim)
    yield "_step", lambda self, dim: 0.3 * kind._step(self, dim)
    # Where integers are 0 in more than nine of ten draws no few draws could tell.
    if not is_whole(law, dim) or share_moved(law, dim) > 0.1:
        yield "_noisy", lambda self, rng, values: np.rint(values)
    yield "_as_independent", lambda self, dim: noise.Gaussian(0.123)
    other = noise.Laplace(0.321)
    yield "to_dict", lambda self: other.to_dict()
