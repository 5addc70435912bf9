"""Whether draws fit their target: its numbers, its convexity, its energies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.diagnostics.batches import correlation_times, off_zero
from dpsample.diagnostics.check_report import Finding
from dpsample.diagnostics.reading import Chains
from dpsample.energies import energies
from dpsample.privacy.risk import energy_quantile
from dpsample.samplers import mode
from dpsample.targets import Gibbs

Array = NDArray[np.float64]

# Points at which the target is evaluated anew: each costs a pass over the records.
NUM_PROBES = 100
# Rounding of a mean over many records, in units of its size.
ROUNDING = 1e-9


def require_same(chains: Chains, target: Gibbs) -> None:
    """Raise unless the draws have the target's dimension."""
    check.instance(Gibbs, target=target, remedy="Pass what was sampled from.")
    if target.dim != chains.theta.shape[2]:
        remedy = f"The draws have {chains.theta.shape[2]} coefficients."
        check.fail("target", "the one that was sampled", f"dim {target.dim}", remedy)


def stored_energies(target: Gibbs, chains: Chains) -> Finding | None:
    """Compare energies that the sampler stored with the target's own."""
    stored = chains.stats.get("energy")
    if stored is None:
        return None
    points, values = chains.theta.reshape(-1, target.dim), stored.ravel()
    probes = _spread(np.flatnonzero(np.isfinite(values)))
    own = energies(target, points[probes])
    gaps = np.abs(own - values[probes])
    wrong = np.flatnonzero(~(gaps <= ROUNDING * (1.0 + np.abs(own))))
    if wrong.size == 0:
        return None
    worst = wrong[np.argmax(gaps[wrong])]
    return Finding(
        name="energy mismatch",
        evidence=f"{wrong.size} of {probes.size} stored energies are not the target's: "
        f"{values[probes[worst]]:.6g} is stored where it is {own[worst]:.6g}.",
        remedy="Check that target is the one that was sampled (k, mu, records); if it "
        "is, the sampler or a custom loss is wrong.",
        is_problem=True,
    )


def convexity(target: Gibbs, chains: Chains) -> Finding | None:
    """Look for a chord between two draws that lies below the energy."""
    points = chains.theta.reshape(-1, target.dim)
    # Any fixed choice that mixes chains will do; a lattice could pair like with like.
    pair = np.random.default_rng(0).choice(points, (2, NUM_PROBES))
    ends = 0.5 * (energies(target, pair[0]) + energies(target, pair[1]))
    middle = energies(target, 0.5 * (pair[0] + pair[1]))
    above = middle - ends
    is_above = above > ROUNDING * (1.0 + np.abs(ends) + np.abs(middle))
    if not is_above.any():
        return None
    worst = int(np.argmax(above))
    return Finding(
        name="an energy that is not convex",
        evidence=f"Halfway between two draws the energy is {above[worst]:.4g} above "
        f"its mean at both ({np.mean(is_above):.0%} of {NUM_PROBES} pairs).",
        remedy="A convex loss: there may be other modes that no chain visited, and "
        "neither samplers nor privacy proofs here cover such an energy.",
        is_problem=True,
    )


def excess(target: Gibbs, chains: Chains, alpha: float) -> tuple[list[Finding], str]:
    r"""Test the bounds that convexity sets to V - min V, at a level.

    E V - min V <= dim (arXiv:2207.08347, Proposition 4), and any one draw is below the
    Chernoff bound of a Gamma(dim) variable. A minimum that is not quite found makes
    both tests weaker, never wrong.
    """
    stored = chains.stats.get("energy")
    if stored is None or not np.isfinite(stored).all():
        return [], "the law of energies (the sampler did without them)"
    rank = target.problem.domain.affine_dim(target.dim)
    excess = stored - mode.minimize(target)[1]
    farthest = energy_quantile(rank, 0.5 * alpha / excess.size)
    time = float(correlation_times(stored[:, :, None])[0])
    test = off_zero(excess - rank, time)
    level = 1.0 if test is None else test[1]
    if level >= 0.5 * alpha and excess.max() <= farthest:
        return [], ""
    return [
        Finding(
            name="energies too large",
            evidence=f"The energy is {excess.mean():.4g} above its minimum on average "
            f"and {excess.max():.4g} at most. If it is convex, {rank} (the dimension) "
            f"and {farthest:.3g} are possible.",
            remedy="A longer warm-up (num_warmup=...), a start nearer to the mode "
            "(init=None), or another sampler: chains are far from where the target "
            "has its mass.",
            is_problem=True,
        )
    ], ""


def _spread(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `NUM_PROBES` of the indices, evenly spread."""
    count = min(NUM_PROBES, len(indices))
    return indices[np.linspace(0, len(indices) - 1, count).astype(np.int64)]
