"""How the gradients of a batch become one vector, and how far one record can move it.

For a generalized linear model a record's gradient is slope * a_i, so clipping it costs
one comparison with the norm of a_i. Every estimator divides by a constant, never by the
number of records that a random batch happens to hold. `contributions` makes the bounds
hold for every record.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.spec import Spec
from dpsample.optimizers.loop.contributions import (
    BUCKETS,
    CATONI,
    CLIP,
    LARGEST,
    MEAN,
    TOP,
    TRUNCATE,
    truncation_table,
)
from dpsample.privacy.curves.additive import up

# Largest |psi| of the soft truncation of Catoni and Giulini.
PSI_BOUND = TOP
# The table of the soft truncation grows like its root.
MAX_PRECISION = 1e6


class RecordLimits(NamedTuple):
    """What an estimator is told of the records."""

    norms: Array  # (num_records,) of the rows, in the estimator's norm, or empty
    limits: Array  # (num_records,) of clipped slopes, or empty
    slope_bound: float  # public, of every slope of the loss
    is_total: bool  # whether no record may end the run


class EstimatorNumbers(NamedTuple):
    """An estimator as the kernel reads it."""

    kind: int
    divisor: float  # constant by which the sum is divided
    smoothing: float  # 0, or the strength lambda of a Moreau envelope
    norms: Array  # (num_records,) of the rows; empty if nothing reads them
    limits: Array  # (num_records,) of clipped slopes; empty if nothing is clipped
    slope_bound: float  # of every slope, finite
    is_total: int  # whether a loss that fails counts as 0 instead of ending the run
    threshold: float = math.inf
    num_buckets: int = 1
    num_central: int = 1
    scale: float = 1.0
    precision: float = 1.0
    table: Array = np.zeros((1, 1))  # of the soft truncation at that precision


@dataclass(frozen=True, kw_only=True)
class Estimator(Spec):
    """Base of all estimators.

    Parameters
    ----------
    smoothing : float
        lambda > 0 replaces each loss by its Moreau envelope min_v f(v) + lambda/2 |w -
        v|^2, which is lambda-smooth and keeps the Lipschitz constant; 0 leaves it.
    """

    smoothing: float = 0.0
    kind: ClassVar[int]

    def record_bound(self, dim: int) -> float:
        """Bound of one record's part in the sum, in the estimator's norm."""
        raise NotImplementedError

    def numbers(self, records: RecordLimits, divisor: float) -> EstimatorNumbers:
        """Return what the kernel reads; norms of the rows have exponent `q`."""
        bound = records.slope_bound
        if isinstance(self, Mean):
            bound = min(bound, self.slope)
        numbers = EstimatorNumbers(
            kind=self.kind,
            divisor=float(divisor),
            smoothing=float(self.smoothing),
            norms=records.norms,
            limits=records.limits,
            # A slope above its declared bound is mended where privacy rests on it.
            slope_bound=float(min(bound, LARGEST) if records.is_total else LARGEST),
            is_total=int(records.is_total),
        )
        return self._completed(numbers)

    @property
    def q(self) -> float:
        """Exponent of the norm in which gradients are measured."""
        return 2.0

    @property
    def needs_norms(self) -> bool:
        """Whether the kernel reads the norms of the rows, which take a pass."""
        return isinstance(self, LimitedMean) or self.smoothing > 0.0

    def _completed(self, numbers: EstimatorNumbers) -> EstimatorNumbers:
        """Add the numbers that only this estimator has."""
        return numbers


@dataclass(frozen=True, kw_only=True)
class Mean(Estimator):
    """Plain mean: one record's part is bounded by the declared Lipschitz constant.

    In a private run slopes above the public slope bound, which only rounding errors or
    a false declaration bring about, are moved to it; rows may exceed their bound by the
    rounding error that `dpsample.Problem` allows.

    Parameters
    ----------
    lipschitz : float
        l2 bound of one record's gradient.
    slope : float
        Bound of slopes beyond that of the loss.
    """

    lipschitz: float = math.inf
    slope: float = math.inf
    name: ClassVar[str] = "mean"
    kind: ClassVar[int] = MEAN

    def record_bound(self, dim: int) -> float:
        """Return the declared Lipschitz constant."""
        del dim
        return self.lipschitz


@dataclass(frozen=True, kw_only=True)
class LimitedMean(Estimator):
    """Base of means of gradients that are limited as a whole."""

    threshold: float

    def __post_init__(self) -> None:
        """Check the threshold."""
        check.at_least(0.0, threshold=self.threshold)

    def record_bound(self, dim: int) -> float:
        """Return the threshold, in the estimator's norm."""
        del dim
        return self.threshold

    def _completed(self, numbers: EstimatorNumbers) -> EstimatorNumbers:
        return numbers._replace(threshold=float(self.threshold))


