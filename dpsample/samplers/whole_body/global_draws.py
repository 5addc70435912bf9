"""Sampler of exact draws on a whole body: which targets it supports, and its draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import Array
from dpsample.core.jit import call
from dpsample.losses import Loss
from dpsample.numerics.lazy_reals import BitStream
from dpsample.problem.facts import PublicFacts, smoothness_or_inf
from dpsample.regularizers import Regularizer, SquaredNorm
from dpsample.samplers.chain import (
    COUNT,
    ChainState,
    Runner,
    Settings,
    fill_statistics,
    flatten_plan,
    new_state,
)
from dpsample.samplers.errors import WorkLimitError
from dpsample.samplers.localized import mode as modes
from dpsample.samplers.localized.localized import explain_unsupported
from dpsample.samplers.localized.mode import Mode
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.samplers.whole_body.body import ExactBody, explain_unsupported_domain
from dpsample.samplers.whole_body.branches import find_branches, new_shape
from dpsample.samplers.whole_body.decisions import Decisions
from dpsample.targets.gibbs import Gibbs

# Number of proposals of a block of draws that are not released.
BLOCK_SIZE = 64
# Largest number of proposals that are compared with the records together. It grows with
# the number of proposals that a draw has made.
MAX_GROUP = 64


def explain_unsupported_facts(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why exact draws on all of K have no proof, or "" if they have one.

    The answer follows from public facts. The last words of a reason are the remedy.
    """
    reason = _loss_obstacle(facts.loss)
    if not reason and not math.isfinite(smoothness_or_inf(facts)):
        reason = "The curvature of the losses has no bound."
    if not reason:
        reason = explain_unsupported_domain(facts.domain, facts.dim)
    if not reason:
        reason = explain_unsupported_regularizer(regularizer, facts.dim)
    return reason


def _loss_obstacle(loss: Loss) -> str:
    """Return why a loss is not supported, or ""."""
    if explain_unsupported(loss):
        return (
            f"The {loss.name} loss has no bounded curvature: use TangentCells in up to "
            "3 dimensions, or Proximal."
        )
    if not loss.has_digits:
        return f"The {loss.name} loss has no decimals for ties. Use Localized."
    return ""


def explain_unsupported_regularizer(regularizer: Regularizer, dim: int) -> str:
    """Return why a regularizer is not supported, or ""."""
    low, high = regularizer.curvature_l2(dim)
    is_quadratic = isinstance(regularizer, SquaredNorm) and low == high
    return (
        ""
        if is_quadratic
        else "The regularizer differs from a squared l2 norm: use p = 2."
    )


