"""Which cases run by default: the others of a long list are slow tests."""

from collections import Counter

import pytest


def slow(*values, **options):
    """A case for the slow tier."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def slow_but(cases, usual):
    """All cases; those that are not usual are slow."""
    return [
        case if case in usual else slow(*(case if isinstance(case, tuple) else (case,)))
        for case in cases
    ]


def by_turns(cases, first=0, turns=2):
    """All cases; one in two, or in so many, is usual, the others are slow."""
    cases = list(cases)
    return slow_but(cases, cases[first::turns])


def one_in(turns, first=0):
    """Decorator of a test: one in so many of its cases is usual, the others are slow.

    Cases are counted in the order of their ids in the report, from the given one on.
    """
    return pytest.mark.one_in(turns, first)


def usual(*parts):
    """Decorator of a test: cases whose id holds one of these are usual."""
    return pytest.mark.usual(*parts)


def defer(items):
    """Mark as slow what `one_in` and `usual` leave out."""
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        if mark := item.get_closest_marker("one_in"):
            turns, first = mark.args
            test = item.nodeid.split("[")[0]
            if seen[test] % turns != first % turns:
                item.add_marker(pytest.mark.slow)
            seen[test] += 1
        if mark := item.get_closest_marker("usual"):
            label = item.nodeid.partition("[")[2]
            if not any(part in label for part in mark.args):
                item.add_marker(pytest.mark.slow)
