r"""Hard instances of stochastic convex optimization under growth.

Xu et al. (arXiv 2026), Theorems 4 and 5: the loss :math:`-\langle w, x\rangle +
\|w\|_2^\theta/\theta`, which is no function of a margin, and exact risks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample import _check as check
from dpsample._streams import streams
from dpsample.datasets.growth import growth_constant
from dpsample.datasets.synthetic import LARGEST_EXPONENT

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class HardInstance:
    r"""Records of :math:`f(w; x) = -\langle w, x\rangle + \|w\|_2^\theta/\theta`.

    Attributes
    ----------
    records : ndarray of shape (num_records, dim)
        The x_i.
    mean : ndarray of shape (dim,)
        E x, exactly.
    exponent : float
        theta.
    radius : float
        Of the l2 ball about 0 that is the domain.
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
        """F(w) - F*, exactly: no test records are needed."""
        w = check.array("theta", theta, shape=self.mean.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.linalg.norm(w) ** self.exponent / self.exponent
            return (
                math.inf
                if np.isinf(grown)
                else float(grown - w @ self.mean - self.minimum)
            )

    def gradients(self, theta: ArrayLike) -> Array:
        """Gradients of all records at w, shape (num_records, dim)."""
        w = check.array("theta", theta, shape=self.mean.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = np.linalg.norm(w)
            pull = 0.0 if norm == 0.0 else norm ** (self.exponent - 2.0)
            return np.asarray(pull * w - self.records)


@check.plain
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
    r"""Draw the privacy-dominated instance: few large records, all others 0.

    :math:`X = p^{-1/k} \frac{r}{2\sqrt d} v` with probability :math:`p = \min(1,
    \frac{\sqrt d}{n\sqrt\rho})`, v a random sign vector: Xu et al. (arXiv 2026),
    Theorem 4. The domain has radius :math:`\|E X\|^{1/(\theta-1)}`; the printed one
    breaks the moment bound (gradient-E18).

    Parameters
    ----------
    num_records, dim : int
        Shape of the records.
    seed : int
        Same seed, same records.
    rho : float
        Concentrated privacy of the algorithms that the bound is about.
    exponent : float
        theta >= 2.
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
    spike = rate ** (-1.0 / order) * moment / (2.0 * math.sqrt(dim)) * signs
    chosen = rng.random(num_records) < rate
    size = float(np.linalg.norm(rate * spike))
    scale = math.sqrt(dim) / (num_records * math.sqrt(rho))
    conjugate = exponent / (exponent - 1.0)
    return HardInstance(
        records=chosen[:, None] * spike,
        mean=rate * spike,
        exponent=float(exponent),
        radius=size ** (1.0 / (exponent - 1.0)),
        reference=(moment * scale ** ((order - 1.0) / order)) ** conjugate,
    )


@check.plain
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
    r"""Draw the statistical instance: signs that lean by about 1/sqrt(n).

    Xu et al. (arXiv 2026), Theorem 5, which mixes two laws (gradient-E18). "product":
    :math:`X_j = \pm v_j \frac{r}{2\sqrt d}` with probability :math:`\frac{1 \pm
    \delta}2`, independently, :math:`\delta = c/\sqrt n`. "sparse": one uniform
    coordinate, :math:`X = \pm v_J \frac r2 e_J`, :math:`\delta = c \sqrt{d/n}`.

    Parameters
    ----------
    num_records, dim : int
        Shape of the records.
    seed : int
        Same seed, same records.
    exponent : float
        theta >= 2.
    moment : float
        r, a bound of every gradient on the domain of radius :math:`(r/2)^{1/(\theta -
        1)}`.
    law : {"product", "sparse"}
        Which version.
    tilt : float
        c > 0; delta is capped at 1.

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
    root = math.sqrt(dim) if law == "sparse" else 1.0
    delta = min(1.0, tilt * root / math.sqrt(num_records))
    sides = np.where(rng.random((num_records, dim)) < 0.5 * (1.0 + delta), 1.0, -1.0)
    if law == "product":
        size = 0.5 * moment / math.sqrt(dim)
        records, mean = size * signs * sides, size * delta * signs
    else:
        size = 0.5 * moment
        chosen = np.arange(dim) == rng.integers(dim, size=num_records)[:, None]
        records, mean = size * signs * sides * chosen, size * delta / dim * signs
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
    check.sides(num_records=num_records, dim=dim)
    check.half_open(2.0, LARGEST_EXPONENT, exponent=exponent)
    check.open_interval(1.0, math.inf, order=order)
    check.scale(moment=moment)
