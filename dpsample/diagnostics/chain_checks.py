"""Checks of chains: whether they agree, and move far enough and often enough.

Halves of chains are compared by Fisher's F test on means of batches, after a
normal-score transform. Three kinds of functions are compared: the coefficients, which
show different positions, their distances from the median, which show different spreads,
and the energy. R-hat, whose distribution depends on the target, is quoted as evidence
but decides nothing. Rules about effective sizes, moves and step sizes are facts about
draws, not tests. A finding with ``is_problem=False`` is a note, and no reason to doubt
the draws. The attributes that are read below, such as ``target_ess``, are those that
`dpsample.sample` writes.

If chains are many and short, *superchains* are compared instead: sets of chains with a
common start.
"""

import math
from typing import Any

import numpy as np

from dpsample.core.arrays import Array, Bools
from dpsample.diagnostics.summaries import (
    ChainDraws,
    Finding,
    batch_means,
    correlation_times,
    differ,
    r_hat,
)
from dpsample.numerics.r_hat_and_ess import nested_r_hats, normal_scores
from dpsample.running.convergence import (
    RunFacts,
    are_many_and_short,
    effective_size,
)

# With fewer, a mean is known to a tenth of an sd at best, and the tests on batches, as
# well as effective sizes themselves, are unreliable.
MIN_ESS = 100.0


def score_functions(chains: ChainDraws) -> tuple[Array, list[str]]:
    """Return normal scores of the compared functions, and their names.

    Scores have the shape (chain, draw, function). The first dim functions are the
    coefficients, and the next dim are their distances from the median.
    """
    theta = chains.theta
    # One median for all chains, so that a chain with another spread stands out.
    folded = np.abs(theta - np.median(theta, axis=(0, 1)))
    columns = [theta, folded]
    names = [*chains.names, *(f"the spread of {name}" for name in chains.names)]
    energies = chains.energies
    if energies is not None and np.isfinite(energies).all():
        columns.append(energies[:, :, None])
        names.append("the energy")
    return normal_scores(np.concatenate(columns, axis=2)), names


def look_at_agreement(chains: ChainDraws, alpha: float) -> tuple[list[Finding], str]:
    """Compare halves of chains, by tests of level ``alpha`` together.

    The second value names the check if it was not possible, and is empty otherwise.
    """
    scores, names = score_functions(chains)
    if chains.groups is not None:
        return _compare_superchains(chains, scores, names, alpha), ""
    times = correlation_times(scores)
    # A function without batches keeps 1. It counts in the correction below all the
    # same, because the draws decide which functions have batches.
    p_values = np.ones(len(names))
    is_tested = False
    for column, time in enumerate(times):
        means = batch_means(scores[:, :, column], time)
        if means is not None:  # chains are long enough for independent batches
            is_tested, p_values[column] = True, differ(means)
    if not is_tested:
        return [], "agreement of chains (no batches of independent draws)"
    worst = int(np.argmin(p_values))
    if p_values[worst] * len(names) >= alpha:  # Bonferroni's correction
        return [], ""
    return [_finding(chains, scores[:, :, worst], worst, names[worst])], ""


def _compare_superchains(
    chains: ChainDraws, scores: Array, names: list[str], alpha: float
) -> list[Finding]:
    """Compare superchains, in which means of chains are independent given the start."""
    assert chains.groups is not None
    parts = [np.flatnonzero(chains.groups == g) for g in np.unique(chains.groups)]
    size = min(map(len, parts))
    middles = scores.mean(axis=1)
    # `differ` compares means of shape (chain, half, batch). Here a superchain takes the
    # place of a chain that has one half, and its chains take the place of the batches.
    # All need the same number, so the last chains of larger superchains are left out.
    means = np.array([middles[part[:size]] for part in parts])[:, None]
    p_values = [differ(means[..., column]) for column in range(len(names))]
    worst = int(np.argmin(p_values))
    if p_values[worst] * len(names) >= alpha:  # Bonferroni's correction
        return []
    r_hats, _noise = nested_r_hats(scores[:, :, worst, None], chains.groups)
    return [
        Finding(
            name="chains that remember their starts",
            evidence=f"In {names[worst]}, chains of one start are more alike than "
            f"chains of different ones (nested R-hat {r_hats[0]:.3f}).",
            remedy="A longer warm-up (num_warmup=...), or longer chains.",
        )
    ]


def _finding(chains: ChainDraws, scores: Array, column: int, name: str) -> Finding:
    """Return what the worst function shows: modes, a drift, or chains that differ."""
    dim = len(chains.names)
    if column < dim:  # modes are looked for in coefficients only
        modes = _modes(chains.theta[:, :, column], name)
        if modes is not None:
            return modes
    half = scores.shape[1] // 2
    halves = np.stack([scores[:, :half].mean(1), scores[:, -half:].mean(1)], axis=1)
    # It is a drift if halves differ by more than chains. One chain can only drift.
    drift = np.ptp(halves.mean(axis=0))
    is_drift = bool(len(scores) == 1 or drift > np.ptp(halves.mean(axis=1)))
    contrast = _contrast(halves, is_drift=is_drift)
    evidence = f"In {name}, {contrast} (R-hat {r_hat(scores[:, :, None])[0]:.3f})."
    if is_drift:
        return Finding(
            name="drifting chains",
            evidence=evidence,
            remedy="A longer warm-up (num_warmup=...), or a start nearer to the mode "
            "(init=None).",
        )
    return Finding(
        name="disagreeing chains",
        evidence=evidence,
        remedy="Look at plot_rank and plot_trace. More draws if chains are slow, "
        "another start if one is stuck in a corner, another sampler if it "
        "stays there.",
    )


