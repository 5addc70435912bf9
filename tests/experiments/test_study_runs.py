"""Runs of a study: the same numbers from every backend, whatever interrupts them."""

import os
import socket
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from dpsample.experiments import configuration, tasks
from dpsample.experiments.run import Clock
from dpsample.experiments.tasks import Backend, CellError, Row, Task
from tests.support.ctrl_c import moments
from tests.support.processes import ROOT
from tests.support.tiers import one_in
from tests.support.toy_study import NUM_ROWS, TOY, run_toy, table

pytestmark = pytest.mark.usefixtures("environment", "two_blas_threads")
PROCESSES = {"jobs": 2, "kind": "processes"}


@pytest.fixture
def environment(monkeypatch):
    """What the toy reads from the environment is gone after the test."""
    for name in ("RECORDS", "INTERRUPT", "SECONDS"):
        monkeypatch.setenv(f"TOY_{name}", "0")
        monkeypatch.delenv(f"TOY_{name}")


@pytest.fixture
def serial(tmp_path):
    """The table of a run without any backend."""
    assert run_toy(tmp_path, tmp_path / "serial") == NUM_ROWS
    return table(tmp_path / "serial")


@pytest.mark.slow
@pytest.mark.parametrize("backend", [{"jobs": 2}, PROCESSES])
def test_threads_and_processes_give_the_bits_of_a_serial_run(tmp_path, serial, backend):
    assert run_toy(tmp_path, tmp_path / "other", backend=backend) == NUM_ROWS
    assert table(tmp_path / "other") == serial


@pytest.mark.slow
def test_the_first_task_of_processes_compiles_here_and_no_task_may_remain(tmp_path):
    text = TOY.replace("(product.T @ product).sum()", "os.getpid()")
    run_toy(tmp_path, tmp_path, backend=PROCESSES, text=text)
    places = [v["product"] for _, _, v in table(tmp_path) if "product" in v]
    assert places.count(os.getpid()) == 1 and len(set(places)) <= 3
    assert run_toy(tmp_path, tmp_path, backend=PROCESSES, text=text, resume=True) == 0


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def cluster(tmp_path):
    """Address of a Dask scheduler with two workers, all separate processes."""
    address = f"tcp://127.0.0.1:{free_port()}"
    host, port = address.removeprefix("tcp://").split(":")
    quiet = ("--no-dashboard",)
    worker = ("worker", address, "--nthreads", "1", "--no-nanny", *quiet)
    commands = [("scheduler", "--host", host, "--port", port, *quiet), worker, worker]
    records = {"TOY_RECORDS": str(tmp_path / "records.npy")}
    started = []
    with (tmp_path / "dask.log").open("w") as log:
        for kind, *options in commands:
            module = f"distributed.cli.dask_{kind}"
            process = subprocess.Popen(
                [sys.executable, "-m", module, *options],
                env=os.environ | {"PYTHONPATH": str(ROOT)} | records,
                stdout=log,
                stderr=log,
            )
            started.append(process)
        yield address
        for process in reversed(started):
            process.kill()  # a worker may wait long for its scheduler
        for process in started:
            process.wait(30)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_bits_of_a_serial_run(tmp_path, serial, cluster):
    assert run_toy(tmp_path, tmp_path / "other", backend={"dask": cluster}) == NUM_ROWS
    assert table(tmp_path / "other") == serial


# In the middle of a task, once; replicates of a task before it are lost with it.
DIES = """
    if params["n"] == 100 and replicate == 3:
        try:
            open(os.environ["TOY_RECORDS"] + ".died", "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    rng ="""


@pytest.mark.slow
def test_a_killed_worker_changes_no_bit_of_a_study(tmp_path, serial, cluster):
    text = TOY.replace("\n    rng =", DIES, 1)
    backend = {"dask": cluster}
    assert run_toy(tmp_path, tmp_path / "other", backend=backend, text=text) == NUM_ROWS
    assert (tmp_path / "records.npy.died").exists()
    assert table(tmp_path / "other") == serial
    from distributed import Client

    with Client(cluster) as client:
        assert len(client.nthreads()) == 1  # the other one finished all


@pytest.mark.slow
def test_a_killed_process_is_an_error_of_the_user_and_keeps_the_rows(tmp_path, serial):
    output, text = tmp_path / "other", TOY.replace("\n    rng =", DIES, 1)
    with pytest.raises(OSError, match=r"^workers .* go on with --resume"):
        run_toy(tmp_path, output, backend=PROCESSES, text=text)
    kept = table(output)
    assert 0 < len(kept) < NUM_ROWS and all(row in serial for row in kept)
    left = run_toy(tmp_path, output, backend=PROCESSES, text=text, resume=True)
    assert left == NUM_ROWS - len(kept) and table(output) == serial


