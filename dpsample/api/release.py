"""The function `release`, the only place where privacy meets sampling.

`plan_release` calibrates and certifies the mechanism from public facts, and the plan
draws (`release_plan`). `release` combines plan and draw with deadline and ledger.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal

import numpy as np

from dpsample.answers.answer import Release
from dpsample.api.release_plan import (
    SPEED_ADVICE,
    ReleasePlan,
    ShowProgress,
    check_facts,
    plan_release,
)
from dpsample.core import check, pauses
from dpsample.core.arithmetic import require_arithmetic
from dpsample.core.renamed import accept_former_names
from dpsample.core.streams import (
    Seed,
    release_streams,
    seed_sequence,
)
from dpsample.privacy import (
    Budget,
    Ledger,
    LedgerFile,
    calibrate,
)
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.terms import Calibration, Risk
from dpsample.privacy.usefulness import warn_if_useless
from dpsample.problem.problem import Problem
from dpsample.running import progress as screen
from dpsample.samplers import Global, Localized, Proximal, TangentCells
from dpsample.samplers.errors import (
    BottomError,
    DeadlineError,
)
from dpsample.samplers.proximal import constant_time as constant_time_sampler
from dpsample.samplers.proximal import fixed_passes
from dpsample.targets.grid import PublicGrid
from dpsample.verification.recomputation import verify_own

# Maximum time of one sleep, so that Ctrl-C and listeners are served in between.
SLEEP_SECONDS = 0.1
INTERRUPTED = (
    "release was interrupted. Nothing is released, and the budget counts as spent if "
    "the time that it took was the reason: that depends on the records."
)


@contextmanager
def _live_line(*, is_shown: bool) -> Iterator[ShowProgress]:
    """Show a live line while the block draws, if it ``is_shown``.

    Yields the function that adds to its text. What it adds depends on the records, so
    there is no line if the duration of the release is public. After Ctrl-C the error
    says that nothing is released.
    """
    title = "release is drawing; after Ctrl-C nothing is released"
    try:
        with screen.patience(title, is_wanted=is_shown, remedy=SPEED_ADVICE) as show:
            yield show
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None


def _return_at_deadline(deadline: float, draw: Callable[[], Release]) -> Release:
    """Return the result of ``draw`` at the time ``deadline``, or raise then.

    All failures raise the same error at the same time. So the error discloses neither
    reason and time of a failure, nor a result that was too late.
    """

    def raise_if_late() -> None:
        if time.monotonic() >= deadline:
            raise DeadlineError

    # The list is emptied before anything is raised, because the traceback of an error
    # keeps local variables, and the result must not be among them.
    answers = []
    try:
        with (
            suppress(Exception),
            pauses.listening(raise_if_late),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            answers.append(draw())
        if time.monotonic() >= deadline:
            answers.clear()
        while (seconds_left := deadline - time.monotonic()) > 0.0:
            time.sleep(min(seconds_left, SLEEP_SECONDS))
            pauses.notify_listeners()
    except BaseException:
        answers.clear()
        raise
    if not answers:
        raise DeadlineError
    return answers[0]


# ``work`` is the former name of ``num_passes``. The first call says that it compiles
# for about 8 s. BLAS has one thread, because the number of threads changes the last
# bits. NumPy scalars become Python numbers.
@accept_former_names(work="num_passes")
@screen.compiles_first(seconds=8.0)
@pauses.single_threaded_blas()
@check.unwrap_numpy
def release(
    problem: Problem,
    budget: Budget,
    *,
    p: float = 2.0,
    risk: Risk = "population",
    calibration: Calibration | Literal["auto"] = "exact",
    sampler_share: float = 0.1,
    strong_convexity: float = 0.0,
    confidence: float | None = None,
    sampler: Localized | Proximal | Global | TangentCells | None = None,
    max_work: float | None = None,
    deadline: float | None = None,
    constant_time: bool = False,
    num_passes: int | None = None,
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
    progress: bool = True,
) -> Release:
    r"""Draw one differentially private parameter vector, with a certificate.

    The vector is one draw of the regularized exponential mechanism
    :math:`e^{-k(F + \mu r)}`, with k and mu calibrated to the budget. Delta includes
    the proved total-variation error of the sampler.

    Parameters
    ----------
    problem : Problem
        Records, loss, domain and declared bounds.
    budget : Budget
        Epsilon, delta and the neighboring relation. At delta = 0 the release is purely
        epsilon-differentially private: an exact draw with calibration "range".
    p : float
        Exponent, in [1, inf], of the norm of sensitivity and regularizer.
    risk : {"population", "empirical"}
        Risk whose bound is minimized.
    calibration : {"exact", "closed_form", "paper", "range", "auto"}
        Inversion of the Gaussian privacy curve, or with "range" the largest k that the
        range of one record's loss allows, which is better in few dimensions. "auto"
        chooses between "exact" and "range" by public facts. At delta = 0 "exact" stands
        for "range", which is the only one with a proof there. "paper" reproduces the
        constants of the paper and is never releasable. See `calibrate`.
    sampler_share : float
        Share of delta, in (0, 1), for the error of the sampler. It has no effect at
        delta = 0.
    strong_convexity : float
        Strength of a ridge that belongs to the objective, see `calibrate`.
    confidence : float, optional
        Calibrate for a risk bound that holds with this probability.
    sampler : Localized, Proximal, Global or TangentCells, optional
        A sampler with a proof. The default is ``Localized()``, which is replaced by
        ``Proximal()`` if rejection is not possible or costs more. ``Global()`` and
        ``TangentCells()`` have no error gamma. At delta = 0 the first is the default,
        and the second for losses that are not smooth, with at most 3 coefficients. With
        any delta the second is the default for absolute and quantile losses of one
        coefficient, if k is at most the number of records, which is at least 10,000,
        and margins reach 1. ``Global()`` by name can be many times as fast where draws
        take more than some thousand passes.
    max_work : float, optional
        Maximum number of passes over the records, in addition to the fit. If they do
        not suffice, nothing is released, and the budget counts as spent. At delta = 0
        neither a limit nor ``deadline`` or ``constant_time`` is allowed.
    deadline : float, optional
        Seconds after the beginning of the call at which the result is returned. If the
        draw fails or is not finished by then, nothing is released, the budget counts as
        spent, and the error gives no reason. No live line is shown. The first draw on a
        machine waits for compilation, so run "dpsample warm" before.
    constant_time : bool
        Whether passes over the records, branches and draws of random words are the same
        for all records. Nothing is released with a probability below gamma / 10, which
        delta includes. Supported are `Logistic`, `SmoothedHinge`, `Huber` and `Squared`
        losses of dense rows on l2 balls and the whole space, with p = 2.
    num_passes : int, optional
        Number of passes over the records of a ``constant_time`` draw. The default is
        the smallest number that is proved to suffice. A smaller one raises an error
        before any work.
    ledger : Ledger or LedgerFile, optional
        Ledger in which the certificate is entered before anything is drawn. Nothing is
        drawn if its budget does not suffice.
    seed : int, optional
        Seed of a study's run, which is then not releasable. The default is the entropy
        of the operating system.
    progress : bool
        Whether to show a live line in a terminal or notebook if the draw takes a
        moment. There is none with a ``deadline`` or ``constant_time``. The line is gone
        at the end. In a terminal it has numbers that depend on the records, marked NOT
        PRIVATE.

    Returns
    -------
    Release
        ``theta`` of shape (dim,), ``certificate``, ``mechanism`` and
        ``nonprivate_diagnostics``, which must not be published.

    Raises
    ------
    ValueError
        If an argument is malformed, there are more than 10,000 coefficients, or the
        budget of the ledger does not suffice.
    NoCertificate
        If the sampler has no proof for these public facts (loss, regularizer, domain).
        A long draw is not rejected. It begins, and the live line of a terminal reports
        how long it takes.
    CertificateError
        If the certificate does not pass `verify`. No input should cause this error, and
        nothing was drawn.
    SamplingError
        If a loss raises or returns NaN, a declared bound is violated, ``max_work``
        passes do not suffice, the draw misses its ``deadline``, or a ``constant_time``
        draw ends without a result.

    Notes
    -----
    **Guarantee.** If the declared bounds hold for every possible record, theta is
    (epsilon, delta)-differentially private under the relation. The exact mechanism is
    (epsilon, delta_0)-DP by the Gaussian comparison theorem (arXiv:2207.08347, Theorem
    2), or by the range of log-likelihood ratios. On every data set the draw is within
    total variation gamma of it, which adds (1 + e^epsilon) gamma to delta_0. With
    ``Global`` and ``TangentCells`` gamma is 0, and decisions are made as in real
    arithmetic. So with delta = 0 theta is epsilon-DP, for ideal random bits. The
    running time depends on the records, so do not publish it, except with
    ``constant_time``, which takes many times as long.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> answer = dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> answer.theta.shape, answer.certificate.releasable
    ((3,), True)
    """
    begin = time.monotonic()  # the deadline counts from the call
    seed_sequence(seed)  # raises for an invalid seed, before any work
    options: dict[str, Any] = {
        "p": p,
        "risk": risk,
        "calibration": calibration,
        "sampler_share": sampler_share,
        "strong_convexity": strong_convexity,
        "confidence": confidence,
    }
    check.instance(bool, constant_time=constant_time, progress=progress)
    if seed is None:
        require_arithmetic()  # must fail before the problem keeps a plan
    if constant_time:
        check_facts(problem, budget, sampler_share)
        excluded = {"sampler": sampler, "max_work": max_work, "deadline": deadline}
        for name, value in excluded.items():
            if value is not None:
                check.fail(name, "None with constant_time=True", value)
        if num_passes is not None:
            check.integer(1, num_passes=num_passes)
        return _release_in_constant_time(
            problem, budget, options, num_passes=num_passes, ledger=ledger, seed=seed
        )
    if num_passes is not None:
        condition = "None without constant_time=True"
        check.fail("num_passes", condition, num_passes, "See max_work.")
    if deadline is not None:
        check.positive(deadline=deadline, remedy="It is in seconds from the call.")
    plan = plan_release(
        problem,
        budget,
        sampler=sampler,
        max_work=max_work,
        seeded=seed is not None,
        has_deadline=deadline is not None,
        **options,
    )
    # The budget is entered before the first random bit is used. An interrupt after it
    # may depend on the records.
    warn_if_useless(problem.facts, budget, plan.mechanism.risk_bound)
    spend(ledger, plan.certificate)
    with (
        release_streams(seed, 2) as (pilot, stream),
        _live_line(is_shown=progress and deadline is None) as show,
    ):
        draw = partial(_draw_release, problem, plan, pilot, stream, show)
        if deadline is None:
            return draw()
        return _return_at_deadline(begin + deadline, draw)


def _release_in_constant_time(
    problem: Problem,
    budget: Budget,
    options: dict[str, Any],
    *,
    num_passes: int | None,
    ledger: Ledger | LedgerFile | None,
    seed: Seed,
) -> Release:
    """Release theta after a public number of passes over the records.

    With a small probability, which delta includes, nothing is released.
    """
    if budget.is_pure:
        remedy = "It releases nothing with a probability that delta must pay."
        check.fail("constant_time", "False at delta = 0", "True", remedy)
    mechanism = calibrate(problem, budget, **options)
    if problem.data.dense.shape[0] == 0:
        check.fail(
            "features",
            "dense with constant_time=True",
            "a sparse matrix",
            "How many numbers are not 0 would show: pass features.toarray().",
        )
    sampler_plan = constant_time_sampler.new_plan(mechanism, num_passes)
    certificate = mechanism.certificate.with_sampler(
        sampler=MechanismSpec.of(sampler_plan),
        clip_rows=problem.clip_rows,
        seeded=seed is not None,
    )
    verify_own(certificate)
    grid = PublicGrid.for_target(mechanism.target(copy.copy(problem)))
    warn_if_useless(problem.facts, budget, mechanism.risk_bound)
    spend(ledger, certificate)
    with release_streams(seed, 1) as (stream,), _live_line(is_shown=False):
        # Only theta is bound to a variable, because a traceback keeps local variables.
        theta = fixed_passes.draw(problem, mechanism, sampler_plan, stream)[0]
    if theta is None:
        raise BottomError
    # The diagnostics have no risk and no fit, which would take a time that depends on
    # the records before theta is returned.
    return Release(
        theta=grid.round(theta),
        certificate=certificate,
        feature_names=problem.feature_names,
        encoding=problem.encoding,
        mechanism=mechanism,
        nonprivate_diagnostics={
            "method": "constant time",
            "num_passes": sampler_plan.work,
        },
    )


def _draw_release(
    problem: Problem,
    plan: ReleasePlan,
    pilot: np.random.Generator,
    stream: np.random.Generator,
    show: ShowProgress,
) -> Release:
    """Draw under a plan, and add risks and other diagnostics."""
    theta, notes = plan.draw(pilot, stream, show)
    minimizer = plan.minimizer
    risk, min_risk = problem._risks(np.stack([theta, minimizer])).tolist()
    return Release(
        theta=theta,
        certificate=plan.certificate,
        feature_names=problem.feature_names,
        encoding=problem.encoding,
        mechanism=plan.mechanism,
        nonprivate_diagnostics={
            **notes,
            "risk": risk,
            "non_private_risk": min_risk,
            "non_private_theta": minimizer.copy(),
        },
    )
