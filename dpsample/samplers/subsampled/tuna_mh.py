# mypy: allow-untyped-defs
r"""TunaMH: exact Metropolis steps that look at a few records.

A step x' = x + s L z, with L L^T a covariance fitted to the target, has the norm M =
||x' - x||_p. It draws B ~ Poisson(chi C^2 M^2 + C M) random records. A drawn record i
enters the test with probability r_i / (chi c C M^2 + c M), where

    r_i = chi c C M^2 + (d_i + c M) / 2,    d_i = (k / n) (f_i(x') - f_i(x)),

where f_i is the loss of one of n records, k an inverse temperature, and c a public
constant with |d_i| <= c M, and C = n c. The regularizer r has the weight mu. The step
is accepted with probability

    min(1, prod_i r_i(x', x) / r_i(x, x') * exp(psi(x) - psi(x'))),    psi = k mu r,

where the product is over the records of the test. Given (x, x') record i is in it
Poisson(r_i) times. In the equation of detailed balance, the probabilities of these
numbers cancel exp(-sum_i d_i), so that no sum over all records is needed
(Zhang, Cooper, De Sa, arXiv:2006.11677). A larger chi gives more records and a higher
acceptance rate.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, RecordArray, record_dtype
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.norms import dual, norm_along
from dpsample.problem.facts import PublicFacts
from dpsample.problem.records import any_record
from dpsample.samplers import chain, record_terms
from dpsample.samplers.chain import (
    COUNT,
    ROW,
    ChainState,
    accept_or_reject,
    compile_run,
    displace,
    fill_with_normals,
)
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK
from dpsample.samplers.record_terms import loss, margin
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs

# Test of a step under way, which a pause may interrupt.
RecordTest = record_dtype(
    num_left=int,  # drawn records that are not tested yet
    log_ratio=float,  # sum over the counted records so far
)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class TunaPlan(NamedTuple):
    """Step and factor of the proposals, chi, and the bound C ||x' - x||_p."""

    step: float  # s
    chi: float
    bound: float  # C
    p: float  # norm of M
    factor: Array  # (dim, m): L


@by_address
class TunaWork(NamedTuple):
    """Memory of a chain in addition to its state."""

    test: RecordArray  # one record of `RecordTest`


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def poisson_rate(plan, size):
    """Return the mean number of records that a step with C M = size draws."""
    # chi (C M)^2 + C M.
    return plan.chi * size * size + size


@kernel(counts_references=False)
def count_probability(plan, size, change):
    """Return the probability that a drawn record with change = n d_i is in the test."""
    # n r_i over its largest value.
    rate = plan.chi * size * size
    return (rate + 0.5 * (change + size)) / (rate + size)


@kernel(counts_references=False)
def log_weight(plan, size, change):
    """Return the log of r_i(x', x) / r_i(x, x')."""
    # With a = chi size^2 + size / 2 and b = change / 2 it is log((a - b) / (a + b)) =
    # -2 atanh(b / a), which keeps its digits for small b.
    return -2.0 * math.atanh(change / (size * (1.0 + 2.0 * plan.chi * size)))


@kernel(counts_references=False)
def record_change(target, pieces, work, theta, proposal, i):
    """Return n d_i of record i, and its rounding error."""
    before = loss(target, pieces, margin(target.data, theta, i), i, work)
    after = loss(target, pieces, margin(target.data, proposal, i), i, work)
    # Relative rounding error of the losses of a record.
    slack = 1e-12 * target.k * (1.0 + abs(before) + abs(after))
    return target.k * (after - before), slack


@kernel
def draw_poisson(rng, rate):
    """Draw a Poisson number.

    Numba's function counts references, so this kernel does.
    """
    return rng.poisson(rate)


