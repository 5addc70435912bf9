"""Two unrelated samplers agree on means and variances of cells that nobody chose."""

import contextlib
import importlib
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import norm

import dpsample as dps
from dpsample.samplers import BilliardHMC, WhitenedSlice
from tests.support.statistics import rejected, spend
from tests.support.tiers import slow_but

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = ("targets", "polytopes", "ours", "robust_cells")
# Where a second sampler would need minutes.
DEAR = ("large", "weak/cold", "entropy")
AXES = {"chain_axis": 0, "draw_axis": 1}


@pytest.fixture(scope="module")
def build():
    """Function from a name, or a number in a random order, to the target of a cell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        modules = {name: importlib.import_module(name) for name in NAMES}
        cells = modules["robust_cells"]
        made_up = dict(
            [*cells.synthetic_cells(), *cells.unusual_cells(), *cells.polytope_cells()]
        )
        names = [n for n in made_up if not any(word in n for word in DEAR)]
        random.Random(29).shuffle(names)

        def target(number, name=""):
            make = made_up[name or names[number % len(names)]]
            return modules["ours"].gibbs(make(1000 + number))

        yield target
        for name in NAMES:
            del sys.modules[name]


def draws_of(target, sampler, seed, num_draws=700):
    """Draws (chain, draw, dim) of a run that has converged, and its sampler's name."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = dps.sample(
            target, sampler=sampler, seed=seed, num_draws=num_draws, progress=False
        )
    return found.posterior["theta"].values, str(found.attrs["sampler"])


def chosen_draws(target):
    """Draws of the sampler that is chosen, which are cheap: many, and its name."""
    return draws_of(target, "auto", 1, num_draws=5000)


def other_draws(target, chosen):
    """Draws of an unrelated sampler; with more steps, then more of them, if need be.

    They cost 20 times the chosen ones and more, and few are enough: with the many above
    a shift of 1/6 standard deviation would be seen.
    """
    kind, steps = WhitenedSlice, (10, 60, 250, 250)
    if "Billiard" not in chosen:
        kind, steps = BilliardHMC, (None, 100, 100)
    for seed, num_steps in enumerate(steps[:-1], start=2):
        with contextlib.suppress(RuntimeWarning):
            return draws_of(target, kind(num_steps=num_steps), seed)[0]
    return draws_of(target, kind(num_steps=steps[-1]), seed + 1, num_draws=2500)[0]


def assert_same_moments(first, second):
    """z-tests of all means and squares, at their effective sizes."""
    middle = 0.5 * (first.mean(axis=(0, 1)) + second.mean(axis=(0, 1)))
    z_max = norm.isf(spend(is_exact=False) / (4.0 * len(middle)))
    gap, square = 0.0, 0.0
    for sign, draws in ((1.0, first), (-1.0, second)):
        both = np.concatenate([draws, (draws - middle) ** 2], axis=2)
        size = array_stats.ess(both, method="mean", **AXES)
        gap = gap + sign * both.mean(axis=(0, 1))
        square = square + both.var(axis=(0, 1)) / size
    z = np.nanmax(np.abs(gap) / np.sqrt(square))  # nan for what never moves
    assert z <= z_max, f"moment statistic z = {z:.1f}, bound {z_max:.1f}"


@pytest.mark.parametrize("number", slow_but(range(100), [1]))
def test_another_sampler_has_the_same_means_and_variances(build, number):
    target = build(number)
    first, chosen = chosen_draws(target)
    assert_same_moments(first, other_draws(target, chosen))


def test_a_density_that_is_too_cold_by_half_is_found(build):
    target = build(0, "toeplitz/logistic/l2/warm")
    cold = dps.Gibbs(
        target.problem, k=1.5 * target.k, mu=target.mu, regularizer=target.regularizer
    )
    first = chosen_draws(target)[0]
    with rejected():
        assert_same_moments(first, draws_of(cold, BilliardHMC(), 2)[0])
