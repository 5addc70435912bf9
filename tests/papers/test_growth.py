"""Problems of known growth: exact risks, constants, moments."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.optimize import minimize

from dpsample.datasets import (
    growth_constant,
    growth_regression,
    rare_records,
    tilted_signs,
)
from tests.support.statistics import assert_mean


@pytest.mark.parametrize("exponent", [2.0, 2.5, 3.0, 4.0, 6.0])
def test_growth_constant_is_the_largest_in_the_plane(exponent):
    constant, rng = growth_constant(exponent), np.random.default_rng(1)
    center = np.array([1.0, 0.0])
    w = center + rng.standard_normal((200_000, 2)) * np.exp(
        rng.normal(0, 2, (200_000, 1))
    )
    norms = np.linalg.norm(w, axis=1)
    above = (norms**exponent - 1.0) / exponent - (w[:, 0] - 1.0)
    ratio = above / np.linalg.norm(w - center, axis=1) ** exponent
    far = np.linalg.norm(w - center, axis=1) > 0.01  # no cancellation
    assert constant * (1.0 - 1e-6) <= ratio[far].min()
    line = np.linspace(-10.0, 0.0, 100_001)
    above = (np.abs(line) ** exponent - 1.0) / exponent - (line - 1.0)
    assert (above / (1.0 - line) ** exponent).min() == pytest.approx(constant, rel=1e-6)


def instances():
    return [
        rare_records(500, 3, seed=1, rho=0.01, exponent=2.0),
        rare_records(500, 3, seed=2, rho=0.01, exponent=4.0, order=3.0, moment=2.0),
        tilted_signs(500, 3, seed=3, exponent=2.5),
        tilted_signs(500, 3, seed=4, exponent=4.0, moment=3.0, law="sparse"),
    ]


@pytest.mark.parametrize("hard", instances())
def test_minimizer_and_minimum_are_exact(hard):
    def risk(w):
        norm = np.linalg.norm(w)
        return norm**hard.exponent / hard.exponent - w @ hard.mean

    assert risk(hard.minimizer) == pytest.approx(hard.minimum, rel=1e-12)
    found = minimize(risk, hard.minimizer + 0.01, method="Nelder-Mead")
    assert found.fun >= hard.minimum - 1e-12
    assert np.linalg.norm(hard.minimizer) <= hard.radius * (1.0 + 1e-12)
    rng = np.random.default_rng(0)
    for _ in range(200):
        w = rng.standard_normal(3) * hard.radius
        far = np.linalg.norm(w - hard.minimizer)
        floor = hard.constant * far**hard.exponent
        assert hard.excess_risk(w) >= floor * (1.0 - 1e-9)
        assert hard.excess_risk(w) == pytest.approx(risk(w) - hard.minimum)


@pytest.mark.parametrize("hard", instances())
def test_gradients_are_those_of_the_loss(hard):
    w, step = np.array([0.3, -0.2, 0.4]), 1e-6
    assert hard.gradients(np.zeros(3)) == pytest.approx(-hard.records)

    def losses(point):
        norm = np.linalg.norm(point)
        return norm**hard.exponent / hard.exponent - hard.records @ point

    for j in range(3):
        e = np.eye(3)[j] * step
        slope = (losses(w + e) - losses(w - e)) / (2.0 * step)
        np.testing.assert_allclose(hard.gradients(w)[:, j], slope, atol=1e-8)


@pytest.mark.parametrize(("exponent", "order"), [(2.0, 2.0), (3.0, 4.0)])
def test_rare_records_obey_the_moment_bound_on_their_domain(exponent, order):
    hard = rare_records(
        400, 4, seed=7, rho=0.1, exponent=exponent, order=order, moment=1.5
    )
    rate = math.sqrt(4) / (400 * math.sqrt(0.1))
    spike = hard.mean / rate
    reach = hard.radius ** (exponent - 1.0)
    worst = rate * (reach + np.linalg.norm(spike)) ** order
    worst += (1.0 - rate) * reach**order
    assert worst ** (1.0 / order) <= 1.5
    assert rate * np.linalg.norm(spike) ** order == pytest.approx(0.75**order)
    printed = (rate ** (-1.0 / order) * 0.75) ** (1.0 / (exponent - 1.0))
    assert (printed ** (exponent - 1.0)) > 1.5  # gradient-E18: even at x = 0
    hits = (hard.records != 0.0).all(axis=1)
    assert_mean(hits * 1.0, rate, rate * (1.0 - rate), detects=0.8)


@pytest.mark.parametrize("law", ["product", "sparse"])
def test_tilted_signs_have_the_stated_mean_and_bound(law):
    hard = tilted_signs(5000, 2, seed=9, moment=2.0, law=law, tilt=3.0)
    assert np.linalg.norm(hard.records, axis=1) == pytest.approx(1.0)
    for j in range(2):
        column = hard.records[:, j]
        variance = (hard.records**2).mean(axis=0)[j] - hard.mean[j] ** 2
        assert_mean(column, hard.mean[j], variance, detects=0.25)
    root = math.sqrt(2) if law == "sparse" else 1.0
    delta = 3.0 * root / math.sqrt(5000)
    size = delta if law == "product" else delta / math.sqrt(2.0)
    assert np.linalg.norm(hard.mean) == pytest.approx(size)
    assert hard.radius == 1.0


@pytest.mark.parametrize("exponent", [1.5, 2.0, 4.0])
def test_regression_has_the_stated_growth(exponent):
    dim = 3
    gaussian = growth_regression(5, dim, seed=1, exponent=exponent, law="gaussian")
    moment = integrate.quad(
        lambda z: abs(z) ** exponent * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi),
        -12.0,
        12.0,
        points=[0.0],
    )[0]
    assert gaussian.constant == pytest.approx(moment, rel=1e-9)
    sphere = growth_regression(5, dim, seed=1, exponent=exponent)
    # In three dimensions a coordinate of the unit sphere is uniform on [-1, 1].
    uniform = dim ** (0.5 * exponent) / (exponent + 1.0)
    assert sphere.constant == pytest.approx(uniform, rel=1e-12)
    w = sphere.dataset.theta + np.array([0.3, 0.0, -0.4])
    assert sphere.excess_risk(w) == pytest.approx(uniform * 0.5**exponent)
    assert sphere.excess_risk(sphere.dataset.theta) == 0.0


def test_regression_is_noiseless_and_bounded():
    made = growth_regression(3000, 4, seed=2, signal=0.5)
    data = made.dataset
    np.testing.assert_array_equal(data.response, data.features @ data.theta)
    assert np.linalg.norm(data.theta) == pytest.approx(0.5)
    assert np.linalg.norm(data.features, axis=1).max() <= data.row_bound == 2.0
    assert np.abs(data.response).max() <= data.response_bound == 1.0
    w = np.zeros(4)
    values = (data.features @ w - data.response) ** 4
    eighth = math.exp(
        4.0 * math.log(4) + math.lgamma(2) + math.lgamma(4.5) - math.lgamma(6)
    ) / math.sqrt(math.pi)
    variance = eighth * 0.5**8 - made.excess_risk(w) ** 2
    assert_mean(values, made.excess_risk(w), variance, detects=0.3)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: growth_constant(1.5), "exponent"),
        (lambda: rare_records(10, 2, seed=1, rho=0.0), "rho"),
        (lambda: rare_records(10, 2, seed=1, rho=1.0, order=1.0), "order"),
        (lambda: tilted_signs(10, 2, seed=1, law="dense"), "law"),
        (lambda: tilted_signs(0, 2, seed=1), "num_records"),
        (lambda: growth_regression(10, 2, seed=1, law="cube"), "law"),
        (lambda: growth_regression(10, 2, seed=1, signal=-1.0), "signal"),
    ],
)
def test_bad_numbers_are_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()
