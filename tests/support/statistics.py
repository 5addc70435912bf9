"""Statistical asserts with both error rates bounded, and the ledger of their levels.

A correct package fails any check of a run with probability below SUITE_ALPHA: each
check enters its level in the ledger, which `tests/conftest.py` adds up over all
processes; a run that spends more fails (union bound). Each assert also states or fixes
what it detects; `rejected` is the negative control that every use needs: the same
assert on a planted bug must fail.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

# What the checks of one run may spend together, and what one of them spends: room for
# 8 000 checks. All tiers make 6 300.
SUITE_ALPHA = 1e-6
ALPHA = SUITE_ALPHA / 8000

IS_FRESH = int(os.environ.get("SUITE_SEED", "0")) > 0  # other draws than by day

LEDGER: Counter[str] = Counter()  # number of checks by test
FIXED: set[str] = set()  # tests with a check whose level is approximate
_controls: list[str] = []  # the running negative control


def spend(number: int = 1, *, is_exact: bool = True) -> float:
    """Enter checks of the running test in the ledger; the level of each.

    A check whose level is approximate keeps its seed: it is not drawn anew at night.
    """
    if not _controls:
        test = os.environ.get("PYTEST_CURRENT_TEST", "import").rsplit(" ", 1)[0]
        LEDGER[test] += number
        if not is_exact:
            FIXED.add(test)
    return ALPHA


def spent() -> float:
    """What all checks in the ledger have spent: above SUITE_ALPHA the run fails."""
    return LEDGER.total() * ALPHA


@contextmanager
def rejected() -> Iterator[None]:
    """Context in which a statistical assert has to fail, with its statistic.

    One check: a planted bug of the stated size passes as rarely as a right law fails.
    Where no size is stated that is so for the test's own draws only, so fresh ones may
    pass.
    """
    spend()
    _controls.append("rejected")
    try:
        with (
            suppress(AssertionError)
            if IS_FRESH
            else pytest.raises(AssertionError, match="statistic")
        ):
            yield
    finally:
        _controls.pop()


def assert_rejected(margin: float) -> None:
    """Check that a planted bug leaves a margin above 1, at which a right law fails.

    Fresh draws may miss it, as in `rejected`.
    """
    assert margin > 1.0 or IS_FRESH


def dkw_bound(num_draws: int, alpha: float) -> float:
    """Bound of sup |F_n - F| that holds with probability 1 - alpha (Massart)."""
    return float(np.sqrt(np.log(2.0 / alpha) / (2.0 * num_draws)))


def assert_mean(
    sample: np.ndarray, mean: float, variance: float, *, detects: float
) -> None:
    """z-test with the known variance; ``detects`` is a bias in standard deviations."""
    num_draws, z_max = len(sample), norm.isf(spend() / 2.0)
    assert detects * np.sqrt(num_draws) >= 2.0 * z_max, (
        f"{num_draws} draws cannot see a shift of {detects} sd"
    )
    z = (np.mean(sample) - mean) / np.sqrt(variance / num_draws)
    assert abs(z) <= z_max, f"mean statistic z = {z:.1f}, bound {z_max:.1f}"


def assert_scale(sample: np.ndarray, *, detects: float) -> None:
    """Sum of squares of independent standard normals against its chi-square law.

    ``detects`` is a factor of all standard deviations, below 1, that must be caught.
    """
    num_squares, alpha = np.size(sample), spend()
    low, high = chi2.ppf(alpha / 2.0, num_squares), chi2.isf(alpha / 2.0, num_squares)
    assert detects**2 * high <= low, (
        f"{num_squares} squares cannot see noise that is {detects} times as large"
    )
    total = float(np.square(sample).sum())
    assert low <= total <= high, f"scale statistic {total:.4g} not in [{low}, {high}]"


def assert_frequency(hits: int, num_draws: int, chance: float) -> None:
    """Binomial count within both exact bounds; detects a chance of 0 if it says so."""
    alpha = spend()
    low = binom.ppf(alpha / 2.0, num_draws, chance)
    high = binom.isf(alpha / 2.0, num_draws, chance)
    assert low >= 1.0, f"{num_draws} draws cannot see that a chance {chance} is lost"
    assert low <= hits <= high, f"count statistic {hits}, bounds {low} and {high}"


def assert_law(sample: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> None:
    """Kolmogorov distance to a continuous law within the DKW bound.

    Detects any law at distance of at least two bounds, with the same probability.
    """
    values = np.sort(np.asarray(sample, dtype=float))
    assert np.isfinite(values).all(), "statistic: the sample has non-finite entries"
    expected, num_draws = cdf(values), len(values)
    above = np.arange(1, num_draws + 1) / num_draws - expected
    distance = max(above.max(), (1.0 / num_draws - above).max())
    bound = dkw_bound(num_draws, spend())
    assert distance <= bound, f"law statistic {distance:.4f}, bound {bound:.4f}"


def assert_same_law(first: np.ndarray, second: np.ndarray) -> None:
    """Kolmogorov distance between two samples within the sum of their DKW bounds."""
    a, b = np.sort(first), np.sort(second)
    assert np.isfinite(a).all() and np.isfinite(b).all(), "statistic: not finite"
    both = np.concatenate((a, b))
    gap = np.searchsorted(a, both, "right") / len(a)
    gap -= np.searchsorted(b, both, "right") / len(b)
    distance = np.abs(gap).max()
    alpha = spend() / 2.0
    bound = dkw_bound(len(a), alpha) + dkw_bound(len(b), alpha)
    assert distance <= bound, f"two-sample statistic {distance:.4f}, bound {bound:.4f}"


def cdf_from_log_density(
    log_density: Callable[[np.ndarray], np.ndarray], nodes: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Distribution function on the given grid by the trapezoidal rule."""
    logs = log_density(nodes)
    density = np.exp(logs - logs.max())
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(nodes)
    cumulative = np.concatenate(([0.0], np.cumsum(steps)))
    cumulative /= cumulative[-1]
    return lambda x: np.interp(x, nodes, cumulative)
