r"""Pure objective perturbation: a random linear term of density exp(-|b|_2 / s).

Records a with responses y give the mean loss F(theta) of n losses phi(<a, theta>, y),
phi convex and C^{1,1}. For every possible record, gradients have norm <= L and
curvatures phi'' |a|^2 <= beta. On a closed convex domain W with center c let

    theta(b) = argmin over W of F(theta) + <b, theta>/n + (m/2) |theta - c|^2,

m > 0, where the *tilt* b in R^d has a density proportional to exp(-|b|_2 / s): its
direction is uniform, and its length is s times a Gamma(d) variable.

**Theorem** (Chaudhuri, Monteleoni and Sarwate 2011, Kifer, Smith and Thakurta 2012).
theta(b) is epsilon-differentially private, delta = 0, with

    epsilon = Delta/s + log(1 + beta/(n m)),

Delta = 2 L if one record is replaced, and L if its loss is set to zero.

*Proof.* First let W = R^d. The tilt whose minimizer is theta is b(theta) = -n F'(theta)
- n m (theta - c). This map is Lipschitz, and so is its inverse, because -b is strongly
monotone. Slopes phi' are differentiable but on a null set N of margins, and <a, theta>
is in N for a null set of theta only. (A row a = 0 adds nothing.) So theta has the
density exp(-|b(theta)|/s) |det B(theta)| up to a constant, where almost everywhere B is
n m I plus the sum of phi'' a a'. Neighbors share a matrix A >= n m I of all other
records. b(theta) moves by s a - s' a', of length <= Delta, so the first factor changes
by at most e^{Delta/s}. The second is det(A) (1 + phi'' a' A^{-1} a), and the bracket is
from 1 to 1 + beta/(n m). It counts once, because the brackets of two neighbors are
divided.

For any W, penalties (j/2) dist(theta, W)^2 replace the constraint. They are common to
neighbors, convex and C^{1,1}, and only increase A. Minimizers converge to theta(b) for
every b as j grows. For an open set U let U_t be its points at a distance > t from the
complement, and P_j, Q_j the distributions on two neighbors. The limits give P(U_t) <=
liminf P_j(U_t) <= e^epsilon limsup Q_j(closure of U_t) <= e^epsilon Q(U). With t -> 0
and the outer regularity of Q this holds for all sets. It covers faces of W, which have
a positive probability, and flat and unbounded W. The losses need L and beta on W only.
Beyond the margins of W, phi is continued linearly, which changes no minimizer there.
QED

**Computed minimizers.** Let x(b) be the point that is computed. It is in W, where |x -
c| <= M, or outside by a rounding error. It is within tau of theta(b), in l2, for all
|b| <= B. Nothing is known of it for longer tilts, which have probability f. Released is
x(b) + h, where h has independent Laplace coordinates of scale q. With kappa = 2 sqrt(d)
M/q it is private with

    epsilon + 2 sqrt(d) tau/q + 2 log(1 + f e^kappa).

*Proof.* Let N_x be the distribution of x + h. The l1 norm is at most sqrt(d) times the
l2 norm. With r = sqrt(d) tau/q, N_x <= e^r N_z for |x - z| <= tau. For all points of W,
N_x <= e^kappa N_z. Let Q be the mean of N_x(b) over b and I the mean of N_theta(b). For
long tilts N_x(b) <= e^kappa N_theta(b') for every b', hence <= e^kappa I. So Q <= e^r I
+ f e^kappa I <= e^r (1 + f e^kappa) I, and likewise I <= e^r (1 + f e^kappa) Q. I is
epsilon-private, because it is theta(b) plus noise of its own. Neighbors need the first
inequality on one data set and the second on the other. QED

A tilt may therefore be shortened to the length B, so that rounding errors, which grow
with it, have a bound. What is not private is the minimizer of a shortened tilt itself,
whose support moves with the records. The noise h has all of R^d as its support. A wrong
point costs at most e^kappa, and f is far smaller than e^-kappa. By Chernoff's bound of
the Gamma distribution, f <= (x/d)^d e^{d - x} for x = B/s >= d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsample.core import check
from dpsample.privacy.curves.objective_perturbation import ROUNDING, PerturbedObjective


@dataclass(frozen=True, kw_only=True)
class NormTilt:
    """Public numbers of a pure objective perturbation, and the epsilon of its parts.

    Parameters
    ----------
    objective : PerturbedObjective
        Constants of the tilted objective, whose ridge is m/2.
    dim : int
        d, number of coefficients.
    radius : float
        M, the largest distance from the domain's center, perhaps infinite.
    scale : float
        s, > 0. The length of the tilt is s times a Gamma(d) variable.
    max_length : float
        B, the length to which longer tilts are shortened. Infinite: to none.
    error : float
        tau, bound of the distance of a computed minimizer from the exact one, >= 0.
    output_scale : float
        q, scale of the Laplace noise on each coordinate of the output, > 0.

    Raises
    ------
    ValueError
        If a number is out of its range, or the domain is bounded and tilts are shorter
        than d s.

    Guarantee
    ---------
    The noisy output is `epsilon`-differentially private with delta = 0 under the
    objective's relation, in real arithmetic (`dpsample.optimizers.loop.iterate_errors`
    includes rounding errors in tau).

    Examples
    --------
    >>> objective = PerturbedObjective(
    ...     lipschitz=1.0, smoothness=0.25, num_records=1000, ridge=0.001
    ... )
    >>> scale = norm_tilt_scale(objective, 0.99)
    >>> tilt = NormTilt(
    ...     objective=objective, dim=3, radius=1.0, scale=scale, error=1e-6,
    ...     output_scale=1e-3, max_length=scale * max_tilt_length(3, 2e3 * 3**0.5, 1e-9)
    ... )
    >>> f"{tilt.tilt_epsilon:.6f} {tilt.output_epsilon:.6f} {tilt.epsilon:.6f}"
    '0.990000 0.003464 0.993464'
    """

    objective: PerturbedObjective
    dim: int
    radius: float
    scale: float
    max_length: float
    error: float
    output_scale: float

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.instance(PerturbedObjective, objective=self.objective)
        check.integer(1, dim=self.dim)
        check.at_least(0.0, radius=self.radius)
        check.positive(scale=self.scale, output_scale=self.output_scale)
        check.non_negative(error=self.error)
        is_bounded = math.isfinite(self.radius)
        min_length = self.dim * self.scale if is_bounded else 0.0
        check.at_least(min_length, max_length=self.max_length)

    @property
    def tilt_epsilon(self) -> float:
        """Epsilon of the exact minimizer, rounded up."""
        # Delta/s, and log(1 + beta / (n m)), the Jacobian's part.
        shift = self.objective.shift / self.scale
        return (shift + self.objective.log_determinant) * (1.0 + 4.0 * ROUNDING)

    @property
    def output_epsilon(self) -> float:
        """Epsilon of the solver's error, 2 sqrt(d) tau/q, rounded up."""
        error = 2.0 * math.sqrt(self.dim) * self.error
        return error / self.output_scale * (1.0 + ROUNDING)

    @property
    def cut_epsilon(self) -> float:
        """Epsilon of tilts that are shortened, 2 log(1 + f e^kappa), rounded up."""
        if math.isinf(self.max_length):
            return 0.0
        kappa = log_range(self.dim, self.radius, self.output_scale)
        length = self.max_length / self.scale
        # The logarithm of Chernoff's bound of f.
        log_tail = self.dim * (1.0 + math.log(length / self.dim)) - length
        # Rounding errors of the sum are far below a part 1e-14 of its terms.
        size = kappa + self.dim + length + abs(log_tail)
        exponent = kappa + log_tail + 1e-14 * size
        if exponent > 700.0:  # doubles cannot hold e^exponent, and 1 does not count
            return 2.0 * (exponent + 1.0)
        return 2.0 * math.log1p(math.exp(exponent)) * (1.0 + 4.0 * ROUNDING)

    @property
    def epsilon(self) -> float:
        """Epsilon of the noisy output, rounded up."""
        parts = self.tilt_epsilon + self.output_epsilon + self.cut_epsilon
        return parts * (1.0 + 4.0 * ROUNDING)


