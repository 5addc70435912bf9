r"""Proposals of branches, decided as real arithmetic would decide them.

A *proposal* has a branch c, a vector z of normal numbers and a standard exponential
number E, the *clock*, all with digits on demand (`dpsample.numerics.lazy_reals`). With
w = m_c + F_c z, x = x0 + w and the *excess*

.. math:: G_c(z) = V(x) - V(x_0) - |z|^2 / 2 + \log(n_c) - \log\det F_c + h

for the integer weight n_c of the branch, a proposal is accepted if x is in the branch's
shell and in K, and E >= G_c(z).

**Distribution.** h is at least log det F_c - log n_c - `Branch.lowest` for all
branches, so that G_c >= 0 on shell and K. The density of z is proportional to
e^{-|z|^2/2}, and w has this density divided by det F_c. So the density of accepted x by
branch c is proportional to n_c (1 / det F_c) e^{-|z|^2/2} e^{-G_c} = e^{-h} e^{-(V(x) -
V(x_0))}, the same for all branches: Theorem 2 of `branches`. Log n_c and log det F_c,
the logarithm of a product of doubles, are computed to as many digits as G. An h that is
too large costs proposals only, and so h is a double.

**Decisions.** Each is first made by doubles with a bound of their error. If it is
within that bound, it is made by fractions (shell, K and grid) or decimals (E >= G),
whose only error comes from the digits that are not drawn yet. While that does not
decide either, all numbers of the proposal get 64 more digits. So every decision is
right for the exact real numbers, with probability 1, and the distribution of accepted
points has no error at all.

**Bound of the doubles.** Margins u_i at x0 are rounded by at most the ``margin_error``
e of `RecordFacts`. Let beta be the smoothness of a loss and a the length of a row. Then
V differs from the energy with the rounded margins by at most k beta e a |w|. Terms
of records have relative errors of 16 u in losses and slopes, with u = 2^-53, and
(dim + 4) u in margins. They are the same as in `exact_rejection`, which lists them. To
these come the errors of the gradient and of the Gram matrix, and the error of w times
the slope of V. The sum is doubled.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.numerics import lazy_reals
from dpsample.numerics.lazy_reals import BitStream, LazyReal
from dpsample.samplers.errors import FUNCTION_FAILED, raise_unless_ok
from dpsample.samplers.localized.columns import Weights
from dpsample.samplers.localized.exact_rejection import decimals, energy_rise
from dpsample.samplers.localized.prepared import PreparedLocalized
from dpsample.samplers.localized.proposals import NONE
from dpsample.samplers.localized.region import Region, gram_of, slack_share
from dpsample.samplers.localized.rejection import (
    BLOCK_NUMBERS,
    LocalFrame,
    RejectionFunctions,
)
from dpsample.samplers.whole_body.branches import Branch, Shape
from dpsample.targets.gibbs import Gibbs

# Numbers of a proposal have at least 64 bits after the point.
FIRST_ERROR = 2.0**-62
# Digits of decimals for the first exact decision, whose error is then below
# FIRST_DECIMAL_ERROR, and digits that each refinement adds.
FIRST_DIGITS = 60
FIRST_DECIMAL_ERROR = Decimal("1e-35")
MORE_DIGITS = 19


class LazyNumbers:
    """Numbers of a proposal, which get more digits on demand."""

    __slots__ = ("clock", "num_refinements", "numbers")

    def __init__(self, numbers: list[LazyReal], clock: LazyReal) -> None:
        self.numbers, self.clock = numbers, clock
        self.num_refinements = 0

    def refine(self) -> None:
        """Draw 64 more digits of every number."""
        self.num_refinements += 1
        for number in (*self.numbers, self.clock):
            number.refine()
        pauses.notify_listeners()

    @property
    def error(self) -> Fraction:
        """Bound of the distance of every number from its midpoint."""
        # The number with the fewest digits determines the error.
        bits = min(number.bits for number in (*self.numbers, self.clock))
        return Fraction(1, 1 << bits)


class LazyProposal(LazyNumbers):
    """Proposal of one branch, with normal numbers."""

    __slots__ = ("branch",)

    def __init__(self, branch: Branch, noise: list[LazyReal], clock: LazyReal) -> None:
        super().__init__(noise, clock)
        self.branch = branch

    def noise_midpoints(self) -> list[Fraction]:
        """Return the middle of the interval of each normal number."""
        return [number.midpoint for number in self.numbers]

    def move(self) -> list[Fraction]:
        """Return m + F z at the midpoints, exactly."""
        noise = self.noise_midpoints()
        shift, root = self.branch.shift.tolist(), self.branch.root.tolist()
        return [
            Fraction(m)
            + sum(Fraction(a) * z for a, z in zip(row, noise, strict=True) if a != 0.0)
            for m, row in zip(shift, root, strict=True)
        ]


class BranchNumbers(NamedTuple):
    """Numbers of a branch for decisions by doubles."""

    terms: PreparedLocalized  # evaluates the terms of records
    gram: Array  # (dim, dim): of the weights below the terms
    root_norm: float  # bound of |F|
    shift_norm: float  # bound of |m|
    constant: float  # log n_c - log det F_c + h, rounded


class Verdicts(NamedTuple):
    """Decisions about some proposals."""

    is_accepted: NDArray[np.bool_]
    rises: Array  # V(x) - V(x0) as computed, infinite or NaN if it did not matter
    num_candidates: int  # proposals for which the losses counted
    num_records: int  # records that were read

    @classmethod
    def none(cls, size: int) -> Verdicts:
        """Return the verdicts that reject all proposals."""
        return cls(np.zeros(size, dtype=np.bool_), np.full(size, np.nan), 0, 0)

    def with_part(self, rows: list[int], part: Verdicts) -> Verdicts:
        """Return the verdicts with those about some proposals."""
        is_accepted, rises = self.is_accepted.copy(), self.rises.copy()
        is_accepted[rows], rises[rows] = part.is_accepted, part.rises
        return Verdicts(
            is_accepted,
            rises,
            self.num_candidates + part.num_candidates,
            self.num_records + part.num_records,
        )


Proposal = TypeVar("Proposal", bound=LazyNumbers)


class LazyPoints(Generic[Proposal]):
    """Accepted points that are known up to an error, which more digits make smaller."""

    def point(self, proposal: Proposal) -> list[Fraction]:
        """Return the point at the midpoints of a proposal's numbers."""
        raise NotImplementedError

    def point_error(self, proposal: Proposal) -> Fraction:
        """Return a bound of the distance of a proposal from `point`."""
        raise NotImplementedError

    @staticmethod
    def _until_certain(
        proposal: Proposal, test: Callable[[Proposal], bool | None]
    ) -> bool:
        """Return the result of a test, refining the proposal until it has one."""
        while (answer := test(proposal)) is None:
            proposal.refine()
        return answer

    def cell(self, proposal: Proposal, step: float) -> list[int]:
        """Return the multiples of a step that are nearest to a proposal, exactly.

        A tie has probability 0.
        """
        unit = Fraction(step)
        while True:
            error = self.point_error(proposal)
            cells = []
            for x in self.point(proposal):
                ends = (
                    (x + shift) / unit + Fraction(1, 2) for shift in (-error, error)
                )
                low, high = map(math.floor, ends)
                if low != high:
                    break
                cells.append(low)
            else:
                return cells
            proposal.refine()


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions(LazyPoints[LazyProposal]):
    """Branches of one target, and decisions about their proposals."""

    shape: Shape
    branches: list[Branch]
    numbers: list[BranchNumbers]
    height: float  # h
    digits: int  # precision of the decimals of the first exact decision

    @classmethod
    def from_branches(cls, shape: Shape, branches: list[Branch]) -> Decisions:
        """Return the decisions about proposals of branches."""
        facts, reach = shape.facts, shape.body.reach
        # Losses grow at most with the square of the margin's move, and the move of a
        # margin is at most a row's length times the move.
        # A bound of all that decimals add up at points of K.
        largest = facts.largest_sum * (1.0 + reach * (1.0 + facts.row_length)) ** 2
        largest *= 1.0 + facts.curvature
        if not math.isfinite(largest):
            raise_unless_ok(FUNCTION_FAILED)
        # Sums of this size lose as many digits before the point.
        digits = FIRST_DIGITS + math.ceil(math.log10(largest))
        with decimals(digits):
            heights = [-as_decimal(b.lowest) - _log_share(b) for b in branches]
            # The next double is above the rounding error of the first.
            # The larger h is, the more proposals are rejected. One rounding step up is
            # free.
            height = math.nextafter(float(max(heights)), math.inf)
            height += 4.0 * UNIT_ROUNDOFF * abs(height)
            constants = [float(_log_share(b) + Decimal(height)) for b in branches]
        numbers = [
            BranchNumbers(
                terms=_terms_above(shape, branch.weights),
                gram=gram_of(shape.target, shape.mode, branch.weights),
                root_norm=1.01 * float(np.linalg.norm(branch.root)),
                shift_norm=1.01 * float(np.linalg.norm(branch.shift)),
                constant=constant,
            )
            for branch, constant in zip(branches, constants, strict=True)
        ]
        return cls(
            shape=shape,
            branches=branches,
            numbers=numbers,
            height=height,
            digits=digits,
        )

    @property
    def target(self) -> Gibbs:
        """The target."""
        return self.shape.target

    @property
    def base_point(self) -> Array:
        """The point x0."""
        return self.shape.body.point

    @property
    def settings(self) -> dict[str, int]:
        """Number of branches, for attributes of draws."""
        return {"num_branches": len(self.branches)}

    def plan_numbers(self) -> list[object]:
        """Return all arrays and numbers that define the draws."""
        return [
            *(branch.root for branch in self.branches),
            *(branch.shift for branch in self.branches),
            *(float(branch.weight) for branch in self.branches),
        ]

    def draw_proposals(self, word: BitStream, size: int) -> list[LazyProposal]:
        """Draw proposals with their branches and numbers."""
        proposals = []
        weights = [branch.weight for branch in self.branches]
        for _ in range(size):
            branch = self.branches[choose(weights, word)]
            noise = [lazy_reals.normal(word) for _ in range(self.target.dim)]
            proposals.append(LazyProposal(branch, noise, lazy_reals.exponential(word)))
            pauses.notify_listeners()
        return proposals

    def decide(self, proposals: list[LazyProposal]) -> Verdicts:
        """Return the decisions about some proposals."""
        total = Verdicts.none(len(proposals))
        for branch, numbers in zip(self.branches, self.numbers, strict=True):
            rows = [
                i for i, proposal in enumerate(proposals) if proposal.branch is branch
            ]
            if rows:
                part = [proposals[i] for i in rows]
                total = total.with_part(rows, self._decide_branch(part, numbers))
        return total

    def _decide_branch(
        self, proposals: list[LazyProposal], numbers: BranchNumbers
    ) -> Verdicts:
        """Return the decisions about proposals of one branch."""
        branch = proposals[0].branch
        noise = np.array(
            [[float(z) for z in proposal.numbers] for proposal in proposals]
        )
        sizes = np.linalg.norm(noise, axis=1)
        moves = branch.shift + noise @ branch.root.T
        errors = self._move_errors(numbers, sizes)
        sides = np.minimum(
            self._side_of_shell(branch, moves, errors),
            self._side_of_body(moves, errors),
        )
        candidates = []
        for i in np.flatnonzero(sides >= 0.0).tolist():
            if sides[i] > 0.0 or self._is_inside(proposals[i]):
                candidates.append(i)
        verdicts = Verdicts.none(len(proposals))
        if not candidates:
            return verdicts
        part = [proposals[i] for i in candidates]
        arguments = moves[candidates], noise[candidates]
        return verdicts.with_part(candidates, self._compare(part, numbers, *arguments))

    def _move_errors(self, numbers: BranchNumbers, sizes: Array) -> Array:
        """Return bounds of the errors of moves in doubles."""
        dim = self.target.dim
        # The first term is rounding, the second the digits that are not drawn yet, each
        # of which moves a number by at most FIRST_ERROR.
        unit = (dim + 4) * UNIT_ROUNDOFF
        digits = numbers.root_norm * math.sqrt(dim) * FIRST_ERROR
        reach = numbers.shift_norm + numbers.root_norm * sizes
        return np.asarray(2.0 * unit * reach + digits)

    def _side_of_shell(self, branch: Branch, moves: Array, errors: Array) -> Array:
        """Return 1 inside of the shell, -1 outside, and 0 if doubles cannot tell."""
        if branch.inner < 0.0 and branch.outer == math.inf:
            return np.ones(len(moves))
        root = self.shape.metric_root
        size, unit = float(np.linalg.norm(root)), (len(root) + 4) * UNIT_ROUNDOFF
        lengths = np.linalg.norm(moves, axis=1)
        radii = np.linalg.norm(moves @ root, axis=1)
        # ||w||_P = |R^T w|. It errs by |R| times the error of w, and by the rounding of
        # the product and of the norm.
        error = 1.01 * size * errors + 2.0 * unit * (size * lengths + radii)
        # Doubles compare with radii that are doubles, without error.
        above = radii - branch.inner
        below = branch.outer - radii
        is_inside = (above > error) & (below > error)
        is_outside = (above < -error) | (below < -error)
        return np.asarray(is_inside * 1.0 - is_outside * 1.0)

    def _side_of_body(self, moves: Array, errors: Array) -> Array:
        """Return the same for K."""
        point = self.shape.body.point
        points = point + moves
        rounding = 2.0 * UNIT_ROUNDOFF * np.linalg.norm(points, axis=1)
        return self.shape.body.side_of(points, errors + rounding)

    def _is_inside(self, proposal: LazyProposal) -> bool:
        """Return whether a proposal is in shell and K, by as many digits as needed."""
        return self._until_certain(proposal, self._in_shell) and self._until_certain(
            proposal, self._in_body
        )

    def _in_shell(self, proposal: LazyProposal) -> bool | None:
        """Return whether a proposal is in its shell, or None if it is not certain."""
        branch = proposal.branch
        if branch.inner < 0.0 and branch.outer == math.inf:
            return True
        move = proposal.move()
        square = Fraction(0)
        for column in self.shape.metric_root.T.tolist():
            entry = sum(
                Fraction(a) * w for a, w in zip(column, move, strict=True) if a != 0.0
            )
            square += entry * entry
        size = Fraction(1.01 * float(np.linalg.norm(self.shape.metric_root)))
        error = size * self.point_error(proposal)
        is_certain = True
        for end, is_inner in ((branch.inner, True), (branch.outer, False)):
            if end < 0.0 or end == math.inf:
                continue  # this end does not limit the shell
            # |R^T w| differs by at most ``error`` from the root of ``square``.
            radius = Fraction(end)
            is_above = square > (radius + error) ** 2
            is_below = radius > error and square < (radius - error) ** 2
            if is_below if is_inner else is_above:
                return False
            is_certain = is_certain and (is_above if is_inner else is_below)
        return True if is_certain else None

    def _in_body(self, proposal: LazyProposal) -> bool | None:
        """Return whether a proposal is in K, or None if the digits cannot tell."""
        return self.shape.body.decide(self.point(proposal), self.point_error(proposal))

    def point(self, proposal: LazyProposal) -> list[Fraction]:
        """Return x0 + m + F z at the midpoints."""
        base = map(Fraction, self.shape.body.point.tolist())
        return [x + w for x, w in zip(base, proposal.move(), strict=True)]

    def point_error(self, proposal: LazyProposal) -> Fraction:
        """Return a bound of the distance of a proposal from `point`."""
        root = (
            1.01
            * float(np.linalg.norm(proposal.branch.root))
            * math.sqrt(len(proposal.numbers))
        )
        return Fraction(root) * proposal.error

    def _compare(
        self,
        proposals: list[LazyProposal],
        numbers: BranchNumbers,
        moves: Array,
        noise: Array,
    ) -> Verdicts:
        """Return whether E >= G for proposals of one branch that are in shell and K."""
        clocks = np.array([float(proposal.clock) for proposal in proposals])
        offsets = self._offsets(numbers, moves, noise)
        # E >= G if and only if the records' terms are at most E less all else of G.
        thresholds = clocks - offsets
        errors = self._tolerance(numbers, moves, noise, clocks, thresholds)
        # NaN, which no comparison of doubles decides, goes to the decimals.
        is_usable = np.isfinite(thresholds) & np.isfinite(errors)
        terms = np.full(len(proposals), np.nan)
        num_records = 0
        if is_usable.any():
            # The sum of the terms may stop at its limit, because no term is negative.
            limits = thresholds[is_usable] + errors[is_usable]
            excess = numbers.terms.evaluate_excess(
                moves[is_usable], limits, is_checked=False
            )
            terms[is_usable], num_records = excess
        # Candidates beyond their limit need no record.
        num_candidates = int(np.count_nonzero(~(thresholds + errors < 0.0)))
        difference = thresholds - terms
        is_accepted = difference > 0.0
        # Not "<=", so that NaN counts as undecided.
        for i in np.flatnonzero(~(np.abs(difference) > errors)).tolist():
            is_accepted[i] = self._is_due(proposals[i])
        squares = np.einsum("ij,ij->i", noise, noise)
        # V(x) - V(x0) is G without the normal density, weight, determinant and h.
        rises = terms + offsets + 0.5 * squares - numbers.constant
        return Verdicts(is_accepted, rises, num_candidates, num_records)

    def _offsets(self, numbers: BranchNumbers, moves: Array, noise: Array) -> Array:
        """Return G less the terms of the records."""
        # G = <g, w> + ||w||_M^2 / 2 + terms - |z|^2 / 2 + constant, where the terms are
        # what the losses exceed their quadratics by.
        ridge = self.target.k * self.target.mu * self.target.curvature[0]
        matrix = numbers.gram + ridge * np.eye(len(numbers.gram))
        offsets = moves @ self.shape.facts.gradient
        offsets = offsets + 0.5 * np.einsum("ij,jk,ik->i", moves, matrix, moves)
        squares = np.einsum("ij,ij->i", noise, noise)
        return np.asarray(offsets - 0.5 * squares + numbers.constant)

    def _tolerance(
        self,
        numbers: BranchNumbers,
        moves: Array,
        noise: Array,
        clocks: Array,
        thresholds: Array,
    ) -> Array:
        """Return a bound of the error of E - G in doubles."""
        target, facts, u = self.target, self.shape.facts, UNIT_ROUNDOFF
        dim, num_records = target.dim, target.storage.num_records
        # u is the unit roundoff and ``unit`` the relative error of a sum of dim
        # products.
        unit = (dim + 4) * u
        sizes, lengths = np.linalg.norm(moves, axis=1), np.linalg.norm(noise, axis=1)
        length, curvature = facts.row_length, facts.curvature
        margins, slopes, values, mixed = facts.sizes
        ridge = target.k * target.mu * target.curvature[0]
        center = target.regularizer_params.center
        distance = float(np.linalg.norm(self.shape.body.point - center))
        # The error of w counts with the slope of V, which grows with |w|.
        steepness = curvature * length**2 + ridge
        slope = slopes * length + ridge * distance + steepness * (sizes + 1.0)
        error = slope * self._move_errors(numbers, lengths)
        # Rounding of losses and slopes at x0, which the terms are computed from.
        error = error + 40.0 * u * (values + mixed)
        # Terms in |w|.
        linear = curvature * length * 2.2 * facts.margin_error + facts.gradient_error
        linear += 60.0 * u * length * (slopes + curvature / target.k * margins)
        linear += 2.0 * unit * float(np.linalg.norm(facts.gradient))
        error = error + linear * sizes
        # Terms in |w|^2.
        trace = float(np.abs(np.diag(numbers.gram)).sum())
        square = curvature * length**2 * (7.0 * unit + 40.0 * u)
        square += 2.0 * unit * (float(np.linalg.norm(numbers.gram)) + ridge)
        square += (1.1 * slack_share(target) + 4.0 * u) * trace
        error = error + square * sizes**2
        error = error + 2.0 * unit * lengths**2
        error = error + math.sqrt(dim) * (lengths + 1.0) * FIRST_ERROR + FIRST_ERROR
        error = error + 4.0 * u * (clocks + abs(numbers.constant))
        # The terms of the sum are not negative, and it is at most the threshold.
        num_terms = min(num_records, BLOCK_NUMBERS) + num_records / 64 + 16
        error = error + num_terms * u * (np.abs(thresholds) + 1.0 + error)
        return np.asarray(2.0 * error)

    def _is_due(self, proposal: LazyProposal) -> bool:
        """Return whether E >= G, by as many digits as needed."""
        while True:
            digits = self.digits + MORE_DIGITS * proposal.num_refinements
            with decimals(digits):
                excess, error = self.excess(proposal, digits)
                gap = as_decimal(proposal.clock.midpoint) - excess
                if abs(gap) > error:
                    return gap > 0
            proposal.refine()

    def excess(self, proposal: LazyProposal, digits: int) -> tuple[Decimal, Decimal]:
        """Return G at the midpoints in decimals, and a bound of the distance from G.

        The bound includes the distance of the clock from its midpoint. The context of
        decimals must have these ``digits``.
        """
        move = proposal.move()
        energy = energy_rise(
            self.target,
            self.shape.body.point,
            [as_decimal(w) for w in move],
            digits,
        )
        noise = proposal.noise_midpoints()
        # A bound of the slope of V between x0 and the point, times the error of the
        # point.
        square = as_decimal(sum((z * z for z in noise), Fraction(0)))
        constant = _log_share(proposal.branch) + Decimal(self.height)
        excess = energy - square / 2 + constant
        # V has at most this slope within the error of the point.
        target, facts = self.target, self.shape.facts
        ridge = target.k * target.mu * target.curvature[0]
        center = target.regularizer_params.center
        distance = float(np.linalg.norm(self.shape.body.point - center))
        reach = math.sqrt(sum(float(w) ** 2 for w in move)) + 1.0
        steepness = facts.curvature * facts.row_length**2 + ridge
        slope = facts.sizes[1] * facts.row_length + ridge * distance
        slope = 1.01 * (slope + steepness * reach)
        length = math.sqrt(sum(float(z) ** 2 for z in noise)) + 1.0
        change = Fraction(slope) * self.point_error(proposal)
        # |z|^2 / 2 changes by |z| times the error of z. The clock adds its own error.
        change += Fraction(1.01 * length * math.sqrt(len(noise)) + 1.0) * proposal.error
        error = FIRST_DECIMAL_ERROR.scaleb(-MORE_DIGITS * proposal.num_refinements)
        return excess, error + 2 * as_decimal(change)


