"""The verb for studies: many draws from a Gibbs target, none of them releasable."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arithmetic import arithmetic
from dpsample.core.arrays import Array
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.running import chains
from dpsample.running import progress as screen
from dpsample.running.checkpoint import identity_of
from dpsample.running.rounds import Rounds
from dpsample.samplers import Sampler
from dpsample.samplers.chain import ENERGY
from dpsample.samplers.choice import choose
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.reduced import (
    ReducedTarget,
    has_equalities,
    reduce,
    reduced_reason,
)
from dpsample.verbs import results

if TYPE_CHECKING:
    from xarray import DataTree


@chains.single_threaded_blas()
@check.plain
def sample(
    target: Gibbs,
    *,
    sampler: Sampler | Literal["auto"] = "auto",
    num_draws: int = 1000,
    num_warmup: int | None = None,
    num_chains: int = 4,
    seed: Seed = 0,
    threads: int | None = None,
    progress: bool = True,
    target_ess: float | None = None,
    init: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> DataTree:
    r"""Draw many times from a Gibbs target. Not releasable.

    Parameters
    ----------
    target : Gibbs
        The density :math:`e^{-k(F + \mu r)}` on its domain.
    sampler : "auto" or Sampler
        Any sampler of `dpsample.samplers`; "auto" chooses one by dimension, number of
        records, smoothness and domain, and says why.
    num_draws : int
        Draws per chain; with ``target_ess`` those of the first round.
    num_warmup : int, optional
        Draws discarded first; by default what the sampler thinks enough. The step size
        and shape of proposals are fixed before, by a pilot run on a stream of its own.
    num_chains : int
        Number of chains.
    seed : int or SeedSequence, optional
        Gives the same draws for any number of threads, bit for bit with the same
        ``attrs["blas"]`` and ``attrs["processor"]``; None for fresh entropy.
    threads : int, optional
        Number of threads; by default the number of processors.
    progress : bool
        Show one live line per chain in a terminal or notebook.
    target_ess : float, optional
        Draw in rounds until the bulk effective sample size of every coefficient, and of
        its squared deviation from the mean, is at least this for all chains together. A
        warning ends the run after 1000 times ``num_draws``.
    init : array of shape (dim,) or (num_chains, dim), optional
        Where chains start; by default dispersed about the mode.
    checkpoint : path, optional
        File from which an interrupted run goes on, bit for bit.

    Returns
    -------
    xarray.DataTree
        ``posterior["theta"]`` (chain, draw, coefficient); ``sample_stats`` per draw:
        energy, acceptance rate, numbers of values, gradients and evaluated records, and
        the step size if there is one; ``constant_data``; ``attrs``, in which
        ``releasable`` is false. After Ctrl-C, the draws that every chain has made. An
        energy is NaN if the sampler did without it and it would cost much.

    Raises
    ------
    ValueError
        If an argument is malformed, a start is outside the domain, or the sampler does
        not support the target.
    SamplingError
        If a loss raises or returns NaN.

    Notes
    -----
    **Guarantee.** ``attrs["exactness"]`` says what holds: "iid" draws are exact, under
    "invariant" the target is exactly invariant under every step, "biased" has the bound
    that the sampler's docstring states. How far a chain is from the target after its
    warm-up is proved for `Proximal` alone.

    Stopping by ``target_ess`` is decided on the draws, at numbers of draws that follow
    from them: any number of threads, and a resumed run, stop at the same draw. A rule
    that looks at draws favors runs that seem to mix well, an effect that is small when
    the size wanted is in the hundreds.

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
    check.sides(num_draws=num_draws, num_chains=num_chains, dim=target.dim)
    check.instance(bool, progress=progress)
    # Here, not only where they are used: between lies the compiler's half a minute.
    if num_warmup is not None:
        check.integer(0, num_warmup=num_warmup)
    if threads is not None:
        check.integer(1, threads=threads)
    if target_ess is not None:
        check.open_interval(0.0, check.LONGEST, target_ess=target_ess)
    if checkpoint is not None:
        check.path("checkpoint", checkpoint)
    import arviz_base  # noqa: F401 - after Ctrl-C nobody should wait for it

    given = _given_starts(target, init, num_chains)
    reduced = _reduced(target)
    inner = target if reduced is None else reduced.target
    if reduced is not None:
        given = [inner.problem.domain.project(v) for v in map(reduced.drop, given)]
    root = seed_sequence(seed)
    chosen, reason = _choose(inner, sampler)
    pilot_stream, *chain_streams = streams(root, num_chains + 1)
    prepared = chosen.prepare(inner, pilot_stream)
    starts = given or [prepared.dispersed(rng) for rng in chain_streams]
    warmup = prepared.num_warmup if num_warmup is None else num_warmup
    rounds = None if target_ess is None else Rounds(target_ess, num_draws)
    entropy = root.generate_state(4)
    with _display(progress, f"{chosen!r}: {reason}", warmup) as on_progress:
        run = chains.run(
            prepared,
            starts,
            chain_streams,
            num_draws=num_draws,
            num_warmup=warmup,
            threads=threads,
            checkpoint=checkpoint,
            identity=identity_of(repr(chosen), *prepared.numbers(), *starts, *entropy),
            extend=rounds,
            on_progress=on_progress,
        )
    if not run.is_interrupted:
        results.fill_energies(inner, run.draws, run.stats)
    if reduced is not None:
        run.stats[..., ENERGY] += reduced.shift
    return results.to_datatree(
        run.draws if reduced is None else reduced.lift(run.draws),
        results.named_stats(run.stats, step_size=prepared.settings.get("step_size")),
        coefficients=target.problem.feature_names,
        constant_data={"k": np.array(target.k), "mu": np.array(target.mu)},
        attributes={
            "sampler": repr(chosen),
            "sampler_reason": reason,
            "exactness": chosen.exactness,
            "is_reversible": chosen.is_reversible,
            "target": repr(target),
            "seed": str(root.entropy),
            "num_warmup": warmup,
            "is_interrupted": run.is_interrupted,
            **arithmetic(),
            **prepared.settings,
            **({} if rounds is None else rounds.report(run.is_interrupted)),
        },
    )


