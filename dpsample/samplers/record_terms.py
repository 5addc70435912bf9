# mypy: allow-untyped-defs
"""Losses of single records, bounds of what one can do on the domain, sums of all.

They serve samplers that never see all records. The bounds hold for these records and
may be sharper than the declared ones: a sampler's error and running time may depend on
the records, privacy constants may not.
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

# Relative widening of bounds: it covers rounding of norms and slopes.
SLACK = 1e-9


@kernel(fastmath={"reassoc"})
def dense_margin(row, theta):
    """Inner product, summed in any order."""
    result = 0.0
    for j in range(row.shape[0]):
        result += row[j] * theta[j]
    return result


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
    """Loss of record i at margin u; NaN if the piece failed."""
    work.out[0] = np.nan
    pieces.loss_record(target.data.loss_params, u, target.data.response[i], work.out)
    return work.out[0]


def row_norms(target: Gibbs) -> Array:
    """Euclidean norms of the feature rows."""
    return np.asarray(norm(as_rows(target.data), 2.0))


def lipschitz_bound(target: Gibbs, slopes: Array | None = None) -> float:
    r"""Largest l2 Lipschitz constant of a record's loss on the domain.

    With ``slopes`` s_i, of the loss less s_i <a_i, theta>. Slopes of convex losses grow
    with the margin, so that on a margin interval [u, v]

    .. math:: |\varphi_i' - s_i| \le \max(\varphi_i'(v) - s_i, s_i - \varphi_i'(u)).

    A ValueError says so if the slope grows without end on the domain.
    """
    problem = target.problem
    sizes = row_norms(target)
    if not problem.domain.is_bounded:
        # The declared bound, per unit of the norm of a row.
        bound = 1.0 if problem.response_bound is None else problem.response_bound
        slope = problem.loss.slope_bound(problem.facts.margin_bound, bound)
        if not np.isfinite(slope):
            return float(problem.lipschitz(2.0))  # says what is wrong
        return float(slope * sizes.max() * (1.0 + SLACK))
    lower, upper = target.margin_intervals()
    shift = np.zeros(len(sizes)) if slopes is None else slopes
    response = target.data.response
    above = problem.loss.slope(upper, response) - shift
    below = shift - problem.loss.slope(lower, response)
    largest = np.maximum(np.maximum(above, below), 0.0)
    return float((largest * sizes).max() * (1.0 + SLACK))


def slope_range(target: Gibbs) -> float:
    """Largest l2 change of a record's gradient on the domain, or infinity."""
    problem = target.problem
    if problem.domain.is_bounded:
        lower, _ = target.margin_intervals()
        return lipschitz_bound(target, problem.loss.slope(lower, target.data.response))
    try:
        return 2.0 * lipschitz_bound(target)
    except ValueError:
        return np.inf


def smoothness(target: Gibbs) -> float:
    """Largest Lipschitz constant of a record's gradient on the domain, or infinity."""
    problem = target.problem
    lower, upper = target.margin_intervals()
    _, high = problem.loss.curvature(lower, upper, target.data.response)
    sizes = row_norms(target)
    squares = np.where(sizes > 0.0, sizes, 1e-150) ** 2
    return float((np.asarray(high) * squares).max() * (1.0 + SLACK))


class RecordSums(NamedTuple):
    """Sums over the records at a point."""

    value: float
    slope: Array  # (dim,)
    gram: Array  # (dim, dim): of a_i a_i^T, weighted by phi''
    num_unbent: int  # chunks in which phi'' is not finite


def sum_over_records(
    target: Gibbs, point: Array, *, wants_gram: bool = True
) -> RecordSums:
    """One pass over the records at a point."""
    loss = target.problem.loss
    return RecordSums(*target.storage.fold(add_entries, _sums, loss, point, wants_gram))


def _sums(part: Data, loss: Loss, point: Array, wants_gram: bool) -> RecordSums:
    rows = as_rows(part)
    margins = rows @ point + (part.offset if part.offset.size else 0.0)
    values, slopes = loss._evaluate_flat(margins, part.response)
    gram, num_unbent = np.zeros((part.dim, part.dim)), 0
    if wants_gram:
        weights = loss.curvature(margins, margins, part.response)[1]
        num_unbent = int(not np.isfinite(weights).all())
        if not num_unbent:
            gram = weighted_gram(part, weights)
    return RecordSums(float(values.sum()), slopes @ rows, gram, num_unbent)
