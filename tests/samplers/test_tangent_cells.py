"""Draws by tangents on cells: law, planted bugs, constants, and decisions by digits."""

from fractions import Fraction

import numpy as np
import pytest

import dpsample as dps
from dpsample.numerics.lazy_reals import BitStream, LazyReal, exponential
from dpsample.samplers.localized.exact_rejection import decimals
from dpsample.samplers.whole_body import tangent_cells, tangents
from dpsample.samplers.whole_body.tangent_cells import CellDecisions
from tests.support.exact_energies import HOSTILE, REAL, Hostile
from tests.support.global_cases import (
    CELL_CASES,
    D,
    L,
    assert_counts,
    many_draws,
    prepare_cells,
)
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in, usual


@usual("hinge, d = 1")
@pytest.mark.parametrize("name", CELL_CASES)
def test_draws_have_the_distribution_of_the_quadrature(name):
    case = CELL_CASES[name]
    points = many_draws(prepare_cells(case).decisions, 3, 4_000)
    assert case.inside(points).all()
    assert len(points) > 1_500
    assert_counts(case, points)


@usual("hinge, d = 1-normalizer")
@pytest.mark.parametrize("bug", ["no cell", "factor", "normalizer"])
@pytest.mark.parametrize("name", ["hinge, d = 1", "absolute, box"])
def test_planted_bugs_are_seen(name, bug):
    """A cell is missing, counts twice, or its density lacks a factor.

    A bound that is too high hardly changes counts, but has a negative excess below.
    """
    case = CELL_CASES[name]
    points = many_draws(prepare_cells(case, bug).decisions, 4, 6_000)
    with rejected():
        assert_counts(case, points)


def excesses(decisions, count):
    """G as computed, and bounds of its error, of proposals in K."""
    values = []
    for t in decisions.draw_proposals(BitStream(np.random.default_rng(5)), count):
        if not decisions._until_certain(t, decisions._in_body):
            continue
        point = np.array([[float(x) for x in decisions.point(t)]])
        energy = np.array([decisions.target.energy(point[0])])
        rise = energy - decisions.frame.base.value
        excess, error = decisions.excess_of_doubles([t], rise)
        error = error + 2.0 * decisions._energy_errors(point, energy, np.zeros(1))
        values.append((excess[0], error[0]))
    return np.array(values)


@one_in(3)
@pytest.mark.parametrize("name", CELL_CASES)
def test_no_excess_is_negative(name):
    excess, error = excesses(prepare_cells(CELL_CASES[name]).decisions, 400).T
    assert (excess >= -error).all()
    assert error.max() < 1e-9


def test_a_bound_that_is_too_steep_has_negative_excess():
    decisions = prepare_cells(CELL_CASES["hinge, d = 1"], "steep").decisions
    assert excesses(decisions, 400)[:, 0].min() < -1e-2


LINES = {
    "hinge": lambda u, y: max(1 - y * u, 0),
    "absolute": lambda u, y: abs(u - y),
    "quantile": lambda u, y, level: max(level * (y - u), (level - 1) * (y - u)),
}


class Kinked(Hostile):
    """Losses that are exact in fractions."""

    def energy(self, point):
        if self.loss.name not in LINES:
            return super().energy(point)
        params = [Fraction(float(each)) for each in self.loss.params]
        total = REAL.mpf(0)
        for row, y, b in zip(*self.records, strict=True):
            margin = REAL.fdot(map(float, row), point) + float(b)
            levels = [REAL.mpf(p.numerator) / p.denominator for p in params]
            total += LINES[self.loss.name](margin, REAL.mpf(float(y)), *levels)
        center = self.domain.default_center(self.dim)
        square = sum((x - float(c)) ** 2 for x, c in zip(point, center, strict=True))
        k, mu = REAL.mpf(self.k), REAL.mpf(self.mu)
        return k * total / self.num_distinct + k * mu * square / 2


SMALL = {
    name: case
    for name, case in HOSTILE.items()
    if case.target.num_records < 10_000
    and not tangent_cells.explain_unsupported_cells(
        case.target.problem.facts, case.target.regularizer
    )
} | {
    "hinge": Kinked(loss=L.Hinge()),
    "hinge, cold": Kinked(loss=L.Hinge(), k=1e10, num_distinct=60),
    "hinge, large rows": Kinked(
        loss=L.Hinge(), scale=1e6, domain=D.Ball(1e-4), mu=1e9, k=1e3
    ),
    "absolute, offsets": Kinked(loss=L.Absolute(), offset=0.3),
    "quantile, box": Kinked(loss=L.Quantile(0.9), domain=D.Box(-5.0, 5.0), dim=2),
    "hinge, far ball": Kinked(
        loss=L.Hinge(), domain=D.Ball(3.0, center=[1e4, -1e4, 0.0]), mu=1e-3
    ),
}


