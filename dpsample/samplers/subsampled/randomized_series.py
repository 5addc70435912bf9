# mypy: allow-untyped-defs
r"""Randomized series: the proximal sampler with values of single records only.

    y ~ N(x, h I),    x' ~ exp(-V(x') - ||x' - y||^2 / (2h)) on the domain,

where the second draw is made by rejection. Each proposal is a pair x, z of *inner
draws* from a density g without the losses. The energy V is k (F + mu r), with the mean
F of the losses f, a regularizer r of weight mu and an inverse temperature k. With the
losses l_j = k f(.; s_j), a random record j for every factor and a random length a with
P(a >= i) = 1 / i!,

    rho = 1 + sum_{i <= a} prod_{m <= i} (l_j(z) - l_j(x))

has the mean sum_i (k F(z) - k F(x))^i / i! = exp(k F(z) - k F(x)). So x is accepted
with probability rho / 2, clipped to [0, 1] (Gopi, Lee, Liu, arXiv:2207.08347). With
``anchored`` losses, l_j is a loss minus its tangent at the mode, the *anchor*, and s is
the gradient of what was subtracted. The part of rho that is clipped is the *overshoot*.
`series_bias` bounds its effect. The inner draws are exact, from the density

    g(x) proportional to exp(-psi(x) - <s, x> - ||x - y||_2^2 / (2h)) on the domain,

with psi = k mu r and a fixed vector s. If psi is quadratic or separable, proposals of
the inner draw have its factor. Otherwise its tangent at a point w(y), with a quadratic
below the difference, gives an envelope.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece, Pointer, kernel, pointer
from dpsample.core.pauses import PAUSED, is_due
from dpsample.domains import Domain
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import any_record
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
from dpsample.samplers.proximal import alternation, envelope_draws, metric
from dpsample.samplers.proximal.alternation import (
    HALFSPACE,
    ProximalPlan,
    Support,
    set_halfspace,
)
from dpsample.samplers.proximal.metric import ProximalMetric
from dpsample.samplers.record_terms import loss, margin
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.samplers.subsampled import series_bias
from dpsample.samplers.subsampled.series_bias import SeriesNumbers, SeriesSchedule
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs, as_rows

# Relative rounding error of a difference of two values. Each of them comes from some
# thousands of operations at most, each with a relative error of 1.1e-16.
ROUNDING = 1e-12
# Maximum number of pairs of a step, and of proposals of an inner draw.
MAX_PROPOSALS = 1_000_000


class RandomizedSeriesVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors.

    The exact draws also use the last two rows of `alternation.ROW`.
    """

    y: int = 0
    tangent_point: int = 1  # w
    tilt: int = 2  # s plus the gradient of psi at w
    mean: int = 3
    x: int = 4
    z: int = 5


ROW = RandomizedSeriesVectorRow()
# Number of proposals of inner draws, in addition to the counts of all chains.
INNER = len(chain.COUNT)

# Memory of a chain, which a checkpoint stores as floats: sums over pairs.
OvershootMeter = record_dtype(num_pairs=float, total=float, squares=float)
# A step under way.
SeriesStep = record_dtype(
    num_pairs=int,
    has_x=bool,  # whether the first point of the present pair is drawn
    num_inner=int,  # proposals of the present inner draw
)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def series_length(uniform):
    """Return a length a with P(a >= i) = 1 / i!, from a uniform number.

    It is the largest a with uniform < 1 / a!.
    """
    length, factorial = 0, 1.0
    while uniform * factorial < 1.0:
        length += 1
        factorial *= length + 1.0
    return length


@kernel(counts_references=False)
def overshoot_of(rho):
    """Return the distance of rho from [0, 2], which clipping removes."""
    return max(rho - 2.0, 0.0) + max(-rho, 0.0)


@kernel(counts_references=False)
def loss_change(target, pieces, plan, work, x, z, i):
    """Return l_i(z) - l_i(x) minus the anchor's tangent, and its rounding error."""
    u_x, u_z = margin(target.data, x, i), margin(target.data, z, i)
    at_x, at_z = loss(target, pieces, u_x, i, work), loss(target, pieces, u_z, i, work)
    difference, size = at_z - at_x, abs(at_z) + abs(at_x)
    if plan.slopes.shape[0] > 0:
        difference -= plan.slopes[i] * (u_z - u_x)
        size += abs(plan.slopes[i]) * (abs(u_z) + abs(u_x))
    return target.k * difference, ROUNDING * (1.0 + target.k * size)


