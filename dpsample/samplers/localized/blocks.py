"""Draws for chains: blocks of tries, of which the accepted ones are all draws.

Those that are left wait in the state's memory.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import call
from dpsample.problem.records import weighted_gram
from dpsample.problem.storage import add_entries
from dpsample.samplers.chain import (
    ACCEPTANCE,
    ACCEPTED,
    ENERGY,
    PROPOSALS,
    RECORDS,
    VALUES,
    ChainState,
    Runner,
    fill_statistics,
)
from dpsample.samplers.localized import columns
from dpsample.samplers.localized.columns import RecordColumns
from dpsample.samplers.localized.mode import Mode, in_basis
from dpsample.samplers.localized.region import Region
from dpsample.samplers.localized.tries import MAX_BLOCK
from dpsample.targets.gibbs import Gibbs

MAX_KEPT = 256  # draws of a block of tries that are kept, about


class RejectionSampler(Protocol):
    """What blocks need from the prepared sampler (`PreparedLocalized`)."""

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
    energy, above = prepared.target.energy(prepared.mode.point), most_above(prepared)

    def fill(
        state: ChainState, rng: np.random.Generator, draws: Array, stats: Array
    ) -> None:
        kept, done = state.memory[1:].reshape(MAX_KEPT, -1), 0
        while done < len(draws):
            before = state.counts.copy()
            while state.memory[0] == 0.0:
                points, energies = _block(prepared, state, rng, above)
                count = min(len(points), MAX_KEPT)
                kept[:count, :-1] = points[:count]
                kept[:count, -1] = energy + energies[:count]
                state.memory[0] = count
            left = int(state.memory[0])
            count = min(left, len(draws) - done)
            # Last ones first, wherever a chunk ends.
            rows, part = kept[left - count : left][::-1], slice(done, done + count)
            draws[part], stats[part] = rows[:, :-1], 0.0
            stats[part, ENERGY], stats[part, ACCEPTANCE] = rows[:, -1], np.nan
            # The work of a block is that of its first draw.
            state.energy[0] = rows[0, -1]
            call(fill_statistics, state, before, stats[done])
            state.position[:], state.energy[0] = rows[-1, :-1], rows[-1, -1]
            state.memory[0] -= count
            done += count

    return fill


def most_above(prepared: RejectionSampler) -> Array | None:
    """U - M with D <= ||v||_{U - M}^2 / 2 in all ellipsoids; None without such."""
    target, mode, region = prepared.target, prepared.mode, prepared.region
    least, most = target.curvature
    if least != most or region.has_slabs:  # beyond slabs U is not above
        return None
    (gram,) = columns.folded(target, mode, add_entries, _above, region)
    excess = in_basis(target, gram, mode.basis)
    return np.asarray(excess + region.slack * np.eye(len(excess)))


def _block(
    prepared: RejectionSampler,
    state: ChainState,
    rng: np.random.Generator,
    above: Array | None,
) -> tuple[Array, Array]:
    """Draws of one block of tries, and how far their energies are above V(x0).

    A try whose budget is above all that D can be needs no record, and its energy is
    not known.
    """
    size = int(np.clip(MAX_KEPT / (prepared.acceptances_per_proposal), 1, MAX_BLOCK))
    vectors, budgets = prepared.draw_candidates(rng, size)
    excess = np.full(len(vectors), np.nan)
    left = np.ones(len(vectors), dtype=np.bool_)
    if above is not None:
        most = 0.5 * np.einsum("ij,jk,ik->i", vectors, above, vectors)
        left = budgets < most
    excess[left], records = prepared.evaluate_excess(vectors[left], budgets[left])
    is_kept = ~(excess > budgets)
    state.counts[PROPOSALS] += size
    state.counts[ACCEPTED] += int(is_kept.sum())
    state.counts[VALUES] += int(left.sum())
    state.counts[RECORDS] += records
    vectors = vectors[is_kept]
    energies = excess[is_kept] + vectors @ prepared.mode.gradient
    energies += 0.5 * np.square(vectors @ prepared.region.root).sum(axis=1)
    return prepared.to_points(vectors), energies


def _above(part: RecordColumns, region: Region) -> tuple[Array]:
    """Sum of a_i a_i^T weighted by the most curvature above the envelope's."""
    lower, upper = part.ends(region.halves)
    ends = part.margins + lower, part.margins + upper
    most = part.scene.loss.curvature(*ends, part.response)[1]
    return (weighted_gram(part.part, most - part.weights(region.weights)),)
