"""Summary of draws: a table of coefficients, batches of chains, and reports of checks.

`read` checks a DataTree once, and returns its arrays and names for all diagnostics.

A batch is a stretch of one chain of at least `BATCH_TIMES` correlation times. Means of
batches are treated as independent normal numbers, with Student's and Fisher's
distributions because they are few. So autocorrelated chains are not reported for being
autocorrelated.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Ints
from dpsample.core.markup import describe
from dpsample.numerics.r_hat_and_ess import (
    nested_r_hats,
    normal_scores,
    plain_sizes,
    sizes_of_means,
    tail_indicators,
    tail_sizes,
    verdicts,
)
from dpsample.running.convergence import are_many_and_short, sizes_of_starts

if TYPE_CHECKING:
    import pandas as pd
    from xarray import DataArray, DataTree

# Fewer draws in a chain have no effective sample size, because halves need two each.
MIN_DRAWS = 4
# Columns of the table about mixing, which are NaN for a constant coefficient.
MIXING = ("mcse_mean", "mcse_sd", "ess_bulk", "ess_tail", "ess_square", "r_hat")
# Effective sizes, and the errors that are computed from them.
SIZES = {"ess_bulk": "mcse_mean", "ess_square": "mcse_sd", "ess_tail": ""}
# Width of the lines of a report, in characters.
WIDTH = 84
# Last sentences of a report.
CAN = (
    "This can show that draws contradict one another or the target. It cannot show "
    "that no part of the target was missed, and says nothing about privacy: no "
    "diagnostic enters a certificate."
)

# Length of a batch in correlation times. Means of such batches have a correlation below
# 0.1. Longer ones would leave too few in chains of effective size 100. Simulated levels
# of tests are within a factor of 3 of the nominal ones.
BATCH_TIMES = 5.0


class ChainDraws(NamedTuple):
    """Draws, and facts about them that the sampler stored."""

    theta: Array  # (chain, draw, dim)
    names: tuple[str, ...]  # one per coefficient
    stats: dict[str, Array]  # (chain, draw) each; empty if there are none
    attributes: dict[str, Any]  # sampler, exactness, step size, seed, ...
    superchains: Ints | None = None  # (chain,): the same for chains of one start

    @property
    def energies(self) -> Array | None:
        """Energies V, minus the stored log densities, if there are any."""
        if "lp" in self.stats:
            return np.negative(self.stats["lp"])
        # A file of an earlier version has V under this name.
        return self.stats.get("energy")

    @property
    def groups(self) -> Ints | None:
        """Superchains by which chains are judged, if they are many and short."""
        return self.superchains if are_many_and_short(*self.theta.shape[:2]) else None


def chosen(coefficients: object, names: Sequence[str]) -> list[str]:
    """Return names of coefficients. Raise unless they are distinct and known."""
    if not (isinstance(coefficients, list | tuple) and coefficients):
        check.fail("coefficients", "a list of names", check.describe(coefficients))
    for name in coefficients:
        check.one_of(names, coefficients=name)
    if len(set(coefficients)) < len(coefficients):
        check.fail("coefficients", "distinct", coefficients)
    return list(coefficients)


def read(draws: DataTree) -> ChainDraws:
    """Return the chains of a DataTree as `sample` makes it.

    It needs ``posterior["theta"]`` of dims (chain, draw, coefficient), with finite
    entries. Each chain has at least `MIN_DRAWS` draws, or one if chains are many.
    """
    remedy = "Pass what dps.sample returned."
    try:
        theta = draws.children["posterior"].dataset["theta"]
        stats = draws.children.get("sample_stats")
    except (AttributeError, LookupError, TypeError, ValueError):
        check.fail("draws", 'a DataTree with posterior["theta"]', draws, remedy)
    if theta.dims[:2] != ("chain", "draw") or theta.ndim != 3:
        check.fail("draws", "of dims (chain, draw, coefficient)", theta.dims, remedy)
    values = check.array("draws", theta.values, shape=(None, None, None))
    fewest = 1 if are_many_and_short(*values.shape[:2]) else MIN_DRAWS
    if values.shape[1] < fewest:
        remedy = "Sample more: num_draws=1000, say."
        check.fail("draws", f"at least {MIN_DRAWS} per chain", values.shape[1], remedy)
    last = theta.coords.get(theta.dims[2])
    names = range(values.shape[2]) if last is None else last.values
    return ChainDraws(
        theta=values,
        names=tuple(str(name) for name in names),
        stats={}
        if stats is None
        else {str(n): np.asarray(v.values) for n, v in stats.data_vars.items()},
        attributes={str(name): value for name, value in draws.attrs.items()},
        superchains=superchains(theta),
    )


def superchains(theta: DataArray) -> Ints | None:
    """Return the superchain of each chain, or None if they are not known.

    They are in a coordinate. There must be two or more, of two chains or more each.
    """
    coordinate = theta.coords.get("superchain")
    if coordinate is None or coordinate.dims != ("chain",):
        return None
    _, groups, sizes = np.unique(
        coordinate.values, return_inverse=True, return_counts=True
    )
    return groups if len(sizes) > 1 and sizes.min() > 1 else None


def summary(draws: DataTree, *, ci_prob: float = 0.89) -> pd.DataFrame:
    """Return location, spread, Monte Carlo errors and effective sizes as a table.

    Effective sample sizes and R-hat are rank-normalized (arXiv:1903.08008), with
    ArviZ's numbers. R-hat compares halves of chains, or quarters of a single one.
    Many short chains, 128 or more of fewer than 100 draws each, have no
    autocorrelations to speak of. Their effective sizes and errors are those of the
    means of independent chains, and R-hat is nested (arXiv:2110.13017) if chains share
    starts, as `sample` makes them.

    Parameters
    ----------
    draws : DataTree
        What `sample` returned, of one chain or more.
    ci_prob : float
        Probability inside the equal-tailed interval, > 0 and < 1.

    Returns
    -------
    pandas.DataFrame
        One row per coefficient: ``mean``, ``sd``; ``eti89_lower`` and ``eti89_upper``,
        ends of the equal-tailed interval (89 for ``ci_prob=0.89``); ``mcse_mean`` and
        ``mcse_sd``, Monte Carlo standard errors; ``ess_bulk``, ``ess_tail`` and
        ``ess_square``, effective sample sizes of all chains together, the last of
        (theta - mean)^2; ``r_hat``; and, if records were counted,
        ``records_per_ess``: evaluations of single records after the warm-up per
        effective draw, where the smaller of ``ess_bulk`` and ``ess_square`` counts.
        A coefficient that never moved has NaN in all columns about mixing.

    Raises
    ------
    ValueError
        If the draws are not those of `sample`, or fewer than 4 per chain.

    Notes
    -----
    **Guarantee.** None about the distribution of the draws. Chains that all missed the
    same part of the target look perfect in this table. No number of it enters a
    certificate.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> draws = dps.sample(dps.Gibbs(problem, k=10.0, mu=0.1), num_draws=500, seed=1)
    >>> table = dps.diagnostics.summary(draws)
    >>> list(table.columns[:4]), len(table), bool(table["r_hat"].max() < 1.05)
    (['mean', 'sd', 'eti89_lower', 'eti89_upper'], 1, True)
    """
    import pandas as pd

    check.open_interval(0.0, 1.0, ci_prob=ci_prob)
    chains = read(draws)
    theta = chains.theta
    outside = 0.5 * (1.0 - ci_prob)
    ends = np.quantile(theta, [outside, 1.0 - outside], axis=(0, 1))
    interval = f"eti{100.0 * ci_prob:g}"
    columns = {
        "mean": theta.mean(axis=(0, 1)),
        "sd": theta.std(axis=(0, 1), ddof=1),
        f"{interval}_lower": ends[0],
        f"{interval}_upper": ends[1],
        **mixing(theta, chains.superchains),
    }
    records = chains.stats.get("num_records")
    if records is not None and np.sum(records) > 0:
        smallest = np.fmin(columns["ess_bulk"], columns["ess_square"])
        columns["records_per_ess"] = np.sum(records) / smallest
    return pd.DataFrame(columns, index=pd.Index(chains.names, name="coefficient"))


def mixing(theta: Array, superchains: Ints | None = None) -> dict[str, Array]:
    """Return Monte Carlo errors, effective sizes and R-hat of each coefficient.

    They are columns (dim,) of draws (chain, draw, dim), NaN where nothing moved.
    """
    # The formulas would call a constant a perfect sample.
    has_moved = np.ptp(theta, axis=(0, 1)) > 0.0
    varying = theta[:, :, has_moved]
    measures: dict[str, Any] = {}
    if varying.size:
        is_short = are_many_and_short(*theta.shape[:2])
        measures = (
            _of_chain_means(varying, superchains) if is_short else _of_chains(varying)
        )
        if is_short and superchains is not None:
            # If chains depend on their starts, they are worth no more than these.
            # Errors grow as effective sizes shrink.
            for size, error in SIZES.items():
                smaller = sizes_of_starts(
                    measures[size], measures["r_hat"], superchains
                )
                if error:
                    measures[error] *= np.sqrt(measures[size] / smaller)
                measures[size] = smaller
    columns = {}
    for name in MIXING:
        columns[name] = np.full(theta.shape[2], np.nan)
        columns[name][has_moved] = measures.get(name, np.nan)
    return columns


def _of_chains(draws: Array) -> dict[str, Array]:
    """Return errors, effective sizes and R-hat by autocorrelations.

    The error of a sample variance is that of the mean of the squares. The delta method
    turns it into the error of the standard deviation.
    """
    centered = draws - draws.mean(axis=(0, 1))
    second, fourth = (np.mean(centered**power, axis=(0, 1)) for power in (2, 4))
    r_hats, (bulk, square) = verdicts(draws)
    sizes = plain_sizes(draws)
    return {
        "mcse_mean": draws.std(axis=(0, 1), ddof=1) / np.sqrt(sizes),
        "mcse_sd": np.sqrt((fourth - second**2) / (4.0 * second * sizes)),
        "ess_bulk": bulk,
        "ess_tail": tail_sizes(draws),
        "ess_square": square,
        "r_hat": r_hats[0],
    }


def _of_chain_means(draws: Array, superchains: Ints | None) -> dict[str, Array]:
    """Return errors, effective sizes and R-hat by means of independent chains."""
    squares = (draws - draws.mean(axis=(0, 1))) ** 2

    def error(values: Array) -> Array:
        return np.asarray(
            values.mean(axis=1).std(axis=0, ddof=1) / math.sqrt(len(values))
        )

    return {
        "mcse_mean": error(draws),
        "mcse_sd": error(squares) / (2.0 * draws.std(axis=(0, 1), ddof=1)),
        "ess_bulk": sizes_of_means(normal_scores(draws)),
        "ess_tail": np.fmin(*map(sizes_of_means, tail_indicators(draws))),
        "ess_square": sizes_of_means(normal_scores(squares)),
        "r_hat": r_hat(draws, superchains),
    }


def r_hat(values: Array, superchains: Ints | None = None) -> Array:
    """Return rank-normalized split R-hat of functions (chain, draw, m), shape (m,).

    It is nested for many short chains, whose superchains must be known if they have
    fewer than 4 draws.
    """
    if are_many_and_short(*values.shape[:2]):
        if superchains is not None:
            folded = np.abs(values - np.median(values, axis=(0, 1)))
            r_hats = (
                nested_r_hats(normal_scores(x), superchains)[0]
                for x in (values, folded)
            )
            return np.asarray(np.fmax(*r_hats))
        if values.shape[1] < MIN_DRAWS:
            return np.full(values.shape[2], np.nan)
    of_values, _ = verdicts(values)[0]
    return np.asarray(of_values)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a check that the user should know.

    Attributes
    ----------
    name : str
        Its name, of a few words.
    evidence : str
        Sentences about what was seen, with numbers.
    remedy : str
        Sentences about what to try.
    is_problem : bool, default True
        False for a note, which is no reason to doubt the draws.

    Examples
    --------
    >>> print(Finding(name="stuck walk", evidence="Chain 2 never moved.",
    ...               remedy="Use a smaller step_size."))
    PROBLEM: stuck walk
      seen: Chain 2 never moved.
      try: Use a smaller step_size.
    """

    name: str
    evidence: str
    remedy: str
    is_problem: bool = True

    def __str__(self) -> str:
        """Return the name, the evidence and the remedy as three paragraphs."""
        head = "PROBLEM" if self.is_problem else "note"
        body = (f"seen: {self.evidence}", f"try: {self.remedy}")
        return "\n".join([f"{head}: {self.name}", *map(_wrapped, body)])


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """All findings about draws.

    Attributes
    ----------
    findings : tuple of Finding
        Problems first.
    looked_at : tuple of str
        Names of the checks that were made.
    skipped : tuple of str
        Names of the checks that were not possible, with reasons.
    false_alarm : float
        Bound of the probability that statistical tests flag a correct run, up to the
        accuracy of their approximations.

    Examples
    --------
    >>> report = CheckReport(findings=(), looked_at=("effective size",), skipped=(),
    ...                      false_alarm=3e-4)
    >>> report.ok, report.problems
    (True, ())
    """

    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]
    skipped: tuple[str, ...]
    false_alarm: float

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that make the draws doubtful."""
        return tuple(f for f in self.findings if f.is_problem)

    @property
    def ok(self) -> bool:
        """Whether no problem was found, which is not a proof that there is none."""
        return not self.problems

    @property
    def _verdict(self) -> str:
        """Number of problems, in words."""
        count = len(self.problems)
        return f"{count} problem{'s'[: count > 1]}" if count else "no problem found"

    def _repr_html_(self) -> str:
        """Return findings and what was looked at as a table, for notebooks."""
        rows = [("verdict", self._verdict)]
        for finding in self.findings:
            name = "PROBLEM" if finding.is_problem else "note"
            said = f"{finding.name}. Seen: {finding.evidence} Try: {finding.remedy}"
            rows.append((name, said))
        rows.append(("looked at", ", ".join(self.looked_at)))
        rows += [("not looked at", words) for words in self.skipped]
        rows.append(("false alarms", f"with probability about {self.false_alarm:g}"))
        return describe("CheckReport", rows)

    def __repr__(self) -> str:
        """Show findings, what was looked at, and what that can show."""
        lines = [f"CheckReport: {self._verdict}", *map(str, self.findings)]
        lines.append(f"looked at: {', '.join(self.looked_at)}.")
        lines.extend(f"not looked at: {words}" for words in self.skipped)
        lines.append(
            f"A correct run is flagged with probability about {self.false_alarm:g}. "
            f"{CAN}"
        )
        return "\n".join(
            line if "\n" in line else textwrap.fill(line, WIDTH) for line in lines
        )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def correlation_times(values: Array) -> Array:
    """Return the integrated autocorrelation time of each function, over all chains.

    ``values`` has the shape (chain, draw, function). The times (function,) are draws
    per effective draw, at least 1, and infinite where nothing moved. Chains are
    centered one by one, because a difference of their means is not autocorrelation.
    """
    chains, draws, _ = values.shape
    centered = values - values.mean(axis=1, keepdims=True)
    times = np.full(values.shape[2], math.inf)
    has_moved = np.ptp(values, axis=1).max(axis=0) > 0.0
    if has_moved.any():
        sizes = plain_sizes(centered[:, :, has_moved], is_split=False)
        times[has_moved] = np.maximum(chains * draws / sizes, 1.0)
    # A size that cannot be estimated counts as none.
    return np.where(np.isnan(times), math.inf, times)


def batch_means(values: Array, time: float) -> Array | None:
    """Return means of batches in each half of each chain, or None without batches.

    ``values`` has the shape (chain, draw) and the correlation time ``time``. The means
    have the shape (chain, 2, num_batches). If halves are too short for two batches, the
    result is None. The first draws of a half that fill no batch are left out.
    """
    half = values.shape[1] // 2
    if not math.isfinite(time):
        return None
    # More than 20 batches in half a chain add hardly any power, and the means of longer
    # batches are closer to normal.
    count = min(half // math.ceil(BATCH_TIMES * time), 20)
    if count < 2:
        return None
    length = half // count
    halves = np.stack([values[:, :half], values[:, -half:]], axis=1)
    whole_batches = halves[:, :, half - count * length :]
    means = whole_batches.reshape(len(values), 2, count, length).mean(axis=3)
    return np.asarray(means, dtype=np.float64)


def differ(means: Array) -> float:
    """Return the p-value of Fisher's F test that all halves of chains have one mean.

    It is the probability of a larger ratio of the variances between and within halves.
    ``means`` (chain, half, batch) are those of `batch_means`.
    """
    from scipy.stats import f

    groups = means.reshape(-1, means.shape[2])
    num_groups, count = groups.shape
    within = groups.var(axis=1, ddof=1).mean()
    between = count * groups.mean(axis=1).var(ddof=1)
    if within == 0.0:
        return 0.0 if between > 0.0 else 1.0
    return float(f.sf(between / within, num_groups - 1, num_groups * (count - 1)))


def off_zero(values: Array, time: float) -> tuple[float, float, float] | None:
    """Return Student's t test that the mean is zero, or None if chains are too short.

    The standard error is the larger of two estimates, by batches and by the correlation
    time, which fail in different cases. Skewness is removed by Hall's transformation
    (Journal of the Royal Statistical Society B 54, 1992, pages 221-228). Without it 400
    independent Gamma(0.05) numbers fail 80 times as often as 1 in 10,000.

    ``values`` are (chain, draw), with the correlation time ``time``. Return the mean in
    standard errors, or its transform if that is nearer to 0, and the probabilities of a
    larger and of a smaller statistic if the mean is zero.
    """
    from scipy.stats import t

    means = batch_means(values, time)
    if means is None:
        return None
    error = max(
        float(means.std(ddof=1)) / math.sqrt(means.size),
        float(values.std()) * math.sqrt(time / values.size),
    )
    if error == 0.0:
        return None
    student = float(values.mean()) / error
    transformed = _without_skewness(student, values, values.size / time)
    statistic = min(student, transformed, key=abs)
    freedom = means.size - 1
    return statistic, float(t.sf(statistic, freedom)), float(t.cdf(statistic, freedom))


def _without_skewness(student: float, values: Array, size: float) -> float:
    """Return Hall's transform of a Student statistic of ``size`` independent numbers.

    The skewness is estimated from ``values``.
    """
    centered = values - values.mean()
    skewness = float(np.mean(centered**3) / np.mean(centered**2) ** 1.5)
    mean = student / math.sqrt(size)
    transformed = mean + skewness * mean**2 / 3.0 + skewness**2 * mean**3 / 27.0
    return math.sqrt(size) * (transformed + skewness / (6.0 * size))
