"""Constant-time draws: their law, the proof's bounds, and equal work on all records."""

import dataclasses
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers.proximal import alternation, fixed_passes
from dpsample.samplers.proximal import constant_time as timed
from tests.support.gibbs_cases import example
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected, spend
from tests.support.tiers import one_in, slow_but, usual

L, D = dps.losses, dps.domains
GAMMA = 1e-6
CASES = {
    "mode at the end of an interval": example(
        L.Logistic(), D.Ball(1.0, center=[3.0]), dim=1, num_records=4, mu=0.5
    ),
    "huber on the line": example(L.Huber(0.5), D.WholeSpace(), dim=1, k=10.0, mu=1.0),
    "logistic on a ball": example(L.Logistic(), D.Ball(1.0), mu=0.5),
    "logistic, mode on the circle": example(L.Logistic(), D.Ball(0.5), k=100.0, mu=0.5),
    "offset, ball off center": example(
        L.Logistic(),
        D.Ball(0.8, center=[0.5, -0.4]),
        k=40.0,
        mu=0.5,
        offset=[0.5, -1.0, 2.0, 0.0, 1.0, -0.3],
    ),
    "squared on a ball": example(L.Squared(), D.Ball(0.7), mu=1.0),
    "huber on the plane": example(L.Huber(0.5), D.WholeSpace(), k=10.0, mu=1.0),
}


def terms_of(problem, *, k, mu, gamma=GAMMA, **facts):
    """What a plan reads of a mechanism."""
    return SimpleNamespace(
        facts=dataclasses.replace(problem.facts, **facts),
        k=k,
        mu=mu,
        p=2.0,
        regularizer=dps.regularizers.SquaredNorm(2.0),
        gamma=gamma,
    )


def prepared(case):
    bound = math.ceil(4.0 * np.linalg.norm(case.rows, axis=1).max()) / 4.0
    facts = {"row_bound": bound, "response_bound": 1.0}
    terms = terms_of(case.target.problem, k=case.k, mu=case.mu, **facts)
    return case.target.problem, terms, timed.new_plan(terms)


def sample(case, count, seed=1):
    """Independent draws; every one of them is there."""
    problem, terms, plan = prepared(case)
    rng = np.random.default_rng(seed)
    draws = [fixed_passes.draw(problem, terms, plan, rng)[0] for _ in range(count)]
    return np.array(draws)


@pytest.mark.parametrize("name", slow_but(CASES, ["logistic, mode on the circle"]))
def test_draws_have_the_law_of_the_quadrature(name):
    draws = sample(CASES[name], 6000)
    assert CASES[name].inside(draws).all()
    assert law_margin(CASES[name], draws) < 1.0


BUGS = {
    "a heavier risk": lambda n: n._replace(weight=1.5 * n.weight),
    "noise of another step": lambda n: n._replace(noise=2.0 * n.noise),
    "a mean of another step": lambda n: n._replace(step=1.5 * n.step),
    "narrower tries": lambda n: n._replace(precision=1.5 * n.precision),
    "a smaller ball": lambda n: n._replace(radius=0.9 * n.radius),
}


@pytest.mark.parametrize("bug", slow_but(BUGS, ["narrower tries"]))
def test_planted_bugs_are_caught(bug, monkeypatch):
    right = fixed_passes._numbers
    monkeypatch.setattr(
        fixed_passes, "_numbers", lambda *given: BUGS[bug](right(*given))
    )
    case = CASES["logistic, mode on the circle"]
    assert_rejected(law_margin(case, sample(case, 3000)))


# The proof's bounds, by brute force.


def tries(mean, reach, count, rng):
    """Tries of the kernel about a ball of radius ``reach`` in units of 1/sqrt(a)."""
    dim = len(mean)
    numbers = fixed_passes.Numbers(
        True, 0.0, 0.0, 1.0, False, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, reach, 1, 1,
        np.zeros(dim),
    )  # fmt: skip
    vectors, out = np.zeros((len(fixed_passes.ROW), dim)), np.empty(dim)
    points, paid = np.empty((count, dim)), np.empty(count)
    masks = np.array([0, -1])
    for i in range(count):
        vectors[fixed_passes.ROW.mean], vectors[fixed_passes.ROW.noise] = (
            mean,
            rng.normal(size=dim),
        )
        spare = rng.standard_exponential()
        paid[i] = fixed_passes._propose(numbers, masks, vectors, spare, out)
        points[i] = out
    return points, paid


