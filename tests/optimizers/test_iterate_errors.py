"""Rounding errors of gradient steps against 60 digits, and noise that hides them."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

import dpsample as dps
from dpsample import losses
from dpsample import optimizers as opt
from dpsample.core.streams import streams
from dpsample.domains import Ball, WholeSpace
from dpsample.noise.noise import grid_step
from dpsample.optimizers.loop.batches import Slices
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.iterate_errors import (
    LOSSES,
    counted_stddev,
    iterate_error,
    phase_error,
)
from dpsample.optimizers.loop.optimizer import Minimization, Recipe
from dpsample.optimizers.loop.solve import TiltedObjective, fill_tilt
from dpsample.privacy.curves.objective_perturbation import minimizer_sensitivity
from dpsample.problem.facts import smoothness
from dpsample.running import descent
from tests.support.descents import descend
from tests.support.rounding_cases import DOMAINS, data, projected, slope
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in, usual

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
ZERO_OUT = dps.Budget(epsilon=1.0, delta=1e-6, relation="zero_out")
SMOOTH = {
    "linear": losses.Linear(),
    "logistic": losses.Logistic(),
    "capped_logistic": losses.CappedLogistic(0.4),
    "smoothed_hinge": losses.SmoothedHinge(0.3),
    "huber": losses.Huber(0.4),
    "squared": losses.Squared(),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_slopes_are_off_by_a_few_units_of_their_last_digit(name):
    loss, rng = SMOOTH[name], np.random.default_rng(3)
    margins = np.concatenate((rng.normal(size=800), rng.uniform(-40.0, 40.0, 800)))
    y = np.where(rng.random(1600) < 0.5, -1.0, 1.0)
    found, worst = loss.slope(margins, y), mpmath.mpf(0)
    with mpmath.workdps(60):
        for u, label, got in zip(margins, y, found, strict=True):
            exact = slope(loss, mpmath.mpf(u), mpmath.mpf(label))
            worst = max(worst, abs(got - exact) / max(abs(exact), mpmath.mpf(1e-300)))
    assert worst <= 12 * 2.0**-53
    assert {type(x) for x in SMOOTH.values()} == set(LOSSES)


def exact_output(problem, loop, start, limits):
    """The loop's output in 60 digits, slopes clipped at the same limits."""
    rows = [[mpmath.mpf(x) for x in row] for row in problem.data.dense]
    y = [mpmath.mpf(x) for x in problem.data.response]
    offset = [mpmath.mpf(x) for x in problem.data.offset] or [mpmath.mpf(0)] * len(y)
    size, ridge = mpmath.mpf(float(loop.step.sizes[0])), mpmath.mpf(loop.step.ridge)
    center = [mpmath.mpf(x) for x in problem.facts.center]
    start = [mpmath.mpf(x) for x in start]
    w, total = list(start), [mpmath.mpf(0)] * 3
    count = len(y) if not isinstance(loop.batches, Slices) else loop.batches.size
    for t in range(loop.num_steps):
        first = t * count if isinstance(loop.batches, Slices) else 0
        g = [mpmath.mpf(0)] * 3
        for i in range(first, first + count):
            u = mpmath.fdot(rows[i], w) + offset[i]
            s = min(max(slope(problem.loss, u, y[i]), -limits[i]), limits[i])
            g = [a + s * b / count for a, b in zip(g, rows[i], strict=True)]
        w = [
            x - size * (a + ridge * (x - b))
            for x, a, b in zip(w, g, start, strict=True)
        ]
        w = projected(problem.domain, w, center)
        total = [a + b / loop.num_steps for a, b in zip(total, w, strict=True)]
    return total if loop.weights is not None else w


