"""Means of chains against what they should be, with a budget of false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.diagnostics.runs import effective_size

Array = NDArray[np.float64]

# Fewer effective draws give no standard error that could be trusted.
MIN_ESS = 50.0
# Probability with which the discrepancy that could be seen is seen.
POWER = 0.9


class Identity(NamedTuple):
    """Values (chain, draw) and their expectation, or an upper bound of it."""

    values: Array
    expected: float
    is_limit: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Expectations:
    """Means against their expectations under the target.

    Attributes
    ----------
    title : str
        What was checked.
    names : tuple of str
        The identities.
    means, expected, errors, z_scores : array of shape (num_identities,)
        Means, what they should be, Monte Carlo standard errors, and differences in
        units of these.
    effective_sizes : array of shape (num_identities,)
        Effective numbers of draws.
    limits : array of shape (num_identities,)
        z-scores beyond which an identity is refused.
    detectable : array of shape (num_identities,)
        Errors of a mean, in standard deviations of the values, that are seen with
        probability at least `POWER`.
    is_limit : array of bool
        Where an expectation is an upper bound: only a larger mean is refused.
    false_alarm : float
        Probability that draws of the target fail, all identities together.
    blind : str
        What no such check sees.
    """

    title: str
    names: tuple[str, ...]
    means: Array
    expected: Array
    errors: Array
    z_scores: Array
    effective_sizes: Array
    limits: Array
    detectable: Array
    is_limit: NDArray[np.bool_]
    false_alarm: float
    blind: str

    @property
    def findings(self) -> tuple[str, ...]:
        """Identities that do not hold, or that too few effective draws leave open."""
        size = np.where(self.is_limit, self.z_scores, np.abs(self.z_scores))
        fails = ~(size <= self.limits)  # also where a z-score is NaN
        return tuple(n for n, f in zip(self.names, fails, strict=True) if f)

    @property
    def ok(self) -> bool:
        """Whether all identities hold as far as the draws can tell."""
        return not self.findings

    def __repr__(self) -> str:
        """z-scores, the verdict, and what could have been seen."""
        lines = [
            f"{self.title}: mean (expected) z-score, effective draws",
        ]
        findings = self.findings
        for i, name in enumerate(self.names):
            sign = "<= " if self.is_limit[i] else ""
            line = f"  {name}: {self.means[i]:.4g} ({sign}{self.expected[i]:.4g})"
            line += f" {self.z_scores[i]:+.2f}, {self.effective_sizes[i]:.0f}"
            if name in findings:
                few = np.isnan(self.z_scores[i])
                line += "  TOO FEW DRAWS" if few else "  DIFFERS"
            lines.append(line)
        verdict = "no difference seen" if self.ok else "NOT the target's law"
        if np.isnan(self.z_scores).any():
            verdict = "no verdict"
        return "\n".join(
            [
                *lines,
                f"{verdict}; draws of the target fail with probability about "
                f"{self.false_alarm:g}.",
                f"Could have seen, with probability {POWER:g}: means off by "
                f"{np.nanmax(self.detectable, initial=0.0):.2g} standard deviations.",
                self.blind,
                "For study: not a privacy proof.",
            ]
        )


def judge(
    title: str,
    identities: dict[str, Identity],
    *,
    false_alarm: float,
    is_independent: bool,
    blind: str,
) -> Expectations:
    """z-scores of identities and their limits.

    Parameters
    ----------
    title : str
        What is checked.
    identities : dict of str to Identity
        Values with their expectations.
    false_alarm : float
        Budget of all of them together.
    is_independent : bool
        Whether the draws are independent: standard errors need no effective size then.
    blind : str
        A sentence on what such a check cannot see.

    Returns
    -------
    Expectations
        The findings.
    """
    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    from scipy.stats import t

    sizes = np.array(
        [
            float(i.values.size) if is_independent else effective_size(i.values)
            for i in identities.values()
        ]
    )
    sizes = np.where(sizes >= MIN_ESS, sizes, np.nan)
    expected = np.array([i.expected for i in identities.values()])
    is_limit = np.array([i.is_limit for i in identities.values()])
    means = np.array([i.values.mean() for i in identities.values()])
    spread = np.array([i.values.std(ddof=1) for i in identities.values()])
    errors = spread / np.sqrt(sizes)
    share = false_alarm / len(identities)
    limits = np.asarray(t.isf(np.where(is_limit, share, 0.5 * share), sizes - 1.0))
    return Expectations(
        title=title,
        names=tuple(identities),
        means=means,
        expected=expected,
        errors=errors,
        z_scores=(means - expected) / errors,
        effective_sizes=sizes,
        limits=limits,
        detectable=(limits + t.isf(1.0 - POWER, sizes - 1.0)) / np.sqrt(sizes),
        is_limit=is_limit,
        false_alarm=float(false_alarm),
        blind=blind,
    )
