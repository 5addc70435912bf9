r"""Perturbation of minimizers: of the objective by a random tilt, and of the output.

n records a with responses y give the mean loss F(theta). Neighbors differ in one
record, which is replaced, or whose loss is set to zero (relation zero_out).

**Objective perturbation** of linear models:

theta = argmin over a convex W of F(theta) + <G, theta> / n + lambda |theta|^2,

with G ~ N(0, stddev^2 I). The losses are phi(<a, theta>, y), phi convex and C^{1,1}.
For every possible record, gradients have norm <= L and curvatures phi'' |a|^2 <= beta.

The random linear term <G, theta> / n is called the *tilt*. For W the whole space, the
tilt that has the minimizer theta is G(theta) = -n F'(theta) - 2 n lambda theta. So the
density of theta is the density of G at G(theta) times the determinant of the Jacobian.
Replacing a record changes both.

- The Jacobian has eigenvalues of at least 2 n lambda. Each record contributes a matrix
  of rank one. So the determinant changes by a factor in [(1 + x)^-1, 1 + x], where
  x = beta / (2 n lambda).
- G(theta) moves by s a - s' a', of length <= 2 L, where s and s' are derivatives of
  phi. The directions a and a' are fixed.

So, with t = 2 L / stddev and standard normal xi_1, xi_2, however correlated,

    privacy loss <= log(1 + x) + t^2 / 2 + t (|xi_1| + |xi_2|) / 2.

(|xi_1| + |xi_2|) / 2 is the larger of |xi_1 + xi_2| / 2 and |xi_1 - xi_2| / 2. These
are two independent normals whose variances b, 1 - b add up to 1. With T(u) = Phi(-u),
its tail beyond u is at most 2 g(b), g(b) = T(u b^{-1/2}) + T(u (1-b)^{-1/2}). The sign
of g' on (0, 1/2] changes at most once, from - to +, because the log ratio of its two
terms has a derivative of the sign of u^2/2 - b (1-b) (u^2 + 3/2). So g is largest at
b = 0, where it is T(u), or at b = 1/2, where it is 2 T(2^{1/2} u), which is smaller
from u = 1 on. Hence for u >= 1 the tail is at most 2 T(u), as of one |xi|. The mean of
(1 - e^{epsilon - loss})_+ is then twice a Gaussian curve (`PerturbedObjective.delta`).

Setting a record's loss to zero moves G(theta) by s a, of length <= L, and there is only
one |xi|. Then t = L / stddev and no u is too small. A constraint is the limit of smooth
convex penalties that all data sets share, with phi continued linearly beyond the
margins of W.

**Output perturbation**: how far one record moves the minimizer of a regularized
objective. J = F + m r, r 1-strongly convex in the l_p norm, is m-strongly convex. If
J' = J + h belongs to a neighbor and h is H-Lipschitz, then strong convexity at both
minimizers gives m |w - w'|^2 <= h(w) - h(w') <= H |w - w'|. So the minimizer moves by
at most H / m, H = G_Delta / n, where G_Delta is the Lipschitz constant of the change of
n F. A computed minimizer has an error on both data sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy.budget import Relation
from dpsample.privacy.curves.gaussian import gaussian_delta, gaussian_epsilon
from dpsample.problem.facts import RELATIONS, PublicFacts, smoothness

# The tail of |xi| bounds the loss only from u = 1 on. The smallest argument u in the
# formula of delta is z, so z must be at least this.
MIN_Z = {"replace_one": 1.0, "zero_out": 0.0}
# This exceeds the relative rounding error of a few operations.
ROUNDING = 1e-14


@check.unwrap_numpy
def minimizer_error(
    *, strong_convexity: float, gap: float = 0.0, gradient_norm: float = 0.0
) -> float:
    r"""Bound the distance of a computed point from the exact minimizer.

    The bound is :math:`\sqrt{2a/m} + \tau/m` for an m-strongly convex objective within
    ``gap`` a of its minimum, or with a gradient of dual norm at most ``gradient_norm``
    tau.

    Parameters
    ----------
    strong_convexity : float
        m, > 0, of the objective in the norm of the result.
    gap : float
        Certified bound a of J(w) - min J, >= 0.
    gradient_norm : float
        Certified bound tau of the dual norm of the gradient, >= 0. It is only for
        problems without constraints.

    Returns
    -------
    float
        Bound of the distance, rounded up. A solver certifies one of the two, and the
        other is 0.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Guarantee
    ---------
    Every w with J(w) - min J <= a, or with a gradient of norm <= tau, is that close.

    Examples
    --------
    >>> minimizer_error(strong_convexity=0.5, gap=1e-4) <= 0.0200001
    True
    """
    check.positive(strong_convexity=strong_convexity)
    check.non_negative(gap=gap, gradient_norm=gradient_norm)
    by_gap = math.sqrt(2.0 * gap / strong_convexity)
    return (by_gap + gradient_norm / strong_convexity) * (1.0 + 1e-15)


@check.unwrap_numpy
def minimizer_sensitivity(
    facts: PublicFacts,
    *,
    strong_convexity: float,
    p: float = 2.0,
    relation: str = "replace_one",
    gap: float = 0.0,
    gradient_norm: float = 0.0,
) -> float:
    r"""Return the l_p sensitivity of the minimizer of F + m r, exact or certified.

    :math:`\frac{G_\Delta}{nm} + 2\sqrt{2a/m}`, or
    :math:`\frac{G_\Delta}{nm} + \frac{2\tau}{m}`. Chaudhuri, Monteleoni and Sarwate
    (2011), Theorem 6, in any norm, with the error of the solver on both data sets.

    Parameters
    ----------
    facts : PublicFacts
        Public facts of the problem.
    strong_convexity : float
        m, > 0, of the term m r that all data sets share. r is 1-strongly convex in l_p.
    p : float
        Norm of the sensitivity, >= 1.
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors.
    gap : float
        Public accuracy a of the solver, certified on every data set. 0 means exact.
    gradient_norm : float
        Public bound tau of the gradient's dual norm at the point returned, enforced on
        every data set. It is only for problems without constraints.

    Returns
    -------
    float
        Bound of the l_p distance between the points computed on neighbors, rounded up.

    Raises
    ------
    ValueError
        If a number is out of its range, the loss has no Lipschitz constant on the
        domain, or ``gradient_norm`` comes with a constrained domain.

    Guarantee
    ---------
    If the losses are convex and satisfy the declared bounds for every possible record,
    the two points are at most this far apart. Linear losses attain it at a = tau = 0.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=1000, dim=3, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Logistic(), domain=dps.domains.WholeSpace())
    >>> sensitivity = minimizer_sensitivity(facts, strong_convexity=0.01)
    >>> print(f"{sensitivity:.6f}")
    0.200000

    The noise that makes the minimizer private:

    >>> from dpsample.privacy.curves.additive import gaussian_stddev
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> print(f"{gaussian_stddev(budget, sensitivity):.4f}")
    0.8449
    """
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")
    check.non_negative(gradient_norm=gradient_norm)
    if gradient_norm and not facts.domain.is_whole_space:
        check.fail(
            "gradient_norm",
            "0 on a constrained domain",
            gradient_norm,
            "Certify the gap, because a projected minimizer may have a large gradient.",
        )
    error = minimizer_error(
        strong_convexity=strong_convexity, gap=gap, gradient_norm=gradient_norm
    )
    scale = facts.num_records * strong_convexity
    movement = facts.diff_lipschitz(p, relation) / scale
    return (movement + 2.0 * error) * (1.0 + 1e-15)


@dataclass(frozen=True, kw_only=True)
class PerturbedObjective:
    """Public constants of a tilted objective, and its privacy for any noise.

    Kifer, Smith and Thakurta (2012) as corrected for linear models (erratum BFTT-7,
    gradient-E5): Bassily et al. (2019), Algorithm 2, and Su, Zhao and Wang (2023),
    Algorithm 1. It is not Gaussian differential privacy, because the determinant adds a
    constant to the privacy loss.

    Parameters
    ----------
    lipschitz : float
        L, l_2 bound of a record's gradient, > 0.
    smoothness : float
        beta, bound of phi'' |a|^2, >= 0.
    num_records : int
        Number n of records, which is public.
    ridge : float
        lambda of the term lambda |theta|^2, > 0. The objective is 2 lambda-strongly
        convex.
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors.

    Raises
    ------
    ValueError
        If a number is out of its range or the relation is unknown.

    Examples
    --------
    >>> objective = PerturbedObjective(
    ...     lipschitz=1.0, smoothness=0.25, num_records=1000, ridge=0.001
    ... )
    >>> print(f"{objective.epsilon(1e-6, stddev=9.812):.4f}")
    1.0000
    """

    lipschitz: float
    smoothness: float
    num_records: int
    ridge: float
    relation: Relation = "replace_one"

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.positive(lipschitz=self.lipschitz, ridge=self.ridge)
        remedy = "Objective perturbation needs a loss with a bounded curvature."
        check.non_negative(smoothness=self.smoothness, remedy=remedy)
        check.integer(1, maximum=check.MAX_EXACT_INT, num_records=self.num_records)
        check.one_of(RELATIONS, relation=self.relation)

    @classmethod
    def of(  # lint: ok
        cls, facts: PublicFacts, *, ridge: float, relation: Relation = "replace_one"
    ) -> PerturbedObjective:
        """Return the objective with the constants that public facts imply.

        Parameters
        ----------
        facts : PublicFacts
            Public facts of a problem with a smooth loss: logistic (capped or not),
            smoothed hinge, Huber, linear, squared and power four (on a bounded domain),
            or a custom one with a declared curvature.
        ridge : float
            Weight lambda > 0 of the ridge.
        relation : {"replace_one", "zero_out"}
            Which data sets are neighbors.

        Returns
        -------
        PerturbedObjective

        Raises
        ------
        ValueError
            If the loss has a non-differentiable point, or an unbounded derivative or
            curvature on the domain.
        """
        check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")
        return cls(
            lipschitz=facts.lipschitz(2.0),
            smoothness=smoothness(facts),
            num_records=facts.num_records,
            ridge=ridge,
            relation=relation,
        )

    @property
    def log_determinant(self) -> float:
        """log(1 + beta / (2 n lambda)), the Jacobian's part of the privacy loss."""
        ratio = self.smoothness / (2.0 * self.num_records * self.ridge)
        return math.log1p(ratio) * (1.0 + ROUNDING)

    @property
    def shift(self) -> float:
        """Length by which the tilt must move to undo a change of a record, 2 L or L."""
        return self.lipschitz * (2.0 if self.relation == "replace_one" else 1.0)

    def distance(self, stddev: float) -> float:
        """Return t, the shift in standard deviations, rounded up."""
        check.positive(stddev=stddev)
        # t is at most 1e60, so that t^2 and products with it do not overflow.
        min_stddev = self.shift / 1e60
        if stddev < min_stddev:
            remedy = "The noise is too small for its losses to be numbers."
            check.fail("stddev", f">= shift / 1e60 = {min_stddev:.3g}", stddev, remedy)
        t = self.shift / float(stddev) * (1.0 + ROUNDING)
        return max(t, check.MIN_NORMAL) if self.shift > 0.0 else 0.0

    def delta(self, epsilon: float, *, stddev: float) -> float:
        """Return the delta that is proved at ``epsilon``.

        It is 2 (Phi(-z) - e^e Phi(-z - t)), twice the Gaussian curve at e = epsilon -
        log(1 + beta / (2 n lambda)), where z = e/t - t/2 >= 1 (>= 0 under zero_out).
        Below the smallest such epsilon, epsilon_0, it is 1 - e^{epsilon - epsilon_0}
        (1 - delta(epsilon_0)), which holds for every privacy curve.

        Parameters
        ----------
        epsilon : float
            Privacy loss, >= 0.
        stddev : float
            Standard deviation of each coordinate of G, > 0.

        Returns
        -------
        float
            delta in [0, 1], decreasing in ``epsilon`` and in ``stddev``.

        Guarantee
        ---------
        The exact minimizer is (epsilon, delta)-DP under the relation.

        Examples
        --------
        >>> objective = PerturbedObjective(
        ...     lipschitz=1.0, smoothness=0.0, num_records=1000, ridge=0.01
        ... )
        >>> print(f"{objective.delta(1.0, stddev=10.0):.3e}")
        3.509e-08
        """
        check.non_negative(epsilon=epsilon)
        t = self.distance(stddev)
        min_epsilon = self.least_epsilon(t)
        excess = max(float(epsilon), min_epsilon) - self.log_determinant
        bound = 2.0 * gaussian_delta(max(excess, 0.0), t)
        shortfall = min(epsilon - min_epsilon, 0.0)
        delta = math.exp(shortfall) * min(bound, 1.0) - math.expm1(shortfall)
        return min(1.0, delta * (1.0 + ROUNDING))

    def epsilon(self, delta: float, *, stddev: float) -> float:
        """Return the epsilon that is proved at ``delta``.

        It is the inverse of `delta` where z >= 1.

        Parameters
        ----------
        delta : float
            Probability, > 0 and < 1.
        stddev : float
            Standard deviation of each coordinate of G, > 0.

        Returns
        -------
        float
            epsilon > 0, rounded up.

        Guarantee
        ---------
        ``self.delta(self.epsilon(delta, stddev=stddev), stddev=stddev) <= delta``, and
        the exact minimizer is (epsilon, delta)-DP.

        """
        check.open_interval(0.0, 1.0, delta=delta)
        t = self.distance(stddev)
        tail = gaussian_epsilon(0.5 * delta, t) + self.log_determinant
        return max(tail, self.least_epsilon(t)) * (1.0 + ROUNDING)

    def rdp(self, order: float, *, stddev: float) -> float:
        """Bound the Renyi divergence of ``order`` between the outputs on neighbors.

        It is log(1 + beta / (2 n lambda)) + t^2/2 + log(2 e^{c^2/2} Phi(c)) / (order -
        1), c = (order - 1) t, by Cauchy-Schwarz on the two |xi|.

        Parameters
        ----------
        order : float
            Order of the divergence, > 1.
        stddev : float
            Standard deviation of each coordinate of G, > 0.

        Returns
        -------
        float
            The bound, rounded up.

        Guarantee
        ---------
        The exact minimizer satisfies (order, bound)-Renyi differential privacy.

        Examples
        --------
        >>> objective = PerturbedObjective(
        ...     lipschitz=1.0, smoothness=0.0, num_records=1000, ridge=0.01
        ... )
        >>> print(f"{objective.rdp(8.0, stddev=10.0):.4f}")
        0.2470
        """
        check.open_interval(1.0, math.inf, order=order)
        t = self.distance(stddev)
        c = (order - 1.0) * t
        # 2 Phi(c) = 1 + erf(c/sqrt(2)), whose logarithm keeps its digits near 0.
        log_moment = 0.5 * c * c + math.log1p(math.erf(c / math.sqrt(2.0)))
        noise_part = log_moment / (order - 1.0)
        if c < 1e-290:  # c^2 underflows, and the first term of erf is exact
            noise_part = t * math.sqrt(2.0 / math.pi)
        bound = self.log_determinant + 0.5 * t * t + noise_part
        return bound * (1.0 + ROUNDING)

    def least_epsilon(self, t: float) -> float:
        """Return the smallest epsilon of the theorem, at which z has its minimum."""
        check.non_negative(t=t)
        return self.log_determinant + MIN_Z[self.relation] * t + 0.5 * t * t


