"""Exact privacy curves in dimension 1 and 2, and what they say of Theorem 2."""

import numpy as np
import pytest
from scipy.special import erf

import dpsample as dps
from dpsample import domains, losses
from dpsample.audits import exact_curve, neighbors
from dpsample.privacy import gaussian_delta
from tests.support.quadrature import grid, privacy_curve
from tests.support.statistics import spend
from tests.support.tiers import one_in

BALL = domains.Ball(1.0)
EPSILONS = np.array([0.0, 0.25, 0.5, 1.0])


def facts_of(loss, domain, dim, *, row_norm=2.0, num_records=40):
    return dps.PublicFacts(
        num_records=num_records,
        dim=dim,
        loss=loss,
        domain=domain,
        row_bound=1.0,
        row_norm=row_norm,
        response_bound=1.0,
    )


def mechanism_and_curve(
    facts, pair, relation="replace_one", *, num_panels=12, **options
):
    budget = dps.Budget(epsilon=1.0, delta=1e-3, relation=relation)
    mech = dps.calibrate(facts, budget, **options)
    targets = [mech.target(data) for data in pair]
    return mech, exact_curve(*targets, EPSILONS, num_panels=num_panels)


def bound_of(mech):
    return np.array([gaussian_delta(float(e), mech.gdp) for e in EPSILONS])


@pytest.mark.parametrize(("dim", "accuracy"), [(1, 1e-5), (2, 2e-3)])
def test_gaussian_pairs_have_the_gaussian_curve(dim, accuracy):
    facts = facts_of(losses.Linear(), domains.WholeSpace(), dim)
    mech, curve = mechanism_and_curve(
        facts, neighbors.worst_case(facts), strong_convexity=0.1, num_panels=24
    )
    assert curve.delta == pytest.approx(bound_of(mech), rel=accuracy)
    assert np.all(np.abs(curve.delta - bound_of(mech)) <= 2 * curve.error + 1e-12)


@pytest.mark.slow
def test_both_directions_agree_with_a_plain_grid():
    facts = facts_of(losses.Hinge(), domains.Ball(1.0), 1)
    pair = neighbors.copies(facts)
    mech, curve = mechanism_and_curve(facts, pair)
    x, weights = grid(-1.0, 1.0, size=1001)
    logs = [-np.array([mech.target(d).energy([t]) for t in x]) for d in pair]
    reference = privacy_curve(*logs, weights, EPSILONS)
    assert curve.delta == pytest.approx(reference, abs=1e-4)
    assert not np.allclose(curve.forward, curve.backward, rtol=0.1)


def test_a_disk_agrees_with_the_law_of_its_first_coordinate():
    facts = facts_of(losses.Linear(), domains.Ball(1.0), 2)
    pair = neighbors.opposite(facts)
    mech, curve = mechanism_and_curve(facts, pair, num_panels=24)
    x, weights = grid(-1.0, 1.0)
    strength = mech.k * mech.mu
    half = np.log(erf(np.sqrt(strength * (1.0 - x**2) / 2.0)))
    shift = 1.0 / (40 * mech.mu)
    logs = (-0.5 * strength * (x - s * shift) ** 2 + half for s in (1.0, -1.0))
    reference = privacy_curve(*logs, weights, EPSILONS)
    assert curve.delta == pytest.approx(reference, rel=1e-4)


@one_in(5)
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize(
    "make",
    [
        neighbors.opposite,
        neighbors.copies,
        neighbors.at_kink,
        neighbors.zero_out,
    ],
)
@pytest.mark.parametrize(
    "loss", [losses.Linear(), losses.Hinge(), losses.Absolute()], ids=lambda v: v.name
)
def test_mechanisms_stay_below_the_curve_of_theorem_2(loss, make, dim):
    relation = "zero_out" if make is neighbors.zero_out else "replace_one"
    facts = facts_of(loss, domains.Box(-1.0, 2.0) if dim == 1 else BALL, dim)
    mech, curve = mechanism_and_curve(facts, make(facts), relation)
    assert np.all(curve.delta <= bound_of(mech) + 2.0 * curve.error)


