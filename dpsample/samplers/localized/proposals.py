# mypy: allow-untyped-defs
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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.numerics.stable import tail_excess
from dpsample.numerics.vectors import multiply, solve_lower, solve_upper
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.localized.region import Region
from dpsample.samplers.localized.tilting import (
    ExponentialOrthant,
    TiltedOrthant,
    orthant,
)

# Shares of the multiplier to choose from.
SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
# Standard deviations from a side at which it is drawn with its constraint.
NEAR = 4.0
# Tries for the choice of a share.
NUM_TRIALS = 256


@by_address
class Proposal(NamedTuple):
    """Gaussian, on a halfspace if x0 is on a sphere."""

    root: Array  # (m, m): lower Cholesky factor of the precision
    mean: Array  # (m,)
    is_held: bool
    inward: Array  # (m,): direction along which the halfspace's tail is drawn
    dual: Array  # (m,)
    rate: float
    start: float
    held: float  # cost of each unit of sigma
    is_in_ball: bool
    outward: Array  # (m,): x0 - center
    depth: float  # R^2 - ||x0 - center||^2


@kernel
def propose(proposal, rng, vectors, costs):
    """Fill rows with proposals v, and the cost of each: infinite outside of a ball."""
    size, rank = vectors.shape
    for i in range(size):
        for j in range(rank):
            vectors[i, j] = rng.standard_normal()
    for i in range(size):
        solve_upper(proposal.root, vectors[i])
        for j in range(rank):
            vectors[i, j] += proposal.mean[j]
    costs[:] = 0.0
    if proposal.is_held:
        # tau >= -start with density exp(-rate tau - tau^2 / 2).
        tail_excess(np.full(size, proposal.rate - proposal.start), rng, costs)
        for i in range(size):
            move = costs[i] - proposal.start
            for j in range(rank):
                move -= vectors[i, j] * proposal.dual[j]
            for j in range(rank):
                vectors[i, j] += move * proposal.inward[j]
    if proposal.is_in_ball:
        for i in range(size):
            # Sigma = R^2 - ||z0 + v||^2, from differences of R^2 and ||z0||^2.
            sigma = proposal.depth
            for j in range(rank):
                sigma -= (2.0 * proposal.outward[j] + vectors[i, j]) * vectors[i, j]
            costs[i] = proposal.held * sigma if sigma >= 0.0 else np.inf


@kernel
def fill_held(free, multiplier, share, root, mean, inward, dual):
    """Fill the arrays of the proposal of x0 on a sphere; return two numbers.

    They are the size of the pull, and - <e, inward>; ``free.mean`` is - e.
    """
    rank, precision = mean.shape[0], np.empty(free.root.shape)
    np.dot(free.root, free.root.T, precision)
    for j in range(rank):
        precision[j, j] += share * multiplier
    factor = np.linalg.cholesky(precision)
    for j in range(rank):
        for i in range(rank):
            root[j, i] = factor[j, i]
        mean[j], inward[j] = free.mean[j], -multiplier * free.outward[j]
    solve_lower(root, mean)
    solve_upper(root, mean)
    solve_lower(root, inward)
    solve_upper(root, inward)
    square, along = 0.0, 0.0
    for j in range(rank):
        square -= multiplier * free.outward[j] * inward[j]
    size = np.sqrt(square)
    for j in range(rank):
        inward[j] /= size
        along -= free.mean[j] * inward[j]
    multiply(precision, inward, dual)
    return size, along


def proposal(
    mode: Mode,
    region: Region,
    ball: tuple[Array, float] | None,
    rng: np.random.Generator,
    costs_fn: Callable[[Proposal], Array],
) -> Proposal | Corner:
    """Proposal that suits the boundary at x0; ``ball`` is x0 - center and the radius.

    Every choice is exact, those by trials on ``rng`` too. ``costs_fn`` returns the
    costs of `NUM_TRIALS` tries of a proposal, from the same ``rng``.
    """
    if ball is not None:
        if mode.multiplier == 0.0:
            return _gaussian(mode, region, ball)
        return _on_sphere(mode, region, ball, rng, costs_fn)
    near = _near_sides(mode, region)
    if near.size:
        with suppress(np.linalg.LinAlgError):  # sides that rounding makes dependent
            return Corner.of(mode, region, near)
    return _gaussian(mode, region, None)


def is_gaussian(mode: Mode, region: Region) -> bool:
    """Whether the proposal off the boundary is the Gaussian itself."""
    return not _near_sides(mode, region).size


def _gaussian(mode: Mode, region: Region, ball: tuple[Array, float] | None) -> Proposal:
    mean = -linalg.cho_solve((region.root, True), mode.gradient)
    return _made(region.root, mean, ball)


def _made(root: Array, mean: Array, ball: tuple[Array, float] | None) -> Proposal:
    """Gaussian of all of space, or of a ball."""
    none = np.zeros(len(mean))
    outward, radius = (none, 0.0) if ball is None else ball
    return Proposal(
        root=np.ascontiguousarray(root),
        mean=np.ascontiguousarray(mean),
        is_held=False,
        inward=none,
        dual=none,
        rate=0.0,
        start=0.0,
        held=0.0,
        is_in_ball=ball is not None,
        outward=outward,
        depth=radius**2 - float(outward @ outward),
    )


NONE = _made(np.empty((0, 0)), np.empty(0), None)


