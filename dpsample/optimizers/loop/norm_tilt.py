r"""Plan of pure objective perturbation: ridge, tilt, accuracy and output noise.

`dpsample.privacy.curves.norm_tilt` has the theorem. The tilt b has a uniform direction
and the length of s times a Gamma(d) variable, so :math:`E |b|^2 = d (d + 1) s^2`. Its
coordinates have the root mean square :math:`s \sqrt{d + 1}`, which takes the place of
sigma in the bounds of the risk in `tilted`. The bound sigma W/n, W the Gaussian width,
holds as well. The mean of the largest <b, w> is d s W/E|z|, z standard normal. Here
E|z| >= d/sqrt(d + 1), because log Gamma is convex.

**Accuracy.** The excess risk of a tilt is far below its bound on most records: where
the risk has curvature h the tilt moves the minimizer by b/(n (h + m)). No direction has
more curvature than l = m + beta. So the output noise is a twentieth of what the tilt
causes in a direction of curvature l, or more if doubles are not as accurate. It adds a
quarter of a percent to the mean square that the tilt causes.
"""

import math
from dataclasses import replace

from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.iterate_errors import (
    counted_scale,
    has_error_bound,
    phase_error,
)
from dpsample.optimizers.loop.optimizer import Minimization, Recipe
from dpsample.optimizers.loop.tilted import (
    TiltScales,
    best_ridge,
    perturbed_objective,
    resolved_gap,
)
from dpsample.privacy.accounting.events import PureEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.norm_tilt import (
    NormTilt,
    log_range,
    max_tilt_length,
    norm_tilt_scale,
)
from dpsample.privacy.curves.objective_perturbation import minimizer_error
from dpsample.problem.facts import PublicFacts


def plan_norm_tilt(
    scales: TiltScales, budget: Budget, ridge: float | None
) -> tuple[NormTilt, float, float]:
    """Return the tilt within the budget's epsilon, its ridge lambda and its gap."""
    # The rounding errors of the sum of all parts are far below 1e-12 of it.
    total = budget.epsilon * (1.0 - 1e-12)
    # One percent is for the noise of the output, and a part 2^-30 of it for tilts that
    # are shortened.
    tilt_epsilon, output_epsilon = 0.99 * total, 0.01 * total
    cut_epsilon = 2.0**-30 * output_epsilon
    output_epsilon -= cut_epsilon

    def scale_of(ridge: float) -> float:
        objective = perturbed_objective(scales, ridge, budget.relation)
        return norm_tilt_scale(objective, tilt_epsilon)

    root = math.sqrt(scales.dim + 1.0)
    if ridge is None:
        ridge = best_ridge(scales, lambda x: root * scale_of(x), epsilon=tilt_epsilon)
    scale, m = scale_of(ridge), scales.convexity(ridge)
    gap = _gap(scales, m, scale, output_epsilon)
    error = minimizer_error(strong_convexity=m, gap=gap)
    output_scale = 2.0 * math.sqrt(scales.dim) * error / output_epsilon * (1.0 + 1e-12)
    kappa = log_range(scales.dim, scales.radius, output_scale)
    length = scale * max_tilt_length(scales.dim, kappa, cut_epsilon)
    tilt = NormTilt(
        objective=perturbed_objective(scales, ridge, budget.relation),
        dim=scales.dim,
        radius=scales.radius,
        scale=scale,
        max_length=length,
        error=error,
        output_scale=output_scale,
    )
    return tilt, ridge, gap


def _gap(scales: TiltScales, m: float, scale: float, output_epsilon: float) -> float:
    """Return the gap that the module describes, not below `resolved_gap`.

    Laplace noise of scale q = 2 sqrt(d) tau/epsilon has the deviation sqrt(2) q.
    """
    top = m + scales.smoothness
    effect = scale * math.sqrt(scales.dim + 1.0) / (scales.num_records * top)
    # In a small domain the tilt moves no coordinate further than this, on average.
    effect = min(effect, scales.radius / math.sqrt(scales.dim))
    per_error = 2.0 * math.sqrt(2.0 * scales.dim) / output_epsilon
    error = 0.05 * effect / per_error
    return max(0.5 * m * error**2, resolved_gap(scales, m))


def _risk_bound(scales: TiltScales, tilt: NormTilt, ridge: float) -> float:
    """Return a bound of the mean excess risk, infinite on an unbounded domain.

    The tilt has the error and the output noise of the run.
    """
    root_mean_square = tilt.scale * math.sqrt(scales.dim + 1.0)
    noise = math.sqrt(2.0 * scales.dim) * tilt.output_scale
    computed = scales.lipschitz * (tilt.error + noise)
    return scales.risk(ridge, root_mean_square) + computed


def norm_tilt_recipe(
    facts: PublicFacts, scales: TiltScales, budget: Budget, ridge: float | None
) -> Recipe:
    """Return the recipe of one minimization of a purely private tilted objective."""
    tilt, ridge, gap = plan_norm_tilt(scales, budget, ridge)
    phase = Minimization(
        ridge=scales.convexity(ridge),
        smoothness=scales.smoothness,
        gap=gap,
        estimator=Mean(lipschitz=scales.lipschitz),
        tilt_scale=tilt.scale,
        max_tilt=tilt.max_length,
        is_anchored=True,
        output_scale=tilt.output_scale,
    )
    kind, run = "objective/pure", tilt
    if has_error_bound(facts, phase):
        phase = replace(phase, output_epsilon=tilt.output_epsilon)
        kind, center = "objective/pure/rounded", facts.center
        run = replace(
            tilt,
            error=tilt.error + phase_error(facts, phase, center),
            output_scale=counted_scale(facts, phase, center, center),
        )
    inputs: dict[str, float | int | str] = {
        "lipschitz": scales.lipschitz,
        "smoothness": scales.smoothness,
        "radius": scales.radius,
        "ridge": ridge,
        "gap": gap,
        "tilt_scale": tilt.scale,
        "max_tilt": tilt.max_length,
        "output_scale": tilt.output_scale,
        "log_determinant": tilt.objective.log_determinant,
        "output_epsilon": tilt.output_epsilon,
    }
    bound = _risk_bound(scales, run, ridge)
    if math.isfinite(bound):
        inputs["risk_bound"] = bound
    event = PureEvent(budget.epsilon)
    return Recipe(phases=(phase,), event=event, inputs=inputs, kind=kind)