@one_in(3, 1)
@pytest.mark.parametrize(
    ("domain", "dim", "p", "row_norm"),
    [
        (domains.Simplex(), 3, 1.0, np.inf),
        (domains.Simplex(), 2, 1.0, np.inf),
        (domains.Ball(1.0, p=1.0), 2, 1.0, np.inf),
        (domains.Ball(1.0, p=1.5), 2, 1.5, 3.0),
        (domains.Box(-1.0, 1.0), 2, np.inf, 1.0),
        (
            domains.Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 1.0, 1.0]),
            2,
            2.0,
            2.0,
        ),
    ],
    ids=["simplex 3", "simplex 2", "l1 ball", "l1.5 ball", "box", "polytope"],
)
def test_other_norms_and_domains_stay_below_the_curve_too(domain, dim, p, row_norm):
    facts = facts_of(losses.Linear(), domain, dim, row_norm=row_norm)
    for make in (neighbors.opposite, neighbors.copies):
        mech, curve = mechanism_and_curve(facts, make(facts), p=p)
        assert np.all(curve.delta <= bound_of(mech) + 2.0 * curve.error)


def test_printed_constants_exceed_their_claim_in_the_plane():
    facts = facts_of(losses.Linear(), domains.Ball(1.0), 2, num_records=1000)
    pair = neighbors.worst_case(facts)
    _, printed = mechanism_and_curve(facts, pair, calibration="paper")
    _, exact = mechanism_and_curve(facts, pair)
    assert exact.delta[-1] == pytest.approx(1e-3, rel=5e-3)
    # Nearly the Gaussian curve at twice the printed distance (GLLST-E1).
    assert printed.delta[-1] == pytest.approx(0.0142, rel=5e-3)


@one_in(2)
@pytest.mark.parametrize(
    "loss", [losses.Linear(), losses.Hinge()], ids=lambda v: v.name
)
def test_audits_agree_with_the_exact_curve_and_stay_below_it(loss):
    facts = facts_of(loss, domains.Ball(1.0), 2)
    pair = neighbors.opposite(facts)
    budget = dps.Budget(epsilon=1.0, delta=1e-3)
    mech = dps.calibrate(facts, budget)
    report = dps.audit(
        mech, *pair, budget, num_draws=200_000, seed=5, alpha=spend(), progress=False
    )
    found = report.curve
    exact = exact_curve(*(mech.target(data) for data in pair), found.epsilons)
    assert np.all(found.delta_lower <= exact.delta)
    assert found.delta_lower[0] > 0.8 * exact.delta[0]
    seen = exact.delta > 3e-3
    assert seen.sum() >= 4
    assert found.delta_estimate[seen] == pytest.approx(exact.delta[seen], rel=0.06)


def test_finer_grids_change_the_curve_less():
    facts = facts_of(losses.Absolute(), domains.Ball(1.0), 2)
    targets = [
        dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-3)).target(data)
        for data in neighbors.at_kink(facts)
    ]
    coarse, fine = (exact_curve(*targets, EPSILONS, num_panels=n) for n in (8, 32))
    assert fine.error.max() < 0.2 * coarse.error.max()
    assert np.all(np.abs(fine.delta - coarse.delta) <= 3.0 * coarse.error)


def test_targets_that_cannot_be_compared_are_refused():
    def target(dim=2, radius=1.0):
        facts = facts_of(losses.Linear(), domains.Ball(radius), dim)
        mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-3))
        return mech.target(neighbors.worst_case(facts)[0])

    with pytest.raises(ValueError, match="dimension 1 or 2, got dimension 3"):
        exact_curve(target(3), target(3), [1.0])
    with pytest.raises(ValueError, match="neighbor_target must be on the domain"):
        exact_curve(target(), target(radius=2.0), [1.0])
    with pytest.raises(ValueError, match="neighbor_target must be on the domain"):
        exact_curve(target(), target(1), [1.0])
    with pytest.raises(ValueError, match="target must be a Gibbs"):
        exact_curve(None, target(), [1.0])
    for epsilons in ([], [-1.0], [np.nan], [np.inf], [[1.0]]):
        with pytest.raises(ValueError, match="epsilons must be"):
            exact_curve(target(), target(), epsilons)
    for panels in (1, 2.5):
        with pytest.raises(ValueError, match="num_panels must be an integer >= 2"):
            exact_curve(target(), target(), [1.0], num_panels=panels)
