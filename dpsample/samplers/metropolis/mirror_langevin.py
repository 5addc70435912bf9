# mypy: allow-untyped-defs
"""Metropolis-adjusted mirror Langevin: moves in the dual coordinates of a mirror map.

    grad phi(x') = grad phi(x) - tau grad V(x) + sqrt(2 tau) B(x) z,    B B^T = H(x),

with H the Hessian of phi, tau the step and z ~ N(0, I), accepted by the
Metropolis-Hastings rule for the density of proposals

    q(x, x') = N(grad phi(x'); grad phi(x) - tau grad V(x), 2 tau H(x)) det H(x').

The *dual* of a point x is grad phi(x). Because phi is strictly convex, each point has
another dual. If phi is a barrier, all vectors are duals of points inside the domain, so
that no proposal is outside. The target is invariant for any choice of subgradient.
Without the accept test the distribution would be biased. The mirror maps phi are:

==========  ==================================================  =====================
geometry    phi                                                 coordinates
==========  ==================================================  =====================
box         -w_i log(x_i - a_i) - w_i log(b_i - x_i), summed    x
ball        -w log(R^2 - |x - c|^2)                             x
simplex     w sum x_i log x_i                                   all but the last x_i
power       sum (u_i^2 + 1)^(p/2) / (p (p - 1))                 u_i = (x_i - c_i) / s_i
==========  ==================================================  =====================

The box is a_i <= x_i <= b_i, and the ball has the radius R about c. The weights w and
scales s are fitted to the target. All vectors have the length of x. The coordinates of
the simplex are one fewer, so there the last entry of a dual vector is 0.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.numerics.norms import distance
from dpsample.samplers import chain
from dpsample.samplers.chain import (
    COUNT,
    ChainState,
    compile_run,
    new_state,
    retreat_from_boundary,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs_target import GibbsTarget


class MirrorGeometry(NamedTuple):
    """Codes of the mirror maps in the table above."""

    box: int = 0
    ball: int = 1
    simplex: int = 2
    power: int = 3


GEOMETRY = MirrorGeometry()
# Points that are closer to the boundary are treated as outside, so that squares of
# reciprocal distances are finite.
MIN_SLACK = 1e-140


class MirrorLangevinVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    proposal: int = 0
    new_gradient: int = 1
    dual: int = 2
    new_dual: int = 3


ROW = MirrorLangevinVectorRow()


class Map(NamedTuple):
    """A mirror map. Fields that its geometry does not use hold harmless values."""

    geometry: int  # code in `MirrorGeometry`
    weight: Array  # (dim,): w_i, or the scales s_i of the power map
    center: Array  # (dim,)
    lower: Array  # (dim,)
    upper: Array  # (dim,)
    radius: float
    p: float


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def map_to_dual(mirror, x, out):
    """Fill out with the gradient of phi, and return whether x is strictly inside."""
    dim = x.shape[0]
    if mirror.geometry == GEOMETRY.ball:
        r = distance(x, mirror.center, 2.0)
        # R^2 - r^2 as a product, which does not cancel near the boundary.
        squared_slack = (mirror.radius - r) * (mirror.radius + r)
        for j in range(dim):
            out[j] = 2.0 * mirror.weight[0] * (x[j] - mirror.center[j]) / squared_slack
        return squared_slack > MIN_SLACK
    is_inside = True
    for j in range(dim):
        if mirror.geometry == GEOMETRY.box:
            left, right = x[j] - mirror.lower[j], mirror.upper[j] - x[j]
            is_inside = is_inside and left > MIN_SLACK and right > MIN_SLACK
            out[j] = mirror.weight[j] * (1.0 / right - 1.0 / left)
        elif mirror.geometry == GEOMETRY.simplex:
            is_inside = is_inside and x[j] > MIN_SLACK and x[dim - 1] > MIN_SLACK
            if is_inside:
                out[j] = mirror.weight[0] * (math.log(x[j]) - math.log(x[dim - 1]))
        else:
            # The derivative of phi in x_j, with u = (x_j - c_j) / s_j.
            u = (x[j] - mirror.center[j]) / mirror.weight[j]
            out[j] = u * (u * u + 1.0) ** (0.5 * mirror.p - 1.0)
            out[j] /= (mirror.p - 1.0) * mirror.weight[j]
    return is_inside


@kernel(counts_references=False)
def solve_power(size, p):
    """Solve u (u^2 + 1)^(p/2 - 1) = size > 0, by Newton's method for t = log u.

    The logarithm of the left side is concave in t and at most t, so the iteration
    increases from log(size) to the root.
    """
    log_size = math.log(size)
    t = log_size
    for _ in range(60):
        # log(u^2 + 1) = 2 max(t, 0) + log(1 + e^(-2 |t|)) cannot overflow.
        tail = math.exp(-2.0 * abs(t))
        value = t + (0.5 * p - 1.0) * (2.0 * max(t, 0.0) + math.log1p(tail))
        rate = 1.0 + (p - 2.0) * (1.0 if t > 0.0 else tail) / (1.0 + tail)
        change = (log_size - value) / rate
        t += change
        if not abs(change) > 1e-15 * (1.0 + abs(t)):
            break
    return math.exp(t)


@kernel(counts_references=False)
def map_from_dual(mirror, y, out):
    """Fill out with the point of a dual vector y, whose entries may be infinite."""
    dim = y.shape[0]
    if mirror.geometry == GEOMETRY.simplex:
        largest, total = -np.inf, 0.0
        for j in range(dim):
            largest = max(largest, y[j])
        # Subtracting the largest entry changes no quotient, and nothing overflows.
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
        if mirror.geometry == GEOMETRY.power:
            v = (mirror.p - 1.0) * y[j] * mirror.weight[j]
            u = math.copysign(solve_power(abs(v), mirror.p), v) if v != 0.0 else 0.0
            out[j] = mirror.center[j] + mirror.weight[j] * u
        elif mirror.geometry == GEOMETRY.ball:
            # The root of v = 2 u / (R^2 - |u|^2) for u = x - c, in a form that does not
            # cancel.
            scaled = mirror.radius * mirror.radius
            scaled /= 1.0 + math.sqrt(1.0 + size * mirror.radius * mirror.radius)
            out[j] = mirror.center[j] + v * scaled
        else:
            # The root of v = 2 s / (half^2 - s^2) in the box, for s = x - middle.
            half = 0.5 * (mirror.upper[j] - mirror.lower[j])
            middle = 0.5 * (mirror.upper[j] + mirror.lower[j])
            out[j] = middle + v * half * half / (1.0 + math.hypot(1.0, v * half))


@kernel(counts_references=False)
def hessian_entry(mirror, x, j):
    """Return entry j of the Hessian's diagonal, except for the ball.

    The Hessian of the simplex has the entry of the last coordinate added everywhere.
    """
    if mirror.geometry == GEOMETRY.box:
        left, right = x[j] - mirror.lower[j], mirror.upper[j] - x[j]
        return mirror.weight[j] * (1.0 / (left * left) + 1.0 / (right * right))
    if mirror.geometry == GEOMETRY.simplex:
        return mirror.weight[0] / x[j]
    u = (x[j] - mirror.center[j]) / mirror.weight[j]
    square = u * u + 1.0
    value = square ** (0.5 * mirror.p - 2.0) * (1.0 + (mirror.p - 1.0) * u * u)
    return value / ((mirror.p - 1.0) * mirror.weight[j] ** 2)


@kernel(counts_references=False)
def multiply_hessian_root(mirror, x, z, out):
    """Fill out with B z, where B B^T is the Hessian at x, for dim numbers z."""
    dim = x.shape[0]
    if mirror.geometry == GEOMETRY.ball:
        # H = (2 w / slack) (I + 2 / slack (x - c)(x - c)^T), slack = R^2 - |x - c|^2.
        # So B multiplies the radial part of z by more than the rest.
        r = distance(x, mirror.center, 2.0)
        squared_slack = (mirror.radius - r) * (mirror.radius + r)
        across = math.sqrt(2.0 * mirror.weight[0] / squared_slack)
        along, rise = (
            0.0,
            across * math.sqrt(1.0 + 2.0 * r * r / squared_slack) - across,
        )
        for j in range(dim):
            along += (x[j] - mirror.center[j]) * z[j]
        for j in range(dim):
            out[j] = across * z[j]
            if r > 0.0:
                out[j] += rise * (along / r) * ((x[j] - mirror.center[j]) / r)
        return
    for j in range(dim):
        out[j] = math.sqrt(hessian_entry(mirror, x, j)) * z[j]
    if mirror.geometry == GEOMETRY.simplex:
        shared = out[dim - 1]
        for j in range(dim):
            out[j] -= shared


@kernel(counts_references=False)
def log_det(mirror, x):
    """Return the log determinant of the Hessian, up to a constant on the simplex."""
    dim, total = x.shape[0], 0.0
    if mirror.geometry == GEOMETRY.ball:
        r = distance(x, mirror.center, 2.0)
        square = mirror.radius * mirror.radius
        squared_slack = (mirror.radius - r) * (mirror.radius + r)
        total = dim * math.log(2.0 * mirror.weight[0] / squared_slack)
        return total + math.log((square + r * r) / squared_slack)
    for j in range(dim):
        total += math.log(hessian_entry(mirror, x, j))
    return total


@kernel(counts_references=False)
def squared_dual_norm(mirror, x, v):
    """Return v^T H^{-1} v."""
    dim, total, along = x.shape[0], 0.0, 0.0
    if mirror.geometry == GEOMETRY.ball:
        r = distance(x, mirror.center, 2.0)
        squared_slack = (mirror.radius - r) * (mirror.radius + r)
        for j in range(dim):
            total += v[j] * v[j]
            along += (x[j] - mirror.center[j]) * v[j]
        total -= 2.0 * along * along / (mirror.radius * mirror.radius + r * r)
        return 0.5 * squared_slack / mirror.weight[0] * total
    if mirror.geometry == GEOMETRY.simplex:
        for j in range(dim):
            along += x[j] * v[j]
        for j in range(dim):
            total += x[j] * (v[j] - along) ** 2
        return total / mirror.weight[0]
    for j in range(dim):
        total += v[j] * v[j] / hessian_entry(mirror, x, j)
    return total


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class MirrorPlan(NamedTuple):
    """Step and mirror map."""

    step: float  # tau
    mirror: Map


@kernel(counts_references=False)
def drop_last_coordinate(mirror, gradient):
    """Replace a gradient by the derivatives in the coordinates of the map.

    On the simplex the last entry of x is 1 minus the others.
    """
    if mirror.geometry == GEOMETRY.simplex:
        last = gradient[gradient.shape[0] - 1]
        for j in range(gradient.shape[0]):
            gradient[j] -= last


@kernel(counts_references=False)
def log_proposal(plan, origin, origin_gradient, theta, dual, new_dual):
    """Return the log density, up to a constant, of a proposal theta from an origin.

    The last two arguments are scratch memory.
    """
    map_to_dual(plan.mirror, origin, dual)
    map_to_dual(plan.mirror, theta, new_dual)
    # Difference of the new dual point from the mean of the proposals.
    for j in range(theta.shape[0]):
        new_dual[j] += plan.step * origin_gradient[j] - dual[j]
    square = squared_dual_norm(plan.mirror, origin, new_dual) / (4.0 * plan.step)
    # One determinant is of the normal density, the other one of the coordinates.
    spread = 0.5 * log_det(plan.mirror, origin)
    return log_det(plan.mirror, theta) - spread - square


@kernel(counts_references=False)
def propose(plan, origin, origin_gradient, rng, noise, dual, out):
    """Fill out with a proposal, and return whether it is inside up to rounding.

    ``noise`` and ``dual`` are scratch memory.
    """
    chain.fill_with_normals(rng, out)
    multiply_hessian_root(plan.mirror, origin, out, noise)
    map_to_dual(plan.mirror, origin, dual)
    scale = math.sqrt(2.0 * plan.step)
    for j in range(out.shape[0]):
        dual[j] += scale * noise[j] - plan.step * origin_gradient[j]
    map_from_dual(plan.mirror, dual, out)
    return map_to_dual(plan.mirror, out, dual)


def step(target, pieces, plan, state, rng):
    """Make one proposal and its accept test. The state's memory is the gradient."""
    gradient, proposal = state.memory, state.vectors[ROW.proposal]
    new_gradient, position = state.vectors[ROW.new_gradient], state.position
    dual, new_dual = state.vectors[ROW.dual], state.vectors[ROW.new_dual]
    state.counts[COUNT.proposals] += 1
    is_inside = propose(plan, position, gradient, rng, dual, new_dual, proposal)
    threshold = -rng.standard_exponential()
    # 1 inside, 0 outside, NaN if the domain's function failed.
    status = gibbs_target.inside(target, pieces, proposal, state.work)
    if status == 0.0 or not is_inside:
        return OK
    if np.isnan(status):
        return FUNCTION_FAILED
    energy = chain.evaluate_gradient(target, pieces, state, proposal, new_gradient)
    drop_last_coordinate(plan.mirror, new_gradient)
    log_ratio = state.energy[0] - energy
    log_ratio += log_proposal(plan, proposal, new_gradient, position, dual, new_dual)
    log_ratio -= log_proposal(plan, position, gradient, proposal, dual, new_dual)
    return chain.decide_with_gradient(
        state, proposal, energy, new_gradient, log_ratio, threshold
    )