@one_in(12)
@pytest.mark.parametrize("dim", [1, 2, 20])
@pytest.mark.parametrize("reach", [3.0, 12.0, 70.0])
def test_tries_are_accepted_as_often_as_proved(dim, reach):
    rng = np.random.default_rng(2)
    axis = np.zeros(dim)
    axis[0] = 1.0
    log_term = math.log(200.0 / spend())
    beyonds = [-reach, -1.0, -timed.EDGE, 0.3 - timed.EDGE, 0.0, 1.0, 10.0, 1e3]
    for beyond in beyonds:
        points, paid = tries((reach + beyond) * axis, reach, 3000, rng)
        assert (paid >= 0.0).all()
        weight = np.exp(-paid) * (np.linalg.norm(points, axis=1) <= reach)
        nearest = min(reach + beyond, reach) * axis
        for s, error in ((0.3, 0.0), (1.5, 0.1), (1.5, 0.5)):
            proved = min(
                timed._inner_acceptance(s, reach, error, dim),
                timed._edge_acceptance(s, reach, error, dim),
            )
            for place in {0, dim - 1}:  # all curvature along the axis, or across
                for side in (-1.0, 1.0):
                    gaps = points[:, place] - nearest[place] - side * error
                    seen = weight * np.exp(-0.5 * s * gaps**2)
                    slack = math.sqrt(log_term / (2 * len(seen)))
                    assert seen.mean() + slack >= proved


def test_tries_have_the_law_of_the_gaussian_on_the_disk():
    rng = np.random.default_rng(3)
    z = math.sqrt(2.0 * math.log(12.0 / spend()))
    for beyond in (-0.3, 0.5, 5.0):
        mean = np.array([4.0 + beyond, 0.0])
        points, paid = tries(mean, 4.0, 20_000, rng)
        kept = rng.standard_exponential(len(paid)) >= paid
        points = points[kept & (np.linalg.norm(points, axis=1) <= 4.0)]
        grid = np.stack(np.meshgrid(*[np.linspace(-4, 4, 401)] * 2), -1).reshape(-1, 2)
        grid = grid[np.linalg.norm(grid, axis=1) <= 4.0]
        weights = np.exp(
            -0.5 * ((grid - mean) ** 2).sum(1) + 0.5 * max(beyond, 0.0) ** 2
        )
        for j in (0, 1):
            mean_j = weights @ grid[:, j] / weights.sum()
            spread = weights @ (grid[:, j] - mean_j) ** 2 / weights.sum()
            error = abs(points[:, j].mean() - mean_j)
            assert error <= z * math.sqrt(spread / len(points)) + 0.02 * spread**0.5


HOSTILE = {
    "rows at their bound, one label": lambda n, d: (np.eye(d)[np.zeros(n, int)], 1.0),
    "labels at odds": lambda n, d: (
        np.eye(d)[np.arange(n) % d],
        np.where(np.arange(n) % 2, 1.0, -1.0),
    ),
    "zeros": lambda n, d: (np.zeros((n, d)), 1.0),
    "one against all": lambda n, d: (
        np.vstack([-np.eye(d)[:1], np.eye(d)[np.zeros(n - 1, int)]]),
        1.0,
    ),
    "subnormal": lambda n, d: (np.full((n, d), 5e-324), -1.0),
}


def hostile(name, n=200, d=3, **options):
    rows, response = HOSTILE[name](n, d)
    given = {"loss": L.Logistic(), "domain": D.Ball(1.0), "row_bound": 1.0} | options
    return dps.Problem(rows, np.broadcast_to(response, n).copy(), **given)


@usual("domain1")
@pytest.mark.parametrize("domain", [D.Ball(0.3), D.Ball(5.0), D.WholeSpace()])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_accept_as_often_as_proved(name, domain):
    problem = hostile(name, domain=domain)
    terms = terms_of(problem, k=300.0, mu=0.05)
    plan, rng = timed.new_plan(terms), np.random.default_rng(4)
    proved = timed.acceptance(
        timed.PublicSizes.from_terms(terms), plan.step_size, plan.num_gradients
    )
    made = accepted = 0
    for _ in range(10):
        theta, state = fixed_passes.draw(problem, terms, plan, rng)
        assert theta is not None
        made += int(state.counts["num_proposals"][0])
        accepted += int(state.counts["num_accepted"][0])
    slack = math.sqrt(math.log(1.0 / spend()) / (2 * made))
    assert accepted / made + slack >= proved


def test_tangents_are_as_near_as_proved():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(50, 3))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    k, a, radius = 80.0, 12.0, 1.0
    s = 0.25 * k / a
    q, length = s / (s + 2.0), 2.0 / (a * (2.0 + s))

    def slope(w):
        return -k * rows.T @ (1.0 / (1.0 + np.exp(rows @ w))) / len(rows)

    def inside(w):
        return w * min(1.0, radius / np.linalg.norm(w))

    for _ in range(50):
        v, w = 3.0 * rng.normal(size=3), np.zeros(3)
        for j in range(1, 8):
            w = inside(w - length * (slope(w) + a * (w - v)))
            tangent = inside(v - slope(w) / a)
            error = (1.0 + s) * q**j * math.sqrt(a) * radius
            assert math.sqrt(a) * np.linalg.norm(tangent - w) <= error


def test_too_few_accepted_tries_are_as_rare_as_proved():
    from scipy.stats import binom

    for p in (0.05, 0.3, 0.9):
        for steps in (1, 2, 30, 400):
            for tries_made in (steps, int(1.5 * steps / p), int(4.0 * steps / p)):
                exact = binom.logcdf(steps - 1, tries_made, p)
                assert exact <= timed.log_bottom(p, steps, tries_made) + 1e-9


