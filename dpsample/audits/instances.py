"""Problems made of a few extreme records, with given public facts."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import norms
from dpsample.domains import SchattenBall
from dpsample.facts import PublicFacts
from dpsample.problem import Problem

Array = NDArray[np.float64]
Pair = tuple[Problem, Problem]
Direction = Literal["axis", "corner"]

# Largest number of entries that are stored densely, whatever they are.
MAX_DENSE = 1_000_000


def width(facts: PublicFacts) -> int:
    """Length of a row without the intercept's 1."""
    return facts.dim - int(facts.intercept)


def extreme_row(facts: PublicFacts, direction: Direction) -> Array:
    """Row of norm ``row_bound`` in a direction."""
    check.one_of(("axis", "corner"), direction=direction)
    size_of_row, domain = width(facts), facts.domain
    if direction == "axis":
        row = np.eye(size_of_row)[0]
        size = 1.0
    elif isinstance(domain, SchattenBall):
        row = np.eye(*domain.shape).reshape(-1)
        size = float(norms.schatten(row[None], facts.row_norm, domain.shape)[0])
    else:
        row = np.ones(size_of_row)
        size = float(norms.norm(row, facts.row_norm))
    return np.asarray(facts.row_bound / size * row)


def response_bound(facts: PublicFacts) -> float:
    """Largest response: a label, the declared bound, or 1 where there is none."""
    if facts.loss.is_classification or facts.response_bound is None:
        return 1.0
    return facts.response_bound


def neutral(facts: PublicFacts) -> tuple[Array, Array]:
    """Rows of zeros; with an intercept, labels that balance as well as they can."""
    rows = np.zeros((facts.num_records, width(facts)))
    responses = np.zeros(facts.num_records)
    if facts.loss.is_classification:
        responses[::2], responses[1::2] = 1.0, -1.0
    return rows, responses


def pair(
    facts: PublicFacts, rows: Array, responses: Array, *, last: tuple[Array, float]
) -> Pair:
    """Problem with these records, and the one with another last record."""
    other_rows, other_responses = rows.copy(), responses.copy()
    other_rows[-1], other_responses[-1] = last
    return _problem(facts, rows, responses), _problem(
        facts, other_rows, other_responses
    )


def _problem(facts: PublicFacts, rows: Array, responses: Array) -> Problem:
    features: Any = rows
    if rows.size > MAX_DENSE and np.count_nonzero(rows) < 0.1 * rows.size:
        from scipy import sparse

        features = sparse.csr_matrix(rows)
    return Problem(
        features,
        responses,
        loss=facts.loss,
        domain=facts.domain,
        row_bound=facts.row_bound,
        row_norm=facts.row_norm,
        response_bound=facts.response_bound,
        intercept=facts.intercept,
        offset_bound=facts.offset_bound,
    )
