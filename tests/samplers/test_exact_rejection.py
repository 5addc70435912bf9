"""Interior rejection decides as 80 digits do; what rounding may cost is charged."""

import os
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

import dpsample as dps
from dpsample.problem import sources
from dpsample.samplers.localized import exact_rejection
from dpsample.samplers.localized.columns import map_columns
from dpsample.samplers.localized.exact_rejection import (
    FLOAT_SHARE,
    ExactRejection,
    floating_bound,
)
from dpsample.samplers.localized.prepared import Localization
from dpsample.samplers.localized.region import slack_share
from dpsample.targets.grid import PublicGrid
from tests.support.exact_energies import HOSTILE, REAL, Hostile
from tests.support.planes import PLANE
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected
from tests.support.tiers import one_in, usual

L, D = dps.losses, dps.domains
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
# Part of the share for floating-point errors that the bound of usual problems may use.
MAX_BOUND_SHARE = 0.8


def high_and_low(value):
    """An exact number as two doubles, to 2^-106 of it."""
    high = float(value)
    return high, float(value - REAL.mpf(high))


# The excess and the bound of its error.


@one_in(4, 1)
@pytest.mark.parametrize("name", HOSTILE)
def test_the_error_is_below_its_bound(name):
    case = HOSTILE[name]
    tries = case.tries(6)
    found, bound = case.excess(tries)
    true = [case.true_excess(tries, i) for i in range(6)]
    errors = np.array([abs(float(REAL.mpf(found[i]) - true[i])) for i in range(6)])
    print(f"{name}: error {errors.max():.1e}, bound {bound.max():.1e}", end=" ")
    print(f"= {bound.max() / errors.max():.0e} times, excess {float(max(true)):.2g}")
    assert (errors <= bound).all()


def chunked(monkeypatch, name):
    """A hostile case whose dense records are many chunks, of blocks of a few."""
    monkeypatch.setattr(sources, "CHUNK_NUMBERS", 1)
    monkeypatch.setattr(sources, "block_size", lambda dim: 7)
    return replace(HOSTILE[name], num_distinct=101)


DENSE = [name for name, case in HOSTILE.items() if not case.is_sparse]


@one_in(12)
@pytest.mark.parametrize("name", DENSE)
def test_sums_over_chunks_stay_within_the_same_bounds(name, monkeypatch):
    """Excess, slope and Gram matrix, whose errors the certificate charges."""
    case = replace(chunked(monkeypatch, name), copies=1)
    exact, storage = case.exact, case.target.storage
    assert storage.chunk == 7
    tries = case.tries(4)
    found, bound = case.excess(tries)
    true = [case.true_excess(tries, i) for i in range(4)]
    errors = [abs(float(REAL.mpf(f) - t)) for f, t in zip(found, true, strict=True)]
    assert (np.array(errors) <= bound).all()
    here = REAL.mpf(str(exact.exact_excess(tries, 0)))
    assert abs(here - true[0]) < 1e-35
    # The Gram matrix of the mode, against 80 digits with the same weights.
    mode = exact.prepared.mode
    weights = np.concatenate(list(map_columns(case.target, mode, weights_of)))
    rows, gram = case.records[0], np.empty((case.dim, case.dim))
    for i, j in np.ndindex(gram.shape):
        terms = (
            REAL.mpf(w) * REAL.mpf(a) * REAL.mpf(b)
            for w, a, b in zip(weights, rows[:, i], rows[:, j], strict=True)
        )
        wanted = REAL.mpf(case.k) * REAL.fsum(terms) / len(rows)
        gram[i, j] = abs(float(REAL.mpf(mode.gram[i, j]) - wanted))
    charged = slack_share(case.target) * float(np.trace(mode.gram))
    assert np.linalg.norm(gram) <= 1e-3 * charged


def weights_of(part):
    return part.mode_weights


@one_in(12)
@pytest.mark.parametrize("name", HOSTILE)
def test_decimals_have_their_digits(name):
    case = replace(HOSTILE[name], copies=1)
    tries = case.tries(2)
    for i in range(2):
        found = REAL.mpf(str(case.exact.exact_excess(tries, i)))
        assert abs(found - case.true_excess(tries, i)) < 1e-35


def test_sums_have_their_digits_in_another_process_too():
    """Where decimals have 28 of them, as here outside of the context."""
    one, tiny = (Decimal(1),), (Decimal("1e-40"),)
    with exact_rejection.decimals(80):
        wanted = one[0] + tiny[0]
    assert exact_rejection._add(80, one, tiny) == (wanted,) != one


