"""Replicates: the same numbers as single runs, for any number of threads."""

import threading
import time

import numpy as np
import pytest

import dpsample as dps
from dpsample.core import pauses
from dpsample.running.descent import DescentError
from tests.support.ctrl_c import press_at_call
from tests.support.descent_problems import problem
from tests.support.probe_methods import BUDGET, METHOD, Probe

COUNT = 5


def replicate(verb=dps.minimize, *arguments, **options):
    arguments = arguments or (problem(), METHOD, BUDGET)
    return dps.replicate(verb, *arguments, **({"num_replicates": COUNT} | options))


def children(seed=0):
    return np.random.SeedSequence(seed).spawn(COUNT)


def test_a_replicate_of_minimize_is_a_run_with_its_seed():
    runs = replicate(seed=3)
    single = [dps.minimize(problem(), METHOD, BUDGET, seed=s) for s in children(3)]
    assert np.array_equal(runs.thetas, [fit.theta for fit in single])
    assert all(fit.certificate == runs.certificate for fit in single)
    assert len(np.unique(runs.thetas[:, 0])) == COUNT and runs.seed == 3


def test_a_replicate_of_release_is_a_release_with_its_seed():
    runs = replicate(dps.release, problem(), BUDGET, p=1.5)
    single = [dps.release(problem(), BUDGET, p=1.5, seed=s) for s in children()]
    assert np.array_equal(runs.thetas, [answer.theta for answer in single])
    assert runs.certificate == single[0].certificate


def test_a_replicate_of_sample_is_a_sample_with_its_seed():
    target = dps.Gibbs(problem(), k=20.0, mu=1.0)
    options = {"num_draws": 8, "num_chains": 2}
    runs = replicate(dps.sample, target, evaluate=problem(), **options)
    assert runs.thetas.shape == (COUNT, 2, 8, 3)
    assert runs.values.shape == (COUNT, 2, 8) and runs.certificate is None
    for theta, seed in zip(runs.thetas, children(), strict=True):
        draws = dps.sample(target, seed=seed, progress=False, **options)
        assert np.array_equal(draws.posterior["theta"], theta)


@pytest.mark.parametrize("verb", [dps.minimize, dps.release])
def test_threads_change_nothing(verb):
    arguments = (problem(), METHOD, BUDGET)
    if verb is dps.release:
        arguments = (problem(), BUDGET)
    one, three = (replicate(verb, *arguments, threads=t) for t in (1, 3))
    assert np.array_equal(one.thetas, three.thetas)


def test_more_replicates_begin_with_the_same_ones():
    few, many = replicate(num_replicates=2), replicate(num_replicates=4)
    assert np.array_equal(few.thetas, many.thetas[:2])


def test_any_part_of_the_seeds_gives_the_same_runs():
    every, part = replicate(seed=4), replicate(seed=children(4)[1:3], num_replicates=2)
    assert np.array_equal(part.thetas, every.thetas[1:3]) and part.seed == 4


@pytest.mark.parametrize("seeds", [children()[:2], [1] * COUNT])
def test_seeds_are_as_many_as_runs(seeds):
    with pytest.raises(ValueError, match=r"^seed must be"):
        replicate(seed=seeds)


def test_another_seed_and_fresh_entropy_give_other_runs():
    fresh = replicate(seed=None)
    again = replicate(seed=fresh.seed)
    assert np.array_equal(fresh.thetas, again.thetas)
    assert not np.array_equal(fresh.thetas, replicate(seed=1).thetas)


def test_the_recipe_is_made_once():
    Probe.calls.clear()
    runs = replicate(dps.minimize, problem(), Probe(), BUDGET, calibration="paper")
    assert Probe.calls == ["paper 1"] and runs.thetas.shape == (COUNT, 3)


def test_no_replicate_is_releasable():
    for runs in (
        replicate(seed=None),
        replicate(dps.release, problem(), BUDGET, seed=None, num_replicates=2),
    ):
        assert runs.certificate.seeded and not runs.certificate.releasable
        assert "NOT releasable" in repr(runs)
    unlimited = replicate(dps.minimize, problem(), METHOD)
    assert unlimited.certificate is None


def test_risks_and_values_are_those_of_the_thetas():
    p = problem()
    risks = replicate(evaluate=p)
    assert risks.values.tolist() == [p.risk(theta) for theta in risks.thetas]
    called = replicate(evaluate=p.risk)
    assert np.array_equal(called.values, risks.values)
    pairs = replicate(evaluate=lambda theta: theta[:2])
    assert np.array_equal(pairs.values, pairs.thetas[:, :2])


def test_a_callable_is_called_in_order_by_one_thread():
    seen = []

    def watch(theta):
        seen.append((threading.get_ident(), theta.copy()))
        return 0.0

    runs = replicate(evaluate=watch, threads=3)
    assert {ident for ident, _ in seen} == {threading.get_ident()}
    assert np.array_equal([theta for _, theta in seen], runs.thetas)


