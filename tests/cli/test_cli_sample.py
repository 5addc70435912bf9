"""``dpsample sample``: what it prints and writes, and errors on one line."""

import numpy as np
import pytest
import xarray as xr

import dpsample as dps
from dpsample import cli
from dpsample.api.warm import public_samplers
from dpsample.cli import sample
from dpsample.running import chains

WEIGHTS = ("--k", "40", "--mu", "0.5")
SHORT = ("--draws", "6", "--chains", "2", "--warmup", "3")


@pytest.fixture
def records(tmp_path):
    rng = np.random.default_rng(5)
    lines = ["a,b[0],ill"]
    for a, b in rng.uniform(-0.7, 0.7, size=(200, 2)):
        lines.append(f"{a},{b},{1 if a + 0.3 * b > 0.1 else -1}")
    (tmp_path / "r.csv").write_text("\n".join(lines))
    return tmp_path / "r.csv"


def run(records, *more):
    labels = ("--target", "ill", "--row-bound", "1", "--radius", "2")
    return cli.main(["sample", str(records), *labels, *more])


def test_a_summary_is_printed_and_says_that_it_is_not_private(records, capsys):
    options = ("--draws", "50", "--chains", "2", "--sampler", "mala", "--seed", "3")
    assert run(records, *WEIGHTS, *options) == 0
    out, err = capsys.readouterr()
    assert "NOT PRIVATE" in out and "not releasable" in out
    assert "MALA(" in out and "b[0]" in out and "R-hat" in out
    assert err == ""


def test_draws_are_saved_and_are_those_of_the_function(records, tmp_path, capsys):
    path = tmp_path / "draws.nc"
    options = (*SHORT, "--sampler", "random-walk", "--seed", "3", "--p", "1.5")
    assert run(records, *WEIGHTS, *options, "--output", str(path)) == 0
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    table = np.loadtxt(records, delimiter=",", skiprows=1)
    problem = dps.Problem(
        table[:, :2],
        table[:, 2],
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(2.0),
        row_bound=1.0,
        feature_names=["a", "b[0]"],
    )
    norm = dps.regularizers.SquaredNorm(1.5)
    expected = dps.sample(
        dps.Gibbs(problem, k=40.0, mu=0.5, regularizer=norm),
        sampler=dps.samplers.RandomWalk(),
        num_draws=6,
        num_chains=2,
        num_warmup=3,
        seed=3,
        progress=False,
        check=False,
    )
    with xr.open_datatree(path, engine="h5netcdf") as found:
        assert found["posterior"].equals(expected["posterior"])
        assert found.attrs["releasable"] == 0


def test_after_an_interrupt_the_draws_so_far_are_saved_with_exit_code_130(
    records, monkeypatch, tmp_path, capsys
):
    draw = dps.sample

    def interrupted(*args, **options):
        tree = draw(*args, **options)
        tree.attrs["is_interrupted"] = 1
        return tree

    monkeypatch.setattr(dps, "sample", interrupted)
    path = tmp_path / "draws.nc"
    assert run(records, *WEIGHTS, *SHORT, "--output", str(path)) == 130
    assert path.exists() and "Interrupted" in capsys.readouterr().out


@pytest.mark.slow
def test_a_time_limit_says_so_and_keeps_the_draws(
    records, monkeypatch, tmp_path, capsys
):
    count = iter(range(10**9))
    monkeypatch.setattr(chains.TimeLimit, "clock", lambda _=None: 0.01 * next(count))
    path = tmp_path / "draws.nc"
    options = ("--draws", "10000000", "--chains", "2", "--warmup", "3")
    limit = ("--max-seconds", "0.5", "--sampler", "random-walk")
    assert run(records, *WEIGHTS, *options, *limit, "--output", str(path)) == 0
    assert "max_seconds=0.5 ended the run" in " ".join(capsys.readouterr().out.split())
    with xr.open_datatree(path, engine="h5netcdf") as found:
        assert 0 < found["posterior"].sizes["draw"] < 10_000_000
        assert found.attrs["is_out_of_time"] == 1
    assert run(records, *WEIGHTS, *SHORT, "--max-seconds", "0") != 0
    assert "max_seconds must be" in capsys.readouterr().err


def test_a_budget_gives_the_density_of_its_release(records, tmp_path):
    path, answer = tmp_path / "draws.nc", tmp_path / "answer.json"
    budget = ("--epsilon", "2", "--delta", "1e-5")
    assert run(records, *budget, *SHORT, "--output", str(path)) == 0
    arguments = ["release", str(records), "--target", "ill", "--row-bound", "1"]
    more = ["--radius", "2", *budget, "--output", str(answer)]
    assert cli.main(arguments + more) == 0
    certificate = dps.Release.load(answer).certificate
    with xr.open_datatree(path, engine="h5netcdf") as found:
        assert found.constant_data["k"] == certificate.k
        assert found.constant_data["mu"] == certificate.mu


def test_too_few_draws_are_no_error(records, capsys):
    options = ("--draws", "2", "--warmup", "0", "--chains", "1", "--sampler", "mala")
    assert run(records, *WEIGHTS, *options) == 0
    assert "too few draws" in capsys.readouterr().out


def test_the_longest_tables_are_cut(monkeypatch, records, capsys):
    monkeypatch.setattr(sample, "MAX_ROWS", 1)
    assert run(records, *WEIGHTS, *SHORT, "--sampler", "mala") == 0
    out = capsys.readouterr().out
    assert "and 1 more" in out and "│ b[0]" not in out


@pytest.mark.parametrize("kind", public_samplers(), ids=lambda kind: kind.__name__)
def test_every_sampler_has_a_name(kind):
    words = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__)
    for name in (kind.__name__, kind.__name__.lower(), words.removeprefix("-")):
        assert type(sample.parse_sampler(name)) is kind
    assert sample.parse_sampler("auto") == "auto"


ERRORS = {
    "no density": ((), "the density must be given by either --epsilon and"),
    "half a budget": (("--epsilon", "1"), "got --epsilon."),
    "both": ((*WEIGHTS, "--delta", "1e-5"), "got --delta --k --mu."),
    "sampler": ((*WEIGHTS, "--sampler", "gibbs"), "sampler must be one of"),
    "draws": ((*WEIGHTS, "--draws", "0"), "num_draws must be an integer >= 1"),
    "no calibration": (
        (*WEIGHTS, "--sampler-share", "0.2"),
        "--sampler-share must be left out beside --k and --mu, got 0.2.",
    ),
    "k": (("--k", "-1", "--mu", "1"), "k must be"),
    "folder": ((*WEIGHTS, "--output", "/no/such/x.nc"), "output must be a file in"),
    "ess": ((*WEIGHTS, "--target-ess", "0"), "target_ess must be"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_line_with_exit_code_2(records, capsys, case):
    options, words = ERRORS[case]
    assert run(records, *options) == 2
    err = capsys.readouterr().err
    assert err.startswith("dpsample: error: ") and err.count("\n") == 1
    assert words in err
