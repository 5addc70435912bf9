r"""Cells that cover a body of at most three dimensions, and tangents below the energy.

The energy V is k times the mean of the losses phi, plus k mu r with a regularizer r. It
is convex on all of R^d, and x0 is any point. Parameters are x = x0 + F z with an
invertible matrix F of doubles. A *cell* is a box of z whose ends are doubles. Cells
begin with one box that contains z for all x in K, and each split replaces a box by two
with a common facet. So cells cover K, and overlap in a set of measure 0. A cell, or a
part of one, is dropped only if exact arithmetic proves that a half space separates it
from K.

**Theorem 1** (tangents). Let theta be any vector of doubles, and for each record let
u_i be any number and s_i a subgradient of phi(., y_i) at u_i. For all x

.. math:: V(x) \ge \frac{k}{n} \sum_i [\varphi(u_i, y_i) + s_i (\langle a_i, \theta
   \rangle + b_i - u_i)] + \frac{\rho}{2} \|\theta - c\|^2 + \langle \gamma, x - \theta
   \rangle, \qquad \gamma = \frac{k}{n} \sum_i s_i a_i + \rho (\theta - c),

rho = k mu times the curvature of r. *Proof.* phi(v) >= phi(u_i) + s_i (v - u_i) at v =
<a_i, x> + b_i, and the square is above its tangent. Sum up. QED

Neither the losses' smoothness nor exact margins are needed: u_i is the margin *as
computed*, which is within `margin_error` e of the true one, so that the brackets lose
at most |s_i| e. Losses and slopes of doubles have relative errors of 16 u, u = 2^-53,
and sums of n terms, in any order, of n u. With gamma the sum of these, the line as
computed is above V by at most

.. math:: 4 \gamma (k \bar\varphi + \rho \|\theta - c\|^2) + 2 k \bar s e
   + 4 \gamma (k \bar s a + \rho \|\theta - c\|) \|x - \theta\|,

with the means of |phi_i| and |s_i|, and the largest length a of a row. It is
subtracted. At a margin where the slope jumps, both one-sided slopes are subgradients.

V(x0) must not be above its computed value by more than its error. If the slope jumps
within e of a margin, phi rises by up to its largest slope times e, even where the
computed slope is 0. So this error has the public bound of slopes.

**Theorem 2** (proposals). For doubles g_j let s_j(z) = |g_j| |z_j - e_j| be measured
from the end e_j of the cell at which g_j z_j is least. An axis with |g_j| w_j below
`Splitting.min_turn`, w_j the width, has g_j = 0. The tangent less the sum of s_j is a
sum of linear functions of single z_j, so its minimum over the cell is at ends. These
are found by fractions, and the sum, `TangentCell.lowest`, is at most V(x) - V(x0) - sum
s_j on cell and K. Any g_j is valid. Those of the tangent, F^T gamma, lose nothing.

So z_j at distances s_j / |g_j| from e_j, with s_j exponential and cut off at |g_j| w_j,
and uniform z_j where g_j = 0, are proposals for Theorem 2 of `branches`: cells are its
sets, and the logarithms of the densities at e_j are log(|g_j| / (1 - e^{-|g_j| w_j}))
or -log w_j.

Where tangents touch, and which cells are split or lose a part that is apart from K,
affects the running time alone.
"""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsample.core import pauses
from dpsample.core.arrays import UNIT_ROUNDOFF, Array
from dpsample.losses import Loss
from dpsample.problem import records
from dpsample.problem.records import Data
from dpsample.samplers import gaussian_fit
from dpsample.samplers.errors import FUNCTION_FAILED, raise_unless_ok
from dpsample.samplers.exact.grid_cells import moments, rotate_to_gradient
from dpsample.samplers.whole_body.body import WIDENED, ExactBody
from dpsample.targets.gibbs import Gibbs, as_rows


