"""A loss that raises or returns NaN on the domain never gives a draw."""

import dataclasses

import numba
import numpy as np
import pytest

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.problem.storage import MemoryStorage
from dpsample.running import chains
from tests.support.tiers import one_in, usual
from tests.support.unchecked_losses import unchecked

# An exception inside a compiled piece cannot travel; Python reports it and goes on.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


def loss_failing_between(low, high, how):
    """|u|, Huber-like at 0, that fails for margins in (low, high).

    A problem would refuse it: here the kernels meet it.
    """

    def value(u, y):
        return np.sqrt(1.0 + u * u)

    def slope(u, y):
        return u / np.sqrt(1.0 + u * u)

    def nan_value(u, y):
        return np.nan if low < u < high else np.sqrt(1.0 + u * u)

    def nan_slope(u, y):
        return np.nan if low < u < high else u / np.sqrt(1.0 + u * u)

    def raising_value(u, y):
        if low < u < high:
            raise ValueError("no value here")
        return np.sqrt(1.0 + u * u)

    def raising_slope(u, y):
        if low < u < high:
            raise ValueError("no slope here")
        return u / np.sqrt(1.0 + u * u)

    functions = {
        "fine": (value, slope),
        "value is NaN": (nan_value, slope),
        "slope is NaN": (value, nan_slope),
        "value raises": (raising_value, slope),
        "slope raises": (value, raising_slope),
    }
    return unchecked(*functions[how], slope_bound=1.0, upper_curvature=1.0)


HOW = ["value is NaN", "slope is NaN", "value raises", "slope raises"]
if numba.config.DISABLE_JIT:
    HOW = HOW[:2]  # in interpreted code an exception travels by itself


def make(low, high, how, *, k=50.0, offset=0.0, num_moving=60):
    """Sixty records in two blocks of margins, all at ``offset`` when theta is 0."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 2))
    rows /= 1.01 * np.linalg.norm(rows, axis=1, keepdims=True)
    rows[num_moving:] = 0.0
    problem = dps.Problem(
        rows,
        np.ones(60),
        loss=loss_failing_between(low, high, how),
        domain=dps.domains.Ball(3.0),
        row_bound=1.0,
        offset=np.full(60, offset),
        offset_bound=1.0,
    )
    problem.storage = MemoryStorage(problem.data._replace(block=40))
    return dps.Gibbs(problem, k=k, mu=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_energy_or_gradient_is_nan_where_a_piece_fails(how):
    target = make(0.4, 0.6, how)
    theta = np.array([0.5, 0.0])  # one margin of many is in the bad interval
    assert np.isfinite(make(0.4, 0.6, "fine").gradient(theta)).all()
    assert np.isnan(target.energy(theta)) == (how != "slope is NaN")
    assert np.isnan(target.gradient(theta)).any()
    if "raises" in how:
        # A pass that stopped halfway must not leave numbers that look like slopes.
        assert np.isnan(target.gradient(theta)).all()
    assert np.isfinite(target.gradient(np.zeros(2))).all()


@usual("value raises")
@pytest.mark.parametrize("how", HOW)
def test_a_failure_at_the_start_is_raised_by_every_verb(how):
    target = make(0.04, 0.06, how, offset=0.05)
    at_start = make(0.04, 0.06, "fine", offset=0.05)
    assert np.isfinite(at_start.energy(np.zeros(2)))
    with pytest.raises(dps.SamplingError):
        dps.Proximal().prepare(target, np.random.default_rng(1))
    with pytest.raises(dps.SamplingError):
        dps.sample(target, sampler=dps.Proximal(), num_draws=2, num_chains=1)
    with pytest.raises(dps.SamplingError):
        dps.release(target.problem, dps.Budget(epsilon=1.0, delta=1e-6), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_a_failure_after_the_pilot_is_raised_by_the_run(how):
    fine, bad = make(0.3, 0.8, "fine"), make(0.3, 0.8, how)
    pilot, stream = streams(1, 2)
    prepared = dps.Proximal().prepare(fine, pilot)
    spoiled = dataclasses.replace(prepared, target=bad)
    with pytest.raises(dps.SamplingError, match="raised or returned NaN"):
        chains.advance(spoiled.runner(), spoiled.init(), stream, 200)
    # Negative control: the same run with the loss that works.
    chains.advance(prepared.runner(), prepared.init(), stream, 200)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_a_rare_failure_in_the_middle_of_a_run_is_raised(how):
    """The interval is met once in thousands of steps, long after the pilot."""
    target = make(0.87, 0.89, how, k=25.0)
    sampler = dps.Proximal(step_size=1.0)
    options = {
        "check": False,
        "num_warmup": 0,
        "num_chains": 1,
        "seed": 1,
        "progress": False,
    }
    first = dps.sample(target, sampler=sampler, num_draws=50, **options)
    assert np.isfinite(first.posterior["theta"]).all()
    with pytest.raises(dps.SamplingError, match="raised or returned NaN"):
        dps.sample(target, sampler=sampler, num_draws=30_000, **options)


@one_in(2)
@pytest.mark.parametrize("how", HOW[::2])
def test_release_never_returns_a_point_at_which_the_loss_fails(how):
    """Points that the squeeze accepts unseen are looked at before they leave."""
    problem, num_failed = make(0.3, 0.4, how, num_moving=1).problem, 0
    budget, sampler = dps.Budget(epsilon=2.0, delta=1e-6), dps.Proximal(step_size=1.0)
    for seed in range(60):
        try:
            answer = dps.release(problem, budget, sampler=sampler, seed=seed)
        except dps.SamplingError:
            num_failed += 1
            continue
        assert np.isfinite(problem.risk(answer.theta))
    assert 0 < num_failed < 60