def _reduced(target: Gibbs) -> ReducedTarget | None:
    """Target in free coordinates, if the domain is a polytope with equalities."""
    if not has_equalities(target):
        return None
    reason = reduced_reason(target)
    if reason:
        check.fail("target", "quadratic and of margins", target, reason)
    return reduce(target)


def _choose(target: Gibbs, sampler: object) -> tuple[Sampler, str]:
    """Sampler and the reason for it, after a look at what was given."""
    if isinstance(sampler, str) and sampler == "auto":
        return choose(target)
    if isinstance(sampler, type) and issubclass(sampler, Sampler):
        name = sampler.__name__
        remedy = f"Call it: sampler={name}()."
        check.fail("sampler", "a sampler, not its class", f"the class {name}", remedy)
    if not isinstance(sampler, Sampler):
        remedy = 'Use "auto", or a sampler such as dps.samplers.MALA().'
        check.fail("sampler", "a Sampler", check.shown(sampler), remedy)
    return sampler, "chosen by the caller"


def _given_starts(
    target: Gibbs, init: ArrayLike | None, num_chains: int
) -> list[Array]:
    """Where the caller wants chains to start; empty if it does not say."""
    if init is None:
        return []
    shape = (num_chains, target.dim)
    starts = check.entries("init", init)
    if starts.ndim == 1:
        starts = np.tile(check.array("init", init, shape=shape[1:]), (num_chains, 1))
    starts = check.array("init", starts, shape=shape)
    for start in starts:
        if not target.problem.domain.contains(start):
            check.fail("init", "inside the domain", start, "Use domain.project(init).")
    return list(starts)


def _display(
    is_wanted: bool, title: str, num_warmup: int
) -> AbstractContextManager[chains.Progress | None]:
    if is_wanted and screen.is_shown():
        return screen.lines(title, num_warmup)
    return nullcontext()
