"""Simulation-based calibration: right posteriors pass, wrong ones are seen."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, chi2

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.diagnostics import simulation_based, simulation_based_calibration
from dpsample.diagnostics.couplings.meeting import run_all
from dpsample.diagnostics.laws import POWER
from dpsample.samplers import MALA, Exact, RandomWalk
from tests.support.biased_draws import Planted
from tests.support.statistics import assert_law, assert_mean, rejected, spend

D = dps.domains


def posterior(domain, *, size=40, dim=2, mu=0.02, **options):
    data = dps.datasets.logistic(size, dim, seed=131)
    problem = dps.Problem(
        3.0 * data.features,
        data.response,
        row_bound=3.0,
        loss=dps.losses.Logistic(),
        domain=domain,
        **options,
    )
    return dps.Gibbs(problem, k=float(problem.num_records), mu=mu)


BALL = D.Ball(3.0)


def plain():
    """Options of a check, whose level is spent."""
    return {"num_replicates": 60, "seed": 132, "false_alarm": spend(is_exact=False)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "sampler", "dim"),
    [
        (BALL, Exact(), 1),
        pytest.param(BALL, Exact(), 2, marks=pytest.mark.slow),
        pytest.param(D.WholeSpace(), MALA(), 2, marks=pytest.mark.slow),
        pytest.param(D.Box(-2.0, 2.0), RandomWalk(), 2, marks=pytest.mark.slow),
    ],
)
def test_right_posteriors_have_uniform_ranks(domain, sampler, dim):
    target = posterior(domain, dim=dim)
    options = plain() | ({"num_replicates": 300} if dim == 2 else {})
    found = simulation_based_calibration(target, sampler, **options)
    assert found.ok and found.names == (*(f"theta[{j}]" for j in range(dim)), "energy")
    assert found.ranks.shape == (60 if dim == 1 else 300, dim + 1)
    assert found.ranks.min() >= 0 and found.ranks.max() <= 19


@pytest.mark.parametrize(
    ("bug", "size"),
    [({"k": 20.0}, 60), pytest.param({"mu": 40.0}, 300, marks=pytest.mark.slow)],
)
def test_a_wrong_k_and_a_wrong_prior_are_seen(bug, size):
    """Either changes k F + k mu r, or k mu r alone."""
    wrong = Planted(inner=Exact(), **bug)
    target = posterior(BALL, dim=1)
    options = plain() | {"num_replicates": size}
    found = simulation_based_calibration(target, wrong, **options)
    assert not found.ok and "NOT UNIFORM" in repr(found)


def test_the_prior_is_drawn_from_its_law():
    target = posterior(D.WholeSpace(), mu=0.5)
    draw = simulation_based.prior(target, 2000, np.random.default_rng(133))
    points = np.array(run_all(draw, streams(134, 2000), None))
    for column in points.T:
        assert_mean(column, 0.0, 1.0 / 20.0, detects=0.3)
    square = 20.0 * (points**2).sum(axis=1)
    assert_law(square, chi2(2).cdf)
    with rejected():
        assert_law(square, chi2(3).cdf)


@pytest.mark.slow
def test_a_prior_without_exact_draws_is_proximal():
    simplex = posterior(D.Ball(1.0, p=1.0), dim=4, mu=0.1)
    draw = simulation_based.prior(simplex, 50, np.random.default_rng(135))
    points = np.array(run_all(draw, streams(136, 50), None))
    assert (np.abs(points).sum(axis=1) <= 1.0).all()


def test_labels_follow_the_likelihood():
    data = dps.datasets.logistic(20_000, 1, seed=137)
    rows = np.full_like(data.features, 0.5)
    problem = dps.Problem(
        rows, data.response, row_bound=1.0, loss=dps.losses.Logistic(), domain=BALL,
        offset=np.full(20_000, 0.2), offset_bound=1.0,
    )  # fmt: skip
    target = dps.Gibbs(problem, k=20_000.0, mu=0.1)
    made = simulation_based.redraw_labels(
        target, np.array([2.0]), np.random.default_rng(138)
    )
    labels = made.problem.data.response
    assert set(labels) == {-1.0, 1.0}
    count = int((labels > 0.0).sum())

    def tail(share):
        law = binom(20_000, share)
        return min(law.cdf(count), law.sf(count - 1))

    level = spend()
    assert tail(expit(1.2)) > level
    assert tail(expit(1.0)) < level  # the offset forgotten
    # The given target keeps its own labels.
    np.testing.assert_array_equal(target.problem.data.response, data.response)


def test_alarms_of_uniform_ranks_are_rare_and_a_rank_too_many_is_seen():
    rng, runs = np.random.default_rng(139), 1000
    p = [simulation_based.uniformity(rng.integers(0, 20, 200), 19) for _ in range(runs)]
    assert np.sum(np.array(p) <= 0.05) <= binom.isf(spend(is_exact=False), runs, 0.07)
    # Planted bug: ties counted as below.
    late = rng.integers(1, 21, (300, 200)).clip(0, 19)
    bug = [simulation_based.uniformity(row, 19) for row in late]
    assert np.sum(np.array(bug) <= 0.05) > binom.isf(spend(is_exact=False), 300, 0.07)


@pytest.mark.parametrize(
    ("size", "num_draws", "bins"), [(200, 19, 20), (50, 19, 5), (50, 4, 5), (60, 12, 6)]
)
def test_bins_have_enough_expected_ranks(size, num_draws, bins):
    edges = simulation_based.bin_edges(size, num_draws)
    assert len(edges) == bins + 1 and edges[0] == 0 and edges[-1] == num_draws + 1
    assert size * np.diff(edges).min() / (num_draws + 1) >= 7.0


def test_the_effect_that_could_be_seen_is_seen():
    rng, runs, level = np.random.default_rng(140), 300, 0.01
    effect = simulation_based.smallest_effect(20, 400, level)
    shares = np.where(np.arange(20) % 2, 1.0 + effect, 1.0 - effect) / 20
    p = [
        simulation_based.uniformity(rng.choice(20, 400, p=shares), 19)
        for _ in range(runs)
    ]
    seen = int(np.sum(np.array(p) <= level))
    assert seen >= binom.ppf(spend(is_exact=False), runs, POWER - 0.05)


def test_ties_are_broken_by_chance():
    target = posterior(BALL)
    theta, draws = np.zeros(2), np.zeros((19, 2))
    rng = np.random.default_rng(141)
    found = [simulation_based._ranks(target, theta, draws, rng)[0] for _ in range(200)]
    assert min(found) == 0 and max(found) == 19


def test_threads_do_not_change_a_rank():
    target = posterior(BALL)
    options = {"num_replicates": 6, "seed": 142}
    one, many = (
        simulation_based_calibration(target, MALA(step_size=0.5), threads=n, **options)
        for n in (1, 3)
    )
    np.testing.assert_array_equal(one.ranks, many.ranks)


@pytest.mark.slow
def test_plot_and_words():
    pytest.importorskip("matplotlib").use("Agg")
    found = simulation_based_calibration(
        posterior(BALL), Exact(), num_replicates=20, seed=143
    )
    ax = found.plot()
    assert len(ax.lines) == 3 and ax.get_legend() is not None
    assert "share" in ax.get_xlabel() and "uniform" in ax.get_ylabel()
    ax.figure.clear()
    text = repr(found)
    assert "Could have seen" in text and "not a privacy proof" in text
    assert max(map(len, text.splitlines())) <= 88


def hinge_target():
    problem = dps.Problem(
        [[1.0]], [1.0], row_bound=1.0, loss=dps.losses.Hinge(), domain=BALL
    )
    return dps.Gibbs(problem, k=1.0, mu=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "target must be"),
        ({"target": hinge_target()}, "target must be one with a logistic loss"),
        ({"sampler": "mala"}, "sampler must be"),
        ({"num_replicates": 1}, "num_replicates must be"),
        ({"num_draws": 0}, "num_draws must be"),
        ({"spacing": 0}, "spacing must be"),
        ({"false_alarm": 2.0}, "false_alarm must be"),
    ],
)
def test_malformed_arguments_are_refused(change, message):
    options = {"target": posterior(BALL), "sampler": Exact(), "num_replicates": 2}
    with pytest.raises(ValueError, match=message):
        simulation_based_calibration(**(options | change))


def test_a_likelihood_that_is_not_normalized_is_refused():
    target = posterior(BALL)
    cold = dps.Gibbs(target.problem, k=2.0 * target.k, mu=target.mu)
    with pytest.raises(ValueError, match="k must be the number of records, 40, got 80"):
        simulation_based_calibration(cold, Exact())
