"""Identities that need no reference: they hold for exact draws and catch bugs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.diagnostics import gamma_check, stein_check
from dpsample.diagnostics.couplings.meeting import run_all
from dpsample.diagnostics.identities import POWER, Identity, judge
from dpsample.diagnostics.laws import end_of
from dpsample.samplers import RandomWalk, gaussian_fit
from tests.support.biased_draws import SPEEDY, UNADJUSTED
from tests.support.exact_mixing import standard_normal
from tests.support.gibbs_cases import example
from tests.support.sampler_grid import TARGETS, exact_starts, grid_case
from tests.support.statistics import spend

L, D = dps.losses, dps.domains
COUNT = 3000


def retarget(target, **changes):
    options = {"k": target.k, "mu": target.mu} | changes
    return dps.Gibbs(target.problem, regularizer=target.regularizer, **options)


# Losses on a few domains by default, by turns.
USUAL = [i // 3 == i % 3 for i in range(len(TARGETS))]
CELLS = [
    pytest.param(*cell, marks=() if is_usual else pytest.mark.slow)
    for cell, is_usual in zip(TARGETS, USUAL, strict=True)
]


@pytest.mark.parametrize(("domain", "loss"), CELLS)
def test_exact_draws_satisfy_the_identities_and_others_do_not(domain, loss):
    """The t-test's level is approximate: seeds are fixed."""
    target = grid_case(domain, loss).target
    points = exact_starts(domain, loss)[:COUNT]
    assert stein_check(points, target, false_alarm=spend(is_exact=False)).ok
    wrong = retarget(target, k=2.5 * target.k)
    assert not stein_check(points, wrong, false_alarm=spend(is_exact=False)).ok
    assert gamma_check(points, target, false_alarm=spend(is_exact=False)).ok


@pytest.mark.slow
@pytest.mark.parametrize("bug", [SPEEDY, UNADJUSTED])
def test_biased_samplers_break_an_identity(bug):
    domain = "ball" if bug is SPEEDY else "box"
    target = grid_case(domain, "logistic").target
    rngs = streams(101, 6000)
    for sampler, is_right in ((bug.inner, True), (bug, False)):
        prepared = sampler.prepare(target, np.random.default_rng(102))
        points = np.array(run_all(end_of(prepared, 20), rngs, None))
        assert (
            stein_check(points, target, false_alarm=spend(is_exact=False)).ok
            is is_right
        )


@pytest.mark.parametrize("dim", [1, 12])
def test_identities_in_other_dimensions(dim):
    rng = np.random.default_rng(103)
    points = rng.normal(size=(COUNT, dim))
    target = standard_normal(dim)
    found = stein_check(points, target, false_alarm=spend(is_exact=False))
    assert found.ok and len(found.names) == 2 * min(dim, 10) + 1
    assert not stein_check(1.2 * points, target, false_alarm=spend(is_exact=False)).ok
    assert not stein_check(points + 0.3, target, false_alarm=spend(is_exact=False)).ok


def test_energies_of_a_quadratic_follow_the_gamma_law():
    rng = np.random.default_rng(104)
    points = rng.normal(size=(COUNT, 3))
    found = gamma_check(points, standard_normal(3), false_alarm=spend(is_exact=False))
    assert found.ok and len(found.names) == 4
    np.testing.assert_allclose(found.expected, [3.0, 1.5, 0.5, 1.0 / 3.0])
    for bug in (1.15 * points, 0.85 * points):
        seen = gamma_check(bug, standard_normal(3), false_alarm=spend(is_exact=False))
        assert not seen.ok and "V - min V <= d" not in seen.findings


def test_a_squared_norm_alone_has_degree_two_for_every_p():
    plain = standard_normal(2)
    rough = dps.regularizers.SquaredNorm(1.5)
    target = dps.Gibbs(plain.problem, k=10.0, mu=0.1, regularizer=rough)
    # |x|^2 / 2 (p - 1) in l_p: radius^2 is chi-square, directions by the cone measure.
    rng = np.random.default_rng(105)
    powers = rng.standard_gamma(1.0 / 1.5, (COUNT, 2))
    signs = rng.choice([-1.0, 1.0], (COUNT, 2))
    cone = signs * (powers / powers.sum(axis=1, keepdims=True)) ** (1.0 / 1.5)
    radius = np.sqrt(0.5 * rng.chisquare(2.0, (COUNT, 1)))
    found = gamma_check(radius * cone, target, false_alarm=spend(is_exact=False))
    assert found.ok and len(found.names) == 4
    assert not gamma_check(
        1.2 * radius * cone, target, false_alarm=spend(is_exact=False)
    ).ok


