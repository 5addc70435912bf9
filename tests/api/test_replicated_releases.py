"""Replicates of release: compiled draws and fresh records, the same bits everywhere."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import dpsample as dps
from dpsample.api import replicate as replicating
from dpsample.core import pauses
from dpsample.samplers.localized import proposals
from tests.support.statistics import (
    assert_law,
    assert_scale,
    cdf_from_log_density,
    rejected,
)

D, L = dps.domains, dps.losses
BUDGET = dps.Budget(epsilon=4.0, delta=1e-6)
COUNT, SEED = 6, 4


def records(rng, size=(800, 3)):
    rows = rng.uniform(-0.57, 0.57, size)
    return rows, np.where(rng.uniform(-0.1, 0.1, len(rows)) < rows[:, 0], 1.0, -1.0)


def problem(domain=None, loss=None, rng=None):
    return dps.Problem(
        *records(rng or np.random.default_rng(0)),
        loss=loss or L.Logistic(),
        domain=domain or D.Ball(1.0),
        row_bound=1.0,
    )


# On a sphere, in a corner, off the boundary, and by the proximal sampler.
CASES = {
    "sphere": problem(),
    "corner": problem(D.Box([-0.5] * 3, [0.5] * 3)),
    "interior": problem(D.Ball(50.0)),
    "kinks": problem(loss=L.Hinge()),
}


def thetas(given, **options):
    options = {"num_replicates": COUNT, "seed": SEED} | options
    return dps.replicate(dps.release, given, BUDGET, **options).thetas


def children(number=COUNT):
    return np.random.SeedSequence(SEED).spawn(number)


def singles(given):
    return [dps.release(given, BUDGET, seed=seed).theta for seed in children()]


@pytest.mark.parametrize("name", CASES)
def test_a_replicate_has_the_bits_of_a_release(name):
    assert np.array_equal(thetas(CASES[name]), singles(CASES[name]))


def test_draws_on_a_sphere_are_compiled(monkeypatch):
    expected = thetas(CASES["sphere"])
    monkeypatch.delattr("dpsample.api.release_plan.ReleasePlan.draw")
    assert np.array_equal(thetas(CASES["sphere"]), expected)


def test_pauses_change_no_bit(monkeypatch):
    expected, count = thetas(CASES["sphere"]), 0
    whole = pauses.call

    def pausing(control, function, *arguments):
        nonlocal count
        control["units_left"] = 1.0
        code = whole(control, function, *arguments)
        count += code == pauses.PAUSED
        return code

    monkeypatch.setattr(pauses, "call", pausing)
    given = problem()
    found = [thetas(given), singles(given)]
    assert all(np.array_equal(each, expected) for each in found) and count > 0


def test_the_limit_of_work_is_that_of_a_release():
    enough = thetas(CASES["sphere"], max_work=1e6)
    assert np.array_equal(enough, thetas(CASES["sphere"]))


@pytest.mark.parametrize("data", [None, records])
def test_threads_and_blocks_change_nothing(data):
    one, three = (
        thetas(problem(), data=data, threads=t, num_replicates=40) for t in (1, 3)
    )
    assert np.array_equal(one, three)
    assert np.array_equal(one[:COUNT], thetas(problem(), data=data))


@pytest.mark.slow
@pytest.mark.parametrize("data", [None, records])
def test_processes_and_joblib_change_nothing(data):
    from joblib import Parallel, delayed

    parts = [children(4)[:1], children(4)[1:]]
    jobs = [{"seed": p, "num_replicates": len(p), "data": data} for p in parts]
    expected = thetas(problem(), num_replicates=4, data=data)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(thetas, problem(), **job) for job in jobs]
        assert np.array_equal(np.concatenate([f.result() for f in futures]), expected)
    found = Parallel(n_jobs=2)(delayed(thetas)(problem(), **job) for job in jobs)
    assert np.array_equal(np.concatenate(found), expected)


def fresh(seed):
    key = (*seed.spawn_key, replicating.RECORDS_STREAM)
    child = np.random.SeedSequence(seed.entropy, spawn_key=key)
    return records(np.random.Generator(np.random.PCG64DXSM(child)))


def test_fresh_records_are_those_of_a_stream_of_their_own():
    template = problem()
    made = [template.with_records(*fresh(seed)) for seed in children()]
    single = [
        dps.release(each, BUDGET, seed=seed).theta
        for each, seed in zip(made, children(), strict=True)
    ]
    assert np.array_equal(thetas(template, data=records), single)


def test_every_verb_takes_fresh_records():
    template, seed = problem(), children(1)[0]
    made = template.with_records(*fresh(seed))
    method, options = dps.optimizers.NoisyGD(), {"num_replicates": 1, "data": records}
    runs = dps.replicate(dps.minimize, template, method, BUDGET, seed=SEED, **options)
    fit = dps.minimize(made, method, BUDGET, seed=seed)
    assert np.array_equal(runs.thetas[0], fit.theta)
    assert runs.certificate == fit.certificate
    draws = {"num_draws": 3, "num_chains": 1}
    target, other = (dps.Gibbs(p, k=9.0, mu=1.0) for p in (template, made))
    runs = dps.replicate(dps.sample, target, seed=SEED, **options, **draws)
    found = dps.sample(other, seed=seed, progress=False, **draws)
    assert np.array_equal(runs.thetas[0], found.posterior["theta"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data must be None or a callable"),
        (lambda rng: records(rng, (799, 3)), "features must be of 800 rows"),
        (lambda rng: records(rng, (800, 2)), "features must be of 3 columns"),
        (lambda rng: (np.ones((800, 3)), np.ones(800)), "row_bound = 1.*record 0"),
        (lambda rng: (records(rng)[0], np.zeros(800)), "response must be -1 or 1"),
    ],
)
def test_fresh_records_are_checked(data, message):
    with pytest.raises(ValueError, match=message):
        thetas(problem(), data=data)


def test_risks_of_blocks_are_those_of_the_thetas():
    given, test = problem(), problem(rng=np.random.default_rng(1))
    runs = dps.replicate(
        dps.release, given, BUDGET, num_replicates=40, evaluate=test, data=records
    )
    assert runs.values.tolist() == [test.risk(theta) for theta in runs.thetas]


# Laws.


def line():
    return dps.Problem(
        np.ones((200, 1)),
        np.ones(200),
        loss=L.Logistic(),
        domain=D.Ball(0.5),
        row_bound=1.0,
    )


def line_law():
    mechanism = dps.calibrate(line(), BUDGET, sampler_share=0.1)
    energy = mechanism.target(line()).energy
    nodes = np.linspace(-0.5, 0.5, 4001)
    return cdf_from_log_density(
        lambda x: np.array([-energy([each]) for each in x]), nodes
    )


def test_compiled_releases_follow_the_target():
    found = thetas(line(), num_replicates=20_000)[:, 0]
    assert_law(found, line_law())


def test_a_tail_that_is_too_long_is_caught(monkeypatch):
    right = proposals._on_sphere

    def wrong(*arguments):
        made = right(*arguments)
        return made._replace(rate=0.9 * made.rate)

    monkeypatch.setattr(proposals, "_on_sphere", wrong)
    found = thetas(line(), num_replicates=20_000)[:, 0]
    with rejected():
        assert_law(found, line_law())


def means(rng):
    return np.ones((50, 1)), rng.uniform(-1.0, 1.0, 50)


def standardized():
    """Thetas of means of fresh responses: a Gaussian posterior about a sum."""
    budget = dps.Budget(epsilon=8.0, delta=1e-3)
    given = dps.Problem(
        *means(np.random.default_rng(0)),
        loss=L.Squared(),
        domain=D.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )
    found = dps.replicate(
        dps.release, given, budget, num_replicates=800, seed=2, data=means
    )
    mechanism = dps.calibrate(given, budget, sampler_share=0.1)
    shrunk = 1.0 + mechanism.mu
    variance = 1.0 / (150.0 * shrunk**2) + 1.0 / (mechanism.k * shrunk)
    return found.thetas[:, 0] / np.sqrt(variance)


@pytest.mark.slow
def test_fresh_records_add_their_own_variance():
    assert_scale(standardized(), detects=0.7)


@pytest.mark.slow
def test_records_that_all_runs_share_are_caught(monkeypatch):
    right = replicating._fresh
    first = children()[0]
    monkeypatch.setattr(
        replicating, "_fresh", lambda given, data, seed: right(given, data, first)
    )
    found = standardized()
    with rejected():
        assert_scale(found - found.mean(), detects=0.7)
