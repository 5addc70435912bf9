"""Losses without a margin: the same loop, and only the privacy claims that survive."""

import functools
import json
import types
from functools import cache

import numba
import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample import losses
from dpsample.core.jit import reject_print
from dpsample.optimizers.loop.batches import Poisson
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Mean,
    TruncatedMean,
)
from dpsample.optimizers.loop.optimizer import (
    Loop,
    Minimization,
    Recipe,
    check_any_loss,
)
from dpsample.optimizers.loop.perturbations import GaussianNoise
from dpsample.optimizers.loop.steps import FrankWolfeStep, GradientStep
from dpsample.papers import clipping_instance
from dpsample.problem.facts import PublicFacts
from dpsample.running import descent
from tests.support.descent_problems import problem
from tests.support.descents import descend
from tests.support.tiers import one_in

O = dps.optimizers  # noqa: E741 - short in a list of methods
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
BALL = dps.domains.Ball(2.0)


def logistic_gradient(row, response, theta, out):
    margin = 0.0
    for j in range(len(row)):
        margin += row[j] * theta[j]
    slope = -response / (1.0 + np.exp(response * margin))
    for j in range(len(row)):
        out[j] = slope * row[j]


def logistic_value(row, response, theta, out):
    out[0] = np.log1p(np.exp(-response * (row * theta).sum()))


def distance_gradient(row, response, theta, out):
    out[:] = theta - row


@cache
def logistic():
    return losses.record_gradient(logistic_gradient, value=logistic_value, name="mine")


@cache
def distance():
    return losses.record_gradient(distance_gradient, name="distance")


def distances(rows, *, domain=BALL, loss=None, **options):
    rows, loss = np.asarray(rows, dtype=float), loss or distance()
    return dps.Problem(
        rows, np.zeros(len(rows)), loss=loss, domain=domain, row_bound=1e3, **options
    )


def recipe(**fields):
    loop = {"num_steps": 6, "step": GradientStep(0.4)} | fields
    return Recipe(phases=(Loop(**loop),), event=None, inputs={})


@one_in(3)
@pytest.mark.parametrize(
    "estimator",
    [
        Mean(),
        ClippedMean(threshold=0.2),
        TruncatedMean(threshold=0.4),
        BucketedMedian(width=0.4, num_buckets=6, num_central=2),
        CatoniMean(scale=0.5),
    ],
)
def test_a_loss_of_the_margin_gives_the_same_run_either_way(estimator):
    fields = {
        "estimator": estimator,
        "batches": Poisson(rate=0.6),
        "noise": GaussianNoise(0.01),
    }
    found, expected = (
        descend(p, recipe(**fields), np.random.default_rng(2))
        for p in (problem(logistic()), problem())
    )
    assert np.allclose(found.theta, expected.theta, rtol=0.0, atol=1e-13)
    assert found.num_gradients == expected.num_gradients


def test_one_step_is_the_mean_of_clipped_gradients():
    rows = np.random.default_rng(1).normal(size=(9, 2))
    step = recipe(
        num_steps=1, step=GradientStep(1.0), estimator=ClippedMean(threshold=0.7)
    )
    found = descend(distances(rows), step, np.random.default_rng(0)).theta
    sizes = np.linalg.norm(rows, axis=1)
    assert np.allclose(found, (rows * np.minimum(1.0, 0.7 / sizes)[:, None]).mean(0))


def test_one_record_moves_a_step_by_twice_the_threshold_over_n():
    rng = np.random.default_rng(3)
    rows, clip = rng.normal(size=(5, 2)), 0.3
    step = recipe(
        num_steps=1, step=GradientStep(1.0), estimator=ClippedMean(threshold=clip)
    )
    farthest = 0.0
    base = descend(distances(rows), step, rng).theta
    for angle in np.linspace(0.0, 2.0 * np.pi, 60):
        other = rows.copy()
        other[0] = 100.0 * np.array([np.cos(angle), np.sin(angle)])
        moved = descend(distances(other), step, rng).theta
        farthest = max(farthest, float(np.linalg.norm(moved - base)))
    assert 0.9 * 2 * clip / 5 < farthest <= 2 * clip / 5 * (1.0 + 1e-12)


def valley_gradient(row, response, theta, out):
    """Gradient of a record of `clipping_instance`: valleys at corners, one bowl."""
    a, b = theta[0] - row[0], theta[1] - row[1]
    tilt = 0.0 if response == 0.0 else -0.45 * np.sign(row[0] * row[1])
    flat = 1.0 if response == 0.0 else 0.5
    out[0] = flat * a + tilt * b
    out[1] = tilt * a + flat * b


