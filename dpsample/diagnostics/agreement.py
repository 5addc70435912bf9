"""Whether chains agree with one another and with their own past.

Halves of chains are compared by Fisher's F test on means of batches, after a
normal-score transform: for coefficients, which shows different places; for their
distances from the median, which shows different spreads; and for the energy. R-hat,
whose law depends on the target, is quoted as evidence but decides nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsample.diagnostics.batches import batch_means, correlation_times, differ
from dpsample.diagnostics.check_report import Finding
from dpsample.diagnostics.reading import Chains
from dpsample.diagnostics.summaries import r_hat

Array = NDArray[np.float64]

# Gap between groups of chains, in sds within chains, from which they look like modes:
# two normal laws as far apart overlap by less than a tenth.
MODE_GAP = 4.0


def normal_scores(values: Array) -> Array:
    """Return normal quantiles of ranks, ties sharing one, over axes 0 and 1."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat = values.reshape(-1, values.shape[2])
    ranks = rankdata(flat, axis=0)
    scores = ndtri((ranks - 0.375) / (len(flat) + 0.25))
    return np.asarray(scores).reshape(values.shape)


def functions(chains: Chains) -> tuple[Array, list[str]]:
    """Functions that are compared, (chain, draw, m), and their names."""
    theta = chains.theta
    folded = np.abs(theta - np.median(theta, axis=(0, 1)))
    columns = [theta, folded]
    names = [*chains.names, *(f"the spread of {name}" for name in chains.names)]
    energies = chains.stats.get("energy")
    if energies is not None and np.isfinite(energies).all():
        columns.append(energies[:, :, None])
        names.append("the energy")
    return normal_scores(np.concatenate(columns, axis=2)), names


def look(chains: Chains, alpha: float) -> tuple[list[Finding], str]:
    """Compare halves of chains; the second value says why if that was not possible."""
    scores, names = functions(chains)
    times = correlation_times(scores)
    levels = np.ones(len(names))
    is_tested = False
    for column, time in enumerate(times):
        means = batch_means(scores[:, :, column], time)
        if means is not None:
            is_tested, levels[column] = True, differ(means)
    if not is_tested:
        return [], "agreement of chains (no batches of independent draws)"
    worst = int(np.argmin(levels))
    if levels[worst] * len(names) >= alpha:
        return [], ""
    return [_finding(chains, scores[:, :, worst], worst, names[worst])], ""


def _finding(chains: Chains, scores: Array, column: int, name: str) -> Finding:
    """Say what the worst function shows: modes, a drift, or chains that differ."""
    dim = len(chains.names)
    if column < dim:
        modes = _modes(chains.theta[:, :, column], name)
        if modes is not None:
            return modes
    half = scores.shape[1] // 2
    halves = np.stack([scores[:, :half].mean(1), scores[:, -half:].mean(1)], axis=1)
    evidence = (
        f"In {name}, {_contrast(halves)} (R-hat {r_hat(scores[:, :, None])[0]:.3f})."
    )
    drift = np.ptp(halves.mean(axis=0))
    if len(scores) == 1 or drift > np.ptp(halves.mean(axis=1)):
        return Finding(
            name="drifting chains",
            evidence=evidence,
            remedy="A longer warm-up (num_warmup=...), or a start nearer to the mode "
            "(init=None).",
            is_problem=True,
        )
    return Finding(
        name="disagreeing chains",
        evidence=evidence,
        remedy="Look at plot_rank and plot_trace. More draws if chains are slow, "
        "another start if one is stuck in a corner, another sampler if it "
        "stays there.",
        is_problem=True,
    )


def _contrast(halves: Array) -> str:
    """Name the chain, or half, that is farthest from the others."""
    means = halves.mean(axis=1)
    drift = np.ptp(halves.mean(axis=0))
    if len(means) == 1 or drift > np.ptp(means):
        first, last = halves.mean(axis=0)
        return f"the mean normal score is {first:.2f} in first and {last:.2f} in " + (
            "last halves of chains"
        )
    worst = int(np.argmax(np.abs(means - np.median(means))))
    others = np.delete(means, worst).mean()
    return (
        f"chain {worst} has mean normal score {means[worst]:.2f}, the others "
        f"{others:.2f}"
    )


def _modes(values: Array, name: str) -> Finding | None:
    """Whether chains form groups that do not overlap."""
    means = values.mean(axis=1)
    order = np.argsort(means)
    gaps = np.diff(means[order])
    if gaps.size == 0 or gaps.max() <= MODE_GAP * values.std(axis=1).max():
        return None
    split = int(np.argmax(gaps)) + 1
    groups = [sorted(order[:split].tolist()), sorted(order[split:].tolist())]
    places = [means[group].mean() for group in groups]
    shown = " and ".join(
        f"chains {', '.join(map(str, g))} stay near {place:.3g}"
        for g, place in zip(groups, places, strict=True)
    )
    return Finding(
        name="separate modes",
        evidence=f"In {name}, {shown}, with sd {values.std(axis=1).max():.2g} within "
        "a chain.",
        remedy="If the loss is not convex, no sampler here is proved for it: use a "
        "convex loss or a smaller domain. If it is convex, a chain never "
        "left its start: change init or the sampler.",
        is_problem=True,
    )
