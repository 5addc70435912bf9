# mypy: allow-untyped-defs
r"""Factorized Metropolis about a Laplace approximation: few records per proposal.

    v' = shift + sqrt(1 - b^2) (v - shift) + b z,    x = c + F v,    z ~ N(0, I),

with the step b in (0, 1], the anchor c, which is the mode or a point near it, and a
factor F of the covariance. N(shift, I) is the Gaussian of the energy's second-order
expansion at c, in the coordinates v. The proposal x' = c + F v' is accepted with
probability prod_i min(1, e^{rho_i(x) - rho_i(x')}). Here rho_i is the loss of record i
minus its expansion, with its weight (see `taylor`, and Cornish et al., Scalable
Metropolis-Hastings, 2019). The regularizer has a factor of this form, too.

The product is decided by a Poisson process. Its rate is the sum of bounds of
rho_i(x') - rho_i(x) for all records. Each of its points chooses and reads one record,
which *fires* with the ratio of the difference to its bound as probability. The proposal
is rejected if a record fires (see `factorized_events`). So few records are read.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, RecordArray
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.numerics.vectors import copy_into
from dpsample.samplers import chain, gaussian_fit, sampler
from dpsample.samplers.chain import (
    ChainState,
    PreparedChain,
    compile_run,
    fill_with_normals,
    new_state,
)
from dpsample.samplers.errors import FUNCTION_FAILED, OK
from dpsample.samplers.gaussian_fit import GaussianFit
from dpsample.samplers.subsampled import factorized_events as events
from dpsample.samplers.subsampled import taylor
from dpsample.samplers.subsampled.factorized_events import FactorizedPlan
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs


class FactorizedMetropolisVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors."""

    new_v: int = 0
    noise: int = 1
    proposal: int = 2
    first_move: int = 3  # first of the rows of `factorized_events.MOVE`


ROW = FactorizedMetropolisVectorRow()
# Number of rows, of which the last ones describe the move.
NUM_ROWS = ROW.first_move + len(events.MOVE)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class FactorizedWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    point: RecordArray  # one record of `factorized_events.Point`


@kernel(fastmath={"reassoc", "contract"})
def product(row, vector):
    """Return the inner product. Its terms may be added in any order."""
    total = 0.0
    for j in range(row.shape[0]):
        total += row[j] * vector[j]
    return total


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def propose(plan, rng, v, noise, new_v, delta):
    """Fill in v' given v, and its displacement delta = F v'.

    v, noise and new_v are (rank,), and delta is (dim,). The last three are overwritten.
    """
    fill_with_normals(rng, noise)
    shrink_factor = math.sqrt(1.0 - plan.step * plan.step)
    for i in range(noise.shape[0]):
        new_v[i] = plan.shift[i] + shrink_factor * (v[i] - plan.shift[i])
        new_v[i] += plan.step * noise[i]
    for j in range(delta.shape[0]):
        # Below the diagonal an upper triangle has zeros.
        first = j if plan.is_triangular else 0
        delta[j] = product(plan.factor[j][first:], new_v[first:])


@kernel(counts_references=False)
def regularizer_remainder(target, pieces, plan, theta, delta, work):
    """Return k mu (r - its second-order expansion), up to a constant.

    r is the regularizer, mu its weight, and k the inverse temperature.
    """
    if plan.slope.shape[0] == 0:  # there is no remainder
        return 0.0
    remainder = gibbs_target.regularizer(target, pieces, theta, work)
    for j in range(delta.shape[0]):
        curved = 0.0
        for m in range(delta.shape[0]):
            curved += plan.hessian[j, m] * delta[m]
        remainder -= delta[j] * (plan.slope[j] + 0.5 * curved)
    return target.k * target.mu * remainder


def step(target, pieces, plan, state, rng):
    """Make a proposal and its tests.

    The state's memory is v and the regularizer's remainder at the position.
    """
    dim, rank = plan.factor.shape
    v, remainder = state.memory[:rank], state.memory[rank:]
    new_v, noise = state.vectors[ROW.new_v][:rank], state.vectors[ROW.noise][:rank]
    proposal = state.vectors[ROW.proposal][:dim]
    moves = state.vectors[ROW.first_move : NUM_ROWS]
    # `propose` fills this row of the moves, which the events read.
    delta = moves[events.MOVE.after][:dim]
    state.counts[chain.COUNT.proposals] += 1
    propose(plan, rng, v, noise, new_v, delta)
    for j in range(dim):
        proposal[j] = plan.anchor[j] + delta[j]
        moves[events.MOVE.before, j] = state.position[j] - plan.anchor[j]
    # 1 inside, 0 outside, NaN if the domain's function failed. Outside, the proposal is
    # rejected, and the chain stays.
    status = gibbs_target.inside(target, pieces, proposal, state.work)
    if status == 0.0:
        return OK
    new_remainder = regularizer_remainder(
        target, pieces, plan, proposal, delta, state.work
    )
    if np.isnan(status) or np.isnan(new_remainder):
        return FUNCTION_FAILED
    # The regularizer's factor comes first, because it reads no records.
    if plan.slope.shape[0] > 0:
        log_ratio = remainder[0] - new_remainder
        if -rng.standard_exponential() > log_ratio:
            return OK
    # The total rate is the expected number of points. If it is larger than the number
    # of records, a pass over all of them is shorter.
    if events.fill_rates(plan, v, new_v, moves) < target.data.num_records:
        code = events.decide_by_events(target, pieces, plan, state, moves, rng)
    else:
        code = events.decide_by_all_records(target, pieces, plan, state, moves, rng)
    if code == events.FIRED:
        return OK
    if code == OK:
        copy_into(proposal, state.position)
        copy_into(new_v, v)
        remainder[0] = new_remainder
        state.counts[chain.COUNT.accepted] += 1
    return code


