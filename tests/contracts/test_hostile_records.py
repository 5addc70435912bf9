"""Whatever a legal record holds, it moves a query within its bound and stops no run."""

from __future__ import annotations

import inspect
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dpsample as dps
from dpsample.api.minimize import plan_minimization
from dpsample.domains import WholeSpace
from dpsample.optimizers.loop import estimators
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.optimizers.loop.steps import FrankWolfeStep
from dpsample.running import descent
from tests.contracts.hostile_cases import (
    DOMAINS,
    NOT_PRIVATE,
    RELATIONS,
    SETTINGS,
    World,
    accepted,
    all_losses,
    budget_of,
    label,
)
from tests.contracts.hostile_records import (
    Query,
    Records,
    query_of,
    records,
    starts,
    within,
)
from tests.support.tiers import one_in, slow, usual

BUDGET = dps.Budget(epsilon=1.0, delta=1e-5)
PRIVATE = [s for s in SETTINGS if type(s).__name__ not in NOT_PRIVATE]
# (examples, hard worlds, other worlds) of each optimizer and relation
QUICK, LONG = (2, 1, 1), (12, 2, 4)
TIERS = [slow(QUICK, id="quick"), slow(LONG, id="long")]
# Failures say what they found: to shrink them takes minutes and shows no more.
FORM = settings(suppress_health_check=list(HealthCheck), phases=[Phase.generate])


def served(setting: Optimizer, relation: str, tier: tuple[int, int, int]):
    return accepted(setting, relation, *tier[1:])


def each_example(setting: Optimizer, relation: str, tier: tuple[int, int, int], body):
    """Call ``body(world, recipe, records, even)`` on hostile records of all worlds."""
    for world, recipe in served(setting, relation, tier):
        cases = st.tuples(
            st.just(world), st.just(recipe), records(world), st.booleans()
        )
        settings(FORM, max_examples=tier[0])(given(cases)(lambda case: body(*case)))()


def first_of_each() -> set[str]:
    """By default the first setting of each optimizer."""
    firsts: dict[str, str] = {}
    for setting in PRIVATE:
        firsts.setdefault(type(setting).__name__, label(setting))
    return set(firsts.values())


def turns() -> list:
    """Every setting under every relation, at length; by default some, in one, quickly.

    The long run meets all worlds of the quick one.
    """
    cases, usual = [], first_of_each()
    for index, setting in enumerate(PRIVATE):
        for turn, relation in enumerate(RELATIONS):
            name = f"{label(setting)}-{relation}"
            if index % 2 == turn and label(setting) in usual:
                quick = pytest.param(setting, relation, QUICK, id=f"{name}-quick")
                cases.append(quick)
            cases.append(slow(setting, relation, LONG, id=f"{name}-long"))
    return cases


@pytest.mark.parametrize(("setting", "relation", "tier"), turns())
def test_no_record_adds_more_than_its_bound(setting, relation, tier) -> None:  # P1, P2
    """Exactly: a part alone, then the sums of neighbors up to their rounding."""

    def body(world, recipe, data, even) -> None:
        theta = starts(world)[even]
        for phase in recipe.phases[:2]:
            query = query_of(recipe, phase, world, relation)
            if query is None:
                continue
            check_parts(query, data, theta)
            check_neighbors(query, data, theta, relation)

    each_example(setting, relation, tier, body)


def check_parts(query: Query, data: Records, theta: np.ndarray) -> None:
    """Parts of single records, each a data set of its own: no sum, no rounding."""
    for i in range(min(3, data.world.num_records)):
        single = data.single(i)
        part = query.estimate(single, theta)
        limit = query.bound + query.own_slack
        assert within(part, query.q, limit), excess(part, query, single)


def check_neighbors(query, data: Records, theta: np.ndarray, relation: str) -> None:
    """Sums of two neighbors, the batch's random numbers being the same."""
    n = data.world.num_records
    replaced = relation == "replace_one" or data.world.intercept
    other = data.changed(0, n - 1 if replaced else None)
    if replaced and n == 1:
        return  # nothing to replace it by
    parts = zip(query.estimate(data, theta), query.estimate(other, theta), strict=True)
    moved = [a - b for a, b in parts]
    limit = (2 if replaced else 1) * query.bound + 2 * query.slack(n, len(theta))
    assert within(moved, query.q, limit), excess(moved, query, data)


def excess(vector: list[Fraction], query: Query, data: Records) -> str:
    """What the failure says: numbers over the bound, and the first record."""
    units = [float(x / query.bound) for x in vector]
    sizes = [float(abs(x) / query.bound - 1) for x in vector]
    return (
        f"{units} times the bound (off by {sizes}) of {query.estimator}, {data.world}, "
        f"row {data.rows[0].tolist()}, y {data.response[0]}"
    )


