# mypy: allow-untyped-defs
r"""Exact draws of exp(-Q) on a set that contains the domain, for rejection.

Q(v) = <g, v> + ||v||_M^2 / 2 with the gradient g = q + e of `mode` and the matrix M of
`region`. If the mode x0 is in the interior, q = 0 and the density is a Gaussian. On the
sphere of a ball, q = -nu z0 with z0 = x0 - center, and <q, v> = (nu/2) (||v||^2 +
sigma), where sigma = R^2 - ||z0 + v||^2 >= 0 in the ball. So for every share s,

.. math:: Q = \langle e, v\rangle + (1 - s) \langle q, v\rangle
   + \tfrac12 \|v\|^2_{M + s \nu I} + \tfrac12 s \nu \sigma.

Without the last term this is a Gaussian on the halfspace <q, v> >= 0, from which
proposals are drawn. The last term is the *cost* of a proposal. A test accepts with
probability e^{-cost}, so that what is left has the density e^{-Q}.

**Theorem D.** Let flat sides A v <= depths be active or near, m be the mean of the
Gaussian, G = A M^{-1} A^T and E = M^{-1} A^T G^{-1}. Then v = m + E (depths - A m - s)
+ y, where the slacks s >= 0 follow a Gaussian on an orthant (drawn by `tilting`), and y
is an independent Gaussian with A y = 0.
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
    new_orthant,
)

# Shares s of the multiplier nu to choose from, and the number of trial draws of each. A
# large share narrows the Gaussian, and costs more.
SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
NUM_TRIAL_PROPOSALS = 256


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class Proposal(NamedTuple):
    """Gaussian, on a halfspace if x0 is on a sphere.

    ``inward`` is a unit vector in the precision's norm, and in that norm orthogonal to
    the boundary of the halfspace. The coordinate tau of v along it has a density
    proportional to exp(-rate tau - tau^2 / 2) on tau >= -start, a tail of a normal
    distribution.
    """

    root: Array  # (m, m): lower Cholesky factor of the precision
    mean: Array  # (m,)
    has_halfspace: bool
    inward: Array  # (m,)
    dual: Array  # (m,): precision times inward, so that <dual, v> is the coordinate
    rate: float
    start: float
    cost_rate: float  # cost of a unit of sigma
    is_in_ball: bool
    outward: Array  # (m,): x0 - center
    depth: float  # R^2 - ||x0 - center||^2


@kernel
def propose(proposal, rng, vectors, costs):
    """Fill rows with proposals v, and their costs, infinite outside of a ball."""
    size, rank = vectors.shape
    for i in range(size):
        for j in range(rank):
            vectors[i, j] = rng.standard_normal()
    for i in range(size):
        solve_upper(proposal.root, vectors[i])
        for j in range(rank):
            vectors[i, j] += proposal.mean[j]
    costs[:] = 0.0
    if proposal.has_halfspace:
        # tau + rate is standard normal above rate - start. Until the end of this block
        # the costs hold its excess, the positive numbers tau + start.
        tail_excess(np.full(size, proposal.rate - proposal.start), rng, costs)
        for i in range(size):
            move = costs[i] - proposal.start
            for j in range(rank):
                move -= vectors[i, j] * proposal.dual[j]
            for j in range(rank):
                vectors[i, j] += move * proposal.inward[j]
    if proposal.is_in_ball:
        for i in range(size):
            # sigma, from the difference of R^2 and ||z0||^2, which keeps its digits.
            sigma = proposal.depth
            for j in range(rank):
                sigma -= (2.0 * proposal.outward[j] + vectors[i, j]) * vectors[i, j]
            costs[i] = proposal.cost_rate * sigma if sigma >= 0.0 else np.inf


@kernel
def fill_sphere_proposal(free, multiplier, share, root, mean, inward, dual):
    """Fill the arrays of a proposal for x0 on a sphere.

    ``free`` is the proposal without the halfspace. Its field for the mean holds -e, the
    negative linear term, which is divided by the precision here. Return the norm of q
    that is dual to the precision's, and <e, inward>.
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
    # With P = root root^T the mean becomes -P^{-1} e, and inward P^{-1} q.
    solve_lower(root, mean)
    solve_upper(root, mean)
    solve_lower(root, inward)
    solve_upper(root, inward)
    square, along = 0.0, 0.0
    for j in range(rank):
        square -= multiplier * free.outward[j] * inward[j]  # <q, P^{-1} q>
    size = np.sqrt(square)
    for j in range(rank):
        inward[j] /= size
        along -= free.mean[j] * inward[j]
    multiply(precision, inward, dual)
    return size, along


