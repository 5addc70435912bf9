r"""Metrics in which the energy is 1-strongly convex, and the exact draw of each.

With P such that :math:`V - \frac12 x^\top P x` is convex on the domain, the strong
convexity in the norm of P is 1. A full matrix P needs fewest steps of the chain of
`alternation`. If P is proportional to I on a ball, or diagonal on a box, there are
draws that are always inside the domain.

`ProximalMetric` pairs a matrix P with a compiled draw of `envelope_draws`.
"""

from dataclasses import dataclass, replace

import numpy as np

from dpsample.core.arrays import Array
from dpsample.core.jit import Pointer, pointer
from dpsample.core.spec import lazy_property
from dpsample.domains import Domain
from dpsample.problem.records import curvature_matrix
from dpsample.samplers.errors import NoCertificate
from dpsample.samplers.proximal.alternation import HALFSPACE, ProximalPlan
from dpsample.samplers.proximal.envelope_draws import (
    DRAW,
    draw_in_ball,
    draw_in_box,
    draw_in_halfspace,
    draw_in_polytope,
    draw_with_regularizer,
)
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import Target

# Lower bounds of eigenvalues are reduced by this share of the largest eigenvalue, for
# the rounding errors of the Gram matrix and of its eigenvectors.
EIGENVALUE_SLACK = 1e-11
# Largest step size that is tried. Then a step hardly depends on the last position.
MAX_STEP = 1e4


@dataclass(frozen=True, kw_only=True)
class ProximalMetric:
    """A valid choice of P with its exact draw.

    `ProximalPlan` explains the other fields.
    """

    name: str
    precision: Array  # P
    upper: Array | None  # bound of the Hessian of U
    draw: Pointer
    halfspace: int = HALFSPACE.none
    max_distance: float = 0.0
    tangent: float = 1.0
    keeps_regularizer: bool = False  # the draw has its factor, which is not part of U
    kappa: float = 0.0
    kept_weight: float = 0.0
    draw_cost: float = 0.0  # multiply-adds of a draw, roughly
    has_corners: bool = False  # whether draws in corners are possible, but not used yet

    @property
    def dim(self) -> int:
        """Dimension of the domain."""
        return len(self.precision)

    def with_corners(self) -> "ProximalMetric":
        """Return a copy that draws in corners, too. This compiles another function."""
        return replace(self, draw=pointer(draw_in_polytope, DRAW), has_corners=False)

    def numbers(self, target: Gibbs) -> Target:
        """Return the numbers of U, the part of the energy that has tangents."""
        if self.keeps_regularizer:
            return target.numbers._replace(mu=0.0)
        return target.numbers

    @lazy_property
    def matrices(self) -> dict[str, Array]:
        """Matrices of all plans, computed once, because that may take seconds."""
        diagonal = np.diag(self.precision).copy()
        if np.any(self.precision - np.diag(diagonal)):
            eigenvalues, basis = np.linalg.eigh(self.precision)
            factor = np.ascontiguousarray(basis / np.sqrt(eigenvalues))
            inverse = np.ascontiguousarray((basis / eigenvalues) @ basis.T)
        else:
            eigenvalues, basis = diagonal, np.eye(self.dim)
            factor, inverse = np.diag(1.0 / np.sqrt(diagonal)), np.diag(1.0 / diagonal)
        gap_curvature = np.zeros_like(self.precision)
        if self.upper is not None:
            gap_curvature = self.upper - self.tangent * self.precision
        return {
            "inverse": inverse,
            "factor": factor,
            "basis": np.ascontiguousarray(basis),
            "eigenvalues": eigenvalues,
            "gap_curvature": np.ascontiguousarray(gap_curvature),
        }

    @lazy_property
    def gap_eigenvalues(self) -> Array:
        """Eigenvalues of the gap's curvature in the metric, given an upper bound."""
        assert self.upper is not None
        curvature = self.upper - self.tangent * self.precision
        return np.asarray(
            np.linalg.eigvals(np.linalg.solve(self.precision, curvature)).real
        )

    @property
    def first_gap(self) -> float:
        """Approximate mean gap at the pilot's first step."""
        if self.upper is None:
            return 0.5
        return 0.5 * self.pilot_steps()[0] * float(self.gap_eigenvalues.sum())

    def plan(self, step: float, *, squeeze: bool = True) -> ProximalPlan:
        """Return the numbers of the kernel for a step."""
        return ProximalPlan(
            step=float(step),
            tangent=float(self.tangent),
            spread=float(np.sqrt(step / (1.0 + self.tangent * step))),
            kappa=float(self.kappa),
            kept_weight=float(self.kept_weight),
            max_distance=float(self.max_distance),
            halfspace=int(self.halfspace),
            squeeze=int(squeeze and self.upper is not None),
            precision=self.precision,
            **self.matrices,
        )

    def pilot_steps(self) -> tuple[float, float]:
        """Return the first step of the pilot run, and the longest possible one.

        At the first step the mean gap is about a half. If y is at a large distance, the
        envelope's mean overshoots by at most (h / (1 + t h)) Lambda ||y - x*||_P. Here
        t is the curvature ``tangent``, Lambda the largest curvature of U and x* its
        minimizer. If (h / (1 + t h))^2 (Lambda - t) Lambda (1 + h Lambda) is well below
        1, the expected number of proposals, the mean of e^gap, is finite.
        """
        if self.upper is None:
            return 1.0 / self.dim, MAX_STEP
        gap, tangent = max(float(self.gap_eigenvalues.max()), 1e-12), self.tangent

        def overshoot(step: float) -> float:
            weight, curvature = step / (1.0 + tangent * step), gap + tangent
            return weight**2 * gap * curvature * (1.0 + step * curvature)

        # At 1/4 the expected number of proposals is finite, with a margin.
        max_step = MAX_STEP
        while overshoot(max_step) > 0.25:
            max_step *= 0.9
        first_step = 1.0 / max(float(self.gap_eigenvalues.sum()), 1e-3)
        return min(first_step, max_step), max_step