run = compile_run(step)


def init(target: GibbsTarget, plan: MirrorPlan, position: Array) -> ChainState:
    """Return a new state at a position, which is moved off the boundary."""
    point, scratch = np.array(position, dtype=np.float64), np.empty(target.dim)
    if not map_to_dual(plan.mirror, point, scratch):
        point = retreat_from_boundary(target, point)
    gradient = target.gradient(point)
    drop_last_coordinate(plan.mirror, gradient)
    return new_state(target, point, memory=gradient, rows=len(ROW))


def choose_geometry(target: GibbsTarget, kind: str) -> int | None:
    """Return the code of the domain's map, or None if it has none of this kind."""
    domain = target.domain
    if domain.is_simplex:
        return GEOMETRY.simplex if kind in ("auto", "entropy") else None
    if kind == "entropy":
        return None
    if kind != "power":
        if domain.is_box:
            return GEOMETRY.box
        if domain.is_euclidean_ball:
            return GEOMETRY.ball
    return None if kind == "barrier" else GEOMETRY.power


def fit_map(target: GibbsTarget, geometry: int, gaussian: GaussianFit) -> Map:
    """Return the map whose Hessian at the fit's center has about the fit's scales."""
    body, center = target.numbers.body, gaussian.center
    deviations = np.sqrt(np.einsum("ij,ij->i", gaussian.factor, gaussian.factor))
    # With an exponent closer to 1, there would be almost no curvature in the tails.
    exponent = float(np.clip(target.numbers.regularizer.exponent, 1.1, 2.0))
    unit = Map(
        geometry=geometry,
        weight=np.ones(target.dim),
        center=body.center,
        lower=body.lower,
        upper=body.upper,
        radius=body.radius,
        p=exponent,
    )
    if geometry == GEOMETRY.power:
        return unit._replace(weight=deviations, center=center)
    # The weights solve H_jj = 1 / deviation_j^2 at the center. A map with one weight
    # takes their mean.
    if geometry == GEOMETRY.ball:
        squared_slack = body.radius**2 - np.sum((center - body.center) ** 2)
        weights = np.full(target.dim, 0.5 * squared_slack) / deviations**2
    elif geometry == GEOMETRY.simplex:
        weights = center / deviations**2
    else:
        # If a facet is closer than a standard deviation, the distance says more about
        # the center of the fit than about the draws.
        left = np.maximum(center - body.lower, deviations)
        right = np.maximum(body.upper - center, deviations)
        return unit._replace(weight=1.0 / (deviations**2 * (left**-2 + right**-2)))
    return unit._replace(weight=np.full(target.dim, np.mean(weights)))


