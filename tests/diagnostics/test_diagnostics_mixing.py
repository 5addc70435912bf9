"""Coupling bounds of total variation against chains whose law is known exactly."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.diagnostics import mixing, tv_bound
from dpsample.diagnostics.couplings.meeting import run_all
from dpsample.diagnostics.laws import end_of
from dpsample.samplers import (
    MALA,
    BallWalk,
    PreconditionedCrankNicolson,
    Proximal,
    RandomWalk,
)
from tests.support.exact_mixing import GridChain, autoregressive_tv, standard_normal
from tests.support.gibbs_targets import ONE_DIMENSION
from tests.support.statistics import assert_law, rejected, spend
from tests.support.tiers import one_in, usual

# Always accepted, or an exact conditional draw: x' = ratio x + sqrt(1 - ratio^2) z.
AUTOREGRESSIONS = {
    "Crank-Nicolson in 10": (PreconditionedCrankNicolson(step_size=0.6), 10, 0.8),
    "Crank-Nicolson in 3": (PreconditionedCrankNicolson(step_size=0.8), 3, 0.6),
    "Crank-Nicolson on a line": (PreconditionedCrankNicolson(step_size=0.6), 1, 0.8),
    "proximal in 10": (Proximal(step_size=0.25), 10, 0.8),
    "proximal in 2": (Proximal(step_size=1.0), 2, 0.5),
    "proximal on a line": (Proximal(step_size=0.25), 1, 0.8),
}
WALKS = {
    "RandomWalk": RandomWalk(step_size=1.5),
    "MALA": MALA(step_size=0.6),
    "PreconditionedCrankNicolson": PreconditionedCrankNicolson(step_size=0.8),
    "Proximal": Proximal(step_size=0.03),
}
# Two pairs by default, all others in the slow tier.
GRIDS = [
    pytest.param(case, walk, marks=() if i == j and i % 2 == 0 else pytest.mark.slow)
    for i, case in enumerate(ONE_DIMENSION)
    for j, walk in enumerate(WALKS)
]


def plain():
    """Options of a check, whose level is spent."""
    return {"replicates": 200, "confidence": 1.0 - spend(), "seed": 61}


@cache
def grid_chain(case_name, walk):
    """Chain, its matrix, and a start in the tail of the target."""
    case = ONE_DIMENSION[case_name]
    prepared = WALKS[walk].prepare(case.target, np.random.default_rng(62))
    chain = GridChain(case, walk, prepared)
    start = int(np.searchsorted(np.cumsum(chain.law), 0.99))
    return case.target, prepared, chain, start


def check_curve(bound, exact):
    """Limits above the exact distance, and estimates that are worth having."""
    assert (bound.upper >= exact).all(), "statistic: a limit is below the distance"
    seen = ~bound.curve.is_extrapolated & (exact > 0.02)
    assert seen.sum() >= 2
    assert (bound.estimate[seen] < 10.0 * exact[seen]).all()
    # One pair that meets very late, by a slow tail, leaves no limit: rare, and honest.
    if bound.times.times.max() < 20 * bound.times.lag:
        assert bound.upper[-1] < 0.9


@usual("Crank")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if "line" in name else pytest.mark.slow)
        for name in AUTOREGRESSIONS
    ],
)
def test_limits_lie_above_the_distance_of_an_autoregression(name):
    sampler, dim, ratio = AUTOREGRESSIONS[name]
    start = np.full(dim, 3.0)
    bound = tv_bound(standard_normal(dim), sampler, init=start, **plain())
    exact = [autoregressive_tv(t, ratio, start) for t in bound.steps]
    check_curve(bound, np.array(exact))


@pytest.mark.slow
@pytest.mark.parametrize(("case_name", "walk"), GRIDS)
def test_limits_lie_above_the_distance_by_quadrature(case_name, walk):
    target, prepared, chain, start = grid_chain(case_name, walk)
    node = chain.nodes[start]
    bound = tv_bound(target, prepared, init=[node], **plain() | {"replicates": 1000})
    check_curve(bound, np.array([chain.tv(t, start) for t in bound.steps]))


@pytest.mark.slow
@pytest.mark.parametrize(("case_name", "walk"), GRIDS)
def test_the_matrix_is_that_of_the_chain(case_name, walk):
    _, prepared, chain, start = grid_chain(case_name, walk)
    np.testing.assert_allclose(chain.law @ chain.matrix, chain.law, atol=2e-4)
    here = replace(prepared, start=chain.nodes[[start]], **stay(prepared))
    ends = np.array(run_all(end_of(here, 3), streams(63, 1500), None))[:, 0]
    # An atom, where no proposal was accepted, is spread over its cell.
    width = chain.edges[1] - chain.edges[0]
    ends += width * (np.random.default_rng(64).random(1500) - 0.5) * is_at(ends, chain)
    assert_law(ends, chain.cdf(3, start))
    with rejected():
        assert_law(ends, chain.cdf(1, start))


def stay(prepared):
    return {"scatter": None} if hasattr(prepared, "scatter") else {}


def is_at(ends, chain):
    nearest = np.searchsorted(chain.edges, ends) - 1
    return ends == chain.nodes[np.clip(nearest, 0, len(chain.nodes) - 1)]


def test_pairs_that_are_said_to_meet_early_are_seen(monkeypatch):
    honest = mixing.meeting_times

    def early(*args, lag, **options):
        found = honest(*args, lag=lag, **options)
        return replace(found, times=lag + (found.times - lag) // 4)

    monkeypatch.setattr(mixing, "meeting_times", early)
    with rejected():
        test_limits_lie_above_the_distance_of_an_autoregression(
            "Crank-Nicolson on a line"
        )
    with rejected():
        test_limits_lie_above_the_distance_by_quadrature("hinge", "RandomWalk")


@pytest.mark.slow
def test_proved_curve_is_that_of_the_chain_and_lies_above_the_distance():
    sampler, dim, ratio = AUTOREGRESSIONS["proximal in 10"]
    start = np.full(dim, 3.0)
    steps = [0, 1, 10, 40]
    options = {"steps": steps, "replicates": 20, "lag": 20, "seed": 65}
    bound = tv_bound(standard_normal(dim), sampler, init=start, **options)
    exact = [autoregressive_tv(t, ratio, start) for t in steps]
    assert bound.proved_for == "this chain" and bound.proved[0] == 1.0
    assert (bound.proved >= exact).all() and bound.proved[-1] < 0.01
    # The distance of the given start counts, not that of the mode.
    near = tv_bound(standard_normal(dim), sampler, **options)
    assert near.proved[2] < 0.8 * bound.proved[2]


@pytest.mark.slow
def test_other_samplers_are_shown_beside_the_proximal_one():
    target = ONE_DIMENSION["hinge"].target
    bound = tv_bound(target, MALA(), replicates=50, seed=66)
    assert bound.proved_for == repr(Proximal())
    assert (np.diff(bound.proved) <= 0.0).all()
    text = repr(bound)
    assert "proved: Proximal" in text and "0.95" in text
    assert "statistical, for this data set, not a privacy proof" in text
    assert len(text.splitlines()) == 3 + len(bound.steps) + 3
    assert max(map(len, text.splitlines())) <= 88


def test_a_target_without_a_metric_has_no_proved_curve():
    problem = dps.Problem(
        np.eye(2),
        [0.3, -0.2],
        loss=dps.losses.Absolute(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )
    bound = tv_bound(dps.Gibbs(problem, k=5.0, mu=0.0), RandomWalk(), replicates=50)
    assert bound.proved is None and bound.proved_for == "no chain"
    assert "proved" not in repr(bound)


@pytest.mark.slow
def test_lag_and_steps_come_from_a_pilot_or_from_the_caller():
    target = standard_normal(2)
    sampler = PreconditionedCrankNicolson(step_size=0.6)
    found = tv_bound(target, sampler, replicates=100, seed=67)
    advised = found.times.advised_lag
    assert 0.5 * advised <= found.times.lag <= 2.0 * advised
    assert found.steps[0] == 0 and found.steps[-1] >= 2 * found.times.lag
    own = tv_bound(target, sampler, replicates=100, seed=67, lag=7, steps=[3, 9])
    assert own.times.lag == 7 and own.steps.tolist() == [3, 9]


@pytest.mark.slow
def test_threads_do_not_change_a_curve():
    target, options = (
        ONE_DIMENSION["hinge"].target,
        {"replicates": 30, "seed": 68, "lag": 6},
    )
    one, many = (tv_bound(target, MALA(), threads=n, **options) for n in (1, 3))
    np.testing.assert_array_equal(one.times.times, many.times.times)
    np.testing.assert_array_equal(one.upper, many.upper)
    other = tv_bound(target, MALA(), replicates=30, seed=69, lag=6)
    assert (one.times.times != other.times.times).any()


@pytest.mark.slow
def test_plot_shows_estimate_limit_and_proof():
    pytest.importorskip("matplotlib").use("Agg")
    bound = tv_bound(standard_normal(2), Proximal(), replicates=60, seed=70)
    ax = bound.plot()
    assert 0.0 < ax.get_ylim()[0] < 1.0 / 60
    assert ax.get_xlabel() == "steps" and ax.get_yscale() == "log"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:2] == ["couplings", "upper limit (0.95)"]
    assert "proved, this chain" in labels
    assert "not a privacy proof" in ax.get_title()
    ax.figure.clear()


@one_in(4)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": BallWalk(step_size=1.0)}, "a coupling, got BallWalk.{,40} Use"),
        ({"sampler": "mala"}, "a sampler or what its prepare returned"),
        ({"target": None}, "target must be"),
        ({"lag": 0}, "lag must be"),
        ({"replicates": 1}, "replicates must be"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"steps": [-1]}, "steps must be"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"max_steps": 1}, "1 of the|pairs that did not"),
        ({"init": [np.nan]}, "init must be"),
        ({"init": [3.0]}, "init must be inside the domain"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_malformed_arguments_are_refused(change, message):
    options = {"target": ONE_DIMENSION["hinge"].target, "sampler": MALA(step_size=0.5)}
    options |= {"replicates": 5} | change
    with pytest.raises(ValueError, match=message):
        tv_bound(**options)
