"""Search for the minimum of an objective on its domain, by Newton's method.

Each step minimizes the quadratic model on the domain: exactly on domains that are flat
or round, and by accelerated projected gradients elsewhere, which need the projection
alone and no record. Objectives with kinks are smoothed. The *gain* of a step is what
the model promises, up to a factor of 2: minus the slope times the move. When it is
less than the smoothing, the smoothing is reduced by a constant factor.

Nothing here has to be right for a gap to be right, because `gap` proves it afterwards.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsample.core import jit, pauses
from dpsample.core.arrays import Array
from dpsample.minimum.gap import gap_of
from dpsample.minimum.objectives import Evaluation, Objective
from dpsample.samplers.localized.mode import model_step, step_in_polytope
from dpsample.targets.gibbs_target import DomainGeometry, form_in_basis, times_basis

# Largest number of Newton steps without smoothing. Ten to thirty are usual.
MAX_STEPS = 200
# Share of a Hessian's diagonal that is added to it at first.
MIN_RIDGE = 1e-15
# Factor of the smoothing parameter between stages.
SMOOTHING_FACTOR = 0.1
# Largest smoothing parameter with which a gap counts as reachable, in tolerances. The
# smoothed losses contribute twice as much to the gap, and the barrier as much.
MAX_SMOOTHING = 0.05


class SearchResult(NamedTuple):
    """Best point of a search, the slope of its minorant, and its gap."""

    point: Array
    slope: Array
    gap: float
    assumption: str = ""


class Search:
    """Search for the minimum of an objective."""

    def __init__(self, objective: Objective, tolerance: float) -> None:
        self.objective, self.tolerance = objective, tolerance
        self.domain, dim = objective.domain, objective.dim
        self.geometry = DomainGeometry.from_domain(self.domain, dim)
        self.body, self.basis = self.geometry.body, self.geometry.basis
        start = np.array(self.domain.interior_point(dim), dtype=np.float64)
        self.point = start
        self.best = SearchResult(
            start, np.full(dim, np.nan), math.inf, objective.assumption
        )
        # Steps stay off flat sides if there is a barrier.
        has_sides = len(self.geometry.sides) > 0
        self.has_barrier = has_sides and (
            objective.smoothing > 0.0 or objective.is_steep
        )
        # Multiple of the identity that is added to Hessians, and grows if steps fail.
        self.ridge = MIN_RIDGE

    def run(self) -> SearchResult:
        """Return the best point that was found."""
        smoothing = self.objective.smoothing
        if smoothing == 0.0:
            self._newton(0.0, MAX_STEPS)
            return self.best
        # The excess of a smoothed objective is at most 2 s scale, which has to be
        # within the tolerance.
        last = MAX_SMOOTHING * self.tolerance / self.objective.scale
        while self.best.gap > self.tolerance and smoothing >= 1e-3 * last:
            # Newton steps at most from one smoothing parameter to the next.
            self._newton(smoothing, 30)
            is_near = smoothing > last > SMOOTHING_FACTOR * smoothing
            smoothing = last if is_near else SMOOTHING_FACTOR * smoothing
        return self.best

    def _newton(self, smoothing: float, max_steps: int) -> None:
        """Take Newton steps until the model promises little, and prove a gap."""
        objective = self.objective
        # Newton's method converges fast where one smoothed loss changes by less than s.
        enough = 0.1 * smoothing * objective.scale / objective.num_terms
        if smoothing == 0.0:
            enough = 1e-3 * self.tolerance
        self.ridge = MIN_RIDGE
        evaluation = objective.evaluate(self.point, smoothing)
        num_stalled = 0
        for _ in range(max_steps):
            pauses.notify_listeners()
            if evaluation.hessian is None:
                break
            model = self._with_barrier(evaluation, self.point)
            move = self._step(model)
            if move is None:
                # A ridge that is 1000 times the Hessian leaves gradient steps.
                if self.ridge > 1e3:
                    break
                self.ridge *= 100.0
                continue
            gain = -float(model.slope @ move)
            if gain <= enough:
                before = self.best.gap
                self._prove(evaluation)
                if self.best.gap <= self.tolerance:
                    return
                if smoothing > 0.0 and not self._is_last(smoothing):
                    return
                # A gap that does not halve three times is decided by rounding errors.
                num_stalled += int(self.best.gap > 0.5 * before)
                if num_stalled > 3:
                    return
            if not self._advance(move, gain, model, smoothing):
                break
            evaluation = objective.evaluate(self.point, smoothing)
        self._prove(evaluation)

    def _barrier_weight(self, smoothing: float) -> float:
        """Return the weight of logarithms of slacks, 0 if there are none.

        Steps in a polytope with kinks end at facets and kinks at once, which no model
        without a barrier foresees.
        """
        # With m sides and the weight w, the barrier's minimizer is at most m w above
        # the minimum. So this weight costs as much as the smoothing.
        num_sides = len(self.geometry.sides)
        return smoothing * self.objective.scale / num_sides if num_sides else 0.0

    def _with_barrier(self, evaluation: Evaluation, point: Array) -> Evaluation:
        """Return the smoothed objective plus the barrier of flat sides at a point."""
        weight = self._barrier_weight(evaluation.smoothing)
        if weight == 0.0:
            return evaluation
        sides = self.geometry.sides
        slacks = self.geometry.bounds - sides @ point
        if not (slacks > 0.0).all():
            # Points on or beyond a side have an infinite barrier.
            return evaluation._replace(value=math.inf)
        rates, hessian = sides / slacks[:, None], evaluation.hessian
        if hessian is not None:
            hessian = hessian + weight * rates.T @ rates
        return evaluation._replace(
            value=evaluation.value - weight * float(np.log(slacks).sum()),
            slope=evaluation.slope + weight * rates.sum(axis=0),
            hessian=hessian,
        )

    def _is_last(self, smoothing: float) -> bool:
        """Return whether smoothing alone does not prevent the wanted gap."""
        return smoothing * self.objective.scale <= 1.01 * MAX_SMOOTHING * self.tolerance

    def _prove(self, evaluation: Evaluation) -> None:
        """Keep the present point if its gap is the smallest."""
        gap = gap_of(self.objective, self.point, evaluation, self.tolerance)
        if gap < self.best.gap or not math.isfinite(self.best.gap):
            self.best = self.best._replace(
                point=self.point.copy(), slope=evaluation.slope.copy(), gap=gap
            )

    def _advance(
        self, move: Array, gain: float, evaluation: Evaluation, smoothing: float
    ) -> bool:
        """Go along a move as far as the objective falls. Return whether it did.

        Slopes decide, because gains may be below the rounding errors of values. On a
        line a convex objective falls as long as its slope is negative.
        """
        share, lowest = 1.0, evaluation.value
        # Values that differ by rounding only count as equal.
        digits = 1e-13 * (1.0 + abs(lowest))
        for _ in range(60):
            trial = self._inside(self.point + share * move)
            ahead = self.objective.evaluate(trial, smoothing, wants_hessian=False)
            ahead = self._with_barrier(ahead, trial)
            rise = float(ahead.slope @ move)
            # A positive slope shows that the minimum on the line is passed. Half of the
            # gain is not far beyond it.
            if ahead.value <= lowest + digits and rise <= 0.5 * gain:
                is_new = not np.array_equal(trial, self.point)
                self.point = trial
                return is_new
            share *= 0.5
        return False

    def _inside(self, point: Array) -> Array:
        """Return a point, or its projection if it is outside by rounding errors."""
        if self.domain.contains(point):
            return point
        projection = self.domain.project(point)
        return projection if np.isfinite(projection).all() else self.point

    def _step(self, evaluation: Evaluation) -> Array | None:
        """Return the move to the minimizer of the quadratic model on the domain."""
        assert evaluation.hessian is not None
        hessian = form_in_basis(evaluation.hessian, self.basis)
        gradient = np.asarray(evaluation.slope @ self.basis)
        rank = len(gradient)
        # Without any curvature the model's minimum is far away, at the boundary.
        size = float(np.linalg.norm(gradient))
        scales = np.diag(hessian)
        # This curvature puts the model's minimum 1e6 times as far away as the point is
        # large.
        floor = 1e-6 * size / (1.0 + float(np.abs(self.point).max()))
        if not scales.max() > 1e-12 * size:
            scales = np.full(rank, max(floor, 1e-300))
            hessian = np.diag(scales)
        # Curvatures of records at kinks may be 1e12 times the others, so the ridge is
        # in units of the last digit.
        matrix = hessian + np.diag(self.ridge * np.maximum(scales, 1e-9 * floor))
        geometry = self.geometry
        if self.has_barrier:
            geometry = geometry._replace(
                sides=geometry.sides[:0], bounds=geometry.bounds[:0]
            )
        move = model_step(geometry, self.point, gradient, matrix)
        if move is not None and np.isfinite(move).all():
            step = np.asarray(times_basis(self.basis, move))
            if self.has_barrier:
                slacks = self.geometry.bounds - self.geometry.sides @ self.point
                lengths = self.geometry.sides @ step
                # Steps end before the next side, at which the barrier is infinite.
                share = 0.99 * np.min(
                    slacks[lengths > 0.0] / lengths[lengths > 0.0], initial=np.inf
                )
                return np.asarray(step * min(1.0, share))
            # `model_step` knows balls and flat sides. On other domains its move is
            # right only if they contain its end.
            is_exact = (
                self.geometry.is_round
                or len(self.geometry.sides) > 0
                or self.domain.contains(self.point + step)
            )
            if is_exact:
                return step
        # The projected steps need a basis of the whole space.
        if rank < len(self.point):
            return None
        return self._projected_step(gradient, matrix)

    def _projected_step(self, gradient: Array, hessian: Array) -> Array:
        """Minimize the model on the domain by accelerated projected gradients."""
        point, end = self.point, np.empty_like(self.point)
        # 1 / largest is the longest step with which gradient descent cannot diverge.
        largest = float(np.linalg.eigvalsh(hessian)[-1])
        piece: Any = self.domain.project_piece
        move, ahead, momentum = np.zeros_like(point), np.zeros_like(point), 1.0
        # Steps of accelerated projected gradients for one model.
        for step in range(2000):
            slope = gradient + hessian @ ahead
            end[:] = np.nan
            jit.call(piece, self.body, point + ahead - slope / largest, end)
            new = end - point
            if not np.isfinite(new).all():
                break
            change = new - move
            # Momentum that points uphill is dropped.
            if float(slope @ change) > 0.0:
                momentum = 1.0
            # Momentum of Nesterov's method.
            next_momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            ahead = new + (momentum - 1.0) / next_momentum * change
            move, momentum = new, next_momentum
            # Relative change of a move at which such steps end.
            if step % 20 == 0 and np.abs(change).max() <= 1e-14 * (
                1.0 + np.abs(point).max()
            ):
                break
        # On an l1 ball such steps find the right face early, and its minimizer slowly.
        if self.domain.lp_exponent == 1.0:
            return self._step_on_face(move, gradient, hessian)
        return move

    def _step_on_face(self, move: Array, gradient: Array, hessian: Array) -> Array:
        """Return the model's minimizer on the face of an l1 ball of a move's end."""
        offset = self.point - self.body.center
        end = offset + move
        support = np.flatnonzero(np.abs(end) > 1e-12 * self.body.radius)
        rest = np.setdiff1d(np.arange(len(end)), support)
        if not support.size:
            return move
        signs = np.sign(end[support])
        # Coordinates off the support become 0, the others keep their signs.
        fixed = -offset[rest]
        base = np.zeros_like(move)
        base[rest] = fixed
        inner: Array = hessian[np.ix_(support, support)]
        slope: Array = gradient[support] + hessian[np.ix_(support, rest)] @ fixed
        # Signs are kept, -sign_i (x_i + v_i) <= 0, and the norm is at most the radius.
        sides: Array = np.vstack([-np.diag(signs), signs])
        start = signs * offset[support]
        depths = np.append(start, self.body.radius - start.sum())
        shift = np.zeros(len(support))
        # The program starts from a point inside the face.
        if (depths < 0.0).any():
            shift = move[support]
            start = signs * end[support]
            depths = np.append(start, max(self.body.radius - start.sum(), 0.0))
            slope = slope + inner @ shift
        try:
            root = np.array(np.linalg.cholesky(inner))
        except np.linalg.LinAlgError:
            return move
        # The model's minimizer without sides.
        free: Array = np.negative(np.linalg.solve(inner, slope), dtype=np.float64)
        exact = step_in_polytope(sides, depths, free, slope, root)
        if exact is None:
            return move
        base[support] = shift + exact
        heights = [float(gradient @ v + 0.5 * v @ hessian @ v) for v in (base, move)]
        return base if heights[0] <= heights[1] else move