@dataclass(frozen=True)
class Global(Sampler):
    r"""Independent draws that are exact on the whole domain, to the last digit.

    The losses are this package's smooth ones, the regularizer is a squared l2 norm with
    a weight > 0, and the domain is an l2 ball, a box or a polytope with an interior. It
    is the sampler of `dpsample.release` with delta = 0. Where the target is far from a
    Gaussian, its draws take fewer passes over the records than with `Localized`.

    Notes
    -----
    **Guarantee.** For all records, draws are independent and follow the target exactly.
    No part of it is left out, and decisions are made as in real arithmetic, by digits
    on demand (Theorems 1 and 2 of `dpsample.samplers.whole_body.branches`, and
    `dpsample.samplers.whole_body.decisions`). Random bits are taken to be fair. A draw
    that is not released is rounded to doubles. The running time depends on the records.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(200, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0))
    >>> target = dps.Gibbs(problem, k=50.0, mu=0.1)
    >>> draws = dps.sample(target, sampler=dps.samplers.Global(), num_draws=5, seed=1)
    >>> draws.posterior["theta"].shape
    (4, 5, 2)
    """

    exactness: ClassVar[Exactness] = "iid"

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether loss, regularizer and domain allow it, and if not, why."""
        facts = target.problem.facts
        reason = explain_unsupported_facts(facts, target.regularizer)
        if not reason and not target.k * target.mu * target.curvature[0] > 0.0:
            reason = "The energy needs mu > 0."
        return not reason, reason

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedGlobal:
        """Find the mode, and branches with proved constants. ``rng`` is not used."""
        del rng
        self.require(target)
        return PreparedGlobal.from_target(target)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedGlobal:
    """The sampler, ready to draw. All of it may depend on the records."""

    mode: Mode | None  # None where no mode was needed
    decisions: Any  # `Decisions`, or the same of cells

    @classmethod
    def from_target(cls, target: Gibbs) -> PreparedGlobal:
        """Return the sampler of a supported target."""
        mode = None
        # Without a usable Hessian the search for the mode fails.
        with suppress(np.linalg.LinAlgError):
            mode = modes.find(target, target.mu)
        if mode is None:
            # Any point is valid as x0.
            inner = target.domain.interior_point(target.dim)
            mode = modes.take_point(target, target.mu, inner)
        body = ExactBody.from_domain(target.domain, mode.point)
        shape = new_shape(target, mode, body)
        branches = find_branches(shape)
        return cls(mode=mode, decisions=Decisions.from_branches(shape, branches))

    @property
    def target(self) -> Gibbs:
        """Density of the draws."""
        target: Gibbs = self.decisions.target
        return target

    @property
    def start(self) -> Array:
        """Point of the domain at which chains may start."""
        return np.asarray(self.decisions.base_point)

    @property
    def num_warmup(self) -> int:
        """Zero, because draws are independent."""
        return 0

    @property
    def settings(self) -> Settings:
        """Number of branches or cells, for attributes of draws."""
        return dict(self.decisions.settings)

    def draw(
        self,
        rng: np.random.Generator,
        max_passes: float = math.inf,
        *,
        on_passes: Callable[[float], None] | None = None,
    ) -> tuple[object, dict[str, int]]:
        """Return an accepted proposal and the counts of the draw.

        There is no limit of proposals. `WorkLimitError` says that ``max_passes`` passes
        over the records did not suffice. ``on_passes`` is called with the number of
        passes so far.
        """
        word = BitStream(rng)
        num_records = self.target.storage.num_records
        counts = {"proposals": 0, "candidates": 0, "records": 0}
        while True:
            # The first proposals are tested one by one, because most draws need few.
            # Draws that have read many records test more proposals in a pass.
            size = min(1 + counts["candidates"] // 16, MAX_GROUP)
            proposals = self.decisions.draw_proposals(word, size)
            verdicts = self.decisions.decide(proposals)
            counts["proposals"] += size
            counts["candidates"] += verdicts.num_candidates
            counts["records"] += verdicts.num_records
            if counts["records"] > max_passes * num_records:
                raise WorkLimitError
            # The first accepted proposal is the draw. Which one is first does not
            # depend on what the others are.
            for i in np.flatnonzero(verdicts.is_accepted).tolist():
                return proposals[i], counts
            if on_passes is not None:
                on_passes(counts["records"] / num_records)
            pauses.notify_listeners()

    def to_point(self, accepted: object) -> Array:
        """Return the nearest doubles, or a projection if rounding puts them outside."""
        point = np.array([float(x) for x in self.decisions.point(accepted)])
        target = self.target
        # The nearest doubles of a point of K may be outside.
        return point if target._is_inside(point) else target.domain.project(point)

    def init(self, position: Array | None = None) -> ChainState:
        """Return a state without stored draws. No draw depends on its position."""
        point = self.start if position is None else position
        memory = np.zeros(1 + BLOCK_SIZE * (self.target.dim + 1))
        return new_state(self.target, point, memory=memory)

    def draw_start(self, rng: np.random.Generator) -> Array:
        """Return the mode, because no draw depends on the start."""
        del rng
        return self.start.copy()

    def numbers(self) -> list[object]:
        """Return all arrays and numbers that define the draws."""
        return [
            *self.decisions.plan_numbers(),
            *flatten_plan(self.target.numbers),
            *self.target.identity(self.start),
        ]

    def runner(self) -> Runner:
        """Return a function (state, rng, draws, stats) that fills its arrays.

        All accepted points of a block of proposals are draws. The state's memory holds
        those that are not used yet, as in `dpsample.samplers.localized.blocks`.
        """
        height = self.target.energy(self.start)

        def fill(
            state: ChainState, rng: np.random.Generator, draws: Array, stats: Array
        ) -> None:
            stored = state.memory[1:].reshape(BLOCK_SIZE, -1)
            for i in range(len(draws)):
                before = state.counts.copy()
                while state.memory[0] == 0.0:
                    self._store_block(state, stored, rng, height)
                # The stored draws are used from the last to the first, and memory[0]
                # counts them.
                state.memory[0] -= 1.0
                row = stored[int(state.memory[0])]
                draws[i], stats[i] = row[:-1], 0.0
                state.position[:], state.energy[0] = row[:-1], row[-1]
                call(fill_statistics, state, before, stats[i])

        return fill

    def _store_block(
        self, state: ChainState, stored: Array, rng: np.random.Generator, height: float
    ) -> None:
        """Store the accepted points of a block of proposals, and their energies."""
        proposals = self.decisions.draw_proposals(BitStream(rng), BLOCK_SIZE)
        verdicts = self.decisions.decide(proposals)
        accepted = np.flatnonzero(verdicts.is_accepted).tolist()
        for row, i in enumerate(accepted):
            stored[row, :-1] = self.to_point(proposals[i])
            # Verdicts state the rise of the energy from the start.
            stored[row, -1] = height + verdicts.rises[i]
        state.memory[0] = len(accepted)
        state.counts[COUNT.proposals] += BLOCK_SIZE
        state.counts[COUNT.accepted] += len(accepted)
        state.counts[COUNT.values] += verdicts.num_candidates
        state.counts[COUNT.records] += verdicts.num_records
        pauses.notify_listeners()