def test_clipped_descent_on_a_loss_without_a_margin_is_not_stable():
    # Why output perturbation is refused: one of 401 records moves the end of the run
    # many times farther than the bound 2 C/(n lambda) that holds with a margin.
    corners = np.tile(clipping_instance.CORNERS, (100, 1))
    loss = losses.record_gradient(valley_gradient, smoothness=1.0)
    method = O.ClippedGD(num_steps=1200, clip=1.0, ridge=0.01, step_size=0.9)
    ends = []
    for last in (100.0, -100.0):
        rows = np.vstack((corners, [(0.0, last)]))
        response = np.append(np.ones(400), 0.0)
        p = dps.Problem(
            rows,
            response,
            loss=loss,
            domain=dps.domains.WholeSpace(),
            row_bound=100.0,
        )
        ends.append(dps.minimize(p, method).theta)
        with pytest.raises(ValueError, match="perturbs its output|linear margin"):
            dps.minimize(p, method, BUDGET)
    printed = 2.0 / (401 * 0.01)
    assert np.linalg.norm(ends[0] - ends[1]) > 10.0 * printed


PRIVATE = {
    "DPSGD": O.DPSGD(sampling_rate=0.5, num_steps=4, clip=0.5, step_size=0.1),
    "ClippedGD": O.ClippedGD(num_steps=4, clip=0.5, step_size=0.1, noise="steps"),
    "NoisyGD": O.NoisyGD(clip=0.5, num_steps=4, step_size=0.1),
    "PrivateProximalSGD": O.PrivateProximalSGD(
        threshold=0.5, num_steps=4, batch_size=60, smoothness=1.0
    ),
    "AcceleratedClippedSGD": O.AcceleratedClippedSGD(clip=0.5, moment=0.5, num_steps=4),
}
NOT_PRIVATE = {
    "ClippedGD": O.ClippedGD(num_steps=4, clip=0.5, step_size=0.1),
    "LocalizedClippedGD": O.LocalizedClippedGD(clip=0.5, moment=0.5),
    "NoisyGD": O.NoisyGD(),
    "ProxGD": O.ProxGD(),
    "ObjectivePerturbation": O.ObjectivePerturbation(ridge=0.1),
    "PhasedSGD": O.PhasedSGD(step_size=0.1),
}


def smooth_problem():
    loss = losses.record_gradient(logistic_gradient, smoothness=1.0, name="smooth")
    return problem(loss)


@one_in(2)
@pytest.mark.parametrize("name", PRIVATE)
def test_noise_in_every_clipped_step_is_private_for_any_loss(name):
    fit = dps.minimize(smooth_problem(), PRIVATE[name], BUDGET)
    assert fit.certificate.releasable
    assert fit.certificate.facts.loss.name == "record_gradient"


@one_in(3)
@pytest.mark.parametrize("name", NOT_PRIVATE)
def test_what_needs_a_margin_is_refused(name):
    with pytest.raises(ValueError, match="margin"):
        dps.minimize(smooth_problem(), NOT_PRIVATE[name], BUDGET)


NOISE = {"estimator": ClippedMean(threshold=1.0), "noise": GaussianNoise(0.1)}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (NOISE | {"output_stddev": 0.1}, "perturbs its output"),
        (NOISE | {"estimator": Mean(lipschitz=1.0)}, "Lipschitz"),
        (NOISE | {"estimator": ClippedMean(threshold=np.inf)}, "Lipschitz"),
        (NOISE | {"estimator": ClippedMean(threshold=1.0, smoothing=1.0)}, "Moreau"),
        (NOISE | {"estimator": TruncatedMean(threshold=1.0, row_norm=1.5)}, "norm"),
        ({"estimator": ClippedMean(threshold=1.0)}, "no noise"),
        (
            {"estimator": CatoniMean(scale=1.0), "step": FrankWolfeStep(0.5, radius=1)},
            "no noise",
        ),
    ],
)
def test_each_reason_against_a_loop_is_named(fields, words):
    with pytest.raises(ValueError, match=words):
        check_any_loss(recipe(**fields), "a method", is_private=True)


def test_loops_that_are_private_for_any_loss_pass():
    vertex = FrankWolfeStep(0.5, radius=1.0, epsilon=3.0)
    for fields in (NOISE, {"estimator": CatoniMean(scale=1.0), "step": vertex}):
        check_any_loss(recipe(**fields), "a method", is_private=True)
    # Without a budget nothing is promised, but solvers need convexity.
    check_any_loss(recipe(), "a method", is_private=False)
    phase = Minimization(ridge=1.0, smoothness=1.0, gap=1e-6)
    solved = Recipe(phases=(phase,), event=None, inputs={})
    with pytest.raises(ValueError, match="minimizes a convex objective"):
        check_any_loss(solved, "a method", is_private=False)