@one_in(4, 2)
@pytest.mark.parametrize("name", SMALL)
def test_errors_of_doubles_are_below_their_bounds(name):
    """Against 80 digits by other code, on hostile records."""
    case = SMALL[name]
    target = case.target
    decisions = (
        dps.samplers.TangentCells().prepare(target, np.random.default_rng(0)).decisions
    )
    frame, real = decisions.frame, REAL.mpf
    base = [real(float(x)) for x in frame.point]
    base_energy = case.energy(base)
    assert abs(real(frame.base.value) - base_energy) <= frame.base.value_error
    num_seen = 0
    for t in decisions.draw_proposals(BitStream(np.random.default_rng(6)), 30):
        if num_seen == 6 or not decisions._until_certain(t, decisions._in_body):
            continue
        num_seen += 1
        t.refine()
        exact = [real(x.numerator) / x.denominator for x in t.coordinates()]
        point = [
            x + REAL.fdot(map(float, row), exact)
            for x, row in zip(base, frame.root, strict=True)
        ]
        doubles = np.array([[float(z) for z in t.coordinates()]])
        points = frame.point + doubles @ frame.root.T
        errors = decisions._point_errors([t], doubles)
        pairs = zip(point, points[0].tolist(), strict=True)
        assert REAL.norm([x - y for x, y in pairs]) <= errors[0]
        true = case.energy(point) - base_energy
        energy = np.array([target.energy(points[0])])
        rise = energy - frame.base.value
        bound = decisions._energy_errors(points, energy, errors)[0]
        assert abs(real(float(rise[0])) - true) <= bound
        logs = REAL.log(t.cell.weight) + real(decisions.height)
        ends = t.cell.rates.tolist(), t.cell.lower.tolist(), t.cell.upper.tolist()
        for rate, low, high in zip(*ends, strict=True):
            width = real(high) - real(low)
            if rate == 0.0:
                logs -= REAL.log(width)
            else:
                logs += REAL.log(abs(rate)) - REAL.log(-REAL.expm1(-abs(rate) * width))
        steps = [real(s.numerator) / s.denominator for s in t.steps()]
        true += logs - sum(steps)
        excess, more = decisions.excess_of_doubles([t], rise)
        assert abs(real(float(excess[0])) - true) <= bound + more[0]
        digits = decisions.digits + tangent_cells.MORE_DIGITS
        with decimals(digits):
            exact_excess, error = decisions.excess(t, digits)
        assert abs(REAL.mpf(str(exact_excess)) - true) <= REAL.mpf(str(error)) + 1e-30
        # Theorem 2: no excess is negative.
        assert true >= 0
    assert num_seen > 0


@pytest.mark.parametrize("entry", [0.52, 0.7, 0.93])
def test_a_margin_that_rounds_to_the_kink_does_not_raise_the_bound(entry):
    """At x0 the margin is 1 - 5e-17, and 1 in doubles, where the hinge loss is 0."""
    center, k = 1.0 / entry, 2.0**30
    assert entry * center == 1.0 > Fraction(entry) * Fraction(center)
    problem = dps.Problem(
        [[entry]] * 2,
        [1.0, 1.0],
        row_bound=1.0,
        loss=L.Hinge(),
        domain=D.Ball(2.0**-20, center=[center]),
    )
    frame = tangents.new_frame(dps.Gibbs(problem, k=k, mu=0.0))
    base, root = Fraction(float(frame.point[0])), Fraction(float(frame.root[0, 0]))
    assert base == Fraction(center)

    def energy(x):
        return Fraction(k) * max(1 - Fraction(entry) * x, Fraction(0))

    assert abs(energy(base) - Fraction(frame.base.value)) <= frame.base.value_error
    for cell in tangents.find_cells(frame):
        rate, touch, corner = (
            Fraction(float(x[0])) for x in (cell.rates, cell.touch, cell.corner)
        )
        rise = energy(base + root * touch) - energy(base)
        assert cell.lowest <= rise - abs(rate) * abs(touch - corner)


@one_in(4, 1)
@pytest.mark.parametrize("name", CELL_CASES)
def test_digits_decide_as_doubles_do(name, monkeypatch):
    decisions = prepare_cells(CELL_CASES[name]).decisions
    block = decisions.draw_proposals(BitStream(np.random.default_rng(7)), 30)
    by_doubles = decisions.decide(block).is_accepted
    # With infinite bounds nothing is decided by doubles.
    for method in ("_energy_errors", "_point_errors"):
        monkeypatch.setattr(
            CellDecisions, method, lambda self, first, *_: np.full(len(first), np.inf)
        )
    assert (decisions.decide(block).is_accepted == by_doubles).all()


