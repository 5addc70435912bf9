"""The non-private minimum of an objective on its domain, with a proved gap.

The objective is the empirical risk F of a problem, which is its mean loss, or the
energy k (F + mu r) of a target. F is then the risk or a function of the user, r a
regularizer of weight mu, and k an inverse temperature.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.user_functions import recorded_errors
from dpsample.minimum.gap import support
from dpsample.minimum.objectives import Objective, objective_of
from dpsample.minimum.search import Search
from dpsample.problem.problem import Problem
from dpsample.running import progress as screen
from dpsample.targets.gibbs_target import GibbsTarget


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimum:
    """Result of `minimizer`: a point of the domain and how far it is from the minimum.

    NOT PRIVATE: all of it depends on the records.

    Attributes
    ----------
    theta : ndarray, shape (dim,)
        Point of the domain.
    value : float
        Objective there, k (F + mu r) of a target or the empirical risk of a problem.
    gap : float
        Proved upper bound of ``value`` minus the minimum, rounded upwards. Infinity if
        nothing was proved.
    dual : ndarray, shape (dim,)
        Slope of the affine lower bound of the objective that proves the gap. For a mean
        loss it is the mean of rows times the slopes of their losses.
    feature_names : tuple of str
        Names of the coefficients.
    assumption : str
        Condition of the gap, "" if there is none. That a function of the user is convex
        is not proved.
    """

    theta: Array
    value: float
    gap: float
    dual: Array
    feature_names: tuple[str, ...]
    assumption: str = ""

    @property
    def lower_bound(self) -> float:
        """Number that the minimum is not below, ``value`` - ``gap``."""
        return float(np.nextafter(self.value - self.gap, -math.inf))

    def excess(self, value: float) -> float:
        """Return how far a value of the objective is above the minimum.

        Parameters
        ----------
        value : float
            Objective at any point of the domain.

        Returns
        -------
        float
            ``value`` - ``self.value``, and 0 for a value that is below by at most the
            gap. The true excess is larger by at most the gap.

        Raises
        ------
        ValueError
            If the value is below the proved minimum. Then it belongs to another
            objective, or to a point outside the domain.

        Examples
        --------
        >>> import dpsample as dps
        >>> problem = dps.Problem([[1.0], [0.5]], [1.0, 1.0], row_bound=1.0,
        ...     loss=dps.losses.Logistic(), domain=dps.domains.Ball(radius=1.0))
        >>> best = dps.minimizer(problem)
        >>> round(best.excess(problem.risk([0.0])), 6)
        0.299478
        """
        check.greater_than(-math.inf, value=value)
        # The objective at another point may be rounded down by a few digits.
        digits = 64.0 * np.finfo(float).eps * (1.0 + abs(self.value) + abs(value))
        if value < self.lower_bound - digits:
            remedy = "It is of another objective, or of a point outside the domain."
            condition = f">= {self.lower_bound:.9g}, the proved minimum"
            check.fail("value", condition, value, remedy)
        return max(float(value) - self.value, 0.0)

    def __repr__(self) -> str:
        """Value, gap and condition, on one line."""
        condition = f", if {self.assumption}" if self.assumption else ""
        return (
            f"Minimum(value={self.value:.9g}, gap={self.gap:.2g}{condition}, "
            f"dim={len(self.theta)}, NOT PRIVATE)"
        )


# The first call says that it compiles for about 5 s. Errors of functions of the user
# are recorded, so that a message can quote them. BLAS has one thread, because the
# number of threads changes the last bits. NumPy scalars become Python numbers.
@screen.compiles_first(seconds=5.0)
@recorded_errors.while_called
@pauses.single_threaded_blas()
@check.unwrap_numpy
def minimizer(
    target_or_problem: GibbsTarget | Problem,
    tolerance: float = 1e-8,
    *,
    progress: bool = True,
) -> Minimum:
    r"""Find the minimum of an objective on its domain, with a proved gap. NOT PRIVATE.

    It is what private methods are compared with. Use `minimize` or `release` for an
    answer that may be published.

    Parameters
    ----------
    target_or_problem : Gibbs, Density or Problem
        The objective is k (F + mu r) of a target, or the empirical risk of a problem.
    tolerance : float
        Wanted gap, > 0, in units of the objective.
    progress : bool
        Show a live line, which goes away at the end.

    Returns
    -------
    Minimum
        Point, value, gap and dual point.

    Warns
    -----
    RuntimeWarning
        If the gap is above the tolerance. The text has the gap that was reached. A
        density that is not convex has a local minimum, and the gap infinity.

    Raises
    ------
    ValueError
        If the argument is none of these, the loss is given by gradients of whole
        records, or the tolerance is not positive.

    Notes
    -----
    **Guarantee.** ``gap`` is at least ``value`` minus the minimum, rounding errors
    included. With an affine lower bound of the objective V that is V(x) - e at the
    point x and has the slope g, and with the support function h of the domain,

    .. math:: V(x) - \min V \le e + \langle g, x \rangle + h(-g).

    For mean losses this is the Fenchel duality gap, and for smooth objectives the gap
    of Frank and Wolfe (Jaggi, 2013, "Revisiting Frank-Wolfe", equation 2). Strong
    convexity of the regularizer, or tangents around x, give a bound on unbounded
    domains. For functions of the user the bound holds if they are convex, as
    ``assumption`` says.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, 1.0], row_bound=1.0,
    ...                       response_bound=1.0, loss=dps.losses.Squared(),
    ...                       domain=dps.domains.Ball(radius=2.0))
    >>> best = dps.minimizer(problem)
    >>> best.theta.round(6).tolist(), round(best.value, 6), best.gap < 1e-8
    ([1.2], 0.05, True)
    """
    remedy = "Use a dps.Gibbs, a dps.Density or a dps.Problem."
    kinds = GibbsTarget, Problem
    check.instance(kinds, target_or_problem=target_or_problem, remedy=remedy)
    check.positive(tolerance=tolerance)
    check.instance(bool, progress=progress)
    # A Density has no problem, so it stands for itself.
    problem = getattr(target_or_problem, "problem", target_or_problem)
    if isinstance(problem, Problem) and not problem.loss.has_margin:
        reason = (
            "A loss that is given by gradients of records has no proved lower bound."
        )
        check.fail("target_or_problem", "with a loss of the margin", problem, reason)
    with screen.patience("minimizer searches for the minimum", is_wanted=progress):
        objective = objective_of(target_or_problem)
        best = Search(objective, tolerance).run()
    # Tangents of a function that is not convex are no lower bounds.
    if not objective.is_convex:
        best = best._replace(gap=math.inf, assumption="")
    # The value comes from the public function, with which it is compared. This may sum
    # the records in another order than the search does. The gap includes its rounding
    # errors.
    if isinstance(target_or_problem, Problem):
        value = target_or_problem.risk(best.point)
    else:
        value = target_or_problem.energy(best.point)
    result = Minimum(
        theta=best.point,
        value=value,
        gap=best.gap,
        dual=best.slope,
        feature_names=target_or_problem.feature_names,
        assumption=best.assumption,
    )
    if not result.gap <= tolerance:
        _warn(result, tolerance, objective)
    return result


def _warn(result: Minimum, tolerance: float, objective: Objective) -> None:
    """Warn that the gap is larger than was wanted."""
    if not objective.is_convex:
        text = "minimizer found a local minimum. The energy is not convex, so it may"
        remedy = "be lower elsewhere: nothing is proved."
    elif math.isinf(result.gap):
        text = "minimizer found a point, but no bound of its distance to the minimum."
        remedy = "Check that the objective is finite and smooth."
        if not objective.domain.is_bounded:
            remedy = "Bound the domain, or use mu > 0: there may be no minimum."
        # The domain is bounded here. So infinity means that its support function is not
        # known, in the direction -dual of the gap as in any other.
        elif math.isinf(support(objective.domain, result.dual)):
            remedy = "No support function of the domain is known, as a gap needs it."
    else:
        text = f"minimizer reached the gap {result.gap:.2g}, not {tolerance:.2g}."
        remedy = "The gap is proved: use it as it is, or pass a larger tolerance."
        if objective.uses_differences:
            remedy += " A gradient=... may prove a smaller one, above all at kinks."
    warnings.warn(
        f"{text} {remedy}", RuntimeWarning, stacklevel=check.user_stack_level()
    )