def choose_proposal(
    mode: Mode,
    region: Region,
    ball: tuple[Array, float] | None,
    rng: np.random.Generator,
    costs_fn: Callable[[Proposal], Array],
) -> Proposal | Corner:
    """Return the proposal for the boundary at x0.

    ``ball`` is x0 - center and the radius of a round domain. Every choice is exact, and
    some use trials on ``rng``. ``costs_fn`` returns the costs of `NUM_TRIAL_PROPOSALS`
    draws of a proposal, from the same ``rng``.
    """
    if ball is not None:
        if mode.multiplier == 0.0:
            return _gaussian(mode, region, ball)
        return _on_sphere(mode, region, ball, rng, costs_fn)
    indices = _near_sides(mode, region)
    if indices.size:
        # Rounding errors may make the sides dependent.
        with suppress(np.linalg.LinAlgError):
            return Corner.from_sides(mode, region, indices)
    return _gaussian(mode, region, None)


def is_gaussian(mode: Mode, region: Region) -> bool:
    """Return whether the proposal off the boundary is the Gaussian itself."""
    return not _near_sides(mode, region).size


def _gaussian(mode: Mode, region: Region, ball: tuple[Array, float] | None) -> Proposal:
    """Return the Gaussian whose energy is Q."""
    mean = -linalg.cho_solve((region.root, True), mode.gradient)
    return _new_gaussian(region.root, mean, ball)


def _new_gaussian(
    root: Array, mean: Array, ball: tuple[Array, float] | None
) -> Proposal:
    """Return a Gaussian in the whole space, or in a ball."""
    zeros = np.zeros(len(mean))
    outward, radius = (zeros, 0.0) if ball is None else ball
    return Proposal(
        root=np.ascontiguousarray(root),
        mean=np.ascontiguousarray(mean),
        has_halfspace=False,
        inward=zeros,
        dual=zeros,
        rate=0.0,
        start=0.0,
        cost_rate=0.0,
        is_in_ball=ball is not None,
        outward=outward,
        depth=radius**2 - float(outward @ outward),
    )


# A `Corner` proposes in Python. Kernels then receive this as their argument of the same
# type, and do not read it.
NONE = _new_gaussian(np.empty((0, 0)), np.empty(0), None)


def _on_sphere(
    mode: Mode,
    region: Region,
    ball: tuple[Array, float],
    rng: np.random.Generator,
    costs_fn: Callable[[Proposal], Array],
) -> Proposal:
    """Return the share's proposal whose costs are accepted most often, by trials."""
    free = _new_gaussian(region.root, -np.asarray(mode.residual), ball)
    best, max_count = free, -1
    for share in SHARES:
        trial = _with_share(free, mode.multiplier, mode.shortfall, share)
        costs = costs_fn(trial)
        count = int(np.count_nonzero(costs <= rng.standard_exponential(len(costs))))
        if count > max_count:
            best, max_count = trial, count
        pauses.notify_listeners()
    return best


def _with_share(
    free: Proposal, multiplier: float, shortfall: float, share: float
) -> Proposal:
    """Return the proposal with a share of the multiplier in its precision."""
    arrays = np.empty(free.root.shape), *np.empty((3, len(free.mean)))
    size, along = jit.call(fill_sphere_proposal, free, multiplier, share, *arrays)
    root, mean, inward, dual = arrays
    return free._replace(
        root=root,
        mean=mean,
        has_halfspace=True,
        inward=inward,
        dual=dual,
        rate=(1.0 - share) * size + along,
        # The halfspace contains the ball although x0 may be off the sphere.
        start=shortfall / size,
        cost_rate=0.5 * share * multiplier,
    )


# Largest relative error that moves along other sides may add to a move along one of
# them. Above it a side is left out. More proposals are outside of the domain then, but
# no digits are lost.
MAX_MIXING = 1e-9


def are_entangled(units: Array) -> bool:
    """Return whether rounding errors mix moves along these unit normals."""
    try:
        factor = linalg.cho_factor(units @ units.T)
    except linalg.LinAlgError:
        return True
    identity = linalg.cho_solve(factor, units) @ units.T
    errors = np.abs(identity - np.eye(len(identity)))
    return not errors.max(initial=0.0) <= MAX_MIXING


