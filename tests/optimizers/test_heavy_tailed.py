"""Private Frank-Wolfe methods: neutrality, selections, ledger."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.core.streams import streams
from dpsample.optimizers import HeavyTailedFrankWolfe, HeavyTailedLasso
from dpsample.optimizers.loop.batches import Slices
from dpsample.privacy import (
    Budget,
    ConcentratedEvent,
    EventCertificate,
    PureEvent,
    epsilon_of,
    rho_from_bounded_range,
)
from dpsample.running.descent import Program
from tests.support.descents import descend
from tests.support.gradient_vectors import estimate
from tests.support.statistics import IS_FRESH, assert_frequency, rejected
from tests.support.vertex_cases import BUDGET, frank_wolfe, problem

ZERO_OUT = Budget(epsilon=1.0, delta=1e-5, relation="zero_out")
PURE = Budget(epsilon=1.0, delta=0.0)
PURE_ZERO_OUT = Budget(epsilon=1.0, delta=0.0, relation="zero_out")


def test_without_noise_and_limits_folds_run_frank_wolfe() -> None:
    data = problem()
    spec = HeavyTailedFrankWolfe(num_steps=7, scale=1e9)
    rows, y = data.data.dense[:56], data.data.response[:56]
    expected = frank_wolfe(np.split(rows, 7), np.split(y, 7), 2.0)
    found = minimize(data, spec, seed=0)
    assert found.theta == pytest.approx(expected, abs=1e-12)
    assert found.num_gradients == 56 and found.certificate is None


def test_without_noise_the_lasso_runs_frank_wolfe_on_clipped_records() -> None:
    data = problem()
    before = data.data.dense.copy()
    rows, y = np.clip(before, -0.8, 0.8), np.clip(data.data.response, -0.8, 0.8)
    expected = frank_wolfe([rows] * 9, [y] * 9, 2.0)
    spec = HeavyTailedLasso(num_steps=9, entry_bound=0.8)
    assert minimize(data, spec, seed=0).theta == pytest.approx(expected, abs=1e-12)
    assert (data.data.dense == before).all()
    csr = problem(transform=sparse.csr_matrix)
    assert minimize(csr, spec, seed=0).theta == pytest.approx(expected, abs=1e-12)


def test_iterates_have_one_more_vertex_in_each_step() -> None:
    data = problem(400, 30)
    for num_steps in (1, 2, 4):
        for spec in (
            HeavyTailedFrankWolfe(num_steps=num_steps),
            HeavyTailedLasso(num_steps=num_steps),
        ):
            theta = minimize(data, spec, BUDGET, seed=3).theta
            assert 1 <= np.count_nonzero(theta) <= num_steps
            assert data.domain.contains(theta)


def public_ends(num_steps: int, dim: int, radius: float) -> set[bytes]:
    """Bits of all points that some vertices lead to."""
    ends = {np.zeros(dim).tobytes()}
    for t in range(1, num_steps + 1):
        size, following = 2.0 / (t + 2.0), set()
        for j, sign in itertools.product(range(dim), (-1.0, 1.0)):
            for end in ends:
                w = (1.0 - size) * np.frombuffer(end)
                w[j] += size * sign * radius
                following.add(w.tobytes())
        ends = following
    return ends


@pytest.mark.parametrize("method", [HeavyTailedFrankWolfe, HeavyTailedLasso])
def test_no_bit_of_an_answer_tells_neighbors_apart(method: Any) -> None:
    """Every answer is one of a public set, all of which every data set can give."""
    spec, public = method(num_steps=2), public_ends(2, 2, 2.0)
    assert len(public) == 16
    for response in (0.0, 1.0, 1e300):
        rows = np.full((6, 2), 0.1)
        y = np.zeros(6)
        y[0] = response
        data = dps.Problem(
            rows,
            y,
            loss=dps.losses.Squared(),
            domain=dps.domains.Ball(2.0, p=1.0),
            row_bound=1.0,
            response_bound=math.inf,
        )
        program = Program(data, spec.recipe(data.facts, BUDGET))
        rngs = streams(9, 400)
        assert {program.run(rng).theta.tobytes() for rng in rngs} == public


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of the exponential mechanism."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def vertices(dim: int, radius: float) -> np.ndarray:
    """Vertices of the l1 ball."""
    return radius * np.concatenate((np.eye(dim), -np.eye(dim)))


def test_vertices_are_drawn_with_the_softmax_probabilities() -> None:
    data = problem(60, 2)
    spec = HeavyTailedLasso(num_steps=1, entry_bound=1.0)
    recipe = spec.recipe(data.facts, Budget(epsilon=3.0, delta=1e-5))
    rows, y = np.clip(data.data.dense, -1.0, 1.0), np.clip(data.data.response, -1, 1)
    corners = vertices(2, 2.0)
    scores = corners @ rows.T @ y / 60.0 * recipe.phases[0].step.selection
    program, rng = Program(data, recipe), np.random.default_rng(5)
    thetas = np.array([program.run(rng).theta for _ in range(2000)])
    first = np.argmax(scores)
    hits = thetas @ corners[first] > 0.9 * 2.0 / 3.0 * 4.0
    chance = softmax(scores)[first]
    assert 0.4 < chance < 0.95 or IS_FRESH
    assert_frequency(int(hits.sum()), 2000, chance)
    wrong = softmax(2.0 * scores)[first]
    with rejected():  # temperature of a sensitivity half as large
        assert_frequency(int(hits.sum()), 2000, wrong)


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT, PURE])
def test_no_neighbor_changes_a_selection_by_more_than_epsilon(budget: Budget) -> None:
    """Exact probabilities of one step on a fold, for extreme records."""
    rng = np.random.default_rng(6)
    data = problem(5, 2)
    spec = HeavyTailedFrankWolfe(num_steps=1, scale=0.3)
    recipe = spec.recipe(data.facts, budget)
    loop = recipe.phases[0]
    corners, worst = vertices(2, 2.0), 0.0
    for _ in range(100):
        vectors = rng.choice([-50.0, 0.0, 50.0], (5, 2))
        laws = []
        for value in (vectors[2], [50.0, -50.0]):
            vectors[2] = value
            if budget.relation == "zero_out" and laws:
                vectors[2] = 0.0
            gradient = estimate(vectors, loop.estimator)
            laws.append(softmax(-loop.step.selection * corners @ gradient))
        ratio = np.abs(np.log(laws[0] / laws[1])).max()
        assert ratio <= budget.epsilon
        worst = max(worst, ratio)
    assert worst >= 0.4 * budget.epsilon
    assert recipe.event == PureEvent(1.0)


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT, PURE_ZERO_OUT])
def test_clipped_records_move_scores_by_at_most_the_sensitivity(
    budget: Budget,
) -> None:
    rng = np.random.default_rng(7)
    spec = HeavyTailedLasso(entry_bound=0.5)
    recipe = spec.recipe(problem(6, 2).facts, budget)
    largest = 0.0
    for _ in range(300):
        rows = rng.choice([-0.5, 0.5], (6, 2))
        y = rng.choice([-0.5, 0.5], 6)
        theta = rng.choice([-1.0, 1.0]) * rng.permutation([2.0, 0.0])
        parts = rows * (rows @ theta - y)[:, None]
        other = np.zeros(2)
        if budget.relation == "replace_one":
            a = rng.choice([-0.5, 0.5], 2)
            other = a * (a @ theta - rng.choice([-0.5, 0.5]))
        moved = 2.0 * np.abs(parts[0] - other).max() / 6.0
        largest = max(largest, moved)
    sensitivity = recipe.inputs["score_sensitivity"]
    assert 1e-13 < sensitivity / largest - 1.0 < 1e-11  # rounding errors of sums


@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_selections_of_the_lasso_compose(calibration: Any) -> None:
    recipe = HeavyTailedLasso().recipe(problem(500).facts, BUDGET, calibration)
    steps, choice = recipe.inputs["num_steps"], recipe.phases[0].step.selection
    epsilon = 2.0 * choice * recipe.inputs["score_sensitivity"]
    event = ConcentratedEvent(steps * rho_from_bounded_range(epsilon))
    spent = epsilon_of(event, delta=1e-5, relation="replace_one")
    assert spent <= 1.0 + 1e-9
    if calibration == "exact":
        assert spent == pytest.approx(1.0, rel=1e-3)
    else:
        printed = 1.0 / (2.0 * math.sqrt(2.0 * steps * math.log(1e5)))
        assert epsilon == pytest.approx(printed) and spent < 0.25
    assert steps == math.ceil(500**0.4)
    bound = 500**0.25 / steps**0.125
    assert recipe.inputs["entry_bound"] == pytest.approx(bound)


@pytest.mark.parametrize("budget", [PURE, PURE_ZERO_OUT])
def test_pure_selections_of_the_lasso_add_up_to_epsilon(budget: Budget) -> None:
    for spec in (HeavyTailedLasso(), HeavyTailedLasso(num_steps=7, entry_bound=0.3)):
        recipe = spec.recipe(problem(500).facts, budget)
        steps, step = recipe.inputs["num_steps"], recipe.phases[0].step
        assert recipe.kind == "lasso/pure" and recipe.event == PureEvent(1.0)
        # A change by the sensitivity is at most k whole cells of h for even k.
        numbers = step.numbers(3)
        moved = Fraction(numbers.selection) * Fraction(step.sensitivity)
        cells = 2 * math.ceil(moved / 2)
        spent = 2 * steps * cells * Fraction(numbers.cell)
        assert numbers.is_pure and 1.0 - 1e-6 < spent <= 1
    default = HeavyTailedLasso().recipe(problem(500).facts, budget)
    assert default.inputs["num_steps"] == math.ceil(500 ** (1.0 / 3.0))
    assert default.inputs["entry_bound"] == pytest.approx((500.0 / 8.0) ** 0.25)
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        HeavyTailedLasso().recipe(problem(500).facts, budget, "paper")


@pytest.mark.parametrize("spec", [HeavyTailedFrankWolfe(), HeavyTailedLasso()])
def test_both_checkers_prove_pure_selections(spec: Any) -> None:
    for budget in (PURE, PURE_ZERO_OUT):
        made = minimize(problem(500), spec, budget).certificate
        assert made.releasable and "(pure)" in made.statement
        assert "SELECTION.DIGITS" in made.assumptions
        assert "SELECTION.ROUNDED" not in made.assumptions
        assert dps.verify(made).statement == made.statement
        report = dps.verify(made, checker="ball")
        assert "event of the selections<=event" in str(report)
        # A smaller sensitivity, and a warmer choice, have no proof.
        names = [name for name, _ in made.inputs]
        for name, share in (("score_sensitivity", 0.5), ("inverse_temperature", 1.01)):
            content = json.loads(made.to_json())
            content["inputs"][names.index(name)][1] *= share
            with pytest.raises(ValueError):
                dps.verify(EventCertificate.from_json(json.dumps(content)))
            edited = dataclasses.replace(
                made, inputs=tuple(map(tuple, content["inputs"])), digest=""
            )
            with pytest.raises(ValueError, match="Not proved"):
                dps.verify(edited, checker="ball")


def test_a_kinked_loss_of_many_coefficients_has_a_pure_fit() -> None:
    """Exact draws end at three coefficients, and their refusal names this method."""
    data = dps.datasets.logistic(200, 5, seed=1)
    problem_of = partial(
        dps.Problem,
        data.features,
        data.response,
        loss=dps.losses.Hinge(),
        row_bound=1.0,
    )
    with pytest.raises(dps.NoCertificate, match="HeavyTailedFrankWolfe on an l1 ball"):
        dps.release(problem_of(domain=dps.domains.Ball(1.0)), PURE)
    fit = dps.minimize(
        problem_of(domain=dps.domains.Ball(1.0, p=1.0)), HeavyTailedFrankWolfe(), PURE
    )
    assert fit.certificate.releasable
    assert dps.verify(fit.certificate, checker="ball")


def test_epsilons_beyond_the_digits_of_a_pure_choice_are_not_spent() -> None:
    recipe = HeavyTailedFrankWolfe(num_steps=2).recipe(
        problem(60).facts, Budget(epsilon=1e9, delta=0.0)
    )
    numbers = recipe.phases[0].step.numbers(3)
    assert numbers.cell <= 1.0 and math.isfinite(recipe.inputs["risk_bound"])


def test_every_record_is_read_in_one_fold() -> None:
    data = problem(100)
    recipe = HeavyTailedFrankWolfe().recipe(data.facts, BUDGET)
    steps, fold = recipe.inputs["num_steps"], recipe.inputs["fold_size"]
    assert steps == int((100.0 / math.log(60.0)) ** (1.0 / 3.0))
    assert recipe.phases[0].batches == Slices(size=fold)
    found = descend(data, recipe, np.random.default_rng(0))
    assert found.num_gradients == steps * fold <= 100


def test_default_scale_minimizes_deviation_and_selection_error() -> None:
    facts = problem(4000).facts
    for budget, shift in ((BUDGET, 2.0), (ZERO_OUT, 1.0)):
        recipe = HeavyTailedFrankWolfe(moment_bound=5.0).recipe(facts, budget)
        steps, fold = recipe.inputs["num_steps"], recipe.inputs["fold_size"]
        log = math.log(2.0 * 3.0 * steps / 0.1)

        def total(s: float, log: float = log, m: int = fold, c: float = shift) -> float:
            deviation = 5.0 * 2.0 / (2.0 * s) + s / m * (0.5 + log)
            return deviation + c * 2.0 * math.sqrt(2.0) / 3.0 * s / m * log

        scale = recipe.inputs["scale"]
        assert total(scale) <= min(total(0.99 * scale), total(1.01 * scale))
    printed = HeavyTailedFrankWolfe().recipe(facts, BUDGET, "paper")
    log = math.log(2.0 * 3.0 * steps / 0.1)
    assert printed.inputs["scale"] == pytest.approx(math.sqrt(4000.0 / steps / log))


def test_permuted_coordinates_give_permuted_answers() -> None:
    order = [2, 0, 1]
    for spec in (HeavyTailedFrankWolfe(num_steps=6), HeavyTailedLasso(num_steps=6)):
        plain = minimize(problem(), spec, seed=0).theta
        mixed = problem(transform=lambda rows: np.ascontiguousarray(rows[:, order]))
        assert minimize(mixed, spec, seed=0).theta == pytest.approx(plain[order])


def test_certificates_are_releasable() -> None:
    data = problem(500)
    for spec in (HeavyTailedFrankWolfe(), HeavyTailedLasso()):
        for budget in (BUDGET, ZERO_OUT):
            made = minimize(data, spec, budget).certificate
            assert made.releasable
            assert "SELECTION.ROUNDED" in made.assumptions
            assert "ARITHMETIC" not in made.assumptions
            assert dps.verify(made).statement == made.statement
        assert not minimize(data, spec, BUDGET, seed=0).certificate.releasable


def test_unfit_problems_and_numbers_are_refused() -> None:
    ball = problem(domain=dps.domains.Ball(1.0)).facts
    moved = problem(domain=dps.domains.Ball(1.0, p=1.0, center=[0.5, 0.0, 0.0])).facts
    for spec in (HeavyTailedFrankWolfe(), HeavyTailedLasso()):
        for facts in (ball, moved):
            with pytest.raises(ValueError, match="domain must be an l1 ball about 0"):
                spec.recipe(facts, BUDGET)
    with pytest.raises(ValueError, match="loss must be Squared"):
        HeavyTailedLasso().recipe(problem(loss=dps.losses.Huber()).facts, BUDGET)
    with pytest.raises(ValueError, match="num_steps must be <= num_records = 60"):
        HeavyTailedFrankWolfe(num_steps=61).recipe(problem().facts, BUDGET)
    for make, name in (
        (lambda: HeavyTailedFrankWolfe(moment_bound=0.0), "moment_bound"),
        (lambda: HeavyTailedFrankWolfe(failure_probability=0.0), "failure_probability"),
        (lambda: HeavyTailedFrankWolfe(num_steps=0), "num_steps"),
        (lambda: HeavyTailedFrankWolfe(scale=math.inf), "scale"),
        (lambda: HeavyTailedLasso(num_steps=0), "num_steps"),
        (lambda: HeavyTailedLasso(entry_bound=-1.0), "entry_bound"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            make()