def test_parameters_may_outnumber_the_entries_of_a_row():
    def product_gradient(row, response, theta, out):
        error = theta[0] * theta[1] * row[0] - response
        out[0] = error * theta[1] * row[0]
        out[1] = error * theta[0] * row[0]

    loss = losses.record_gradient(product_gradient, dim=2)
    box, y = dps.domains.Box(0.1, 1.0), np.full(20, 0.36)
    p = dps.Problem(np.ones((20, 1)), y, loss=loss, domain=box, row_bound=1.0)
    method = O.ClippedGD(num_steps=300, clip=5.0, step_size=0.5)
    theta = dps.minimize(p, method).theta
    assert theta[0] * theta[1] == pytest.approx(0.36)
    assert p.feature_names == ("0", "1")


def test_the_risk_is_the_mean_of_the_values():
    theta = np.array([0.1, -0.3, 0.2])
    assert problem(logistic()).risk(theta) == pytest.approx(problem().risk(theta))
    with pytest.raises(ValueError, match="Pass value=... to"):
        distances([[1.0, 2.0]]).risk([0.0, 0.0])


def test_other_verbs_refuse():
    p = smooth_problem()
    for call in (
        lambda: dps.release(p, BUDGET),
        lambda: dps.sample(dps.Gibbs(p, k=1.0, mu=1.0), progress=False),
        lambda: p.lipschitz(2.0),
    ):
        with pytest.raises(ValueError, match="function of the margin"):
            call()


def unfinished(row, response, theta, out):
    out[0] = theta[0]


def endless(row, response, theta, out):
    out[:] = np.inf


@pytest.mark.parametrize("function", [unfinished, endless])
def test_a_gradient_that_is_not_finite_is_an_error(function):
    p = distances([[1.0, 0.0]] * 4, loss=losses.record_gradient(function))
    with pytest.raises(descent.DescentError, match="NaN or infinite"):
        descend(
            p, recipe(estimator=ClippedMean(threshold=1.0)), np.random.default_rng(0)
        )


def test_records_that_the_gradient_cannot_read_are_refused():
    with pytest.raises(ValueError, match="features must be dense"):
        dps.Problem(
            sparse.csr_array(np.eye(3)),
            np.zeros(3),
            loss=distance(),
            domain=BALL,
            row_bound=1.0,
        )
    with pytest.raises(ValueError, match="intercept must be False"):
        distances([[1.0, 0.0]], intercept=True)
    with pytest.raises(ValueError, match="offset must be None"):
        distances([[1.0, 0.0]], offset=[1.0], offset_bound=1.0)


def said(x):
    print(x)
    return x


@pytest.mark.parametrize("helper", [said, numba.njit(said)])
def test_what_prints_would_wait_forever_and_is_refused(helper):
    def gradient(row, response, theta, out):
        out[0] = helper(theta[0] - row[0])

    def inner(row, response, theta, out):
        def show(x):
            print(x)

        show(theta)

    def by_name(row, response, theta, out):
        module.said(theta[0])

    module = types.ModuleType("helpers")
    module.said = helper
    for function in (gradient, inner, by_name):
        with pytest.raises(ValueError, match="gradient must be free of print"):
            losses.record_gradient(function)


def test_a_function_in_a_tuple_is_looked_at():
    def helper(x):
        print(x)

    @functools.wraps(test_a_function_in_a_tuple_is_looked_at)
    def wrapper(u, y):
        print(u)

    with pytest.raises(ValueError, match="value must be free of print"):
        reject_print("value", wrapper)
    both = ((abs, helper),)
    with pytest.raises(ValueError, match="value must be free of print"):
        reject_print("value", lambda u, y: both[0][1](u) ** 2)


def test_what_only_has_the_name_of_something_that_prints_is_taken():
    def mean(row, response, theta, out):
        out[:] = theta - row.said()

    assert reject_print("gradient", mean) is None
    mean.__module__ = None  # as of what `exec` defines
    assert reject_print("gradient", mean) is None
    late = None
    assert reject_print("gradient", lambda u, y: late(u) + np.abs(y)) is None


def test_a_function_that_does_not_compile_is_refused():
    with pytest.raises(ValueError, match="gradient must be a function that Numba"):
        losses.record_gradient(lambda row, response: None)
    with pytest.raises(ValueError, match="value must be a Python or Numba function"):
        losses.record_gradient(distance_gradient, value=3)


def test_declared_facts_travel_and_functions_do_not():
    facts = distances([[1.0, 0.0]]).facts
    read = PublicFacts.from_dict(json.loads(json.dumps(facts.to_dict())))
    assert read == facts
    with pytest.raises(ValueError, match="a record gradient with its function"):
        _ = read.loss.gradient_pointer
