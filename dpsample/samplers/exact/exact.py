# mypy: allow-untyped-defs
r"""Independent exact draws: quadratic energies, and bodies of dimension up to 3.

If V is quadratic, the target is a Gaussian restricted to the domain. It is drawn in the
whole space, in a box or in a ball. If the loss is linear and the regularizer has no
weight, the target is a product of truncated exponentials in a box, or an exponential in
a ball. In dimension up to 3, draws are made by rejection from a piecewise tangent
envelope of e^{-V} (`grid_cells`), for every convex loss and domain.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.domains import Domain
from dpsample.numerics.vectors import copy_into, multiply
from dpsample.problem.facts import PublicFacts
from dpsample.problem.records import curvature_matrix
from dpsample.regularizers import Regularizer
from dpsample.samplers.chain import (
    COUNT,
    ROW,
    PreparedChain,
    compile_run,
    fill_with_normals,
    init,
)
from dpsample.samplers.errors import DRAW_FAILED, EXHAUSTED, FUNCTION_FAILED, OK
from dpsample.samplers.exact import grid_cells
from dpsample.samplers.gaussian_fit import fit
from dpsample.samplers.metropolis.ball_walk import uniform_in_ball
from dpsample.samplers.proximal.ball_gaussian import (
    gaussian_in_ball,
    gaussian_in_box,
    tilted_in_ball,
)
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs

# Largest dimension of the domain's affine hull in which cells are used. The number of
# cells grows exponentially with it.
MAX_DIM = 3


class EnergyKind(NamedTuple):
    """Kinds of quadratic energies, and of energies without curvature."""

    whole: int = 0  # whole space, covariance a multiple of I
    correlated: int = 1  # whole space, any covariance
    in_box: int = 2  # Gaussian in a box
    in_ball: int = 3  # Gaussian in a ball
    tilted_box: int = 4  # linear energy in a box
    uniform_ball: int = 5  # constant energy in a ball
    tilted_ball: int = 6  # linear energy in a ball


KIND = EnergyKind()
# Maximum number of draws, one after the other, that rounding errors may put outside.
MAX_PROPOSALS = 1000
UNSUPPORTED = (
    f"Exact draws need dimension <= {MAX_DIM}, or a quadratic energy on the whole "
    "space, a box or a Euclidean ball: use dps.samplers.Proximal."
)


@dataclass(frozen=True, kw_only=True)
class Exact(Sampler):
    r"""Independent exact draws, for targets that allow them.

    All targets on a domain whose affine hull has dimension 1, 2 or 3 are supported. In
    any dimension, so are linear losses with a regularizer
    :math:`\frac{c}{2} \lVert x - x_0 \rVert_2^2` on the whole space, a box or a
    Euclidean ball. On the last two the regularizer may have no weight. The squared loss
    with such a regularizer is supported on the whole space.

    Notes
    -----
    **Guarantee.** Draws are independent and follow the target exactly, up to rounding
    errors, if the energy is convex. A tangent above the energy raises an error.

    Examples
    --------
    >>> from dpsample.samplers import Exact
    >>> Exact().exactness
    'iid'
    """

    exactness: ClassVar[Exactness] = "iid"

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether the target is of a supported kind, and if not, why."""
        rank = target.domain.affine_dim(target.dim)
        if rank <= MAX_DIM or quadratic(target) is not None:
            return True, ""
        return False, UNSUPPORTED

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Build the envelope."""
        del rng  # there is no pilot run
        self.require(target)
        chain = partial(PreparedChain, target=target, init_fn=init, num_warmup=0)
        plan = quadratic(target)
        if plan is not None:
            start = target.domain.interior_point(target.dim)
            return chain(plan=plan, run=run, start=start)
        shape = fit(target)
        cells = grid_cells.build(target, shape)
        return chain(
            plan=cells,
            run=grid_cells.run,
            init_fn=grid_cells.init,
            start=shape.center,
            settings={"num_cells": len(cells.base)},
            scatter=shape.factor,
        )


class Quadratic(NamedTuple):
    """V(x) = level + <slope, x - center> + strength / 2 ||x - center||^2 on a body."""

    kind: int
    level: float
    strength: float
    center: Array  # (dim,)
    slope: Array  # (dim,)
    mean: Array  # (dim,): point of gradient 0, or lowest point of a tilted ball
    deviations: Array  # (dim,)
    factor: Array  # (dim, dim): factor of the covariance if it is correlated, or (0, 0)
    lower: Array
    upper: Array
    middle: Array  # (dim,): center of the ball
    radius: float
    tilt: float  # rise of V along a radius of a tilted ball


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def draw(plan, rng, noise, out):
    """Fill out with one draw, or with NaN if that fails."""
    dim = out.shape[0]
    if plan.kind == KIND.in_box:
        gaussian_in_box(rng, plan.mean, plan.deviations, plan.lower, plan.upper, out)
    elif plan.kind == KIND.in_ball:
        deviation = plan.deviations[0]
        gaussian_in_ball(rng, plan.mean, deviation, plan.middle, plan.radius, out)
    elif plan.kind == KIND.tilted_box:
        for j in range(dim):
            low, high = plan.lower[j], plan.upper[j]
            out[j] = grid_cells.draw_along(rng, plan.slope[j], low, high)
    elif plan.kind == KIND.tilted_ball:
        tilted_in_ball(rng, plan.tilt, plan.mean, plan.middle, plan.radius, out)
    elif plan.kind == KIND.uniform_ball:
        uniform_in_ball(rng, out)
        for j in range(dim):
            out[j] = plan.middle[j] + plan.radius * out[j]
    else:
        fill_with_normals(rng, noise)
        if plan.kind == KIND.correlated:
            multiply(plan.factor, noise, out)
        for j in range(dim):
            # A correlated draw is mean + L z with L = ``factor``.
            move = (
                out[j]
                if plan.kind == KIND.correlated
                else plan.deviations[j] * noise[j]
            )
            out[j] = plan.mean[j] + move


@kernel(counts_references=False)
def energy(plan, noise, theta):
    """Return V at a draw, by the formula of `Quadratic`. No record is read."""
    total = plan.level
    for j in range(theta.shape[0]):
        # A correlated draw is mean + L z, and there V = level + |z|^2 / 2.
        if plan.kind == KIND.correlated:
            total += 0.5 * noise[j] * noise[j]
        else:
            move = theta[j] - plan.center[j]
            total += (plan.slope[j] + 0.5 * plan.strength * move) * move
    return total


def step(target, pieces, plan, state, rng):
    """Draw independently, again if rounding errors put the draw outside the domain."""
    noise, proposal = state.vectors[ROW.noise], state.vectors[ROW.proposal]
    for _ in range(MAX_PROPOSALS):
        draw(plan, rng, noise, proposal)
        state.counts[COUNT.proposals] += 1
        value = energy(plan, noise, proposal)
        if np.isnan(value):
            return DRAW_FAILED
        # 1 inside, 0 outside, NaN if the domain's function failed.
        status = gibbs_target.inside(target, pieces, proposal, state.work)
        if np.isnan(status):
            return FUNCTION_FAILED
        if status == 1.0:
            copy_into(proposal, state.position)
            state.energy[0] = value
            state.counts[COUNT.accepted] += 1
            return OK
    return EXHAUSTED


run = compile_run(step)


def quadratic(target: Gibbs) -> Quadratic | None:
    """Return the plan, or None unless energy and domain are of a supported kind."""
    facts, params = target.problem.facts, target.numbers.regularizer
    is_round = params.exponent == 2.0 and len(params.weights) == 0
    if not is_round and target.mu > 0.0:
        return None
    if facts.loss.name == "squared" and facts.domain.is_whole_space:
        return _correlated_gaussian(target)
    return _isotropic_plan(target) if facts.loss.name == "linear" else None


def explain_unsupported(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why public facts allow no exact draw with mu > 0, or "" if they do."""
    loss, domain, dim = facts.loss.name, facts.domain, facts.dim
    params = regularizer.params(dim, facts.center)
    is_round = params.exponent == 2.0 and len(params.weights) == 0
    is_drawn = loss == "linear" and _kind(domain, dim, is_weighted=True) is not None
    is_drawn = is_drawn or (loss, domain.name) == ("squared", "whole_space")
    is_small = domain.affine_dim(dim) <= MAX_DIM
    return "" if is_small or (is_round and is_drawn) else UNSUPPORTED


