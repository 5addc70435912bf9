"""Fresh Python processes for tests of caches and imports."""

import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from functools import wraps
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTED: Counter[str] = Counter()  # number of processes by the test that started them
STARTING = threading.local()  # whether this thread's process is counted


def count_process():
    """Count a process for the test that starts it."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if test:
        STARTED[test.rsplit(" ", 1)[0]] += 1


def count_processes():
    """Count from now on the processes that tests start.

    An audit hook would count them as well. But Python calls it at every event, among
    them each call of `id`, which took a twentieth of the suite's time.
    """
    places = ((subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn"))
    for owner, name in places:
        if hasattr(owner, name):  # there is no fork on Windows
            setattr(owner, name, counted(getattr(owner, name)))


def counted(start):
    """The same function, which also counts a process."""

    @wraps(start)
    def start_counted(*args, **kwargs):
        if getattr(STARTING, "is_counted", False):
            return start(*args, **kwargs)
        STARTING.is_counted = True  # `Popen` may call `posix_spawn`
        try:
            count_process()
            return start(*args, **kwargs)
        finally:
            STARTING.is_counted = False

    return start_counted


def run_python(code, *, path=ROOT, options=None, **environment):
    """Run code in a new process; its output and errors. A variable None is unset.

    ``options`` go to `subprocess.run`, such as a user or an umask.
    """
    variables = os.environ | {"PYTHONPATH": str(path), "NUMBA_DISABLE_JIT": None}
    variables |= environment
    kept = {name: str(v) for name, v in variables.items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-"],
        input=code,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        **(options or {}),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def files_below(folder):
    """Every file with its size and time of change; some may vanish meanwhile."""
    found = {}
    for path in Path(folder).rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found
