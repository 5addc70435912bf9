r"""Gaussian steps on Poisson samples and random allocations: noise for a budget.

A step takes each record with probability q, independently, and adds Gaussian noise to
the sum of vectors of norm at most C, one for each record that it takes. N(u) is the
distribution of the noise around u, *gamma* = e^epsilon.

**Replaced records.** The distribution of one step changes from (1-q) N(0) + q N(u) to
(1-q) N(0) + q N(v) with |u|, |v| <= C, given the rest of the sample. Every hockey-stick
divergence is jointly convex, so the rest may be averaged. Opposite u and v of length C
are the worst.

*Proof.* For gamma >= 1 the divergence is :math:`q E_u (1 - A x_0 - \gamma x_v)_+`, with
A = (1-q)(gamma-1)/q and x the likelihood ratios of N(0) and N(v) to N(u), jointly
log-normal of mean 1. Raising their log-covariance K by dK adds half the sum of
:math:`dK_{ij} E[x_i x_j \partial_{ij} f]` to the mean of a function f. Here every
second derivative is >= 0, and the divergence increases in every entry of K. The entries
are :math:`|u|^2`, :math:`|u|^2 - \langle u, v\rangle` and :math:`|u - v|^2`, all
largest at v = -u, |u| = C. For gamma < 1 exchange the distributions. The worst pair is
symmetric.

A pair that dominates each step dominates the composition (Zhu, Dong and Wang 2022,
Theorem 10). So the *pair* (1-q) N(0) + q N(C), (1-q) N(0) + q N(-C) is composed, once.
A replacement does not equal one zeroing at twice the distance. At noise 1.5 C, q = 0.9,
three steps and epsilon = 0, the larger of the two composed curves of (1-q) N(0) + q N(2
C) and N(0) is 0.6876, while the pair has 0.6919.

**Zeroed records.** With a record's loss set to zero v = 0, and the data set that lacks
the record is the same one in all steps. Both orders of the pair are composed, and the
larger result is right there.
"""

import math
from collections.abc import Callable

from dpsample.core import check
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON, delta_of
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    Event,
    PoissonGaussianEvent,
)
from dpsample.privacy.budget import SHIFTS, Budget, check_not_pure
from dpsample.privacy.curves.gaussian import gdp_from_budget

# Largest relative excess of calibrated noise over the smallest that is enough.
TOLERANCE = 1e-5


@check.unwrap_numpy
def poisson_noise_multiplier(
    budget: Budget, *, sampling_rate: float, num_steps: int
) -> float:
    """Return the noise multiplier of Poisson-sampled steps that spends the budget.

    Parameters
    ----------
    budget : Budget
        Epsilon, delta and the relation.
    sampling_rate : float
        Probability with which each step takes a record, > 0 and <= 1.
    num_steps : int
        Number of steps, >= 1.

    Returns
    -------
    float
        Standard deviation of the noise on a step's sum over the bound of one record's
        vector, rounded up by at most 1e-5 of itself. Where less than 0.08 is enough, it
        is from 0.08 to 0.1.

    Raises
    ------
    ValueError
        If an argument is out of its range, or no noise up to 1e9 is proved.

    Guarantee
    ---------
    The steps of `PoissonGaussianEvent` with this multiplier are (epsilon, delta)-DP
    under the budget's relation.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-4)
    >>> noise = poisson_noise_multiplier(budget, sampling_rate=1.0, num_steps=4)
    >>> print(f"{noise:.3f}")
    12.743
    """
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "Gaussian steps")
    event = PoissonGaussianEvent(
        sampling_rate=sampling_rate, noise_multiplier=1.0, num_steps=num_steps
    )
    # Noise of steps on all records is enough. For large noise z, gdp is about q times
    # that of all records, q shift sqrt(T) / z. This gives a first guess.
    shift = SHIFTS[budget.relation] * math.sqrt(event.num_steps)
    epsilon = min(budget.epsilon, LARGEST_EPSILON)
    unsampled_noise = shift / gdp_from_budget(epsilon, budget.delta)
    if event.sampling_rate == 1.0:
        return unsampled_noise * (1.0 + TOLERANCE)

    def steps(noise: float) -> Event:
        return PoissonGaussianEvent(
            sampling_rate=event.sampling_rate,
            noise_multiplier=noise,
            num_steps=event.num_steps,
        )

    return _smallest_noise(steps, budget, guess=event.sampling_rate * unsampled_noise)


