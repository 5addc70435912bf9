"""No error of a user is a traceback: every command, every kind of wrong file."""

import pytest

from dpsample import cli
from tests.support.tiers import one_in

BUDGET = ("--epsilon", "1", "--delta", "1e-6", "--radius", "1", "--row-bound", "1")
GOOD = "x,y\n0.5,1\n0.1,-1\n"
# What may stand where a file is meant.
WRONG = {
    "missing": None,
    "folder": None,
    "empty": b"",
    "blank": b"\n\n \n",
    "binary": bytes(range(256)) * 9,
    "zeros": bytes(2000),
    "Latin-1": "x,y\n0,5\u00e9,1\n".encode("latin-1"),
    "UTF-16": GOOD.encode("utf-16"),
    "header": b"x,y\n",
    "quote": b'x,y\n"0.5,1\n',
    "brackets": b"[" * 100_000,
    "long": b"x" * 200_000,
}
# Where it may stand; {} is the file, whose suffix comes first.
PLACES = {
    "records csv": (".csv", "release {} --target y"),
    "records parquet": (".parquet", "release {} --target y"),
    "records libsvm": (".t", "release {} --num-features 2"),
    "records gzip": (".csv.gz", "release {} --target y"),
    "records xz": (".csv.xz", "sample {} --target y"),
    "bounds toml": (".toml", "release good.csv --target y --bounds {}"),
    "bounds json": (".json", "sample good.csv --target y --bounds {}"),
    "evaluate": (".csv", "release good.csv --target y --evaluate {}"),
    "answer": (".json", "verify {}"),
    "study": (".py", "study run {stem} --studies ."),
    "studies": (".py", "study list --studies {}"),
    "report": (".sqlite", "study report {stem} --studies . --output ."),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(GOOD)
    return tmp_path


@one_in(10)
@pytest.mark.parametrize("place", PLACES)
def test_any_content_where_a_file_is_meant_is_one_line(folder, capsys, place):
    suffix, command = PLACES[place]
    for case, content in WRONG.items():
        if (place, case) == ("studies", "folder"):
            continue
        path = folder / f"wrong-{case.replace(' ', '-')}{suffix}"
        if case == "folder":
            path.mkdir()
        elif content is not None:
            path.write_bytes(content)
        line = command.format(path.name, stem=path.stem)
        options = BUDGET if line.startswith(("release", "sample")) else ()
        code = cli.main([*line.split(), *options])
        out, err = capsys.readouterr()
        assert code == 2, (case, code, out, err)
        assert err.startswith("dpsample: error: ") and err.count("\n") == 1, case
        assert len(err) < 1000 and "Traceback" not in err, case
        path.rmdir() if case == "folder" else path.unlink(missing_ok=True)


COMBINATIONS = {
    "claims --json --markdown": "Choose one format",
    "claims --paper nobody": "paper must be one of",
    "demo --output no/such/x.png": "a file in an existing folder",
    "verify": "Missing argument",
    "verify a b": "unexpected extra argument",
    "release good.csv --radius 1": "Missing option",
    "release good.csv --target y --num-features 0 --format libsvm": "num_features",
    "release good.csv --target y --format parquet": "",
    "release good.csv --target y --seed x": "--seed",
    "sample good.csv --target y --k 1": "given by either",
    "sample good.csv --target y --k 1 --mu 1 --chains 0": "num_chains",
    "study run": "names must be names of studies, or --all",
    "study run x --studies none": "studies must be a folder",
    "study run x --studies .": "studies must be a folder of studies",
    "release . --positive-label yes": "path must be an existing file",
    "release missing --positive-label yes": "path must be an existing file",
    "predict good.csv good.csv": "path must be a file written by Release.save",
    "--versions": "No such option",
    "warm 3": "unexpected extra argument",
}


@pytest.mark.parametrize("line", COMBINATIONS)
def test_wrong_combinations_of_options_are_one_line(folder, capsys, line):
    given = line.split()
    options = BUDGET if given[0] in ("release", "sample") and "--k" not in line else ()
    if given[0] == "sample":
        options = BUDGET[4:]
    if "Missing option" in COMBINATIONS[line]:
        options = ()
    assert cli.main([*given, *options]) in (1, 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("dpsample: error: ")
    assert COMBINATIONS[line] in err and "0.5" not in err  # no record


def test_names_of_a_file_do_not_steer_the_terminal(folder, capsys):
    (folder / "good.csv").write_text("\x1b[2Jx,y\n0.5,1\n0.1,-1\n")
    assert cli.main(["release", "good.csv", "--target", "y", *BUDGET]) == 0
    assert cli.main(["release", "good.csv", "--target", "\x1b[2J", *BUDGET]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and r"\x1b[2Jx" in out and r"\x1b[2J" in err


def test_a_study_that_is_no_python_names_file_and_line(folder, capsys):
    (folder / "broken.py").write_text("import os\nstudy = (\n")
    assert cli.main(["study", "list", "--studies", str(folder)]) == 2
    assert "valid Python, got broken.py, line 2: " in capsys.readouterr().err
