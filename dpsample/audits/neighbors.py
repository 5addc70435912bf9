"""Neighbors: pairs of problems on which a mechanism is hardest to defend.

Every function takes public facts and returns two problems that have them and differ in
one record, the last one. The other records are neutral where that is possible: a row of
zeros has the same loss at every theta and leaves the density alone.
"""

from typing import Any, Literal

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.public import dir_of
from dpsample.numerics import norms
from dpsample.problem.facts import RELATIONS, PublicFacts
from dpsample.problem.problem import Problem

__all__ = ["at_kink", "duplicated", "opposite", "shifts", "worst_case", "zeroed"]
__dir__ = dir_of(__all__)

Pair = tuple[Problem, Problem]
Direction = Literal["axis", "corner", "difference"]

# Largest number of entries that are stored densely, whatever they are.
MAX_DENSE = 1_000_000


def worst_case(
    facts: PublicFacts, relation: str = "replace_one", *, p: float = 2.0
) -> Pair:
    """Pair that is expected to be the worst, by loss, relation and norm.

    Opposite records under "replace_one", a record and none under "zero_out", in the
    direction in which a row of the declared norm is largest in the norm dual to l_p. On
    a simplex only differences of its entries count, and the row has both signs.
    For linear losses on a ball of high dimension the privacy curve of such a pair
    comes as close to the Gaussian curve of Theorem 2 of arXiv:2207.08347 as one likes.

    Parameters
    ----------
    facts : PublicFacts
        Facts of the mechanism, such as ``mechanism.facts``.
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors.
    p : float
        Norm in [1, inf] of the mechanism's sensitivity.

    Returns
    -------
    tuple of Problem
        Two neighboring problems.

    Raises
    ------
    ValueError
        If the relation is unknown, or "zero_out" cannot be expressed: an intercept
        makes a row of zeros count, unless the loss is linear.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=100, dim=5, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> first, second = worst_case(facts)
    >>> first.data.response[-1].item(), second.data.response[-1].item()
    (1.0, -1.0)
    """
    require_facts(facts)
    check.one_of(RELATIONS, relation=relation)
    check.at_least(1.0, p=p)
    direction: Direction = "axis" if facts.row_norm <= norms.dual(p) else "corner"
    if facts.domain.is_simplex and width(facts) > 1:
        direction = "difference"
    if relation == "zero_out":
        return zeroed(facts, direction=direction)
    return opposite(facts, direction=direction)


def opposite(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Two opposite records, all others neutral.

    Linear losses <g, theta> and -<g, theta> with the largest g; opposite labels of a
    classification loss, which differ by 2 <g, theta> between hinges and by <g, theta>
    for the logistic loss; opposite responses of a regression loss.

    Parameters
    ----------
    facts : PublicFacts
        Facts of both problems.
    direction : {"axis", "corner", "difference"}
        Row along e_1, with equal entries (the identity, for matrices), or along e_1 -
        e_2: the largest in the dual norm where rows are bounded in a smaller or a
        larger norm, or on a simplex.

    Returns
    -------
    tuple of Problem
        Two problems that differ under "replace_one".

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=4, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Hinge(), domain=dps.domains.Ball(1.0))
    >>> first, second = opposite(facts)
    >>> first.data.response[-1].item(), second.data.response[-1].item()
    (1.0, -1.0)
    """
    require_facts(facts)
    return pair(facts, *neutral(facts), direction=direction)


def duplicated(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """All records are copies of one, which is replaced once by its opposite.

    The copies push theta to the boundary or to the kink of the loss, where
    truncation can make neighbors easier to tell apart.

    Parameters
    ----------
    facts, direction
        As in `opposite`.

    Returns
    -------
    tuple of Problem
        Two problems that differ under "replace_one".

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=4, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Hinge(), domain=dps.domains.Ball(1.0))
    >>> first, second = duplicated(facts)
    >>> second.data.response.tolist()
    [1.0, 1.0, 1.0, -1.0]
    """
    require_facts(facts)
    rows = np.tile(extreme_row(facts, direction), (facts.num_records, 1))
    responses = np.full(facts.num_records, response_bound(facts))
    return pair(facts, rows, responses, direction=direction)


def at_kink(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Balanced opposite records about theta = 0, and one that tips the balance.

    The risk of absolute losses, or of hinges of opposite labels, is then symmetric
    about 0, with kinks next to it: the sharpest density that the facts allow.

    Parameters
    ----------
    facts, direction
        As in `opposite`.

    Returns
    -------
    tuple of Problem
        Two problems that differ under "replace_one".

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=4, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Hinge(), domain=dps.domains.Ball(1.0))
    >>> first, second = at_kink(facts)
    >>> first.data.response.tolist()
    [1.0, -1.0, 1.0, 1.0]
    """
    require_facts(facts)
    rows = np.tile(extreme_row(facts, direction), (facts.num_records, 1))
    signs = np.where(np.arange(facts.num_records) % 2 == 0, 1.0, -1.0)
    size = 1.0 if facts.loss.is_classification else 0.0
    responses = size * signs
    if facts.loss.name == "linear":
        rows, responses = rows * signs[:, None], np.full(len(signs), response_bound(facts))
    return pair(facts, rows, responses, direction=direction)


