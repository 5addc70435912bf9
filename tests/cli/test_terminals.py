"""Every command in every terminal: full results, and the exit codes of the docs.

The commands are those of the program itself: a new one fails here until it has a case.
"""

import errno
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections import Counter
from fcntl import ioctl

import pytest
import typer

import dpsample as dps
from dpsample import __main__, cli
from dpsample.api import warm
from dpsample.cli import claims, commands, demo, screen, verify
from dpsample.papers import Claim
from dpsample.privacy import usefulness
from tests.support.processes import ROOT
from tests.support.terminal_commands import CASES, RECORDS
from tests.support.tiers import one_in

WIDE = "500"
WIDTHS = [
    "0",
    "1",
    "10",
    "20",
    "80",
    WIDE,
    "1" + 4400 * "0",
    "",
    "wide",
    "\u00b2",
    "-3",
]
ENCODINGS = ["utf-8", "ascii", "latin-1"]


def command_names(command, path=()):
    """Names of all commands, those of groups included."""
    inner = getattr(command, "commands", {})
    for name, each in inner.items():
        yield from command_names(each, (*path, name))
    if not inner:
        yield " ".join(path)


NAMES = sorted(command_names(typer.main.get_command(commands.app)))


# Further cases: help, errors, and formats of lines.
OTHERS = {
    **{
        f"{name} --help": (lambda f, n=name: [*n.split(), "--help"], 0)
        for name in CASES
    },
    "--version": (lambda f: ["--version"], 0),
    "no file": (lambda f: ["verify", f"{f}/none.json"], 2),
    "no command": (lambda f: ["relase"], 2),
    "no certificate": (lambda f: ["verify", f"{f}/forged.json"], 1),
    "errata --markdown": (lambda f: ["errata", "--markdown"], 0),
    "erratum": (lambda f: ["errata", "GLLST-E1"], 0),
    "papers --markdown": (lambda f: ["papers", "--markdown"], 0),
    "claims --json": (lambda f: ["claims", "--paper", "gopi", "--json"], 0),
}
# They draw anew or take longer: not in every combination.
DEAR = {"demo", "study report", "study run"}


def test_every_command_has_a_case():
    assert NAMES == sorted(CASES) and len(NAMES) >= 14


@pytest.fixture
def quick(monkeypatch, environment):
    """The same prints as always, of less work, and use is not judged."""
    monkeypatch.setattr(usefulness, "reservations", lambda *_: ())
    row = Claim(
        paper="gopi",
        place="Theorem 3",
        formula="k = eps^2 / (L^2 G)",
        setting="n = 100, d = 10, a setting of some words",
        accounting="the pair of linear losses that is farthest apart",
        relation="replace_one",
        epsilon=1.0,
        delta=1e-6,
        meaning="exact",
        true_epsilon=1.987654,
        noise_factor=1.57,
    )
    monkeypatch.setattr(claims, "claims", lambda paper, progress: [row])
    monkeypatch.setattr(demo, "NUM_RECORDS", 200)

    def warmed(on_progress, *, processes, is_whole):
        on_progress(f"sampler of {processes * 0} parts", int(is_whole))
        return 31

    monkeypatch.setattr(warm, "warm", warmed)


def output(arguments, monkeypatch, *, columns=None, encoding="utf-8"):
    """Code, stdout and stderr of a command in this process."""
    streams = {}
    with monkeypatch.context() as patch:
        if columns is None:
            patch.delenv("COLUMNS", raising=False)
        else:
            patch.setenv("COLUMNS", columns)
        for name in ("stdout", "stderr"):
            streams[name] = io.TextIOWrapper(io.BytesIO(), encoding, newline="")
            patch.setattr(sys, name, streams[name])
        code = cli.main(arguments)
    texts = []
    for stream in streams.values():
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return code, *texts


def content(text):
    """Words without the frames of tables: what no width may change."""
    text = re.sub(r"dpsample-[a-z0-9_]+|\d+(\.\d+)? ?m?s\b", "", text)  # names, seconds
    return Counter(re.findall(r"[^\s\u2500-\u257f+|-][^\s\u2500-\u257f|]*", text))


