"""Estimators, which make one vector of a batch's gradients with bounded influence.

For a generalized linear model a record's gradient is slope * a_i, so clipping it costs
one comparison with the norm of a_i. Every estimator divides by a constant, never by the
number of records that a random batch happens to hold. `contributions` makes the bounds
hold for every record.

A *slope* is the derivative of a record's loss in its margin <a_i, w> + offset_i. An
estimate is a sum over the batch, divided by the constant. The *record bound* is the
largest norm of one record's vector in this sum, on which privacy rests.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece
from dpsample.core.spec import Spec
from dpsample.optimizers.loop.contributions import (
    LARGEST,
    PSI_BOUND,
    add_clipped,
    add_softly,
    add_to_bucket,
    add_truncated,
    bound_slopes,
    clip_slopes,
    truncate_slopes,
    truncation_table,
)
from dpsample.optimizers.loop.estimate import (
    add_all_softly,
    add_all_to_buckets,
    add_block,
    add_margins,
    add_records,
    central_means,
    divide,
    slopes_of,
    smooth_slopes,
)
from dpsample.optimizers.loop.perturbations import rounding_excess
from dpsample.optimizers.loop.pieces import (
    ADD,
    ADD_BLOCK,
    FINISH,
    LIMIT,
    SLOPES,
    BlockFunctions,
    CompiledEstimator,
    Numbers,
    RecordNumbers,
    compile_piece,
)
from dpsample.privacy.curves.additive import round_up


class RecordLimits(NamedTuple):
    """Bounds of the records that an estimator may use."""

    norms: Array  # (num_records,) of the rows, in the estimator's norm, or empty
    limits: Array  # (num_records,) of clipped slopes, or empty
    slope_bound: float  # public, of every slope of the loss
    is_total: bool  # whether no record may end the run
    has_margins: bool = True  # whether the loss is one of the margin


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class ThresholdNumbers(NamedTuple):
    """Norm that a gradient as a whole may have."""

    threshold: float


@by_address
class BucketNumbers(NamedTuple):
    """Numbers of bucket means."""

    threshold: float  # largest size of a coordinate
    num_buckets: int
    num_central: int


@by_address
class TruncationNumbers(NamedTuple):
    """Numbers of a soft truncation."""

    scale: float
    precision: float
    table: Array  # at that precision


@dataclass(frozen=True, kw_only=True)
class Estimator(Spec):
    """Base of all estimators.

    Parameters
    ----------
    smoothing : float
        lambda > 0 replaces each loss by its Moreau envelope min_v f(v) + lambda/2 |w -
        v|^2, which is lambda-smooth and keeps the Lipschitz constant. 0 leaves the
        losses as they are.

    Attributes
    ----------
    limit_piece : compiled function
        Kernel of signature `LIMIT`.
    block_piece, record_piece : compiled functions
        Kernels of signature `ADD`: for a block's slopes, and for a single gradient.
    finish_piece : compiled function
        Kernel of signature `FINISH`.
    """

    smoothing: float = 0.0
    limit_piece: ClassVar[Piece] = staticmethod(bound_slopes)
    block_piece: ClassVar[Piece] = staticmethod(add_block)
    record_piece: ClassVar[Piece] = staticmethod(add_clipped)
    finish_piece: ClassVar[Piece] = staticmethod(divide)
    is_bounded: ClassVar[bool] = False  # whether it enforces its record bound

    def record_bound(self, dim: int) -> float:
        """Return the bound of one record's part in the sum, in the estimator's norm."""
        raise NotImplementedError

    def numbers(self) -> Numbers:
        """Return the numbers of the kernels. Here no gradient is limited."""
        return ThresholdNumbers(math.inf)

    def compile(self, records: RecordLimits, divisor: float) -> CompiledEstimator:
        """Return the compiled kernels and their numbers; row norms have exponent q."""
        record_numbers, numbers = self._record_numbers(records), self.numbers()
        slopes = smooth_slopes if self.smoothing > 0.0 else slopes_of
        # Losses without a margin have no slope, so their gradients are added one by
        # one.
        block, add = add_records, self.record_piece
        if records.has_margins:
            block, add = add_margins, self.block_piece
        functions = BlockFunctions(
            slopes=compile_piece(slopes, SLOPES, record_numbers),
            limit=compile_piece(self.limit_piece, LIMIT, record_numbers),
            add=compile_piece(add, ADD, numbers),
            numbers=numbers,
            records=record_numbers,
        )
        return CompiledEstimator(
            block=compile_piece(block, ADD_BLOCK, functions),
            functions=functions,
            finish=compile_piece(self.finish_piece, FINISH, numbers),
            divisor=float(divisor),
        )

    def rounding_excess(self, num_records: int, dim: int) -> float:
        """Return `rounding_excess` of sums over ``num_records`` records."""
        return rounding_excess(num_records=num_records, dim=dim)

    def _record_numbers(self, records: RecordLimits) -> RecordNumbers:
        """Return the bounds of the records as kernels read them."""
        # In a private run a slope above its declared bound is moved to it, because the
        # privacy proof rests on the bound. LARGEST stands for no limit, because
        # infinity times 0 is NaN.
        bound = min(self._slope_bound(records), LARGEST)
        return RecordNumbers(
            norms=records.norms,
            limits=records.limits,
            slope_bound=float(bound if records.is_total else LARGEST),
            smoothing=float(self.smoothing),
            is_total=int(records.is_total),
        )

    def _slope_bound(self, records: RecordLimits) -> float:
        """Return the public bound of slopes."""
        return records.slope_bound

    @property
    def q(self) -> float:
        """Exponent of the norm in which gradients are measured."""
        return 2.0

    @property
    def needs_norms(self) -> bool:
        """Whether the kernel reads the norms of the rows, which take a pass."""
        return isinstance(self, LimitedMean) or self.smoothing > 0.0

    @property
    def num_sums(self) -> int:
        """Number of sums for which memory is needed, at least 1."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Mean(Estimator):
    """Plain mean, in which a declared Lipschitz constant bounds one record's part.

    In a private run slopes above the public slope bound are moved to it. Only rounding
    errors or a false declaration bring them about. Rows may exceed their bound by the
    rounding error that `dpsample.Problem` allows.

    Parameters
    ----------
    lipschitz : float
        l2 bound of one record's gradient.
    slope : float
        Second bound of slopes, in addition to the bound of the loss.
    """

    lipschitz: float = math.inf
    slope: float = math.inf
    name: ClassVar[str] = "mean"

    def record_bound(self, dim: int) -> float:
        """Return the declared Lipschitz constant."""
        del dim
        return self.lipschitz

    def _slope_bound(self, records: RecordLimits) -> float:
        """Return the smaller of both bounds of slopes."""
        return min(records.slope_bound, self.slope)


