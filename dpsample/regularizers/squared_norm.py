"""Squared norms, 1-strongly convex in l_p.

The choices are those of the norm table of arXiv:2207.08347 (Corollaries 2 to 4 and
Proposition 7), with a smaller constant for l_1.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import Piece
from dpsample.core.spec import frozen
from dpsample.domains import Domain
from dpsample.regularizers.regularizer import (
    Regularizer,
    RegularizerParams,
    squared_norm_gradient,
    squared_norm_value,
)

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


def chosen_center(own: ArrayLike | None, default_center: ArrayLike, dim: int) -> Array:
    """Return the own center if there is one."""
    chosen = default_center if own is None else own
    return check.array("center", chosen, shape=(dim,))


def check_norm(spec: Any) -> None:
    """Check and store the fields p, variant and center of a frozen spec."""
    check.at_least(1.0, p=spec.p)
    check.one_of(VARIANTS, variant=spec.variant)
    object.__setattr__(spec, "p", float(spec.p))
    if spec.center is not None:
        center = check.array("center", spec.center, shape=(None,))
        object.__setattr__(spec, "center", frozen(center))


@dataclass(frozen=True, eq=False)
class SquaredNorm(Regularizer):
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
    value_piece: ClassVar[Piece] = staticmethod(squared_norm_value)
    gradient_piece: ClassVar[Piece] = staticmethod(squared_norm_gradient)

    p: float = 2.0
    _: KW_ONLY
    center: Any = None
    variant: str = "optimized"

    def __post_init__(self) -> None:
        """Check the fields once."""
        check_norm(self)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays."""
        check.integer(1, dim=dim)
        center = chosen_center(self.center, default_center, dim)
        scale, exponent = scale_and_exponent(self.p, dim, self.variant)
        return RegularizerParams(center, scale, exponent, dim, 1)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``scale/2 max ||theta - center||_q^2``, exact if the maximum is.

        The minimum is bounded by 0, which it is whenever the center is in the domain.
        """
        check.instance(Domain, domain=domain, remedy="Use one of dps.domains.")
        params = self.params(dim, domain.default_center(dim))
        largest = domain.max_norm(params.exponent, params.center, dim)
        return 0.5 * params.scale * largest**2

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return ``scale (q - 1)`` and, only for q = 2, a finite upper bound."""
        check.integer(1, dim=dim)
        scale, exponent = scale_and_exponent(self.p, dim, self.variant)
        if dim == 1 or exponent == 2.0:
            return scale, scale
        return scale * (exponent - 1.0), math.inf
