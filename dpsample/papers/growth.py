r"""Stochastic problems of known growth, with exact risks.

A risk has growth :math:`(\theta, \lambda)` if :math:`F(w) - F^* \ge \lambda \|w -
w^*\|_2^\theta`. Noiseless regression with the loss :math:`|u - y|^\theta` attains it.
The hard instances of Xu et al. (arXiv 2026), Theorems 4 and 5, have the loss
:math:`-\langle w, x\rangle + \|w\|_2^\theta/\theta`, which is not a function of a
margin. Codes such as gradient-E17 are entries of docs/errata.md.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import streams
from dpsample.tables.read import Dataset
from dpsample.tables.synthetic import LARGEST_EXPONENT, dataset_of, unit_rows

# Largest theta. The constants overflow for theta above some 300.
MAX_GROWTH = 250.0


@check.unwrap_numpy
def growth_constant(exponent: float) -> float:
    r"""Return lambda of the risk :math:`\|w\|^\theta/\theta - \langle w, \mu\rangle`.

    It is :math:`\min_x \frac{|x|^\theta/\theta - 1/\theta - (x - 1)}{|x - 1|^\theta}`,
    which is 1/2 for theta = 2 and less for larger theta. The paper takes 1
    (gradient-E17).

    Parameters
    ----------
    exponent : float
        Exponent theta >= 2 of the growth.

    Returns
    -------
    float

    Examples
    --------
    >>> [round(growth_constant(theta), 5) for theta in (2.0, 2.5, 3.0, 4.0, 6.0)]
    [0.5, 0.30721, 0.19526, 0.08333, 0.01688]
    """
    from scipy.optimize import minimize_scalar

    check.half_open(2.0, MAX_GROWTH, exponent=exponent)

    def ratio(x: float) -> float:
        above = (abs(x) ** exponent - 1.0) / exponent - (x - 1.0)
        return float(above / abs(x - 1.0) ** exponent)

    # The minimum is at some x < 0. Below -10 the ratio only increases to 1/theta.
    lowest = minimize_scalar(
        ratio, bounds=(-10.0, 0.0), method="bounded", options={"xatol": 1e-10}
    )
    return min(float(lowest.fun), ratio(-10.0), ratio(0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class GrowthRegression:
    r"""Noiseless regression whose risk is a power of the distance.

    Attributes
    ----------
    dataset : Dataset
        Rows, the response <row, theta> and theta.
    exponent, constant : float
        theta and lambda of :math:`F(w) = E|\langle x, w - w_0\rangle|^\theta = \lambda
        \|w - w_0\|_2^\theta`, where w_0 are the true coefficients.
    """

    dataset: Dataset
    exponent: float
    constant: float

    def excess_risk(self, theta: ArrayLike) -> float:
        """Return F(w), whose minimum is 0."""
        true = np.asarray(self.dataset.theta)
        w = check.array("theta", theta, shape=true.shape)
        with np.errstate(over="ignore"):
            distance = np.linalg.norm(w - true)
            return float(self.constant * distance**self.exponent)


@check.unwrap_numpy
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

    The response is :math:`y = \langle x, w_0\rangle` and the loss :math:`|u -
    y|^\theta`, which is `dpsample.losses.PowerFour` for theta = 4, and twice `Squared`
    for theta = 2. Label noise would make the risk quadratic near the minimizer.

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
        Distribution of the rows. They are uniform on the sphere of radius sqrt(dim),
        whose bound can be declared, or standard normal, without a bound. The growth
        constant of Gaussian rows is :math:`c_\theta = 2^{\theta/2}
        \Gamma(\frac{\theta+1}2)/\sqrt\pi`.

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
    check.array_sides(num_records=num_records, dim=dim)
    check.open_interval(0.0, MAX_GROWTH, exponent=exponent)
    check.positive(signal=signal)
    check.one_of(("sphere", "gaussian"), law=law)
    rng = streams(seed, 1)[0]
    theta = signal * unit_rows(rng, (1, dim), 2.0)[0]
    root = math.sqrt(dim)
    # log of E|z|^exponent for a standard normal z, without the power of 2. On the
    # sphere it is divided by the same moment of the norm of a normal vector.
    log_constant = math.lgamma(0.5 * (exponent + 1.0)) - 0.5 * math.log(math.pi)
    if law == "sphere":
        rows = root * unit_rows(rng, (num_records, dim), 2.0)
        log_constant += 0.5 * exponent * math.log(dim)
        log_constant += math.lgamma(0.5 * dim) - math.lgamma(0.5 * (dim + exponent))
    else:
        rows = rng.standard_normal((num_records, dim))
        log_constant += 0.5 * exponent * math.log(2.0)
    dataset = dataset_of(
        rows,
        rows @ theta,
        theta,
        row_bound=root if law == "sphere" else None,
        response_bound=signal * root if law == "sphere" else None,
        source=f"noiseless regression, growth {exponent:g}, {law} rows, seed {seed}",
    )
    return GrowthRegression(
        dataset=dataset, exponent=float(exponent), constant=math.exp(log_constant)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class HardInstance:
    r"""Records of :math:`f(w; x) = -\langle w, x\rangle + \|w\|_2^\theta/\theta`.

    Attributes
    ----------
    records : ndarray of shape (num_records, dim)
        Rows x_1, ..., x_n of the records.
    mean : ndarray of shape (dim,)
        Exact mean E x of the distribution of records.
    exponent : float
        Exponent theta of the growth.
    radius : float
        Radius of the domain, an l2 ball about 0.
    reference : float
        The lower bound's rate, without its constant.
    """

    records: Array
    mean: Array
    exponent: float
    radius: float
    reference: float

    @property
    def minimizer(self) -> Array:
        """w* = mean / |mean|^((theta - 2)/(theta - 1))."""
        size = float(np.linalg.norm(self.mean))
        power = (self.exponent - 2.0) / (self.exponent - 1.0)
        return np.asarray(self.mean / size**power)

    @property
    def minimum(self) -> float:
        """F* = -(theta - 1)/theta |mean|^(theta/(theta - 1))."""
        conjugate = self.exponent / (self.exponent - 1.0)
        return -float(np.linalg.norm(self.mean) ** conjugate / conjugate)

    @property
    def constant(self) -> float:
        """Lambda of the growth, `growth_constant` of theta."""
        return growth_constant(self.exponent)

    def excess_risk(self, theta: ArrayLike) -> float:
        """Return F(w) - F*, which is exact without test records."""
        w = check.array("theta", theta, shape=self.mean.shape)
        # Far points have an infinite risk, and no warning.
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.linalg.norm(w) ** self.exponent / self.exponent
            excess = float(grown - w @ self.mean - self.minimum)
        return math.inf if np.isinf(grown) else excess

    def gradients(self, theta: ArrayLike) -> Array:
        """Return gradients of all records at w, shape (num_records, dim)."""
        w = check.array("theta", theta, shape=self.mean.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = np.linalg.norm(w)
            pull = 0.0 if norm == 0.0 else norm ** (self.exponent - 2.0)
            return np.asarray(pull * w - self.records)


@check.unwrap_numpy
def rare_records(
    num_records: int,
    dim: int,
    *,
    seed: int,
    rho: float,
    exponent: float = 2.0,
    order: float = 2.0,
    moment: float = 1.0,
) -> HardInstance:
    r"""Draw the instance on which privacy costs most: few large records, all others 0.

    A record is :math:`X = p^{-1/k} \frac{r}{2\sqrt d} v` with probability :math:`p =
    \min(1, \frac{\sqrt d}{n\sqrt\rho})`, where v is one random sign vector for all
    records. This is the instance of Xu et al. (arXiv 2026), Theorem 4, on the domain of
    radius :math:`\|E X\|^{1/(\theta-1)}`. The published radius violates the moment
    bound (gradient-E18).

    Parameters
    ----------
    num_records, dim : int
        Shape of the records.
    seed : int
        Same seed, same records.
    rho : float
        Concentrated privacy of the algorithms that the bound is about.
    exponent : float
        Exponent theta >= 2 of the growth.
    order, moment : float
        k > 1 and r: (E sup_w |gradient|^k)^(1/k) <= r.

    Returns
    -------
    HardInstance

    Examples
    --------
    >>> hard = rare_records(1000, 4, seed=1, rho=0.1)
    >>> hard.excess_risk(hard.minimizer)
    0.0
    """
    _check_hard(num_records, dim, exponent, order, moment)
    check.scale(rho=rho)
    rng = streams(seed, 1)[0]
    rate = min(1.0, math.sqrt(dim) / (num_records * math.sqrt(rho)))
    signs = np.where(rng.random(dim) < 0.5, -1.0, 1.0)
    # Entries of a large record. Records have half of the declared moment. The other
    # half is for the gradient of the norm on the domain.
    spike = rate ** (-1.0 / order) * moment / (2.0 * math.sqrt(dim)) * signs
    # The minimizer |mean|^(1/(theta - 1)) is on the boundary of the domain.
    is_large = rng.random(num_records) < rate
    size = float(np.linalg.norm(rate * spike))
    scale = math.sqrt(dim) / (num_records * math.sqrt(rho))
    conjugate = exponent / (exponent - 1.0)
    return HardInstance(
        records=is_large[:, None] * spike,
        mean=rate * spike,
        exponent=float(exponent),
        radius=size ** (1.0 / (exponent - 1.0)),
        reference=(moment * scale ** ((order - 1.0) / order)) ** conjugate,
    )


@check.unwrap_numpy
def tilted_signs(
    num_records: int,
    dim: int,
    *,
    seed: int,
    exponent: float = 2.0,
    moment: float = 1.0,
    law: Literal["product", "sparse"] = "product",
    tilt: float = 1.0,
) -> HardInstance:
    r"""Draw the instance of the statistical error: signs of bias about 1/sqrt(n).

    It is from Xu et al. (arXiv 2026), Theorem 5, whose published construction mixes two
    distributions (gradient-E18). v is a random sign vector. With "product" :math:`X_j =
    \pm v_j \frac{r}{2\sqrt d}` with probability :math:`\frac{1 \pm \delta}2`,
    independently, and :math:`\delta = c/\sqrt n`. With "sparse" one uniform coordinate
    J is not 0, :math:`X = \pm v_J \frac r2 e_J`, and :math:`\delta = c \sqrt{d/n}`.

    Parameters
    ----------
    num_records, dim, seed, exponent
        As in `rare_records`.
    moment : float
        r, a bound of every gradient on the domain of radius :math:`(r/2)^{1/(\theta -
        1)}`.
    law : {"product", "sparse"}
        Distribution of the records.
    tilt : float
        c > 0. delta is at most 1.

    Returns
    -------
    HardInstance

    Examples
    --------
    >>> hard = tilted_signs(100, 4, seed=1, law="sparse")
    >>> int((hard.records != 0.0).sum())
    100
    """
    _check_hard(num_records, dim, exponent, 2.0, moment)
    check.one_of(("product", "sparse"), law=law)
    check.positive(tilt=tilt)
    rng = streams(seed, 1)[0]
    signs = np.where(rng.random(dim) < 0.5, -1.0, 1.0)
    # A sparse record shows one coordinate only, so the bias may be larger.
    root = math.sqrt(dim) if law == "sparse" else 1.0
    delta = min(1.0, tilt * root / math.sqrt(num_records))
    sides = np.where(rng.random((num_records, dim)) < 0.5 * (1.0 + delta), 1.0, -1.0)
    if law == "product":
        size = 0.5 * moment / math.sqrt(dim)
        records, mean = size * signs * sides, size * delta * signs
    else:
        size = 0.5 * moment
        is_coordinate = np.arange(dim) == rng.integers(dim, size=num_records)[:, None]
        records, mean = size * signs * sides * is_coordinate, size * delta / dim * signs
    return HardInstance(
        records=records,
        mean=mean,
        exponent=float(exponent),
        radius=(0.5 * moment) ** (1.0 / (exponent - 1.0)),
        reference=(moment / math.sqrt(num_records)) ** (exponent / (exponent - 1.0)),
    )


def _check_hard(
    num_records: int, dim: int, exponent: float, order: float, moment: float
) -> None:
    """Check the arguments of a hard instance."""
    check.array_sides(num_records=num_records, dim=dim)
    check.half_open(2.0, LARGEST_EXPONENT, exponent=exponent)
    check.open_interval(1.0, math.inf, order=order)
    check.scale(moment=moment)
