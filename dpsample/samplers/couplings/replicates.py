"""Replicates of two coupled chains with a lag, each on a stream of its own."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.pauses import ChunkSize
from dpsample.samplers.chain import NUM_STATS, Prepared, PreparedChain
from dpsample.samplers.couplings.coupled_steps import ProximalPair, coupled_chain
from dpsample.samplers.couplings.pair import Pair
from dpsample.samplers.proximal.proximal import PreparedProximal
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs

_REMEDY = (
    "Use RandomWalk(p=2), MALA, PreconditionedCrankNicolson, LaplaceIndependence, "
    "TiltedGibbs or Proximal."
)

# A sampler, or what its `prepare` returned.
SamplerLike = Sampler | Prepared


def find(
    sampler: SamplerLike, target: Gibbs, rng: np.random.Generator
) -> tuple[PreparedChain | PreparedProximal, Pair | ProximalPair, str]:
    """Return the prepared chain, its coupled kernel, and a text for the sampler."""
    prepared = sampler
    if isinstance(sampler, Sampler):
        prepared = sampler.prepare(target, rng)
    if not isinstance(prepared, PreparedChain | PreparedProximal):
        wanted = "a sampler or what its prepare returned"
        check.fail("sampler", wanted, check.shown(sampler), _REMEDY)
    if prepared.target is not target:
        check.fail("sampler", "prepared for the target", "another target")
    coupling = coupled_chain(prepared)
    if coupling is None:
        check.fail("sampler", "one that has a coupling", repr(sampler), _REMEDY)
    name, pair = coupling
    return prepared, pair, repr(sampler) if prepared is not sampler else name


Result = TypeVar("Result")
# Called with the time of the first row, draws of the chain ahead, and of the other.
OnRows = Callable[[int, Array, Array], None]

CHUNK = 64  # draws between two returns to Python


@dataclass(frozen=True, kw_only=True, eq=False)
class Coupled:
    """Two chains of one kernel and one initial law; the first is ``lag`` ahead."""

    prepared: PreparedChain | PreparedProximal
    pair: Pair | ProximalPair
    words: str
    lag: int
    max_steps: int
    init: Array | None

    def start(self, rng: np.random.Generator) -> Array:
        """Draw from the initial law."""
        if self.init is not None:
            return self.init.copy()
        return np.asarray(self.prepared.dispersed(rng))

    def alone(self, position: Array, rng: np.random.Generator, count: int) -> Array:
        """Draws of a single chain after a position."""
        draws = np.empty((count, position.size))
        state = self.prepared.init(position)
        self.prepared.runner()(state, rng, draws, np.empty((count, NUM_STATS)))
        return draws

    def meet(
        self, rng: np.random.Generator, on_rows: OnRows | None = None
    ) -> tuple[int, bool, Array]:
        """Run until the chains meet, or the cap.

        Returns the steps of the first chain until then, whether they met, and the
        position of shape (dim,) of the first chain at that time.
        """
        starts = self.start(rng), self.start(rng)
        lead = self.alone(starts[0], rng, self.lag)
        first, second = self.pair.init(lead[-1]), self.pair.init(starts[1])
        if on_rows is not None:
            ahead = np.vstack([starts[0], lead])
            on_rows(0, ahead[:-1], ahead[:0])
            on_rows(self.lag, ahead[-1:], starts[1][None])
        time = self.lag
        has_met = bool(np.array_equal(first.position, second.position))
        draws, others = np.empty((2, CHUNK, len(lead[0])))
        size = ChunkSize()
        while not has_met and time < self.max_steps:
            room, count = min(CHUNK, self.max_steps - time), 0
            while count < room and not has_met:
                part = slice(count, min(count + size.size, room))
                begin = perf_counter()
                made, has_met = self.pair.advance(
                    first, second, rng, draws[part], others[part]
                )
                size.update(perf_counter() - begin)
                count += made
            if on_rows is not None:
                on_rows(time + 1, draws[:count], others[:count])
            time += count
        return time, has_met, first.position


def build(
    sampler: SamplerLike,
    target: Gibbs,
    root: np.random.Generator,
    *,
    lag: int,
    max_steps: int,
    init: ArrayLike | None,
) -> Coupled:
    """Check the arguments that all estimates share, and prepare the chains."""
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    check.integer(1, lag=lag)
    check.integer(lag + 1, max_steps=max_steps, remedy="It has to exceed the lag.")
    start = None
    if init is not None:
        start = check.array("init", init, shape=(target.dim,))
        if not target.problem.domain.contains(start):
            check.fail("init", "inside the domain", start, "Use domain.project(init).")
    prepared, pair, words = find(sampler, target, root)
    return Coupled(
        prepared=prepared,
        pair=pair,
        words=words,
        lag=lag,
        max_steps=max_steps,
        init=start,
    )


def check_counts(replicates: int, threads: int | None) -> None:
    """Refuse malformed numbers before any work is done."""
    check.integer(2, replicates=replicates)
    if threads is not None:
        check.integer(1, threads=threads)


def run_all(
    task: Callable[[np.random.Generator], Result],
    streams: list[np.random.Generator],
    threads: int | None,
) -> list[Result]:
    """Results of a task for every stream, in order; threads cannot change them."""
    import scipy.linalg.cython_blas  # noqa: F401 - loads the BLAS that kernels call
    from threadpoolctl import threadpool_limits

    if threads is not None:
        check.integer(1, threads=threads)
    # One BLAS thread: more would change the last bits of a draw.
    with (
        threadpool_limits(1, "blas"),
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
    ):
        tasks = [pool.submit(task, rng) for rng in streams]
        try:
            return [each.result() for each in tasks]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
