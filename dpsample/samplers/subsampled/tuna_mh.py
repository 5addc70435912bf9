# mypy: allow-untyped-defs
r"""TunaMH: exact Metropolis steps that look at a few records.

A step x' = x + s L z of norm M draws B ~ Poisson(chi C^2 M^2 + C M) records. A record
counts with probability r_i / (chi c C M^2 + c M), r_i = chi c C M^2 + (d_i + c M) / 2,
d_i = (k / n) (f_i(x') - f_i(x)), |d_i| <= c M, C = n c. Accepted with probability

    min(1, prod_i r_i(x', x) / r_i(x, x') * exp(psi(x) - psi(x'))),    psi = k mu r:

the counts given (x, x') are Poisson(r_i), and their law cancels exp(-sum_i d_i) (Zhang,
Cooper, De Sa, arXiv:2006.11677).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import kernel
from dpsample.core.pauses import PAUSED, is_due
from dpsample.numerics.norms import dual, norm_along
from dpsample.problem.facts import PublicFacts
from dpsample.problem.records import any_record
from dpsample.samplers import record_terms
from dpsample.samplers.chain import (
    PROPOSALS,
    RECORDS,
    accept_or_reject,
    compile_run,
    displace,
    fill_with_normals,
)
from dpsample.samplers.errors import BOUND_VIOLATED, FUNCTION_FAILED, OK
from dpsample.samplers.record_terms import loss, margin
from dpsample.samplers.sampler import TunedSampler, TuningRecipe
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

ROUNDING = 1e-12
# What a step keeps that is paused among its records: how many are left, and their sum.
NUM_LEFT, TOTAL = range(2)


@by_address
class TunaPlan(NamedTuple):
    """Step and factor of the proposals, chi, and the bound C ||x' - x||_p."""

    step: float
    chi: float
    bound: float
    p: float
    factor: Array


@kernel(counts_references=False)
def poisson_rate(plan, size):
    """Mean number of records that a step with C M = size looks at."""
    return plan.chi * size * size + size


@kernel(counts_references=False)
def counted(plan, size, change):
    """Probability that a drawn record counts; change = n d_i, |change| <= size."""
    rate = plan.chi * size * size
    return (rate + 0.5 * (change + size)) / (rate + size)


@kernel(counts_references=False)
def log_weight(plan, size, change):
    """Log of r_i(x', x) / r_i(x, x')."""
    return -2.0 * math.atanh(change / (size * (1.0 + 2.0 * plan.chi * size)))


@kernel(counts_references=False)
def record_change(target, pieces, work, theta, proposal, i):
    """N d_i of record i, and its rounding error."""
    before = loss(target, pieces, margin(target.data, theta, i), i, work)
    after = loss(target, pieces, margin(target.data, proposal, i), i, work)
    slack = ROUNDING * target.k * (1.0 + abs(before) + abs(after))
    return target.k * (after - before), slack


@kernel
def num_drawn(rng, rate):
    """Poisson number of records; it alone counts references, as `any_record`."""
    return rng.poisson(rate)


@kernel(counts_references=False)
def log_ratio_of_records(target, pieces, plan, state, proposal, rng):
    """Return a code and the log of the records' part of the acceptance ratio.

    Paused, it goes on with the next record when it is called again.
    """
    position, data = state.position, target.data
    size = plan.bound * norm_along(proposal, proposal, 0.0, position, plan.p)
    if not size < np.inf:
        return FUNCTION_FAILED, np.nan
    control = state.work.control[0]
    if control.stage == 0:
        control.saved[NUM_LEFT] = num_drawn(rng, poisson_rate(plan, size))
        control.saved[TOTAL] = 0.0
    control.stage = 0
    while control.saved[NUM_LEFT] > 0.0:
        control.saved[NUM_LEFT] -= 1.0
        i = any_record(rng, 0, data.num_records)
        change, slack = record_change(target, pieces, state.work, position, proposal, i)
        state.counts[RECORDS] += 2
        if np.isnan(change):
            return FUNCTION_FAILED, np.nan
        if abs(change) > size + slack:
            return BOUND_VIOLATED, np.nan
        change = min(max(change, -size), size)
        if rng.random() < counted(plan, size, change):
            control.saved[TOTAL] += log_weight(plan, size, change)
        if is_due(control):
            control.stage = 1
            return PAUSED, np.nan
    return OK, control.saved[TOTAL]


def step(target, pieces, plan, state, rng):
    """One proposal and its accept test."""
    noise, proposal = state.scratch[0][: plan.factor.shape[1]], state.scratch[1]
    if state.work.control[0].stage == 0:
        fill_with_normals(rng, noise)
        displace(plan, state.position, noise, plan.step, proposal)
        state.counts[PROPOSALS] += 1
        status = gibbs.inside(target, pieces, proposal, state.work)
        if status == 0.0:
            return OK
        if np.isnan(status):
            return FUNCTION_FAILED
    code, log_ratio = log_ratio_of_records(target, pieces, plan, state, proposal, rng)
    if code != OK:
        return code
    before = gibbs.regularizer(target, pieces, state.position, state.work)
    after = gibbs.regularizer(target, pieces, proposal, state.work)
    log_ratio += target.k * target.mu * (before - after)
    # The energy of the new position is not known: no pass over the records is made.
    return accept_or_reject(state, proposal, np.nan, log_ratio, rng)


run = compile_run(step)


def change_bound(target: Gibbs) -> tuple[float, float]:
    """C and p with |k f_i(x') - k f_i(x)| <= C ||x' - x||_p for all records.

    The declared bound in the norm dual to that of the rows, in which it is smallest; in
    l2, and for these rows, on matrices.
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
        More records for a higher acceptance, > 0; small values pay if C M is large.
    step_size : float, optional
        Scale s of the proposals in units of the fitted covariance; by default a pilot
        run finds the one with acceptance 0.5.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible, for every
    covariance, step and chi. It stops if a record changes by more than its bound.

    A step looks at chi (C M)^2 + C M records on average, M the length of the step and C
    the Lipschitz constant of k f: fewer than all of them if n is large compared to k.

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
        """Whether the losses have a Lipschitz constant; the reason if not."""
        try:
            change_bound(target)
        except ValueError as error:
            return False, str(error)
        return True, ""

    def _recipe(self, target: Gibbs) -> TuningRecipe:
        bound, p = change_bound(target)
        return TuningRecipe(
            run=run,
            plan_fn=lambda gaussian, step: TunaPlan(
                float(step), float(self.chi), bound, p, gaussian.factor
            ),
            rate=0.5,
            first_step=2.38 / math.sqrt(target.problem.domain.affine_dim(target.dim)),
        )
