# mypy: allow-untyped-defs
"""Independence Metropolis with the Gaussian fit, energies of whole batches at once.

    x' ~ q = N(c, C) or t_nu(c, C),    accepted with min(1, w(x') / w(x)),  w = pi / q.

Here q is a Gaussian fit of the target pi, or a multivariate t distribution with the
same center c and scale matrix C. The ratio w is the weight of a point.

The target is pi, proportional to e^{-V}, V = k (F + mu r), with the mean loss F, a
regularizer r of weight mu and an inverse temperature k.

Proposals do not depend on the position, so a batch of them is drawn ahead, and their
energies are evaluated in one pass over the records, which reads each record from memory
once. With dense features, a block of records is one matrix product with the points. A
sparse record adds its few rows of the transposed points, so that the innermost loop
runs over points and not over columns.

A proposal outside the domain has weight 0, and the chain stays where it is. The batch
has no energy for it, only the number of such steps before each proposal inside.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, RecordArray, record_dtype
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
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs

# Margins of a block of records, at all points: 256 kB, which fit in a level-2 cache.
MAX_BLOCK_MARGINS = 32768
# Share of the Gaussian fit that must be inside the domain. With less, most batches
# would be nearly empty.
MIN_SHARE_INSIDE = 0.01
UNSUPPORTED = (
    "Hardly any proposal of the Gaussian fit lies in the domain. "
    "Use HitAndRun, RandomWalk or Proximal."
)

# Start of a chain's memory, which a checkpoint stores as floats.
BatchHeader = record_dtype(
    log_weight=float,  # log w at the position
    num_used=float,  # proposals inside the domain that the chain has tested
    num_inside=float,  # proposals inside the domain
    num_outside_after=float,  # proposals outside after the last one inside
)
HEADER_SIZE = BatchHeader.itemsize // 8  # floats
# A refill under way, which goes on after a pause.
Refill = record_dtype(
    num_proposed=int,
    num_inside=int,
    num_outside=int,  # since the last proposal inside
    is_evaluating=bool,  # whether the batch is complete, but without energies
    next_record=int,  # first one that the energies do not include yet
)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class BatchWork(NamedTuple):
    """Scratch memory of a pass over the records for a limited number of points."""

    margins: Array  # (MAX_BLOCK_MARGINS,), or more if one record has more points
    transposed: Array  # (dim, num_points), or empty for dense features
    responses: Array  # (num_points,): the same response for all points
    work: Work  # scratch memory of the records' own passes
    control: RecordArray  # the control of ``work``


def make_batch_work(target: Gibbs, num_points: int) -> BatchWork:
    """Return scratch memory for passes with up to ``num_points`` points."""
    data = target.data
    is_sparse = data.dense.shape[0] == 0
    work = target.new_work()
    return BatchWork(
        margins=np.empty(max(MAX_BLOCK_MARGINS, num_points)),
        transposed=np.empty((data.dim if is_sparse else 0, num_points)),
        responses=np.full(num_points, np.nan),
        work=work,
        control=work.control,
    )


@kernel
def add_dense(data, loss_value, points, work, totals, begin):
    """Add the losses of records from ``begin`` on, at each point, to its total.

    Return the first record that is not added: the number of records, or an earlier one
    if a pause is due.
    """
    count = points.shape[0]
    # So many records that their margins at all points fill the memory.
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


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def add_row(value, row, out):
    """Add a multiple of a row to out."""
    for b in range(out.shape[0]):
        out[b] += value * row[b]


@kernel(counts_references=False)
def add_four_rows(values, rows, columns, first, out):
    """Add multiples of four rows to out in one loop, which is bound by its loads."""
    v0, v1 = values[first], values[first + 1]
    v2, v3 = values[first + 2], values[first + 3]
    r0, r1 = rows[columns[first]], rows[columns[first + 1]]
    r2, r3 = rows[columns[first + 2]], rows[columns[first + 3]]
    for b in range(out.shape[0]):
        out[b] += (v0 * r0[b] + v1 * r1[b]) + (v2 * r2[b] + v3 * r3[b])


@kernel(counts_references=False)
def add_sparse(data, loss_value, points, work, totals, begin):
    """Do as `add_dense` for sparse features."""
    count = points.shape[0]
    margins, responses = work.margins[:count], work.responses[:count]
    # The first entries of the memory, so that rows of few points are contiguous, too.
    rows = work.transposed.reshape(-1)[: data.dim * count].reshape(data.dim, count)
    for j in range(data.dim):
        for b in range(count):
            rows[j, b] = points[b, j]
    for i in range(begin, data.num_records):
        if i > begin and is_due(work.control[0]):
            return i
        margins[:] = data.offset[i] if data.offset.shape[0] > 0 else 0.0
        j, end = data.starts[i], data.starts[i + 1]
        # Four entries at once, so that each sum is loaded and stored once for four
        # rows.
        while j + 4 <= end:
            add_four_rows(data.values, rows, data.columns, j, margins)
            j += 4
        while j < end:
            add_row(data.values[j], rows[data.columns[j]], margins)
            j += 1
        # The same response at all points. Equal responses in a row are filled in once.
        if i == 0 or data.response[i] != data.response[i - 1]:
            responses[:] = data.response[i]
        work.work.out[0] = np.nan
        loss_value(data.loss_params, margins, responses, work.work.out)
        # The loss replaces margins by values. If it fails halfway, its sum is still
        # NaN, which the product with 0 passes on to the energy.
        for b in range(count):
            totals[b] += margins[b] + 0.0 * work.work.out[0]
    return data.num_records


@kernel(counts_references=False)
def evaluate_energies(target, pieces, points, work, out, begin):
    """Fill out with V = k (F + mu r) at each row of points, NaN if a function failed.

    Return the number of records if ``out`` is complete. If a pause is due, return the
    record with which the next call should ``begin``.
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
        penalty = gibbs_target.regularizer(target, pieces, points[b], work.work)
        out[b] = target.k * (out[b] / data.num_records + target.mu * penalty)
    return begin


