"""Warming up: every part once, whoever takes it, and again if a process failed."""

import collections
import shutil
import sys

import pytest

from dpsample.api import warm


@pytest.fixture
def runs(monkeypatch):
    """How often each of three parts ran, two of them of one name."""
    counts = collections.Counter()
    names = ("ball", "ball", "box")
    made = [
        (name, lambda number=number: counts.update([number]))
        for number, name in enumerate(names)
    ]
    monkeypatch.setattr(warm, "parts", lambda *, is_whole: made)
    return counts


def test_one_process_runs_all_parts_in_order(runs):
    told = []
    assert warm.warm(lambda *part: told.append(part)) == 3
    assert told == [("ball", 2), ("ball", 1), ("box", 0)]
    assert runs == {0: 1, 1: 1, 2: 1}


def test_what_another_process_has_claimed_is_left_to_it(runs, tmp_path):
    (tmp_path / "1").touch()
    told = []
    warm.share(str(tmp_path), lambda *part: told.append(part), backwards=True)
    assert told == [("box", 1), ("ball", 0)]
    assert runs == {2: 1, 0: 1}
    warm.share(str(tmp_path))
    assert runs == {2: 1, 0: 1}


def test_all_parts_run_again_if_the_second_process_failed(runs, monkeypatch):
    fails = shutil.which("false")
    if fails is None:
        pytest.skip("no program that only fails")
    monkeypatch.setattr(sys, "executable", fails)
    assert warm.warm(processes=2) == 3
    assert runs == {0: 2, 1: 2, 2: 2}