def edge(case, count=200):
    """Candidates near the border of the region, where the envelope is closest."""
    tries, region = case.tries(count), case.exact.prepared.region
    sizes = [
        np.linalg.norm(tries.vectors @ each.root, axis=1) / each.radius
        for each in region.ellipsoids
    ]
    reach = 1.0 / np.max(sizes, axis=0)
    # z of the vectors, scaled so that x0 + v stays on its ray.
    vectors = (0.999 * reach)[:, None] * tries.vectors
    noise = np.linalg.solve(case.exact.root, (vectors - case.exact.shift).T).T
    made = tries._replace(noise=noise, noise_low=0.0 * noise, vectors=vectors)
    prepared = case.exact.prepared
    return made.part(prepared.is_inside(prepared.to_points(vectors)))


@one_in(8)
@pytest.mark.parametrize("name", HOSTILE)
def test_the_excess_is_not_negative(name):
    case = HOSTILE[name]
    if case.num_distinct * case.copies > 1_000:
        return
    for tries in (case.tries(20), edge(case, 20)):
        true = [case.true_excess(tries, i) for i in range(len(tries.threshold))]
        assert min(true, default=1.0) > 0.0


def test_an_excess_without_growth_and_lift_is_negative_somewhere():
    """Of the squared loss the envelope is the energy: rounding decides the sign."""
    case = HOSTILE["squared, offsets"]
    tries = case.tries(20)
    pay = case.exact._excess_offset(tries.noise)
    slack = case.exact.prepared.region.slack
    pay += 0.5 * slack * np.square(tries.vectors).sum(axis=1)
    rest = [case.true_excess(tries, i) - REAL.mpf(pay[i]) for i in range(20)]
    assert min(rest) < 0.0 < max(rest)


# Decisions.


def decisions(case, tries):
    found, _ = case.exact.decide(tries)
    true = [
        REAL.mpf(hi) + REAL.mpf(lo) >= case.true_excess(tries, i)
        for i, (hi, lo) in enumerate(
            zip(tries.threshold, tries.threshold_low, strict=True)
        )
    ]
    return found, np.array(true)


def hostile_budgets(case, tries, gap):
    """Budgets that differ from the excess by so little, on both sides."""
    pairs = [
        high_and_low(case.true_excess(tries, i) + (-1) ** i * REAL.mpf(gap))
        for i in range(len(tries.threshold))
    ]
    high, low = np.array(pairs).T
    return tries._replace(threshold=high, threshold_low=low)


@usual("1e-20-cold")
@pytest.mark.parametrize("name", ["plain", "many", "separable", "huber", "cold"])
@pytest.mark.parametrize("gap", [1e-20, 1e-12])
def test_budgets_next_to_the_excess_are_decided_as_by_80_digits(name, gap):
    case = HOSTILE[name]
    small = replace(case, copies=1) if case.copies > 1 else case
    tries = hostile_budgets(small, small.tries(8), gap)
    found, true = decisions(small, tries)
    np.testing.assert_array_equal(found, true)
    assert 0 < true.sum() < 8


def test_low_parts_of_budgets_count_where_errors_are_small():
    """They are up to 2^-44, whatever the budget: more than a small sum's error."""
    case = Hostile(num_distinct=20, dim=1, k=3.0, mu=0.05)
    tries, exact = case.tries(200), case.exact
    tries = tries.part(exact.tolerance(tries) < 2.0**-44)
    below = [
        REAL.mpf(exact.exact_excess(tries, i)) for i in range(len(tries.threshold))
    ]
    high = np.array([float(REAL.floor(each * 2**44)) for each in below]) * 2.0**-44
    low = np.array([float(g - REAL.mpf(h)) for g, h in zip(below, high, strict=True)])
    low += 0.01 * (2.0**-44 - low)  # above the excess, by the low part alone
    tries = tries._replace(threshold=high, threshold_low=low)
    found, true = decisions(case, tries)
    assert found.all() and true.all() and len(found) > 3


def test_decisions_by_doubles_alone_are_caught(monkeypatch):
    case = HOSTILE["plain"]
    tries = hostile_budgets(case, case.tries(40), 1e-20)
    monkeypatch.setattr(
        ExactRejection, "tolerance", lambda self, tries: np.zeros(len(tries.threshold))
    )
    found, true = decisions(case, tries)
    assert (found != true).any()


def agreeing(case, count):
    """Decisions and released points of tries, and those by mpmath on the same words."""
    tries, grid = case.tries(count), PublicGrid.for_target(case.target)
    found, true = decisions(case, tries)
    same = np.array_equal(found, true)
    for i in range(count):
        _, point = case.point(tries, i)
        cells = np.array([int(REAL.nint(x / REAL.mpf(grid.step))) for x in point])
        nearest = grid._nearest(case.exact.point(tries, i))
        same &= np.array_equal(nearest, grid.step * cells)
    return same, int(true.sum())


