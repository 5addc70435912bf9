"""Trees of draws follow ArviZ's schema, and ArviZ's own functions read them."""

import copy
import dataclasses
import pickle
import warnings

import numpy as np
import pytest
import xarray as xr
from arviz_base import extract
from arviz_stats import bfmi, loo, rhat_nested, summary

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.numerics.r_hat_and_ess import nested_r_hats, normal_scores
from dpsample.running import chains, draws
from dpsample.samplers.chain import NUM_STATS
from tests.support.walks import assert_same

NUM_RECORDS = 200
DIM = 3


def make_target(domain=None):
    data = dps.datasets.logistic(NUM_RECORDS, DIM, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Box(-1.0, 1.0) if domain is None else domain,
        row_bound=1.0,
    )
    return dps.Gibbs(problem, k=50.0, mu=0.1)


def sample(sampler, *, target=None, **options):
    usual = {"num_draws": 400, "num_warmup": 30, "num_chains": 4, "seed": 2}
    fixed = {"check": False, "progress": False, "sampler": sampler}
    return dps.sample(target or make_target(), **(usual | fixed | options))


@pytest.fixture(scope="module")
def billiard():
    return sample(dps.samplers.BilliardHMC(), keep_warmup=True)


@pytest.fixture(scope="module")
def walk():
    return sample(dps.samplers.MALA())


def test_names_types_and_attributes_are_the_schemas(billiard, walk):
    hamiltonian = {"energy": float, "n_steps": int, "diverging": bool}
    stats = billiard.sample_stats
    for name, kind in {"lp": float, "acceptance_rate": float, **hamiltonian}.items():
        assert stats[name].dims == ("chain", "draw") and stats[name].dtype == kind
    assert not {*hamiltonian, "tree_depth"} & set(walk.sample_stats.data_vars)
    assert "tree_depth" not in stats.data_vars
    for group in ("posterior", "sample_stats", "warmup_posterior"):
        attributes = billiard[group].attrs
        assert attributes["inference_library"] == "dpsample"
        assert attributes["inference_library_version"] == dps.__version__
        assert attributes["created_at"]
        assert attributes["sampling_time"] > 0.0 and attributes["warmup_time"] > 0.0


@pytest.mark.parametrize(
    "sampler", [dps.samplers.Exact(), dps.samplers.HitAndRun(), dps.samplers.TunaMH()]
)
def test_every_draw_has_its_log_density(sampler):
    target = make_target(dps.domains.Ball(1.0))
    tree = sample(sampler, target=target, num_draws=20)
    points = tree.posterior["theta"].values.reshape(-1, DIM)
    expected = [target.log_density(point) for point in points]
    np.testing.assert_allclose(tree.sample_stats["lp"].values.ravel(), expected)


def kinetic(stats):
    return (stats["energy"] + stats["lp"]).values.ravel()


def test_the_hamiltonian_has_a_fresh_kinetic_energy(billiard):
    """At the end of an accepted trajectory it is half a chi-square of 3 degrees.

    It is independent of the energy of the draw. The kinetic energy of the first
    velocity would be positively correlated with it.
    """
    values, energy = kinetic(billiard.sample_stats), -billiard.sample_stats["lp"]
    assert (values > 0.0).all()
    assert abs(values.mean() - 0.5 * DIM) < 0.25  # 8 standard errors
    assert abs(np.corrcoef(values, energy.values.ravel())[0, 1]) < 0.2
    assert (bfmi(billiard)["energy"] > 0.5).all()


def test_steps_are_those_of_all_trajectories(billiard):
    stats = billiard.sample_stats
    evaluations = (stats["num_values"] + stats["num_gradients"]).values
    steps = stats["n_steps"].values
    # Without kicks a rescue needs one gradient more than it has leaps.
    assert (steps >= 1).all() and (steps <= evaluations).all()
    assert (steps < evaluations).mean() < 0.6
    assert not stats["diverging"].any()


def test_divergences_are_rises_above_the_limit():
    target = make_target()
    sampler = dps.samplers.BilliardHMC(num_steps=1)
    prepared = sampler.prepare(target, np.random.default_rng(1))
    numbers = {}
    for limit in (prepared.plan.max_rise, -0.2):
        plan = prepared.plan._replace(max_rise=limit)
        chain = dataclasses.replace(prepared, plan=plan)
        run = chains.run(chain, [None], streams(3, 1), num_draws=400)
        named = draws.name_statistics(
            run.stats, step_size=None, own_statistics=chain.own_statistics
        )
        diverging = named["diverging"][0, 1:]
        stays = (run.draws[0, 1:] == run.draws[0, :-1]).all(axis=1)
        assert stays[diverging].all()
        assert (named["acceptance_rate"][0, 1:][diverging] == 0.0).all()
        numbers[limit] = diverging.sum()
    assert numbers[prepared.plan.max_rise] == 0 and numbers[-0.2] > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["billiard", "walk"])
def test_arviz_reads_the_draws(name, request, monkeypatch):
    arviz_plots = pytest.importorskip("arviz_plots")
    tree = request.getfixturevalue(name)
    table = summary(tree)
    assert len(table) == DIM and np.isfinite(table["mean"].astype(float)).all()
    assert extract(tree).sizes["sample"] == 4 * 400
    assert arviz_plots.plot_rank(tree) and arviz_plots.plot_trace(tree)
    if name == "billiard":
        assert arviz_plots.plot_energy(tree)
    else:  # a sampler without a Hamiltonian has no energy that could mislead
        with pytest.raises((KeyError, ValueError, AttributeError, TypeError)):
            bfmi(tree)
    # A density exp(-k (F + mu r)) is no likelihood of records, and none is invented.
    with pytest.raises((KeyError, ValueError, TypeError), match="log.likelihood"):
        loo(tree)


