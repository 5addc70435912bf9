"""The verbs: the only place where privacy meets sampling."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample import _check as check
from dpsample import chains
from dpsample._streams import Seed, seed_sequence, streams
from dpsample.checkpoint import identity_of
from dpsample.privacy import Budget, calibrate
from dpsample.privacy.risk import Risk
from dpsample.privacy.terms import Calibration
from dpsample.problem import Problem
from dpsample.results import Release, to_datatree
from dpsample.samplers import Proximal, certify, mode
from dpsample.samplers.errors import PIECE_FAILED, raise_unless_ok
from dpsample.targets import Gibbs

ASSUMPTIONS = (
    "the sampler's steps, refusals and errors may depend on the records: only theta "
    "and this certificate are released",
)
CLIPPED = "rows and responses above their bounds were scaled down to them"


@chains.single_threaded_blas()
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
    calibration : {"exact", "fact2", "paper"}
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
        ``private_diagnostics``.

    Raises
    ------
    ValueError
        If an argument is malformed.
    NoCertificate
        If the sampler has no proof, or none that is practical, for this target.
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
    check.open_interval(
        0.0, 1.0, sampler_share=sampler_share, remedy="The sampler needs part of delta."
    )
    sampler = Proximal() if sampler is None else sampler
    check.instance(
        Proximal,
        sampler=sampler,
        remedy="No other sampler has a proof. Use dps.sample for private studies.",
    )
    mechanism = calibrate(
        problem,
        budget,
        p=p,
        risk=risk,
        calibration=calibration,
        sampler_share=sampler_share,
        strong_convexity=strong_convexity,
        confidence=confidence,
    )
    target = mechanism.target(problem)
    pilot_stream, stream = streams(seed, 2)
    prepared = sampler.prepare(target, pilot_stream, gamma=mechanism.gamma)
    num_steps = prepared.certified_steps(mechanism.gamma)
    state = prepared.init()
    chains.advance(prepared.runner(squeeze=True), state, stream, num_steps)
    best = mode.minimize(target, mu=0.0)[0]
    theta = state.position.copy()
    # The squeeze may accept a point at which the loss was never evaluated.
    risk_there = problem.risk(theta)
    if not np.isfinite(risk_there):
        raise_unless_ok(PIECE_FAILED)
    certificate = mechanism.certificate.with_sampler(
        sampler=repr(sampler),
        theorems=(certify.THEOREM,),
        assumptions=ASSUMPTIONS + ((CLIPPED,) if problem.clip_rows else ()),
        seeded=seed is not None,
    )
    return Release(
        theta=theta,
        certificate=certificate,
        feature_names=problem.feature_names,
        mechanism=mechanism,
        private_diagnostics={
            "num_steps": num_steps,
            "step_size": prepared.trial.step,
            "metric": prepared.metric.name,
            "acceptance": prepared.trial.acceptance,
            "counts": prepared.counts(state),
            "risk": risk_there,
            "non_private_risk": problem.risk(best),
            "non_private_theta": best,
        },
    )


@chains.single_threaded_blas()
def sample(
    target: Gibbs,
    *,
    sampler: Any = "auto",
    num_draws: int = 1000,
    num_warmup: int | None = None,
    num_chains: int = 4,
    seed: Seed = 0,
    threads: int | None = None,
    progress: bool = True,
    init: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Any:
    r"""Draw many times from a Gibbs target. Not releasable.

    Parameters
    ----------
    target : Gibbs
        The density :math:`e^{-k(F + \mu r)}` on its domain.
    sampler : "auto" or Proximal
        Sampler; "auto" chooses `Proximal`.
    num_draws : int
        Draws per chain.
    num_warmup : int, optional
        Draws discarded first; by default the number after which total variation is
        proved to be at most 0.01.
    num_chains : int
        Number of chains.
    seed : int or SeedSequence, optional
        Gives the same draws for any number of threads; None for fresh entropy.
    threads : int, optional
        Number of threads; by default the number of processors.
    progress : bool
        Show one line on a terminal.
    init : array of shape (dim,) or (num_chains, dim), optional
        Where chains start; by default near the mode.
    checkpoint : path, optional
        File from which an interrupted run goes on, bit for bit.

    Returns
    -------
    xarray.DataTree
        ``posterior["theta"]`` (chain, draw, coefficient), ``sample_stats["energy"]``,
        ``constant_data`` and ``attrs["releasable"]`` false. After Ctrl-C, the draws
        that every chain has made.

    Raises
    ------
    ValueError
        If an argument is malformed or a start is outside the domain.
    NoCertificate
        If the sampler does not support the target.
    SamplingError
        If a loss raises or returns NaN.

    Notes
    -----
    **Guarantee.** The target is exactly invariant under every step.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(500, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> draws = dps.sample(dps.Gibbs(problem, k=100.0, mu=0.1), num_draws=50, seed=3)
    >>> draws.posterior["theta"].shape, bool(draws.attrs["releasable"])
    ((4, 50, 2), False)
    """
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.integer(1, num_draws=num_draws, num_chains=num_chains)
    check.instance(bool, progress=progress)
    chosen = Proximal() if sampler == "auto" else sampler
    check.instance(Proximal, sampler=chosen, remedy='Use "auto" or Proximal().')
    root = seed_sequence(seed)
    pilot_stream, *chain_streams = streams(root, num_chains + 1)
    prepared = chosen.prepare(target, pilot_stream)
    warmup = prepared.num_warmup if num_warmup is None else num_warmup
    result = chains.run(
        prepared,
        _starts(target, init, num_chains),
        chain_streams,
        num_draws=num_draws,
        num_warmup=warmup,
        threads=threads,
        checkpoint=checkpoint,
        identity=identity_of(*prepared.numbers(), *root.generate_state(4)),
        on_progress=_line if progress and sys.stderr.isatty() else None,
    )
    return to_datatree(
        result.draws,
        result.stats[:, :, 0],
        coefficients=target.problem.feature_names,
        constant_data={"k": np.array(target.k), "mu": np.array(target.mu)},
        attributes={
            "sampler": repr(chosen),
            "exactness": chosen.exactness,
            "metric": prepared.metric.name,
            "step_size": prepared.trial.step,
            "seed": str(root.entropy),
            "num_warmup": warmup,
            "is_interrupted": result.is_interrupted,
        },
    )


def _starts(target: Gibbs, init: ArrayLike | None, num_chains: int) -> list[Any]:
    if init is None:
        return [None] * num_chains
    shape = (num_chains, target.dim)
    if np.ndim(init) == 1:
        init = np.tile(check.array("init", init, shape=shape[1:]), (num_chains, 1))
    starts = check.array("init", init, shape=shape)
    for start in starts:
        if not target.problem.domain.contains(start):
            check.fail("init", "inside the domain", start, "Use domain.project(init).")
    return list(starts)


def _line(done: int, total: int, run: Any) -> None:
    del run
    end = "\n" if done == total else "\r"
    print(f"{done:>8} of {total} draws per chain", end=end, file=sys.stderr)