def test_decisions_and_answers_are_those_of_80_digits():
    same, accepted = agreeing(Hostile(num_distinct=40, k=30.0), 200)
    assert same and 20 < accepted < 200


@pytest.mark.slow
def test_ten_thousand_decisions_and_answers_are_those_of_80_digits():
    same, accepted = agreeing(Hostile(num_distinct=40, k=30.0), 10_000)
    assert same and 1_000 < accepted < 10_000


@pytest.mark.slow
def test_energies_that_are_subtracted_lose_what_the_excess_keeps():
    """A million records: the difference of two energies is off by more than its pay."""
    case = Hostile(copies=10_000, k=9e6, mu=1e-3)
    tries, target = case.tries(3), case.target
    found, bound = case.excess(tries)
    base = case.exact.prepared.mode.point
    worst_before = worst = 0.0
    for i in range(3):
        true = case.true_excess(tries, i)
        worst = max(worst, abs(float(REAL.mpf(found[i]) - true)))
        point = case.exact.prepared.to_points(tries.vectors[i])
        square = float(np.sum(tries.noise[i] ** 2))
        before = target.energy(point) - target.energy(base)
        before += case.exact.height - 0.5 * square
        worst_before = max(worst_before, abs(float(REAL.mpf(before) - true)))
    print(f"subtracted {worst_before:.1e}, excess {worst:.1e}, bound {bound.max():.1e}")
    assert worst < bound.max() < 1e-5
    # A cap of 1e-3 gamma, for gamma = 2.7e-8.
    assert worst_before > 2.7e-11


# The domain.


@pytest.mark.parametrize(
    "domain",
    [
        D.Ball(8.0, p=1.0),
        D.Ball(8.0),
        D.Ball(8.0, p=np.inf),
        D.Box(-8.0, 8.0),
        D.Polytope(np.vstack([np.eye(3), -np.eye(3)]), np.full(6, 8.0)),
    ],
    ids=lambda domain: f"{domain.name} {getattr(domain, 'p', '')}",
)
def test_the_border_is_decided_to_all_digits(domain):
    exact = Hostile(domain=domain, mu=0.1).exact
    for axis in range(3):
        for sign in (-1, 1):
            for beyond in (-1, 0, 1):
                point = [Decimal(0)] * 3
                with exact.decimals():
                    point[axis] = sign * (Decimal(8) + beyond * Decimal("1e-40"))
                assert exact.contains(point) == (beyond <= 0)


def test_no_point_inside_is_refused_by_doubles():
    """Candidates within a rounding error of the sphere, on both sides of it."""
    case = Hostile(domain=D.Ball(0.9), k=30.0, mu=1.0)
    exact = case.exact
    tries = case.tries(200)
    points = exact.prepared.to_points(tries.vectors)
    points *= (0.9 * (1.0 + 1e-15)) / np.linalg.norm(points, axis=1)[:, None]
    inner = np.zeros(3)
    kept = exact.prepared.is_inside(inner + exact_rejection.INWARD * points)
    assert kept.all() and not exact.prepared.is_inside(points).all()


# Laws.

CASES = ["logistic", "logistic, cold", "huber on a ball", "smoothed hinge"]


def exact_of(name):
    found = ExactRejection.from_prepared(PLANE[name].prepared())
    assert found is not None
    return found


def accepted_by(exact, count=12_000):
    rng, points = np.random.default_rng(4), []
    while sum(map(len, points)) < count:
        tries = exact.draw_candidates(rng, 1_000)
        found, _ = exact.decide(tries)
        points.append(exact.prepared.to_points(tries.vectors[found]))
    points = np.concatenate(points)
    return points[exact.prepared.is_inside(points)]


@usual("logistic, cold", "huber on a ball")
@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_law_of_the_quadrature(name):
    assert law_margin(PLANE[name], accepted_by(exact_of(name))) < 1.0


@pytest.mark.slow
def test_single_draws_have_the_same_law():
    rng, exact = np.random.default_rng(5), exact_of("huber on a ball")
    points = [np.array(exact.draw(rng)[0], dtype=np.float64) for _ in range(2_000)]
    assert law_margin(PLANE["huber on a ball"], np.array(points)) < 1.0


def test_a_proposal_that_is_wider_than_its_excess_says_is_caught():
    exact = exact_of("logistic")
    wrong = replace(exact, root=1.1 * exact.root)
    assert_rejected(law_margin(PLANE["logistic"], accepted_by(wrong)))


def test_budgets_that_are_too_small_are_caught(monkeypatch):
    exact = exact_of("smoothed hinge")
    plain = exact_rejection.draw_variates

    def smaller(rng, size, dim):
        *noise, high, low = plain(rng, size, dim)
        return *noise, 0.3 * high, 0.3 * low

    monkeypatch.setattr(exact_rejection, "draw_variates", smaller)
    assert_rejected(law_margin(PLANE["smoothed hinge"], accepted_by(exact)))


