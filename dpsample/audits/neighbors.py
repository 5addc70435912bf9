"""Neighbors: pairs of problems on which a mechanism is hardest to defend.

Every function takes public facts and returns two problems that have them and differ in
one record, the last one. The other records are *neutral* if there is no intercept: the
loss of a row of zeros is the same at every theta, so it does not change the density. A
record is *extreme* if its gradient is as large as the facts allow.
"""

from typing import Any, Literal

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.public import dir_of
from dpsample.core.renamed import module_attribute
from dpsample.numerics import norms
from dpsample.problem.facts import RELATIONS, PublicFacts
from dpsample.problem.problem import Problem

__all__ = ["at_kink", "copies", "opposite", "shifts", "worst_case", "zero_out"]
__dir__ = dir_of(__all__)
__getattr__ = module_attribute(__name__, duplicated="copies", zeroed="zero_out")

Pair = tuple[Problem, Problem]
Direction = Literal["axis", "corner", "difference"]


def worst_case(
    facts: PublicFacts, relation: str = "replace_one", *, p: float = 2.0
) -> Pair:
    """Return the pair that is expected to be the worst, by loss, relation and norm.

    The last records are opposite under "replace_one". Under "zero_out", the last record
    of the second problem has the loss 0. Among the rows of norm ``row_bound``, the row
    is one with the largest norm dual to l_p. On a simplex the sum of theta is fixed, so
    only differences of the row's entries matter, and the row is along e_1 - e_2.

    For linear losses on a ball, the privacy curve of such a pair converges to the
    Gaussian curve of Theorem 2 of arXiv:2207.08347 as the dimension grows.

    Parameters
    ----------
    facts : PublicFacts
        Facts of the mechanism, such as ``mechanism.facts``.
    relation : {"replace_one", "zero_out"}
        Whether neighbors differ by the exchange of one record, or by setting the loss
        of one record to zero.
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
    _require_facts(facts)
    check.one_of(RELATIONS, relation=relation)
    check.at_least(1.0, p=p)
    # On the unit ball of l_s, ||x||_q is largest at a unit vector if s <= q, and for
    # equal entries if s > q.
    direction: Direction = "axis" if facts.row_norm <= norms.dual(p) else "corner"
    # The component along the vector of ones does not change the loss on a simplex.
    if facts.domain.is_simplex and _row_width(facts) > 1:
        direction = "difference"
    if relation == "zero_out":
        return zero_out(facts, direction=direction)
    return opposite(facts, direction=direction)


def opposite(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Return a pair whose last records are opposite, and all others neutral.

    Linear losses <g, theta> and -<g, theta> with the largest g; opposite labels of a
    classification loss, which differ by 2 <g, theta> between hinges and by <g, theta>
    for the logistic loss; opposite responses of a regression loss.

    Parameters
    ----------
    facts : PublicFacts
        Facts of both problems.
    direction : {"axis", "corner", "difference"}
        "axis" is a row along e_1, the worst one if ``row_norm`` is at most the norm
        dual to the mechanism's. "corner" is a row of equal entries (the identity, for
        matrices), the worst one if ``row_norm`` is larger. "difference" is a row along
        e_1 - e_2, for a simplex.

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
    _require_facts(facts)
    return _make_pair(facts, *_make_neutral_records(facts), direction=direction)


def copies(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Return a pair of copies of one record, the last one replaced by its opposite.

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
    >>> first, second = copies(facts)
    >>> second.data.response.tolist()
    [1.0, 1.0, 1.0, -1.0]
    """
    _require_facts(facts)
    # All records pull theta in the same direction.
    rows = np.tile(_make_extreme_row(facts, direction), (facts.num_records, 1))
    responses = np.full(facts.num_records, _largest_response(facts))
    return _make_pair(facts, rows, responses, direction=direction)


