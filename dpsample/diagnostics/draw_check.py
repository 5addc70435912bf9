"""Check of draws, which looks for all known defects at once.

*Facets.* The slack s of a facet is the distance by which a point satisfies one of the
inequalities of the domain. It is a concave function of theta, so P(s > t) is
log-concave in t, and with the median m of s

    P(s < c m) <= c log 2,    0 <= c <= 1.

A draw much nearer to the boundary than that comes from another distribution. For
example, samplers that project onto the domain, or clip, put mass on the boundary.

*Identities.* Stein's identities are tested on means of batches. They show a wrong
distribution inside the domain or at its boundary, even if all chains agree on it.
Examples are a walk that does not count rejected proposals, or a missing acceptance
step.

A *level* is the probability with which tests may report draws of the target.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpsample.core.arrays import Array, Bools, Ints
from dpsample.core.check import fail, instance
from dpsample.diagnostics import chain_checks
from dpsample.diagnostics.identities import stein_values
from dpsample.diagnostics.summaries import (
    ChainDraws,
    CheckReport,
    Finding,
    correlation_times,
    off_zero,
    read,
)
from dpsample.domains import Domain
from dpsample.privacy.certificates.terms import energy_quantile
from dpsample.samplers import gaussian_fit
from dpsample.samplers.proximal.metric import is_flat
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import energies
from dpsample.targets.reduced import find_free_coefficients

if TYPE_CHECKING:
    from xarray import DataTree

# Level of each family of tests, by Bonferroni's correction over its members.
# Autocorrelation makes simulated levels up to 3 times as large, which still leaves 1000
# correct runs with one false alarm or none.
ALPHA = 1e-4
# If the median slack of a facet is below this share of an inner point's, half of the
# draws are in a thin layer along the facet.
NEAR = 0.01
# Number of points at which the target is evaluated. Each takes a pass over the records.
NUM_PROBES = 100
# Relative allowance for the rounding of a mean over many records.
ROUNDING = 1e-9


def check(draws: DataTree, target: Gibbs | None = None) -> CheckReport:
    """Look for defects of draws, and report what was seen and what to try.

    Parameters
    ----------
    draws : DataTree
        What `sample` returned, of one chain or more.
    target : Gibbs, optional
        Target that was sampled. With it, draws are compared with its domain, convexity,
        energies and Stein's identities. That shows chains that agree on a wrong
        distribution.

    Returns
    -------
    CheckReport
        Findings, problems first; ``ok`` is true if there is no problem.

    Raises
    ------
    ValueError
        If the draws are not those of `sample`, fewer than 4 per chain, or of another
        dimension than the target.

    Notes
    -----
    **Guarantee.** A run of a sampler with the target as its distribution is reported by
    a test with probability about ``false_alarm`` (Student's and Fisher's distributions
    of means of batches, union bound). Rules about effective size, moves and step size
    are facts, not tests. Nothing is guaranteed for draws that pass, because chains that
    all missed the same part of the target agree with one another and with local
    identities.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> dps.diagnostics.check(dps.sample(target, seed=1), target).ok
    True
    >>> few = dps.sample(target, num_draws=10, num_chains=2, seed=1)
    >>> [finding.name for finding in dps.diagnostics.check(few).problems]
    ['too few draws']
    """
    chains = read(draws)
    disagreement, skipped = chain_checks.look_at_agreement(chains, ALPHA)
    moves = None
    if target is not None:
        require_same(chains, target)
        if is_flat(target.domain, target.dim):
            moves = find_free_coefficients(target.domain.hull(target.dim)[1])
    findings = chain_checks.look_at_movement(chains, moves) + disagreement
    reasons, families = [skipped], 1
    looked_at = ["effective size, moves, step size"]
    if not skipped:
        looked_at.append("agreement of chains")
    if target is None:
        reasons.append("domain, convexity, energies, identities (no target was given)")
    else:
        mismatch, skipped_there = _against(target, chains)
        findings += mismatch
        reasons += skipped_there
        looked_at.append("what the target says")
        families = 4
    return CheckReport(
        findings=tuple(sorted(findings, key=lambda finding: not finding.is_problem)),
        looked_at=tuple(looked_at),
        skipped=tuple(reason for reason in reasons if reason),
        false_alarm=families * ALPHA,
    )


def _against(target: Gibbs, chains: ChainDraws) -> tuple[list[Finding], list[str]]:
    """Compare draws with their target. Also return what could not be compared."""
    findings = look_at_boundary(target, chains, ALPHA)
    if any(finding.is_problem for finding in findings):
        # Outside the domain slopes have no meaning, and a distribution with mass on the
        # boundary satisfies no identity.
        return findings, ["convexity, energies, identities (see the domain first)"]
    for finding in (
        stored_energies(target, chains),
        convexity(target, chains),
    ):
        findings += [] if finding is None else [finding]
    reasons = []
    for look in (excess, look_at_stein):
        mismatch, reason = look(target, chains, ALPHA)
        findings += mismatch
        reasons.append(reason)
    return findings, reasons


def look_at_boundary(target: Gibbs, chains: ChainDraws, alpha: float) -> list[Finding]:
    """Compare slacks with the module's bound, at the level ``alpha``."""
    points = np.unique(chains.theta.reshape(-1, target.dim), axis=0)
    domain = target.domain
    outside = points[~contains_rows(domain, points)]
    if len(outside):
        return [_outside(outside[0], len(outside), len(points))]
    gaps = domain.slacks(points)
    if gaps.size == 0:
        return []
    medians = np.median(gaps, axis=0)
    # c of the module, such that all points and facets together have the level alpha.
    limit = alpha / (math.log(2.0) * gaps.size)
    is_on = (gaps <= limit * medians).any(axis=1)
    if is_on.any():
        return [_on_the_boundary(float(is_on.mean()))]
    inner = domain.slacks(domain.interior_point(target.dim)[None])[0]
    sides = int(np.sum(medians < NEAR * inner))
    return [_along_the_boundary(sides)] if sides else []


