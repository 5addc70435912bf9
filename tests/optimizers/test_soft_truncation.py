"""Soft truncation of Catoni and Giulini: inequalities, quadrature, the fast table."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from dpsample.optimizers.loop.contributions import (
    PSI_BOUND,
    ROOT_2,
    cubic_part,
    psi,
    smoothed_psi,
    soft_truncation,
    truncation_table,
)
from tests.support.tiers import one_in

PRECISIONS = (0.01, 0.3, 1.0, math.sqrt(math.log(10.0)), 7.0, 1e3)


def quadrature(a: float, b: float) -> float:
    """E psi(a + b Z) with 30 digits."""
    with mp.workdps(30):
        x, y, end = mp.mpf(a), mp.mpf(b), mp.sqrt(2)
        cuts = [min(max(x + k * y, -end), end) for k in range(-12, 13, 3)]
        inside = mp.quad(
            lambda u: (u - u**3 / 6) * mp.npdf(u, x, y), sorted({-end, end, *cuts})
        )
        outside = mp.ncdf((x - end) / y) - mp.ncdf((-end - x) / y)
        return float(inside + 2 * end / 3 * outside)


def fast(precision: float, sizes: np.ndarray) -> np.ndarray:
    """Soft truncation through the table."""
    table = truncation_table(precision)
    head, cubic = cubic_part(precision)
    return np.array([soft_truncation(table, head, cubic, a) for a in sizes])


def test_truncation_lies_between_its_logarithms() -> None:
    t = np.linspace(-8.0, 8.0, 4001)
    values = np.array([psi(x) for x in t])
    assert (values <= np.log(1.0 + t + 0.5 * t**2) + 1e-15).all()
    assert (values >= -np.log(1.0 - t + 0.5 * t**2) - 1e-15).all()
    assert np.abs(values).max() == PSI_BOUND == pytest.approx(psi(ROOT_2), abs=1e-15)
    assert (np.abs(values) <= np.abs(t)).all()
    assert (np.abs(values - t) <= 0.5 * t**2 + 1e-15).all()


def test_smoothed_truncation_is_the_mean_over_a_gaussian() -> None:
    rng = np.random.default_rng(4)
    for a, b in zip(
        rng.uniform(-6.0, 6.0, 40), rng.uniform(0.01, 10.0, 40), strict=True
    ):
        assert smoothed_psi(a, b) == pytest.approx(quadrature(a, b), abs=1e-14)


def test_large_arguments_keep_their_digits() -> None:
    # The published closed form is off by 65 at the last of these.
    for a, b in ((1e3, 300.0), (1e3, 0.9), (1e6, 1e6), (-1e6, 4e5)):
        assert smoothed_psi(a, b) == pytest.approx(quadrature(a, b), abs=1e-14)


def test_without_smoothing_it_is_the_truncation_itself() -> None:
    for a in (-5.0, -0.3, 0.0, 1.0, 9.0):
        assert smoothed_psi(a, 0.0) == psi(a)
        assert fast(1e6, np.array([a]))[0] == pytest.approx(psi(a), abs=1e-5)


@one_in(6)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_table_is_exact_to_1e_14(precision: float) -> None:
    rng = np.random.default_rng(int(precision * 100))
    head = cubic_part(precision)[0]
    near = head * np.array([1.0 - 1e-12, 1.0, 1.0 + 1e-12])
    sizes = np.concatenate((np.exp(rng.uniform(-6.0, 9.0, 2000)), near))
    slow = np.array([smoothed_psi(a, a / math.sqrt(precision)) for a in sizes])
    assert np.abs(fast(precision, sizes) - slow).max() <= 1e-14
    some = sizes[::200]
    exact = [quadrature(a, a / math.sqrt(precision)) for a in some]
    assert np.abs(fast(precision, some) - exact).max() <= 2e-14


@pytest.mark.parametrize("precision", PRECISIONS)
def test_table_is_odd_and_never_above_its_bound(precision: float) -> None:
    sizes = np.concatenate((np.exp(np.linspace(-3.0, 40.0, 3000)), [np.inf]))
    values = fast(precision, sizes)
    assert (values <= PSI_BOUND).all()
    assert (fast(precision, -sizes) == -values).all()
    assert fast(precision, np.zeros(1))[0] == 0.0
    assert math.isnan(fast(precision, np.array([np.nan]))[0])


def test_small_values_keep_their_relative_accuracy() -> None:
    sizes = np.array([1e-300, 1e-12, 1e-4])
    assert np.abs(fast(1.0, sizes) / sizes - 1.0).max() <= 1e-8