def test_released_cells_are_those_of_all_later_digits():
    decisions = prepare_cells(CELL_CASES["hinge, d = 1"]).decisions
    for t in decisions.draw_proposals(BitStream(np.random.default_rng(8)), 20):
        # The step is so small that 64 digits are not enough.
        cells = decisions.cell(t, 2.0**-70)
        t.refine()
        assert cells == [round(x * 2**70) for x in decisions.point(t)]
        assert t.num_refinements > 1


# Cells.


@pytest.mark.parametrize("name", ["hinge, ball", "quantile, polytope", "hinge, d = 3"])
def test_every_point_of_the_body_is_in_one_cell(name):
    case = CELL_CASES[name]
    frame = tangents.new_frame(case.target)
    cells = tangents.find_cells(frame)
    lower, upper = (np.array([c[i] for c in cells]) for i in (0, 1))
    rng, low, high = np.random.default_rng(10), *map(np.array, case.box)
    points = low + (high - low) * rng.random((3_000, case.dim))
    points = points[case.inside(points)]
    z = np.linalg.solve(frame.root, (points - frame.point).T).T[:, None]
    assert (((z >= lower) & (z <= upper)).all(axis=2).sum(axis=1) == 1).all()
    # Parts of a split share the cut, and no bit of their cell is lost.
    below, above = tangents.split(frame, cells[0])
    axis = int(np.flatnonzero(below.upper != cells[0].upper)[0])
    assert below.upper[axis] == above.lower[axis]
    assert (below.lower == cells[0].lower).all()
    assert (above.upper == cells[0].upper).all()


@pytest.mark.parametrize("name", CELL_CASES)
def test_cells_that_are_apart_have_no_point_of_the_body(name):
    case = CELL_CASES[name]
    frame = tangents.new_frame(case.target)
    lower, upper = tangents.first_box(frame)
    rng, num_apart = np.random.default_rng(11), 0
    lower, upper = 2.0 * lower - upper, 2.0 * upper - lower
    for _ in range(60):
        ends = np.sort(lower + (upper - lower) * rng.random((2, case.dim)), axis=0)
        box = frame.cell(ends[0], ends[1], np.zeros(case.dim), None)
        z = ends[0] + (ends[1] - ends[0]) * rng.random((200, case.dim))
        is_inside = case.inside(frame.point + z @ frame.root.T)
        is_apart = frame.is_apart(box)
        num_apart += is_apart
        assert not (is_apart and is_inside.any())
    assert num_apart > 0 or case.dim == 1


def test_inverses_are_exact():
    matrix = np.random.default_rng(12).standard_normal((3, 3))
    inverse = tangents.inverse_of(matrix)
    for i, row in enumerate(matrix.tolist()):
        products = [
            sum(Fraction(a) * column for a, column in zip(row, columns, strict=True))
            for columns in zip(*inverse, strict=True)
        ]
        assert products == [int(i == j) for j in range(3)]
    assert tangents.inverse_of(np.ones((2, 2))) is None


def test_the_remainder_of_an_exponential_is_an_exponential_that_is_cut_off():
    word, turn = BitStream(np.random.default_rng(13)), Fraction(7, 10)
    rests = []
    for _ in range(4_000):
        number = exponential(word)
        whole = tangent_cells.whole_turns(number, turn)
        rests.append(float(number.midpoint - whole * turn))
    rests = np.array(rests)
    assert (rests >= 0.0).all() and (rests <= 0.7).all()
    assert_law(rests, lambda s: np.expm1(-s) / np.expm1(-0.7))
    with rejected():  # the rest of a uniform number of the same mean
        assert_law(rests, lambda s: s / 0.7)
    # Between 7/8 and 1 the number of turns of 15/16 needs another digit.
    assert tangent_cells.whole_turns(LazyReal(7, 3, lambda: 0), Fraction(15, 16)) == 0


# What has no proof.


@pytest.mark.parametrize(
    ("dim", "loss", "domain", "p", "reason"),
    [
        (4, L.Hinge(), D.Ball(1.0), 2.0, "at most 3 coefficients"),
        (2, L.Hinge(), D.Ball(1.0, p=1.0), 2.0, "neither an l2 ball"),
        (2, L.Hinge(), D.WholeSpace(), 2.0, "unbounded"),
        (2, L.Absolute(), D.Ball(1.0), 1.5, "use p = 2"),
        (2, L.Squared(), D.Ball(1.0), 2.0, "slopes of the losses have no bound"),
    ],
)
def test_targets_without_a_proof_are_rejected(dim, loss, domain, p, reason):
    problem = dps.Problem(
        [[0.5] * dim],
        [1.0],
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=None if loss.is_classification else np.inf,
    )
    penalty = dps.regularizers.SquaredNorm(p)
    target = dps.Gibbs(problem, k=1.0, mu=1.0, regularizer=penalty)
    is_supported, reason_given = dps.samplers.TangentCells().supports(target)
    assert not is_supported
    assert reason in reason_given
