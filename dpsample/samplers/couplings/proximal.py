"""Coupled proximal sampler: reflected y when close, then the same random numbers.

Both conditional draws read one restarted stream, so equal y give equal draws, whatever
the oracle; and the draws of different y stay close.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.samplers import proximal_kernel
from dpsample.samplers.couplings.pair import follow, is_same
from dpsample.samplers.couplings.reflection import FAR, couple_noise, white_shift
from dpsample.samplers.draws import NO_CAP
from dpsample.samplers.errors import OK, raise_unless_ok
from dpsample.samplers.moves import displace, normal_noise

Array = NDArray[np.float64]


@kernel
def couple(target, pieces, plan, draw, whiten, first, second, rng, twins):
    """One coupled step; ``twins`` are two streams in the same fresh state."""
    noise, other = first.scratch[0], second.scratch[0]
    shift, difference = first.scratch[2], first.scratch[3]
    normal_noise(rng, noise)
    coin = rng.standard_exponential()
    scale = math.sqrt(plan.step)
    white_shift(whiten, first.position, second.position, scale, difference, shift)
    is_shared = couple_noise(shift, noise, coin, FAR, other)
    displace(plan, first.position, noise, scale, first.scratch[1])
    displace(plan, second.position, other, scale, second.scratch[1])
    code = proximal_kernel.conditional(
        target, pieces, plan, draw, first, twins[0], NO_CAP
    )
    if code == OK and not is_shared:
        code = proximal_kernel.conditional(
            target, pieces, plan, draw, second, twins[1], NO_CAP
        )
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
        return proximal_kernel.init(self.prepared.target, position)

    def advance(
        self,
        first: Any,
        second: Any,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws; return how many, and whether they met."""
        target, metric = self.prepared.target, self.prepared.metric
        numbers, twins = metric.numbers(target), Twins()
        for t in range(len(draws)):
            code, has_met = couple(
                numbers,
                target.pieces,
                self.plan,
                metric.draw,
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


def pair(prepared: Any) -> ProximalPair:
    """Coupled kernel of a prepared proximal sampler."""
    plan = prepared.metric.plan(prepared.trial.step)
    return ProximalPair(
        prepared=prepared,
        plan=plan,
        whiten=np.ascontiguousarray(np.linalg.inv(plan.factor)),
    )
