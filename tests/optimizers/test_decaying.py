"""Decaying steps: against NumPy, what their sizes read, their bound, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.optimizers import NoisyGD
from dpsample.optimizers.loop.decaying import (
    DecayingNumbers,
    decay,
    decaying_step,
    fixed_size,
    last_iterate_bound,
)
from dpsample.optimizers.loop.noisy_descent import scales_of
from dpsample.optimizers.loop.perturbations import NoNoise
from dpsample.optimizers.loop.pieces import new_memory
from dpsample.optimizers.loop.scaled import SUM
from tests.support.clipped_cases import BUDGET, ZERO_OUT, rows_and_labels
from tests.support.descents import descend, feasible_set

DECAYING = NoisyGD(output="decaying")
LOSSES = {
    "hinge": dps.losses.Hinge(),
    "absolute": dps.losses.Absolute(),
    "quantile": dps.losses.Quantile(0.8),
}


def problem_of(loss, *, num_records=60, radius=2.0, bound=1.0):
    """Labels, or responses with an atom at a tenth of their bound."""
    rows, labels = rows_and_labels(num_records, 4, seed=3)
    response = labels
    if not loss.is_classification:
        rng = np.random.default_rng(4)
        response = np.clip(rng.normal(0.0, 0.4, num_records), -1.0, 1.0)
        response = bound * np.where(rng.random(num_records) < 0.3, 0.1, response)
    return dps.Problem(
        rows,
        response,
        loss=loss,
        domain=dps.domains.Ball(radius),
        row_bound=1.0,
        response_bound=bound,
    )


def reference(
    problem,
    step,
    total,
    *,
    factor=1.25,
    memory=20.0,
    power=2.0,
    reach=1.0,
    has_cap=True,
    has_distance=True,
):
    """The module's formulas without noise. The keywords plant bugs."""
    a, y, radius = problem.data.dense, problem.data.response, problem.domain.radius
    w, v = np.zeros(a.shape[1]), 0.0
    first = distance = reach * step.first_distance
    for t in range(total):
        g = problem.loss.slope(a @ w, y) @ a / len(y)
        b = min(t / (t + 1.0), max(0.0, 1.0 - memory / total))
        v = b * v + (1.0 - b) * (g @ g)
        size = factor * (distance if has_distance else first) / math.sqrt((t + 1.0) * v)
        size = min(size, step.longest) if has_cap else size
        w = w - size * (1.0 - t / total) ** power * g
        w = w / max(1.0, np.linalg.norm(w) / radius)
        distance = max(distance, np.linalg.norm(w))
    return w


def quiet(recipe):
    """A recipe without noise whose steps are those of one with noise."""
    (loop,) = recipe.phases
    return replace(recipe, phases=(replace(loop, noise=NoNoise()),))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("total", [1, 7, 60])
def test_it_is_what_the_formulas_say(name, total):
    problem = problem_of(LOSSES[name])
    method, clear = replace(DECAYING, num_steps=total), replace(BUDGET, epsilon=1e3)
    recipe = method.recipe(problem.facts, clear)
    step = recipe.phases[0].step
    result = descend(problem, quiet(recipe), np.random.default_rng(1)).theta
    expected = reference(problem, step, total)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    if total < 60:
        return
    bugs = [{"factor": 1.0}, {"memory": 0.0}, {"power": 1.0}, {"has_distance": False}]
    for bug in [*bugs, {"reach": 2.0}]:
        other = reference(problem, step, total, **bug)
        assert np.abs(result - other).max() > 1e-4, bug
    # Where noise is large, the longest size counts.
    recipe = method.recipe(problem.facts, BUDGET)
    step = recipe.phases[0].step
    result = descend(problem, quiet(recipe), np.random.default_rng(1)).theta
    np.testing.assert_allclose(result, reference(problem, step, total), rtol=1e-9)
    assert np.abs(result - reference(problem, step, total, has_cap=False)).max() > 1e-4


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("bound", [1.0, 5.0])
def test_public_numbers_are_those_of_the_specification(budget, bound):
    problem = problem_of(LOSSES["quantile"], num_records=2000, bound=bound)
    recipe = DECAYING.recipe(problem.facts, budget)
    total, step = recipe.inputs["num_steps"], recipe.phases[0].step
    shift = 2.0 if budget.relation == "replace_one" else 1.0
    noise = shift * 0.8 * 2.0 / (2000 * recipe.event.gdp)  # slope 0.8, sqrt(d) = 2
    assert total == math.ceil(min(max(2.0 * (0.8 / (4.0 * noise)) ** 2, 1000), 4000))
    # Pinball losses of 0 have the mean B/4 over an even range of responses.
    path = min(0.7 * 2.0 / noise, 0.2 * bound / 4.0 / noise**2)
    assert step.longest == pytest.approx(3.0 * path / total, rel=2e-3)
    assert step.first_distance == pytest.approx(0.1 * min(2.0, 2.0 * bound))
    assert step.memory == 1.0 - 20.0 / total
    assert recipe.inputs["longest_step"] == step.longest
    assert recipe.inputs["first_distance"] == step.first_distance


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("step_size", [None, 0.1])
def test_it_has_the_noise_and_the_event_of_so_many_steps(budget, step_size):
    facts = problem_of(LOSSES["hinge"], num_records=500).facts
    method = replace(DECAYING, step_size=step_size)
    recipe = method.recipe(facts, budget)
    total = recipe.inputs["num_steps"]
    plain = NoisyGD(num_steps=total).recipe(facts, budget)
    assert recipe.event == plain.event and recipe.kind == plain.kind == "steps/full"
    assert recipe.inputs["noise_stddev"] == plain.inputs["noise_stddev"]
    (loop,) = recipe.phases
    assert loop.noise == plain.phases[0].noise and loop.num_steps == total
    assert loop.estimator == plain.phases[0].estimator and loop.weights is None


