"""Audit, to refute a privacy claim on one pair of data sets, by draws from both."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from dpsample.audits.exponential import exponential_scores
from dpsample.audits.findings import AuditCurve, AuditReport, lower_bounds
from dpsample.audits.scores import (
    Mechanism,
    Progress,
    Score,
    Scores,
    additive_scores,
    black_box_scores,
)
from dpsample.audits.sequential import (
    SequentialReport,
    continue_audit,
    learn_score,
    start_report,
)
from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, seed_sequence
from dpsample.noise import AdditiveMechanism
from dpsample.privacy import Budget, ExponentialMechanism, delta_of, gaussian_delta
from dpsample.privacy.accounting.events import Event
from dpsample.running import progress as screen
from dpsample.samplers import Sampler

# Points of the curve as multiples of the budget's epsilon. One of them is 1.
MULTIPLES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0)
# Smallest number of draws of each distribution.
MIN_DRAWS = 100


@check.unwrap_numpy
def audit(
    mechanism: ExponentialMechanism | AdditiveMechanism | Mechanism,
    problem: Any,
    neighbor: Any,
    budget: Budget,
    *,
    num_draws: int = 200_000,
    sampler: Sampler | Literal["auto"] = "auto",
    alpha: float = 1e-6,
    gdp: float | None = None,
    event: Event | None = None,
    seed: Seed = None,
    threads: int | None = None,
    progress: bool = True,
    log_ratio: Score | None = None,
    score: Score | None = None,
    sequential: bool | SequentialReport = False,
) -> AuditReport | SequentialReport:
    r"""Try to refute a privacy claim on one pair of neighboring data sets.

    P and Q are the distributions of the output on ``problem`` and on ``neighbor``. The
    draws from both are split in two halves. On the first, events :math:`S =
    \{\text{score} > t\}` are chosen. On the second, Clopper-Pearson bounds of both
    probabilities give

    .. math:: \epsilon \ge \log\frac{Q(S)_{lo} - \delta}{P(S)_{hi}}, \quad
        gdp \ge \Phi^{-1}(Q(S)_{lo}) - \Phi^{-1}(P(S)_{hi}), \quad
        \delta(\epsilon) \ge Q(S)_{lo} - e^{\epsilon} P(S)_{hi}.

    By the lemma of Neyman and Pearson a score that increases with the likelihood ratio
    is best. If the log ratio L is known exactly, :math:`\delta(\epsilon) = E_Q (1 -
    e^{\epsilon - L})_+` is also bounded by its mean (empirical Bernstein).

    Parameters
    ----------
    mechanism : ExponentialMechanism, AdditiveMechanism or callable
        A calibrated exponential mechanism, noise that is added to a value, or any
        function (data, rng, num_draws) that runs an algorithm ``num_draws`` times and
        returns outputs of shape (num_draws, ...). Such a function is called from
        several threads with different generators.
    problem, neighbor : Problem, array or any data
        Neighboring problems with the mechanism's public facts, two values of the query
        of an additive mechanism, or data for a callable.
    budget : Budget
        The claim to test, under its relation. Problems are compared, and two values of
        a query must be within the sensitivity of an additive mechanism. The data of a
        callable cannot be checked.
    num_draws : int
        Number of draws from each distribution.
    sampler : "auto" or Sampler
        Sampler of an exponential mechanism. Exact ones make independent draws. Others
        are run as many chains and thinned, and then their own distribution is tested.
    alpha : float
        Probability, over everything in the report, that any lower bound is wrong.
    gdp : float, optional
        Gaussian-DP parameter that is claimed, too. By default that of the mechanism, if
        it was made for the budget's relation.
    event : Event, optional
        Privacy event that is claimed, too, such as ``certificate.event``. Its whole
        privacy curve under the budget's relation is tested, which can refute more than
        a test of one point.
    seed : int or SeedSequence, optional
        A seed gives the same report for any number of threads. None is for new entropy.
    threads : int, optional
        Number of threads. By default the number of processors.
    progress : bool
        Show one live line in a terminal or notebook, until the end.
    log_ratio : callable, optional
        For a callable mechanism, the exact log of the density of rows of outputs on
        ``neighbor`` over that on ``problem``, shape (num_draws,). It is trusted.
    score : callable, optional
        For a callable mechanism, any score of rows of outputs, which is larger for more
        typical outputs on ``neighbor``. By default one is learned on the first half.
    sequential : bool or SequentialReport
        Bet against the claims pair by pair. Stop when they are refuted, or with the
        batch that completes ``num_draws`` pairs (`dpsample.audits.sequential`). An
        earlier report is continued from its end. With the same other arguments the bits
        are the same as in one run.

    Returns
    -------
    AuditReport or SequentialReport
        Bounds, curve and verdict. If ``sequential``, e-value and bound of gdp.

    Raises
    ------
    ValueError
        If an argument is malformed or the two data sets are no neighbors.

    Guarantee
    ---------
    If draws are independent, a claim that is true is refuted with probability at most
    alpha. Nothing is guaranteed about claims that are false. "Not refuted" is a
    statement about this pair, this score and this number of draws only.

    Examples
    --------
    >>> import dpsample as dps
    >>> def half_noise(data, rng, num_draws):
    ...     return data + rng.normal(0.0, 0.5 * 3.73, num_draws)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-5)
    >>> report = dps.audit(half_noise, 0.0, 1.0, budget, seed=1)
    >>> report.is_refuted
    True
    """
    _check_arguments(mechanism, budget, log_ratio=log_ratio, score=score)
    check.integer(MIN_DRAWS, num_draws=num_draws)
    check.open_interval(0.0, 1.0, alpha=alpha)
    check.scale(alpha=alpha)
    if not (isinstance(sampler, str) and sampler == "auto"):
        check.instance(Sampler, sampler=sampler, remedy='Use "auto", or a sampler.')
    check.instance(bool, progress=progress)
    check.instance((Event, type(None)), event=event)
    if threads is not None:
        check.integer(1, threads=threads)
    if gdp is not None:
        check.non_negative(gdp=gdp)
    is_ours = isinstance(mechanism, ExponentialMechanism | AdditiveMechanism)
    if gdp is None and isinstance(mechanism, ExponentialMechanism | AdditiveMechanism):
        is_same = mechanism.budget.relation == budget.relation
        gdp = mechanism.gdp if is_same else None  # what it says of itself
    check.instance((bool, SequentialReport), sequential=sequential)

    # Scores of draws from both distributions. An audit that bets calls it batch by
    # batch.
    def scores_of(on_progress: Progress, **drawing: Any) -> Scores:
        shared = drawing | {"threads": threads, "on_progress": on_progress}
        if isinstance(mechanism, ExponentialMechanism):
            shared |= {"relation": budget.relation, "sampler": sampler}
            return exponential_scores(mechanism, problem, neighbor, **shared)
        if isinstance(mechanism, AdditiveMechanism):
            shared["relation"] = budget.relation
            return additive_scores(mechanism, problem, neighbor, **shared)
        score_functions = {"log_ratio": log_ratio, "score": score}
        return black_box_scores(
            mechanism, problem, neighbor, **score_functions | shared
        )

    if sequential is not False:
        report = sequential
        if not isinstance(report, SequentialReport):
            learn = None
            if not is_ours and log_ratio is None and score is None:
                run = cast(Mechanism, mechanism)
                learn = partial(learn_score, run, problem, neighbor)
            report = start_report(
                learn=learn,
                curve=partial(claimed_curve, budget=budget, gdp=gdp, event=event),
                alpha=alpha,
                subject=_subject(mechanism),
                budget=budget,
                gdp_claimed=gdp,
                event=event,
                seed=seed_sequence(seed),
            )
        # A report is continued only by the same audit, or its bets would be about
        # another claim.
        else:
            for name, current, before in (
                ("mechanism", _subject(mechanism), report.subject),
                ("budget", budget, report.budget),
                ("gdp", gdp, report.gdp_claimed),
                ("event", event, report.event),
                ("alpha", alpha, report.test.alpha),
            ):
                if current != before:
                    condition = f"that of the report, {check.describe(before)}"
                    remedy = "Pass sequential=True to begin another audit."
                    check.fail(name, condition, current, remedy)
        with _line(progress) as on_progress:
            return continue_audit(report, scores_of, num_draws, on_progress)
    with _line(progress) as on_progress:
        scores = scores_of(on_progress, num_draws=int(num_draws), seed=seed)
    epsilons = budget.epsilon * np.array(MULTIPLES)
    bounds = lower_bounds(scores, epsilons, delta=budget.delta, alpha=alpha)
    claimed = claimed_curve(epsilons, budget, gdp, event)
    return AuditReport(
        subject=_subject(mechanism),
        budget=budget,
        gdp_claimed=gdp,
        event=event,
        epsilon_lower=bounds.epsilon_lower,
        gdp_lower=bounds.gdp_lower,
        # The curve contains the budget's own epsilon, at the multiple 1.
        delta_lower=float(bounds.delta_lower[MULTIPLES.index(1.0)]),
        curve=AuditCurve(epsilons, bounds.delta_lower, bounds.delta_estimate, claimed),
        # Both halves have this number of draws of P.
        num_draws=2 * scores.first[0].size,
        alpha=alpha,
        notes=scores.notes,
    )


def claimed_curve(
    epsilons: Array, budget: Budget, gdp: float | None, event: Event | None = None
) -> Array:
    r"""Return upper bounds of delta at each epsilon, as the claims imply them.

    (epsilon, delta)-privacy implies (e, delta)-privacy for e above epsilon, and below
    (e, 1 - (1 - delta) (1 + e^e) / (1 + e^epsilon))-privacy (Kairouz, Oh and Viswanath
    2015). gdp-GDP implies the Gaussian curve, and an event implies its own curve. The
    smallest of these bounds is returned.
    """
    # With e^-epsilon factored out, so that a large epsilon does not overflow.
    below = 1.0 - (1.0 - budget.delta) * (
        np.exp(np.minimum(epsilons, budget.epsilon) - budget.epsilon)
        + np.exp(-budget.epsilon)
    ) / (1.0 + np.exp(-budget.epsilon))
    claimed = np.where(epsilons >= budget.epsilon, budget.delta, below)
    # Every bound that is claimed must hold, and so must the smallest of them.
    if gdp is not None:
        claimed = np.minimum(claimed, [gaussian_delta(float(e), gdp) for e in epsilons])
    if event is not None:
        event_deltas = [
            delta_of(event, epsilon=e, relation=budget.relation) for e in epsilons
        ]
        claimed = np.minimum(claimed, event_deltas)
    return claimed


def _check_arguments(mechanism: object, budget: Budget, **scores: Score | None) -> None:
    """Raise unless the mechanism can be audited with these functions of outputs."""
    check.instance(Budget, budget=budget, remedy="Build a dps.Budget first.")
    is_ours = isinstance(mechanism, ExponentialMechanism | AdditiveMechanism)
    if not (is_ours or callable(mechanism)):
        condition = "a calibrated mechanism or a function (data, rng, num_draws)"
        check.fail("mechanism", condition, mechanism)
    names = [name for name, value in scores.items() if value is not None]
    if names and is_ours:
        check.fail(names[0], "None for a mechanism of dpsample", "a function")
    if len(names) > 1:
        check.fail("score", "None where log_ratio is given", "a function")
    for name in names:
        if not callable(scores[name]):
            check.fail(name, "a function of rows of outputs", scores[name])


def _subject(mechanism: object) -> str:
    """Name what is tested, on one line."""
    if isinstance(mechanism, ExponentialMechanism):
        facts = mechanism.facts
        how = f"calibration {mechanism.calibration!r}, {facts.loss.name} loss"
        return f"the exponential mechanism ({how}, domain {facts.domain.name})"
    if isinstance(mechanism, AdditiveMechanism):
        return f"additive noise {mechanism.noise!r}"
    return f"the algorithm {getattr(mechanism, '__name__', type(mechanism).__name__)}"


@contextmanager
def _line(is_wanted: bool) -> Iterator[Progress]:
    """Show the share of draws that are done, in a terminal or notebook."""
    with screen.line(is_wanted) as paint:
        yield lambda share, findings="": paint(
            f"audit: {100.0 * share:3.0f}% of the draws{findings}"
        )