@kernel(counts_references=False)
def estimate_ratio(target, pieces, plan, state, x, z, rng):
    """Return a code and rho, whose mean is exp(k F(z) - k F(x))."""
    square = 0.0
    for j in range(x.shape[0]):
        square += (z[j] - x[j]) ** 2
    limit = plan.lipschitz * math.sqrt(square)
    # The term i of the series is a product of i factors with records of their own, so
    # that its mean is a power of the mean.
    rho = 1.0
    for num_factors in range(1, series_length(rng.random()) + 1):
        product = 1.0
        for _ in range(num_factors):
            i = any_record(rng, 0, target.data.num_records)
            factor, slack = loss_change(target, pieces, plan, state.work, x, z, i)
            state.counts[chain.COUNT.records] += 2
            if np.isnan(factor):
                return FUNCTION_FAILED, np.nan
            # On |l_j(z) - l_j(x)| <= L |z - x| rests the bound of the overshoot, so
            # that a violation is an error and not rounded away.
            if abs(factor) > limit + slack:
                return BOUND_VIOLATED, np.nan
            product *= factor
        rho += product
    return OK, rho


class InnerPlan(NamedTuple):
    """Numbers of the inner draws."""

    step: float  # h
    weight: float  # k mu
    is_tangent: int  # psi has a tangent as its envelope, otherwise it is exact
    draw: Pointer  # compiled draw of `envelope_draws`
    metric: ProximalPlan  # plan of P = I
    tilt: Array  # (dim,): s


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class SeriesPlan(NamedTuple):
    """Numbers of a chain.

    ``lipschitz`` bounds the change of a record's l_j per unit of distance, minus its
    tangent at the anchor if there is one.
    """

    inner: InnerPlan
    lipschitz: float
    slopes: Array  # (num_records,): derivatives at the anchor, or empty


@by_address
class SeriesWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    support: Support  # support of the inner draw
    progress: RecordArray  # one record of `SeriesStep`
    meter: RecordArray  # one record of `OvershootMeter`, a view of the memory


def step(target, pieces, plan, state, rng):
    """Draw y, then x given y. After a pause, go on with the next inner draw."""
    y, x, z = state.vectors[ROW.y], state.vectors[ROW.x], state.vectors[ROW.z]
    control, code = state.work.control[0], OK
    progress, meter = state.workspace.progress[0], state.workspace.meter[0]
    if control.stage == 0:
        for j in range(y.shape[0]):
            move = math.sqrt(plan.inner.step) * rng.standard_normal()
            y[j] = state.position[j] + move
        code = prepare_inner_draws(target, pieces, plan.inner, state, y)
        progress.num_pairs, progress.has_x, progress.num_inner = 0, False, 0
    control.stage = 0
    while progress.num_pairs < MAX_PROPOSALS:
        # A pause may come between x and z of a pair.
        if code == OK and not progress.has_x:
            code = draw_inner(target, pieces, plan.inner, state, x, rng)
            progress.has_x = code == OK
        if code == OK:
            code = draw_inner(target, pieces, plan.inner, state, z, rng)
        if code == PAUSED:
            control.stage = 1
        if code != OK:
            return code
        progress.num_pairs, progress.has_x = progress.num_pairs + 1, False
        code, rho = estimate_ratio(target, pieces, plan, state, x, z, rng)
        if code != OK:
            return code
        state.counts[chain.COUNT.proposals] += 1
        excess = overshoot_of(rho)
        meter.num_pairs += 1.0
        meter.total += excess
        meter.squares += excess * excess
        # The comparison clips rho / 2 to [0, 1].
        if 2.0 * rng.random() <= rho:
            state.counts[chain.COUNT.accepted] += 1
            copy_into(x, state.position)
            # The energy, a sum over all records, was never computed.
            state.energy[0] = np.nan
            return OK
        if is_due(control):
            control.stage = 1
            return PAUSED
    return EXHAUSTED


run = compile_run(step)