def _contrast(halves: Array, *, is_drift: bool) -> str:
    """Describe the difference of first and last halves, or of one chain and the rest.

    ``halves`` has the mean scores, of shape (chain, 2).
    """
    means = halves.mean(axis=1)
    if is_drift:
        first, last = halves.mean(axis=0)
        return (
            f"the mean normal score is {first:.2f} in first and {last:.2f} in "
            "last halves of chains"
        )
    worst = int(np.argmax(np.abs(means - np.median(means))))
    others = np.delete(means, worst).mean()
    return (
        f"chain {worst} has mean normal score {means[worst]:.2f}, the others "
        f"{others:.2f}"
    )


def _modes(values: Array, name: str) -> Finding | None:
    """Return a finding if chains form groups that do not overlap."""
    means = values.mean(axis=1)
    order = np.argsort(means)
    gaps = np.diff(means[order])
    # Groups of chains look like modes if the gap between them is above four standard
    # deviations within a chain. Two normal densities that far apart overlap by 5 %.
    if gaps.size == 0 or gaps.max() <= 4.0 * values.std(axis=1).max():
        return None
    split = int(np.argmax(gaps)) + 1
    groups = [sorted(order[:split].tolist()), sorted(order[split:].tolist())]
    centers = [means[group].mean() for group in groups]
    description = " and ".join(
        f"chains {', '.join(map(str, g))} stay near {center:.3g}"
        for g, center in zip(groups, centers, strict=True)
    )
    return Finding(
        name="separate modes",
        evidence=f"In {name}, {description}, with sd {values.std(axis=1).max():.2g} "
        "within a chain.",
        remedy="If the loss is not convex, no sampler here is proved for it: use a "
        "convex loss or a smaller domain. If it is convex, a chain never "
        "left its start: change init or the sampler.",
    )


def look_at_movement(chains: ChainDraws, is_free: Bools | None) -> list[Finding]:
    """Look at effective size, moves, step size and what the sampler reports.

    ``is_free`` marks the coefficients that the domain leaves free. None means all.
    """
    is_all = is_free is None
    ess = effective_size(chains.theta if is_all else chains.theta[..., is_free])
    findings = (
        stuck_walk(chains.theta),
        step_size(chains, ess),
        too_few(chains, ess),
        bias(chains),
        unreached_tails(chains),
        unsettled_metric(chains),
        interruption(chains),
    )
    return [finding for finding in findings if finding]


def too_few(chains: ChainDraws, ess: float) -> Finding | None:
    """Return a finding if the effective size is below `MIN_ESS` or the target.

    ``ess`` is the smallest one of a coefficient or its square. Only a run with a target
    has the attributes ``target_ess`` and ``is_target_ess_reached``. A target that the
    run itself found to be reached does not count.
    """
    required_ess = MIN_ESS
    if not chains.attributes.get("is_target_ess_reached", False):
        required_ess = max(
            required_ess, float(chains.attributes.get("target_ess", 0.0))
        )
    if ess >= required_ess:
        return None
    total = chains.theta.shape[0] * chains.theta.shape[1]
    growth = math.ceil(required_ess / max(ess, 1.0))
    return Finding(
        name="too few draws",
        evidence=f"{total} draws are worth {ess:.3g} independent ones for the worst "
        f"coefficient or its square; {required_ess:g} are wanted.",
        remedy=RunFacts(
            is_independent=chains.attributes.get("exactness") == "iid"
        ).more_draws(growth),
    )


def stays(theta: Array) -> Array:
    """Return the longest run of equal draws in each chain of (chain, draw, dim)."""
    has_moved = (theta[:, 1:] != theta[:, :-1]).any(axis=2)
    ends = np.ones((len(theta), 1), dtype=bool)
    marks = np.concatenate([ends, has_moved, ends], axis=1)
    return np.array([np.diff(np.flatnonzero(row)).max() for row in marks])


