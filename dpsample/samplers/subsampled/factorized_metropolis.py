# mypy: allow-untyped-defs
r"""Factorized Metropolis about a Laplace approximation: few records per proposal.

    v' = shift + sqrt(1 - b^2) (v - shift) + b z,    x = c + F v,    z ~ N(0, I),

accepted with probability prod_i min(1, e^{rho_i(x) - rho_i(x')}), rho_i the Taylor
remainders of `taylor`, times one factor for the regularizer's (Cornish et al., 2019).
The product is the probability that no point of a Poisson process fires: points come at
the rate of the bounds of `factorized_events` and choose a record by its share of them.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
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
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

MIN_SHARE = 0.01
# Expected records per draw from which passes over all records are the better way.
MAX_SHARE, ALWAYS = 0.2, 1000.0


@kernel(fastmath={"reassoc", "contract"})
def product(row, vector):
    """Inner product."""
    total = 0.0
    for j in range(row.shape[0]):
        total += row[j] * vector[j]
    return total


@kernel(counts_references=False)
def propose(plan, rng, origin, noise, there, delta):
    """Fill there with v' given v = origin, and delta with its displacement."""
    fill_with_normals(rng, noise)
    kept = math.sqrt(1.0 - plan.step * plan.step)
    for i in range(noise.shape[0]):
        there[i] = plan.shift[i] + kept * (origin[i] - plan.shift[i])
        there[i] += plan.step * noise[i]
    for j in range(delta.shape[0]):
        first = j if plan.is_triangular else 0
        delta[j] = product(plan.factor[j][first:], there[first:])


@kernel(counts_references=False)
def regularizer_remainder(target, pieces, plan, theta, delta, work):
    """Return k mu times what the expansion of r leaves out, up to a constant."""
    if plan.slope.shape[0] == 0:
        return 0.0
    rest = gibbs.regularizer(target, pieces, theta, work)
    for j in range(delta.shape[0]):
        curved = 0.0
        for m in range(delta.shape[0]):
            curved += plan.hessian[j, m] * delta[m]
        rest -= delta[j] * (plan.slope[j] + 0.5 * curved)
    return target.k * target.mu * rest


def step(target, pieces, plan, state, rng):
    """One proposal and its coins; the state's memory is v and the last remainder."""
    rank = plan.factor.shape[1]
    origin, rest = state.memory[:rank], state.memory[rank:]
    there, noise = state.scratch[0][:rank], state.scratch[1][:rank]
    dim = state.position.shape[0]
    proposal, moves = state.scratch[2][:dim], state.scratch[3 : events.NUM_ROWS]
    delta = moves[1][:dim]
    state.counts[chain.PROPOSALS] += 1
    propose(plan, rng, origin, noise, there, delta)
    for j in range(dim):
        proposal[j] = plan.anchor[j] + delta[j]
        moves[0, j] = state.position[j] - plan.anchor[j]
    status = gibbs.inside(target, pieces, proposal, state.work)
    if status == 0.0:
        return OK
    rest_there = regularizer_remainder(
        target, pieces, plan, proposal, delta, state.work
    )
    if np.isnan(status) or np.isnan(rest_there):
        return FUNCTION_FAILED
    if plan.slope.shape[0] > 0 and -rng.standard_exponential() > rest[0] - rest_there:
        return OK
    if events.fill_rates(plan, origin, there, moves) < target.data.num_records:
        code = events.thin(target, pieces, plan, state, moves, rng)
    else:
        code = events.check_all(target, pieces, plan, state, moves, rng)
    if code == events.FIRED:
        return OK
    if code == OK:
        copy_into(proposal, state.position)
        copy_into(there, origin)
        rest[0] = rest_there
        state.counts[chain.ACCEPTED] += 1
    return code


run = compile_run(step)


