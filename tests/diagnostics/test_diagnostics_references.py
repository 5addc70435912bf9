"""Comparisons with exact laws: right samplers pass, planted bugs are seen."""

import numpy as np
import pytest
from scipy.stats import binom

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.diagnostics import compare, laws
from dpsample.diagnostics.references import POWER, shift
from dpsample.samplers import MALA, Exact, Proximal, RandomWalk
from tests.support.biased_draws import SPEEDY, UNADJUSTED, Planted
from tests.support.exact_mixing import standard_normal
from tests.support.gibbs_cases import example
from tests.support.gibbs_targets import CASES
from tests.support.sampler_grid import grid_case
from tests.support.statistics import spend
from tests.support.tiers import usual

L, D = dps.losses, dps.domains
FIRST = np.array([1.0, 0.0, 0.0])
RNGS = streams(86, 3000)


def fast():
    """Options of a check, whose level is spent."""
    return {
        "num_replicates": 400,
        "num_draws": 60,
        "false_alarm": spend(is_exact=False),
    }


def longer(sampler_fn=RandomWalk, **options):
    return sampler_fn(num_steps=5, **options)


@usual("absolute on the line")
@pytest.mark.parametrize(
    ("case_name", "reference"),
    [
        ("absolute on the line", "quadrature"),
        ("squared on the plane", "closed form"),
        pytest.param("hinge", "exact draws", marks=pytest.mark.slow),
        pytest.param("logistic on a ball", "quadrature", marks=pytest.mark.slow),
        pytest.param("logistic on a ball", "exact draws", marks=pytest.mark.slow),
        pytest.param("linear on a box", "closed form", marks=pytest.mark.slow),
        pytest.param("hinge, p = 1.2, l_1 ball", "quadrature", marks=pytest.mark.slow),
    ],
)
def test_right_samplers_pass_and_a_wrong_k_is_seen(case_name, reference):
    target = CASES[case_name].target
    found = compare(longer(), target, reference=reference, seed=81, **fast())
    assert found.ok and found.reference == reference
    assert found.size == 400 and len(found.views) == target.dim + 1
    wrong = Planted(inner=longer(), k=3.0)
    seen = compare(wrong, target, reference=reference, seed=82, **fast())
    assert not seen.ok and "energy" in seen.findings
    assert "NOT the target's law" in repr(seen) and "DIFFERS" in repr(seen)


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "domain"), [(SPEEDY, "ball"), (UNADJUSTED, "box")])
def test_biased_samplers_are_seen(bug, domain):
    target = grid_case(domain, "logistic").target
    options = {
        "num_replicates": 8000,
        "num_draws": 20,
        "false_alarm": spend(is_exact=False),
    }
    assert compare(bug.inner, target, seed=83, **options).ok
    assert not compare(bug, target, seed=83, **options).ok


@pytest.mark.slow
@pytest.mark.parametrize("dim", [4, 3])
def test_proximal_draws_serve_where_nothing_else_does(dim):
    target = example(L.Logistic(), D.Ball(1.0), dim=dim).target
    name = "auto" if dim == 4 else "proximal"
    options = fast() | {"num_replicates": 100, "num_draws": 40}
    found = compare(longer(MALA), target, reference=name, seed=84, **options)
    assert found.ok and found.reference == "proximal"
    assert found.total_variation is None and found.wasserstein == {}
    assert not compare(Planted(inner=longer(MALA), k=9.0), target, **options).ok


def test_the_first_possible_reference_is_used():
    names = {
        "squared on the plane": "closed form",
        "linear on a box": "closed form",
        "hinge": "quadrature",
        "logistic on a ball": "quadrature",
    }
    for case_name, name in names.items():
        assert laws.choose(CASES[case_name].target, "auto") == name
    three = example(L.Hinge(), D.Box(-1.0, 1.0), dim=3).target
    assert laws.choose(three, "auto") == "exact draws"
    with pytest.raises(ValueError, match="reference must be possible"):
        laws.choose(three, "quadrature")
    with pytest.raises(ValueError, match="reference must be one of"):
        laws.choose(three, "oracle")
    many = example(L.Absolute(), D.Ball(1.0), dim=4, mu=0.0).target
    with pytest.raises(ValueError, match="Use stein_check"):
        laws.choose(many, "auto")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squared on the plane", "linear on a box"])
