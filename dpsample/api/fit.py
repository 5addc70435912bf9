"""The private fit that `advise` recommends, in one call.

The ball of coefficients, the method and the loss to fit depend on public facts alone.
A `Problem` on the whole space gets the ball of `advise.default_radius`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from dpsample.answers.answer import Fit, Release
from dpsample.api.advise import Advice, advise, default_radius
from dpsample.api.minimize import minimize
from dpsample.api.release import release
from dpsample.core import check
from dpsample.core.streams import Seed
from dpsample.domains import Ball
from dpsample.losses import Loss
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.privacy import Budget, Ledger, LedgerFile
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem


@dataclass(frozen=True, kw_only=True, eq=False)
class FitPlan:
    """What a fit will do, from public facts alone.

    Attributes
    ----------
    facts : PublicFacts
        Facts of the problem, with its domain.
    advice : Advice
        Method, loss and reason.
    """

    facts: PublicFacts
    advice: Advice

    def __repr__(self) -> str:
        """Return the size of the problem, its domain and the advice."""
        facts = self.facts
        size = f"{facts.num_records:,} records, {facts.dim} coefficients"
        return f"{size}, domain {facts.domain!r}\n{self.advice!r}"


def plan_fit(
    facts: PublicFacts, budget: Budget, *, row_divisor: float | None = None
) -> FitPlan:
    """Choose the domain and the method by public facts, without any record.

    Parameters
    ----------
    facts : PublicFacts
        Facts of the problem. On the whole space the domain is a ball of
        `default_radius`.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    row_divisor : float, optional
        Number by which rows were divided to bound them, see `default_radius`. By
        default it is d^(1/4)/b for d columns and rows of length b. A column's size is
        from b/sqrt(d) to b, so about the geometric mean b d^(-1/4), and the divisor is
        its inverse.
    """
    if facts.domain.is_whole_space:
        if row_divisor is None:
            width = facts.dim - int(facts.intercept)
            row_divisor = width**0.25 / facts.row_bound
        # A placeholder. Its radius matters only for losses whose derivative grows with
        # the margin. Their Lipschitz constant is then that on the unit ball.
        in_ball = replace(facts, domain=Ball(1.0))
        radius = default_radius(in_ball, budget, row_divisor=row_divisor)
        facts = replace(facts, domain=Ball(radius))
    return FitPlan(facts=facts, advice=advise(facts, budget))


@check.unwrap_numpy
def fit(
    problem: Problem,
    budget: Budget,
    *,
    method: str = "auto",
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
    progress: bool = True,
) -> Fit | Release:
    """Fit privately, by the method that `advise` recommends for the problem.

    It is the usual way to a private answer. `minimize` runs a method of your choice,
    and `release` draws from the exponential mechanism, also on domains other than
    balls.

    Parameters
    ----------
    problem : Problem
        Records, loss, domain and declared bounds. A problem on
        ``domains.WholeSpace()`` gets an l_2 ball of a radius that public facts suggest.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    method : str
        "auto", or the name of another method in the advice's table that fits the
        problem's own loss, such as "objective", "tail" or "release".
    ledger : Ledger or LedgerFile, optional
        Where the certificate is entered before anything is run. Without room for it
        nothing is.
    seed : int or SeedSequence, optional
        Reproduces a study's run, which is then not releasable. Default: the entropy of
        the operating system.
    progress : bool
        Show the progress in a terminal or notebook, until the end.

    Returns
    -------
    Fit or Release
        ``theta``, ``certificate`` and ``predict``. It can be saved, verified and
        published.

    Raises
    ------
    ValueError
        If an argument is malformed, no method is known for the problem, or the ledger
        has no room.

    Guarantee
    ---------
    That of the method, which the certificate names. The choice depends on public facts
    alone and costs no privacy.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.WholeSpace())
    >>> answer = dps.fit(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> answer.theta.shape, answer.certificate.releasable
    ((3,), True)
    """
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Budget, budget=budget)
    row_divisor = None
    if problem.encoding is not None and problem.encoding.is_scaled:
        # A row is scale/divisor times columns in [-1, 1], that is columns/row_divisor.
        row_divisor = problem.encoding.divisor / problem.encoding.scale
    plan = plan_fit(problem.facts, budget, row_divisor=row_divisor)
    choice, loss = _choose(plan.advice, method, problem.loss)
    domain, fitted = plan.facts.domain, problem
    if (loss, domain) != (problem.loss, problem.domain):
        fitted = problem.with_model(loss, domain)
    options: dict[str, Any] = {"ledger": ledger, "seed": seed, "progress": progress}
    if choice == "release":
        return release(fitted, budget, **options)
    return minimize(fitted, choice, budget, **options)


def _choose(
    advice: Advice, method: str, loss: Loss
) -> tuple[Optimizer | Literal["release"], Loss]:
    """Return the advised method and its loss, or a named one for the own loss."""
    check.instance(str, method=method)
    if method == "auto":
        return advice.choice, advice.loss
    rows_by_method = {row.method: row for row in advice.table if row.loss == loss}
    check.one_of(("auto", *rows_by_method), method=method)
    return rows_by_method[method].choice, rows_by_method[method].loss
