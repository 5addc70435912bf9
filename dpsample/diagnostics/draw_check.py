"""Check of draws: everything that is known to go wrong, looked for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsample.diagnostics import chain_checks, target_checks
from dpsample.diagnostics.check_report import CheckReport, Finding
from dpsample.diagnostics.summaries import ChainDraws, read
from dpsample.targets.gibbs import Gibbs

if TYPE_CHECKING:
    from xarray import DataTree

# Probability with which each family of tests may flag a correct run: Bonferroni over
# its members. Autocorrelation makes simulated levels up to 3 times as large, which
# still leaves 1000 correct runs with one false alarm or none.
ALPHA = 1e-4


def check(draws: DataTree, target: Gibbs | None = None) -> CheckReport:
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
    disagreement, skipped = chain_checks.look_at_agreement(chains, ALPHA)
    findings = chain_checks.look_at_movement(chains) + disagreement
    reasons, families = [skipped], 1
    looked_at = ["effective size, moves, step size"]
    if not skipped:
        looked_at.append("agreement of chains")
    if target is None:
        reasons.append("domain, convexity, energies, identities (no target was given)")
    else:
        target_checks.require_same(chains, target)
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
    """Compare draws with their target; also say what could not be compared."""
    findings = target_checks.look_at_boundary(target, chains, ALPHA)
    if any(finding.is_problem for finding in findings):
        # Outside, slopes have no meaning; atoms satisfy no identity.
        return findings, ["convexity, energies, identities (see the domain first)"]
    for finding in (
        target_checks.stored_energies(target, chains),
        target_checks.convexity(target, chains),
    ):
        findings += [] if finding is None else [finding]
    reasons = []
    for look in (target_checks.excess, target_checks.look_at_stein):
        mismatch, reason = look(target, chains, ALPHA)
        findings += mismatch
        reasons.append(reason)
    return findings, reasons
