"""Private proximal descent: neutrality, ledger, printed noise, defaults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.minimize import minimize
from dpsample.optimizers import PrivateProximalSGD, ProximalSGD
from dpsample.optimizers.loop.batches import Full, Poisson
from dpsample.optimizers.loop.estimators import BucketedMedian, CatoniMean, ClippedMean
from dpsample.privacy import Budget, GaussianEvent, PoissonGaussianEvent, epsilon_of
from dpsample.privacy.budget import SHIFTS
from tests.support.proximal_cases import BUDGET, facts, regression, spec
from tests.support.tiers import one_in

ESTIMATORS = ("clip", "bucketed_median", "catoni")
ZERO_OUT = Budget(epsilon=1.0, delta=1e-5, relation="zero_out")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_noise_and_limits_it_is_proximal_descent(estimator: str) -> None:
    data = regression(50, dps.domains.Ball(2.0))
    shared = {"l1": 0.05, "batch_size": 50, "num_steps": 25}
    free = math.inf if estimator != "catoni" else 1e9
    options = {"num_buckets": 1} if estimator == "bucketed_median" else {}
    private = PrivateProximalSGD(
        estimator=estimator, threshold=free, **shared, **options
    )
    found = minimize(data, private, seed=0)
    plain = minimize(data, ProximalSGD(**shared), seed=0)
    assert found.theta == pytest.approx(plain.theta, abs=1e-12)
    assert found.certificate is None and found.num_gradients == 50 * 25


@one_in(4)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
@pytest.mark.parametrize("size", [100, 1000])
def test_noise_proves_the_budget(estimator: str, budget: Budget, size: int) -> None:
    """Epsilon recomputed from the noise of the loop, not from the event."""
    made = spec(estimator, batch_size=size, num_steps=20)
    recipe = made.recipe(facts(), budget)
    loop = recipe.phases[0]
    bound = loop.estimator.record_bound(5)
    multiplier = loop.noise.stddev * size / bound
    if size == 1000:
        assert isinstance(loop.batches, Full)
        shift = SHIFTS[budget.relation] * math.sqrt(20.0)
        event: Any = GaussianEvent(shift / multiplier)
    else:
        assert loop.batches == Poisson(rate=0.1)
        event = PoissonGaussianEvent(
            sampling_rate=0.1, noise_multiplier=multiplier, num_steps=20
        )
    spent = epsilon_of(event, delta=budget.delta, relation=budget.relation)
    assert 0.98 <= spent <= 1.0 + 1e-9
    proved = epsilon_of(recipe.event, delta=budget.delta, relation=budget.relation)
    assert spent == pytest.approx(proved, rel=1e-4)


@one_in(2)
@pytest.mark.parametrize(
    ("estimator", "relation", "epsilon", "size", "num_steps", "true"),
    [
        ("clip", "replace_one", 0.5, 1667, 180, 2.65),
        ("clip", "replace_one", 1.0, 1667, 180, 6.02),
        ("clip", "zero_out", 1.0, 1667, 180, 2.82),
        ("bucketed_median", "replace_one", 1.0, 1667, 180, 2.65),
        ("catoni", "replace_one", 3.0, 1667, 180, 9.92),
        ("catoni", "replace_one", 1.0, 10_000, 5, 2.66),
    ],
)
def test_printed_noise_is_certified_at_its_true_epsilon(
    estimator: str,
    relation: Any,
    epsilon: float,
    size: int,
    num_steps: int,
    true: float,
) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-4, relation=relation)
    made = spec(estimator, batch_size=size, num_steps=num_steps, num_buckets=21)
    recipe = made.recipe(facts(10_000), budget, "paper")
    found = epsilon_of(recipe.event, delta=1e-4, relation=relation)
    assert found == pytest.approx(true, rel=5e-3)


def test_printed_hyper_parameters() -> None:
    log, dim, size = math.log(1e5), 5, 1000
    given = {"batch_size": size, "num_steps": 3}
    clip = spec("clip", **given).recipe(facts(), BUDGET, "paper").phases[0]
    assert clip.noise.stddev == pytest.approx(1.5 * math.sqrt(log) / size)
    median = spec("bucketed_median", **given).recipe(facts(), BUDGET, "paper").phases[0]
    buckets = math.ceil(3.0 * math.log(100.0))
    width = math.sqrt(size / math.sqrt(dim * log))
    assert median.estimator == BucketedMedian(
        width=width, num_buckets=buckets, num_central=2 - buckets % 2
    )
    printed = width * buckets * math.sqrt(dim * log) / size
    assert median.noise.stddev == pytest.approx(printed)
    catoni = spec("catoni", **given).recipe(facts(), BUDGET, "paper").phases[0]
    scale = math.sqrt(size) / (math.log(10.0) * log**0.25)
    assert catoni.estimator.scale == pytest.approx(scale)
    printed = 4.0 * scale * math.sqrt(2.0 * dim * log) / (3.0 * size)
    assert catoni.noise.stddev == pytest.approx(printed)


def test_default_width_and_scale_minimize_their_bounds() -> None:
    moment = {"moment_bound": 3.0, "batch_size": 300}
    for order in (1.5, 2.0, 4.0):
        median = spec("bucketed_median", moment_order=order, **moment)._median(
            7, 300, 9.0, None
        )
        ratio = median.num_buckets / median.num_central

        def total(w: float, k: float = order, ratio: float = ratio) -> float:
            noise = 9.0 * 0.5 * w * ratio * math.sqrt(7.0) / 300.0
            return noise + 3.0 * (k - 1) ** (k - 1) / k**k * (4.0 / w) ** (k - 1)

        width = median.width
        assert total(width) <= min(total(0.99 * width), total(1.01 * width))
    catoni = spec("catoni", failure_probability=0.1, **moment)._catoni(
        7, 300, 9.0, None
    )
    scale, precision = catoni.scale, catoni.precision

    def deviation(s: float) -> float:
        log = math.log(10.0)
        noise = 2.0 * math.sqrt(2.0) / 3.0 * 9.0 * math.sqrt(2.0 * 7.0 * log)
        spread = 3.0 * (1.0 + 1.0 / precision) / (2.0 * s)
        return spread + s / 300.0 * (0.5 * precision + log + noise)

    assert deviation(scale) <= min(deviation(0.99 * scale), deviation(1.01 * scale))


def test_default_batches_are_those_of_the_theorems() -> None:
    shape = facts(100_000, 5)
    sizes = {name: spec(name).recipe(shape, BUDGET).inputs for name in ESTIMATORS}
    assert sizes["clip"]["batch_size"] == 16667 and sizes["clip"]["num_steps"] == 180
    assert sizes["catoni"]["batch_size"] == round(500_000 ** (2 / 3))
    median = (1e10 * 5.0**3.5) ** (1 / 3)
    assert sizes["bucketed_median"]["batch_size"] == round(median)
    assert sizes["bucketed_median"]["num_steps"] == math.ceil(5e10 / round(median) ** 2)
    few = spec("bucketed_median").recipe(facts(100, 50), BUDGET)
    assert few.inputs["num_steps"] == 100
    printed = spec("bucketed_median").recipe(facts(100, 50), BUDGET, "paper").inputs
    assert printed["num_steps"] == 5
    assert few.inputs["batch_size"] == 100 and isinstance(few.phases[0].batches, Full)


@one_in(2)
@pytest.mark.parametrize("estimator", ["bucketed_median", "catoni"])
def test_default_steps_halve_the_excess_of_the_five_printed_ones(estimator) -> None:
    rng, best = np.random.default_rng(1), np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    rows = rng.standard_normal((2000, 5))
    data = dps.Problem(
        rows,
        rows @ best + rng.standard_t(3.0, 2000),
        loss=dps.losses.Squared(),
        domain=dps.domains.Ball(3.0),
        row_bound=1e3,
        response_bound=math.inf,
    )
    distances = []
    for options in ({}, {"num_steps": 5}):
        made = spec(estimator, l1=0.0, moment_bound=12.0, batch_size=2000, **options)
        ends = [minimize(data, made, BUDGET, seed=seed).theta for seed in range(20)]
        distances.append(np.mean([np.sum((theta - best) ** 2) for theta in ends]))
    assert 2.0 * distances[0] < distances[1]


def test_only_public_bounds_of_gradients_enter_the_noise() -> None:
    for name in ESTIMATORS:
        made = spec(name, batch_size=1000, num_steps=5)
        small = made.recipe(facts(row_bound=1.0), BUDGET).inputs
        assert made.recipe(facts(row_bound=1e9), BUDGET).inputs == small


def test_clipping_at_the_lipschitz_constant_is_the_default() -> None:
    bounded = facts(response_bound=1.0)
    made = PrivateProximalSGD(batch_size=1000, num_steps=5)
    recipe = made.recipe(bounded, BUDGET)
    assert recipe.phases[0].estimator == ClippedMean(threshold=bounded.lipschitz(2.0))
    with pytest.raises(ValueError, match="response_bound must be finite"):
        made.recipe(facts(), BUDGET)


def test_interquartile_means_need_less_noise_than_medians() -> None:
    given = {"batch_size": 1000, "num_steps": 5, "threshold": 2.0, "num_buckets": 20}
    noise = {}
    for central in (2, 10):
        made = spec("bucketed_median", num_central=central, **given)
        noise[central] = made.recipe(facts(), BUDGET).phases[0].noise.stddev
    assert noise[10] == pytest.approx(noise[2] / 5.0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scaled_features_and_bounds_scale_the_answer(estimator: str) -> None:
    """theta -> theta/2 under features -> 2 features, noise included."""
    data = regression(300, dps.domains.Ball(1.0))
    wide = dps.Problem(
        2.0 * data.data.dense,
        data.data.response,
        loss=dps.losses.Squared(),
        domain=dps.domains.Ball(0.5),
        row_bound=2.0,
        response_bound=1.0,
    )
    given = {"batch_size": 100, "num_steps": 5, "num_buckets": 4}
    plain = spec(estimator, **given)
    options = {"l1": 0.1, "smoothness": 4.0, "moment_bound": 4.0}
    if estimator == "clip":
        options["threshold"] = 3.0
    scaled = spec(estimator, **given, **options)
    found = minimize(wide, scaled, BUDGET, seed=7).theta
    assert found == pytest.approx(0.5 * minimize(data, plain, BUDGET, seed=7).theta)


def test_certificates_say_what_was_done() -> None:
    data = regression(400, dps.domains.Ball(1.0))
    made = spec("catoni", batch_size=400, num_steps=5)
    fit = minimize(data, made, BUDGET)
    assert fit.certificate.releasable
    inputs = dict(fit.certificate.inputs)
    assert inputs["batch_size"] == 400 and inputs["num_steps"] == 5
    assert inputs["stddev"] == made.recipe(data.facts, BUDGET).inputs["stddev"]
    printed = minimize(data, made, BUDGET, calibration="paper").certificate
    assert not printed.releasable and printed.epsilon_proved > 2.0
    seeded = minimize(data, made, BUDGET, seed=1)
    assert not seeded.certificate.releasable
    assert (minimize(data, made, BUDGET, seed=1).theta == seeded.theta).all()


def test_unbounded_domains_have_no_risk_bound() -> None:
    recipe = spec("clip", batch_size=1000, num_steps=3).recipe(
        facts(domain=dps.domains.WholeSpace()), BUDGET
    )
    assert "risk_bound" not in recipe.inputs
    assert isinstance(
        spec("catoni", batch_size=1000).recipe(facts(), None).phases[0].estimator,
        CatoniMean,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "mean"}, "estimator must be one of"),
        ({"threshold": 0.0}, "threshold must be"),
        ({"threshold": math.nan}, "threshold must be"),
        ({"moment_bound": -1.0}, "moment_bound must be"),
        ({"moment_order": 1.0}, "moment_order must be"),
        ({"mean_bound": math.inf}, "mean_bound must be"),
        ({"failure_probability": 1.0}, "failure_probability must be"),
        ({"l1": -1.0}, "l1 must be"),
    ],
)
def test_bad_numbers_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateProximalSGD(**options)
