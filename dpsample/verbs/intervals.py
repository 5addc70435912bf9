r"""The verb for error bars: a private fit, its noisy curvature, and intervals.

Let A be the mean of :math:`\varphi'' a a^T` at the private fit theta, and V that of
:math:`\varphi'^2 a a^T`. Both are released with Gaussian noise, and all else is
post-processing. To first order theta solves a linear equation about the minimizer
theta* of the risk without noise, so that in the eigenvectors of A, with eigenvalue a,

.. math:: \theta - c = s(a) (\theta^* - c) + N(0, v(a)), \qquad
   \hat\theta = c + s(A)^{-1} (\theta - c),

c the domain's center. The covariance of :math:`\hat\theta` is :math:`A^{-1} V A^{-1}/n
+ v(A) s(A)^{-2}`, the classical sandwich and the mechanism's noise.

* **Objective perturbation**, :math:`F'(\theta) + G/n + m (\theta - c) = 0`: s = a/(a +
  m), v = (sigma/n)^2/(a + m)^2 plus the variance of the noise on the output.
* **Noisy gradient descent**, the mean of the last q of T iterates. With h = 1 - eta a
  the iterates are :math:`w_t - \theta^* = h^t (c - \theta^*) - \eta \sum_{s<t}
  h^{t-1-s} \xi_s`, so s = 1 - mean of h^t over the tail and v = sigma^2 sum of c_s^2,
  c_s = (eta/q) times the sum of h^{t-1-s} over t > s in the tail. Exact for quadratics.
* **Normal equations** of the squared loss, (S + E) theta = r + e with noise of
  deviations tau and sigma: S (theta - theta*) = e - E theta* and the scores' own error,
  so beside V/n stands :math:`N = (\sigma^2 + \tau^2 |\theta|^2/2) I + (\tau^2/2)
  \theta \theta^T`. S is the curvature, bought already. V is s^2 S if errors have one
  variance, s^2 = mean of y^2, with noise, - 2 <theta, r + e> + <theta, (S + E) theta> +
  tr(S^{-1} N): the last makes up for what theta has fitted of e and E.

**Sensitivity.** P = w a a^T and P' = w' a' a'^T, weights in [0, w_max], rows in the l2
ball of radius R: :math:`|P - P'|_F^2 = |P|_F^2 + |P'|_F^2 - 2 w w' \langle a,
a'\rangle^2 \le 2 w_{max}^2 R^4`. So a replaced record moves a mean by at most sqrt(2)
w_max R^2/n, one that is set to zero by w_max R^2/n, and a mean of y^2 in [0, B^2] by
B^2/n; noise: `noise.symmetric`. Where
phi has a kink, phi'' is its jump times the Epanechnikov kernel of a public bandwidth b
about the kink, at most 3/(4b).

**Post-processing.** Noise spreads eigenvalues: the least are too small, intervals of
their coefficients too long. `noise.symmetric.denoised` takes the spread out of both
matrices. What is left of the noise E of A, of deviation tau, moves
:math:`\hat\theta` of objective perturbation by :math:`m A^{-1} E u`, :math:`u = A^{-1}
(\theta - c)`, which is like gradient noise of variance :math:`(m \tau |u|)^2/2` beside
:math:`(\sigma/n)^2`: about 1 % or less in unflagged cells of the study; left out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample import losses
from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.axes import axes
from dpsample.core.streams import Seed, release_streams, seed_sequence
from dpsample.domains import Ball, Box, WholeSpace
from dpsample.noise.grid import add_gaussian, grid_step
from dpsample.noise.symmetric import add_symmetric_gaussian, denoised
from dpsample.optimizers import AdaSSP, NoisyGD
from dpsample.optimizers.algorithms.ada_ssp import (
    NormalEquations,
    rounded_size,
    unshifted,
)
from dpsample.optimizers.algorithms.objective_perturbation import recipe_of
from dpsample.optimizers.loop.noisy_descent import best_step, scales_of
from dpsample.optimizers.loop.optimizer import Recipe
from dpsample.optimizers.loop.tilted import (
    Tilt,
    perturbed_objective,
    resolved_gap,
    tilt_scales,
)
from dpsample.privacy import Budget, EventCertificate, Ledger, LedgerFile
from dpsample.privacy.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    TiltEvent,
)
from dpsample.privacy.calibration.objective_calibration import composed_stddev
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.privacy.certificates.registry import INTERVALS
from dpsample.privacy.curves.gaussian import gaussian_epsilon, gdp_from_budget
from dpsample.privacy.curves.output_perturbation import minimizer_error
from dpsample.problem.facts import PublicFacts, smoothness
from dpsample.problem.problem import Problem
from dpsample.problem.records import curvature_matrix
from dpsample.running import chains, descent
from dpsample.verbs.tune import fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Base = Literal["objective", "noisy_gd", "normal_equations"]
BASES = ("objective", "noisy_gd", "normal_equations")
SMOOTH = (
    losses.Logistic,
    losses.CappedLogistic,
    losses.SmoothedHinge,
    losses.Huber,
    losses.Squared,
    losses.PowerFour,
)
KINKED = (losses.Hinge, losses.Absolute, losses.Quantile)
MOST_DIM = 1000  # coefficients: a matrix of them, and its eigenvectors
# Of the squared gdp, for the matrices: one, or two; for a mean of squares.
SHARES, SQUARE_SHARE = (0.3, 0.4), 0.1
LEAST_SHARE = 0.01  # below, a matrix is noise
# Of epsilon, for the determinant of objective perturbation: sets the ridge.
DETERMINANT_SHARE = 0.1
# Of the noise beside the tilt, for the output, and its deviation over the tilt's least.
OUTPUT_SHARE, OUTPUT_SIZE = 0.01, 0.1
# Of noisy gradient descent.
NUM_STEPS, TAIL_SHARE = 1000, 0.5
# Intervals are flagged below these: eigenvalues (and the trace of the scores' matrix)
# over the matrix noise, standard errors between the fit and the boundary, the share
# of the way from the start.
CLEAR, NEAR, LEAST_KEPT = 2.0, 3.0, 0.98
SPLIT_DELTA = 0.5  # where the gdp of the descent is turned into a budget and back
INTERRUPTED = "intervals was interrupted. Nothing is returned; the budget is spent."
FLAGS = {
    "curvature": "an eigenvalue of the curvature is not clear of the matrix noise: "
    "intervals may be too short or infinite. Use more records, a larger budget or "
    "share, or fewer or less correlated columns.",
    "variance": "the noisy variance of scores is not clear of its noise: intervals may "
    "be too short. Use more records or a larger share.",
    "boundary": "the estimate is within three standard errors of the domain's "
    "boundary, where it is not normal. Use a larger domain.",
    "start": "the descent has hardly left its start in some direction: its distance "
    "is more guess than data. Use more records or base='objective'.",
}


class Spread(NamedTuple):
    """How a base's fit follows from theta*, for each eigenvalue of the curvature."""

    kept: Array  # s
    variance: Array  # v


