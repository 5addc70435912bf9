# mypy: allow-untyped-defs
"""Coupled proximal sampler: reflected y when close, then the same random numbers.

Both conditional draws read one restarted stream, so equal y give equal draws, whatever
the oracle; and the draws of different y stay close.

Coupled tilted Gibbs: reflected y when close, then reflected proposals, common coin.

Equal y give one proposal for both chains, which meet if both accept it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.samplers.chain import init
from dpsample.samplers.couplings.pair import (
    FAR,
    Pair,
    compile_pair,
    couple_noise,
    decide,
    follow,
    is_same,
    weigh_both,
    white_shift,
)
from dpsample.samplers.errors import OK, raise_unless_ok
from dpsample.samplers.metropolis.tilted_gibbs import RETREAT, surrogate
from dpsample.samplers.moves import displace, normal_noise, slope
from dpsample.samplers.proximal import alternation
from dpsample.samplers.proximal.alternation import NO_CAP, TangentPlan
from dpsample.targets import gibbs


@kernel
def couple_proximal(target, pieces, plan, whiten, first, second, rng, twins):
    """One coupled step; ``twins`` are two streams in the same fresh state."""
    noise, other = first.scratch[0], second.scratch[0]
    shift, difference = first.scratch[2], first.scratch[3]
    normal_noise(rng, noise)
    coin = rng.standard_exponential()
    metric, scale = plan.metric, math.sqrt(plan.metric.step)
    white_shift(whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(metric, first.position, noise, scale, first.scratch[1])
    displace(metric, second.position, other, scale, second.scratch[1])
    code = alternation.conditional(target, pieces, plan, first, twins[0])
    if code == OK and not is_shared:
        code = alternation.conditional(target, pieces, plan, second, twins[1])
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

    prepared: Any
    plan: Any
    whiten: Array

    def init(self, position: Array) -> Any:
        """State of one of the two chains.

        Whatever exact oracle the chain uses alone, the law of its draw is that of the
        tangent oracle.
        """
        return alternation.init(self.prepared.target, position)

    def advance(
        self,
        first: Any,
        second: Any,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws; return how many, and whether they met."""
        target, twins = self.prepared.target, Twins()
        numbers = self.prepared.metric.numbers(target)
        for t in range(len(draws)):
            code, has_met = couple_proximal(
                numbers,
                target.pieces,
                self.plan,
                self.whiten,
                first,
                second,
                rng,
                twins.restart(rng),
            )
            raise_unless_ok(code)
            draws[t], others[t] = first.position, second.position
            if has_met:
                return t + 1, True
        return len(draws), False


def pair_proximal(prepared: Any) -> ProximalPair:
    """Coupled kernel of a prepared proximal sampler."""
    numbers = prepared.metric.plan(prepared.trial.step)
    return ProximalPair(
        prepared=prepared,
        plan=TangentPlan(numbers, prepared.metric.draw, NO_CAP),
        whiten=np.ascontiguousarray(np.linalg.inv(numbers.factor)),
    )


@kernel
def tilt(target, pieces, plan, state):
    """From y in scratch[2] fill w, the slope there and the proposal's mean."""
    y, w, s = state.scratch[2], state.scratch[3], state.scratch[4]
    white, mean = state.scratch[5][: plan.factor.shape[1]], state.scratch[6]
    gibbs.project(target, pieces, y, w)
    is_outside = False
    for j in range(y.shape[0]):
        is_outside = is_outside or w[j] != y[j]
    if is_outside:
        for j in range(y.shape[0]):
            w[j] += RETREAT * (plan.center[j] - w[j])
    slope(target, pieces, state, w, s)
    weight = plan.step / (1.0 + plan.step)
    np.dot(s, plan.factor, white)
    displace(plan, w, white, -1.0, mean)
    for j in range(y.shape[0]):
        mean[j] = (1.0 - weight) * y[j] + weight * mean[j]


@kernel
def judge(plan, state, energy, threshold):
    """Metropolis test of the proposal in scratch[1], given y."""
    w, s, mean = state.scratch[3], state.scratch[4], state.scratch[6]
    white = state.scratch[5][: plan.factor.shape[1]]
    log_ratio = state.energy[0] - surrogate(plan, state.position, w, s, mean, white)
    log_ratio -= energy - surrogate(plan, state.scratch[1], w, s, mean, white)
    return decide(state, energy, log_ratio, threshold)


def couple_tilted_gibbs(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    fresh, shift = first.scratch[7][:rank], second.scratch[7][:rank]
    difference = first.scratch[1]
    normal_noise(rng, noise)
    normal_noise(rng, fresh)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    scale = math.sqrt(plan.step)
    white_shift(plan.whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(plan, first.position, noise, scale, first.scratch[2])
    tilt(target, pieces, plan, first)
    if is_shared:
        second.scratch[2:7] = first.scratch[2:7]
    else:
        displace(plan, second.position, other, scale, second.scratch[2])
        tilt(target, pieces, plan, second)
    scale = math.sqrt(plan.step / (1.0 + plan.step))
    white_shift(
        plan.whiten, first.scratch[6], second.scratch[6], scale, difference, shift
    )
    is_shared = couple_noise(shift, fresh, rng.standard_exponential(), FAR, other)
    displace(plan, first.scratch[6], fresh, scale, first.scratch[1])
    displace(plan, second.scratch[6], other, scale, second.scratch[1])
    energy, other_energy = weigh_both(target, pieces, first, second, is_shared)
    code = judge(plan, first, energy, threshold)
    if code != OK:
        return code
    return judge(plan, second, other_energy, threshold)


run_tilted_gibbs = compile_pair(couple_tilted_gibbs)


def pair_tilted_gibbs(prepared: Any) -> Pair:
    """Coupled kernel of a prepared tilted Gibbs sampler."""
    return Pair(
        target=prepared.target,
        plan=prepared.plan,
        run=run_tilted_gibbs,
        init_fn=init,
        num_steps=prepared.num_steps,
    )
