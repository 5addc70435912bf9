r"""Additive noise: its size for a budget, and its privacy.

A mechanism adds noise to a *query*, a vector that is computed from the records. The
*sensitivity* of the query is the largest norm of its change between neighbors. Where p
is an argument, the norm is the dual l_q of l_p, 1/p + 1/q = 1: the l2 norm for p = 2,
the largest change of a coordinate for p = 1.

Gaussian noise of standard deviation ``stddev`` on a query of l2 sensitivity s is
exactly (s/stddev)-GDP: no easier to tell apart than N(0, 1) and N(s/stddev, 1). This
parameter is the *gdp* in code. Generalized Gaussian noise, of density proportional to
exp(-||z||_r^2/(2 sigma^2)) with 2 <= r < inf, is sqrt(r-1) s_r/sigma-GDP for a query of
l_r sensitivity s_r. docs/generalized-gaussian.md proves it for every log-concave noise
with a smooth potential. Laplace and K-norm noise are purely epsilon-private.
"""

import math
from typing import Literal

from dpsample.core import check
from dpsample.numerics.norms import conversion, dual, printed_kappa
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.privacy.curves.gaussian import gdp_from_budget

NoiseCalibration = Literal["exact", "paper"]


@check.unwrap_numpy
def gaussian_stddev(
    budget: Budget, sensitivity: float, *, calibration: NoiseCalibration = "exact"
) -> float:
    r"""Return the standard deviation of Gaussian noise that spends the budget.

    :math:`\text{stddev} = s/t` with t the gdp of the budget, by exact inversion of the
    curve of Balle and Wang (2018), Theorem 8. "paper" is :math:`\sigma^2 = 2 s^2
    \log(1.25/\delta)/\epsilon^2` of arXiv:2303.18047, Lemma 2, stated there for every
    epsilon. It is false for epsilon above 6.8, 7.5, 8.4, 8.8 at delta = 1e-2, 1e-3,
    1e-5, 1e-6 (erratum gradient-E8).

    Parameters
    ----------
    budget : Budget
        Epsilon and delta. The sensitivity is the one under its relation.
    sensitivity : float
        Bound > 0 of the l2 norm of the query's change between neighbors.
    calibration : {"exact", "paper"}
        "paper" is for reproduction.

    Returns
    -------
    float
        The standard deviation of each coordinate. With "exact" it is rounded up.

    Raises
    ------
    ValueError
        If the sensitivity is not a number from 1e-60 to 1e60, or ``calibration`` is
        unknown.

    Guarantee
    ---------
    With "exact", the query plus noise is (epsilon, delta)-DP.

    Examples
    --------
    >>> print(f"{gaussian_stddev(Budget(epsilon=1.0, delta=1e-6), 1.0):.4f}")
    4.2247
    """
    _check_inputs(budget, sensitivity, calibration)
    check_not_pure(budget, "Gaussian noise")
    # As published. Nothing is proved of it for large epsilon.
    if calibration == "paper":
        log_term = 2.0 * math.log(1.25 / budget.delta)
        return float(sensitivity * math.sqrt(log_term) / budget.epsilon)
    # `gdp_from_budget` is rounded down already, so this is for the division.
    return round_up(sensitivity / gdp_from_budget(budget.epsilon, budget.delta))


def unit_gdp(*, sensitivity: float, dim: int, p: float, r: float) -> float:
    r"""Return the gdp at sigma = 1, which is sqrt(r-1) times the l_r sensitivity.

    It is :math:`\sqrt{r-1}\,s\,\max_v\|v\|_r/\|v\|_q`, q = p/(p-1), rounded up.

    Parameters
    ----------
    sensitivity : float
        Bound > 0 of the l_q norm of the query's change between neighbors.
    dim : int
        Length of the query. For Schatten norms the number of singular values, the
        smaller side.
    p : float
        Exponent in [1, inf]. The sensitivity is in the dual norm l_q.
    r : float
        Exponent of the noise, 2 <= r < inf.

    Returns
    -------
    float
        The product.

    Raises
    ------
    ValueError
        If a number is out of its range. For r < 2 and r = inf the potential has no
        Lipschitz gradient and nothing is proved.

    Examples
    --------
    >>> round(unit_gdp(sensitivity=2.0, dim=16, p=1.0, r=4.0), 6)
    6.928203
    """
    check.scale(sensitivity=sensitivity)
    check.integer(1, dim=dim)
    check.at_least(1.0, p=p)
    remedy = "No Gaussian guarantee holds for this noise. Use 2 <= r < inf."
    check.at_least(2.0, r=r, remedy=remedy)
    if math.isinf(r):
        check.fail("r", "finite", r, remedy)
    # Half of the squared l_r norm is (r - 1)-smooth in l_r. So the noise hides a change
    # as well as Gaussian noise hides one that is longer by the root of this factor.
    # The largest ratio of the l_r norm to the l_q norm of the query's change.
    ratio = conversion(dim, dual(p), r)
    return round_up(math.sqrt(r - 1.0) * sensitivity * ratio)