@by_address
class IndependencePlan(NamedTuple):
    """Gaussian fit, degrees of freedom, and size of a batch."""

    center: Array  # (dim,): c
    factor: Array  # (dim, m): L, with L L^T = C
    whiten: Array  # (m, dim): left inverse of the factor
    tail: float  # degrees of freedom
    batch: int  # proposals inside the domain


@by_address
class Batch(NamedTuple):
    """Proposals drawn ahead: views of a chain's memory, and scratch memory."""

    header: RecordArray  # one record of `BatchHeader`
    num_outside: Array  # (batch,): proposals outside before each one inside
    energies: Array  # (batch,)
    log_weights: Array  # (batch,)
    proposals: Array  # (batch, dim)
    noise: Array  # (m,)
    refill: RecordArray  # one record of `Refill`


@kernel(counts_references=False)
def log_proposal(plan, square):
    """Return log q, up to a constant, at a whitened squared distance from c."""
    if plan.tail == np.inf:
        return -0.5 * square
    rank = plan.factor.shape[1]
    # The density of a t vector is proportional to (1 + square / nu)^{-(nu + m) / 2}.
    return -0.5 * (plan.tail + rank) * math.log1p(square / plan.tail)


@kernel(counts_references=False)
def propose(plan, rng, noise, out):
    """Fill out with a proposal and return its whitened squared distance from c."""
    fill_with_normals(rng, noise)
    scale = 1.0
    # A t vector is a normal one divided by sqrt(chi^2 / tail). Half of a chi^2 variable
    # with tail degrees of freedom is a gamma variable of shape tail / 2.
    if plan.tail != np.inf:
        scale = math.sqrt(0.5 * plan.tail / rng.standard_gamma(0.5 * plan.tail))
    displace(plan, plan.center, noise, scale, out)
    return scale * scale * np.dot(noise, noise)


