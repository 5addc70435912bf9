"""Slopes of Moreau envelopes: optimality, closed forms, bounds."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.optimizers.loop.estimate import smooth_slopes
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.loop import Arguments
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.pieces import new_memory
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.problem.problem import Problem

LOSSES = dps.losses
SMOOTH = (
    LOSSES.Logistic(),
    LOSSES.SmoothedHinge(0.5),
    LOSSES.Huber(0.3),
    LOSSES.Squared(),
    LOSSES.PowerFour(),
    LOSSES.Linear(),
)
KINKED = (LOSSES.Hinge(), LOSSES.Absolute(), LOSSES.Quantile(0.3))
STRENGTHS = (1e-3, 0.3, 7.0, 1e4, 1e8)


def records(loss, num_records, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_records, 1))
    response = rng.uniform(-1.0, 1.0, num_records)
    if loss.is_classification:
        response = np.where(response < 0.0, -1.0, 1.0)
    bound = None if loss.is_classification else 1.0
    return Problem(
        rows,
        response,
        loss=loss,
        domain=dps.domains.Ball(3.0),
        row_bound=10.0,
        response_bound=bound,
    )


def records_of(arguments, loop):
    """Numbers of the records as the kernel reads them."""
    phase = arguments.phase(loop, np.random.default_rng(0))
    return phase.estimator.functions.records


def envelope(problem, margins, strength):
    """Slopes of the compiled kernel at any margins."""
    step = GradientStep(1.0)
    loop = Loop(num_steps=1, step=step, estimator=Mean(smoothing=strength))
    arguments = Arguments(problem, Recipe(phases=(loop,), event=None, inputs={}))
    limits = records_of(arguments, loop)
    memory, count = new_memory(problem.dim), len(margins)
    memory.rows[:count] = np.arange(count)
    memory.response[:count] = problem.data.response
    memory.margins[:count] = margins
    assert smooth_slopes(arguments.data, arguments.loss, limits, count, memory)
    return memory.slopes[:count].copy()


def case(loss, strength, num_records=400):
    problem = records(loss, num_records)
    margins = 2.0 * np.random.default_rng(1).standard_normal(num_records)
    c = problem.data.dense[:, 0] ** 2 / strength
    return problem, margins, c, envelope(problem, margins, strength)


@pytest.mark.slow
@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_slope_is_that_of_the_loss_at_its_own_proximal_point(loss, strength):
    problem, margins, c, slopes = case(loss, strength)
    there = margins - c * slopes
    expected = loss.slope(there, problem.data.response)
    # Rounding the proximal point moves its slope by as much times the curvature.
    shift = 4e-15 * (np.abs(margins) + np.abs(there))
    near = [loss.slope(there + h, problem.data.response) for h in (shift, -shift)]
    slack = np.abs(near[0] - near[1]) + 1e-14 * np.abs(slopes)
    assert (np.abs(slopes - expected) <= slack).all()


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("loss", KINKED, ids=lambda loss: loss.name)
def test_kinked_losses_agree_with_their_closed_forms(loss, strength):
    problem, margins, c, slopes = case(loss, strength)
    nearest = loss.prox(margins, problem.data.response, c)
    # The bracket reaches from the margin to c (all slopes are at most 1) beyond it.
    assert (
        np.abs(margins - c * slopes - nearest) <= 4e-15 * (1.0 + np.abs(margins) + c)
    ).all()


@pytest.mark.parametrize("loss", SMOOTH + KINKED, ids=lambda loss: loss.name)
def test_slopes_lie_between_zero_and_the_slope_of_the_loss(loss):
    for strength in STRENGTHS:
        problem, margins, _, slopes = case(loss, strength)
        own = loss.slope(margins, problem.data.response)
        assert (np.abs(slopes) <= np.abs(own)).all()
        assert (slopes * own >= 0.0).all()


def envelope_value(loss, problem, margins, c, slopes):
    moved = c * slopes
    with np.errstate(invalid="ignore"):
        quadratic = np.where(c > 0.0, 0.5 * moved**2 / c, 0.0)
    return loss.value(margins - moved, problem.data.response) + quadratic


@pytest.mark.parametrize(
    "loss", [LOSSES.Hinge(), LOSSES.Quantile(0.3), LOSSES.Logistic()]
)
def test_envelope_lies_below_the_loss_by_at_most_half_its_square_slope(loss):
    for strength in (0.3, 7.0):
        problem, margins, c, slopes = case(loss, strength)
        below = loss.value(margins, problem.data.response) - envelope_value(
            loss, problem, margins, c, slopes
        )
        assert (below >= -1e-14).all()
        assert (below <= 0.5 * c + 1e-14).all()  # all three slopes are at most 1


@pytest.mark.parametrize("loss", SMOOTH[:3] + KINKED, ids=lambda loss: loss.name)
def test_slopes_are_differences_of_the_envelope(loss):
    strength, step = 2.0, 1e-6
    problem, margins, c, slopes = case(loss, strength)
    values = []
    for moved in (margins + step, margins - step):
        there = envelope(problem, moved, strength)
        values.append(envelope_value(loss, problem, moved, c, there))
    difference = (values[0] - values[1]) / (2.0 * step)
    # The envelope is (1/c)-smooth, so a secant errs by step/c.
    assert (np.abs(difference - slopes) <= 2.0 * step / c + 1e-8).all()


def test_envelope_slopes_are_lipschitz_in_the_margin():
    for loss in KINKED:
        problem, margins, c, slopes = case(loss, 0.5)
        there = envelope(problem, margins + 0.01, 0.5)
        assert (np.abs(there - slopes) <= 0.01 / c * (1.0 + 1e-9) + 1e-12).all()


def test_a_row_of_zeros_and_a_flat_loss_are_left_alone():
    loss = LOSSES.Hinge()
    problem = Problem(
        [[0.0], [1.0]],
        [1.0, 1.0],
        loss=loss,
        domain=dps.domains.Ball(3.0),
        row_bound=1.0,
    )
    slopes = envelope(problem, np.array([0.0, 5.0]), 1.0)
    assert slopes.tolist() == [-1.0, 0.0]


def test_a_loss_that_fails_is_reported():
    problem = records(LOSSES.Logistic(), 3)
    step = GradientStep(1.0)
    loop = Loop(num_steps=1, step=step, estimator=Mean(smoothing=1.0))
    arguments = Arguments(problem, Recipe(phases=(loop,), event=None, inputs={}))
    limits = records_of(arguments, loop)
    memory = new_memory(1)
    memory.rows[:3], memory.margins[:3] = np.arange(3), (1.0, np.nan, 2.0)
    memory.response[:3] = problem.data.response
    assert not smooth_slopes(arguments.data, arguments.loss, limits, 3, memory)