def measured(problem, loop):
    """Distance of the computed output from the exact one, and its bound."""
    quiet = replace(loop, output_stddev=0.0, output_gdp=0.0)
    recipe = Recipe(phases=(quiet,), event=None, inputs={})
    found = descend(problem, recipe, streams(1, 1)[0]).theta
    arguments = dps.optimizers.loop.loop.Arguments(problem, recipe)
    phase = arguments.phase(quiet, streams(1, 1)[0])
    limits = phase.estimator.functions.records.limits
    if not len(limits):
        limits = np.full(problem.facts.num_records, 1e300)
    start = problem.facts.center
    with mpmath.workdps(60):
        exact = exact_output(problem, quiet, start, [mpmath.mpf(x) for x in limits])
        off = mpmath.sqrt(
            mpmath.fsum((a - b) ** 2 for a, b in zip(found, exact, strict=True))
        )
        return float(off), iterate_error(problem.facts, loop, start)


@one_in(8)
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("loss", SMOOTH)
def test_computed_outputs_are_as_near_as_proved(loss, domain):
    """One loop of clipped steps, and the first phase of single records."""
    problem = data(SMOOTH[loss], DOMAINS[domain])
    recipe = opt.ClippedGD(num_steps=30, clip=0.4, ridge=0.1, step_size=0.2).recipe(
        problem.facts, BUDGET
    )
    assert recipe.kind == "clipped/output/rounded"
    loops = [recipe.phases[0]]
    if domain != "whole space" or loss != "squared":  # slopes without end
        method = opt.PhasedSGD(step_size=0.2, distance=1.0)
        phased = method.recipe(problem.facts, BUDGET)
        assert phased.kind == "phased/rounded"
        loops.append(phased.phases[0])
    for loop in loops:
        off, bound = measured(problem, loop)
        assert 1e-19 < off <= bound < 1e-10


def test_offsets_and_large_rows_are_in_the_bound():
    rng = np.random.default_rng(5)
    problem = data(
        losses.Logistic(), Ball(30.0), scale=50.0, offset=rng.uniform(-30.0, 30.0, 40)
    )
    method = opt.ClippedGD(num_steps=40, clip=20.0)
    off, bound = measured(problem, method.recipe(problem.facts, BUDGET).phases[0])
    assert 1e-17 < off <= bound < 1e-9


@pytest.mark.parametrize("budget", [BUDGET, ZERO_OUT])
def test_the_noise_hides_the_distance_of_computed_outputs(budget):
    """(s + 2 E)/t, s the exact distance; s is small beside E in the last phases."""
    problem = data(losses.Logistic(), WholeSpace(), number=4000)
    recipe = opt.PhasedSGD(distance=1e6).recipe(problem.facts, budget)
    shares = []
    for loop in recipe.phases:
        start = np.array([1e9, -1e9, 1e7])  # where earlier noise may have led
        exact = loop.output_stddev * loop.output_gdp
        shift = 2.0 if budget is BUDGET else 1.0
        assert exact >= shift * float(loop.step.sizes[0])
        error = iterate_error(problem.facts, loop, start)
        assert error > 2.0**-53 * 1e9
        error += 2.0**-53 * np.linalg.norm(start)  # of the difference from the start
        enlarged = counted_stddev(problem.facts, loop, start, start)
        assert enlarged * loop.output_gdp >= exact + 2.0 * error
        shares.append(enlarged / loop.output_stddev - 1.0)
    assert 0.0 < shares[0] < 1e-2 < shares[-1]


def test_outputs_are_multiples_of_the_grid_of_the_enlarged_noise():
    problem = data(losses.Huber(), WholeSpace())
    recipe = opt.PhasedSGD(distance=1.0).recipe(problem.facts, BUDGET)
    loop = recipe.phases[0]
    single = replace(recipe, phases=(loop,))
    step = grid_step(counted_stddev(problem.facts, loop, *np.zeros((2, 3))))
    ends = [descend(problem, single, rng).theta for rng in streams(2, 30)]
    assert (np.array(ends) / step == np.round(np.array(ends) / step)).all()
    assert len(np.unique(ends)) == 90


