# mypy: allow-untyped-defs
"""Independence Metropolis with the Gaussian fit, energies of whole batches at once.

    x' ~ q = N(c, C) or t_nu(c, C),    accepted with min(1, w(x') / w(x)),  w = pi / q.

Proposals do not depend on the state, so a batch of them is drawn ahead and weighed in
one pass over the records, whose memory traffic is paid once for all. Dense features
meet the points in one matrix product per block of records; a sparse record adds its few
rows of the transposed points, so that the innermost loop runs over points and not over
columns. Proposals outside the domain have weight 0: they are steps that stay, and only
counted.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, RecordArray
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.vectors import copy_into
from dpsample.problem.records import Work
from dpsample.samplers import chain, gaussian_fit, sampler
from dpsample.samplers.chain import (
    ChainState,
    MetropolisPlan,
    PreparedChain,
    compile_run,
    displace,
    fill_with_normals,
    new_state,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.metropolis.preconditioned_crank_nicolson import (
    PreconditionedCrankNicolson,
)
from dpsample.samplers.sampler import Sampler
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

BLOCK_NUMBERS = 32768  # 256 kB of margins: they stay in a second-level cache
# Entries of the header: log weight of the position, proposals used and held, and
# proposals outside the domain after the last one held.
LOG_WEIGHT, CURSOR, HELD, TRAILING = range(4)
MAX_TRIES = 20  # per proposal that a batch is worth
# What a paused refill keeps: proposals made, held and outside after the last one held,
# or, while they are weighed, the next record. Its stages.
NUM_MADE, NUM_HELD, NUM_OUTSIDE, NEXT_RECORD = range(4)
PROPOSING, WEIGHING = 1, 2
MIN_SHARE = 0.01
REFUSAL = (
    "Hardly any proposal of the Gaussian fit lies in the domain. "
    "Use HitAndRun, RandomWalk or Proximal."
)
NUM_PILOT = 8  # batches that compare two fits


@by_address
class BatchWork(NamedTuple):
    """Scratch memory of a pass for up to ``same.size`` points."""

    margins: Array  # (BLOCK_NUMBERS or one record for all points,)
    transposed: Array  # (dim, num_points), or empty for dense features
    same: Array  # (num_points,): one response for all points
    work: Work  # of the records' own passes
    control: RecordArray  # that of ``work``


def make_batch_work(target: Gibbs, num_points: int) -> BatchWork:
    """Scratch memory for passes with up to ``num_points`` points."""
    data = target.data
    is_sparse = data.dense.shape[0] == 0
    work = target.new_work()
    return BatchWork(
        margins=np.empty(max(BLOCK_NUMBERS, num_points)),
        transposed=np.empty((data.dim if is_sparse else 0, num_points)),
        same=np.full(num_points, np.nan),
        work=work,
        control=work.control,
    )


@kernel
def add_dense(data, loss_value, points, work, totals, begin):
    """Add the losses of records from ``begin`` to totals; return the next one.

    That is behind the last one, or where a pause comes.
    """
    count = points.shape[0]
    width = max(1, work.margins.shape[0] // count)
    for start in range(begin, data.num_records, width):
        if start > begin and is_due(work.control[0]):
            return start
        stop = min(start + width, data.num_records)
        margins = work.margins[: count * (stop - start)].reshape(count, stop - start)
        np.dot(points, data.dense[start:stop].T, margins)
        for b in range(count):
            row = margins[b]
            if data.offset.shape[0] > 0:
                for i in range(stop - start):
                    row[i] += data.offset[start + i]
            work.work.out[0] = np.nan
            loss_value(data.loss_params, row, data.response[start:stop], work.work.out)
            totals[b] += work.work.out[0]
    return data.num_records


@kernel(counts_references=False)
def add_row(value, row, out):
    """Add value times row to out."""
    for b in range(out.shape[0]):
        out[b] += value * row[b]


@kernel(counts_references=False)
def add_four_rows(values, rows, columns, first, out):
    """Add four scaled rows to out in one walk: it is bound by loads and stores."""
    v0, v1 = values[first], values[first + 1]
    v2, v3 = values[first + 2], values[first + 3]
    r0, r1 = rows[columns[first]], rows[columns[first + 1]]
    r2, r3 = rows[columns[first + 2]], rows[columns[first + 3]]
    for b in range(out.shape[0]):
        out[b] += (v0 * r0[b] + v1 * r1[b]) + (v2 * r2[b] + v3 * r3[b])


@kernel(counts_references=False)
def add_sparse(data, loss_value, points, work, totals, begin):
    """Add the losses of records from ``begin`` to totals; return the next one."""
    count = points.shape[0]
    margins, same = work.margins[:count], work.same[:count]
    rows = work.transposed.reshape(-1)[: data.dim * count].reshape(data.dim, count)
    for j in range(data.dim):
        for b in range(count):
            rows[j, b] = points[b, j]
    for i in range(begin, data.num_records):
        if i > begin and is_due(work.control[0]):
            return i
        margins[:] = data.offset[i] if data.offset.shape[0] > 0 else 0.0
        j, end = data.starts[i], data.starts[i + 1]
        while j + 4 <= end:
            add_four_rows(data.values, rows, data.columns, j, margins)
            j += 4
        while j < end:
            add_row(data.values[j], rows[data.columns[j]], margins)
            j += 1
        if i == 0 or data.response[i] != data.response[i - 1]:
            same[:] = data.response[i]
        work.work.out[0] = np.nan
        loss_value(data.loss_params, margins, same, work.work.out)
        # A piece that stops halfway leaves its sum NaN, and with it the energy.
        for b in range(count):
            totals[b] += margins[b] + 0.0 * work.work.out[0]
    return data.num_records


@kernel(counts_references=False)
def energies(target, pieces, points, work, out, begin):
    """Fill out with V = k (F + mu r) at each row of points; NaN if a piece failed.

    Returns the record before which a pause comes, and which ``begin`` is then in the
    next call; the number of records if ``out`` is complete.
    """
    data = target.data
    if begin == 0:
        out[:] = 0.0
    if data.dense.shape[0] > 0:
        begin = add_dense(data, pieces.loss_value, points, work, out, begin)
    else:
        begin = add_sparse(data, pieces.loss_value, points, work, out, begin)
    if begin < data.num_records:
        return begin
    for b in range(points.shape[0]):
        penalty = gibbs.regularizer(target, pieces, points[b], work.work)
        out[b] = target.k * (out[b] / data.num_records + target.mu * penalty)
    return begin


@by_address
class IndependencePlan(NamedTuple):
    """Gaussian fit, degrees of freedom, and size of a batch."""

    center: Array
    factor: Array
    whiten: Array
    tail: float
    batch: int


@by_address
class Batch(NamedTuple):
    """Proposals drawn ahead: views of a chain's memory, and scratch memory."""

    header: Array  # (4,)
    waits: Array  # (batch,): proposals outside the domain before each one held
    energies: Array  # (batch,)
    log_weights: Array  # (batch,)
    proposals: Array  # (batch, dim)
    noise: Array


