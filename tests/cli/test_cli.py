"""The commands: what they print and write, and errors on one line with exit code 2."""

import bz2
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import dpsample as dps
from dpsample import cli
from dpsample.cli import commands, demo, fit, release, sample, screen
from dpsample.cli.records import parse_loss
from tests.support.tiers import one_in

BOUNDS = """
[numeric]
a = [-1, 1]
b = [0, 10]

[categorical]
c = ["u", "v"]
ill = ["no", "yes"]
"""


@pytest.fixture
def files(tmp_path):
    """A small table whose label follows a, its bounds and a second table."""
    rng = np.random.default_rng(5)
    for name in ("train.csv", "test.csv"):
        lines = ["a,b,c,ill"]
        for a, b in rng.uniform(size=(400, 2)):
            label = "yes" if a + 0.3 * b > 0.6 else "no"
            lines.append(f"{2 * a - 1},{10 * b},{'uv'[int(b > 0.5)]},{label}")
        (tmp_path / name).write_text("\n".join(lines))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    return tmp_path


BUDGET = ("--epsilon", "2", "--delta", "1e-5", "--radius", "2")
LABELS = ("--target", "ill", "--positive-label", "yes")


def run(folder, *more, file="train.csv"):
    bounds = ("--bounds", str(folder / "bounds.toml"))
    return cli.main(["release", str(folder / file), *BUDGET, *LABELS, *bounds, *more])


def test_release_prints_the_certificate_and_the_named_parameters(files, capsys):
    assert run(files) == 0
    out, err = capsys.readouterr()
    assert "epsilon = 2, delta = 1e-5" in out
    assert "Private parameters" in out
    assert all(name in out for name in ("a ", "b ", "c=u", "c=v"))
    assert "NOT PRIVATE" not in out
    assert err == ""


def test_what_evaluate_prints_is_labelled_not_private(files, capsys):
    output = files / "answer.json"
    options = ("--output", str(output), "--evaluate", str(files / "test.csv"))
    assert run(files, *options, "--intercept", "--p", "1.5") == 0
    out = capsys.readouterr().out
    certificate, evaluation = out.split("NOT PRIVATE")
    assert "accuracy" in evaluation
    assert "train.csv" in evaluation
    assert "test.csv" in evaluation
    assert "test.csv" not in certificate and "train.csv" not in certificate
    saved = dps.Release.load(output)
    assert saved.feature_names == ("a", "b", "c=u", "c=v", "intercept")
    assert saved.certificate.releasable
    dps.verify(saved.certificate)
    assert set(json.loads(output.read_text())) == {
        "format",
        "theta",
        "feature_names",
        "encoding",
        "certificate",
        "digest",
    }


def test_a_seed_reproduces_the_draw_and_forbids_its_release(files, capsys):
    first, second = files / "1.json", files / "2.json"
    for path in (first, second):
        assert run(files, "--seed", "3", "--output", str(path)) == 0
    assert "Not for publication: the random bits are seeded" in capsys.readouterr().out
    assert first.read_text() == second.read_text()
    assert not dps.Release.load(first).certificate.releasable


def test_options_reach_the_problem_and_the_budget(files):
    options = ("--loss", "smoothed-hinge:0.5", "--relation", "zero_out")
    output = files / "answer.json"
    more = ("--risk", "empirical", "--sampler-share", "0.2", "--scale", "0.5")
    assert run(files, *options, *more, "--output", str(output)) == 0
    certificate = dps.Release.load(output).certificate
    assert certificate.facts.loss == dps.losses.SmoothedHinge(0.5)
    assert certificate.facts.row_bound == 0.5
    assert certificate.budget.relation == "zero_out"
    assert certificate.risk == "empirical"
    assert certificate.delta_exact == pytest.approx(0.8e-5)