def test_quadrature_and_closed_forms_agree(name):
    target = CASES[name].target
    grid, form = laws.grid(target), laws.closed_form(target)
    mean = grid.mean(lambda x: x)
    square = grid.mean(lambda x: x**2)
    np.testing.assert_allclose(mean, form.mean, rtol=3e-5, atol=1e-8)
    np.testing.assert_allclose(square - mean**2, form.variance, rtol=1e-4)
    x = np.linspace(-1.0, 1.0, 50)
    for j, law in enumerate(form.coordinates):
        own = laws.step_function(grid.points[:, j], grid.weights)(x)
        np.testing.assert_allclose(own, law.cdf(x), atol=2e-3)


def test_distances_are_those_of_the_laws():
    case = CASES["hinge"]
    target = case.target
    wrong = dps.Gibbs(target.problem, k=4.0 * target.k, mu=target.mu)
    grids = [laws.grid(t) for t in (target, wrong)]
    x = np.linspace(-1.0, 1.0, 4001)
    cdfs = [laws.step_function(g.points[:, 0], g.weights)(x) for g in grids]
    transport = np.abs(cdfs[0] - cdfs[1]).sum() * (x[1] - x[0])
    densities = [np.diff(c) for c in cdfs]
    variation = 0.5 * np.abs(densities[0] - densities[1]).sum()
    points = Exact().prepare(wrong, None)
    draws = np.empty((3000, 1))
    points.runner()(
        points.init(), np.random.default_rng(86), draws, np.empty((3000, 5))
    )
    found = compare(draws, target)
    assert found.subject == "3000 points, taken as independent"
    assert 0.5 * variation < found.total_variation.lower <= variation
    assert found.total_variation.upper >= 0.95 * variation
    own = found.wasserstein["theta[0]"]
    assert own.lower <= transport <= own.upper
    assert own.estimate == pytest.approx(transport, rel=0.1)
    text = repr(found)
    assert "total variation >=" in text and "Wasserstein" in text
    assert max(map(len, text.splitlines())) <= 88


def test_what_could_have_been_seen_is_seen():
    """A shift of the size that is stated, in a normal law."""
    target, rng = standard_normal(3), np.random.default_rng(87)
    found = compare(rng.normal(size=(300, 3)), target)
    move, runs = shift(found.detectable), 60
    seen = sum(
        "theta[0]" in compare(move * FIRST + rng.normal(size=(300, 3)), target).findings
        for _ in range(runs)
    )
    assert seen >= binom.ppf(spend(is_exact=False), runs, POWER)
    tiny = sum(
        not compare(0.02 * move * FIRST + rng.normal(size=(300, 3)), target).ok
        for _ in range(runs)
    )
    assert tiny < binom.ppf(spend(is_exact=False), runs, POWER)


@pytest.mark.slow
def test_chains_are_thinned_and_that_is_said():
    target = CASES["logistic on a ball"].target
    options = {"progress": False, "num_draws": 500, "seed": 88, "check": False}
    slow = dps.sample(target, sampler=RandomWalk(step_size=0.3), **options)
    found = compare(slow, target)
    assert found.size < 400 and "the level is approximate" in repr(found)
    independent = compare(dps.sample(target, sampler=Exact(), **options), target)
    assert independent.size == 2000 and "independent" in independent.subject
    stuck = dps.sample(target, sampler=Exact(), **options)
    stuck.attrs["exactness"] = "invariant"
    stuck.posterior["theta"].values[:] = 0.1
    with pytest.raises(ValueError, match="draws must be moving"):
        compare(stuck, target)


@pytest.mark.slow
def test_threads_do_not_change_a_comparison():
    target = CASES["hinge"].target
    options = {"num_replicates": 50, "num_draws": 5, "seed": 89}
    one, many = (compare(MALA(), target, threads=n, **options) for n in (1, 3))
    np.testing.assert_array_equal(one.distances, many.distances)
    again = compare(MALA(), target, **(options | {"seed": 90}))
    assert (one.distances != again.distances).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "target must be"),
        ({"draws": np.zeros((5, 3))}, "draws must be 2 or more of dimension 1"),
        ({"draws": np.full((5, 1), np.nan)}, "draws must be finite|draws must"),
        ({"draws": "chains"}, "draws must be"),
        ({"false_alarm": 0.0}, "false_alarm must be"),
        ({"num_draws": 0}, "num_draws must be"),
        ({"seed": -1}, "seed must be"),
        ({"num_replicates": 1}, "num_replicates must be an integer >= 2"),
    ],
)
def test_malformed_arguments_are_refused(change, message):
    options = {"draws": MALA(step_size=0.5), "target": CASES["hinge"].target}
    options |= {"num_replicates": 3} | change
    with pytest.raises(ValueError, match=message):
        compare(**options)


def test_the_sampler_of_the_certificate_passes():
    target = CASES["logistic, mode on the sphere"].target
    assert compare(Proximal(), target, seed=91, num_replicates=400).ok
