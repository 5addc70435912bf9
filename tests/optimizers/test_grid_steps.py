"""Noisy steps on grids: supports, rounding errors that the noise makes up for, gaps."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import dpsample as dps
from dpsample import optimizers as opt
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.noise.noise import grid_step
from dpsample.optimizers.loop import batches
from dpsample.optimizers.loop.batches import Poisson, Slices
from dpsample.optimizers.loop.estimators import BucketedMedian, CatoniMean, ClippedMean
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.perturbations import (
    GaussianNoise,
    NoNoise,
    rounding_excess,
)
from dpsample.optimizers.loop.pieces import BLOCK
from dpsample.optimizers.loop.steps import GradientStep
from tests.support.descents import descend
from tests.support.statistics import assert_mean, rejected
from tests.support.tiers import one_in

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
METHODS = {
    "full": opt.NoisyGD(num_steps=1, clip=0.5),
    "full, lipschitz": opt.NoisyGD(num_steps=1),
    "poisson": opt.NoisySGD(num_steps=1, batch_size=20, clip=0.5),
    "dp-sgd": opt.DPSGD(sampling_rate=0.3, num_steps=1, clip=0.5),
    "clipped": opt.ClippedGD(num_steps=1, clip=0.5, noise="steps", step_size=0.1),
    "envelope": opt.ProxGD(num_steps=1),
    **{
        word: opt.PrivateProximalSGD(
            estimator=word, threshold=0.5, num_steps=1, smoothness=1.0, batch_size=20
        )
        for word in ("clip", "bucketed_median", "catoni")
    },
    "accelerated": opt.AcceleratedClippedSGD(clip=0.5, moment=1.0),
    "output": opt.ClippedGD(num_steps=3, clip=0.5),
    "phases": opt.PhasedSGD(),
}


def records(response):
    """Sixty records, the first of which has its own response: gradients near it."""
    rng = np.random.default_rng(7)
    rows, y = rng.uniform(-0.6, 0.6, (60, 2)), np.zeros(60)
    y[0] = response
    return dps.Problem(
        rows,
        y,
        loss=dps.losses.Huber(),
        domain=dps.domains.Ball(2.0),
        row_bound=1.0,
        response_bound=1.0,
    )


def ends(recipe, response, runs=40):
    """Steps of size 1 from 0, or outputs, on the whole space: what the noise made."""
    (phase,) = recipe.phases[:1]
    if not phase.output_stddev:
        step = GradientStep(1.0)
        phase = replace(phase, num_steps=1, step=step, weights=None)
    single = Recipe(phases=(phase,), event=None, inputs={}, start=np.zeros(2))
    p = records(response)
    p = dps.Problem(
        p.data.dense,
        p.data.response,
        loss=p.loss,
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    found = [descend(p, single, streams(k, 1)[0]).theta for k in range(runs)]
    return np.array(found), phase


def step_of(phase):
    """Grid of a phase's noise."""
    if phase.output_stddev:
        return grid_step(phase.output_stddev)
    return grid_step(phase.noise.stddev * (1.0 + phase._excess(60, 2)))


def is_on(values, step):
    return bool((values == step * np.round(values / step)).all())


@one_in(3)
@pytest.mark.parametrize("name", METHODS)
def test_no_bit_of_a_step_tells_neighbors_apart(name):
    recipe = METHODS[name].recipe(records(0.0).facts, BUDGET)
    for response in (0.0, 0.2, 1.0, -1e-9):
        found, phase = ends(recipe, response)
        assert is_on(found, step_of(phase))
        assert len(np.unique(found)) > 70


IN_DOUBLES = {"noise": "generalized_gaussian"}
GENERALIZED = {
    "mirror": (
        opt.NoisyMirrorDescent(p=1.5, distance=1.0, **IN_DOUBLES),
        dps.domains.WholeSpace(),
    ),
    "truncated": (
        opt.TruncatedMirrorDescent(p=1.5, moment=1.0, smoothness=1.0, **IN_DOUBLES),
        dps.domains.Ball(2.0, p=1.5),
    ),
}