@pytest.mark.parametrize(
    ("loss", "domain", "method"),
    [
        (losses.PowerFour(), Ball(1.0), opt.ClippedGD(num_steps=3, clip=0.5)),
        (losses.Huber(), Ball(1.0, p=1.0), opt.ClippedGD(num_steps=3, clip=0.5)),
        (losses.Huber(), dps.domains.Simplex(), opt.PhasedSGD()),
        (losses.PowerFour(), Ball(1.0), opt.PhasedSGD()),
    ],
    ids=repr,
)
def test_what_has_no_bound_says_real_arithmetic(loss, domain, method):
    problem = data(loss, domain)
    recipe = method.recipe(problem.facts, BUDGET)
    assert recipe.kind in ("clipped/output", "phased")
    assert all(loop.output_gdp == 0.0 for loop in recipe.phases)
    loop = recipe.phases[0]
    assert counted_stddev(problem.facts, loop, *np.zeros((2, 3))) == loop.output_stddev
    assert iterate_error(problem.facts, loop, np.zeros(3)) == math.inf
    fit = dps.minimize(problem, method, BUDGET)
    assert "ARITHMETIC" in fit.certificate.assumptions


# Minimizers.


def minimization(problem, *, solver="accelerated", gap=1e-8, **fields):
    facts = problem.facts
    given = {
        "ridge": 0.3,
        "smoothness": smoothness(facts),
        "estimator": Mean(lipschitz=facts.lipschitz(2.0)),
        "tilt_stddev": 2.0,
        "is_anchored": True,
        "output_gdp": 1.0,
    }
    return Minimization(solver=solver, gap=gap, **given | fields)


def solved(problem, phase):
    """The computed point, and its distance from the minimizer in 40 digits."""
    recipe = Recipe(phases=(phase,), event=None, inputs={})
    found, tilt = descend(problem, recipe, streams(1, 1)[0]).theta, np.zeros(3)
    fill_tilt(streams(1, 1)[0], 2.0 / 40, tilt)
    with mpmath.workdps(40):
        rows = [[mpmath.mpf(x) for x in row] for row in problem.data.dense]
        y = [mpmath.mpf(x) for x in problem.data.response]
        center = [mpmath.mpf(x) for x in problem.facts.center]
        w, ridge = [mpmath.mpf(x) for x in found], mpmath.mpf(phase.ridge)
        top = ridge + mpmath.mpf(phase.smoothness)
        for _ in range(100 * math.ceil(top / ridge)):
            g = [mpmath.mpf(x) for x in tilt]
            for a, label in zip(rows, y, strict=True):
                s = slope(problem.loss, mpmath.fdot(a, w), label) / 40
                g = [x + s * b for x, b in zip(g, a, strict=True)]
            moved = [
                x - (b + ridge * (x - c)) / top
                for x, b, c in zip(w, g, center, strict=True)
            ]
            last, w = w, projected(problem.domain, moved, center)
            if mpmath.norm([a - b for a, b in zip(w, last, strict=True)]) < 1e-24:
                break
        else:
            raise AssertionError("the reference did not converge")
        away = [x - mpmath.mpf(b) for x, b in zip(w, found, strict=True)]
        return float(mpmath.norm(away))


BOUNDED = ("ball", "ball far away", "box")


@usual("squared-", "logistic-ball far")
@pytest.mark.parametrize("domain", BOUNDED)
@pytest.mark.parametrize("loss", SMOOTH)
def test_computed_minimizers_are_as_near_as_proved(loss, domain):
    problem = data(SMOOTH[loss], DOMAINS[domain])
    for solver in ("accelerated", "svrg"):
        for gap in (1e-8, 1e-60):  # the last one is far below what doubles resolve
            phase = minimization(problem, solver=solver, gap=gap)
            extra = phase_error(problem.facts, phase, np.zeros(3))
            assert 0.0 < extra < 1e-9
            asked = math.sqrt(2.0 * gap / 0.3)
            assert solved(problem, phase) <= asked + extra