@kernel(counts_references=False)
def log_proposal(plan, square):
    """Log density of a proposal at a whitened squared distance, up to a constant."""
    if plan.tail == np.inf:
        return -0.5 * square
    rank = plan.factor.shape[1]
    return -0.5 * (plan.tail + rank) * math.log1p(square / plan.tail)


@kernel(counts_references=False)
def propose(plan, rng, noise, out):
    """Fill out with a proposal and return its whitened squared distance."""
    fill_with_normals(rng, noise)
    scale = 1.0
    if plan.tail != np.inf:
        scale = math.sqrt(0.5 * plan.tail / rng.standard_gamma(0.5 * plan.tail))
    displace(plan, plan.center, noise, scale, out)
    return scale * scale * np.dot(noise, noise)


@kernel(counts_references=False)
def refill(target, pieces, plan, state, rng):
    """Draw proposals until a batch lies in the domain, and weigh them.

    Paused, it goes on with the next proposal or records when it is called again.
    """
    control, header = state.work.control[0], state.own.header
    if control.stage == 0:
        control.saved[NUM_MADE] = control.saved[NUM_HELD] = control.saved[
            NUM_OUTSIDE
        ] = 0.0
        control.saved[NEXT_RECORD] = 0.0
    if control.stage != WEIGHING:
        code = fill_batch(target, pieces, plan, state, rng)
        if code != OK:
            return code
        held = int(control.saved[NUM_HELD])
        header[CURSOR], header[HELD] = 0.0, held
        header[TRAILING] = control.saved[NUM_OUTSIDE]
        if held == 0:
            return OK
    held = int(header[HELD])
    control.stage = 0
    points, out = state.own.proposals[:held], state.own.energies[:held]
    begin = int(control.saved[NEXT_RECORD])
    start = energies(target, pieces, points, state.work, out, begin)
    if start < target.data.num_records:
        control.stage, control.saved[NEXT_RECORD] = WEIGHING, start
        return PAUSED
    state.counts[chain.VALUES] += held
    state.counts[chain.RECORDS] += held * target.data.num_records
    for i in range(held):
        state.own.log_weights[i] -= state.own.energies[i]
        if np.isnan(state.own.log_weights[i]):
            return FUNCTION_FAILED
    return OK