def test_mean_and_standard_error_are_those_of_the_values():
    runs = replicate(evaluate=problem())
    assert runs.mean == pytest.approx(np.mean(runs.values))
    expected = np.std(runs.values, ddof=1) / np.sqrt(COUNT)
    assert runs.standard_error == pytest.approx(expected)
    one = replicate(evaluate=problem(), num_replicates=1)
    assert np.isnan(one.standard_error) and one.mean == one.values[0]
    with pytest.raises(ValueError, match="evaluate must be given"):
        _ = replicate().mean


@pytest.mark.parametrize("name", ["seed", "threads", "progress", "evaluation"])
def test_what_replicate_decides_is_not_for_the_verb(name):
    if name == "evaluation":
        with pytest.raises(ValueError, match="left to replicate"):
            replicate(evaluation=problem())
    else:
        with pytest.raises(ValueError, match=f"{name} must be"):
            replicate(**{name: "text"})


def test_only_the_three_verbs_are_repeated():
    with pytest.raises(ValueError, match="must be one of dps.minimize, .*, got <f"):
        replicate(dps.calibrate, problem(), BUDGET)


def test_a_failure_of_one_run_ends_all():
    p = problem(dps.losses.Squared())
    p.data.response[4] = np.nan
    # With a budget no record ends a run.
    endless = dps.optimizers.ClippedGD(num_steps=10**9, clip=1.0, step_size=0.1)
    with pytest.raises(DescentError, match="loss raised"):
        replicate(dps.minimize, p, endless)


@pytest.mark.alone  # the failure is to be heard while other runs sleep
def test_a_failure_ends_blocks_that_have_begun():
    """A block here has 8 runs, and another thread is in the midst of one."""
    target = dps.Gibbs(problem(), k=20.0, mu=1.0)
    begun = []

    def failing(rng):
        begun.append(0)
        if len(begun) == 2:
            raise RuntimeError("no records")
        time.sleep(0.2)
        return problem().data.dense, problem().data.response

    options = {"num_draws": 8, "num_chains": 1, "data": failing, "threads": 2}
    with pytest.raises(RuntimeError, match="no records"):
        replicate(dps.sample, target, num_replicates=128, **options)
    assert len(begun) <= 8  # all of one block, and one of another, are 9


@pytest.mark.parametrize("verb", [dps.minimize, dps.sample])
def test_ctrl_c_ends_all_runs_at_once(verb, monkeypatch):
    arguments, options = (problem(), Probe(num_steps=10**9), BUDGET), {}
    if verb is dps.sample:
        arguments = (dps.Gibbs(problem(), k=20.0, mu=1.0),)
        options = {"num_draws": 10**7, "num_chains": 1, "check": False}
        options |= {"sampler": dps.Proximal(), "num_warmup": 0}
        replicate(verb, *arguments, **(options | {"num_draws": 1}))
    else:
        replicate(verb, problem(), Probe(), BUDGET)
    press_at_call(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt, match="No replicate is returned"):
        replicate(verb, *arguments, **options)  # of days


@pytest.mark.usefixtures("two_blas_threads")
def test_every_verb_has_one_thread_of_blas():
    class Watched(dps.privacy.Ledger):
        def spend(self, certificate, **options):
            seen.append(limits())
            return super().spend(certificate, **options)

    class Walk(dps.samplers.MALA):
        def prepare(self, target, rng):
            seen.append(limits())
            return super().prepare(target, rng)

    def limits():
        return {library.num_threads for library in pauses._blas()}

    seen, target, budget = [], dps.Gibbs(problem(), k=20.0, mu=1.0), BUDGET
    options = {"num_draws": 2, "num_chains": 1, "num_warmup": 2, "check": False}
    assert limits() == {2}
    dps.sample(target, sampler=Walk(step_size=0.1), progress=False, **options)
    for verb in (dps.release, dps.intervals):
        verb(problem(), budget, ledger=Watched())
    replicate(dps.release, problem(), budget, ledger=Watched())
    assert len(seen) == 3 + COUNT and all(each == {1} for each in seen)
    assert limits() == {2}


def test_progress_needs_a_terminal(capfd):
    replicate(progress=True)
    assert capfd.readouterr() == ("", "")


def test_each_run_spends_from_the_ledger():
    ledger = dps.privacy.Ledger()
    runs = replicate(ledger=ledger)
    assert len(ledger.entries) == COUNT and runs.certificate.seeded


@pytest.mark.parametrize("made", [None, (np.eye(3),), np.eye(3)])
def test_fresh_records_are_a_tuple_of_two_or_three(made):
    with pytest.raises(ValueError, match="data must be a function that returns"):
        replicate(data=lambda rng: made)


def test_values_of_replicates_are_numbers():
    with pytest.raises(ValueError, match="evaluate must be a function that returns"):
        replicate(evaluate=lambda theta: {"a": 1.0})
