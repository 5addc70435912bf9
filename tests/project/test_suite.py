"""The suite itself: levels are counted, tiers are chosen, seeds are drawn anew."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dpsample.core.streams import streams
from tests.support import statistics
from tests.support.processes import ROOT, STARTED, run_python
from tests.support.statistics import SUITE_ALPHA, assert_law, rejected, spend, spent
from tests.support.tiers import defer, one_in, usual


@pytest.fixture
def ledger(monkeypatch):
    """An empty ledger of its own."""
    monkeypatch.setattr(statistics, "LEDGER", Counter())
    monkeypatch.setattr(statistics, "FIXED", set())
    return statistics.LEDGER


def test_each_check_is_counted_and_a_control_is_one(ledger):
    draws = np.random.default_rng(1).random(1000)
    assert_law(draws, lambda x: x)
    with rejected():
        assert_law(draws, np.sqrt)
    spend(3, is_exact=False)
    assert ledger.total() == 5 and len(ledger) == 1
    assert set(ledger) == statistics.FIXED
    assert spent() == 5 * statistics.ALPHA < SUITE_ALPHA
    spend(round(SUITE_ALPHA / statistics.ALPHA))
    assert spent() > SUITE_ALPHA


def test_a_control_that_is_not_rejected_fails(ledger, monkeypatch):
    monkeypatch.delenv("SUITE_SEED", raising=False)  # fresh draws may miss a bug
    draws = np.random.default_rng(1).random(1000)
    with pytest.raises(pytest.fail.Exception), rejected():
        assert_law(draws, lambda x: x)
    spend()
    assert ledger.total() == 2


class Item:
    """As much of a case as tiers look at."""

    def __init__(self, label, mark):
        self.nodeid, self.marks = f"test_x.py::test_y[{label}]", [mark.mark]

    def get_closest_marker(self, name):
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark):
        self.marks.append(mark.mark)


@pytest.mark.parametrize(
    ("mark", "kept"),
    [
        (one_in(3), [0, 3]),
        (one_in(3, 1), [1, 4]),
        (one_in(9), [0]),
        (usual("4", "2"), [2, 4]),
        (pytest.mark.slow, []),
    ],
)
def test_some_cases_are_usual_and_the_others_slow(mark, kept):
    items = [Item(i, mark) for i in range(5)]
    defer(items)
    left = [i for i, x in enumerate(items) if not x.get_closest_marker("slow")]
    assert left == kept


# Cases of the default tier. A longer list of cases needs `one_in` or `usual`.
MOST_CASES = 11_000


def test_the_default_tier_has_few_cases(request):
    """Few enough for each change: a case of each class, as CONTRIBUTING says."""
    if request.config.option.markexpr == request.config.getini("addopts")[-1]:
        assert len(request.session.items) <= MOST_CASES


def test_processes_are_counted_by_the_tests_that_start_them():
    before = STARTED.total()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert STARTED.total() == before + 1


DRAWS = """
import tests.conftest
import numpy as np
from dpsample.core.streams import streams
__name__ = "tests.here"
print(np.random.default_rng(3).random(), streams(3, 1)[0].random())
"""


@pytest.mark.slow
def test_a_run_has_seeds_of_its_own_and_can_be_repeated():
    first, again, other = (
        run_python(DRAWS, SUITE_SEED=seed)[0].split() for seed in (7, 7, 8)
    )
    plain = np.random.default_rng(3).random(), streams(3, 1)[0].random()
    assert first == again
    numbers = zip(first, other, map(str, plain), strict=True)
    assert all(len(set(found)) == 3 for found in numbers)


@pytest.mark.slow
def test_a_command_runs_beside_busy_processes_that_end_with_it():
    code = "import psutil; me = psutil.Process(); print(len(me.parent().children()))"
    program = [sys.executable, str(ROOT / "benchmarks" / "busy.py"), "3", "--"]
    done = subprocess.run(
        [*program, sys.executable, "-c", f"{code}; raise SystemExit(7)"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 7 and int(done.stdout) == 4


# Looks at the clock of the machine, what counts a time as a result, and waits; each of
# them with and without "_ns". `time.time` has a name that much else has, too.
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "default_timer"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS} | {"time_ns", "sleep", "Timer"}
IN_TEXT = re.compile(rf"\btime\.time\b|\.({'|'.join(CLOCKS)})\b")  # code of a process
# Options that end a call after seconds; more than these pass on no machine.
LIMITS, PATIENT_SECONDS = {"deadline", "timeout", "max_seconds"}, 300.0
HINTS = re.compile(rf"\b({'|'.join(CLOCKS | LIMITS)}|(import|from) time|time\.time)\b")
# What looks at a clock in the default tier, and why that harms nothing: functions of
# files, "" for what is outside of any.
TIMED = {
    "sleeps so that threads meet, without which it passes": {
        "core/test_cache.py": ["test_two_writers_of_one_index_lose_nothing"],
        "core/test_jit.py": [
            "test_threads_that_decorate_at_once_use_our_cache_and_leave_the_users"
        ],
    },
    "is alone": {
        "core/test_compile.py": [""],
        "api/test_sample_samplers.py": [""],
    },
    "compares days": {
        "core/test_jit.py": ["test_only_stale_caches_of_this_package_are_removed"],
    },
    "asks again after each sleep, however often": {
        "core/test_pauses.py": [
            "test_ctrl_c_and_failures_end_all_threads_at_their_next_pause",
            "spin",
            "test_asyncio_counts_a_ctrl_c_that_waited_once",
        ],
        "api/test_release_time.py": ["lasting"],
    },
    "looks for the text": {
        "experiments/test_study_runs.py": [
            "test_a_failing_cell_is_named_and_the_rows_before_it_are_kept"
        ],
    },
    "is for the slow tier": {
        "experiments/test_study_store.py": [
            "kill_at_random",
            "",
        ],
        "support/toy_study.py": [""],
    },
    "has a clock of its own": {
        "support/fake_clock.py": ["FakeClock"],
        "running/test_progress.py": [
            "test_a_release_shows_nothing_of_the_records_in_a_notebook"
        ],
        "api/test_release_time.py": [
            "test_an_answer_comes_at_the_deadline_and_not_before",
            "late",
            "test_what_fails_or_is_late_fails_at_the_deadline_with_one_message",
            "test_real_draws_stop_at_the_first_pause_after_a_deadline",
            "test_nothing_is_shown_while_the_time_is_public",
            "test_a_ledger_is_charged_whether_there_is_an_answer_or_not",
            "test_a_late_answer_is_in_no_traceback",
        ],
        "api/test_sample.py": [
            "test_a_time_limit_before_the_first_draw_is_an_error_that_keeps_the_warmup",
            "test_a_time_limit_while_the_sampler_is_chosen_is_an_error",
        ],
    },
    "ends before the wait": {
        "api/test_release_time.py": [
            "test_ctrl_c_ends_the_wait",
            "test_ctrl_c_between_the_draw_and_the_wait_leaves_no_answer",
        ],
    },
    "is refused": {
        "api/test_sample.py": ["test_replicates_have_no_time_limit"],
    },
}


def clocks_in(source):
    """Clocks and limits in a file of tests that are not of another tier, by function.

    They are found by their names, those that an import gives them, and in code that is
    text.
    """
    if not HINTS.search(source):  # most files
        return {}
    tree, found = ast.parse(source), {}
    if any(is_deferred(node) for node in tree.body if isinstance(node, ast.Assign)):
        return found
    aliases = {"time.time"}
    for node in ast.walk(tree):
        for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            module = getattr(node, "module", None)
            if one.name in CLOCKS or (module, one.name) == ("time", "time"):
                aliases.add(one.asname or one.name)
            elif one.name == "time" and one.asname:
                aliases.add(f"{one.asname}.time")
    for node in tree.body:
        is_test = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if not (is_test and any(map(is_deferred, node.decorator_list))):
            names = set().union(*(seconds_of(x, aliases) for x in ast.walk(node)))
            if names:
                found.setdefault(getattr(node, "name", ""), set()).update(names)
    return found


def is_deferred(node):
    return bool(re.search(r"\bmark\.(slow|alone)\b", ast.unparse(node)))


def seconds_of(node, aliases):
    """Names of clocks and limits in one node."""
    if isinstance(node, ast.Name) and (node.id in aliases or node.id in CLOCKS):
        return {node.id}
    if isinstance(node, ast.Attribute) and node.attr in {"time", *CLOCKS}:
        whole = ast.unparse(node)
        is_time = any(f".{whole}".endswith(f".{x}") for x in aliases if "." in x)
        return {whole} if node.attr in CLOCKS or is_time else set()
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {found[0].strip(".") for found in IN_TEXT.finditer(node.value)}
    if isinstance(node, ast.keyword) and node.arg in LIMITS:
        value = getattr(node.value, "value", None)
        is_short = isinstance(value, int | float) and 0 < value < PATIENT_SECONDS
        return {node.arg} if is_short and value is not True else set()
    return set()


def test_no_test_by_default_looks_at_the_clock():
    """On a busy machine it would fail: count steps, or pass a clock."""
    tests, found = ROOT / "tests", {}
    for path in set(tests.rglob("*.py")) - {Path(__file__)}:
        for name, clocks in clocks_in(path.read_text(encoding="utf-8")).items():
            found[path.relative_to(tests).as_posix(), name] = clocks
    known = {
        (file, name)
        for files in TIMED.values()
        for file, names in files.items()
        for name in names
    }
    new = {place: found[place] for place in found.keys() - known}
    assert not new and not known - found.keys(), new


@pytest.mark.parametrize(
    "line",
    [
        "time.time() < 3.0",
        "clock() < 3.0",
        "other.time() < 3.0",
        "rooms.time.monotonic() < 3.0",
        "time.perf_counter_ns() < 3",
        "nap(0.1)",
        "threading.Timer(0.05, kill).start()",
        "later(0.05, kill).start()",
        "dps.release(problem, budget, deadline=0.5)",
        "process.communicate(timeout=5)",
        "run_python('import time; time.sleep(1)')",
        "run_python('import time; time.time()')",
    ],
)
def test_a_clock_is_seen_whatever_it_is_called(line):
    imports = "from time import time as clock, sleep as nap\nimport time as other\n"
    imports += "from threading import Timer as later\n"
    test = f"def test_x():\n    assert {line}\n"
    for head in ("", "@pytest.mark.parametrize('x', [0])\n"):
        assert list(clocks_in(imports + head + test)) == ["test_x"]
    for head in ("@pytest.mark.slow\n", "pytestmark = pytest.mark.alone\n"):
        assert not clocks_in(imports + head + test)


def test_what_only_sounds_like_a_clock_is_none():
    text = "timezone.time(); dps.release(p, deadline=True, timeout=600); 'no time.'"
    assert not clocks_in(f"import time\ndef test_x():\n    {text}\n")
