# mypy: allow-untyped-defs
"""Losses of single records, bounds of their derivatives, and sums over all records.

They are for samplers that do not read all records in each step. The bounds are computed
from the records, and may be sharper than the declared ones. A sampler may use them,
because its error and running time may depend on the records. A privacy proof may not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.losses import Loss
from dpsample.numerics.norms import norm
from dpsample.problem.records import Data, weighted_gram
from dpsample.problem.storage import add_entries
from dpsample.targets.gibbs import Gibbs, as_rows

# Relative widening of bounds, which covers rounding errors of norms and derivatives.
SLACK = 1e-9


@kernel(fastmath={"reassoc"})
def dense_margin(row, theta):
    """Return the inner product.

    The compiler may change the order of the additions, so that it can vectorize them.
    """
    result = 0.0
    for j in range(row.shape[0]):
        result += row[j] * theta[j]
    return result


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def margin(data, theta, i):
    """Return <a_i, theta> + offset_i."""
    if data.dense.shape[0] > 0:
        result = dense_margin(data.dense[i], theta)
    else:
        result = 0.0
        for j in range(data.starts[i], data.starts[i + 1]):
            result += data.values[j] * theta[data.columns[j]]
    if data.offset.shape[0] > 0:
        result += data.offset[i]
    return result


@kernel(counts_references=False)
def loss(target, pieces, u, i, work):
    """Return the loss of record i at margin u, NaN if the loss failed."""
    # A function that fails writes nothing, and NaN remains.
    work.out[0] = np.nan
    pieces.loss_record(target.data.loss_params, u, target.data.response[i], work.out)
    return work.out[0]


def row_norms(target: Gibbs) -> Array:
    """Return the Euclidean norms of the feature rows."""
    return np.asarray(norm(as_rows(target.data), 2.0))


def lipschitz_bound(target: Gibbs, slopes: Array | None = None) -> float:
    r"""Return the largest l2 Lipschitz constant of a record's loss on the domain.

    With ``slopes`` s_i it is for the loss minus s_i <a_i, theta>. Derivatives of
    convex losses grow with the margin, so that on a margin interval [u, v]

    .. math:: |\varphi_i' - s_i| \le \max(\varphi_i'(v) - s_i, s_i - \varphi_i'(u)).

    It raises a ValueError if the derivative is unbounded on the domain.
    """
    problem = target.problem
    sizes = row_norms(target)
    if not problem.domain.is_bounded:
        # The declared bound of the derivative, times the norm of a row.
        bound = 1.0 if problem.response_bound is None else problem.response_bound
        slope = problem.loss.slope_bound(problem.facts.margin_bound, bound)
        # This raises an error that says which bound is missing.
        if not np.isfinite(slope):
            return float(problem.lipschitz(2.0))
        return float(slope * sizes.max() * (1.0 + SLACK))
    lower, upper = target.margin_intervals()
    shift = np.zeros(len(sizes)) if slopes is None else slopes
    response = target.data.response
    above = problem.loss.slope(upper, response) - shift
    below = shift - problem.loss.slope(lower, response)
    largest = np.maximum(np.maximum(above, below), 0.0)
    return float((largest * sizes).max() * (1.0 + SLACK))


def slope_range(target: Gibbs) -> float:
    """Return the largest l2 change of a record's gradient on the domain."""
    problem = target.problem
    if problem.domain.is_bounded:
        lower, _ = target.margin_intervals()
        return lipschitz_bound(target, problem.loss.slope(lower, target.data.response))
    try:
        return 2.0 * lipschitz_bound(target)
    except ValueError:
        return np.inf


def smoothness(target: Gibbs) -> float:
    """Return the largest Lipschitz constant of a record's gradient on the domain.

    It may be infinite.
    """
    problem = target.problem
    lower, upper = target.margin_intervals()
    _, high = problem.loss.curvature(lower, upper, target.data.response)
    sizes = row_norms(target)
    # A product of infinity and 0 would be NaN.
    squares = np.where(sizes > 0.0, sizes, 1e-150) ** 2
    return float((np.asarray(high) * squares).max() * (1.0 + SLACK))


class RecordSums(NamedTuple):
    """Sums over the records at a point."""

    value: float
    slope: Array  # (dim,)
    gram: Array  # (dim, dim): sum of phi'' a_i a_i^T
    num_nonfinite: int  # number of chunks in which phi'' is not finite


def sum_over_records(
    target: Gibbs, point: Array, *, wants_gram: bool = True
) -> RecordSums:
    """Return the sums of one pass over the records at a point."""
    loss = target.problem.loss
    return RecordSums(*target.storage.fold(add_entries, _sums, loss, point, wants_gram))


def _sums(part: Data, loss: Loss, point: Array, wants_gram: bool) -> RecordSums:
    rows = as_rows(part)
    margins = rows @ point + (part.offset if part.offset.size else 0.0)
    values, slopes = loss._evaluate_flat(margins, part.response)
    gram, num_nonfinite = np.zeros((part.dim, part.dim)), 0
    if wants_gram:
        weights = loss.curvature(margins, margins, part.response)[1]
        num_nonfinite = int(not np.isfinite(weights).all())
        if not num_nonfinite:
            gram = weighted_gram(part, weights)
    return RecordSums(float(values.sum()), slopes @ rows, gram, num_nonfinite)