class Splitting:
    """Numbers that decide which cells are made. None affects the distribution."""

    # Largest dimension. The number of cells grows exponentially with it.
    max_dim: int = 3
    # Largest number of cells, and the expected share of rejections at which splitting
    # ends, from dimension 1 on. The share is computed after so many splits.
    max_cells: tuple[int, ...] = (200, 500, 1000)
    tolerance: tuple[float, ...] = (0.02, 0.08, 0.2)
    check_interval: int = 8
    # A proposal outside of K costs this share of one that is compared with the records.
    outside_cost: float = 0.25
    # A cell with at least this share of its proposals outside of K is trimmed where
    # that lowers the logarithm of its mass so much, found by so many bisections.
    trimmed_share: float = 0.25
    min_trim: float = 0.4
    num_bisections: int = 8
    # Steps of the search for the point of a cell that is nearest to a ball's center.
    num_sweeps: int = 6
    # The first box is wider than K by this share.
    margin: float = 2.0**-6
    # An exponential variate that is cut off below this number counts as uniform.
    min_turn: float = 2.0**-10
    # Limits of the estimated curvature in units of the fit, so that one bad estimate
    # does not decide the order of splits.
    min_curvature: float = 0.3
    max_curvature: float = 1e4
    # Weights of cells are integers that sum to about this number.
    weight_units: int = 2**60


class PointSums(NamedTuple):
    """Sums over the records at a point, as computed."""

    value: float  # sum of phi
    value_size: float  # sum of |phi|
    slope_size: float  # sum of |phi'|
    slope: Array  # (dim,): sum of phi' a_i
    largest: Array  # (4,): largest |margin|, |phi|, |offset| and |response|


def sum_part(part: Data, loss: Loss, point: Array) -> PointSums:
    """Return the sums of some records."""
    margins = np.empty(part.num_records)
    records.margins_of(part, point, 0, part.num_records, margins)
    values, slopes = loss._evaluate_flat(margins, part.response)
    sizes = np.abs(values)
    largest = [
        np.abs(numbers).max(initial=0.0)
        for numbers in (margins, sizes, part.offset, part.response)
    ]
    return PointSums(
        float(values.sum()),
        float(sizes.sum()),
        float(np.abs(slopes).sum()),
        np.asarray(slopes @ as_rows(part)),
        np.array(largest),
    )


def add_point_sums(left: PointSums, right: PointSums) -> PointSums:
    """Return the sums of two parts."""
    largest = np.maximum(left.largest, right.largest)
    return PointSums(
        left.value + right.value,
        left.value_size + right.value_size,
        left.slope_size + right.slope_size,
        left.slope + right.slope,
        largest,
    )


class Tangent(NamedTuple):
    """The line value + <slope, x - point>, as computed, and bounds of its error.

    It is above V by at most value_error + slope_error |x - point|.
    """

    point: Array  # (dim,): theta
    value: float
    slope: Array  # (dim,)
    value_error: float
    slope_error: float
    largest: Array  # (4,): as in `PointSums`


class TangentCell(NamedTuple):
    """Box of z, rates of its proposals, and their proved constant."""

    lower: Array  # (dim,)
    upper: Array  # (dim,)
    rates: Array  # (dim,): g
    touch: Array  # (dim,): z of the tangent's point
    lowest: Fraction  # at most V - V(x0) - sum of s_j on cell and K
    log_mass: float  # about the logarithm of the proposals' mass
    log_score: float  # about the logarithm of the mass of rejected proposals
    outside: float  # about the share of proposals outside of K
    weight: int = 1  # its chance is proportional to it

    @property
    def corner(self) -> Array:
        """Ends e at which the density of the proposals is largest."""
        return np.asarray(np.where(self.rates >= 0.0, self.lower, self.upper))


