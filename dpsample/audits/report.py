"""Audit report: bounds beside claims, in numbers, in words and as a plot."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.axes import axes
from dpsample.core.spec import Json
from dpsample.privacy import Budget
from dpsample.privacy.accounting.events import Event

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class AuditCurve(NamedTuple):
    """Privacy curve as audited and as claimed, each of shape (num_epsilons,).

    Attributes
    ----------
    epsilons : array
        Privacy losses, increasing; the budget's is one of them.
    delta_lower : array
        Lower bounds of delta at each, valid together.
    delta_estimate : array
        Estimates of the delta of the attack, without a bound of their error.
    claimed : array
        Upper bounds of delta that follow from the claims.

    Examples
    --------
    >>> curve = AuditCurve(*(np.zeros(1) for _ in range(4)))
    >>> curve._fields
    ('epsilons', 'delta_lower', 'delta_estimate', 'claimed')
    """

    epsilons: Array
    delta_lower: Array
    delta_estimate: Array
    claimed: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditReport:
    """Lower bounds of the privacy loss of one pair of data sets, against a claim.

    Attributes
    ----------
    subject : str
        What was tested.
    budget : Budget
        The claim.
    gdp_claimed : float or None
        Gaussian-DP parameter that is claimed too, if any.
    epsilon_lower : float
        Lower bound of epsilon at the budget's delta.
    gdp_lower : float
        Lower bound of the Gaussian-DP parameter.
    delta_lower : float
        Lower bound of delta at the budget's epsilon.
    curve : AuditCurve
        Lower bounds of delta, estimates and claims at several epsilons.
    num_draws : int
        Draws of each of the two laws.
    alpha : float
        Probability that any lower bound of the report is wrong.
    notes : tuple of str
        How the draws were made, and which assumptions that needs.
    event : Event or None
        What is claimed too, if anything.

    Guarantee
    ---------
    If the draws are independent and follow the mechanism's law on the two data sets,
    all lower bounds hold together with probability at least 1 - alpha. A claim that
    is not refuted may still be false.

    Examples
    --------
    >>> import dpsample as dps
    >>> def no_noise(data, rng, num_draws):
    ...     return data + rng.normal(0.0, 0.01, num_draws)
    >>> report = dps.audit(no_noise, 0.0, 1.0, dps.Budget(epsilon=1.0, delta=1e-5),
    ...                    num_draws=1000, seed=1)
    >>> report.is_refuted, report.epsilon_lower > 3.0
    (True, True)
    """

    subject: str
    budget: Budget
    gdp_claimed: float | None
    epsilon_lower: float
    gdp_lower: float
    delta_lower: float
    curve: AuditCurve
    num_draws: int
    alpha: float
    notes: tuple[str, ...] = ()
    event: Event | None = None

    @property
    def is_refuted(self) -> bool:
        """Whether a lower bound is above its claim."""
        return bool(self.reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every claim that is refuted, in words."""
        budget, curve = self.budget, self.curve
        refuted = []
        if self.epsilon_lower > budget.epsilon:
            refuted.append(
                f"epsilon >= {self.epsilon_lower:.4g} at delta = {budget.delta:g}, "
                f"claimed {budget.epsilon:g}"
            )
        if self.delta_lower > budget.delta:
            refuted.append(
                f"delta >= {self.delta_lower:.3g} at epsilon = {budget.epsilon:g}, "
                f"claimed {budget.delta:g}"
            )
        if self.gdp_claimed is not None and self.gdp_lower > self.gdp_claimed:
            refuted.append(
                f"gdp >= {self.gdp_lower:.4g}, claimed {self.gdp_claimed:.4g}"
            )
        above = np.flatnonzero(curve.delta_lower > curve.claimed)
        if above.size and not refuted:
            i = int(above[np.argmax((curve.delta_lower - curve.claimed)[above])])
            refuted.append(
                f"delta >= {curve.delta_lower[i]:.3g} at epsilon = "
                f"{curve.epsilons[i]:.3g}, where the claim implies "
                f"{curve.claimed[i]:.3g}"
            )
        return tuple(refuted)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.is_refuted:
            return f"REFUTED: {'; '.join(self.reasons)}."
        return (
            "Not refuted, which proves nothing: another pair or attack may refute it."
        )

    def to_dict(self) -> Json:
        """Everything as numbers, words and lists, ready for ``json.dumps``."""
        return {
            "subject": self.subject,
            "budget": dict(vars(self.budget)),
            "gdp_claimed": self.gdp_claimed,
            "event": None if self.event is None else self.event.to_dict(),
            "is_refuted": self.is_refuted,
            "verdict": self.verdict,
            "epsilon_lower": self.epsilon_lower,
            "gdp_lower": self.gdp_lower,
            "delta_lower": self.delta_lower,
            "curve": {k: v.tolist() for k, v in self.curve._asdict().items()},
            "num_draws": self.num_draws,
            "alpha": self.alpha,
            "notes": list(self.notes),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the audited curve and the claimed one.

        The claim is refuted wherever the lower bound passes above the claimed curve.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        ax = axes(ax, figsize=(6.0, 4.0))
        curve = self.curve
        # A logarithmic axis has no zero.
        shown = [np.where(v > 0.0, v, np.nan) for v in curve[1:]]
        color = "C3" if self.is_refuted else "C0"
        ax.plot(curve.epsilons, shown[2], color="0.4", label="claimed: delta is below")
        ax.plot(curve.epsilons, shown[1], color=color, ls=":", label="attack, estimate")
        ax.plot(
            curve.epsilons,
            shown[0],
            color=color,
            marker="v",
            ms=4,
            label=f"attack, lower bound (confidence 1 - {self.alpha:g})",
        )
        ax.plot(self.budget.epsilon, self.budget.delta, "k+", ms=10, label="budget")
        ax.set_yscale("log")
        ax.set_ylim(bottom=1e-3 * self.budget.delta)
        ax.set_xlabel("epsilon")
        ax.set_ylabel("delta")
        ax.set_title("refuted" if self.is_refuted else "not refuted")
        ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        """Subject, claim, bounds and verdict, one per line."""
        budget = self.budget
        lines = [
            f"AuditReport of {self.subject}",
            claim_line(budget, self.gdp_claimed, self.event),
            f"found: epsilon >= {self.epsilon_lower:.4g} at delta = {budget.delta:g}, "
            f"delta >= {self.delta_lower:.3g} at epsilon = {budget.epsilon:g}, "
            f"gdp >= {self.gdp_lower:.4g}",
            f"confidence: all bounds together, 1 - {self.alpha:g}, from "
            f"{self.num_draws} draws of each law",
            *self.notes,
            f"verdict: {self.verdict}",
        ]
        return "\n  ".join(
            "\n    ".join(textwrap.wrap(line, 86)) for line in lines if line
        )


def claim_line(budget: Budget, gdp: float | None, event: Event | None) -> str:
    """Return what is claimed, on one line."""
    also = "" if gdp is None else f" and gdp <= {gdp:.4g}"
    if event is not None:
        also += f" and the curve of {event!r}"
    pair = f"({budget.epsilon:g}, {budget.delta:g})"
    return f"claim: {pair}-DP under {budget.relation}{also}"
