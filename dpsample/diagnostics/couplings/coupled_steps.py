# mypy: allow-untyped-defs
"""Coupled kernels: one step of a sampler moves two chains until they meet.

Chains have met when their positions are equal to the last bit. The first chain uses the
random numbers that it would use alone. Random walk, Crank-Nicolson and Langevin moves
reflect the noise about the two points that they start from, and both accept tests have
one threshold. The independence sampler gives both chains one proposal and one
threshold, and they meet at the first proposal that both accept. Tilted Gibbs reflects
y when the chains are close, and then the proposals. Equal y have one proposal, and the
chains meet if both accept it. The proximal sampler reflects y when the chains are
close. Then both conditional draws read one restarted stream, so that equal y have equal
draws, whatever the oracle, and the draws of different y stay close.

Noise is coupled by reflection, which is maximal for two Gaussians. For x = a + s z and
x' = a' + s z', z standard normal and shift = (a - a') / s:

    z' = z + shift                  if -log U >= (||z + shift||^2 - ||z||^2) / 2,
    z' = z - 2 <e, z> e             otherwise,  e = shift / ||shift||.

Both are standard normal. x = x' with probability 2 Phi(-||shift|| / 2), one minus the
total variation of the two distributions, which no coupling exceeds (arXiv:1905.09971).
The *coin* is -log U.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import Kernel, kernel
from dpsample.numerics.vectors import copy_into
from dpsample.samplers import chain
from dpsample.samplers.chain import (
    COUNT,
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
from dpsample.samplers.metropolis.tilted_gibbs import (
    log_acceptance,
    set_proposal_mean,
)
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.alternation import MAX_PROPOSALS, TangentPlan
from dpsample.samplers.proximal.proximal import PreparedProximal
from dpsample.targets import gibbs_target
from dpsample.targets.gibbs import Gibbs

# Shift, in standard deviations, beyond which kernels that contract get common noise.
# Proposals of reflected noise would rarely be equal at that distance, and would move
# the chains apart. With common noise the chains come closer.
FAR = 3.0


class CoupledStepsVectorRow(NamedTuple):
    """Rows of a chain's scratch vectors.

    Tilted Gibbs fills the rows of `tilted_gibbs.ROW` from y to the mean instead.
    """

    noise: int = 0
    proposal: int = 1
    shift: int = 2
    difference: int = 3
    white: int = 4
    origin: int = 5
    # Once the coupled noise is drawn, Langevin steps use two of its rows again. They
    # hold the gradient at the proposal and its drift.
    new_gradient: int = 2
    drift: int = 3


ROW = CoupledStepsVectorRow()


@kernel
def couple_noise(shift, noise, coin, max_shift, other):
    """Fill the other chain's noise. Return whether both proposals are one point.

    ``coin`` is standard exponential. If the shift is longer than ``max_shift``, the
    noise is common. That must not depend on the coin.
    """
    square, along = np.dot(shift, shift), np.dot(shift, noise)
    if square > max_shift * max_shift:
        copy_into(noise, other)
        return False
    # The coin decides whether the other proposal is at the same point, in proportion to
    # the densities there.
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
    """Return the energies at both proposals. A shared one is evaluated once."""
    energy = evaluate_proposal(target, pieces, first, first.vectors[ROW.proposal])
    if is_shared:
        copy_into(first.vectors[ROW.proposal], second.vectors[ROW.proposal])
        second.counts[COUNT.proposals] += 1
        return energy, energy
    return energy, evaluate_proposal(
        target, pieces, second, second.vectors[ROW.proposal]
    )


@kernel
def decide(state, energy, log_ratio, threshold):
    """Move to the proposal if the log ratio is at least the common threshold."""
    return chain.decide(
        state, state.vectors[ROW.proposal], energy, log_ratio, threshold
    )


@kernel
def are_equal(a, b):
    """Return whether two positions are equal in every coordinate, exactly."""
    for j in range(a.shape[0]):
        if a[j] != b[j]:
            return False
    return True


@kernel
def copy_chain(first, second):
    """Copy the numbers that the next step depends on to the second chain."""
    copy_into(first.position, second.position)
    copy_into(first.energy, second.energy)
    copy_into(first.memory, second.memory)


def compile_pair(couple: Callable[..., int]) -> Kernel[..., tuple[int, int, bool]]:
    """Compile the loop of a coupled step (target, pieces, plan, first, second, rng).

    The kernel makes ``num_steps`` coupled steps per row, stops at the first row where
    the chains are equal, and returns a code of `errors`, the number of rows filled and
    whether they met. Chains that were equal stay equal, because the second is a copy.
    """
    move = kernel(couple)

    def run(target, pieces, plan, first, second, rng, num_steps, draws, others):
        for t in range(draws.shape[0]):
            for _ in range(num_steps):
                # A step of equal chains may differ in the last bit, so they are copied.
                were_equal = are_equal(first.position, second.position)
                code = move(target, pieces, plan, first, second, rng)
                if code != OK:
                    return code, t, False
                if were_equal:
                    copy_chain(first, second)
            copy_into(first.position, draws[t])
            copy_into(second.position, others[t])
            if are_equal(first.position, second.position):
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
        """Return the state of one of the two chains."""
        target: Any = self.prepared.target
        return self.coupling.init_fn(target, self.plan, position)

    def advance(
        self,
        first: ChainState,
        second: ChainState,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws. Return their number and whether they met."""
        target, num_steps = self.prepared.target, self.prepared.num_steps
        fixed = target.numbers, target.pieces, self.plan
        code, count, has_met = self.coupling.run(
            *fixed, first, second, rng, num_steps, draws, others
        )
        raise_unless_ok(code)
        return int(count), bool(has_met)


