r"""Privacy curve of mechanisms of bounded range, and its inverse.

A mechanism has the *range* eta if, for any two neighboring data sets, the logarithm L
of the ratio of the probabilities of its outputs stays inside an interval of length eta.
It contains 0, because both distributions have mass 1. Exponential mechanisms have a
range, see `dpsample.privacy.calibration.exponential_mechanism`.

**Theorem** (Dong, Durfee and Rogers 2020). For \|epsilon\| <= eta,

    delta(epsilon) <= (1 - e^{(epsilon - eta)/2})^2 / (1 - e^{-eta}),

and delta(epsilon) = max(0, 1 - e^epsilon) for larger \|epsilon\|. *Proof.* Let L be in
[t - eta, t] and v = e^{-L}. Then E_P v = 1, as P and Q have the same null sets, and
delta(epsilon) = E_P (1 - e^epsilon v)_+ is convex in v. It is largest if v is at both
ends of its interval. Then P(L = t) = (1 - e^{t - eta})/(1 - e^{-eta}). If only that end
counts, delta is this probability times 1 - e^{epsilon - t}, and the product is largest
at t = (epsilon + eta)/2. For epsilon < 0 and t > epsilon + eta both ends count, and
delta = 1 - e^epsilon is below the bound. QED

As a function of e^epsilon the bound is convex, with slope -1 at e^{-eta} and 0 at
e^eta. So it is the curve of a pair of distributions, which dominates every mechanism of
range eta in compositions (Zhu, Dong and Wang 2022, Theorem 10). The pair may be
exchanged: delta(-e) = 1 - e^{-e} (1 - delta(e)) holds for the bound. It is attained by
two-point distributions, at each epsilon by another one.
"""

import math

from dpsample.core import check

# The curve has a few roundings, each below 2e-16 of its value.
ROUND_UP = 1.0 + 1e-14


def bounded_range_delta(epsilon: float, eta: float) -> float:
    """Return the smallest delta for which range ``eta`` implies (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    eta : float
        Length of the interval of log-likelihood ratios, >= 0.

    Returns
    -------
    float
        delta in [0, 1), rounded up. It is 0 from epsilon = eta on.

    Examples
    --------
    >>> print(f"{bounded_range_delta(0.0, 1.0):.6f}")  # tanh(1/4)
    0.244919
    """
    if epsilon >= eta:
        return 0.0
    share = math.expm1(0.5 * (epsilon - eta))
    return min(share * share / -math.expm1(-eta) * ROUND_UP, 1.0)


def range_from_budget(epsilon: float, delta: float) -> float:
    """Return the largest range that implies (epsilon, delta)-DP, rounded down.

    With s^2 = delta (1 - e^-epsilon + delta e^-epsilon), the curve is delta at eta =
    epsilon - 2 log(1 - s) + 2 log(1 + delta e^-epsilon), the larger root of a quadratic
    equation in e^{-eta/2}.

    Parameters
    ----------
    epsilon : float
        Privacy loss, > 0.
    delta : float
        Probability, >= 0 and < 1. At 0 the range is epsilon.

    Returns
    -------
    float
        eta >= epsilon, with ``bounded_range_delta(epsilon, eta) <= delta``.

    Examples
    --------
    >>> range_from_budget(1.0, 0.0), round(range_from_budget(1.0, 1e-6), 4)
    (1.0, 1.0016)
    """
    check.positive(epsilon=epsilon)
    check.half_open(0.0, 1.0, delta=delta)
    root = math.sqrt(delta * (delta * math.exp(-epsilon) - math.expm1(-epsilon)))
    excess = 2.0 * (math.log1p(delta * math.exp(-epsilon)) - math.log1p(-root))
    # Rounding errors of the curve may count more than those of eta. So the excess is
    # cut by a share that doubles, until the curve is below delta. At 1 the curve is 0.
    eta, share = epsilon + excess, 1e-15
    while bounded_range_delta(epsilon, eta) > delta:
        eta, share = epsilon + excess * (1.0 - min(share, 1.0)), 2.0 * share
    return eta