def test_a_plan_has_the_fewest_tries_and_proves_its_error():
    _, terms, plan = prepared(CASES["logistic on a ball"])
    sizes = timed.PublicSizes.from_terms(terms)
    assert all(value <= limit for _, value, limit in plan.check(terms))
    fewer = dataclasses.replace(plan, work=plan.work - 1)
    assert not all(value <= limit for _, value, limit in fewer.check(terms))
    shorter = dataclasses.replace(plan, num_steps=plan.num_steps - 1)
    assert not all(value <= limit for _, value, limit in shorter.check(terms))
    bound = alternation.tv_bound(
        plan.num_steps, step=plan.step_size, start_bound=sizes.start_bound
    )
    assert bound <= 0.9 * GAMMA
    assert timed.new_plan(terms, plan.work + 5).work == plan.work + 5
    with pytest.raises(ValueError, match=f"num_passes must be >= {plan.work} passes"):
        timed.new_plan(terms, plan.work - 1)


def test_a_draw_without_enough_accepted_tries_is_none():
    problem, terms, plan = prepared(CASES["logistic on a ball"])
    short = dataclasses.replace(plan, work=plan.num_steps * plan.num_gradients + 3)
    theta, state = fixed_passes.draw(problem, terms, short, np.random.default_rng(1))
    assert theta is None and state.counts["num_passes"][0] == short.work


# Equal work.


def neighbors(pair, n=40, d=3):
    """Two data sets that differ in one record, as far as records may."""
    rng = np.random.default_rng(pair)
    names = list(HOSTILE)
    rows, response = HOSTILE[names[pair % len(names)]](n, d)
    rows, response = rows.copy(), np.broadcast_to(response, n).copy()
    others = np.vstack(
        [np.eye(d), -np.eye(d), np.zeros((1, d)), np.full((1, d), 1e-320)]
    )
    changed, flipped = rows.copy(), response.copy()
    changed[pair % n] = others[rng.integers(len(others))]
    flipped[pair % n] *= -1.0
    given = {"loss": L.Logistic(), "domain": D.Ball(1.0), "row_bound": 1.0}
    return dps.Problem(rows, response, **given), dps.Problem(changed, flipped, **given)


def test_passes_and_words_are_equal_on_hostile_neighbors():
    known = neighbors(0)[0]
    terms = terms_of(known, k=100.0, mu=0.1)
    plan = timed.new_plan(terms)
    dim, n = known.dim, known.facts.num_records
    words = plan.work * (2 * ((dim + 1) // 2) + 2)
    for pair in range(50):
        for problem in neighbors(pair):
            bits = np.random.PCG64DXSM(pair)
            _, state = fixed_passes.draw(
                problem, terms, plan, np.random.Generator(bits)
            )
            assert state.counts["num_passes"][0] == plan.work
            assert state.counts["num_records"][0] == plan.work * n
            assert state.counts["num_words"][0] == words
            expected = np.random.PCG64DXSM(pair)
            expected.advance(words)
            assert bits.state == expected.state


def branches(function):
    """Conditions of a function's branches that follow from floats or from counts.

    Of comparisons of floats and integers loaded from memory, through integer
    operations, in the text of LLVM; arithmetic of floats gives no condition.
    """
    found = dict(re.findall(r"^\s+(%[-\w.\"]+) = (.*)$", function, re.MULTILINE))
    secret = {n for n, d in found.items() if d.startswith("fcmp")}
    secret |= {n for n, d in found.items() if d.startswith("load i64")}
    ends = re.compile(r"(fadd|fsub|fmul|fdiv|fneg|load|call|getelementptr) ")
    flows = {n: d for n, d in found.items() if not ends.match(d)}
    while True:
        more = {
            n
            for n, d in flows.items()
            if n not in secret and secret & set(re.findall(r"%[-\w.\"]+", d))
        }
        if not more:
            break
        secret |= more
    return [c for c in re.findall(r"br i1 (%[-\w.\"]+)", function) if c in secret]


@pytest.mark.slow
def test_compiled_passes_have_no_branches_on_numbers():
    import numba

    problem, terms, plan = prepared(CASES["logistic on a ball"])
    fresh = dps.core.jit.kernel(fixed_passes.advance.py_func, cached=False)
    numbers = fixed_passes._numbers(plan, timed.PublicSizes.from_terms(terms), terms)
    state = fixed_passes._state(numbers, 6)
    data, rng = problem.data, np.random.default_rng(1)
    fresh(numbers, data.dense, data.response, data.offset, state, rng, 3)
    assert not numba.config.DISABLE_JIT
    (text,) = fresh.inspect_llvm().values()
    seen = set()
    for function in re.split(r"\n(?=define )", text):
        name = re.match(
            r"define.*?@[\w.]*?(_losses|_advance|_propose|_add_rows)B", function
        )
        if name:
            seen.add(name[1])
            assert branches(function) == []
    assert {"_losses", "_advance"} <= seen
    told = "  %1 = fcmp olt double %a, %b\n  %2 = freeze i1 %1\n  br i1 %2, label %x"
    assert branches(told)
    assert branches("  %1 = load i64, ptr %a\n  %2 = icmp eq i64 %1, 0\n  br i1 %2, x")
