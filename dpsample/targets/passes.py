"""One pass over the records at a point: sums of values, slopes and curvatures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.losses import Loss
from dpsample.problem.homes import add
from dpsample.problem.records import Data, weighted_gram
from dpsample.targets.gibbs import Gibbs, as_rows


class Passed(NamedTuple):
    """Sums over the records at a point."""

    value: float
    slope: Array  # (dim,)
    gram: Array  # (dim, dim): of a_i a_i^T, weighted by phi''
    num_unbent: int  # chunks in which phi'' is not finite


def passed(target: Gibbs, point: Array, *, wants_gram: bool = True) -> Passed:
    """One pass over the records at a point."""
    loss = target.problem.loss
    return Passed(*target.home.fold(add, _sums, loss, point, wants_gram))


def _sums(part: Data, loss: Loss, point: Array, wants_gram: bool) -> Passed:
    rows = as_rows(part)
    margins = rows @ point + (part.offset if part.offset.size else 0.0)
    values, slopes = loss._at(margins, part.response)
    gram, num_unbent = np.zeros((part.dim, part.dim)), 0
    if wants_gram:
        weights = loss.curvature(margins, margins, part.response)[1]
        num_unbent = int(not np.isfinite(weights).all())
        if not num_unbent:
            gram = weighted_gram(part, weights)
    return Passed(float(values.sum()), slopes @ rows, gram, num_unbent)
