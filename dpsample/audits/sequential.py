r"""Sequential audit, which bets against a privacy claim and may stop at any time.

P and Q are the distributions of the output on the two data sets. In round t one draw X
of P and one draw Y of Q are compared. Under the claim P(S) <= e^epsilon Q(S) + delta
for every event S, so that the wealth

.. math:: W_t = W_{t-1} \bigl(1 + \lambda_t
   (1_{S_t}(X_t) - e^\epsilon 1_{S_t}(Y_t) - \delta)\bigr), \qquad
   0 \le \lambda_t \le \frac{1}{2 (e^\epsilon + \delta)},

is a nonnegative supermartingale if S_t and lambda_t depend only on rounds before t. So
is the mean of such W over several epsilon and both orders of P and Q. By Ville's
inequality the probability that it ever reaches 1/alpha is at most alpha. When it does,
the claim is refuted. This is testing by betting (Waudby-Smith and Ramdas,
arXiv:2010.09686), where lambda is the mean of the payoffs so far, divided by their
second moment.

**Lower bound of gdp, at any time.** The same bets are made against mu-GDP for every mu
of a grid. All mu below the truth are false claims. The bound is the last mu before the
first one that is not refuted. It is wrong only if the smallest true mu is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.audits.findings import claim_line
from dpsample.audits.scores import (
    GIVEN_NOTE,
    Mechanism,
    Progress,
    Score,
    Scores,
    as_rows,
    learn,
)
from dpsample.core.arrays import Array
from dpsample.core.spec import Json
from dpsample.core.streams import streams
from dpsample.privacy import Budget, gaussian_delta
from dpsample.privacy.accounting.events import Event

# First rounds, which are observed and not bet on.
NUM_WARMUP_ROUNDS = 20
# Values of mu, each of which is a claim of mu-GDP.
GDP_GRID = np.geomspace(1e-2, 16.0, 96)


@dataclass(kw_only=True, eq=False)
class SequentialTest:
    """Wealth of the bets against one claim and against the grid of gdp claims.

    A score is a number for each draw, which is larger for more typical draws of P.
    Events are {score > t} for P before Q, and {score < t} for Q before P.
    """

    epsilons: Array  # (e,)
    claimed_deltas: Array  # (e,): delta of the claim at each
    alpha: float
    rounds: int = 0
    stopped_at: int | None = None  # round in which the claim was refuted
    # Sums of scores and of their squares, (2, 2): distribution, power.
    moments: Array = field(default_factory=lambda: np.zeros((2, 2)))
    # Sums of the payoffs 1(X) - e^epsilon 1(Y), and of their squares, (2, e, 2). The
    # first axis is the order of P and Q. A claim's delta is subtracted later.
    payoffs: Array = field(init=False)
    # The first claim is that of ``claimed_deltas``, the others are those of the grid.
    log_wealth: Array = field(init=False)  # (1 + grid, 2, e)
    is_refuted: NDArray[np.bool_] = field(init=False)  # (1 + grid,)

    def __post_init__(self) -> None:
        """Start with a wealth of one everywhere."""
        count = 1 + len(GDP_GRID)
        self.payoffs = np.zeros((2, len(self.epsilons), 2))
        self.log_wealth = np.zeros((count, 2, len(self.epsilons)))
        self.is_refuted = np.zeros(count, dtype=np.bool_)
        gaussian = [[gaussian_delta(e, mu) for e in self.epsilons] for mu in GDP_GRID]
        self._deltas = np.array([self.claimed_deltas, *gaussian])  # (1 + grid, e)

    def update(self, first: Array, second: Array) -> None:
        """Play as many rounds as there are scores of P and of Q, in their order."""
        # Scores may be infinite log ratios, but their moments must be finite.
        largest_score = 1e100
        first = np.clip(first, -largest_score, largest_score)
        second = np.clip(second, -largest_score, largest_score)
        num_done = 0
        while num_done < len(first):
            # Events are chosen again after a tenth of the rounds so far, but at the
            # latest after 2000 rounds.
            # Choosing at each round would sort scores as often as there are rounds.
            width = min(max(NUM_WARMUP_ROUNDS, int(0.1 * self.rounds)), 2000)
            part = slice(num_done, num_done + width)
            self._play(first[part], second[part])
            num_done += width

    def _play(self, first: Array, second: Array) -> None:
        """Play rounds with events and bets that depend on earlier rounds only."""
        payoffs = self._payoffs_of(first, second)
        if self.rounds >= NUM_WARMUP_ROUNDS:
            self._bet(payoffs)
        # The present rounds count for later bets only, after they are bet on.
        self.rounds += len(first)
        sums = payoffs.sum(axis=2), (payoffs**2).sum(axis=2)
        self.payoffs += np.stack(sums, axis=2)
        for index, scores in enumerate((first, second)):
            self.moments[index] += scores.sum(), (scores**2).sum()

    def _payoffs_of(self, first: Array, second: Array) -> Array:
        """Return the payoffs 1(X) - e^epsilon 1(Y) of rounds, (2, e, rounds)."""
        factors = np.exp(self.epsilons)[:, None]
        # In each pair the first sample is from the distribution that the event favors.
        # In the order Q before P, large scores are those of Q if their signs change.
        pairs = (first, second), (-second, -first)
        thresholds = self._thresholds()[..., None]
        return np.array(
            [
                (favored > threshold) - factors * (other > threshold)
                for (favored, other), threshold in zip(pairs, thresholds, strict=True)
            ]
        )

    def _bet(self, payoffs: Array) -> None:
        """Bet on rounds, with bets that earlier rounds determine."""
        deltas, num_rounds = self._deltas[:, None, :], self.rounds
        mean, square = np.moveaxis(self.payoffs, 2, 0) / num_rounds
        # Moments of the payoff 1(X) - e^epsilon 1(Y) - delta in earlier rounds. The
        # last term keeps the second moment positive where no event has happened.
        mean_payoff = mean - deltas
        second_moment = square - 2.0 * deltas * mean + deltas**2 + 1.0 / num_rounds
        # Half of the largest bet with which the wealth W stays positive.
        max_bet = 0.5 / (np.exp(self.epsilons) + deltas)
        # Kelly's bet for small payoffs, the mean over the second moment. Only bets >= 0
        # are fair, because the claim bounds the mean payoff from above.
        bets = np.clip(mean_payoff / second_moment, 0.0, max_bet)[..., None]
        log_factors = np.log1p(bets * (payoffs - deltas[..., None]))
        # Logarithms of the wealth after every round, so that the first round with
        # enough is found.
        log_wealth = self.log_wealth[..., None] + np.cumsum(log_factors, axis=-1)
        # The exponential must not overflow.
        wealth = np.exp(np.minimum(log_wealth, 600.0)).mean(axis=(1, 2))
        has_won = wealth >= 1.0 / self.alpha
        if has_won[0].any() and self.stopped_at is None:
            self.stopped_at = num_rounds + 1 + int(np.argmax(has_won[0]))
        self.is_refuted |= has_won.any(axis=1)
        self.log_wealth = log_wealth[..., -1]

    def _thresholds(self) -> Array:
        """Return (2, e) scores at which fitted normals have the log ratio epsilon.

        The normals fitted to the scores of P and Q have the same variance.
        """
        # No score is above these thresholds, so that the events never happen.
        never = np.full((2, len(self.epsilons)), np.inf)
        if self.rounds < NUM_WARMUP_ROUNDS:
            return never
        means = self.moments[:, 0] / self.rounds
        variance = float((self.moments[:, 1] / self.rounds - means**2).mean())
        gap = float(means[0] - means[1])
        # Without a visible difference between P and Q there is no event to bet on.
        if not gap > 1e-3 * math.sqrt(max(variance, 0.0)):
            return never
        middle = 0.5 * float(means.sum())
        # Two normals of variance v and means m_P > m_Q have the log ratio (x - middle)
        # gap / v, which is epsilon at middle + v epsilon / gap.
        return np.array([[middle], [-middle]]) + variance * self.epsilons / gap

    @property
    def e_value(self) -> float:
        """Wealth against the claim now. If the claim holds, its expectation is <= 1."""
        return float(np.exp(np.minimum(self.log_wealth[0], 600.0)).mean())

    @property
    def gdp_lower(self) -> float:
        """Lower bound of gdp, valid in all rounds together."""
        # The first mu of the grid that still stands.
        standing = np.flatnonzero(~self.is_refuted[1:])
        num_refuted = int(standing[0]) if standing.size else len(GDP_GRID)
        return float(GDP_GRID[num_refuted - 1]) if num_refuted else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SequentialReport:
    """Results of a sequential audit so far.

    Attributes
    ----------
    subject : str
        Name of the tested mechanism.
    budget : Budget
        The claim.
    gdp_claimed : float or None
        Gaussian-DP parameter that is claimed, too, if any.
    event : Event or None
        Privacy event that is claimed, too, if any.
    test : SequentialTest
        The bets, with ``test.gdp_lower``, ``test.e_value`` and ``test.stopped_at``.
    num_batches, seed, score
        Batches of draws so far, and what is needed to continue the audit.
    notes : tuple of str
        How the draws were made.

    Guarantee
    ---------
    If draws are independent, the probability that a true claim is ever refuted, however
    often one looks, is at most ``test.alpha``. So is the probability that the lower
    bound of gdp is ever wrong.

    Examples
    --------
    >>> import dpsample as dps
    >>> def half_noise(data, rng, num_draws):
    ...     return data + rng.normal(0.0, 0.5 * 3.73, num_draws)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-5)
    >>> report = dps.audit(half_noise, 0.0, 1.0, budget, gdp=0.26, alpha=0.05, seed=1,
    ...                    sequential=True)
    >>> report.is_refuted, report.test.stopped_at < 3000
    (True, True)
    """

    subject: str
    budget: Budget
    gdp_claimed: float | None
    event: Event | None
    test: SequentialTest
    num_batches: int
    seed: np.random.SeedSequence
    score: Score | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_refuted(self) -> bool:
        """Whether the wealth has reached 1 / alpha."""
        return self.test.stopped_at is not None

    @property
    def verdict(self) -> str:
        """Whether the claim is refuted, in one sentence."""
        test = self.test
        if self.is_refuted:
            return f"REFUTED in round {test.stopped_at} of {test.rounds}."
        return (
            f"Not refuted in {test.rounds} rounds, which proves nothing: another pair "
            "or attack, or more rounds, may refute it."
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
            "e_value": self.test.e_value,
            "gdp_lower": self.test.gdp_lower,
            "rounds": self.test.rounds,
            "stopped_at": self.test.stopped_at,
            "alpha": self.test.alpha,
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        """Return subject, claim, bounds and verdict, one per line."""
        test = self.test
        lines = [
            f"SequentialReport of {self.subject}",
            claim_line(self.budget, self.gdp_claimed, self.event),
            f"found: e-value {test.e_value:.4g}, gdp >= {test.gdp_lower:.4g}",
            f"confidence: at any time, 1 - {test.alpha:g}",
            *self.notes,
            f"verdict: {self.verdict}",
        ]
        return "\n  ".join(lines)


def start_report(
    *,
    learn: Callable[[np.random.SeedSequence], Score] | None,
    curve: Callable[[Array], Array],
    alpha: float,
    **claim: Any,
) -> SequentialReport:
    """Return the report before the first round.

    ``learn`` is a function of a seed that learns a score, or None if one is known.
    """
    # A claim holds at every epsilon, and bets are on four of them. The square of the
    # exponential of 300 does not overflow.
    multiples = np.array([0.0, 0.25, 0.5, 1.0])
    epsilons = np.minimum(claim["budget"].epsilon * multiples, 300.0)
    test = SequentialTest(
        epsilons=epsilons, claimed_deltas=curve(epsilons), alpha=alpha
    )
    report = SequentialReport(test=test, num_batches=0, **claim)
    if learn is None:
        return report
    # The number of the batch from which a score is learned.
    return replace(report, score=learn(_seed_of(report, 2**31)))


def _seed_of(report: SequentialReport, batch: int) -> np.random.SeedSequence:
    """Return the seed of one batch, which is the same in a continued audit."""
    key = (*report.seed.spawn_key, batch)
    return np.random.SeedSequence(report.seed.entropy, spawn_key=key)


def learn_score(
    mechanism: Mechanism, first: object, second: object, seed: np.random.SeedSequence
) -> Score:
    """Return a score of the outputs, from draws that are not bet on."""
    num_draws = 1000
    outputs = [
        as_rows(mechanism(data, rng, num_draws), num_draws)
        for data, rng in zip((first, second), streams(seed, 2), strict=True)
    ]
    return learn(*outputs)


def continue_audit(
    report: SequentialReport,
    scores_of: Callable[..., Scores],
    num_draws: int,
    on_progress: Progress,
) -> SequentialReport:
    """Draw and bet until the claim is refuted or ``num_draws`` rounds are done.

    ``scores_of`` draws from P and Q and returns the scores. The given report does not
    change.
    """
    test, batch, notes = deepcopy(report.test), report.num_batches, report.notes
    known_score = {} if report.score is None else {"score": report.score}
    while test.rounds < num_draws and test.stopped_at is None:
        # Rounds that are drawn at once. The number doubles with each batch, up to the
        # maximum.
        width = min(512 * 2**batch, 32_768)
        scores = scores_of(
            lambda share: None,
            num_draws=width,
            seed=_seed_of(report, batch),
            **known_score,
        )
        # Scores are larger for typical draws of the second distribution, but those of
        # `SequentialTest` are larger for typical draws of the first one.
        first, second = (
            -np.concatenate([half[index] for half in (scores.first, scores.second)])
            for index in (0, 1)
        )
        test.update(first, second)
        batch, notes = batch + 1, scores.notes
        if known_score:
            learned_note = (
                "the score is a logistic discriminant of outputs, learned from draws "
                "that are not bet on: a better score may find more"
            )
            notes = tuple(
                learned_note if note == GIVEN_NOTE else note for note in notes
            )
        evidence = f", e-value {test.e_value:.3g}, gdp >= {test.gdp_lower:.3g}"
        on_progress(min(1.0, test.rounds / num_draws), evidence)
    return replace(report, test=test, num_batches=batch, notes=notes)
