"""``sampler="auto"``: one rule for each kind of target."""

import warnings

import numpy as np
import pytest

import dpsample as dps
from dpsample import samplers as S
from dpsample.samplers import choice
from dpsample.samplers.adaptive import warmup
from dpsample.samplers.choice import choose, independence_acceptance
from dpsample.samplers.gaussian_fit import fit
from tests.support.gibbs_targets import CASES
from tests.support.tiers import one_in, slow

D, L, R = dps.domains, dps.losses, dps.regularizers


def make(loss, domain, *, dim=5, num_records=600, k=200.0, mu=0.5, p=2.0, reg=None):
    data = dps.datasets.logistic(num_records, dim, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    regularizer = R.SquaredNorm(p) if reg is None else reg
    return dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)


HALVES = D.Polytope(np.vstack([np.eye(5), -np.eye(5)]), np.full(10, 0.4))
TARGETS = {
    "three dimensions": (make(L.Hinge(), D.Ball(1.0), dim=3), S.Exact),
    "simplex of dimension three": (make(L.Hinge(), D.Simplex(), dim=4), S.Exact),
    "linear on a ball": (make(L.Linear(), D.Ball(1.0)), S.Exact),
    "squared on the whole space": (make(L.Squared(), D.WholeSpace()), S.Exact),
    "squared on a polytope": (make(L.Squared(), HALVES), S.CoordinateHitAndRun),
    "linear on a simplex": (make(L.Linear(), D.Simplex()), S.CoordinateHitAndRun),
    "logistic, many records": (
        make(L.Logistic(), D.Ball(3.0), num_records=20_000, k=3_000.0),
        S.FactorizedMetropolis,
    ),
    "logistic, few records": (
        make(L.Logistic(), D.Ball(3.0), num_records=80, k=80.0),
        S.LaplaceIndependence,
    ),
    "mode near the sphere": (
        make(L.Logistic(), D.Ball(0.2), k=3_000.0, mu=0.01),
        S.Localized,
    ),
    "p = 1.5": (make(L.Logistic(), D.WholeSpace(), p=1.5), S.LaplaceIndependence),
    "p = 1.1, mostly regularizer": (
        make(L.Hinge(), D.WholeSpace(), p=1.1, dim=20, k=50.0, mu=5.0),
        S.WhitenedSlice,
    ),
    "hinge, as many coefficients as records": (
        make(L.Hinge(), D.WholeSpace(), dim=60, num_records=60, k=2e3, mu=1e-6),
        S.WhitenedSlice,
    ),
    "hinge": (make(L.Hinge(), D.Ball(3.0)), S.LaplaceIndependence),
    "hinge on a simplex": (
        make(L.Hinge(), D.Simplex(), dim=10, num_records=2_000, k=100.0, mu=0.1),
        S.BilliardHMC,
    ),
    "entropy, mass near the corners": (
        make(L.Logistic(), D.Simplex(), reg=R.Entropy(), dim=20, k=3.0),
        S.BilliardHMC,
    ),
    "absolute in a corner of an l_1 ball": (
        make(L.Absolute(), D.Ball(0.2, p=1.0), k=3_000.0, mu=0.01),
        S.BilliardHMC,
    ),
    "logistic, as many coefficients as records": (
        make(L.Logistic(), D.WholeSpace(), dim=60, num_records=60, k=60.0, mu=1e-4),
        S.BilliardHMC,
    ),
}


@one_in(12)
@pytest.mark.parametrize("name", TARGETS)
def test_each_kind_of_target_has_its_sampler(name):
    target, expected = TARGETS[name]
    sampler, reason, prepared = choose(target)
    assert prepared.target is target
    assert type(sampler) is expected, reason
    assert sampler.supports(target) == (True, "")
    assert 10 < len(reason) < 80 and "\n" not in reason


@one_in(5)
@pytest.mark.parametrize("name", CASES)
def test_the_chosen_sampler_draws(name):
    target = CASES[name].target
    tree = dps.sample(target, num_draws=5, num_chains=2, progress=False)
    sampler, reason, _ = choose(target)
    assert tree.attrs["sampler"] == repr(sampler)
    assert tree.attrs["sampler_reason"] == reason
    assert CASES[name].inside(tree.posterior["theta"].values.reshape(10, -1)).all()


