# mypy: allow-untyped-defs
"""Metropolis-adjusted mirror Langevin: moves in the dual coordinates of a mirror map.

    grad phi(x') = grad phi(x) - tau grad V(x) + sqrt(2 tau) B(x) z,    B B^T = H(x),

with H the Hessian of phi and z ~ N(0, I), accepted by the Metropolis-Hastings rule for

    q(x, x') = N(grad phi(x'); grad phi(x) - tau grad V(x), 2 tau H(x)) det H(x').

A barrier as phi keeps every proposal inside the domain. Any choice of subgradient
leaves the target invariant. Without the adjustment the law would be biased. The
gradient of the strictly convex phi maps the interior of a body to all of R^m:

==========  ==================================================  =====================
geometry    phi                                                 coordinates
==========  ==================================================  =====================
BOX         -w_i log(x_i - a_i) - w_i log(b_i - x_i), summed    x
BALL        -w log(R^2 - |x - c|^2)                             x
SIMPLEX     w sum x_i log x_i                                   all but the last x_i
POWER       sum (u_i^2 + 1)^(p/2) / (p (p - 1))                 u_i = (x_i - c_i) / s_i
==========  ==================================================  =====================

Vectors have the length of x; on the simplex the last entry of a dual vector is 0.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.numerics.norms import distance
from dpsample.samplers import chain
from dpsample.samplers.chain import (
    PROPOSALS,
    ChainState,
    compile_run,
    new_state,
    retreat_from_boundary,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

BOX, BALL, SIMPLEX, POWER = range(4)
GEOMETRIES = ("auto", "barrier", "entropy", "power")
# Exponents nearer to 1 would leave almost no curvature in the tails.
MIN_EXPONENT = 1.1
MAX_NEWTON = 60
# Points nearer to the boundary than this count as outside: squares stay finite.
TINY = 1e-140


class Map(NamedTuple):
    """A mirror map; unused fields hold harmless values."""

    geometry: int
    weight: Array  # (dim,): w_i, or the scales s_i
    center: Array  # (dim,)
    lower: Array  # (dim,)
    upper: Array  # (dim,)
    radius: float
    p: float


@kernel(counts_references=False)
def slope(mirror, x, out):
    """Fill out with the gradient of phi; False if x is not strictly inside."""
    dim = x.shape[0]
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        room = (mirror.radius - r) * (mirror.radius + r)
        for j in range(dim):
            out[j] = 2.0 * mirror.weight[0] * (x[j] - mirror.center[j]) / room
        return room > TINY
    is_inside = True
    for j in range(dim):
        if mirror.geometry == BOX:
            left, right = x[j] - mirror.lower[j], mirror.upper[j] - x[j]
            is_inside = is_inside and left > TINY and right > TINY
            out[j] = mirror.weight[j] * (1.0 / right - 1.0 / left)
        elif mirror.geometry == SIMPLEX:
            is_inside = is_inside and x[j] > TINY and x[dim - 1] > TINY
            if is_inside:
                out[j] = mirror.weight[0] * (math.log(x[j]) - math.log(x[dim - 1]))
        else:
            u = (x[j] - mirror.center[j]) / mirror.weight[j]
            out[j] = u * (u * u + 1.0) ** (0.5 * mirror.p - 1.0)
            out[j] /= (mirror.p - 1.0) * mirror.weight[j]
    return is_inside


@kernel(counts_references=False)
def root(size, p):
    """Solve u (u^2 + 1)^(p/2 - 1) = size > 0, by Newton's method in log u.

    The logarithm of the left side is concave in log u and below log u, so the
    iteration increases from log(size) to the root.
    """
    goal = math.log(size)
    t = goal
    for _ in range(MAX_NEWTON):
        tail = math.exp(-2.0 * abs(t))
        value = t + (0.5 * p - 1.0) * (2.0 * max(t, 0.0) + math.log1p(tail))
        rate = 1.0 + (p - 2.0) * (1.0 if t > 0.0 else tail) / (1.0 + tail)
        move = (goal - value) / rate
        t += move
        if not abs(move) > 1e-15 * (1.0 + abs(t)):
            break
    return math.exp(t)


@kernel(counts_references=False)
def inverse(mirror, y, out):
    """Fill out with the point whose gradient is y; entries of y may be infinite."""
    dim = y.shape[0]
    if mirror.geometry == SIMPLEX:
        largest, total = -np.inf, 0.0
        for j in range(dim):
            largest = max(largest, y[j])
        for j in range(dim):
            out[j] = math.exp((y[j] - largest) / mirror.weight[0])
            total += out[j]
        for j in range(dim):
            out[j] /= total
        return
    size = 0.0
    for j in range(dim):
        size += (y[j] / mirror.weight[j]) ** 2
    for j in range(dim):
        v = y[j] / mirror.weight[j]
        if mirror.geometry == POWER:
            v = (mirror.p - 1.0) * y[j] * mirror.weight[j]
            u = math.copysign(root(abs(v), mirror.p), v) if v != 0.0 else 0.0
            out[j] = mirror.center[j] + mirror.weight[j] * u
        elif mirror.geometry == BALL:
            scaled = mirror.radius * mirror.radius
            scaled /= 1.0 + math.sqrt(1.0 + size * mirror.radius * mirror.radius)
            out[j] = mirror.center[j] + v * scaled
        else:
            half = 0.5 * (mirror.upper[j] - mirror.lower[j])
            middle = 0.5 * (mirror.upper[j] + mirror.lower[j])
            out[j] = middle + v * half * half / (1.0 + math.hypot(1.0, v * half))


@kernel(counts_references=False)
def curvature(mirror, x, j):
    """Entry j of the Hessian's diagonal part."""
    if mirror.geometry == BOX:
        left, right = x[j] - mirror.lower[j], mirror.upper[j] - x[j]
        return mirror.weight[j] * (1.0 / (left * left) + 1.0 / (right * right))
    if mirror.geometry == SIMPLEX:
        return mirror.weight[0] / x[j]
    u = (x[j] - mirror.center[j]) / mirror.weight[j]
    square = u * u + 1.0
    value = square ** (0.5 * mirror.p - 2.0) * (1.0 + (mirror.p - 1.0) * u * u)
    return value / ((mirror.p - 1.0) * mirror.weight[j] ** 2)


