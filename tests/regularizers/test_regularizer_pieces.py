"""Compiled values and gradients of the regularizers, round trips, refusals."""

import json
import math

import numba
import numpy as np
import pytest

from dpsample.domains import Ball
from dpsample.regularizers import (
    REGULARIZER,
    Entropy,
    SchattenSquared,
    SquaredNorm,
    from_dict,
    optimal_exponent,
)
from tests.support.regularizer_cases import DIM, EVERY, random_point
from tests.support.tiers import one_in

every_regularizer = pytest.mark.parametrize("regularizer", EVERY, ids=repr)


@one_in(5)
@every_regularizer
def test_gradient_is_the_slope_of_the_value(regularizer):
    rng = np.random.default_rng(42)
    for _ in range(5):
        x = 0.1 + rng.uniform(size=DIM)
        gradient = regularizer.gradient(x)
        steps = 1e-5 * np.eye(DIM)
        slopes = [
            (regularizer.value(x + h) - regularizer.value(x - h)) / 2e-5 for h in steps
        ]
        np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("q", [1.05, 1.4, 2.0])
def test_gradient_matches_the_complex_step(q):
    x = np.random.default_rng(43).normal(size=6)
    scale = 1.0 / (q - 1.0)
    slopes = []
    for i in range(6):
        z = x.astype(complex)
        z[i] += 1e-30j
        power = np.sum((z * np.sign(x)) ** q)
        slopes.append((0.5 * scale * power ** (2.0 / q)).imag / 1e-30)
    np.testing.assert_allclose(SquaredNorm(q).gradient(x), slopes, rtol=1e-12)


@one_in(10)
@every_regularizer
def test_pieces_compiled_equal_interpreted(regularizer):
    rng = np.random.default_rng(44)
    params = regularizer.params(DIM, np.zeros(DIM))
    if not numba.config.DISABLE_JIT:
        assert numba.typeof(params) == REGULARIZER
    for piece, length in (
        (regularizer.value_piece, 1),
        (regularizer.gradient_piece, DIM),
    ):
        out = np.full((2, length), np.nan)
        x = random_point(regularizer, rng)
        piece(params, x, out[0])
        getattr(piece, "py_func", piece)(params, x, out[1])
        np.testing.assert_allclose(out[0], out[1], rtol=1e-11, atol=1e-12)


@every_regularizer
def test_nan_stays_visible(regularizer):
    params = regularizer.params(DIM, np.zeros(DIM))
    for position in (0, DIM - 1):
        x = np.full(DIM, 1.0 / DIM)
        x[position] = np.nan
        value, gradient = np.full(1, np.nan), np.full(DIM, np.nan)
        regularizer.value_piece(params, x, value)
        regularizer.gradient_piece(params, x, gradient)
        assert np.isnan(value).all()
        assert np.isnan(gradient).any()


def test_values_at_special_points():
    center = np.arange(1.0, 7.0)
    for regularizer in (
        SquaredNorm(1.4, center=center),
        SchattenSquared(1.4, shape=(2, 3), center=center),
    ):
        assert regularizer.value(center) == 0.0
        np.testing.assert_array_equal(regularizer.gradient(center), np.zeros(6))
        other = regularizer.value(np.zeros(6), default_center=np.ones(6))
        assert other == regularizer.value(np.zeros(6))
    assert Entropy().value([0.0, 1.0]) == 0.0
    np.testing.assert_array_equal(Entropy().gradient([0.0, 1.0]), [-math.inf, 1.0])
    assert Entropy().value([-0.5, 1.5]) == math.inf
    assert math.isnan(Entropy().gradient([-0.5, 1.5])[0])


@every_regularizer
def test_round_trip(regularizer):
    text = json.dumps(regularizer.to_dict(), allow_nan=False)
    again = from_dict(json.loads(text))
    assert again == regularizer
    assert hash(again) == hash(regularizer)


REFUSED = {
    "p must be >= 1, got 0.9.": lambda: SquaredNorm(0.9),
    "p must be >= 1, got nan.": lambda: SchattenSquared(math.nan, shape=(2, 2)),
    "variant must be one of 'optimized', 'printed', got 'best'.": lambda: SquaredNorm(
        1.0, variant="best"
    ),
    "center must be finite, got inf at index [0].": lambda: SquaredNorm(
        center=[math.inf]
    ),
    "center must be of shape (3,), got shape (2,).": lambda: SquaredNorm(
        center=[0.0, 0.0]
    ).params(3, np.zeros(3)),
    'dim must be >= 3, got 2. Use variant="optimized".': lambda: SquaredNorm(
        1.0, variant="printed"
    ).params(2, np.zeros(2)),
    "shape must be of a matrix with 5 entries, got (2, 2).": lambda: SchattenSquared(
        1.0, shape=(2, 2)
    ).params(5, np.zeros(5)),
    "domain must be a Simplex, got Ball(radius=1.0, p=2.0, center=None). The entropy "
    "is strongly convex on the simplex only: use SquaredNorm.": lambda: (
        Entropy().range_on(Ball(1.0), 3)
    ),
    "theta must be finite, got nan at index [1].": lambda: Entropy().value(
        [0.0, math.nan]
    ),
    "dim must be an integer >= 1, got 0.": lambda: optimal_exponent(0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_in_one_grammar(message):
    with pytest.raises(ValueError) as caught:
        REFUSED[message]()
    assert str(caught.value) == message
