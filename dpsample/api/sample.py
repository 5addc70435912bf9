"""The function for studies: many draws from a target, none of them releasable.

The target has the density e^{-k (F + mu r)} on a convex domain. F is the mean loss of
the records or a function of the user, r a regularizer of weight mu, and k an inverse
temperature.

Ctrl-C is collected in ``interrupts``, a list of its times that is true once there is
one. While ``interrupts.is_raised`` is set, where nothing would be lost, it raises a
`KeyboardInterrupt` instead.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check as checks
from dpsample.core import files, pauses
from dpsample.core.arithmetic import arithmetic
from dpsample.core.arrays import Array, Ints
from dpsample.core.renamed import text_with_former_names
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.core.user_functions import recorded_errors
from dpsample.problem.storage import MemoryStorage
from dpsample.running import chains
from dpsample.running import draws as packing
from dpsample.running import progress as screen
from dpsample.running.chains import TimeLimit
from dpsample.running.checkpoint import Progress, identity_of
from dpsample.running.convergence import (
    Convergence,
    RunFacts,
    TrialRun,
    groups_of,
    superchains,
)
from dpsample.samplers import Sampler, chain
from dpsample.samplers.chain import NUM_STATS, Prepared, Settings
from dpsample.samplers.choice import SamplerChoice, choose
from dpsample.samplers.errors import SamplingError
from dpsample.samplers.modes import draw_start_at, find_modes
from dpsample.samplers.proximal.proximal import PreparedProximal, start_bound
from dpsample.targets.density import Density
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import GibbsTarget, require_target
from dpsample.targets.reduced import (
    ReducedTarget,
    has_equalities,
    reduce,
    reduction_obstacle,
)

if TYPE_CHECKING:
    from xarray import DataTree

LIMIT_REMEDY = (
    "Give seconds from the call, choice, warm-up and compilation included (`dpsample "
    "warm` compiles ahead)."
)


# The first call says that it compiles for about 10 s. BLAS has one thread, because the
# number of threads changes the last bits. NumPy scalars become Python numbers. Errors
# of functions of the user are recorded, so that a message can quote them.
@screen.compiles_first(seconds=10.0)
@pauses.single_threaded_blas()
@checks.unwrap_numpy
@recorded_errors.while_called
def sample(
    target: GibbsTarget,
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
    check: bool = True,
    max_seconds: float | None = None,
    keep_warmup: bool = False,
) -> DataTree:
    r"""Draw many times from a target. Not releasable.

    Parameters
    ----------
    target : Gibbs or Density
        The density :math:`e^{-k(F + \mu r)}` on its domain, with the mean loss F, or a
        function of yours, and the regularizer r.
    sampler : "auto" or Sampler
        Any sampler of `dpsample.samplers`. "auto" chooses one by dimension, number of
        records, smoothness and domain, and gives the reason.
    num_draws : int
        Draws per chain. With ``target_ess``, draws of the trial run's first round.
    num_warmup : int, optional
        Draws that are discarded first. The default is the sampler's own number. The
        step size and the shape of proposals are fixed before, by a pilot run on a
        stream of its own.
    num_chains : int
        Number of chains.
    seed : int or SeedSequence, optional
        Gives the same draws for any number of threads, bit for bit with the same
        ``attrs["blas"]`` and ``attrs["processor"]``. None takes fresh entropy.
    threads : int, optional
        Number of threads. The default is the number of processors.
    progress : bool
        Show one live line per chain in a terminal or notebook, until the end.
    target_ess : float, optional
        Bulk effective sample size to aim at for every coefficient, and for its squared
        deviation from the mean, for all chains together. A trial run, which is
        discarded, fixes the number of draws, at most 1000 times ``num_draws``. A
        warning reports if they turn out to be too few.
    init : array of shape (dim,) or (num_chains, dim), optional
        Starts of the chains. By default they are dispersed about the mode. 128 chains
        or more start from 8 points, so that each point has a *superchain*.
    checkpoint : path, optional
        File from which an interrupted run goes on, bit for bit.
    check : bool
        Warn if R-hat is above 1.01 or the effective sample size below 400 for a
        coefficient or its squared deviation from the mean. The limits for short runs
        allow deviations that independent draws show as well. 128 chains or more of
        fewer than 100 draws are judged by nested R-hat, which compares superchains.
    max_seconds : float, optional
        Time after which no more draws are made, in seconds from the call. It includes
        the choice of a sampler, its warm-up and compilation, and not the work on the
        draws. With ``target_ess`` the trial run has half of the time that is left for
        draws. The draws of every chain until then are returned with a warning. A
        ``checkpoint`` goes on from them.
    keep_warmup : bool
        Return the draws that are discarded, too, in groups of their own. A
        ``checkpoint`` then has them as well.

    Returns
    -------
    xarray.DataTree
        ``posterior["theta"]`` has the dimensions (chain, draw, coefficient).
        ``sample_stats`` has numbers of each draw under the names of ArviZ's schema:
        ``lp``, the log density up to a constant, the acceptance rate, numbers of
        values, gradients and evaluated records, the step size if there is one, and for
        `BilliardHMC` ``energy``, the Hamiltonian, ``n_steps`` and ``diverging``. There
        is ``constant_data``, and on request ``warmup_posterior`` and
        ``warmup_sample_stats``. In ``attrs``, ``releasable`` is false, ``converged``
        says whether ``r_hat`` and ``ess`` are good enough, and
        ``num_constraint_violations`` counts draws outside of the domain.

        Ctrl-C returns the draws that every chain has made, at once, also while they are
        judged. They have no verdict, which `diagnostics.check` gives. After
        ``max_seconds`` they have one, and ``is_out_of_time`` is true. Some samplers do
        not compute ``lp``. It is added at the end, unless this takes more than 5e8
        losses of records, some seconds of work. Then it is NaN.

    Raises
    ------
    ValueError
        If an argument is malformed, a start is outside the domain, or the sampler does
        not support the target.
    SamplingError
        If a loss raises or returns NaN, or ``max_seconds`` ends before the first draw.

    Notes
    -----
    **Guarantee.** ``attrs["exactness"]`` is "iid" if draws are exact and independent,
    and "invariant" if the target is exactly invariant under every step. "biased" draws
    have the bound that the sampler's docstring states. The distance of a chain from the
    target after its warm-up is proved for `Proximal` alone, also from ``init``.

    The choice of draws does not depend on their values. Lengths and thinning are fixed
    by runs that are discarded, and the run that follows is always returned. A resumed
    run repeats its trial run, which is not in the checkpoint.

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
    options = _Options(
        target=target,
        sampler=sampler,
        num_draws=num_draws,
        num_warmup=num_warmup,
        num_chains=num_chains,
        threads=threads,
        shows_progress=progress,
        target_ess=target_ess,
        checkpoint=checkpoint,
        is_checked=check,
        max_seconds=max_seconds,
        keeps_warmup=keep_warmup,
        limit=TimeLimit(max_seconds),
        begin=time.perf_counter(),
    )
    plan = _plan(options, _given_starts(target, init, num_chains), seed_sequence(seed))
    # Loaded while chains run: neither they nor a Ctrl-C should wait for half a second.
    libraries = None if "xarray" in sys.modules else Thread(target=_load_libraries)
    if libraries is not None:
        libraries.start()
    with pauses.hold_interrupts() as interrupts:  # see the module's docstring
        runs = _run(plan, interrupts)
        results = _judge(plan, runs, interrupts, libraries)
        tree = _pack(plan, runs, results)
        if interrupts:  # perhaps just now
            tree.attrs["is_interrupted"] = 1
    return tree if plan.groups is None else _with_superchains(tree, plan.groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Options:
    """Checked arguments of `sample`, and the time of its call."""

    target: GibbsTarget
    sampler: object
    num_draws: int
    num_warmup: int | None
    num_chains: int
    threads: int | None
    shows_progress: bool
    target_ess: float | None
    checkpoint: str | os.PathLike[str] | None
    is_checked: bool
    max_seconds: float | None
    keeps_warmup: bool
    limit: TimeLimit
    begin: float  # `time.perf_counter` at the call

    def __post_init__(self) -> None:
        """Check what is used only after the compiler's half a minute."""
        target, num_draws, num_chains = self.target, self.num_draws, self.num_chains
        require_target(target)
        checks.integer(1, num_draws=num_draws, num_chains=num_chains)
        checks.array_sides(num_draws=num_draws, num_chains=num_chains, dim=target.dim)
        checks.instance(bool, progress=self.shows_progress, check=self.is_checked)
        checks.instance(bool, keep_warmup=self.keeps_warmup)
        if self.num_warmup is not None:
            checks.integer(0, num_warmup=self.num_warmup)
        if self.threads is not None:
            checks.integer(1, threads=self.threads)
        if self.target_ess is not None:
            checks.open_interval(0.0, checks.MAX_LENGTH, target_ess=self.target_ess)
        if self.checkpoint is not None:
            path = checks.path("checkpoint", self.checkpoint)
            files.check_output("checkpoint", path)
        if self.max_seconds is not None:
            checks.positive(max_seconds=self.max_seconds, remedy=LIMIT_REMEDY)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plan:
    """All that is fixed before the first draw of a chain.

    The chains run on the ``inner`` target. It is the caller's, or ``reduced.target`` in
    other coordinates, see `_reduce_if_needed`.
    """

    options: _Options
    inner: GibbsTarget
    reduced: ReducedTarget | None
    choice: SamplerChoice  # method, reason and prepared chain
    num_warmup: int
    given_starts: list[Array]  # one for each chain if the caller gave them, or empty
    groups: Ints | None  # superchain of each chain, None if there are few chains
    root: np.random.SeedSequence  # the seed of the call
    chain_streams: list[np.random.Generator]  # one for each chain, as the next
    trial_streams: list[np.random.Generator]

    @property
    def sampler_name(self) -> str:
        """Sampler with its options, as text."""
        return repr(self.choice.sampler)

    def starts(self, streams: list[np.random.Generator]) -> list[Array]:
        """Return the starts of all chains, dispersed ones drawn from the streams."""
        prepared = self.choice.prepared
        if self.given_starts:
            return self.given_starts
        return _starts(self.inner, prepared, streams, self.groups)

    def identity(self, starts: list[Array]) -> str:
        """Return the identity of a checkpoint, for which all records are read."""
        method, _, prepared = self.choice
        numbers = (*prepared.numbers(), *starts, *self.root.generate_state(4))
        # Checkpoints of an earlier version hold a hash of the former names.
        name = text_with_former_names(type(method), repr(method))
        return identity_of(name, *numbers)

    def select_free(self, draws: Array) -> Array:
        """Return the coefficients that the domain leaves free, the last axis of draws.

        Their effective size counts. A coefficient that equalities fix has none.
        """
        if self.reduced is None:
            return draws
        # The basis (dim, rank) maps free coordinates to coefficients up to a constant,
        # which no effective size depends on. The rows are of coefficients that vary.
        return draws @ self.reduced.basis[self.reduced.is_free].T

    def lift(self, draws: Array) -> Array:
        """Return draws in the coordinates of the caller."""
        return draws if self.reduced is None else self.reduced.lift(draws)


def _plan(
    options: _Options, given_starts: list[Array], root: np.random.SeedSequence
) -> _Plan:
    """Choose the sampler, and tune it on a stream of its own."""
    target, num_chains = options.target, options.num_chains
    reduced = _reduce_if_needed(target)
    inner = target if reduced is None else reduced.target
    if reduced is not None:
        # Rounding errors of the change of coordinates may leave the domain.
        given_starts = [
            inner.domain.project(v) for v in map(reduced.drop, given_starts)
        ]
    # Streams do not depend on each other's use. So neither the pilot run nor the trial
    # run changes a draw of the chains.
    pilot_stream, *others = streams(root, 2 * num_chains + 1)
    with _until(options.limit, options.max_seconds):
        method, reason, prepared = _choose(inner, options.sampler, pilot_stream)
    if given_starts:
        prepared = _with_bounds_from_starts(inner, prepared, given_starts)
    num_warmup = options.num_warmup
    return _Plan(
        options=options,
        inner=inner,
        reduced=reduced,
        choice=SamplerChoice(method, reason, prepared),
        num_warmup=prepared.num_warmup if num_warmup is None else num_warmup,
        given_starts=given_starts,
        groups=groups_of(given_starts) if given_starts else superchains(num_chains),
        root=root,
        chain_streams=others[:num_chains],
        trial_streams=others[num_chains:],
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Runs:
    """Chains that are returned, and the trial run that fixed their length."""

    chains: chains.Chains
    trial: TrialRun | None
    num_seconds_before: float  # from the call to the first draw of the warm-up


def _run(plan: _Plan, interrupts: pauses.Interrupts) -> _Runs:
    """Run the chains, after a trial run if an effective size is the target.

    A Ctrl-C during the trial run returns its draws.
    """
    options, (method, reason, _) = plan.options, plan.choice
    num_draws, title = options.num_draws, f"{method!r}: {reason}"
    if options.target_ess is None:
        run, seconds = _run_chains(
            plan, interrupts, title, plan.chain_streams, num_draws, is_returned=True
        )
        trial = None
    else:
        trial = TrialRun(options.target_ess, num_draws)
        # The other half is for the chains that are returned. ``extend`` gets the draws
        # of all chains after each round, and returns the number of draws to go on to.
        # The run ends when it has so many.
        half = options.limit.halfway()
        run, seconds = _run_chains(
            plan,
            interrupts,
            f"{method!r}: how many draws?",
            plan.trial_streams,
            num_draws,
            extend=lambda draws: trial(plan.select_free(draws)),
            limit=half,
        )
        # If the time ended the trial run, its present draws fix the length.
        if half.is_over():
            trial.cut(plan.select_free(run.draws))
        num_draws = trial.length
        if interrupts:
            return _Runs(chains=run, trial=trial, num_seconds_before=seconds)
        run, seconds = _run_chains(
            plan,
            interrupts,
            title,
            plan.chain_streams,
            num_draws,
            # No more than these are drawn. With ``extend`` a checkpoint of a longer run
            # is accepted, too.
            extend=lambda _: num_draws,
            is_returned=True,
        )
    if run.is_out_of_time:
        _report_limit(plan, run, num_draws)
    return _Runs(chains=run, trial=trial, num_seconds_before=seconds)


def _run_chains(
    plan: _Plan,
    interrupts: pauses.Interrupts,
    title: str,
    streams: list[np.random.Generator],
    num_draws: int,
    *,
    extend: Callable[[Array], int] | None = None,
    limit: TimeLimit | None = None,
    is_returned: bool = False,
) -> tuple[chains.Chains, float]:
    """Run all chains on their streams. Return them, and the seconds before.

    ``extend`` returns the number of draws per chain to go on to, from the draws so far.
    Without it there are ``num_draws``. A run that ``is_returned`` has the checkpoint,
    and keeps its warm-up on request.
    """
    options, prepared = plan.options, plan.choice.prepared
    # Without a draw there is nothing to keep, so a Ctrl-C raises.
    interrupts.is_raised = True
    with _until(options.limit, options.max_seconds):
        starts = plan.starts(streams)
    checkpoint = options.checkpoint if is_returned else None
    identity = "" if checkpoint is None else plan.identity(starts)
    display = _display(options.shows_progress, title, plan.num_warmup)
    with display as on_progress:
        interrupts.is_raised = False  # from now on Ctrl-C keeps what was drawn
        seconds = time.perf_counter() - options.begin
        run = chains.run(
            prepared,
            starts,
            streams,
            num_draws=num_draws,
            num_warmup=plan.num_warmup,
            threads=options.threads,
            checkpoint=checkpoint,
            identity=identity,
            extend=extend,
            keeps_warmup=options.keeps_warmup and is_returned,
            on_progress=on_progress,
            interrupts=interrupts,
            limit=options.limit if limit is None else limit,
        )
    return run, seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class _Results:
    """Draws in the caller's coordinates, and what was found out about them."""

    draws: Array
    warmup_draws: Array
    is_interrupted: bool
    attributes: dict[str, float | bool]


def _judge(
    plan: _Plan, runs: _Runs, interrupts: pauses.Interrupts, libraries: Thread | None
) -> _Results:
    """Compute log densities, look for draws outside, and judge convergence.

    That takes seconds for a million draws. Ctrl-C ends it, and the draws are returned
    nevertheless.
    """
    options, run, trial = plan.options, runs.chains, runs.trial
    target, threads = options.target, options.threads
    method, _, prepared = plan.choice
    facts = _facts(plan.inner, method, prepared, options.sampler)
    draws, warmup_draws = plan.lift(run.draws), plan.lift(run.warmup_draws)
    attributes: dict[str, float | bool] = {}
    sizes: dict[str, float | bool] = {}
    if trial is not None:
        sizes["target_ess"] = trial.target_size
    try:
        # The draws are safe. So a Ctrl-C may leave this block at any point.
        interrupts.is_raised = True
        is_interrupted = bool(interrupts)
        if libraries is not None:
            libraries.join()
        if not is_interrupted:
            packing.fill_energies(plan.inner, run.draws, run.stats, threads)
            packing.fill_energies(
                plan.inner, run.warmup_draws, run.warmup_stats, threads
            )
            num_outside = sum(
                packing.count_violations(target, part, threads)
                for part in (draws, warmup_draws)
            )
            attributes["num_constraint_violations"] = num_outside
            _warn_of_violations(target, num_outside)
        if options.is_checked and not is_interrupted:
            verdict = Convergence.judge(draws, target.feature_names, plan.groups)
            attributes |= verdict.attributes()
            facts.warn_of_tails(plan.sampler_name)
            names = chain.own_statistics(prepared)
            if "num_divergences" in names:
                column = NUM_STATS + names.index("num_divergences")
                count = int(run.stats[..., column].sum())
                facts.warn_of_divergences(count, run.stats[..., 0].size)
            # A nested R-hat above 1 means that chains still depend on their starts.
            # Then the first remedy is a longer warm-up.
            if not facts.is_independent:
                verdict.warn(facts.remedy(forgets_starts=not verdict.is_nested))
        if trial is not None and not is_interrupted:
            free_draws, has_warned = plan.select_free(run.draws), run.is_out_of_time
            sizes |= trial.report(free_draws, facts, has_warned=has_warned)
    except KeyboardInterrupt:
        is_interrupted = True
    interrupts.is_raised = False
    return _Results(
        draws=draws,
        warmup_draws=warmup_draws,
        is_interrupted=is_interrupted,
        attributes=attributes | sizes,
    )


def _pack(plan: _Plan, runs: _Runs, results: _Results) -> DataTree:
    """Return the tree of the draws, with all that is known of the run."""
    options, run, root = plan.options, runs.chains, plan.root
    target, (method, reason, prepared) = options.target, plan.choice

    def columns(stats: Array) -> packing.Statistics:
        return packing.name_statistics(
            stats,
            step_size=prepared.settings.get("step_size"),
            own_statistics=chain.own_statistics(prepared),
            energy_shift=0.0 if plan.reduced is None else plan.reduced.shift,
        )

    warmup = None
    if options.keeps_warmup:
        warmup = results.warmup_draws, columns(run.warmup_stats)
    return packing.to_datatree(
        results.draws,
        columns(run.stats),
        coefficients=target.feature_names,
        constant_data={"k": np.array(target.k), "mu": np.array(target.mu)},
        warmup=warmup,
        seconds={
            "sampling_time": run.draw_seconds,
            "warmup_time": runs.num_seconds_before + run.warmup_seconds,
        },
        attributes={
            "sampler": repr(method),
            "sampler_reason": reason,
            "exactness": method.exactness,
            "is_reversible": method.is_reversible,
            "target": repr(target),
            "seed": f"{root.entropy}"
            + (f", spawn_key={root.spawn_key}" if root.spawn_key else ""),
            "num_warmup": plan.num_warmup,
            "is_interrupted": results.is_interrupted,
            **_limit_attributes(options.max_seconds, run),
            **arithmetic(),
            **_settings_of_run(prepared, plan.num_warmup, results.draws.shape[1]),
            **results.attributes,
        },
    )


def _warn_of_violations(target: GibbsTarget, num_outside: int) -> None:
    """Warn of draws outside the domain, where no sampler should put them."""
    if num_outside:
        warnings.warn(
            f"{num_outside} draws are outside of the domain {target.domain!r}, up to "
            "rounding. Please report this with the target: the draws are wrong.",
            RuntimeWarning,
            stacklevel=checks.user_stack_level(),
        )


def _with_bounds_from_starts(
    target: GibbsTarget, prepared: Any, starts: list[Array]
) -> Any:
    """Return the chain with bounds that hold from the caller's starts.

    For `Proximal` the bound of the start's distance from the target is computed again.
    A bias bound of another sampler is removed, because it is for the sampler's start.
    """
    if isinstance(prepared, PreparedProximal):
        metric = prepared.metric
        gibbs: Any = target
        bound = max(start_bound(gibbs, metric, start) for start in starts)
        return dataclasses.replace(prepared, start_bound=bound)
    if "bias_bound" in prepared.settings:
        rest = dict(prepared.settings)
        del rest["bias_bound"]
        return dataclasses.replace(prepared, settings=rest)
    return prepared


def _settings_of_run(prepared: Any, warmup: int, num_draws: int) -> Settings:
    """Return the chain's settings, with a bias bound that holds for each draw, or none.

    The bound of `RandomizedSeries` is proved for a number of certified steps. Nothing
    is proved of fewer, so the bound is removed if the first draw has fewer. Each
    further step adds ``overshoot_bound``, the bias of one conditional draw. The last
    draw has the most.
    """
    settings: dict[str, Any] = dict(prepared.settings)
    if "bias_bound" in settings:
        certified, per_draw = settings["num_certified_steps"], prepared.num_steps
        further = max((warmup + num_draws) * per_draw - certified, 0)
        settings["bias_bound"] += further * settings["overshoot_bound"]
        if (warmup + 1) * per_draw < certified:
            del settings["bias_bound"]
    return settings


def _load_libraries() -> None:
    """Import what packs the draws."""
    import xarray  # noqa: F401


def _reduce_if_needed(target: GibbsTarget) -> ReducedTarget | None:
    """Return the target in the coordinates in which chains run, None for its own.

    A domain with equalities is flat, and chains need its free coordinates. A large
    polytope has coordinates in which its facets are at similar distances. They are used
    where it is possible and there is no regularizer.
    """
    if not target.domain.has_round_coordinates:
        return None
    reason, is_flat = reduction_obstacle(target), has_equalities(target)
    # A regularizer measures distances in the domain's own coordinates.
    if not is_flat and (reason or target.mu > 0.0):
        return None
    # In free coordinates the target keeps its form only with a quadratic regularizer
    # and a loss of the margin.
    if reason:
        checks.fail("target", "quadratic and of margins", target, reason)
    return reduce(target)


def _choose(
    target: GibbsTarget, sampler: object, rng: np.random.Generator
) -> SamplerChoice:
    """Return the sampler, the reason for it and its chain, after checks."""
    if isinstance(sampler, str) and sampler == "auto":
        return choose(target)
    if isinstance(sampler, type) and issubclass(sampler, Sampler):
        name = sampler.__name__
        remedy = f"Call it: sampler={name}()."
        checks.fail("sampler", "a sampler, not its class", f"the class {name}", remedy)
    if not isinstance(sampler, Sampler):
        remedy = 'Use "auto", or a sampler such as dps.samplers.MALA().'
        checks.fail("sampler", "a Sampler", checks.describe(sampler), remedy)
    # A Density has no records. Samplers that read single records would fail later, with
    # an error that does not say so.
    if target.num_records == 0:
        sampler.require(target)
    return SamplerChoice(sampler, "chosen by the caller", sampler.prepare(target, rng))


def _facts(
    target: GibbsTarget, sampler_used: Sampler, prepared: Prepared, sampler: object
) -> RunFacts:
    """Return the facts that decide which remedies make sense.

    Samplers set two keys of the settings. `BilliardHMC` sets ``has_settled``, whether
    its warm-up has found a mass matrix. `LaplaceIndependence` and
    `FactorizedMetropolis` set ``reaches_tails``, whether they propose far enough out.
    """
    return RunFacts(
        is_independent=sampler_used.exactness == "iid",
        is_automatic=isinstance(sampler, str),
        has_loss=_has_loss(target),
        is_own=isinstance(target, Density),
        is_bounded=not target.domain.is_whole_space,
        has_settled=bool(prepared.settings.get("has_settled", True)),
        num_modes=len(find_modes(target)),
        reaches_tails=bool(prepared.settings.get("reaches_tails", True)),
    )


def _has_loss(target: GibbsTarget) -> bool:
    """Return whether the energy depends on the records: a feature is not zero."""
    # What a user's function depends on is not known.
    if not isinstance(target, Gibbs) or not isinstance(target.storage, MemoryStorage):
        return True
    # The first row usually decides, without a pass over all records.
    dense, values = target.data.dense, target.data.values
    return bool(dense[:1].any() or dense.any() or values.any())


class _OutOfTime(BaseException):
    """The time limit came while nothing could be drawn yet.

    As no `Exception`, it passes through code that handles failures of the user.
    """


@contextmanager
def _until(limit: TimeLimit, max_seconds: float | None) -> Iterator[None]:
    """Raise at the first pause after the time limit, because there is no draw yet."""

    def end_if_over() -> None:
        if limit.is_over():
            raise _OutOfTime

    try:
        with pauses.listening(end_if_over):
            yield
    except _OutOfTime:
        _fail_without_draws(max_seconds, "The sampler was still being prepared.")


def _fail_without_draws(max_seconds: float | None, evidence: str) -> NoReturn:
    """Raise the error of a time limit before the first draw."""
    raise SamplingError(
        f"max_seconds must be enough for the first draw, got {max_seconds:g}. "
        f"{evidence} {LIMIT_REMEDY}"
    )


def _report_limit(plan: _Plan, run: chains.Chains, num_draws: int) -> None:
    """Warn that the time limit has ended a run, or fail if it has no draws."""
    max_seconds, num_warmup = plan.options.max_seconds, plan.num_warmup
    has_checkpoint = plan.options.checkpoint is not None
    goes_on = "Call again with this checkpoint, which goes on bit for bit"
    count = run.draws.shape[1]
    if count == 0:
        evidence = (
            f"{run.num_discarded} of {num_warmup} draws of the warm-up were made."
        )
        advice = f" {goes_on}." if has_checkpoint and run.num_discarded else ""
        _fail_without_draws(max_seconds, evidence + advice)
    instead = "Use a larger max_seconds, or a checkpoint, from which a run goes on"
    warnings.warn(
        f"max_seconds={max_seconds:g} ended the run after {count} of {num_draws} draws "
        f"per chain. {goes_on if has_checkpoint else instead}.",
        RuntimeWarning,
        stacklevel=checks.user_stack_level(),
    )


def _limit_attributes(
    max_seconds: float | None, run: chains.Chains
) -> dict[str, float | bool]:
    """Return the attributes of draws that had a time limit."""
    if max_seconds is None:
        return {}
    return {"max_seconds": max_seconds, "is_out_of_time": run.is_out_of_time}


def _with_superchains(tree: DataTree, groups: Ints) -> DataTree:
    """Return the tree with the superchain of each chain, for nested R-hat."""
    posterior = tree.children["posterior"]
    dataset = posterior.to_dataset(inherit=False)
    posterior.dataset = dataset.assign_coords(superchain=("chain", groups))
    return tree


def _starts(
    target: GibbsTarget,
    prepared: Prepared,
    streams: list[np.random.Generator],
    groups: Ints | None,
) -> list[Array]:
    """Return dispersed starts, one for each chain or for each superchain.

    If the target has several modes, chains start at them in turn.
    """
    count = len(streams) if groups is None else int(groups.max()) + 1
    points = []
    for i, rng in enumerate(streams[:count]):
        point = draw_start_at(target, i, rng)
        points.append(prepared.draw_start(rng) if point is None else point)
    return points if groups is None else [points[group] for group in groups]


def _given_starts(
    target: GibbsTarget, init: ArrayLike | None, num_chains: int
) -> list[Array]:
    """Return the starts of chains that the caller chose, or an empty list."""
    if init is None:
        return []
    shape = (num_chains, target.dim)
    starts = checks.entries("init", init)
    if starts.ndim == 1:
        starts = np.tile(checks.array("init", init, shape=shape[1:]), (num_chains, 1))
    starts = checks.array("init", starts, shape=shape)
    for start in starts:
        if not target.domain.contains(start):
            checks.fail("init", "inside the domain", start, "Use domain.project(init).")
        if target.may_be_infinite and target.log_density(start) == -np.inf:
            got = checks.describe(start.tolist())
            checks.fail("init", "where the density is positive", got)
    return list(starts)


def _display(
    is_wanted: bool, title: str, num_warmup: int
) -> AbstractContextManager[Progress | None]:
    """Return a context that shows a line for each chain, or none."""
    if is_wanted and screen.is_shown():
        return screen.lines(title, num_warmup)
    return nullcontext()
