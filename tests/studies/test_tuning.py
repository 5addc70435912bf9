"""Tuning and minima that the studies share."""

import numpy as np
import pytest

import dpsample as dps
from studies._certified import minimum
from studies._tuning import search_grid


@pytest.mark.parametrize("best", [(0, 0), (5, -4), (-7, 2)])
def test_the_best_of_a_tuning_grid_is_inside_it(best):
    visited = []

    def score(first, second):
        visited.append((round(np.log2(first / 3.0)), round(np.log2(second))))
        return float(np.sum(np.abs(np.subtract(visited[-1], best))))

    point, least, tries, is_inside = search_grid(score, (3.0, 1.0), (2.0, 2.0), 20)
    assert is_inside and least == 0.0 and tries == len(set(visited)) >= 20
    assert point == pytest.approx((3.0 * 2.0 ** best[0], 2.0 ** best[1]))
    assert {(best[0] - 1, best[1]), (best[0], best[1] + 1)} <= set(visited)


def test_a_tuning_without_a_best_point_says_so():
    *_, tries, is_inside = search_grid(lambda x: -x, (1.0,), (2.0,), 5)
    assert not is_inside and tries == 20


@pytest.mark.parametrize("radius", [0.3, 30.0])
@pytest.mark.parametrize("loss", [dps.losses.Squared(), dps.losses.Logistic()])
def test_the_gap_of_a_minimum_is_small_and_no_other_point_is_lower(loss, radius):
    rng = np.random.default_rng(4)
    rows, l1 = rng.normal(size=(200, 6)), 0.02
    domain = dps.domains.Ball(radius)
    problem = dps.Problem(
        rows,
        np.sign(rows[:, 0] + rng.normal(size=200)),
        loss=loss,
        domain=domain,
        row_bound=10.0,
        response_bound=None if loss.name == "logistic" else 1.0,
    )
    theta, gap = minimum(problem, l1)
    assert -1e-12 < gap < 1e-6 and np.linalg.norm(theta) <= radius
    least = problem.risk(theta) + l1 * np.abs(theta).sum()
    for other in theta + 0.05 * rng.normal(size=(100, 6)):
        point = other * min(1.0, radius / np.linalg.norm(other))
        assert problem.risk(point) + l1 * np.abs(point).sum() >= least - gap
