r"""The noisy sandwich of `intervals`: a private fit, its curvature, its covariance.

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
B^2/n either way; noise: `noise.elementary`. Where phi has a kink, phi'' is its jump
times the Epanechnikov kernel of a public bandwidth b about the kink, at most 3/(4b).

**Post-processing.** Noise spreads eigenvalues: the least are too small, intervals of
their coefficients too long. `noise.elementary.denoise` takes the spread out of both
matrices. What is left of the noise E of A, of deviation tau, moves
:math:`\hat\theta` of objective perturbation by :math:`m A^{-1} E u`, :math:`u = A^{-1}
(\theta - c)`, which is like gradient noise of variance :math:`(m \tau |u|)^2/2` beside
:math:`(\sigma/n)^2`: about 1 % or less in unflagged cells of the study; left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dpsample import losses
from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.noise.elementary import add_symmetric_gaussian, denoise
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers import AdaSSP, NoisyGD
from dpsample.optimizers.algorithms.ada_ssp import (
    NormalEquations,
    responses_without_offsets,
    rounded_size,
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
from dpsample.privacy import Budget, EventCertificate
from dpsample.privacy.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    TiltEvent,
)
from dpsample.privacy.calibration.objective_calibration import composed_stddev
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.registry import INTERVALS
from dpsample.privacy.curves.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gdp_from_budget,
)
from dpsample.privacy.curves.objective_perturbation import minimizer_error
from dpsample.problem.facts import PublicFacts, smoothness
from dpsample.problem.problem import Problem
from dpsample.problem.records import curvature_matrix

Base = Literal["objective", "noisy_gd", "normal_equations"]
BASES = ("objective", "noisy_gd", "normal_equations")
SMOOTH = (
    losses.Logistic,
    losses.CalibratedLogistic,
    losses.CappedLogistic,
    losses.SmoothedHinge,
    losses.Huber,
    losses.Squared,
    losses.PowerFour,
)
KINKED = (losses.Hinge, losses.Absolute, losses.Quantile)
MOST_DIM = 1000  # coefficients: a matrix of them, and its eigenvectors
# Default share of the squared gdp for one matrix, and for two.
SHARES = (0.3, 0.4)
# Share of it for the mean of squares of residuals.
SQUARE_SHARE = 0.1
LEAST_SHARE = 0.01  # below, a matrix is noise
# Of epsilon, for the determinant of objective perturbation: sets the ridge.
DETERMINANT_SHARE = 0.1
# Its ridge is 1/(147 n) of beta; a smaller one would drown in rounding errors.
MOST_DETERMINANT = 5.0
# Share of the squared gdp of objective perturbation for the noise of its output.
OUTPUT_SHARE = 0.01
# Smallest standard deviation of this noise, relative to the least of the tilt.
OUTPUT_SIZE = 0.1
# Steps of noisy gradient descent, and the share of them whose mean is the fit.
NUM_STEPS = 1000
TAIL_SHARE = 0.5
# Intervals are flagged if an eigenvalue of the curvature, or the trace of the scores'
# matrix, is below this multiple of the matrix noise.
CLEAR = 2.0
# They are flagged if the fit is within so many standard errors of the boundary.
NEAR = 3.0
# They are flagged if descent covers a smaller share of the way from its start.
MIN_KEPT = 0.98
# Share of delta at which the gdp of the descent is turned into a budget and back.
SPLIT_DELTA = 0.5
# Smallest epsilon of this budget, for a delta that alone is enough.
MIN_EPSILON = 1e-12
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
        check.unwrap_numpy_fields(self)


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


def plan_intervals(
    sandwich: Sandwich, facts: PublicFacts, budget: Budget, *, clip_rows: bool
) -> SandwichPlan:
    """Calibrate and certify, by public numbers alone."""
    check_facts(sandwich, facts)
    total = gdp_from_budget(budget.epsilon, budget.delta) * (1.0 - 1e-9)
    matrix_gdp = total * math.sqrt(sandwich.share)
    is_normal = sandwich.base == "normal_equations"
    bounds = weight_bounds(sandwich, facts)[is_normal:]
    gdp_per_matrix = matrix_gdp / math.sqrt(max(len(bounds), 1))
    if sandwich.base == "objective":
        gdp_per_matrix *= math.sqrt(1.0 - OUTPUT_SHARE)
        recipe, spread = _plan_objective(facts, budget, matrix_gdp)
    elif is_normal:
        part = _gaussian_part(budget, total * math.sqrt(1.0 - sandwich.share))
        recipe, spread = AdaSSP().recipe(facts, part), _spread_without_bias
    else:
        recipe, spread = _plan_descent(sandwich, facts, budget, total)
    assert recipe.event is not None
    noises = [
        MatrixNoise(bound, sensitivity(facts, bound, budget.relation) / gdp_per_matrix)
        for bound in bounds
    ]
    inputs: dict[str, Any] = {"matrix_gdp": gdp_per_matrix}
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
            inputs["square_stddev"] = square = unit * size**2 / gdp_per_matrix
    first = recipe.event
    parts = first.events if isinstance(first, ComposedEvent) else (first,)
    spent = [GaussianEvent(gdp_per_matrix * (1.0 + 1e-12))] * max(len(bounds), 1)
    certificate = EventCertificate.of(
        kind=INTERVALS + recipe.kind,
        mechanism=MechanismSpec.of(sandwich),
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
    domain = facts.domain
    is_ball = domain.lp_exponent is not None
    if not (domain.is_whole_space or domain.is_box or is_ball):
        remedy = "On others minimizers lie on the boundary, where they are not normal."
        check.fail("domain", "a Ball, a Box or the WholeSpace", domain, remedy)
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


@np.errstate(all="ignore")  # what overflows is cut off
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
        distance = (margins - kink) / sandwich.bandwidth
        kernel = (
            0.75 / sandwich.bandwidth * (1.0 - np.minimum(np.abs(distance), 1.0) ** 2)
        )
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


def _plan_objective(
    facts: PublicFacts, budget: Budget, other_gdp: float
) -> tuple[Recipe, Callable[[Array], Spread]]:
    """Objective perturbation with as little ridge as a tenth of epsilon allows."""
    scales, n = tilt_scales(facts, risk="empirical"), facts.num_records
    epsilon = min(DETERMINANT_SHARE * budget.epsilon, MOST_DETERMINANT)
    m = scales.smoothness / (n * math.expm1(epsilon))
    objective = perturbed_objective(scales, 0.5 * m, budget.relation)
    stddev = composed_stddev(objective, budget, other_gdp)
    output_gdp = other_gdp * math.sqrt(OUTPUT_SHARE)
    min_stddev = OUTPUT_SIZE * stddev / (n * scales.smoothness)
    gap = max(0.5 * m * (0.5 * output_gdp * min_stddev) ** 2, resolved_gap(scales, m))
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
    if epsilon < MIN_EPSILON:  # that delta alone would be enough for more
        epsilon = MIN_EPSILON
        delta = gaussian_delta(epsilon, gdp)
    return Budget(epsilon=epsilon, delta=delta, relation=budget.relation)


def _spread_without_bias(values: Array) -> Spread:
    """Spread of normal equations, whose noise depends on the fit."""
    return Spread(np.ones_like(values), np.zeros_like(values))


def _plan_descent(
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
    finite = np.nan_to_num(weights, nan=0.0)
    cut = np.clip(finite, 0.0, noise.bound)
    matrix = curvature_matrix(
        problem.data, np.array(np.broadcast_to(cut, problem.num_records))
    )
    add_symmetric_gaussian(rng, noise.stddev, matrix)
    return matrix


def noisy_square(problem: Problem, stddev: float, rng: np.random.Generator) -> float:
    """Mean of squared responses with noise; 0 if it is not bought."""
    if stddev == 0.0:
        return 0.0
    value = np.array([np.mean(responses_without_offsets(problem) ** 2)])
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


def regression(
    plan: SandwichPlan,
    means: Means,
    curvature: Array,
    values: Array,
    vectors: Array,
) -> tuple[Array, float, Array, float]:
    """Solve noisy normal equations by the curvature's denoised spectrum.

    Returns theta, the variance of errors, N in the eigenvectors, and the deviation of
    what noise adds to that variance.
    """
    assert plan.normal is not None
    tau, sigma = plan.normal.matrix_stddev, plan.normal.vector_stddev
    turned = vectors.T @ means.vector / values
    theta, size = vectors @ turned, float(turned @ turned)
    noise = 0.5 * tau**2 * turned * turned[:, None]
    noise[np.diag_indices(len(noise))] += sigma**2 + 0.5 * tau**2 * size
    residual = means.square + theta @ (curvature @ theta - 2.0 * means.vector)
    residual += (np.diag(noise) / values).sum()
    doubt = 4.0 * sigma**2 * size + (tau * size) ** 2 + plan.square_stddev**2
    return theta, float(residual), noise, float(np.sqrt(doubt))


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
    values, vectors = denoise(curvature, plan.curvature.stddev)
    flags = []
    min_curvature = float(values.min())
    if min_curvature < CLEAR * plan.curvature.stddev * math.sqrt(facts.dim):
        flags.append("curvature")
    wide = np.full(curvature.shape, math.inf)
    unknown = DebiasedFit(theta, wide, min_curvature, ("curvature",))
    if min_curvature <= 0.0:
        return unknown
    kept, variance = plan.spread(values)
    if kept.min() < MIN_KEPT and plan.sandwich.base == "noisy_gd":
        flags.append("start")
    away = vectors.T @ (theta - facts.center)
    estimated = facts.center + vectors @ (away / kept)
    inner, noise = np.diag(values), np.zeros_like(curvature)
    if means is not None:
        estimated, residual, noise, doubt = regression(
            plan, means, curvature, values, vectors
        )
        inner *= np.maximum(residual, 0.0)
        if scores is None and residual < CLEAR * doubt:
            flags.append("variance")
    if scores is not None:
        assert plan.scores is not None
        sizes, directions = denoise(scores, plan.scores.stddev)
        turned = vectors.T @ directions
        inner = turned * np.maximum(sizes, 0.0) @ turned.T
        if np.trace(scores) < CLEAR * plan.scores.stddev * math.sqrt(facts.dim):
            flags.append("variance")
    inner = (inner / facts.num_records + noise) / (values * values[:, None])
    inner[np.diag_indices(facts.dim)] += variance / kept**2
    covariance = vectors @ inner @ vectors.T
    if not (np.isfinite(covariance).all() and np.isfinite(estimated).all()):
        return unknown
    sizes, directions = np.linalg.eigh(covariance)
    reach = NEAR * np.sqrt(np.maximum(sizes, 0.0)) * directions
    ends = (theta + step for step in np.hstack([reach, -reach]).T)
    if not all(facts.domain.contains(end) for end in ends):
        flags.append("boundary")
    return DebiasedFit(estimated, covariance, min_curvature, tuple(flags))