# What is charged.


def logistic_facts(num_records, dim, radius):
    return dps.Problem(
        np.zeros((num_records, dim)),
        np.ones(num_records),
        loss=L.Logistic(),
        domain=D.Ball(radius),
        row_bound=1.0,
    )


@one_in(3)
@pytest.mark.parametrize(
    ("num_records", "dim", "radius"),
    [(10_000, 20, 1.0), (1_000_000, 20, 3.0), (32_561, 123, 3.0)],
)
def test_floating_point_costs_less_than_its_share(num_records, dim, radius):
    problem = logistic_facts(num_records, dim, radius)
    made = dps.calibrate(problem, BUDGET, sampler_share=0.1)
    target = made.target(problem)
    bound = floating_bound(target, PublicGrid.for_target(target), made.gamma)
    print(f"floating {bound:.1e} of gamma {made.gamma:.1e}")
    assert bound < 1e-7 * made.gamma < MAX_BOUND_SHARE * FLOAT_SHARE * made.gamma
    assert (made.gamma * (1.0 - FLOAT_SHARE)) * (1.0 + 1e-4) + bound <= made.gamma


@pytest.mark.parametrize(
    ("loss", "domain"),
    [
        (L.Hinge(), D.Ball(1.0)),
        (L.Logistic(), D.Ball(1.0, p=3.0)),
        (L.Logistic(), D.Simplex()),
        (L.Logistic(), D.SchattenBall(1.0, p=1.0, shape=(1, 3))),
        (L.PowerFour(), D.WholeSpace()),
    ],
)
def test_what_has_no_proof_is_not_charged(loss, domain):
    case = Hostile(loss=loss, domain=D.Ball(1.0))
    rows, response, _ = case.records
    options = {"row_norm": 2.0} if isinstance(domain, D.SchattenBall) else {}
    problem = dps.Problem(
        rows,
        response,
        loss=loss,
        domain=domain,
        row_bound=2.0,
        response_bound=2.0,
        **options,
    )
    target = dps.Gibbs(problem, k=100.0, mu=0.1)
    assert (
        floating_bound(target, PublicGrid.for_target(target), 1e-8)
        > MAX_BOUND_SHARE * FLOAT_SHARE * 1e-8
    )


class Shifted(L.Logistic):
    """Somebody's own scalar, whose digits we do not know."""

    @staticmethod
    def _scalar(params, u, y):
        return 0.5 * (u - y) ** 2, u - y


def test_a_loss_of_another_scalar_has_no_digits():
    assert L.Logistic().has_digits and L.Huber(0.1).has_digits
    assert not L.Hinge().has_digits and not Shifted().has_digits
    own = L.custom(lambda u, y: 0.5 * u * u, lambda u, y: u, slope_bound=1e3)
    assert not own.has_digits


def test_ill_conditioned_places_claim_nothing():
    case = Hostile(spread=1e-7, mu=1e-13, k=1e6, domain=D.Ball(1e6))
    place = Localization.find(case.target, case.gamma)
    assert (
        place is None
        or ExactRejection.from_prepared(place.prepare(np.random.default_rng(0))) is None
    )


@pytest.mark.data
@pytest.mark.parametrize("radius", [3.0, 10.0])
def test_a9a_is_charged(radius):
    data = dps.datasets.load("a9a", os.environ["DPSAMPLE_DATA"])
    problem = dps.Problem(
        data.features,
        data.response,
        loss=L.Logistic(),
        domain=D.Ball(radius),
        row_bound=data.row_bound,
    )
    made = dps.calibrate(problem, BUDGET, sampler_share=0.1)
    target = made.target(problem)
    bound = floating_bound(target, PublicGrid.for_target(target), made.gamma)
    assert bound <= MAX_BOUND_SHARE * FLOAT_SHARE * made.gamma
    place = Localization.find(target, made.gamma)
    exact = ExactRejection.from_prepared(place.prepare(np.random.default_rng(0)))
    if place.mode.multiplier > 0.0:
        assert exact is None
        return
    tries = exact.draw_candidates(np.random.default_rng(1), 40)
    rows = slice(2)
    budgets = np.full(2, np.inf)
    found, _ = exact.prepared.evaluate_excess(
        tries.vectors[rows], budgets, is_checked=False
    )
    found += exact._excess_offset(tries.noise[rows])
    bound = exact.tolerance(tries.part(rows)._replace(threshold=found))
    for i in range(2):
        true = exact.exact_excess(tries, i)
        error = abs(float(Decimal(found[i]) - true))
        print(f"a9a, R = {radius:g}: error {error:.1e}, bound {bound[i]:.1e}")
        assert error <= bound[i]
