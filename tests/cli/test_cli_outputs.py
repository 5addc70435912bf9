"""Files that commands write: new ones, or replaced on request; private ones' modes."""

import os
import stat

import pytest
import typer

import dpsample as dps
from dpsample import cli
from dpsample.cli import commands, demo, screen
from tests.support.terminal_commands import CASES
from tests.support.tiers import one_in

# Option that names the file, and whether it is for its owner alone.
OUTPUTS = {
    "fit": ("--output", True),
    "release": ("--output", True),
    "sample": ("--output", True),
    "predict": ("--output", True),
    "bounds": ("--output", False),
    "certificate": ("--html", False),
    "demo": ("--output", False),
    "stat": ("--output", True),
}


def test_every_command_that_writes_a_file_has_a_case():
    group = typer.main.get_command(commands.app)
    writing = {
        name
        for name, command in group.commands.items()
        if {"--output", "--html"} & {o for p in command.params for o in p.opts}
    }
    assert writing == set(OUTPUTS)


@one_in(3)
@pytest.mark.parametrize("name", OUTPUTS)
def test_what_exists_is_replaced_on_request_alone(
    folder, tmp_path, monkeypatch, capsys, name
):  # F8, P4
    monkeypatch.setattr(demo, "NUM_RECORDS", 200)
    option, is_private = OUTPUTS[name]
    path = tmp_path / ("output.html" if name == "demo" else "output.nc")
    path.write_text("an older answer")
    path.chmod(0o644)
    given = [a for a in CASES[name][0](folder) if a not in ("--output", "--overwrite")]
    given = [a for a in given if not a.endswith(".html")] + [option, str(path)]
    with monkeypatch.context() as patch:
        patch.setattr(screen, "console", None)  # nothing is begun
        assert cli.main(given) == 2
    err = capsys.readouterr().err
    assert "must be a new file" in err and "--overwrite" in err
    assert path.read_text() == "an older answer"
    assert cli.main([*given, "--overwrite"]) == 0
    assert b"an older answer" not in path.read_bytes()
    mode = stat.S_IMODE(path.stat().st_mode)
    assert mode == (0o600 if is_private else 0o644)


@pytest.mark.slow
def test_the_page_of_the_last_demo_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "NUM_RECORDS", 200)
    for _ in range(2):
        assert cli.main(["demo"]) == 0
    assert os.listdir() == ["dpsample-demo.html"]


def test_a_file_that_comes_while_we_draw_is_kept_and_so_is_the_answer(
    folder, tmp_path, monkeypatch, capsys
):
    path, release = tmp_path / "answer.json", dps.release

    def slow(*arguments, **options):
        path.write_text("another answer")
        return release(*arguments, **options)

    monkeypatch.setattr(dps, "release", slow)
    monkeypatch.setattr(screen.tempfile, "tempdir", str(tmp_path))
    given = CASES["release"][0](folder)
    assert cli.main([*given, "--output", str(path)]) == 1
    assert path.read_text() == "another answer"
    (spare,) = tmp_path.glob("dpsample-*.json")
    assert str(spare) in capsys.readouterr().err
    assert dps.Release.load(spare).theta.size == 2
    assert stat.S_IMODE(spare.stat().st_mode) == 0o600


def test_checkpoints_and_their_draws_are_their_owners(folder, tmp_path):  # P4
    path = tmp_path / "checkpoint"
    given = CASES["sample"][0](folder)
    assert cli.main([*given, "--checkpoint", str(path)]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
