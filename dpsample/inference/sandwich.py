r"""The noisy sandwich of `intervals`: a private fit, its curvature, its covariance.

A record has the row a and the loss phi, a function of the margin <a, theta>. Let A be
the mean of :math:`\varphi'' a a^T` over the records at the private fit theta (the
curvature matrix), and V the mean of :math:`\varphi'^2 a a^T` (the matrix of scores).
Both are released with Gaussian noise, and everything else is post-processing. To first
order theta solves a linear equation about theta*, the minimizer of the risk without
noise. For an eigenvector of A with eigenvalue a, this means

.. math:: \theta - c = s(a) (\theta^* - c) + N(0, v(a)), \qquad
   \hat\theta = c + s(A)^{-1} (\theta - c),

with the domain's center c. The function s(a) is the share of the way from c to theta*
that the method covers, and v(a) the variance of its noise. The covariance of
:math:`\hat\theta` is :math:`A^{-1} V A^{-1}/n + v(A) s(A)^{-2}`, the classical
sandwich and the mechanism's noise. The fit is one of three bases.

* **Objective perturbation**, :math:`F'(\theta) + G/n + m (\theta - c) = 0`: s = a/(a +
  m), v = (sigma/n)^2/(a + m)^2 plus the variance of the noise on the output.
* **Noisy gradient descent**, the mean of the last q of T iterates. With h = 1 - eta a
  the iterates are :math:`w_t - \theta^* = h^t (c - \theta^*) - \eta \sum_{s<t}
  h^{t-1-s} \xi_s`, so s = 1 - mean of h^t over the tail and v = sigma^2 sum of c_s^2,
  c_s = (eta/q) times the sum of h^{t-1-s} over t > s in the tail. This is exact for
  quadratics.
* **Normal equations** of the squared loss, (S + E) theta = r + e, where S is the mean
  of a a^T, r the mean of a y, and E and e are noise of standard deviations tau and
  sigma. Then S (theta - theta*) = e - E theta*, plus the sampling error of the scores.
  So the matrix V/n has the additional term :math:`N = (\sigma^2 + \tau^2
  |\theta|^2/2) I + (\tau^2/2) \theta \theta^T`. The matrix S + E is also the released
  curvature. If all errors have the same variance s^2, then V is s^2 S. The estimate of
  s^2 is the noisy mean of y^2, - 2 <theta, r + e> + <theta, (S + E) theta> +
  tr(S^{-1} N). The last term corrects for the part of e and E that theta has fitted.

**Sensitivity.** Let P = w a a^T and P' = w' a' a'^T be the terms of two records, with
weights in [0, w_max] and rows in the l2 ball of radius R. Then :math:`|P - P'|_F^2 =
|P|_F^2 + |P'|_F^2 - 2 w w' \langle a, a'\rangle^2 \le 2 w_{max}^2 R^4`. So a replaced
record moves a mean by at most sqrt(2) w_max R^2/n, and a record that is set to zero by
w_max R^2/n. A mean of y^2 in [0, B^2] moves by B^2/n in both cases. Where phi is not
differentiable, phi'' is the jump of phi' times the Epanechnikov kernel of a public
bandwidth b about this point, at most 3/(4b).

**Post-processing.** Noise spreads the eigenvalues of a matrix. The smallest ones become
too small, and the intervals of their coefficients too long. `noise.elementary.denoise`
removes the spread from both matrices. The remaining noise E of A, of standard deviation
tau, moves :math:`\hat\theta` of objective perturbation by :math:`m A^{-1} E u`,
:math:`u = A^{-1} (\theta - c)`. This is like gradient noise of variance :math:`(m \tau
|u|)^2/2`, compared with :math:`(\sigma/n)^2`. It is about 1% or less in settings of
the study without a flag, and not included.
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
# Losses whose second derivative is known.
SMOOTH = (
    losses.Logistic,
    losses.CalibratedLogistic,
    losses.CappedLogistic,
    losses.SmoothedHinge,
    losses.Huber,
    losses.Squared,
    losses.PowerFour,
)
# Losses whose derivative jumps at one point.
KINKED = (losses.Hinge, losses.Absolute, losses.Quantile)
# Gaussian mechanisms compose by adding the squares of their Gaussian-DP parameters
# (gdp), so the budget is divided into shares of the squared gdp. These are the default
# shares of one matrix, and of two.
SHARES = (0.3, 0.4)
# Default share of the mean of squared responses, from which s^2 is estimated.
SQUARE_SHARE = 0.1
# Share of the squared gdp of objective perturbation for the noise of its output.
OUTPUT_SHARE = 0.01
# Number of steps of noisy gradient descent.
NUM_STEPS = 1000
# Intervals are flagged if an eigenvalue of the curvature, or the trace of the scores'
# matrix, is below this multiple of the matrix noise.
CLEAR = 2.0
# Warnings by the name of a flag.
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
    """Bias and variance of a base's fit, for each eigenvalue of the curvature."""

    covered: Array  # s
    variance: Array  # v


