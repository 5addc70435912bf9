"""Which cases run by default: the others of a long list are slow tests."""

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
