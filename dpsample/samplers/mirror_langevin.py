r"""Metropolis-adjusted mirror Langevin: moves in the dual coordinates of a mirror map.

    grad phi(x') = grad phi(x) - tau grad V(x) + sqrt(2 tau) B(x) z,    B B^T = H(x),

with H the Hessian of phi and z ~ N(0, I), accepted by the Metropolis-Hastings rule for

    q(x, x') = N(grad phi(x'); grad phi(x) - tau grad V(x), 2 tau H(x)) det H(x').

A barrier as phi keeps every proposal inside the domain. Any choice of subgradient
leaves the target invariant. Without the adjustment the law would be biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import targets
from dpsample._jit import kernel
from dpsample.samplers import mirror_maps as maps
from dpsample.samplers import moves, tune
from dpsample.samplers.chain import (
    PROPOSALS,
    Prepared,
    compile_run,
    new_state,
)
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.sampler import TunedSampler

Array = NDArray[np.float64]

GEOMETRIES = ("auto", "barrier", "entropy", "power")
# Share of the way to an interior point for a start on the boundary.
RETREAT = 1e-3
# Exponents nearer to 1 would leave almost no curvature in the tails.
MIN_EXPONENT = 1.1


class Plan(NamedTuple):
    """Step and mirror map."""

    step: float
    mirror: maps.Map


@kernel
def reduce(mirror, gradient):
    """Replace a gradient by the derivatives along the coordinates of the map."""
    if mirror.geometry == maps.SIMPLEX:
        last = gradient[gradient.shape[0] - 1]
        for j in range(gradient.shape[0]):
            gradient[j] -= last


@kernel
def log_proposal(plan, origin, slope_there, theta, here, there):
    """Log density, up to a constant, of proposing theta from origin."""
    maps.slope(plan.mirror, origin, here)
    maps.slope(plan.mirror, theta, there)
    for j in range(theta.shape[0]):
        there[j] += plan.step * slope_there[j] - here[j]
    square = maps.inverse_form(plan.mirror, origin, there) / (4.0 * plan.step)
    spread = 0.5 * maps.log_det(plan.mirror, origin)
    return maps.log_det(plan.mirror, theta) - spread - square


@kernel
def propose(plan, origin, slope_there, rng, noise, dual, out):
    """Fill out with a proposal from origin; False if it is numerically outside."""
    moves.normal_noise(rng, out)
    maps.noise(plan.mirror, origin, out, noise)
    maps.slope(plan.mirror, origin, dual)
    scale = math.sqrt(2.0 * plan.step)
    for j in range(out.shape[0]):
        dual[j] += scale * noise[j] - plan.step * slope_there[j]
    maps.inverse(plan.mirror, dual, out)
    return maps.slope(plan.mirror, out, dual)


def step(target, pieces, plan, state, rng):
    """One proposal and its coin; the state's memory is the gradient."""
    gradient, proposal, new_gradient = state.memory, state.scratch[0], state.scratch[1]
    here, there = state.scratch[2], state.scratch[3]
    state.counts[PROPOSALS] += 1
    is_inside = propose(plan, state.position, gradient, rng, here, there, proposal)
    threshold = -rng.standard_exponential()
    status = targets.inside(target, pieces, proposal, state.work)
    if status == 0.0 or not is_inside:
        return OK
    if np.isnan(status):
        return PIECE_FAILED
    energy = moves.slope(target, pieces, state, proposal, new_gradient)
    reduce(plan.mirror, new_gradient)
    log_ratio = state.energy[0] - energy
    log_ratio += log_proposal(plan, proposal, new_gradient, state.position, here, there)
    log_ratio -= log_proposal(plan, state.position, gradient, proposal, here, there)
    return moves.settle_slope(
        state, proposal, energy, new_gradient, log_ratio, threshold
    )


run = compile_run(step)


def init(target: Any, plan: Any, position: Array) -> Any:
    """Fresh state at a position, moved off the boundary if it is there."""
    point, scratch = np.array(position, dtype=np.float64), np.empty(target.dim)
    if not maps.slope(plan.mirror, point, scratch):
        point += RETREAT * (target.problem.domain.interior_point(target.dim) - point)
    gradient = target.gradient(point)
    reduce(plan.mirror, gradient)
    return new_state(target, point, memory=gradient, rows=4)