def _on_sphere(
    mode: Mode,
    region: Region,
    ball: tuple[Array, float],
    rng: np.random.Generator,
    costs_fn: Callable[[Proposal], Array],
) -> Proposal:
    """Proposal whose tries most often need a look at the records, by trials."""
    free = _made(region.root, -np.asarray(mode.residual), ball)
    best, most = free, -1
    for share in SHARES:
        tried = _held(free, mode.multiplier, mode.shortfall, share)
        costs = costs_fn(tried)
        count = int(np.count_nonzero(costs <= rng.standard_exponential(len(costs))))
        if count > most:
            best, most = tried, count
        pauses.notify_listeners()
    return best


def _held(
    free: Proposal, multiplier: float, shortfall: float, share: float
) -> Proposal:
    """Proposal that has a share of the multiplier."""
    arrays = np.empty(free.root.shape), *np.empty((3, len(free.mean)))
    size, along = jit.call(fill_held, free, multiplier, share, *arrays)
    root, mean, inward, dual = arrays
    return free._replace(
        root=root,
        mean=mean,
        is_held=True,
        inward=inward,
        dual=dual,
        rate=(1.0 - share) * size + along,
        start=shortfall / size,  # of the halfspace, which holds the ball
        held=0.5 * share * multiplier,
    )


# Digits that given sides may lose to each other. A side left out costs tries that fall
# outside, and no digits.
GIVEN_ERROR = 1e-9


def are_entangled(units: Array) -> bool:
    """Whether some of these unit normals would see a move along another one."""
    try:
        factor = linalg.cho_factor(units @ units.T)
    except linalg.LinAlgError:
        return True
    seen = linalg.cho_solve(factor, units) @ units.T
    errors = np.abs(seen - np.eye(len(seen)))
    return not errors.max(initial=0.0) <= GIVEN_ERROR


def _near_sides(mode: Mode, region: Region) -> Array:
    """Independent sides that the Gaussian would often cross, held ones first."""
    if not len(mode.sides):
        return np.zeros(0, dtype=np.int64)
    scaled: Array = linalg.solve_triangular(region.root, mode.sides.T, lower=True).T
    sizes = np.linalg.norm(scaled, axis=1)
    units = scaled / sizes[:, None]
    depths: Array = np.where(mode.multipliers > 0.0, -1.0, mode.depths / sizes)
    near = np.argsort(depths)[: np.count_nonzero(depths <= NEAR)]
    chosen = independent(units, depths, near)
    if are_entangled(units[chosen]):  # rare, and asked of each side takes its time
        chosen = independent(units, depths, near, are_asked=True)
    return np.array(chosen, dtype=np.int64)


def independent(
    units: Array, depths: Array, near: NDArray[np.intp], *, are_asked: bool = False
) -> list[int]:
    """Sides of ``near`` neither along those before them nor, if asked, entangled."""
    chosen: list[int] = []
    basis = np.empty((0, units.shape[1]), dtype=np.float64)
    for j in near:
        if len(chosen) == units.shape[1]:
            break
        rest = units[j]
        for _ in range(2):
            rest = rest - basis.T @ (basis @ rest)
        length = float(np.linalg.norm(rest))
        if not (length > 1e-3 or (depths[j] < 0.0 and length > 1e-8)):
            continue
        if not (are_asked and are_entangled(units[[*chosen, j]])):
            chosen.append(int(j))
            basis = np.vstack([basis, rest / length])
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class Corner:
    """Gaussian given flat sides, of Theorem D."""

    root: Array  # (m, m): lower Cholesky factor of the precision
    base: Array  # (m,)
    back: Array  # (m, r): E
    sides: Array  # (r, m)
    depths: Array  # (r,)
    slacks: ExponentialOrthant | TiltedOrthant

    @classmethod
    def of(cls, mode: Mode, region: Region, near: Array) -> Corner:
        """Corner of the sides ``near``, which are scaled to unit normals."""
        gradient, sides = mode.gradient, mode.sides[near]
        scaled = linalg.solve_triangular(region.root, sides.T, lower=True)  # (m, r)
        sizes = np.linalg.norm(scaled, axis=0)
        sides, scaled, depths = (
            sides / sizes[:, None],
            scaled / sizes,
            mode.depths[near] / sizes,
        )
        multipliers = mode.multipliers[near] * sizes
        covariance = scaled.T @ scaled
        shares = linalg.solve(covariance, scaled.T, assume_a="pos").T
        back = linalg.solve_triangular(region.root, shares, lower=True, trans="T")
        middle = -(sides @ linalg.cho_solve((region.root, True), gradient))  # A m
        # (I - E A) m: sides that are drawn drop out of it, with all their digits.
        rest = gradient + multipliers @ sides
        aside = -linalg.cho_solve((region.root, True), rest)
        return cls(
            root=region.root,
            base=aside + back @ (depths - sides @ aside),
            back=back,
            sides=sides,
            depths=depths,
            slacks=orthant(covariance, middle - depths),
        )

    def draw(self, rng: np.random.Generator, num_tries: int) -> Array:
        """Return proposals, each a row, among so many tries."""
        slacks = self.slacks.draw(rng, num_tries)
        noise = rng.standard_normal((len(slacks), len(self.root)))
        free: Array = linalg.solve_triangular(
            self.root, noise.T, lower=True, trans="T"
        ).T
        v = self.base + free - (free @ self.sides.T + slacks) @ self.back.T
        # Digits of the slacks that sums with larger terms have lost.
        v += (self.depths - v @ self.sides.T - slacks) @ self.back.T
        return np.ascontiguousarray(v)
