"""Private statistics: counts, sums, means and quantiles of one column.

The number of records, bounds, levels and edges are public: declare them, never take
them from the records. Every statistic is purely private: delta is 0, and whole numbers
are released without a rounding error (`dpsample.noise.totals`). A number beyond its
bounds is moved to them, and a missing one counts as 0 and is moved likewise.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dpsample.answers.statistic import Statistic
from dpsample.core import check
from dpsample.core.public import dir_of
from dpsample.core.streams import release_streams
from dpsample.noise import totals
from dpsample.privacy import Budget, Ledger, LedgerFile
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.tables.cells import cells_of_edges, cells_of_levels, flags_of, numbers_of
from dpsample.verification.recomputation import verify_own

__all__ = ["count", "group_means", "histogram", "mean", "quantile", "sum"]
__dir__ = dir_of(__all__)

AnyLedger = Ledger | LedgerFile | None
Spending = tuple[Budget, AnyLedger, int | None]  # the budget, its ledger and a seed


def count(
    mask: ArrayLike,
    budget: Budget,
    *,
    ledger: AnyLedger = None,
    seed: int | None = None,
) -> Statistic:
    """Release how many records have a property, an integer.

    Parameters
    ----------
    mask : array_like of bool, shape (n,)
        Whether each record has the property.
    budget : Budget
        Budget of which epsilon is spent and delta is not used.
    ledger : Ledger or LedgerFile, optional
        Ledger in which the certificate is entered before the noise is drawn.
    seed : int, optional
        Seed that makes the noise repeatable, and the statistic not releasable.

    Returns
    -------
    Statistic
        Its ``value`` is the count plus discrete Laplace noise, of variance about 2 /
        epsilon^2. It may be negative.

    Raises
    ------
    ValueError
        If an argument is malformed, or the ledger has no room.

    Guarantee
    ---------
    (epsilon, 0)-DP with the bits that are released, under the budget's relation.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=0.0)
    >>> abs(count([True] * 40 + [False] * 60, budget).value - 40) < 60
    True
    """
    flags = flags_of("mask", mask)
    exact = [int(np.count_nonzero(flags))]
    return _release(totals.RecordCount(), exact, len(flags), (budget, ledger, seed))


def histogram(
    values: object,
    budget: Budget,
    *,
    levels: Sequence[object] | None = None,
    edges: ArrayLike | None = None,
    ledger: AnyLedger = None,
    seed: int | None = None,
) -> Statistic:
    """Release how many records are in each of several disjoint cells.

    ``levels`` are the values of the cells, compared as in `dpsample.tables.Schema`, or
    ``edges`` are their ends, [e_0, e_1), ..., [e_m-1, e_m]. A record in no cell is not
    counted. Other parameters, errors and the guarantee are as of `count`. A replaced
    record changes two counts, and the variance is about 8 / epsilon^2.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=0.0)
    >>> made = histogram(["a", "b", "a"], budget, levels=["a", "b"], seed=1)
    >>> list(made.value), made.certificate.epsilon_proved
    (['a', 'b'], 1.0)
    """
    if (levels is None) == (edges is None):
        check.fail("levels or edges", "given, exactly one of them", "both or none")
    if edges is None:
        names, cells = cells_of_levels("values", values, levels)
    else:
        names, cells = cells_of_edges("values", values, edges)
    exact = np.bincount(cells[cells >= 0], minlength=len(names)).tolist()
    mechanism = totals.CellCounts(num_cells=len(names))
    return _release(mechanism, exact, len(cells), (budget, ledger, seed), names)


def sum(
    values: ArrayLike,
    bounds: tuple[float, float],
    budget: Budget,
    *,
    ledger: AnyLedger = None,
    seed: int | None = None,
) -> Statistic:
    """Release the sum of numbers within public ``bounds`` (lower, upper).

    Its noise has standard deviation sqrt(2) s/epsilon, s = upper - lower (a record
    replaced) or the larger size of a bound (set to zero). The rest is as of `count`.

    Examples
    --------
    >>> made = sum([1.0, 2.0, 9.0], (0.0, 4.0), Budget(epsilon=1.0, delta=0.0))
    >>> type(made.value)
    <class 'float'>
    """
    return _grid_sum(totals.GridSum, values, bounds, (budget, ledger, seed))


def mean(
    values: ArrayLike,
    bounds: tuple[float, float],
    budget: Budget,
    *,
    ledger: AnyLedger = None,
    seed: int | None = None,
) -> Statistic:
    """Release the mean of numbers within public ``bounds`` (lower, upper).

    Its noise has standard deviation sqrt(2) s/(n epsilon), s = upper - lower (a record
    replaced) or half of it (set to zero, which leaves the middle in its place). The
    rest is as of `count`.

    Examples
    --------
    >>> ages = np.linspace(20.0, 60.0, 5000)
    >>> made = mean(ages, (0.0, 100.0), Budget(epsilon=1.0, delta=0.0))
    >>> abs(made.value - 40.0) < 1.0, made.certificate.releasable
    (True, True)
    """
    return _grid_sum(totals.GridMean, values, bounds, (budget, ledger, seed))


def quantile(
    values: ArrayLike,
    level: float,
    bounds: tuple[float, float],
    budget: Budget,
    *,
    ledger: AnyLedger = None,
    seed: int | None = None,
) -> Statistic:
    """Release a number below which about the share ``level`` of the records lies.

    A point of a grid of 2^-40 of the range is drawn with probability proportional to
    exp(-c |records up to it - level n|), c = epsilon/2 (a record replaced) or epsilon/
    (2 max(level, 1 - level)) (set to zero), the exponential mechanism on ranks (Smith
    2011). Ranks are off by about 2/epsilon records. The rest is as of `count`.

    Examples
    --------
    >>> wages = np.linspace(0.0, 50.0, 20_000)
    >>> made = quantile(wages, 0.9, (0.0, 1000.0), Budget(epsilon=1.0, delta=0.0))
    >>> abs(made.value - 45.0) < 1.0
    True
    """
    mechanism = totals.RankQuantile(level=level, **totals.split_bounds(bounds))
    positions = mechanism.positions(numbers_of("values", values))
    return _release(mechanism, positions, len(positions), (budget, ledger, seed))


def group_means(
    values: ArrayLike,
    groups: object,
    bounds: tuple[float, float],
    budget: Budget,
    *,
    levels: Sequence[object],
    ledger: AnyLedger = None,
    seed: int | None = None,
) -> Statistic:
    """Release the mean of each group of records, and ``counts`` of the groups.

    ``groups`` has the group of each record. Only public ``levels`` have a mean, and
    values are as of `mean`. Noisy sums and counts have half of epsilon each. A group
    whose noisy count is below 1 gets the middle of the bounds. The rest is as of
    `count`.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=0.0)
    >>> case = {"bounds": (0.0, 1.0), "budget": budget, "levels": ["a", "b"]}
    >>> made = group_means([1.0, 0.0] * 500, ["a", "b"] * 500, **case)
    >>> made.value["a"] > 0.8, made.value["b"] < 0.2, list(made.counts)
    (True, True, ['a', 'b'])
    """
    numbers = numbers_of("values", values)
    names, cells = cells_of_levels("groups", groups, levels)
    if len(cells) != len(numbers):
        check.fail("groups", f"of length {len(numbers)}", f"length {len(cells)}")
    mechanism = totals.GridGroupMeans(
        num_groups=len(names), **totals.split_bounds(bounds)
    )
    exact = mechanism.sum_up(numbers, cells)
    return _release(mechanism, exact, len(numbers), (budget, ledger, seed), names)


def _release(
    mechanism: totals.TotalsMechanism,
    exact: totals.Exact,
    num_records: int,
    spending: Spending,
    names: Sequence[str] = (),
) -> Statistic:
    """Certify, enter and draw, in this order."""
    budget, ledger, seed = spending
    check.instance(Budget, budget=budget)
    certificate = mechanism.certificate(num_records, budget, seeded=seed is not None)
    verify_own(certificate)
    spend(ledger, certificate)
    with release_streams(seed, 1) as (rng,):
        noisy = mechanism.release(rng, exact, budget)
    return Statistic(totals=noisy, certificate=certificate, names=tuple(names))


def _grid_sum(
    kind: type[totals.GridSum | totals.GridMean],
    values: ArrayLike,
    bounds: tuple[float, float],
    spending: Spending,
) -> Statistic:
    """Release the sum or the mean of numbers."""
    mechanism = kind(**totals.split_bounds(bounds))
    numbers = numbers_of("values", values)
    return _release(mechanism, [mechanism.sum_up(numbers)], len(numbers), spending)