@pytest.mark.parametrize("method", [DECAYING, replace(DECAYING, step_size=0.1)])
@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_certificates_are_proved_by_both_checkers(method, loss):
    fit = dps.minimize(problem_of(LOSSES[loss]), replace(method, num_steps=30), BUDGET)
    for checker in ("standard", "ball"):
        dps.verify(fit.certificate, checker=checker)


def own(slope):
    """A loss of the user, which is not differentiable at 0."""
    return dps.losses.custom(
        lambda u, y: slope * abs(u - y),
        lambda u, y: slope if u > y else -slope,
        slope_bound=slope,
        upper_curvature=np.inf,
    )


def test_certificates_of_a_user_s_loss_hold_what_can_be_computed_again():
    fit = dps.minimize(problem_of(own(0.5)), replace(DECAYING, num_steps=30), BUDGET)
    assert "longest_step" not in dict(fit.certificate.inputs)
    dps.verify(fit.certificate)


def test_a_step_reads_the_noisy_gradient_and_its_own_two_numbers_only():
    """All other memory is filled with numbers that depend on the records."""
    dim, points = 3, []
    numbers = DecayingNumbers(longest=0.3, first_distance=0.1, memory=0.9, unit=2.0)
    own_memory = ("theta", "gradient", "anchor", "scale", "control", "counts")
    for fill in (0.0, 1e6):
        rng, memory = np.random.default_rng(5), new_memory(dim)
        for name in set(memory._fields) - {*own_memory}:
            getattr(memory, name)[:] = fill
        memory.scale[: SUM.distance] = fill
        feasible = feasible_set(dps.domains.Ball(1.0), dim)
        for t in range(20):
            memory.gradient[:] = rng.normal(size=dim)
            decaying_step.py_func(feasible, numbers, t, 20, memory, None)
            points.append(memory.theta.copy())
    np.testing.assert_array_equal(points[:20], points[20:])
    assert np.linalg.norm(points[19]) > 0.1


def test_threads_and_chunks_change_nothing():
    fits = [
        dps.replicate(
            dps.minimize,
            problem_of(LOSSES["absolute"]),
            DECAYING,
            BUDGET,
            num_replicates=3,
            seed=5,
            threads=threads,
        ).thetas
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])


@np.errstate(over="ignore")
def test_gradients_of_any_size_keep_steps_finite():
    """Squares that would overflow, gradients of 0, and no cap of the size."""
    for longest in (0.5, math.inf):
        for scale in (0.0, 1e-200, 1e200):
            memory = new_memory(2)
            numbers = DecayingNumbers(longest, 0.1, 0.0, 1.0)
            feasible = feasible_set(dps.domains.Ball(1.0), 2)
            for t in range(5):
                memory.gradient[:] = scale
                decaying_step.py_func(feasible, numbers, t, 5, memory, None)
            assert np.isfinite(memory.theta).all()


# The proved bound of fixed steps ---------------------------------------------------


def direct_bound(sizes, square, radius):
    """The sums of the module, one by one."""
    sizes = [*sizes, sizes[-1]]
    total = len(sizes)

    def rest(t):
        return sum(sizes[t:])

    def error(t):
        return square * sum(size**2 for size in sizes[t:])

    bound = (radius**2 + error(0)) / (2.0 * rest(0))
    for t in range(total - 1):
        bound += sizes[t] / rest(t + 1) * error(t) / (2.0 * rest(t))
    return bound


