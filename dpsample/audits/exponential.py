r"""The Neyman-Pearson test of an exponential mechanism, without normalizing constants.

The densities on neighboring data sets D, D' have the log ratio

.. math:: \log\frac{q}{p}(\theta) = k (F_D - F_{D'})(\theta) + \log\frac{Z_D}{Z_{D'}},

and F_D - F_{D'} is the difference of two losses over n. Its order is that of the
likelihood ratio, so events {score > t} are the most powerful there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import chains
from dpsample._streams import Seed, seed_sequence, streams
from dpsample.audits.records import differing_records
from dpsample.audits.scores import NUM_STREAMS, Draw, Scores, draw_outputs
from dpsample.privacy import ExponentialMechanism
from dpsample.problem import Problem
from dpsample.rounds import effective_size
from dpsample.samplers import Sampler
from dpsample.samplers.chain import NUM_STATS
from dpsample.samplers.choice import choose
from dpsample.targets import Gibbs

Array = NDArray[np.float64]
Progress = Callable[[float], None]
Score = Callable[[Array], Array]

# Draws of the run that measures autocorrelation, per chain, and the longest thinning.
PILOT_DRAWS, MAX_THIN = 500, 1000
# Draws of a chain in memory before thinning.
BLOCK = 4096
# Steps between kept draws, in autocorrelation times: e^{-6} is left for one mode.
TIMES_APART = 3.0
MCMC_NOTE = (
    "{sampler} is not an exact sampler: the draws come from {chains} chains per law, "
    "each warmed up for {warmup} steps and thinned to every {thin}th; they are treated "
    "as independent, and the law that was tested is the sampler's"
)
IID_NOTE = "{sampler} made independent exact draws; the score is k (F - F')"


def exponential_scores(
    mechanism: ExponentialMechanism,
    problem: Problem,
    neighbor: Problem,
    *,
    relation: str,
    sampler: Any,
    num_draws: int,
    seed: Seed,
    threads: int | None,
    on_progress: Progress,
) -> Scores:
    """Scores of draws from the targets of two neighboring problems."""
    targets = mechanism.target(problem), mechanism.target(neighbor)
    first, second = (
        record.near(problem)
        for record in differing_records(problem, neighbor, relation)
    )
    scale, loss = mechanism.k / problem.num_records, problem.loss

    def score(points: Array) -> Array:
        return scale * (first.loss(loss, points) - second.loss(loss, points))

    chosen = _sampler(sampler, targets)
    roots = seed_sequence(seed).spawn(2)
    found = [
        _draw(
            targets[i],
            chosen,
            score,
            num_draws=num_draws,
            seed=roots[i],
            threads=threads,
            on_progress=_part(on_progress, i),
        )
        for i in range(2)
    ]
    (p, note), (q, other_note) = found
    return Scores(
        first=(p[0], q[0]),
        second=(p[1], q[1]),
        kind="ratio up to a constant",
        notes=tuple(dict.fromkeys((note, other_note))),
    )


def _part(on_progress: Progress, i: int) -> Progress:
    """Progress within one of the two laws."""
    return lambda share: on_progress(0.5 * (i + share))


def _sampler(sampler: Any, targets: tuple[Gibbs, Gibbs]) -> Sampler:
    """One sampler for both targets: a difference of samplers is no privacy loss."""
    if isinstance(sampler, str) and sampler == "auto":
        chosen = choose(targets[0])[0]
    else:
        remedy = 'Use "auto", or a sampler such as dps.samplers.MALA().'
        check.instance(Sampler, sampler=sampler, remedy=remedy)
        chosen = sampler
    for target in targets:
        chosen.require(target)
    return chosen


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
    """Scores of both halves of the draws of one law, and how they were made."""
    pilot_stream, *rest = streams(seed, 1 + 3 * NUM_STREAMS)
    parts = [rest[i * NUM_STREAMS : (i + 1) * NUM_STREAMS] for i in range(3)]
    prepared = sampler.prepare(target, pilot_stream)
    halves = []
    if sampler.exactness == "iid":
        draw, note = _iid(prepared), IID_NOTE.format(sampler=sampler)
    else:
        thin = _thinning(prepared, score, parts[2], threads)
        draw, note = (
            _thinned(prepared, thin),
            MCMC_NOTE.format(
                sampler=sampler,
                chains=2 * NUM_STREAMS,
                warmup=prepared.num_warmup,
                thin=thin,
            ),
        )
    with chains.single_threaded_blas():
        for i in range(2):
            halves.append(
                draw_outputs(
                    draw, parts[i], num_draws // 2, threads=threads, score=score
                )
            )
            on_progress(0.5 * (i + 1))
    return (halves[0], halves[1]), note


def _iid(prepared: Any) -> Draw:
    """Independent draws on a stream."""
    advance, dim = prepared.runner(), prepared.target.dim

    def draw(rng: np.random.Generator, count: int) -> Array:
        rows, stats = np.empty((count, dim)), np.empty((count, NUM_STATS))
        advance(prepared.init(), rng, rows, stats)
        return rows

    return draw


def _thinned(prepared: Any, thin: int) -> Draw:
    """Chain on a stream: dispersed start, warm-up, then every ``thin``-th draw."""
    advance, dim = prepared.runner(), prepared.target.dim

    def draw(rng: np.random.Generator, count: int) -> Array:
        state = prepared.init(prepared.dispersed(rng))
        chains.advance(advance, state, rng, prepared.num_warmup)
        kept, size = np.empty((count, dim)), max(1, BLOCK // thin)
        rows, stats = np.empty((size * thin, dim)), np.empty((size * thin, NUM_STATS))
        for begin in range(0, count, size):
            part = kept[begin : begin + size]
            used = slice(0, len(part) * thin)
            advance(state, rng, rows[used], stats[used])
            part[:] = rows[used][thin - 1 :: thin]
        return kept

    return draw


def _thinning(
    prepared: Any,
    score: Score,
    chain_streams: list[np.random.Generator],
    threads: int | None,
) -> int:
    """Find how many steps make scores nearly uncorrelated, by a pilot run."""
    count = PILOT_DRAWS * len(chain_streams)
    scores = draw_outputs(
        _thinned(prepared, 1), chain_streams, count, threads=threads, score=score
    )
    size = effective_size(scores.reshape(len(chain_streams), PILOT_DRAWS, 1))
    time = count / size if size > 0.0 else float(MAX_THIN)
    return int(min(MAX_THIN, max(1, math.ceil(TIMES_APART * time))))