def zeroed(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Record of the largest slope, and the same with its loss set to zero.

    Zero is expressed by a row of zeros, whose loss does not depend on theta; a linear
    loss gets response 0 too.

    Parameters
    ----------
    facts, direction
        As in `opposite`.

    Returns
    -------
    tuple of Problem
        Two problems that differ under "zero_out".

    Raises
    ------
    ValueError
        If there is an intercept and the loss is not linear.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=4, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Hinge(), domain=dps.domains.Ball(1.0))
    >>> first, second = zeroed(facts)
    >>> first.data.dense[-1].tolist(), second.data.dense[-1].tolist()
    ([1.0, 0.0], [0.0, 0.0])
    """
    require_facts(facts)
    is_linear = facts.loss.name == "linear"
    if facts.intercept and not is_linear:
        remedy = "A row of zeros still counts through the intercept."
        check.fail("facts", "without an intercept", "intercept = True", remedy)
    rows, responses = neutral(facts)
    zero = np.zeros_like(rows[-1]), 0.0 if is_linear else response_bound(facts)
    return pair(facts, rows, responses, direction=direction, last=zero)


def shifts(
    dim: int, *, sensitivity: float, p: float = 2.0
) -> tuple[tuple[Array, Array], ...]:
    """Pairs of values at distance ``sensitivity``: the extreme directions of l_p.

    For additive noise only the difference of the values matters. One of an axis and a
    diagonal is worst for noise whose density depends on an l_r norm.

    Parameters
    ----------
    dim : int
        Number of coordinates.
    sensitivity : float
        Distance in l_p, > 0.
    p : float
        Norm in [1, inf].

    Returns
    -------
    tuple of pairs of arrays of shape (dim,)
        (0, shift) for shifts along an axis and along the diagonal.

    Examples
    --------
    >>> [shift.round(4).tolist() for _, shift in shifts(2, sensitivity=1.0)]
    [[1.0, 0.0], [0.7071, 0.7071]]
    """
    check.integer(1, dim=dim)
    check.positive(sensitivity=sensitivity)
    check.at_least(1.0, p=p)
    axis, diagonal = unit(dim), np.ones(dim)
    return tuple(
        (np.zeros(dim), sensitivity * v / norms.norm(v, p)) for v in (axis, diagonal)
    )


def width(facts: PublicFacts) -> int:
    """Length of a row without the intercept's 1."""
    return facts.dim - int(facts.intercept)


def unit(dim: int) -> Array:
    """First vector of the standard basis."""
    vector = np.zeros(dim)
    vector[0] = 1.0
    return vector


def require_facts(facts: PublicFacts) -> None:
    """Raise unless the argument is public facts."""
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")


def extreme_row(facts: PublicFacts, direction: Direction) -> Array:
    """Row of norm ``row_bound`` in a direction."""
    check.one_of(("axis", "corner", "difference"), direction=direction)
    size_of_row = width(facts)
    row = np.ones(size_of_row) if direction == "corner" else unit(size_of_row)
    if direction == "axis":
        return facts.row_bound * row
    if direction == "difference":
        if size_of_row < 2:
            check.fail("direction", "of a row with two entries", direction)
        row[1] = -1.0
    shape = facts.domain.matrix_shape
    if shape is not None:
        if direction == "corner":
            row = np.eye(*shape).reshape(-1)
        size = norms.schatten(row, facts.row_norm, shape)
    else:
        size = norms.norm(row, facts.row_norm)
    return np.asarray(facts.row_bound / float(size) * row)


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
    first, second = (
        _problem(
            facts, np.vstack([rows[:-1], row]), np.append(responses[:-1], response)
        )
        for row, response in records
    )
    return first, second


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