@dataclass(frozen=True, kw_only=True)
class MirrorLangevin(TunedSampler):
    """Metropolis-adjusted mirror Langevin algorithm.

    Parameters
    ----------
    step_size : float, optional
        Step tau in units of the fitted scales. By default a pilot run finds the one
        with acceptance rate 0.57.
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

    # It evaluates the whole energy, never the loss of one record, so any target does.
    reads_records: ClassVar[bool] = False

    geometry: str = "auto"

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        geometries = ("auto", "barrier", "entropy", "power")
        check.one_of(geometries, geometry=self.geometry)

    def _supports(self, target: GibbsTarget) -> tuple[bool, str]:
        """Return whether the domain has a map of the geometry, and if not, why."""
        if choose_geometry(target, self.geometry) is not None:
            return True, ""
        name = target.domain.name
        return False, (
            f'The domain "{name}" has no mirror map "{self.geometry}": '
            'use geometry="auto".'
        )

    def _recipe(self, target: GibbsTarget) -> TuningRecipe:
        """Tune the step from dim^(-1/3), the optimal order of Langevin steps."""
        geometry = cast(int, choose_geometry(target, self.geometry))
        dim = target.domain.affine_dim(target.dim)
        return TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=lambda gaussian, step: MirrorPlan(
                float(step), fit_map(target, geometry, gaussian)
            ),
            rate=0.57,
            first_step=dim ** (-1.0 / 3.0),
        )
