"""The last iterate of noisy gradient descent: noise, rounding, refusals."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample.core.streams import streams
from dpsample.domains import Ball, Box, WholeSpace
from dpsample.numerics.exact import exact_normal
from dpsample.optimizers import NoisyGD
from dpsample.optimizers.loop.last_iterate import _step_error, effective_steps
from dpsample.optimizers.loop.optimizer import Recipe
from tests.support.descents import descend
from tests.support.rounding_cases import DOMAINS, data, projected, slope
from tests.support.tiers import one_in

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
LAST = NoisyGD(output="last")
STEPS = {"num_steps": 40, "step_size": 0.8, "ridge": 0.1}


def facts(loss=None, domain=None, *, num_records=1000, response_bound=None):
    return dps.PublicFacts(
        num_records=num_records,
        dim=3,
        row_bound=1.0,
        row_norm=2.0,
        loss=loss or losses.Logistic(),
        domain=domain or Ball(2.0),
        response_bound=response_bound,
    )


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_exact_quadratics_attain_the_budget_and_no_others_exceed_it(relation):
    """Squared losses on the whole line: means and variances of the output are known.

    Clipped at 1 records far from the rest are lines, of which only the ridge contracts:
    the worst case. Elsewhere they curve, and one record is told less well.
    """
    budget = replace(BUDGET, relation=relation)
    method = NoisyGD(output="last", clip=1.0, **STEPS)
    known = facts(losses.Squared(), WholeSpace(), response_bound=9.0)
    recipe = method.recipe(known, budget)
    assert recipe.kind == "last/full"
    shift = {"replace_one": 2.0, "zero_out": 1.0}[relation]
    gdp, stddev = recipe.event.gdp, recipe.inputs["noise_stddev"]
    early, last = recipe.phases
    assert (early.num_steps, last.num_steps) == (39, 1)
    for curvature in (0.0, 0.3, 1.0):
        mean = variance = 0.0
        for _ in range(40):
            factor = 1.0 - 0.8 * (curvature + 0.1)
            mean = factor * mean + 0.8 * shift / 1000
            variance = factor**2 * variance + (0.8 * stddev) ** 2
        told = mean / math.sqrt(variance)
        assert told <= gdp
        assert (told >= gdp * (1 - 1e-9)) == (curvature == 0.0)
    composed = NoisyGD(num_steps=40, step_size=0.8, clip=1.0).recipe(known, budget)
    assert stddev < 0.8 * composed.inputs["noise_stddev"]


def test_small_domains_forget_as_ridges_do():
    known = facts(domain=Ball(1e-3), num_records=100)
    steps = {"num_steps": 5000, "step_size": 8.0, "ridge": 0.0}
    recipe = NoisyGD(output="last", **steps).recipe(known, BUDGET)
    assert recipe.inputs["contraction"] == pytest.approx(1.0, abs=1e-10)
    moved = 8.0 * 2.0 / 100
    best = min((2e-3 + moved * m) ** 2 / m for m in range(1, 5001)) / moved**2
    assert recipe.inputs["effective_steps"] == pytest.approx(best, rel=1e-6)
    assert effective_steps(1.0, 50, diameter=1e9, error=0.0) == pytest.approx(50.0)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_without_noise_it_is_descent_with_a_ridge_about_the_center(clip):
    problem = data(losses.Logistic(), Ball(0.4, center=[0.3, -0.1, 0.2]))
    method = NoisyGD(output="last", clip=clip, **STEPS)
    found = dps.minimize(problem, method, None, seed=0).theta
    a, y = problem.data.dense, problem.data.response
    center = w = problem.facts.center
    for _ in range(40):
        slopes = problem.loss.slope(a @ w, y)
        if clip is not None:
            limits = clip / np.linalg.norm(a, axis=1)
            slopes = np.clip(slopes, -limits, limits)
        w = w - 0.8 * (slopes @ a / 40 + 0.1 * (w - center))
        w = center + (w - center) / max(1.0, np.linalg.norm(w - center) / 0.4)
    np.testing.assert_allclose(found, w, rtol=1e-11)


@one_in(2)
@pytest.mark.parametrize("domain", ["ball", "ball far away", "box"])
@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Huber(0.5)], ids=repr)
def test_computed_steps_are_as_near_to_exact_ones_as_proved(loss, domain):
    """One noisy step in 60 digits, with the noise that was drawn."""
    problem = data(loss, DOMAINS[domain])
    method = NoisyGD(output="last", num_steps=2, step_size=1.5, ridge=0.05)
    recipe = method.recipe(problem.facts, BUDGET)
    assert recipe.kind == "last/full/rounded"
    (early, last), center = recipe.phases, problem.facts.center
    bound = _step_error(problem.facts, last, early.noise.stddev)
    assert bound < 1e-9 * early.noise.stddev * 1.5 * math.sqrt(3.0) * 20.0
    scale = early.noise.stddev * (1.0 + early._excess(40, 3))
    worst = 0.0
    for seed in range(20):
        single = Recipe(phases=(early,), event=None, inputs={})
        found = descend(problem, single, streams(seed, 1)[0]).theta
        rng = streams(seed, 1)[0]
        with mpmath.workdps(60):
            rows = [[mpmath.mpf(x) for x in row] for row in problem.data.dense]
            start = [mpmath.mpf(x) for x in center]
            g = [mpmath.mpf(0)] * 3
            for row, label in zip(rows, problem.data.response, strict=True):
                s = slope(loss, mpmath.fdot(row, start), mpmath.mpf(label)) / 40
                g = [x + s * b for x, b in zip(g, row, strict=True)]
            noise = [mpmath.fsum(map(mpmath.mpf, exact_normal(rng))) for _ in range(3)]
            w = [
                x - mpmath.mpf(1.5) * (b + mpmath.mpf(scale) * z)
                for x, b, z in zip(start, g, noise, strict=True)
            ]
            exact = projected(problem.domain, w, start)
            off = mpmath.norm([x - b for x, b in zip(exact, found, strict=True)])
            worst = max(worst, float(off))
    assert 1e-4 * bound < worst <= bound


def test_noise_pays_for_rounding_errors():
    known = facts(num_records=10**6)
    recipe = LAST.recipe(known, BUDGET)
    numbers, early = recipe.inputs, recipe.phases[0]
    assert recipe.kind == "last/full/rounded" and early.noise.extra_bits == 18
    c, count = numbers["contraction"], numbers["num_steps"]
    plain = effective_steps(c, count, diameter=math.inf, error=0.0)
    unit = 2.0 * numbers["lipschitz"] / 10**6
    error = _step_error(known, recipe.phases[1], early.noise.stddev)
    moved = 1.0 + 2.0 * error / (unit * numbers["step_size"])
    assert 1.0 + 1e-8 < moved < 1.001
    assert numbers["effective_steps"] >= plain * moved**2 * (1.0 - 1e-12)
    # Where errors have no bound, or are as large as the shift, that is said.
    for other in (
        facts(domain=WholeSpace()),
        facts(domain=Ball(1.0, p=1.0)),
        facts(domain=Ball(1.0, center=[1e6, 0.0, 0.0]), num_records=10**7),
    ):
        recipe = NoisyGD(output="last", **STEPS).recipe(other, BUDGET)
        assert recipe.kind == "last/full"
        assert all(p.noise.extra_bits == 0 for p in recipe.phases)


@pytest.mark.parametrize("domain", [Ball(1.0), Box(-1.0, 1.0), WholeSpace()], ids=repr)
def test_certificates_are_proved_by_both_checkers(domain):
    problem = data(losses.Logistic(), domain)
    fit = dps.minimize(problem, NoisyGD(output="last", clip=0.4, **STEPS), BUDGET)
    words = fit.certificate.assumptions
    assert ("ARITHMETIC" in words) == (domain == WholeSpace())
    assert ("LAST.ROUNDED" in words) != ("ARITHMETIC" in words)
    assert fit.certificate.releasable
    for checker in ("standard", "ball"):
        dps.verify(fit.certificate, checker=checker)
    less = dict(fit.certificate.inputs) | {"effective_steps": 1.0}
    forged = replace(fit.certificate, inputs=tuple(less.items()), digest="")
    with pytest.raises(ValueError, match="effective_steps"):
        dps.verify(forged)
    assert repr(LAST) == (
        "NoisyGD(num_steps=None, step_size=None, risk='population', clip=None, "
        "output='last', ridge=None)"
    )


def geometric_median(row, response, theta, out):
    out[:] = (theta - row) / np.sqrt(1.0 + ((theta - row) ** 2).sum())


def test_a_domain_far_from_zero_does_not_hide_the_answer():
    """Planted: noise for all of theta, not its way, led to the wall for every seed."""
    x = np.random.default_rng(0).uniform(-0.7, 0.7, (400, 2))
    y = np.where(x[:, 0] > 0.0, 1.0, -1.0)
    far = dps.domains.Ball(1.0, center=np.array([1e10, 0.0]))
    problem = dps.Problem(x, y, loss=losses.Logistic(), domain=far, row_bound=1.0)
    method = NoisyGD(output="last", num_steps=3, ridge=0.1, step_size=1.0)
    budget = dps.Budget(epsilon=500.0, delta=1e-6)
    ends = [dps.minimize(problem, method, budget, seed=i).theta[1] for i in range(3)]
    assert np.ptp(ends) > 1e-6


@pytest.mark.slow
def test_what_the_theorem_is_not_about_is_refused():
    own = losses.record_gradient(geometric_median, smoothness=1.0, name="median")
    custom = losses.custom(
        lambda u, y: 0.5 * u * u, lambda u, y: u, slope_bound=9.0, upper_curvature=1.0
    )
    for known, words in (
        (facts(losses.Hinge()), "loss must be smooth for the last iterate"),
        (facts(own), "loss must be a function of the margin"),
        (facts(custom, response_bound=1.0), "loss must be a built-in one"),
        (facts(domain=WholeSpace()), "domain must be bounded"),
    ):
        with pytest.raises(ValueError, match=words):
            LAST.recipe(known, BUDGET)
    with pytest.raises(ValueError, match="loss must be a built-in one"):
        NoisyGD(output="last", clip=1.0, **STEPS).recipe(facts(own), BUDGET)
    for options, budget, words in (
        ({"step_size": 8.0, "ridge": 0.1}, BUDGET, r"<= 2/\(beta \+ ridge\) = 5.71"),
        ({"num_steps": 10**7}, BUDGET, "num_steps must be"),
        ({"ridge": 0.0}, BUDGET, "num_steps must be given without a ridge"),
        ({}, None, "num_steps must be given without a ridge"),
    ):
        with pytest.raises(ValueError, match=words):
            NoisyGD(output="last", **options).recipe(facts(), budget)
    with pytest.raises(ValueError, match="calibration must be 'exact'"):
        LAST.recipe(facts(), BUDGET, "paper")
    for options, words in (
        ({"output": "last", "ridge": -1.0}, "ridge must be"),
        ({"output": "last", "tail_share": 0.5}, "tail_share must be None for"),
        ({"output": "tail", "ridge": 0.5}, "ridge must be None for output='tail'"),
    ):
        with pytest.raises(ValueError, match=words):
            NoisyGD(**options)


def test_defaults_forget_the_start():
    recipe = LAST.recipe(facts(domain=Ball(5.0)), BUDGET)
    ridge, size = recipe.inputs["ridge"], recipe.inputs["step_size"]
    assert size == pytest.approx(1.0 / (0.25 + ridge))
    assert recipe.inputs["num_steps"] == math.ceil(3.0 / (size * ridge))
    assert recipe.inputs["effective_steps"] < recipe.inputs["num_steps"]
    linear = LAST.recipe(facts(losses.Linear()), BUDGET)
    assert linear.inputs["num_steps"] == 3
    assert linear.inputs["effective_steps"] == pytest.approx(1.0)