def words_of(name, text):
    """Words of a command; a help is broken at hyphens, a demo draws anew."""
    left_out = {"demo": r"[-+.\de%]+"}.get(name, "-" if "--help" in name else "$^")
    return content(re.sub(left_out, " ", text))


def assert_full(folder, monkeypatch, name, widths, encoding):
    """A case prints at all widths what it prints at a large one."""
    arguments, code = (CASES | OTHERS)[name]
    given = arguments(folder)
    whole = output(given, monkeypatch, columns=WIDE, encoding=encoding)
    assert whole[0] == code and (whole[1] or whole[2]), whole
    for columns in widths:
        found = output(given, monkeypatch, columns=columns, encoding=encoding)
        assert found[0] == code, found
        for text, expected in zip(found[1:], whole[1:], strict=True):
            lost = words_of(name, expected) - words_of(name, text)
            where = f"{name} at {columns[:9]!r} columns in {encoding}"
            assert not lost and "\u2026" not in text, f"{where}: {lost}"


def forge(folder):
    text = (folder / "a.json").read_text()
    (folder / "forged.json").write_text(re.sub('"digest": "..', '"digest": "zz', text))


PLAIN = {name: case for name, case in (CASES | OTHERS).items() if name not in DEAR}


@one_in(8)
@pytest.mark.parametrize("name", PLAIN)
def test_no_width_cuts_what_a_command_prints(folder, quick, monkeypatch, name):  # F1
    forge(folder)
    assert_full(folder, monkeypatch, name, ["0", "10"], "utf-8")
    assert_full(folder, monkeypatch, name, ["\u00b2"], "ascii")


@pytest.mark.slow
def test_the_parameters_of_a_release_are_printed_without_columns(
    folder, quick, monkeypatch
):  # F1
    answer = dps.Release.load(folder / "a.json")
    for columns in WIDTHS:
        given = RECORDS(folder, "release")
        code, out, err = output(given, monkeypatch, columns=columns)
        assert (code, err) == (0, "")
        table = out[out.index("Private parameters") :]
        for name, value in zip(answer.feature_names, answer.theta, strict=True):
            (line,) = (x for x in table.splitlines() if name in x)
            assert f"{value:.6g}" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES | OTHERS)
def test_no_terminal_cuts_what_a_command_prints(folder, quick, monkeypatch, name):  # F1
    forge(folder)
    widths = [*WIDTHS, *map(str, range(2, 130, 4 if name in PLAIN else 32))]
    for encoding in ENCODINGS:
        assert_full(folder, monkeypatch, name, widths, encoding)


def test_a_table_that_is_cut_is_found(folder, quick, monkeypatch):
    """The planted bug: Rich as it is, which fits tables to the width it is told."""

    class Cut(screen._Console):
        def __init__(self, **options):
            super().__init__(**options | {"width": int(os.environ["COLUMNS"])})

    monkeypatch.setattr(screen, "_Console", Cut)
    with pytest.raises(AssertionError, match="release at '10' columns"):
        assert_full(folder, monkeypatch, "release", ["10"], "utf-8")


class Reader(io.TextIOWrapper):
    """A stdout whose reader goes away after some bytes, as that of `| head -1`."""

    def __init__(self, left):
        super().__init__(io.BytesIO(), "utf-8", write_through=True)
        self.left = left

    def write(self, text):
        self.left -= len(text)
        if self.left < 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


@one_in(4, 1)
@pytest.mark.parametrize("name", PLAIN)
def test_a_reader_that_goes_away_is_one_line_and_no_traceback(
    folder, quick, monkeypatch, name, tmp_path
):
    forge(folder)
    monkeypatch.setattr(screen.tempfile, "tempdir", str(tmp_path))
    arguments, code = PLAIN[name]
    for left in (0, 30, 1000):
        stderr = io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", Reader(left))
            patch.setattr(sys, "stderr", stderr)
            found = cli.main(arguments(folder))
        err = stderr.getvalue()
        assert found in (code, 1) and err.count("\n") <= 1
        if name == "release" and left == 1000:  # the answer was drawn, and is kept
            assert found == 1 and "The draw is in" in err


