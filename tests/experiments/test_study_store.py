"""Rows survive a kill at any moment, each complete or absent; damage is an error."""

import gc
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from dpsample.experiments.run import open_store
from dpsample.experiments.tasks import Row
from tests.support.processes import run_python
from tests.support.study_environment import num_rows
from tests.support.toy_study import NUM_ROWS, run_toy, start, table

pytestmark = pytest.mark.usefixtures("environment")
MOST_SECONDS = 600.0  # then something hangs


def kill_at_random(folder, rng, *options):
    """Start or go on, kill somewhere between the start and the eighth new row."""
    path = folder / "toy.sqlite"
    wanted, begin = num_rows(path) + int(rng.integers(8)), time.monotonic()
    process = start(folder, folder, "--resume", *options, TOY_SECONDS="0.02")
    while num_rows(path) < wanted and process.poll() is None:
        assert time.monotonic() - begin < MOST_SECONDS
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.05 if path.exists() else 2.0))
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def killed_run(folder, number, seed, *options):
    """Kill the command until it was hit so often, or done; the number of kills."""
    rng, kills, missing = np.random.default_rng(seed), 0, []
    reference = run_toy(folder, folder / "serial") and table(folder / "serial")
    while kills < number and num_rows(folder / "toy.sqlite") < NUM_ROWS:
        kills += kill_at_random(folder, rng, *options)
        if (folder / "toy.sqlite").exists():
            kept = table(folder)
            assert all(row in reference for row in kept)
            missing.append(NUM_ROWS - len(kept))
    process = start(folder, folder, "--resume", *options)
    output = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, output
    assert table(folder) == reference
    return kills, missing


def interrupted(call, line):
    """Whether Ctrl-C fell at this line of all that the call runs."""
    lines = itertools.count()

    def trace(frame, event, value):
        if event == "line" and next(lines) == line:
            raise KeyboardInterrupt
        return trace

    gc.disable()  # in a callback of the collector Ctrl-C is lost
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        gc.enable()
    return False


def test_ctrl_c_at_any_line_leaves_a_store_that_takes_rows(tmp_path):
    with open_store(tmp_path / "toy.sqlite", writing=True) as store:
        store.begin({}, {}, "serial")
        for line in itertools.count():
            rows = [Row("key", 2 * line, 1.0, {}), Row("key", 2 * line + 1, 1.0, {})]
            was_hit = interrupted(lambda rows=rows: store.add(rows), line)
            store.add(rows[:1])
            kept = store.done()["key"]
            assert kept >= set(range(0, 2 * line + 1, 2))
            if not was_hit:
                break
    assert line > 10 and len(kept) < 2 * line


@pytest.mark.slow
def test_a_run_killed_three_times_resumes_to_the_same_table(tmp_path):
    kills, missing = killed_run(tmp_path, 3, 1)
    assert kills == 3 and 0 < missing[-1] <= NUM_ROWS


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--processes",)])
def test_a_run_killed_twenty_times_resumes_to_the_same_table(tmp_path, options):
    rounds, total = 0, 0
    while total < 20:  # a run may be done before it is killed 20 times
        folder = tmp_path / str(rounds)
        folder.mkdir()
        total += killed_run(folder, 20 - total, rounds, "--jobs", "2", *options)[0]
        rounds += 1


IDLE = """
import os, time
from dpsample.experiments.tasks import Backend
with Backend(kind="processes", jobs=2)._processes() as executor:
    print(executor.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_workers_without_a_task_end_with_their_parent():
    """They hold its pipes: who reads its output would wait for ever."""
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE], stdout=subprocess.PIPE, start_new_session=True
    )
    assert int(process.stdout.readline()) > 0
    process.kill()
    try:
        process.communicate(timeout=MOST_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


STOPPED = """
from dpsample.experiments.tasks import Backend, _drive
def keep(answer):
    raise KeyboardInterrupt
backend = Backend(kind="processes", jobs=2)
try:
    with backend._processes() as executor:
        _drive(executor, lambda: 50, abs, iter(range(50)), keep)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_ends_processes_whose_tasks_are_waiting():
    """Of 50, more than processes are sent at once; they never ended."""
    ended = run_python(STOPPED, options={"timeout": MOST_SECONDS})
    assert ended == ("stopped\n", "")


def make(path, count, first=0):
    """A store with as many rows."""
    with open_store(path, writing=True) as store:
        store.begin({"code": "1"}, {}, "serial")
        store.add([Row("{}", first + i, 0.5, {"x": 0.1 * i}) for i in range(count)])


def test_numbers_come_back_bit_by_bit(tmp_path):
    values = {"a": 0.1, "b": 5e-324, "c": -1.7976931348623157e308, "d": float("inf")}
    with open_store(tmp_path / "s.sqlite", writing=True) as store:
        store.begin({}, {}, "serial")
        store.add([Row('{"n": Infinity}', 3, 0.25, values)])
    with open_store(tmp_path / "s.sqlite") as store:
        assert store.rows() == [Row('{"n": Infinity}', 3, 0.25, values)]