def at_kink(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Pair with opposite records, balanced about theta = 0, except for the last one.

    Without the last record, the risk of absolute losses or of hinges with opposite
    labels is symmetric about 0. Its non-smooth points are at margin 0 for absolute
    losses and at margins 1 and -1 for hinges, so that the density is sharp.

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
    _require_facts(facts)
    rows = np.tile(_make_extreme_row(facts, direction), (facts.num_records, 1))
    # Alternating signs make a sum that is symmetric about 0.
    signs = np.where(np.arange(facts.num_records) % 2 == 0, 1.0, -1.0)
    # A regression loss is least at the response, so its margin is 0 for response 0.
    label_size = 1.0 if facts.loss.is_classification else 0.0
    responses = label_size * signs
    # A linear loss <response * row, theta> has no non-smooth point. Rows of alternating
    # sign balance its slopes.
    if facts.loss.name == "linear":
        rows, responses = (
            rows * signs[:, None],
            np.full(len(signs), _largest_response(facts)),
        )
    return _make_pair(facts, rows, responses, direction=direction)


def zero_out(facts: PublicFacts, *, direction: Direction = "axis") -> Pair:
    """Record of the largest slope, and the same with its loss set to zero.

    Zero is expressed by a row of zeros, whose loss does not depend on theta. A linear
    loss is a multiple of the response, so response 0 makes it 0 even with an intercept.

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
    >>> first, second = zero_out(facts)
    >>> first.data.dense[-1].tolist(), second.data.dense[-1].tolist()
    ([1.0, 0.0], [0.0, 0.0])
    """
    _require_facts(facts)
    is_linear = facts.loss.name == "linear"
    if facts.intercept and not is_linear:
        remedy = "A row of zeros still counts through the intercept."
        check.fail("facts", "without an intercept", "intercept = True", remedy)
    rows, responses = _make_neutral_records(facts)
    zero_response = 0.0 if is_linear else _largest_response(facts)
    zero = (np.zeros_like(rows[-1]), zero_response)
    return _make_pair(facts, rows, responses, direction=direction, last=zero)


def shifts(
    dim: int, *, sensitivity: float, p: float = 2.0
) -> tuple[tuple[Array, Array], ...]:
    """Return pairs of values at distance ``sensitivity``, in extreme directions of l_p.

    For additive noise only the difference of the values matters. One of an axis and a
    diagonal is worst for noise whose density depends on an l_r norm.

    Parameters
    ----------
    dim : int
        Number of coordinates.
    sensitivity : float
        Distance of the two data sets in l_p, > 0.
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
    axis, diagonal = _first_axis(dim), np.ones(dim)
    return tuple(
        # Scaled to distance ``sensitivity`` in l_p.
        (np.zeros(dim), sensitivity * v / norms.norm(v, p))
        for v in (axis, diagonal)
    )


def _row_width(facts: PublicFacts) -> int:
    """Return the length of a row without the intercept's 1."""
    return facts.dim - int(facts.intercept)


def _first_axis(dim: int) -> Array:
    """Return the first vector of the standard basis."""
    vector = np.zeros(dim)
    vector[0] = 1.0
    return vector


def _require_facts(facts: PublicFacts) -> None:
    """Raise unless the argument is public facts."""
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")


def _make_extreme_row(facts: PublicFacts, direction: Direction) -> Array:
    """Return a row of norm ``row_bound`` in a direction."""
    check.one_of(("axis", "corner", "difference"), direction=direction)
    size_of_row = _row_width(facts)
    row = np.ones(size_of_row) if direction == "corner" else _first_axis(size_of_row)
    if direction == "axis":  # e_1 has norm 1 in every l_p and Schatten norm
        return facts.row_bound * row
    if direction == "difference":
        if size_of_row < 2:
            check.fail("direction", "of a row with two entries", direction)
        row[1] = -1.0
    shape = facts.domain.matrix_shape
    if shape is not None:
        # The identity has equal singular values, and so is the corner of a Schatten
        # ball.
        if direction == "corner":
            row = np.eye(*shape).reshape(-1)
        size = norms.schatten(row, facts.row_norm, shape)
    else:
        size = norms.norm(row, facts.row_norm)
    return np.asarray(facts.row_bound / float(size) * row)


def _largest_response(facts: PublicFacts) -> float:
    """Return the largest response: a label, the declared bound, or 1 without one."""
    if facts.loss.is_classification or facts.response_bound is None:
        return 1.0
    return facts.response_bound


def _make_neutral_records(facts: PublicFacts) -> tuple[Array, Array]:
    """Return rows of zeros, and responses that balance as well as they can.

    The responses of a classification loss are labels of alternating sign. They matter
    only with an intercept, through which a row of zeros still counts.
    """
    rows = np.zeros((facts.num_records, _row_width(facts)))
    responses = np.zeros(facts.num_records)
    if facts.loss.is_classification:
        responses[::2], responses[1::2] = 1.0, -1.0
    return rows, responses


def _make_pair(
    facts: PublicFacts,
    rows: Array,
    responses: Array,
    *,
    direction: Direction,
    last: tuple[Array, float] | None = None,
) -> Pair:
    """Return two problems that have the given records, except for the last one.

    The last record of the first problem has the extreme row and the largest response.
    In the second problem it is ``last``, by default with the opposite response.
    ``rows`` has shape (num_records, width) and ``responses`` shape (num_records,).
    """
    row, bound = _make_extreme_row(facts, direction), _largest_response(facts)
    # The pair differs in the last record only, because the others are the same arrays.
    records = (row, bound), ((row, -bound) if last is None else last)
    first, second = (
        _problem(
            facts, np.vstack([rows[:-1], row]), np.append(responses[:-1], response)
        )
        for row, response in records
    )
    return first, second


def _problem(facts: PublicFacts, rows: Array, responses: Array) -> Problem:
    """Build the problem of these records with the public facts."""
    features: Any = rows
    # A million entries take 8 MB. More are stored sparsely if nine in ten are zero.
    if rows.size > 1_000_000 and np.count_nonzero(rows) < 0.1 * rows.size:
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