@kernel(counts_references=False)
def sum_log_weights(target, pieces, plan, state, proposal, rng):
    """Return a code and the log of the records' part of the acceptance ratio.

    After a pause it goes on with the next record when it is called again.
    """
    position, data = state.position, target.data
    size = plan.bound * norm_along(proposal, proposal, 0.0, position, plan.p)
    if not size < np.inf:
        return FUNCTION_FAILED, np.nan
    control, test = state.work.control[0], state.workspace.test[0]
    if control.stage == 0:
        test.num_left = draw_poisson(rng, poisson_rate(plan, size))
        test.log_ratio = 0.0
    control.stage = 0
    while test.num_left > 0:
        test.num_left -= 1
        i = any_record(rng, 0, data.num_records)
        change, slack = record_change(target, pieces, state.work, position, proposal, i)
        state.counts[COUNT.records] += 2
        if np.isnan(change):
            return FUNCTION_FAILED, np.nan
        if abs(change) > size + slack:
            return BOUND_VIOLATED, np.nan
        # A change beyond the bound by rounding errors would give a negative rate.
        change = min(max(change, -size), size)
        if rng.random() < count_probability(plan, size, change):
            test.log_ratio += log_weight(plan, size, change)
        if is_due(control):
            control.stage = 1
            return PAUSED, np.nan
    return OK, test.log_ratio


def step(target, pieces, plan, state, rng):
    """Make one proposal and its accept test."""
    noise, proposal = state.vectors[ROW.noise], state.vectors[ROW.proposal]
    noise = noise[: plan.factor.shape[1]]
    # After a pause the proposal and the drawn records are still there.
    if state.work.control[0].stage == 0:
        fill_with_normals(rng, noise)
        displace(plan, state.position, noise, plan.step, proposal)
        state.counts[COUNT.proposals] += 1
        # 1 inside, 0 outside, NaN if the domain's function failed.
        status = gibbs_target.inside(target, pieces, proposal, state.work)
        if status == 0.0:
            return OK
        if np.isnan(status):
            return FUNCTION_FAILED
    code, log_ratio = sum_log_weights(target, pieces, plan, state, proposal, rng)
    if code != OK:
        return code
    before = gibbs_target.regularizer(target, pieces, state.position, state.work)
    after = gibbs_target.regularizer(target, pieces, proposal, state.work)
    # psi(x) - psi(x') of the formula.
    log_ratio += target.k * target.mu * (before - after)
    # The energy of the new position would need a pass over the records.
    return accept_or_reject(state, proposal, np.nan, log_ratio, rng)


run = compile_run(step)


def init(target: Gibbs, plan: TunaPlan, position: Array) -> ChainState:
    """Return a new state at a position of the domain."""
    work = TunaWork(np.zeros(1, RecordTest))
    return chain.init(target, plan, position)._replace(workspace=work)


def change_bound(target: Gibbs) -> tuple[float, float]:
    """Return C and p with |k f_i(x') - k f_i(x)| <= C ||x' - x||_p for all records.

    The declared bound is smallest in the norm that is dual to the norm of the rows. On
    matrices the bound is for these rows, in l2.
    """
    facts: PublicFacts = target.problem.facts
    if facts.is_matrix or facts.row_norm == 2.0:
        return target.k * record_terms.lipschitz_bound(target), 2.0
    p = dual(facts.row_norm)
    return target.k * target.problem.lipschitz(p), p


@dataclass(frozen=True, kw_only=True)
class TunaMH(TunedSampler):
    r"""Minibatch Metropolis, exact: random records take the place of all of them.

    Parameters
    ----------
    chi : float
        Weight of additional records, > 0, which raise the acceptance rate. If C M is
        large, small values need less work per accepted step.
    step_size : float, optional
        Scale s of the proposals in units of the fitted covariance. By default a pilot
        run finds the one with acceptance rate 0.5.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible, for every
    covariance, step and chi. If a record changes by more than its bound, an error is
    raised.

    A step reads chi (C M)^2 + C M records on average, with M the length of the step and
    C the Lipschitz constant of k f. These are few if n is large compared with k.

    Examples
    --------
    >>> from dpsample.samplers import TunaMH
    >>> TunaMH(chi=1.0).is_reversible
    True
    """

    chi: float = 0.5

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check.positive(chi=self.chi)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether the losses have a Lipschitz constant, and if not, why."""
        try:
            change_bound(target)
        except ValueError as error:
            return False, str(error)
        return True, ""

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        """Tune the scale from 2.38 / sqrt(dim), optimal for Gaussian targets."""
        bound, p = change_bound(target)
        return TuningRecipe(
            run=run,
            init_fn=init,
            plan_fn=lambda gaussian, step: TunaPlan(
                float(step), float(self.chi), bound, p, gaussian.factor
            ),
            rate=0.5,
            first_step=2.38 / math.sqrt(target.domain.affine_dim(target.dim)),
        )
