# mypy: allow-untyped-defs
r"""Exact draws of the proximal sampler's conditional law without the losses.

    g(x) proportional to exp(-psi(x) - <s, x> - ||x - y||_2^2 / (2h)) on the domain,

psi = k mu r and s fixed. If psi is quadratic or separable, the draw keeps it. Otherwise
its tangent at a point w(y), with the quadratic that it exceeds there, is an envelope.
"""

from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import Piece, Pointer, kernel, pointer
from dpsample.core.pauses import KEPT, PAUSED, is_due
from dpsample.domains import Ball, Box, Domain, WholeSpace
from dpsample.numerics.vectors import copy_into
from dpsample.regularizers import SquaredNorm
from dpsample.samplers import chain, errors
from dpsample.samplers.errors import OK, PIECE_FAILED, NoCertificate
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal import metric as draws_module
from dpsample.samplers.proximal.alternation import ProximalPlan, set_halfspace
from dpsample.samplers.proximal.metric import ProximalMetric
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

INNER = chain.NUM_COUNTS  # entry of the counts: exact draws proposed
MAX_TRIES = 1_000_000
TRIES = KEPT  # where a paused draw keeps how many it has made; 0 between draws
ROUNDING = 1e-12
# Rows of the scratch memory; the exact draws use the last two, callers 5 and 6.
NUM_ROWS = 10
NOISE, POINT, SLOPE, MEAN = range(4)


class Inner(NamedTuple):
    """Regularizer, tilt and Gaussian of g.

    ``metric`` has P = I; ``slope`` is s. With ``is_tangent`` 1 the regularizer enters
    through tangents, else it is kept exactly.
    """

    step: float
    weight: float
    is_tangent: int
    draw: Pointer
    metric: ProximalPlan
    slope: Array


def inner_metric(target: Gibbs) -> tuple[ProximalMetric, bool]:
    """Metric P = I with the exact draw, and whether tangents replace the regularizer.

    Raises `NoCertificate` if no draw is exact in a finite expected time.
    """
    domain, regularizer, dim = target.problem.domain, target.regularizer, target.dim
    draws_module.require_room(domain, dim, "exact", "Use HitAndRun or TunaMH.")
    lower, upper = regularizer.curvature_l2(dim)
    weight = target.k * target.mu
    params = target.numbers.regularizer
    is_quadratic = lower == upper or weight == 0.0
    centered = np.array_equal(domain.default_center(dim), params.center)
    is_product = isinstance(domain, WholeSpace | Box) or (
        isinstance(domain, Ball) and (centered or np.isinf(domain.p))
    )
    if isinstance(regularizer, SquaredNorm) and is_product and not is_quadratic:
        option = ProximalMetric(
            name="separable",
            precision=np.eye(dim),
            upper=None,
            draw=pointer(draws_module.separable, draws_module.DRAW),
            tangent=0.0,
            keeps_regularizer=True,
            kappa=weight * params.scale,
        )
        return option, False
    if not (is_quadratic or domain.is_bounded):
        raise NoCertificate(
            f"No exact draw is known for the {regularizer.name} regularizer on the "
            f"{domain.name}. Use a bounded domain."
        )
    draw, halfspace = _gaussian_draw(domain)
    option = ProximalMetric(
        name="gaussian",
        precision=np.eye(dim),
        upper=None,
        draw=pointer(draw, draws_module.DRAW),
        tangent=weight * lower if weight > 0.0 else 0.0,
        halfspace=halfspace,
        reach=domain.max_norm(2.0, domain.default_center(dim), dim)
        if halfspace
        else 0.0,
    )
    return option, not is_quadratic


def _gaussian_draw(domain: Domain) -> tuple[Piece, int]:
    """Exact draw of a round Gaussian on the domain, or on a halfspace around it."""
    if isinstance(domain, WholeSpace):
        return draws_module.gaussian, 0
    if isinstance(domain, Ball) and domain.p == 2.0:
        return draws_module.gaussian_ball, 0
    if isinstance(domain, Box) or (isinstance(domain, Ball) and np.isinf(domain.p)):
        return draws_module.gaussian_box, 0
    return draws_module.gaussian, 1


def inner_plan(target: Gibbs, step: float, slope: Array) -> Inner:
    """Numbers of g for a step h and a tilt s."""
    option, is_tangent = inner_metric(target)
    return Inner(
        step=float(step),
        weight=target.k * target.mu,
        is_tangent=int(is_tangent),
        draw=option.draw,
        metric=option.plan(step),
        slope=slope,
    )


@kernel
def aim_inner(target, pieces, inner, state, y):
    """Prepare draws of g given y: mean of the Gaussian and halfspace; a code."""
    w, slope = state.scratch[POINT], state.scratch[SLOPE]
    copy_into(inner.slope, slope)
    copy_into(target.regularizer.center, w)
    if inner.is_tangent == 1:
        gibbs.project(target, pieces, y, w)
        gradient = state.work.vector
        gradient[:] = np.nan
        pieces.regularizer_gradient(target.regularizer, w, gradient)
        for j in range(w.shape[0]):
            slope[j] += inner.weight * gradient[j]
            if not np.isfinite(slope[j]):
                return PIECE_FAILED
    alternation.aim(inner.metric, y, w, slope, state.scratch[MEAN])
    return set_halfspace(target, pieces, inner.metric, state, state.scratch[MEAN])


@kernel
def regularizer_gap(target, pieces, inner, state, x):
    """Regularizer at x above its envelope at w, and the size of its rounding."""
    w, slope = state.scratch[POINT], state.scratch[SLOPE]
    linear, square = 0.0, 0.0
    for j in range(w.shape[0]):
        linear += (slope[j] - inner.slope[j]) * (x[j] - w[j])
        square += (x[j] - w[j]) ** 2
    square *= 0.5 * inner.metric.tangent
    at_w = inner.weight * gibbs.regularizer(target, pieces, w, state.work)
    at_x = inner.weight * gibbs.regularizer(target, pieces, x, state.work)
    size = 1.0 + abs(at_w) + abs(at_x) + abs(linear) + square
    return (at_x - at_w) - linear - square, ROUNDING * size


@kernel
def draw_inner(target, pieces, inner, state, out, rng):
    """Exact draw of g, after `aim_inner`; a code. Paused, it goes on when called."""
    mean, control = state.scratch[MEAN], state.work.control
    is_over = False
    while control[TRIES] < MAX_TRIES:
        if is_over:
            return PAUSED
        status = alternation.propose(
            target, pieces, inner.metric, inner.draw, mean, state, rng, out
        )
        is_over = is_due(control)
        if status == alternation.UNFINISHED:
            continue
        control[TRIES] += 1.0
        state.counts[INNER] += 1
        if np.isnan(status):
            return PIECE_FAILED
        if status == 0.0:
            continue
        if inner.is_tangent == 0:
            control[TRIES] = 0.0
            return OK
        gap, slack = regularizer_gap(target, pieces, inner, state, out)
        if np.isnan(gap):
            return PIECE_FAILED
        if gap < -slack:
            return errors.BOUND_VIOLATED
        if rng.standard_exponential() >= gap:
            control[TRIES] = 0.0
            return OK
    control[TRIES] = 0.0
    return errors.EXHAUSTED
