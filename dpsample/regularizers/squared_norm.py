"""Squared norms of vectors and of singular values, 1-strongly convex in l_p.

The choices are those of the norm table of arXiv:2207.08347 (Corollaries 2 to 4 and
Proposition 7), with a smaller constant for l_1.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.jit import Piece
from dpsample.core.spec import frozen
from dpsample.domains import Domain
from dpsample.domains.schatten_ball import checked_shape
from dpsample.regularizers import regularizer as pieces
from dpsample.regularizers.regularizer import Regularizer, RegularizerParams

VARIANTS = ("optimized", "printed")


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
    # The smaller root of q^2 - 2 L q + 2 L without cancellation.
    return 2.0 * log_dim / (log_dim + math.sqrt(log_dim * (log_dim - 2.0)))


def scale_and_exponent(p: float, dim: int, variant: str) -> tuple[float, float]:
    """Constant and exponent that make scale/2 ||.||^2 1-strongly convex in l_p."""
    if p >= 2.0:
        return 1.0, 2.0
    if p > 1.0:
        return 1.0 / (p - 1.0), p
    if variant == "optimized":
        q = optimal_exponent(dim)
        return dim ** (2.0 - 2.0 / q) / (q - 1.0), q
    if dim < 3:
        check.fail("dim", ">= 3", dim, 'Use variant="optimized".')
    return math.e**2 * math.log(dim), 1.0 + 1.0 / math.log(dim)


class _Squared(Regularizer):
    """What squared norms of vectors and of singular values share."""

    center: Any
    variant: str

    def __post_init__(self) -> None:
        """Check the fields once."""
        check.at_least(1.0, p=self.p)
        check.one_of(VARIANTS, variant=self.variant)
        object.__setattr__(self, "p", float(self.p))
        if self.center is not None:
            center = check.array("center", self.center, shape=(None,))
            object.__setattr__(self, "center", frozen(center))

    def _sides(self, dim: int) -> tuple[int, int]:
        """Sides of theta as a matrix; one column stands for a vector."""
        check.integer(1, dim=dim)
        return dim, 1

    def _num_values(self, dim: int) -> int:
        """Return the number of coordinates, or of singular values."""
        return self._sides(dim)[0]

    def _constants(self, dim: int) -> tuple[float, float]:
        return scale_and_exponent(self.p, self._num_values(dim), self.variant)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays."""
        sides, (scale, exponent) = self._sides(dim), self._constants(dim)
        chosen = default_center if self.center is None else self.center
        center = check.array("center", chosen, shape=(dim,))
        return RegularizerParams(center, scale, exponent, *sides)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``scale/2 max ||theta - center||_q^2``, exact if the maximum is.

        The minimum is bounded by 0, which it is whenever the center is in the domain.
        """
        check.instance(Domain, domain=domain, remedy="Use one of dps.domains.")
        params = self.params(dim, domain.default_center(dim))
        return 0.5 * params.scale * self._largest(domain, params) ** 2

    def _largest(self, domain: Domain, params: RegularizerParams) -> float:
        """Largest norm of ``theta - center`` over the domain."""
        return domain.max_norm(params.exponent, params.center, len(params.center))

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return ``scale (q - 1)`` and, only for q = 2, a finite upper bound."""
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
        Minimizer; by default the center of the domain.
    variant : {"optimized", "printed"}
        Constants for p = 1: the smallest of this form, or those of the paper.

    Raises
    ------
    ValueError
        If p < 1, the center is not finite, or the variant is unknown.

    Guarantee
    ---------
    ``r(t x + (1-t) y) <= t r(x) + (1-t) r(y) - t (1-t)/2 ||x - y||_p^2``
    (Proposition 7 of arXiv:2207.08347 and ``||v||_1 <= dim^(1-1/q) ||v||_q``).

    Examples
    --------
    >>> SquaredNorm(1.5).value([3.0, 0.0])
    9.0
    >>> SquaredNorm(2.0).gradient([3.0, 4.0]).tolist()
    [3.0, 4.0]
    """

    name: ClassVar[str] = "squared_norm"
    value_piece: ClassVar[Piece] = staticmethod(pieces.squared_norm_value)
    gradient_piece: ClassVar[Piece] = staticmethod(pieces.squared_norm_gradient)

    p: float = 2.0
    _: KW_ONLY
    center: Any = None
    variant: str = "optimized"


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
        Rows and columns; theta is the matrix flattened row by row.
    center : array_like, optional
        Minimizer, flattened; by default the center of the domain.
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
    value_piece: ClassVar[Piece] = staticmethod(pieces.schatten_squared_value)
    gradient_piece: ClassVar[Piece] = staticmethod(pieces.schatten_squared_gradient)

    p: float
    _: KW_ONLY
    shape: tuple[int, int]
    center: Any = None
    variant: str = "optimized"

    def __post_init__(self) -> None:
        """Check the fields once."""
        super().__post_init__()
        object.__setattr__(self, "shape", checked_shape(self.shape))

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