@kernel(counts_references=False)
def refill(target, pieces, plan, state, rng):
    """Draw proposals until a batch lies in the domain, and evaluate their weights.

    After a pause it goes on with the next proposal or record when it is called again.
    """
    control, header, progress = (
        state.work.control[0],
        state.workspace.header[0],
        state.workspace.refill[0],
    )
    if control.stage == 0:
        progress.num_proposed = progress.num_inside = progress.num_outside = 0
        progress.is_evaluating, progress.next_record = False, 0
    if not progress.is_evaluating:
        code = fill_batch(target, pieces, plan, state, rng)
        if code != OK:
            return code
        header.num_used, header.num_inside = 0.0, progress.num_inside
        header.num_outside_after = progress.num_outside
        if progress.num_inside == 0:
            return OK
        progress.is_evaluating = True
    num_inside = progress.num_inside
    control.stage = 0
    points, out = (
        state.workspace.proposals[:num_inside],
        state.workspace.energies[:num_inside],
    )
    progress.next_record = evaluate_energies(
        target, pieces, points, state.work, out, progress.next_record
    )
    if progress.next_record < target.data.num_records:
        control.stage = 1
        return PAUSED
    state.counts[chain.COUNT.values] += num_inside
    state.counts[chain.COUNT.records] += num_inside * target.data.num_records
    for i in range(num_inside):
        # The log weights were minus log q until now.
        state.workspace.log_weights[i] -= state.workspace.energies[i]
        if np.isnan(state.workspace.log_weights[i]):
            return FUNCTION_FAILED
    return OK


@kernel(counts_references=False)
def fill_batch(target, pieces, plan, state, rng):
    """Draw proposals until a batch lies in the domain, and return a code.

    Log weights are set to minus the log density of the proposals.
    """
    control, progress = state.work.control[0], state.workspace.refill[0]
    control.stage, is_over = 0, False
    # If hardly any proposal is inside, the batch is left with fewer entries after 20
    # times as many proposals.
    while progress.num_proposed < 20 * plan.batch:
        if is_over:
            control.stage = 1
            return PAUSED
        is_over = is_due(control)
        progress.num_proposed += 1
        i = progress.num_inside
        proposal = state.workspace.proposals[i]
        square = propose(plan, rng, state.workspace.noise, proposal)
        # 1 inside, 0 outside, NaN if the domain's function failed.
        status = gibbs_target.inside(target, pieces, proposal, state.work.work)
        if np.isnan(status):
            return FUNCTION_FAILED
        if status == 0.0:
            progress.num_outside += 1
            continue
        state.workspace.num_outside[i] = progress.num_outside
        state.workspace.log_weights[i] = -log_proposal(plan, square)
        progress.num_inside, progress.num_outside = i + 1, 0
        if progress.num_inside == plan.batch:
            break
    return OK


def step(target, pieces, plan, state, rng):
    """Take the next proposal of the batch, and make its accept test."""
    header = state.workspace.header[0]
    # A batch is empty when all its proposals are tested, and the steps outside after
    # the last of them are made.
    is_empty = header.num_used == header.num_inside and header.num_outside_after == 0.0
    if is_empty or state.work.control[0].stage != 0:
        code = refill(target, pieces, plan, state, rng)
        if code != OK:
            return code
    state.counts[chain.COUNT.proposals] += 1
    i = int(header.num_used)
    # The proposals are tested in the order in which they were drawn. Those outside of
    # the domain came before the i-th one inside, or at the end, and each is a step that
    # stays.
    if i == int(header.num_inside):
        header.num_outside_after -= 1.0
        return OK
    if state.workspace.num_outside[i] > 0.0:
        state.workspace.num_outside[i] -= 1.0
        return OK
    header.num_used += 1.0
    if (
        -rng.standard_exponential()
        <= state.workspace.log_weights[i] - header.log_weight
    ):
        copy_into(state.workspace.proposals[i], state.position)
        state.energy[0] = state.workspace.energies[i]
        header.log_weight = state.workspace.log_weights[i]
        state.counts[chain.COUNT.accepted] += 1
    return OK