@kernel(counts_references=False)
def fill_batch(target, pieces, plan, state, rng):
    """Draw proposals until a batch lies in the domain; a code."""
    control = state.work.control[0]
    held, wait = int(control.saved[NUM_HELD]), int(control.saved[NUM_OUTSIDE])
    control.stage, is_over = 0, False
    for made in range(int(control.saved[NUM_MADE]), MAX_TRIES * plan.batch):
        if is_over:
            control.saved[NUM_MADE], control.saved[NUM_HELD] = made, held
            control.saved[NUM_OUTSIDE], control.stage = wait, PROPOSING
            return PAUSED
        is_over = is_due(control)
        proposal = state.own.proposals[held]
        square = propose(plan, rng, state.own.noise, proposal)
        status = gibbs.inside(target, pieces, proposal, state.work.work)
        if np.isnan(status):
            return FUNCTION_FAILED
        if status == 0.0:
            wait += 1
            continue
        state.own.waits[held] = wait
        state.own.log_weights[held] = -log_proposal(plan, square)
        held, wait = held + 1, 0
        if held == plan.batch:
            break
    control.saved[NUM_HELD], control.saved[NUM_OUTSIDE] = held, wait
    return OK


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test."""
    header, stage = state.own.header, state.work.control[0].stage
    is_empty = header[CURSOR] == header[HELD] and header[TRAILING] == 0.0
    if is_empty or stage != 0:
        code = refill(target, pieces, plan, state, rng)
        if code != OK:
            return code
    state.counts[chain.PROPOSALS] += 1
    i = int(header[CURSOR])
    if i == int(header[HELD]):
        header[TRAILING] -= 1.0
        return OK
    if state.own.waits[i] > 0.0:
        state.own.waits[i] -= 1.0
        return OK
    header[CURSOR] += 1.0
    if -rng.standard_exponential() <= state.own.log_weights[i] - header[LOG_WEIGHT]:
        copy_into(state.own.proposals[i], state.position)
        state.energy[0] = state.own.energies[i]
        header[LOG_WEIGHT] = state.own.log_weights[i]
        state.counts[chain.ACCEPTED] += 1
    return OK


run = compile_run(step)


def init(target: Gibbs, plan: IndependencePlan, position: Array) -> ChainState:
    """Fresh state at a position of the domain, with an empty batch."""
    size, dim = plan.batch, position.size
    state = new_state(target, position, memory=np.zeros(4 + size * (3 + dim)), rows=0)
    memory, white = state.memory, plan.whiten @ (state.position - plan.center)
    memory[LOG_WEIGHT] = -state.energy[0] - log_proposal(plan, float(white @ white))
    waits, energies, log_weights = memory[4 : 4 + 3 * size].reshape(3, size)
    batch = Batch(
        header=memory[:4],
        waits=waits,
        energies=energies,
        log_weights=log_weights,
        proposals=memory[4 + 3 * size :].reshape(size, dim),
        noise=np.empty(plan.factor.shape[1]),
    )
    return state._replace(own=batch, work=make_batch_work(target, size))


@dataclass(frozen=True, kw_only=True)
class LaplaceIndependence(Sampler):
    """Independence Metropolis with the Gaussian fit, in batches.

    Parameters
    ----------
    batch : int
        Proposals weighed in one pass over the records.
    tail : float
        Degrees of freedom of the proposals' t law, at least 1; infinity, the default,
        is the Gaussian. Few keep a chain from sticking in a heavy tail of the target.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible for any
    fit. A bad one costs acceptance, and where the target has heavier tails than the
    proposals, a chain is hardly ever there and then stays for long. `prepare` looks for
    such tails and sets ``reaches_tails`` of the settings to 0, of which `sample` warns.
    It may miss some.

    Examples
    --------
    >>> from dpsample.samplers import LaplaceIndependence
    >>> LaplaceIndependence(batch=64).exactness
    'invariant'
    """

    batch: int = 128
    tail: float = math.inf

    def __post_init__(self) -> None:
        """Check the options."""
        check.integer(1, batch=self.batch)
        check.at_least(1.0, tail=self.tail)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether enough of the Gaussian fit lies in the domain."""
        is_supported = gaussian_fit.fit(target).share_inside >= MIN_SHARE
        return is_supported, "" if is_supported else REFUSAL

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit the Gaussian, or learn one; look for tails that it does not reach."""
        prepared = self.tune_proposal(target, rng)
        drop = -log_proposal(prepared.plan, gaussian_fit.FAR**2)
        needed = gaussian_fit.LEAST_RISE * drop
        is_reached = gaussian_fit.reaches_tails(target, prepared.plan, needed)
        settings = prepared.settings | {"reaches_tails": int(is_reached)}
        return replace(prepared, settings=settings)

    def tune_proposal(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit the Gaussian; where the domain cuts it, learn another in a pilot run."""
        gaussian = gaussian_fit.fit(target)
        if gaussian.share_inside < MIN_SHARE:
            check.fail("sampler", "one that supports the target", repr(self), REFUSAL)
        prepared = self._build(target, gaussian)
        if gaussian.share_inside >= sampler.TRUSTED_SHARE:
            return prepared
        learned = PreconditionedCrankNicolson().prepare(target, rng).plan
        other = self._build(target, learned)
        # Proposals outside the domain are counted, too.
        rates = [
            sampler.acceptance(each, each.init(), rng, NUM_PILOT * 128)
            for each in (prepared, other)
        ]
        return other if rates[1] > rates[0] else prepared

    def _build(
        self, target: Gibbs, gaussian: GaussianFit | MetropolisPlan
    ) -> PreparedChain:
        """Chain with the center, factor and whiten of a fit or plan."""
        plan = IndependencePlan(
            center=gaussian.center,
            factor=gaussian.factor,
            whiten=gaussian.whiten,
            tail=float(self.tail),
            batch=int(self.batch),
        )
        return PreparedChain(
            target=target,
            plan=plan,
            run=run,
            init_fn=init,
            start=plan.center,
            num_warmup=100,
            settings={"batch": plan.batch, "tail": plan.tail},
            scatter=plan.factor,
        )
