"""Private choice of hyperparameters: the best of a random number of private fits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from typing import NoReturn

import numpy as np

from dpsample.answers.answer import Fit
from dpsample.core import check, columns, pauses
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, release_streams, seed_sequence
from dpsample.inference.tuning_plan import TuningPlan, name_candidates
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.privacy import Budget, Ledger, LedgerFile
from dpsample.privacy.budget import check_not_pure
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.privacy.curves.random_stopping import (
    Stop,
    check_stop,
    stopping_odds,
)
from dpsample.problem.problem import Problem
from dpsample.running import descent
from dpsample.running import progress as screen

NOTHING = (
    "tune returns nothing this time: that happens, at random, with stop='poisson'. The "
    "budget is spent."
)
# Decimal digits in which the distribution of K, the number of fits, is computed.
DIGITS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice(Fit):
    """The fit with the best private score. The number of fits is not stated.

    Attributes
    ----------
    theta, certificate, feature_names
        As of `Fit`. ``num_gradients`` is None and ``trace`` empty.
    optimizer : Optimizer
        The candidate of theta, which the guarantee covers, too.
    label : str
        Its name, or its place among the candidates.
    score : float
        Its private score, the noisy mean of losses cut off to [0, cap]. Because it is
        the best of several, it is too good on average.

    `save` writes the fit alone, which `dpsample.Fit.load` reads.
    """

    num_gradients: None = None
    trace: dict[str, Array] = field(default_factory=dict, repr=False)
    optimizer: Optimizer
    label: str
    score: float

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NoReturn:
        """Raise, because a file holds the fit alone.

        Raises
        ------
        ValueError
            Always.
        """
        check.fail("path", "read by dpsample.Fit.load, as a file of a fit", str(path))

    def __repr__(self) -> str:
        """Return the candidate, its score and the fit."""
        candidate = f"{self.optimizer!r}, score={self.score:.4g}"
        return f"Choice({candidate},\n  {super().__repr__()})"


# BLAS has one thread, because the number of threads changes the last bits. NumPy
# scalars become Python numbers.
@pauses.single_threaded_blas()
@check.unwrap_numpy
def tune(
    problem: Problem,
    candidates: Sequence[Optimizer] | Mapping[str, Optimizer],
    budget: Budget,
    *,
    score: Problem,
    cap: float,
    stop: Stop = "logarithmic",
    mean_tries: float = 10.0,
    score_share: float = 0.1,
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
    progress: bool = True,
) -> Choice:
    """Fit with hyperparameters that are chosen privately, by random stopping.

    A number K is drawn at random. K times a candidate is drawn uniformly, fitted and
    scored on ``score``, with noise in the fit and in the score. The fit with the best
    score is returned, and the first one of equal scores. Do not tune what a public rule
    can set, because the rule costs no privacy.

    Parameters
    ----------
    problem : Problem
        Records to fit.
    candidates : sequence of Optimizer, or dict of str to Optimizer
        They must not depend on the records.
    budget : Budget
        For everything that is returned.
    score : Problem
        Records to score on, which are private, too. They may be ``problem`` itself. The
        score is their mean loss, each cut off to [0, cap]. Lower is better.
    cap : float
        Public number > 0, such as the loss of a fit without any records.
    stop : {"logarithmic", "geometric", "poisson"}
        Distribution of K. The logarithmic one costs least, and K = 1 is its most likely
        value. Poisson K may be 0, which is a RuntimeError, and the budget is spent.
    mean_tries : float
        Mean of K, from 1 to 1000.
    score_share : float
        Part of the squared gdp of one fit that is for its score, in (0, 1).
    ledger : Ledger or LedgerFile, optional
        Where the certificate is entered before anything is drawn.
    seed : int or SeedSequence, optional
        Reproduces a study's run, which is then not releasable.
    progress : bool
        Show the seconds so far in a terminal or notebook, until the end.

    Returns
    -------
    Choice
        ``theta``, ``optimizer``, ``label``, ``score`` and ``certificate``.

    Raises
    ------
    ValueError
        If an argument is malformed, or no proof covers a candidate.
    RuntimeError
        If K = 0, which only Poisson K can be.
    KeyboardInterrupt
        After Ctrl-C. Nothing is returned then.

    Guarantee
    ---------
    All that a `Choice` holds is together (epsilon, delta)-DP under the budget's
    relation, by the theorem of `dpsample.privacy.curves.random_stopping`. The running
    time reveals K, so do not publish it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> methods = [dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=5, step_size=s)
    ...            for s in (0.1, 1.0)]
    >>> choice = dps.tune(problem, methods, dps.Budget(epsilon=1.0, delta=1e-6),
    ...                   score=problem, cap=0.7)
    >>> choice.certificate.releasable, choice.theta.shape
    (True, (3,))
    """
    check.instance(Problem, problem=problem, score=score)
    names, optimizers = name_candidates(candidates)
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "private tuning, whose fits add Gaussian noise")
    check_stop(stop, mean_tries)
    check.scale(cap=cap)
    check.open_interval(0.0, 1.0, score_share=score_share)
    check.instance(bool, progress=progress)
    _check_score(problem, score)
    seed_sequence(seed)
    plan = TuningPlan(
        candidates=optimizers,
        facts=problem.facts,
        clip_rows=problem.clip_rows,
        budget=budget,
        stop=stop,
        mean_tries=float(mean_tries),
        num_scored=score.num_records,
        cap=float(cap),
        score_share=float(score_share),
    )
    gdp, recipes = plan.calibrate()
    certificate = plan.certificate(gdp, recipes)
    if seed is not None:
        certificate = replace(certificate, seeded=True, digest="")
    programs = [descent.Program(problem, recipe) for recipe in recipes]
    stddev = plan.score_stddev(gdp)
    spend(ledger, certificate)
    # Score, number of the candidate, and coefficients.
    best: tuple[float, int, Array] | None = None
    try:
        with (
            release_streams(seed, 1) as (rng,),
            # The number of fits, which is not private, is not shown.
            screen.patience(screen.FITTING.format("tune"), is_wanted=progress),
        ):
            for _ in range(draw_tries(rng, plan.stop, plan.mean_tries)):
                index = int(rng.integers(len(programs)))
                theta = run_fit(programs[index], rng)
                noisy = noisy_score(score, theta, plan.cap, stddev, rng)
                if best is None or noisy < best[0]:
                    best = noisy, index, theta
    except KeyboardInterrupt:
        raise KeyboardInterrupt(screen.INTERRUPTED.format("tune")) from None
    if best is None:
        raise RuntimeError(NOTHING)
    return Choice(
        theta=best[2],
        certificate=certificate,
        feature_names=problem.feature_names,
        encoding=problem.encoding,
        facts=problem.facts,
        optimizer=optimizers[best[1]],
        label=names[best[1]],
        score=best[0],
    )


def _check_score(problem: Problem, score: Problem) -> None:
    """Reject records of another model, and losses that fail for some record."""
    columns.require_same("score", score.feature_names, problem.feature_names)
    if score.dim != problem.dim:
        check.fail("score", f"with {problem.dim} coefficients", score.dim)
    if problem.clip_rows and not score.clip_rows:  # one certificate is about both
        check.fail("score", "made with clip_rows=True, as problem is", "without it")
    is_known = score.loss.is_cached and score.loss.is_ours
    if not is_known or not score.loss.has_margin:
        check.fail("score", "a problem with a loss of dps.losses", score.loss)
    _ = score.data  # records on a cluster raise here, before anything is spent


def run_fit(program: descent.Program, rng: np.random.Generator) -> Array:
    """Return the output of one run.

    It is the domain's center if the run overflowed. Such a value is covered by the
    guarantee of a fit, but an error would end all fits.
    """
    try:
        return program.run(rng).theta
    except descent.DescentError:
        return program.problem.facts.center.copy()


def noisy_score(
    score: Problem, theta: Array, cap: float, stddev: float, rng: np.random.Generator
) -> float:
    """Return the mean of losses cut off to [0, cap], with noise, on a public grid."""
    with np.errstate(all="ignore"):
        losses = score.loss.value(score.margins(theta), score.data.response)
    losses = np.clip(np.nan_to_num(losses, nan=cap, posinf=cap), 0.0, cap)
    # The exact sum moves by at most cap between neighbors, without rounding errors.
    noisy = np.array([math.fsum(losses.tolist()) / score.num_records])
    add_gaussian(rng, stddev, grid_step(stddev), noisy)
    return float(noisy[0])


def draw_tries(rng: np.random.Generator, stop: str, mean_tries: float) -> int:
    """Draw K by inversion, with 186 bits and 60 digits.

    The distance of its distribution from the exact one is below 2^-80.

    Examples
    --------
    >>> draw_tries(np.random.default_rng(1), "geometric", 1.0)
    1
    """
    odds = stopping_odds(stop, mean_tries)
    if stop != "poisson" and odds == 0.0:
        return 1
    # Doubles end at 2^-53, and K may be that unlikely. So the cumulative probabilities
    # are summed in decimals until their sum exceeds a uniform number.
    with localcontext() as context:
        context.prec = DIGITS
        uniform = Decimal(0)
        for _ in range(3):  # words of 62 bits
            uniform = (uniform + int(rng.integers(2**62))) / 2**62
        mean, ratio = Decimal(mean_tries), Decimal(odds) / (1 + Decimal(odds))
        tries, term = 1, 1 - ratio  # geometric
        if stop == "poisson":
            tries, term = 0, (-mean).exp()
        elif stop == "logarithmic":
            term = ratio / (1 + Decimal(odds)).ln()
        total = term
        # Terms increase up to the mean, so small ones before it do not end the sum.
        while uniform >= total and (tries < mean or term > Decimal("1e-50")):
            if stop == "poisson":
                term *= mean / (tries + 1)
            elif stop == "logarithmic":
                term *= ratio * tries / (tries + 1)
            else:
                term *= ratio
            tries, total = tries + 1, total + term
        return tries
