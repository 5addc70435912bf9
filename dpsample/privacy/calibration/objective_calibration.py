"""Noise of objective perturbation for a budget, with an exact or a certified solver.

Objective perturbation adds a random linear term <G, theta> / n, the *tilt*, to the
objective of n records and minimizes it. `objective_perturbation` has the theorem and
its letters: a record's gradient has norm <= L and a curvature <= beta, the ridge is
lambda |theta|^2, and G has the standard deviation ``stddev`` in each coordinate.
"""

import functools
import math
from typing import NamedTuple

from dpsample.core import check
from dpsample.privacy.accounting.events import ApproximateEvent
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.privacy.curves.additive import gaussian_stddev
from dpsample.privacy.curves.gaussian import bisect, gdp_from_budget
from dpsample.privacy.curves.objective_perturbation import (
    MIN_DISTANCE,
    MIN_Z,
    ROUNDING,
    PerturbedObjective,
    minimizer_error,
    tilt_and_gaussian_delta,
)


def objective_stddev(objective: PerturbedObjective, budget: Budget) -> float:
    """Return the smallest noise of a tilted objective that is proved for a budget.

    t is the larger solution of 2 (Phi(-z) - e^e Phi(-z - t)) <= delta that also has
    z = e/t - t/2 >= 1 (>= 0 under zero_out), and the noise is 2 L / t (L / t).

    Parameters
    ----------
    objective : PerturbedObjective
        Public constants.
    budget : Budget
        Under the same relation as the objective.

    Returns
    -------
    float
        Standard deviation of each coordinate of G, rounded up.

    Raises
    ------
    ValueError
        If the relations differ, or epsilon <= log(1 + beta / (2 n lambda)). Then no
        noise is enough, and the ridge must be larger.

    Guarantee
    ---------
    ``objective.delta(budget.epsilon, stddev=stddev) <= budget.delta``.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> for ridge in (0.001, 0.00025):
    ...     objective = PerturbedObjective(
    ...         lipschitz=1.0, smoothness=0.25, num_records=1000, ridge=ridge
    ...     )
    ...     print(f"{objective_stddev(objective, budget):.2f}")
    9.81
    14.19
    """
    check.instance(PerturbedObjective, objective=objective)
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "objective perturbation")
    if budget.relation != objective.relation:
        check.fail("budget.relation", repr(objective.relation), repr(budget.relation))
    # What the Jacobian leaves of epsilon for the shift of the tilt.
    remainder = (budget.epsilon - objective.log_determinant) * (1.0 - ROUNDING)
    if remainder <= 0.0:
        curvature = objective.smoothness / (2 * objective.num_records)
        check.fail(
            "ridge",
            f"> {curvature / math.expm1(budget.epsilon):.6g}, where the Jacobian alone "
            "spends epsilon",
            objective.ridge,
            "Choose it so that log(1 + smoothness/(2 n ridge)) is epsilon / 4.",
        )
    z = MIN_Z[objective.relation]
    # The largest t with z t + t^2/2 <= remainder, by the form of the quadratic formula
    # that does not cancel. The curve is twice a Gaussian one, so delta is halved.
    t = 2.0 * remainder / (z + math.sqrt(z * z + 2.0 * remainder))
    t = min(t, gdp_from_budget(remainder, 0.5 * budget.delta))
    return objective.shift / t * (1.0 + 4.0 * ROUNDING)


@functools.lru_cache(maxsize=64)  # runs and their verification call it alike
def composed_stddev(objective: PerturbedObjective, budget: Budget, gdp: float) -> float:
    """Return the noise of a tilted objective next to Gaussian mechanisms, rounded up.

    ``gdp`` is the parameter of these mechanisms. With a shift of t standard deviations
    `tilt_and_gaussian_delta` is at most delta, and with (1 + 1e-9) t it is more.

    Raises
    ------
    ValueError
        If log(1 + beta / (2 n lambda)) and ``gdp`` alone spend the budget.
    """
    log_determinant = objective.log_determinant

    def is_safe(distance: float) -> bool:
        delta = tilt_and_gaussian_delta(
            budget.epsilon,
            log_determinant=log_determinant,
            distance=distance,
            gdp=gdp,
            relation=budget.relation,
        )
        return delta <= budget.delta

    # The curve of a tilt is above the Gaussian curve, so this distance is unsafe.
    unsafe = gdp_from_budget(budget.epsilon, budget.delta)
    # Halving leads to a safe distance, because small ones cost hardly anything.
    safe = 0.5 * unsafe
    while not is_safe(safe):
        unsafe, safe = safe, 0.5 * safe
        if safe < MIN_DISTANCE:
            remedy = "Spend less on the Gaussian part, or a larger epsilon."
            check.fail("budget", "large enough for the tilt", budget, remedy)
    t = bisect(is_safe, safe=safe, unsafe=unsafe, width=1e-9)
    return objective.shift / t * (1.0 + 4.0 * ROUNDING)


