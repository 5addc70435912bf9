r"""Regularity of norms: how smooth a norm is after a small change of norm.

A norm is kappa-regular if another one, ||.||_+, satisfies for all x, y

    ||x + y||_+^2 <= ||x||_+^2 + <grad ||x||_+^2, y> + kappa_+ ||y||_+^2,
    ||x||^2 <= ||x||_+^2 <= (kappa/kappa_+) ||x||^2

(Juditsky and Nemirovski, 2008). For l_q take a multiple of l_r, r >= 2.

Smoothness. On a line that misses the origin, f(t) = ||x + t y||_r^2/2 = S^{2/r}/2 with
S = sum |x_i + t y_i|^r is twice differentiable, and since 2/r <= 1 and by Hölder

    f'' <= S^{2/r - 1} S''/r = (r-1) S^{2/r - 1} sum |x_i + t y_i|^{r-2} y_i^2
        <= (r-1) ||y||_r^2;

through the origin f'' = ||y||_r^2. Hence kappa_+ = r - 1. For Schatten norms the same
constant is the theorem of Ball, Carlen and Lieb (1994) on 2-uniform smoothness.
"""

import math
from typing import Literal, NamedTuple

from dpsample.core import check
from dpsample.numerics.norms import conversion, dual


class Regularity(NamedTuple):
    """Constants of the dual norm l_q, q = p/(p-1), on vectors of length ``dim``.

    Examples
    --------
    >>> regularity(2.0, dim=5).kappa
    1.0
    """

    dim: int  # the smaller side for Schatten norms
    q: float  # exponent of the norm that is compared
    r: float  # exponent >= 2 of the smooth norm
    scale: float  # ||x||_+ = scale ||x||_r; 1 whenever r <= q
    kappa_plus: float  # smoothness constant r - 1 of the square of ||.||_+
    equivalence: float  # smallest c with ||x||_+ <= c ||x||_q
    kappa: float  # kappa_plus * equivalence**2


def regularity(
    p: float, *, dim: int, r: float | Literal["best", "printed"] = "best"
) -> Regularity:
    r"""Constants with which the dual of l_p (of Schatten-p) is kappa-regular.

    :math:`\kappa_+ = r-1`, :math:`c = d^{1/r-1/q}` and :math:`\kappa = (r-1)c^2` for
    2 <= r <= q = p/(p-1); if q < 2 the norm is :math:`d^{1/q-1/r}\|\cdot\|_r`.

    Parameters
    ----------
    p : float
        Exponent in [1, inf] of the space of parameters; gradients have norm l_q.
    dim : int
        Length of the vectors (for Schatten norms: the smaller side of the matrix).
    r : float or {"best", "printed"}
        Exponent of the smooth norm, >= 2 and finite. "best" minimizes kappa: with
        L = log(dim) it is min{q, L + sqrt(L^2 - 2L)}, or 2 if L <= 2. "printed" is
        min{q, 2L + 1}, at least 2, of arXiv:0807.2245 and Definition 3 of
        arXiv:2303.18047.

    Returns
    -------
    Regularity
        The constants.

    Raises
    ------
    ValueError
        If p < 1, dim < 1, or r is a number below 2 or not finite.

    Guarantee
    ---------
    kappa <= min{1/(p-1), 2e log(dim)} for p <= 2 and dim >= 2, with either word for
    r. arXiv:2303.18047 writes 2 log(dim) for the duals: the factor e is missing
    (errata gradient-E4, privacy-5).

    Examples
    --------
    >>> found = regularity(1.0, dim=1000)
    >>> print(f"{found.r:.3f} {found.kappa:.2f}")
    12.730 34.72
    >>> print(f"{regularity(1.0, dim=1000, r='printed').kappa:.2f}")
    35.10
    >>> regularity(1.5, dim=1000).r
    3.0
    """
    q = dual(p)
    check.integer(1, dim=dim)
    exponent = smooth_exponent(q, dim, r)
    scale = conversion(dim, exponent, max(q, 1.0))
    equivalence = scale * conversion(dim, q, exponent)
    kappa = (exponent - 1.0) * equivalence**2
    return Regularity(dim, q, exponent, scale, exponent - 1.0, equivalence, kappa)


def printed_kappa(*, dim: int, p: float) -> float:
    """Return min{1/(p-1), 2 log(dim)} as arXiv:2303.18047 prints it: a factor e short.

    `regularity` has the true constant. A ValueError says that nothing is printed unless
    p is in [1, 2] and dim >= 2.

    Examples
    --------
    >>> printed_kappa(dim=100, p=1.5)
    2.0
    """
    remedy = "The printed constants are stated for 1 <= p <= 2 and dim >= 2."
    check.integer(2, dim=dim, remedy=remedy)
    check.at_least(1.0, p=p, remedy=remedy)
    if p > 2.0:
        check.fail("p", "<= 2", float(p), remedy)
    log_bound = 2.0 * math.log(dim)
    return log_bound if p == 1.0 else min(1.0 / (p - 1.0), log_bound)


def smooth_exponent(q: float, dim: int, r: float | str) -> float:
    """Resolve the word for r, or check the number."""
    log_dim = math.log(dim)
    if isinstance(r, str):
        check.one_of(("best", "printed"), r=r)
        largest = 2.0 * log_dim + 1.0
        if r == "best":
            # d log kappa / dr = 1/(r-1) - 2 log(dim)/r^2 has its upper root here.
            largest = log_dim + math.sqrt(max(log_dim * (log_dim - 2.0), 0.0))
            largest = largest if log_dim > 2.0 else 2.0
        return max(2.0, min(q, largest))
    check.at_least(2.0, r=r, remedy="Squares of l_r norms are not smooth for r < 2.")
    if math.isinf(r):
        check.fail("r", "finite", r, "The square of the maximum norm is not smooth.")
    return float(r)
