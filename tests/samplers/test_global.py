"""Draws on a whole body: law, planted bugs, constants, and decisions by digits."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest

import dpsample as dps
from dpsample.numerics.lazy_reals import BitStream
from dpsample.samplers.localized.exact_rejection import decimals
from dpsample.samplers.whole_body import branches, global_draws
from dpsample.samplers.whole_body import decisions as decisions_module
from dpsample.samplers.whole_body.body import ExactBody
from dpsample.samplers.whole_body.global_draws import PreparedGlobal
from tests.support.exact_energies import HOSTILE, REAL
from tests.support.global_cases import (
    CASES,
    D,
    L,
    assert_counts,
    many_draws,
    prepare,
)
from tests.support.statistics import rejected
from tests.support.tiers import one_in, usual


@usual("ball, d = 1", "box, mode on a side")
@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_distribution_of_the_quadrature(name):
    case = CASES[name]
    draws = dps.sample(
        case.target,
        sampler=dps.samplers.Global(),
        num_draws=750,
        seed=4,
        progress=False,
    )
    points = draws.posterior["theta"].values.reshape(-1, case.dim)
    assert case.inside(points).all()
    assert_counts(case, points)


@usual("ball-]", "ball-factor")
@pytest.mark.parametrize("bug", ["", "no outside", "factor", "determinant", "steep"])
@pytest.mark.parametrize("name", ["ball", "box"])
def test_small_ellipsoids_have_it_too_and_bugs_are_seen(name, bug):
    case = CASES[name]
    decisions = case.prepare(bug).decisions
    # A factor of 1.35 is seen in so many draws of both targets.
    points = many_draws(decisions, 11, 60_000 if bug == "factor" else 20_000)
    if not bug:
        outside = sum(b.weight for b in decisions.branches[1:])
        assert outside > decisions.branches[0].weight  # more than half of the proposals
        assert_counts(case, points)
        return
    with rejected():
        assert_counts(case, points)


def excesses(decisions, count):
    """G as computed, and bounds of its error, of proposals in shell and body."""
    word, values = BitStream(np.random.default_rng(5)), []
    for _ in range(count // 100):
        for t in decisions.draw_proposals(word, 100):
            if not (decisions._in_shell(t) and decisions._in_body(t)):
                continue
            numbers = decisions.numbers[decisions.branches.index(t.branch)]
            noise = np.array([[float(z) for z in t.numbers]])
            moves = t.branch.shift + noise @ t.branch.root.T
            limits = np.array([np.inf])
            terms, _ = numbers.terms.evaluate_excess(moves, limits, is_checked=False)
            excess = terms + decisions._offsets(numbers, moves, noise)
            arguments = numbers, moves, noise, np.zeros(1), excess
            values.append((excess[0], decisions._tolerance(*arguments)[0]))
    return np.array(values)


@one_in(6)
@pytest.mark.parametrize("name", CASES)
def test_no_excess_is_negative(name):
    for radius in (None, CASES[name].radius):
        excess, error = excesses(prepare(CASES[name], radius).decisions, 600).T
        assert (excess >= -error).all()
        assert error.max() < 1e-8


def test_a_bound_that_is_too_steep_has_negative_excess():
    excess, _ = excesses(CASES["ball"].prepare("steep").decisions, 600).T
    assert excess.min() < -1e-2


SUPPORTED = [
    name
    for name, case in HOSTILE.items()
    if not global_draws.explain_unsupported_facts(
        case.target.problem.facts, case.target.regularizer
    )
]


@one_in(8)
@pytest.mark.parametrize("name", SUPPORTED)
def test_errors_of_doubles_are_below_their_bounds(name):
    """Against 80 digits by other code, on hostile records."""
    case = HOSTILE[name]
    decisions = PreparedGlobal.from_target(case.target).decisions
    word, real = BitStream(np.random.default_rng(6)), REAL.mpf
    base = [real(float(x)) for x in decisions.shape.body.point]
    base_energy = case.energy(base)
    # Decimals of many records are slow.
    number = 6 if case.target.num_records < 10_000 else 1
    for t in decisions.draw_proposals(word, number):
        numbers = decisions.numbers[decisions.branches.index(t.branch)]
        noise = np.array([[float(z) for z in t.numbers]])
        moves = t.branch.shift + noise @ t.branch.root.T
        terms, _ = numbers.terms.evaluate_excess(
            moves, np.array([np.inf]), is_checked=False
        )
        values = terms + decisions._offsets(numbers, moves, noise)
        arguments = numbers, moves, noise, np.zeros(1), values
        bound = decisions._tolerance(*arguments)[0]
        t.refine()
        exact_noise = [real(z.numerator) / z.denominator for z in t.noise_midpoints()]
        point = [
            x + real(float(m)) + REAL.fdot(map(float, row), exact_noise)
            for x, m, row in zip(base, t.branch.shift, t.branch.root, strict=True)
        ]
        determinant = sum(REAL.log(float(a)) for a in np.diag(t.branch.root))
        true = case.energy(point) - base_energy
        true += REAL.log(t.branch.weight) - determinant + real(decisions.height)
        true -= sum(z * z for z in exact_noise) / 2
        assert abs(real(float(values[0])) - true) <= bound
        digits = decisions.digits + decisions_module.MORE_DIGITS
        with decimals(digits):
            excess, error = decisions.excess(t, digits)
        assert abs(REAL.mpf(str(excess)) - true) <= REAL.mpf(str(error)) + 1e-30
        move_error = decisions._move_errors(numbers, np.linalg.norm(noise, axis=1))
        triples = zip(point, base, moves[0].tolist(), strict=True)
        gaps = [abs(x - b - real(w)) for x, b, w in triples]
        assert REAL.norm(gaps) <= move_error[0]


@one_in(9)
@pytest.mark.parametrize("name", CASES)
def test_digits_decide_as_doubles_do(name, monkeypatch):
    decisions = CASES[name].prepare().decisions
    block = decisions.draw_proposals(BitStream(np.random.default_rng(7)), 30)
    by_doubles = decisions.decide(block).is_accepted
    # With infinite bounds nothing is decided by doubles.
    monkeypatch.setattr(
        decisions_module.Decisions,
        "_tolerance",
        lambda self, numbers, moves, *rest: np.full(len(moves), np.inf),
    )
    monkeypatch.setattr(
        decisions_module.Decisions,
        "_move_errors",
        lambda self, numbers, sizes: np.full(len(sizes), np.inf),
    )
    assert (decisions.decide(block).is_accepted == by_doubles).all()


def test_cells_are_those_of_all_later_digits():
    decisions = CASES["ball"].prepare().decisions
    rng = np.random.default_rng(8)
    for t in decisions.draw_proposals(BitStream(rng), 20):
        # The step is so small that 64 digits are not enough.
        cells = decisions.cell(t, 2.0**-70)
        t.refine()
        later = [round(x * 2**70) for x in decisions.point(t)]
        assert cells == later
        assert t.num_refinements > 1


@pytest.mark.slow
@pytest.mark.parametrize("left", ["no theta", "the ridge alone"])
def test_fallbacks_have_the_same_distribution(left, monkeypatch):
    if left == "no theta":
        monkeypatch.setattr(branches, "largest_multiple", lambda *_: 0.0)
    else:
        monkeypatch.setattr(branches, "_prove_all", lambda *_: None)
    case = CASES["ball"]
    decisions = PreparedGlobal.from_target(case.target).decisions
    assert len(decisions.branches) == 1
    assert_counts(case, many_draws(decisions, 12, 20_000))


@pytest.mark.slow
def test_any_point_may_be_x0(monkeypatch):
    monkeypatch.setattr(global_draws.modes, "find", lambda *_: None)
    case = CASES["ball"]
    decisions = PreparedGlobal.from_target(case.target).decisions
    assert_counts(case, many_draws(decisions, 13, 40_000))


# Constants.


def test_eigenvalues_are_proved_from_below():
    case = CASES["box"]
    shape = case.prepare().decisions.shape
    metric = shape.metric_root @ shape.metric_root.T
    theta = branches.largest_multiple(0.7 * metric, shape)
    assert 0.6999 < theta < 0.7
    assert (
        branches.largest_multiple(metric - 3.0 * np.eye(2) * metric[0, 0], shape) == 0
    )


def test_the_proved_minimum_is_below_the_form():
    rng = np.random.default_rng(9)
    root = rng.standard_normal((3, 3))
    matrix = root @ root.T + np.eye(3)
    form = branches.QuadraticBound(
        level=branches.Fraction(2), slope=rng.standard_normal(3), matrix=matrix
    )
    branch = branches.prove(form, (-1.0, np.inf), branches.Weights("none"))
    assert branch is not None
    true = 2.0 - 0.5 * form.slope @ np.linalg.solve(matrix, form.slope)
    assert true - 1e-6 < float(branch.lowest) <= true + 1e-12
    moves = branch.shift + rng.standard_normal((500, 3)) @ branch.root.T
    noise = np.linalg.solve(branch.root, (moves - branch.shift).T).T
    values = 2.0 + moves @ form.slope
    values += 0.5 * np.einsum("ij,jk,ik->i", moves, matrix, moves)
    values -= 0.5 * np.square(noise).sum(axis=1)
    assert (values >= float(branch.lowest) - 1e-12).all()
    # A root that is too narrow has no proof.
    assert branches.proved_minimum(form, branch.shift, 1.1 * branch.root) is not None
    assert branches.proved_minimum(form, branch.shift, 0.99 * branch.root) is None


def test_terms_of_the_boundary_only_lower_the_bound():
    for name in ("ball, mode on the sphere", "box, mode in a corner", "polytope"):
        case = CASES[name]
        shape = case.prepare().decisions.shape
        form = branches.subtract_boundary(shape, branches.Fraction(0), np.eye(2))
        rng, low, high = np.random.default_rng(10), *map(np.array, case.box)
        points = low + (high - low) * rng.random((4_000, 2))
        moves = points[case.inside(points)] - shape.body.point
        free = moves @ shape.facts.gradient + 0.5 * np.square(moves).sum(axis=1)
        walled = float(form.level) + moves @ form.slope
        walled += 0.5 * np.einsum("ij,jk,ik->i", moves, form.matrix, moves)
        assert (walled <= free).all()


@pytest.mark.parametrize("name", ["ball", "box", "polytope"])
def test_bodies_are_decided_exactly(name):
    case = CASES[name]
    body = ExactBody.from_domain(case.domain, np.zeros(2))
    rng, low, high = np.random.default_rng(11), *map(np.array, case.box)
    points = low + (high - low) * (1.4 * rng.random((500, 2)) - 0.2)
    sides = body.side_of(points, np.zeros(len(points)))
    exact = [
        body.decide([branches.Fraction(x) for x in p], branches.Fraction(0))
        for p in points.tolist()
    ]
    assert (np.array([1.0 if e else -1.0 for e in exact]) == sides)[sides != 0].all()
    assert (case.inside(points) == np.array(exact)).all()
    wide = branches.Fraction(10)
    assert body.decide([branches.Fraction(0)] * 2, wide) is None
    assert (np.linalg.norm(points[case.inside(points)], axis=1) <= body.reach).all()


# What has no proof.


@pytest.mark.parametrize(
    ("loss", "domain", "p", "reason"),
    [
        (L.Hinge(), D.Ball(1.0), 2.0, "bounded curvature"),
        (L.Logistic(), D.Ball(1.0, p=1.0), 2.0, "neither an l2 ball"),
        (L.Logistic(), D.Simplex(), 2.0, "neither an l2 ball"),
        (L.Logistic(), D.WholeSpace(), 2.0, "unbounded"),
        (L.Logistic(), D.Ball(1.0), 1.5, "use p = 2"),
    ],
)
def test_targets_without_a_proof_are_rejected(loss, domain, p, reason):
    problem = dps.Problem([[0.5, 0.5]], [1.0], loss=loss, domain=domain, row_bound=1.0)
    penalty = dps.regularizers.SquaredNorm(p)
    target = dps.Gibbs(problem, k=1.0, mu=1.0, regularizer=penalty)
    is_supported, reason_given = dps.samplers.Global().supports(target)
    assert not is_supported
    assert reason in reason_given


def test_the_energy_needs_a_weight():
    case = replace(CASES["ball"], mu=0.0)
    assert dps.samplers.Global().supports(case.target) == (
        False,
        "The energy needs mu > 0.",
    )


def test_weights_are_chosen_exactly():
    counts = np.zeros(3)
    word = BitStream(np.random.default_rng(14))
    for _ in range(3_000):
        counts[decisions_module.choose([1, 2, 3], word)] += 1
    assert abs(counts / 3_000 - np.array([1, 2, 3]) / 6).max() < 0.06
    assert mpmath.mpf(decisions_module.choose([7], word)) == 0
