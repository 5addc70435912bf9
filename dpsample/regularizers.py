"""Functions r that are 1-strongly convex in a norm, which shape the distribution.

The squared norms are 1-strongly convex in l_p. The choices are those of the norm table
of arXiv:2207.08347 (Corollaries 2 to 4 and Proposition 7), with a smaller constant for
l_1.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import types
from numpy.typing import ArrayLike

from dpsample.core import check, spec
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import Piece, Pointer, f8, i8, kernel, pointer, vector
from dpsample.core.public import dir_of
from dpsample.core.spec import Spec, freeze, lazy_property
from dpsample.core.user_functions import (
    UserData,
    UserFunction,
    check_function,
    compile_user_function,
    recorded_errors,
)
from dpsample.domains import Domain, Simplex
from dpsample.domains.schatten_ball import check_shape
from dpsample.numerics.norms import distance, thin_svd, write_product
from dpsample.numerics.norms import norm as vector_norm

__all__ = [
    "REGULARIZER",
    "REG_GRADIENT",
    "REG_VALUE",
    "Entropy",
    "PowerNorm",
    "Regularizer",
    "RegularizerParams",
    "SchattenSquared",
    "SquaredNorm",
    "custom",
    "from_dict",
    "optimal_exponent",
]
__dir__ = dir_of(__all__)

VARIANTS = ("optimized", "printed")


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class RegularizerParams(NamedTuple):
    """``r(x) = scale/2 ||x - center||_exponent^2``, for matrices of the given sides.

    The norm of vectors may have weights, (sum_j w_j |x_j|^q)^(1/q). Without weights the
    array is empty.

    Examples
    --------
    >>> from dpsample.regularizers import SquaredNorm
    >>> SquaredNorm(1.5).params(2, [0.0, 0.0]).scale
    2.0
    """

    center: Array
    scale: float
    exponent: float
    num_rows: int
    num_columns: int
    weights: Array  # (dim,) or (0,)


REGULARIZER = frame_type((vector, f8, f8, i8, i8, vector), RegularizerParams)
REG_VALUE = types.void(REGULARIZER, vector, vector)  # out[0]: r(x)
REG_GRADIENT = types.void(REGULARIZER, vector, vector)  # out: gradient of r at x


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def weighted_distance(params: RegularizerParams, theta: Array) -> float:
    """Return the weighted norm of theta - center, with finite powers."""
    largest = 0.0
    for j in range(len(theta)):
        size = abs(theta[j] - params.center[j])
        if not size < np.inf:
            return float(size)  # infinity, or NaN for failure
        largest = max(largest, size)
    if largest == 0.0:
        return 0.0
    total = 0.0
    for j in range(len(theta)):
        share = abs(theta[j] - params.center[j]) / largest
        if params.exponent == 2.0:
            total += params.weights[j] * share * share
        else:
            total += params.weights[j] * share**params.exponent
    return float(largest * total ** (1.0 / params.exponent))


@kernel(counts_references=False)
def squared_norm_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``scale/2 ||theta - center||^2``."""
    length = distance(theta, params.center, params.exponent)
    out[0] = 0.5 * params.scale * length * length


@kernel(counts_references=False)
def weighted_norm_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``scale/2 ||theta - center||^2`` of the weighted norm."""
    length = weighted_distance(params, theta)
    out[0] = 0.5 * params.scale * length * length


@kernel(counts_references=False)
def weighted_norm_gradient(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``scale N w_i (|z_i|/N)^(q-1) sign(z_i)``, N the weighted norm of z."""
    # Weights are at least 1, so the shares |z_i| / N are at most 1.
    length = weighted_distance(params, theta)
    for i in range(len(theta)):
        offset = theta[i] - params.center[i]
        if params.exponent == 2.0:
            out[i] = params.scale * params.weights[i] * offset
        elif length > 0.0:
            share = (abs(offset) / length) ** (params.exponent - 1.0)
            factor = params.scale * params.weights[i] * length
            out[i] = factor * math.copysign(share, offset)
        else:
            out[i] = params.scale * length  # 0, or NaN for failure


