"""Planted bugs of couplings, and the reference that has none."""

from __future__ import annotations

import numpy as np

from dpsample.diagnostics.couplings.coupled_steps import decide, weigh_both, white_shift
from dpsample.samplers.chain import displace, fill_with_normals


def coupled_noise(rng, shift, count, mistake=""):
    """Noise of the second chain as `couple_noise` makes it, or with a mistake."""
    noise = rng.standard_normal((count, len(shift)))
    coin = rng.standard_exponential(count)
    along, square = noise @ shift, shift @ shift
    if mistake == "sign of the shift in the ratio":
        along = -along
    is_shared = coin >= along + 0.5 * square
    if mistake == "the whole square":
        is_shared = coin >= along + square
    away = noise - 2.0 * (noise @ shift)[:, None] / square * shift
    if mistake == "common noise after a lost coin":
        away = noise
    if mistake == "fresh noise after a lost coin":
        away = rng.standard_normal((count, len(shift)))
    return np.where(is_shared[:, None], noise + shift, away), is_shared


def walk_with_common_noise(target, pieces, plan, first, second, rng):
    """Random walk that keeps the noise for both chains when the coin is lost."""
    noise, shift = first.vectors[0], first.vectors[2]
    fill_with_normals(rng, noise)
    threshold, coin = -rng.standard_exponential(), rng.standard_exponential()
    white_shift(
        plan.whiten,
        first.position,
        second.position,
        plan.step,
        first.vectors[3],
        shift,
    )
    is_shared = coin >= np.dot(shift, noise) + 0.5 * np.dot(shift, shift)
    displace(plan, first.position, noise, plan.step, first.vectors[1])
    displace(plan, second.position, noise, plan.step, second.vectors[1])
    energy, other = weigh_both(target, pieces, first, second, is_shared)
    code = decide(first, energy, first.energy[0] - energy, threshold)
    return max(code, decide(second, other, second.energy[0] - other, threshold))


def walk_with_two_coins(target, pieces, plan, first, second, rng):
    """Random walk whose chains share proposals but not the accept test."""
    noise = first.vectors[0]
    fill_with_normals(rng, noise)
    displace(plan, first.position, noise, plan.step, first.vectors[1])
    displace(plan, second.position, noise, plan.step, second.vectors[1])
    energy, other = weigh_both(target, pieces, first, second, False)
    coins = -rng.standard_exponential(), -rng.standard_exponential()
    code = decide(first, energy, first.energy[0] - energy, coins[0])
    return max(code, decide(second, other, second.energy[0] - other, coins[1]))