class MatrixNoise(NamedTuple):
    """Bound of a matrix's weights, and the noise of its diagonal."""

    bound: float
    stddev: float


@dataclass(frozen=True, kw_only=True)
class Sandwich:
    """What was asked for: base, share, second matrix and bandwidth."""

    base: Base
    share: float
    robust: bool
    bandwidth: float | None

    def __post_init__(self) -> None:
        """Check the fields."""
        check.one_of(BASES, base=self.base)
        check.half_open(LEAST_SHARE, 1.0, share=self.share)
        check.instance(bool, robust=self.robust)
        if self.bandwidth is not None:
            check.scale(bandwidth=self.bandwidth)
        check.plain_fields(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class SandwichPlan:
    """Public numbers of one call."""

    sandwich: Sandwich
    recipe: Recipe
    curvature: MatrixNoise
    scores: MatrixNoise | None
    square_stddev: float
    spread: Callable[[Array], Spread]
    certificate: EventCertificate

    @property
    def normal(self) -> NormalEquations | None:
        """The query whose matrix is the curvature."""
        query = self.recipe.phases[0]
        return query if isinstance(query, NormalEquations) else None


def planned(
    sandwich: Sandwich, facts: PublicFacts, budget: Budget, *, clip_rows: bool
) -> SandwichPlan:
    """Calibrate and certify, by public numbers alone."""
    check_facts(sandwich, facts)
    total = gdp_from_budget(budget.epsilon, budget.delta) * (1.0 - 1e-9)
    matrix_gdp = total * math.sqrt(sandwich.share)
    is_normal = sandwich.base == "normal_equations"
    bounds = weight_bounds(sandwich, facts)[is_normal:]
    each = matrix_gdp / math.sqrt(max(len(bounds), 1))
    if sandwich.base == "objective":
        each *= math.sqrt(1.0 - OUTPUT_SHARE)
        recipe, spread = _tilted(facts, budget, matrix_gdp)
    elif is_normal:
        part = _gaussian_part(budget, total * math.sqrt(1.0 - sandwich.share))
        recipe, spread = AdaSSP().recipe(facts, part), _unbiased
    else:
        recipe, spread = _descended(sandwich, facts, budget, total)
    assert recipe.event is not None
    noises = [
        MatrixNoise(bound, sensitivity(facts, bound, budget.relation) / each)
        for bound in bounds
    ]
    inputs: dict[str, Any] = {"matrix_gdp": each}
    names = ("curvature", "scores")[is_normal:]
    for name, noise in zip(names, noises, strict=False):
        inputs[f"{name}_bound"] = noise.bound
        inputs[f"{name}_stddev"] = noise.stddev
        inputs[f"{name}_grid"] = grid_step(noise.stddev)
    square = 0.0
    if is_normal:
        noises.insert(0, MatrixNoise(1.0, float(recipe.inputs["matrix_stddev"])))
        if not sandwich.robust:
            size, unit = rounded_size(facts)
            inputs["square_stddev"] = square = unit * size**2 / each
    first = recipe.event
    parts = first.events if isinstance(first, ComposedEvent) else (first,)
    spent = [GaussianEvent(each * (1.0 + 1e-12))] * max(len(bounds), 1)
    certificate = EventCertificate.of(
        kind=INTERVALS + recipe.kind,
        mechanism=repr(sandwich),
        budget=budget,
        event=ComposedEvent((*parts, *spent)),
        facts=facts,
        clip_rows=clip_rows,
        inputs=recipe.inputs | inputs,
    )
    return SandwichPlan(
        sandwich=sandwich,
        recipe=recipe,
        curvature=noises[0],
        scores=noises[1] if len(noises) > 1 else None,
        square_stddev=square,
        spread=spread,
        certificate=certificate,
    )


def check_facts(sandwich: Sandwich, facts: PublicFacts) -> None:
    """Refuse what the theory is not about."""
    if not isinstance(facts.loss, SMOOTH + KINKED):
        condition = "a built-in loss that is curved or has a kink"
        check.fail("loss", condition, facts.loss)
    if not isinstance(facts.domain, Ball | Box | WholeSpace):
        remedy = "On others minimizers lie on the boundary, where they are not normal."
        check.fail("domain", "a Ball, a Box or the WholeSpace", facts.domain, remedy)
    if facts.dim > MOST_DIM:
        check.fail("problem", f"with at most {MOST_DIM} coefficients", facts.dim)
    is_kinked = isinstance(facts.loss, KINKED)
    if is_kinked and sandwich.base != "noisy_gd":
        check.fail("base", "'noisy_gd' for a loss with a kink", sandwich.base)
    if is_kinked and sandwich.bandwidth is None:
        remedy = "It is a public width of residuals in which many records lie."
        check.fail("bandwidth", "given for a loss with a kink", "None", remedy)
    if not is_kinked and sandwich.bandwidth is not None:
        check.fail("bandwidth", "None for a smooth loss", sandwich.bandwidth)
    is_normal = sandwich.base == "normal_equations"
    if not (sandwich.robust or is_normal or is_trusted(facts.loss)):
        remedy = "Only likelihoods of which the curvature tells the variance allow it."
        check.fail("robust", "True or None for this loss", False, remedy)


def is_trusted(loss: losses.Loss) -> bool:
    """Whether the variance of scores follows from the model that the loss stands for.

    Of a loss with two slopes, the product of which is minus that variance, and of the
    logistic loss, whose variance is its curvature.
    """
    return isinstance(loss, losses.Logistic | losses.Absolute | losses.Quantile)


def _slopes(loss: losses.Loss) -> tuple[float, float]:
    """Slopes on both sides of the kink of a record with response 1."""
    low, high = loss.slope([-9.0, 9.0], [1.0, 1.0])
    return float(low), float(high)


def weight_bounds(sandwich: Sandwich, facts: PublicFacts) -> list[float]:
    """Largest weights of the curvature matrix and, if there is one, of the scores."""
    if sandwich.bandwidth is None:
        curvature = smoothness(facts) / _row_bound(facts) ** 2
    else:
        low, high = _slopes(facts.loss)
        curvature = 0.75 * (high - low) / sandwich.bandwidth
    if sandwich.robust:
        facts.lipschitz(2.0)  # or say why the slope has no bound
        return [curvature, facts.slope_bound**2]
    if sandwich.bandwidth is None:
        return [curvature]
    return [curvature, -low * high]


def weights(
    sandwich: Sandwich, problem: Problem, theta: Array
) -> tuple[Array, Array | float]:
    """Weights of both matrices at theta, before they are cut off at their bounds."""
    loss, response = problem.loss, problem.data.response
    margins = problem.margins(theta)
    if sandwich.bandwidth is None:
        curvature = loss.curvature(margins, margins, response)[1]
    else:
        low, high = _slopes(loss)
        kink = loss.kink(response)
        assert kink is not None
        place = (margins - kink) / sandwich.bandwidth
        kernel = 0.75 / sandwich.bandwidth * (1.0 - np.minimum(np.abs(place), 1.0) ** 2)
        curvature = (high - low) * kernel
    scores = math.inf  # cut off to the bound: the same for all records
    return curvature, loss.slope(margins, response) ** 2 if sandwich.robust else scores


def _row_bound(facts: PublicFacts) -> float:
    return float(facts.full_row_bound * facts.dual_ratio(2.0))


def sensitivity(facts: PublicFacts, bound: float, relation: str) -> float:
    """How far one record moves a matrix in Frobenius norm, as it is computed.

    A sum of n products, none above bound R^2, is off by at most (n + 4) 2^-53 times n
    of them on either side; rows may exceed R by 1e-12.
    """
    n = facts.num_records
    change = math.sqrt(2.0) if relation == "replace_one" else 1.0
    size = bound * (_row_bound(facts) * (1.0 + 3e-12)) ** 2 / n
    return size * (change + 2.0**-52 * (n + 4.0) ** 2)


def _tilted(
    facts: PublicFacts, budget: Budget, other_gdp: float
) -> tuple[Recipe, Callable[[Array], Spread]]:
    """Objective perturbation with as little ridge as a tenth of epsilon allows."""
    scales, n = tilt_scales(facts, risk="empirical"), facts.num_records
    m = scales.smoothness / (n * math.expm1(DETERMINANT_SHARE * budget.epsilon))
    objective = perturbed_objective(scales, 0.5 * m, budget.relation)
    stddev = composed_stddev(objective, budget, other_gdp)
    output_gdp = other_gdp * math.sqrt(OUTPUT_SHARE)
    least = OUTPUT_SIZE * stddev / (n * scales.smoothness)
    gap = max(0.5 * m * (0.5 * output_gdp * least) ** 2, resolved_gap(scales, m))
    error = minimizer_error(strong_convexity=m, gap=gap)
    output = 2.0 * error / output_gdp * (1.0 + 1e-12)
    tilt = Tilt(ridge=0.5 * m, stddev=stddev, gap=gap, output_stddev=output)
    spent = TiltEvent(
        log_determinant=objective.log_determinant, distance=objective.distance(stddev)
    )
    event = ComposedEvent((spent, GaussianEvent(output_gdp)))
    recipe = recipe_of(facts, scales, tilt, event)
    recipe.inputs.pop("risk_bound", None)  # it is about another ridge's risk

    def spread(values: Array) -> Spread:
        noise = (stddev / n / (values + m)) ** 2 + output**2
        return Spread(values / (values + m), noise)

    return recipe, spread


def _gaussian_part(budget: Budget, gdp: float) -> Budget:
    """Budget of a Gaussian mechanism with this gdp."""
    delta = SPLIT_DELTA * budget.delta
    epsilon = gaussian_epsilon(delta, gdp)
    return Budget(epsilon=epsilon, delta=delta, relation=budget.relation)


def _unbiased(values: Array) -> Spread:
    """Spread of normal equations, whose noise depends on the fit."""
    return Spread(np.ones_like(values), np.zeros_like(values))


def _descended(
    sandwich: Sandwich, facts: PublicFacts, budget: Budget, total: float
) -> tuple[Recipe, Callable[[Array], Spread]]:
    """Noisy gradient descent and the mean of its tail, by the rule of `NoisyGD`."""
    part = _gaussian_part(budget, total * math.sqrt(1.0 - sandwich.share))
    beta = weight_bounds(sandwich, facts)[0] * _row_bound(facts) ** 2
    steps: dict[str, Any] = {"num_steps": NUM_STEPS, "step_size": 1.0 / beta}
    method = NoisyGD(output="tail", tail_share=TAIL_SHARE, **steps)
    recipe = method.recipe(facts, part)
    stddev = float(recipe.inputs["noise_stddev"])
    if math.isfinite(facts.radius):
        scales = scales_of(
            facts, lipschitz=facts.lipschitz(2.0), smoothness=beta, risk="empirical"
        )
        longest = best_step(scales, NUM_STEPS, scales.dim * stddev**2)
        steps["step_size"] = min(longest, 2.0 / beta)
        recipe = replace(method, **steps).recipe(facts, part)
    assert recipe.event is not None
    size, count = steps["step_size"], int(recipe.inputs["averaged_steps"])

    def spread(values: Array) -> Spread:
        return tail_spread(
            values, num_steps=NUM_STEPS, averaged=count, size=size, stddev=stddev
        )

    return replace(recipe, event=ComposedEvent((recipe.event,))), spread


def tail_spread(
    values: Array, *, num_steps: int, averaged: int, size: float, stddev: float
) -> Spread:
    """Mean and variance of the last ``averaged`` of the iterates on a quadratic."""
    factor = np.maximum(1.0 - size * values, -1.0)[:, None]
    powers = factor ** np.arange(num_steps + 1)
    sums = np.concatenate([np.zeros_like(factor), np.cumsum(powers, axis=1)], axis=1)
    early, left = num_steps - averaged, num_steps - np.arange(num_steps)
    start = (sums[:, num_steps + 1] - sums[:, early + 1]) / averaged
    weights = sums[:, left] - sums[:, np.maximum(left - averaged, 0)]
    noise = (stddev * size / averaged) ** 2 * (weights**2).sum(axis=1)
    return Spread(1.0 - start, noise)


def noisy_matrix(
    problem: Problem,
    weights: Array | float,
    noise: MatrixNoise,
    rng: np.random.Generator,
) -> Array:
    """Mean of weights_i a_i a_i^T with noise, each number from a public grid."""
    found = np.nan_to_num(weights, nan=0.0)
    cut = np.clip(found, 0.0, noise.bound)
    matrix = curvature_matrix(
        problem.data, np.array(np.broadcast_to(cut, problem.num_records))
    )
    add_symmetric_gaussian(rng, noise.stddev, matrix)
    return matrix


def noisy_square(problem: Problem, stddev: float, rng: np.random.Generator) -> float:
    """Mean of squared responses with noise; 0 if it is not bought."""
    if stddev == 0.0:
        return 0.0
    value = np.array([np.mean(unshifted(problem) ** 2)])
    add_gaussian(rng, stddev, grid_step(stddev), value)
    return float(value[0])


class Means(NamedTuple):
    """Noisy means of a y, and of y^2 if the variance is that of all errors."""

    vector: Array
    square: float


class DebiasedFit(NamedTuple):
    """Estimate, its covariance, and what is doubtful about it."""

    theta: Array
    covariance: Array
    least_eigenvalue: float
    flags: tuple[str, ...]


@np.errstate(all="ignore")  # what is not finite is unknown
def estimate(
    plan: SandwichPlan,
    facts: PublicFacts,
    theta: Array,
    curvature: Array,
    scores: Array | None,
    means: Means | None = None,
) -> DebiasedFit:
    """Debias a fit and find its covariance: post-processing of private numbers."""
    values, vectors = denoised(curvature, plan.curvature.stddev)
    flags = []
    least = float(values.min())
    if least < CLEAR * plan.curvature.stddev * math.sqrt(facts.dim):
        flags.append("curvature")
    wide = np.full(curvature.shape, math.inf)
    unknown = DebiasedFit(theta, wide, least, ("curvature",))
    if least <= 0.0:
        return unknown
    kept, variance = plan.spread(values)
    if kept.min() < LEAST_KEPT and plan.sandwich.base == "noisy_gd":
        flags.append("start")
    away = vectors.T @ (theta - facts.center)
    found = facts.center + vectors @ (away / kept)
    inner, noise = np.diag(values), np.zeros_like(curvature)
    normal = plan.normal
    if normal is not None and means is not None:
        away = vectors.T @ means.vector / values
        found = vectors @ away
        tau, size = normal.matrix_stddev, float(away @ away)
        noise = 0.5 * tau**2 * away * away[:, None]
        noise[np.diag_indices(facts.dim)] += (
            normal.vector_stddev**2 + 0.5 * tau**2 * size
        )
        residual = means.square + found @ (curvature @ found - 2.0 * means.vector)
        residual += float((np.diag(noise) / values).sum())
        doubt = 4.0 * normal.vector_stddev**2 * size + (tau * size) ** 2
        inner *= np.maximum(residual, 0.0)
        if scores is None and residual < CLEAR * math.hypot(
            math.sqrt(doubt), plan.square_stddev
        ):
            flags.append("variance")
    if scores is not None:
        assert plan.scores is not None
        sizes, directions = denoised(scores, plan.scores.stddev)
        turned = vectors.T @ directions
        inner = turned * np.maximum(sizes, 0.0) @ turned.T
        if np.trace(scores) < CLEAR * plan.scores.stddev * math.sqrt(facts.dim):
            flags.append("variance")
    inner = (inner / facts.num_records + noise) / (values * values[:, None])
    inner[np.diag_indices(facts.dim)] += variance / kept**2
    covariance = vectors @ inner @ vectors.T
    if not (np.isfinite(covariance).all() and np.isfinite(found).all()):
        return unknown
    sizes, directions = np.linalg.eigh(covariance)
    reach = NEAR * np.sqrt(np.maximum(sizes, 0.0)) * directions
    ends = (theta + step for step in np.hstack([reach, -reach]).T)
    if not all(facts.domain.contains(end) for end in ends):
        flags.append("boundary")
    return DebiasedFit(found, covariance, least, tuple(flags))


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Private estimates with confidence intervals, and one certificate of it all.

    Attributes
    ----------
    theta, se, lower, upper : arrays of shape (dim,)
        Estimates, standard errors, ends of the intervals; the intercept comes last.
    covariance : array of shape (dim, dim)
        Of the estimates, the mechanism's noise included.
    level : float
        Of each interval on its own.
    feature_names : tuple of str
        Names of the coefficients.
    diagnostics : dict
        Private as theta is: ``least_eigenvalue`` of the curvature, denoised, what it
        should exceed, ``noise_level``, and ``flags`` that say why intervals may not
        cover.
    certificate : EventCertificate
        Of everything above together.
    """

    theta: Array
    covariance: Array
    se: Array
    lower: Array
    upper: Array
    level: float
    feature_names: tuple[str, ...]
    diagnostics: dict[str, Any]
    certificate: EventCertificate

    def to_frame(self) -> DataFrame:
        """Return a table: ``estimate``, ``se``, ``lower``, ``upper`` by name."""
        import pandas as pd

        table = {"estimate": self.theta, "se": self.se}
        table |= {"lower": self.lower, "upper": self.upper}
        return pd.DataFrame(table, index=pd.Index(self.feature_names))

    def plot(
        self, ax: Axes | None = None, *, non_private: Sequence[ArrayLike] | None = None
    ) -> Axes:
        """Draw the intervals, each in a row of its own.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        non_private : pair of arrays of shape (dim,), optional
            Estimates and standard errors of a fit that is not private, for comparison.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        count, budget = self.theta.size, self.certificate.budget
        others: list[Array] = []
        if non_private is not None:
            if not (isinstance(non_private, tuple | list) and len(non_private) == 2):
                condition = "estimates and their standard errors"
                check.fail("non_private", condition, check.shown(non_private))
            shape = (count,)
            others = [check.array("non_private", x, shape=shape) for x in non_private]
        ax = axes(ax, figsize=(7.0, 0.35 * count + 1.4))
        rows, style = np.arange(count), dict[str, Any](capsize=3, ls="none")
        label = f"({budget.epsilon:g}, {budget.delta:g})-DP"
        wide = np.where(np.isfinite(self.se), self.upper - self.theta, 0.0)
        ax.errorbar(self.theta, rows, xerr=wide, marker="o", label=label, **style)
        if others:
            point, wide = others[0], _quantile(self.level) * others[1]
            style |= {"marker": "x", "color": "0.5", "label": "NOT PRIVATE"}
            ax.errorbar(point, rows + 0.25, xerr=wide, **style)
        ax.axvline(0.0, color="0.7", lw=0.8, zorder=0)
        ax.set_yticks(rows, self.feature_names)
        ax.set_ylim(count - 0.5, -0.5)
        ax.set_xlabel(f"coefficient, {100 * self.level:g} % intervals")
        ax.legend()
        return ax

    def __repr__(self) -> str:
        """Table, doubts and the certificate's statement."""
        table = self.to_frame().to_string(
            float_format=lambda x: f"{x:.4g}", max_rows=12
        )
        flags = "".join(
            f"\n  NOTE: {FLAGS[name]}" for name in self.diagnostics["flags"]
        )
        return (
            f"Intervals({100 * self.level:g} % each,\n{table}{flags}\n  "
            f"certificate={self.certificate!r})"
        )


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + 0.5 * level))


