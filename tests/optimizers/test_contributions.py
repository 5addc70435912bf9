"""One record's part in a sum: finite and within its bound, whatever it holds."""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample.domains import WholeSpace
from dpsample.optimizers.loop.contributions import (
    LARGEST,
    add_clipped,
    clip_number,
    slope_limits,
)
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Estimator,
    Mean,
    ThresholdNumbers,
    TruncatedMean,
)
from dpsample.optimizers.loop.loop import Arguments, descend
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise, NoNoise
from dpsample.optimizers.loop.pieces import new_memory
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import GaussianEvent
from tests.support.extreme_records import TINY, others, problem
from tests.support.tiers import one_in

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
RESPONSES = (1e103, -1e103, 1e308, -1e308, TINY, -TINY, 0.0)
ROWS = (
    (0.5, 0.0),
    (0.6, -0.8),
    (TINY, 0.0),
    (3 * TINY, TINY),
    (1e-310, -3e-320),
    (1e-170, 0.0),
    (1e-155, 1e-160),
    (0.0, 0.0),
)
BOUNDED = (
    ClippedMean(threshold=0.7),
    ClippedMean(threshold=1e-200),
    ClippedMean(threshold=1e150),
    TruncatedMean(threshold=0.7),
    TruncatedMean(threshold=0.3, row_norm=math.inf),
    BucketedMedian(width=2.0, num_buckets=1),
    CatoniMean(scale=0.5, precision=1.5),
    CatoniMean(scale=1e-250),
)


def noisy(estimator: Estimator, **fields: object) -> Recipe:
    loop = Loop(
        num_steps=1,
        step=GradientStep(1.0),
        estimator=estimator,
        noise=GaussianNoise(1.0),
        **fields,
    )
    return Recipe(phases=(loop,), event=None, inputs={})


def sum_of(
    problem: dps.Problem, estimator: Estimator, theta: object = (0.3, -0.2)
) -> np.ndarray:
    """What the compiled estimator makes of the records, before noise: n * mean."""
    recipe = noisy(estimator)
    arguments = Arguments(problem, recipe)
    rng = np.random.default_rng(0)
    phase = arguments.phase(recipe.phases[0], rng)
    quiet = phase._replace(noise=NoNoise().compile())
    memory = new_memory(problem.dim, arguments.num_buckets)
    memory.theta[:] = theta
    fixed = arguments.data, arguments.loss, arguments.feasible, quiet
    assert descend(*fixed, memory, rng, 0, 1) == 1
    return memory.gradient * problem.num_records


def is_within(vector: np.ndarray, bound: float, q: float = 2.0) -> bool:
    """Whether a norm is at most a bound, in exact arithmetic."""
    parts = [abs(Fraction(float(x))) for x in vector]
    if math.isinf(q):
        return max(parts) <= Fraction(bound)
    return sum(part**2 for part in parts) <= Fraction(bound) ** 2


# P1, P2
@one_in(4)
@pytest.mark.parametrize("estimator", BOUNDED, ids=repr)
def test_the_part_of_any_record_is_finite_and_within_its_bound_exactly(
    estimator: Estimator,
) -> None:
    for row in ROWS:
        for response in RESPONSES:
            for loss in (losses.PowerFour(), losses.Squared(), losses.Linear()):
                part = sum_of(problem([row], [response], loss), estimator)
                assert np.isfinite(part).all(), (row, response, loss)
                bound = estimator.record_bound(2)
                assert is_within(part, bound, estimator.q), (row, response, loss)


# P2
@pytest.mark.parametrize("response", [1e103, 1e308, -1e308])
def test_an_overflowing_gradient_keeps_its_direction_and_has_the_clips_length(
    response: float,
) -> None:
    row = np.array([0.6, -0.4])
    part = sum_of(problem([row], [response]), ClippedMean(threshold=0.7))
    expected = -math.copysign(0.7, response) * row / np.linalg.norm(row)
    np.testing.assert_allclose(part, expected, rtol=1e-14)


# P2
def test_clipped_gradients_are_within_the_clip_for_rows_of_any_size() -> None:
    rng = np.random.default_rng(1)
    for size in (1e-322, 1e-310, 1e-200, 1e-8, 1.0, 1e8, 1e59):
        rows = size * rng.uniform(-1.0, 1.0, (40, 5))
        for y in (1.0, 1e3, 1e300):
            for row in rows:
                bound = max(9.0 * size, 1e-60)
                p = problem([row], [y], losses.Linear(), row_bound=bound)
                part = sum_of(p, ClippedMean(threshold=0.37), np.zeros(5))
                assert np.isfinite(part).all() and is_within(part, 0.37)


def test_a_clip_far_below_the_gradient_is_kept() -> None:
    data, rng = problem([[0.0]], [0.0]).data, np.random.default_rng(0)  # not read
    # Quotients of the two are subnormal: at the second, 8e-3 of it was rounding.
    for clip, size in ((1.6e-187, 3.6e128), (6.6e-290, 2e33), (1e-290, 1e150)):
        limit, memory = ThresholdNumbers(clip), new_memory(7)
        for seed in range(20):
            gradient = size * np.random.default_rng(seed).standard_normal(7)
            memory.scratch[:], memory.partial[:] = gradient, 0.0
            add_clipped(limit, data, False, 1, memory, rng)
            assert is_within(memory.partial, clip)