def test_a_kept_warm_up_is_the_first_part_of_the_chains(tmp_path):
    sampler, path = dps.samplers.MALA(), tmp_path / "run.npz"
    whole = sample(sampler, num_warmup=0, num_draws=60)
    tree = sample(sampler, num_draws=30, keep_warmup=True, checkpoint=path)
    parts = [tree[group]["theta"] for group in ("warmup_posterior", "posterior")]
    joint = np.concatenate([part.values for part in parts], axis=1)
    np.testing.assert_array_equal(joint, whole.posterior["theta"])
    np.testing.assert_array_equal(
        tree.warmup_sample_stats["lp"], whole.sample_stats["lp"][:, :30]
    )
    longer = sample(sampler, num_draws=50, keep_warmup=True, checkpoint=path)
    np.testing.assert_array_equal(longer.warmup_posterior["theta"], parts[0])
    other = sample(sampler, num_draws=50, checkpoint=path)
    assert "warmup_posterior" not in other.children
    assert other.posterior.equals(longer.posterior)
    with pytest.raises(ValueError, match="keep_warmup must be False"):
        sample(sampler, num_draws=50, keep_warmup=True, checkpoint=path)


def test_the_former_name_of_the_energy_warns(walk, billiard):
    stats = walk.sample_stats
    for read in (lambda: stats["energy"], lambda: stats.energy):
        with pytest.warns(DeprecationWarning, match="minus sample_stats"):
            np.testing.assert_array_equal(read(), -stats["lp"])
    with pytest.raises(KeyError):
        stats["no such name"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert billiard.sample_stats["energy"].equals(billiard.sample_stats.energy)
    for duplicate in (copy.deepcopy(walk), pickle.loads(pickle.dumps(walk))):
        assert duplicate.sample_stats.equals(stats)


@pytest.mark.slow
def test_a_tree_with_a_warm_up_survives_a_file(billiard, tmp_path):
    billiard.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as loaded:
        assert set(loaded.children) == set(billiard.children)
        for group in billiard.children:
            assert loaded[group].identical(billiard[group])


def test_draws_outside_are_counted(monkeypatch):
    target = make_target()
    points = np.random.default_rng(1).uniform(-1.5, 1.5, size=(2, 300, DIM))
    inside = [target.domain.contains(point) for point in points.reshape(-1, DIM)]
    assert draws.count_violations(target, points) == 600 - sum(inside) > 0
    run = chains.run

    def run_with_a_point_outside(*arguments, **options):
        result = run(*arguments, **options)
        result.draws[1, 3] = 2.0
        return result

    monkeypatch.setattr(chains, "run", run_with_a_point_outside)
    with pytest.warns(RuntimeWarning, match="1 draws are outside of the domain"):
        tree = sample(dps.samplers.MALA(), num_draws=10)
    assert tree.attrs["num_constraint_violations"] == 1


def test_a_checkpoint_without_own_statistics_goes_on(tmp_path):
    """Earlier versions had five statistics and five counts of `BilliardHMC`."""
    prepared = dps.samplers.BilliardHMC(num_steps=1).prepare(
        make_target(), np.random.default_rng(1)
    )
    path = tmp_path / "run.npz"

    def run(num_draws, **options):
        return chains.run(
            prepared, [None] * 2, streams(3, 2), num_draws=num_draws, **options
        )

    whole = run(40)
    run(20, checkpoint=path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["stats"] = arrays["stats"][:, :, :NUM_STATS]
    arrays["counts"] = arrays["counts"][:, :5]
    np.savez(path, **arrays)
    resumed = run(40, checkpoint=path)
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    assert np.isnan(resumed.stats[:, :20, NUM_STATS:]).all()
    resumed.stats[:, :20, NUM_STATS:] = whole.stats[:, :20, NUM_STATS:]
    assert_same(resumed, whole)


@pytest.mark.slow
def test_many_short_chains_are_judged_by_nested_r_hat():
    """D7: split R-hat of 512 chains of 5 draws is above 1.1 for draws that are fine."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = sample(
            dps.samplers.MALA(), num_chains=512, num_draws=5, num_warmup=150, check=True
        )
    assert tree.attrs["converged"] == 1 and tree.attrs["r_hat"] < 1.05
    groups = tree.posterior["superchain"].values
    scores = normal_scores(tree.posterior["theta"].values)
    ours, _ = nested_r_hats(scores, groups)
    theirs = rhat_nested(tree, superchain_ids=groups.tolist(), method="identity")
    plain, _ = nested_r_hats(tree.posterior["theta"].values, groups)
    np.testing.assert_allclose(theirs["theta"], plain, rtol=1e-9)
    assert (ours < 1.05).all()
    # Chains that have not left their starts are seen.
    with pytest.warns(RuntimeWarning, match="nested R-hat"):
        sample(
            dps.samplers.MALA(step_size=0.02),
            num_chains=512,
            num_draws=5,
            num_warmup=0,
            check=True,
        )
