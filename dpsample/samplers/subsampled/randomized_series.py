# mypy: allow-untyped-defs
r"""Randomized series: the proximal sampler with values of single records only.

    y ~ N(x, h I),    x' ~ exp(-V(x') - ||x' - y||^2 / (2h)) on the domain,

the second draw by rejection. With x, z from g, the part without the losses, records j
drawn anew for every factor and a random length a, P(a >= i) = 1 / i!,

    rho = 1 + sum_{i <= a} prod_{m <= i} (l_j(z) - l_j(x)),    l_j = k f(.; s_j),

has mean sum_i (k F(z) - k F(x))^i / i! = exp(k F(z) - k F(x)): x is accepted with
probability rho / 2, cut off to [0, 1] (Gopi, Lee, Liu, arXiv:2207.08347). `series_bias`
bounds what the cut does. The *inner draw* is

    g(x) proportional to exp(-psi(x) - <s, x> - ||x - y||_2^2 / (2h)) on the domain,

psi = k mu r and s fixed. If psi is quadratic or separable, the draw keeps it. Otherwise
its tangent at a point w(y), with the quadratic that it exceeds there, is an envelope.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece, Pointer, kernel, pointer
from dpsample.core.pauses import PAUSED, is_due
from dpsample.domains import Ball, Box, Domain, WholeSpace
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import any_record
from dpsample.regularizers import SquaredNorm
from dpsample.samplers import chain, gaussian_fit, record_terms
from dpsample.samplers.chain import ChainState, PreparedChain, compile_run, new_state
from dpsample.samplers.errors import (
    BOUND_VIOLATED,
    DRAW_FAILED,
    EXHAUSTED,
    FUNCTION_FAILED,
    OK,
    NoCertificate,
)
from dpsample.samplers.proximal import alternation, metric
from dpsample.samplers.proximal.alternation import (
    ProximalPlan,
    ProximalWork,
    set_halfspace,
)
from dpsample.samplers.proximal.metric import ProximalMetric
from dpsample.samplers.record_terms import loss, margin
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.samplers.subsampled import series_bias
from dpsample.samplers.subsampled.series_bias import SeriesNumbers, SeriesSchedule
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs, as_rows

# Rounding of a difference of two values, relative to their size.
ROUNDING = 1e-12
MAX_TRIES = 1_000_000
X, Z = 5, 6  # rows of the scratch memory
TRIES = 1  # of the step; where a paused step is: about to draw x, or z
DRAW_X, DRAW_Z = 1, 2
NUM_TRIALS, TOTAL, SQUARES = range(3)  # entries of the memory: the overshoot meter
INNER = chain.NUM_COUNTS  # entry of the counts: exact draws proposed
INNER_TRIES = 0  # where a paused draw keeps how many it has made; 0 between draws
# Rows of the scratch memory; the exact draws use the last two, callers 5 and 6.
NUM_ROWS = 10
NOISE, POINT, SLOPE, MEAN = range(4)


@kernel(counts_references=False)
def series_length(uniform):
    """Length a with P(a >= i) = 1 / i!, from a uniform number."""
    length, factorial = 0, 1.0
    while uniform * factorial < 1.0:
        length += 1
        factorial *= length + 1.0
    return length


@kernel(counts_references=False)
def overshoot_of(rho):
    """Return the amount that the cut of rho to [0, 2] takes away."""
    return max(rho - 2.0, 0.0) + max(-rho, 0.0)


@kernel(counts_references=False)
def change(target, pieces, plan, work, x, z, i):
    """l_i(z) - l_i(x), less the anchor's tangent, and the size of its rounding."""
    u_x, u_z = margin(target.data, x, i), margin(target.data, z, i)
    at_x, at_z = loss(target, pieces, u_x, i, work), loss(target, pieces, u_z, i, work)
    difference, size = at_z - at_x, abs(at_z) + abs(at_x)
    if plan.slopes.shape[0] > 0:
        difference -= plan.slopes[i] * (u_z - u_x)
        size += abs(plan.slopes[i]) * (abs(u_z) + abs(u_x))
    return target.k * difference, ROUNDING * (1.0 + target.k * size)


