r"""Simulation-based calibration: rank tests of a whole posterior computation.

For theta from the prior e^{-k mu r} and labels from the likelihood e^{-k F} given
theta, theta is one more draw from the posterior: its rank among independent draws is
uniform (arXiv:1804.06788). The likelihood must be normalized: logistic loss, k = n.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample._streams import Seed, streams
from dpsample.diagnostics import laws, runs
from dpsample.diagnostics.ranks import Calibration, uniformity
from dpsample.energies import energies
from dpsample.losses import Linear
from dpsample.problem import Problem
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.choice import draws_exactly
from dpsample.samplers.couplings.replicates import run_all
from dpsample.samplers.sampler import Sampler
from dpsample.targets import Gibbs, as_rows

Array = NDArray[np.float64]

# Total variation of all prior draws together, where they are not exact.
PRIOR_ERROR = 1e-6
PILOT_DRAWS = 2000


def simulation_based_calibration(
    target: Gibbs,
    sampler: Sampler,
    *,
    num_replicates: int = 200,
    num_draws: int = 19,
    spacing: int | None = None,
    false_alarm: float = 1e-3,
    seed: Seed = 0,
    threads: int | None = None,
) -> Calibration:
    """Check a posterior computation on data sets simulated from its own prior.

    Parameters
    ----------
    target : Gibbs
        Logistic loss with k = n, and mu > 0 or a bounded domain: its features, domain
        and regularizer are used, its labels are simulated anew for each replicate.
    sampler : Sampler
        Draws from each posterior, started and warmed up as by `sample`.
    num_replicates : int
        Simulated data sets.
    num_draws : int
        Posterior draws that each parameter is ranked among.
    spacing : int, optional
        Steps from one of these to the next; by default what makes draws nearly
        independent in a pilot run on the target itself.
    false_alarm : float
        Probability that a correct computation fails, all names together.
    seed : int or SeedSequence, optional
        Gives the same ranks for any number of threads.
    threads : int, optional
        Number of threads; by default the number of processors.

    Returns
    -------
    Calibration
        Ranks with their tests, and ``plot``.

    Raises
    ------
    ValueError
        If the likelihood is not normalized, the prior cannot be drawn from, or an
        argument is malformed.

    Notes
    -----
    **Guarantee.** For independent posterior draws each rank is exactly uniform; the
    prior is drawn exactly or within 1e-6 in total variation. The level is approximate:
    draws of a chain are nearly independent, and the chi-square law is a limit.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(40, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=3.0))
    >>> target = dps.Gibbs(problem, k=40.0, mu=0.02)
    >>> report = dps.diagnostics.simulation_based_calibration(
    ...     target, dps.samplers.Exact(), num_replicates=100)
    >>> report.ok, report.ranks.shape
    (True, (100, 3))
    """
    _check_arguments(target, sampler)
    check.integer(2, num_replicates=num_replicates)
    check.integer(1, num_draws=num_draws)
    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    tuning, pilot, *rngs = streams(seed, num_replicates + 2)
    draw_prior = prior(target, num_replicates, tuning)
    if spacing is None:
        spacing = _spacing(target, sampler, pilot)
    check.integer(1, spacing=spacing)

    def rank(rng: np.random.Generator) -> NDArray[np.int64]:
        theta = draw_prior(rng)
        posterior = relabeled(target, theta, rng)
        draws = _spaced(sampler, posterior, rng, num_draws, spacing)
        return _ranks(posterior, theta, draws, rng)

    ranks = np.array(run_all(rank, rngs, threads))
    return Calibration(
        sampler=repr(sampler),
        names=(*laws.names(target), "energy"),
        ranks=ranks,
        num_draws=num_draws,
        p_values=np.array([uniformity(column, num_draws) for column in ranks.T]),
        false_alarm=float(false_alarm),
    )


def _check_arguments(target: Gibbs, sampler: Sampler) -> None:
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.instance(Sampler, sampler=sampler, remedy="Use dps.samplers.MALA(), say.")
    problem = target.problem
    if problem.loss.name != "logistic":
        remedy = "Other losses are no normalized log-likelihoods of labels."
        check.fail("target", "one with a logistic loss", problem.loss.name, remedy)
    if target.k != problem.num_records:
        check.fail(
            "k",
            f"the number of records, {problem.num_records}",
            target.k,
            "Only then is e^(-k F) the likelihood of the labels.",
        )


def prior(
    target: Gibbs, count: int, rng: np.random.Generator
) -> Callable[[np.random.Generator], Array]:
    """Draws from e^{-k mu r} on the domain, exact or of proved error for ``count``."""
    problem = target.problem
    flat = Problem(
        np.zeros((1, target.dim)),
        [0.0],
        loss=Linear(),
        domain=problem.domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    alone = Gibbs(flat, k=target.k, mu=target.mu, regularizer=target.regularizer)
    name = "exact draws" if draws_exactly(alone) else laws.choose(alone, "proximal")
    return laws.drawer(alone, name, PRIOR_ERROR / count, rng)


def relabeled(target: Gibbs, theta: Array, rng: np.random.Generator) -> Gibbs:
    """Posterior of labels that are drawn given theta: P(y) = 1 / (1 + e^(-y u))."""
    data = target.problem.data
    margins = as_rows(data) @ theta + (data.offset if data.offset.size else 0.0)
    # The difference of two Gumbel variables is logistic.
    noise = rng.logistic(size=len(margins))
    problem = copy.copy(target.problem)
    problem.data = data._replace(response=np.where(noise < margins, 1.0, -1.0))
    return Gibbs(problem, k=target.k, mu=target.mu, regularizer=target.regularizer)


def _spaced(
    sampler: Sampler,
    target: Gibbs,
    rng: np.random.Generator,
    num_draws: int,
    spacing: int,
) -> Array:
    """Draws after the warm-up, ``spacing`` steps apart."""
    prepared = sampler.prepare(target, rng.spawn(1)[0])
    state, runner = prepared.init(prepared.dispersed(rng)), prepared.runner()
    length = prepared.num_warmup + spacing * num_draws
    draws = np.empty((length, target.dim))
    runner(state, rng, draws, np.empty((length, NUM_STATS)))
    return draws[prepared.num_warmup + spacing - 1 :: spacing]


def _spacing(target: Gibbs, sampler: Sampler, rng: np.random.Generator) -> int:
    """Return the steps that make draws nearly independent, from one long chain."""
    if sampler.exactness == "iid":
        return 1
    draws = _spaced(sampler, target, rng, PILOT_DRAWS, 1)
    size = runs.smallest_ess(draws[None])
    return max(1, int(np.ceil(runs.SPACING * PILOT_DRAWS / max(size, 1.0))))


def _ranks(
    target: Gibbs, theta: Array, draws: Array, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rank of each coordinate and of the energy; ties are broken by chance."""
    both = np.vstack([theta, draws])
    values = np.column_stack([both, energies(target, both)])
    below = (values[1:] < values[0]).sum(axis=0)
    ties = (values[1:] == values[0]).sum(axis=0)
    return np.asarray(below + rng.integers(0, ties + 1))
