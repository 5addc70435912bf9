"""The check: everything that is known to go wrong with draws, looked for at once."""

from __future__ import annotations

from typing import Any

from dpsample.diagnostics import agreement, boundary, energy_law, movement
from dpsample.diagnostics.check_report import CheckReport, Finding
from dpsample.diagnostics.reading import Chains, read
from dpsample.targets import Gibbs

# Probability with which each family of tests may flag a correct run: Bonferroni over
# its members. Autocorrelation makes simulated levels up to 3 times as large, which
# still leaves 1000 correct runs with one false alarm or none.
ALPHA = 1e-4


def check(draws: Any, target: Gibbs | None = None) -> CheckReport:
    """Look for what can go wrong with draws; say what was seen and what to try.

    Parameters
    ----------
    draws : DataTree
        What `sample` returned, of one chain or more.
    target : Gibbs, optional
        What was sampled. With it, draws are compared with its domain, convexity,
        energies and Stein's identities, which finds chains that agree on a wrong law.

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
    **Guarantee.** A run of a sampler with the target as its law is flagged by a test
    with probability about ``false_alarm`` (Student's and Fisher's laws of means of
    batches, union bound); rules about effective size, moves and step size are facts,
    not tests. Nothing is guaranteed of draws that pass: chains that all missed the
    same part of the target agree with one another and with local identities.

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
    if target is not None:
        energy_law.require_same(chains, target)
    findings = movement.look(chains)
    found, skipped = agreement.look(chains, ALPHA)
    findings += found
    looked_at = ["effective size", "moves", "step size", "agreement of chains"]
    reasons, families = [skipped], 1
    if target is None:
        reasons.append("domain, convexity, energies and identities (no target given)")
    else:
        found, skipped = _against(target, chains)
        findings += found
        reasons += skipped
        looked_at += ["domain", "convexity", "energies", "Stein's identities"]
        families = 4
    return CheckReport(
        findings=tuple(sorted(findings, key=lambda finding: not finding.is_problem)),
        looked_at=tuple(looked_at),
        skipped=tuple(reason for reason in reasons if reason),
        false_alarm=families * ALPHA,
    )


def _against(target: Gibbs, chains: Chains) -> tuple[list[Finding], list[str]]:
    """Findings of comparisons with the target, and what could not be compared."""
    outside = boundary.look(target, chains, ALPHA)
    if any(finding.is_problem for finding in outside):
        # Energies and slopes have no meaning outside, nor have identities for atoms.
        return outside, ["energies and identities (see the domain)"]
    findings = [*outside]
    for finding in (
        energy_law.stored_energies(target, chains),
        energy_law.convexity(target, chains),
    ):
        if finding is not None:
            findings.append(finding)
    found, skipped = energy_law.excess(target, chains, ALPHA)
    return findings + found, [skipped]
