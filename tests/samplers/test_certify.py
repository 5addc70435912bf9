"""The stopping rule: measured divergences stay below what it proves."""

import functools

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers.proximal import alternation, metric, proximal
from tests.support import bodies
from tests.support.gibbs_cases import example
from tests.support.tiers import one_in

L, D = dps.losses, dps.domains
STEPS = (0.2, 1.0, 4.0)
NUM_STEPS = 30
ROUNDING = 1e-11  # divergences below it are noise of the grid's sums

TARGETS = {
    "gaussian": example(L.Squared(), D.WholeSpace(), dim=1, mu=0.3),
    "logistic on [5, 7]": example(
        L.Logistic(), D.Ball(1.0, center=[6.0]), dim=1, num_records=4, k=50.0, mu=0.01
    ),
    "hinge": example(L.Hinge(), D.Ball(1.0), dim=1),
    "absolute on the line": example(L.Absolute(), D.WholeSpace(), dim=1, mu=0.3),
    "truncated gaussian": example(L.Linear(), D.Box(-0.5, 1.0), dim=1, k=60.0),
    "fourth power": example(L.PowerFour(), D.Ball(1.0), dim=1, k=5.0),
}


def normalized(log_weights):
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class Chain:
    """The proximal sampler in one dimension on a fine grid, without randomness."""

    def __init__(self, case, step, size=700):
        option = metric.candidates(case.target, oracle="metric")[0]
        precision = float(option.precision[0, 0])
        (lower,), (upper,) = case.frame
        self.x = lower + (upper - lower) * (np.arange(size) + 0.5) / size
        reach = 8.0 * np.sqrt(step / precision)
        y = np.linspace(lower - reach, upper + reach, 2 * size)
        squares = 0.5 * precision / step * (self.x[:, None] - y) ** 2
        energies = case.energy(self.x[:, None])
        self.law = normalized(-energies)
        self.forward = normalized(-squares)
        self.backward = normalized(-squares.T - energies)
        self.start = int(np.argmin(np.abs(self.x - lower - 0.1 * (upper - lower))))
        point = self.x[self.start : self.start + 1]
        self.bound = proximal.start_bound(case.target, option, point)
        self.distance = np.sqrt(precision * self.law @ (self.x - point) ** 2)

    def divergences(self):
        """Kullback-Leibler divergence and total variation after each step."""
        p, found = np.zeros(len(self.x)), []
        p[self.start] = 1.0
        for _ in range(NUM_STEPS):
            p = p @ self.forward @ self.backward
            logs = np.log(np.maximum(p, 1e-300) / np.maximum(self.law, 1e-300))
            found.append((p @ logs, 0.5 * np.abs(p - self.law).sum()))
        return np.array(found).T


@functools.cache
def chain(name, step):
    return Chain(TARGETS[name], step)


def is_below(kl, tv, *, step, start_bound, power=2.0):
    """Whether the proof's three inequalities hold; its power of 1 + h is 2."""
    times = np.arange(NUM_STEPS)
    first = start_bound**2 / (2.0 * step)
    kl_bounds = first * (1.0 + step) ** (-power * times)
    ratios = kl[1:] / kl[:-1]
    ratios = ratios[kl[1:] > ROUNDING]
    contracts = np.all(ratios <= (1.0 + step) ** -power * (1.0 + 1e-4))
    kl_holds = np.all(kl <= kl_bounds + ROUNDING)
    tv_holds = np.all(tv <= np.sqrt(0.5 * kl_bounds) + ROUNDING)
    return contracts, kl_holds, tv_holds


@one_in(6)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", TARGETS)
def test_measured_divergences_stay_below_the_proof(name, step):
    exact = chain(name, step)
    kl, tv = exact.divergences()
    # W_0 is a bound, and the inequalities hold for the true distance already.
    assert exact.distance <= exact.bound
    for start_bound in (exact.distance, exact.bound):
        assert all(is_below(kl, tv, step=step, start_bound=start_bound))
    promised = [
        alternation.tv_bound(t, step=step, start_bound=exact.bound)
        for t in range(1, NUM_STEPS + 1)
    ]
    assert np.all(tv <= np.array(promised) + ROUNDING)


@pytest.mark.parametrize("step", STEPS)
def test_a_contraction_with_the_power_three_is_refuted(step):
    exact = chain("gaussian", step)
    kl, tv = exact.divergences()
    args = {"step": step, "start_bound": exact.distance, "power": 3.0}
    assert not any(is_below(kl, tv, **args))