def init(target: Gibbs, plan: FactorizedPlan, position: Array) -> ChainState:
    """Fresh state at a position of the domain; its energy is not known."""
    state = new_state(target, position, is_weighed=False)
    delta, numbers = state.position - plan.anchor, target.numbers
    rest = regularizer_remainder(
        numbers, target.pieces, plan, state.position, delta, state.work
    )
    return state._replace(
        memory=np.append(plan.whiten @ delta, rest),
        scratch=np.empty((events.NUM_ROWS + events.NUM_FOUND, delta.size + 2)),
    )


@dataclass(frozen=True, kw_only=True)
class FactorizedMetropolis(sampler.TunedSampler):
    """Metropolis about a Laplace approximation that reads few records per step.

    Parameters
    ----------
    step_size : float, optional
        Share b of fresh noise, in (0, 1]; by default a pilot run finds the one with
        acceptance 0.4, or 1 if that is accepted more often.
    num_steps : int
        Steps per draw.

    Notes
    -----
    **Guarantee.** The proposal is reversible for the Gaussian of the expansion and the
    acceptance probability is a product of Metropolis factors, each seen through an
    exact Poisson process, so the target is exactly invariant and the kernel reversible
    for any anchor. The energy is never evaluated: its statistic is NaN.

    Examples
    --------
    >>> from dpsample.samplers import FactorizedMetropolis
    >>> FactorizedMetropolis(step_size=0.5).exactness
    'invariant'
    """

    longest_step: ClassVar[float] = 1.0

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether remainders are bounded, and few records are needed per draw."""
        plan = _plan(target)
        return (False, plan) if isinstance(plan, str) else (True, "")

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Expand at the mode; look for tails that the Gaussian does not reach."""
        prepared = self.tune_proposal(target, rng)
        is_reached = gaussian_fit.reaches_tails(target, _gaussian(prepared.plan))
        settings = prepared.settings | {"reaches_tails": int(is_reached)}
        return replace(prepared, settings=settings)

    def tune_proposal(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Expand at the mode and find the share of noise."""
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
        chosen = self.step_size
        if chosen is None:
            chosen = sampler.search_step(target, recipe, gaussian, rng, 1.0)
        return recipe.build(target, gaussian, chosen)


def _gaussian(plan: FactorizedPlan) -> GaussianFit:
    """Return the Gaussian about the anchor; what of it is inside was asked before."""
    return GaussianFit(
        center=plan.anchor, factor=plan.factor, whiten=plan.whiten, share_inside=1.0
    )


def _plan(target: Gibbs) -> FactorizedPlan | str:
    """Plan for b = 1, or the reason why there is none."""
    bound = taylor.third_derivative(target)
    instead = "Use LaplaceIndependence."
    if not (np.isfinite(bound) and taylor.has_curvature(target)):
        return f"The loss has no bounded third derivative. {instead}"
    expansion = taylor.expand(target)
    if expansion is None:
        return "The Hessian at the mode is singular. Use HitAndRun."
    if expansion.share_inside < MIN_SHARE:
        return "Hardly any of the Gaussian lies in the domain. Use HitAndRun."
    num_records = target.data.num_records
    curved = target.k / num_records
    bounds = events.channels(target, expansion, curved * bound / 6.0)
    if bounds.expected > max(MAX_SHARE * num_records, ALWAYS):
        work = f"{bounds.expected:.0f} records per draw are expected of {num_records}."
        return f"{work} {instead}"
    first = 0 if bounds.starts[target.dim] > 0 else target.dim
    return FactorizedPlan(
        step=1.0,
        anchor=expansion.anchor,
        shift=expansion.shift,
        factor=expansion.factor,
        whiten=expansion.whiten,
        is_triangular=not np.tril(expansion.factor, -1).any(),
        slope=expansion.slope,
        hessian=expansion.hessian,
        records=expansion.records,
        weight=curved,
        cubic=curved * bound / 6.0,
        first=first,
        spread=bounds.spread,
        coefficients=bounds.coefficients,
        channel_weights=bounds.weights,
        starts=bounds.starts,
        table=bounds.table,
    )