@pytest.mark.parametrize("name", GENERALIZED)
def test_no_bit_of_a_generalized_gaussian_step_tells_neighbors_apart(name):
    method, domain = GENERALIZED[name]
    recipe = method.recipe(replace(records(0.0).facts, domain=domain), BUDGET)
    for response in (0.0, 0.2, 1.0, -1e-9):
        found, phase = ends(recipe, response)
        assert is_on(found, phase.noise.numbers().step)
        assert len(np.unique(found)) > 70


def test_sums_in_doubles_had_bits_that_steps_do_not_have():
    recipe = METHODS["full"].recipe(records(0.0).facts, BUDGET)
    found, phase = ends(recipe, 0.2)
    rng = np.random.default_rng(1)
    old = 0.2 / 60 + phase.noise.stddev * rng.standard_normal(found.shape)
    assert not is_on(old, step_of(phase)) and is_on(found, step_of(phase))


def test_a_step_without_noise_is_not_rounded():
    phase = Loop(
        num_steps=1,
        step=GradientStep(1.0),
        noise=GaussianNoise(0.0),
        estimator=ClippedMean(threshold=0.5),
    )
    recipe = Recipe(phases=(phase,), event=None, inputs={})
    theta = descend(records(0.2), recipe, streams(1, 1)[0]).theta
    assert theta.any() and not is_on(theta, 2.0**-40)


# Rounding errors of sums.


