"""Regularity constants: smoothness and equivalence inequalities, best exponents."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsample.numerics.norms import dual, norm, regularity, schatten
from tests.support.tiers import one_in

EXPONENTS = [2.0, 2.1, 3.0, 4.0, 7.5, 20.0]
SPACES = [1.0, 1.01, 1.2, 1.5, 1.9, 2.0, 3.0, 10.0, math.inf]
DIMS = [1, 2, 3, 4, 7, 8, 50, 1000, 10**8]


def squared_norm_gradient(x, r):
    """Gradient of the squared norm at points on the last axis; 0 at 0."""
    points = np.asarray(x, dtype=np.float64)
    size = np.asarray(norm(points, r))[..., None]
    unit = np.divide(points, size, out=np.zeros_like(points), where=size > 0.0)
    return np.asarray(2.0 * size * np.sign(unit) * np.abs(unit) ** (r - 1.0))


def smoothness_gap(x, y, r, constant):
    """Right side minus left side of the smoothness inequality, over ||y||^2."""
    slope = (squared_norm_gradient(x, r) * y).sum(axis=-1)
    size = norm(y, r) ** 2
    return (norm(x, r) ** 2 + slope - norm(x + y, r) ** 2) / size + constant


def pairs(dim, rng, count=4000):
    """Points and steps of all sizes, some along axes or with equal coordinates."""
    x = rng.normal(size=(count, dim)) * 10.0 ** rng.uniform(-3, 1, size=(count, 1))
    y = rng.normal(size=(count, dim))
    x[::3] *= rng.random((len(x[::3]), dim)) < 0.4
    y[::4] = np.sign(y[::4])
    x[::5] = np.sign(x[::5])
    return x, y


@pytest.mark.parametrize("r", EXPONENTS)
@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_squared_norms_are_smooth_with_constant_r_minus_one(r, dim):
    x, y = pairs(dim, np.random.default_rng(1))
    assert smoothness_gap(x, y, r, r - 1.0).min() >= -1e-9


@pytest.mark.parametrize("r", EXPONENTS[1:])
def test_no_smaller_constant_is_enough(r):
    x = np.ones(2)
    y = 1e-3 * np.array([1.0, -1.0])
    assert smoothness_gap(x, y, r, r - 1.0) >= 0.0
    assert smoothness_gap(x, y, r, 0.99 * (r - 1.0)) < 0.0


finite = st.floats(-100.0, 100.0, allow_nan=False, allow_subnormal=False)


@given(
    arrays(np.float64, 4, elements=finite),
    arrays(np.float64, 4, elements=finite),
    st.floats(2.0, 30.0),
)
def test_smoothness_holds_for_any_pair(x, y, r):
    left = norm(x + y, r) ** 2
    right = norm(x, r) ** 2 + squared_norm_gradient(x, r) @ y
    size = norm(x, r) ** 2 + norm(y, r) ** 2
    assert left <= right + (r - 1.0) * norm(y, r) ** 2 + 1e-11 * size


@pytest.mark.parametrize("r", [2.0, 3.0, 6.0])
@pytest.mark.parametrize("shape", [(2, 2), (3, 5)])
def test_schatten_norms_are_smooth_with_the_same_constant(r, shape):
    rng = np.random.default_rng(2)
    x, y = pairs(shape[0] * shape[1], rng)
    both = schatten(x + y, r, shape) ** 2 + schatten(x - y, r, shape) ** 2
    mean = 0.5 * both - schatten(x, r, shape) ** 2
    size = schatten(y, r, shape) ** 2
    assert (mean / size).max() <= r - 1.0 + 1e-9
    if r > 2.0:
        assert (mean / size).max() > 1.0


@pytest.mark.parametrize("r", EXPONENTS)
def test_the_gradient_is_the_derivative(r):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 100, 6))
    step = 1e-6
    slope = (norm(x + step * y, r) ** 2 - norm(x - step * y, r) ** 2) / (2.0 * step)
    np.testing.assert_allclose(
        (squared_norm_gradient(x, r) * y).sum(axis=-1), slope, rtol=1e-6, atol=1e-6
    )
    assert not squared_norm_gradient(np.zeros(3), r).any()
    huge = squared_norm_gradient(1e200 * x, r) / 1e200
    np.testing.assert_allclose(huge, squared_norm_gradient(x, r), rtol=1e-12)


@one_in(3, 1)
@pytest.mark.parametrize("p", SPACES)
@pytest.mark.parametrize("r", ["best", "printed", 2.0, 3.0, 12.0])
def test_the_smooth_norm_is_equivalent_with_the_stated_constant(p, r):
    rng = np.random.default_rng(4)
    for dim in (1, 2, 6, 40):
        found = regularity(p, dim=dim, r=r)
        x = pairs(dim, rng, 500)[0]
        extremes = np.vstack([np.eye(dim)[:1], np.ones((1, dim))])
        x = np.vstack([x[x.any(axis=1)], extremes])
        ratio = found.scale * norm(x, found.r) / norm(x, found.q)
        assert ratio.min() >= 1.0 - 1e-12
        assert ratio.max() <= found.equivalence * (1.0 + 1e-12)
        assert ratio.max() >= found.equivalence * (1.0 - 1e-12), "attained"
        wanted = (found.r - 1.0) * found.equivalence**2
        assert found.kappa == pytest.approx(wanted, rel=1e-14)


@one_in(5)
@pytest.mark.parametrize("p", SPACES)
@pytest.mark.parametrize("dim", DIMS)
def test_the_best_exponent_minimizes_kappa(p, dim):
    best = regularity(p, dim=dim)
    for r in np.geomspace(2.0, 200.0, 400):
        assert best.kappa <= regularity(p, dim=dim, r=float(r)).kappa * (1.0 + 1e-12)
    assert best.kappa <= regularity(p, dim=dim, r="printed").kappa * (1.0 + 1e-12)
    assert 2.0 <= best.r <= max(2.0, dual(p))


@one_in(3)
@pytest.mark.parametrize("p", [1.0, 1.01, 1.2, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("dim", DIMS[1:])
def test_kappa_is_below_the_known_bound(p, dim):
    bound = min(1.0 / (p - 1.0) if p > 1.0 else math.inf, 2 * math.e * math.log(dim))
    for r in ("best", "printed"):
        assert 1.0 - 1e-12 <= regularity(p, dim=dim, r=r).kappa <= bound * (1 + 1e-12)


def test_the_printed_constant_of_the_duals_is_too_small():
    """The printed min{1/(p-1), 2 log d}: no exponent reaches it (privacy-5)."""
    for dim in (50, 1000, 10**8):
        assert regularity(1.0, dim=dim).kappa > 2.0 * math.log(dim)
    # The smallest (r - 1) d^(2/r) is near r = 2 log d: the ratio tends to e.
    printed = 2.0 * math.log(2**31 - 1)
    ratio = regularity(1.0, dim=2**31 - 1).kappa / printed
    assert ratio == pytest.approx(math.e * (1.0 - 1.0 / printed), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"p": 0.9, "dim": 3}, "p must be >= 1, got 0.9"),
        ({"p": math.nan, "dim": 3}, "p must be >= 1, got nan"),
        ({"p": 1.0, "dim": 0}, "dim must be an integer >= 1, got 0"),
        ({"p": 1.0, "dim": 2.0}, "dim must be an integer >= 1, got 2"),
        ({"p": 1.0, "dim": 3, "r": 1.9}, "r must be >= 2, got 1.9"),
        ({"p": 1.0, "dim": 3, "r": math.nan}, "r must be >= 2, got nan"),
        ({"p": 1.0, "dim": 3, "r": math.inf}, "r must be finite, got inf"),
        ({"p": 1.0, "dim": 3, "r": "worst"}, "r must be one of 'best', 'printed'"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        regularity(**arguments)
