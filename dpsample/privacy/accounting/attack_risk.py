r"""Attack risk: what a privacy curve leaves to whoever guesses from the answer.

An attacker sees the answer and decides between two neighboring data sets, as whether
a record is in the data. Whatever the rule, by (epsilon, delta)-DP in both directions
its rates of true and false positives obey, for every epsilon >= 0,

.. math:: \mathrm{TPR} \le \delta(\epsilon) + e^{\epsilon} \mathrm{FPR}, \qquad
   1 - \mathrm{FPR} \le \delta(\epsilon) + e^{\epsilon} (1 - \mathrm{TPR})

(Kairouz, Oh and Viswanath, arXiv:1311.0776, Theorem 2.1). The bounds here are the least
over epsilon: any search for it gives a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Values
from dpsample.core.check import axes
from dpsample.privacy.accounting.accounting import delta_of
from dpsample.privacy.accounting.events import Event
from dpsample.problem.facts import RELATIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (0.1, 0.01, 0.001)  # false-positive rates of reports
GRID = [0.0, *np.geomspace(1e-3, 100.0, 51).tolist()]
QUESTIONS = {
    "replace_one": "which of two values one record has",
    "zero_out": "whether one record is in the data",
}


@dataclass(frozen=True, kw_only=True)
class AttackRisk:
    """Success of attacks on one record, bounded by the privacy curve of an event.

    Parameters
    ----------
    event : Event
        What the mechanism does to privacy.
    relation : {"replace_one", "zero_out"}
        Neighboring relation under which it holds, and the attacker's question: which of
        two values a record has, or whether it is in the data.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    The bounds hold for every attacker, whatever else he knows, if the event holds.

    Examples
    --------
    >>> from dpsample.privacy import GaussianEvent
    >>> risk = AttackRisk(event=GaussianEvent(0.2367), relation="zero_out")
    >>> print(risk)
    Attacks that ask whether one record is in the data
      true positives at false positives of 10 %   at most 14.9 %
      true positives at false positives of 1 %    at most 1.84 %
      true positives at false positives of 0.1 %  at most 0.217 %
      advantage over a blind guess                at most 9.43 %
      wrong answers if both are equally likely    at least 45.2 %
    """

    event: Event
    relation: str

    def __post_init__(self) -> None:
        """Check the arguments."""
        check.instance(Event, event=self.event)
        check.one_of(RELATIONS, relation=self.relation)

    def _delta(self, epsilon: float) -> float:
        return delta_of(self.event, epsilon=epsilon, relation=self.relation)

    def true_positive_rate(self, false_positive_rate: ArrayLike) -> Values:
        """Return the most of the positives that an attacker finds.

        Parameters
        ----------
        false_positive_rate : array_like
            Share of the negatives that he takes for positives, in [0, 1].

        Returns
        -------
        float or ndarray
            Upper bounds, of the same shape.
        """
        given = np.asarray(check.entries("false_positive_rate", false_positive_rate))
        if not ((given >= 0.0) & (given <= 1.0)).all():
            check.fail("false_positive_rate", "in [0, 1]", false_positive_rate)
        rates = [self._most(rate) for rate in given.ravel().tolist()]
        result: Values = np.reshape(rates, given.shape)[()]
        return result

    def _most(self, rate: float) -> float:
        from scipy.optimize import minimize_scalar  # which imports take a while

        def bound(epsilon: float) -> float:
            delta = self._delta(max(epsilon, 0.0))
            direct = delta + math.exp(epsilon) * rate
            reverse = math.exp(-epsilon) * (delta + rate) - math.expm1(-epsilon)
            return min(direct, reverse, 1.0)

        values = [bound(epsilon) for epsilon in GRID]
        best = int(np.argmin(values))
        ends = GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)]
        with np.errstate(all="ignore"):  # bounds may be as small as doubles get
            found = minimize_scalar(bound, bounds=ends, method="bounded")
        is_better = float(found.fun) < values[best]
        return self._bound(float(found.x if is_better else GRID[best]), rate)

    def _bound(self, epsilon: float, rate: float) -> float:
        """Both bounds at an epsilon: the smaller one, rounded up."""
        growth = Fraction(1)
        if epsilon > 0.0:  # exponentials are right to a digit less than this adds
            growth = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        share, delta = Fraction(rate), Fraction(self._delta(max(epsilon, 0.0)))
        direct, reverse = delta + growth * share, 1 - (1 - delta - share) / growth
        return _up(max(share, min(direct, reverse, Fraction(1))))

    @property
    def advantage(self) -> float:
        """Upper bound of true-positive less false-positive rate: delta at epsilon 0."""
        return self._delta(0.0)

    def bayes_risk(self, prior: float = 0.5) -> float:
        """Return the least share of wrong answers, of positives as likely as ``prior``.

        Parameters
        ----------
        prior : float
            Probability of a positive, in (0, 1).

        Returns
        -------
        float
            A lower bound; the blind answer is wrong with min(prior, 1 - prior).
        """
        check.open_interval(0.0, 1.0, prior=prior)
        odds = abs(math.log(prior) - math.log1p(-prior))
        kept, share = 1 - Fraction(self._delta(odds)), Fraction(float(prior))
        return 0.0 - _up(-min(share, 1 - share) * kept)  # down

    def reconstruction(self, blind: ArrayLike) -> Values:
        """Return the largest chance of a right guess, ``blind`` without the answer.

        Parameters
        ----------
        blind : array_like
            Chance that the best guess of a record, or of an attribute in it, is right
            without the answer, in [0, 1].

        Returns
        -------
        float or ndarray
            Upper bounds: a right guess is a true positive of a test that takes a record
            for the guessed one, with false positives of probability ``blind``.
        """
        return self.true_positive_rate(blind)

    def predictive_value(self, false_positive_rate: float, prior: float) -> float:
        """Return the largest share of right answers among those that say "positive".

        Parameters
        ----------
        false_positive_rate : float
            In (0, 1).
        prior : float
            Probability of a positive, in (0, 1).

        Returns
        -------
        float
            An upper bound.
        """
        rate = false_positive_rate
        check.open_interval(0.0, 1.0, prior=prior, false_positive_rate=rate)
        rate, prior = float(rate), float(prior)
        right = Fraction(self._most(rate)) * Fraction(prior)
        wrong = Fraction(rate) * (1 - Fraction(prior))
        return _up(right / (right + wrong))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the bound of the true-positive rate over the false-positive rate.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes, both logarithmic.
        """
        ax = axes(ax, figsize=(5.0, 4.0))
        rates = np.geomspace(1e-4, 1.0, 41)
        ax.loglog(rates, self.true_positive_rate(rates), label="at most")
        ax.loglog(rates, rates, color="0.5", linestyle="--", label="blind guess")
        ax.set_xlabel("false-positive rate")
        ax.set_ylabel("true-positive rate")
        ax.set_title(f"Attacks that ask {QUESTIONS[self.relation]}", fontsize="medium")
        ax.legend()
        return ax

    def __str__(self) -> str:
        """Return a table of the bounds."""
        rows = [
            (
                f"true positives at false positives of {100 * rate:g} %",
                "at most",
                self._most(rate),
            )
            for rate in SHOWN
        ]
        rows.append(("advantage over a blind guess", "at most", self.advantage))
        rows.append(
            ("wrong answers if both are equally likely", "at least", self.bayes_risk())
        )
        width = max(len(name) for name, _, _ in rows)
        lines = [
            f"  {name:<{width}}  {word} {percent(share, up=word == 'at most')} %"
            for name, word, share in rows
        ]
        return "\n".join([f"Attacks that ask {QUESTIONS[self.relation]}", *lines])


def _up(value: Fraction) -> float:
    """Round up, which is not 0 where doubles end."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def percent(share: float, *, up: bool) -> str:
    """Three digits of a share in percent, rounded to the safe side.

    Examples
    --------
    >>> percent(0.07, up=True), percent(0.0991 + 2e-17, up=True)
    ('7', '9.92')
    """
    if share <= 0.0:
        return "0"
    # A context of its own: the caller's may have fewer digits.
    return f"{float(round_decimal(share, digits=3, up=up).scaleb(2, Context())):.3g}"


def round_decimal(value: float, *, digits: int, up: bool) -> Decimal:
    """Return the decimal that ``value`` stands for if short, else one beside it.

    Examples
    --------
    >>> round_decimal(0.1, digits=4, up=True)
    Decimal('0.1')
    >>> round_decimal(0.1 + 2e-17, digits=4, up=True)
    Decimal('0.1001')
    """
    short = Decimal(f"{value:.{digits}g}")
    if float(short) == value:
        return short
    direction = ROUND_CEILING if up else ROUND_FLOOR
    return Context(digits, direction).create_decimal_from_float(float(value))
