"""Bounds of remainders, alias tables, and the Poisson process that is thinned."""

import itertools

import numpy as np
import pytest

from dpsample.samplers.subsampled import factorized_events
from dpsample.samplers.subsampled import factorized_events as events
from tests.support.factorized_cases import CASES, moved, penalties, prepared, replaced
from tests.support.statistics import assert_mean, rejected
from tests.support.tiers import one_in


@pytest.mark.slow
@pytest.mark.parametrize("step", [1.0, 0.2])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_bounds_of_records_hold_and_add_up_to_the_rates(name, is_sparse, step):
    chain = prepared(name, is_sparse, step)
    plan, rng = chain.plan, np.random.default_rng(3)
    rows, dim = CASES[name].rows, 2
    for start in CASES[name].exact(rng, 20):
        state, moves, there, end = moved(chain, start, rng)
        total = events.fill_rates(plan, state.memory[:dim], there, moves)
        channel_of = np.full(len(rows), -1)
        for channel in range(dim + 2):
            part = plan.table[plan.starts[channel] : plan.starts[channel + 1]]
            channel_of[part["own"]] = channel
        is_norm = channel_of >= dim
        levels = np.where(is_norm, moves[2, channel_of], np.abs(rows) @ moves[2, :dim])
        bounds = plan.coefficients * levels
        assert bounds[channel_of >= 0].sum() == pytest.approx(total)
        found = penalties(chain, start, end)
        assert (found <= bounds * (1.0 + 1e-9) + 1e-12).all()
        here, after = rows @ (start - plan.anchor), rows @ (end - plan.anchor)
        own = [
            plan.cubic * events.cube(abs(a), abs(b), abs(b - a))
            for a, b in zip(here, after, strict=True)
        ]
        assert (np.array(own) <= bounds * (1.0 + 1e-9)).all()


def test_sparse_records_use_coordinates():
    assert prepared("plane", True, 1.0).plan.first == 0
    assert prepared("plane", False, 1.0).plan.first == 2


def test_sparse_records_use_a_norm_where_it_is_sharper():
    starts = prepared("collinear", True, 0.5).plan.starts
    assert 0 < starts[2] < starts[-1]


def survival(chain, start, rng, count, kernel):
    """Outcomes of the coin for one proposal, and the true probability."""
    state, moves, there, end = moved(chain, start, rng)
    rank = len(there)
    events.fill_rates(chain.plan, state.memory[:rank], there, moves)
    target = chain.target
    codes = np.array(
        [
            kernel(target.numbers, target.pieces, chain.plan, state, moves, rng)
            for _ in range(count)
        ]
    )
    assert set(codes) <= {0, events.FIRED}
    return codes == 0, np.exp(-penalties(chain, start, end).sum()), state


def drastic(chain, seed):
    """Start from which a proposal is accepted with a probability near one half."""
    for trial in range(2000):
        rng = np.random.default_rng([seed, trial])
        start = chain.plan.anchor + 2.5 * chain.plan.factor @ rng.standard_normal(2)
        if not chain.target.domain.contains(start):
            continue
        _, _, _, end = moved(chain, start, np.random.default_rng(trial))
        if abs(penalties(chain, start, end).sum() - 0.6) < 0.4:
            return start, np.random.default_rng(trial)
    raise AssertionError("no such start")


@one_in(8)
@pytest.mark.parametrize(
    "kernel", [events.decide_by_events, events.decide_by_all_records]
)
@pytest.mark.parametrize("step", [1.0, 0.4])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_process_fires_with_the_right_probability(is_sparse, step, kernel):
    chain = prepared("plane", is_sparse, step)
    start, rng = drastic(chain, 5)
    survived, chance, _ = survival(chain, start, rng, 5000, kernel)
    variance = chance * (1.0 - chance)
    assert_mean(survived, chance, variance, detects=0.2)


@one_in(6)
@pytest.mark.parametrize("mistake", ["rates halved", "bounds doubled", "no curvature"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_planted_bugs_of_the_process_are_seen(is_sparse, mistake):
    chain = prepared("plane", is_sparse, 1.0)
    start, rng = drastic(chain, 5)
    plan = chain.plan
    change = {
        "rates halved": {"channel_weights": 0.5 * plan.channel_weights},
        "bounds doubled": {"coefficients": 2.0 * plan.coefficients},
        "no curvature": {
            "records": plan.records * [1.0, 1.0, 1.0, 0.8],
            "cubic": 10.0 * plan.cubic,
        },
    }[mistake]
    _, chance, _ = survival(
        chain, start, np.random.default_rng(0), 1, events.decide_by_events
    )
    start, rng = drastic(chain, 5)
    _, _, _, end = moved(chain, start, rng)
    chance = np.exp(-penalties(chain, start, end).sum())
    start, rng = drastic(chain, 5)
    wrong = replaced(chain, plan._replace(**change))
    with rejected():
        survived, _, _ = survival(wrong, start, rng, 5000, events.decide_by_events)
        assert_mean(survived, chance, chance * (1.0 - chance), detects=0.2)


def test_alias_tables_have_the_law_of_their_weights():
    rng = np.random.default_rng(4)
    weights = rng.exponential(size=30) ** 3
    weights[[3, 17]] = 0.0
    starts = np.array([0, 1, 1, 12, 30])
    labels = rng.permutation(1000)[:30]
    table = np.zeros(30, dtype=factorized_events.COLUMN)
    factorized_events.fill_alias_tables(weights, labels, starts, table)
    for first, last in itertools.pairwise(starts):
        part, law = table[first:last], dict.fromkeys(labels[first:last], 0.0)
        for column in part:
            law[column["own"]] += column["share"] / len(part)
            law[column["other"]] += (1.0 - column["share"]) / len(part)
        exact = weights[first:last] / weights[first:last].sum()
        np.testing.assert_allclose(list(law.values()), exact, atol=1e-15)
    seen = [factorized_events.draw_label(table[12:], rng) for _ in range(2000)]
    assert set(seen) <= set(labels[12:]) - {labels[17]}