@dataclass(frozen=True, kw_only=True, eq=False)
class CellFrame:
    """Coordinates z of a target, and the numbers that its errors depend on."""

    target: Gibbs
    body: ExactBody
    root: Array  # (dim, dim): F, invertible
    base: Tangent  # at x0, where its value error bounds |V(x0) - value|
    row_length: float  # bound of the length of a row
    offset: float  # bound of the offsets

    @property
    def point(self) -> Array:
        """The point x0."""
        return self.body.point

    @property
    def ridge(self) -> float:
        """Return rho, rounded."""
        target = self.target
        return target.k * target.mu * target.curvature[0]

    @property
    def relative_error(self) -> float:
        """Return gamma, the relative error of sums over the records."""
        target = self.target
        return (target.storage.num_records + target.dim + 40) * UNIT_ROUNDOFF

    def margin_error(self, size: float) -> float:
        """Return a bound of the errors of margins at points of this length."""
        unit = (self.target.dim + 4) * UNIT_ROUNDOFF
        return 2.0 * unit * (self.row_length * size + self.offset)

    def tangent(self, point: Array) -> Tangent:
        """Pass over the records, and return the tangent at a point."""
        target, k = self.target, self.target.k
        num_records = target.storage.num_records
        loss = target.problem.loss
        sums = target.storage.fold(add_point_sums, sum_part, loss, point)
        move = point - target.regularizer_params.center
        distance, size = float(np.linalg.norm(move)), float(np.linalg.norm(point))
        value = k * (sums.value / num_records) + 0.5 * self.ridge * distance**2
        slope = k / num_records * sums.slope + self.ridge * move
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            raise_unless_ok(FUNCTION_FAILED)
        value_size = k * (sums.value_size / num_records) + self.ridge * distance**2
        slope_size = k * (sums.slope_size / num_records)
        error = 4.0 * self.relative_error
        return Tangent(
            point=point,
            value=value,
            slope=slope,
            value_error=error * value_size + 2.0 * slope_size * self.margin_error(size),
            slope_error=error * (slope_size * self.row_length + self.ridge * distance),
            largest=sums.largest,
        )

    def cell(
        self, lower: Array, upper: Array, tilt: Array, like: TangentCell | None
    ) -> TangentCell:
        """Return the cell of a box.

        Its tangent is at the mean of proposals with the rates ``tilt``. The curvature
        is estimated from the cell ``like`` that was split.
        """
        dim = len(lower)
        boxes = zip(tilt, lower, upper, strict=True)
        touch = np.array([moments(*numbers)[0] for numbers in boxes])
        touch = np.clip(touch, lower, upper)
        tangent = self.tangent(self.point + self.root @ touch)
        rates = self.root.T @ tangent.slope
        rates = np.where(
            np.abs(rates) * (upper - lower) >= Splitting.min_turn, rates, 0.0
        )
        cell = TangentCell(lower, upper, rates, touch, Fraction(0), 0.0, 0.0, 0.0)
        cell = cell._replace(lowest=self.lowest(cell, tangent))
        log_mass = -float(cell.lowest) - sum(log_rates(cell))
        curvature = 1.0
        if like is not None:
            # The gap of the former tangent at the new point, in units of the fit.
            rise = float(cell.lowest - like.lowest)
            rise += float(np.abs(rates) @ np.abs(touch - cell.corner))
            rise -= float(np.abs(like.rates) @ np.abs(touch - like.corner))
            square = float(np.sum((touch - like.touch) ** 2)) + 1e-300
            curvature = min(
                max(2.0 * rise / square, Splitting.min_curvature),
                Splitting.max_curvature,
            )
        pairs = np.array(
            [moments(*numbers) for numbers in zip(rates, lower, upper, strict=True)]
        )
        spread = float(np.sum(pairs[:, 1] + (pairs[:, 0] - touch) ** 2))
        outside = self._share_outside(cell, pairs, dim)
        accepted = math.exp(-0.5 * curvature * spread) * (
            1.0 - Splitting.outside_cost * outside
        )
        log_score = log_mass + math.log(max(1.0 - accepted, 1e-300))
        return cell._replace(log_mass=log_mass, log_score=log_score, outside=outside)

    def lowest(self, cell: TangentCell, tangent: Tangent) -> Fraction:
        """Return a bound of V - V(x0) - sum s_j on a cell and K, by Theorem 2."""
        middle = 0.5 * (cell.lower + cell.upper)
        half = 1.01 * np.abs(cell.upper - cell.lower)
        center = self.point + self.root @ middle
        reach = float(np.linalg.norm(center - tangent.point))
        reach += float(np.linalg.norm(np.abs(self.root) @ half))
        to_base = float(np.linalg.norm(self.point - tangent.point))
        # Rounding errors of the sums above are below 1 percent of their terms, if these
        # are not much smaller than the coordinates.
        size = float(np.linalg.norm(np.abs(self.point) + np.abs(tangent.point)))
        reach = min(1.01 * reach, 1.01 * (to_base + self.body.reach)) + 1e-9 * size
        slope = list(map(Fraction, tangent.slope.tolist()))
        pairs = zip(slope, self.point.tolist(), tangent.point.tolist(), strict=True)
        level = sum((g * (Fraction(x) - Fraction(t)) for g, x, t in pairs), Fraction(0))
        level += Fraction(tangent.value) - Fraction(self.base.value)
        level -= Fraction(1.01 * (tangent.value_error + self.base.value_error))
        level -= Fraction(1.01 * tangent.slope_error * reach)
        for j, rate in enumerate(cell.rates.tolist()):
            column = self.root[:, j].tolist()
            steepness = sum(
                (g * Fraction(a) for g, a in zip(slope, column, strict=True)),
                Fraction(0),
            )
            ends = Fraction(float(cell.lower[j])), Fraction(float(cell.upper[j]))
            corner = ends[0] if rate >= 0.0 else ends[1]
            level += min(
                steepness * z - abs(Fraction(rate)) * abs(z - corner) for z in ends
            )
        return level

    def _share_outside(self, cell: TangentCell, pairs: Array, dim: int) -> float:
        """Estimate the share of a cell's proposals outside of K from 2^dim points."""
        deviations = np.sqrt(np.maximum(pairs[:, 1], 0.0))
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=dim)))
        points = np.clip(pairs[:, 0] + signs * deviations, cell.lower, cell.upper)
        points = self.point + points @ self.root.T
        sides = self.body.side_of(points, np.zeros(len(points)))
        return float((sides < 0.0).mean())

    def is_apart(self, cell: TangentCell) -> bool:
        """Return whether a half space that contains K does not meet a cell, exactly."""
        if self.body.is_round:
            center = self.body.center
            normal = self._nearest(cell)
            distance = self._least(cell, normal, center)
            square = sum(Fraction(x) ** 2 for x in normal.tolist())
            radius = Fraction(self.body.radius)
            return distance > 0 and distance * distance > radius * radius * square
        zero = np.zeros(len(self.point))
        return any(
            self._least(cell, side, zero) > Fraction(bound)
            for side, bound in zip(
                self.body.sides, self.body.bounds.tolist(), strict=True
            )
        )

    def _nearest(self, cell: TangentCell) -> Array:
        """Return about the point of a cell that is nearest to a ball's center.

        It is relative to the center. Any vector is a valid normal of a half space.
        """
        z = 0.5 * (cell.lower + cell.upper)
        rest = self.point - self.body.center + self.root @ z
        squares = np.einsum("ij,ij->j", self.root, self.root)
        for _ in range(Splitting.num_sweeps):
            for j in range(len(z)):
                step = z[j] - self.root[:, j] @ rest / squares[j]
                step = min(max(step, cell.lower[j]), cell.upper[j]) - z[j]
                z[j] += step
                rest = rest + step * self.root[:, j]
        return np.asarray(rest)

    def trim(self, cell: TangentCell) -> TangentCell | None:
        """Return a cell without a part that is apart from K, or None if that is small.

        The part is at the end at which proposals are most likely.
        """
        best, best_gain = None, Splitting.min_trim
        for j, rate in enumerate(cell.rates.tolist()):
            width = float(cell.upper[j] - cell.lower[j])
            if abs(rate) * width <= best_gain:
                continue
            low, high = 0.0, 1.0
            for _ in range(Splitting.num_bisections):
                share = 0.5 * (low + high)
                _, part = self._cut_off(cell, j, share)
                low, high = (share, high) if self.is_apart(part) else (low, share)
            if abs(rate) * width * low > best_gain:
                best, best_gain = (
                    self._cut_off(cell, j, low)[0],
                    abs(rate) * width * low,
                )
        if best is None:
            return None
        return self.cell(best.lower, best.upper, cell.rates, cell)

    def _cut_off(
        self, cell: TangentCell, j: int, share: float
    ) -> tuple[TangentCell, TangentCell]:
        """Return a cell without a share of its width at a corner, and that share."""
        is_low = cell.rates[j] > 0.0
        move = share * (cell.upper[j] - cell.lower[j])
        cut = cell.lower[j] + move if is_low else cell.upper[j] - move
        below, above = cell.upper.copy(), cell.lower.copy()
        below[j] = above[j] = cut
        parts = cell._replace(upper=below), cell._replace(lower=above)
        return (parts[1], parts[0]) if is_low else parts

    def _least(self, cell: TangentCell, normal: Array, center: Array) -> Fraction:
        """Return the least <normal, x - center> over a cell, exactly."""
        exact = list(map(Fraction, normal.tolist()))
        pairs = zip(exact, self.point.tolist(), center.tolist(), strict=True)
        distance = sum(
            (a * (Fraction(x) - Fraction(c)) for a, x, c in pairs), Fraction(0)
        )
        for j in range(len(normal)):
            along = sum(
                a * Fraction(f)
                for a, f in zip(exact, self.root[:, j].tolist(), strict=True)
            )
            end = cell.lower[j] if along >= 0 else cell.upper[j]
            distance += along * Fraction(float(end))
        return distance