def _lower_bound_matrix(risk_bound: Array, ridge: float) -> Array:
    """Return P = risk + ridge I minus its rounding errors, symmetric and positive.

    The risk's part may be replaced by any share of it. If it is so large that its
    rounding errors exceed the ridge, a smaller share is taken. So this fails only
    without a ridge.
    """
    risk = 0.5 * (risk_bound + risk_bound.T)
    eye, largest = np.eye(len(risk)), float(np.linalg.eigvalsh(risk)[-1])
    share = min(1.0, 0.1 * ridge / max(EIGENVALUE_SLACK * largest, 1e-300))
    for symmetric in (risk + ridge * eye, share * risk + ridge * eye):
        eigenvalues = np.linalg.eigvalsh(symmetric)
        slack = EIGENVALUE_SLACK * eigenvalues[-1]
        if eigenvalues[0] > 2.0 * slack:
            break
    else:
        raise NoCertificate(
            "The energy has no strong convexity on the domain, so no number of steps "
            "is proved to suffice: give the regularizer a weight mu > 0."
        )
    return np.asarray(symmetric - slack * eye)


def _hessian_bounds(target: Gibbs, use_data: bool) -> tuple[Array, Array | None]:
    """Return bounds of k times the Hessian of F on the domain.

    The upper bound is None if it is infinite.
    """
    problem, dim = target.problem, target.dim
    lower_margin, upper_margin = target.margin_intervals()
    low, high = problem.loss.curvature(lower_margin, upper_margin, target.data.response)
    lower = np.zeros((dim, dim))
    if use_data and np.any(low > 0.0):
        lower = target.k * curvature_matrix(target.data, low)
        # If the sums overflow, 0 is a valid bound.
        if not np.isfinite(lower).all():
            lower = np.zeros((dim, dim))
    upper = None
    if np.isfinite(high).all():
        upper = target.k * curvature_matrix(target.data, high)
        upper += EIGENVALUE_SLACK * np.trace(upper) * np.eye(dim)
    return lower, upper


def is_flat(domain: Domain, dim: int) -> bool:
    """Return whether the domain has no interior."""
    return domain.affine_dim(dim) < dim


def require_interior(domain: Domain, dim: int, draws: str, remedy: str) -> None:
    """Raise for a domain without interior, or on which draws may take forever."""
    if is_flat(domain, dim):
        raise NoCertificate(
            f"The {domain.name} has no interior: {draws} draws need a full-dimensional "
            f"domain. {remedy}"
        )
    if not (domain.is_bounded or domain.is_whole_space):
        raise NoCertificate(
            f"The {domain.name} is unbounded: exact draws need a bounded domain or the "
            "whole space. Add inequalities that hold anyway."
        )