def geometry_of(target: Any, wanted: str) -> int | None:
    """Map for the domain, or None if there is none of the wanted kind."""
    domain = target.problem.domain
    is_ball = domain.name in ("ball", "schatten_ball")
    if domain.name == "simplex":
        return maps.SIMPLEX if wanted in ("auto", "entropy") else None
    if wanted == "entropy":
        return None
    if wanted != "power":
        if domain.name == "box" or (domain.name == "ball" and domain.p == np.inf):
            return maps.BOX
        if is_ball and domain.p == 2.0:
            return maps.BALL
    return None if wanted == "barrier" else maps.POWER


def mirror_map(target: Any, geometry: int, found: GaussianFit) -> maps.Map:
    """Map whose Hessian at the fit's center has about the fit's scales."""
    body, center = target.numbers.body, found.center
    deviations = np.sqrt(np.einsum("ij,ij->i", found.factor, found.factor))
    exponent = float(np.clip(target.numbers.regularizer.exponent, MIN_EXPONENT, 2.0))
    unit = maps.Map(
        geometry=geometry,
        weight=np.ones(target.dim),
        center=body.center,
        lower=body.lower,
        upper=body.upper,
        radius=body.radius,
        p=exponent,
    )
    if geometry == maps.POWER:
        return unit._replace(weight=deviations, center=center)
    if geometry == maps.BALL:
        room = body.radius**2 - np.sum((center - body.center) ** 2)
        ratios = np.full(target.dim, 0.5 * room) / deviations**2
    elif geometry == maps.SIMPLEX:
        ratios = center / deviations**2
    else:
        # A face nearer than the spread says where the pilot was, not where draws are.
        left = np.maximum(center - body.lower, deviations)
        right = np.maximum(body.upper - center, deviations)
        return unit._replace(weight=1.0 / (deviations**2 * (left**-2 + right**-2)))
    return unit._replace(weight=np.full(target.dim, np.mean(ratios)))


@dataclass(frozen=True, kw_only=True)
class MirrorLangevin(TunedSampler):
    """Metropolis-adjusted mirror Langevin algorithm.

    Parameters
    ----------
    step_size : float, optional
        Step tau in units of the fitted scales; by default a pilot run finds the one
        with acceptance 0.57.
    num_steps : int
        Steps per draw.
    geometry : {"auto", "barrier", "entropy", "power"}
        Mirror map: logarithmic barrier of a box or Euclidean ball, entropy on the
        simplex, or smoothed p-th powers with the exponent of the regularizer, whose
        proposals outside the domain are rejected. "auto" takes the first that fits.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible, for any
    map, step and choice of subgradient.

    Examples
    --------
    >>> from dpsample.samplers import MirrorLangevin
    >>> MirrorLangevin(geometry="power").geometry
    'power'
    """

    geometry: str = "auto"

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check.one_of(GEOMETRIES, geometry=self.geometry)

    def _supports(self, target: Any) -> tuple[bool, str]:
        """Whether the domain has a map of the geometry."""
        if geometry_of(target, self.geometry) is not None:
            return True, ""
        kind = target.problem.domain.name
        return False, (
            f'The domain "{kind}" has no mirror map "{self.geometry}": '
            'use geometry="auto".'
        )

    def prepare(self, target: Any, rng: np.random.Generator) -> Prepared:
        """Choose the map, scale it by the fit, and find the step."""
        self.require(target)
        geometry: Any = geometry_of(target, self.geometry)
        dim = target.problem.domain.affine_dim(target.dim)
        recipe = tune.Recipe(
            run=run,
            init_fn=init,
            plan_fn=lambda found, step: Plan(
                float(step), mirror_map(target, geometry, found)
            ),
            rate=0.57,
            first_step=dim ** (-1.0 / 3.0),
            num_steps=self.num_steps,
        )
        return tune.prepare(target, rng, recipe, step=self.step_size)
