"""Clipping breaks the stability of gradient descent: the explicit instance."""

import numpy as np
import pytest

from dpsample.papers import clipping_instance as instance
from dpsample.privacy import gaussian_delta, gaussian_epsilon


def test_the_records_are_convex_and_smooth():
    for matrix in instance._records(False)[0]:
        values = np.linalg.eigvalsh(matrix)
        assert 0.05 - 1e-12 <= values[0] and values[1] <= 1.0


def test_the_two_data_sets_differ_in_one_record():
    here, there = instance._records(False), instance._records(True)
    counts = here[2] * instance.NUM_RECORDS
    assert counts.tolist() == [25_000.0] * 4 + [1.0]
    assert np.array_equal(here[0], there[0])
    assert np.array_equal(here[1][:4], there[1][:4])
    assert not np.array_equal(here[1][4], there[1][4])


def test_one_record_moves_the_output_thousands_of_times_the_printed_sensitivity():
    gap = instance.clipped_descent() - instance.clipped_descent(neighbor=True)
    assert np.linalg.norm(gap) == pytest.approx(10.72, abs=0.01)
    assert np.linalg.norm(gap) > 5000 * instance.printed_sensitivity()


def test_both_outputs_are_stationary_points_and_not_half_way():
    for neighbor in (False, True):
        w = instance.clipped_descent(neighbor)
        field = instance.clipped_mean_gradient(w, neighbor) + instance.RIDGE * w
        assert np.linalg.norm(field) < 1e-9


def test_smaller_steps_give_the_same_outputs():
    coarse, fine = (instance.clipped_descent(step_size=s) for s in (1.0, 0.25))
    assert np.allclose(coarse, fine, atol=1e-5)


def test_the_field_is_not_monotone_at_the_start_and_is_without_clipping():
    up = np.array([0.0, 0.01])
    inner = instance.clipped_mean_gradient(up) - instance.clipped_mean_gradient(-up)
    assert inner @ up < -instance.RIDGE * (2 * up) @ up
    matrices, _, weights = instance._records(False)
    assert np.linalg.eigvalsh(np.einsum("k,kij->ij", weights, matrices))[0] > 0


def test_the_printed_noise_hides_nothing():
    gap = np.linalg.norm(
        instance.clipped_descent() - instance.clipped_descent(neighbor=True)
    )
    gdp = gap / instance.printed_stddev(epsilon=1.0, delta=1e-5)
    assert gdp > 390
    assert gaussian_delta(1.0, gdp) == pytest.approx(1.0)
    assert gaussian_epsilon(1e-5, gdp) > 70_000


def test_without_valleys_the_printed_sensitivity_holds(monkeypatch):
    isotropic = tuple(np.tile(0.5 * np.eye(2), (5, 1, 1)) for _ in range(2))
    original = instance._records.__wrapped__
    monkeypatch.setattr(
        instance, "_records", lambda n: (isotropic[n], *original(n)[1:])
    )
    ends = [instance._descend.__wrapped__(n, 1.0) for n in (False, True)]
    gap = np.linalg.norm(ends[0] - ends[1])
    assert 0.0 < gap <= instance.printed_sensitivity() * (1 + 1e-9)


def test_releases_are_the_output_plus_noise_of_the_printed_size():
    draws = instance.printed_release(
        np.random.default_rng(3), size=4, neighbor=True, epsilon=1.0, delta=1e-5
    )
    noise = np.random.default_rng(3).standard_normal((4, 2))
    noise *= instance.printed_stddev(epsilon=1.0, delta=1e-5)
    assert np.allclose(draws, instance.clipped_descent(neighbor=True) + noise)


@pytest.mark.parametrize("bad", [0.0, -1.0, 1.5, float("nan"), float("inf")])
def test_bad_steps_are_refused(bad):
    with pytest.raises(ValueError, match="step_size must be"):
        instance.clipped_descent(step_size=bad)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("epsilon", {"epsilon": 0.0, "delta": 1e-5}),
        ("epsilon", {"epsilon": float("nan"), "delta": 1e-5}),
        ("delta", {"epsilon": 1.0, "delta": 0.0}),
        ("delta", {"epsilon": 1.0, "delta": 1.0}),
    ],
)
def test_bad_budgets_are_refused(name, options):
    with pytest.raises(ValueError, match=f"{name} must be"):
        instance.printed_stddev(**options)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="size must be an integer >= 1, got 0"):
        instance.printed_release(
            np.random.default_rng(0), size=0, epsilon=1.0, delta=1e-5
        )
