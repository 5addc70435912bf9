"""Regularizers of users and sums of powers, in densities only."""

import copy
import pickle

import numpy as np
import pytest

import dpsample as dps
from dpsample.domains import Ball, Box
from dpsample.regularizers import PowerNorm, SquaredNorm, custom
from tests.support.tiers import one_in


def zero(theta):
    return 0.0 * theta[0]


def value(theta, scales):
    return 0.5 * np.sum(scales * theta * theta)


def gradient(theta, scales):
    return scales * theta


def fill(theta, scales, out):
    out[:] = scales * theta


def wrong(theta, scales):
    return 1.1 * scales * theta


def concave(theta):
    return -np.sum(theta * theta)


def concave_gradient(theta):
    return -2.0 * theta


SCALES = np.array([1.0, 4.0])


def density(regularizer, **options):
    options = {"domain": Box(-1.0, 2.0), "mu": 2.0} | options
    return dps.Density(energy=zero, dim=2, regularizer=regularizer, **options)


@one_in(2)
@pytest.mark.parametrize("slope", [gradient, fill])
def test_a_custom_regularizer_is_the_function_that_it_is(slope):
    r = custom(value, slope, data=SCALES, strong_convexity=1.0)
    target, point = density(r), np.array([0.5, -0.25])
    assert target.energy(point) == 2.0 * value(point, SCALES)
    assert target.gradient(point) == pytest.approx(2.0 * SCALES * point)
    assert r.gradient(point) == pytest.approx(SCALES * point)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_sums_of_powers(p):
    target, point = density(PowerNorm(p, weights=[1.0, 3.0])), np.array([0.5, -0.25])
    expected = (0.5**p + 3.0 * 0.25**p) / p
    assert target.energy(point) == pytest.approx(2.0 * expected)
    slope = [0.5 ** (p - 1.0), -3.0 * 0.25 ** (p - 1.0)]
    assert target.gradient(point) == pytest.approx(2.0 * np.array(slope))


def test_a_power_of_2_is_the_squared_norm():
    point = [0.3, -0.7]
    assert PowerNorm(2.0).value(point) == pytest.approx(SquaredNorm().value(point))


def one_slope(theta):
    return np.array([1.0, 0.0])


def flat_slope(theta, scales):
    return 0.0 * scales * theta


def raises_far_out(theta, scales):
    if abs(theta[0]) > 1.0:
        raise ValueError("too far")
    return 0.0 * scales[0]


@pytest.mark.slow
@pytest.mark.parametrize("power", [2.0, 4.0])
def test_the_regularizer_alone_confines_the_draws(power):
    target = dps.Density(
        energy=lambda x: 0.0, dim=2, mu=1.0, regularizer=PowerNorm(power)
    )
    draws = dps.sample(target, seed=1, progress=False)
    theta = draws.posterior["theta"].to_numpy()
    # |x|^p / p has the Gamma distribution of shape 1 / p.
    assert (np.abs(theta) ** power).mean() == pytest.approx(1.0, rel=0.1)


@pytest.mark.slow
def test_draws_have_the_moments_of_the_gaussian():
    r = custom(value, gradient, data=SCALES, strong_convexity=1.0)
    target = density(r, domain=dps.domains.WholeSpace(), mu=1.0)
    draws = dps.sample(target, num_draws=2000, seed=1, progress=False)
    theta = draws.posterior["theta"].to_numpy().reshape(-1, 2)
    assert (theta**2).mean(axis=0) == pytest.approx([1.0, 0.25], rel=0.15)


@one_in(4)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: custom(value, wrong, data=SCALES), "gradient must be"),
        (lambda: custom(concave, concave_gradient), "value must be convex"),
        (
            lambda: custom(value, gradient, data=SCALES, strong_convexity=2.0),
            "strong_convexity 2",
        ),
        (
            lambda: custom(raises_far_out, flat_slope, data=SCALES),
            r"got ValueError: too far .line",
        ),
    ],
)
def test_false_declarations_are_noticed(make, words):
    with pytest.raises(ValueError, match=words):
        density(make())


@pytest.mark.slow
def test_a_small_constant_is_compared_far_away():
    linear = custom(lambda x: x[0], one_slope, strong_convexity=1e-12)
    with pytest.raises(ValueError, match="with strong_convexity 1e-12"):
        dps.Density(energy=zero, dim=2, mu=1.0, regularizer=linear)


@pytest.mark.parametrize("regularizer", [PowerNorm(2.0), custom(concave, zero)])
def test_targets_with_records_reject_them(regularizer):
    problem = dps.Problem(
        [[1.0, 0.0]],
        [1.0],
        loss=dps.losses.Logistic(),
        domain=Ball(1.0),
        row_bound=1.0,
    )
    with pytest.raises(ValueError, match="Use it with dps.Density"):
        dps.Gibbs(problem, k=1.0, mu=1.0, regularizer=regularizer)


@pytest.mark.slow
def test_equality_and_copies_are_by_contents():
    first = custom(value, gradient, data=SCALES)
    assert first == custom(value, gradient, data=SCALES.copy())
    assert first != custom(value, gradient, data=2.0 * SCALES)
    assert PowerNorm(3.0) == PowerNorm(3.0) != PowerNorm(3.0, weights=[1.0, 2.0])
    for other in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert other == first
        assert other.value([1.0, 1.0]) == 2.5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PowerNorm(0.5), "p must be"),
        (lambda: PowerNorm(2.0, weights=[-1.0]), "weights must be >= 0"),
        (lambda: custom(3.0, gradient), "value must be a function"),
        (lambda: custom(value, gradient, data=SCALES, norm=0.5), "norm must be"),
        (lambda: density(PowerNorm(2.0, weights=[1.0])), "weights must be"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()
