# mypy: allow-untyped-defs
"""Losses of single records, and bounds of what one can do on the domain.

They serve samplers that never see all records. The bounds hold for these records and
may be sharper than the declared ones: a sampler's error and running time may depend on
the records, privacy constants may not.
"""

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.norms import norm
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


@kernel
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


@kernel
def loss(target, pieces, u, i, work):
    """Loss of record i at margin u; NaN if the piece failed."""
    work.out[0] = np.nan
    pieces.loss_record(target.data.loss_params, u, target.data.response[i], work.out)
    return work.out[0]


def row_norms(target: Gibbs) -> Array:
    """Euclidean norms of the feature rows."""
    return np.asarray(norm(as_rows(target.data), 2.0))


def lipschitz(target: Gibbs, slopes: Array | None = None) -> float:
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
        return lipschitz(target, problem.loss.slope(lower, target.data.response))
    try:
        return 2.0 * lipschitz(target)
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
