r"""Audits of exponential mechanisms: scores of draws, and exact privacy curves.

The mechanism draws theta with density p ~ exp(-V), V = k (F + mu r), on a body, for the
mean loss F of the data set D. The density for a neighboring data set D' is q.

**Scores.** The densities have the log ratio

.. math:: \log\frac{q}{p}(\theta) = k (F_D - F_{D'})(\theta) + \log\frac{Z_D}{Z_{D'}},

where Z are the integrals of exp(-V), and F_D - F_{D'} is the difference of the losses
of the one record in which the data sets differ, divided by n. The score of a draw is
k (F_D - F_{D'}). It orders draws like the likelihood ratio. So by the lemma of Neyman
and Pearson no test is more powerful than the events {score > t}.

**Curves.** The privacy curve of a pair of densities on one body is

.. math:: \delta(\epsilon) = \int \max(0, q - e^{\epsilon} p),

and is computed by quadrature on rays from the mean of p
(`dpsample.samplers.quadrature`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsample.audits.scores import (
    NUM_STREAMS,
    Draw,
    Progress,
    Score,
    Scores,
    draw_outputs,
)
from dpsample.core import check, columns, pauses
from dpsample.core.arrays import Array, Bools
from dpsample.core.streams import Seed, seed_sequence, streams
from dpsample.losses import Loss
from dpsample.privacy import ExponentialMechanism
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON
from dpsample.problem.problem import Problem
from dpsample.running import chains
from dpsample.running.convergence import effective_size
from dpsample.samplers import Sampler
from dpsample.samplers.chain import NUM_STATS, Prepared
from dpsample.samplers.choice import choose
from dpsample.samplers.quadrature import discretize, mean_and_factor
from dpsample.targets.gibbs import Gibbs, as_rows


def exponential_scores(
    mechanism: ExponentialMechanism,
    problem: Problem,
    neighbor: Problem,
    *,
    relation: str,
    sampler: Sampler | Literal["auto"],
    seed: Seed,
    on_progress: Progress,
    **running: Any,
) -> Scores:
    """Return scores of draws from the targets of two neighboring problems."""
    targets = mechanism.target(problem), mechanism.target(neighbor)
    first, second = (
        record.near(problem)
        for record in differing_records(problem, neighbor, relation)
    )
    scale, loss = mechanism.k / problem.num_records, problem.loss

    def score(points: Array) -> Array:
        return scale * (first.loss(loss, points) - second.loss(loss, points))

    common_sampler = _sampler(sampler, targets)
    roots = seed_sequence(seed).spawn(2)
    # P and Q have streams of their own, so that neither depends on the other's number
    # of draws.
    (p, note), (q, other_note) = (
        _draw(
            targets[i],
            common_sampler,
            score,
            seed=roots[i],
            on_progress=_part(on_progress, i),
            **running,
        )
        for i in range(2)
    )
    return Scores(
        first=(p[0], q[0]),
        second=(p[1], q[1]),
        kind="ratio up to a constant",
        notes=tuple(dict.fromkeys((note, other_note))),
    )


def _part(on_progress: Progress, i: int) -> Progress:
    """Return the progress function of the draws of data set number ``i``."""
    return lambda share: on_progress(0.5 * (i + share))


def _sampler(
    sampler: Sampler | Literal["auto"], targets: tuple[Gibbs, Gibbs]
) -> Sampler:
    """Return one sampler for both targets.

    Two samplers with different errors would look like a privacy loss.
    """
    common_sampler = choose(targets[0])[0] if isinstance(sampler, str) else sampler
    for target in targets:
        common_sampler.require(target)
    return common_sampler


def _draw(
    target: Gibbs,
    sampler: Sampler,
    score: Score,
    *,
    num_draws: int,
    seed: np.random.SeedSequence,
    threads: int | None,
    on_progress: Progress,
) -> tuple[tuple[Array, Array], str]:
    """Return the scores of draws from one target, in two halves, and a note about them.

    One half serves to choose an event, and the other one to estimate its probability.
    """
    pilot_stream, *rest = streams(seed, 1 + 3 * NUM_STREAMS)
    # A stream for each chain of both halves and of the pilot run.
    parts = [rest[i * NUM_STREAMS : (i + 1) * NUM_STREAMS] for i in range(3)]
    prepared = sampler.prepare(target, pilot_stream)
    if sampler.exactness == "iid":
        draw = _iid(prepared)
        note = f"{sampler} made independent exact draws; the score is k (F - F')"
    else:
        thin = _thinning(prepared, score, parts[2], threads)
        draw = _thinned_draw(prepared, thin)
        note = (
            f"{sampler} is not an exact sampler: the draws come from {2 * NUM_STREAMS} "
            f"chains per law, each warmed up for {prepared.num_warmup} steps and "
            f"thinned to every {thin}th; they are treated as independent, and the law "
            "that was tested is the sampler's"
        )
    halves, count = [], num_draws // 2
    with pauses.single_threaded_blas():
        for i in range(2):
            half = draw_outputs(draw, parts[i], count, threads=threads, score=score)
            halves.append(half)
            on_progress(0.5 * (i + 1))
    return (halves[0], halves[1]), note


def _iid(prepared: Prepared) -> Draw:
    """Return a function that makes independent draws with a stream."""
    advance, dim = prepared.runner(), prepared.target.dim

    def draw(rng: np.random.Generator, count: int) -> Array:
        rows, stats = np.empty((count, dim)), np.empty((count, NUM_STATS))
        # One call makes all draws, because each is independent of the state.
        advance(prepared.init(), rng, rows, stats)
        return rows

    return draw


def _thinned_draw(prepared: Prepared, thin: int) -> Draw:
    """Return a function that runs a chain and keeps each ``thin``-th draw."""
    advance, dim = prepared.runner(), prepared.target.dim

    def draw(rng: np.random.Generator, count: int) -> Array:
        state = prepared.init(prepared.draw_start(rng))
        # Draws before the warm-up ends are not used.
        chains.advance(advance, state, rng, prepared.num_warmup)
        # At most 4096 draws of a chain are in memory before thinning.
        draws, size = np.empty((count, dim)), max(1, 4096 // thin)
        rows, stats = np.empty((size * thin, dim)), np.empty((size * thin, NUM_STATS))
        for begin in range(0, count, size):
            part = draws[begin : begin + size]
            used = slice(0, len(part) * thin)
            advance(state, rng, rows[used], stats[used])
            # The last of each ``thin`` draws is kept.
            part[:] = rows[used][thin - 1 :: thin]
        return draws

    return draw


def _thinning(
    prepared: Prepared,
    score: Score,
    chain_streams: list[np.random.Generator],
    threads: int | None,
) -> int:
    """Find how many steps make scores nearly uncorrelated, by a pilot run."""
    max_thin = 1000  # steps between two draws, at most
    # Draws of each chain, from which the autocorrelation time is estimated.
    pilot_draws = 500
    count = pilot_draws * len(chain_streams)
    scores = draw_outputs(
        _thinned_draw(prepared, 1), chain_streams, count, threads=threads, score=score
    )
    # The effective size is that of the scores, because only they are compared.
    size = effective_size(scores.reshape(len(chain_streams), pilot_draws, 1))
    time = count / size if size > 0.0 else float(max_thin)
    # Two draws are three autocorrelation times apart. If one mode dominates, the
    # correlation falls like e^(-2 t/time), to e^-6.
    return int(min(max_thin, max(1, math.ceil(3.0 * time))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """One record. Its row ends with 1 if there is an intercept."""

    row: Array
    response: float
    offset: float

    def loss(self, loss: Loss, points: Array) -> Array:
        """Return the loss at each row of ``points``, of shape (num_points,)."""
        return loss.value(points @ self.row + self.offset, self.response)

    def near(self, problem: Problem) -> Record:
        """Return a record whose loss differs by a constant only.

        A constant does not change the density. `Loss.near_response` avoids responses
        so large that differences of losses would be rounded.
        """
        response = problem.loss.near_response(
            np.array([self.response]), problem.facts.margin_bound
        )
        return replace(self, response=float(response[0]))

    def is_constant(self, loss: Loss) -> bool:
        """Return whether the loss is the same at every point."""
        is_neutral = loss.name == "linear" and self.response == 0.0
        return is_neutral or not self.row.any()


def differing_records(
    problem: Problem, neighbor: Problem, relation: str
) -> tuple[Record, Record]:
    """Return the two records in which the problems differ.

    The problems have the same public facts and columns, and differ in exactly one
    record. Under the relation "zero_out" one of the two records has a constant loss.
    """
    columns.require_same("neighbor", neighbor.feature_names, problem.feature_names)
    first, second = problem.data, neighbor.data
    changed = (first.response != second.response) | _changed_rows(problem, neighbor)
    if first.offset.size or second.offset.size:
        changed |= _offsets(problem) != _offsets(neighbor)
    positions = np.flatnonzero(changed)
    # Two records that differ need an audit of groups, and none would make P = Q.
    if positions.size != 1:
        condition = "different from problem in exactly one record"
        got = f"{positions.size} records that differ"
        check.fail("neighbor", condition, got, "See dps.audits.neighbors for pairs.")
    pair = _record(problem, int(positions[0])), _record(neighbor, int(positions[0]))
    if relation == "zero_out" and not any(r.is_constant(problem.loss) for r in pair):
        condition = "problem with one record's loss set to zero"
        got = "two records that both count"
        hint = "Under zero_out one of the two needs a row of zeros (and no intercept)."
        check.fail("neighbor", condition, got, hint)
    return pair


def _changed_rows(problem: Problem, neighbor: Problem) -> Bools:
    """Return for each record whether its row differs between the problems."""
    first, second = as_rows(problem.data), as_rows(neighbor.data)
    if hasattr(first, "indptr") or hasattr(second, "indptr"):
        from scipy import sparse

        # An entry that is equal in both is stored as a 0 of the difference.
        gap = sparse.csr_matrix(first) - sparse.csr_matrix(second)
        gap.eliminate_zeros()
        return np.asarray(np.diff(gap.indptr) > 0)
    return np.asarray((first != second).any(axis=1))


def _offsets(problem: Problem) -> Array:
    """Return the offsets, which are 0 if there are none."""
    offset = problem.data.offset
    return offset if offset.size else np.zeros(problem.num_records)


def _record(problem: Problem, i: int) -> Record:
    """Return the i-th record of a problem."""
    row = as_rows(problem.data)[[i]]
    dense = row.toarray() if hasattr(row, "toarray") else np.array(row)
    return Record(
        row=dense.reshape(-1),
        response=float(problem.data.response[i]),
        offset=float(_offsets(problem)[i]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCurve:
    """Privacy curve of two densities by quadrature, each of shape (num_epsilons,).

    Attributes
    ----------
    epsilons : array
        Privacy losses.
    forward : array
        Smallest delta with Q(S) <= e^epsilon P(S) + delta for all sets S, where Q is
        the distribution of the neighbor.
    backward : array
        The same with P and Q exchanged.
    error : array
        Estimate of the absolute error, the change when all steps are halved.

    Examples
    --------
    >>> a, b = np.array([0.1]), np.array([0.2])
    >>> ExactCurve(epsilons=a, forward=a, backward=b, error=a).delta
    array([0.2])
    """

    epsilons: Array
    forward: Array
    backward: Array
    error: Array

    @property
    def delta(self) -> Array:
        """Larger delta of both directions."""
        return np.maximum(self.forward, self.backward)


def exact_curve(
    target: Gibbs, neighbor_target: Gibbs, epsilons: ArrayLike, *, num_panels: int = 24
) -> ExactCurve:
    r"""Compute the privacy curve of two targets on a body of dimension 1 or 2.

    .. math:: \delta(\epsilon) = \int \max(0, q - e^{\epsilon} p)

    Parameters
    ----------
    target, neighbor_target : Gibbs
        The two densities, on the same domain.
    epsilons : array of shape (num_epsilons,)
        Privacy losses, >= 0 and at most 600.
    num_panels : int
        Number of Gauss-Legendre panels of 8 nodes on a ray in the plane, where there
        are 16 times as many rays. A line has 50 times as many panels. The error falls
        with the square of this number, or faster.

    Returns
    -------
    ExactCurve
        Both directions, and an estimate of the error.

    Raises
    ------
    ValueError
        If the dimension is larger, the domains differ, or an epsilon is out of
        its range.

    Guarantee
    ---------
    There is none, except convergence. ``error`` compares two grids and is not a bound.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=50, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-3)
    >>> mech = dps.calibrate(facts, budget)
    >>> pair = [mech.target(data) for data in dps.audits.neighbors.worst_case(facts)]
    >>> bool(dps.audits.exact_curve(*pair, [1.0]).delta[0] < 1e-3)
    True
    """
    check.instance(Gibbs, target=target, neighbor_target=neighbor_target)
    domain, dim = target.domain, target.dim
    if neighbor_target.dim != dim or neighbor_target.domain != domain:
        check.fail("neighbor_target", "on the domain of target", neighbor_target)
    rank = domain.affine_dim(dim)
    if rank not in (1, 2):
        check.fail("target", "of dimension 1 or 2", f"dimension {rank}")
    entries = np.atleast_1d(check.entries("epsilons", epsilons))
    levels = check.array("epsilons", entries, shape=(None,))
    if levels.size == 0 or not 0.0 <= levels.min() <= levels.max() <= LARGEST_EPSILON:
        condition = f"non-empty, >= 0 and <= {LARGEST_EPSILON:g}"
        check.fail("epsilons", condition, epsilons)
    check.integer(2, num_panels=num_panels)
    pair = target, neighbor_target
    # Both densities are on the same grid, so that errors of their masses cancel.
    origin, factor = mean_and_factor(pair)
    curves = []
    for panels in (num_panels // 2, num_panels):
        _, (p, q) = discretize(pair, origin, factor, num_panels=panels)
        # delta(epsilon) is the mass of (Q - e^epsilon P)_+, and the same with P and Q
        # exchanged.
        directions = [
            [np.maximum(a - np.exp(e) * b, 0.0).sum() for e in levels]
            for a, b in ((q, p), (p, q))
        ]
        curves.append(np.array(directions))
    # The change under halving is larger than the error of the finer grid if the error
    # falls as it should.
    coarse, fine = curves
    error = np.abs(fine - coarse).max(axis=0)
    return ExactCurve(epsilons=levels, forward=fine[0], backward=fine[1], error=error)