def contains_rows(domain: Domain, points: Array) -> Bools:
    """Return for each row of points whether it is in the domain."""
    body, out = domain.body(points.shape[1]), np.full(1, np.nan)
    is_inside = np.zeros(len(points), dtype=bool)
    for i, point in enumerate(points):
        domain.contains_piece(body, point, out)
        is_inside[i] = out[0] == 1.0
    return is_inside


def _outside(point: Array, count: int, total: int) -> Finding:
    """Return the finding about draws outside of the domain."""
    return Finding(
        name="draws outside of the domain",
        evidence=f"{count} of {total} draws, such as {np.array2string(point)}.",
        remedy="Check that the draws are of this target; if they are, the sampler is "
        "wrong.",
    )


def _on_the_boundary(share: float) -> Finding:
    """Return the finding about draws on the boundary."""
    return Finding(
        name="mass on the boundary",
        evidence=f"A share {share:.2g} of all points are on the boundary of the "
        "domain, up to rounding. A density puts none there.",
        remedy="A sampler that rejects proposals outside of the domain: one that "
        "projects or clips them has another law.",
    )


def _along_the_boundary(sides: int) -> Finding:
    """Return the note about a thin layer of draws along facets."""
    where = f"{sides} sides" if sides > 1 else "one side"
    return Finding(
        name="mass along the boundary",
        evidence=f"Half of the draws are within {NEAR:g} of the way from {where} of "
        "the domain to its middle.",
        remedy="Nothing, if the domain is meant to bind. Normal approximations are "
        "wrong there, and walks that stay inside need short steps: CoordinateHitAndRun "
        "or Proximal suit such a target.",
        is_problem=False,
    )


def require_same(chains: ChainDraws, target: Gibbs) -> None:
    """Raise unless the draws have the target's dimension."""
    instance(Gibbs, target=target, remedy="Pass what was sampled from.")
    if target.dim != chains.theta.shape[2]:
        remedy = f"The draws have {chains.theta.shape[2]} coefficients."
        fail("target", "the one that was sampled", f"dim {target.dim}", remedy)