def stuck_walk(theta: Array) -> Finding | None:
    """Return a finding if a chain stayed at one point for long."""
    num_draws = theta.shape[1]
    longest = stays(theta)
    # A walk that accepts one proposal in five stays at a point for 100 draws with
    # probability 0.8^100 = 2e-10. In a long chain a stay counts from a tenth of its
    # draws on. Shorter ones lower the effective size, at which `too_few` looks.
    limit = max(100, 0.1 * num_draws)
    # A chain with fewer draws than the limit is stuck if it never moved.
    is_stuck = longest >= min(limit, num_draws)
    allowed_share = 0.0
    if are_many_and_short(*theta.shape[:2]):
        # Some of many chains stay at their start by chance. This is the probability for
        # a walk that accepts a fifth of its proposals, which is not called stuck.
        stay_probability = (1.0 - 0.2) ** (num_draws - 1)
        # In addition to this, a tenth of many short chains may stay at their start, the
        # same share that one long chain may lose.
        allowed_share = stay_probability + 0.1
    if is_stuck.mean() <= allowed_share:
        return None
    worst = int(np.argmax(longest))
    return Finding(
        name="stuck walk",
        evidence=f"Chain {worst} stayed at one point for {longest[worst]} of "
        f"{num_draws} draws.",
        remedy="A smaller step_size, another start (init=...), or a sampler without "
        "rejections: HitAndRun(), Proximal().",
    )


def step_size(chains: ChainDraws, ess: float) -> Finding | None:
    """Return a finding if the step size is far too large or far too small.

    The attribute ``step_size`` is the one with which all draws were made.
    """
    # Tuned walks accept 0.2 to 0.7 of their proposals. Below this rate most work is
    # lost, and a chain can stay anywhere for long.
    low_acceptance = 0.05
    step: Any = chains.attributes.get("step_size")
    rates = chains.stats.get("acceptance_rate")
    if step is None or rates is None or np.isnan(rates).all():
        return None
    rate = float(np.nanmean(rates))
    move_rate = float((chains.theta[:, 1:] != chains.theta[:, :-1]).any(axis=2).mean())
    time = chains.theta.shape[0] * chains.theta.shape[1] / max(ess, 1.0)
    # A sampler that waits for an acceptance moves in every draw, whatever its rate.
    is_large = rate < low_acceptance and move_rate < 1.0 - low_acceptance
    # Above this rate, with so many draws per effective one, the steps are far shorter
    # than they could be.
    if not (is_large or (rate > 0.95 and time > 50.0)):
        return None
    # The factor is rough. A pilot run finds a better step.
    better = step / 4.0 if is_large else 4.0 * step
    # Short steps make no wrong draws. They are a problem only if the draws are too few.
    return Finding(
        name=f"step size too {'large' if is_large else 'small'}",
        evidence=f"step_size={step:.3g}, acceptance {rate:.2g}, {time:.3g} draws per "
        "effective one.",
        remedy=f"step_size={better:.2g}, or step_size=None: a pilot run finds one.",
        is_problem=is_large or ess < MIN_ESS,
    )


def bias(chains: ChainDraws) -> Finding | None:
    """Return a finding if the sampler declares a bias."""
    attributes = chains.attributes
    if attributes.get("exactness") != "biased":
        return None
    bound = float(attributes.get("bias_bound", math.inf))
    size = "no bound of the bias is stated"
    if math.isfinite(bound):
        size = f"its total variation distance is at most {bound:.2g}"
    # A total variation of 0.01 changes a probability by no more than 0.01. That is
    # about the Monte Carlo error of 10,000 draws.
    return Finding(
        name="biased sampler",
        evidence=f"{attributes.get('sampler', 'The sampler')} has another "
        f"distribution than the target: {size}.",
        remedy='A smaller error=..., or a sampler whose exactness is "invariant" or '
        '"iid".',
        is_problem=not bound <= 0.01,  # NaN is a problem, too
    )


def interruption(chains: ChainDraws) -> Finding | None:
    """Return a note if the run was stopped by hand or by its time limit."""
    is_out_of_time = chains.attributes.get("is_out_of_time", False)
    if not (is_out_of_time or chains.attributes.get("is_interrupted", False)):
        return None
    by = "by max_seconds " if is_out_of_time else ""
    return Finding(
        name="interrupted run",
        evidence=f"The run was stopped {by}after {chains.theta.shape[1]} draws per "
        "chain.",
        remedy="A checkpoint=... resumes it bit for bit.",
        is_problem=False,
    )


def unreached_tails(chains: ChainDraws) -> Finding | None:
    """Return a finding if the sampler reports tails that its proposals do not reach.

    Such tails are heavier than those of the Gaussian from which proposals are drawn.
    """
    if chains.attributes.get("reaches_tails", 1):
        return None
    return Finding(
        name="tails that the proposals do not reach",
        evidence=f"{chains.attributes.get('sampler', 'The sampler')} found that the "
        "energy rises less than its Gaussian's far out. Chains are hardly ever there, "
        "so that they agree, and their variance is too small.",
        remedy='sampler="auto" or BilliardHMC().',
    )


def unsettled_metric(chains: ChainDraws) -> Finding | None:
    """Return a note if the warm-up ended before its metric had settled.

    The metric is a covariance in whose units the draws should look standard.
    """
    if chains.attributes.get("has_settled", 1):
        return None
    return Finding(
        name="a metric that has not settled",
        evidence="The warm-up ended before its draws looked standard in the metric "
        "that they gave. Draws are right in any metric, but may be slow.",
        remedy="Features of similar scale, or more draws: target_ess=... finds the "
        "number.",
        is_problem=False,
    )
