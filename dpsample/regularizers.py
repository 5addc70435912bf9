"""Functions r that are 1-strongly convex in a norm: they fix the shape of the noise.

The choices are those of the norm table of arXiv:2207.08347 (Corollaries 2 to 5 and
Proposition 7), with a smaller constant for l_1 and the entropy of the simplex added.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample import _spec
from dpsample._regularizer_pieces import (
    REG_GRADIENT,
    REG_VALUE,
    REGULARIZER,
    RegularizerParams,
    Vector,
    entropy_gradient,
    entropy_value,
    schatten_squared_gradient,
    schatten_squared_value,
    squared_norm_gradient,
    squared_norm_value,
)
from dpsample.domains import Domain

__all__ = [
    "REGULARIZER",
    "REG_GRADIENT",
    "REG_VALUE",
    "Regularizer",
    "RegularizerParams",
    "SquaredNorm",
    "from_dict",
    "optimal_exponent",
]

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
    (2.0, 1.0857)
    """
    check.integer(1, dim=dim)
    log_dim = math.log(dim)
    if log_dim <= 2.0:
        return 2.0
    # The smaller root of q^2 - 2 L q + 2 L without cancellation.
    return 2.0 * log_dim / (log_dim + math.sqrt(log_dim * (log_dim - 2.0)))


def _scale_and_exponent(p: float, dim: int, variant: str) -> tuple[float, float]:
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


class Regularizer(_spec.Spec):
    """Strongly convex function of theta.

    Attributes
    ----------
    name : str
        Word used in ``to_dict``.
    p : float
        Norm in which the function is 1-strongly convex.
    value_piece, gradient_piece : compiled functions
        Pieces with the signatures ``REG_VALUE`` and ``REG_GRADIENT``.
    """

    value_piece: ClassVar[Any]
    gradient_piece: ClassVar[Any]

    p: float

    def params(self, dim: int, default_center: Any) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays."""
        raise NotImplementedError

    def range_on(self, domain: Domain, dim: int) -> float:
        """Upper bound of ``max r - min r`` over the domain, infinite if unbounded."""
        raise NotImplementedError

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Lower and upper bound of the Hessian in l2."""
        raise NotImplementedError

    def value(self, theta: Any, default_center: Any = None) -> float:
        """Value at theta; the default center is the origin."""
        point, params = self._point(theta, default_center)
        out = np.full(1, np.nan)
        self.value_piece(params, point, out)
        return float(out[0])

    def gradient(self, theta: Any, default_center: Any = None) -> Vector:
        """Gradient at theta; the default center is the origin."""
        point, params = self._point(theta, default_center)
        out = np.full(len(point), np.nan)
        self.gradient_piece(params, point, out)
        return out.reshape(np.shape(theta))

    def _point(
        self, theta: Any, default_center: Any
    ) -> tuple[Vector, RegularizerParams]:
        point = check.array("theta", theta, shape=(None,))
        center = np.zeros(len(point)) if default_center is None else default_center
        return point, self.params(len(point), center)


def _center(own: Any, default_center: Any, dim: int) -> Vector:
    chosen = default_center if own is None else own
    return check.array("center", chosen, shape=(dim,))


def _check_norm(spec: Any) -> None:
    check.at_least(1.0, p=spec.p)
    check.one_of(VARIANTS, variant=spec.variant)
    object.__setattr__(spec, "p", float(spec.p))
    if spec.center is not None:
        center = check.array("center", spec.center, shape=(None,))
        object.__setattr__(spec, "center", _spec.frozen(center))


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
    >>> SquaredNorm(1.5).value([3.0, 0.0]), SquaredNorm(2.0).gradient([3.0, 4.0]).tolist()
    (9.0, [3.0, 4.0])
    """

    name: ClassVar[str] = "squared_norm"
    value_piece: ClassVar[Any] = staticmethod(squared_norm_value)
    gradient_piece: ClassVar[Any] = staticmethod(squared_norm_gradient)

    p: float = 2.0
    _: KW_ONLY
    center: Any = None
    variant: str = "optimized"

    def __post_init__(self) -> None:
        """Check the fields once."""
        _check_norm(self)

    def params(self, dim: int, default_center: Any) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays."""
        check.integer(1, dim=dim)
        center = _center(self.center, default_center, dim)
        scale, exponent = _scale_and_exponent(self.p, dim, self.variant)
        return RegularizerParams(center, scale, exponent, dim, 1)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``scale/2 max ||theta - center||_q^2``, exact if the maximum is.

        The minimum is bounded by 0, which it is whenever the center is in the domain.
        """
        params = self.params(dim, domain.default_center(dim))
        largest = domain.max_norm(params.exponent, params.center, dim)
        return 0.5 * params.scale * largest**2

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return ``scale (q - 1)`` and, only for q = 2, a finite upper bound."""
        scale, exponent = _scale_and_exponent(self.p, dim, self.variant)
        if dim == 1 or exponent == 2.0:
            return scale, scale
        return scale * (exponent - 1.0), math.inf


def from_dict(data: dict[str, Any]) -> Regularizer:
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
    return _spec.from_dict(KINDS, data)


KINDS: tuple[type[Regularizer], ...] = (SquaredNorm,)
