r"""Excess risk of noisy regularized mirror descent, and the steps that minimize it.

With :math:`\gamma > \beta`, :math:`\omega = 1 + \alpha/\gamma`, weights
:math:`\omega^t` and gradient noise :math:`\xi`, :math:`E\|\xi\|_q^2 = \nu^2`, the
three-point inequality gives for the regularized empirical minimizer u

    E[(F_n + alpha Phi)(w) - (F_n + alpha Phi)(u)]
        <= nu^2/(2 (gamma - beta)) + alpha E Phi(u)/(omega^T - 1),
    E D(u, w_{t+1}) <= omega^{-t} E Phi(u) + nu^2/(2 alpha (gamma - beta)).

u generalizes by stability, 2 L^2/(n alpha), so that also
:math:`E\Phi(u) \le \Phi(\theta^*) + 2 L^2/(n \alpha^2)`, and the output is
:math:`E\|w - u\|_p \le \sqrt{2 E D}` away from it, which costs 2 L times that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check

Array = NDArray[np.float64]
LARGEST_NUM_STEPS = 10_000
SLACK = 1.05  # a bound this much above the least is bought with fewer steps


class Scales(NamedTuple):
    """Public numbers of one problem and budget."""

    num_records: int
    lipschitz: float  # in l_p
    smoothness: float  # in l_p
    potential: float  # of the population's minimizer
    distance: float  # its l_p norm
    variance: float  # mean square l_q norm of the noise of one step, for one step


class Schedule(NamedTuple):
    """Hyper-parameters of a run and the risk that they guarantee."""

    num_steps: int
    ridge: float
    step_size: float
    risk: float


def excess_risk(num_steps: Array, ridge: Array, gamma: Array, scales: Scales) -> Array:
    """Bound of the mean excess population risk; infinite where nothing is proved.

    Parameters
    ----------
    num_steps, ridge, gamma : ndarray
        T, alpha and gamma, broadcast against each other.
    scales : Scales
        Public numbers.

    Returns
    -------
    ndarray
    """
    n, lipschitz = scales.num_records, scales.lipschitz
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slack = gamma - scales.smoothness
        noise = num_steps * scales.variance / (2.0 * slack)
        stability = 2.0 * lipschitz**2 / (n * ridge)
        potential = scales.potential + stability / ridge
        growth = np.expm1(num_steps * np.log1p(ridge / gamma))
        ratio = ridge / gamma / (1.0 + ridge / gamma)
        spread = potential * num_steps * ratio / growth + noise / ridge
        risk = noise + ridge * (scales.potential + potential / growth) + stability
        risk = risk + 2.0 * lipschitz * np.sqrt(2.0 * spread)
        return np.where((slack > 0.0) & np.isfinite(risk), risk, np.inf)


def best_schedule(
    scales: Scales,
    *,
    num_steps: int | None,
    ridge: float | None,
    step_size: float | None,
) -> Schedule:
    """Minimize `excess_risk` over what is not given.

    The fewest steps whose bound is within 5 percent of the least are taken. gamma stays
    at 2 beta, or at L/distance if beta is smaller: larger ones improve the bound by at
    most a fifth, with ten times the steps.
    """
    largest = min(scales.num_records, LARGEST_NUM_STEPS)
    unit = scales.lipschitz * math.sqrt(2.0 / (scales.num_records * scales.potential))
    powers = scales.lipschitz / scales.distance * 2.0 ** np.arange(-10.0, 1.0)
    counts = np.unique(np.round(np.geomspace(1.0, largest, 80)))
    ridges = unit * np.geomspace(1e-2, 1e4, 73)
    gammas = np.unique(np.maximum(2.0 * scales.smoothness, powers))
    counts = counts if num_steps is None else np.array([float(num_steps)])
    ridges = ridges if ridge is None else np.array([float(ridge)])
    gammas = gammas if step_size is None else np.array([1.0 / step_size])
    risks = excess_risk(counts[:, None, None], ridges[:, None], gammas[None, :], scales)
    least = risks.min(axis=(1, 2))
    if num_steps is None and not least.min() < np.inf:
        remedy = "Give num_steps, or a shorter step and a positive ridge."
        check.fail("step_size", "< 1/beta, with ridge > 0", f"{step_size!r}", remedy)
    first = int(np.argmax(least <= SLACK * least.min()))
    second, third = np.unravel_index(np.argmin(risks[first]), risks[first].shape)
    return Schedule(
        num_steps=int(counts[first]),
        ridge=float(ridges[second]),
        step_size=float(1.0 / gammas[third]),
        risk=float(risks[first, second, third]),
    )
