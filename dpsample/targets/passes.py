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
    rise: float  # of the values above those at another point
    slope: Array  # (dim,)
    gram: Array  # (dim, dim): weighted by phi''
    num_unbent: int  # chunks in which phi'' is not finite

    @property
    def is_bent(self) -> bool:
        """Whether the losses have finite curvatures."""
        return self.num_unbent == 0


def passed(
    target: Gibbs, point: Array, other: Array | None = None, *, wants_gram: bool = True
) -> Passed:
    """One pass over the records at a point, perhaps compared with another."""
    loss = target.problem.loss
    return Passed(*target.home.fold(add, _sums, loss, point, other, wants_gram))


def _sums(
    part: Data, loss: Loss, point: Array, other: Array | None, wants_gram: bool
) -> Passed:
    rows, response = as_rows(part), part.response
    offset = part.offset if part.offset.size else 0.0
    margins = rows @ point + offset
    values, slopes = loss._evaluate(margins, response)
    rise, gram, num_unbent = 0.0, np.zeros((part.dim, part.dim)), 0
    if other is not None:
        rise = float((values - loss.value(rows @ other + offset, response)).sum())
    if wants_gram:
        weights = loss.curvature(margins, margins, response)[1]
        num_unbent = int(not np.isfinite(weights).all())
        if not num_unbent:
            gram = weighted_gram(part, weights)
    return Passed(float(values.sum()), rise, slopes @ rows, gram, num_unbent)