@kernel(counts_references=False)
def squared_norm_gradient(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``scale N (|z_i|/N)^(q-1) sign(z_i)``, z = theta - center, N = ||z||_q."""
    # Shares |z_i| / N are at most 1, so that their powers do not overflow.
    length = distance(theta, params.center, params.exponent)
    for i in range(len(theta)):
        offset = theta[i] - params.center[i]
        if params.exponent == 2.0:
            out[i] = params.scale * offset
        elif length > 0.0:
            share = (abs(offset) / length) ** (params.exponent - 1.0)
            out[i] = params.scale * length * math.copysign(share, offset)
        else:
            out[i] = params.scale * length  # 0, or NaN for failure


@kernel(counts_references=False)
def entropy_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``sum theta log theta``; infinity at a negative coordinate."""
    total = 0.0
    for value in theta:
        # 0 log 0 = 0.
        if value < 0.0:
            total = np.inf
        elif value != 0.0:
            total += value * math.log(value)
    out[0] = total


@kernel(counts_references=False)
def entropy_gradient(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``1 + log theta``; -inf at 0, NaN at a negative coordinate."""
    for i in range(len(theta)):
        out[i] = 1.0 + math.log(theta[i]) if theta[i] > 0.0 else np.nan
        if theta[i] == 0.0:
            out[i] = -np.inf


@kernel
def schatten_squared_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write ``scale/2`` times the squared norm of the singular values."""
    # The Frobenius norm needs no singular values.
    if params.exponent == 2.0:
        squared_norm_value(params, theta, out)
    elif np.isfinite(theta).all():
        offset = theta - params.center
        values = thin_svd(offset, params.num_rows, params.num_columns)[1]
        length = distance(values, np.zeros(len(values)), params.exponent)
        out[0] = 0.5 * params.scale * length * length


@kernel
def schatten_squared_gradient(
    params: RegularizerParams, theta: Array, out: Array
) -> None:
    """Write U diag(g) V', g the gradient at the singular values."""
    if params.exponent == 2.0:
        squared_norm_gradient(params, theta, out)
    elif np.isfinite(theta).all():
        offset = theta - params.center
        left, values, right = thin_svd(offset, params.num_rows, params.num_columns)
        length = distance(values, np.zeros(len(values)), params.exponent)
        # The gradient of a function of the singular values has the same singular
        # vectors, and the gradient of that function as singular values.
        if length > 0.0:
            power = params.exponent - 1.0
            for k in range(len(values)):
                values[k] = params.scale * length * (values[k] / length) ** power
        write_product(left, values, right, out)


class Regularizer(Spec):
    """Strongly convex function of theta.

    Attributes
    ----------
    name : str
        Word used in ``to_dict``.
    p : float
        Norm in which the function is 1-strongly convex.
    value_piece, gradient_piece : compiled functions
        Pieces with the signatures ``REG_VALUE`` and ``REG_GRADIENT``.

    Examples
    --------
    >>> from dpsample.regularizers import SquaredNorm
    >>> SquaredNorm().value([1.0, 1.0]), SquaredNorm().curvature_l2(dim=2)
    (1.0, (1.0, 1.0))
    """

    value_piece: ClassVar[Piece]
    gradient_piece: ClassVar[Piece]

    p: float

    @property
    def is_plain_norm(self) -> bool:
        """Whether r is a multiple of a squared l_q norm of vectors without weights."""
        return False

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the compiled functions, in new arrays."""
        raise NotImplementedError

    @property
    def value_pointer(self) -> Pointer:
        """C function of the value, of signature ``REG_VALUE``."""
        return pointer(self.value_piece, REG_VALUE)

    @property
    def gradient_pointer(self) -> Pointer:
        """C function of the gradient, of signature ``REG_GRADIENT``."""
        return pointer(self.gradient_piece, REG_GRADIENT)

    def check_on(self, domain: Domain, dim: int) -> None:
        """Raise unless the function is what it has to be on the domain."""
        check.integer(1, dim=dim)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return an upper bound of ``max r - min r`` on the domain."""
        raise NotImplementedError

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return a lower and an upper bound of the Hessian in l2."""
        raise NotImplementedError

    def describe(self, domain: Domain, dim: int) -> str:
        """Return the representation, with the center if the domain has several."""
        del domain, dim  # the entropy has no center
        return repr(self)

    def value(self, theta: ArrayLike, default_center: ArrayLike | None = None) -> float:
        """Return the value at theta. The default center is the origin."""
        point, params = self._point(theta, default_center)
        out = np.full(1, np.nan)
        self.value_piece(params, point, out)
        return float(out[0])

    def gradient(
        self, theta: ArrayLike, default_center: ArrayLike | None = None
    ) -> Array:
        """Return the gradient at theta. The default center is the origin."""
        point, params = self._point(theta, default_center)
        out = np.full(len(point), np.nan)
        self.gradient_piece(params, point, out)
        return out.reshape(np.shape(theta))

    def _point(
        self, theta: ArrayLike, default_center: ArrayLike | None
    ) -> tuple[Array, RegularizerParams]:
        point = check.array("theta", theta, shape=(None,))
        origin = np.zeros(len(point)) if default_center is None else default_center
        center = check.array("default_center", origin, shape=point.shape)
        return point, self.params(len(point), center)


@dataclass(frozen=True, eq=False)
class Entropy(Regularizer):
    """Negative entropy ``r(x) = sum x_i log(x_i)`` on the probability simplex.

    Its gradient is -inf where a coordinate is 0.

    Guarantee
    ---------
    1-strongly convex in l_1 on the simplex (Pinsker's inequality), with range exactly
    ``log(dim)``.

    Examples
    --------
    >>> from dpsample.domains import Simplex
    >>> round(Entropy().range_on(Simplex(), dim=10), 4)
    2.3026
    """

    name: ClassVar[str] = "entropy"
    value_piece: ClassVar[Piece] = staticmethod(entropy_value)
    gradient_piece: ClassVar[Piece] = staticmethod(entropy_gradient)

    p: float = field(default=1.0, init=False, repr=False)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the compiled functions, in new arrays.

        The entropy has no center, so the default one is stored but not used.
        """
        check.integer(1, dim=dim)
        center = check.array("default_center", default_center, shape=(dim,))
        return RegularizerParams(center, 1.0, 1.0, dim, 1, np.empty(0))

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``log(dim)``: 0 at a vertex minus ``-log(dim)`` at the center."""
        remedy = "The entropy is strongly convex on the simplex only: use SquaredNorm."
        check.instance(Simplex, domain=domain, remedy=remedy)
        domain.check(dim)
        return math.log(dim)

    def check_on(self, domain: Domain, dim: int) -> None:
        """Raise for another domain than the simplex."""
        self.range_on(domain, dim)

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return 1 (the Hessian is ``diag(1/x)``) and infinity."""
        check.integer(1, dim=dim)
        return 1.0, math.inf


def optimal_exponent(dim: int) -> float:
    """Exponent q that minimizes ``dim**(2 - 2/q) / (q - 1)`` over (1, 2].

    The stationary point solves ``q^2 = 2 (q - 1) log(dim)``: ``q = L - sqrt(L^2 - 2L)``
    with ``L = log(dim)``, and q = 2 if ``L <= 2``.

    Parameters
    ----------
    dim : int
        Number of coordinates (of singular values, for a Schatten norm).

    Returns
    -------
    float
        The exponent.

    Raises
    ------
    ValueError
        If ``dim`` is not an integer >= 1.

    Examples
    --------
    >>> optimal_exponent(5), round(optimal_exponent(1000), 4)
    (2.0, 1.0852)
    """
    check.integer(1, dim=dim)
    log_dim = math.log(dim)
    if log_dim <= 2.0:
        return 2.0
    # The smaller root of q^2 - 2 L q + 2 L, as the constant term over the larger one,
    # which adds two numbers of one sign.
    return 2.0 * log_dim / (log_dim + math.sqrt(log_dim * (log_dim - 2.0)))


def scale_and_exponent(p: float, dim: int, variant: str) -> tuple[float, float]:
    """Return scale and q with which scale/2 ||.||_q^2 is 1-strongly convex in l_p."""
    # ||v||_p <= ||v||_2, so half of the squared l2 norm is 1-strongly convex in l_p.
    if p >= 2.0:
        return 1.0, 2.0
    # Half of the squared l_p norm is (p - 1)-strongly convex in l_p.
    if p > 1.0:
        return 1.0 / (p - 1.0), p
    if variant == "optimized":
        # ||v||_1^2 <= dim^(2 - 2/q) ||v||_q^2, and half of the squared l_q norm is
        # (q - 1)-strongly convex in l_q.
        q = optimal_exponent(dim)
        return dim ** (2.0 - 2.0 / q) / (q - 1.0), q
    if dim < 3:
        check.fail("dim", ">= 3", dim, 'Use variant="optimized".')
    return math.e**2 * math.log(dim), 1.0 + 1.0 / math.log(dim)


class _Squared(Regularizer):
    """Base class of squared norms of vectors and of singular values."""

    center: Any
    variant: str

    def __post_init__(self) -> None:
        """Check and convert the fields."""
        check.at_least(1.0, p=self.p)
        check.one_of(VARIANTS, variant=self.variant)
        object.__setattr__(self, "p", float(self.p))
        if self.center is not None:
            center = check.array("center", self.center, shape=(None,))
            object.__setattr__(self, "center", freeze(center))

    def _sides(self, dim: int) -> tuple[int, int]:
        """Return rows and columns of theta. A vector has one column."""
        check.integer(1, dim=dim)
        return dim, 1

    def _num_values(self, dim: int) -> int:
        """Return the number of coordinates, or of singular values."""
        return self._sides(dim)[0]

    def _weights(self, dim: int) -> Array:
        """Return the weights of the coordinates, an empty array without any."""
        del dim
        return np.empty(0)

    def _constants(self, dim: int) -> tuple[float, float]:
        return scale_and_exponent(self.p, self._num_values(dim), self.variant)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the compiled functions, in new arrays."""
        sides, (scale, exponent) = self._sides(dim), self._constants(dim)
        center_or_default = default_center if self.center is None else self.center
        center = check.array("center", center_or_default, shape=(dim,))
        weights = self._weights(dim)
        return RegularizerParams(center, scale, exponent, *sides, weights)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``scale/2 max ||theta - center||_q^2``, exact if the maximum is.

        The minimum is bounded by 0, which it is whenever the center is in the domain.
        """
        check.instance(Domain, domain=domain, remedy="Use one of dps.domains.")
        params = self.params(dim, domain.default_center(dim))
        return 0.5 * params.scale * self._largest(domain, params) ** 2

    def describe(self, domain: Domain, dim: int) -> str:
        """Return the representation, with the center if the domain has several.

        A polytope may have several default centers, and other domains have one.
        """
        if self.center is not None or not domain.is_polytope:
            return repr(self)
        center = domain.default_center(dim).tolist()
        return repr(self).replace("center=None", f"center={center}")

    def _largest(self, domain: Domain, params: RegularizerParams) -> float:
        """Return a bound of the norm of ``theta - center`` on the domain."""
        return domain.max_norm(params.exponent, params.center, len(params.center))

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return ``scale (q - 1)`` and, only for q = 2, a finite upper bound."""
        # With one coordinate every norm is |x|.
        scale, exponent = self._constants(dim)
        if self._num_values(dim) == 1 or exponent == 2.0:
            return scale, scale
        return scale * (exponent - 1.0), math.inf


@dataclass(frozen=True, eq=False)
class SquaredNorm(_Squared):
    r"""Squared norm, 1-strongly convex in l_p: ``r(x) = scale/2 ||x - center||_q^2``.

    ======================  ====================================  =====================
    p                       scale                                 q
    ======================  ====================================  =====================
    p >= 2                  1                                     2
    1 < p < 2               1/(p - 1)                             p
    1, "optimized"          dim^(2 - 2/q)/(q - 1)                 `optimal_exponent`
    1, "printed"            e^2 log(dim)                          1 + 1/log(dim)
    ======================  ====================================  =====================

    Parameters
    ----------
    p : float, default 2.0
        Norm in [1, inf] in which the function is 1-strongly convex.
    center : array_like, optional
        Minimizer, by default the center of the domain. A polytope may have many. The
        representations of targets, mechanisms and certificates show the one in use.
    variant : {"optimized", "printed"}
        Constants for p = 1: the smallest of this form, or those of the paper.
    weights : array_like, optional
        Weights w_j >= 1 of the coordinates in the norm (sum_j w_j |x_j|^q)^(1/q), for
        targets of studies. Smaller weights would make the function less convex than p
        says: divide all of them by the smallest, and multiply mu by it.

    Raises
    ------
    ValueError
        If p < 1, the center is not finite, the variant is unknown, or a weight is below
        1 or not finite.

    Guarantee
    ---------
    ``r(t x + (1-t) y) <= t r(x) + (1-t) r(y) - t (1-t)/2 ||x - y||_p^2``
    (Proposition 7 of arXiv:2207.08347 and ``||v||_1 <= dim^(1-1/q) ||v||_q``). With
    weights the same holds for the weighted norm, which is the norm of the vector of
    w_j^(1/q) x_j and at least the norm without weights.

    Examples
    --------
    >>> SquaredNorm(1.5).value([3.0, 0.0])
    9.0
    >>> SquaredNorm(2.0).gradient([3.0, 4.0]).tolist()
    [3.0, 4.0]
    >>> SquaredNorm(2.0, weights=[1.0, 9.0]).gradient([3.0, 4.0]).tolist()
    [3.0, 36.0]
    """

    name: ClassVar[str] = "squared_norm"

    p: float = 2.0
    _: KW_ONLY
    center: Any = None
    variant: str = "optimized"
    weights: Any = None

    def __post_init__(self) -> None:
        """Check and convert the fields."""
        super().__post_init__()
        if self.weights is not None:
            weights = check.array("weights", self.weights, shape=(None,))
            for weight in weights[weights < 1.0][:1]:
                remedy = "Divide all weights by the smallest, and multiply mu by it."
                check.fail("weights", ">= 1", float(weight), remedy)
            object.__setattr__(self, "weights", freeze(weights))

    @property
    def value_piece(self) -> Piece:  # type: ignore[override]
        """Compiled function of the value."""
        return squared_norm_value if self.weights is None else weighted_norm_value

    @property
    def gradient_piece(self) -> Piece:  # type: ignore[override]
        """Compiled function of the gradient."""
        is_plain = self.weights is None
        return squared_norm_gradient if is_plain else weighted_norm_gradient

    @property
    def is_plain_norm(self) -> bool:
        """Whether there are no weights."""
        return self.weights is None

    def to_dict(self) -> spec.Json:
        """Return the fields and the name, without weights if there are none."""
        fields = super().to_dict()
        if self.weights is None:
            del fields["weights"]
        return fields

    def __repr__(self) -> str:
        """Return the fields, without weights if there are none."""
        fields = f"p={self.p!r}, center={self.center!r}, variant={self.variant!r}"
        if self.weights is not None:
            fields += f", weights={self.weights!r}"
        return f"SquaredNorm({fields})"

    def check_on(self, domain: Domain, dim: int) -> None:
        """Raise unless center and weights have a number for each coordinate."""
        super().check_on(domain, dim)
        self.params(dim, np.zeros(dim))

    def _weights(self, dim: int) -> Array:
        if self.weights is None:
            return np.empty(0)
        return np.array(check.array("weights", self.weights, shape=(dim,)))

    def _largest(self, domain: Domain, params: RegularizerParams) -> float:
        """Return a bound of the weighted norm, by the largest weight."""
        largest = float(params.weights.max(initial=1.0))
        factor = float(largest ** (1.0 / params.exponent))
        return factor * super()._largest(domain, params)

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return bounds of the Hessian, with the extreme weights if it is constant."""
        low, high = super().curvature_l2(dim)
        weights = self._weights(dim)
        if len(weights) == 0:
            return low, high
        powers = weights ** (2.0 / self._constants(dim)[1])
        # For q < 2 the lower bound is that of the norm without weights.
        least = float(powers.min()) if math.isfinite(high) else 1.0
        return low * least, high * float(powers.max())


@dataclass(frozen=True, eq=False)
class SchattenSquared(_Squared):
    """Squared Schatten norm: `SquaredNorm` of the singular values.

    The constants are those of `SquaredNorm` in ``min(shape)`` coordinates, the number
    of singular values (Corollary 5 of arXiv:2207.08347).

    Parameters
    ----------
    p : float
        Schatten norm in [1, inf] in which the function is 1-strongly convex.
    shape : tuple of two int
        Rows and columns. theta is the matrix flattened row by row.
    center : array_like, optional
        Minimizer, flattened, by default the center of the domain.
    variant : {"optimized", "printed"}
        Constants for p = 1.

    Raises
    ------
    ValueError
        If p < 1, the shape is not a pair, the center is not finite, or the variant is
        unknown.

    Guarantee
    ---------
    ``r(t x + (1-t) y) <= t r(x) + (1-t) r(y) - t (1-t)/2 ||x - y||^2`` in the
    Schatten norm with exponent p (Proposition 7 of arXiv:2207.08347).

    Examples
    --------
    >>> SchattenSquared(1.5, shape=(2, 2)).value([3.0, 0.0, 0.0, 0.0])
    9.0
    """

    name: ClassVar[str] = "schatten_squared"
    value_piece: ClassVar[Piece] = staticmethod(schatten_squared_value)
    gradient_piece: ClassVar[Piece] = staticmethod(schatten_squared_gradient)

    p: float
    _: KW_ONLY
    shape: tuple[int, int]
    center: Any = None
    variant: str = "optimized"

    def __post_init__(self) -> None:
        """Check and convert the fields."""
        super().__post_init__()
        object.__setattr__(self, "shape", check_shape(self.shape))

    def _sides(self, dim: int) -> tuple[int, int]:
        check.integer(1, dim=dim)
        if self.shape[0] * self.shape[1] != dim:
            check.fail("shape", f"of a matrix with {dim} entries", self.shape)
        return self.shape

    def _num_values(self, dim: int) -> int:
        return min(self._sides(dim))

    def _largest(self, domain: Domain, params: RegularizerParams) -> float:
        center, dim = params.center, len(params.center)
        return domain.max_schatten(params.exponent, center, dim, shape=self.shape)


@kernel(counts_references=False)
def power_norm_value(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write the weighted sum of ``|theta_j|^p / p``; weights are in the center."""
    total = 0.0
    for j in range(len(theta)):
        total += params.center[j] * abs(theta[j]) ** params.exponent
    out[0] = total / params.exponent


@kernel(counts_references=False)
def power_norm_gradient(params: RegularizerParams, theta: Array, out: Array) -> None:
    """Write the weighted ``|theta_j|^(p-1) sign(theta_j)``, 0 where theta_j is 0."""
    for j in range(len(theta)):
        out[j] = 0.0
        if theta[j] != 0.0:
            size = abs(theta[j]) ** (params.exponent - 1.0)
            out[j] = params.center[j] * math.copysign(size, theta[j])


UNPROVED_RANGE = "Use it with dps.Density, or SquaredNorm for a target with records."


@dataclass(frozen=True, eq=False)
class PowerNorm(Regularizer):
    r"""Weighted sum of powers, :math:`r(\theta) = \sum_j w_j |\theta_j|^p / p`.

    For densities (`dpsample.Density`) only. No release takes it: its strong convexity
    depends on the domain, and privacy would rest on it.

    Parameters
    ----------
    p : float
        Power, >= 1 and finite. With 1 the density has kinks at 0.
    weights : array_like, optional
        Weights >= 0 of the coordinates. Default: 1.

    Raises
    ------
    ValueError
        If p is below 1, or a weight is negative or not finite.

    Guarantee
    ---------
    Convex.

    Examples
    --------
    >>> PowerNorm(3.0).value([1.0, 2.0]), PowerNorm(1.0).gradient([-2.0, 0.0]).tolist()
    (3.0, [-1.0, 0.0])
    >>> PowerNorm(2.0, weights=[1.0, 4.0]).value([1.0, 1.0])
    2.5
    """

    name: ClassVar[str] = "power_norm"
    value_piece: ClassVar[Piece] = staticmethod(power_norm_value)
    gradient_piece: ClassVar[Piece] = staticmethod(power_norm_gradient)

    p: float
    _: KW_ONLY
    weights: Any = None

    def __post_init__(self) -> None:
        """Check and convert the fields."""
        check.half_open(1.0, math.inf, p=self.p)
        object.__setattr__(self, "p", float(self.p))
        if self.weights is not None:
            weights = check.array("weights", self.weights, shape=(None,))
            for weight in weights[weights < 0.0][:1]:
                check.fail("weights", ">= 0", float(weight))
            object.__setattr__(self, "weights", freeze(weights))

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the compiled functions, in new arrays.

        The sum of powers has no center. Its weights are in place of the default one.
        """
        check.integer(1, dim=dim)
        del default_center
        weights = np.ones(dim)
        if self.weights is not None:
            weights = np.array(check.array("weights", self.weights, shape=(dim,)))
        return RegularizerParams(weights, 1.0, self.p, dim, 1, np.empty(0))

    def check_on(self, domain: Domain, dim: int) -> None:
        """Raise unless there is a weight for each coordinate."""
        self.params(dim, np.zeros(dim))

    def range_on(self, domain: Domain, dim: int) -> float:
        """Raise, because no strong convexity is proved."""
        del domain, dim
        condition = "a regularizer whose strong convexity is proved on every domain"
        check.fail("regularizer", condition, self, UNPROVED_RANGE)

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return the extreme weights for p = 2, otherwise 0 and infinity."""
        weights = self.params(dim, np.zeros(dim)).center
        if self.p == 2.0:
            return float(weights.min()), float(weights.max())
        return 0.0, math.inf


@kernel(counts_references=False)
def call_at(function: Any, params: RegularizerParams, theta: Array, out: Array) -> None:
    """Call a C function of signature ``REG_VALUE`` or ``REG_GRADIENT``."""
    function(params, theta, out)


class UserRegularizer:
    """The user's value and gradient, compiled at first use."""

    def __init__(self, value: UserFunction, gradient: UserFunction) -> None:
        self.value, self.gradient = value, gradient

    def __getstate__(self) -> dict[str, object]:
        """Leave out the C functions, which contain addresses of this process."""
        return {"value": self.value, "gradient": self.gradient}

    def __deepcopy__(self, memo: object) -> "UserRegularizer":
        """Return the same functions, which do not change."""
        return self

    @lazy_property
    def value_pointer(self) -> Pointer:
        """C function of the value."""
        lines = ["out[0] = float(value())"]
        return compile_user_function(
            {"value": self.value}, REG_VALUE, "unused, theta, out", lines
        )

    @lazy_property
    def gradient_pointer(self) -> Pointer:
        """C function of the gradient."""
        # Source of the compiled function. A gradient of the user fills the array
        # `result`, or returns one.
        lines = ["result = np.full(len(theta), np.nan)", "gradient()"]
        if not self.gradient.arguments:
            lines = ["result = gradient()"]
        lines += ["for j in range(len(theta)):", "    out[j] = result[j]"]
        functions = {"gradient": self.gradient}
        return compile_user_function(
            functions, REG_GRADIENT, "unused, theta, out", lines
        )

    def digests(self) -> list[str]:
        """Return texts that change with the functions and their data."""
        digests = [self.value.digest(), self.gradient.digest()]
        return [*digests, self.value.data.digest()]


# Number of pairs of points at which a user's functions are tried.
NUM_TRIED = 50
# Largest relative difference of a gradient from differences of the value, whose own
# error is far smaller for smooth functions.
GRADIENT_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomRegularizer(Regularizer):
    """Regularizer of the function `custom`. Read from a file, it has only its facts."""

    name: ClassVar[str] = "custom"

    p: float = 2.0
    strong_convexity: float = 0.0
    digests: tuple[str, ...] = ()
    functions: UserRegularizer | None = field(default=None, repr=False)

    def to_dict(self) -> spec.Json:
        """Return the facts, because a file holds no functions."""
        return {
            "name": self.name,
            "p": "inf" if math.isinf(self.p) else self.p,
            "strong_convexity": self.strong_convexity,
            "digests": list(self.digests),
        }

    @property
    def _compiled(self) -> UserRegularizer:
        if self.functions is None:
            check.fail("regularizer", "a custom one with its functions", "facts alone")
        return self.functions

    @property
    def value_pointer(self) -> Pointer:
        """C function of the user's value."""
        return self._compiled.value_pointer

    @property
    def gradient_pointer(self) -> Pointer:
        """C function of the user's gradient."""
        return self._compiled.gradient_pointer

    def value_piece(self, params: RegularizerParams, theta: Array, out: Array) -> None:
        """Write the user's value."""
        call_at(self.value_pointer, params, theta, out)

    def gradient_piece(
        self, params: RegularizerParams, theta: Array, out: Array
    ) -> None:
        """Write the user's gradient."""
        call_at(self.gradient_pointer, params, theta, out)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return parameters that the user's functions do not read."""
        check.integer(1, dim=dim)
        center = check.array("default_center", default_center, shape=(dim,))
        return RegularizerParams(center, 1.0, 2.0, dim, 1, np.empty(0))

    def range_on(self, domain: Domain, dim: int) -> float:
        """Raise, because nothing is proved of a user's function."""
        del domain, dim
        condition = "a regularizer of which range and strong convexity are proved"
        got = "a custom one, of which nothing is proved"
        check.fail("regularizer", condition, got, UNPROVED_RANGE)

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return the declared strong convexity, in l2, and infinity."""
        check.integer(1, dim=dim)
        # In l_p with p < 2 norms are larger than in l2, and with p > 2 smaller.
        ratio = 1.0 if self.p <= 2.0 else dim ** (2.0 / self.p - 1.0)
        return self.strong_convexity * ratio, math.inf

    @recorded_errors.while_called
    def check_on(self, domain: Domain, dim: int) -> None:
        """Compare the functions with what they have to be at points of the domain.

        They are called uncompiled once. The gradient is compared with differences, and
        midpoints may refute convexity and its constant. They cannot prove it.
        """
        functions, rng = self._compiled, np.random.default_rng(0)
        middle = np.array(domain.interior_point(dim), dtype=np.float64)
        result = functions.value.call_python(middle)
        if not (np.ndim(result) == 0 and isinstance(result, int | float | np.number)):
            got = check.describe(result)
            check.fail("value", "a function that returns a real number", got)
        # A gradient with the argument `out` fills it, and otherwise returns an array.
        out = np.full(dim, np.nan)
        arguments = [out] if functions.gradient.arguments else []
        slope = functions.gradient.call_python(middle, *arguments)
        if np.shape(out if arguments else slope) != (dim,):
            got = f"shape {np.shape(slope)}"
            check.fail("gradient", f"a function that returns shape ({dim},)", got)
        axes = domain.hull(dim)[1]
        points = np.array(
            [_random_point(domain, middle, axes, rng) for _ in range(2 * NUM_TRIED)]
        )
        values = np.array([self.value(point) for point in points])
        for point, value in zip(points, values, strict=True):
            if not math.isfinite(value):
                functions.value.call_python(point)  # says what it raises, if it does
                got = f"{value} at {check.describe(point.tolist())}"
                check.fail("value", "finite at points inside the domain", got)
        # A few points show a wrong formula. More would take time at every construction.
        for point in points[:5]:
            self._compare_gradient(domain, point, axes, rng)
        for first, second in zip(points[::2], points[1::2], strict=True):
            self._compare_midpoint(first, second)
        self._compare_far_away(domain, middle, axes, rng)

    def _compare_gradient(
        self, domain: Domain, point: Array, axes: Array, rng: np.random.Generator
    ) -> None:
        """Raise if the gradient differs from differences along a direction."""
        direction = axes @ rng.standard_normal(axes.shape[1])
        direction /= np.linalg.norm(direction)
        low, high = domain.chord(point, direction)
        step = min(1e-5 * (1.0 + float(np.abs(point).max())), 0.5 * high, -0.5 * low)
        if not step > 0.0:
            return
        above, below = (self.value(point + sign * step * direction) for sign in (1, -1))
        slope = float(self.gradient(point) @ direction)
        difference = (above - below) / (2.0 * step)
        # Where the function is not differentiable, the slope along the direction is
        # between the one-sided ones, which differ by the spread.
        middle = self.value(point)
        spread = abs(above - 2.0 * middle + below) / step
        noise = 1e-15 * (abs(above) + abs(below)) / step  # rounding errors
        size = (
            GRADIENT_TOLERANCE * (abs(difference) + abs(slope)) + spread + 8.0 * noise
        )
        if not abs(slope - difference) <= size:
            got = f"{slope:.6g} along {check.describe(direction.round(3).tolist())}"
            where = f"{difference:.6g}, as differences of value are"
            check.fail("gradient", where, got)

    def _compare_far_away(
        self, domain: Domain, middle: Array, axes: Array, rng: np.random.Generator
    ) -> None:
        """Compare pairs so far apart that a small constant has to show."""
        if self.strong_convexity == 0.0:
            return
        # There the constant counts 10 times as much as rounding.
        reach = 1e-6 / self.strong_convexity
        for direction in (axes @ rng.standard_normal((axes.shape[1], 10))).T:
            low, high = domain.chord(middle, direction)
            ends = np.clip([-reach, reach], 0.99 * low, 0.99 * high)
            points = [middle + end * direction for end in ends]
            if np.isfinite([self.value(point) for point in points]).all():
                self._compare_midpoint(*points)

    def _compare_midpoint(self, first: Array, second: Array) -> None:
        """Raise if a midpoint refutes the declared strong convexity."""
        # With constant m a midpoint is lower than the mean of the ends by at least m/8
        # of the squared distance.
        ends = self.value(first) + self.value(second)
        fall = 0.5 * ends - self.value(0.5 * (first + second))
        length = float(vector_norm(first - second, self.p))
        digits = 1e-9 * (1.0 + abs(ends))
        if fall < 0.125 * self.strong_convexity * length**2 * (1.0 - 1e-9) - digits:
            between = " and ".join(
                check.describe(end.tolist()) for end in (first, second)
            )
            got = f"a function that is not, between {between}"
            declared = "convex"
            if self.strong_convexity > 0.0:
                declared += f" with strong_convexity {self.strong_convexity:g}"
            check.fail("value", declared, got)


def _random_point(
    domain: Domain, middle: Array, axes: Array, rng: np.random.Generator
) -> Array:
    """Return a point on a random chord through the middle."""
    direction = axes @ rng.standard_normal(axes.shape[1])
    low, high = domain.chord(middle, direction)
    # Chords of unbounded domains are cut off, and points stay off the boundary, where a
    # gradient may be infinite.
    low, high = max(low, -3.0), min(high, 3.0)
    return np.asarray(middle + rng.uniform(0.99 * low, 0.99 * high) * direction)


def custom(
    value: Callable[..., float],
    gradient: Callable[..., object],
    *,
    data: object = (),
    strong_convexity: float = 0.0,
    norm: float = 2.0,
) -> CustomRegularizer:
    """Make a regularizer from a value and a gradient of the user.

    For densities (`dpsample.Density`) only. Targets with records and releases reject
    it, because nothing is proved of it.

    Parameters
    ----------
    value : callable
        Convex function, called as ``value(theta)``, or ``value(theta, data)`` if data
        are given. A plain Python or Numba function that returns a number.
    gradient : callable
        Its gradient, ``gradient(theta[, data])`` that returns an array, or
        ``gradient(theta[, data], out)`` that fills ``out``.
    data : array, number, tuple or NamedTuple of them, optional
        What the functions read. Arrays are copied.
    strong_convexity : float
        Declared constant of strong convexity, >= 0. Where the energy alone cannot be
        normalized on an unbounded domain, it has to be positive.
    norm : float
        Exponent in [1, inf] of the l_p norm of that constant.

    Returns
    -------
    CustomRegularizer
        Regularizer for `dpsample.Density`, which compares the functions with each other
        and with the constant at points of its domain.

    Raises
    ------
    ValueError
        If a function has another form or a number is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> import dpsample as dps
    >>> def value(theta):
    ...     return np.sum(np.cosh(theta))
    >>> def gradient(theta):
    ...     return np.sinh(theta)
    >>> r = dps.regularizers.custom(value, gradient, strong_convexity=1.0)
    >>> r.value([0.0, 0.0])
    2.0
    """
    check.non_negative(strong_convexity=strong_convexity)
    check.at_least(1.0, norm=norm)
    copy = UserData(None if isinstance(data, tuple) and not data else data)
    arguments = "(theta, data)" if copy.is_given else "(theta)"
    count = 2 if copy.is_given else 1
    height = check_function("value", value, (count,), f"f{arguments}")
    form = f"f{arguments} or f{arguments[:-1]}, out)"
    slope = check_function("gradient", gradient, (count, count + 1), form)
    fills = getattr(slope, "py_func", slope).__code__.co_argcount > count
    functions = UserRegularizer(
        UserFunction("value", height, copy),
        UserFunction("gradient", slope, copy, ("result",) if fills else ()),
    )
    return CustomRegularizer(
        p=float(norm),
        strong_convexity=float(strong_convexity),
        digests=tuple(functions.digests()),
        functions=functions,
    )


KINDS = (SquaredNorm, Entropy, SchattenSquared, PowerNorm, CustomRegularizer)


def from_dict(data: spec.Json) -> Regularizer:
    """Rebuild a regularizer from its ``to_dict``.

    Parameters
    ----------
    data : dict
        Name and fields of the regularizer.

    Returns
    -------
    Regularizer
        A regularizer equal to the one described.

    Raises
    ------
    ValueError
        If the name is unknown or a field is not valid.

    Examples
    --------
    >>> from_dict({"name": "squared_norm", "p": 1.5})
    SquaredNorm(p=1.5, center=None, variant='optimized')
    """
    return spec.from_dict(KINDS, data)
