"""Squared Schatten norms."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.jit import Piece
from dpsample.domains import Domain
from dpsample.domains.schatten_ball import checked_shape
from dpsample.regularizers.regularizer import (
    Regularizer,
    RegularizerParams,
    schatten_squared_gradient,
    schatten_squared_value,
)
from dpsample.regularizers.squared_norm import (
    check_norm,
    chosen_center,
    scale_and_exponent,
)


@dataclass(frozen=True, eq=False)
class SchattenSquared(Regularizer):
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
    value_piece: ClassVar[Piece] = staticmethod(schatten_squared_value)
    gradient_piece: ClassVar[Piece] = staticmethod(schatten_squared_gradient)

    p: float
    _: KW_ONLY
    shape: tuple[int, int]
    center: Any = None
    variant: str = "optimized"

    def __post_init__(self) -> None:
        """Check the fields once."""
        check_norm(self)
        object.__setattr__(self, "shape", checked_shape(self.shape))

    def _constants(self, dim: int) -> tuple[float, float]:
        check.integer(1, dim=dim)
        if self.shape[0] * self.shape[1] != dim:
            check.fail("shape", f"of a matrix with {dim} entries", self.shape)
        return scale_and_exponent(self.p, min(self.shape), self.variant)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays."""
        scale, exponent = self._constants(dim)
        center = chosen_center(self.center, default_center, dim)
        return RegularizerParams(center, scale, exponent, *self.shape)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``scale/2 max ||theta - center||^2``, exact if the maximum is.

        The minimum is bounded by 0, which it is whenever the center is in the domain.
        """
        check.instance(Domain, domain=domain, remedy="Use one of dps.domains.")
        params = self.params(dim, domain.default_center(dim))
        largest = domain.max_schatten(
            params.exponent, params.center, dim, shape=self.shape
        )
        return 0.5 * params.scale * largest**2

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return ``scale (q - 1)`` and, only for q = 2, a finite upper bound."""
        scale, exponent = self._constants(dim)
        if min(self.shape) == 1 or exponent == 2.0:
            return scale, scale
        return scale * (exponent - 1.0), math.inf