def _isotropic_plan(target: Gibbs) -> Quadratic | None:
    """Return the plan of a linear loss, or None if the domain allows no exact draw."""
    numbers, body = target.numbers, target.numbers.body
    center = numbers.regularizer.center
    strength = target.k * target.mu * numbers.regularizer.scale
    slope = target.gradient(center)
    is_tilted = bool(slope.any())
    domain, is_weighted = target.domain, strength > 0.0
    kind = _kind(domain, target.dim, is_weighted=is_weighted, is_tilted=is_tilted)
    if kind is None:
        return None
    # The inverse square root of the Gaussian's precision.
    spread = 1.0 / np.sqrt(strength) if strength > 0.0 else np.inf
    mean, tilt = center, 0.0
    if strength > 0.0:
        # The minimum of a square with this gradient at the center.
        mean = center - slope / strength
    elif kind == KIND.tilted_ball:
        # The slope is scaled first, because its squares may overflow.
        largest = float(np.abs(slope).max())
        size = float(np.linalg.norm(slope / largest))
        # e^{-V} is largest at the end of the radius against the slope. Along it V rises
        # by the slope's length times the radius.
        mean = body.center - body.radius * (slope / largest / size)
        tilt = largest * size * body.radius
    return Quadratic(
        kind=kind,
        level=target.energy(center),
        strength=strength,
        center=center,
        slope=slope,
        mean=mean,
        deviations=np.full(target.dim, spread),
        factor=np.zeros((0, 0)),
        lower=body.lower,
        upper=body.upper,
        middle=body.center,
        radius=body.radius,
        tilt=tilt,
    )