def candidates(target: Gibbs, *, oracle: str) -> list[ProximalMetric]:
    """Return all metrics that are valid for the target, in no particular order.

    Only ``oracle="metric"`` includes the curvature of the data in the lower bound. If
    the energy is not strongly convex, or the domain has no interior, `NoCertificate` is
    raised.
    """
    domain, dim = target.domain, target.dim
    require_interior(domain, dim, "certified", "Use a WholeSpace, Ball or Box domain.")
    risk_low, risk_high = _hessian_bounds(target, oracle == "metric")
    reg_low, reg_high = target.regularizer.curvature_l2(dim)
    weight = target.k * target.mu
    low = _lower_bound_matrix(risk_low, weight * reg_low)
    reg_high = weight * reg_high if weight > 0.0 else 0.0
    if np.isfinite(reg_high):
        high = None if risk_high is None else risk_high + reg_high * np.eye(dim)
        return _gaussian_metrics(domain, low, high)
    if _is_separable(target):
        # A proposal from the tangent of a regularizer of unbounded curvature would be
        # rejected for long.
        return [_separable_metric(target, risk_low, risk_high, weight * reg_low)]
    return _gaussian_metrics(domain, low, None)


def _is_separable(target: Gibbs) -> bool:
    """Return whether draws with the regularizer's factor are inside the domain.

    Rejection from the whole space would need an infinite expected number of proposals,
    because the mean over y of 1 / P(inside | y) is an integral of 1 over all y.
    """
    domain, dim = target.domain, target.dim
    is_centered = np.array_equal(
        domain.default_center(dim), target.numbers.regularizer.center
    )
    is_ball = domain.lp_exponent is not None and is_centered
    is_inside = domain.is_whole_space or domain.is_product or is_ball
    return target.regularizer.is_plain_norm and is_inside


def _gaussian_metrics(
    domain: Domain, low: Array, high: Array | None
) -> list[ProximalMetric]:
    """Return the full metric, and the one whose draws are inside if there is one."""
    dim = len(low)
    is_ball = domain.lp_exponent == 2.0
    halfspace, max_distance = HALFSPACE.none, 0.0
    if is_ball:
        halfspace = HALFSPACE.ball
    elif not domain.is_whole_space:
        halfspace = HALFSPACE.projected
        max_distance = domain.max_norm(2.0, domain.default_center(dim), dim)
    full = ProximalMetric(
        name="full",
        precision=low,
        upper=high,
        draw=pointer(draw_in_halfspace, DRAW),
        has_corners=domain.is_polytope and not domain.is_product,
        halfspace=halfspace,
        max_distance=max_distance,
        draw_cost=2.0 * dim * dim + 20.0 * dim,
    )
    if is_ball:
        smallest = float(np.linalg.eigvalsh(low)[0]) * (1.0 - EIGENVALUE_SLACK)
        inner = ProximalMetric(
            name="isotropic",
            precision=smallest * np.eye(dim),
            upper=high,
            draw=pointer(draw_in_ball, DRAW),
            draw_cost=20.0 * dim + 500.0,
        )
        return [full, inner]
    if domain.is_product:
        # The largest diagonal matrix below P of the form share * diag(P). A factor of
        # 1 - 1e-9 covers the rounding error of the share.
        root = np.sqrt(np.diag(low))
        share = float(np.linalg.eigvalsh(low / np.outer(root, root))[0])
        inner = ProximalMetric(
            name="diagonal",
            precision=np.diag((1.0 - 1e-9) * share * root**2),
            upper=high,
            draw=pointer(draw_in_box, DRAW),
            draw_cost=60.0 * dim,
        )
        return [full, inner]
    return [full]


def _separable_metric(
    target: Gibbs, risk_low: Array, risk_high: Array | None, ridge: float
) -> ProximalMetric:
    """Return P proportional to I, with the regularizer's factor in the draw."""
    dim = len(risk_low)
    smallest = float(np.linalg.eigvalsh(risk_low)[0])
    risk_share = max(0.0, smallest - EIGENVALUE_SLACK * float(np.trace(risk_low)))
    total = ridge + risk_share
    return ProximalMetric(
        name="separable",
        precision=total * np.eye(dim),
        upper=risk_high,
        draw=pointer(draw_with_regularizer, DRAW),
        tangent=risk_share / total,
        keeps_regularizer=True,
        kappa=target.k * target.mu * target.numbers.regularizer.scale,
        kept_weight=target.k * target.mu,
        draw_cost=1000.0 * dim,
    )
