r"""Gaussian steps on Poisson samples and other random batches: noise and epsilon.

When a record is replaced, the law of one step changes from (1-q) N(0) + q N(u) to
(1-q) N(0) + q N(v) with |u|, |v| <= C, given the rest of the sample, to which every
hockey-stick divergence is jointly convex. Opposite u and v of length C are the worst.

Proof. For gamma >= 1 the divergence is :math:`q E_u (1 - A x_0 - \gamma x_v)_+`, with
A = (1-q)(gamma-1)/q and x the likelihood ratios of N(0) and N(v) to N(u), jointly
log-normal of mean 1. Raising their log-covariance K by dK adds half the sum of
:math:`dK_{ij} E[x_i x_j \partial_{ij} f]` to the mean of a function f. Here every
second derivative is >= 0, and the divergence increases in every entry of K: they are
:math:`|u|^2`, :math:`|u|^2 - \langle u, v\rangle` and :math:`|u - v|^2`, all largest at
v = -u, |u| = C. For gamma < 1 exchange the laws: the worst pair is symmetric.

A pair that dominates each step dominates the composition (Zhu, Dong and Wang 2022,
Theorem 10): the *pair* (1-q) N(0) + q N(C), (1-q) N(0) + q N(-C) is composed, once. A
replacement is not one zeroing at twice the distance: at noise 1.5 C, q = 0.9, three
steps, epsilon = 0, the larger of the two composed curves of (1-q) N(0) + q N(2 C) and
N(0) is 0.6876, that of the pair 0.6919.

With a record's loss set to zero v = 0, and the data set that lacks the record is the
same one in all steps: both orders of the pair are composed, and the larger result is
right there.
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
from dpsample.privacy.accounting.normal_form import step_shift
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.privacy.curves.gaussian import gaussian_epsilon, gdp_from_budget

# Calibrated noise exceeds the smallest that is enough by at most this part.
TOLERANCE = 1e-5
LARGEST_NOISE, STEP = 1e9, 1.25
LEAST_NOISE = 0.1  # the search ends at less, which is of no use to anybody
# Between these dp-accounting's Renyi accountant stays in floating point.
LEAST_RENYI_NOISE, MOST_RENYI_NOISE = 1e-6, 1e6


@check.unwrap_numpy
def poisson_noise_multiplier(
    budget: Budget, *, sampling_rate: float, num_steps: int
) -> float:
    """Noise multiplier of Poisson-sampled steps that spends the budget.

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
        vector, rounded up by at most 1e-5 of itself; where less than 0.08 is enough,
        from there to 0.1.

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
    # Sampling only helps, and q shift sqrt(T) / z is the distance for large z.
    shift = step_shift(budget.relation) * math.sqrt(event.num_steps)
    most = min(budget.epsilon, LARGEST_EPSILON)
    full = shift / gdp_from_budget(most, budget.delta)
    if event.sampling_rate == 1.0:
        return full * (1.0 + TOLERANCE)

    def steps(noise: float) -> Event:
        return PoissonGaussianEvent(
            sampling_rate=event.sampling_rate,
            noise_multiplier=noise,
            num_steps=event.num_steps,
        )

    return _smallest_noise(steps, budget, guess=event.sampling_rate * full)


