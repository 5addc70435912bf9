"""Coupled independence sampler: one proposal and one coin for both chains.

They meet at the first proposal that both accept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.samplers.chain import PROPOSALS, State, new_state
from dpsample.samplers.couplings.pair import Pair, compile_pair
from dpsample.samplers.couplings.reflection import decide
from dpsample.samplers.errors import OK
from dpsample.samplers.laplace_independence import Plan, log_proposal, propose
from dpsample.samplers.moves import weigh

Array = NDArray[np.float64]


@kernel
def judge(state, energy, log_weight, threshold):
    """Metropolis test of scratch[1]; the memory is the position's log weight."""
    log_ratio = log_weight - state.memory[0]
    if threshold <= log_ratio:
        state.memory[0] = log_weight
    return decide(state, energy, log_ratio, threshold)


def couple(target, pieces, plan, first, second, rng):
    """One coupled step."""
    proposal, noise = first.scratch[1], first.scratch[0][: plan.factor.shape[1]]
    square = propose(plan, rng, noise, proposal)
    threshold = -rng.standard_exponential()
    energy = weigh(target, pieces, first, proposal)
    log_weight = -energy - log_proposal(plan, square)
    second.scratch[1][:] = proposal
    second.counts[PROPOSALS] += 1
    code = judge(first, energy, log_weight, threshold)
    if code != OK:
        return code
    return judge(second, energy, log_weight, threshold)


run = compile_pair(couple)


def init(target: Any, plan: Plan, position: Array) -> State:
    """State at a position of the domain, with its log weight."""
    white = plan.whiten @ (position - plan.center)
    log_weight = -target.energy(position) - log_proposal(plan, float(white @ white))
    return new_state(target, position, memory=[log_weight])


def pair(prepared: Any) -> Pair:
    """Coupled kernel of a prepared independence sampler, one proposal per step."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run,
        init_fn=init,
        num_steps=prepared.num_steps,
    )
