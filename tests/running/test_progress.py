"""Live lines: what they show, how often, and where they stay away."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import types
from contextlib import contextmanager, suppress
from fcntl import ioctl

import numpy as np
import pytest
from arviz_stats.base import array_stats

import dpsample as dps
from dpsample.api.warm import LOGISTIC, make, public_samplers
from dpsample.core import cache
from dpsample.numerics.r_hat_and_ess import effective_share
from dpsample.running import progress
from dpsample.running.checkpoint import CheckpointRun
from dpsample.samplers.chain import STAT
from tests.support.autoregressions import autoregression
from tests.support.fake_clock import FakeClock
from tests.support.notebooks import Notebook, release, words
from tests.support.processes import ROOT


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def a_run(draws):
    run = CheckpointRun(
        [types.SimpleNamespace(position=draws[0, 0]) for _ in draws], []
    )
    run.reserve(draws.shape[1])
    run.draws[:] = draws
    run.stats[:] = 0.0
    run.stats[:, :, STAT.acceptance_rate] = 0.25
    run.stats[:, :, STAT.energy] = np.nan
    run.done = draws.shape[1]
    return run


def test_lines_show_draws_acceptance_rate_and_time_left(monkeypatch):
    clock, painted = Clock(monkeypatch), []
    run = a_run(autoregression(0.5, length=1_000))
    with progress.lines("MALA(): because", 100, paint=painted.append) as paint:
        for done in range(10, 1_001, 10):
            clock.now += 0.1
            paint(done, 1_000, run)
    texts = [words(table) for table in painted]
    assert all("MALA(): because" in text for text in texts)
    assert "10 of 100 warm-up" in texts[0]
    assert "900 of 900" in texts[-1] and "0.25" in texts[-1] and "0 s" in texts[-1]
    assert [line.split()[1] for line in texts[-1].splitlines()[-3:-1]] == ["0", "1"]
    # 9.9 seconds, a picture each 0.2 or, by rounding, 0.3
    assert 33 <= len(texts) <= 52
    rates = [float(line.split("│")[4]) for line in texts[-1].splitlines()[-3:-1]]
    # 100 draws a second, of which a third counts
    assert all(20.0 < rate < 50.0 for rate in rates)
    assert "-" in texts[0].splitlines()[-2]


def test_an_estimate_is_followed_by_a_pause_fifty_times_as_long(monkeypatch):
    clock, calls = Clock(monkeypatch), []

    def slow(series):
        calls.append(clock.now)
        clock.now += 0.5  # of each of two chains
        return 1.0

    monkeypatch.setattr(progress, "effective_share", slow)
    run = a_run(autoregression(0.5, length=1_000))
    with progress.lines("", 0, paint=lambda table: None) as paint:
        for done in range(10, 1_000, 10):
            clock.now += 1.0
            paint(done, 1_000, run)
    assert len(calls) == 4 and calls[2] - calls[0] >= 50.0


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.5, 0.9])
def test_the_share_is_that_of_arviz(phi):
    chain = autoregression(phi, num_chains=1, length=5_000)[0]
    sizes = array_stats.ess(chain[None], chain_axis=0, draw_axis=1, method="mean")
    assert effective_share(chain[None]) * 5_000 == pytest.approx(min(sizes), rel=0.1)


def test_columns_without_a_spread_or_with_nan_are_left_out():
    chain = autoregression(0.5, num_chains=1)[0]
    spoiled = np.column_stack((chain, np.ones(len(chain)), np.full(len(chain), np.nan)))
    assert effective_share(spoiled[None]) == effective_share(chain[None])
    assert np.isnan(effective_share(spoiled[None, :, 3:]))


def sample(**options):
    target = make(LOGISTIC, dps.domains.Ball(1.0))
    return dps.sample(target, num_draws=20, num_warmup=5, num_chains=2, **options)


def test_nothing_is_shown_without_a_terminal(capsys):
    sample()
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def notebook(monkeypatch):
    return Notebook(monkeypatch)


def test_a_notebook_gets_one_output_that_is_empty_at_the_end(notebook):  # L1
    sample()
    assert any("20 of 20" in text and "NOT PRIVATE" in text for text in notebook.shown)
    assert len(notebook.outputs) == 1 and not notebook.kept
    count = len(notebook.shown)
    sample(progress=False)
    assert len(notebook.shown) == count


CELL = """
import numpy as np
import dpsample as dps
from dpsample.running import progress
progress.PATIENCE_SECONDS = progress.REFRESH_SECONDS = 0.0
from tests.support.notebooks import release
release(1).certificate.releasable
"""


@pytest.mark.slow
def test_a_saved_notebook_holds_no_line(monkeypatch):  # L1
    nbclient, nbformat = map(pytest.importorskip, ("nbclient", "nbformat"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=600).execute()
    outputs = notebook.cells[0].outputs
    assert outputs[-1]["data"] == {"text/plain": "False"}  # seeded
    assert len(outputs) >= 2  # the line was there
    assert all(not any(each["data"].values()) for each in outputs[:-1])


def test_a_release_shows_nothing_of_the_records_in_a_notebook(  # L1
    notebook, monkeypatch
):
    for number in (1, 2):
        release(number)
    assert notebook.shown and not notebook.kept
    public = r"release is drawing; after Ctrl-C nothing is released: \d+ s"
    texts = [text for text in notebook.shown if text]
    assert texts and all(re.fullmatch(public, text) for text in texts)
    count = len(notebook.shown)
    release(1, progress=False)
    FakeClock(monkeypatch)  # a busy machine draws no answer within seconds
    release(1, deadline=0.2)
    assert len(notebook.shown) == count


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, dps.SamplingError])
@pytest.mark.parametrize(
    "opened",
    [
        progress.line,
        lambda: progress.patience("title"),
        lambda: progress.counter("title", "steps", 3),
    ],
)
def test_a_line_is_gone_after_an_error(notebook, opened, error):  # L1
    with pytest.raises(error), opened() as show:
        show(1)
        raise error
    assert notebook.shown and not notebook.kept


def test_a_display_that_fails_ends_no_run(notebook):
    notebook.error = OSError("the front end is gone")
    assert sample().posterior["theta"].shape[:2] == (2, 20)


def test_a_line_appears_after_a_moment_only(monkeypatch, notebook):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 2.0)
    with progress.patience("work", remedy="take less") as say:
        clock.now += 1.9
        say("early")
        assert not notebook.outputs
        clock.now += 1.1
        say("late")
        clock.now += 60.0
        say("later")
    assert notebook.shown[:2] == ["work: 3 s", "work: 63 s; take less"]


def test_only_the_main_thread_of_the_main_process_draws(notebook):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(progress.is_shown()))
    thread.start()
    thread.join()
    assert seen == [False] and progress.is_shown()


START = """
import dpsample as dps
from dpsample.running import progress
from dpsample.api.warm import LOGISTIC, make
progress.PATIENCE_SECONDS = progress.REFRESH_SECONDS = 0.0
progress._shown.add(progress.COMPILING)
"""
DRAWS = """
dps.sample(make(LOGISTIC, dps.domains.Ball(1.0)), num_draws=20, num_warmup=5,
           num_chains=3, progress={progress})
