r"""Exact draws in up to three dimensions, also for losses that are not smooth.

A *proposal* has a cell c of `dpsample.samplers.whole_body.tangents`, a vector of its
coordinates z and a standard exponential number E, the *clock*, all with digits on
demand. The cell has a rate g_j and a width w_j on each axis j. Its *corner* has
coordinates c_j, the ends at which g_j z_j is least, and s_j = |g_j| |z_j - c_j| is
measured from there. The density of z_j at c_j is r_j. The cell is drawn with
probability proportional to an integer n_c. Its `TangentCell.lowest` is a lower bound of
V(x) - V(x0) - sum s_j on cell and K, by Theorem 2 of `tangents`, where c_j is called
e_j. With them the *excess* is

.. math:: G_c(z) = V(x) - V(x_0) - \sum_j s_j + \log n_c + \sum_j \log r_j + h.

A proposal is accepted if x = x0 + F z is in K and E >= G_c(z). These are the
names in the code:

=============================  ========================================================
x0, F, z                       ``frame.point``, ``frame.root``, ``coordinates``
g_j, n_c                       ``rates``, ``weight``
e_j (below), E                 ``numbers``, ``clock``
a_j, floor(e_j / a_j), s_j     ``turn``, ``whole``, ``steps``
log n_c + sum log r_j          ``log_share``, in doubles ``log_shares``
G_c, h                         ``excess``, ``height``
log n_c + sum log r_j + h      ``constants``
=============================  ========================================================

**Distribution.** The density of z by cell c is proportional to n_c times the product of
r_j e^{-s_j}. Accepted, it is e^{-h} e^{-(V(x) - V(x0))}, the same for all cells, which
cover K (Theorem 2 of `dpsample.samplers.whole_body.branches`). That needs G_c >= 0 on
cell and K, which holds for h at least - `TangentCell.lowest` - log n_c - sum log r_j of
all cells. An h that is too large costs proposals only.

**Numbers.** An exponential number modulo a > 0 is an exponential number that is cut off
at a, because its density at s is the sum over m of exp(-s - m a). So s_j is an
exponential number e_j with digits on demand, less floor(e_j / a_j) a_j, where a_j =
|g_j| w_j is a fraction, and as many digits are drawn as the floor needs. Then z_j = c_j
+ s_j / g_j. If g_j = 0, then s_j = 0, and z_j is the lower end plus w_j times a uniform
number.

**Decisions** are as in `decisions`: by doubles with a bound of their error, otherwise
by fractions and decimals with more digits. Cells are boxes of the coordinates that are
drawn, so no decision about them is needed. V differs between x and the point of the
doubles by at most its Lipschitz constant on K times their distance. Errors of V itself
are those of tangents. Logarithms of doubles and fractions are computed to the digits of
G. All bounds are doubled.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import ClassVar

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.numerics import lazy_reals
from dpsample.numerics.lazy_reals import BitStream, LazyReal
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import risks_of
from dpsample.problem.storage import add_entries
from dpsample.regularizers import Regularizer
from dpsample.samplers.errors import FUNCTION_FAILED, raise_unless_ok
from dpsample.samplers.localized.exact_rejection import decimals, energy_rise
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.samplers.whole_body.body import explain_unsupported_domain
from dpsample.samplers.whole_body.decisions import (
    FIRST_DECIMAL_ERROR,
    FIRST_DIGITS,
    MORE_DIGITS,
    LazyNumbers,
    LazyPoints,
    Verdicts,
    as_decimal,
    draw_below,
)
from dpsample.samplers.whole_body.global_draws import (
    PreparedGlobal,
    explain_unsupported_facts,
    explain_unsupported_regularizer,
)
from dpsample.samplers.whole_body.tangents import (
    CellFrame,
    Splitting,
    TangentCell,
    find_cells,
    log_rates,
    new_frame,
)
from dpsample.targets.gibbs import Gibbs


def explain_unsupported_cells(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why exact draws by cells have no proof, or "" if they have one.

    The answer follows from public facts.
    """
    if facts.dim > Splitting.max_dim:
        return f"Cells need at most {Splitting.max_dim} coefficients. Use Proximal."
    # Exact comparisons need the loss in decimals (see `CellDecisions.excess`).
    if not facts.loss.has_decimals:
        return f"The {facts.loss.name} loss has no decimals for ties. Use Proximal."
    if not math.isfinite(facts.lipschitz_or_inf(2.0)):
        return "The slopes of the losses have no bound. Use Localized."
    return explain_unsupported_domain(
        facts.domain, facts.dim
    ) or explain_unsupported_regularizer(regularizer, facts.dim)