def test_a_norm_has_degree_one():
    """|x| / 10 almost alone: V = 10 |x| has the law Gamma(1, 1)."""
    problem = dps.Problem(
        [[1.0]], [0.0], loss=L.Absolute(), domain=D.WholeSpace(), row_bound=1.0,
        response_bound=1.0,
    )  # fmt: skip
    target = dps.Gibbs(problem, k=10.0, mu=1e-9)
    rng = np.random.default_rng(106)
    points = rng.laplace(size=(COUNT, 1)) / 10.0
    assert len(gamma_check(points, target).names) == 1
    found = gamma_check(points, target, degree=1.0, false_alarm=spend(is_exact=False))
    assert found.ok and found.expected[1] == 1.0
    assert not gamma_check(
        points, target, degree=2.0, false_alarm=spend(is_exact=False)
    ).ok


def test_the_inequality_refuses_energies_that_are_too_large():
    case = example(L.Logistic(), D.Ball(1.0), dim=2)
    points = case.exact(np.random.default_rng(107), 2000)
    assert gamma_check(points, case.target).ok
    uniform = np.random.default_rng(108).normal(size=(2000, 2))
    uniform /= np.linalg.norm(uniform, axis=1, keepdims=True) * (1.0 + 1e-9)
    hot = retarget(case.target, k=10.0 * case.target.k)
    found = gamma_check(uniform, hot)
    assert found.findings == ("V - min V <= d",)
    # A mean far below the limit is no finding.
    best = gaussian_fit.minimize(case.target, tolerance=1e-9)[0]
    frozen = (1.0 - 1e-6) * best + 1e-6 * points
    assert gamma_check(frozen, case.target).ok


def autoregression(rng, ratio=0.8, shape=(4, 400)):
    noise = rng.normal(size=shape)
    values = np.empty(shape)
    values[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        values[:, t] = ratio * values[:, t - 1] + np.sqrt(1.0 - ratio**2) * noise[:, t]
    return values


@pytest.mark.slow
def test_alarms_of_chains_are_about_as_rare_as_the_level_says():
    rng, runs, level = np.random.default_rng(109), 200, 0.05
    failed = dict.fromkeys((False, True), 0)
    seen = 0
    for _ in range(runs):
        chains = [autoregression(rng) for _ in range(2)]
        for is_independent in failed:
            found = judge(
                "",
                {str(i): Identity(v, 0.0) for i, v in enumerate(chains)},
                false_alarm=level,
                is_independent=is_independent,
                blind="",
            )
            failed[is_independent] += not found.ok
            if not is_independent:
                off = found.detectable[0] * chains[0].std()
        moved = {"0": Identity(chains[0] + off, 0.0)}
        again = judge("", moved, false_alarm=level / 2, is_independent=False, blind="")
        seen += not again.ok
    assert failed[False] <= binom.isf(spend(is_exact=False), runs, 2.0 * level)
    # Planted bug: draws of chains taken as independent.
    assert failed[True] > binom.isf(spend(is_exact=False), runs, 2.0 * level)
    assert seen >= binom.ppf(spend(is_exact=False), runs, POWER - 0.05)


def test_draws_of_the_verb_are_read_and_few_draws_give_no_verdict():
    target = grid_case("ball", "hinge").target
    options = {"sampler": RandomWalk(), "progress": False, "seed": 110, "check": False}
    draws = dps.sample(target, num_draws=1000, **options)
    found = stein_check(draws, target)
    assert found.ok and (found.effective_sizes < 2000).all()
    few = stein_check(dps.sample(target, num_draws=20, **options), target)
    assert not few.ok and "no verdict" in repr(few) and "TOO FEW" in repr(few)
    theta = draws.posterior["theta"].to_numpy()
    np.testing.assert_array_equal(stein_check(theta, target).means, found.means)
    stuck = np.broadcast_to(theta[:1, :1], theta.shape)
    assert not stein_check(stuck, target).ok


def test_report_says_what_differs_and_what_stays_unseen():
    target = grid_case("ball", "hinge").target
    points = exact_starts("ball", "hinge")[:COUNT]
    for check in (stein_check, gamma_check):
        text = repr(check(points, target))
        assert "no difference seen" in text and "not a privacy proof" in text
        assert "stays unseen" in text and max(map(len, text.splitlines())) <= 88
    wrong = repr(stein_check(points, retarget(target, k=60.0)))
    assert "NOT the target's law" in wrong and "DIFFERS" in wrong


@pytest.mark.parametrize("check", [stein_check, gamma_check])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "target must be"),
        ({"draws": np.zeros((5, 3))}, "draws must be of dimension 2"),
        ({"draws": np.full((5, 2), 9.0)}, "draws must be inside the domain"),
        ({"draws": np.full((5, 2), np.nan)}, "draws must"),
        ({"draws": [[0.0, 0.0]]}, "draws must be"),
        ({"false_alarm": 1.0}, "false_alarm must be"),
    ],
)
def test_malformed_arguments_are_refused(check, change, message):
    options = {"draws": np.zeros((5, 2)), "target": grid_case("ball", "hinge").target}
    center = options["target"].problem.domain.center
    options["draws"] = options["draws"] + center
    with pytest.raises(ValueError, match=message):
        check(**(options | change))