def estimated(rows, estimator, scheme):
    """Mean of the rows, up to its sign: a step along a linear loss."""
    number, dim = rows.shape
    p = dps.Problem(
        rows,
        np.ones(number),
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    step = GradientStep(1.0)
    phase = Loop(num_steps=1, step=step, batches=scheme, estimator=estimator)
    recipe = Recipe(phases=(phase,), event=None, inputs={}, start=np.zeros(dim))
    return descend(p, recipe, streams(1, 1)[0]).theta


@pytest.mark.parametrize("number", [50, 3000, 100_000])
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_errors_of_sums_are_within_their_bound(number, is_shuffled):
    """Rows of one sign, and rows that cancel after large sums."""
    rng = np.random.default_rng(number)
    for sign in (np.ones(number), np.sign(np.arange(number) - number / 2 + 0.5)):
        rows = sign[:, None] * rng.uniform(0.3, 0.7, (number, 2))
        scheme = Slices(size=number, is_shuffled=is_shuffled)
        estimator = ClippedMean(threshold=1.0)
        theta = estimated(rows, estimator, scheme)
        exact = [math.fsum(rows[:, j]) / number for j in range(2)]
        error = np.linalg.norm(np.abs(theta) - np.abs(exact))
        excess = rounding_excess(num_records=number, dim=2)
        assert error <= 0.5 * excess / number


def test_the_bound_of_rounding_errors_is_public_and_small():
    for number, most in ((1000, 1e-9), (10**6, 2e-6), (10**7, 1e-4)):
        assert 1e-12 < rounding_excess(num_records=number, dim=100) < most
    estimator = BucketedMedian(width=1.0, num_buckets=6, num_central=2)
    loop = Loop(num_steps=1, step=GradientStep(1.0), estimator=estimator)
    assert loop._excess(10**5, 5) > rounding_excess(num_records=10**5, dim=5)
    catoni = replace(loop, estimator=CatoniMean(scale=1.0))
    soft = rounding_excess(num_records=10**5, dim=5, is_soft=True)
    plain = rounding_excess(num_records=10**5, dim=5)
    assert catoni._excess(10**5, 5) == soft
    assert 0.0 < soft - plain == pytest.approx(128 * BLOCK * 2.0**-53, rel=1e-6)
    loop = replace(loop, estimator=ClippedMean(threshold=1.0))
    sliced = replace(loop, batches=Slices(size=BLOCK))
    assert sliced._excess(10**5, 5) == rounding_excess(num_records=BLOCK, dim=5)


def test_noise_makes_up_for_rounding_errors():
    numbers = GaussianNoise(0.3).numbers(1e-3)
    assert numbers.scale == pytest.approx(0.3003) and numbers.step == 2.0**-12
    assert GaussianNoise(0.0).compile().numbers == NoNoise().numbers()


# Gaps of Poisson samples.


def exact_gap(rate, first, second):
    """Largest k with V < (1 - rate)^k, in 400 bits; and how close another k is."""
    with mpmath.workprec(400):
        v = mpmath.mpf((first << 64) + second) / mpmath.mpf(2) ** 128
        place = mpmath.log(v) / mpmath.log1p(-mpmath.mpf(rate))
        return int(mpmath.floor(place)), float(abs(place - mpmath.nint(place)))


@pytest.mark.parametrize("rate", [0.3, 0.5, 1e-3, 1e-6, 1.0 - 2.0**-40])
def test_gaps_are_those_of_exact_powers(rate):
    rng = np.random.default_rng(3)
    numbers = Poisson(rate=rate).numbers(10, rng)
    keep = 1 - Fraction(rate)
    seen = 0
    for _ in range(300):
        with mpmath.workprec(400):
            k = int(rng.integers(1, max(2, int(3 / rate))))
            power = mpmath.mpf(keep.numerator) / keep.denominator
            border = int(mpmath.floor(power**k * mpmath.mpf(2) ** 128))
        gap = int(rng.choice([-1, 1])) << int(rng.integers(45, 110))
        words = border + gap
        if not 0 < words < 2**128 or border < 2**60:
            continue
        first, second = words >> 64, words & (2**64 - 1)
        expected, distance = exact_gap(rate, first, second)
        if distance * rate > 2.0**-85:
            seen += 1
            got = batches._exact_gap(numbers, np.uint64(first), np.uint64(second))
            assert got == expected
    assert seen > 30


def test_gaps_by_logarithms_are_the_exact_ones():
    for rate in (0.01, 0.4, 1e-5):
        rng = np.random.default_rng(4)
        numbers = Poisson(rate=rate).numbers(10, rng)
        twin = np.random.default_rng(4)
        for _ in range(2000):
            got = batches._gap(rng, numbers)
            first = int(twin.bit_generator.random_raw())
            expected, distance = exact_gap(rate, first, 2**63)
            if distance > 1e-10:
                assert got == expected
            if rng.bit_generator.state != twin.bit_generator.state:
                twin.bit_generator.state = rng.bit_generator.state


def test_gaps_have_their_law():
    rate, number = 0.2, 40_000
    rng = np.random.default_rng(5)
    numbers = Poisson(rate=rate).numbers(10, rng)
    gaps = np.array([batches._gap(rng, numbers) for _ in range(number)])
    for k in (1, 2, 5, 12):
        chance = (1.0 - rate) ** k
        assert_mean((gaps >= k) * 1.0, chance, chance * (1.0 - chance), detects=0.07)
    with rejected():
        chance = (1.0 - rate) ** 2
        assert_mean((gaps >= 1) * 1.0, chance, chance * (1.0 - chance), detects=0.07)


# What certificates say.


def fit_phases(name):
    return METHODS[name].recipe(records(0.2).facts, BUDGET).phases


@pytest.mark.parametrize("name", METHODS)
def test_certificates_say_whose_rounding_errors_are_counted(name):
    fit = minimize(records(0.2), METHODS[name], BUDGET, seed=3)
    words = fit.certificate.assumptions
    is_output = name in ("output", "phases")
    assert "ARITHMETIC" not in words
    assert ("OUTPUT.ROUNDED" in words) == is_output
    assert ("STEPS.ROUNDED" in words) == (not is_output)
    is_sampled = any(isinstance(p.batches, Poisson) for p in fit_phases(name))
    assert ("BATCHES.POISSON" in words) == is_sampled
    assert dps.verify(fit.certificate).statement == fit.certificate.statement
