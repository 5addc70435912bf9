r"""Independence Metropolis with the Gaussian fit, energies of whole batches at once.

    x' ~ q = N(c, C) or t_nu(c, C),    accepted with min(1, w(x') / w(x)),  w = pi / q.

Proposals do not depend on the state, so a batch of them is drawn ahead and weighed in
one pass over the records. Proposals outside the domain have weight 0: they are steps
that stay, and only counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import targets
from dpsample._jit import kernel
from dpsample._pauses import KEPT, PAUSED, STAGE, is_due
from dpsample.samplers import batch_energy, gaussian_fit, tune
from dpsample.samplers.chain import (
    ACCEPTED,
    NUM_COUNTS,
    NUM_STATS,
    PROPOSALS,
    RECORDS,
    VALUES,
    Prepared,
    compile_run,
)
from dpsample.samplers.errors import OK, PIECE_FAILED
from dpsample.samplers.moves import displace, normal_noise
from dpsample.samplers.preconditioned_crank_nicolson import (
    PreconditionedCrankNicolson,
)
from dpsample.samplers.sampler import Exactness, Sampler

Array = NDArray[np.float64]

# Entries of the header: log weight of the position, proposals used and held, and
# proposals outside the domain after the last one held.
LOG_WEIGHT, CURSOR, HELD, TRAILING = range(4)
MAX_TRIES = 20  # per proposal that a batch is worth
# What a paused refill keeps: proposals made, held and outside after the last one held,
# or, while they are weighed, the next record. Its stages.
NUM_MADE, NUM_HELD, NUM_OUTSIDE, NEXT_RECORD = range(KEPT, KEPT + 4)
PROPOSING, WEIGHING = 1.0, 2.0
MIN_SHARE = 0.01
REFUSAL = (
    "Hardly any proposal of the Gaussian fit lies in the domain. "
    "Use HitAndRun, RandomWalk or Proximal."
)
NUM_PILOT = 8  # batches that compare two fits


class Plan(NamedTuple):
    """Gaussian fit, degrees of freedom, and size of a batch."""

    center: Array
    factor: Array
    whiten: Array
    tail: float
    batch: int


class BatchState(NamedTuple):
    """Chain with the proposals drawn ahead; the named parts are views of memory."""

    position: Array
    energy: Array
    counts: NDArray[np.int64]
    memory: Array
    header: Array  # (4,)
    waits: Array  # (batch,): proposals outside the domain before each one held
    energies: Array  # (batch,)
    log_weights: Array  # (batch,)
    proposals: Array  # (batch, dim)
    noise: Array
    work: Any


@kernel
def log_proposal(plan, square):
    """Log density of a proposal at a whitened squared distance, up to a constant."""
    if plan.tail == np.inf:
        return -0.5 * square
    rank = plan.factor.shape[1]
    return -0.5 * (plan.tail + rank) * math.log1p(square / plan.tail)


@kernel
def propose(plan, rng, noise, out):
    """Fill out with a proposal and return its whitened squared distance."""
    normal_noise(rng, noise)
    scale = 1.0
    if plan.tail != np.inf:
        scale = math.sqrt(0.5 * plan.tail / rng.standard_gamma(0.5 * plan.tail))
    displace(plan, plan.center, noise, scale, out)
    return scale * scale * np.dot(noise, noise)


@kernel
def refill(target, pieces, plan, state, rng):
    """Draw proposals until a batch lies in the domain, and weigh them.

    Paused, it goes on with the next proposal or records when it is called again.
    """
    control, header = state.work.control, state.header
    if control[STAGE] == 0.0:
        control[NUM_MADE] = control[NUM_HELD] = control[NUM_OUTSIDE] = 0.0
        control[NEXT_RECORD] = 0.0
    if control[STAGE] != WEIGHING:
        code = fill_batch(target, pieces, plan, state, rng)
        if code != OK:
            return code
        held = int(control[NUM_HELD])
        header[CURSOR], header[HELD] = 0.0, held
        header[TRAILING] = control[NUM_OUTSIDE]
        if held == 0:
            return OK
    held = int(header[HELD])
    control[STAGE] = 0.0
    start = batch_energy.energies(
        target,
        pieces,
        state.proposals[:held],
        state.work,
        state.energies[:held],
        int(control[NEXT_RECORD]),
    )
    if start < target.data.num_records:
        control[STAGE], control[NEXT_RECORD] = WEIGHING, start
        return PAUSED
    state.counts[VALUES] += held
    state.counts[RECORDS] += held * target.data.num_records
    for i in range(held):
        state.log_weights[i] -= state.energies[i]
        if np.isnan(state.log_weights[i]):
            return PIECE_FAILED
    return OK


@kernel
def fill_batch(target, pieces, plan, state, rng):
    """Draw proposals until a batch lies in the domain; a code."""
    control = state.work.control
    held, wait = int(control[NUM_HELD]), int(control[NUM_OUTSIDE])
    control[STAGE], is_over = 0.0, False
    for made in range(int(control[NUM_MADE]), MAX_TRIES * plan.batch):
        if is_over:
            control[NUM_MADE], control[NUM_HELD] = made, held
            control[NUM_OUTSIDE], control[STAGE] = wait, PROPOSING
            return PAUSED
        is_over = is_due(control)
        proposal = state.proposals[held]
        square = propose(plan, rng, state.noise, proposal)
        status = targets.inside(target, pieces, proposal, state.work.work)
        if np.isnan(status):
            return PIECE_FAILED
        if status == 0.0:
            wait += 1
            continue
        state.waits[held] = wait
        state.log_weights[held] = -log_proposal(plan, square)
        held, wait = held + 1, 0
        if held == plan.batch:
            break
    control[NUM_HELD], control[NUM_OUTSIDE] = held, wait
    return OK


def step(target, pieces, plan, state, rng):
    """Next proposal and its coin."""
    header, stage = state.header, state.work.control[STAGE]
    is_empty = header[CURSOR] == header[HELD] and header[TRAILING] == 0.0
    if is_empty or stage != 0.0:
        code = refill(target, pieces, plan, state, rng)
        if code != OK:
            return code
    state.counts[PROPOSALS] += 1
    i = int(header[CURSOR])
    if i == int(header[HELD]):
        header[TRAILING] -= 1.0
        return OK
    if state.waits[i] > 0.0:
        state.waits[i] -= 1.0
        return OK
    header[CURSOR] += 1.0
    if -rng.standard_exponential() <= state.log_weights[i] - header[LOG_WEIGHT]:
        state.position[:] = state.proposals[i]
        state.energy[0] = state.energies[i]
        header[LOG_WEIGHT] = state.log_weights[i]
        state.counts[ACCEPTED] += 1
    return OK


run = compile_run(step)


def init(target: Any, plan: Plan, position: Array) -> BatchState:
    """Fresh state at a position of the domain, with an empty batch."""
    point = np.array(position, dtype=np.float64)
    size, dim = plan.batch, point.size
    memory = np.zeros(4 + size * (3 + dim))
    rows = memory[4 : 4 + 3 * size].reshape(3, size)
    energy = target.energy(point)
    white = plan.whiten @ (point - plan.center)
    memory[LOG_WEIGHT] = -energy - log_proposal(plan, float(white @ white))
    return BatchState(
        position=point,
        energy=np.array([energy]),
        counts=np.zeros(NUM_COUNTS, dtype=np.int64),
        memory=memory,
        header=memory[:4],
        waits=rows[0],
        energies=rows[1],
        log_weights=rows[2],
        proposals=memory[4 + 3 * size :].reshape(size, dim),
        noise=np.empty(plan.factor.shape[1]),
        work=batch_energy.make_batch_work(target, size),
    )


@dataclass(frozen=True, kw_only=True)
class LaplaceIndependence(Sampler):
    """Independence Metropolis with the Gaussian fit, in batches.

    Parameters
    ----------
    batch : int
        Proposals weighed in one pass over the records.
    tail : float
        Degrees of freedom of the proposals' t law, at least 1; infinity, the default,
        is the Gaussian. Few keep a chain from sticking in a heavy tail of the target.

    Notes
    -----
    **Guarantee.** The target is exactly invariant and the kernel reversible for any
    fit: a bad one costs acceptance only.

    Examples
    --------
    >>> from dpsample.samplers import LaplaceIndependence
    >>> LaplaceIndependence(batch=64).exactness
    'invariant'
    """

    batch: int = 128
    tail: float = math.inf
    exactness: ClassVar[Exactness] = "invariant"
    is_reversible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options."""
        check.integer(1, batch=self.batch)
        check.at_least(1.0, tail=self.tail)

    def _supports(self, target: Any) -> tuple[bool, str]:
        """Whether enough of the Gaussian fit lies in the domain."""
        is_supported = gaussian_fit.fit(target).share_inside >= MIN_SHARE
        return is_supported, "" if is_supported else REFUSAL

    def prepare(self, target: Any, rng: np.random.Generator) -> Prepared:
        """Fit the Gaussian; where the domain cuts it, learn another in a pilot run."""
        found = gaussian_fit.fit(target)
        if found.share_inside < MIN_SHARE:
            check.fail("sampler", "one that supports the target", repr(self), REFUSAL)
        prepared = self._build(target, found.center, found.factor, found.whiten)
        if found.share_inside >= tune.TRUSTED_SHARE:
            return prepared
        learned = PreconditionedCrankNicolson().prepare(target, rng).plan
        other = self._build(target, learned.center, learned.factor, learned.whiten)
        rates = [_acceptance(chain, rng) for chain in (prepared, other)]
        return other if rates[1] > rates[0] else prepared

    def _build(
        self, target: Any, center: Array, factor: Array, whiten: Array
    ) -> Prepared:
        plan = Plan(center, factor, whiten, float(self.tail), int(self.batch))
        return Prepared(
            target=target,
            plan=plan,
            run=run,
            init_fn=init,
            start=center,
            num_warmup=100,
            settings={"batch": plan.batch, "tail": plan.tail},
            scatter=factor,
        )


def _acceptance(prepared: Prepared, rng: np.random.Generator) -> float:
    """Share of accepted proposals in a short run, those outside the domain included."""
    state, count = prepared.init(), NUM_PILOT * 128
    draws = np.empty((count, state.position.size))
    prepared.runner()(state, rng, draws, np.empty((count, NUM_STATS)))
    return float(state.counts[ACCEPTED] / state.counts[PROPOSALS])