def _near_sides(mode: Mode, region: Region) -> Array:
    """Return independent sides that the Gaussian would often cross.

    Active sides are first, then those at smaller distances.
    """
    if not len(mode.sides):
        return np.zeros(0, dtype=np.int64)
    scaled: Array = linalg.solve_triangular(region.root, mode.sides.T, lower=True).T
    sizes = np.linalg.norm(scaled, axis=1)
    units = scaled / sizes[:, None]
    depths: Array = np.where(mode.multipliers > 0.0, -1.0, mode.depths / sizes)
    # A side is part of a corner if the mode is within four standard deviations of it.
    order = np.argsort(depths)[: np.count_nonzero(depths <= 4.0)]
    indices = select_independent(units, depths, order)
    # Entangled sides are rare, and a test of each side takes long.
    if are_entangled(units[indices]):
        indices = select_independent(units, depths, order, tests_entanglement=True)
    return np.array(indices, dtype=np.int64)


def select_independent(
    units: Array,
    depths: Array,
    order: NDArray[np.intp],
    *,
    tests_entanglement: bool = False,
) -> list[int]:
    """Return sides, in this order, that do not depend on earlier ones.

    A side is dependent if its normal's part that is orthogonal to the earlier ones is
    shorter than 1e-3. For active sides, which have negative depths, the limit is 1e-8,
    because without them hardly any proposal is inside.
    """
    indices: list[int] = []
    basis = np.empty((0, units.shape[1]), dtype=np.float64)
    for j in order:
        if len(indices) == units.shape[1]:
            break
        residual = units[j]
        # Gram-Schmidt is repeated for the rounding errors of the first time.
        for _ in range(2):
            residual = residual - basis.T @ (basis @ residual)
        length = float(np.linalg.norm(residual))
        if not (length > 1e-3 or (depths[j] < 0.0 and length > 1e-8)):
            continue
        if not (tests_entanglement and are_entangled(units[[*indices, j]])):
            indices.append(int(j))
            basis = np.vstack([basis, residual / length])
    return indices


@dataclass(frozen=True, kw_only=True, eq=False)
class Corner:
    """Gaussian on A v <= depths, by Theorem D."""

    root: Array  # (m, m): lower Cholesky factor of the precision
    base: Array  # (m,): (I - E A) m + E depths
    back: Array  # (m, r): E
    sides: Array  # (r, m): A
    depths: Array  # (r,)
    slacks: ExponentialOrthant | TiltedOrthant

    @classmethod
    def from_sides(cls, mode: Mode, region: Region, indices: Array) -> Corner:
        """Return the corner of some sides, which are scaled to unit normals."""
        gradient, sides = mode.gradient, mode.sides[indices]
        scaled = linalg.solve_triangular(region.root, sides.T, lower=True)  # (m, r)
        sizes = np.linalg.norm(scaled, axis=0)
        sides, scaled = sides / sizes[:, None], scaled / sizes
        depths = mode.depths[indices] / sizes
        multipliers = mode.multipliers[indices] * sizes
        covariance = scaled.T @ scaled  # G
        shares = linalg.solve(covariance, scaled.T, assume_a="pos").T
        back = linalg.solve_triangular(region.root, shares, lower=True, trans="T")
        middle = -(sides @ linalg.cho_solve((region.root, True), gradient))  # A m
        # (I - E A) m does not depend on the multipliers of these sides. Without them
        # the numbers are small, and keep their digits.
        residual = gradient + multipliers @ sides
        free_mean = -linalg.cho_solve((region.root, True), residual)
        return cls(
            root=region.root,
            base=free_mean + back @ (depths - sides @ free_mean),
            back=back,
            sides=sides,
            depths=depths,
            slacks=new_orthant(covariance, middle - depths),
        )

    def draw(self, rng: np.random.Generator, num_proposals: int) -> Array:
        """Return rows of those proposals whose slacks are accepted."""
        slacks = self.slacks.draw(rng, num_proposals)
        noise = rng.standard_normal((len(slacks), len(self.root)))
        free: Array = linalg.solve_triangular(
            self.root, noise.T, lower=True, trans="T"
        ).T
        # y = (I - E A) free is the part of the Gaussian with A y = 0.
        v = self.base + free - (free @ self.sides.T + slacks) @ self.back.T
        # The first sum has rounding errors of larger terms. This restores the slacks.
        v += (self.depths - v @ self.sides.T - slacks) @ self.back.T
        return np.ascontiguousarray(v)
