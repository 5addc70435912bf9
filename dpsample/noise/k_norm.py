"""K-norm noise: density proportional to exp(-||z||_K / scale).

||z||_K is the gauge of a convex body K that is symmetric about 0 [1]_. The gauge of a
draw is scale times a Gamma(d) variable and its direction follows the cone measure of K,
independently.

References
----------
.. [1] M. Hardt and K. Talwar, On the geometry of differential privacy, STOC 2010.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample.domains import Ball, Box, Domain, Polytope, SchattenBall
from dpsample.noise._base import Noise
from dpsample.noise.cone_table import cone_table
from dpsample.noise.facets import symmetric_facets
from dpsample.noise.generalized_gaussian import log_ball_volume
from dpsample.noise.k_norm_fills import (
    COORDINATES,
    FACETS,
    SPECTRUM,
    KNormTable,
    fill_k_norm_rows,
)
from dpsample.noise.schatten_constant import log_schatten_volume
from dpsample.noise.schatten_plan import schatten_plan
from dpsample.noise.sizes import Vector, checked_rng, checked_size, parts


def k_norm_table(domain: Domain, dim: int) -> KNormTable:
    """Return what `fill_k_norm` needs to draw K-norm noise.

    Parameters
    ----------
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0.
    dim : int
        Number of coordinates.

    Returns
    -------
    KNormTable
        Parameters of one compiled type for all domains.

    Raises
    ------
    ValueError
        If the domain is of another kind, not symmetric about 0, of another dimension,
        or so large that no exact method is practical.

    Examples
    --------
    >>> k_norm_table(Box(-2.0, 2.0), 3).sides.tolist()
    [2.0, 2.0, 2.0]
    """
    sides = _semi_axes(domain, dim)
    kind, cone, plan = COORDINATES, cone_table(math.inf), schatten_plan((1, 1), 2.0)
    simplices, shares = np.zeros((0, dim, dim)), np.zeros(0)
    if isinstance(domain, Ball):
        cone = cone_table(domain.p)
    elif isinstance(domain, SchattenBall):
        kind, plan = SPECTRUM, schatten_plan(domain.shape, domain.p)
    elif isinstance(domain, Polytope):
        kind, simplices = FACETS, _facets(domain)[0].copy()
        shares = np.cumsum(np.abs(np.linalg.det(simplices)))
    return KNormTable(kind, cone, plan, sides, simplices, shares)


def _semi_axes(domain: Domain, dim: int) -> Vector:
    """Check the domain; return its half widths, or its one radius."""
    kinds = (Ball, Box, SchattenBall, Polytope)
    check.instance(kinds, domain=domain, remedy="Choose one of them.")
    domain.check(dim)
    if isinstance(domain, Polytope):
        if not domain.is_bounded:
            check.fail("domain", "bounded", domain)
        if not (domain.b > 0.0).all():
            check.fail("domain", "symmetric about 0", "a set without 0 inside")
        return np.zeros(0)
    if isinstance(domain, SchattenBall):
        return np.full(1, domain.radius)
    body = domain.body(dim)
    if not (body.lower == -body.upper).all():
        got = f"center {check.shown(domain.default_center(dim).tolist())}"
        check.fail("domain", "symmetric about 0", got)
    return np.array(body.upper)


@lru_cache(maxsize=32)
def _facets(domain: Polytope) -> tuple[Vector, float]:
    return symmetric_facets(domain.A, domain.b)


def _log_volume(domain: Domain, dim: int) -> float:
    sides = _semi_axes(domain, dim)
    if isinstance(domain, Polytope):
        return _facets(domain)[1]
    if isinstance(domain, SchattenBall):
        volume = log_schatten_volume(domain.shape, domain.p)
        return volume + dim * math.log(domain.radius)
    p = domain.p if isinstance(domain, Ball) else math.inf
    return log_ball_volume(dim, p) + float(np.log(sides).sum())


@dataclass(frozen=True, eq=False)
class KNorm(Noise):
    """Vectors with density exp(-||z||_K / scale) / (d! Vol(K) scale^d).

    Parameters
    ----------
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0.
    scale : float
        Scale > 0: the gauge of a draw is scale times a Gamma(d) variable.

    Raises
    ------
    ValueError
        If the domain is of another kind or scale is not a finite number > 0.

    Examples
    --------
    >>> noise = KNorm(Ball(1.0, p=1.0), scale=2.0)
    >>> noise.draw(np.random.default_rng(0), (10, 3)).shape
    (10, 3)
    >>> float(noise.log_density([1.0, -1.0]).round(9))
    -3.772588722
    """

    name: ClassVar[str] = "k_norm"

    domain: Domain
    scale: float

    def __post_init__(self) -> None:
        """Check the fields once."""
        check.instance((Ball, Box, SchattenBall, Polytope), domain=self.domain)
        check.positive(scale=self.scale)
        object.__setattr__(self, "scale", float(self.scale))

    def to_dict(self) -> dict[str, Any]:
        """Return the name, the domain's own description and the scale."""
        described = self.domain.to_dict()
        return {"name": self.name, "domain": described, "scale": self.scale}

    def draw(self, rng: np.random.Generator, size: Any) -> Vector:
        """Draw vectors along the last axis; see `k_norm`."""
        return k_norm(rng, size=size, domain=self.domain, scale=self.scale)

    @np.errstate(over="ignore")  # minus infinity
    def log_density(self, z: Any) -> Any:
        """Return the normalized log density of the vectors on the last axis."""
        points = check.vectors("z", z)
        dim = points.shape[-1]
        constant = _log_volume(self.domain, dim) + math.lgamma(dim + 1.0)
        gauge = self.domain.gauge(points) / self.scale
        return -gauge - constant - dim * math.log(self.scale)


def k_norm(
    rng: np.random.Generator, *, size: Any, domain: Domain, scale: float = 1.0
) -> Vector:
    """Draw vectors with density proportional to exp(-||z||_K / scale).

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    size : int or tuple of int
        Shape of the result; the last axis holds the coordinates of one vector.
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0; matrices are flattened row by row.
    scale : float, default 1.0
        Scale > 0.

    Returns
    -------
    ndarray
        The draws.

    Raises
    ------
    ValueError
        If ``rng`` is not a Generator, ``size`` has no last axis >= 1, scale is not a
        finite number > 0, or the domain is refused (see `k_norm_table`).

    Notes
    -----
    **Guarantee**: for real arithmetic and ideal random numbers the draws are
    independent and exactly of this law. Added to a query whose change between
    neighbors lies in s K, the noise makes the answer (s / scale)-DP.

    Examples
    --------
    >>> diamond = Polytope([[1, 1], [1, -1], [-1, 1], [-1, -1]], [1.0, 1.0, 1.0, 1.0])
    >>> k_norm(np.random.default_rng(0), size=(4, 2), domain=diamond).shape
    (4, 2)
    """
    generator = checked_rng(rng)
    shape = checked_size(size, 1)
    check.positive(scale=scale)
    table = k_norm_table(domain, shape[-1])
    out = np.empty(shape)
    cost = 1 if table.kind == COORDINATES else shape[-1]
    for rows in parts(out.reshape(-1, shape[-1]), cost=cost):
        fill_k_norm_rows(generator, table, float(scale), rows)
    return out