@kernel(counts_references=False)
def estimate(target, pieces, plan, state, x, z, rng):
    """Return a code and rho, whose mean is exp(k F(z) - k F(x))."""
    square = 0.0
    for j in range(x.shape[0]):
        square += (z[j] - x[j]) ** 2
    limit = plan.lipschitz * math.sqrt(square)
    rho = 1.0
    for num_factors in range(1, series_length(rng.random()) + 1):
        product = 1.0
        for _ in range(num_factors):
            i = any_record(rng, 0, target.data.num_records)
            factor, slack = change(target, pieces, plan, state.work, x, z, i)
            state.counts[chain.RECORDS] += 2
            if np.isnan(factor):
                return FUNCTION_FAILED, np.nan
            if abs(factor) > limit + slack:
                return BOUND_VIOLATED, np.nan
            product *= factor
        rho += product
    return OK, rho


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


@by_address
class SeriesPlan(NamedTuple):
    """How g is drawn, and the losses' part.

    ``lipschitz`` bounds the change of one record's l_j per unit of distance, less its
    tangent at the anchor if ``slopes`` (num_records,) is not empty.
    """

    inner: Inner
    lipschitz: float
    slopes: Array


def step(target, pieces, plan, state, rng):
    """Draw y, then x given y; paused, it goes on with its next try."""
    y, x, z = state.scratch[NOISE], state.scratch[X], state.scratch[Z]
    control, code = state.work.control[0], OK
    if control.stage == 0:
        for j in range(y.shape[0]):
            move = math.sqrt(plan.inner.step) * rng.standard_normal()
            y[j] = state.position[j] + move
        code = aim_inner(target, pieces, plan.inner, state, y)
        control.saved[TRIES] = 0.0
    stage = max(control.stage, DRAW_X)
    control.stage = 0
    while control.saved[TRIES] < MAX_TRIES:
        if code == OK and stage == DRAW_X:
            code = draw_inner(target, pieces, plan.inner, state, x, rng)
            stage = DRAW_Z if code == OK else DRAW_X
        if code == OK:
            code = draw_inner(target, pieces, plan.inner, state, z, rng)
        if code == PAUSED:
            control.stage = stage
        if code != OK:
            return code
        stage = DRAW_X
        control.saved[TRIES] += 1.0
        code, rho = estimate(target, pieces, plan, state, x, z, rng)
        if code != OK:
            return code
        state.counts[chain.PROPOSALS] += 1
        over = overshoot_of(rho)
        state.memory[NUM_TRIALS] += 1.0
        state.memory[TOTAL] += over
        state.memory[SQUARES] += over * over
        if 2.0 * rng.random() <= rho:
            state.counts[chain.ACCEPTED] += 1
            copy_into(x, state.position)
            state.energy[0] = np.nan
            return OK
        if is_due(control):
            control.stage = DRAW_X
            return PAUSED
    return EXHAUSTED


run = compile_run(step)


def init(target: Gibbs, plan: object, position: Array) -> ChainState:
    """Fresh state at a position of the domain: no energy, counts with draws of g.

    The memory, of length 3, counts trials and sums overshoots and their squares.
    """
    del plan  # only the target's sizes matter
    own = ProximalWork.of(position.size)
    state = new_state(
        target, position, is_weighed=False, memory=np.zeros(3), rows=NUM_ROWS, own=own
    )
    return state._replace(counts=np.zeros(chain.NUM_COUNTS + 1, dtype=np.int64))


class Overshoot(NamedTuple):
    """Mean overshoot of the trials and its standard error; heavy-tailed."""

    mean: float
    standard_error: float
    num_trials: int


