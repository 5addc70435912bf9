"""Thinned oracle: the tangent oracle's acceptance, law and proof, from few records."""

import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers.chain import COUNT, NUM_STATS
from dpsample.samplers.errors import BOUND_VIOLATED, OK, NoCertificate
from dpsample.samplers.proximal import metric, thinned
from dpsample.samplers.proximal.alternation import ROW
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES
from tests.support.replicates import law_margin
from tests.support.statistics import assert_mean, assert_rejected, rejected
from tests.support.tiers import by_turns, one_in

L, D = dps.losses, dps.domains
SAMPLER = dps.samplers.Proximal(oracle="thinned")
W, X = np.array([0.1, -0.3]), np.array([-0.3, 0.4])
NAMES = ["logistic on a ball", "absolute on a box", "squared, p = 1.5, l_1.5 ball"]


class Test:
    """One acceptance test, repeated: proposal X, tangent at W."""

    __test__ = False

    def __init__(self, name, *, bounds=None, x=X, w=W):
        self.case = CASES[name]
        target = self.case.target
        self.option = metric.candidates(target, oracle="thinned")[0]
        self.plan = self.option.plan(0.5)
        self.numbers, self.pieces = self.option.numbers(target), target.pieces
        self.bounds = bounds or thinned.bounds(target)
        self.x, self.w = x, w
        self.state = thinned.init(target, w)
        self.state.vectors[ROW.tangent_point], self.state.vectors[ROW.proposal] = w, x
        self.gradient = np.empty(2)
        fixed = (self.numbers, self.pieces, w, self.state, self.gradient)
        assert thinned.fill_tangents(*fixed) == OK

    def accept(self, rng):
        fixed = (self.numbers, self.pieces, self.plan, self.bounds, self.state)
        return thinned.begin_tests(*fixed, rng)

    def gaps(self):
        """Gaps of all records, written anew."""
        case = self.case
        u, at_w = case.rows @ self.x, case.rows @ self.w
        loss, response = case.loss, case.response
        change = loss.value(u, response) - loss.value(at_w, response)
        return case.k * (change - loss.slope(at_w, response) * (u - at_w))

    def probability(self):
        """Acceptance of the tangent oracle: one pass over all records."""
        gap, away = self.gaps().mean(), self.x - self.w
        if not self.option.keeps_regularizer:
            values = self.case.regularizer(np.array([self.x, self.w]))
            weight = self.case.k * self.case.mu
            slope = weight * (self.w - self.case.center)  # of half a squared norm
            gap += weight * (values[0] - values[1]) - slope @ away
            gap -= 0.5 * self.plan.tangent * away @ self.plan.precision @ away
        return math.exp(-gap)


