"""Whatever the records hold, the noise that was paid for reaches the output.

Hostile records saturate clipped gradients, so runs are affine in the noise: the end
less the end of the same run without noise has a law that the recipe alone predicts.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import dpsample as dps
from dpsample.domains import Ball
from dpsample.numerics.norms import norm
from dpsample.optimizers import HeavyTailedFrankWolfe, HeavyTailedLasso
from dpsample.optimizers.loop.contributions import PSI_BOUND
from dpsample.optimizers.loop.optimizer import Loop, Minimization, Recipe
from dpsample.optimizers.loop.perturbations import (
    GeneralizedGaussianNoise,
    NoNoise,
    Perturbation,
)
from dpsample.optimizers.loop.steps import FrankWolfeStep, GradientStep
from dpsample.running import descent
from tests.contracts.hostile_cases import SETTINGS, World, all_losses, plan_minimization
from tests.contracts.hostile_records import MAX
from tests.contracts.optimizer_cases import LIMITED
from tests.support.mutants import vertices_without_nan_scores
from tests.support.plain_descent import Affine
from tests.support.statistics import assert_frequency, assert_scale, rejected, spend
from tests.support.tiers import one_in, slow, usual

BUDGET = dps.Budget(epsilon=0.5, delta=1e-3)
NUM_RUNS = 100
FAINT = 2.0**-30
ROWS = np.tile([[0.5, 0.0]], (12, 1))
# Gradients that no iterate changes: of huge responses, and of zero rows.
HOSTILE = {
    "one": (ROWS * np.eye(12)[:, :1], np.full(12, 1e103)),
    "all": (ROWS, np.full(12, -1.7e308)),
    "both": (ROWS, np.array(6 * [MAX, -1e103])),
}
QUARTIC = World(dps.losses.PowerFour(), Ball(2.0))
WORLDS = (
    QUARTIC,
    replace(QUARTIC, loss=dps.losses.Squared()),
    replace(QUARTIC, loss=dps.losses.Huber()),
)


def first_served(setting, domain):
    """The hardest world that an optimizer accepts, and its recipe."""
    for world in WORLDS:
        given = replace(world, domain=domain)
        if (recipe := given.recipe(setting, BUDGET.relation)) is not None:
            return given, recipe
    return None, None


def opened(recipe: Recipe) -> Recipe:
    """The recipe without local balls, its output noise that of exact steps."""

    def open_ball(phase):
        phase = replace(phase, output_gdp=0.0)
        if isinstance(phase, Minimization):
            return replace(phase, local_radius=np.inf)
        if hasattr(phase.step, "local_radius"):
            return replace(phase, step=replace(phase.step, local_radius=np.inf))
        return phase

    return replace(recipe, phases=tuple(map(open_ball, recipe.phases)))


def silenced(recipe: Recipe) -> Recipe:
    """The recipe whose noise is too small to see, yet takes as many random numbers."""

    def faint(spec, *names: str):
        return replace(spec, **{name: FAINT * getattr(spec, name) for name in names})

    def silent(phase):
        if isinstance(phase, Minimization):
            return faint(phase, "output_stddev", "tilt_stddev")
        noise = phase.noise
        if not isinstance(noise, NoNoise):
            is_general = isinstance(noise, GeneralizedGaussianNoise)
            noise = faint(noise, "sigma" if is_general else "stddev")
        return faint(replace(phase, noise=noise), "output_stddev")

    return replace(recipe, phases=tuple(map(silent, recipe.phases)))


def ends_of(problem: dps.Problem, recipe: Recipe) -> np.ndarray:
    """Ends of seeded runs."""
    program = descent.Program(problem, recipe)
    return np.array(
        [program.run(np.random.default_rng(s)).theta for s in range(NUM_RUNS)]
    )


def noise_of(problem: dps.Problem, recipe: Recipe) -> np.ndarray:
    """Ends of runs less those of the silent ones."""
    return ends_of(problem, recipe) - ends_of(problem, silenced(recipe))


AFFINE = [
    case
    for case in LIMITED
    if case.name != "NoisyMirrorDescent" and getattr(case.domain, "p", 2.0) == 2.0
]


RUNS = [
    pytest.param(case, name, id=f"{type(case.optimizer).__name__}-{number}-{name}")
    if number % 3 == place
    else slow(case, name, id=f"{type(case.optimizer).__name__}-{number}-{name}")
    for number, case in enumerate(AFFINE)
    for place, name in enumerate(HOSTILE)
]


@one_in(4)
@pytest.mark.parametrize(("case", "name"), RUNS)
def test_the_output_of_hostile_records_has_the_calibrated_noise(case, name) -> None:
    """The whole run; P1, P2."""
    world, recipe = first_served(case.optimizer, case.domain)
    assert world is not None
    recipe, free = opened(recipe), replace(world, domain=dps.domains.WholeSpace())
    line = replace(free, loss=dps.losses.Linear(), response_bound=1.0)
    columns = Affine(
        line.problem(ROWS, np.ones(12)), recipe, np.random.default_rng(0)
    ).columns[:, 1:]
    root = np.linalg.cholesky(columns @ columns.T)
    noise = noise_of(free.problem(*HOSTILE[name]), recipe)
    assert_scale(np.linalg.solve(root, noise.T), detects=0.5)
    for planted in (FAINT, 0.5):  # noise that is lost, or half as large
        with rejected():
            assert_scale(np.linalg.solve(root, planted * noise.T), detects=0.5)


def noisy_kinds():
    """One setting of each estimator, noise, batch and place of noise."""
    found = {}
    for setting in SETTINGS:
        for domain in (Ball(2.0), Ball(2.0, p=1.5), dps.domains.WholeSpace()):
            world, recipe = first_served(setting, domain)
            if world is None or recipe.event is None:
                continue
            for phase in recipe.phases:
                if not isinstance(phase, Loop):
                    key = (type(phase), phase.tilt_stddev > 0.0)
                elif (
                    getattr(phase.noise, "copies", 1) > 1
                ):  # whose mean has no such law
                    continue
                else:
                    parts = (phase.estimator, phase.noise, phase.batches)
                    key = (*map(type, parts), phase.output_stddev > 0.0)
                    key += (phase.estimator.smoothing > 0.0,)
                found.setdefault(key, (world, recipe, phase))
    return found


@pytest.fixture(scope="module")
def kinds():
    return noisy_kinds()


def test_every_noise_of_a_step_has_its_law_beside_hostile_records(kinds) -> None:
    """One step of size 1, for every estimator with every noise and batch."""
    laws = set()
    for world, recipe, phase in kinds.values():
        if not isinstance(phase, Loop) or phase.output_stddev > 0.0:
            continue
        if isinstance(phase.step, FrankWolfeStep):
            continue
        step = replace(phase, num_steps=1, step=GradientStep(1.0), weights=None)
        single = replace(recipe, phases=(step,), start=np.zeros(2))
        rows, response = HOSTILE["both" if len(laws) % 2 else "all"]
        free = replace(world, domain=dps.domains.WholeSpace())
        noise = noise_of(free.problem(rows, response), single)
        law = phase.noise
        laws.add(type(law))
        # The norm of a generalized Gaussian vector over sigma has a chi law, too.
        sizes = norm(noise, getattr(law, "r", 2.0)) / law.scale
        assert_scale(np.repeat(sizes, 2) / np.sqrt(2.0), detects=0.5)
    assert laws == set(Perturbation.__subclasses__()) - {NoNoise}


NUM_CHOICES = 1500
VERTICES = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
BENIGN = (HOSTILE["one"][0], np.zeros(12))
SATURATED = {"one": -1 / 12, "all": 1.0, "both": 0.0}


def frank_wolfe(name: str) -> tuple[World, Recipe, np.ndarray, np.ndarray]:
    """One private choice of a vertex, and its laws on hostile and benign records."""
    world = replace(QUARTIC, domain=Ball(2.0, p=1.0))
    method = HeavyTailedFrankWolfe(num_steps=1, scale=1.5)
    plan = plan_minimization(world.benign(), method, BUDGET, "exact", seeded=True)
    step = plan.program.recipe.phases[0].step
    # Of a coordinate that is cut off: E psi(a + a Z) for a to infinity, Z normal.
    slope = 1.5 * PSI_BOUND * math.erf(math.sqrt(0.5)) * SATURATED[name]
    scores = -step.selection * step.radius * VERTICES @ [slope, 0.0]
    laws = [np.exp(scores) / np.exp(scores).sum(), np.full(4, 0.25)]
    return world, plan.program.recipe, *laws


def choices_of(problem: dps.Problem, recipe: Recipe) -> np.ndarray:
    """How often each vertex is chosen."""
    program, rng = descent.Program(problem, recipe), np.random.default_rng(3)
    ends = np.array([program.run(rng).theta for _ in range(NUM_CHOICES)])
    return np.bincount((ends @ VERTICES.T).argmax(axis=1), minlength=4)


@usual("one")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_leave_every_vertex_its_chance(name: str) -> None:  # P1
    """All chances of the exponential mechanism, and what pure privacy forces."""
    world, recipe, chances, benign = frank_wolfe(name)
    counts = choices_of(world.problem(*HOSTILE[name]), recipe)
    for count, chance in zip(counts, chances, strict=True):
        assert_frequency(count, NUM_CHOICES, chance)
    if name == "one":  # a neighbor of the benign records
        assert (chances >= np.exp(-BUDGET.epsilon) * benign).all()
        for count in counts:
            assert_chance_at_least(count, np.exp(-BUDGET.epsilon) / 4.0)
        scores = np.log(chances) + [0.0, 0.0, np.nan, np.nan]
        rng = np.random.default_rng(4)
        lost = np.bincount(vertices_without_nan_scores(rng, scores, NUM_CHOICES))
        with rejected():
            for count, chance in zip([*lost, 0, 0][:4], chances, strict=True):
                assert_frequency(count, NUM_CHOICES, chance)
        with rejected():
            assert_chance_at_least(0, np.exp(-BUDGET.epsilon) / 4.0)


def assert_chance_at_least(hits: int, floor: float) -> None:
    """One-sided exact bound of a binomial chance."""
    low = binom.ppf(spend(), NUM_CHOICES, floor)
    assert low >= 1.0, "too few draws to see a chance of 0"
    assert hits >= low, f"count statistic {hits} below {low}"


@usual("all")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_of_the_lasso_leave_every_vertex_its_chance(name) -> None:
    world = World(dps.losses.Squared(), Ball(2.0, p=1.0))
    method = HeavyTailedLasso(num_steps=1, entry_bound=0.75)
    plan = plan_minimization(world.benign(), method, BUDGET, "exact", seeded=True)
    step = plan.program.recipe.phases[0].step
    rows, response = HOSTILE[name]
    slope = -(rows[:, 0] * np.clip(response, -0.75, 0.75)).mean()
    scores = -step.selection * step.radius * VERTICES @ [slope, 0.0]
    chances = np.exp(scores) / np.exp(scores).sum()
    counts = choices_of(world.problem(rows, response), plan.program.recipe)
    for count, chance in zip(counts, chances, strict=True):
        assert_frequency(count, NUM_CHOICES, chance)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_slopes_that_are_nan_leave_every_vertex_a_chance(share: float) -> None:  # P1
    """A user's loss that fails at a legal record: no score may fail with it."""
    loss = next(loss for loss in all_losses() if loss.name == "custom")
    world = World(loss, Ball(2.0, p=1.0))
    method = HeavyTailedFrankWolfe(num_steps=1, scale=1.5)
    plan = plan_minimization(world.benign(), method, BUDGET, "exact", seeded=True)
    rows, response = HOSTILE["one"]
    rows = rows + share * np.array([0.0, 0.25])
    counts = choices_of(world.problem(rows, -response), plan.program.recipe)
    for count in counts:  # a replaced record is a neighbor of none that says nothing
        assert_chance_at_least(count, np.exp(-2.0 * BUDGET.epsilon) / 4.0)