@pytest.mark.parametrize("gap", [1e-8, 1e-25])
def test_without_a_certificate_plain_steps_are_enough(monkeypatch, gap):
    """No solver certifies; the number of plain steps is the proof."""
    monkeypatch.setattr(descent, "enough_steps", lambda *_: 1)
    monkeypatch.setattr(descent, "EPOCHS_PER_LOG", 0.0)
    problem = data(losses.Logistic(), Ball(0.7))
    phase = minimization(problem, gap=gap, ridge=0.1)
    limit = math.sqrt(2.0 * gap / 0.1) + phase_error(problem.facts, phase, np.zeros(3))
    assert solved(problem, phase) <= limit
    solve = descent.solve

    def without_contraction(*given):
        objective = next(part for part in given if isinstance(part, TiltedObjective))
        return 0 if objective.method == descent.METHOD.contraction else solve(*given)

    monkeypatch.setattr(descent, "solve", without_contraction)
    assert solved(problem, phase) > limit  # one step is not enough


@pytest.mark.parametrize("domain", ["ball", "box"])
def test_output_noise_hides_the_errors_of_solvers(domain):
    problem = data(losses.Logistic(), DOMAINS[domain])
    for method in OUTPUTS["SOLVER.ROUNDED"]:
        recipe = method.recipe(problem.facts, BUDGET)
        (phase,) = recipe.phases
        assert recipe.kind.endswith("/rounded")
        center = problem.facts.center
        enlarged = counted_stddev(problem.facts, phase, center, center)
        exact = phase.output_stddev * phase.output_gdp
        if isinstance(method, opt.SVRG):
            gap = {"strong_convexity": phase.ridge, "gap": phase.gap}
            assert exact >= minimizer_sensitivity(problem.facts, **gap)
        else:
            wanted = 2.0 * math.sqrt(2.0 * phase.gap / phase.ridge)
            assert exact == pytest.approx(wanted, rel=1e-12)
        error = phase_error(problem.facts, phase, center)
        assert enlarged * phase.output_gdp >= exact + 2.0 * error
        assert enlarged <= phase.output_stddev * (1.0 + 1e-4)


@pytest.mark.parametrize(
    "method", [opt.SVRG(ridge=1.0), opt.ObjectivePerturbation(ridge=1.0)], ids=repr
)
def test_no_bit_of_a_minimizer_tells_neighbors_apart(method):
    """On a ball that no output leaves: projections follow, whose input is this."""
    for response in (0.0, 0.2, 1.0, -1e-9):
        problem = data(losses.Huber(), Ball(1e3))
        y = np.zeros(40)
        y[0] = response
        problem = dps.Problem(
            problem.data.dense,
            y,
            loss=problem.loss,
            domain=problem.domain,
            row_bound=1.0,
            response_bound=1.0,
        )
        recipe = method.recipe(problem.facts, BUDGET)
        assert recipe.kind.endswith("/rounded")
        center = problem.facts.center
        phase = recipe.phases[0]
        step = grid_step(counted_stddev(problem.facts, phase, center, center))
        ends = np.array([descend(problem, recipe, g).theta for g in streams(6, 40)])
        assert (ends / step == np.round(ends / step)).all()
        assert len(np.unique(ends)) > 110


def test_tilts_are_normal():
    out = np.empty(100_000)
    fill_tilt(streams(5, 1)[0], 3.0, out)
    assert_law(out / 3.0, norm.cdf)
    with rejected():
        assert_law(out / 3.3, norm.cdf)


OUTPUTS = {
    "OUTPUT.ROUNDED": (opt.ClippedGD(num_steps=3, clip=0.5), opt.PhasedSGD()),
    "SOLVER.ROUNDED": (
        opt.SVRG(),
        opt.ObjectivePerturbation(),
        opt.ApproximateObjectivePerturbation(solver="svrg"),
    ),
}


@pytest.mark.parametrize("method", sum(OUTPUTS.values(), ()), ids=repr)
def test_certificates_say_that_rounding_errors_are_counted(method):
    fit = dps.minimize(data(losses.Huber(), Ball(1.0)), method, BUDGET)
    words = fit.certificate.assumptions
    assert "ARITHMETIC" not in words
    assert all((name in words) == (method in given) for name, given in OUTPUTS.items())
    assert fit.certificate.releasable
    for checker in ("standard", "ball"):
        checked = dps.verify(fit.certificate, checker=checker)
        assert checked.statement == fit.certificate.statement
