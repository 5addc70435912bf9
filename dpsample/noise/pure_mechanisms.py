"""Mechanisms that add Laplace or K-norm noise: purely private, no delta."""

import json

from dpsample.core import check
from dpsample.domains import Domain
from dpsample.noise.elementary import Laplace
from dpsample.noise.k_norm import KNorm, k_norm_table
from dpsample.noise.mechanism import AdditiveMechanism, certified
from dpsample.privacy.accounting.events import PureEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.additive import pure_scale, up


def laplace_mechanism(budget: Budget, *, sensitivity: float) -> AdditiveMechanism:
    """Laplace noise of scale sensitivity / epsilon on every coordinate.

    Parameters
    ----------
    budget : Budget
        Epsilon and the relation that the sensitivity is for; delta is not spent.
    sensitivity : float
        Bound > 0 of the l1 norm of the query's change between neighbors.

    Returns
    -------
    AdditiveMechanism
        For queries with any number of coordinates.

    Raises
    ------
    ValueError
        If the sensitivity is not a number from 1e-60 to 1e60.

    Guarantee
    ---------
    Each release is (epsilon, 0)-DP, of the bits that are returned: they are those of
    query + noise in real arithmetic, rounded, which is post-processing
    (`dpsample.noise.grid`).

    Examples
    --------
    >>> mech = laplace_mechanism(Budget(epsilon=0.5, delta=1e-6), sensitivity=1.0)
    >>> round(mech.noise.scale, 9), mech.gdp
    (2.0, None)
    """
    scale = pure_scale(budget, sensitivity)
    return certified(
        Laplace(scale),
        budget,
        inputs={"sensitivity": sensitivity, "norm": "l1", "scale": scale},
        event=PureEvent(up(sensitivity / scale)),
        norm=1.0,
    )


def k_norm_mechanism(
    budget: Budget, *, domain: Domain, dim: int, sensitivity: float
) -> AdditiveMechanism:
    """K-norm noise: density proportional to exp(-epsilon ||z||_K / sensitivity).

    Parameters
    ----------
    budget : Budget
        Epsilon and the relation that the sensitivity is for; delta is not spent.
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0, that contains every change of the query between
        neighbors when it is scaled by ``sensitivity``.
    dim : int
        Number of coordinates of the query.
    sensitivity : float
        Bound > 0 of the gauge of the query's change between neighbors.

    Returns
    -------
    AdditiveMechanism
        For queries with ``dim`` coordinates.

    Raises
    ------
    ValueError
        If an argument is out of its range or the body is refused.

    Guarantee
    ---------
    Each release is (epsilon, 0)-DP: for an l_1 ball of the bits that are returned, as
    for `laplace_mechanism`; else in real arithmetic, so that nothing is releasable.

    Examples
    --------
    >>> from dpsample.domains import Box
    >>> mech = k_norm_mechanism(Budget(epsilon=0.5, delta=1e-6),
    ...     domain=Box(-1.0, 1.0), dim=3, sensitivity=2.0)
    >>> round(mech.noise.scale, 9)
    4.0
    """
    check.instance(Domain, domain=domain)
    scale = pure_scale(budget, sensitivity)
    noise = KNorm(domain, scale)
    k_norm_table(domain, dim)  # refuses what cannot be drawn
    body = json.dumps(domain.to_dict())
    return certified(
        noise,
        budget,
        inputs={"dim": dim, "sensitivity": sensitivity, "K": body, "scale": scale},
        event=PureEvent(up(sensitivity / scale)),
        dim=dim,
        norm=None,
    )
