"""The table of a run: right numbers, readable names, a file of values."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import dpsample as dps
from tests.support import planted_failures as planted
from tests.support.autoregressions import autoregression
from tests.support.tiers import one_in

check, summary = dps.diagnostics.check, dps.diagnostics.summary
COLUMNS = (
    ["mean", "sd", "eti89_lower", "eti89_upper", "mcse_mean", "mcse_sd"]
    + ["ess_bulk", "ess_tail", "ess_square", "r_hat"]
)  # fmt: skip


@pytest.fixture(scope="module")
def draws():
    target = planted.gibbs(dps.domains.Ball(1.0), k=20.0)
    return dps.sample(target, num_draws=400, seed=1, progress=False)


def test_independent_draws_have_the_numbers_of_the_textbook():
    theta = 3.0 + 2.0 * np.random.default_rng(1).normal(size=(4, 2500, 2))
    table = summary(planted.tree(theta))
    assert list(table.columns) == COLUMNS and list(table.index) == ["x0", "x1"]
    flat = theta.reshape(-1, 2)
    np.testing.assert_allclose(table["mean"], flat.mean(axis=0))
    np.testing.assert_allclose(table["sd"], flat.std(axis=0, ddof=1))
    ends = np.quantile(flat, [0.055, 0.945], axis=0)
    np.testing.assert_allclose(table[["eti89_lower", "eti89_upper"]].T, ends, rtol=1e-3)
    for name in ("ess_bulk", "ess_tail", "ess_square"):
        assert ((table[name] > 8000) & (table[name] < 12000)).all()
    np.testing.assert_allclose(table["mcse_mean"], 2.0 / 100.0, rtol=0.1)
    np.testing.assert_allclose(table["mcse_sd"], 2.0 / np.sqrt(2e4), rtol=0.1)
    assert (abs(table["r_hat"] - 1.0) < 0.01).all()


def test_the_interval_is_named_after_its_probability(draws):
    table = summary(draws, ci_prob=0.5)
    low, high = table["eti50_lower"], table["eti50_upper"]
    values = draws.posterior["theta"].values
    shares = ((values > low.values) & (values < high.values)).mean(axis=(0, 1))
    np.testing.assert_allclose(shares, 0.5, atol=0.01)
    for bad in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="^ci_prob must be > 0 and < 1"):
            summary(draws, ci_prob=bad)


def test_slow_squares_have_a_size_of_their_own():
    """The sign moves freely, the size of theta hardly ever."""
    rng = np.random.default_rng(2)
    radius = np.repeat(stats.chi(3).rvs((4, 20), random_state=rng), 50, axis=1)
    theta = radius * np.sign(rng.normal(size=radius.shape))
    table = summary(planted.tree(theta[:, :, None]))
    assert table["ess_bulk"].item() > 10 * table["ess_square"].item()


def test_evaluations_per_effective_draw_count_the_worse_size(draws):
    table = summary(draws)
    total = draws.sample_stats["num_records"].values.sum()
    assert (total > 0) == ("records_per_ess" in table)
    chain = dps.sample(
        planted.gibbs(dps.domains.Ball(1.0), k=20.0),
        sampler=dps.samplers.RandomWalk(),
        num_draws=400,
        seed=1,
        progress=False,
        check=False,
    )
    table = summary(chain)
    sizes = np.minimum(table["ess_bulk"], table["ess_square"])
    total = chain.sample_stats["num_records"].values.sum()
    np.testing.assert_allclose(table["records_per_ess"], total / sizes)


def test_one_chain_is_enough(draws):
    table = summary(draws.isel(chain=[0]))
    assert np.isfinite(table[COLUMNS].to_numpy()).all()


def test_what_never_moved_has_no_size():
    theta = np.random.default_rng(3).normal(size=(2, 50, 2))
    theta[:, :, 1] = 0.25
    table = summary(planted.tree(theta))
    assert table.loc["x1", "mean"] == 0.25 and table.loc["x1", "sd"] == 0.0
    assert table.loc["x1", "mcse_mean":].isna().all()
    assert np.isfinite(table.loc["x0"]).all()


def test_the_table_survives_a_csv_file(draws):
    table = summary(draws)
    text = table.to_csv()
    assert text.startswith("coefficient,mean,sd,")
    again = pd.read_csv(io.StringIO(text), index_col="coefficient")
    np.testing.assert_allclose(again, table, rtol=1e-12)


def test_diagnostics_of_a_file_are_those_of_the_run(draws, tmp_path):
    path = tmp_path / "draws.nc"
    draws.to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as again:
        again.load()
        pd.testing.assert_frame_equal(summary(again), summary(draws))
        assert repr(dps.diagnostics.check(again)) == repr(dps.diagnostics.check(draws))


def test_files_of_other_versions_of_python_and_arviz_open():
    """Written by Python 3.11 and 3.13 with the same seed; see each file's name."""
    files = sorted(
        (Path(__file__).parents[1] / "support" / "files").glob("draws-arviz-*.nc")
    )
    assert len(files) == 2
    first, second = (xr.load_datatree(file, engine="h5netcdf") for file in files)
    assert first.attrs["numpy_version"] != second.attrs["numpy_version"]
    np.testing.assert_allclose(first.posterior.theta, second.posterior.theta, rtol=1e-9)
    pd.testing.assert_frame_equal(summary(first), summary(second))


def many_short(offset, *, length=5):
    """Autocorrelated chains of eight starts, and a tree of them."""
    draws = autoregression(0.8, num_chains=512, length=length)
    groups = np.arange(512) % 8
    starts = np.random.default_rng(2).normal(size=(8, 3))
    found = planted.tree(draws + offset * starts[groups][:, None])
    own = found["posterior"].to_dataset(inherit=False)
    found["posterior"].dataset = own.assign_coords(superchain=("chain", groups))
    return found


@one_in(3)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_many_short_chains_have_a_nested_r_hat(length, tmp_path):
    good, bad = many_short(0.0, length=length), many_short(1.5, length=length)
    table = summary(good)
    assert (table["r_hat"] < 1.02).all()
    assert (table[["ess_bulk", "ess_square", "ess_tail"]] > 300.0).all(axis=None)
    means = good.posterior["theta"].values.mean(axis=1)
    np.testing.assert_allclose(
        table["mcse_mean"], means.std(axis=0, ddof=1) / np.sqrt(512)
    )
    assert (summary(bad)["r_hat"] > 1.05).all()
    bad.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as found:
        assert summary(found).equals(summary(bad))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_check_sees_what_short_chains_remember(length):
    good = check(many_short(0.0, length=length))
    assert good.ok and not good.skipped[0].startswith("agreement")
    names = [finding.name for finding in check(many_short(1.5, length=length)).problems]
    assert names == ["chains that remember their starts"]


def test_few_chains_of_few_draws_have_no_summary():
    with pytest.raises(ValueError, match="at least 4 per chain"):
        summary(planted.tree(autoregression(0.0, num_chains=127, length=3)))