def test_a_degree_is_refused_where_it_ends_at_the_boundary():
    target, points = grid_case("ball", "hinge").target, exact_starts("ball", "hinge")
    with pytest.raises(ValueError, match="degree must be None on a bounded domain"):
        gamma_check(points[:100], target, degree=2.0)
    with pytest.raises(ValueError, match="degree must be a finite number > 0"):
        gamma_check(points[:100], target, degree=-1.0)


def test_expectations_are_plain_data():
    points = np.random.default_rng(111).normal(size=(100, 2))
    found = gamma_check(points, standard_normal(2))
    assert replace(found, z_scores=np.full(4, 9.0)).findings == found.names


def test_points_at_the_center_of_the_simplex_have_finite_values():
    """Rounding turns directions from the center out of the simplex's plane."""
    target = grid_case("simplex", "logistic").target
    center = target.domain.interior_point(3)
    points = exact_starts("simplex", "logistic")[:200].copy()
    points[0] = center
    points[1] = center * (1.0 + 1e-16 * np.array([1.0, -1.0, 3.0]))
    assert np.isfinite(stein_check(points, target).means).all()


def judge_values(values, *, is_independent=True):
    identities = {name: Identity(v, 0.0) for name, v in values.items()}
    options = {"false_alarm": 0.01, "is_independent": is_independent, "blind": ""}
    return judge("", identities, **options)


def test_an_open_identity_does_not_hide_one_that_differs():
    draws = np.random.default_rng(120).normal(size=(1, 400))
    report = judge_values({"open": draws[:, :20], "off": draws + 1.0})
    assert report.findings == ("open", "off")
    text = repr(report)
    assert "NOT the target's law" in text and "no verdict" not in text
    assert "TOO FEW DRAWS" in text and "DIFFERS" in text and "Could have seen" in text
    right = judge_values({"open": draws[:, :20], "right": draws - draws.mean()})
    assert not right.ok and "no verdict" in repr(right)


def test_a_report_without_a_verdict_claims_no_power():
    draws = np.random.default_rng(121).normal(size=(1, 20))
    text = repr(judge_values({"open": draws}))
    assert "no verdict" in text and "Could have seen" not in text


def test_equal_values_are_not_called_too_few():
    text = repr(judge_values({"equal": np.zeros((1, 400))}))
    assert "CONSTANT VALUES" in text and "TOO FEW" not in text
    assert "no verdict" in text
    wrong = repr(judge_values({"equal": np.ones((1, 400))}))
    assert "DIFFERS" in wrong and "NOT the target's law" in wrong
