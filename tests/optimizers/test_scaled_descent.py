"""Descent that scales its steps: against NumPy, its noise, and its refusals."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.optimizers import NoisyGD
from dpsample.optimizers.loop.perturbations import NoNoise
from tests.support.clipped_cases import BUDGET, ZERO_OUT, logistic
from tests.support.descents import descend
from tests.support.tiers import one_in

SCALED = NoisyGD(output="scaled")


def clear_signal(loss, domain):
    """Responses that are the first column's signs."""
    rows = logistic(60, 5, seed=3).data.dense
    return dps.Problem(
        rows,
        np.where(rows[:, 0] > 0.0, 1.0, -1.0),
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )


def reference(
    problem,
    sizes,
    stddev,
    *,
    pull=1.0,
    slack=2.0,
    early=1.0,
    is_careful=True,
    is_held=True,
    boundary_loss=None,
    held_back=1.5,
):
    """The module's formulas for gradients without noise, thought to have ``stddev``.

    ``sizes`` are the number of steps, the first step and the longest one; the other
    numbers plant bugs.
    """
    total, eta, longest = sizes
    a, y, radius = problem.data.dense, problem.data.response, problem.domain.radius
    dim, factors, loss = a.shape[1], [], problem.loss
    w, mean, quarter, half = np.zeros(dim), np.zeros(dim), max(1, total // 4), 0
    half = max(quarter, total // 2)
    start, first, slopes, squares, count = 0, np.zeros(dim), 0.0, 0.0, 0
    point = np.zeros(dim)  # the first stage's

    def inside(point):
        return point / max(1.0, np.linalg.norm(point) / radius)

    for t in range(total):
        g = loss.slope(a @ w, y) @ a / len(y)
        first += g * (t < quarter)
        point += w * (t < quarter) / quarter
        if t >= (quarter // 2 if t < quarter else start):
            slopes, squares, count = slopes + g @ w, squares + w @ w, count + 1
        w = inside(w - eta * g)
        mean += (t >= half) * w / (total - half)
        if t + 1 not in (quarter, half, total):
            continue
        u = mean if t + 1 == total else w
        at_start = -first @ u / quarter - pull * eta * stddev**2 * dim
        change = at_start + slopes / count
        v = stddev * math.sqrt(
            u @ u / quarter + dim * (eta * stddev) ** 2 + squares / count**2
        )
        v *= slack
        factor = (max(at_start, 0.0) + v) / (max(change, 0.0) + v)
        p = early * min(max(point @ u / (u @ u), 0.0), 1.0)
        growth = (1.0 - p) * (factor - 1.0)
        if t + 1 == total and growth > 0.0 and is_careful:
            growth *= 1.0 - p
        factor = min(max(1.0 + growth, 0.25), 4.0)
        new = inside(factor * u)
        is_back = factor * np.linalg.norm(u) >= held_back * np.linalg.norm(new)
        if boundary_loss and is_back:
            loss = boundary_loss
        if is_held:
            factor = np.linalg.norm(new) / np.linalg.norm(u)
        eta, factors = min(eta * factor, longest), [*factors, factor]
        w, start, slopes, squares, count = new, t + 1, 0.0, 0.0, 0
    return w, np.array(factors)


def quiet(recipe, stddev):
    """A recipe without noise whose rules think that it has some."""
    phases = [
        replace(phase, noise=NoNoise(), step=replace(phase.step, stddev=stddev))
        for phase in recipe.phases
    ]
    return replace(recipe, phases=tuple(phases))


@one_in(4)
@pytest.mark.parametrize("total", [2, 3, 4, 40, 43, 61])
@pytest.mark.parametrize("stddev", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("loss", [dps.losses.Logistic(), dps.losses.Squared()])
def test_it_is_what_the_formulas_say(total, stddev, loss):
    problem = clear_signal(loss, dps.domains.Ball(20.0))
    method = NoisyGD(output="scaled", num_steps=total, step_size=0.3)
    recipe = method.recipe(problem.facts, BUDGET)
    found = descend(problem, quiet(recipe, stddev), np.random.default_rng(1)).theta
    sizes = total, 0.3, recipe.phases[0].step.longest
    expected, factors = reference(problem, sizes, stddev)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (np.abs(factors - 1.0) > 1e-3).any()
    if stddev and total > 4:  # planted bugs
        bugs = [{"pull": 0.0}, {"slack": 1.0}, {"early": 0.0}]
        if factors[-1] > 1.0:
            bugs.append({"is_careful": False})
        for bug in bugs:
            other, _ = reference(problem, sizes, stddev, **bug)
            assert np.abs(found - other).max() > 1e-6


def test_steps_grow_no_longer_where_the_ball_ends():
    problem = clear_signal(dps.losses.Logistic(), dps.domains.Ball(0.2))
    method = NoisyGD(output="scaled", num_steps=40, step_size=0.3)
    sizes = 40, 0.3, 8.0
    found = descend(
        problem, method.recipe(problem.facts, None), np.random.default_rng(1)
    ).theta
    expected, factors = reference(problem, sizes, 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    _, free = reference(problem, sizes, 0.0, is_held=False)
    assert factors.max() < free.max()


def test_the_wall_s_loss_is_read_from_the_stage_on_that_leaves_the_ball():
    loss, capped = dps.losses.CalibratedLogistic(), dps.losses.CappedLogistic(0.5)
    method = NoisyGD(output="scaled", num_steps=40, step_size=0.3, boundary_loss=capped)
    stddev, sizes, told_apart = 0.01, (40, 0.3, 4.0), set()
    for radius in (0.5, 0.75, 1.5, 4.0):
        problem = clear_signal(loss, dps.domains.Ball(radius))
        found = descend(
            problem,
            quiet(method.recipe(problem.facts, None), stddev),
            np.random.default_rng(1),
        ).theta
        for least in (1.5, 0.9, 1.2, 2.0, math.inf):  # the first, and planted bugs
            expected, _ = reference(
                problem, sizes, stddev, boundary_loss=capped, held_back=least
            )
            if np.abs(found - expected).max() > 1e-4:
                told_apart.add(least)
            elif least == 1.5:
                np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert told_apart == {0.9, 1.2, 2.0, math.inf}


class Limited:
    """The logistic loss's slopes, cut at 1/2."""

    @staticmethod
    def slope(margins, labels):
        return np.clip(dps.losses.Logistic().slope(margins, labels), -0.5, 0.5)


def test_no_record_moves_further_than_the_problem_s_loss_declares():
    """A steeper loss, which a recipe refuses, is cut as any record's slope is."""
    problem = clear_signal(dps.losses.CalibratedLogistic(), dps.domains.Ball(0.5))
    method = NoisyGD(output="scaled", num_steps=40, step_size=0.3)
    recipe = method.recipe(problem.facts, BUDGET)
    phases = [
        replace(
            phase,
            noise=replace(phase.noise, stddev=1e-7),
            step=replace(phase.step, stddev=0.0),
            boundary_loss=dps.losses.Logistic(),
        )
        for phase in recipe.phases
    ]
    loud = replace(recipe, phases=tuple(phases))
    found = descend(problem, loud, np.random.default_rng(1)).theta
    sizes = 40, 0.3, recipe.phases[0].step.longest
    expected, _ = reference(problem, sizes, 0.0, boundary_loss=Limited)
    unlimited, _ = reference(problem, sizes, 0.0, boundary_loss=dps.losses.Logistic())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - unlimited).max() > 1e-4


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
def test_it_has_the_noise_and_the_event_of_so_many_steps(budget):
    facts = logistic(2000, 3).facts
    scaled = SCALED.recipe(facts, budget)
    total = int(scaled.inputs["num_steps"])
    plain = NoisyGD(num_steps=total).recipe(facts, budget)
    assert scaled.event == plain.event and scaled.kind == plain.kind == "steps/full"
    assert scaled.inputs["noise_stddev"] == plain.inputs["noise_stddev"]
    counts = [phase.num_steps for phase in scaled.phases]
    assert counts == [total // 4, total // 2 - total // 4, total - total // 2]
    assert all(phase.noise == plain.phases[0].noise for phase in scaled.phases)
    assert math.isinf(SCALED.risk_bound(facts, budget))
    assert "risk_bound" not in scaled.inputs


def test_stages_and_chunks_change_nothing():
    """Sums are kept from one call of the compiled loop to the next."""
    problem = logistic(200, 3)
    fits = [
        dps.replicate(
            dps.minimize,
            problem,
            SCALED,
            BUDGET,
            num_replicates=3,
            seed=5,
            threads=threads,
        ).thetas
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])


def test_what_it_does_not_serve_is_refused():
    facts = logistic(200, 3).facts
    with pytest.raises(ValueError, match="num_steps must be >= 2"):
        NoisyGD(output="scaled", num_steps=1).recipe(facts, BUDGET)
    hinge = replace(facts, loss=dps.losses.Hinge())
    with pytest.raises(ValueError, match="smooth"):
        NoisyGD(output="scaled", step_size=0.1).recipe(hinge, BUDGET)
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        SCALED.recipe(facts, BUDGET, "paper")


def of_the_rows(row, response, theta, out):
    """Gradient of a loss that is no function of the margin: none."""
    out[:] = 0.0


def own():
    """A loss of the user with small slopes."""
    return dps.losses.custom(
        lambda u, y: -0.1 * y * u,
        lambda u, y: -0.1 * y,
        slope_bound=0.1,
        upper_curvature=0.0,
        labels=True,
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (dps.losses.Logistic, "at most as steep as CalibratedLogistic"),
        (lambda: dps.losses.CappedLogistic(0.6), "at most as steep"),
        (dps.losses.Absolute, "of margins and responses as"),
        (lambda: dps.losses.record_gradient(of_the_rows), "one of the package"),
        (own, "one of the package"),
    ],
)
def test_a_loss_that_the_noise_may_not_cover_is_refused(make, reason):
    facts = replace(logistic(200, 3).facts, loss=dps.losses.CalibratedLogistic())
    with pytest.raises(ValueError, match=f"boundary_loss must be {reason}"):
        replace(SCALED, boundary_loss=make()).recipe(facts, BUDGET)


def test_a_wall_s_loss_is_smooth_and_its_responses_are_declared():
    facts = replace(logistic(200, 3).facts, loss=dps.losses.Huber(1.5))
    with pytest.raises(ValueError, match="response_bound must be declared beside"):
        replace(SCALED, boundary_loss=dps.losses.Linear()).recipe(facts, BUDGET)
    facts = replace(facts, response_bound=1.0)
    with pytest.raises(ValueError, match="boundary_loss must be smooth"):
        replace(SCALED, boundary_loss=dps.losses.Absolute()).recipe(facts, BUDGET)


def test_a_wall_s_loss_is_of_a_scaled_descent():
    with pytest.raises(
        ValueError, match="boundary_loss must be None for output='tail'"
    ):
        NoisyGD(output="tail", boundary_loss=dps.losses.CappedLogistic())
    with pytest.raises(ValueError, match="boundary_loss must be a Loss"):
        NoisyGD(output="scaled", boundary_loss="capped")
    assert "boundary_loss" not in repr(SCALED)
    walled = replace(SCALED, boundary_loss=dps.losses.CappedLogistic())
    assert json.dumps(walled.to_dict()["boundary_loss"])
    assert repr(walled).endswith(
        "output='scaled', boundary_loss=CappedLogistic(cap=0.5))"
    )
