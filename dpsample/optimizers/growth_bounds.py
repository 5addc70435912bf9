r"""Mean excess risk of iterated runs under growth.

If :math:`F(w) - F^* \ge \lambda |w - w^*|^\theta`, a run with mean excess risk g ends
at :math:`E|w - w^*|^\theta \le g/\lambda`, and the next one starts there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpsample import _check as check


def check_growth(exponent: float, constant: float) -> None:
    """Refuse growth with which powers leave floating point."""
    check.half_open(1.01, 1e3, exponent=exponent)
    check.scale(constant=constant)


def growth_bound(
    gaps: tuple[Callable[[float], float], ...],
    biases: tuple[float, ...],
    *,
    distance: float,
    diameter: float,
    exponent: float,
    constant: float,
) -> float:
    r"""Bound of the last run's mean excess risk.

    Parameters
    ----------
    gaps : tuple of callables
        Bound of each run's excess *clipped* risk from :math:`E|w_0 - w^*|^2`.
    biases : tuple of float
        Clipping bias of each run: the risks differ by at most the bias times the
        distance to :math:`w^*`, whose mean is at most :math:`(g/\lambda)^{1/\theta}`.
    distance, diameter : float
        Of the start to the minimizer, and of the domain.
    exponent, constant : float
        theta > 1 and lambda > 0.

    Returns
    -------
    float
    """
    spread, risk = distance**2, math.inf
    for gap, bias in zip(gaps, biases, strict=True):
        risk = _fixed_point(gap(spread), bias, diameter, exponent, constant)
        moved = risk / constant  # bounds E |w - w*|^theta
        if exponent >= 2.0:
            moved = moved ** (2.0 / exponent)
        else:
            moved *= diameter ** (2.0 - exponent)
        spread = min(moved, diameter**2)
    return risk


def _fixed_point(
    gap: float, bias: float, diameter: float, exponent: float, constant: float
) -> float:
    """Largest g with g <= gap + bias min(diameter, (g/constant)^(1/exponent))."""
    risk = gap + bias * diameter
    for _ in range(200):
        far = min(diameter, (risk / constant) ** (1.0 / exponent))
        risk = gap + bias * far
    return risk