def couple_random_walks(target, pieces, plan, first, second, rng):
    """Make one coupled step of random walks."""
    rank = plan.factor.shape[1]
    noise, other = first.vectors[ROW.noise][:rank], second.vectors[ROW.noise][:rank]
    fill_with_normals(rng, noise)
    # Both accept tests have one threshold, so that equal proposals are accepted
    # together as often as possible.
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    shift, difference = first.vectors[ROW.shift][:rank], first.vectors[ROW.difference]
    white_shift(
        plan.whiten, first.position, second.position, plan.step, difference, shift
    )
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    displace(plan, first.position, noise, plan.step, first.vectors[ROW.proposal])
    displace(plan, second.position, other, plan.step, second.vectors[ROW.proposal])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = decide(first, energy, first.energy[0] - energy, threshold)
    return max(
        code, decide(second, other_energy, second.energy[0] - other_energy, threshold)
    )


def walk_plan(prepared: PreparedChain) -> MetropolisPlan:
    """Return the plan of a coupled random walk, with an inverse factor."""
    single = prepared.plan
    if single.p != 2.0:
        condition, remedy = (
            "a random walk with Gaussian proposals",
            "Use RandomWalk(p=2).",
        )
        check.fail("sampler", condition, f"p = {single.p:g}", remedy)
    return MetropolisPlan(
        step=single.step,
        center=prepared.start,
        factor=single.factor,
        whiten=np.ascontiguousarray(np.linalg.pinv(single.factor)),
    )