@dataclass(frozen=True, kw_only=True)
class LimitedMean(Estimator):
    """Base of means of gradients that are limited as a whole."""

    threshold: float
    is_bounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the threshold."""
        check.at_least(0.0, threshold=self.threshold)

    def record_bound(self, dim: int) -> float:
        """Return the threshold, in the estimator's norm."""
        del dim
        return self.threshold

    def numbers(self) -> ThresholdNumbers:
        """Return the threshold."""
        return ThresholdNumbers(float(self.threshold))


@dataclass(frozen=True, kw_only=True)
class ClippedMean(LimitedMean):
    """Mean of g_i min(1, C / |g_i|_2), where C is the ``threshold``."""

    name: ClassVar[str] = "clipped_mean"
    limit_piece: ClassVar[Piece] = staticmethod(clip_slopes)


@dataclass(frozen=True, kw_only=True)
class TruncatedMean(LimitedMean):
    """Mean of g_i if |g_i|_q <= B and of 0 otherwise.

    ``threshold`` is B, and ``row_norm`` is q.
    """

    row_norm: float = 2.0
    name: ClassVar[str] = "truncated_mean"
    limit_piece: ClassVar[Piece] = staticmethod(truncate_slopes)
    record_piece: ClassVar[Piece] = staticmethod(add_truncated)

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

    Coordinates are clipped to [-width/2, width/2]. Every record joins one of
    ``num_buckets`` buckets at random, whose sums are divided by a constant. The mean of
    the ``num_central`` middle values is the estimate.
    """

    width: float
    num_buckets: int
    num_central: int = 1
    name: ClassVar[str] = "bucketed_median"
    block_piece: ClassVar[Piece] = staticmethod(add_all_to_buckets)
    record_piece: ClassVar[Piece] = staticmethod(add_to_bucket)
    finish_piece: ClassVar[Piece] = staticmethod(central_means)
    is_bounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check that the central values are in the middle."""
        if self.width != math.inf:  # which clips nothing
            check.positive(width=self.width)
        check.integer(1, num_buckets=self.num_buckets, num_central=self.num_central)
        # The central values are in the middle only if as many are below them as above.
        off_center = (self.num_buckets - self.num_central) % 2
        if self.num_central > self.num_buckets or off_center:
            check.fail(
                "num_central",
                f"<= num_buckets = {self.num_buckets} and of the same parity",
                self.num_central,
            )

    def record_bound(self, dim: int) -> float:
        """Return the l2 bound width Q sqrt(d)/(2 j) of a record's part.

        It is the part in the estimate times the batch size, with Q = ``num_buckets``
        and j = ``num_central``. One record moves one bucket sum by at most width/2 in
        each coordinate. That moves all order statistics in one direction, by as much in
        total, and so the mean of j of them by at most 1/j of it. A bucket holds 1/Q of
        the batch, hence the factor Q.
        """
        if math.isinf(self.width):
            return math.inf
        ratio = self.num_buckets / self.num_central
        # Width/2 in each of d coordinates is width/2 sqrt(d) in the l2 norm.
        bound = 0.5 * self.width * ratio * math.sqrt(dim)
        return round_up(bound) if bound < math.inf else math.inf

    @property
    def num_sums(self) -> int:
        """Number of buckets."""
        return self.num_buckets

    def numbers(self) -> BucketNumbers:
        """Return the limit of a coordinate, and the numbers of buckets."""
        return BucketNumbers(
            threshold=0.5 * self.width,
            num_buckets=int(self.num_buckets),
            num_central=int(self.num_central),
        )

    def rounding_excess(self, num_records: int, dim: int) -> float:
        """Return `rounding_excess` of bucket sums, which are not made of block sums."""
        return rounding_excess(
            num_records=num_records,
            dim=dim,
            num_central=self.num_central,
            is_blocked=False,
        )


