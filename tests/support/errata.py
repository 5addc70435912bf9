"""Affected settings of an erratum, recomputed."""

import pytest

from dpsample.papers.verdicts import erratum


def recompute(code, epsilon_at, rel=1e-3):
    """Compare each true epsilon with what ``epsilon_at(case)`` finds."""
    cases = erratum(code).affected
    assert cases
    for case in cases:
        assert epsilon_at(case) == pytest.approx(case.true_epsilon, rel=rel), case