@kernel(counts_references=False)
def dual_noise(mirror, x, z, out):
    """Fill out with B z, B B^T the Hessian at x, for a vector z of dim normals."""
    dim = x.shape[0]
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        room = (mirror.radius - r) * (mirror.radius + r)
        across = math.sqrt(2.0 * mirror.weight[0] / room)
        along, rise = 0.0, across * math.sqrt(1.0 + 2.0 * r * r / room) - across
        for j in range(dim):
            along += (x[j] - mirror.center[j]) * z[j]
        for j in range(dim):
            out[j] = across * z[j]
            if r > 0.0:
                out[j] += rise * (along / r) * ((x[j] - mirror.center[j]) / r)
        return
    for j in range(dim):
        out[j] = math.sqrt(curvature(mirror, x, j)) * z[j]
    if mirror.geometry == SIMPLEX:
        shared = out[dim - 1]
        for j in range(dim):
            out[j] -= shared


@kernel(counts_references=False)
def log_det(mirror, x):
    """Log determinant of the Hessian, without constants of the simplex."""
    dim, total = x.shape[0], 0.0
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        square = mirror.radius * mirror.radius
        room = (mirror.radius - r) * (mirror.radius + r)
        total = dim * math.log(2.0 * mirror.weight[0] / room)
        return total + math.log((square + r * r) / room)
    for j in range(dim):
        total += math.log(curvature(mirror, x, j))
    return total


@kernel(counts_references=False)
def inverse_form(mirror, x, v):
    """v^T H^{-1} v."""
    dim, total, along = x.shape[0], 0.0, 0.0
    if mirror.geometry == BALL:
        r = distance(x, mirror.center, 2.0)
        room = (mirror.radius - r) * (mirror.radius + r)
        for j in range(dim):
            total += v[j] * v[j]
            along += (x[j] - mirror.center[j]) * v[j]
        total -= 2.0 * along * along / (mirror.radius * mirror.radius + r * r)
        return 0.5 * room / mirror.weight[0] * total
    if mirror.geometry == SIMPLEX:
        for j in range(dim):
            along += x[j] * v[j]
        for j in range(dim):
            total += x[j] * (v[j] - along) ** 2
        return total / mirror.weight[0]
    for j in range(dim):
        total += v[j] * v[j] / curvature(mirror, x, j)
    return total


@by_address
class MirrorPlan(NamedTuple):
    """Step and mirror map."""

    step: float
    mirror: Map


@kernel(counts_references=False)
def reduce(mirror, gradient):
    """Replace a gradient by the derivatives along the coordinates of the map."""
    if mirror.geometry == SIMPLEX:
        last = gradient[gradient.shape[0] - 1]
        for j in range(gradient.shape[0]):
            gradient[j] -= last


