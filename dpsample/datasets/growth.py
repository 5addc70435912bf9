r"""Stochastic problems of known growth, with exact risks.

A risk has growth :math:`(\theta, \lambda)` if :math:`F(w) - F^* \ge \lambda \|w -
w^*\|_2^\theta`. Noiseless regression with the loss :math:`|u - y|^\theta` attains it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample import _check as check
from dpsample._streams import streams
from dpsample.datasets.synthetic import LARGEST_EXPONENT, _unit_rows
from dpsample.tables.dataset import Dataset

Array = NDArray[np.float64]


@check.plain
def growth_constant(exponent: float) -> float:
    r"""Growth of :math:`\|w\|^\theta/\theta - \langle w, \mu\rangle`: its lambda.

    :math:`\min_x \frac{|x|^\theta/\theta - 1/\theta - (x - 1)}{|x - 1|^\theta}`: 1/2
    for theta = 2 and less above (gradient-E17; the paper takes 1).

    Parameters
    ----------
    exponent : float
        theta >= 2.

    Returns
    -------
    float

    Examples
    --------
    >>> [round(growth_constant(theta), 5) for theta in (2.0, 2.5, 3.0, 4.0, 6.0)]
    [0.5, 0.30721, 0.19526, 0.08333, 0.01688]
    """
    from scipy.optimize import minimize_scalar

    check.half_open(2.0, LARGEST_EXPONENT, exponent=exponent)

    def ratio(x: float) -> float:
        above = (abs(x) ** exponent - 1.0) / exponent - (x - 1.0)
        return float(above / abs(x - 1.0) ** exponent)

    # The minimum is at some x < 0; beyond -10 the ratio only climbs towards 1/theta.
    found = minimize_scalar(
        ratio, bounds=(-10.0, 0.0), method="bounded", options={"xatol": 1e-10}
    )
    return min(float(found.fun), ratio(-10.0), ratio(0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class GrowthRegression:
    r"""Noiseless regression whose risk is a power of the distance.

    Attributes
    ----------
    dataset : Dataset
        Rows, the response <row, theta> and theta.
    exponent, constant : float
        :math:`F(w) = E|\langle x, w - w_0\rangle|^\theta = \lambda \|w -
        w_0\|_2^\theta`.
    """

    dataset: Dataset
    exponent: float
    constant: float

    def excess_risk(self, theta: ArrayLike) -> float:
        """F(w), whose minimum is 0."""
        true = np.asarray(self.dataset.theta)
        w = check.array("theta", theta, shape=true.shape)
        with np.errstate(over="ignore"):
            far = np.linalg.norm(w - true)
            return float(self.constant * far**self.exponent)


@check.plain
def growth_regression(
    num_records: int,
    dim: int,
    *,
    seed: int,
    exponent: float = 4.0,
    signal: float = 1.0,
    law: Literal["sphere", "gaussian"] = "sphere",
) -> GrowthRegression:
    r"""Draw noiseless linear regression with exact growth.

    :math:`y = \langle x, w_0\rangle`, loss :math:`|u - y|^\theta`
    (`dpsample.losses.PowerFour` for theta = 4; `Squared` is half of theta = 2). Label
    noise would make the risk quadratic near the minimizer.

    Parameters
    ----------
    num_records, dim : int
        Shape of the rows.
    seed : int
        Same seed, same records.
    exponent : float
        theta > 0 of the loss.
    signal : float
        Norm of the true coefficients.
    law : {"sphere", "gaussian"}
        Rows uniform on the sphere of radius sqrt(dim), whose bound can be declared, or
        standard normal ones, without a bound. The growth constant is :math:`c_\theta =
        2^{\theta/2} \Gamma(\frac{\theta+1}2)/\sqrt\pi` for Gaussian rows.

    Returns
    -------
    GrowthRegression

    Examples
    --------
    >>> growth_regression(10, 5, seed=1, law="gaussian").constant
    3.0
    >>> print(f"{growth_regression(10, 5, seed=1).constant:.6f}")
    2.142857
    """
    check.sides(num_records=num_records, dim=dim)
    check.open_interval(0.0, LARGEST_EXPONENT, exponent=exponent)
    check.positive(signal=signal)
    check.one_of(("sphere", "gaussian"), law=law)
    rng = streams(seed, 1)[0]
    theta = signal * _unit_rows(rng, (1, dim), 2.0)[0]
    root = math.sqrt(dim)
    log_constant = math.lgamma(0.5 * (exponent + 1.0)) - 0.5 * math.log(math.pi)
    if law == "sphere":
        rows = root * _unit_rows(rng, (num_records, dim), 2.0)
        log_constant += 0.5 * exponent * math.log(dim)
        log_constant += math.lgamma(0.5 * dim) - math.lgamma(0.5 * (dim + exponent))
    else:
        rows = rng.standard_normal((num_records, dim))
        log_constant += 0.5 * exponent * math.log(2.0)
    dataset = Dataset(
        features=rows,
        response=rows @ theta,
        row_bound=root if law == "sphere" else None,
        response_bound=signal * root if law == "sphere" else None,
        feature_names=tuple(f"x{j}" for j in range(dim)),
        source=f"noiseless regression, growth {exponent:g}, {law} rows, seed {seed}",
        theta=theta,
    )
    return GrowthRegression(
        dataset=dataset, exponent=float(exponent), constant=math.exp(log_constant)
    )
