"""The verb for releases: the only place where privacy meets sampling."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.privacy import Budget, Certificate, ExponentialMechanism, calibrate
from dpsample.privacy.certificates.terms import Calibration, CalibrationInputs, Risk
from dpsample.privacy.verification import verify_own
from dpsample.problem.problem import Problem
from dpsample.running import chains
from dpsample.running import progress as screen
from dpsample.samplers import Proximal, gaussian_fit
from dpsample.samplers.errors import PIECE_FAILED, raise_unless_ok
from dpsample.samplers.proximal import certify
from dpsample.samplers.proximal.proximal import ProximalSetting
from dpsample.targets.gibbs import Gibbs
from dpsample.verbs.results import Release

ASSUMPTIONS = (
    "the sampler's steps may depend on the records: only theta and this certificate "
    "are released",
    "whether there is a release may depend on the records and is not counted: it is "
    "refused if no practical proof is found for them (NoCertificate), or if a loss "
    "fails, breaks its declared bounds or lets no proposal pass (SamplingError)",
)
INTERRUPTED = "release was interrupted. Nothing is released."


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasePlan:
    """All that releases with different random bits share."""

    mechanism: ExponentialMechanism
    certificate: Certificate
    target: Gibbs
    sampler: Proximal

    @cached_property
    def setting(self) -> ProximalSetting:
        """Metrics and start of the sampler; they depend on the records."""
        return ProximalSetting.of(self.sampler, self.target)

    @cached_property
    def best(self) -> Array:
        """Minimizer of the risk. Not private."""
        return gaussian_fit.minimize(self.target, mu=0.0)[0]


@contextmanager
def _all_or_nothing() -> Iterator[None]:
    """Say after two seconds that it takes time, and after Ctrl-C that nothing is out.

    The line shows seconds only: numbers of steps and tries depend on the records.
    """
    try:
        with screen.patience("release is drawing; after Ctrl-C nothing is released"):
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None


@chains.single_threaded_blas()
@check.plain
def release(
    problem: Problem,
    budget: Budget,
    *,
    p: float = 2.0,
    risk: Risk = "population",
    calibration: Calibration = "exact",
    sampler_share: float = 0.1,
    strong_convexity: float = 0.0,
    confidence: float | None = None,
    sampler: Proximal | None = None,
    seed: Seed = None,
) -> Release:
    r"""Draw one differentially private parameter vector, with a certificate.

    One draw of the regularized exponential mechanism :math:`e^{-k(F + \mu r)}`, with
    (k, mu) calibrated to the budget and the sampler's proved total-variation error
    charged to delta.

    Parameters
    ----------
    problem : Problem
        Records, loss, domain and declared bounds.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    p : float
        Norm in which sensitivity and regularizer are measured, in [1, inf].
    risk : {"population", "empirical"}
        Risk whose bound is minimized.
    calibration : {"exact", "closed_form", "paper"}
        Inversion of the Gaussian privacy curve; "paper" reproduces printed constants
        and is never releasable.
    sampler_share : float
        Part of delta that pays for the sampler, in (0, 1).
    strong_convexity : float
        Strength of a ridge that belongs to the objective; see `calibrate`.
    confidence : float, optional
        Calibrate for a risk bound that holds with this probability.
    sampler : Proximal, optional
        A sampler with a proof; by default ``Proximal()``.
    seed : int, optional
        Reproduces a study's run, which is then not releasable. By default the
        operating system's entropy is used.

    Returns
    -------
    Release
        ``theta`` of shape (dim,), ``certificate``, ``mechanism`` and the not private
        ``nonprivate_diagnostics``.

    Raises
    ------
    ValueError
        If an argument is malformed.
    NoCertificate
        If the sampler has no proof, or none that is practical, for this target.
    CertificateError
        If the certificate does not pass `verify`, which no input should bring about;
        nothing was drawn then.
    SamplingError
        If a loss raises or returns NaN, or a declared bound is found not to hold.

    Notes
    -----
    **Guarantee.** If the declared bounds hold for every possible record, theta is
    (epsilon, delta)-differentially private under the relation: the exact mechanism is
    (epsilon, delta_0)-DP by the Gaussian comparison theorem (arXiv:2207.08347, Theorem
    2) and the draw is within total variation gamma of it on every data set, which costs
    (1 + e^epsilon) gamma. The running time depends on the records: do not publish it.

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
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Budget, budget=budget, remedy="Build a dps.Budget first.")
    seed_sequence(seed)  # refuses what is no seed, before any work
    check.open_interval(
        0.0, 1.0, sampler_share=sampler_share, remedy="The sampler needs part of delta."
    )
    sampler = Proximal() if sampler is None else sampler
    check.instance(
        Proximal,
        sampler=sampler,
        remedy="No other sampler has a proof. Use dps.sample for private studies.",
    )
    options: dict[str, Any] = {
        "p": p,
        "risk": risk,
        "calibration": calibration,
        "sampler_share": sampler_share,
        "strong_convexity": strong_convexity,
        "confidence": confidence,
    }
    plan = _planned(problem, budget, options, sampler, seeded=seed is not None)
    gamma = plan.mechanism.gamma
    with _all_or_nothing():
        pilot_stream, stream = streams(seed, 2)
        prepared = plan.setting.prepare(pilot_stream, gamma)
        num_steps = prepared.certified_steps(gamma)
        state = prepared.init()
        chains.advance(prepared.runner(squeeze=True), state, stream, num_steps)
        best = plan.best
    theta = state.position.copy()
    # The squeeze may accept a point at which the loss was never evaluated.
    if not np.isfinite(plan.target.energy(theta)):
        raise_unless_ok(PIECE_FAILED)
    return Release(
        theta=theta,
        certificate=plan.certificate,
        feature_names=problem.feature_names,
        mechanism=plan.mechanism,
        nonprivate_diagnostics={
            "num_steps": num_steps,
            "step_size": prepared.trial.step,
            "metric": prepared.metric.name,
            "acceptance": prepared.trial.acceptance,
            "counts": prepared.counts(state),
            "risk": problem.risk(theta),
            "non_private_risk": problem.risk(best),
            "non_private_theta": best.copy(),
        },
    )


def _planned(
    problem: Problem,
    budget: Budget,
    options: dict[str, Any],
    sampler: Proximal,
    *,
    seeded: bool,
) -> ReleasePlan:
    """Calibrate and certify, before anything is drawn.

    The problem keeps the last plan: replicates, and releases that follow, draw at once.
    """
    # Checked: 1.0 and True are equal, and one of them is refused.
    inputs = CalibrationInputs(facts=problem.facts, budget=budget, **options)
    key = inputs, sampler, seeded
    kept = problem.plan  # read once: another thread may replace it
    if kept is not None and kept[0] == key:
        return cast(ReleasePlan, kept[1])
    mechanism = calibrate(problem, budget, **options)
    certificate = mechanism.certificate.with_sampler(
        sampler=repr(sampler),
        theorems=(certify.THEOREM,),
        assumptions=ASSUMPTIONS + problem.assumptions,
        seeded=seeded,
    )
    verify_own(certificate)  # only public numbers: it refuses the same for all records
    plan = ReleasePlan(
        mechanism=mechanism,
        certificate=certificate,
        # A copy has no plan: no circle keeps the records after their last use.
        target=mechanism.target(copy.copy(problem)),
        sampler=sampler,
    )
    problem.plan = key, plan
    return plan