@check.unwrap_numpy
def allocated_noise_multiplier(
    budget: Budget, *, num_steps: int, num_epochs: int = 1
) -> float:
    """Return the noise multiplier of randomly allocated records for a budget.

    Parameters
    ----------
    budget : Budget
        Epsilon and delta. Under "replace_one" the random choice of steps is not
        included.
    num_steps, num_epochs : int
        Steps of an epoch, and epochs, >= 1.

    Returns
    -------
    float
        Standard deviation of the noise on a step's sum over the bound of one record's
        vector, rounded up by at most 1e-5 of itself. Where less than 0.08 is enough, it
        is from 0.08 to 0.1.

    Raises
    ------
    ValueError
        If an argument is out of its range, or no noise up to 1e9 is proved.

    Guarantee
    ---------
    The steps of `AllocatedGaussianEvent` with this multiplier are (epsilon, delta)-DP
    under the budget's relation.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-4, relation="zero_out")
    >>> noise = allocated_noise_multiplier(budget, num_steps=10)
    >>> print(f"{noise:.3f}")
    1.300
    """
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "Gaussian steps")

    def steps(noise: float) -> Event:
        return AllocatedGaussianEvent(
            noise_multiplier=noise, num_steps=num_steps, num_epochs=num_epochs
        )

    steps(1.0)  # checks the numbers
    gdp = gdp_from_budget(budget.epsilon, budget.delta)
    guess = SHIFTS[budget.relation] * math.sqrt(num_epochs) / gdp
    if budget.relation == "zero_out":  # the random choice of one of t steps helps
        guess = guess / num_steps**0.5
    return _smallest_noise(steps, budget, guess=guess)


def _smallest_noise(
    steps: Callable[[float], Event], budget: Budget, *, guess: float
) -> float:
    """Return a multiplier that meets the budget, and hardly a smaller one does.

    The excess log(delta / target) falls with the noise. A bracket of a safe and an
    unsafe multiplier is narrowed by secants of the excess against log(noise), which
    come close at once. Then a point just beyond the secant's root closes the bracket
    from the other side.
    """
    # The search for noise ends below this multiplier, which protects hardly anything.
    min_noise = 0.1

    def excess(noise: float) -> float:
        event, relation = steps(noise), budget.relation
        delta = delta_of(event, epsilon=budget.epsilon, relation=relation)
        ratio = math.log(max(delta, check.MIN_NORMAL) / budget.delta)
        # The sign must show whether delta is above the target. The logarithm alone may
        # be rounded to 0 although it is.
        return max(ratio, 1e-16) if delta > budget.delta else ratio

    safe = max(guess, min_noise)
    while (safe_excess := excess(safe)) > 0.0:
        safe *= 1.25
        if safe > 1e9:
            remedy = "Spend a larger epsilon or delta, or take fewer steps."
            check.fail("delta", "large enough for finite noise", "less", remedy)
    unsafe = safe / 1.25
    while (unsafe_excess := excess(unsafe)) <= 0.0:
        if unsafe <= min_noise:  # a record is hardly ever taken
            return unsafe
        safe, safe_excess, unsafe = unsafe, unsafe_excess, unsafe / 1.25
    nudge = 0.0  # relative shift of the next point, against the side of the last one
    while safe > unsafe * (1.0 + TOLERANCE):
        share = unsafe_excess / (unsafe_excess - safe_excess)
        share = min(max(share, 0.01), 0.99)  # so that the bracket shrinks
        middle = unsafe * (safe / unsafe) ** share * (1.0 + nudge)
        if not unsafe < middle < safe:
            middle = math.sqrt(unsafe) * math.sqrt(safe)
        value = excess(middle)
        # The next point is moved a little to the other side.
        if value <= 0.0:
            safe, safe_excess, nudge = middle, value, -TOLERANCE / 3.0
        else:
            unsafe, unsafe_excess, nudge = middle, value, TOLERANCE / 3.0
    return safe
