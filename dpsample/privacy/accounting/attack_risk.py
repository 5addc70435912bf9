r"""Attack risk: bounds on guesses about one record from the answer.

An attacker sees the answer and decides between two neighboring data sets, say, whether
a record is in the data. "Positive" is one of the two decisions. TPR and FPR are the
probabilities of true and of false positives. By (epsilon, delta)-DP in both directions
they obey, for every rule of the attacker and every epsilon >= 0,

.. math:: \mathrm{TPR} \le \delta(\epsilon) + e^{\epsilon} \mathrm{FPR}, \qquad
   1 - \mathrm{FPR} \le \delta(\epsilon) + e^{\epsilon} (1 - \mathrm{TPR})

(Kairouz, Oh and Viswanath, arXiv:1311.0776, Theorem 2.1). The bounds here are minima
over epsilon. Every epsilon gives a valid bound, so the search may be inexact. The final
bound at the best epsilon is computed in fractions and rounded to the safe side.
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

# False-positive rates that are printed.
REPORTED_RATES = (0.1, 0.01, 0.001)  # false-positive rates
# Epsilons at which the search for the best bound begins.
EPSILON_GRID = [0.0, *np.geomspace(1e-3, 100.0, 51).tolist()]
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
        Effect of the mechanism on privacy.
    relation : {"replace_one", "zero_out"}
        Neighboring relation under which it holds. It decides about the attacker's
        question, which of two values a record has or whether it is in the data.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    The bounds hold for every attacker with any knowledge, if the event holds.

    Examples
    --------
    >>> from dpsample.privacy import GaussianEvent
    >>> risk = AttackRisk(event=GaussianEvent(0.2367), relation="zero_out")
    >>> print(risk)
    Attacks that ask whether one record is in the data
      true cases found at false alarms of 10%   at most 14.9%
      true cases found at false alarms of 1%    at most 1.84%
      true cases found at false alarms of 0.1%  at most 0.217%
      true cases found minus false alarms       at most 9.43%
      wrong answers if both are equally likely  at least 45.2%
    """

    event: Event
    relation: str

    def __post_init__(self) -> None:
        """Check the arguments."""
        check.instance(Event, event=self.event)
        check.one_of(RELATIONS, relation=self.relation)

    def _delta(self, epsilon: float) -> float:
        """Return delta of the event at an epsilon."""
        return delta_of(self.event, epsilon=epsilon, relation=self.relation)

    def true_positive_rate(self, false_positive_rate: ArrayLike) -> Values:
        """Return the largest true-positive rate of an attacker.

        Parameters
        ----------
        false_positive_rate : array_like
            False-positive rate of the attacker, in [0, 1].

        Returns
        -------
        float or ndarray
            Upper bounds, of the same shape.
        """
        false_rates = check.entries("false_positive_rate", false_positive_rate)
        false_rates = np.asarray(false_rates)
        # NaN fails this comparison, too.
        if not ((false_rates >= 0.0) & (false_rates <= 1.0)).all():
            check.fail("false_positive_rate", "in [0, 1]", false_positive_rate)
        true_rates = [self._max_true_rate(x) for x in false_rates.ravel().tolist()]
        result: Values = np.reshape(true_rates, false_rates.shape)[()]
        return result

    def _max_true_rate(self, rate: float) -> float:
        """Return the bound at one false-positive rate."""
        from scipy.optimize import minimize_scalar  # here, because its import is slow

        def bound(epsilon: float) -> float:
            # The two inequalities of the module, solved for TPR.
            delta = self._delta(max(epsilon, 0.0))
            direct = delta + math.exp(epsilon) * rate
            reverse = math.exp(-epsilon) * (delta + rate) - math.expm1(-epsilon)
            return min(direct, reverse, 1.0)

        # The best point of the grid, and a search between its two neighbors.
        bounds = [bound(epsilon) for epsilon in EPSILON_GRID]
        k = int(np.argmin(bounds))
        last = len(EPSILON_GRID) - 1
        bracket = EPSILON_GRID[max(k - 1, 0)], EPSILON_GRID[min(k + 1, last)]
        with np.errstate(all="ignore"):  # bounds may be subnormal
            refined = minimize_scalar(bound, bounds=bracket, method="bounded")
        is_better = float(refined.fun) < bounds[k]
        epsilon = float(refined.x if is_better else EPSILON_GRID[k])
        return self._bound_at(epsilon, rate)

    def _bound_at(self, epsilon: float, rate: float) -> float:
        """Return the smaller of the two bounds at an epsilon, rounded up."""
        # Exact fractions, which are rounded once, upwards.
        growth = Fraction(1)
        if epsilon > 0.0:  # the error of an exponential is below 2^-50
            growth = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        share, delta = Fraction(rate), Fraction(self._delta(max(epsilon, 0.0)))
        direct, reverse = delta + growth * share, 1 - (1 - delta - share) / growth
        # Deciding at random gives TPR = FPR, so no bound is below the rate.
        return _round_up(max(share, min(direct, reverse, Fraction(1))))

    @property
    def advantage(self) -> float:
        """Upper bound of TPR - FPR, which is delta at epsilon = 0."""
        return self._delta(0.0)

    def bayes_risk(self, prior: float = 0.5) -> float:
        """Return the smallest probability of a wrong decision of any attacker.

        Parameters
        ----------
        prior : float
            Probability of a positive, in (0, 1).

        Returns
        -------
        float
            A lower bound. Without the answer it is min(prior, 1 - prior).
        """
        check.open_interval(0.0, 1.0, prior=prior)
        # The inequality whose slope e^epsilon equals the odds gives the bound
        # min(prior, 1 - prior) (1 - delta).
        log_odds = abs(math.log(prior) - math.log1p(-prior))
        factor, share = 1 - Fraction(self._delta(log_odds)), Fraction(float(prior))
        # Minus a number that is rounded up is rounded down. The difference turns -0.0
        # into 0.
        return 0.0 - _round_up(-min(share, 1 - share) * factor)  # rounded down

    def reconstruction(self, blind: ArrayLike) -> Values:
        """Return the largest probability that a guess of a record is right.

        Parameters
        ----------
        blind : array_like
            Probability that the best guess of a record, or of an attribute in it, is
            right without the answer, in [0, 1].

        Returns
        -------
        float or ndarray
            Upper bounds. A right guess is a true positive of a test of the guessed
            record, whose false positives have probability ``blind``.
        """
        return self.true_positive_rate(blind)

    def predictive_value(self, false_positive_rate: float, prior: float) -> float:
        """Return the largest probability that a decision "positive" is right.

        Parameters
        ----------
        false_positive_rate : float
            Share of false alarms, > 0 and < 1.
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
        # Bayes' rule, with the largest rate of true positives.
        true = Fraction(self._max_true_rate(rate)) * Fraction(prior)
        false = Fraction(rate) * (1 - Fraction(prior))
        return _round_up(true / (true + false))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the bound of the true-positive rate over the false-positive rate.

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
        bounds = self.true_positive_rate(rates)
        ax.loglog(rates, bounds, label="any attack, at most")
        ax.loglog(rates, rates, color="0.5", linestyle="--", label="guessing")
        ax.set_xlabel("false alarms accepted")
        ax.set_ylabel("true cases found, at most")
        ax.set_title(f"Attacks that ask {QUESTIONS[self.relation]}", fontsize="medium")
        ax.legend()
        return ax

    def __str__(self) -> str:
        """Return a table of the bounds."""
        rows = [
            (
                f"true cases found at false alarms of {100 * rate:g}%",
                "at most",
                self._max_true_rate(rate),
            )
            for rate in REPORTED_RATES
        ]
        rows.append(("true cases found minus false alarms", "at most", self.advantage))
        rows.append(
            ("wrong answers if both are equally likely", "at least", self.bayes_risk())
        )
        width = max(len(name) for name, _, _ in rows)
        lines = [
            f"  {name:<{width}}  {word} {percent(share, up=word == 'at most')}%"
            for name, word, share in rows
        ]
        return "\n".join([f"Attacks that ask {QUESTIONS[self.relation]}", *lines])


def _round_up(value: Fraction) -> float:
    """Round up to a double. A positive number is not rounded to 0."""
    nearest = float(value)
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def percent(share: float, *, up: bool) -> str:
    """Format a share in percent with three digits, rounded up or down.

    Examples
    --------
    >>> percent(0.07, up=True), percent(0.0991 + 2e-17, up=True)
    ('7', '9.92')
    """
    if share <= 0.0:
        return "0"
    # The default context is not used, because the caller may have changed its digits.
    return f"{float(round_decimal(share, digits=3, up=up).scaleb(2, Context())):.3g}"


def round_decimal(value: float, *, digits: int, up: bool) -> Decimal:
    """Round to a decimal, unless ``value`` stands for one with so few digits.

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
