"""One-sided confidence bounds for a probability and for a mean in [0, 1]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def binomial_lower(successes: Any, trials: int, alpha: float) -> Array:
    """Lower bound of a probability, exceeded by it except with probability alpha.

    Clopper and Pearson (1934): the p at which so many successes or more have
    probability alpha. Exact for every number of trials.

    Parameters
    ----------
    successes : int or array of int
        Counts, each from independent trials.
    trials : int
        Number of trials, >= 1.
    alpha : float
        Probability that the bound is wrong, > 0 and < 1.

    Returns
    -------
    array
        Bounds in [0, 1], in the shape of ``successes``.
    """
    from scipy.special import betaincinv

    count = np.asarray(successes, dtype=np.float64)
    # The placeholder keeps the parameters of the unused branch positive.
    bound = betaincinv(np.maximum(count, 1.0), trials - count + 1.0, alpha)
    return np.where(count > 0, bound, 0.0)


def binomial_upper(successes: Any, trials: int, alpha: float) -> Array:
    """Upper bound of a probability, below it only with probability alpha.

    The mirror image of `binomial_lower`: the p at which so few successes or fewer have
    probability alpha.

    Parameters
    ----------
    successes : int or array of int
        Counts, each from independent trials.
    trials : int
        Number of trials, >= 1.
    alpha : float
        Probability that the bound is wrong, > 0 and < 1.

    Returns
    -------
    array
        Bounds in [0, 1], in the shape of ``successes``.
    """
    from scipy.special import betainccinv

    count = np.asarray(successes, dtype=np.float64)
    bound = betainccinv(count + 1.0, np.maximum(trials - count, 1.0), alpha)
    return np.where(count < trials, bound, 1.0)


def mean_lower(values: Array, alpha: float) -> float:
    r"""Lower bound of a mean from independent values in [0, 1].

    Empirical Bernstein bound of Maurer and Pontil (2009), Theorem 4, with V the sample
    variance:

    .. math:: \bar X - \sqrt{2 V \log(2/\alpha) / n} - 7 \log(2/\alpha) / (3 (n - 1)).

    Parameters
    ----------
    values : array of shape (n,)
        Independent values with one law, n >= 2.
    alpha : float
        Probability that the bound is wrong, > 0 and < 1.

    Returns
    -------
    float
        The bound, at least 0.
    """
    size, log_term = values.size, math.log(2.0 / alpha)
    spread = math.sqrt(2.0 * float(values.var(ddof=1)) * log_term / size)
    bound = float(values.mean()) - spread - 7.0 * log_term / (3.0 * (size - 1))
    return max(0.0, bound)