run = compile_run(step)


def init(target: Gibbs, plan: FactorizedPlan, position: Array) -> ChainState:
    """Return a new state at a position of the domain, without its energy."""
    state = new_state(target, position, is_weighed=False)
    delta, numbers = state.position - plan.anchor, target.numbers
    remainder = regularizer_remainder(
        numbers, target.pieces, plan, state.position, delta, state.work
    )
    return state._replace(
        memory=np.append(plan.whiten @ delta, remainder),
        # A row of the moves has one number per channel: coordinates and two norms.
        vectors=np.empty((NUM_ROWS, delta.size + 2)),
        workspace=FactorizedWork(np.zeros(1, events.Point)),
    )


@dataclass(frozen=True, kw_only=True)
class FactorizedMetropolis(sampler.TunedSampler):
    """Metropolis about a Laplace approximation that reads few records per step.

    Parameters
    ----------
    step_size : float, optional
        Share b of new noise, in (0, 1]. By default a pilot run finds the one with
        acceptance rate 0.4, or takes 1 if that is accepted more often.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The proposal is reversible for the Gaussian of the expansion. The
    acceptance probability is a product of Metropolis factors, which an exact Poisson
    process decides. So the target is exactly invariant and the kernel reversible for
    any anchor. The energy is never evaluated, and its statistic is NaN.

    Examples
    --------
    >>> from dpsample.samplers import FactorizedMetropolis
    >>> FactorizedMetropolis(step_size=0.5).exactness
    'invariant'
    """

    longest_step: ClassVar[float] = 1.0

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether remainders have small bounds, and if not, why."""
        plan = _plan(target)
        return (False, plan) if isinstance(plan, str) else (True, "")

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Expand at the mode, and check whether the Gaussian reaches the tails."""
        prepared = self.tune_proposal(target, rng)
        is_reached = gaussian_fit.reaches_tails(target, _gaussian(prepared.plan))
        settings = prepared.settings | {"reaches_tails": int(is_reached)}
        return replace(prepared, settings=settings)

    def tune_proposal(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Expand at the mode and find the share of noise.

        The automatic choice of a sampler calls this without the check of the tails.
        """
        plan = _plan(target)
        if isinstance(plan, str):
            check.fail("sampler", "one that supports the target", repr(self), plan)
        gaussian = _gaussian(plan)
        recipe = sampler.TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=lambda _, step: plan._replace(step=float(step)),
            rate=0.4,
            first_step=1.0,
            longest=self.longest_step,
            num_steps=self.num_steps,
        )
        step = self.step_size
        if step is None:
            step = sampler.search_step(target, recipe, gaussian, rng, 1.0)
        return recipe.build(target, gaussian, step)


def _gaussian(plan: FactorizedPlan) -> GaussianFit:
    """Return the Gaussian about the anchor. Its share inside is not needed again."""
    return GaussianFit(
        center=plan.anchor, factor=plan.factor, whiten=plan.whiten, share_inside=1.0
    )


def _plan(target: Gibbs) -> FactorizedPlan | str:
    """Return the plan for b = 1, or the reason why there is none."""
    bound = taylor.third_derivative(target)
    remedy = "Use LaplaceIndependence."
    if not (np.isfinite(bound) and taylor.has_curvature(target)):
        return f"The loss has no bounded third derivative. {remedy}"
    expansion = taylor.expand(target)
    if expansion is None:
        return "The Hessian at the mode is singular. Use HitAndRun."
    # Below this share more than 99 of 100 independent proposals would be outside.
    if expansion.share_inside < 0.01:
        return "Hardly any of the Gaussian lies in the domain. Use HitAndRun."
    num_records = target.data.num_records
    weight = target.k / num_records
    # Taylor's theorem: |rho_i| <= cubic |<a_i, delta>|^3.
    cubic = weight * bound / 6.0
    channels = events.build_channels(target, expansion, cubic)
    num_expected = channels.expected
    # If a proposal is expected to read more than a fifth of the records, and more than
    # 1000 of them, samplers that read all records are faster.
    if num_expected > max(0.2 * num_records, 1000.0):
        work = f"{num_expected:.0f} records per draw are expected of {num_records}."
        return f"{work} {remedy}"
    # Channels 0 .. dim - 1 belong to coordinates. They are left out if all are empty.
    first = 0 if channels.starts[target.dim] > 0 else target.dim
    return FactorizedPlan(
        step=1.0,
        anchor=expansion.anchor,
        shift=expansion.shift,
        factor=expansion.factor,
        whiten=expansion.whiten,
        is_triangular=not np.tril(expansion.factor, -1).any(),
        slope=expansion.regularizer_gradient,
        hessian=expansion.regularizer_hessian,
        records=expansion.records,
        weight=weight,
        cubic=cubic,
        first=first,
        spread=channels.spread,
        coefficients=channels.coefficients,
        channel_weights=channels.weights,
        starts=channels.starts,
        table=channels.table,
    )