def test_libsvm_files_release_and_evaluate(files, capsys):
    rng = np.random.default_rng(8)
    for name in ("d", "d.t"):
        lines = [f"{y} {1 + (y > 0)}:1 3:1" for y in rng.choice([-1, 1], 200)]
        (files / f"{name}.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    arguments = ["release", str(files / "d.bz2"), *BUDGET, "--num-features", "4"]
    scaled = ["--scale", "0.7071067811865475", "--row-bound", "1"]
    evaluate = ["--evaluate", str(files / "d.t.bz2")]
    assert cli.main(arguments + scaled + evaluate) == 0
    assert "d.t.bz2" in capsys.readouterr().out


ERRORS = {
    "missing file": (["release", "none.csv", *BUDGET], "existing file, got none.csv"),
    "no options": (["release", "none.csv"], "Missing option"),
    "unknown option": (["release", "none.csv", "--speed", "9"], "No such option"),
    "bad number": (["release", "x", "--radius", "wide"], "'--radius'"),
    "unknown command": (["relase"], "No such command"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_usage_errors_are_one_line_with_exit_code_2(case, capsys):
    arguments, message = ERRORS[case]
    assert cli.main(arguments) == 2
    assert_one_line(capsys, message)


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("huber:5e-3", dps.losses.Huber(5e-3)),
        ("smoothed-hinge:0.2", dps.losses.SmoothedHinge(0.2)),
        ("squared", dps.losses.Squared()),
    ],
)
def test_a_loss_has_a_name_and_perhaps_a_number(text, loss):
    assert parse_loss(text) == loss


INPUT_ERRORS = {
    ("--loss", "cubic"): "loss must be one of",
    ("--loss", "hinge:2"): "hinge without a parameter",
    ("--loss", "huber:wide"): "of the form name:number",
    ("--loss", "huber:"): "of the form name:number",
    ("--loss", "huber:1-0"): "of the form name:number",
    ("--epsilon", "-1"): "epsilon must be",
    ("--delta", "2"): "delta must be",
    ("--radius", "0"): "radius must be",
    ("--p", "0.5"): "p must be",
    ("--risk", "both"): "risk must be one of",
    ("--relation", "near"): "relation must be one of",
    ("--sampler-share", "1"): "sampler_share must be",
    ("--target", "well"): "target must be one of the columns",
    ("--positive-label", "maybe"): "'maybe' among its public levels",
    ("--row-bound", "0.1"): "rows of 2-norm at most row_bound = 0.1",
    ("--scale", "0"): "scale must be",
    ("--format", "xls"): "format must be one of",
    ("--bounds", "none.toml"): "none.toml",
    ("--evaluate", "none.csv"): "none.csv",
    ("--seed", "-1"): "seed must be",
    ("--output", "/no/such/folder/x.json"): "/no/such/folder",
}


def assert_one_line(capsys, message):
    err = capsys.readouterr().err
    assert err.startswith("dpsample: error: ")
    assert err.count("\n") == 1
    assert message in err


@one_in(5)
@pytest.mark.parametrize("options", INPUT_ERRORS)
def test_input_errors_are_one_line_with_exit_code_2(files, capsys, options):
    assert run(files, *options) == 2
    assert_one_line(capsys, INPUT_ERRORS[options])


def test_a_file_without_bounds_needs_a_row_bound(files, capsys):
    (files / "n.csv").write_text("a,y\n0.5,1\n0.1,-1\n")
    arguments = ["release", str(files / "n.csv"), *BUDGET, "--target", "y"]
    assert cli.main(arguments) == 2
    assert_one_line(capsys, "row_bound must be declared")
    assert cli.main([*arguments, "--row-bound", "1"]) == 0


def test_clip_rows_keeps_values_within_their_public_bounds(files, capsys):
    (files / "wild.csv").write_text("a,b,c,ill\n0.5,99,u,no\n0.1,-5,w,yes\n")
    assert run(files, file="wild.csv") == 2
    assert_one_line(capsys, "'b' must be within its public bounds [0, 10]")
    assert run(files, "--clip-rows", file="wild.csv") == 0


def test_an_error_of_the_program_is_not_hidden(files, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a bug")

    monkeypatch.setattr(release, "read", broken)
    with pytest.raises(KeyError):
        run(files)


def test_a_warning_is_told_whatever_the_filters_are(files, capsys):
    for action in ("error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            assert run(files, "--radius", "10000", "--seed", "1") == 0
        assert "an answer may be worse than 0" in capsys.readouterr().err


def test_an_interrupt_ends_quietly(files, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(release, "read", interrupted)
    assert run(files) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["heartbeat", "flush", "abandon"])
def test_an_interrupt_before_and_after_the_command_ends_quietly(
    monkeypatch, capsys, name
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(screen, name, interrupted)
    assert cli.main(["errata", "GLLST-E1"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (commands.fit, fit.FitOptions),
        (commands.release, release.ReleaseOptions),
        (commands.sample, sample.SampleOptions),
    ],
)
def test_options_are_the_parameters_of_the_command(command, options):
    # The scale of the columns is no choice of a fit.
    fixed = {"scale"} if options is fit.FitOptions else set()
    assert set(inspect.signature(command).parameters) | fixed == {
        field.name for field in dataclasses.fields(options)
    }


def test_help_lists_the_commands(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("demo", "release", "sample", "warm"))


def test_a_group_of_commands_alone_lists_them(capsys):
    assert cli.main(["study"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("Usage: dpsample study")
    assert all(f"\n  {name} " in out for name in ("list", "run", "report"))


def test_demo_ends_with_a_certificate_for_every_reader(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # not installed
    monkeypatch.setattr(demo, "NUM_RECORDS", 500)
    page = tmp_path / "demo.html"
    assert cli.main(["demo", "--output", str(page)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "epsilon = 1, delta = 1e-6" in out and "NOT PRIVATE" in out
    assert out.index("Guarantee") < out.index("The private parameters, which may be")
    assert out.count("attacker is wrong at least 45.2% of the time") == 1
    text = page.read_text("utf-8")
    assert "May be published" in text and "What an attacker can learn" in text


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--everything"]], ids=str)
def test_warm_compiles_everything_and_a_second_run_adds_no_file(tmp_path, options):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    words = ["warm", *options]
    code = f"from dpsample.cli import main; raise SystemExit(main({words}))"
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "are compiled and cached" in done.stdout
        assert re.search("^compiling .*, [0-9]+ parts left$", done.stdout, re.MULTILINE)
        counts.append(sum(path.is_file() for path in tmp_path.rglob("*")))
    assert counts[0] == counts[1] > 0