def log_rates(cell: TangentCell) -> list[float]:
    """Return the logarithms of the proposals' densities at the corner, rounded."""
    logs = []
    for rate, width in zip(
        np.abs(cell.rates).tolist(), (cell.upper - cell.lower).tolist(), strict=True
    ):
        if rate == 0.0:
            logs.append(-math.log(width))
        else:
            logs.append(math.log(rate) - math.log(-math.expm1(-rate * width)))
    return logs


def new_frame(target: Gibbs) -> CellFrame:
    """Return coordinates in which the target is about as wide as a standard normal."""
    dim, domain = target.dim, target.domain
    point = domain.interior_point(dim)
    root = np.diag(np.maximum(domain.half_widths(dim), 1e-300))
    with suppress(np.linalg.LinAlgError):
        fit = rotate_to_gradient(target, gaussian_fit.fit(target))
        if is_regular(fit.factor):
            root = np.asarray(fit.factor)
        if np.isfinite(fit.center).all() and target._is_inside(fit.center):
            point = np.asarray(fit.center)
    facts = target.problem.facts
    body = ExactBody.from_domain(domain, point)
    length = 1.01 * facts.full_row_bound * facts.dual_ratio(2.0)
    frame = CellFrame(
        target=target,
        body=body,
        root=np.ascontiguousarray(root),
        base=Tangent(point, 0.0, np.zeros(dim), 0.0, 0.0, np.zeros(4)),
        row_length=length,
        offset=1.01 * float(facts.offset_bound),
    )
    base = frame.tangent(point)
    # A margin at x0 may be on either side of a kink, see Theorem 1.
    margin = frame.margin_error(float(np.linalg.norm(point)))
    error = base.value_error + 2.0 * target.k * facts.slope_bound * margin
    return replace(frame, base=base._replace(value_error=error))