@kernel(counts_references=False)
def log_proposal(plan, origin, slope_there, theta, here, there):
    """Log density, up to a constant, of proposing theta from origin."""
    slope(plan.mirror, origin, here)
    slope(plan.mirror, theta, there)
    for j in range(theta.shape[0]):
        there[j] += plan.step * slope_there[j] - here[j]
    square = inverse_form(plan.mirror, origin, there) / (4.0 * plan.step)
    spread = 0.5 * log_det(plan.mirror, origin)
    return log_det(plan.mirror, theta) - spread - square


@kernel(counts_references=False)
def propose(plan, origin, slope_there, rng, noise, dual, out):
    """Fill out with a proposal from origin; False if it is numerically outside."""
    chain.fill_with_normals(rng, out)
    dual_noise(plan.mirror, origin, out, noise)
    slope(plan.mirror, origin, dual)
    scale = math.sqrt(2.0 * plan.step)
    for j in range(out.shape[0]):
        dual[j] += scale * noise[j] - plan.step * slope_there[j]
    inverse(plan.mirror, dual, out)
    return slope(plan.mirror, out, dual)


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test; the state's memory is the gradient."""
    gradient, proposal, new_gradient = state.memory, state.scratch[0], state.scratch[1]
    here, there = state.scratch[2], state.scratch[3]
    state.counts[PROPOSALS] += 1
    is_inside = propose(plan, state.position, gradient, rng, here, there, proposal)
    threshold = -rng.standard_exponential()
    status = gibbs.inside(target, pieces, proposal, state.work)
    if status == 0.0 or not is_inside:
        return OK
    if np.isnan(status):
        return FUNCTION_FAILED
    energy = chain.evaluate_gradient(target, pieces, state, proposal, new_gradient)
    reduce(plan.mirror, new_gradient)
    log_ratio = state.energy[0] - energy
    log_ratio += log_proposal(plan, proposal, new_gradient, state.position, here, there)
    log_ratio -= log_proposal(plan, state.position, gradient, proposal, here, there)
    return chain.decide_with_gradient(
        state, proposal, energy, new_gradient, log_ratio, threshold
    )


run = compile_run(step)


def init(target: Gibbs, plan: MirrorPlan, position: Array) -> ChainState:
    """Fresh state at a position, moved off the boundary if it is there."""
    point, scratch = np.array(position, dtype=np.float64), np.empty(target.dim)
    if not slope(plan.mirror, point, scratch):
        point = retreat_from_boundary(target, point)
    gradient = target.gradient(point)
    reduce(plan.mirror, gradient)
    return new_state(target, point, memory=gradient, rows=4)


def geometry_of(target: Gibbs, wanted: str) -> int | None:
    """Map for the domain, or None if there is none of the wanted kind."""
    domain = target.problem.domain
    if domain.is_simplex:
        return SIMPLEX if wanted in ("auto", "entropy") else None
    if wanted == "entropy":
        return None
    if wanted != "power":
        if domain.is_box:
            return BOX
        if domain.is_euclidean_ball:
            return BALL
    return None if wanted == "barrier" else POWER


def mirror_map(target: Gibbs, geometry: int, gaussian: GaussianFit) -> Map:
    """Map whose Hessian at the fit's center has about the fit's scales."""
    body, center = target.numbers.body, gaussian.center
    deviations = np.sqrt(np.einsum("ij,ij->i", gaussian.factor, gaussian.factor))
    exponent = float(np.clip(target.numbers.regularizer.exponent, MIN_EXPONENT, 2.0))
    unit = Map(
        geometry=geometry,
        weight=np.ones(target.dim),
        center=body.center,
        lower=body.lower,
        upper=body.upper,
        radius=body.radius,
        p=exponent,
    )
    if geometry == POWER:
        return unit._replace(weight=deviations, center=center)
    if geometry == BALL:
        room = body.radius**2 - np.sum((center - body.center) ** 2)
        ratios = np.full(target.dim, 0.5 * room) / deviations**2
    elif geometry == SIMPLEX:
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

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether the domain has a map of the geometry."""
        if geometry_of(target, self.geometry) is not None:
            return True, ""
        kind = target.problem.domain.name
        return False, (
            f'The domain "{kind}" has no mirror map "{self.geometry}": '
            'use geometry="auto".'
        )

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        geometry = cast(int, geometry_of(target, self.geometry))
        dim = target.problem.domain.affine_dim(target.dim)
        return TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=lambda gaussian, step: MirrorPlan(
                float(step), mirror_map(target, geometry, gaussian)
            ),
            rate=0.57,
            first_step=dim ** (-1.0 / 3.0),
        )