@check.unwrap_numpy
def objective_event(
    objective: PerturbedObjective, *, stddev: float, delta: float
) -> ApproximateEvent:
    """Return the event of an exact minimizer of a tilted objective.

    Parameters
    ----------
    objective : PerturbedObjective
        Public constants.
    stddev : float
        Standard deviation of each coordinate of G, > 0.
    delta : float
        delta of the event, > 0 and < 1.

    Returns
    -------
    ApproximateEvent
        (epsilon, delta) with the epsilon that is proved at this delta.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Guarantee
    ---------
    Under ``objective.relation`` the exact minimizer satisfies the event.

    Examples
    --------
    >>> objective = PerturbedObjective(
    ...     lipschitz=1.0, smoothness=0.25, num_records=1000, ridge=0.001
    ... )
    >>> event = objective_event(objective, stddev=9.812, delta=1e-6)
    >>> print(f"{event.epsilon:.4f}")
    1.0000
    """
    check.instance(PerturbedObjective, objective=objective)
    epsilon = objective.epsilon(delta, stddev=stddev)
    return ApproximateEvent(epsilon=epsilon, delta=delta)


class ApproximateNoise(NamedTuple):
    """Noise of approximate objective perturbation.

    Attributes
    ----------
    stddev : float
        Standard deviation of each coordinate of G.
    output_stddev : float
        Standard deviation of the noise that is added to the solver's point.
    """

    stddev: float
    output_stddev: float


@check.unwrap_numpy
def approximate_noise(
    objective: PerturbedObjective, budget: Budget, *, gap: float, share: float = 0.9
) -> ApproximateNoise:
    """Return the noise for a solver that certifies J(theta) - min J <= ``gap``.

    Bassily et al. (2019), Algorithm 3, corrected (BFTT-10). The tilt spends ``share``
    of epsilon and delta, and the output noise 2 sqrt(gap / lambda) / gdp the rest.

    Parameters
    ----------
    objective : PerturbedObjective
        The tilted objective, 2 lambda-strongly convex.
    budget : Budget
        For both parts together.
    gap : float
        Public accuracy of the solver, certified on every data set, > 0.
    share : float
        Part of the budget for the tilt, in (0, 1).

    Returns
    -------
    ApproximateNoise
        ``stddev`` of G and ``output_stddev`` of the noise added to the solver's point
        before an optional projection.

    Raises
    ------
    ValueError
        If a number is out of its range, or the ridge is too small.

    Guarantee
    ---------
    The noisy point is (epsilon, delta)-DP. Given the exact minimizer, which the first
    part releases, the solver's points on neighbors are at most 2 sqrt(gap / lambda)
    apart. The epsilons and deltas of both parts add up.

    Examples
    --------
    >>> objective = PerturbedObjective(
    ...     lipschitz=1.0, smoothness=0.25, num_records=1000, ridge=0.001
    ... )
    >>> noise = approximate_noise(objective, Budget(epsilon=1.0, delta=1e-6), gap=1e-12)
    >>> print(f"{noise.stddev:.2f} {noise.output_stddev:.2e}")
    11.03 2.61e-03
    """
    check.instance(PerturbedObjective, objective=objective)
    check.positive(gap=gap)
    check.open_interval(0.0, 1.0, share=share)
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "objective perturbation")
    tilt_budget, output_budget = (
        Budget(
            epsilon=part * budget.epsilon * (1.0 - ROUNDING),
            delta=part * budget.delta * (1.0 - ROUNDING),
            relation=budget.relation,
        )
        for part in (share, 1.0 - share)
    )
    error = minimizer_error(strong_convexity=2.0 * objective.ridge, gap=gap)
    # The solver's points on two neighbors are at most twice the error apart.
    return ApproximateNoise(
        stddev=objective_stddev(objective, tilt_budget),
        output_stddev=gaussian_stddev(output_budget, 2.0 * error),
    )
