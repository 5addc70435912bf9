"""A check of draws flags planted failures and says what they are."""

import numpy as np
import pytest

import dpsample as dps
from tests.support import planted_failures as planted
from tests.support import sampler_mutants as mutants

check = dps.diagnostics.check
S = dps.samplers
BALL = planted.gibbs(dps.domains.Ball(1.0), k=20.0)
CUBE = planted.gibbs(planted.cube(dim=3), k=3.0, dim=3)


def names(report):
    return {finding.name for finding in report.problems}


def draw(target, sampler="auto", **options):
    return dps.sample(target, sampler=sampler, progress=False, check=False, **options)


@pytest.fixture(scope="module")
def correct():
    return draw(BALL, S.RandomWalk(), seed=2)


def test_a_correct_run_is_not_flagged(correct):
    for report in (check(correct), check(correct, BALL)):
        assert report.ok and not report.findings
        assert "no problem found" in repr(report)


def test_every_report_says_what_it_cannot_show(correct):
    for report in (check(correct), check(correct, BALL)):
        words = " ".join(repr(report).split())
        assert "cannot show" in words and "no diagnostic enters a certificate" in words
    assert "no target was given" in repr(check(correct))


# A biased sampler.


SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize("target", [BALL, CUBE])
def test_the_speedy_walk_is_flagged(target):
    flat = dps.Gibbs(target.problem, k=3.0, mu=0.1)
    draws = planted.run_with(mutants.speedy, flat, S.BallWalk())
    assert names(check(draws, flat)) == {"a law that is not the target's"}
    assert check(draws).ok  # chains agree on the wrong law


@pytest.mark.parametrize(
    ("domain", "geometry"),
    [
        pytest.param(dps.domains.Ball(1.0), "barrier", marks=SLOW),
        pytest.param(planted.cube(dim=3), "barrier", marks=SLOW),
        pytest.param(dps.domains.Simplex(), "entropy", marks=SLOW),
        pytest.param(dps.domains.WholeSpace(), "power", marks=SLOW),
    ],
)
def test_unadjusted_mirror_langevin_is_flagged(domain, geometry):
    target = planted.gibbs(domain, k=20.0, dim=3)
    sampler = S.MirrorLangevin(geometry=geometry)
    draws = planted.run_with(planted.unadjusted, target, sampler)
    found = names(check(draws, target))
    # On the simplex it drifts to a vertex, where one step in its map is a long way.
    assert found & {"a law that is not the target's", "mass on the boundary"}


@SLOW
def test_a_walk_that_projects_is_flagged():
    draws = planted.run_with(mutants.clamped, CUBE, S.RandomWalk())
    assert names(check(draws, CUBE)) == {"mass on the boundary"}


def test_draws_outside_of_the_domain_are_flagged(correct):
    smaller = planted.gibbs(dps.domains.Ball(0.3), k=20.0)
    assert names(check(correct, smaller)) == {"draws outside of the domain"}


def test_a_sampler_that_says_it_is_biased_is_flagged_unless_the_bound_is_small():
    theta = np.random.default_rng(1).normal(size=(4, 500, 2))
    words = {"sampler": "Unadjusted()", "exactness": "biased"}
    assert names(check(planted.tree(theta, **words))) == {"biased sampler"}
    small = check(planted.tree(theta, bias_bound=1e-4, **words))
    assert small.ok and [f.name for f in small.findings] == ["biased sampler"]
    assert "0.0001" in small.findings[0].evidence


# A chain stuck in a corner.


def stuck_in_a_corner(num_stuck, *, num_chains=4):
    """Chains of hit-and-run in a cube, some in a corner a hundredth as wide."""
    theta = draw(CUBE, S.CoordinateHitAndRun(), num_chains=num_chains, seed=3)
    values = theta.posterior["theta"].values.copy()
    values[:num_stuck] = 0.995 + 0.005 * values[:num_stuck]
    return planted.tree(values)


def test_one_chain_in_a_corner_disagrees():
    for target in (None, CUBE):
        report = check(stuck_in_a_corner(1), target)
        assert "disagreeing chains" in names(report) or "separate modes" in names(
            report
        )
        assert "chain 0" in repr(report) or "chains 0" in repr(report)


@pytest.mark.parametrize("num_chains", [1, 4])
def test_all_chains_in_one_corner_contradict_the_target(num_chains):
    draws = stuck_in_a_corner(num_chains, num_chains=num_chains)
    assert check(draws).ok  # as far as chains can tell
    assert "a law that is not the target's" in names(check(draws, CUBE))


def test_a_walk_that_cannot_leave_its_start_is_flagged():
    options = {"init": [0.99, 0.99, 0.99], "num_warmup": 0, "seed": 4}
    found = check(draw(CUBE, S.RandomWalk(step_size=1e-3), **options), CUBE)
    assert {"step size too small", "too few draws"} <= names(found)
    far = dps.Gibbs(CUBE.problem, k=2000.0, mu=0.1)
    found = check(draw(far, S.RandomWalk(step_size=1e-3), **options), far)
    assert {"energies too large", "too few draws"} <= names(found)


