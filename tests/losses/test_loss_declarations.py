"""Declarations of a user's loss: false ones are refused."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample.api import minimize
from tests.support.declared_losses import (
    declaring,
    facts,
    problem,
    pseudo_huber,
    quadratic,
)
from tests.support.tiers import one_in
from tests.support.unchecked_losses import unchecked


def with_peak(curvature, width, place, *, base=0.25, **declared):
    """Curvature ``base``, and ``curvature`` more on an interval."""

    def value(u, y):
        inside = min(max(u - place, 0.0), width)
        after = max(u - place - width, 0.0)
        peak = curvature * (0.5 * inside**2 + width * after)
        return 0.5 * base * u * u + peak

    def slope(u, y):
        return base * u + curvature * min(max(u - place, 0.0), width)

    return losses.custom(value, slope, slope_bound=1e3, **declared)


# name: (loss, options of the problem, what the error starts with)
FALSE = {
    "upper curvature of a pseudo-Huber loss": (
        lambda: pseudo_huber(upper_curvature=0.01),
        {"bound": 1.0},
        "upper_curvature must be at least 1, the growth of the slope at the margin ",
    ),
    "upper curvature, too small by one in ten thousand": (
        lambda: pseudo_huber(upper_curvature=0.9999),
        {"bound": 1.0},
        "upper_curvature must be at least 1",
    ),
    "upper curvature where the bounds are huge": (
        lambda: pseudo_huber(upper_curvature=0.01),
        {"bound": 1e6, "radius": 1e6},
        "upper_curvature must be at least 1",
    ),
    "lower curvature": (
        lambda: pseudo_huber(lower_curvature=0.1),
        {"bound": 1.0},
        "lower_curvature must be at most 0.0",
    ),
    "slope that grows with the response": (
        lambda: losses.custom(
            lambda u, y: 0.5 * y * y * np.sqrt(1.0 + u * u),
            lambda u, y: 0.5 * y * y * u / np.sqrt(1.0 + u * u),
            slope_bound=0.5,
        ),
        {"bound": 5.0, "radius": 3.0, "response": 5.0},
        ("slope_bound must be at least 11.8585, the slope at the margin -3 and the "
        "response -5, got 0.5. It must hold for every margin up to 3 and every "
        "response up to 5."),
    ),
    "slope that grows with the margin": (
        lambda: quadratic(slope_bound=29.0),
        {"radius": 30.0},
        "slope_bound must be at least 30",
    ),
    "slope on an unbounded domain": (
        lambda: quadratic(slope_bound=40.0),
        {"domain": dps.domains.WholeSpace()},
        "slope_bound must be at least 500",
    ),
    "slope at few responses": (
        lambda: losses.custom(
            lambda u, y: (9.0 if 2.501 < y < 2.502 else 1.0) * np.sqrt(1.0 + u * u),
            lambda u, y: (9.0 if 2.501 < y < 2.502 else 1.0) * u / np.sqrt(1 + u * u),
            slope_bound=1.0,
        ),
        {"bound": 3.0},
        ("slope_bound must be at least 6.36396, the slope at the margin -1 and the "
        "response 2.50195"),
    ),
    "smooth hinge that has a kink": (
        lambda: declaring("hinge", upper_curvature=1e6, labels=True),
        {"radius": 3.0},
        "upper_curvature must be at least ",
    ),
    "flat part of a strongly convex loss": (
        lambda: with_peak(-1.0, 1e-4, 0.1234, base=1.0, lower_curvature=0.5),
        {},
        "lower_curvature must be at most ",
    ),
    "third derivative": (
        lambda: declaring(
            "quartic", upper_curvature=3.0, third_derivative_bound=5.9
        ),
        {},
        "third_derivative_bound must be at least 5.9",
    ),
    "concave": (
        lambda: losses.custom(lambda u, y: -u * u, lambda u, y: -2 * u, slope_bound=2),
        {},
        "value must be convex in u",
    ),
    "convex in a smaller domain only": (
        lambda: declaring("cosine"),
        {"radius": 2.0},
        "value must be convex in u",
    ),
    "narrow dip": (
        lambda: losses.custom(
            lambda u, y: 0.5 * u * u - 1e-3 * np.exp(-(((u - 0.3) / 0.01) ** 2)),
            lambda u, y: u + 20.0 * (u - 0.3) * np.exp(-(((u - 0.3) / 0.01) ** 2)),
            slope_bound=2.0,
        ),
        {},
        "value must be convex in u",
    ),
    "wrong slope": (
        lambda: losses.custom(
            lambda u, y: 0.5 * u * u, lambda u, y: 1.001 * u, slope_bound=2.0
        ),
        {},
        "value must be convex in u with derivative slope",
    ),
    "concave by less in each interval than rounding hides": (
        lambda: losses.custom(
            lambda u, y: u - 5e-7 * u * u, lambda u, y: 1.0 - 1e-6 * u, slope_bound=2.0
        ),
        {},
        "value must be convex in u",
    ),
    "curvature that is too large by as little": (
        lambda: losses.custom(
            lambda u, y: u + 5e-7 * u * u,
            lambda u, y: 1.0 + 1e-6 * u,
            slope_bound=2.0,
            upper_curvature=5e-7,
        ),
        {},
        "upper_curvature must be at least 1e-06",
    ),
    "slope of another loss, where responses are far beyond the margins": (
        lambda: losses.custom(
            lambda u, y: 0.5 * (u - y) ** 2, lambda u, y: 0.5 * (u - y), slope_bound=1e8
        ),
        {"bound": 1e7, "radius": 1e-3},
        "value must be convex in u with derivative slope",
    ),
    "value that is NaN": (
        lambda: losses.custom(
            lambda u, y: 0.5 * u * u if u < 2.9 else np.nan,
            lambda u, y: u,
            slope_bound=3.0,
        ),
        {"radius": 3.0},
        "value and slope must be finite at every margin, got nan and",
    ),
    "value that overflows": (
        lambda: losses.custom(
            lambda u, y: np.log(1.0 + np.exp(-y * u)),
            lambda u, y: -y / (1.0 + np.exp(y * u)),
            slope_bound=1.0,
            labels=True,
        ),
        {"radius": 800.0},
        "value and slope must be finite at every margin, got inf and",
    ),
}  # fmt: skip


@one_in(2)
@pytest.mark.parametrize("name", FALSE)
def test_a_false_declaration_is_refused_from_public_facts(name):  # P3 P4
    make, options, words = FALSE[name]
    options = {k: v for k, v in options.items() if k != "response"}
    with pytest.raises(ValueError) as caught:
        facts(make(), **options)
    assert str(caught.value).startswith(words)
    assert ", got " in str(caught.value) and "It must hold for every" in str(
        caught.value
    )


@pytest.mark.parametrize(
    "name",
    [
        "upper curvature of a pseudo-Huber loss",
        "lower curvature",
        "slope that grows with the response",
    ],
)
def test_no_release_is_made_under_a_false_declaration(name):  # P3 P4
    make, options, _ = FALSE[name]
    with pytest.raises(ValueError, match="must be at (least|most)"):
        dps.release(problem(make(), **options), dps.Budget(epsilon=20.0, delta=1e-6))


@pytest.mark.parametrize("peak", [(100.0, 1e-3, 0.1234), (10.0, 1e-6, -0.7)])
def test_a_narrow_peak_of_curvature_is_seen(peak):  # P3
    loss = with_peak(*peak, upper_curvature=1.0)
    with pytest.raises(ValueError, match="^upper_curvature must be at least"):
        facts(loss)


def test_a_declaration_that_fails_at_one_response_is_refused_at_its_record():  # P4
    made = losses.custom(
        lambda u, y: (9.0 if 2.5011 < y < 2.5012 else 1.0) * 0.5 * u * u,
        lambda u, y: (9.0 if 2.5011 < y < 2.5012 else 1.0) * u,
        slope_bound=1.0,
    )
    curved = replace(made, declared_slope=9.0, upper_curvature=1.0)
    for name, loss in (("slope_bound", made), ("upper_curvature", curved)):
        facts(loss, bound=3.0)  # no public point is there
        words = rf"^{name} must be at least .* and the response 2.50115 of record"
        with pytest.raises(ValueError, match=words):
            problem(loss, bound=3.0, response=2.50115)


def test_slopes_at_records_are_compared_where_responses_have_no_bound():  # P4
    scaled = losses.custom(lambda u, y: y * u, lambda u, y: y, slope_bound=600.0)
    facts(scaled, bound=np.inf)  # the responses that are tried end at 500
    words = r"^slope_bound must be at least 1e\+06, .* of record 0, got 600\.$"
    with pytest.raises(ValueError, match=words):
        problem(scaled, bound=np.inf, response=1e6)
    # Values that overflow, and curvatures that rounding hides, contradict nothing.
    for response in (1e15, 1e200):
        problem(pseudo_huber(upper_curvature=1.0), bound=np.inf, response=response)


@pytest.mark.parametrize(
    ("optimizer", "is_trusted"),
    [
        (dps.optimizers.SVRG(), True),
        (dps.optimizers.LocalizedClippedGD(), True),
        (dps.optimizers.ClippedGD(noise="output", num_steps=3, clip=1.0), True),
        (dps.optimizers.ClippedGD(noise="steps", num_steps=3, clip=1.0), False),
        (dps.optimizers.DPSGD(clip=1.0, num_steps=3, sampling_rate=0.5), False),
    ],
    ids=repr,
)
def test_certificates_say_where_privacy_rests_on_declarations(optimizer, is_trusted):
    known = problem(pseudo_huber(upper_curvature=1.0), bound=1.0)
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    plan = minimize.plan_minimization(known, optimizer, budget, "exact", seeded=False)
    assert ("LOSS.DECLARED" in plan.certificate.assumptions) == is_trusted


def test_a_loss_is_compared_once_for_each_range(monkeypatch):
    module = importlib.import_module("dpsample.losses.custom")
    loss, calls = quadratic(), []
    real = module.compare
    monkeypatch.setattr(module, "compare", lambda *a: calls.append(a[1]) or real(*a))
    for radius in (1.0, 1.0, 2.0, 1.0):
        problem(loss, radius=radius)
    assert calls == [1.0, 2.0]


def test_declared_facts_of_a_file_have_no_functions_to_compare():
    known = facts(pseudo_huber(), bound=1.0)
    read = dps.PublicFacts.from_dict(json.loads(json.dumps(known.to_dict())))
    assert read == known and read.loss.functions is None


def test_without_the_comparison_nothing_else_notices():
    """Negative control."""
    loss = unchecked(
        lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
        lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
        slope_bound=1.0,
        upper_curvature=0.01,
    )
    problem(loss, bound=1.0)
