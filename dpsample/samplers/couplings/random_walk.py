"""Coupled random walk: reflected Gaussian proposals, common coin."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsample import _check as check
from dpsample.samplers.chain import init
from dpsample.samplers.couplings.pair import Pair, compile_pair
from dpsample.samplers.couplings.reflection import (
    couple_noise,
    decide,
    weigh_both,
    white_shift,
)
from dpsample.samplers.errors import OK
from dpsample.samplers.moves import Plan, displace, normal_noise


def couple(target, pieces, plan, first, second, rng):
    """One coupled step; the first chain uses the numbers that it would use alone."""
    rank = plan.factor.shape[1]
    noise, other = first.scratch[0][:rank], second.scratch[0][:rank]
    normal_noise(rng, noise)
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
    if code != OK:
        return code
    return decide(second, other_energy, second.energy[0] - other_energy, threshold)


run = compile_pair(couple)


def pair(prepared: Any) -> Pair:
    """Coupled kernel of a prepared random walk with Gaussian proposals."""
    alone = prepared.plan
    if alone.p != 2.0:
        check.fail(
            "sampler",
            "a random walk with Gaussian proposals",
            f"p = {alone.p:g}",
            "Use RandomWalk(p=2).",
        )
    plan = Plan(
        step=alone.step,
        center=prepared.start,
        factor=alone.factor,
        whiten=np.ascontiguousarray(np.linalg.pinv(alone.factor)),
    )
    return Pair(
        target=prepared.target,
        plan=plan,
        run=run,
        init_fn=init,
        num_steps=prepared.num_steps,
    )
