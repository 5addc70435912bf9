"""Log-space helpers against mpmath at 60 digits."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from dpsample.core.jit import kernel
from dpsample.numerics import stable
from tests.support.exact_draws import interpreted


@pytest.fixture(autouse=True)
def _precision():
    with mp.workdps(60):
        yield


def relative(value: float, exact: mp.mpf) -> float:
    return float(abs(mp.mpf(float(value)) / exact - 1))


WIDE = np.concatenate(
    (
        np.linspace(-700.0, 700.0, 401),
        np.linspace(-3.0, 3.0, 201),
        [-600.0, 600.0, -1e-300, 1e-300, 1e-17, -1e-9, 0.0, 35.0, -37.5],
    )
)


def softplus(x):
    return stable.softplus_sigmoid(x)[0]


def sigmoid(x):
    return stable.softplus_sigmoid(x)[1]


EXACT = {
    stable.vexp: mp.exp,
    softplus: lambda x: mp.log1p(mp.exp(x)),
    sigmoid: lambda x: 1 / (1 + mp.exp(-x)),
}


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_vector_functions_have_full_relative_accuracy(function):
    exact = EXACT[function]
    errors = [relative(function(float(x)), exact(mp.mpf(float(x)))) for x in WIDE]
    assert max(errors) < 1e-15


@pytest.mark.parametrize(
    ("function", "at_minus_inf", "at_inf"),
    [(stable.vexp, 0.0, np.inf), (softplus, 0.0, np.inf)] + [(sigmoid, 0.0, 1.0)],
)
def test_limits_and_nan(function, at_minus_inf, at_inf):
    assert function(-np.inf) == at_minus_inf
    assert function(-750.0) == at_minus_inf
    assert function(np.inf) == at_inf
    assert np.isnan(function(np.nan))


def test_exponential_keeps_its_range_up_to_overflow():
    assert relative(stable.vexp(709.7), mp.exp(mp.mpf(709.7))) < 1e-15
    assert stable.vexp(709.79) == np.inf
    assert softplus(1e300) == 1e300


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _total(values):
    total = 0.0
    for i in range(values.shape[0]):
        total += stable.softplus_sigmoid(values[i])[0]
    return total


def test_reassociating_caller_keeps_the_accuracy():
    values = np.linspace(-40.0, 40.0, 4001)
    exact = np.logaddexp(0.0, values).sum()
    np.testing.assert_allclose(_total(values), exact, rtol=1e-13)


def exact_log_ndtr(x: float) -> mp.mpf:
    x = mp.mpf(float(x))
    if x > 0:
        return mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)
    if x > -1000:
        return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)
    series = 1 - x**-2 + 3 * x**-4 - 15 * x**-6 + 105 * x**-8
    return -x * x / 2 - mp.log(-x) - mp.log(2 * mp.pi) / 2 + mp.log(series)


def test_normal_log_cdf_is_accurate_in_both_tails():
    lower = np.concatenate((np.linspace(-60.0, 5.0, 261), -np.logspace(1.0, 5.0, 41)))
    assert max(relative(stable.log_ndtr(x), exact_log_ndtr(x)) for x in lower) < 1e-14
    upper = np.linspace(5.0, 37.0, 65)
    assert max(relative(stable.log_ndtr(x), exact_log_ndtr(x)) for x in upper) < 3e-13
    assert stable.log_ndtr(40.0) == 0.0
    assert stable.log_ndtr(-np.inf) == -np.inf
    assert np.isnan(stable.log_ndtr(np.nan))


def exact_log_gammainc(a: float, x: mp.mpf) -> mp.mpf:
    a, x = mp.mpf(a), mp.mpf(x)
    if x < 2 * a + 100:
        series = mp.hyp1f1(1, a + 1, x)
        value = a * mp.log(x) - x - mp.loggamma(a + 1) + mp.log(series)
        # Far above the mean the series loses digits to 1 - P.
        if value < -(mp.mpf(10) ** -30):
            return value
    return mp.log1p(-mp.gammainc(a, x, mp.inf, regularized=True))


SHAPES = [0.5, 1.0, 2.5, 9.5, 10.0, 49.5, 499.5, 1e4]
RATIOS = [1e-9, 0.01, 0.3, 0.499, 0.501, 0.7, 0.95, 0.999, 1.0, 1.001, 1.05, 1.5, 3.0]


@pytest.mark.slow
@pytest.mark.parametrize("a", SHAPES)
def test_log_incomplete_gamma(a):
    for x in [ratio * a for ratio in RATIOS] + [a + 1.0, 1e-300, 1e-80, 0.3]:
        exact = exact_log_gammainc(a, x)
        if exact > -1e-280:
            continue
        assert relative(stable.log_gammainc(a, x), exact) < 5e-13


@pytest.mark.slow
def test_incomplete_gamma_at_the_ends():
    assert stable.log_gammainc(2.0, 0.0) == -np.inf
    assert stable.log_gammainc(2.0, np.inf) == 0.0
    assert stable.log_gammainc(1e4, 1e6) == 0.0
    assert np.isnan(stable.log_gammainc(2.0, np.nan))
    assert np.isnan(stable.log_gammainc(2.0, -1.0))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (stable.vexp, (-3.7,)),
        (stable.softplus_sigmoid, (2.1,)),
        (stable.softplus_sigmoid, (-0.4,)),
        (stable.log_ndtr, (-25.0,)),
        (stable.log_gammainc, (7.5, 3.0)),
        (stable.log_gammainc, (7.5, 30.0)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_compiled_equals_interpreted(function, arguments):
    compiled, plain = function(*arguments), interpreted(function)(*arguments)
    np.testing.assert_allclose(compiled, plain, rtol=1e-14)
