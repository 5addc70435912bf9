"""Outputs: tested before a draw, and after it nothing loses what was drawn."""

import errno
import json
import os
import subprocess

import pytest

import dpsample as dps
from dpsample import cli
from dpsample.cli import release
from tests.support.output_cases import arguments, kept_in
from tests.support.output_cases import records as records
from tests.support.output_cases import spare as spare


@pytest.fixture
def no_draw(monkeypatch):
    def too_late(*_, **__):
        raise AssertionError("a draw was made")

    monkeypatch.setattr(release.dps, "release", too_late)


BAD_OUTPUTS = {
    "a folder": (".", "output must be a file, got the folder"),
    "no folder": ("no/such/x.json", "a file in an existing folder"),
    "below a file": ("r.csv/x.json", "a file in an existing folder"),
    "too long": ("n" * 300, "can be written"),
    "the records": ("r.csv", "another file than the others"),
}


@pytest.mark.parametrize("case", BAD_OUTPUTS)
def test_an_output_that_would_fail_is_found_before_the_draw(
    records, capsys, no_draw, case
):  # S7
    name, message = BAD_OUTPUTS[case]
    output = ("--output", str(records.parent / name))
    assert cli.main(arguments(records, *output)) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_a_folder_that_takes_no_files_is_found_before_the_draw(
    records, capsys, no_draw
):  # S7
    assert cli.main(arguments(records, "--output", "/proc/answer.json")) == 2
    assert "can be written, got /proc/answer.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["release", "sample", "demo"])
def test_every_command_that_writes_tests_its_output(records, capsys, command):  # S7
    output = ("--output", str(records.parent))
    options = arguments(records)[1:] if command != "demo" else []
    assert cli.main([command, *options, *output]) == 2
    assert "output must be a file, got the folder" in capsys.readouterr().err


def test_a_checkpoint_that_would_fail_is_found_before_the_draw(records, capsys):  # S7
    options = arguments(records, "--checkpoint", str(records.parent))[1:]
    assert cli.main(["sample", *options]) == 2
    assert "checkpoint must be a file, got the folder" in capsys.readouterr().err


def test_draws_and_their_checkpoint_are_two_files(records, capsys):
    one = str(records.parent / "one")
    options = arguments(records, "--checkpoint", one, "--output", one)[1:]
    assert cli.main(["sample", *options]) == 2
    assert "another file than the others" in capsys.readouterr().err


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_answer_that_cannot_be_saved_goes_to_a_private_file(
    records, spare, capsys, monkeypatch
):  # S7
    output = records.parent / "answer.json"
    output.write_text("old")
    real = os.fsync
    calls = []

    def once(descriptor):
        calls.append(descriptor)
        return full() if len(calls) == 1 else real(descriptor)

    monkeypatch.setattr(os, "fsync", once)
    replace = ("--output", str(output), "--overwrite")
    assert cli.main(arguments(records, *replace)) == 1
    out, err = capsys.readouterr()
    path = kept_in(spare, err)
    assert "answer.json could not be written (No space left on device)" in err
    assert "epsilon = 1, delta = 1e-6" in out and str(path) in out
    assert output.read_text() == "old"
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0


def test_with_no_room_for_any_file_the_answer_is_printed_in_full(
    records, capsys, monkeypatch, spare
):  # S7
    monkeypatch.setattr(os, "fsync", full)
    output = records.parent / "answer.json"
    assert cli.main(arguments(records, "--output", str(output))) == 1
    out, err = capsys.readouterr()
    assert "The draw is shown above" in err and err.count("\n") == 1
    assert not output.exists() and not list(spare.iterdir())
    output.write_text(out[out.index("{") : out.rindex("}") + 1])
    monkeypatch.undo()
    dps.verify(dps.Release.load(output).certificate)


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyError])
def test_neither_ctrl_c_nor_a_bug_loses_an_answer(
    records, spare, capsys, monkeypatch, error
):  # S7
    def fails(*_, **__):
        raise error("later")

    monkeypatch.setattr(release, "print_evaluation", fails)
    options = arguments(records, "--evaluate", str(records))
    if error is KeyError:  # a bug stays visible
        with pytest.raises(KeyError):
            cli.main(options)
    else:
        assert cli.main(options) == 130
    kept_in(spare, capsys.readouterr().err)


@pytest.mark.slow
def test_draws_that_cannot_be_saved_go_to_a_private_file(
    records, spare, capsys, monkeypatch
):  # S7
    real, calls = os.fsync, []

    def once(descriptor):
        calls.append(descriptor)
        return full() if len(calls) == 1 else real(descriptor)

    monkeypatch.setattr(os, "fsync", once)
    output = records.parent / "draws.nc"
    short = ("--draws", "4", "--chains", "1", "--warmup", "0", "--sampler", "mala")
    options = arguments(records, *short, "--output", str(output))[1:]
    assert cli.main(["sample", *options]) == 1
    (path,) = spare.iterdir()
    assert path.suffix == ".nc" and str(path) in capsys.readouterr().err
    assert path.read_bytes()[1:4] == b"HDF" and not output.exists()


def test_an_existing_answer_is_replaced_on_request(records):
    output = records.parent / "answer.json"
    texts = []
    for options in ((), ("--overwrite",)):
        assert cli.main(arguments(records, "--output", str(output), *options)) == 0
        texts.append(json.loads(output.read_text()))
    assert texts[0]["theta"] != texts[1]["theta"]


@pytest.fixture(scope="module")
def answer():
    data = dps.datasets.logistic(60, 2, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )
    return dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6), seed=3)


def test_a_release_that_cannot_be_saved_leaves_the_old_file(
    answer, tmp_path, monkeypatch
):  # S7
    path = tmp_path / "answer.json"
    answer.save(path)
    before = path.read_bytes()

    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            with pytest.raises(OSError, match="No space left"):
                answer.save(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["answer.json"]
    answer.save(path)


def test_a_full_disk_leaves_the_old_file(answer, tmp_path):  # S7
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted")
    try:
        (tmp_path / "answer.json").write_text("old")
        (tmp_path / "rest").write_bytes(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            answer.save(tmp_path / "answer.json")
        assert (tmp_path / "answer.json").read_text() == "old"
        assert set(os.listdir(tmp_path)) == {"answer.json", "rest"}
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
