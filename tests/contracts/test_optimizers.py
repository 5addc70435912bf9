"""What holds for every optimizer, tested on all of them at once.

Without noise and limits the textbook algorithm; an output of the stated law; noise that
gives back the budget; one-pass methods that read no record twice; no record that moves
a query farther than declared. Symmetries, and the table of which optimizer is tested
for what and where: `tests.contracts.test_optimizer_symmetries`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.batches import Full, Poisson
from dpsample.optimizers.loop.optimizer import Loop, Minimization, Recipe
from dpsample.optimizers.loop.perturbations import GeneralizedGaussianNoise, NoNoise
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy import epsilon_of
from dpsample.privacy.accounting.events import (
    GaussianEvent,
    ParallelEvent,
    PoissonGaussianEvent,
)
from tests.contracts.optimizer_cases import (
    AFFINE,
    BUDGET,
    LIMITED,
    Case,
    problem,
)
from tests.contracts.optimizer_lists import (
    LINEAR,
    LOCALIZED,
    LOGISTIC,
    ONE_PASS_CASES,
    STEPWISE,
    steps_of,
)
from tests.support.clipped_cases import batch
from tests.support.descents import descend
from tests.support.plain_descent import (
    Affine,
    unconstrained,
    without_balls,
    without_noise,
)
from tests.support.tiers import one_in

LOSSES = {"linear": LINEAR, "squared": dps.losses.Squared()}
AFFINE_RUNS = [(case, word) for case in AFFINE for word in case.losses]


def end(data, recipe, seed=5):
    return descend(data, recipe, np.random.default_rng(seed)).theta


def affine(case, word):
    """The constraint-free problem, its recipe, and the run in plain NumPy."""
    data = problem(LOSSES[word], case.domain)
    free, recipe = unconstrained(data), without_balls(case.recipe(data))
    return free, recipe, Affine(free, recipe, np.random.default_rng(5))


@one_in(2)
@pytest.mark.parametrize(("case", "word"), AFFINE_RUNS, ids=str)
def test_without_noise_it_is_the_textbook_algorithm(case: Case, word: str) -> None:
    free, recipe, _ = affine(case, word)
    quiet = without_noise(recipe)  # it draws no normals for its steps
    expected = Affine(free, quiet, np.random.default_rng(5)).columns[:, 0]
    found = end(free, quiet)
    assert np.abs(found - expected).max() <= 1e-12
    assert np.abs(expected).max() > 1e-3


@one_in(2)
@pytest.mark.parametrize(("case", "word"), AFFINE_RUNS, ids=str)
def test_the_output_is_gaussian_with_the_mean_and_covariance_of_its_recursion(
    case: Case, word: str
) -> None:
    """As a function of the standard normals that the run drew, hence in law."""
    free, recipe, plain = affine(case, word)
    scale = np.abs(plain.theta).max()
    assert np.abs(end(free, recipe) - plain.theta).max() <= 1e-12 * scale
    if case.budget is not None:  # a thousandth more noise would be seen
        noise = plain.theta - plain.columns[:, 0]
        assert 1e-3 * np.abs(noise).max() > 1e-9 * scale


def spent(loop: Loop, data: dps.Problem, budget: dps.Budget) -> float:
    """Epsilon of a loop by its noise alone."""
    bound, sigma = loop.estimator.record_bound(data.dim), loop.noise.stddev
    shift = 2.0 if budget.relation == "replace_one" else 1.0
    last = data.num_records if loop.batches.last is None else loop.batches.last
    count, event = last - loop.batches.first, None
    if isinstance(loop.batches, Poisson):
        rate = loop.batches.rate
        multiplier = sigma * rate * count / bound
        event = PoissonGaussianEvent(
            sampling_rate=rate, noise_multiplier=multiplier, num_steps=loop.num_steps
        )
    elif isinstance(loop.batches, Full):
        event = GaussianEvent(shift * bound * math.sqrt(loop.num_steps) / count / sigma)
    else:
        event = GaussianEvent(shift * bound / loop.batches.size / sigma)
    return epsilon_of(event, delta=budget.delta, relation=budget.relation)


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("case", STEPWISE, ids=str)
def test_noise_of_steps_gives_back_the_budget(case: Case, relation: str) -> None:
    data, budget = problem(LINEAR, case.domain), replace(BUDGET, relation=relation)
    recipe = case.recipe(data, budget)
    total = epsilon_of(recipe.event, delta=budget.delta, relation=relation)
    assert total == pytest.approx(2.0, rel=1e-5)
    for loop in steps_of(recipe):
        assert spent(loop, data, budget) == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize("case", ONE_PASS_CASES, ids=str)
def test_one_pass_methods_read_every_record_at_most_once(case: Case) -> None:
    data = problem(LOGISTIC, case.domain, num_records=50)
    recipe, counts = case.recipe(data), np.zeros(50, dtype=int)
    for phase in recipe.phases:
        if isinstance(phase, Minimization):  # one query of its own records
            counts[phase.first : phase.last] += 1
            continue
        for t in range(phase.num_steps):
            np.add.at(counts, batch(phase.batches, 50, t, np.random.default_rng(t)), 1)
    assert counts.max() == 1
    if case.name not in LOCALIZED:
        run = descend(data, recipe, np.random.default_rng(5))
        assert run.num_gradients == counts.sum()


def declared(recipe: Recipe, index: int) -> tuple[float, float]:
    """How far the event lets one record move the query of a phase; and in which norm.

    The query is the estimate of a step, or the output if the noise is there.
    """
    phase, event = recipe.phases[index], recipe.event
    if isinstance(event, ParallelEvent):
        event = event.events[index]
    if phase.output_stddev > 0.0:
        return event.gdp * phase.output_stddev, 2.0
    if isinstance(event, PoissonGaussianEvent):
        return 2.0 * phase.noise.stddev / event.noise_multiplier, 2.0
    scale, exponent = phase.noise.scale, 2.0
    if isinstance(phase.noise, GeneralizedGaussianNoise):
        exponent = phase.noise.r
        scale /= math.sqrt(exponent - 1.0)
    steps = phase.num_steps if isinstance(phase.batches, Full) else 1
    return event.gdp * scale / math.sqrt(steps), exponent


def query(recipe: Recipe, index: int, data: dps.Problem, start: np.ndarray):
    """Output of a phase without noise, or (minus) the estimate of its first step."""
    phase = recipe.phases[index]
    if phase.output_stddev > 0.0:
        phase = replace(phase, output_stddev=0.0)
    else:
        phase = replace(
            phase,
            num_steps=1,
            step=GradientStep(1.0),
            noise=NoNoise(),
            weights=None,
        )
        data = unconstrained(data)
    single = Recipe(phases=(phase,), event=None, inputs={}, start=start)
    return end(data, single)


def replaced(data: dps.Problem, i: int) -> dps.Problem:
    """The same records, the i-th with the opposite label."""
    response = data.data.response.copy()
    response[i] *= -1.0
    facts = data.facts
    return dps.Problem(
        data.data.dense,
        response,
        loss=data.loss,
        domain=facts.domain,
        row_bound=facts.row_bound,
        response_bound=facts.response_bound,
    )


@pytest.mark.parametrize("case", LIMITED, ids=str)
def test_no_record_moves_a_query_farther_than_declared(case: Case) -> None:
    """Records of full length whose labels flip: where it can be, it is attained."""
    worst = 0.0
    for loss in (LINEAR, LOGISTIC):
        data = problem(loss, case.domain, num_records=8)
        data.data.dense[:] *= (1.0 - 1e-14) / norm(data.data.dense, 2.0)[:, None]
        data.data.dense[::2] = (1.0 - 1e-14) / math.sqrt(2.0)
        recipe = case.recipe(data)
        for index, phase in enumerate(recipe.phases):
            bound, exponent = declared(recipe, index)
            first = getattr(phase, "batches", phase).first
            last = getattr(phase, "batches", phase).last or 8
            for start in (np.zeros(2), np.array([0.3, -0.2])):
                base = query(recipe, index, data, start)
                for i in range(first, last):
                    other = query(recipe, index, replaced(data, i), start)
                    moved = float(norm(other - base, exponent)) / bound
                    worst = max(worst, moved)
    is_robust = getattr(case.optimizer, "estimator", "clip") != "clip"
    assert (0.7 if is_robust else 0.9998) <= worst <= 1.0 + 1e-9
