r"""Proof that the proximal sampler is close to its target: steps for a given error.

In the metric of P the energy is 1-strongly convex on the domain. An exact conditional
draw contracts the Kullback-Leibler divergence by :math:`(1+h)^{-2}` per step; from a
point, :math:`KL(x_1 \| \pi) \le W_0^2 / (2h)`; Pinsker gives the total variation.
"""

import math

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.domains import Domain


def tv_bound(num_steps: int, *, step: float, start_bound: float) -> float:
    r"""Bound, at most 1, of the total variation after T = ``num_steps`` >= 1 steps.

    :math:`TV \le \frac{W_0}{2\sqrt h} (1+h)^{-(T-1)}`, h the ``step`` in the metric in
    which the energy is 1-strongly convex; ``start_bound`` is W_0, a bound of the root
    mean squared distance from the start, a point, to the target.

    Examples
    --------
    >>> from dpsample.samplers.proximal.certify import tv_bound
    >>> tv_bound(50, step=1.0, start_bound=4.0) < 1e-14
    True
    """
    check.integer(1, most=None, num_steps=num_steps)  # arithmetic, no loop
    check.positive(step=step, start_bound=start_bound)
    log_bound = (
        math.log(start_bound)
        - 0.5 * math.log(4.0 * step)
        - (num_steps - 1) * math.log1p(step)
    )
    return math.exp(min(0.0, log_bound))


def num_steps(gamma: float, *, step: float, start_bound: float) -> int:
    r"""Smallest T with `tv_bound` at most gamma, a total-variation error in (0, 1).

    :math:`T(\gamma) = 1 + \lceil \log(W_0^2 / (4 h \gamma^2)) / (2 \log(1+h)) \rceil`.

    Examples
    --------
    >>> from dpsample.samplers.proximal.certify import num_steps
    >>> num_steps(1e-12, step=1.0, start_bound=4.0)
    42
    """
    check.open_interval(0.0, 1.0, gamma=gamma)
    check.positive(step=step, start_bound=start_bound)
    excess = 2.0 * (math.log(start_bound) - math.log(gamma)) - math.log(4.0 * step)
    return 1 + max(0, math.ceil(excess / (2.0 * math.log1p(step))))


def distance_to_minimizer(
    domain: Domain, point: Array, gradient: Array, inverse: Array, precision: Array
) -> float:
    r"""Bound of :math:`\|x_0 - x^\star\|_P` for a 1-strongly convex energy.

    Strong convexity gives :math:`\frac12\|x_0-x^\star\|_P^2 \le c = \max_{v \in X}
    \langle g, x_0 - v\rangle - \frac12\|x_0-v\|_P^2`, and Fenchel's inequality :math:`c
    \le \frac12\|z\|_{P^{-1}}^2 + \langle g-z, x_0\rangle + h_X(z-g)` with the support
    function h_X: valid for every z, sharp for the right one. ``point`` is x_0 in the
    domain X, ``gradient`` a (sub)gradient g of the energy there; ``inverse`` and
    ``precision`` are P^{-1} and P.
    """
    mapped = point - domain.project(point - gradient / np.trace(precision))
    candidates = [gradient, mapped * np.trace(precision), precision @ mapped]
    if domain.is_bounded:
        candidates.append(np.zeros_like(gradient))
    bounds = []
    for z in candidates:
        rest = z - gradient
        reach = float(domain.support(rest)) if np.any(rest) else 0.0
        if math.isfinite(reach):
            slack = 1e-9 * (abs(reach) + abs(float(rest @ point)))
            bounds.append(0.5 * z @ inverse @ z - rest @ point + reach + slack)
    return math.sqrt(2.0 * max(0.0, min(bounds)))
