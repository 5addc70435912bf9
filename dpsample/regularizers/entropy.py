"""Negative entropy on the probability simplex."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.jit import Piece
from dpsample.domains import Domain, Simplex
from dpsample.regularizers import regularizer as pieces
from dpsample.regularizers.regularizer import Regularizer, RegularizerParams


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
    value_piece: ClassVar[Piece] = staticmethod(pieces.entropy_value)
    gradient_piece: ClassVar[Piece] = staticmethod(pieces.entropy_gradient)

    p: float = field(default=1.0, init=False, repr=False)

    def params(self, dim: int, default_center: ArrayLike) -> RegularizerParams:
        """Return the parameters of the pieces, in fresh arrays; only the center counts.

        The entropy has no center: the default one is stored and not used.
        """
        check.integer(1, dim=dim)
        center = check.array("default_center", default_center, shape=(dim,))
        return RegularizerParams(center, 1.0, 1.0, dim, 1)

    def range_on(self, domain: Domain, dim: int) -> float:
        """Return ``log(dim)``: 0 at a vertex minus ``-log(dim)`` at the center."""
        remedy = "The entropy is strongly convex on the simplex only: use SquaredNorm."
        check.instance(Simplex, domain=domain, remedy=remedy)
        domain.check(dim)
        return math.log(dim)

    def curvature_l2(self, dim: int) -> tuple[float, float]:
        """Return 1 (the Hessian is ``diag(1/x)``) and infinity."""
        check.integer(1, dim=dim)
        return 1.0, math.inf