def test_the_rule_for_a_gaussian_is_within_a_small_factor():
    """Printed check of the specification: the bound is off by a factor below 5."""
    exact = chain("gaussian", 1.0)
    _, tv = exact.divergences()
    bounds = [
        alternation.tv_bound(t, step=1.0, start_bound=exact.distance)
        for t in range(1, 31)
    ]
    seen = tv > 1e-9
    assert np.all(np.array(bounds)[seen] <= 5.0 * tv[seen])


def test_num_steps_is_the_smallest():
    rng = np.random.default_rng(1)
    for _ in range(2_000):
        gamma = 10.0 ** rng.uniform(-300.0, -0.01)
        step, bound = 10.0 ** rng.uniform(-6, 3), 10.0 ** rng.uniform(-2, 6)
        args = {"step": step, "start_bound": bound}
        steps = alternation.num_steps(gamma, **args)
        assert alternation.tv_bound(steps, **args) <= gamma * (1.0 + 1e-9)
        if steps > 1:
            assert alternation.tv_bound(steps - 1, **args) > gamma * (1.0 - 1e-9)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": 1.0}, "gamma"),
        ({"gamma": np.nan}, "gamma"),
        ({"step": 0.0}, "step"),
        ({"step": np.inf}, "step"),
        ({"start_bound": -1.0}, "start_bound"),
        ({"start_bound": np.nan}, "start_bound"),
    ],
)
def test_arguments_without_a_meaning_are_refused(arguments, name):
    given = {"gamma": 0.1, "step": 1.0, "start_bound": 1.0} | arguments
    with pytest.raises(ValueError, match=f"^{name} must be"):
        alternation.num_steps(given.pop("gamma"), **given)


def quadratic(domain, dim, rng, *, is_tight):
    """Random strongly convex quadratic with a known minimizer on the domain.

    The minimizer is a point x* of the domain, the gradient there minus a vector of its
    normal cone: the optimality condition holds by construction.
    """
    root = rng.normal(size=(dim, dim))
    precision = root @ root.T + 0.1 * np.eye(dim)
    more = rng.normal(size=(dim, dim))
    hessian = precision if is_tight else precision + more @ more.T
    far = bodies.far_points(domain, dim, rng, 1)[0]
    best = domain.project(far)
    pull = rng.choice([0.1, 1.0, 20.0]) * (best - far)

    def gradient(x):
        return pull + hessian @ (x - best)

    return precision, best, gradient


def distances(domain, dim, seed, *, is_tight):
    """True distances to the minimizer and their bounds, from many starts."""
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(3):
        precision, best, gradient = quadratic(domain, dim, rng, is_tight=is_tight)
        inverse = np.linalg.inv(precision)
        for x in bodies.inside_points(domain, dim, rng, 4):
            bound = alternation.distance_to_minimizer(
                domain, x, gradient(x), inverse, precision
            )
            pairs.append((np.sqrt((x - best) @ precision @ (x - best)), bound))
    return np.array(pairs).T


@one_in(4)
@pytest.mark.parametrize("pair", bodies.bounded(), ids=bodies.label)
def test_the_distance_bound_holds_on_every_domain(pair):
    for is_tight in (True, False):
        true, bound = distances(*pair, seed=2, is_tight=is_tight)
        assert np.all(bound >= true * (1.0 - 1e-7) - 1e-7)


@pytest.mark.parametrize("dim", [1, 4])
def test_the_distance_bound_on_the_whole_space_is_the_newton_step(dim):
    domain, rng = D.WholeSpace(), np.random.default_rng(3)
    for is_tight in (True, False):
        precision, best, gradient = quadratic(domain, dim, rng, is_tight=is_tight)
        inverse = np.linalg.inv(precision)
        for x in rng.normal(size=(20, dim)):
            bound = alternation.distance_to_minimizer(
                domain, x, gradient(x), inverse, precision
            )
            true = np.sqrt((x - best) @ precision @ (x - best))
            assert bound >= true * (1.0 - 1e-9)
            if is_tight:
                assert bound == pytest.approx(true, rel=1e-9)


def test_a_quarter_of_the_distance_bound_is_refuted():
    pairs = [
        distances(domain, dim, seed=2, is_tight=True)
        for domain, dim in bodies.bounded()[:12]
    ]
    true, bound = np.hstack(pairs)
    assert np.any(0.25 * bound < true)
