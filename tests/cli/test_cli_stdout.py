"""A stdout that fails: before the draw it is an error, after it nothing is lost."""

import errno
import io
import json
import os
import subprocess
import sys

import pytest

import dpsample as dps
from dpsample import cli
from tests.support.output_cases import NAMES, arguments, kept_in
from tests.support.output_cases import records as records
from tests.support.output_cases import spare as spare
from tests.support.tiers import one_in


class Stream(io.TextIOWrapper):
    """A stdout that fails once the certificate is printed."""

    def __init__(self, error):
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self.error = error

    def write(self, text):
        if "CERTIFICATE" in text:
            raise self.error
        return super().write(text)


ERRORS = {
    "reader gone": BrokenPipeError(errno.EPIPE, "Broken pipe"),
    "disk full": OSError(errno.ENOSPC, "No space left on device"),
    "closed": ValueError("I/O operation on closed file."),
    "encoding": UnicodeEncodeError("ascii", "\u00e2", 0, 1, "ordinal not in range"),
}


@one_in(4)
@pytest.mark.parametrize("has_output", [False, True])
@pytest.mark.parametrize("case", ERRORS)
def test_an_answer_that_cannot_be_printed_is_kept(
    records, spare, capsys, monkeypatch, case, has_output
):  # S7
    output = records.parent / "answer.json"
    monkeypatch.setattr(sys, "stdout", Stream(ERRORS[case]))
    more = ("--output", str(output)) if has_output else ()
    assert cli.main(arguments(records, *more)) == 1
    err = capsys.readouterr().err
    if has_output:
        assert str(output) in err and not list(spare.iterdir())
        assert dps.Release.load(output).feature_names == NAMES
    else:
        kept_in(spare, err)


def test_with_neither_file_nor_stdout_the_answer_is_on_stderr(
    records, spare, capsys, monkeypatch
):  # S7
    def full(*_):
        raise ERRORS["disk full"]

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(sys, "stdout", Stream(ERRORS["reader gone"]))
    assert cli.main(arguments(records)) == 1
    err = capsys.readouterr().err
    content = json.loads(err[: err.rindex("}") + 1])
    assert content["format"] == "dpsample-release-3" and len(content["theta"]) == 2
    assert "cut short" in err.splitlines()[-1] and not list(spare.iterdir())


@pytest.mark.parametrize("can_write", [True, False])
def test_what_was_in_the_output_is_replaced_or_there(
    records, spare, capsys, monkeypatch, can_write
):
    output = records.parent / "answer.json"
    answer = dps.Release.save

    def save(self, path):
        if path == output and not can_write:
            raise ERRORS["disk full"]
        answer(self, path)

    output.write_text("an older answer")
    monkeypatch.setattr(dps.Release, "save", save)
    more = ("--output", str(output), "--overwrite")
    assert cli.main(arguments(records, *more)) == (not can_write)
    assert (output.read_text() == "an older answer") == (not can_write)
    assert (
        "The answer in that file is replaced" in capsys.readouterr().out
    ) == can_write


def start(records, *more, **options):
    """The command in a process of its own."""
    code = "import sys; from dpsample.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments(records, *more)],
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE} | options,
    )


def ended(process):
    out, err = process.communicate(timeout=300)
    assert b"Traceback" not in err and b"Exception ignored" not in err, err
    return process.returncode, out, err.decode()


@pytest.mark.slow
def test_a_terminal_of_ascii_prints_any_name(records):  # S7
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    code, out, err = ended(start(records, env=environment))
    assert (code, err) == (0, "")
    assert out.isascii() and rb"\xe2ge" in out and rb"\u6536\u5165" in out
    assert b"epsilon = 1, delta = 1e-6" in out


def test_an_error_about_any_name_is_printed_in_ascii(records, monkeypatch):
    sink = io.BytesIO()
    for name in ("stdout", "stderr"):
        terminal = io.TextIOWrapper(sink, "ascii", "strict", write_through=True)
        monkeypatch.setattr(sys, name, terminal)
    assert cli.main(arguments(records, "--target", "\u5165")) == 2
    err = sink.getvalue()
    assert err.isascii() and err.count(b"\n") == 1


@pytest.mark.slow
def test_a_reader_that_goes_away_loses_nothing(records, spare):  # S7
    process = start(records)
    assert process.stdout.readline().startswith(b"Encoding")
    process.stdout.close()  # as `| head -1` does
    process.stdout = None
    code, _, err = ended(process)
    assert code == 1
    kept_in(spare, err)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")
@pytest.mark.parametrize("has_output", [False, True])
def test_a_closed_stdout_is_found_before_the_draw(records, spare, has_output):  # S7
    output = records.parent / "answer.json"
    more = ("--output", str(output)) if has_output else ()
    process = start(records, *more, stdout=None, preexec_fn=lambda: os.close(1))
    code, _, err = ended(process)
    assert not list(spare.iterdir())
    if has_output:
        assert code == 0 and dps.Release.load(output).feature_names == NAMES
    else:
        assert code == 2 and "stdout must be open, got none" in err


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(records, spare):  # S7
    with open("/dev/full", "wb") as sink:
        code, _, err = ended(start(records, stdout=sink))
    assert code == 2 and "No space left" in err and err.count("\n") == 1
    assert not list(spare.iterdir())
