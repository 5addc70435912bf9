"""Whether chains move far enough and often enough: facts about draws, not tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.diagnostics.check_report import Finding
from dpsample.diagnostics.reading import Chains
from dpsample.rounds import effective_size

Array = NDArray[np.float64]

# With fewer, a mean is known to a tenth of an sd at best, and the tests on batches, as
# well as effective sizes themselves, are unreliable.
MIN_ESS = 100.0
# Tuned walks accept 0.2 to 0.7. Below the first, most work is lost and a chain can stay
# anywhere for long; above the second with correlations of the third length, steps are
# far shorter than they could be.
LOW_ACCEPTANCE, HIGH_ACCEPTANCE, LONG_TIME = 0.05, 0.95, 50.0
# A walk that accepts a fifth of its proposals stays this long with probability 1e-10.
MIN_STAY, STAY_SHARE = 100, 0.1
# Bias in total variation that is small beside the Monte Carlo error of 10 000 draws.
SMALL_BIAS = 0.01


def look(chains: Chains) -> list[Finding]:
    """Look at effective size, moves, step size and what the sampler says of itself."""
    ess = effective_size(chains.theta)
    stuck = stuck_walk(chains.theta)
    found = [stuck, step_size(chains, ess), too_few(chains, ess), bias(chains)]
    return [finding for finding in (*found, interrupted(chains)) if finding]


def too_few(chains: Chains, ess: float) -> Finding | None:
    """Whether the effective size is below `MIN_ESS`, or below what was asked for."""
    wanted = MIN_ESS
    if not chains.attributes.get("is_target_ess_reached", True):
        wanted = max(wanted, float(chains.attributes.get("target_ess", 0.0)))
    if ess >= wanted:
        return None
    total = chains.theta.shape[0] * chains.theta.shape[1]
    growth = math.ceil(wanted / max(ess, 1.0))
    return Finding(
        name="too few draws",
        evidence=f"{total} draws are worth {ess:.3g} independent ones for the worst "
        f"coefficient or its square; {wanted:g} are wanted.",
        remedy=f"About {growth} times as many draws (target_ess=... finds the number), "
        "or a sampler that moves farther: num_steps=..., or another one.",
        is_problem=True,
    )


def stays(theta: Array) -> Array:
    """Longest stretch of equal draws in each chain.

    Parameters
    ----------
    theta : array of shape (chain, draw, dim)
        Draws.

    Returns
    -------
    array of int of shape (chain,)
        Lengths, at least 1.
    """
    moved = (theta[:, 1:] != theta[:, :-1]).any(axis=2)
    ends = np.ones((len(theta), 1), dtype=bool)
    marks = np.concatenate([ends, moved, ends], axis=1)
    return np.array([np.diff(np.flatnonzero(row)).max() for row in marks])


def stuck_walk(theta: Array) -> Finding | None:
    """Whether a chain stayed at one point for long."""
    num_draws = theta.shape[1]
    longest = stays(theta)
    limit = max(MIN_STAY, STAY_SHARE * num_draws)
    if not (longest >= min(limit, num_draws)).any():
        return None
    worst = int(np.argmax(longest))
    return Finding(
        name="stuck walk",
        evidence=f"Chain {worst} stayed at one point for {longest[worst]} of "
        f"{num_draws} draws.",
        remedy="A smaller step_size, another start (init=...), or a sampler without "
        "rejections: HitAndRun(), Proximal().",
        is_problem=True,
    )


def step_size(chains: Chains, ess: float) -> Finding | None:
    """Whether a frozen step is far too large or far too small."""
    step: Any = chains.attributes.get("step_size")
    rates = chains.stats.get("acceptance_rate")
    if step is None or rates is None or np.isnan(rates).all():
        return None
    rate = float(np.nanmean(rates))
    moved = float((chains.theta[:, 1:] != chains.theta[:, :-1]).any(axis=2).mean())
    time = chains.theta.shape[0] * chains.theta.shape[1] / max(ess, 1.0)
    seen = f"step_size={step:.3g}, acceptance {rate:.2g}, {time:.3g} draws per "
    # A sampler that waits for an acceptance moves in every draw, whatever its rate.
    if rate < LOW_ACCEPTANCE and moved < 1.0 - LOW_ACCEPTANCE:
        return Finding(
            name="step size too large",
            evidence=f"{seen}effective one.",
            remedy=f"step_size={step / 4.0:.2g}, or step_size=None: a pilot run finds "
            "one.",
            is_problem=True,
        )
    if rate > HIGH_ACCEPTANCE and time > LONG_TIME:
        return Finding(
            name="step size too small",
            evidence=f"{seen}effective one.",
            remedy=f"step_size={4.0 * step:.2g}, or step_size=None: a pilot run finds "
            "one.",
            is_problem=ess < MIN_ESS,
        )
    return None


def bias(chains: Chains) -> Finding | None:
    """Whether the sampler says that its law is not the target."""
    attributes = chains.attributes
    if attributes.get("exactness") != "biased":
        return None
    bound = float(attributes.get("bias_bound", math.inf))
    known = "no bound of it is stated"
    if math.isfinite(bound):
        known = f"its total variation distance is at most {bound:.2g}"
    return Finding(
        name="biased sampler",
        evidence=f"{attributes.get('sampler', 'The sampler')} has another law than "
        f"the target: {known}.",
        remedy='A smaller error=..., or a sampler whose exactness is "invariant" or '
        '"iid".',
        is_problem=not bound <= SMALL_BIAS,
    )


def interrupted(chains: Chains) -> Finding | None:
    """Whether the run was stopped by hand."""
    if not chains.attributes.get("is_interrupted", False):
        return None
    return Finding(
        name="interrupted run",
        evidence=f"The run was stopped after {chains.theta.shape[1]} draws per chain.",
        remedy="A checkpoint=... resumes it bit for bit.",
        is_problem=False,
    )
