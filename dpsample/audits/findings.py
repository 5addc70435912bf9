r"""Lower bounds of privacy loss from scores of draws, and the report of an audit.

P and Q are the distributions of the output on the two data sets. (epsilon,
delta)-privacy says Q(S) <= e^epsilon P(S) + delta for *every* event S, so any choice of
S is valid. Here it is {score > t}, with t chosen on the first half of the draws.
Confidence bounds of Q(S) and P(S) from the second half can then refute a claim without
the densities or their normalizing constants. Half of alpha is for epsilon and gdp, and
half for the curve. In each half it is shared equally by the confidence bounds (union
bound). Both directions count, P against Q and Q against P.

If densities p~ and q~ are known up to constants, the curve is also estimated. With s =
log(q~/p~) and as many draws of each distribution, Bennett's (1976) estimate of c =
log(Z_q/Z_p) solves

.. math:: \sum_{x \sim q} \frac{1}{1 + e^{s(x) - c}}
          = \sum_{x \sim p} \frac{1}{1 + e^{c - s(x)}},

whose two sides have equal expectations at the true c (Meng and Wong 1996). An estimated
constant that moves t makes a test weaker, never wrong.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample.audits.scores import Scores
from dpsample.core.arrays import Array
from dpsample.core.check import axes
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
        Increasing values of epsilon, one of which is the budget's.
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
        Description of the tested mechanism.
    budget : Budget
        The claim.
    gdp_claimed : float or None
        Gaussian-DP parameter that is claimed, too, if any.
    epsilon_lower : float
        Lower bound of epsilon at the budget's delta.
    gdp_lower : float
        Lower bound of the Gaussian-DP parameter.
    delta_lower : float
        Lower bound of delta at the budget's epsilon.
    curve : AuditCurve
        Lower bounds of delta, estimates and claims at several epsilons.
    num_draws : int
        Draws of each of the two distributions.
    alpha : float
        Probability that any lower bound of the report is wrong.
    notes : tuple of str
        How the draws were made, and which assumptions that needs.
    event : Event or None
        Privacy event that is claimed, too, if any.

    Guarantee
    ---------
    If the draws are independent and have the mechanism's distributions on the two data
    sets, all lower bounds hold together with probability at least 1 - alpha. A claim
    that is not refuted may still be false.

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
        # A claim may fail between the points at which it was stated. The largest excess
        # is shown.
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
        """Whether the claim is refuted, in one sentence."""
        if self.is_refuted:
            return f"REFUTED: {'; '.join(self.reasons)}."
        return (
            "Not refuted, which proves nothing: another pair or attack may refute it."
        )

    def to_dict(self) -> Json:
        """Return everything as numbers, words and lists, ready for ``json.dumps``."""
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
        positive_bounds = [np.where(v > 0.0, v, np.nan) for v in curve[1:]]
        color = "C3" if self.is_refuted else "C0"
        ax.plot(
            curve.epsilons,
            positive_bounds[2],
            color="0.4",
            label="claimed: delta is below",
        )
        ax.plot(
            curve.epsilons,
            positive_bounds[1],
            color=color,
            ls=":",
            label="attack, estimate",
        )
        ax.plot(
            curve.epsilons,
            positive_bounds[0],
            color=color,
            marker="v",
            ms=4,
            label=f"attack, lower bound (confidence 1 - {self.alpha:g})",
        )
        ax.plot(self.budget.epsilon, self.budget.delta, "k+", ms=10, label="budget")
        ax.set_yscale("log")
        ax.set_ylim(bottom=1e-3 * self.budget.delta)
        # Deltas of less than a thousandth of the budget's are of no interest.
        ax.set_xlabel("epsilon")
        ax.set_ylabel("delta")
        ax.set_title("refuted" if self.is_refuted else "not refuted")
        ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        """Return subject, claim, bounds and verdict, one per line."""
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


class Findings(NamedTuple):
    """Lower bounds, and an estimate without a bound."""

    epsilon_lower: float
    gdp_lower: float
    delta_lower: Array  # (num_epsilons,)
    delta_estimate: Array  # (num_epsilons,)


def lower_bounds(
    scores: Scores, epsilons: Array, *, delta: float, alpha: float
) -> Findings:
    """Bound the curve at ``epsilons`` and epsilon at ``delta``.

    The probability that any of the bounds is wrong is at most ``alpha``.
    """
    # With P and Q exchanged and all signs changed, the events are {score < t}, which
    # are more probable under P.
    swapped = [(-q, -p) for p, q in (scores.first, scores.second)]
    directions = Events(scores.first, scores.second), Events(*swapped)
    # Half of alpha is shared by six binomial bounds: two for each direction of
    # epsilon, and two for gdp, where one event serves both directions.
    headline_alpha = 0.5 * alpha / 6
    epsilon_lower = max(events.epsilon(delta, headline_alpha) for events in directions)
    gdp_lower = directions[0].gdp(headline_alpha)
    # Two binomial bounds for each event, and a bound of a mean if the ratio is known.
    per_point = 3 if scores.kind == "log ratio" else 2
    # One half of alpha is shared by two directions and all epsilons.
    shared = 0.5 * alpha / (2 * per_point * len(epsilons))
    lower = np.array(
        [max(events.delta(e, shared) for events in directions) for e in epsilons]
    )
    if scores.kind == "log ratio":
        means, estimate = _expected_losses(scores, epsilons, shared)
        lower = np.maximum(lower, means)
    elif scores.kind == "ratio up to a constant":
        estimate = _estimate_curve(scores, epsilons)
    else:
        plain = [[d.plain_delta(e, shared) for e in epsilons] for d in directions]
        estimate = np.max(plain, axis=0)
    # If the curve is above delta at some epsilon, that epsilon is a lower bound, too.
    beyond = epsilons[lower > delta]
    epsilon_lower = max(epsilon_lower, float(beyond.max(initial=0.0)))
    return Findings(epsilon_lower, gdp_lower, lower, estimate)


def loss(ratio: Array, epsilon: float) -> Array:
    """Return (1 - e^{epsilon - ratio})_+, whose mean is delta(epsilon)."""
    # 1 - e^x by expm1, which keeps the digits of small privacy losses.
    return np.asarray(-np.expm1(np.minimum(epsilon - ratio, 0.0)))


def _expected_losses(
    scores: Scores, epsilons: Array, alpha: float
) -> tuple[Array, Array]:
    """Return bounds and estimates of E_Q (1 - e^{epsilon - L})_+, larger direction.

    No event is chosen on the first half, so both halves are used.
    """
    # Under the log ratio L = log(Q/P), delta in one direction is a mean over draws of
    # Q, and in the other one a mean over draws of P with -L.
    forward = np.concatenate([scores.first[1], scores.second[1]])
    backward = -np.concatenate([scores.first[0], scores.second[0]])
    bounds, means = [], []
    for epsilon in epsilons:
        losses = [loss(ratio, epsilon) for ratio in (forward, backward)]
        bounds.append(max(mean_lower(values, alpha) for values in losses))
        means.append(max(float(values.mean()) for values in losses))
    return np.array(bounds), np.array(means)


def _estimate_curve(scores: Scores, epsilons: Array) -> Array:
    """Estimate the curve with a normalizing constant estimated on the first half.

    The error of that constant has no bound here, so this is an estimate only.
    """
    constant = log_constant(*scores.first)
    forward, backward = scores.second[1] - constant, constant - scores.second[0]
    means = [
        [float(loss(r, epsilon).mean()) for r in (forward, backward)]
        for epsilon in epsilons
    ]
    return np.asarray(np.max(means, axis=1))


class Counts(NamedTuple):
    """Numbers of the ``size`` draws of P and of Q with a score above each threshold."""

    above_p: Array
    above_q: Array
    size: int

    def bounds(self, alpha: float) -> tuple[Array, Array]:
        """Return upper bounds of P(S) and lower bounds of Q(S).

        Each is wrong with probability ``alpha`` at most.
        """
        upper = binomial_upper(self.above_p, self.size, alpha)
        return upper, binomial_lower(self.above_q, self.size, alpha)


class Events:
    """Events {score > t} of one direction: Q(S) is compared with e^epsilon P(S).

    ``first`` and ``second`` are the halves, each of which has the scores of n draws of
    P and of n draws of Q. Thresholds are scores of ``first``.
    """

    def __init__(self, first: tuple[Array, Array], second: tuple[Array, Array]) -> None:
        # Scores that are closer than this share of their spread count as equal.
        # Otherwise the last bits of log ratios with atoms tell where a draw was
        # rounded, and a correct mechanism is refuted for its floating-point arithmetic
        # (Mironov 2012).
        unit = 2.0**-30 * _spread(first)
        sorted_first = _sort_in_units(first, unit)
        thresholds = _candidates(sorted_first)
        self.first = _count(sorted_first, thresholds)
        self.second = _count(_sort_in_units(second, unit), thresholds)
        self._known: dict[float, tuple[Array, Array]] = {}

    def epsilon(self, delta: float, alpha: float) -> float:
        """Return a lower bound of epsilon, wrong with probability 2 alpha at most."""

        def gain(upper: Array, lower: Array) -> Array:
            with np.errstate(divide="ignore"):
                return np.log(np.maximum(lower - delta, 0.0)) - np.log(upper)

        return self._lower(gain, alpha)

    def gdp(self, alpha: float) -> float:
        """Return a lower bound of gdp, wrong with probability 2 alpha at most.

        gdp-GDP says Phi^{-1}(Q(S)) - Phi^{-1}(P(S)) <= gdp for every event. Each of the
        two probabilities has a bound.
        """
        from scipy.special import ndtri

        def gain(upper: Array, lower: Array) -> Array:
            # -inf - (-inf) cannot occur: the upper bound is never 0.
            return np.asarray(ndtri(lower) - ndtri(upper))

        return self._lower(gain, alpha)

    def delta(self, epsilon: float, alpha: float) -> float:
        """Return a lower bound of delta, wrong with probability 2 alpha at most."""
        growth = np.exp(epsilon)
        return self._lower(lambda upper, lower: lower - growth * upper, alpha)

    def plain_delta(self, epsilon: float, alpha: float) -> float:
        """Estimate delta(epsilon) on the second half, for the event of `delta`."""
        growth = np.exp(epsilon)
        best = self._best(lambda upper, lower: lower - growth * upper, alpha)
        gap = self.second.above_q[best] - growth * self.second.above_p[best]
        return max(0.0, float(gap) / self.second.size)

    def _best(self, gain: Callable[[Array, Array], Array], alpha: float) -> int:
        """Return the index of the threshold with the best bounds on the first half."""
        if alpha not in self._known:
            self._known[alpha] = self.first.bounds(alpha)
        return int(np.argmax(gain(*self._known[alpha])))

    def _lower(self, gain: Callable[[Array, Array], Array], alpha: float) -> float:
        """Return the bound on the second half at the best threshold of the first."""
        best = self._best(gain, alpha)
        # The event was fixed on the first half, so that the bounds on the second one
        # need no correction for the choice.
        at = slice(best, best + 1)
        counts = Counts(
            self.second.above_p[at], self.second.above_q[at], self.second.size
        )
        return max(0.0, float(gain(*counts.bounds(alpha))[0]))


def _spread(scores: tuple[Array, Array]) -> float:
    """Return the distance of the quartiles of all finite scores, or 1 without any."""
    pooled = np.concatenate(scores)
    finite = pooled[np.isfinite(pooled)]
    if finite.size == 0:
        return 1.0
    low, high = np.quantile(finite, [0.25, 0.75])
    return float(high - low) or 1.0


def _sort_in_units(scores: tuple[Array, Array], unit: float) -> tuple[Array, Array]:
    """Return scores in units of the resolution, rounded and sorted."""
    return np.sort(np.round(scores[0] / unit)), np.sort(np.round(scores[1] / unit))


def _candidates(scores: tuple[Array, Array]) -> Array:
    """Return thresholds, which are scores of certain ranks in either sample."""
    size = len(scores[0])
    # 150 thresholds are in the tail of each sample, where epsilon is decided, and 100
    # are spread evenly over the ranks.
    tail = np.geomspace(1.0, size, 150)
    ranks = np.unique(np.concatenate([tail, np.linspace(1.0, size, 100)]).round())
    # The r-th largest score of a sample is at position n - r of the sorted ones.
    places = size - ranks.astype(np.int64)
    return np.unique(np.concatenate([values[places] for values in scores]))


def _count(scores: tuple[Array, Array], thresholds: Array) -> Counts:
    """Count sorted scores above thresholds."""
    size = len(scores[0])
    # With side="right", scores equal to a threshold are not above it.
    places = [np.searchsorted(v, thresholds, side="right") for v in scores]
    above = size - np.array(places, dtype=np.float64)
    return Counts(above[0], above[1], size)


def binomial_lower(successes: ArrayLike, trials: int, alpha: float) -> Array:
    """Return a lower bound of a probability, wrong with probability alpha at most.

    At this p (Clopper and Pearson 1934) so many successes or more have probability
    alpha. It is valid for every number of independent trials. There is one bound in [0,
    1] for each entry of ``successes``.
    """
    from scipy.special import betaincinv

    count = np.asarray(successes, dtype=np.float64)
    # The placeholder keeps the parameters of the unused branch positive.
    bound = betaincinv(np.maximum(count, 1.0), trials - count + 1.0, alpha)
    return np.where(count > 0, bound, 0.0)


def binomial_upper(successes: ArrayLike, trials: int, alpha: float) -> Array:
    """Return an upper bound of a probability, the mirror image of `binomial_lower`."""
    from scipy.special import betainccinv

    count = np.asarray(successes, dtype=np.float64)
    bound = betainccinv(count + 1.0, np.maximum(trials - count, 1.0), alpha)
    return np.where(count < trials, bound, 1.0)


def mean_lower(values: Array, alpha: float) -> float:
    r"""Return a lower bound of a mean from independent values in [0, 1].

    It is the empirical Bernstein bound of Maurer and Pontil (2009), Theorem 4, with V
    the sample variance,

    .. math:: \bar X - \sqrt{2 V \log(2/\alpha) / n} - 7 \log(2/\alpha) / (3 (n - 1)).

    for n >= 2. It is at least 0 and wrong with probability alpha at most.
    """
    size, log_term = values.size, math.log(2.0 / alpha)
    spread = math.sqrt(2.0 * float(values.var(ddof=1)) * log_term / size)
    bound = float(values.mean()) - spread - 7.0 * log_term / (3.0 * (size - 1))
    return max(0.0, bound)


def log_constant(ratio_p: Array, ratio_q: Array) -> float:
    """Estimate log(Z_q/Z_p) from s at n draws of p and at n draws of q, each (n,)."""
    from scipy.special import expit

    low = float(min(ratio_p.min(), ratio_q.min())) - 1.0
    high = float(max(ratio_p.max(), ratio_q.max())) + 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        # The difference increases in c.
        is_high = expit(middle - ratio_q).sum() > expit(ratio_p - middle).sum()
        low, high = (low, middle) if is_high else (middle, high)
        if high - low <= 1e-12 * max(1.0, abs(high)):
            break
    return 0.5 * (low + high)
