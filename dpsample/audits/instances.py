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
Direction = Literal["axis", "corner", "difference"]

# Largest number of entries that are stored densely, whatever they are.
MAX_DENSE = 1_000_000


def width(facts: PublicFacts) -> int:
    """Length of a row without the intercept's 1."""
    return facts.dim - int(facts.intercept)


def unit(dim: int) -> Array:
    """First vector of the standard basis."""
    vector = np.zeros(dim)
    vector[0] = 1.0
    return vector


def checked(facts: PublicFacts) -> None:
    """Refuse what are no public facts."""
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")


def extreme_row(facts: PublicFacts, direction: Direction) -> Array:
    """Row of norm ``row_bound`` in a direction."""
    check.one_of(("axis", "corner", "difference"), direction=direction)
    size_of_row, domain = width(facts), facts.domain
    if direction == "axis":
        row = unit(size_of_row)
        size = 1.0
    elif direction == "difference":
        if size_of_row < 2:
            check.fail("direction", "of a row with two entries", direction)
        row = unit(size_of_row)
        row[1] = -1.0
        size = float(norms.norm(row, facts.row_norm))
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
    facts: PublicFacts,
    rows: Array,
    responses: Array,
    *,
    direction: Direction,
    last: tuple[Array, float] | None = None,
) -> Pair:
    """Problems whose last record is extreme, and ``last``: by default its opposite."""
    row, bound = extreme_row(facts, direction), response_bound(facts)
    records = (row, bound), ((row, -bound) if last is None else last)
    first, second = (_ending(facts, rows, responses, *record) for record in records)
    return first, second


def _ending(
    facts: PublicFacts, rows: Array, responses: Array, row: Array, response: float
) -> Problem:
    """Return the problem of these records, the last of them replaced."""
    return _problem(
        facts, np.vstack([rows[:-1], row]), np.append(responses[:-1], response)
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
