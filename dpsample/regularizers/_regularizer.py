"""What every regularizer offers: compiled pieces, one parameter tuple, a range."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample._spec import Spec
from dpsample.domains import Domain
from dpsample.regularizers._pieces import RegularizerParams, Vector


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
        origin = np.zeros(len(point)) if default_center is None else default_center
        center = check.array("default_center", origin, shape=point.shape)
        return point, self.params(len(point), center)