@pytest.mark.parametrize("name", ["release", "predict", "no file", "study run"])
def test_without_stderr_nothing_more_is_on_stdout(folder, quick, monkeypatch, name):
    """Python takes stdout where stderr is closed, as by ``2>&-`` in a shell."""
    arguments, code = (CASES | OTHERS)[name]
    expected = output(arguments(folder), monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        patch.setattr(sys, "stderr", None)
        screen.tell("NOT PRIVATE")
        assert cli.main(arguments(folder)) == expected[0] == code
        assert words_of(name, sys.stdout.getvalue()) == words_of(name, expected[1])


class Lines(io.StringIO):
    """A stderr that is no terminal, and tells when it has some lines."""

    def __init__(self):
        super().__init__()
        self.has_two = threading.Event()

    def flush(self):
        if self.getvalue().count("\n") >= 2:
            self.has_two.set()


def test_a_long_run_says_each_minute_what_it_does(monkeypatch):  # F8
    stderr = Lines()
    monkeypatch.setattr(screen, "MINUTE_SECONDS", 1e-3)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(verify, "run", lambda *_: not stderr.has_two.wait(600.0))
    assert cli.main(["verify", "answer.json"]) == 0
    lines = stderr.getvalue().splitlines()
    assert set(lines) == {"dpsample: verify: 0 min so far"} and len(lines) >= 2


def process(arguments, *, environment, **options):
    given = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.Popen(
        [sys.executable, "-m", "dpsample", *arguments],
        env={name: value for name, value in given.items() if value is not None},
        **options,
    )


def test_the_package_is_a_program():  # F5
    done = process(["--version"], environment={}, stdout=subprocess.PIPE)
    out, _ = done.communicate(timeout=600)
    assert (done.returncode, out.decode()) == (0, f"dpsample {dps.__version__}\n")


def test_ctrl_c_while_modules_are_loaded_has_no_traceback(monkeypatch):
    class Pressed:
        def find_spec(name, *_):
            if name == "dpsample.cli":
                signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.delitem(sys.modules, "dpsample.cli")
    monkeypatch.setattr(sys, "meta_path", [Pressed, *sys.meta_path])
    try:
        assert __main__.run() == 130
        # What ends Python is heard, too.
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


PROCESSES = [
    {"COLUMNS": "0"},
    {"COLUMNS": "10", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    {"COLUMNS": None, "TERM": "dumb"},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("warm", "claims")])
def test_a_process_prints_all_in_any_environment(folder, name):
    """Commands in processes of their own, to a pipe, to `head` and to a terminal."""
    arguments, code = CASES[name]
    given = arguments(folder)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    outs = []
    for variables in PROCESSES:
        done = process(given, environment=variables, **pipes)
        out, err = done.communicate(timeout=300)
        assert done.returncode == code and b"Traceback" not in err, err
        outs.append(words_of(name, out.decode()))
    assert outs[2] == outs[0]
    with process(given, environment={}, **pipes) as done:
        done.stdout.readline()
        done.stdout.close()
        err = done.stderr.read()
        assert done.wait(300) in (code, 1) and b"Traceback" not in err, err
    assert outs[2] == words_of(name, in_terminal(given, columns=10))


def in_terminal(arguments, *, columns):
    """What a terminal of so many columns shows."""
    here, there = pty.openpty()
    ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = process(
        arguments,
        environment={"COLUMNS": None, "TERM": "xterm"},
        stdout=there,
        stderr=there,
    )
    os.close(there)
    parts = []
    while True:
        try:
            parts.append(os.read(here, 65_536))
        except OSError:  # the end of a pseudo-terminal
            break
    os.close(here)
    assert done.wait(300) == 0
    text = b"".join(parts).decode().replace("\r", "")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