class Losing(ThreadPoolExecutor):
    """Threads whose second task is lost, as by a client without its scheduler."""

    def submit(self, function, *arguments):
        future = super().submit(function, *arguments)
        if arguments != (0,):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


def test_a_scheduler_that_ends_is_an_error_of_the_user_and_keeps_the_rows():
    kept = []
    with Losing(1) as executor, pytest.raises(OSError, match=r"Cancelled.* --resume"):
        tasks._drive(executor, lambda: 1, lambda i: [i], iter([0, 1]), kept.append)
    assert kept == [[0]]


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_an_error_of_the_user(tmp_path):
    from dask.config import set as configured

    address = f"tcp://127.0.0.1:{free_port()}"
    short = configured({"distributed.comm.timeouts.connect": "1s"})
    with short, pytest.raises(OSError, match=address):
        run_toy(tmp_path, tmp_path, backend={"dask": address})


def test_a_part_of_a_run_is_completed_to_the_same_table(tmp_path, serial):
    output, few = tmp_path / "parts", TOY.replace("replicates=8", "replicates=3")
    assert run_toy(tmp_path, output, text=few) == 18
    assert run_toy(tmp_path, output, resume=True, backend={"jobs": 2}) == 30
    assert table(output) == serial
    assert run_toy(tmp_path, output, resume=True) == 0


def test_other_cells_and_another_order_leave_the_numbers_of_a_cell(tmp_path, serial):
    other = TOY.replace('"n": (10, 100, 1000)', '"n": (7, 1000, 10)')
    other = other.replace('"kind": ("a", "b")', '"kind": ("b", "c")', 1)
    run_toy(tmp_path, tmp_path / "other", text=other)
    shared = [row for row in table(tmp_path / "other") if row in serial]
    assert len(shared) == 16 and {row[0].count("b") for row in shared} == {1}


def test_bounds_are_evaluated_before_any_replicate_runs(tmp_path):
    wrong = TOY.replace('5 / p["n"]', '5 / p["m"]')
    with pytest.raises(KeyError, match="m"):
        run_toy(tmp_path, tmp_path, text=wrong)
    assert table(tmp_path) == []


def test_rows_are_kept_unless_a_run_is_resumed(tmp_path, serial):
    with pytest.raises(ValueError, match=r"^store must be empty, .*toy.sqlite.*resume"):
        run_toy(tmp_path, tmp_path / "serial")
    assert table(tmp_path / "serial") == serial


def test_a_quick_run_has_its_own_cells_and_its_own_store(tmp_path):
    assert run_toy(tmp_path, tmp_path, quick=True) == 4
    assert len(table(tmp_path, quick=True)) == 4
    assert not (tmp_path / "toy.sqlite").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_is_finished(tmp_path, serial, monkeypatch, jobs):
    monkeypatch.setenv("TOY_INTERRUPT", "3")
    output = tmp_path / "other"
    with pytest.raises(KeyboardInterrupt):
        run_toy(tmp_path, output, backend={"jobs": jobs})
    kept = table(output)
    # Three rounds of six tasks; Ctrl-C may fall between tasks and their records.
    assert 18 - jobs <= len(kept) < NUM_ROWS and all(row in serial for row in kept)
    monkeypatch.delenv("TOY_INTERRUPT")
    assert run_toy(tmp_path, output, resume=True) == NUM_ROWS - len(kept)
    assert table(output) == serial


@one_in(3)
@pytest.mark.parametrize("backend", [{}, {"jobs": 2}, PROCESSES])
def test_a_failing_cell_is_named_and_the_rows_before_it_are_kept(tmp_path, backend):
    text = TOY.replace(
        "    time.sleep(", "    assert replicate != 3, 'as asked'\n    ("
    )
    words = r'^Study toy failed in cell {.*"n": 10.*}, replicates 3 to 3: Asser.*asked'
    with pytest.raises(CellError, match=words) as failure:
        run_toy(tmp_path, tmp_path, backend=backend, text=text)
    assert isinstance(failure.value.__cause__, BaseException)
    assert len(table(tmp_path)) >= 17  # one may be at work