def explain_unsupported_draws(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why neither `Global` nor `TangentCells` has a proof, or ""."""
    reason = explain_unsupported_facts(facts, regularizer)
    return reason and explain_unsupported_cells(facts, regularizer)


class CellProposal(LazyNumbers):
    """Proposal of one cell, with the numbers from which its coordinates follow."""

    __slots__ = ("cell", "whole")

    def __init__(
        self,
        cell: TangentCell,
        numbers: list[LazyReal],
        whole: list[int],
        clock: LazyReal,
    ) -> None:
        super().__init__(numbers, clock)
        self.cell, self.whole = cell, whole

    def steps(self) -> list[Fraction]:
        """Return s_j = e_j - floor(e_j / a_j) a_j at the midpoints, 0 if g_j = 0."""
        return [
            number.midpoint - whole * turn if turn else Fraction(0)
            for number, whole, turn in zip(
                self.numbers, self.whole, turns_of(self.cell), strict=True
            )
        ]

    def coordinates(self) -> list[Fraction]:
        """Return z at the midpoints."""
        coordinates = []
        cell, steps = self.cell, self.steps()
        for j, rate in enumerate(cell.rates.tolist()):
            low, high = Fraction(float(cell.lower[j])), Fraction(float(cell.upper[j]))
            if rate == 0.0:
                coordinates.append(low + (high - low) * self.numbers[j].midpoint)
            else:
                corner = low if rate > 0.0 else high
                coordinates.append(corner + steps[j] / Fraction(rate))
        return coordinates

    def coordinate_error(self) -> Fraction:
        """Return a bound of the distance of each z_j from `coordinates`."""
        return self.error * max(
            Fraction(float(high)) - Fraction(float(low))
            if rate == 0.0
            else 1 / abs(Fraction(rate))
            for rate, low, high in zip(
                self.cell.rates.tolist(), self.cell.lower, self.cell.upper, strict=True
            )
        )


def turns_of(cell: TangentCell) -> list[Fraction]:
    """Return the ends a_j of the exponential numbers, 0 for uniform coordinates."""
    return [
        abs(Fraction(rate)) * (Fraction(float(high)) - Fraction(float(low)))
        for rate, low, high in zip(
            cell.rates.tolist(), cell.lower, cell.upper, strict=True
        )
    ]


def whole_turns(number: LazyReal, turn: Fraction) -> int:
    """Return floor(number / turn), with as many digits of the number as it needs.

    Examples
    --------
    >>> whole_turns(LazyReal(7, 1, lambda: 0), Fraction(1))  # between 7/2 and 4
    3
    """
    while True:
        scale = turn.numerator << number.bits
        # The number is in [digits, digits + 1) / 2^bits. Both quotients are exact,
        # because they are divisions of integers.
        low = number.digits * turn.denominator // scale
        # The number is below the end of its interval with probability 1. So its largest
        # quotient is the last integer below the end, which is a ceiling minus 1.
        high = -(-(number.digits + 1) * turn.denominator // scale) - 1
        if low == high:
            return low
        number.refine()


@dataclass(frozen=True, kw_only=True, eq=False)
class CellDecisions(LazyPoints[CellProposal]):
    """Cells of one target, and decisions about their proposals."""

    frame: CellFrame
    cells: list[TangentCell]
    cumulative: list[int]  # sums of weights
    constants: list[float]  # log n_c + sum log r_j + h, rounded
    height: float  # h
    slope: float  # bound of the gradient of V on K
    digits: int  # precision of the decimals of the first exact decision

    @classmethod
    def from_cells(cls, frame: CellFrame, cells: list[TangentCell]) -> CellDecisions:
        """Return the decisions about proposals of cells."""
        log_shares = [math.log(cell.weight) + sum(log_rates(cell)) for cell in cells]
        heights = [
            -float(cell.lowest) - log_share
            for cell, log_share in zip(cells, log_shares, strict=True)
        ]
        sizes = [
            abs(float(cell.lowest)) + abs(log_share) + abs(height) + 100.0
            for cell, log_share, height in zip(cells, log_shares, heights, strict=True)
        ]
        # G_c >= 0 needs h >= -lowest - log_share for all cells. Logarithms and sums in
        # doubles err by less than 1e-14 of these sizes, so that 1e-12 is far more.
        height = max(heights) + 1e-12 * max(sizes)
        target, facts = frame.target, frame.target.problem.facts
        center = target.regularizer_params.center
        # On K, x is at most this far from the center of the regularizer, whose gradient
        # is rho times the distance.
        distance = float(np.linalg.norm(frame.point - center)) + frame.body.reach
        slope = target.k * facts.lipschitz_or_inf(2.0) + frame.ridge * distance
        return cls(
            frame=frame,
            cells=cells,
            cumulative=list(accumulate(cell.weight for cell in cells)),
            constants=[log_share + height for log_share in log_shares],
            height=height,
            # The factor covers the rounding errors of the slope.
            slope=1.01 * slope,
            digits=FIRST_DIGITS + _extra_digits(frame),
        )

    @property
    def target(self) -> Gibbs:
        """The target."""
        return self.frame.target

    @property
    def base_point(self) -> Array:
        """The point x0."""
        return self.frame.point

    @property
    def settings(self) -> dict[str, int]:
        """Number of cells, for attributes of draws."""
        return {"num_cells": len(self.cells)}

    def plan_numbers(self) -> list[object]:
        """Return all arrays and numbers that define the draws."""
        # Checkpoints compare these numbers, to see whether they belong to the same
        # target.
        arrays = ((c.lower, c.upper, c.rates, float(c.weight)) for c in self.cells)
        return [self.frame.root, *(number for cell in arrays for number in cell)]

    def draw_proposals(self, word: BitStream, size: int) -> list[CellProposal]:
        """Draw proposals with their cells and numbers."""
        proposals = []
        for _ in range(size):
            # Cell i owns the integers from the sum of weights before it to the sum that
            # includes it, so that its probability is its weight over the total.
            weight = draw_below(self.cumulative[-1], word)
            cell = self.cells[bisect_right(self.cumulative, weight)]
            numbers, whole = [], []
            for turn in turns_of(cell):
                if turn:
                    numbers.append(lazy_reals.exponential(word))
                    whole.append(whole_turns(numbers[-1], turn))
                else:
                    numbers.append(lazy_reals.uniform(word))
                    whole.append(0)
            clock = lazy_reals.exponential(word)
            proposals.append(CellProposal(cell, numbers, whole, clock))
            pauses.notify_listeners()
        return proposals

    def decide(self, proposals: list[CellProposal]) -> Verdicts:
        """Return the decisions about some proposals."""
        frame, verdicts = self.frame, Verdicts.none(len(proposals))
        coordinates = np.array([[float(z) for z in p.coordinates()] for p in proposals])
        moves = coordinates @ frame.root.T
        points = frame.point + moves
        errors = self._point_errors(proposals, coordinates)
        # 1 inside of K, -1 outside, and 0 where digits have to decide.
        sides = frame.body.side_of(points, errors)
        candidates = [
            i
            for i in np.flatnonzero(sides >= 0.0).tolist()
            if sides[i] > 0.0 or self._until_certain(proposals[i], self._in_body)
        ]
        if not candidates:
            return verdicts
        part = [proposals[i] for i in candidates]
        decided = self._compare(part, points[candidates], errors[candidates])
        return verdicts.with_part(candidates, decided)

    def _point_errors(self, proposals: list[CellProposal], coordinates: Array) -> Array:
        """Return bounds of the distances of points in doubles from those meant."""
        root, point = self.frame.root, self.frame.point
        # Sums of dim products, and the sum with x0, have relative errors of at most dim
        # + 6 units.
        unit = (len(point) + 6) * UNIT_ROUNDOFF
        digits = np.array([float(p.coordinate_error()) for p in proposals])
        # The Frobenius norm is at least the spectral norm.
        size = float(np.linalg.norm(root))
        lengths = size * np.linalg.norm(coordinates, axis=1)
        rounding = unit * (lengths + float(np.linalg.norm(point)))
        return np.asarray(2.0 * (rounding + size * math.sqrt(len(point)) * digits))

    def _in_body(self, proposal: CellProposal) -> bool | None:
        """Return whether a proposal is in K, or None if the digits cannot tell."""
        body = self.frame.body
        return body.decide(self.point(proposal), self.point_error(proposal))

    def move(self, proposal: CellProposal) -> list[Fraction]:
        """Return F z at the midpoints, exactly."""
        coordinates = proposal.coordinates()
        return [
            sum(
                (Fraction(a) * z for a, z in zip(row, coordinates, strict=True)),
                Fraction(0),
            )
            for row in self.frame.root.tolist()
        ]

    def point(self, proposal: CellProposal) -> list[Fraction]:
        """Return x0 + F z at the midpoints."""
        base = map(Fraction, self.frame.point.tolist())
        return [x + w for x, w in zip(base, self.move(proposal), strict=True)]

    def point_error(self, proposal: CellProposal) -> Fraction:
        """Return a bound of the distance of a proposal from `point`."""
        dim = len(self.frame.point)
        # The norm of an error vector is at most sqrt(dim) times its largest entry.
        size = 1.01 * float(np.linalg.norm(self.frame.root)) * math.sqrt(dim)
        return Fraction(size) * proposal.coordinate_error()

    def _compare(
        self, proposals: list[CellProposal], points: Array, errors: Array
    ) -> Verdicts:
        """Return whether E >= G for proposals in K."""
        frame, target, num_records = self.frame, self.target, self.target.num_records
        arguments = target.problem.loss, points, num_records
        (risks,) = target.storage.fold(add_entries, risks_of, *arguments)
        distances = points - target.regularizer_params.center
        squares = np.einsum("ij,ij->i", distances, distances)
        energies = target.k * risks + 0.5 * frame.ridge * squares
        rises = energies - frame.base.value
        excess, tolerance = self.excess_of_doubles(proposals, rises)
        clocks = np.array([float(p.clock) for p in proposals])
        tolerance = tolerance + 2.0 * self._energy_errors(points, energies, errors)
        tolerance = tolerance + 4.0 * UNIT_ROUNDOFF * clocks
        difference = clocks - excess
        is_accepted = difference > 0.0
        # NaN, which no comparison of doubles decides, goes to the decimals.
        for i in np.flatnonzero(~(np.abs(difference) > tolerance)).tolist():
            is_accepted[i] = self._is_due(proposals[i])
        size = len(proposals)
        return Verdicts(is_accepted, rises, size, size * num_records)

    def excess_of_doubles(
        self, proposals: list[CellProposal], rises: Array
    ) -> tuple[Array, Array]:
        """Return G for rises V - V(x0), and a bound of the errors that G adds."""
        constants = dict(zip(map(id, self.cells), self.constants, strict=True))
        constant = np.array([constants[id(p.cell)] for p in proposals])
        steps = np.array([float(sum(p.steps(), Fraction(0))) for p in proposals])
        digits = np.array([float(p.error) for p in proposals])
        # Each s_j and the clock differ from their midpoints by at most ``digits``.
        error = (self.target.dim + 1) * digits
        # Logarithms of weights and rates are below 50 and 1,500, so that the sum of one
        # weight and three rates is below 1e4.
        sizes = 1e4 + np.abs(constant) + steps + np.abs(rises) + abs(self.height)
        error = error + 16.0 * UNIT_ROUNDOFF * sizes
        return rises - steps + constant, np.asarray(2.0 * error)

    def _energy_errors(self, points: Array, energies: Array, errors: Array) -> Array:
        """Return bounds of the errors of V - V(x0) at some points.

        They are 4 gamma times the size of all that V adds up, 2 k max|phi'| times the
        error of a margin, the error of V(x0), and the slope of V times the error of x.
        """
        frame, target = self.frame, self.target
        sizes = np.linalg.norm(points, axis=1)
        # Only linear losses have both signs, and no more than this size.
        size = np.abs(energies)
        if target.problem.loss.name == "linear":
            largest = frame.row_length * (sizes + 1.0) + frame.offset
            slope = target.problem.facts.slope_bound
            size = size + 2.0 * target.k * slope * largest
        error = 4.0 * frame.relative_error * size
        # V - V(x0) weighs a margin's error with k max|phi'|, once for each of its two
        # ends.
        steepest = target.k * target.problem.facts.slope_bound
        margin = np.array([frame.margin_error(x) for x in sizes.tolist()])
        error = error + 2.0 * steepest * margin
        return np.asarray(error + frame.base.value_error + self.slope * errors)

    def _is_due(self, proposal: CellProposal) -> bool:
        """Return whether E >= G, by as many digits as needed."""
        while True:
            digits = self.digits + MORE_DIGITS * proposal.num_refinements
            with decimals(digits):
                excess, error = self.excess(proposal, digits)
                gap = as_decimal(proposal.clock.midpoint) - excess
                if abs(gap) > error:
                    return gap > 0
            proposal.refine()

    def excess(self, proposal: CellProposal, digits: int) -> tuple[Decimal, Decimal]:
        """Return G at the midpoints in decimals, and a bound of the distance from G.

        The bound includes the distance of the clock from its midpoint. The context of
        decimals must have these ``digits``.
        """
        move = [as_decimal(w) for w in self.move(proposal)]
        energy = energy_rise(self.target, self.frame.point, move, digits)
        steps = as_decimal(sum(proposal.steps(), Fraction(0)))
        constant = log_share(proposal.cell) + Decimal(self.height)
        # V has at most this slope within the error of the point.
        change = Fraction(1.01 * self.slope) * self.point_error(proposal)
        # E and each of the s_j add their own distance from the midpoint.
        change += (len(move) + 1) * proposal.error
        error = FIRST_DECIMAL_ERROR.scaleb(-MORE_DIGITS * proposal.num_refinements)
        return energy - steps + constant, error + 2 * as_decimal(change)


def log_share(cell: TangentCell) -> Decimal:
    """Return log n_c + sum log r_j in the digits of the context."""
    total = Decimal(cell.weight).ln()
    widths = zip(cell.lower.tolist(), cell.upper.tolist(), strict=True)
    for rate, turn, (low, high) in zip(
        cell.rates.tolist(), turns_of(cell), widths, strict=True
    ):
        if rate == 0.0:
            total -= as_decimal(Fraction(high) - Fraction(low)).ln()
        else:
            # Turns are at least 2^-10, so three digits are lost. An exponential far
            # below the last digit may underflow to 0.
            missing = (-as_decimal(turn)).max(Decimal(-1_000_000)).exp()
            total += abs(Decimal(rate)).ln() - (1 - missing).ln()
    return total


def _extra_digits(frame: CellFrame) -> int:
    """Return the number of digits before the point of all that decimals add up.

    FIRST_DECIMAL_ERROR rests on it. With ``size`` >= |x| + |center| on K, margins and
    responses are at most the largest one at x0 + row_length size + offset + response.
    The product of (1 + margin)^4 and (1 + size)^2 is above losses, their slopes and the
    regularizer there. Its factors are k, rho and the number of records, for the sums.
    """
    target, reach = frame.target, frame.body.reach
    margin, value, offset, response = frame.base.largest.tolist()
    size = float(np.linalg.norm(frame.point)) + reach
    size += float(np.linalg.norm(target.regularizer_params.center))
    margin += frame.row_length * size + offset + response
    largest = (1.0 + target.k + frame.ridge) * target.storage.num_records
    largest *= (1.0 + value + (1.0 + margin) ** 4) * (1.0 + size) ** 2
    if not math.isfinite(largest):
        raise_unless_ok(FUNCTION_FAILED)  # always raises for this code
    return math.ceil(math.log10(largest))


@dataclass(frozen=True)
class TangentCells(Sampler):
    r"""Independent draws that are exact on the whole domain, in up to 3 dimensions.

    All losses of this package are supported, also those without a bounded curvature,
    such as the hinge loss and the absolute loss. The regularizer is a squared l2 norm,
    and the domain is an l2 ball, a box or a polytope with an interior. It is the
    sampler of `dpsample.release` with delta = 0 where `Global` has no proof.

    The domain is covered by some hundred cells, with a tangent below the energy in
    each. Each cell takes two passes over the records before the first draw. A draw then
    takes about one.

    Notes
    -----
    **Guarantee.** For all records, draws are independent and follow the target exactly,
    with decisions made as in real arithmetic, by digits on demand (Theorems 1 and 2 of
    `dpsample.samplers.whole_body.tangents` and Theorem 2 of
    `dpsample.samplers.whole_body.branches`). Random bits are taken to be fair. A draw
    that is not released is rounded to doubles. The running time depends on the records.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(200, 2, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Hinge(),
    ...                       domain=dps.domains.Ball(radius=2.0))
    >>> target = dps.Gibbs(problem, k=50.0, mu=0.1)
    >>> draws = dps.sample(target, sampler=dps.samplers.TangentCells(), num_draws=5,
    ...                    seed=1)
    >>> draws.posterior["theta"].shape
    (4, 5, 2)
    """

    exactness: ClassVar[Exactness] = "iid"

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Return whether loss, regularizer and domain allow it, and if not, why."""
        facts = target.problem.facts
        reason = explain_unsupported_cells(facts, target.regularizer)
        return not reason, reason

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedGlobal:
        """Cover the domain by cells with proved constants. ``rng`` is not used."""
        del rng
        self.require(target)
        frame = new_frame(target)
        decisions = CellDecisions.from_cells(frame, find_cells(frame))
        return PreparedGlobal(mode=None, decisions=decisions)