"""


def in_terminal(code, *, columns=100, **variables):
    """What a process writes on a terminal, and what stays there at its end."""
    here, there = pty.openpty()
    ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = subprocess.Popen(
        [sys.executable, "-c", START + code],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | variables,
        stderr=there,
    )
    os.close(there)
    parts = []
    with suppress(OSError):  # the end of a pseudo-terminal
        while part := os.read(here, 65_536):
            parts.append(part)
    os.close(here)
    done.wait(300)
    text = b"".join(parts).decode()
    return text, screen(text, columns)


def screen(text, columns):
    """Lines that a terminal shows in the end."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]", text):
        if part == "\n":
            row += 1
        elif part == "\r":
            continue  # each line is written, or erased, from its begin
        elif part.startswith("\x1b"):
            row -= int(part[2:-1] or 1) if part.endswith("A") else 0
            lines[row] = "" if part == "\x1b[2K" else lines[row]
        else:
            row += len(lines[row]) == columns
            lines += [""] * (row + 1 - len(lines))
            lines[row] += part
        lines += [""] * (row + 1 - len(lines))
    return [line for line in lines if line.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize("columns", [40, 100])
def test_a_terminal_gets_the_reason_and_a_line_per_chain(is_wanted, columns):
    code = DRAWS.format(progress=is_wanted)
    # Not the width of the terminal, by which lines are erased; a digit for Rich.
    text, left = in_terminal(code, columns=columns, COLUMNS="\u00b2")
    assert ("NOT PRIVATE" in text) is is_wanted
    assert left == []  # L1
    if columns == 100:
        assert (text.count("20 of 20") >= 3) is is_wanted
        named = any(f"{kind.__name__}(" in text for kind in public_samplers())
        assert named is is_wanted


RELEASES = {
    "to its end": "",
    "an error": """
from dpsample.problem.problem import Problem
def failing(*_):
    raise SystemExit("the end")
Problem._risks = failing
""",
    "Ctrl-C": """
import signal
from dpsample.problem.problem import Problem
Problem._risks = lambda *_: signal.raise_signal(signal.SIGINT)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("end", RELEASES)
def test_the_line_of_a_release_is_erased_whatever_ends_it(end):  # L1
    code = RELEASES[end] + "from tests.support.notebooks import release; release(1)"
    text, left = in_terminal(code, columns=50, COLUMNS="500")
    assert "release is drawing" in text and "NOT PRIVATE" in text
    assert not any("passes" in line or "drawing" in line for line in left)


def miss():
    """Tell who listens that a kernel is not in the cache."""
    for tell in tuple(cache.on_miss):
        tell()


@pytest.fixture
def seen(monkeypatch):
    """A person looks at a terminal, to which nothing was said."""
    monkeypatch.setattr(progress, "_shown", set())
    monkeypatch.setattr(progress, "is_shown", lambda: True)
    monkeypatch.setattr(progress, "_in_notebook", lambda: False)


def first_call(clock, seconds, **options):
    with progress.compiling("sample", 10.0, **options):
        for _ in range(3):
            miss()
            clock.now += seconds


@pytest.mark.usefixtures("seen")
def test_a_first_call_says_once_that_it_compiles(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    first_call(clock, 0.01)  # one small kernel, as of a user's loss
    first_call(clock, 1.0, is_wanted=False)
    assert capsys.readouterr() == ("", "")
    for said in (1, 0):
        first_call(clock, 1.0)
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == said
        assert err.count("sample is compiled for this machine, which takes") == said
        assert err.count("about 10 s once") == said
    assert not cache.on_miss


def test_a_first_call_says_nothing_where_nobody_looks(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_shown", set())
    first_call(Clock(monkeypatch), 1.0)
    assert capsys.readouterr() == ("", "")


def test_in_a_notebook_it_says_so_until_the_end(monkeypatch, notebook):
    monkeypatch.setattr(progress, "_shown", set())
    first_call(Clock(monkeypatch), 1.0)
    assert [text for text in notebook.shown if "sample is compiled" in text]
    assert len(notebook.outputs) == 1 and not notebook.kept


@pytest.mark.usefixtures("seen")
def test_what_an_error_ends_no_longer_listens(monkeypatch):
    with pytest.raises(ValueError, match="stop"), progress.compiling("sample", 1.0):
        raise ValueError("stop")
    assert not cache.on_miss


@pytest.mark.parametrize("options", [{}, {"progress": True}, {"progress": False}])
def test_progress_false_silences_the_first_call(monkeypatch, options):
    wanted = []

    @contextmanager
    def compiling(verb, seconds, *, is_wanted):
        wanted.append((verb, seconds, is_wanted))
        yield

    monkeypatch.setattr(progress, "compiling", compiling)

    @progress.compiles_first(seconds=3.0)
    def draw(*, progress=True):
        return progress

    assert draw(**options) is options.get("progress", True)
    assert wanted == [("draw", 3.0, options.get("progress", True))]


FIRST = """
progress._shown.clear()
problem = make(LOGISTIC, dps.domains.Ball(1.0)).problem
for _ in range(2):
    dps.minimize(problem, dps.optimizers.ClippedGD(clip=1.0, num_steps=2){options})
"""


@pytest.mark.slow
def test_a_terminal_is_told_of_the_first_compilation_only(tmp_path):
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path)}
    for options in (", progress=False", ""):  # an empty cache, and one that is filled
        _, left = in_terminal(FIRST.format(options=options), **fresh)
        assert left == []
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path / "other")}
    _, left = in_terminal(FIRST.format(options=""), **fresh)
    (said,) = [line for line in left if "dpsample:" in line]
    assert said.startswith("dpsample: minimize is compiled for this machine")