# Relative error of sums and differences of special functions below.
CURVE_ROUNDING = 1e-9
# Smaller distances t are raised to this. That only adds to delta, and differences of
# values this far apart keep enough digits.
MIN_DISTANCE = 1e-4


def tilt_curve(
    epsilon: Array, *, log_determinant: float, distance: float, relation: str
) -> Array:
    """Return delta of an exact minimizer at losses of any sign, rounded up.

    It is `PerturbedObjective.delta` with ``distance`` = t. The continuation below
    epsilon_0 also holds below 0, because every privacy curve is convex in e^epsilon and
    equals 1 at e^epsilon = 0.
    """
    from scipy.special import erfcx

    t, root = max(distance, MIN_DISTANCE), math.sqrt(2.0)
    min_epsilon = log_determinant + MIN_Z[relation] * t + 0.5 * t * t
    z = (np.maximum(epsilon, min_epsilon) - log_determinant) / t - 0.5 * t
    # Next to a huge determinant the minimum of z is rounded away. It is put back.
    z = np.maximum(z, MIN_Z[relation])
    # 2 Phi(-z) = e^{-z^2/2} erfcx(z/sqrt(2)), and e^e Phi(-z - t) has the same factor.
    mills = erfcx(z / root) - erfcx((z + t) / root)
    bound = np.exp(-0.5 * np.square(np.minimum(z, 100.0))) * mills
    bound *= 1.0 + CURVE_ROUNDING
    weight = np.exp(np.minimum(epsilon - min_epsilon, 0.0))
    return np.asarray(np.minimum(1.0 - weight + weight * np.minimum(bound, 1.0), 1.0))


