"""Faults of the machine: kills, races, full disks. Nothing is lost in silence."""

import errno
import os
import signal
import subprocess
import sys
import time
import warnings

import numba
import pytest

from dpsample.experiments.run import open_store
from tests.contracts.public_objects import release
from tests.support.processes import files_below
from tests.support.tiers import slow
from tests.support.toy_kernels import SHOW, make_toy, show
from tests.support.walks import assert_same, run

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is cached")


def started(toy, cache):
    """A process that compiles and shows the answer."""
    variables = {"PYTHONPATH": str(toy.parent), "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SHOW],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@compiled
@pytest.mark.skipif(os.name != "posix", reason="no kill -9")
@pytest.mark.parametrize("num_files", [1, slow(2)])
def test_a_process_killed_while_compiling_harms_no_other(tmp_path, num_files):
    toy, cache = make_toy(tmp_path), tmp_path / "cache"
    cache.mkdir(mode=0o700)
    process = started(toy, cache)
    while process.poll() is None and len(files_below(cache)) < num_files:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert show(toy, cache) == ("21.0\n", "")
    before = files_below(cache)
    assert show(toy, cache) == ("21.0\n", "")
    assert files_below(cache) == before


@pytest.mark.slow
@compiled
def test_processes_that_fill_one_empty_cache_at_once_agree(tmp_path):
    toy, cache = make_toy(tmp_path), tmp_path / "cache"
    processes = [started(toy, cache) for _ in range(3)]
    for process in processes:
        assert process.communicate() == ("21.0\n", "")
        assert process.returncode == 0
    before = files_below(cache)
    assert show(toy, cache) == ("21.0\n", "")
    assert files_below(cache) == before
    assert len(list(cache.iterdir())) == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for 256 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk, *, leaving):
    """Use the room up, all but so many bytes."""
    state = os.statvfs(disk)
    free = state.f_bavail * state.f_frsize - leaving
    (disk / "filler").write_bytes(b"0" * max(free, 0))


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("leaving", [0, slow(8000)])  # room for the index only
def test_a_full_disk_costs_the_cache_and_not_the_answer(tmp_path, small_disk, leaving):
    toy = make_toy(tmp_path)
    fill(small_disk, leaving=leaving)
    output, errors = show(toy, small_disk, TMPDIR=tmp_path)
    assert output == "21.0\n"
    assert errors.count("RuntimeWarning: The compilation cache cannot be") == 1
    (small_disk / "filler").unlink()
    assert show(toy, small_disk) == ("21.0\n", "")
    assert show(toy, small_disk) == ("21.0\n", "")


def test_a_full_disk_costs_the_checkpoint_and_not_the_draws(small_disk):
    path = small_disk / "run.npz"
    run(10, checkpoint=path)
    before = path.read_bytes()
    fill(small_disk, leaving=4096)
    with pytest.warns(RuntimeWarning, match="could not be written .*No space left"):
        assert_same(run(100, checkpoint=path), run(100))
    assert path.read_bytes() == before
    (small_disk / "filler").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(run(100, checkpoint=path), run(100))


def test_a_full_disk_stops_a_study_with_the_reason_and_its_rows(small_disk):
    path = small_disk / "rows.sqlite"
    with open_store(path, writing=True) as store:
        store.begin({"study": "toy"}, {}, "serial")
    fill(small_disk, leaving=0)
    with pytest.raises(OSError, match=f"results cannot be kept in {path}: "):
        with open_store(path, writing=True) as store:
            for _ in range(1000):
                store.begin({"study": "toy"}, {}, "serial " + "x" * 10_000)
    (small_disk / "filler").unlink()
    with open_store(path) as store:
        assert store.runs()[0].backend == "serial"


def test_a_full_disk_is_told_when_an_answer_is_saved(small_disk):
    fill(small_disk, leaving=0)
    with pytest.raises(OSError) as refusal:
        release().save(small_disk / "answer.json")
    assert refusal.value.errno == errno.ENOSPC