def test_rows_are_added_all_or_none(tmp_path):
    make(tmp_path / "s.sqlite", 2)
    with open_store(tmp_path / "s.sqlite", writing=True) as store:
        store.begin({"code": "1"}, {}, "serial")
        bad = Row("{}", 3, 0.5, {"x": object()})
        with pytest.raises(TypeError):
            store.add([Row("{}", 2, 0.5, {"x": 1.0}), bad])
        assert len(store.rows()) == 2


def test_a_row_that_is_there_stays(tmp_path):
    make(tmp_path / "s.sqlite", 2)
    make(tmp_path / "s.sqlite", 3)
    with open_store(tmp_path / "s.sqlite") as store:
        assert len(store.rows()) == 3 and len(store.runs()) == 2


def unfinished(path):
    """Bytes of a store and of its log, as a kill leaves them behind."""
    make(path, 3)
    with open_store(path, writing=True) as store:
        store.begin({"code": "1"}, {}, "serial")
        for i in range(20):
            store.add([Row("{}", 3 + i, 0.5, {"x": 1.0})])
        log = Path(f"{path}-wal").read_bytes()
        return path.read_bytes(), log


@pytest.mark.parametrize("damage", ["cut", "garbled"])
def test_a_damaged_tail_loses_the_last_rows_and_nothing_else(tmp_path, damage):
    main, log = unfinished(tmp_path / "s.sqlite")
    seen = set()
    for share in (1.0, 0.99, 0.7, 0.4, 0.1, 0.0):
        path = tmp_path / f"{share}.sqlite"
        kept = int(share * len(log))
        junk = b"" if damage == "cut" else os.urandom(len(log) - kept)
        path.write_bytes(main)
        Path(f"{path}-wal").write_bytes(log[:kept] + junk)
        with open_store(path, writing=True) as store:
            found = [row.replicate for row in store.rows()]
            assert found == list(range(len(found))) and len(found) >= 3
            seen.add(len(found))
            store.begin({"code": "1"}, {}, "serial")
            store.add([Row("{}", len(found), 0.5, {"x": 1.0})])
            assert len(store.rows()) == len(found) + 1
    assert max(seen) == 23 and len(seen) >= 4


@pytest.mark.parametrize(
    "content", [b"nonsense" * 200, b"SQLite format 3\0" + b"\1" * 999]
)
def test_a_file_of_something_else_is_an_error_with_a_remedy(tmp_path, content):
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^results must be readable.*Move it away"):
        with open_store(path, writing=True):
            pass
    assert path.read_bytes() == content


def test_a_damaged_page_is_an_error_with_a_remedy(tmp_path):
    path = tmp_path / "s.sqlite"
    make(path, 3000)
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^results must be readable"):
        with open_store(path) as store:
            store.rows()


def test_another_layout_is_an_error(tmp_path):
    make(tmp_path / "s.sqlite", 1)
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as found:
        found.execute("pragma user_version = 2")
    with pytest.raises(ValueError, match=r"^layout must be 1"):
        with open_store(tmp_path / "s.sqlite"):
            pass


def test_only_a_run_makes_a_store(tmp_path):
    with pytest.raises(ValueError, match="study run NAME"):
        with open_store(tmp_path / "s.sqlite"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_rows_are_not_written_to_a_file_that_is_gone(tmp_path):
    path, row = tmp_path / "s.sqlite", Row("{}", 0, 0.0, {"x": 1.0})
    with open_store(path, writing=True) as store:
        store.begin({"code": "1"}, {}, "serial")
        store.add([row])
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(OSError, match=r"kept in .*s.sqlite.*moved or deleted"):
            store.add([row])
        (tmp_path / "elsewhere").rename(path)
        store.add([row._replace(replicate=1)])
        assert len(store.rows()) == 2


def test_every_row_knows_the_versions_and_the_time_of_its_run(tmp_path):
    run_toy(tmp_path, tmp_path, quick=True)
    with open_store(tmp_path / "quick" / "toy.sqlite") as store:
        (run,), rows = store.runs(), store.rows()
        found = store._connection.execute("select distinct run from rows")
        assert found.fetchall() == [(1,)]
    assert run.configuration["numpy"] == np.__version__
    assert {"code", "dpsample", "python", "machine"} < set(run.configuration)
    assert run.backend == "serial" and all(row.seconds > 0.0 for row in rows)
    assert json.loads(rows[0].key)["n"] == 10
    assert all(reasons == {"square": "n < 11"} for reasons in run.declared.values())


def test_a_run_that_another_one_replaced_stores_nothing(tmp_path):
    path, row = tmp_path / "s.sqlite", Row("{}", 0, 0.0, {"x": 1.0})
    with (
        open_store(path, writing=True) as first,
        open_store(path, writing=True) as second,
    ):
        first.begin({"code": "old"}, {}, "")
        second.begin({"code": "new"}, {}, "")
        with pytest.raises(ValueError, match="of a run that is known"):
            first.add([row])
        second.add([row])
        with pytest.raises(ValueError, match="code of the run"):
            first.begin({"code": "old"}, {}, "")
        assert [run.configuration["code"] for run in second.runs()] == ["new"]