def tilt_and_gaussian_delta(
    epsilon: float,
    *,
    log_determinant: float,
    distance: float,
    gdp: float,
    relation: str,
) -> float:
    r"""Return delta of an exact minimizer and, in view of it, a Gaussian mechanism.

    :math:`\delta(\epsilon) = E\, \delta_0(\epsilon - g^2/2 - g s)`, where s is standard
    normal, g is the gdp and :math:`\delta_0` the minimizer's curve. Given the Gaussian
    part, whose loss is g^2/2 + g s, the rest of epsilon is left for the minimizer. (A
    Gaussian mechanism that sees the minimizer is dominated by one that does not: Zhu,
    Dong and Wang 2022, Theorem 10.)

    The mean over s is bounded cell by cell. The true curve is convex in e^loss. So
    between two nodes of s it is below the chord of its bounds there, and the mean of
    the chord has a closed form. Beyond the nodes it is at most its largest value.
    Nothing is rounded down.

    Examples
    --------
    >>> case = {"log_determinant": 0.1, "relation": "replace_one"}
    >>> both = tilt_and_gaussian_delta(1.0, distance=2 / 12.33, gdp=0.1296483, **case)
    >>> print(f"{both:.4e}")
    1.0005e-06
    """
    from scipy.special import ndtr

    # A larger gdp only adds to delta. Below s = -10 delta is at most its value there.
    # Above s = 36 it is at most 1, with a probability below 1e-280.
    gdp, s = max(gdp, 1e-7), np.linspace(-10.0, 36.0, 4097)
    loss = epsilon - 0.5 * gdp * gdp - gdp * s
    delta = tilt_curve(
        loss, log_determinant=log_determinant, distance=distance, relation=relation
    )
    # Probabilities of the cells of s under one data set, and under the other.
    first, second = _masses(s), _masses(s + gdp)
    # The weight of the left end in a cell is the mean of e^loss there, as a share of
    # the range of e^loss above its value at the right end.
    step = gdp * (s[1] - s[0])
    with np.errstate(over="ignore", invalid="ignore"):
        left = (second / first * np.exp(epsilon - loss[1:]) - 1.0) / np.expm1(step)
    # Weight 0 is the safe choice, because delta is larger at the right end.
    left = np.clip(np.nan_to_num(left, nan=0.0), 0.0, 1.0)
    total = float(first @ (left * delta[:-1] + (1.0 - left) * delta[1:]))
    total += float(ndtr(s[0]) * delta[0] + ndtr(-s[-1]))
    return min(total * (1.0 + CURVE_ROUNDING), 1.0)


def _masses(ends: Array) -> Array:
    """Return normal probabilities between neighboring ends, from the smaller tail."""
    from scipy.special import ndtr

    return np.asarray(
        np.where(ends[1:] > 0.0, -np.diff(ndtr(-ends)), np.diff(ndtr(ends)))
    )
