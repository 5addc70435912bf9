"""Hit-and-run: energies along lines, one-step invariance, caches, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.jit import kernel
from dpsample.samplers import HitAndRun, SamplingError
from dpsample.samplers.coordinate import hit_and_run
from dpsample.samplers.univariate import line
from tests.support.gibbs_targets import TWO_DIMENSIONS
from tests.support.line_targets import TARGETS, copied, draw, one_draw_each
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected
from tests.support.tiers import by_turns, one_in
from tests.support.unchecked_losses import unchecked

every_target = pytest.mark.parametrize("name", TARGETS)
INVARIANT = (
    "logistic, mode on the sphere",
    "hinge on the plane",
    "absolute on a box",
    "quantile, p = 1, l_1 ball",
    "hinge, p = 1.5, triangle",
    "logistic on a nuclear-norm ball",
)


# One dispatcher for all targets: their types are the same.
evaluate = kernel(line.evaluate, cached=False)


def prepared_for(target, **options):
    return HitAndRun(**options).prepare(target, np.random.default_rng(0))


@pytest.mark.slow
@every_target
def test_energy_and_slope_along_a_line_are_those_of_the_target(name):
    target = TARGETS[name]
    prepared = prepared_for(target)
    state, rng = prepared.init(), np.random.default_rng(1)
    hit_and_run.synchronize(target.numbers, state)
    hit_and_run.choose_direction(prepared.plan, state, rng)
    data, direction = target.numbers.data, state.vectors[1]
    line.rates_of(data, direction, state.workspace.rates)
    is_quadratic, penalty = prepared.plan.is_quadratic, (0.0, 0.0, 0.0)
    if is_quadratic == 1:
        regularizer = target.numbers.regularizer
        penalty = line.quadratic_along(regularizer, state.position, direction)
    along = line.line_of.py_func(  # compiled, it has no result for Python
        target.numbers,
        state,
        state.memory[1:],
        state.workspace.rates,
        data.response,
        is_quadratic,
        penalty,
    )
    low, high = target.domain.chord(state.position, along.direction)
    low, high = max(low, -1.0), min(high, 1.0)
    for share in (0.1, 0.4, 0.8):
        t = low + share * (high - low)
        value, slope = evaluate((target.pieces, along), t)
        point = state.position + t * along.direction
        np.testing.assert_allclose(value, target.energy(point), rtol=1e-11, atol=1e-11)
        expected = target.gradient(point) @ along.direction
        np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-9)


@one_in(4)
@every_target
def test_draws_stay_inside_and_report_their_energy(name):
    target = TARGETS[name]
    prepared = prepared_for(target)
    draws, stats = draw(prepared, prepared.init(), np.random.default_rng(2), 1500)
    assert all(target.domain.contains(theta) for theta in draws)
    energies = [target.energy(theta) for theta in draws[::50]]
    np.testing.assert_allclose(stats[::50, 0], energies, rtol=1e-9, atol=1e-9)
    assert len(np.unique(draws[:, 0])) > 1400


@one_in(2)
@pytest.mark.parametrize("name", by_turns(INVARIANT, turns=3))
def test_one_step_from_exact_draws_leaves_the_law(name):
    case = TWO_DIMENSIONS[name]
    rng = np.random.default_rng(3)
    starts = case.exact(rng, 6000)
    draws = one_draw_each(prepared_for(case.target), starts, rng)
    assert law_margin(case, draws) <= 1.0
    assert np.abs(np.corrcoef(starts[:, 0], draws[:, 0])[0, 1]) < 0.95


def test_margins_of_another_point_are_detected():
    case = TWO_DIMENSIONS["squared on the plane"]
    rng = np.random.default_rng(4)
    starts = case.exact(rng, 6000)
    prepared = prepared_for(case.target)
    assert (
        law_margin(case, one_draw_each(prepared, starts, rng, keep_caches=True)) > 1.0
    )


@pytest.mark.slow
def test_a_wrong_temperature_is_detected():
    case = TWO_DIMENSIONS["hinge on the plane"]
    rng = np.random.default_rng(5)
    target = case.target
    wrong = dps.Gibbs(target.problem, k=1.5 * target.k, mu=target.mu)
    draws = one_draw_each(prepared_for(wrong), case.exact(rng, 6000), rng)
    assert_rejected(law_margin(case, draws))


@pytest.mark.parametrize("name", ["hinge, l_1.5 ball", "absolute, simplex, entropy"])
def test_resuming_is_bit_identical(name):
    prepared = prepared_for(TARGETS[name])
    state = prepared.init()
    draw(prepared, state, np.random.default_rng(6), 700)
    other = copied(prepared, state)
    one = draw(prepared, state, np.random.default_rng(7), 600)
    two = draw(prepared, other, np.random.default_rng(7), 600)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1][:, 0], two[1][:, 0])


def test_num_steps_thins_the_chain():
    target = TARGETS["logistic, whole space"]
    single, double = prepared_for(target), prepared_for(target, num_steps=2)
    one = draw(single, single.init(), np.random.default_rng(8), 20)[0]
    two = draw(double, double.init(), np.random.default_rng(8), 10)[0]
    np.testing.assert_array_equal(one[1::2], two)
    with pytest.raises(ValueError, match="num_steps must be an integer >= 1, got 0"):
        HitAndRun(num_steps=0)


def test_directions_on_the_simplex_sum_to_zero():
    prepared = prepared_for(TARGETS["absolute, simplex, entropy"])
    state, rng = prepared.init(), np.random.default_rng(9)
    for _ in range(50):
        hit_and_run.choose_direction(prepared.plan, state, rng)
        direction = state.vectors[1]
        assert abs(direction.sum()) <= 1e-15 * np.abs(direction).sum()


@pytest.mark.slow
def test_an_energy_that_is_not_convex_is_refused():
    # The door refuses such a loss; a kernel must not rely on that.
    loss = unchecked(
        lambda u, y: np.cos(6.0 * u),
        lambda u, y: -6.0 * np.sin(6.0 * u),
        slope_bound=6.0,
    )
    box = dps.domains.Box(-2.0, 2.0)
    problem = dps.Problem([[1.0]], [1.0], loss=loss, domain=box, row_bound=1.0)
    with pytest.raises(SamplingError):  # in the pilot run already, or in the draws
        prepared = prepared_for(dps.Gibbs(problem, k=20.0, mu=0.01))
        draw(prepared, prepared.init(), np.random.default_rng(10), 200)
