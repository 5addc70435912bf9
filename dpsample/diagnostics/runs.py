"""Ends of independent chains, and single draws picked from chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._streams import Seed, streams
from dpsample.diagnostics.reading import read
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.couplings.replicates import run_all
from dpsample.samplers.sampler import Sampler
from dpsample.targets import Gibbs

Array = NDArray[np.float64]

# Draws between two that count as independent, in integrated autocorrelation times.
SPACING = 2.0


def end_of(prepared: Any, num_draws: int) -> Callable[[np.random.Generator], Array]:
    """Return a function from a stream to the last of ``num_draws`` draws of a chain.

    The chain starts where `sample` would start it.
    """
    runner = prepared.runner()

    def end(rng: np.random.Generator) -> Array:
        start: Array = prepared.dispersed(rng)
        draws = np.empty((num_draws, start.size))
        runner(prepared.init(start), rng, draws, np.empty((num_draws, NUM_STATS)))
        return np.array(draws[-1])

    return end


def replicates(
    sampler: Sampler,
    target: Gibbs,
    count: int,
    *,
    num_draws: int | None,
    seed: Seed,
    threads: int | None,
) -> tuple[Array, str]:
    """Independent ends of chains as `sample` starts them, and words for them."""
    tuning, *rest = streams(seed, count + 1)
    prepared = sampler.prepare(target, tuning)
    steps = prepared.num_warmup + 1 if num_draws is None else num_draws
    points = np.array(run_all(end_of(prepared, steps), rest, threads))
    return points, f"{count} independent chains of {sampler!r}, draw {steps} of each"


def independent(draws: Any) -> tuple[Array, str]:
    """Points that may count as independent, and words for how they were found.

    An array is taken as it is. Chains are thinned to one draw in two integrated
    autocorrelation times, those of the slowest coordinate or square.
    """
    theta, is_independent = chains_of(draws)
    points = theta.reshape(-1, theta.shape[2])
    if is_independent:
        return points, f"{len(points)} points, taken as independent"
    size = smallest_ess(theta)
    if not size > 0.0:
        check.fail("draws", "moving", "a coefficient that never moved", "Use `check`.")
    chains, length, dim = theta.shape
    stride = max(1, int(np.ceil(SPACING * chains * length / size)))
    points = theta[:, ::stride].reshape(-1, dim)
    return points, (
        f"{len(points)} draws, one in {stride} of {chains} chains: nearly independent "
        "if the chains mix, so the level is approximate"
    )


def smallest_ess(theta: Array) -> float:
    """Smallest effective sample size of a coordinate or its square."""
    from arviz_stats.base import array_stats

    squares = (theta - theta.mean(axis=(0, 1))) ** 2
    both = np.concatenate((theta, squares), axis=2)
    if (np.ptp(both, axis=(0, 1)) == 0.0).any():
        return 0.0
    sizes = array_stats.ess(both, method="mean", chain_axis=0, draw_axis=1)
    return float(np.min(sizes))


def effective_size(values: Array) -> float:
    """Effective sample size for the mean of values (chain, draw); NaN if constant."""
    from arviz_stats.base import array_stats

    if np.ptp(values) == 0.0:
        return float("nan")
    found = array_stats.ess(values, method="mean", chain_axis=0, draw_axis=1)
    return float(found)


def chains_of(draws: Any) -> tuple[Array, bool]:
    """Draws (chain, draw, dim), and whether they count as independent."""
    if not isinstance(draws, np.ndarray):
        return read(draws).theta, draws.attrs.get("exactness") == "iid"
    if draws.size == 0:
        check.fail("draws", "non-empty", f"shape {draws.shape}")
    if draws.ndim == 3:
        return check.array("draws", draws, shape=(None, None, None)), False
    return check.array("draws", draws, shape=(None, None))[None], True