# A step size frozen too large.


@pytest.mark.parametrize(
    ("sampler", "step"),
    [
        (S.RandomWalk, 20.0),
        pytest.param(S.BallWalk, 30.0, marks=SLOW),
        pytest.param(S.MALA, 30.0, marks=SLOW),
        pytest.param(S.TiltedGibbs, 3e3, marks=SLOW),
    ],
)
def test_a_step_size_frozen_too_large_is_flagged(sampler, step):
    target = planted.gibbs(dps.domains.WholeSpace(), k=20.0)
    found = names(check(draw(target, sampler(step_size=step), seed=5)))
    assert {"step size too large", "too few draws"} <= found
    assert check(draw(target, sampler(), seed=5)).ok


def test_a_chain_that_never_moved_is_stuck():
    theta = np.random.default_rng(2).normal(size=(3, 200, 2))
    theta[1] = theta[1, 0]
    report = check(planted.tree(theta))
    assert "stuck walk" in names(report)
    assert "Chain 1 stayed at one point for 200 of 200 draws" in repr(report)


# Two modes of an energy that is not convex.


@pytest.mark.parametrize("is_known", [False, True])
def test_chains_in_two_modes_are_flagged(is_known):
    target = planted.two_modes(barrier=30.0)
    starts = [[10.0], [18.0], [10.0], [18.0]]
    draws = draw(target, S.RandomWalk(), init=starts, seed=6)
    report = check(draws, target if is_known else None)
    assert "separate modes" in names(report)
    assert "chains 0, 2 stay near" in " ".join(repr(report).split())
    assert is_known == ("an energy that is not convex" in names(report))


def test_a_mode_that_is_rarely_left_is_flagged():
    target = planted.two_modes(barrier=5.0)
    draws = draw(target, S.RandomWalk(step_size=1.0), seed=7)
    assert "an energy that is not convex" in names(check(draws, target))


def test_chains_in_one_of_two_modes_pass_as_the_report_says():
    target = planted.two_modes(barrier=40.0)
    draws = draw(target, S.RandomWalk(), init=[10.0], seed=8)
    assert check(draws).ok


# Other findings.


def test_a_drift_is_told_from_a_disagreement():
    noise = np.random.default_rng(3).normal(size=(4, 1000, 2))
    drift = noise + np.linspace(-0.5, 0.5, 1000)[:, None]
    report = check(planted.tree(drift))
    assert "drifting chains" in names(report) and " in first" in repr(report)
    noise[2, :, 1] *= 1.5
    report = check(planted.tree(noise))
    assert names(report) == {"disagreeing chains"}
    assert "the spread of x1, chain 2" in report.problems[0].evidence


def test_energies_of_another_target_are_flagged(correct):
    other = dps.Gibbs(BALL.problem, k=21.0, mu=0.1)
    assert "energy mismatch" in names(check(correct, other))


def test_few_draws_are_flagged_with_how_many_more():
    theta = np.random.default_rng(4).normal(size=(2, 20, 1))
    report = check(planted.tree(theta))
    assert names(report) == {"too few draws"}
    assert "times as many" in report.problems[0].remedy


def test_a_target_ess_that_was_not_reached_is_flagged():
    theta = np.random.default_rng(5).normal(size=(4, 200, 1))
    words = {"target_ess": 5000.0, "is_target_ess_reached": False}
    assert names(check(planted.tree(theta, **words))) == {"too few draws"}
    # After Ctrl-C nobody has counted.
    words = {"target_ess": 5000.0, "is_interrupted": True}
    assert "too few draws" in names(check(planted.tree(theta, **words)))
    assert check(planted.tree(theta)).ok


def test_an_interrupted_run_is_noted():
    theta = np.random.default_rng(6).normal(size=(4, 200, 1))
    report = check(planted.tree(theta, is_interrupted=True))
    assert report.ok and report.findings[0].name == "interrupted run"
    assert "note: interrupted run" in repr(report)


def test_a_domain_that_binds_is_noted():
    target = planted.gibbs(planted.cube(0.01), k=1e7)
    report = check(draw(target, S.CoordinateHitAndRun(), seed=9), target)
    assert report.ok
    assert [finding.name for finding in report.findings] == ["mass along the boundary"]


@pytest.mark.parametrize(
    ("draws", "words"),
    [
        (np.zeros((4, 100, 2)), "a DataTree with posterior"),
        (None, "a DataTree with posterior"),
        (planted.tree(np.zeros((4, 3, 2))), "at least 4 per chain, got 3"),
        (planted.tree(np.full((4, 30, 2), np.nan)), "finite"),
    ],
    ids=["array", "None", "3 draws", "NaN"],
)
def test_what_is_not_a_run_is_refused(draws, words):
    for verb in (check, dps.diagnostics.summary):
        with pytest.raises(ValueError, match=f"^draws must be {words}"):
            verb(draws)


def test_a_target_of_another_size_is_refused(correct):
    with pytest.raises(ValueError, match="^target must be the one that was sampled"):
        check(correct, CUBE)
    with pytest.raises(ValueError, match="^target must be a Gibbs"):
        check(correct, BALL.problem)