@dataclass(frozen=True, kw_only=True)
class ClippedMean(LimitedMean):
    """Mean of g_i min(1, C / |g_i|_2)."""

    name: ClassVar[str] = "clipped_mean"
    kind: ClassVar[int] = CLIP


@dataclass(frozen=True, kw_only=True)
class TruncatedMean(LimitedMean):
    """Mean of g_i if |g_i|_q <= B, else 0; ``row_norm`` is q."""

    row_norm: float = 2.0
    name: ClassVar[str] = "truncated_mean"
    kind: ClassVar[int] = TRUNCATE

    def __post_init__(self) -> None:
        """Check the threshold and the norm."""
        super().__post_init__()
        check.at_least(1.0, row_norm=self.row_norm)

    @property
    def q(self) -> float:
        """Exponent of the norm in which gradients are measured."""
        return self.row_norm


@dataclass(frozen=True, kw_only=True)
class BucketedMedian(Estimator):
    """Central order statistics of bucket means, coordinate by coordinate.

    Coordinates are clipped to [-width/2, width/2]; every record joins one of
    ``num_buckets`` buckets at random, whose sums are divided by a constant; the mean of
    the ``num_central`` middle values is the estimate.
    """

    width: float
    num_buckets: int
    num_central: int = 1
    name: ClassVar[str] = "bucketed_median"
    kind: ClassVar[int] = BUCKETS

    def __post_init__(self) -> None:
        """Check that the central values are in the middle."""
        if self.width != math.inf:  # which clips nothing
            check.positive(width=self.width)
        check.integer(1, num_buckets=self.num_buckets, num_central=self.num_central)
        off_center = (self.num_buckets - self.num_central) % 2
        if self.num_central > self.num_buckets or off_center:
            check.fail(
                "num_central",
                f"<= num_buckets = {self.num_buckets} and of the same parity",
                self.num_central,
            )

    def record_bound(self, dim: int) -> float:
        """l2 bound width Q sqrt(d)/(2 j) of a record's part in batch size * estimate.

        One record moves one bucket sum by at most width/2, and the mean of the central
        order statistics by at most Q/j of that (order statistics move in one direction,
        by as much in total).
        """
        if math.isinf(self.width):
            return math.inf
        ratio = self.num_buckets / self.num_central
        bound = 0.5 * self.width * ratio * math.sqrt(dim)
        return up(bound) if bound < math.inf else math.inf

    def _completed(self, numbers: EstimatorNumbers) -> EstimatorNumbers:
        return numbers._replace(
            threshold=0.5 * self.width,
            num_buckets=int(self.num_buckets),
            num_central=int(self.num_central),
        )


@dataclass(frozen=True, kw_only=True)
class CatoniMean(Estimator):
    """Smoothed soft truncation of every coordinate (Catoni and Giulini)."""

    scale: float
    precision: float = 1.0
    name: ClassVar[str] = "catoni_mean"
    kind: ClassVar[int] = CATONI

    def __post_init__(self) -> None:
        """Check the scale and the precision."""
        check.positive(scale=self.scale, precision=self.precision)
        if self.precision > MAX_PRECISION:
            check.fail("precision", f"<= {MAX_PRECISION:g}", self.precision)

    def record_bound(self, dim: int) -> float:
        """l2 bound 2 sqrt(2)/3 s sqrt(d) of a record's part in the sum."""
        return up(PSI_BOUND * self.scale * math.sqrt(dim))

    def _completed(self, numbers: EstimatorNumbers) -> EstimatorNumbers:
        return numbers._replace(
            scale=float(self.scale),
            precision=float(self.precision),
            table=truncation_table(float(self.precision)),
        )