@check.unwrap_numpy
def allocated_noise_multiplier(
    budget: Budget, *, num_steps: int, num_epochs: int = 1
) -> float:
    """Noise multiplier of steps on randomly allocated records that spends the budget.

    Parameters
    ----------
    budget : Budget
        Epsilon and delta; under "replace_one" the choice of steps is not counted.
    num_steps, num_epochs : int
        Steps of an epoch, and epochs, >= 1.

    Returns
    -------
    float
        Standard deviation of the noise on a step's sum over the bound of one record's
        vector, rounded up by at most 1e-5 of itself; where less than 0.08 is enough,
        from there to 0.1.

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
    full = step_shift(budget.relation) * math.sqrt(num_epochs) / gdp
    amplified = full if budget.relation == "replace_one" else full / num_steps**0.5
    return _smallest_noise(steps, budget, guess=amplified)


@check.unwrap_numpy
def fixed_size_epsilon(
    *,
    delta: float,
    num_records: int,
    batch_size: int,
    noise_multiplier: float,
    num_steps: int,
) -> float:
    """Epsilon of Gaussian steps on batches of fixed size, without replacement.

    Wang, Balle and Kasiviswanathan (2019), Theorem 27, by the Renyi accountant of
    dp-accounting, under "replace_one". That accountant counts noise in units of the
    distance 2 C between neighbors, and half of ``noise_multiplier`` is what it is
    given; the library's loss distributions count in units of C. (The bound is loose:
    Poisson samples need about half of the noise.)

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    num_records, batch_size : int
        Sizes, 1 <= batch_size <= num_records.
    noise_multiplier : float
        Standard deviation of the noise on a batch's sum over the bound C of one
        record's vector, > 0.
    num_steps : int
        Number of batches, drawn independently, >= 1.

    Returns
    -------
    float
        epsilon >= 0, an upper bound.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    The released batch sums are (epsilon, delta)-DP under "replace_one".

    Examples
    --------
    >>> epsilon = fixed_size_epsilon(
    ...     delta=1e-5, num_records=100, batch_size=100, noise_multiplier=8.0,
    ...     num_steps=4,
    ... )
    >>> print(f"{epsilon:.3f}")
    1.993
    """
    check.open_interval(0.0, 1.0, delta=delta)
    check.integer(
        1,
        maximum=check.MAX_EXACT_INT,
        num_records=num_records,
        batch_size=batch_size,
    )
    check.integer(1, num_steps=num_steps)
    check.positive(noise_multiplier=noise_multiplier)
    if batch_size > num_records:
        check.fail("batch_size", "<= num_records", check.describe(batch_size))
    whole = gaussian_epsilon(delta, 2.0 * math.sqrt(num_steps) / noise_multiplier)
    is_far = not LEAST_RENYI_NOISE <= noise_multiplier <= MOST_RENYI_NOISE
    if batch_size == num_records or is_far:
        return whole  # without amplification, which the accountant cannot compute
    import dp_accounting as accounting

    batch = accounting.SampledWithoutReplacementDpEvent(
        num_records, batch_size, accounting.GaussianDpEvent(0.5 * noise_multiplier)
    )
    accountant = accounting.rdp.RdpAccountant(
        neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE
    )
    accountant.compose(accounting.SelfComposedDpEvent(batch, num_steps))
    # Forgetting which records were drawn cannot hurt: the whole data set is a bound.
    return min(float(accountant.get_epsilon(delta)) * (1.0 + 1e-9), whole)


def _smallest_noise(
    steps: Callable[[float], Event], budget: Budget, *, guess: float
) -> float:
    """Return a multiplier whose excess log(delta/target) was found <= 0.

    Secants of the excess against log(noise) come close at once; steps a little to
    either side of the crossing then close the bracket.
    """

    def excess(noise: float) -> float:
        event, relation = steps(noise), budget.relation
        delta = delta_of(event, epsilon=budget.epsilon, relation=relation)
        ratio = math.log(max(delta, check.MIN_NORMAL) / budget.delta)
        return max(ratio, 1e-16) if delta > budget.delta else ratio

    safe = max(guess, LEAST_NOISE)
    while (below := excess(safe)) > 0.0:
        safe *= STEP
        if safe > LARGEST_NOISE:
            remedy = "Spend a larger epsilon or delta, or take fewer steps."
            check.fail("delta", "large enough for finite noise", "less", remedy)
    unsafe = safe / STEP
    while (above := excess(unsafe)) <= 0.0:
        if unsafe <= LEAST_NOISE:  # a record is hardly ever taken: little noise will do
            return unsafe
        safe, below, unsafe = unsafe, above, unsafe / STEP
    nudge = 0.0
    while safe > unsafe * (1.0 + TOLERANCE):
        share = min(max(above / (above - below), 0.01), 0.99)
        middle = unsafe * (safe / unsafe) ** share * (1.0 + nudge)
        if not unsafe < middle < safe:
            middle = math.sqrt(unsafe) * math.sqrt(safe)
        value = excess(middle)
        if value <= 0.0:
            safe, below, nudge = middle, value, -TOLERANCE / 3.0
        else:
            unsafe, above, nudge = middle, value, TOLERANCE / 3.0
    return safe
