# mypy: allow-untyped-defs
"""Coupled kernels: one step of each sampler that moves two chains until they meet.

Random walk, Crank-Nicolson and Langevin moves reflect the noise about the two points
that they start from, with one coin for both. The independence sampler gives both chains
one proposal and one coin, and they meet at the first proposal that both accept. Tilted
Gibbs reflects y when the chains are close, then the proposals: equal y give one
proposal, and the chains meet if both accept it. The proximal sampler reflects y when
close; then both conditional draws read one restarted stream, so equal y give equal
draws, whatever the oracle, and the draws of different y stay close.

Noise is coupled by reflection, which is maximal for two Gaussians. For x = a + s z and
x' = a' + s z', z standard normal and shift = (a - a') / s:

    z' = z + shift                  if -log U >= (||z + shift||^2 - ||z||^2) / 2,
    z' = z - 2 <e, z> e             otherwise,  e = shift / ||shift||.

Both are standard normal; x = x' with probability 2 Phi(-||shift|| / 2), one minus the
total variation of the two laws, which no coupling exceeds (arXiv:1905.09971).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import Kernel, kernel
from dpsample.numerics.vectors import copy_into
from dpsample.samplers import chain
from dpsample.samplers.chain import (
    PROPOSALS,
    ChainState,
    MetropolisPlan,
    PreparedChain,
    displace,
    evaluate_gradient,
    evaluate_proposal,
    fill_with_normals,
    init,
    new_state,
)
from dpsample.samplers.errors import OK, raise_unless_ok
from dpsample.samplers.metropolis import (
    laplace_independence,
    mala,
    preconditioned_crank_nicolson,
    random_walk,
    tilted_gibbs,
)
from dpsample.samplers.metropolis.laplace_independence import (
    IndependencePlan,
    log_proposal,
    propose,
)
from dpsample.samplers.metropolis.preconditioned_crank_nicolson import half_square
from dpsample.samplers.metropolis.tilted_gibbs import log_acceptance, set_proposal_mean
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.alternation import MAX_PROPOSALS, TangentPlan
from dpsample.samplers.proximal.proximal import PreparedProximal
from dpsample.targets import gibbs
from dpsample.targets.gibbs import Gibbs

# Beyond this shift common noise serves kernels that contract: both move alike.
FAR = 3.0


@kernel
def couple_noise(shift, noise, coin, far, other):
    """Fill the other chain's noise; return whether both proposals are one point.

    ``coin`` is standard exponential. If the shift is longer than ``far``, the noise is
    common: that must be decided before the coin is looked at.
    """
    square, along = np.dot(shift, shift), np.dot(shift, noise)
    if square > far * far:
        copy_into(noise, other)
        return False
    if coin >= along + 0.5 * square:
        for i in range(noise.shape[0]):
            other[i] = noise[i] + shift[i]
        return True
    for i in range(noise.shape[0]):
        other[i] = noise[i] - 2.0 * along / square * shift[i]
    return False


@kernel
def white_shift(whiten, a, b, scale, difference, shift):
    """Fill shift with (a - b) / scale in whitened coordinates."""
    for j in range(difference.shape[0]):
        difference[j] = a[j] - b[j]
    np.dot(whiten, difference, shift)
    for i in range(shift.shape[0]):
        shift[i] /= scale


@kernel
def weigh_both(target, pieces, first, second, is_shared):
    """Energies at the proposals in scratch[1]; a shared one is evaluated once."""
    energy = evaluate_proposal(target, pieces, first, first.scratch[1])
    if is_shared:
        copy_into(first.scratch[1], second.scratch[1])
        second.counts[PROPOSALS] += 1
        return energy, energy
    return energy, evaluate_proposal(target, pieces, second, second.scratch[1])


@kernel
def decide(state, energy, log_ratio, threshold):
    """Move to the proposal in scratch[1] if the common threshold allows it."""
    return chain.decide(state, state.scratch[1], energy, log_ratio, threshold)


@kernel
def is_same(a, b):
    """Whether two positions are equal in every coordinate, exactly."""
    for j in range(a.shape[0]):
        if a[j] != b[j]:
            return False
    return True


@kernel
def follow(first, second):
    """Copy what the next step depends on from the first chain to the second."""
    copy_into(first.position, second.position)
    copy_into(first.energy, second.energy)
    copy_into(first.memory, second.memory)


def compile_pair(couple: Callable[..., int]) -> Kernel[..., tuple[int, int, bool]]:
    """Loop of a coupled step (target, pieces, plan, first, second, rng).

    The kernel makes ``num_steps`` coupled steps per row, stops at the first row where
    the chains are equal, and returns a code of `errors`, the number of rows filled and
    whether they met. Chains that were equal stay equal: the second is a copy.
    """
    move = kernel(couple)

    def run(target, pieces, plan, first, second, rng, num_steps, draws, others):
        for t in range(draws.shape[0]):
            for _ in range(num_steps):
                were_same = is_same(first.position, second.position)
                code = move(target, pieces, plan, first, second, rng)
                if code != OK:
                    return code, t, False
                if were_same:
                    follow(first, second)
            copy_into(first.position, draws[t])
            copy_into(second.position, others[t])
            if is_same(first.position, second.position):
                return OK, t + 1, True
        return OK, draws.shape[0], False

    return kernel(run)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Coupled kernel of a prepared chain."""

    prepared: PreparedChain
    coupling: Coupling
    plan: Any  # numbers of the coupled kernel

    def init(self, position: Array) -> ChainState:
        """State of one of the two chains."""
        return self.coupling.init_fn(self.prepared.target, self.plan, position)

    def advance(
        self,
        first: ChainState,
        second: ChainState,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws; return how many, and whether they met."""
        target, num_steps = self.prepared.target, self.prepared.num_steps
        fixed = target.numbers, target.pieces, self.plan
        code, count, has_met = self.coupling.run(
            *fixed, first, second, rng, num_steps, draws, others
        )
        raise_unless_ok(code)
        return int(count), bool(has_met)


def couple_random_walks(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    fill_with_normals(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    shift, difference = first.scratch[2][:rank], first.scratch[3]
    white_shift(
        plan.whiten, first.position, second.position, plan.step, difference, shift
    )
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    displace(plan, first.position, noise, plan.step, first.scratch[1])
    displace(plan, second.position, other, plan.step, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = decide(first, energy, first.energy[0] - energy, threshold)
    return max(
        code, decide(second, other_energy, second.energy[0] - other_energy, threshold)
    )


def walk_plan(prepared: PreparedChain) -> MetropolisPlan:
    """Plan of a coupled random walk: that of the single chain has no inverse factor."""
    alone = prepared.plan
    if alone.p != 2.0:
        wanted, remedy = "a random walk with Gaussian proposals", "Use RandomWalk(p=2)."
        check.fail("sampler", wanted, f"p = {alone.p:g}", remedy)
    return MetropolisPlan(
        step=alone.step,
        center=prepared.start,
        factor=alone.factor,
        whiten=np.ascontiguousarray(np.linalg.pinv(alone.factor)),
    )


def couple_crank_nicolson(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    origin, other_origin = first.scratch[2], second.scratch[2]
    white, shift = first.scratch[3][:rank], second.scratch[3][:rank]
    fill_with_normals(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    kept = math.sqrt(1.0 - plan.step * plan.step)
    log_ratio = first.energy[0] - half_square(plan, first.position, origin, white)
    other_ratio = second.energy[0]
    other_ratio -= half_square(plan, second.position, other_origin, white)
    for j in range(origin.shape[0]):
        origin[j] = plan.center[j] + kept * origin[j]
        other_origin[j] = plan.center[j] + kept * other_origin[j]
    difference = first.scratch[4]
    white_shift(plan.whiten, origin, other_origin, plan.step, difference, shift)
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    displace(plan, origin, noise, plan.step, first.scratch[1])
    displace(plan, other_origin, other, plan.step, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    log_ratio -= energy - half_square(plan, first.scratch[1], origin, white)
    other_ratio -= other_energy - half_square(plan, second.scratch[1], origin, white)
    code = decide(first, energy, log_ratio, threshold)
    return max(code, decide(second, other_energy, other_ratio, threshold))


@kernel
def evaluate(target, pieces, state):
    """Energy at the proposal in scratch[1], its gradient to scratch[2]."""
    status = gibbs.inside(target, pieces, state.scratch[1], state.work)
    if status == 1.0:
        return evaluate_gradient(
            target, pieces, state, state.scratch[1], state.scratch[2]
        )
    return np.inf if status == 0.0 else np.nan


@kernel
def judge_langevin(plan, state, energy, threshold):
    """Metropolis test of the proposal in scratch[1]."""
    state.counts[PROPOSALS] += 1
    if energy == np.inf:
        return OK
    proposal, gradient, drift = state.scratch[1], state.scratch[2], state.scratch[3]
    white = state.scratch[4][: plan.factor.shape[1]]
    log_ratio = mala.log_acceptance(
        plan, state, proposal, energy, gradient, white, drift
    )
    return chain.decide_with_gradient(
        state, proposal, energy, gradient, log_ratio, threshold
    )


def couple_langevin(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    shift, drift = first.scratch[4][:rank], first.scratch[3]
    fill_with_normals(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(2.0 * plan.step)
    pace = plan.step / scale
    white_shift(plan.whiten, first.position, second.position, scale, drift, shift)
    for j in range(drift.shape[0]):
        drift[j] = first.memory[j] - second.memory[j]
    mala.subtract_gradient(plan, drift, pace, shift)
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    mala.subtract_gradient(plan, first.memory, pace, noise)
    displace(plan, first.position, noise, scale, first.scratch[1])
    energy = evaluate(target, pieces, first)
    other_energy = energy
    if is_shared:
        second.scratch[1][:] = first.scratch[1]
        second.scratch[2][:] = first.scratch[2]
    else:
        mala.subtract_gradient(plan, second.memory, pace, other)
        displace(plan, second.position, other, scale, second.scratch[1])
        other_energy = evaluate(target, pieces, second)
    code = judge_langevin(plan, first, energy, threshold)
    return max(code, judge_langevin(plan, second, other_energy, threshold))


@kernel
def judge_independence(state, energy, log_weight, threshold):
    """Metropolis test of scratch[1]; the memory is the position's log weight."""
    log_ratio = log_weight - state.memory[0]
    if threshold <= log_ratio:
        state.memory[0] = log_weight
    return decide(state, energy, log_ratio, threshold)


def couple_independence(target, pieces, plan, first, second, rng):
    """One coupled step."""
    proposal, noise = first.scratch[1], first.scratch[0][: plan.factor.shape[1]]
    square = propose(plan, rng, noise, proposal)
    threshold = -rng.standard_exponential()
    energy = evaluate_proposal(target, pieces, first, proposal)
    log_weight = -energy - log_proposal(plan, square)
    second.scratch[1][:] = proposal
    second.counts[PROPOSALS] += 1
    code = judge_independence(first, energy, log_weight, threshold)
    return max(code, judge_independence(second, energy, log_weight, threshold))


def init_independence(
    target: Gibbs, plan: IndependencePlan, position: Array
) -> ChainState:
    """State at a position of the domain, with its log weight."""
    white = plan.whiten @ (position - plan.center)
    log_weight = -target.energy(position) - log_proposal(plan, float(white @ white))
    return new_state(target, position, memory=[log_weight])


def couple_tilted_gibbs(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    fresh, shift = first.scratch[7][:rank], second.scratch[7][:rank]
    difference = first.scratch[1]
    fill_with_normals(rng, noise)
    fill_with_normals(rng, fresh)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(plan.step)
    white_shift(plan.whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(plan, first.position, noise, scale, first.scratch[2])
    set_proposal_mean(target, pieces, plan, first)
    if is_shared:
        second.scratch[2:7] = first.scratch[2:7]
    else:
        displace(plan, second.position, other, scale, second.scratch[2])
        set_proposal_mean(target, pieces, plan, second)
    scale = math.sqrt(plan.step / (1.0 + plan.step))
    white_shift(
        plan.whiten, first.scratch[6], second.scratch[6], scale, difference, shift
    )
    is_shared = couple_noise(shift, fresh, rng.standard_exponential(), FAR, other)
    displace(plan, first.scratch[6], fresh, scale, first.scratch[1])
    displace(plan, second.scratch[6], other, scale, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = decide(first, energy, log_acceptance(plan, first, energy), threshold)
    log_ratio = log_acceptance(plan, second, other_energy)
    return max(code, decide(second, other_energy, log_ratio, threshold))


@kernel
def couple_proximal(target, pieces, plan, whiten, first, second, rng, twins):
    """One coupled step; ``twins`` are two streams in the same fresh state."""
    noise, other = first.scratch[0], second.scratch[0]
    shift, difference = first.scratch[2], first.scratch[3]
    fill_with_normals(rng, noise)
    coin = rng.standard_exponential()
    metric, scale = plan.metric, math.sqrt(plan.metric.step)
    white_shift(whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(metric, first.position, noise, scale, first.scratch[1])
    displace(metric, second.position, other, scale, second.scratch[1])
    code = alternation.draw_given_y(target, pieces, plan, first, twins[0])
    if code == OK and not is_shared:
        code = alternation.draw_given_y(target, pieces, plan, second, twins[1])
    if is_shared:
        follow(first, second)
    return code, is_same(first.position, second.position)


class Twins:
    """Two streams that restart together, at a place that a third one draws."""

    def __init__(self) -> None:
        self.bits = (np.random.PCG64DXSM(0), np.random.PCG64DXSM(0))
        self.streams = tuple(np.random.Generator(bits) for bits in self.bits)
        self.state: dict[str, Any] = dict(self.bits[0].state)

    def restart(self, rng: np.random.Generator) -> tuple[np.random.Generator, ...]:
        """Return both at a fresh place: none of their numbers was ever used."""
        high, low = rng.bit_generator.random_raw(2).tolist()
        place = dict(self.state["state"]) | {"state": high << 64 | low}
        for bits in self.bits:
            bits.state = self.state | {"state": place}  # type: ignore[assignment]
        return self.streams


@dataclass(frozen=True, kw_only=True, eq=False)
class ProximalPair:
    """Coupled kernel of a prepared proximal sampler; methods as those of `Pair`."""

    prepared: PreparedProximal
    plan: TangentPlan
    whiten: Array

    @classmethod
    def of(cls, prepared: PreparedProximal) -> ProximalPair:
        """Coupled kernel of a prepared proximal sampler."""
        numbers = prepared.metric.plan(prepared.trial.step)
        return cls(
            prepared=prepared,
            plan=TangentPlan(numbers, prepared.metric.draw, MAX_PROPOSALS),
            whiten=np.ascontiguousarray(np.linalg.inv(numbers.factor)),
        )

    def init(self, position: Array) -> ChainState:
        """State of one of the two chains.

        Whatever exact oracle the chain uses alone, the law of its draw is that of the
        tangent oracle.
        """
        return alternation.init(self.prepared.target, position)

    def advance(
        self,
        first: ChainState,
        second: ChainState,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws; return how many, and whether they met."""
        target, twins = self.prepared.target, Twins()
        fixed = self.prepared.metric.numbers(target), target.pieces, self.plan
        for t in range(len(draws)):
            code, has_met = couple_proximal(
                *fixed, self.whiten, first, second, rng, twins.restart(rng)
            )
            raise_unless_ok(code)
            draws[t], others[t] = first.position, second.position
            if has_met:
                return t + 1, True
        return len(draws), False


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """Coupled kernel of a sampler, and how its state and plan are made."""

    name: str
    run: Kernel[..., tuple[int, int, bool]]  # what `compile_pair` returned
    init_fn: Callable[[Gibbs, Any, Array], ChainState] = init  # of either chain
    plan_fn: Callable[[PreparedChain], Any] = attrgetter("plan")


# By the kernel of the single chain.
COUPLINGS: dict[Any, Coupling] = {
    random_walk.run: Coupling(
        name="RandomWalk", run=compile_pair(couple_random_walks), plan_fn=walk_plan
    ),
    mala.run: Coupling(
        name="MALA", run=compile_pair(couple_langevin), init_fn=mala.init
    ),
    preconditioned_crank_nicolson.run: Coupling(
        name="PreconditionedCrankNicolson", run=compile_pair(couple_crank_nicolson)
    ),
    laplace_independence.run: Coupling(
        name="LaplaceIndependence",
        run=compile_pair(couple_independence),
        init_fn=init_independence,
    ),
    tilted_gibbs.run: Coupling(
        name="TiltedGibbs", run=compile_pair(couple_tilted_gibbs)
    ),
}


def coupled_chain(
    prepared: PreparedChain | PreparedProximal,
) -> tuple[str, Pair | ProximalPair] | None:
    """Name of a prepared chain's sampler and its coupled kernel; None without one."""
    if isinstance(prepared, PreparedProximal):
        return "Proximal", ProximalPair.of(prepared)
    coupling = COUPLINGS.get(prepared.run)
    if coupling is None:
        return None
    plan = coupling.plan_fn(prepared)
    return coupling.name, Pair(prepared=prepared, coupling=coupling, plan=plan)
