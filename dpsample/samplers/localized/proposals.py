r"""Exact draws of exp(-Q) on a set that contains the domain, for rejection.

Q(v) = <g, v> + ||v||_M^2 / 2 with g = q + e (`mode`). In the interior q = 0: a
Gaussian. On the sphere of a ball, q = -nu z0 with z0 = x0 - center, and <q, v> = (nu/2)
(||v||^2 + sigma), sigma = R^2 - ||z0 + v||^2 >= 0 in the ball: for every share s,

.. math:: Q = \langle e, v\rangle + (1 - s) \langle q, v\rangle
   + \tfrac12 \|v\|^2_{M + s \nu I} + \tfrac12 s \nu \sigma.

All but the last term is a Gaussian on the halfspace <q, v> >= 0, which is drawn; the
last is left to the acceptance, as ``cost``.

**Theorem D.** Where flat sides A v <= depths are active or near, m the Gaussian's mean,
v = m + E (depths - A m - s) + y, E = M^{-1} A^T G^{-1}, G = A M^{-1} A^T; the slacks
s >= 0 follow a Gaussian on an orthant, and y is an independent Gaussian with A y = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from scipy import linalg

from dpsample.core.arrays import Array
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.region import Region
from dpsample.samplers.localized.tilting import orthant, tail_excess

# (rng, number of tries) to proposals v, each a row, and the cost of each
Proposal = Callable[[np.random.Generator, int], tuple[Array, Array]]
# Shares of the multiplier to choose from, and tries for the choice.
SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
NUM_TRIALS = 256
# Standard deviations from a side at which it is drawn with its constraint.
NEAR = 4.0


def proposal(
    mode: Mode,
    region: Region,
    ball: tuple[Array, float] | None,
    rng: np.random.Generator,
) -> Proposal:
    """Proposal that suits the boundary at x0; ``ball`` is x0 - center and the radius.

    Every choice is exact, those by trials on ``rng`` too.
    """
    if ball is not None:
        if mode.multiplier == 0.0:
            return _gaussian(mode, region, ball)
        options = [_on_sphere(mode, region, ball, share) for share in SHARES]
        return max(options, key=lambda option: _num_inside(option, rng))
    near = _near_sides(mode, region)
    if near.size:
        with suppress(np.linalg.LinAlgError):  # sides that rounding makes dependent
            return _in_corner(mode, region, near)
    return _gaussian(mode, region, None)


def is_gaussian(mode: Mode, region: Region) -> bool:
    """Whether the proposal off the boundary is the Gaussian itself."""
    return not _near_sides(mode, region).size


def _normal(root: Array, rng: np.random.Generator, size: int) -> Array:
    """Rows of N(0, (root root^T)^{-1})."""
    noise = rng.standard_normal((size, len(root)))
    return np.asarray(linalg.solve_triangular(root, noise.T, lower=True, trans="T").T)


def _gaussian(mode: Mode, region: Region, ball: tuple[Array, float] | None) -> Proposal:
    mean = -linalg.cho_solve((region.root, True), mode.gradient)

    def draw(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        vectors = mean + _normal(region.root, rng, size)
        if ball is None:
            return vectors, np.zeros(size)
        return vectors, np.where(_room(ball, vectors) >= 0.0, 0.0, np.inf)

    return draw


def _room(ball: tuple[Array, float], vectors: Array) -> Array:
    """Sigma = R^2 - ||z0 + v||^2, from differences of R^2 and ||z0||^2."""
    outward, radius = ball
    depth = radius**2 - float(outward @ outward)
    moved = 2.0 * (vectors @ outward) + np.einsum("ij,ij->i", vectors, vectors)
    return np.asarray(depth - moved)


def _on_sphere(
    mode: Mode, region: Region, ball: tuple[Array, float], share: float
) -> Proposal:
    nu, outward = mode.multiplier, ball[0]
    precision = region.root @ region.root.T + share * nu * np.eye(len(outward))
    root = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    pull = -nu * outward
    inward = linalg.cho_solve((root, True), pull)
    size_of_pull = float(np.sqrt(pull @ inward))
    inward /= size_of_pull
    dual = precision @ inward
    mean = -linalg.cho_solve((root, True), mode.residual)
    start = mode.shortfall / size_of_pull  # of the halfspace, which holds the ball
    rate = (1.0 - share) * size_of_pull + float(mode.residual @ inward)

    def draw(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        free = mean + _normal(root, rng, size)
        # tau >= -start with density exp(-rate tau - tau^2 / 2).
        low = np.full(size, rate - start)
        tau = tail_excess(low, rng) - start
        vectors = free + (tau - free @ dual)[:, None] * inward
        sigma = _room(ball, vectors)
        return vectors, np.where(sigma >= 0.0, 0.5 * share * nu * sigma, np.inf)

    return draw


def _num_inside(option: Proposal, rng: np.random.Generator) -> int:
    """Proposals that need a look at the records."""
    _, cost = option(rng, NUM_TRIALS)
    return int((cost <= rng.standard_exponential(NUM_TRIALS)).sum())


def _near_sides(mode: Mode, region: Region) -> Array:
    """Independent sides that the Gaussian would often cross, held ones first."""
    if not len(mode.sides):
        return np.zeros(0, dtype=np.int64)
    scaled: Array = linalg.solve_triangular(region.root, mode.sides.T, lower=True).T
    sizes = np.linalg.norm(scaled, axis=1)
    depths: Array = np.where(mode.multipliers > 0.0, -1.0, mode.depths / sizes)
    chosen: list[int] = []
    basis = np.empty((0, scaled.shape[1]), dtype=np.float64)
    for j in np.argsort(depths):
        if depths[j] > NEAR or len(chosen) == scaled.shape[1]:
            break
        rest = scaled[j] / sizes[j]
        for _ in range(2):
            rest = rest - basis.T @ (basis @ rest)
        length = float(np.linalg.norm(rest))
        if length > 1e-3 or (depths[j] < 0.0 and length > 1e-8):
            chosen.append(int(j))
            basis = np.vstack([basis, rest / length])
    return np.array(chosen, dtype=np.int64)


def _in_corner(mode: Mode, region: Region, near: Array) -> Proposal:
    sides, depths = mode.sides[near], mode.depths[near]
    gradient, multipliers = mode.gradient, mode.multipliers[near]
    scaled = linalg.solve_triangular(region.root, sides.T, lower=True)  # (m, r)
    covariance = scaled.T @ scaled
    shares = linalg.solve(covariance, scaled.T, assume_a="pos").T
    back = linalg.solve_triangular(region.root, shares, lower=True, trans="T")  # E
    middle = -(sides @ linalg.cho_solve((region.root, True), gradient))  # A m
    # On the region ||A v|| is bounded, and so is X = A m - A v.
    size = _largest_move(region, sides) + float(np.linalg.norm(middle))
    slacks_of = orthant(covariance, middle - depths, size)
    # (I - E A) m: sides that are drawn drop out of it, with all their digits.
    rest = gradient + multipliers @ sides
    aside = -linalg.cho_solve((region.root, True), rest)
    base = aside + back @ (depths - sides @ aside)

    def draw(rng: np.random.Generator, num_tries: int) -> tuple[Array, Array]:
        slacks = slacks_of.draw(rng, num_tries)
        free = _normal(region.root, rng, len(slacks))
        vectors = base + free - (free @ sides.T + slacks) @ back.T
        return vectors, np.zeros(len(vectors))

    return draw


def _largest_move(region: Region, sides: Array) -> float:
    """Bound of ||A v|| on the region."""
    bounds: list[float] = []
    for each in region.ellipsoids:
        inner = linalg.solve_triangular(each.root, sides.T, lower=True)
        bounds.append(each.radius * float(np.linalg.norm(inner)))
    return min(bounds, default=np.inf)