class MatrixNoise(NamedTuple):
    """Bound of a matrix's weights, and the noise of its entries on the diagonal."""

    bound: float
    stddev: float


@dataclass(frozen=True, kw_only=True)
class Sandwich:
    """Options of the intervals.

    Attributes
    ----------
    base : Base
        Method of the fit.
    share : float
        Share of the squared gdp for the matrices.
    robust : bool
        Whether the matrix of scores is released, too. Otherwise the covariance of
        scores follows from the model.
    bandwidth : float or None
        Width b of the kernel for a non-smooth loss.
    """

    base: Base
    share: float
    robust: bool
    bandwidth: float | None

    def __post_init__(self) -> None:
        """Check the fields."""
        check.one_of(BASES, base=self.base)
        # With a smaller share a released matrix is only noise.
        check.half_open(0.01, 1.0, share=self.share)
        check.instance(bool, robust=self.robust)
        if self.bandwidth is not None:
            check.scale(bandwidth=self.bandwidth)
        check.unwrap_numpy_fields(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class SandwichPlan:
    """Numbers of one call that depend on public facts only."""

    sandwich: Sandwich
    recipe: Recipe
    curvature: MatrixNoise
    scores: MatrixNoise | None
    square_stddev: float
    spread: Callable[[Array], Spread]
    certificate: EventCertificate

    @property
    def normal(self) -> NormalEquations | None:
        """The query of normal equations, whose matrix is the curvature; or None."""
        query = self.recipe.phases[0]
        return query if isinstance(query, NormalEquations) else None


def plan_intervals(
    sandwich: Sandwich, facts: PublicFacts, budget: Budget, *, clip_rows: bool
) -> SandwichPlan:
    """Calibrate the noise and write the certificate, from public numbers only."""
    check_facts(sandwich, facts)
    # The factor leaves space for the rounding errors of the parts' gdp.
    total = gdp_from_budget(budget.epsilon, budget.delta) * (1.0 - 1e-9)
    matrix_gdp = total * math.sqrt(sandwich.share)
    is_normal = sandwich.base == "normal_equations"
    # Normal equations release the curvature themselves, so its bound is left out.
    bounds = weight_bounds(sandwich, facts)[is_normal:]
    gdp_per_matrix = matrix_gdp / math.sqrt(max(len(bounds), 1))
    if sandwich.base == "objective":
        # The matrices leave a part of their share for the noise on the output.
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
    """Raise unless the theory of the module covers loss, domain and options."""
    # Maximum number of coefficients. The estimate holds square matrices of this size,
    # and computes their eigenvectors.
    most_dim = 1000
    if not isinstance(facts.loss, SMOOTH + KINKED):
        condition = "a built-in loss that is curved or has a kink"
        check.fail("loss", condition, facts.loss)
    domain = facts.domain
    is_ball = domain.lp_exponent is not None
    if not (domain.is_whole_space or domain.is_box or is_ball):
        remedy = "On others minimizers lie on the boundary, where they are not normal."
        check.fail("domain", "a Ball, a Box or the WholeSpace", domain, remedy)
    if facts.dim > most_dim:
        check.fail("problem", f"with at most {most_dim} coefficients", facts.dim)
    is_kinked = isinstance(facts.loss, KINKED)
    if is_kinked and sandwich.base != "noisy_gd":
        check.fail("base", "'noisy_gd' for a non-smooth loss", sandwich.base)
    if is_kinked and sandwich.bandwidth is None:
        remedy = "It is a public width of residuals in which many records lie."
        check.fail("bandwidth", "given for a non-smooth loss", "None", remedy)
    if not is_kinked and sandwich.bandwidth is not None:
        check.fail("bandwidth", "None for a smooth loss", sandwich.bandwidth)
    is_normal = sandwich.base == "normal_equations"
    if not (sandwich.robust or is_normal or is_trusted(facts.loss)):
        remedy = "Only likelihoods of which the curvature tells the variance allow it."
        check.fail("robust", "True or None for this loss", False, remedy)


def is_trusted(loss: losses.Loss) -> bool:
    """Return whether the variance of scores follows from the model of the loss.

    For a loss with two derivatives, their product is minus this variance, if the point
    theta* is the quantile that the loss stands for. For the logistic loss the variance
    is the curvature.
    """
    return isinstance(loss, losses.Logistic | losses.Absolute | losses.Quantile)


def _slopes(loss: losses.Loss) -> tuple[float, float]:
    """Return the derivatives of a record with response 1 on both sides of the jump."""
    # Both margins are far from the jump of all losses of `KINKED`.
    low, high = loss.slope([-9.0, 9.0], [1.0, 1.0])
    return float(low), float(high)


def weight_bounds(sandwich: Sandwich, facts: PublicFacts) -> list[float]:
    """Return the largest weights of the curvature matrix and of the scores' matrix."""
    if sandwich.bandwidth is None:
        curvature = smoothness(facts) / _row_bound(facts) ** 2
    else:
        low, high = _slopes(facts.loss)
        # The Epanechnikov kernel 3/4 (1 - u^2) / b is largest at u = 0.
        curvature = 0.75 * (high - low) / sandwich.bandwidth
    if sandwich.robust:
        facts.lipschitz(2.0)  # raises if the derivative has no bound
        return [curvature, facts.slope_bound**2]
    if sandwich.bandwidth is None:
        return [curvature]
    return [curvature, -low * high]


@np.errstate(all="ignore")  # weights that overflow are cut off at their bounds
def weights(
    sandwich: Sandwich, problem: Problem, theta: Array
) -> tuple[Array, Array | float]:
    """Return the weights of both matrices at theta, before they are cut off."""
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
    # Infinity is cut off to the bound, which gives all records the same weight.
    scores = math.inf
    return curvature, loss.slope(margins, response) ** 2 if sandwich.robust else scores


def _row_bound(facts: PublicFacts) -> float:
    return float(facts.full_row_bound * facts.dual_ratio(2.0))


def sensitivity(facts: PublicFacts, bound: float, relation: str) -> float:
    """Return how far one record moves a computed matrix in Frobenius norm.

    A computed sum of n products, none of which exceeds bound R^2, has an error of at
    most (n + 4) 2^-53 times n of them. Each of the two data sets has this error. Rows
    may exceed R by 1e-12.
    """
    n = facts.num_records
    change = math.sqrt(2.0) if relation == "replace_one" else 1.0
    size = bound * (_row_bound(facts) * (1.0 + 3e-12)) ** 2 / n
    return size * (change + 2.0**-52 * (n + 4.0) ** 2)


def _plan_objective(
    facts: PublicFacts, budget: Budget, other_gdp: float
) -> tuple[Recipe, Callable[[Array], Spread]]:
    """Plan objective perturbation with the smallest ridge for a tenth of epsilon.

    The rest of the budget composes with matrices of gdp ``other_gdp``.
    """
    scales, n = tilt_scales(facts, risk="empirical"), facts.num_records
    # Part of epsilon for the determinant of objective perturbation, which sets the
    # ridge m. At epsilon = 5 it is beta/(147 n). A smaller one would be lost in
    # rounding errors.
    epsilon = min(0.1 * budget.epsilon, 5.0)
    m = scales.smoothness / (n * math.expm1(epsilon))
    objective = perturbed_objective(scales, 0.5 * m, budget.relation)
    stddev = composed_stddev(objective, budget, other_gdp)
    output_gdp = other_gdp * math.sqrt(OUTPUT_SHARE)
    # The minimizer is computed up to an error, which noise on the output hides. This
    # noise is a tenth of the smallest one that the perturbation of the objective causes
    # in a coordinate, or more if the solver cannot be as accurate.
    min_stddev = 0.1 * stddev / (n * scales.smoothness)
    gap = max(0.5 * m * (0.5 * output_gdp * min_stddev) ** 2, resolved_gap(scales, m))
    error = minimizer_error(strong_convexity=m, gap=gap)
    output = 2.0 * error / output_gdp * (1.0 + 1e-12)
    tilt = Tilt(ridge=0.5 * m, stddev=stddev, gap=gap, output_stddev=output)
    spent = TiltEvent(
        log_determinant=objective.log_determinant, distance=objective.distance(stddev)
    )
    event = ComposedEvent((spent, GaussianEvent(output_gdp)))
    recipe = recipe_of(facts, scales, tilt, event)
    # The bound is for a ridge that minimizes the risk, and this one is smaller.
    recipe.inputs.pop("risk_bound", None)

    def spread(values: Array) -> Spread:
        noise = (stddev / n / (values + m)) ** 2 + output**2
        return Spread(values / (values + m), noise)

    return recipe, spread


def _gaussian_part(budget: Budget, gdp: float) -> Budget:
    """Return the budget of a Gaussian mechanism with this gdp."""
    # Optimizers take a budget and compute its gdp again. Any delta would do. At half of
    # the given one epsilon is usually above 0.
    delta = 0.5 * budget.delta
    epsilon = gaussian_epsilon(delta, gdp)
    # If this delta alone covers the mechanism, a smaller one is taken at a tiny
    # epsilon.
    min_epsilon = 1e-12
    if epsilon < min_epsilon:
        epsilon = min_epsilon
        delta = gaussian_delta(epsilon, gdp)
    return Budget(epsilon=epsilon, delta=delta, relation=budget.relation)


def _spread_without_bias(values: Array) -> Spread:
    """Return the spread of normal equations. `regression` computes their noise."""
    return Spread(np.ones_like(values), np.zeros_like(values))


def _plan_descent(
    sandwich: Sandwich, facts: PublicFacts, budget: Budget, total: float
) -> tuple[Recipe, Callable[[Array], Spread]]:
    """Plan noisy gradient descent, whose fit is the mean of half of its iterates."""
    part = _gaussian_part(budget, total * math.sqrt(1.0 - sandwich.share))
    beta = weight_bounds(sandwich, facts)[0] * _row_bound(facts) ** 2
    steps: dict[str, Any] = {"num_steps": NUM_STEPS, "step_size": 1.0 / beta}
    method = NoisyGD(output="tail", tail_share=0.5, **steps)
    recipe = method.recipe(facts, part)
    stddev = float(recipe.inputs["noise_stddev"])
    if math.isfinite(facts.radius):
        # The noise does not depend on the step size, which can be chosen afterwards.
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
    """Return bias and variance of the mean of the last iterates on a quadratic.

    The arrays below have a row for each eigenvalue. ``factor`` is h = 1 - size * a.
    """
    # Beyond -1 the iterates would diverge. Then projection keeps them in the domain.
    factor = np.maximum(1.0 - size * values, -1.0)[:, None]
    powers = factor ** np.arange(num_steps + 1)
    sums = np.concatenate([np.zeros_like(factor), np.cumsum(powers, axis=1)], axis=1)
    # Column k of ``sums`` is 1 + h + ... + h^(k - 1). The noise of step s enters the
    # iterate t with h^(t - 1 - s), so its weights are differences of two sums.
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
    """Return the mean of weights_i a_i a_i^T with noise from a public grid."""
    finite = np.nan_to_num(weights, nan=0.0)
    cut = np.clip(finite, 0.0, noise.bound)
    matrix = curvature_matrix(
        problem.data, np.array(np.broadcast_to(cut, problem.num_records))
    )
    add_symmetric_gaussian(rng, noise.stddev, matrix)
    return matrix


def noisy_square(problem: Problem, stddev: float, rng: np.random.Generator) -> float:
    """Return the mean of squared responses with noise, or 0 if it is not released."""
    if stddev == 0.0:
        return 0.0
    value = np.array([np.mean(responses_without_offsets(problem) ** 2)])
    add_gaussian(rng, stddev, grid_step(stddev), value)
    return float(value[0])


class Means(NamedTuple):
    """Noisy means of a y, and of y^2 if all errors have the same variance."""

    vector: Array
    square: float


class DebiasedFit(NamedTuple):
    """Estimate, its covariance, and the flags of `FLAGS` that warn about it."""

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

    Return theta, the variance s^2 of errors, N in the basis of eigenvectors, and the
    standard deviation of the noise in s^2.
    """
    assert plan.normal is not None
    tau, sigma = plan.normal.matrix_stddev, plan.normal.vector_stddev
    # Coordinates of theta in the eigenvectors.
    turned = vectors.T @ means.vector / values
    theta, size = vectors @ turned, float(turned @ turned)
    noise = 0.5 * tau**2 * turned * turned[:, None]
    noise[np.diag_indices(len(noise))] += sigma**2 + 0.5 * tau**2 * size
    residual = means.square + theta @ (curvature @ theta - 2.0 * means.vector)
    residual += (np.diag(noise) / values).sum()
    doubt = 4.0 * sigma**2 * size + (tau * size) ** 2 + plan.square_stddev**2
    return theta, float(residual), noise, float(np.sqrt(doubt))


@np.errstate(all="ignore")  # an estimate that is not finite counts as unknown
def estimate(
    plan: SandwichPlan,
    facts: PublicFacts,
    theta: Array,
    curvature: Array,
    scores: Array | None,
    means: Means | None = None,
) -> DebiasedFit:
    """Remove the bias of a fit and compute its covariance by post-processing."""
    values, vectors = denoise(curvature, plan.curvature.stddev)
    flags = []
    min_curvature = float(values.min())
    if min_curvature < CLEAR * plan.curvature.stddev * math.sqrt(facts.dim):
        flags.append("curvature")
    wide = np.full(curvature.shape, math.inf)
    unknown = DebiasedFit(theta, wide, min_curvature, ("curvature",))
    if min_curvature <= 0.0:
        return unknown
    kept_shares, variance = plan.spread(values)
    # Intervals are flagged if descent covers less than 98% of the way from its start.
    if kept_shares.min() < 0.98 and plan.sandwich.base == "noisy_gd":
        flags.append("start")
    away = vectors.T @ (theta - facts.center)
    estimated = facts.center + vectors @ (away / kept_shares)
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
    inner[np.diag_indices(facts.dim)] += variance / kept_shares**2
    covariance = vectors @ inner @ vectors.T
    if not (np.isfinite(covariance).all() and np.isfinite(estimated).all()):
        return unknown
    sizes, directions = np.linalg.eigh(covariance)
    # The estimate is normal if all points within three standard errors are inside.
    reach = 3.0 * np.sqrt(np.maximum(sizes, 0.0)) * directions
    ends = (theta + step for step in np.hstack([reach, -reach]).T)
    if not all(facts.domain.contains(end) for end in ends):
        flags.append("boundary")
    return DebiasedFit(estimated, covariance, min_curvature, tuple(flags))