def test_the_bound_is_the_sum_of_the_proof():
    for sizes in (np.ones(1), 0.1 * np.ones(20), 0.3 * decay(17)):
        bound = last_iterate_bound(sizes, square=2.0, radius=3.0)
        assert bound == pytest.approx(direct_bound(sizes, 2.0, 3.0), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_last_iterates_of_the_worst_functions_tried_are_below_the_bound(seed):
    """Largest of random linear functions with unit slopes, on a ball about 0."""
    rng = np.random.default_rng(seed)
    share = 0.0
    for total in (1, 2, 5, 40):
        for length in (0.05, 0.3, 1.0, 3.0):
            slopes = rng.normal(size=(6, 3))
            slopes /= np.linalg.norm(slopes, axis=1)[:, None]
            best = rng.normal(size=3)
            best /= np.linalg.norm(best)  # the minimizer, at the boundary
            slopes = np.vstack([slopes, -slopes])
            sizes, w = length * decay(total) / decay(total).sum(), np.zeros(3)
            for size in sizes:
                w = w - size * slopes[np.argmax(slopes @ (w - best))]
                w = w / max(1.0, np.linalg.norm(w))
            excess = (slopes @ (w - best)).max()
            bound = last_iterate_bound(sizes, square=1.0, radius=1.0)
            assert excess <= bound
            share = max(share, excess / bound)
    # A planted bug: without the factor 1/2 of the proof's last step less is left.
    assert share > 0.3


def test_fixed_steps_state_their_bound_and_keep_it():
    problem = problem_of(LOSSES["absolute"], num_records=400)
    scales = scales_of(
        problem.facts, lipschitz=1.0, smoothness=np.inf, risk="empirical"
    )
    size = fixed_size(problem.facts, scales, BUDGET)
    method = replace(DECAYING, step_size=size, risk="empirical")
    bound = method.risk_bound(problem.facts, BUDGET)
    runs = dps.replicate(
        dps.minimize, problem, method, BUDGET, num_replicates=20, seed=3, threads=1
    )
    minimum = dps.minimizer(problem).value
    a, y = problem.data.dense, problem.data.response
    excess = np.abs(runs.thetas @ a.T - y).mean(axis=1) - minimum
    assert 0.0 < excess.mean() < bound < math.inf
    for other in (replace(method, risk="population"), DECAYING):
        assert math.isinf(other.risk_bound(problem.facts, BUDGET))
    assert math.isinf(replace(method, clip=0.5).risk_bound(problem.facts, BUDGET))


# Lumpy responses -------------------------------------------------------------------


def level_error(method, problem, level):
    """How distance the level of the mean fit is outside of the atom's jump."""
    budget = dps.Budget(epsilon=3.0, delta=1e-6)
    runs = dps.replicate(
        dps.minimize, problem, method, budget, num_replicates=4, seed=2, threads=1
    )
    margins = runs.thetas @ problem.data.dense.T - problem.data.response
    below, at = (margins > 1e-3).mean(), (margins >= -1e-3).mean()
    return max(below - level, level - at, 0.0)


def test_the_level_of_a_quantile_is_met_where_responses_have_an_atom():
    rng = np.random.default_rng(6)
    n, level = 5000, 0.5
    y = np.where(rng.random(n) < 0.3, 0.1, rng.normal(0.0, 0.3, n)).clip(-1.0, 1.0)
    problem = dps.Problem(
        np.ones((n, 1)),
        y,
        loss=dps.losses.Quantile(level),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )
    assert level_error(DECAYING, problem, level) <= 0.02
    # Long steps of one size, as they were advised before, miss it.
    tail = NoisyGD(output="tail", num_steps=1000, step_size=0.4)
    assert level_error(tail, problem, level) > 0.05


def test_what_it_does_not_serve_is_refused():
    facts = problem_of(LOSSES["hinge"]).facts
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        DECAYING.recipe(facts, BUDGET, "paper")
    unbounded = replace(facts, domain=dps.domains.WholeSpace())
    with pytest.raises(ValueError, match="domain must be bounded"):
        DECAYING.recipe(unbounded, BUDGET)
    with pytest.raises(ValueError, match="ridge must be None for output='decaying'"):
        replace(DECAYING, ridge=0.1)
    with pytest.raises(ValueError, match="num_steps must be <= "):
        NoisyGD(output="decaying", num_steps=2**27, step_size=1.0).recipe(facts, BUDGET)
