"""Noise of objective perturbation, smoothness of losses, and refused inputs."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample.privacy import Budget, EventCertificate, gaussian_delta
from dpsample.privacy.calibration.objective_calibration import (
    approximate_noise,
    objective_event,
    objective_stddev,
)
from dpsample.privacy.curves.objective_perturbation import (
    PerturbedObjective,
)
from dpsample.problem.facts import PublicFacts, smoothness

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def objective(ratio=0.125, relation="replace_one"):
    """L = 1 and beta / (2 n lambda) = ratio, with 2 n lambda = 1."""
    return PerturbedObjective(
        lipschitz=1.0,
        smoothness=ratio,
        num_records=10,
        ridge=0.05,
        relation=relation,
    )


RELATIONS = ("replace_one", "zero_out")


@pytest.mark.parametrize(("ratio", "stddev"), [(0.125, 9.81), (0.5, 14.19)])
def test_certified_noise_at_the_reference_budget(ratio, stddev):
    assert objective_stddev(objective(ratio), BUDGET) == pytest.approx(stddev, abs=5e-3)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.9, 1e-6), (3.0, 1e-3), (4.0, 0.3)])
def test_noise_and_epsilon_are_inverses_rounded_to_safety(
    relation, ratio, epsilon, delta
):
    known = objective(ratio, relation)
    budget = Budget(epsilon=epsilon, delta=delta, relation=relation)
    stddev = objective_stddev(known, budget)
    assert known.delta(epsilon, stddev=stddev) <= delta
    back = known.epsilon(delta, stddev=stddev)
    assert back == pytest.approx(epsilon, rel=1e-10)
    assert known.delta(back, stddev=stddev) <= delta
    # A little less noise breaks the bound or the condition on z.
    less = known.epsilon(delta, stddev=stddev * (1 - 1e-6))
    assert less > epsilon


def facts(loss, domain=None, **options):
    return PublicFacts(
        num_records=100,
        dim=3,
        loss=loss,
        domain=dps.domains.WholeSpace() if domain is None else domain,
        **({"row_bound": 2.0, "row_norm": 2.0} | options),
    )


BALL = dps.domains.Ball(1.5)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (facts(losses.Logistic()), 0.25 * 4),
        (facts(losses.SmoothedHinge(0.25)), 4.0 * 4),
        (facts(losses.CalibratedLogistic()), 0.5 * 4),
        (facts(losses.CappedLogistic(0.2)), 0.2 * 0.8 * 4),
        (facts(losses.CappedLogistic(0.7)), 0.25 * 4),
        (facts(losses.Huber(0.5)), 1.0 * 4),
        (facts(losses.Linear()), 0.0),
        (facts(losses.Squared(), BALL, response_bound=2.0), 1.0 * 4),
        (facts(losses.PowerFour(), BALL, response_bound=2.0), 12 * (3 + 2) ** 2 * 4),
        (facts(losses.Logistic(), row_norm=math.inf), 0.25 * 4 * 3),
        (facts(losses.Logistic(), intercept=True), 0.25 * 5),
    ],
    ids=lambda v: getattr(getattr(v, "loss", None), "name", None),
)
def test_smoothness_of_every_smooth_loss(known, expected):
    assert smoothness(known) == pytest.approx(expected)
    made = PerturbedObjective.of(known, ridge=0.1, relation="zero_out")
    assert made.smoothness == smoothness(known)
    assert made.lipschitz == known.lipschitz(2.0)
    assert (made.num_records, made.ridge) == (100, 0.1)


@pytest.mark.parametrize("loss", [losses.Huber(0.5), losses.PowerFour()])
def test_smoothness_bounds_finite_differences_of_slopes(loss):
    known = facts(loss, BALL, response_bound=2.0)
    margins = np.linspace(-3, 3, 2001)
    for response in np.linspace(-2, 2, 41):
        rise = np.diff(loss.slope(margins, response)) / np.diff(margins)
        assert rise.max() * 4 <= smoothness(known) * (1 + 1e-9)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Absolute(), losses.Quantile()])
def test_losses_with_a_kink_are_refused(loss):
    with pytest.raises(ValueError, match="loss must be of bounded curvature"):
        PerturbedObjective.of(facts(loss), ridge=0.1)


def test_matrices_count_the_frobenius_norm_of_a_row():
    domain = dps.domains.SchattenBall(1.0, p=1.0, shape=(3, 2))
    known = PublicFacts(
        num_records=9,
        dim=6,
        loss=losses.Logistic(),
        domain=domain,
        row_bound=1.0,
        row_norm=math.inf,
    )
    assert smoothness(known) == pytest.approx(0.25 * 2)


def test_the_approximate_version_holds_for_the_worst_solver_of_linear_losses():
    known, gap = objective(0.0), 1e-4
    noise = approximate_noise(known, BUDGET, gap=gap)
    assert noise.stddev == pytest.approx(
        objective_stddev(known, Budget(epsilon=0.9, delta=0.9e-6))
    )
    error = math.sqrt(gap / known.ridge)
    # 2 n lambda = 1: the minimizers are 2 L apart, the solver adds its error to both.
    for part, refuted in ((1.0, False), (0.5, True)):
        spread = math.hypot(part * noise.stddev, part * noise.output_stddev)
        delta = gaussian_delta(1.0, (2.0 + 2.0 * error) / spread)
        assert (delta > 1e-6) == refuted
    apart = 2.0 * error / noise.output_stddev
    assert gaussian_delta(0.1, apart) == pytest.approx(1e-7, rel=1e-6)


def test_a_ridge_that_is_too_small_names_the_least_one():
    with pytest.raises(ValueError, match=r"ridge must be > 0\.0581977, .* got 0\.05"):
        objective_stddev(objective(2.0), BUDGET)


def test_the_calibrated_noise_makes_a_certificate():
    known = objective(0.25)
    stddev = objective_stddev(known, BUDGET)
    made = EventCertificate.of(
        mechanism="objective perturbation",
        budget=BUDGET,
        event=objective_event(known, stddev=stddev, delta=1e-6),
        inputs={"stddev": stddev, "ridge": known.ridge},
    )
    assert not made.releasable  # the event is declared
    assert made.epsilon_proved == pytest.approx(1.0, rel=1e-12)


def test_relations_are_never_mixed():
    with pytest.raises(ValueError, match="budget.relation must be 'zero_out'"):
        objective_stddev(objective(relation="zero_out"), BUDGET)


GOOD = {"lipschitz": 1.0, "smoothness": 1.0, "num_records": 10, "ridge": 0.1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in ("lipschitz", "ridge")
        for value in (0.0, -1.0, math.nan, math.inf, "1")
    ]
    + [("smoothness", value) for value in (-1.0, math.nan, math.inf)]
    + [("num_records", value) for value in (0, 1.5, math.nan)]
    + [("relation", "add_remove")],
)
def test_bad_constants_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        PerturbedObjective(**(GOOD | {name: value}))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_arguments_are_refused(bad):
    known = PerturbedObjective(**GOOD)
    with pytest.raises(ValueError, match="epsilon must be"):
        known.delta(bad, stddev=1.0)
    with pytest.raises(ValueError, match="stddev must be"):
        known.delta(1.0, stddev=bad)
    with pytest.raises(ValueError, match="delta must be"):
        known.epsilon(bad, stddev=1.0)
    with pytest.raises(ValueError, match="order must be"):
        known.rdp(bad, stddev=1.0)
    with pytest.raises(ValueError, match="gap must be"):
        approximate_noise(known, BUDGET, gap=bad)
    with pytest.raises(ValueError, match="share must be"):
        approximate_noise(known, BUDGET, gap=1.0, share=bad)


def test_wrong_kinds_are_refused():
    known = PerturbedObjective(**GOOD)
    with pytest.raises(ValueError, match="budget must be a Budget"):
        objective_stddev(known, 1.0)
    with pytest.raises(ValueError, match="objective must be a PerturbedObjective"):
        objective_stddev(1.0, BUDGET)
    with pytest.raises(ValueError, match="facts must be a PublicFacts"):
        PerturbedObjective.of(None, ridge=1.0)
    with pytest.raises(ValueError, match="facts must be a PublicFacts"):
        smoothness(None)