def couple_crank_nicolson(target, pieces, plan, first, second, rng):
    """Make one coupled step of preconditioned Crank-Nicolson moves."""
    rank = plan.factor.shape[1]
    noise, other = first.vectors[ROW.noise][:rank], second.vectors[ROW.noise][:rank]
    origin, other_origin = first.vectors[ROW.origin], second.vectors[ROW.origin]
    white, shift = first.vectors[ROW.white][:rank], first.vectors[ROW.shift][:rank]
    fill_with_normals(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    shrink = math.sqrt(1.0 - plan.step * plan.step)
    log_ratio = first.energy[0] - half_square(plan, first.position, origin, white)
    other_ratio = second.energy[0]
    other_ratio -= half_square(plan, second.position, other_origin, white)
    for j in range(origin.shape[0]):
        origin[j] = plan.center[j] + shrink * origin[j]
        other_origin[j] = plan.center[j] + shrink * other_origin[j]
    difference = first.vectors[ROW.difference]
    white_shift(plan.whiten, origin, other_origin, plan.step, difference, shift)
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    displace(plan, origin, noise, plan.step, first.vectors[ROW.proposal])
    displace(plan, other_origin, other, plan.step, second.vectors[ROW.proposal])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    log_ratio -= energy - half_square(plan, first.vectors[ROW.proposal], origin, white)
    other_ratio -= other_energy - half_square(
        plan, second.vectors[ROW.proposal], origin, white
    )
    code = decide(first, energy, log_ratio, threshold)
    return max(code, decide(second, other_energy, other_ratio, threshold))


@kernel
def evaluate_at_proposal(target, pieces, state):
    """Return the energy at the proposal, and write its gradient.

    It is infinite outside the domain, and NaN if a function failed.
    """
    proposal, gradient = state.vectors[ROW.proposal], state.vectors[ROW.new_gradient]
    status = gibbs_target.inside(target, pieces, proposal, state.work)
    if status == 1.0:
        return evaluate_gradient(target, pieces, state, proposal, gradient)
    return np.inf if status == 0.0 else np.nan


@kernel
def accept_langevin(plan, state, energy, threshold):
    """Make the accept test of a Langevin proposal."""
    state.counts[COUNT.proposals] += 1
    if energy == np.inf:
        return OK
    proposal, gradient = state.vectors[ROW.proposal], state.vectors[ROW.new_gradient]
    white = state.vectors[ROW.white][: plan.factor.shape[1]]
    drift = state.vectors[ROW.drift]
    log_ratio = mala.log_acceptance(
        plan, state, proposal, energy, gradient, white, drift
    )
    return chain.decide_with_gradient(
        state, proposal, energy, gradient, log_ratio, threshold
    )


def couple_langevin(target, pieces, plan, first, second, rng):
    """Make one coupled step of Langevin moves."""
    rank = plan.factor.shape[1]
    noise, other = first.vectors[ROW.noise][:rank], second.vectors[ROW.noise][:rank]
    shift, drift = first.vectors[ROW.shift][:rank], first.vectors[ROW.drift]
    fill_with_normals(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(2.0 * plan.step)
    gradient_scale = plan.step / scale
    white_shift(plan.whiten, first.position, second.position, scale, drift, shift)
    # The shift of the proposals includes the difference of the drifts.
    for j in range(drift.shape[0]):
        drift[j] = first.memory[j] - second.memory[j]
    mala.subtract_gradient(plan, drift, gradient_scale, shift)
    is_shared = couple_noise(shift, noise, coin, np.inf, other)
    mala.subtract_gradient(plan, first.memory, gradient_scale, noise)
    displace(plan, first.position, noise, scale, first.vectors[ROW.proposal])
    energy = evaluate_at_proposal(target, pieces, first)
    other_energy = energy
    if is_shared:
        second.vectors[ROW.proposal][:] = first.vectors[ROW.proposal]
        second.vectors[ROW.new_gradient][:] = first.vectors[ROW.new_gradient]
    else:
        mala.subtract_gradient(plan, second.memory, gradient_scale, other)
        displace(plan, second.position, other, scale, second.vectors[ROW.proposal])
        other_energy = evaluate_at_proposal(target, pieces, second)
    code = accept_langevin(plan, first, energy, threshold)
    return max(code, accept_langevin(plan, second, other_energy, threshold))


@kernel
def accept_independence(state, energy, log_weight, threshold):
    """Make the accept test. The memory is the log weight of the position."""
    log_ratio = log_weight - state.memory[0]
    if threshold <= log_ratio:
        state.memory[0] = log_weight
    return decide(state, energy, log_ratio, threshold)


def couple_independence(target, pieces, plan, first, second, rng):
    """Make one coupled step of independent proposals."""
    proposal = first.vectors[ROW.proposal]
    noise = first.vectors[ROW.noise][: plan.factor.shape[1]]
    square = propose(plan, rng, noise, proposal)
    threshold = -rng.standard_exponential()
    energy = evaluate_proposal(target, pieces, first, proposal)
    log_weight = -energy - log_proposal(plan, square)
    second.vectors[ROW.proposal][:] = proposal
    second.counts[COUNT.proposals] += 1
    code = accept_independence(first, energy, log_weight, threshold)
    return max(code, accept_independence(second, energy, log_weight, threshold))


def init_independence(
    target: Gibbs, plan: IndependencePlan, position: Array
) -> ChainState:
    """Return a state at a position of the domain, with its log weight."""
    white = plan.whiten @ (position - plan.center)
    log_weight = -target.energy(position) - log_proposal(plan, float(white @ white))
    return new_state(target, position, memory=[log_weight])


def couple_tilted_gibbs(target, pieces, plan, first, second, rng):
    """Make one coupled step of tilted Gibbs."""
    rank, y, mean = plan.factor.shape[1], tilted_gibbs.ROW.y, tilted_gibbs.ROW.mean
    noise, other = first.vectors[ROW.noise][:rank], second.vectors[ROW.noise][:rank]
    # `tilted_gibbs.ROW` ends with the mean, and the next row of each chain is free.
    second_noise = first.vectors[mean + 1][:rank]
    shift = second.vectors[mean + 1][:rank]
    # This row is free until the proposal is written.
    difference = first.vectors[ROW.proposal]
    fill_with_normals(rng, noise)
    fill_with_normals(rng, second_noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(plan.step)
    white_shift(plan.whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    # First y given the position, then the proposal given y. Both draws are coupled.
    displace(plan, first.position, noise, scale, first.vectors[y])
    set_proposal_mean(target, pieces, plan, first)
    if is_shared:
        # Equal y have the same w, gradient and mean, which are not computed twice.
        second.vectors[y : mean + 1] = first.vectors[y : mean + 1]
    else:
        displace(plan, second.position, other, scale, second.vectors[y])
        set_proposal_mean(target, pieces, plan, second)
    scale = math.sqrt(plan.step / (1.0 + plan.step))
    white_shift(
        plan.whiten,
        first.vectors[mean],
        second.vectors[mean],
        scale,
        difference,
        shift,
    )
    is_shared = couple_noise(
        shift, second_noise, rng.standard_exponential(), FAR, other
    )
    displace(
        plan,
        first.vectors[mean],
        second_noise,
        scale,
        first.vectors[ROW.proposal],
    )
    displace(
        plan,
        second.vectors[mean],
        other,
        scale,
        second.vectors[ROW.proposal],
    )
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = decide(first, energy, log_acceptance(plan, first, energy), threshold)
    log_ratio = log_acceptance(plan, second, other_energy)
    return max(code, decide(second, other_energy, log_ratio, threshold))


@kernel
def couple_proximal(target, pieces, plan, whiten, first, second, rng, twins):
    """Make one coupled step. ``twins`` are two streams in the same new state."""
    noise, other = first.vectors[ROW.noise], second.vectors[ROW.noise]
    shift, difference = first.vectors[ROW.shift], first.vectors[ROW.difference]
    fill_with_normals(rng, noise)
    coin = rng.standard_exponential()
    metric, scale = plan.metric, math.sqrt(plan.metric.step)
    white_shift(whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(metric, first.position, noise, scale, first.vectors[ROW.proposal])
    displace(metric, second.position, other, scale, second.vectors[ROW.proposal])
    # Equal y, metrics and streams give equal draws, so a shared draw is made once.
    code = alternation.draw_given_y(target, pieces, plan, first, twins[0])
    if code == OK and not is_shared:
        code = alternation.draw_given_y(target, pieces, plan, second, twins[1])
    if is_shared:
        copy_chain(first, second)
    return code, are_equal(first.position, second.position)


class Twins:
    """Two streams that restart together, in a state that a third stream draws."""

    def __init__(self) -> None:
        self.bits = (np.random.PCG64DXSM(0), np.random.PCG64DXSM(0))
        self.streams = tuple(np.random.Generator(bits) for bits in self.bits)
        self.state: dict[str, Any] = dict(self.bits[0].state)

    def restart(self, rng: np.random.Generator) -> tuple[np.random.Generator, ...]:
        """Return both streams in one new state, whose numbers were never used."""
        high, low = rng.bit_generator.random_raw(2).tolist()
        state = dict(self.state["state"]) | {"state": high << 64 | low}
        for bits in self.bits:
            bits.state = self.state | {"state": state}  # type: ignore[assignment]
        return self.streams


@dataclass(frozen=True, kw_only=True, eq=False)
class ProximalPair:
    """Coupled kernel of a prepared proximal sampler, with the methods of `Pair`."""

    prepared: PreparedProximal
    plan: TangentPlan
    whiten: Array

    @classmethod
    def build(cls, prepared: PreparedProximal) -> ProximalPair:
        """Return the coupled kernel of a prepared proximal sampler."""
        numbers = prepared.metric.plan(prepared.trial.step)
        return cls(
            prepared=prepared,
            plan=TangentPlan(numbers, prepared.metric.draw, MAX_PROPOSALS),
            whiten=np.ascontiguousarray(np.linalg.inv(numbers.factor)),
        )

    def init(self, position: Array) -> ChainState:
        """Return the state of one of the two chains.

        All exact oracles have draws of the same distribution, so a chain that uses
        another oracle alone may use the tangent oracle here.
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
        """Fill rows of both chains' draws. Return their number and whether they met."""
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
    """Coupled kernel of a sampler, and the functions that make its state and plan."""

    name: str
    run: Kernel[..., tuple[int, int, bool]]  # result of `compile_pair`
    init_fn: Callable[[Gibbs, Any, Array], ChainState] = init  # for each chain
    plan_fn: Callable[[PreparedChain], Any] = attrgetter("plan")


# The keys are the kernels of single chains.
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
    """Return the name of a sampler and its coupled kernel, or None without one."""
    if isinstance(prepared, PreparedProximal):
        return "Proximal", ProximalPair.build(prepared)
    coupling = COUPLINGS.get(prepared.run)
    if coupling is None:
        return None
    plan = coupling.plan_fn(prepared)
    return coupling.name, Pair(prepared=prepared, coupling=coupling, plan=plan)
