"""Tails that proposals of a Gaussian fit do not reach: found in oblique directions."""

import warnings

import numpy as np
import pytest
from scipy.linalg import hadamard

import dpsample as dps
from dpsample.samplers import gaussian_fit
from dpsample.samplers.choice import choose
from dpsample.samplers.gaussian_fit import FAR, LEAST_RISE, fit, reaches_tails
from dpsample.targets.gibbs_target import energies

L, D, S = dps.losses, dps.domains, dps.samplers


def pulled(directions, *, loss, num_records=20, weight=10.0, size=1.0, response=0.0):
    """Target with one record along each direction, against a standard normal ridge."""
    count, dim = directions.shape
    rows = 0.01 * np.random.default_rng(0).standard_normal((num_records, dim))
    basis = np.linalg.qr(directions.T)[0]
    rows -= rows @ basis @ basis.T
    rows[:count] = size * directions
    problem = dps.Problem(
        rows,
        np.full(num_records, response),
        loss=loss,
        domain=D.WholeSpace(),
        row_bound=1.01 * size,
        response_bound=1.0,
    )
    k = weight * num_records
    return dps.Gibbs(problem, k=k, mu=1.0 / k)


def rotation(dim):
    return np.linalg.qr(np.random.default_rng(7).standard_normal((dim, dim)))[0]


QUANTILE = L.Quantile(level=0.8)
HEAVY = {
    "one row": pulled(np.eye(8)[:1], loss=QUANTILE),
    "one row, rotated": pulled(rotation(8)[:1], loss=QUANTILE),
    "two rows at 60 degrees": pulled(
        np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]]) @ rotation(8)[:2], loss=QUANTILE
    ),
    "many records, two rows": pulled(
        rotation(8)[:2], loss=L.Logistic(), num_records=20_000, size=2.0, response=1.0
    ),
    "oblique to all axes, d = 4": pulled(hadamard(4) / 2.0, loss=QUANTILE, weight=3.0),
    "oblique to all axes, d = 16": pulled(
        hadamard(16) / 4.0, loss=QUANTILE, weight=3.0
    ),
    "absolute, oblique to all axes": pulled(
        hadamard(4) / 2.0, loss=L.Absolute(), weight=3.0
    ),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails_are_found_in_any_direction(name):
    target = HEAVY[name]
    assert not reaches_tails(target, fit(target))


@pytest.mark.parametrize("name", [name for name in HEAVY if "oblique" in name])
def test_axes_and_random_directions_alone_do_not_find_them(monkeypatch, name):
    target = HEAVY[name]
    moves = FAR * fit(target).factor.T
    around = fit(target).center + np.concatenate([moves, -moves])
    rises = energies(target, around) - target.energy(fit(target).center)
    if "d = 4" not in name:  # there they are near the limit
        assert (rises > LEAST_RISE * 0.5 * FAR**2).all()
    monkeypatch.setattr(gaussian_fit, "NUM_DESCENT_STEPS", 0)
    monkeypatch.setattr(gaussian_fit, "NUM_DIRECTIONS", 0)
    assert reaches_tails(target, fit(target)) or "d = 4" in name


def ordinary(loss, dim, num_records, k, mu, domain):
    data = dps.datasets.logistic(num_records, dim, seed=1)
    response = data.response
    if loss.name not in ("logistic", "hinge", "smoothed_hinge"):
        noise = np.random.default_rng(5).standard_normal(num_records)
        response = np.clip(data.features.sum(axis=1) / dim**0.5 + 0.2 * noise, -1, 1)
    problem = dps.Problem(
        data.features,
        response,
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    return dps.Gibbs(problem, k=k, mu=mu)


LOSSES = (
    L.Logistic(),
    L.Hinge(),
    L.SmoothedHinge(0.5),
    L.Huber(0.5),
    L.Absolute(),
    L.Quantile(level=0.3),
)
SIZES = (
    (3, 500, 200.0, 0.1),
    (5, 600, 200.0, 0.5),
    (8, 2000, 1000.0, 0.05),
    (10, 100, 100.0, 0.3),
    (20, 2000, 1000.0, 0.1),
)
ORDINARY = [
    (loss, *size, domain)
    for loss in LOSSES
    for size in SIZES
    for domain in (D.WholeSpace(), D.Ball(3.0))
]


@pytest.mark.parametrize("case", ORDINARY[::7])
def test_ordinary_targets_give_no_false_alarm(case):
    target = ordinary(*case)
    assert reaches_tails(target, fit(target))


@pytest.mark.slow
def test_sixty_ordinary_targets_give_no_false_alarm():
    assert len(ORDINARY) == 60
    for case in ORDINARY:
        target = ordinary(*case)
        assert reaches_tails(target, fit(target)), case


def test_independent_proposals_by_name_say_that_they_miss_tails():
    target, options = HEAVY["oblique to all axes, d = 16"], {"progress": False}
    sampler = S.LaplaceIndependence()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        draws = dps.sample(target, sampler=sampler, num_draws=50, **options)
    said = [each for each in seen if "hardly proposes the tails" in str(each.message)]
    assert 'Use sampler="auto"' in str(said[0].message)
    assert said[0].filename == __file__
    assert draws.attrs["reaches_tails"] == 0
    found = dps.diagnostics.check(draws).problems
    assert "tails that the proposals do not reach" in [each.name for each in found]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dps.sample(target, sampler=sampler, num_draws=5, check=False, **options)
        fine = ordinary(*ORDINARY[2])
        draws = dps.sample(fine, sampler=sampler, num_draws=500, **options)
    assert draws.attrs["reaches_tails"] == 1
    assert not isinstance(choose(target).sampler, S.LaplaceIndependence)


def test_few_records_by_name_say_it_too():
    target = HEAVY["many records, two rows"]
    assert S.FactorizedMetropolis().supports(target)[0]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        sampler = S.FactorizedMetropolis()
        dps.sample(target, sampler=sampler, num_draws=5, progress=False)
    assert "FactorizedMetropolis" in str(seen[0].message)
    assert "hardly proposes the tails" in str(seen[0].message)