def test_slope_limits_are_rounded_down() -> None:
    rng = np.random.default_rng(2)
    norms = 10.0 ** rng.uniform(-323.0, 300.0, 2000)
    for threshold in (0.0, 1e-290, 0.3, 1.0, 1e290):
        limits = slope_limits(norms, threshold, 3)
        assert ((0.0 <= limits) & (limits <= LARGEST)).all()
        for norm, limit in zip(norms, limits, strict=True):
            assert Fraction(float(limit)) * Fraction(float(norm)) <= Fraction(threshold)
    assert slope_limits(np.array([0.0, np.inf]), 1.0, 3).tolist() == [LARGEST, 0.0]
    assert slope_limits(np.array([1.0, np.inf]), np.inf, 3).tolist() == [LARGEST] * 2


@pytest.mark.parametrize(
    ("x", "expected"),
    [(np.nan, 0.0), (np.inf, 2.0), (-np.inf, -2.0), (1.5, 1.5), (-3.0, -2.0)],
)
def test_within_is_total(x: float, expected: float) -> None:
    assert clip_number(x, 2.0) == expected


# P1
@one_in(3)
@pytest.mark.parametrize(
    "loss",
    [losses.Logistic(), losses.Hinge(), losses.Huber(0.5), losses.Quantile(0.9)],
    ids=repr,
)
@pytest.mark.parametrize("smoothing", [0.0, 2.0])
def test_a_lipschitz_loss_has_slopes_within_its_bound_anywhere(
    loss: losses.Loss, smoothing: float
) -> None:
    for y in (1.0, -1.0) if loss.is_classification else RESPONSES:
        for row in ROWS:
            p = problem([row], [y], loss, domain=WholeSpace(), response_bound=None)
            mean = Mean(lipschitz=p.lipschitz(2.0), smoothing=smoothing)
            for theta in ((0.3, -0.2), (1e300, -1e300), (-1e300, 1e-310)):
                part = sum_of(p, mean, theta)
                assert np.isfinite(part).all()
                size, limit = math.hypot(*part), math.hypot(*row)
                assert size <= p.lipschitz(2.0) * limit * (1.0 + 1e-15) + 3 * TINY


# An exception inside a C function goes to Python's hook for unraisable ones.
RAISES = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FAILING_RESPONSES = [9.0, np.nan]
if numba.config.DISABLE_JIT:
    FAILING_RESPONSES = [np.nan]  # in interpreted code an exception travels by itself


def unfinished(row, response, theta, out):
    if response > 5.0:
        raise ValueError("no such response")
    for j in range(len(out)):
        out[j] = row[j] * np.exp(response) if response < 0.0 else row[j]


@one_in(2)
# P2
@RAISES
@pytest.mark.parametrize("estimator", BOUNDED[:1] + BOUNDED[5:7], ids=repr)
@pytest.mark.parametrize("response", FAILING_RESPONSES)
def test_a_gradient_that_fails_counts_as_zero(
    estimator: Estimator, response: float
) -> None:
    rows, y = others(40, (0.5, 0.2), 0.0)
    p = problem(rows, np.abs(y), losses.record_gradient(unfinished))
    p.data.dense[0] = np.nan if math.isnan(response) else p.data.dense[0]
    p.data.response[0] = 9.0 if response == 9.0 else 1.0
    zero = problem(rows, np.abs(y), losses.record_gradient(unfinished))
    zero.data.dense[0] = 0.0
    np.testing.assert_array_equal(sum_of(p, estimator), sum_of(zero, estimator))


# P2
@RAISES
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an exception travels by itself")
def test_a_users_loss_that_raises_at_a_record_leaves_the_others_alone() -> None:
    def slope(u, y):
        if y == 0.93754321:  # not one of those that are tried
            raise ValueError("no such response")
        return np.tanh(u - y)

    loss = losses.custom(
        lambda u, y: np.log(np.cosh(u - y)), slope, slope_bound=1.0, name="log cosh"
    )
    rows, y = others(40, (0.5, 0.2), 0.0)
    p = problem(rows, y, loss, response_bound=1.0)
    whole = sum_of(p, ClippedMean(threshold=0.2))
    p.data.response[0] = 0.93754321
    rest = problem(rows[1:], y[1:], loss, response_bound=1.0)
    np.testing.assert_allclose(
        sum_of(p, ClippedMean(threshold=0.2)),
        sum_of(rest, ClippedMean(threshold=0.2)),
        atol=1e-13,
    )
    assert np.abs(whole - sum_of(rest, ClippedMean(threshold=0.2))).max() > 1e-3


@pytest.mark.parametrize("estimator", [ClippedMean(threshold=s) for s in (0.0, 1e-320)])
def test_noise_that_floating_point_loses_is_refused(estimator: Estimator) -> None:
    p = problem([(0.5, 0.0)], [0.3])
    recipe = noisy(estimator)
    private = Recipe(phases=recipe.phases, event=GaussianEvent(1.0), inputs={})
    with pytest.raises(ValueError, match="bound of a record's gradient must be"):
        private.check_private(p.facts)
    quiet = Loop(
        num_steps=1, step=GradientStep(1.0), estimator=ClippedMean(threshold=1)
    )
    with pytest.raises(ValueError, match="noisy to be private"):
        Recipe(phases=(quiet,), event=GaussianEvent(1.0), inputs={}).check_private(
            p.facts
        )