def _kind(
    domain: Domain, dim: int, *, is_weighted: bool, is_tilted: bool = True
) -> int | None:
    """Return the kind of the exact draw on the domain, or None without one."""
    if domain.is_whole_space:
        return KIND.whole
    # In one dimension all l_p balls are intervals.
    is_interval = domain.lp_exponent is not None and dim == 1
    if domain.is_box or is_interval:
        return KIND.in_box if is_weighted else KIND.tilted_box
    if domain.is_euclidean_ball:
        if is_weighted:
            return KIND.in_ball
        return KIND.tilted_ball if is_tilted else KIND.uniform_ball
    return None


def _correlated_gaussian(target: Gibbs) -> Quadratic:
    """Return the Gaussian whose precision is the Hessian of the squared loss."""
    data, dim = target.data, target.dim
    strength = target.mu * target.numbers.regularizer.scale
    # L of the lower Cholesky factor, k times the Hessian = root root^T. Then root^{-T}
    # z has the inverse as its covariance.
    hessian = curvature_matrix(data, np.ones(data.num_records)) + strength * np.eye(dim)
    root = np.linalg.cholesky(target.k * hessian)
    mean = target.numbers.regularizer.center
    # One step leads to the mean. The second one corrects rounding errors of the first.
    for _ in range(2):
        move = np.linalg.solve(root, target.gradient(mean))
        mean = mean - np.linalg.solve(root.T, move)
    return Quadratic(
        kind=KIND.correlated,
        level=target.energy(mean),
        strength=target.k * strength,
        center=mean,
        slope=np.zeros(dim),
        mean=mean,
        deviations=np.ones(dim),
        factor=np.ascontiguousarray(np.linalg.inv(root.T)),
        lower=np.full(dim, -np.inf),
        upper=np.full(dim, np.inf),
        middle=mean,
        radius=np.inf,
        tilt=0.0,
    )