@dataclass(frozen=True, kw_only=True)
class CatoniMean(Estimator):
    """Smoothed soft truncation of every coordinate (Catoni and Giulini)."""

    scale: float
    precision: float = 1.0
    name: ClassVar[str] = "catoni_mean"
    block_piece: ClassVar[Piece] = staticmethod(add_all_softly)
    record_piece: ClassVar[Piece] = staticmethod(add_softly)
    is_bounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the scale and the precision."""
        # The table of the soft truncation has a number of rows in proportion to the
        # root of the precision. At this one it takes less than a megabyte.
        max_precision = 1e6
        check.positive(scale=self.scale, precision=self.precision)
        if self.precision > max_precision:
            check.fail("precision", f"<= {max_precision:g}", self.precision)

    def record_bound(self, dim: int) -> float:
        """Return the l2 bound 2 sqrt(2)/3 s sqrt(d) of a record's part in the sum."""
        return round_up(PSI_BOUND * self.scale * math.sqrt(dim))

    def numbers(self) -> TruncationNumbers:
        """Return the scale, and the table of the truncation."""
        return TruncationNumbers(
            scale=float(self.scale),
            precision=float(self.precision),
            table=truncation_table(float(self.precision)),
        )

    def rounding_excess(self, num_records: int, dim: int) -> float:
        """Return `rounding_excess` of sums of soft truncations."""
        return rounding_excess(num_records=num_records, dim=dim, is_soft=True)