def inverse_of(matrix: Array) -> list[list[Fraction]] | None:
    """Return the inverse of a matrix of doubles, exactly, or None if there is none.

    Examples
    --------
    >>> inverse_of(np.array([[2.0, 0.0], [1.0, 1.0]]))[1]
    [Fraction(-1, 2), Fraction(1, 1)]
    """
    size = len(matrix)
    rows = [
        [*map(Fraction, row), *(Fraction(int(i == j)) for j in range(size))]
        for i, row in enumerate(matrix.tolist())
    ]
    for i in range(size):
        pivot = next((m for m in range(i, size) if rows[m][i] != 0), None)
        if pivot is None:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for m in range(size):
            if m != i:
                factor = rows[m][i]
                rows[m] = [
                    x - factor * y for x, y in zip(rows[m], rows[i], strict=True)
                ]
    return [row[size:] for row in rows]


def is_regular(matrix: Array) -> bool:
    """Return whether a matrix of doubles has an inverse."""
    is_square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    return (
        is_square and bool(np.isfinite(matrix).all()) and inverse_of(matrix) is not None
    )


def first_box(frame: CellFrame) -> tuple[Array, Array]:
    """Return the ends of a box that contains z for all points of K."""
    inverse = inverse_of(frame.root)
    assert inverse is not None  # `new_frame` takes regular matrices only
    body, dim = frame.body, len(frame.root)
    if not body.is_round:
        axes = np.eye(dim)
        high = np.asarray(frame.target.domain.support(axes))
        low = -np.asarray(frame.target.domain.support(-axes))
        spans = list(zip(low.tolist(), high.tolist(), strict=True))
    lower, upper = np.empty(dim), np.empty(dim)
    for j, row in enumerate(inverse):
        if body.is_round:
            pairs = zip(row, body.center.tolist(), body.point.tolist(), strict=True)
            middle = sum(
                (w * (Fraction(c) - Fraction(x)) for w, c, x in pairs), Fraction(0)
            )
            length = WIDENED * math.sqrt(sum(w * w for w in row))
            half = Fraction(body.radius) * Fraction(length)
            below, above = middle - half, middle + half
        else:
            below = above = Fraction(0)
            for w, x, (a, b) in zip(row, body.point.tolist(), spans, strict=True):
                ends = [w * (Fraction(end) - Fraction(x)) for end in (a, b)]
                below, above = below + min(ends), above + max(ends)
        # Much more than the rounding of both ends, and of what the support function has
        # rounded up.
        width = (above - below) * Fraction(Splitting.margin)
        lower[j] = float(below - width)
        upper[j] = float(above + width)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise_unless_ok(FUNCTION_FAILED)
    return lower, upper


