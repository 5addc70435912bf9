"""The suite itself: levels are counted, tiers are chosen, seeds are drawn anew."""

import ast
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from dpsample.core.streams import streams
from tests.support import statistics
from tests.support.processes import ROOT, run_python
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


# Looks at the clock of the machine, and what counts a time as a result.
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
# Tests outside of the default tier, or a clock of which no second is compared.
TIMED = {
    "experiments/test_study_store.py": "ends a wait that would last for ever",
    "experiments/test_studies.py": "compares seconds of the slow tier only",
    "verbs/test_sample_samplers.py": "is alone",
    "core/test_compile.py": "is alone",
    "verbs/test_release_time.py": "is alone, or has a clock of its own",
    "running/test_progress.py": "has a clock of its own",
    "running/test_descent.py": "has a clock of its own",
    "experiments/test_study_runs.py": "has a clock of its own",
}


def clocks_in(path):
    """Names of clocks in a file of tests."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node, "attr", getattr(node, "id", None))
        names |= {name} & CLOCKS
    return names


def test_no_test_by_default_looks_at_the_clock():
    """On a busy machine it would fail: count steps, or pass a clock."""
    tests = ROOT / "tests"
    found = {str(p.relative_to(tests)) for p in tests.rglob("*.py") if clocks_in(p)}
    assert found <= set(TIMED), found - set(TIMED)
