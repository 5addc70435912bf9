"""Independent draws with the interface of chains, made in blocks.

A single draw ends at its first accepted proposal, and needs a pass over the records of
its own. Here all accepted proposals of a block are draws.

A move v from the mode x0 has the energy V(x0) + <g, v> + ||v||_M^2 / 2 + D, with the
gradient g at x0, the matrix M = R R^T of `region` (R is its ``root``) and the excess
D >= 0. Proposals follow the first terms, and are accepted if D is at most a threshold.

The state's memory holds accepted points that no draw has used yet. Its first entry is
their number, and each row is a point with its energy. They are used from the last one
on.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import call
from dpsample.problem.records import weighted_gram
from dpsample.problem.storage import add_entries
from dpsample.samplers.chain import COUNT, STAT, ChainState, Runner, fill_statistics
from dpsample.samplers.localized import columns
from dpsample.samplers.localized.columns import RecordColumns
from dpsample.samplers.localized.mode import Mode, in_basis
from dpsample.samplers.localized.region import Region
from dpsample.samplers.localized.rejection import MAX_BLOCK
from dpsample.targets.gibbs import Gibbs

# Maximum number of accepted points that are kept. A block has about as many on average.
MAX_KEPT = 256


class RejectionSampler(Protocol):
    """Attributes of a prepared sampler that blocks need."""

    @property
    def target(self) -> Gibbs:
        """Target of the draws."""

    @property
    def mode(self) -> Mode:
        """Mode of the target."""

    @property
    def region(self) -> Region:
        """Localized region of the draws."""

    @property
    def acceptances_per_proposal(self) -> float:
        """Expected number of accepted candidates per proposal."""

    def draw_candidates(
        self, rng: np.random.Generator, num_proposals: int
    ) -> tuple[Array, Array]:
        """Return the candidates among some proposals, and their thresholds."""

    def evaluate_excess(self, vectors: Array, thresholds: Array) -> tuple[Array, int]:
        """Return the excess of each row, and the number of records read."""

    def to_points(self, vectors: Array) -> Array:
        """Return the parameters of each row."""


def runner(prepared: RejectionSampler) -> Runner:
    """Return a function (state, rng, draws, stats) that fills its arrays."""
    energy, gap_matrix = (
        prepared.target.energy(prepared.mode.point),
        bound_gap(prepared),
    )

    def fill(
        state: ChainState, rng: np.random.Generator, draws: Array, stats: Array
    ) -> None:
        stored, done = state.memory[1:].reshape(MAX_KEPT, -1), 0
        while done < len(draws):
            before = state.counts.copy()
            while state.memory[0] == 0.0:
                points, energies = _draw_block(prepared, state, rng, gap_matrix)
                count = min(len(points), MAX_KEPT)
                stored[:count, :-1] = points[:count]
                stored[:count, -1] = energy + energies[:count]
                state.memory[0] = count
            left = int(state.memory[0])
            count = min(left, len(draws) - done)
            # Points are used in one order, so that draws do not depend on the lengths
            # of the arrays that are filled.
            rows, part = stored[left - count : left][::-1], slice(done, done + count)
            draws[part], stats[part] = rows[:, :-1], 0.0
            stats[part, STAT.energy], stats[part, STAT.acceptance_rate] = (
                rows[:, -1],
                np.nan,
            )
            # The work of a block is reported for its first draw.
            state.energy[0] = rows[0, -1]
            call(fill_statistics, state, before, stats[done])
            state.position[:], state.energy[0] = rows[-1, :-1], rows[-1, -1]
            state.memory[0] -= count
            done += count

    return fill


def bound_gap(prepared: RejectionSampler) -> Array | None:
    """Return U - M with D <= ||v||_{U - M}^2 / 2 on the region, or None without one.

    U is an upper bound of the Hessian of the energy on the region.
    """
    target, mode, region = prepared.target, prepared.mode, prepared.region
    min_curvature, max_curvature = target.curvature
    # U bounds the curvature within the slabs, but points may be outside of them.
    if min_curvature != max_curvature or region.has_slabs:
        return None
    (gram,) = columns.fold_columns(target, mode, add_entries, _sum_gaps, region)
    gap = in_basis(target, gram, mode.basis)
    return np.asarray(gap + region.slack * np.eye(len(gap)))


def _draw_block(
    prepared: RejectionSampler,
    state: ChainState,
    rng: np.random.Generator,
    gap_matrix: Array | None,
) -> tuple[Array, Array]:
    """Return the accepted points of a block, and their energies minus V(x0).

    If the threshold of a candidate is above the largest possible excess, the candidate
    needs no record, and its energy is NaN.
    """
    size = int(np.clip(MAX_KEPT / prepared.acceptances_per_proposal, 1, MAX_BLOCK))
    vectors, thresholds = prepared.draw_candidates(rng, size)
    excess = np.full(len(vectors), np.nan)
    is_open = np.ones(len(vectors), dtype=np.bool_)
    if gap_matrix is not None:
        max_excess = 0.5 * np.einsum("ij,jk,ik->i", vectors, gap_matrix, vectors)
        is_open = thresholds < max_excess
    excess[is_open], num_records = prepared.evaluate_excess(
        vectors[is_open], thresholds[is_open]
    )
    # This includes candidates whose excess is NaN, because they need no record.
    is_accepted = ~(excess > thresholds)
    state.counts[COUNT.proposals] += size
    state.counts[COUNT.accepted] += int(is_accepted.sum())
    state.counts[COUNT.values] += int(is_open.sum())
    state.counts[COUNT.records] += num_records
    vectors = vectors[is_accepted]
    energies = excess[is_accepted] + vectors @ prepared.mode.gradient
    energies += 0.5 * np.square(vectors @ prepared.region.root).sum(axis=1)
    return prepared.to_points(vectors), energies


def _sum_gaps(part: RecordColumns, region: Region) -> tuple[Array]:
    """Return the sum of a_i a_i^T weighted by the curvature above the envelope's."""
    lower, upper = part.ends(region.half_widths)
    ends = part.margins + lower, part.margins + upper
    curvature = part.setting.loss.curvature(*ends, part.response)[1]
    return (weighted_gram(part.part, curvature - part.weights(region.weights)),)
