"""Estimator and batch size of a private proximal descent, from public numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpsample.facts import PublicFacts
from dpsample.optimizers import robust_scales
from dpsample.optimizers.estimators import (
    BucketedMedian,
    CatoniMean,
    ClippedMean,
    Estimator,
)
from dpsample.privacy.budget import Budget

if TYPE_CHECKING:
    from dpsample.optimizers.private_proximal_sgd import PrivateProximalSGD


def batch_size(
    spec: PrivateProximalSGD, facts: PublicFacts, budget: Budget | None
) -> float:
    """Batch size of the paper, before it is rounded and cut at num_records."""
    epsilon = 1.0 if budget is None else budget.epsilon
    if spec.estimator == "clip":
        return facts.num_records / 6.0
    if spec.estimator == "catoni":
        return robust_scales.catoni_batch(
            facts.num_records, dim=facts.dim, epsilon=epsilon
        )
    return robust_scales.median_batch(
        facts.num_records, dim=facts.dim, epsilon=epsilon, order=spec.moment_order
    )


def buckets(
    spec: PrivateProximalSGD, dim: int, printed: Budget | None
) -> tuple[int, int]:
    """Numbers of buckets and of central values."""
    num_buckets, central = spec.num_buckets, spec.num_central
    if num_buckets is None:
        count = 3.0 * math.log(2.0 * dim / spec.failure_probability)
        # An even number of buckets halves what a record can do to the median.
        even = 2 * math.ceil(0.5 * count)
        num_buckets = even if printed is None else math.ceil(count)
    return num_buckets, 2 - num_buckets % 2 if central is None else central


def printed_multiplier(spec: PrivateProximalSGD, dim: int, budget: Budget) -> float:
    """Return the printed noise over the l2 bound of one record."""
    multiplier = math.sqrt(math.log(1.0 / budget.delta)) / budget.epsilon
    if spec.estimator == "catoni":
        return 2.0 * multiplier
    if spec.estimator == "bucketed_median":  # printed for one central value
        return 2.0 * buckets(spec, dim, budget)[1] * multiplier
    return multiplier


def estimator(
    spec: PrivateProximalSGD,
    facts: PublicFacts,
    size: int,
    multiplier: float,
    printed: Budget | None,
) -> Estimator:
    """Estimator with its threshold, width or scale."""
    if spec.estimator == "clip":
        given = spec.threshold
        return ClippedMean(threshold=facts.lipschitz(2.0) if given is None else given)
    if spec.estimator == "catoni":
        return _catoni(spec, facts.dim, size, multiplier, printed)
    num_buckets, central = buckets(spec, facts.dim, printed)
    width = spec.threshold
    if width is None and printed is not None:
        width = robust_scales.printed_width(
            printed, dim=facts.dim, batch_size=size, order=spec.moment_order
        )
    elif width is None:
        width = robust_scales.median_width(
            multiplier=multiplier,
            dim=facts.dim,
            batch_size=size,
            ratio=num_buckets / central,
            moment_bound=spec.moment_bound,
            order=spec.moment_order,
        )
        width = max(width, 4.0 * spec.mean_bound)
    return BucketedMedian(width=width, num_buckets=num_buckets, num_central=central)


def _catoni(
    spec: PrivateProximalSGD,
    dim: int,
    size: int,
    multiplier: float,
    printed: Budget | None,
) -> CatoniMean:
    precision = math.sqrt(math.log(1.0 / spec.failure_probability))
    scale = spec.threshold
    if scale is None and printed is not None:
        scale = robust_scales.printed_scale(
            printed,
            batch_size=size,
            moment_bound=spec.moment_bound,
            failure_probability=spec.failure_probability,
        )
    elif scale is None:
        scale = robust_scales.catoni_scale(
            multiplier=multiplier,
            dim=dim,
            batch_size=size,
            moment_bound=spec.moment_bound,
            precision=precision,
            failure_probability=spec.failure_probability,
        )
    return CatoniMean(scale=scale, precision=precision)