def norm_tilt_scale(objective: PerturbedObjective, epsilon: float) -> float:
    """Return the smallest scale s of a tilt whose exact minimizer is epsilon-private.

    Parameters
    ----------
    objective : PerturbedObjective
        Public constants.
    epsilon : float
        Privacy loss, > 0.

    Returns
    -------
    float
        s = Delta / (epsilon - log(1 + beta/(n m))), rounded up.

    Raises
    ------
    ValueError
        If epsilon <= log(1 + beta/(n m)). Then the ridge must be larger.

    Examples
    --------
    >>> objective = PerturbedObjective(
    ...     lipschitz=1.0, smoothness=0.0, num_records=1000, ridge=0.001
    ... )
    >>> print(f"{norm_tilt_scale(objective, 0.5):.6f}")
    4.000000
    """
    check.instance(PerturbedObjective, objective=objective)
    check.positive(epsilon=epsilon)
    remainder = epsilon * (1.0 - 8.0 * ROUNDING) - objective.log_determinant
    # The difference cancels if nearly all of epsilon is spent, so its error is bounded
    # relative to epsilon.
    remainder -= 4.0 * ROUNDING * epsilon
    if remainder <= 0.0:
        curvature = objective.smoothness / (2 * objective.num_records)
        check.fail(
            "ridge",
            f"> {curvature / math.expm1(min(epsilon, 700.0)):.6g}, where the Jacobian "
            "alone spends epsilon",
            objective.ridge,
            "Choose it so that log(1 + smoothness/(2 n ridge)) is epsilon / 5.",
        )
    return objective.shift / remainder * (1.0 + 4.0 * ROUNDING)


def log_range(dim: int, radius: float, output_scale: float) -> float:
    """Return kappa, the largest log-likelihood ratio of noise about two points of W."""
    # Computed points may be outside of W by far less than this part of its radius.
    diameter = 2.0 * math.sqrt(dim) * radius * (1.0 + 1e-9)
    return diameter / output_scale * (1.0 + ROUNDING)


def max_tilt_length(dim: int, kappa: float, epsilon: float) -> float:
    r"""Return B/s such that shortened tilts cost at most ``epsilon``.

    With T = kappa + log(2/epsilon) the claim is x - d - d log(x/d) >= T. As log(x/d) <=
    x/(8 d) + log 8 - 1, the solution (T + d log 8)/(1 - 1/8) is enough.

    Parameters
    ----------
    dim : int
        d, >= 1.
    kappa : float
        `log_range`. Infinite on an unbounded domain, where no tilt is shortened.
    epsilon : float
        Part of epsilon, > 0.

    Returns
    -------
    float
        Length in units of s, at least d.

    Examples
    --------
    >>> print(f"{max_tilt_length(1, 100.0, 1e-9):.1f}")
    142.3
    """
    # One more than the claim needs, which covers rounding errors.
    target = kappa * (1.0 + 1e-12) + max(math.log(2.0) - math.log(epsilon), 0.0) + 1.0
    return (target + dim * math.log(8.0)) / (1.0 - 1.0 / 8.0)