def stored_energies(target: Gibbs, chains: ChainDraws) -> Finding | None:
    """Compare energies that the sampler stored with the target's own."""
    stored = chains.energies
    if stored is None:
        return None
    points, values = chains.theta.reshape(-1, target.dim), stored.ravel()
    probes = _spread(np.flatnonzero(np.isfinite(values)))
    expected = energies(target, points[probes])
    gaps = np.abs(expected - values[probes])
    wrong = np.flatnonzero(~(gaps <= ROUNDING * (1.0 + np.abs(expected))))
    if wrong.size == 0:
        return None
    worst = wrong[np.argmax(gaps[wrong])]
    return Finding(
        name="energy mismatch",
        evidence=f"{wrong.size} of {probes.size} stored energies are not the target's: "
        f"{values[probes[worst]]:.6g} is stored where it is {expected[worst]:.6g}.",
        remedy="Check that target is the one that was sampled (k, mu, records); if it "
        "is, the sampler or a custom loss is wrong.",
    )


def convexity(target: Gibbs, chains: ChainDraws) -> Finding | None:
    """Look for a chord between two draws that lies below the energy."""
    points = chains.theta.reshape(-1, target.dim)
    # Any fixed choice of pairs that mixes chains will do. A regular one might pair
    # draws that are alike.
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
    )


def excess(
    target: Gibbs, chains: ChainDraws, alpha: float
) -> tuple[list[Finding], str]:
    r"""Test the bounds that convexity gives for V - min V, at a level.

    E[V] - min V <= dim (arXiv:2207.08347, Proposition 4), and any one draw is below the
    Chernoff bound of a Gamma(dim) variable. Each test has half of the level. The search
    may end above the minimum, which makes both tests weaker and never wrong.
    """
    stored = chains.energies
    if stored is None or not np.isfinite(stored).all():
        return [], "the law of energies (the sampler did without them)"
    rank = target.domain.affine_dim(target.dim)
    excess = stored - gaussian_fit.minimize(target)[1]
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
        )
    ], ""


def _spread(indices: Ints) -> Ints:
    """Return at most `NUM_PROBES` of the indices, evenly spread."""
    count = min(NUM_PROBES, len(indices))
    return indices[np.linspace(0, len(indices) - 1, count).astype(np.int64)]


def look_at_stein(
    target: Gibbs, chains: ChainDraws, alpha: float
) -> tuple[list[Finding], str]:
    """Test all identities at a level together.

    The second value names the check if it was not possible, and is empty otherwise.
    """
    num_chains, num_draws, dim = chains.theta.shape
    # Slopes are evaluated at some 10,000 draws, equally spaced. Each takes a pass
    # over the records, and neighbors in a chain are much alike.
    stride = -(-num_chains * num_draws // 10_000)
    theta = chains.theta[:, ::stride]
    functions = list(stein_values(target, theta.reshape(-1, dim)))
    values = np.stack([column for _, column in functions], axis=1)
    values = values.reshape(*theta.shape[:2], len(functions))
    times = correlation_times(values)
    tests = [off_zero(values[:, :, i], time) for i, time in enumerate(times)]
    if all(test is None for test in tests):
        return [], "Stein's identities (no batches of independent draws)"
    levels = [1.0 if test is None else 2.0 * min(test[1:]) for test in tests]
    worst = int(np.argmin(levels))
    test = tests[worst]
    if test is None or levels[worst] * len(functions) >= alpha:
        return [], ""
    return [
        Finding(
            name="a law that is not the target's",
            evidence="Under the target, the mean of Stein's function "
            f'"{functions[worst][0]}" is 0; the draws have {abs(test[0]):.3g} standard '
            "errors.",
            remedy="Check that target is the one that was sampled. If it is: a longer "
            "warm-up, a start nearer to the mode, or a sampler whose exactness is "
            'not "biased". compare and stein_check say more.',
        )
    ], ""