run = compile_run(step)


def init(target: Gibbs, plan: IndependencePlan, position: Array) -> ChainState:
    """Return a new state at a position of the domain, with an empty batch."""
    size, dim = plan.batch, position.size
    memory = np.zeros(HEADER_SIZE + size * (3 + dim))
    state = new_state(target, position, memory=memory, rows=0)
    # The parts of the batch are views of the memory, which checkpoints store.
    header = state.memory[:HEADER_SIZE].view(BatchHeader)
    rows, points = np.split(state.memory[HEADER_SIZE:], [3 * size])
    num_outside, energies, log_weights = rows.reshape(3, size)
    white = plan.whiten @ (state.position - plan.center)
    density = log_proposal(plan, float(white @ white))
    header["log_weight"] = -state.energy[0] - density
    batch = Batch(
        header=header,
        num_outside=num_outside,
        energies=energies,
        log_weights=log_weights,
        proposals=points.reshape(size, dim),
        noise=np.empty(plan.factor.shape[1]),
        refill=np.zeros(1, Refill),
    )
    return state._replace(workspace=batch, work=make_batch_work(target, size))


@dataclass(frozen=True, kw_only=True)
class LaplaceIndependence(Sampler):
    """Independence Metropolis with the Gaussian fit, in batches.

    Parameters
    ----------
    batch : int
        Number of proposals whose energies are evaluated in one pass over the records.
    tail : float
        Degrees of freedom of the proposals' t distribution, at least 1. The default,
        infinity, is the Gaussian. With few degrees of freedom, a chain does not get
        stuck in a heavy tail of the target.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible for any
    fit. A bad fit has a low acceptance rate. If the target has heavier tails than the
    proposals, a chain is rarely in them, and then stays there for long. `prepare` looks
    for such tails, although it may miss some. It sets ``reaches_tails`` of the settings
    to 0, and `sample` warns.

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
        """Return whether enough of the Gaussian fit is inside, and if not, why."""
        is_supported = gaussian_fit.fit(target).share_inside >= MIN_SHARE_INSIDE
        return is_supported, "" if is_supported else UNSUPPORTED

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit the Gaussian or tune one, and check whether it reaches the tails."""
        prepared = self.tune_proposal(target, rng)
        drop = -log_proposal(prepared.plan, gaussian_fit.FAR**2)
        needed = gaussian_fit.LEAST_RISE * drop
        is_reached = gaussian_fit.reaches_tails(target, prepared.plan, needed)
        settings = prepared.settings | {"reaches_tails": int(is_reached)}
        return replace(prepared, settings=settings)

    def tune_proposal(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Fit the Gaussian. If the domain cuts it, tune another one in a pilot run."""
        gaussian = gaussian_fit.fit(target)
        if gaussian.share_inside < MIN_SHARE_INSIDE:
            check.fail(
                "sampler", "one that supports the target", repr(self), UNSUPPORTED
            )
        prepared = self._build(target, gaussian)
        if gaussian.share_inside >= sampler.TRUSTED_SHARE:
            return prepared
        tuned_plan = PreconditionedCrankNicolson().prepare(target, rng).plan
        tuned = self._build(target, tuned_plan)
        # The acceptance rates of eight batches include proposals outside the domain.
        first_rate, tuned_rate = (
            sampler.measure_acceptance(candidate, candidate.init(), rng, 8 * 128)
            for candidate in (prepared, tuned)
        )
        return tuned if tuned_rate > first_rate else prepared

    def _build(
        self, target: Gibbs, gaussian: GaussianFit | MetropolisPlan
    ) -> PreparedChain:
        """Return a chain with the center, factor and whiten of a fit or plan."""
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