def steep_cone(domain):
    """Separable records with columns of very different sizes."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((60, 8)) * np.geomspace(0.01, 1000.0, 8)
    problem = dps.Problem(
        rows,
        np.sign(rows @ rng.standard_normal(8)),
        loss=L.Logistic(),
        domain=domain,
        row_bound=1e4,
    )
    return dps.Gibbs(problem, k=1800.0, mu=1e-5)


def lone_record(loss, *, num_records, response, size):
    """One record pulls its coefficient, against a ridge that makes it standard normal.

    Returns the target, and that coefficient's mean and variance by quadrature: the
    others are independent of it.
    """
    rows = np.zeros((num_records, 8))
    rows[0, 0] = size
    rows[1:, 1:] = 0.01 * np.random.default_rng(0).standard_normal((num_records - 1, 7))
    problem = dps.Problem(
        rows,
        np.full(num_records, response),
        loss=loss,
        domain=D.WholeSpace(),
        row_bound=size,
        response_bound=1.0,
    )
    k = 10.0 * num_records
    grid = np.linspace(-8.0, 8.0, 100_001)
    losses = loss._evaluate_flat(size * grid, np.full_like(grid, response))[0]
    law = np.exp(-0.5 * grid**2 - 10.0 * losses)
    law /= law.sum()
    mean = law @ grid
    return dps.Gibbs(problem, k=k, mu=1.0 / k), mean, law @ (grid - mean) ** 2


def test_tails_that_the_gaussian_fit_does_not_reach(monkeypatch):
    shape = {"num_records": 20, "response": 0.0, "size": 1.0}
    target, mean, variance = lone_record(L.Quantile(level=0.8), **shape)

    def relative():
        draws = dps.sample(target, seed=1, progress=False)
        assert draws.attrs["converged"]
        errors = draws.posterior["theta"].values[:, :, 0] - mean
        return float((errors**2).mean() / variance)

    assert relative() == pytest.approx(1.0, abs=0.15)
    monkeypatch.setattr(choice, "reaches_tails", lambda *given: True)
    assert relative() < 0.75  # and nothing tells


@pytest.mark.slow
def test_few_records_per_draw_do_not_reach_such_tails_either(monkeypatch):
    shape = {"num_records": 20_000, "response": 1.0, "size": 2.0}
    target, *_ = lone_record(L.Logistic(), **shape)
    assert not isinstance(choose(target).sampler, S.FactorizedMetropolis)
    monkeypatch.setattr(choice, "reaches_tails", lambda *given: True)
    assert isinstance(choose(target).sampler, S.FactorizedMetropolis)


@pytest.mark.slow
def test_chains_leave_starts_high_up_steep_walls(monkeypatch):
    def converge(domain):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draws = dps.sample(steep_cone(domain), seed=1, progress=False)
        return draws.attrs["converged"]

    assert converge(D.WholeSpace()) and converge(D.Ball(1.0))
    target = steep_cone(D.Ball(1.0))
    plan = warmup.warm_up(target, np.random.default_rng(0)).plan

    def highest():
        """Rise of 40 starts over that of a typical draw; none depends on luck."""
        rngs = map(np.random.default_rng, range(40))
        starts = [warmup.disperse(target, plan, rng) for rng in rngs]
        rises = [target.energy(start) - target.energy(plan.center) for start in starts]
        return max(rises) / (0.5 * plan.mass.rank)

    assert highest() < 100.0
    monkeypatch.setattr(warmup, "HIGH", np.inf)
    monkeypatch.setattr(warmup.DispersedStarts, "_can_leave", lambda *given: True)
    assert highest() > 1e4


def test_independent_proposals_from_the_target_itself_are_all_accepted():
    target = make(L.Squared(), D.WholeSpace())
    assert independence_acceptance(target, fit(target)) == pytest.approx(1.0)


def test_proposals_outside_or_of_another_shape_are_not():
    target = make(L.Squared(), D.WholeSpace())
    found = fit(target)
    wide = found.rescale(found.center, 9.0 * np.eye(5))
    assert independence_acceptance(target, wide) < 0.2
    cut = make(L.Squared(), D.Ball(0.1))
    assert independence_acceptance(cut, fit(cut)) <= fit(cut).share_inside


def pressed_into_a_corner(concentration, beyond):
    """Gaussian whose mean is so far beyond a vertex of a triangle."""
    domain = dps.domains.Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0, 0])
    problem = dps.Problem(
        np.zeros((3, 2)), np.zeros(3), loss=dps.losses.Linear(), domain=domain,
        row_bound=1.0,
    )  # fmt: skip
    center = np.array([1.0, 0.0]) + beyond * np.array([2.0, -1.0]) / 5**0.5
    return dps.Gibbs(
        problem, k=concentration**2, mu=1.0,
        regularizer=dps.regularizers.SquaredNorm(center=center),
    )  # fmt: skip


@pytest.mark.parametrize("beyond", [0.0, slow(0.5)])
def test_exact_draws_that_rounding_would_decide_are_not_chosen(beyond):
    """They were, in few dimensions: no draw was found, or the wrong ones."""
    target = pressed_into_a_corner(1e8, beyond)
    draws = dps.sample(target, num_draws=20, num_chains=1, seed=1, progress=False)
    theta = draws.posterior["theta"].to_numpy()
    assert np.isfinite(theta).all()
    assert np.abs(theta - np.array([1.0, 0.0])).max() < 1e-6
    if beyond > 0.0:
        with pytest.raises(dps.SamplingError, match="rounding errors would decide"):
            S.Exact().prepare(target, np.random.default_rng(0))
