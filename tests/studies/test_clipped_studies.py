"""What the studies of clipped methods compute: minima, claims, exact bounds."""

import numpy as np
import pytest
from scipy.stats import binom

from dpsample.privacy import gdp_from_budget
from studies import _clipped as clipped
from studies import tnc, tnc_lower


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["l4", "logistic"])
def test_no_point_of_the_ball_has_a_smaller_risk_than_the_minimum(loss):
    best, multiplier = clipped.minimum("stand-in", "test", loss)
    problem = clipped.problem("stand-in", "test", loss)
    points = np.random.default_rng(1).normal(size=(50, problem.dim))
    points /= np.linalg.norm(points, axis=1)[:, None]
    assert multiplier > clipped.RIDGE
    assert best.gap <= 1e-8
    assert min(best.excess(problem.risk(point)) for point in points) > 0.0


@pytest.mark.parametrize("method", ["LNC-GM truncated", "PNCA-SGD"])
def test_a_printed_formula_spends_almost_the_epsilon_of_its_cell(method):
    params = {"data": "w7a", "loss": "l4", "setting": "printed", "method": method}
    params |= {"n": 10_000, "epsilon": 2.0}
    budget = clipped.budget_of(params, clipped.nominal_epsilon(params))
    recipe = clipped.method_of(params).recipe(clipped.facts_of(params), budget, "paper")
    spent = recipe.event.gdp / gdp_from_budget(2.0, budget.delta)
    assert 0.9 < spent <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("theta", [2.0, 3.0, 4.0])
def test_the_growth_instance_has_its_risk(theta):
    params = tnc.KEPT | {"theta": theta, "n": 200_000}
    problem = tnc.instance(params, np.random.default_rng(2))
    center = np.full(2, tnc.shift(params))
    point = np.array([0.1, -0.2])
    excess = np.mean(np.abs(point - center) ** theta) / theta
    found = problem.risk(point) - problem.risk(center)
    # The part - y <row, w> of a record has variance |w - w*|^2/d and mean 0.
    size = 1.0 + tnc.far(params) ** theta
    spread = np.linalg.norm(point - center) * np.sqrt(size / 200_000)
    assert abs(found - excess) < 6.0 * spread


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 8])
def test_heavy_tailed_labels_have_the_moment_that_is_declared(k):
    params = tnc.KEPT | {"theta": 2.0, "n": 1000, "k": k}
    tail = tnc.TAIL * k
    scale = (1.0 - 1.0 / tnc.TAIL) ** (1.0 / k)
    assert scale**k * tail / (tail - k) == pytest.approx(1.0)
    y = np.abs(tnc.instance(params, np.random.default_rng(3)).data.response)
    assert scale <= y.min() and y.max() <= tnc.LARGEST
    assert np.median(y) == pytest.approx(scale * 2.0 ** (1.0 / tail), rel=0.1)


def test_the_lower_bound_is_below_the_bayes_risk_without_privacy():
    params = {"family": "tilted", "d": 1, "theta": 2.0, "n": 1000}
    rate, length, _ = tnc_lower.scales(params)
    sides = [
        binom.pmf(np.arange(1001), 1000, 0.5 * (1 + s * rate)) for s in (-1.0, 1.0)
    ]
    bayes = (rate * length) ** 2 * np.sum(sides[0] * sides[1] / (sides[0] + sides[1]))
    assert 0.4 * bayes < tnc_lower.lower(params) <= bayes