@check.unwrap_numpy
def generalized_gaussian_gdp(
    *, sensitivity: float, sigma: float, dim: int, p: float, r: float
) -> float:
    r"""Return the gdp of generalized Gaussian noise, :math:`\sqrt{r-1}\,s_r/\sigma`.

    Parameters
    ----------
    sensitivity, dim, p, r
        As in `unit_gdp`.
    sigma : float
        Scale > 0. The noise has density proportional to exp(-||z||_r^2/(2 sigma^2)).

    Returns
    -------
    float
        The gdp, rounded up.

    Raises
    ------
    ValueError
        If a number is out of its range, r < 2 or r = inf.

    Guarantee
    ---------
    The query plus noise is gdp-GDP (docs/generalized-gaussian.md). For r = 2 no smaller
    gdp is true.

    Examples
    --------
    >>> gdp = generalized_gaussian_gdp(
    ...     sensitivity=1.0, sigma=10.0, dim=100, p=1.5, r=3.0)
    >>> round(gdp, 6)
    0.141421
    """
    check.positive(sigma=sigma)
    gdp_at_one = unit_gdp(sensitivity=sensitivity, dim=dim, p=p, r=r)
    return round_up(gdp_at_one / sigma)


@check.unwrap_numpy
def generalized_gaussian_sigma(
    budget: Budget,
    *,
    sensitivity: float,
    dim: int,
    p: float,
    r: float,
    calibration: NoiseCalibration = "exact",
) -> float:
    r"""Return the scale of generalized Gaussian noise that is proved for the budget.

    It is :math:`\sigma = \sqrt{r-1}\,s_r/t` with t the gdp of the budget. "paper" is
    :math:`\sigma^2 = 2\kappa\log(1/\delta)s^2/\epsilon^2` of arXiv:2303.18047, Lemma 3,
    with :math:`\kappa = \min\{1/(p-1), 2\log d\}` as published, a factor e too small
    (errata gradient-E4, privacy-5). It does not depend on r. Kappa is right for
    p >= 1 + 1/(2 log d), where it is 1/(p-1) = r - 1 at r = p/(p-1). There the lemma is
    true up to epsilon = 6.2, 6.9, 7.9, 8.3 at delta = 1e-2, 1e-3, 1e-5, 1e-6
    (gradient-E8).

    Parameters
    ----------
    budget, calibration
        As in `gaussian_stddev`.
    sensitivity, dim, p, r
        As in `unit_gdp`. "paper" needs 1 <= p <= 2 and dim >= 2.

    Returns
    -------
    float
        sigma. With "exact" it is rounded up.

    Raises
    ------
    ValueError
        If an input is out of its range.

    Guarantee
    ---------
    With "exact", the query plus noise is (epsilon, delta)-DP.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> case = {"sensitivity": 1.0, "dim": 100, "p": 1.5, "r": 3.0}
    >>> print(f"{generalized_gaussian_sigma(budget, **case):.3f}")
    5.975
    >>> paper = generalized_gaussian_sigma(budget, **case, calibration="paper")
    >>> print(f"{paper:.3f}")
    7.434
    """
    _check_inputs(budget, sensitivity, calibration)
    check_not_pure(budget, "generalized Gaussian noise")
    gdp_at_one = unit_gdp(sensitivity=sensitivity, dim=dim, p=p, r=r)
    if calibration == "paper":
        kappa = printed_kappa(dim=dim, p=p)
        log_term = 2.0 * kappa * math.log(1.0 / budget.delta)
        return float(sensitivity * math.sqrt(log_term) / budget.epsilon)
    # Both are on the safe side already, so this is for the division.
    return round_up(gdp_at_one / gdp_from_budget(budget.epsilon, budget.delta))


@check.unwrap_numpy
def pure_scale(budget: Budget, sensitivity: float) -> float:
    r"""Return the scale of Laplace or K-norm noise, :math:`s/\epsilon`, rounded up.

    Dwork, McSherry, Nissim and Smith (2006), Proposition 1; Hardt and Talwar (2010),
    Theorem 3.1.

    Parameters
    ----------
    budget : Budget
        Its epsilon is spent. Its delta is not used.
    sensitivity : float
        Bound > 0 of the query's change between neighbors, in the l1 norm for Laplace
        noise and in the gauge of K for K-norm noise.

    Returns
    -------
    float
        Scale b of the density proportional to exp(-||z||/b).

    Raises
    ------
    ValueError
        If the sensitivity is not a number from 1e-60 to 1e60.

    Guarantee
    ---------
    The query plus noise is (epsilon, 0)-DP.

    Examples
    --------
    >>> round(pure_scale(Budget(epsilon=0.5, delta=1e-6), 1.0), 9)
    2.0
    """
    _check_inputs(budget, sensitivity)
    return round_up(sensitivity / budget.epsilon)


def round_up(value: float) -> float:
    """Multiply a positive number by a factor that exceeds its rounding errors.

    A ValueError is raised if it is infinite or below the normal doubles.
    """
    remedy = "The budget, the sensitivity or the scale is beyond floating point."
    check.normal(**{"scale of the noise or gdp": value}, remedy=remedy)
    # This exceeds the relative rounding errors of a square root, a power and two
    # products.
    return float(value * (1.0 + 16.0 * 2.0**-53))


def _check_inputs(
    budget: Budget, sensitivity: float, calibration: str = "exact"
) -> None:
    """Check the inputs that the calibrations of this file share."""
    remedy = "Use dps.Budget(epsilon=..., delta=...)."
    check.instance(Budget, budget=budget, remedy=remedy)
    check.scale(sensitivity=sensitivity)
    check.one_of(("exact", "paper"), calibration=calibration)
