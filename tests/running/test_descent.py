"""The driver: chunks, phases, traces, output noise, refusals, failures."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample.core.pauses import PAUSED, ChunkSize
from dpsample.optimizers.loop.batches import Full, Poisson, Slices
from dpsample.optimizers.loop.estimate import OUTCOME
from dpsample.optimizers.loop.estimators import BucketedMedian, ClippedMean
from dpsample.optimizers.loop.optimizer import Loop, Minimization, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise
from dpsample.optimizers.loop.steps import AcceleratedStep, GradientStep
from dpsample.running import descent
from tests.support.descent_problems import problem, recipe
from tests.support.descents import descend
from tests.support.statistics import assert_law, rejected

RNG = np.random.default_rng(0)  # for runs that draw nothing


def noisy(num_steps=40, **options):
    fields = {
        "step": GradientStep(0.3),
        "batches": Poisson(rate=0.4),
        "estimator": ClippedMean(threshold=0.2),
        "noise": GaussianNoise(0.05),
        "weights": np.ones(num_steps),
    }
    return Loop(num_steps=num_steps, **(fields | options))


def ridge(**options):
    fields = {"ridge": 0.5, "smoothness": 1.0, "gap": 1e-14}
    return Minimization(**(fields | options))


def with_chunks(program, *sizes):
    program.chunks = [ChunkSize(size) for size in sizes]
    return program


def test_the_size_of_a_chunk_changes_nothing():
    phases = (noisy(), ridge(tilt_stddev=1.0, output_stddev=0.1))
    program = descent.Program(problem(), recipe(*phases))
    expected = program.run(np.random.default_rng(1))
    for sizes in ((1, 1), (7, 3), (1000, 1000)):
        found = with_chunks(program, *sizes).run(np.random.default_rng(1))
        assert np.array_equal(found.theta, expected.theta)
    one, many = (with_chunks(program, 9, s) for s in (1, 10**6))
    assert one.run(np.random.default_rng(1)).num_gradients == (
        many.run(np.random.default_rng(1)).num_gradients
    )


def test_a_run_leaves_nothing_behind_for_the_next():
    program = descent.Program(problem(), recipe(noisy(), ridge()))
    first = program.run(np.random.default_rng(3)).theta
    program.run(np.random.default_rng(4))
    assert np.array_equal(program.run(np.random.default_rng(3)).theta, first)


def test_two_phases_continue_where_the_first_ended():
    whole = Loop(num_steps=12, step=GradientStep(0.4))
    parts = (
        Loop(num_steps=5, step=GradientStep(0.4)),
        Loop(num_steps=7, step=GradientStep(0.4)),
    )
    rng = np.random.default_rng(0)
    expected = descend(problem(), recipe(whole), rng)
    found = descend(problem(), recipe(*parts), rng)
    assert np.array_equal(found.theta, expected.theta)
    assert found.num_gradients == expected.num_gradients == 12 * 60


def test_the_start_of_a_recipe_is_used():
    start = np.array([0.1, -0.2, 0.3])
    phase = Loop(num_steps=1, step=GradientStep(1e-16))
    found = descend(problem(), recipe(phase, start=start), RNG)
    assert np.allclose(found.theta, start, atol=1e-15)


def test_the_trace_ends_at_the_output_and_changes_nothing():
    phases = (noisy(), ridge(output_stddev=0.1))
    plain = descend(problem(), recipe(*phases), np.random.default_rng(2))
    traced = descend(problem(), recipe(*phases), np.random.default_rng(2), num_points=6)
    assert np.array_equal(plain.theta, traced.theta)
    assert plain.trace == ()
    counts = [count for count, _ in traced.trace]
    assert counts == sorted(counts) and len(counts) == 8
    assert counts[-1] == traced.num_gradients
    assert np.array_equal(traced.trace[-1][1], traced.theta)


@pytest.mark.parametrize("step", [GradientStep(0.4), AcceleratedStep(2.0)])
def test_a_point_of_the_trace_is_the_output_of_a_shorter_run(step):
    long = Loop(num_steps=12, step=step)
    short = Loop(num_steps=4, step=step)
    traced = descend(problem(), recipe(long), RNG, num_points=2)
    shorter = descend(problem(), recipe(short), RNG)
    assert np.array_equal(traced.trace[0][1], shorter.theta)


def test_whoever_watches_hears_of_every_step_and_may_end_the_run():
    program = descent.Program(problem(), recipe(noisy(), ridge()))
    heard = []
    program.run(np.random.default_rng(1), on_chunk=heard.append)
    assert program.num_steps == 41 and heard[-1] == 41 and heard == sorted(heard)

    def stop(done):
        if done >= 3:
            raise StopIteration

    with_chunks(program, 3, 1)
    with pytest.raises(StopIteration):
        program.run(np.random.default_rng(1), on_chunk=stop)


def test_a_certified_minimizer_is_that_of_ridge_regression():
    p = problem(dps.losses.Squared(), domain=dps.domains.WholeSpace())
    rows, y = p.data.dense, p.data.response
    phase = ridge(gap=1e-20)
    found = descend(p, recipe(phase), np.random.default_rng(0)).theta
    n = len(y)
    exact = np.linalg.solve(rows.T @ rows / n + 0.5 * np.eye(3), rows.T @ y / n)
    # The certificate: |w - w*| <= sqrt(2 gap / ridge).
    assert np.linalg.norm(found - exact) <= np.sqrt(2.0 * 1e-20 / 0.5) + 1e-14


def test_entries_are_clipped_before_anything_else():
    p = problem(dps.losses.Squared())
    bound = 0.2
    clipped = dps.Problem(
        np.clip(p.data.dense, -bound, bound),
        np.clip(p.data.response, -bound, bound),
        loss=p.loss,
        domain=p.domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    phase = Loop(num_steps=5, step=GradientStep(0.5))
    found = descend(p, recipe(phase, entry_bound=bound), RNG).theta
    assert np.array_equal(found, descend(clipped, recipe(phase), RNG).theta)
    assert np.abs(p.data.dense).max() > bound  # the problem's own records stay


def output_draws(stddev):
    p = problem(domain=dps.domains.WholeSpace())
    phase = Loop(num_steps=1, step=GradientStep(1e-16), output_stddev=stddev)
    program = descent.Program(p, recipe(phase))
    rng = np.random.default_rng(5)
    return np.concatenate([program.run(rng).theta for _ in range(1000)])


def test_output_noise_has_the_declared_law():
    assert_law(output_draws(0.3), norm(scale=0.3).cdf)
    with rejected():
        assert_law(output_draws(0.4), norm(scale=0.3).cdf)


def test_a_noisy_output_is_projected():
    p = problem(domain=dps.domains.Ball(0.5))
    phase = Loop(num_steps=1, step=GradientStep(0.1), output_stddev=10.0)
    theta = descend(p, recipe(phase), np.random.default_rng(1)).theta
    assert np.linalg.norm(theta) == pytest.approx(0.5)


BAD_PHASES = {
    "steps": {"num_steps": 0, "weights": None},
    "weights": {"weights": np.ones(3)},
    "negative_weights": {"weights": -np.ones(40)},
    "no_first_weight": {"weights": np.arange(40.0)},
    "sizes": {"step": GradientStep(np.ones(7))},
    "output_noise": {"output_stddev": -1.0},
    "infinite_output_noise": {"output_stddev": np.inf},
}


@pytest.mark.parametrize("name", BAD_PHASES)
def test_a_malformed_loop_is_refused(name):
    with pytest.raises(ValueError, match="must be"):
        recipe(noisy(**BAD_PHASES[name]))


@pytest.mark.parametrize(
    "change",
    [
        {"ridge": 0.0},
        {"gap": 0.0},
        {"gap": np.nan},
        {"smoothness": np.inf},
        {"tilt_stddev": np.nan},
        {"local_radius": -1.0},
        {"estimator": BucketedMedian(width=1.0, num_buckets=3)},
    ],
)
def test_a_malformed_minimization_is_refused(change):
    with pytest.raises(ValueError, match="must be"):
        recipe(ridge(**change))


@pytest.mark.parametrize(
    "phase",
    [
        noisy(batches=Full(last=61)),
        noisy(batches=Full(first=-1)),
        noisy(batches=Poisson(rate=0.5, first=30, last=30)),
        noisy(batches=Slices(size=2)),
        noisy(batches=Slices(size=1, first=30)),
        ridge(first=60),
        ridge(last=61),
    ],
)
def test_batches_beyond_the_records_are_refused(phase):
    # Kernels do not check indices: this would read foreign memory.
    with pytest.raises(ValueError, match="must be"):
        descent.Program(problem(), recipe(phase))


def test_a_malformed_recipe_is_refused():
    with pytest.raises(ValueError, match="phases must be non-empty"):
        recipe()
    with pytest.raises(ValueError, match=r"phases\[0\] must be"):
        recipe("a loop")
    with pytest.raises(ValueError, match="event must be"):
        Recipe(phases=(noisy(),), event="gaussian", inputs={})
    with pytest.raises(ValueError, match="entry_bound must be"):
        recipe(noisy(), entry_bound=0.0)
    with pytest.raises(ValueError, match="start must be"):
        descent.Program(problem(), recipe(noisy(), start=np.zeros(4)))


def test_a_loss_that_fails_is_an_error():
    p = problem(dps.losses.Squared())
    p.data.response[4] = np.nan
    with pytest.raises(descent.DescentError, match="loss raised"):
        descend(p, recipe(Loop(num_steps=2, step=GradientStep(0.1))), RNG)
    with pytest.raises(descent.DescentError, match="loss raised"):
        descend(p, recipe(ridge()), np.random.default_rng(0))


def test_overflow_is_an_error():
    p = problem(dps.losses.Squared(), domain=dps.domains.WholeSpace())
    phase = Loop(num_steps=2000, step=GradientStep(1e4))
    with pytest.raises(descent.DescentError):
        descend(p, recipe(phase), RNG)


def test_a_solver_that_cannot_certify_says_so(monkeypatch):
    monkeypatch.setattr(descent, "MAX_SOLVER_STEPS", 3)
    program = with_chunks(descent.Program(problem(), recipe(ridge(gap=1e-300))), 1)
    with pytest.raises(descent.DescentError, match="certify"):
        program.run(np.random.default_rng(0))


def test_the_time_before_a_pause_counts(monkeypatch):
    """Else chunks grow, and a next method that asks for no pause takes them whole."""
    clock, answers = itertools.accumulate(itertools.repeat(0.01)), []

    def solve(*arguments):
        for _ in range(5 if len(answers) % 3 < 2 else 0):
            next(clock)
        answers.append(OUTCOME.running if len(answers) % 3 == 2 else PAUSED)
        return answers[-1]

    monkeypatch.setattr(descent, "solve", solve)
    monkeypatch.setattr(descent, "time", SimpleNamespace(perf_counter=clock.__next__))
    monkeypatch.setattr(descent, "MAX_EPOCHS", 8)
    program = descent.Program(problem(), recipe(ridge(solver="svrg")))
    with pytest.raises(descent.DescentError, match="certify"):
        program.run(np.random.default_rng(0))
    assert answers.count(OUTCOME.running) == 8
    assert program.chunks[0].size == 1
