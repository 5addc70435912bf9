"""Declarations of a user's loss: tight ones pass, and responses are declared."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from tests.support.declared_losses import (
    declaring,
    facts,
    problem,
    pseudo_huber,
    quadratic,
)
from tests.support.tiers import one_in

CUBE_ROOT = 1 / (6 * math.sqrt(3))


TRUE = {
    "fourth power": lambda: (
        declaring("quartic", upper_curvature=3.0, third_derivative_bound=6.0), {},
    ),
    "cosine": lambda: (
        declaring(
            "cosine", slope_bound=math.sin(1.0), upper_curvature=1.0,
            lower_curvature=math.cos(1.0),
        ),
        {},
    ),
    "barrier": lambda: (
        losses.custom(
            lambda u, y: -np.log(1.5 - u), lambda u, y: 1.0 / (1.5 - u),
            slope_bound=2.0, upper_curvature=4.0, lower_curvature=0.16,
            third_derivative_bound=16.0,
        ),
        {},
    ),
    "pseudo-Huber": lambda: (
        pseudo_huber(upper_curvature=1.0, lower_curvature=5.0**-1.5), {"bound": 1.0},
    ),
    "pseudo-Huber with an unbounded response": lambda: (
        pseudo_huber(upper_curvature=1.0), {"bound": math.inf, "radius": 100.0},
    ),
    "steep": lambda: (
        losses.custom(
            lambda u, y: np.logaddexp(0.0, 1e6 * (u - y)) / 1e6,
            lambda u, y: 1.0 / (1.0 + np.exp(-1e6 * (u - y))),
            slope_bound=1.0, upper_curvature=0.25e6,
        ),
        {"bound": 1.0, "radius": 3.0},
    ),
    "logistic": lambda: (
        losses.custom(
            lambda u, y: np.logaddexp(0.0, -y * u),
            lambda u, y: -y / (1.0 + np.exp(y * u)),
            slope_bound=1.0, upper_curvature=0.25, third_derivative_bound=CUBE_ROOT,
            labels=True,
        ),
        {"radius": 300.0},
    ),
    "hinge": lambda: (
        declaring("hinge", labels=True), {"radius": 3.0},
    ),
    "linear": lambda: (
        losses.custom(
            lambda u, y: -u * y, lambda u, y: -y, slope_bound=2.0,
            upper_curvature=0.0, third_derivative_bound=0.0,
        ),
        {"bound": 2.0},
    ),
    "constant": lambda: (
        losses.custom(
            lambda u, y: 0.0 * u, lambda u, y: 0.0, slope_bound=1.0, upper_curvature=0.0
        ),
        {},
    ),
}  # fmt: skip


@one_in(6)
@pytest.mark.parametrize("name", TRUE)
def test_bounds_that_are_reached_exactly_pass(name):  # P3 P4
    loss, options = TRUE[name]()
    problem(loss, **options)


@one_in(3)
@pytest.mark.parametrize(
    ("radius", "bound"), [(1.0, 1.0), (1e-3, 1e3), (1e3, 1e-3), (1e8, 1e8), (1e-8, 1.0)]
)
def test_bounds_that_are_reached_exactly_pass_at_any_scale(radius, bound):  # P3 P4
    reach = radius + bound
    options = {"radius": radius, "bound": bound, "response": bound}
    exact = {"upper_curvature": 1.0, "lower_curvature": 1.0}
    exact |= {"slope_bound": reach, "third_derivative_bound": 0.0}
    problem(declaring("squared", **exact), **options)
    exact = {"slope_bound": 4.0 * reach**3, "upper_curvature": 12.0 * reach**2}
    exact |= {"third_derivative_bound": 24.0 * reach}
    problem(declaring("fourth power", **exact), **options)
    problem(declaring("absolute"), **options)


def test_the_intercept_and_offsets_count_as_margins():  # P3
    loss = quadratic(slope_bound=2.0)  # sqrt 2 with the intercept, 1 with the offset
    facts(loss, intercept=True)
    with pytest.raises(ValueError, match="slope_bound must be at least 2.41421"):
        facts(loss, intercept=True, offset_bound=1.0)
    rows, y = np.array([[0.6, 0.8]]), np.ones(1)
    given = {"domain": dps.domains.Ball(1.0), "row_bound": 1.0, "loss": loss}
    dps.Problem(rows, y, **given, intercept=True)
    dps.Problem(rows, y, **given, offset=[0.5], offset_bound=0.5)


def test_a_loss_that_reads_the_response_needs_its_bound():  # P4
    loss = pseudo_huber()
    with pytest.raises(ValueError, match=r"^response_bound must be declared for the "):
        problem(loss)
    problem(loss, bound=1.0)
    with pytest.raises(
        ValueError, match="response must be within response_bound = 0.5"
    ):
        problem(loss, bound=0.5)


def test_labels_need_no_bound_and_are_checked():
    loss = declaring("hinge", labels=True)
    assert loss.is_classification and problem(loss).lipschitz(2.0) == 1.0
    with pytest.raises(ValueError, match="response must be -1 or 1, got 3 at record 0"):
        problem(loss, response=3.0)


def test_a_loss_that_does_not_mention_the_response_never_sees_it():  # P4
    loss = quadratic()
    assert not loss.reads_response
    np.testing.assert_array_equal(loss.value(1.0, [-1e300, 0.0, 1e300]), 0.5)
    problem(loss, response=1e300)


def test_whatever_can_read_the_response_is_taken_to_read_it():  # P4
    from dpsample.losses.custom import _reads_response

    readers = [
        lambda u, y: u if u > 3.0 else y,
        lambda u, y: u if u > 3.0 else u * y,
        lambda u, y: (lambda: y)(),  # noqa: PLC3002 - a closure that reads it
        lambda *both: both[1],
        lambda u, y=2.0: y,
    ]
    assert all(_reads_response(reader) for reader in readers)
    assert not _reads_response(lambda u, y: u)
    assert losses.custom(lambda u, y: u, lambda u, y: y, slope_bound=1).reads_response


def test_no_slope_bound_serves_only_methods_that_clip():
    loss = quadratic(slope_bound=math.inf)
    with pytest.raises(ValueError, match="^slope_bound must be finite for this method"):
        problem(loss).lipschitz(2.0)
    method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=3, clip=0.5)
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    assert dps.minimize(problem(loss), method, budget).certificate.releasable