def test_an_edit_during_a_run_changes_nothing(tmp_path, serial, monkeypatch):
    plain = tasks.run

    def edit_then_run(setting, task):
        (tmp_path / "beside.py").write_text("LEVEL = 3.0")
        (tmp_path / "toy.py").write_text("nonsense")
        return plain(setting, task)

    monkeypatch.setattr(tasks, "run", edit_then_run)
    run_toy(tmp_path, tmp_path / "other")
    assert table(tmp_path / "other") == serial


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        ("values.mean() - LEVEL", "values.mean() - 2.0", "code"),
        ("    replicates=8", "    seed=1,\n    replicates=8", "seed"),
        ("    replicates=8", '    paired=("kind",),\n    replicates=8', "paired"),
    ],
)
def test_rows_of_another_configuration_are_never_mixed(
    tmp_path, serial, old, new, entry
):
    changed = TOY.replace(old, new)
    assert changed != TOY
    with pytest.raises(ValueError, match=f"^{entry} of the run must be .* Delete that"):
        run_toy(tmp_path, tmp_path / "serial", text=changed, resume=True)
    assert table(tmp_path / "serial") == serial


def test_other_data_is_another_configuration(tmp_path, serial):
    np.save(tmp_path / "records.npy", np.ones((3, 2)))
    changed = TOY.replace("def records", "LOADED_ANEW = True\n\n\ndef records")
    with pytest.raises(ValueError, match="^data records of the run must be"):
        run_toy(tmp_path, tmp_path / "serial", text=changed, resume=True)


def test_another_version_is_another_configuration(tmp_path, serial, monkeypatch):
    monkeypatch.setattr(configuration, "version", lambda name: "0.0")
    configuration._environment.cache_clear()
    with pytest.raises(ValueError, match="^numpy of the run must be"):
        run_toy(tmp_path, tmp_path / "serial", resume=True)
    configuration._environment.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Is the mean square", "Why is the mean square"),
        ("bound=lambda p: 5", "bound=lambda p: 7"),
        ('"""One mean;', '"""One number;'),
        ("replicates=8", "replicates=9, block=2"),
        ("import signal\n", "import signal  # a remark\n"),
        ("study = Study(", "def unused():\n    return 1\n\n\nstudy = Study("),
    ],
)
def test_what_decides_no_number_may_change(tmp_path, serial, old, new):
    changed = TOY.replace(old, new)
    assert changed != TOY
    run_toy(tmp_path, tmp_path / "serial", text=changed, resume=True)
    assert [row for row in table(tmp_path / "serial") if row[1] < 8] == serial


def test_a_change_beside_the_study_is_a_change_of_its_code(tmp_path, monkeypatch):
    run_toy(tmp_path, tmp_path / "out")
    monkeypatch.setattr("tests.support.toy_study.BESIDE", "LEVEL = 1.0 + 1.0\n")
    with pytest.raises(ValueError, match="^code of the run must be"):
        run_toy(tmp_path, tmp_path / "out", resume=True)


def test_ctrl_c_at_any_moment_ends_the_threads_of_a_study():
    """In the locks of `threading` they would wait for ever."""
    kept, number = set(), 0

    def drive():
        kept.clear()
        with ThreadPoolExecutor(2) as pool:
            waiting = iter(range(5))
            tasks._drive(
                pool, lambda: 4, lambda i: [i], waiting, kept.update, waits=True
            )

    files = ("threading.py", "futures/thread.py", "futures/_base.py", "tasks.py")
    for number in moments(drive, *files):  # noqa: B007
        assert kept <= set(range(5))
    assert number > 100 and len(kept) == 5


def test_the_clock_weighs_cells_by_what_they_cost(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(import_module(Clock.__module__), "time", clock)
    cheap, dear = Task({"n": 1}, (0, 1)), Task({"n": 2}, (0, 1, 2))
    clock, begin = Clock([cheap, dear]), 0.0
    assert np.isnan(clock.seconds_left(begin))
    clock.add([Row('{"n": 1}', 0, 1.0, {})])
    assert clock.seconds_left(begin + 1.0) == pytest.approx(4.0, rel=0.01)
    clock.add([Row('{"n": 2}', 0, 9.0, {})])
    assert clock.seconds_left(begin + 5.0) == pytest.approx((1 + 2 * 9) / 2, rel=0.01)
    clock.add([Row('{"n": 2}', i, 9.0, {}) for i in (1, 2)])
    clock.add([Row('{"n": 1}', 1, 1.0, {})])
    assert (
        clock.seconds_left(begin + 9.0) == pytest.approx(0.0, abs=1e-9)
        and clock.done == 5
    )


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, None])
def test_jobs_is_a_positive_integer(jobs):
    with pytest.raises(ValueError, match="^jobs must be an integer >= 1"):
        Backend(jobs=jobs)


def test_a_slope_without_a_number_costs_no_replicate(tmp_path):
    text = TOY.replace(
        "expected=-1.0, theorem", 'expected=lambda p: float("nan"), theorem'
    )
    with pytest.raises(ValueError, match="slope of square in n .* must be a number"):
        run_toy(tmp_path, tmp_path, text=text)
    assert not table(tmp_path)