def init(target: Gibbs, plan: object, position: Array) -> ChainState:
    """Return a new state at a position of the domain, without its energy.

    Its memory is the `OvershootMeter`.
    """
    del plan  # the memory depends on the target's sizes alone
    memory = np.zeros(OvershootMeter.itemsize // 8)  # floats of 8 bytes
    # The exact draws write to rows of `alternation.ROW` beyond those of `ROW`.
    rows = max(len(ROW), len(alternation.ROW))
    state = new_state(target, position, is_weighed=False, memory=memory, rows=rows)
    work = SeriesWork(
        support=Support.empty(position.size),
        progress=np.zeros(1, SeriesStep),
        meter=state.memory.view(OvershootMeter),
    )
    counts = np.zeros(len(chain.COUNT) + 1, dtype=np.int64)
    return state._replace(counts=counts, workspace=work)


class Overshoot(NamedTuple):
    """Mean overshoot of the pairs, and its standard error.

    The distribution has a heavy tail, so that both may be too small.
    """

    mean: float
    standard_error: float
    num_trials: int  # pairs


def overshoot(state: ChainState) -> Overshoot:
    """Return a chain's measured overshoot, which is not a proof of a bound."""
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
        Step h of the proximal sampler. By default it is the longest with a proved bias.
    error : float
        Total variation, in (0, 1), that the default step and warm-up achieve.
    anchored : bool
        Whether the tangent at the mode is subtracted from every loss. The mode is found
        once with all records. Only the curvature of the losses is left, so steps are
        longer if the domain is small. The domain must be bounded.
    num_steps : int
        Steps per draw.
    max_steps : int
        Targets whose certified warm-up needs more steps are not supported. A step takes
        a few microseconds.

    Notes
    -----
    **Guarantee.** After T steps from the start the total variation is at most
    ``settings["bias_bound"]``. This is the error of the exact chain plus T times
    ``settings["overshoot_bound"]``, the error of one conditional draw. With the default
    step it is at most ``error``, and T is the default warm-up. Each further step adds
    one more such error. ``attrs["bias_bound"]`` of `dpsample.sample` is the bound of
    the last draw, and is missing after a shorter warm-up. A step chosen by the user may
    have a bound above 1. The function `overshoot` returns the measured value.

    About 261 (L^2 / m) log(1/b) log(1/error) values of single records are needed, with
    L the Lipschitz constant of k f, m the strong convexity of the energy and b the
    error of a conditional draw.

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
        check.integer(1, maximum=None, max_steps=self.max_steps)
        if self.step_size is not None:
            check.positive(step_size=self.step_size)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether inner draws are exact and the bias has a bound, or why not."""
        if self.anchored and not target.domain.is_bounded:
            return False, "Anchored losses need a bounded domain. Use anchored=False."
        try:
            inner_metric(target)
            metric.candidates(target, oracle="metric")
            record_terms.lipschitz_bound(target)
        except ValueError as error:
            return False, str(error)
        # The number of steps grows with the logarithm of the start's distance, so any
        # point will do. An anchor changes the losses and must be the right one.
        start = target.domain.interior_point(target.dim)
        # With an anchor the constants depend on it.
        if self.anchored:
            start = gaussian_fit.minimize(target)[0]
        num_steps = self._schedule(self._bounds(target, start)[0]).num_steps
        return num_steps <= self.max_steps, _cost(num_steps, self.max_steps)

    def _bounds(self, target: Gibbs, start: Array) -> tuple[SeriesNumbers, Array]:
        """Return constants of the bias, and derivatives at the anchor or no number."""
        if not self.anchored:
            return series_bias.numbers(target, start), np.empty(0)
        margins = target.problem.margins(start)
        slopes = target.problem.loss.slope(margins, target.data.response)
        return series_bias.numbers(target, start, slopes), slopes

    def _schedule(self, bounds: SeriesNumbers) -> SeriesSchedule:
        """Return the schedule of the user's step, or the default one."""
        if self.step_size is None:
            return bounds.schedule(self.error)
        return bounds.schedule_for_step(self.step_size, self.error)

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Find the mode, the constants and the step."""
        del rng  # there is no pilot run
        self.require(target)
        problem, start = target.problem, gaussian_fit.minimize(target)[0]
        bounds, slopes = self._bounds(target, start)
        tilt = np.zeros(target.dim)
        if self.anchored:
            # The gradient of the tangents that were subtracted, k/n times the sum of
            # slope times row. It goes into the inner draws.
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
    """Return why a warm-up has too many steps, or "" if it has not."""
    if num_steps <= max_steps:
        return ""
    return (
        f"Its certified warm-up takes {num_steps:.2g} steps, max_steps = {max_steps} "
        "are allowed: the step is short where the Lipschitz constant of k f is large. "
        f"Use Proximal, or allow max_steps={10 ** len(str(num_steps))}."
    )


def inner_metric(target: Gibbs) -> tuple[ProximalMetric, bool]:
    """Return the metric P = I with its draw, and whether psi has tangents.

    `NoCertificate` is raised if no draw is exact in a finite expected time.
    """
    domain, regularizer, dim = target.domain, target.regularizer, target.dim
    metric.require_interior(domain, dim, "exact", "Use HitAndRun or TunaMH.")
    lower, upper = regularizer.curvature_l2(dim)
    weight = target.k * target.mu
    params = target.numbers.regularizer
    is_quadratic = lower == upper or weight == 0.0
    # The regularizer and the ball must have the same center for the draw by radius and
    # coordinates.
    is_centered = np.array_equal(domain.default_center(dim), params.center)
    is_product = (
        domain.is_whole_space
        or domain.is_box
        or (is_centered and domain.lp_exponent is not None)
    )
    # A norm on a product or its own ball is drawn with its factor, without an envelope.
    if regularizer.is_plain_norm and is_product and not is_quadratic:
        option = ProximalMetric(
            name="separable",
            precision=np.eye(dim),
            upper=None,
            draw=pointer(envelope_draws.draw_with_regularizer, envelope_draws.DRAW),
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
    # A halfspace that contains the domain saves proposals at its boundary. For that the
    # largest distance is needed.
    max_distance = 0.0
    if halfspace != HALFSPACE.none:
        max_distance = domain.max_norm(2.0, domain.default_center(dim), dim)
    option = ProximalMetric(
        name="gaussian",
        precision=np.eye(dim),
        upper=None,
        draw=pointer(draw, envelope_draws.DRAW),
        # psi is at least its tangent plus this curvature, so that the Gaussian of both
        # is an envelope of e^-psi.
        tangent=weight * lower if weight > 0.0 else 0.0,
        halfspace=halfspace,
        max_distance=max_distance,
    )
    return option, not is_quadratic


def _gaussian_draw(domain: Domain) -> tuple[Piece, int]:
    """Return the exact draw of a round Gaussian on the domain, or in a halfspace."""
    if domain.is_whole_space:
        return envelope_draws.draw_in_halfspace, HALFSPACE.none
    if domain.lp_exponent == 2.0:
        return envelope_draws.draw_in_ball, HALFSPACE.none
    if domain.is_box:
        return envelope_draws.draw_in_box, HALFSPACE.none
    return envelope_draws.draw_in_halfspace, HALFSPACE.projected


def inner_plan(target: Gibbs, step: float, tilt: Array) -> InnerPlan:
    """Return the numbers of the inner draws for a step h and a tilt s."""
    option, is_tangent = inner_metric(target)
    return InnerPlan(
        step=float(step),
        weight=target.k * target.mu,
        is_tangent=int(is_tangent),
        draw=option.draw,
        metric=option.plan(step),
        tilt=tilt,
    )


@kernel(counts_references=False)
def prepare_inner_draws(target, pieces, inner, state, y):
    """Set the Gaussian's mean and the halfspace of draws given y. Return a code."""
    w, tilt = state.vectors[ROW.tangent_point], state.vectors[ROW.tilt]
    copy_into(inner.tilt, tilt)
    copy_into(target.regularizer.center, w)
    # The envelope is the tangent of psi at w, the projection of y, where most draws
    # are.
    if inner.is_tangent == 1:
        gibbs_target.project(target, pieces, y, w)
        gradient = state.work.vector
        gradient[:] = np.nan
        pieces.regularizer_gradient(target.regularizer, w, gradient)
        for j in range(w.shape[0]):
            tilt[j] += inner.weight * gradient[j]
            if not np.isfinite(tilt[j]):
                return FUNCTION_FAILED
    alternation.set_envelope_mean(inner.metric, y, w, tilt, state.vectors[ROW.mean])
    return set_halfspace(target, pieces, inner.metric, state, state.vectors[ROW.mean])


@kernel(counts_references=False)
def regularizer_gap(target, pieces, inner, state, x):
    """Return psi at x minus its tangent and quadratic, and the rounding error."""
    w, tilt = state.vectors[ROW.tangent_point], state.vectors[ROW.tilt]
    linear, square = 0.0, 0.0
    for j in range(w.shape[0]):
        linear += (tilt[j] - inner.tilt[j]) * (x[j] - w[j])
        square += (x[j] - w[j]) ** 2
    square *= 0.5 * inner.metric.tangent
    at_w = inner.weight * gibbs_target.regularizer(target, pieces, w, state.work)
    at_x = inner.weight * gibbs_target.regularizer(target, pieces, x, state.work)
    size = 1.0 + abs(at_w) + abs(at_x) + abs(linear) + square
    return (at_x - at_w) - linear - square, ROUNDING * size


@kernel(counts_references=False)
def draw_inner(target, pieces, inner, state, out, rng):
    """Draw from g, after `prepare_inner_draws`, and return a code.

    After a pause it goes on when it is called again.
    """
    mean, control = state.vectors[ROW.mean], state.work.control[0]
    progress, is_over = state.workspace.progress[0], False
    while progress.num_inner < MAX_PROPOSALS:
        # A pause is due after the proposal that was under way.
        if is_over:
            return PAUSED
        status = alternation.propose(
            target, pieces, inner.metric, inner.draw, mean, state, rng, out
        )
        is_over = is_due(control)
        if status == alternation.UNFINISHED:
            continue
        progress.num_inner += 1
        state.counts[INNER] += 1
        if np.isnan(status):
            return FUNCTION_FAILED
        if status == alternation.NO_DRAW:
            return DRAW_FAILED
        if status == 0.0:
            continue
        if inner.is_tangent == 0:
            progress.num_inner = 0
            return OK
        gap, slack = regularizer_gap(target, pieces, inner, state, out)
        if np.isnan(gap):
            return FUNCTION_FAILED
        if gap < -slack:
            return BOUND_VIOLATED
        if rng.standard_exponential() >= gap:
            progress.num_inner = 0
            return OK
    return EXHAUSTED