@chains.single_threaded_blas()
@check.plain
def intervals(
    problem: Problem,
    budget: Budget,
    *,
    base: Base | None = None,
    level: float = 0.95,
    share: float | None = None,
    robust: bool | None = None,
    bandwidth: float | None = None,
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
) -> Intervals:
    """Fit privately, with confidence intervals that count the privacy noise.

    Parameters
    ----------
    problem : Problem
        Records of a built-in loss that is curved or has a kink, on a ball, a box or the
        whole space, with the minimizer inside.
    budget : Budget
        For everything that is returned.
    base : {"objective", "noisy_gd", "normal_equations"}, optional
        How the estimate is made: objective perturbation; the mean of the tail of noisy
        gradient descent; or, of squared losses, the noisy normal equations of `AdaSSP`,
        whose matrix is the curvature. None: the last for them, the second for kinks,
        else the first.
    level : float
        Of each interval, in (0, 1).
    share : float, optional
        Part of the squared gdp that goes to the matrices of the covariance, from 0.01
        to below 1; None: 0.3
        for one matrix, 0.4 for two; of normal equations 0.4, or 0.1 if not robust.
    robust : bool, optional
        Whether the variance of scores is measured, not derived from the model. None:
        where the loss is no likelihood whose curvature or slopes tell it; logistic,
        absolute and quantile losses are, and normal equations take all
        errors for equally large. True: intervals cover the minimizer of the
        population risk even if the model is wrong.
    bandwidth : float, optional
        For losses with a kink: public width of residuals, in which many records lie and
        the density of residuals hardly changes.
    ledger : Ledger or LedgerFile, optional
        Where the certificate is entered before anything is drawn.
    seed : int or SeedSequence, optional
        Reproduces a study's run, which is then not releasable.

    Returns
    -------
    Intervals
        Estimates, covariance, intervals, diagnostics and the certificate.

    Raises
    ------
    ValueError
        If an argument is malformed, the loss or domain is not covered, or the ledger
        has no room. Never because of what a record holds.
    KeyboardInterrupt
        After Ctrl-C; nothing is returned then.

    Warns
    -----
    UserWarning
        If the noisy numbers give reason to doubt the intervals.

    Guarantee
    ---------
    All that is returned is together (epsilon, delta)-DP under the budget's relation.
    Coverage is to first order in 1/n: no theorem here says from which n on; the study
    ``intervals_coverage`` measures it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(20_000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=20.0))
    >>> bars = dps.intervals(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> bars.theta.shape, bool((bars.lower < bars.upper).all())
    ((3,), True)
    >>> bars.certificate.releasable
    True
    """
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Budget, budget=budget)
    check.one_of((None, *BASES), base=base)
    check.open_interval(0.0, 1.0, level=level)
    seed_sequence(seed)
    check.instance((bool, type(None)), robust=robust)
    is_kinked = isinstance(problem.loss, KINKED)
    if base is None:
        is_squared = isinstance(problem.loss, losses.Squared)
        base = "noisy_gd" if is_kinked else "objective"
        base = "normal_equations" if is_squared else base
    is_normal = base == "normal_equations"
    if robust is None:
        robust = not (is_normal or is_trusted(problem.loss))
    if share is None:
        share = SHARES[robust or is_kinked]
        share = SQUARE_SHARE if is_normal and not robust else share
    sandwich = Sandwich(
        base=base, share=share, robust=bool(robust), bandwidth=bandwidth
    )
    plan = planned(sandwich, problem.facts, budget, clip_rows=problem.clip_rows)
    plan.recipe.check_private(problem.facts)
    certificate = plan.certificate
    if seed is not None:
        certificate = replace(certificate, seeded=True, digest="")
    program = descent.Program(problem, plan.recipe)
    spend(ledger, certificate)
    try:
        with release_streams(seed, 1) as (rng,):
            means = scores = None
            if plan.normal is None:
                theta = fitted(program, rng)
            else:
                curvature, vector = plan.normal.noisy(problem, rng)
                theta = plan.normal.solved(problem.facts, curvature, vector)
                means = Means(vector, noisy_square(problem, plan.square_stddev, rng))
            with np.errstate(all="ignore"):  # what overflows is cut off
                curved, scored = weights(sandwich, problem, theta)
            if plan.normal is None:
                curvature = noisy_matrix(problem, curved, plan.curvature, rng)
            if plan.scores is not None:
                scores = noisy_matrix(problem, scored, plan.scores, rng)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None
    found = estimate(plan, problem.facts, theta, curvature, scores, means)
    for flag in found.flags:
        warnings.warn(FLAGS[flag], stacklevel=2)
    diagonal = np.diag(found.covariance)
    se = np.sqrt(np.where(diagonal > 0.0, diagonal, math.inf))
    wide = _quantile(level) * se
    return Intervals(
        theta=found.theta,
        covariance=found.covariance,
        se=se,
        lower=found.theta - wide,
        upper=found.theta + wide,
        level=float(level),
        feature_names=problem.feature_names,
        diagnostics={
            "least_eigenvalue": found.least_eigenvalue,
            "noise_level": CLEAR * plan.curvature.stddev * math.sqrt(problem.dim),
            "flags": found.flags,
        },
        certificate=certificate,
    )