def uncertain(name):
    """Test of two points of the domain that is passed about half of the time."""
    points = CASES[name].exact(np.random.default_rng(7), 400)
    for x, w in zip(points[:200], points[200:], strict=True):
        test = Test(name, x=x, w=w)
        if 0.3 < test.probability() < 0.7:
            return test
    raise AssertionError("all points are close to each other")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_acceptance_is_that_of_the_tangent_oracle(name):
    test, rng, count = uncertain(name), np.random.default_rng(1), 4200
    verdicts = np.array([test.accept(rng) for _ in range(count)], dtype=float)
    expected = test.probability()
    spread = expected * (1.0 - expected)
    assert_mean(verdicts, expected, spread, detects=0.2)
    with rejected():  # as many tests, each passed too often by a third
        wrong = math.exp(math.log(expected) / 1.5)
        assert_mean(verdicts, wrong, wrong * (1.0 - wrong), detects=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_gradient_and_tangents_are_those_of_the_target(name):
    test, target = Test(name), CASES[name].target
    expected = target.gradient(W)
    if test.option.keeps_regularizer:
        slope = target.regularizer.gradient(W, test.case.center)
        expected = expected - target.k * target.mu * slope
    assert np.allclose(test.gradient, expected, rtol=0.0, atol=1e-12)
    at_w = test.case.rows @ W
    assert np.allclose(test.state.workspace.tangents[thinned.TANGENT.margin], at_w)
    values = test.case.loss.value(at_w, test.case.response)
    assert np.allclose(test.state.workspace.tangents[thinned.TANGENT.value], values)


@pytest.mark.slow
def test_expected_number_of_tests_is_the_ceiling_until_one_fails():
    name = "logistic on a ball"
    near = W + 0.02 * (X - W)  # gaps are small: hardly any test fails
    test, rng, count = Test(name, x=near), np.random.default_rng(2), 3000
    distance = float(np.linalg.norm(near - W))
    ceiling = thinned.gap_bound(test.bounds, distance)
    expected = 0.5 * test.bounds.smoothness * distance**2
    assert ceiling == pytest.approx(expected, rel=1e-12)
    assert ceiling < test.bounds.slope_range * distance
    assert np.all(test.gaps() <= ceiling) and np.all(test.gaps() >= 0.0)
    large = test.bounds._replace(smoothness=2.0 * 3.0 / distance**2, slope_range=1e9)
    test.bounds = large
    before = test.state.counts[COUNT.records]
    accepted = sum(test.accept(rng) for _ in range(count))
    tests = (test.state.counts[COUNT.records] - before) / count
    assert accepted > 0.99 * count
    assert abs(tests - 3.0) < 6.0 * math.sqrt(3.0 / count)


@one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_gaps_of_records_are_below_the_ceiling(name):
    case, rng = CASES[name], np.random.default_rng(3)
    found = thinned.bounds(case.target)
    points = case.exact(rng, 60)
    rows, response = case.rows, case.response
    shift = 0.0 if case.offset is None else np.asarray(case.offset)
    for x, w in zip(points[:30], points[30:], strict=True):
        u, at_w = rows @ x + shift, rows @ w + shift
        gaps = case.loss.value(u, response) - case.loss.value(at_w, response)
        gaps -= case.loss.slope(at_w, response) * (u - at_w)
        distance = float(np.linalg.norm(x - w))
        assert case.k * gaps.max() <= thinned.gap_bound(found, distance) + 1e-9


def test_a_bound_that_does_not_hold_stops_the_run():
    small = thinned.Bounds(slope_range=np.inf, smoothness=0.5)
    test = Test("logistic on a ball", bounds=small)
    rng = np.random.default_rng(4)
    assert -BOUND_VIOLATED in {test.accept(rng) for _ in range(300)}


LAWS = [
    "logistic, mode on the sphere",
    "hinge, p = 1.5, box",
    "absolute on a box",
    "squared on the plane",
]


def one_step_each(prepared, starts, rng):
    state, run, ends = prepared.init(), prepared.runner(), np.empty_like(starts)
    draws, stats = np.empty((1, starts.shape[1])), np.empty((1, NUM_STATS))
    for i, start in enumerate(starts):
        state.position[:] = start
        run(state, rng, draws, stats)
        ends[i] = draws[0]
    return ends, state


@pytest.mark.slow
@pytest.mark.parametrize("name", by_turns(LAWS))
def test_a_step_from_the_law_keeps_it(name):
    case, rng = CASES[name], np.random.default_rng(5)
    prepared = SAMPLER.prepare(case.target, np.random.default_rng(0))
    starts = case.exact(rng, 4000)
    ends, state = one_step_each(prepared, starts, rng)
    assert law_margin(case, ends) <= 1.0
    assert state.counts[COUNT.values] == 0
    assert state.counts[COUNT.accepted] == state.counts[COUNT.gradients] == 4000
    assert state.counts[COUNT.records] >= 4000 * len(case.rows)


def test_a_planted_bug_moves_the_law():
    name = "absolute on a box"
    case, rng = CASES[name], np.random.default_rng(6)
    prepared = SAMPLER.prepare(case.target, np.random.default_rng(0))
    starts = case.exact(rng, 4000)
    # No test at all: the law of the envelope.
    object.__setattr__(prepared, "bounds", thinned.Bounds(1e-300, 1e-300))
    ends, _ = one_step_each(prepared, starts, rng)
    assert_rejected(law_margin(case, ends))


def test_losses_without_any_bound_are_refused():
    case = example(L.PowerFour(), D.WholeSpace(), k=5.0)
    with pytest.raises(NoCertificate, match="Neither slope nor curvature"):
        thinned.bounds(case.target)
    is_supported, reason = SAMPLER.supports(case.target)
    assert not is_supported and "power_four" in reason


def test_a_release_keeps_its_certificate():
    data = dps.datasets.logistic(200, 2, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=L.Logistic(),
        domain=D.Ball(radius=1.0),
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    answer = dps.release(problem, budget, sampler=SAMPLER)
    usual = dps.release(problem, budget, sampler=dps.Proximal())
    assert answer.certificate.releasable
    assert answer.certificate.theorems == usual.certificate.theorems
    counts = answer.nonprivate_diagnostics["counts"]
    assert counts["values"] == 0
    assert counts["gradients"] == answer.nonprivate_diagnostics["num_steps"]
    # Gradients see all records, tests of proposals but a few.
    tests = counts["records"] - 200 * counts["gradients"]
    assert 0 <= tests < 20 * counts["proposals"]
