"""Unbiased estimates of moments, compared with exact values where they are known.

The mean over a chain is biased by its start. Two coupled chains that meet give an
estimate without this bias (`diagnostics.couplings.unbiased`), so that a difference from
the exact moment shows an error of the sampler and not a short run.

`couplings.unbiased_moments` has the estimates. This file chooses lag and burn-in for
them, and compares them at one level for all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.renamed import warn_renamed
from dpsample.core.streams import Seed, seed_sequence
from dpsample.diagnostics import couplings, laws
from dpsample.diagnostics.couplings.meeting import check_counts
from dpsample.diagnostics.couplings.unbiased import NAMED, Function
from dpsample.diagnostics.mixing import pilot_lag, prepare, words_for
from dpsample.running.progress import with_line
from dpsample.samplers.chain import Prepared
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs


@dataclass(frozen=True, kw_only=True, eq=False)
class MomentCheck:
    """Unbiased estimates, and the exact values where they are known.

    Attributes
    ----------
    moments : UnbiasedMoments
        Estimates, standard errors and the replicates themselves.
    sampler, reference : str
        The sampler whose chains were coupled, and the source of the exact values.
    exact : tuple of (array or None)
        Exact moments, one array per function.
    z_scores : tuple of array
        (estimate - exact) / standard error; NaN where the exact value is not known.
    limit : float
        Critical z-score, beyond which an estimate is rejected.
    false_alarm : float
        Probability that a correct coupling fails, all estimates together.
    """

    moments: couplings.UnbiasedMoments
    sampler: str
    reference: str
    exact: tuple[Array | None, ...]
    z_scores: tuple[Array, ...]
    limit: float
    false_alarm: float

    @property
    def found(self) -> couplings.UnbiasedMoments:
        """The former name of ``moments``, which goes with the next version."""
        warn_renamed("found", "moments", stacklevel=2)
        return self.moments

    @property
    def ok(self) -> bool:
        """Whether no estimate differs from its exact value."""
        return not any((np.abs(z) > self.limit).any() for z in self.z_scores)

    def __repr__(self) -> str:
        """Return a table of estimates and exact values, and the verdict."""
        unbiased, lines = self.moments, []
        for i, name in enumerate(unbiased.names):
            exact = self.exact[i]
            errors = unbiased.standard_errors[i]
            rows = zip(np.ravel(unbiased.estimates[i]), np.ravel(errors), strict=True)
            for j, (estimate, error) in enumerate(rows):
                line = f"  {name}[{j}]: {estimate:.4g} +- {error:.2g}"
                if exact is not None:
                    z = np.ravel(self.z_scores[i])[j]
                    line += f", exact {np.ravel(exact)[j]:.4g}, z {z:+.2f}"
                    line += "  DIFFERS" if abs(z) > self.limit else ""
                lines.append(line)
        verdict = "no difference seen" if self.ok else "NOT the target's moments"
        if all(exact is None for exact in self.exact):
            verdict = "no exact value to compare with"
        return "\n".join(
            [
                f"unbiased moments by couplings of {self.sampler}",
                f"({len(unbiased.times)} replicates; exact values: {self.reference})",
                *lines,
                f"{verdict}; correct kernels fail with probability about "
                f"{self.false_alarm:g}.",
                "No bias from the start or the burn-in, if meeting times have light "
                "tails. An error",
                f"below {self.limit:.2g} standard errors stays unseen. For study: not "
                "a privacy proof.",
            ]
        )


@with_line
def unbiased_moments(
    target: Gibbs,
    sampler: Sampler | Prepared,
    *,
    moments: Sequence[str | Function] = ("theta", "theta_squared"),
    lag: int | None = None,
    burn_in: int | None = None,
    num_draws: int | None = None,
    replicates: int = 500,
    false_alarm: float = 1e-3,
    seed: Seed = 0,
    max_steps: int = 10_000,
    init: ArrayLike | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> MomentCheck:
    """Estimate moments without burn-in bias and compare them with exact values.

    Parameters
    ----------
    target : Gibbs
        The target.
    sampler : Sampler or Prepared
        One that has a coupling, as in `tv_bound`.
    moments : sequence of {"theta", "theta_squared"} or callable
        Functions. A callable maps draws of shape (count, dim) to an array whose first
        axis is ``count``.
    lag, burn_in, num_draws : int, optional
        As in `diagnostics.couplings.unbiased_moments`. By default the lag is that of
        `tv_bound`, the burn-in is one lag, and the draws of five lags are averaged.
    replicates : int
        Independent pairs of chains.
    false_alarm : float
        Probability that correct kernels fail, all comparisons together.
    seed : int or SeedSequence, optional
        A seed gives the same estimates for any number of threads.
    max_steps, init, threads
        As in `tv_bound`.
    progress : bool
        Show the seconds so far in a terminal or notebook, until the end.

    Returns
    -------
    MomentCheck
        Estimates, and z-scores where the exact value is known: named moments of normal
        and truncated normal targets, and any function in dimension 1 and 2.

    Raises
    ------
    ValueError
        If the sampler has no coupling, a pair does not meet, or an argument is
        malformed.

    Notes
    -----
    **Guarantee.** Each replicate has the exact moment as its expectation. The level is
    that of a t-test.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [0.5, 0.0], loss=dps.losses.Linear(),
    ...                       domain=dps.domains.WholeSpace(), row_bound=1.0,
    ...                       response_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)  # N(2.5, 1)
    >>> moments = dps.diagnostics.unbiased_moments(target, dps.samplers.MALA())
    >>> moments.ok, [value.round(12).tolist() for value in moments.exact]
    (True, [[2.5], [7.25]])
    """
    del progress  # `with_line` shows the line
    from scipy.stats import t

    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    check.integer(1, max_steps=max_steps)
    if lag is not None:
        check.integer(1, lag=lag)
    if burn_in is not None:
        check.integer(0, burn_in=burn_in)
    if num_draws is not None:
        check.integer(1, num_draws=num_draws)
    check_counts(replicates, threads)
    # Tuning, pilot pairs and the pairs that count have streams of their own.
    tuning, pilot, main = seed_sequence(seed).spawn(3)
    prepared = prepare(sampler, target, tuning)
    options: dict[str, Any] = {"init": init, "threads": threads, "progress": False}
    if lag is None:
        lag = pilot_lag(prepared, target, pilot, max_steps=max_steps, **options)
    # A replicate averages 5 lags of draws by default, so that the burn-in of one lag is
    # a small part of the work.
    unbiased = couplings.unbiased_moments(
        prepared,
        target,
        moments=moments,
        lag=lag,
        burn_in=lag if burn_in is None else burn_in,
        num_draws=5 * lag if num_draws is None else num_draws,
        replicates=replicates,
        seed=main,
        max_steps=lag + max_steps,
        **options,
    )
    reference, exact = _exact(target, moments)
    rows = zip(unbiased.estimates, unbiased.standard_errors, exact, strict=True)
    # The limit is for all estimates together, by the union bound.
    number = sum(np.size(value) for value in exact if value is not None)
    return MomentCheck(
        moments=unbiased,
        sampler=words_for(sampler, "sampler"),
        reference=reference,
        exact=exact,
        z_scores=tuple(
            np.full(np.shape(estimate), np.nan)
            if exact_value is None
            else np.asarray((estimate - exact_value) / error)
            for estimate, error, exact_value in rows
        ),
        # A two-sided limit of Student's distribution.
        limit=float(t.isf(0.5 * false_alarm / max(1, number), replicates - 1)),
        false_alarm=float(false_alarm),
    )


def _exact(
    target: Gibbs, moments: Sequence[str | Function]
) -> tuple[str, tuple[Array | None, ...]]:
    """Return the source of exact moments, and the moments."""
    form = laws.closed_form(target)
    if form is not None and not any(map(callable, moments)):
        values: dict[Any, Array] = {
            "theta": form.mean,
            # E theta^2 = Var theta + (E theta)^2.
            "theta_squared": form.variance + form.mean**2,
        }
        return "closed form", tuple(values[name] for name in moments)
    if target.domain.affine_dim(target.dim) in (1, 2):
        grid = laws.grid(target)
        functions: list[Callable[[Array], Any]] = [
            m if callable(m) else NAMED[m] for m in moments
        ]
        return "quadrature", tuple(grid.mean(function) for function in functions)
    return "not known", tuple(None for _ in moments)
