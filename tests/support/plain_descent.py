"""Recipes on linear and quadratic losses in plain NumPy, with the noise kept symbolic.

Without constraints every iterate is an affine function of the normal variables of the
run: a matrix whose column 0 is the textbook algorithm without noise, and whose other
columns are the root of the covariance of the output. Written from the formulas of the
steps, it shares nothing with the compiled loop but the order in which random numbers
are drawn.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dpsample as dps
from dpsample.domains import WholeSpace
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers.loop.batches import Poisson, Slices
from dpsample.optimizers.loop.estimators import BucketedMedian
from dpsample.optimizers.loop.optimizer import Minimization, Query, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise
from dpsample.optimizers.loop.solve import fill_tilt
from dpsample.optimizers.loop.steps import (
    AcceleratedStep,
    GradientStep,
    MirrorStep,
    ProximalStep,
)
from tests.support.clipped_cases import batch

FINE = 1e-26  # gap of certified minimizations: their points are exact to 1e-12


def unconstrained(problem: dps.Problem) -> dps.Problem:
    """The same records on the whole space."""
    data, facts = problem.data, problem.facts
    return dps.Problem(
        data.dense,
        data.response,
        loss=problem.loss,
        domain=WholeSpace(),
        row_bound=facts.row_bound,
        response_bound=facts.response_bound,
    )


def without_balls(recipe: Recipe) -> Recipe:
    """The recipe without local balls, its minimizations exact.

    Output noise is that of exact steps: without a domain rounding has no bound.
    """

    def open_ball(phase):
        phase = replace(phase, output_gdp=0.0)
        if isinstance(phase, Minimization):
            return replace(phase, local_radius=np.inf, gap=FINE, solver="accelerated")
        if hasattr(phase.step, "local_radius"):
            return replace(phase, step=replace(phase.step, local_radius=np.inf))
        return phase

    return replace(recipe, phases=tuple(map(open_ball, recipe.phases)))


def without_noise(recipe: Recipe) -> Recipe:
    """The recipe with all its Gaussian and Laplace noise set to zero."""

    def quiet(phase):
        if isinstance(phase, Query):
            return replace(phase, matrix_stddev=0.0, vector_stddev=0.0)
        if isinstance(phase, Minimization):
            names = ("output_stddev", "tilt_stddev", "output_scale", "tilt_scale")
            return replace(phase, **dict.fromkeys(names, 0.0))
        noise = phase.noise
        if isinstance(noise, GaussianNoise):
            noise = GaussianNoise(0.0)
        return replace(phase, noise=noise, output_stddev=0.0)

    return replace(recipe, phases=tuple(map(quiet, recipe.phases)))


class Affine:
    """One run: `columns` of the output, and the `normals` that multiply them."""

    def __init__(self, problem: dps.Problem, recipe: Recipe, rng: np.random.Generator):
        self.problem, self.rng = problem, rng
        self.is_quadratic = isinstance(problem.loss, dps.losses.Squared)
        self.size = 1 + 2000  # more normals than any run draws
        self.normals = [1.0]
        w = self.anchor = released = np.zeros((problem.dim, self.size))
        for phase in recipe.phases:
            run = self._minimize if isinstance(phase, Minimization) else self._descend
            w = run(phase, w)
            if phase.output_stddev > 0.0:
                step = grid_step(phase.output_stddev)
                w = w + self._rounded_noise(phase.output_stddev, step, w - released)
                released = w
        self.columns = w[:, : len(self.normals)]

    @property
    def theta(self) -> np.ndarray:
        """Output for the normals that were drawn."""
        return self.columns @ np.array(self.normals)

    def _noise(self, stddev: float) -> np.ndarray:
        added = np.zeros((self.problem.dim, self.size))
        for row in added:
            row[len(self.normals)] = stddev
            fill_tilt(self.rng, 1.0, normal := np.empty(1))
            self.normals.append(normal[0])
        return added

    def _rounded_noise(
        self, stddev: float, step: float, base: np.ndarray
    ) -> np.ndarray:
        """Noise that ends on its grid: the normals are those of the rounded sums."""
        added = np.zeros_like(base)
        values = base[:, : len(self.normals)] @ np.array(self.normals)
        noisy = values.copy()
        add_gaussian(self.rng, stddev, step, noisy)
        for j, row in enumerate(added):
            row[len(self.normals)] = stddev
            self.normals.append((noisy[j] - values[j]) / stddev)
        return added

    def _gradient(self, records, w, divisor, smoothing=0.0) -> np.ndarray:
        """Sum of the gradients (of the Moreau envelopes) of some records."""
        rows, y = self.problem.data.dense[records], self.problem.data.response[records]
        g = np.zeros_like(w)
        if not self.is_quadratic:
            g[:, 0] = -(y @ rows)
            return g / divisor
        slopes = rows @ w
        slopes[:, 0] -= y
        if smoothing > 0.0:
            slopes /= 1.0 + (rows**2).sum(axis=1)[:, None] / smoothing
        return rows.T @ slopes / divisor

    def _batches(self, loop):
        """Record numbers and divisor of every step, drawn when they are needed."""
        scheme, n = loop.batches, self.problem.num_records
        last = n if scheme.last is None else scheme.last
        count = last - scheme.first
        order = np.arange(count)
        if getattr(scheme, "is_shuffled", False):
            order = self.rng.permutation(count)
        for t in range(loop.num_steps):
            if isinstance(scheme, Slices):
                part = order[t * scheme.size : (t + 1) * scheme.size]
                yield scheme.first + part, scheme.size
            else:  # all of them, or a sample
                whole = scheme.rate * count if isinstance(scheme, Poisson) else count
                yield batch(scheme, n, t, self.rng), whole

    def _descend(self, loop, start):
        step, average = loop.step, 0.0
        w = aggregate = start
        if not loop.keeps_anchor:
            self.anchor = start
        for t, (records, divisor) in enumerate(self._batches(loop)):
            size = 1.0 / step.eta if isinstance(step, AcceleratedStep) else step.sizes
            eta = size if np.size(size) == 1 else size[t]
            query, alpha = w, 2.0 / (t + 2.0)
            if isinstance(step, AcceleratedStep):
                query = (1.0 - alpha) * aggregate + alpha * w
            smoothing = loop.estimator.smoothing
            g = self._gradient(np.array(records, dtype=int), query, divisor, smoothing)
            if isinstance(loop.estimator, BucketedMedian):
                self.rng.random(len(records))  # which bucket each of them joins
            if isinstance(loop.noise, GaussianNoise) and loop.noise.stddev > 0.0:
                excess = loop._excess(self.problem.num_records, self.problem.dim)
                numbers = loop.noise.numbers(excess)
                g = g + self._rounded_noise(numbers.scale, numbers.step, g)
            if isinstance(step, AcceleratedStep):
                w = w - 0.5 * (t + 1.0) * eta * g
                aggregate = (1.0 - alpha) * aggregate + alpha * w
            elif isinstance(step, GradientStep):
                w = w - eta * (g + step.ridge * (w - self.anchor))
            elif isinstance(step, ProximalStep):
                w = (w - eta * g) / (1.0 + eta * step.l2)
            else:
                assert isinstance(step, MirrorStep) and step.exponent == 2.0
                w = (step.kappa * w / eta - g) / (step.kappa * (1.0 / eta + step.alpha))
            if loop.weights is not None:
                weights = np.broadcast_to(loop.weights, loop.num_steps)
                average = average + weights[t] / weights.sum() * w
        if loop.weights is not None:
            return average
        return aggregate if isinstance(step, AcceleratedStep) else w

    def _minimize(self, phase, start):
        """Solve (H + ridge I) w = -gradient at 0 - tilt + ridge * anchor."""
        last = self.problem.num_records if phase.last is None else phase.last
        records = np.arange(phase.first, last)
        slope = self._gradient(records, np.zeros_like(start), len(records))
        if phase.tilt_stddev > 0.0:
            slope = slope + self._noise(phase.tilt_stddev) / len(records)
        if phase.is_anchored:
            slope = slope - phase.ridge * start
        rows = self.problem.data.dense[records]
        curvature = rows.T @ rows / len(records) if self.is_quadratic else 0.0
        matrix = curvature + phase.ridge * np.eye(self.problem.dim)
        return -np.linalg.solve(matrix, slope)