@pytest.mark.parametrize(("setting", "relation", "tier"), turns())
def test_no_record_stops_a_run(setting, relation, tier) -> None:  # P2
    """No error, no warning; theta is finite and in the domain."""

    def body(world, recipe, data, even) -> None:
        problem = data.problem()
        program = descent.Program(problem, recipe)
        theta = program.run(np.random.default_rng(int(even))).theta
        assert np.isfinite(theta).all(), theta
        assert world.domain.contains(theta), theta

    each_example(setting, relation, tier, body)


@one_in(8)
@pytest.mark.parametrize("setting", PRIVATE, ids=label)
def test_minimize_certifies_hostile_records(setting) -> None:  # P2
    """The verb itself: one huge response among zeros, and nothing else changes."""
    if not served(setting, "replace_one", QUICK):  # nothing is proved of it
        assert {"with_replacement", "allocation"} & set(label(setting).split("-"))
        return
    world, _ = served(setting, "replace_one", QUICK)[0]
    rows = np.zeros((world.num_records, world.width))
    response = np.ones(world.num_records)
    rows[0, 0], response[0] = 0.5 * world.row_bound, world.response_limit
    budget = budget_of(setting, "replace_one")
    fits = [
        dps.minimize(problem, setting, budget, seed=1)
        for problem in (
            world.problem(rows, response),
            world.problem(0 * rows, response),
        )
    ]
    assert fits[0].certificate.inputs == fits[1].certificate.inputs
    for fit in fits:
        assert np.isfinite(fit.theta).all() and world.domain.contains(fit.theta)
        assert not fit.certificate.releasable  # seeded


@pytest.mark.parametrize("tier", TIERS)
def test_the_net_meets_every_estimator_and_loss(tier) -> None:
    """Nothing public is missing from the worlds that the settings accept."""
    relations = RELATIONS[:1] if tier is QUICK else RELATIONS
    pairs = [
        pair
        for setting in SETTINGS
        for relation in relations
        for pair in served(setting, relation, tier)
    ]
    phases = [phase for _, recipe in pairs for phase in recipe.phases]
    kinds = {
        kind
        for _, kind in inspect.getmembers(estimators, inspect.isclass)
        if issubclass(kind, estimators.Estimator) and not kind.__subclasses__()
    }
    assert {type(phase.estimator) for phase in phases} == kinds
    assert any(phase.estimator.smoothing > 0.0 for phase in phases)
    assert {world.loss.name for world, _ in pairs} == {x.name for x in all_losses()}
    named = {type(s).__name__ for s in SETTINGS if served(s, RELATIONS[0], tier)}
    assert named == set(dps.optimizers.__all__)
    assert {world.num_records for world, _ in pairs} == {1, 2, 12}
    if tier is LONG:
        assert {repr(world.domain) for world, _ in pairs} == set(map(repr, DOMAINS))


@usual("FrankWolfe", "Lasso")
@pytest.mark.parametrize("setting", PRIVATE, ids=label)
def test_a_private_choice_has_a_finite_temperature(setting) -> None:  # P1
    """Scores compare as finite numbers only if their factor is one."""
    for relation in RELATIONS:
        for _, recipe in served(setting, relation, QUICK):
            for phase in recipe.phases:
                if isinstance(getattr(phase, "step", None), FrankWolfeStep):
                    assert 0.0 < phase.step.selection < np.inf


def test_a_failing_record_changes_no_other_part() -> None:
    """Margins at a kink, in either order of summation: their last bits must not move.

    A user's loss is NaN at one record. Whatever is done about it, slopes of the other
    records of its block stay as they are: at a kink all of them would flip at once.
    """
    loss = dps.losses.custom(
        lambda u, y: abs(u - y) if y < 1e299 else np.nan,
        lambda u, y: np.sign(u - y) if y < 1e299 else np.nan,
        slope_bound=1.0,
    )
    method = dps.optimizers.ClippedGD(num_steps=2, clip=0.5, noise="steps")
    rng = np.random.default_rng(0)
    for _ in range(20):
        theta, row = rng.standard_normal((2, 7))
        rows = np.tile(row / (1.01 * np.linalg.norm(row)), (64, 1))
        plain = float(sum(a * b for a, b in zip(rows[0], theta, strict=True)))
        for kink in (float((rows @ theta)[0]), plain):
            world = World(loss, WholeSpace(), num_records=64)
            response = np.full(64, kink)
            problem = world.problem(rows, response)
            plan = plan_minimization(
                problem, replace(method, step_size=1.0), BUDGET, "exact", seeded=True
            )
            recipe = plan.program.recipe
            query = query_of(recipe, recipe.phases[0], world, "replace_one")
            other = response.copy()
            other[0] = 1e300
            sums = [
                query.estimate(Records(world, rows, y, None), theta)
                for y in (response, other)
            ]
            moved = [a - b for a, b in zip(*sums, strict=True)]
            limit = 2 * query.bound + 2 * query.slack(64, 7)
            assert within(moved, 2.0, limit), float(max(map(abs, moved)) / query.bound)
