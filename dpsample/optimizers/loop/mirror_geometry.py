r"""Mirror descent's geometry: potential, noise and their constants in l_p.

Gradients are measured in l_q, q = p/(p-1), whose square is kappa-regular through l_r
(see `regularity`). The potential :math:`\Phi = \frac\kappa2 \|w\|_s^2`, s =
r/(r-1), is 1-strongly convex in l_p: :math:`\frac12 \|w\|_s^2` is (s-1)-strongly
convex in l_s, :math:`\kappa (s-1) = c^2` and :math:`\|w\|_s \ge \|w\|_p/c`. (The
exponent that arXiv:2303.18047 prints is wrong: gradient-E1.)
"""

import math
from typing import Literal, NamedTuple

from dpsample.numerics.norms import conversion, dual
from dpsample.numerics.regularity import regularity
from dpsample.optimizers.loop.perturbations import (
    GaussianNoise,
    GeneralizedGaussianNoise,
    NoNoise,
    Perturbation,
)
from dpsample.privacy.curves.additive import up
from dpsample.problem.facts import PublicFacts

NoiseName = Literal["gaussian", "generalized_gaussian"]
NOISES = ("gaussian", "generalized_gaussian")


class Geometry(NamedTuple):
    """Exponents and constants of one potential, and the noise that goes with it."""

    dim: int
    q: float  # of the norm of gradients
    r: float  # of the smooth norm, and of generalized Gaussian noise
    s: float  # of the potential
    kappa: float
    noise: NoiseName

    def record_bound(self, facts: PublicFacts, threshold: float = math.inf) -> float:
        """Bound of a gradient of l_q norm <= threshold in the norm of the noise.

        The l_2 norm for Gaussian noise, the l_r norm for generalized Gaussian noise.
        """
        own = facts.lipschitz_or_inf(dual(self.noise_exponent))
        return min(threshold * self.threshold_ratio, own)

    @property
    def noise_exponent(self) -> float:
        """Exponent of the norm of gradients in which the noise is calibrated."""
        return 2.0 if self.noise == "gaussian" else self.r

    @property
    def threshold_ratio(self) -> float:
        """Largest ratio of that norm and the l_q norm."""
        return conversion(self.dim, self.q, self.noise_exponent)

    def perturbation(self, stddev: float, copies: int = 1) -> Perturbation:
        """Noise that protects as Gaussian noise of ``stddev`` on the record bounds.

        Generalized Gaussian noise needs sqrt(r-1) times as much; a mean of ``copies``
        draws needs each to be sqrt(copies) times larger: its shift v is that of copies
        shifted by v each, whose gdp composes to sqrt(copies) gdp/copies.
        """
        if stddev == 0.0:
            return NoNoise()
        if self.noise == "gaussian":
            return GaussianNoise(stddev)
        sigma = up(math.sqrt(self.r - 1.0) * math.sqrt(copies) * stddev)
        return GeneralizedGaussianNoise(r=self.r, sigma=sigma, copies=copies)

    def mean_square(self, copies: int = 1) -> float:
        """Bound of the mean square l_q norm of `perturbation` of stddev 1."""
        if self.noise == "gaussian":
            return gaussian_mean_square(self.dim, self.q)
        growth = self.r - 1.0 if copies > 1 else 1.0
        return growth * (self.r - 1.0) * self.dim


def geometry(
    p: float,
    dim: int,
    noise: NoiseName,
    *,
    r: Literal["best", "printed"] = "best",
) -> Geometry:
    """Geometry of l_p, 1 <= p <= 2, with the best or with the printed exponent r."""
    regular = regularity(p, dim=dim, r=r)
    return Geometry(
        dim=dim,
        q=regular.q,
        r=regular.r,
        s=dual(regular.r),
        kappa=regular.kappa,
        noise=noise,
    )


def gaussian_mean_square(dim: int, q: float) -> float:
    r"""Bound of :math:`E\|g\|_q^2` for a standard normal vector, q >= 2.

    :math:`\|g\|_q \le \|g\|_u` and :math:`E\|g\|_u^2 \le d^{2/u} (E|g_1|^u)^{2/u}` for
    u <= q, at u = min{q, 2 log d}; an equality for q = 2.
    """
    u = min(q, max(2.0, 2.0 * math.log(dim)))
    log_moment = 0.5 * u * math.log(2.0) + math.lgamma(0.5 * (u + 1.0))
    return math.exp(2.0 / u * (math.log(dim) + log_moment - 0.5 * math.log(math.pi)))