def overshoot(state: ChainState) -> Overshoot:
    """Read a chain's overshoot meter: indicative only, a mean is no proof."""
    count, total, squares = state.memory
    if count == 0.0:
        return Overshoot(np.nan, np.nan, 0)
    mean = total / count
    variance = max(squares / count - mean * mean, 0.0)
    return Overshoot(float(mean), float(np.sqrt(variance / count)), int(count))


@dataclass(frozen=True, kw_only=True)
class RandomizedSeries(Sampler):
    r"""Proximal sampler that queries values of single records only.

    Parameters
    ----------
    step_size : float, optional
        Step h of the proximal sampler; by default the longest with a proved bias.
    error : float
        Total variation, in (0, 1), that the default step and warm-up achieve.
    anchored : bool
        Subtract from every loss its tangent at the mode, found once with all records.
        Losses then change by their curvature only, so steps are longer if the domain is
        small. Needs a bounded domain.
    num_steps : int
        Steps per draw.
    max_steps : int
        Targets whose certified warm-up needs more steps are not supported. A step takes
        a few microseconds.

    Notes
    -----
    **Guarantee.** After T steps from the start total variation is at most
    ``settings["bias_bound"]``: the exact chain's error plus T times
    ``settings["overshoot_bound"]``, the error of one conditional draw. With the default
    step this is at most ``error``, and T is the default warm-up. Each step after T adds
    one more such error: ``attrs["bias_bound"]`` of `dpsample.sample` is that of the
    last draw, and is missing after a shorter warm-up. A step chosen by the user may
    have a bound above 1; `overshoot` reads what was measured.

    The price is high: about 261 (L^2 / m) log(1/b) log(1/error) queries, with L the
    Lipschitz constant of k f and m the strong convexity of the energy.

    Examples
    --------
    >>> from dpsample.samplers import RandomizedSeries
    >>> RandomizedSeries(error=1e-4).exactness
    'biased'
    """

    step_size: float | None = None
    error: float = 1e-3
    anchored: bool = False
    num_steps: int = 1
    max_steps: int = 5_000_000
    exactness: ClassVar[Exactness] = "biased"
    is_reversible: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the options."""
        check.open_interval(0.0, 1.0, error=self.error)
        check.instance(bool, anchored=self.anchored)
        check.integer(1, num_steps=self.num_steps)
        check.integer(1, maximum=None, max_steps=self.max_steps)  # no loop
        if self.step_size is not None:
            check.positive(step_size=self.step_size)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether inner draws are exact and the bias has a bound; the reason if not."""
        if self.anchored and not target.problem.domain.is_bounded:
            return False, "Anchored losses need a bounded domain. Use anchored=False."
        try:
            inner_metric(target)
            metric.candidates(target, oracle="metric")
            record_terms.lipschitz_bound(target)
        except ValueError as error:
            return False, str(error)
        # The start enters by a logarithm only, but an anchor changes the losses.
        start = target.problem.domain.interior_point(target.dim)
        if self.anchored:
            start = gaussian_fit.minimize(target)[0]
        num_steps = self._schedule(self._bounds(target, start)[0]).num_steps
        return num_steps <= self.max_steps, _cost(num_steps, self.max_steps)

    def _bounds(self, target: Gibbs, start: Array) -> tuple[SeriesNumbers, Array]:
        """Constants of the bias, and the losses' slopes at an anchor, if any."""
        if not self.anchored:
            return series_bias.numbers(target, start), np.empty(0)
        margins = target.problem.margins(start)
        slopes = target.problem.loss.slope(margins, target.data.response)
        return series_bias.numbers(target, start, slopes), slopes

    def _schedule(self, bounds: SeriesNumbers) -> SeriesSchedule:
        if self.step_size is None:
            return bounds.schedule(self.error)
        return bounds.given(self.step_size, self.error)

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Find the mode, the constants and the step."""
        del rng  # nothing is tuned by a pilot run
        self.require(target)
        problem, start = target.problem, gaussian_fit.minimize(target)[0]
        bounds, slopes = self._bounds(target, start)
        tilt = np.zeros(target.dim)
        if self.anchored:
            rows = as_rows(target.data)
            tilt = np.asarray(rows.T @ slopes) * (target.k / problem.num_records)
        plan = self._schedule(bounds)
        return PreparedChain(
            target=target,
            plan=SeriesPlan(
                inner=inner_plan(target, plan.step, tilt),
                lipschitz=bounds.lipschitz,
                slopes=slopes,
            ),
            run=run,
            init_fn=init,
            start=start,
            num_steps=self.num_steps,
            num_warmup=-(-plan.num_steps // self.num_steps),
            settings={
                "step_size": plan.step,
                "overshoot_bound": plan.overshoot,
                "bias_bound": plan.bias,
                "num_certified_steps": plan.num_steps,
            },
        )


def _cost(num_steps: int, max_steps: int) -> str:
    """Reason against a warm-up of more than the allowed steps, or empty."""
    if num_steps <= max_steps:
        return ""
    return (
        f"Its certified warm-up takes {num_steps:.2g} steps, max_steps = {max_steps} "
        "are allowed: the step is short where the Lipschitz constant of k f is large. "
        f"Use Proximal, or allow max_steps={10 ** len(str(num_steps))}."
    )


def inner_metric(target: Gibbs) -> tuple[ProximalMetric, bool]:
    """Metric P = I with the exact draw, and whether tangents replace the regularizer.

    Raises `NoCertificate` if no draw is exact in a finite expected time.
    """
    domain, regularizer, dim = target.problem.domain, target.regularizer, target.dim
    metric.require_room(domain, dim, "exact", "Use HitAndRun or TunaMH.")
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
            draw=pointer(metric.separable, metric.DRAW),
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
        draw=pointer(draw, metric.DRAW),
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
        return metric.gaussian, 0
    if isinstance(domain, Ball) and domain.p == 2.0:
        return metric.gaussian_ball, 0
    if isinstance(domain, Box) or (isinstance(domain, Ball) and np.isinf(domain.p)):
        return metric.gaussian_box, 0
    return metric.gaussian, 1


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


@kernel(counts_references=False)
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
                return FUNCTION_FAILED
    alternation.aim(inner.metric, y, w, slope, state.scratch[MEAN])
    return set_halfspace(target, pieces, inner.metric, state, state.scratch[MEAN])


@kernel(counts_references=False)
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


@kernel(counts_references=False)
def draw_inner(target, pieces, inner, state, out, rng):
    """Exact draw of g, after `aim_inner`; a code. Paused, it goes on when called."""
    mean, control = state.scratch[MEAN], state.work.control[0]
    is_over = False
    while control.saved[INNER_TRIES] < MAX_TRIES:
        if is_over:
            return PAUSED
        status = alternation.propose(
            target, pieces, inner.metric, inner.draw, mean, state, rng, out
        )
        is_over = is_due(control)
        if status == alternation.UNFINISHED:
            continue
        control.saved[INNER_TRIES] += 1.0
        state.counts[INNER] += 1
        if np.isnan(status):
            return FUNCTION_FAILED
        if status == alternation.NO_DRAW:
            return DRAW_FAILED
        if status == 0.0:
            continue
        if inner.is_tangent == 0:
            control.saved[INNER_TRIES] = 0.0
            return OK
        gap, slack = regularizer_gap(target, pieces, inner, state, out)
        if np.isnan(gap):
            return FUNCTION_FAILED
        if gap < -slack:
            return BOUND_VIOLATED
        if rng.standard_exponential() >= gap:
            control.saved[INNER_TRIES] = 0.0
            return OK
    control.saved[INNER_TRIES] = 0.0
    return EXHAUSTED