def choose(weights: list[int], word: Callable[[], int]) -> int:
    """Draw an index with probability proportional to integer weights, exactly.

    Examples
    --------
    >>> choose([0, 5, 0], lambda: 1 << 63)
    1
    """
    if len(weights) == 1:
        return 0
    return bisect_right(list(accumulate(weights)), draw_below(sum(weights), word))


def draw_below(total: int, word: Callable[[], int]) -> int:
    """Draw a whole number from 0 to total - 1, all with the same probability.

    Examples
    --------
    >>> draw_below(5, lambda: 3)
    3
    """
    # Integers that do not fit are drawn again, so that all others are equally likely.
    bits = total.bit_length()
    while True:
        number = 0
        for _ in range(-(-bits // lazy_reals.WORD_BITS)):
            number = number << lazy_reals.WORD_BITS | word()
        number &= (1 << bits) - 1
        if number < total:
            return number


def _terms_above(shape: Shape, weights: Weights) -> PreparedLocalized:
    """Return what evaluates the sum of losses above the quadratic of some weights."""
    # Only weights and mode are used here. The region stands for all of K, and there is
    # no proposal density of its own.
    target, mode = shape.target, shape.mode
    region = Region(
        ellipsoids=(),
        half_widths=(),
        num_rounds=0,
        has_slabs=False,
        weights=weights,
        root=np.eye(target.dim),
        slack=0.0,
        mean_excess=math.inf,
    )
    return PreparedLocalized(
        target=target,
        mode=mode,
        region=region,
        proposal=NONE,
        frame=LocalFrame.new(target, mode, region),
        pieces=RejectionFunctions.of_target(target),
    )


def _log_share(branch: Branch) -> Decimal:
    """Return log n_c - log det F_c in the digits of the context."""
    return Decimal(branch.weight).ln() - sum(
        (Decimal(x).ln() for x in np.diag(branch.root).tolist()), Decimal(0)
    )


def as_decimal(number: Fraction) -> Decimal:
    """Return a fraction in the digits of the context."""
    return Decimal(number.numerator) / Decimal(number.denominator)