def find_cells(frame: CellFrame) -> list[TangentCell]:
    """Return cells that cover K, with proved constants and weights."""
    dim, (lower, upper) = len(frame.root), first_box(frame)
    # The first cells meet at x0, so that the energy rises outwards in most of them.
    sides = [
        [(a, 0.0), (0.0, b)] if a < 0.0 < b else [(a, b)]
        for a, b in zip(lower.tolist(), upper.tolist(), strict=True)
    ]
    boxes = np.array(list(itertools.product(*sides)))
    cells = [
        frame.cell(box[:, 0].copy(), box[:, 1].copy(), np.zeros(dim), None)
        for box in boxes
    ]
    cells = [cell for cell in cells if not frame.is_apart(cell)]
    num_splits = 0
    while len(cells) < Splitting.max_cells[dim - 1]:
        scores = np.array([cell.log_score for cell in cells])
        if num_splits % Splitting.check_interval == 0:
            masses = np.array([cell.log_mass for cell in cells])
            top = masses.max()
            with np.errstate(under="ignore"):
                loss = np.exp(scores - top).sum() / np.exp(masses - top).sum()
            if loss <= Splitting.tolerance[dim - 1]:
                break
        i = int(np.argmax(scores))
        trimmed = (
            frame.trim(cells[i])
            if cells[i].outside >= Splitting.trimmed_share
            else None
        )
        if trimmed is not None:
            cells[i] = trimmed
            pauses.notify_listeners()
            continue
        parts = split(frame, cells[i])
        if parts is None:
            cells[i] = cells[i]._replace(log_score=-math.inf)
            if max(cell.log_score for cell in cells) == -math.inf:
                break
            continue
        cells[i : i + 1] = [part for part in parts if not frame.is_apart(part)]
        num_splits += 1
        pauses.notify_listeners()
    return weigh(cells)


def split(
    frame: CellFrame, cell: TangentCell
) -> tuple[TangentCell, TangentCell] | None:
    """Return the two parts of a cell, or None if doubles have no point between.

    The axis is the one with the largest mean square of z less the tangent's point, and
    the cut is between this point and the mean.
    """
    best, widest = None, 0.0
    for j, (rate, low, high) in enumerate(
        zip(cell.rates, cell.lower, cell.upper, strict=True)
    ):
        mean, variance = moments(rate, low, high)
        spread = variance + (mean - cell.touch[j]) ** 2
        cut = 0.5 * mean + 0.5 * cell.touch[j]
        if spread > widest and low < cut < high:
            best, widest = (j, cut), spread
    if best is None:
        return None
    j, cut = best
    below, above = cell.upper.copy(), cell.lower.copy()
    below[j] = above[j] = cut
    return (
        frame.cell(cell.lower, below, cell.rates, cell),
        frame.cell(above, cell.upper, cell.rates, cell),
    )


def weigh(cells: list[TangentCell]) -> list[TangentCell]:
    """Return the cells with weights that are about proportional to their masses.

    They are rounded up, so that no cell needs a larger constant than the others.
    """
    masses = np.array([cell.log_mass for cell in cells])
    with np.errstate(under="ignore"):
        shares = np.exp(masses - masses.max())
    shares = shares / shares.sum()
    return [
        cell._replace(weight=int(Splitting.weight_units * share) + 1)
        for cell, share in zip(cells, shares.tolist(), strict=True)
    ]
