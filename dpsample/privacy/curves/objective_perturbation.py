r"""Perturbation of minimizers: of the objective by a random tilt, and of the output.

**Objective perturbation** of linear models:

theta = argmin over a convex W of F(theta) + <G, theta> / n + lambda |theta|^2 with
G ~ N(0, stddev^2 I) and losses phi(<a, theta>, y), phi convex and C^{1,1},
gradients of norm <= L and curvature phi'' |a|^2 <= beta for every possible record.

The map G -> theta inverts to G(theta) = -n F'(theta) - 2 n lambda theta. Replacing a
record changes the determinant of its Jacobian, which is at least 2 n lambda in every
direction, by a factor in [(1 + x)^-1, 1 + x], x = beta / (2 n lambda), and moves
G(theta) by s a - s' a', of length <= 2 L and with fixed directions a, a'. So, with
t = 2 L / stddev and standard normal xi_1, xi_2, however correlated,

    privacy loss <= log(1 + x) + t^2 / 2 + t (|xi_1| + |xi_2|) / 2.

(|xi_1| + |xi_2|) / 2 is the larger of |xi_1 + xi_2| / 2 and |xi_1 - xi_2| / 2: two
independent normals whose variances a, 1 - a add up to 1. With T(u) = Phi(-u), its tail
beyond u is at most 2 g(a), g(a) = T(u a^{-1/2}) + T(u (1-a)^{-1/2}). The sign of g' on
(0, 1/2] changes at most once, from - to +: the log ratio of its two terms has a
derivative of the sign of u^2/2 - a (1-a) (u^2 + 3/2). So g is largest at a = 0, where
it is T(u), or at a = 1/2, where it is 2 T(2^{1/2} u), which is smaller from u = 1 on.
Hence for u >= 1 the tail is at most that of one |xi|, and integrating e^{...} over it
gives `PerturbedObjective.delta`.
Setting a record's loss to zero moves G(theta) by s a, of length <= L, and there is only
one |xi|: then t = L / stddev and no u is too small. A constraint is the limit of smooth
convex penalties that all data sets share, with phi continued linearly beyond the
margins of W.

**Output perturbation**: how far one record moves the minimizer of a regularized
objective. J = F + m r, F the mean loss, r 1-strongly convex in the l_p norm, is
m-strongly convex. If J' = J + h belongs to a neighbor and h is H-Lipschitz, then strong
convexity at both minimizers gives m |w - w'|^2 <= h(w) - h(w') <= H |w - w'|: the
minimizer moves by at most H / m, H = G_Delta / n. A computed minimizer errs on both
data sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.domains import WholeSpace
from dpsample.privacy.budget import Relation
from dpsample.privacy.curves.gaussian import gaussian_delta, gaussian_epsilon
from dpsample.problem.facts import RELATIONS, PublicFacts, smoothness

# Relative rounding error of the few operations below, with room.
ROUND_UP = 1.0 + 1e-15
# z must be at least this for the tail comparison to hold.
MIN_Z = {"replace_one": 1.0, "zero_out": 0.0}
ROUNDING = 1e-14
LEAST_MOMENT = 1e-290  # below it moments are their first terms
LONGEST = 1e60  # shift in standard deviations: its square is far from overflow


@check.unwrap_numpy
def minimizer_error(
    *, strong_convexity: float, gap: float = 0.0, gradient_norm: float = 0.0
) -> float:
    r"""Distance of a computed point from the minimizer it stands for.

    :math:`\sqrt{2a/m} + \tau/m`: an m-strongly convex objective within ``gap`` a of its
    minimum, or with a gradient of dual norm at most ``gradient_norm`` tau.

    Parameters
    ----------
    strong_convexity : float
        m, > 0, of the objective in the norm of the result.
    gap : float
        Certified bound a of J(w) - min J, >= 0.
    gradient_norm : float
        Certified bound tau of the dual norm of the gradient, >= 0; only for problems
        without constraints.

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
    return (by_gap + gradient_norm / strong_convexity) * ROUND_UP


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
    r"""l_p sensitivity of the minimizer of F + m r, exact or certified.

    :math:`\frac{G_\Delta}{nm} + 2\sqrt{2a/m}`, or
    :math:`\frac{G_\Delta}{nm} + \frac{2\tau}{m}`; Chaudhuri, Monteleoni and Sarwate
    (2011), Theorem 6, in any norm, with the error of the solver on both data sets.

    Parameters
    ----------
    facts : PublicFacts
        Public facts of the problem.
    strong_convexity : float
        m, > 0, of the term m r that all data sets share; r is 1-strongly convex in l_p.
    p : float
        Norm of the sensitivity, >= 1.
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors.
    gap : float
        Public accuracy a of the solver, certified on every data set; 0 is exact.
    gradient_norm : float
        Public bound tau of the gradient's dual norm at the point returned, enforced on
        every data set; only without constraints.

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
    if gradient_norm and not isinstance(facts.domain, WholeSpace):
        check.fail(
            "gradient_norm",
            "0 on a constrained domain",
            gradient_norm,
            "Certify the gap: a projected minimizer has no small gradient.",
        )
    error = minimizer_error(
        strong_convexity=strong_convexity, gap=gap, gradient_norm=gradient_norm
    )
    moved = facts.diff_lipschitz(p, relation) / (facts.num_records * strong_convexity)
    return (moved + 2.0 * error) * ROUND_UP


@dataclass(frozen=True, kw_only=True)
class PerturbedObjective:
    """Public constants of a tilted objective, and its privacy for any noise.

    Kifer, Smith and Thakurta (2012) as corrected for linear models (erratum BFTT-7,
    gradient-E5): Bassily et al. (2019), Algorithm 2, and Su, Zhao and Wang (2023),
    Algorithm 1. It is not Gaussian differential privacy: the determinant adds a
    constant to the privacy loss.

    Parameters
    ----------
    lipschitz : float
        L, l_2 bound of a record's gradient, > 0.
    smoothness : float
        beta, bound of phi'' |a|^2, >= 0.
    num_records : int
        n, public.
    ridge : float
        lambda of the term lambda |theta|^2, > 0: the objective is 2 lambda-strongly
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
    def of(
        cls, facts: PublicFacts, *, ridge: float, relation: Relation = "replace_one"
    ) -> PerturbedObjective:
        """Constants that the public facts of a problem imply.

        Parameters
        ----------
        facts : PublicFacts
            Of a problem whose loss is smooth: logistic (capped or not), smoothed hinge,
            Huber, linear, squared and power four (on a bounded domain), or a custom one
            with a declared curvature.
        ridge : float
            lambda, > 0.
        relation : {"replace_one", "zero_out"}
            Which data sets are neighbors.

        Returns
        -------
        PerturbedObjective

        Raises
        ------
        ValueError
            If the loss has a kink or an unbounded slope or curvature on the domain.
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
        """log(1 + beta / (2 n lambda)), what the Jacobian adds to the privacy loss."""
        ratio = self.smoothness / (2.0 * self.num_records * self.ridge)
        return math.log1p(ratio) * (1.0 + ROUNDING)

    @property
    def shift(self) -> float:
        """Length by which the tilt must move to undo a record: 2 L, or L."""
        return self.lipschitz * (2.0 if self.relation == "replace_one" else 1.0)

    def distance(self, stddev: float) -> float:
        """t, the shift in standard deviations, rounded up."""
        check.positive(stddev=stddev)
        least = self.shift / LONGEST
        if stddev < least:
            remedy = "The noise is too small for its losses to be numbers."
            check.fail("stddev", f">= shift / 1e60 = {least:.3g}", stddev, remedy)
        t = self.shift / float(stddev) * (1.0 + ROUNDING)
        return max(t, check.MIN_NORMAL) if self.shift > 0.0 else 0.0

    def delta(self, epsilon: float, *, stddev: float) -> float:
        """Delta that is proved at ``epsilon``.

        2 (Phi(-z) - e^e Phi(-z - t)), twice the Gaussian curve at e = epsilon - log(1 +
        beta / (2 n lambda)), where z = e/t - t/2 >= 1 (>= 0 under zero_out). Below the
        smallest such epsilon_0: 1 - e^{epsilon - epsilon_0} (1 - delta(epsilon_0)),
        which holds for every privacy curve.

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
        least = self.least_epsilon(self.distance(stddev))
        at = max(float(epsilon), least)
        bound = 2.0 * gaussian_delta(
            max(at - self.log_determinant, 0.0), self.distance(stddev)
        )
        below = min(epsilon - least, 0.0)
        part = math.exp(below) * min(bound, 1.0) - math.expm1(below)
        return min(1.0, part * (1.0 + ROUNDING))

    def epsilon(self, delta: float, *, stddev: float) -> float:
        """Epsilon that is proved at ``delta``: the inverse of `delta` where z >= 1.

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
        """Renyi divergence of ``order`` between the outputs on neighbors, at most.

        log(1 + beta / (2 n lambda)) + t^2/2 + log(2 e^{c^2/2} Phi(c)) / (order - 1),
        c = (order - 1) t, by Cauchy-Schwarz on the two |xi|.

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
        moment = 0.5 * c * c + math.log1p(math.erf(c / math.sqrt(2.0)))
        share = moment / (order - 1.0)
        if c < LEAST_MOMENT:  # where doubles end
            share = t * math.sqrt(2.0 / math.pi)
        bound = self.log_determinant + 0.5 * t * t + share
        return bound * (1.0 + ROUNDING)

    def least_epsilon(self, t: float) -> float:
        """Smallest epsilon of the theorem: there z has its least value."""
        check.non_negative(t=t)
        return self.log_determinant + MIN_Z[self.relation] * t + 0.5 * t * t


# Of sums and differences of special functions below; a distance makes up for the
# digits that differences lose where it is small.
CURVE_ROUNDING, MIN_DISTANCE = 1e-9, 1e-4
LEAST_GDP = 1e-7  # a larger one only adds to delta
# Standard normal nodes, from where nothing matters to where no probability is left.
NODES = (-10.0, 36.0, 4097)


def tilt_curve(
    epsilon: Array, *, log_determinant: float, distance: float, relation: str
) -> Array:
    """Delta of an exact minimizer at losses of any sign, rounded up.

    `PerturbedObjective.delta`, whose continuation holds below 0, too: a curve is convex
    in e^epsilon and 1 where that is 0.
    """
    from scipy.special import erfcx

    t, root = max(distance, MIN_DISTANCE), math.sqrt(2.0)
    least = log_determinant + MIN_Z[relation] * t + 0.5 * t * t
    z = (np.maximum(epsilon, least) - log_determinant) / t - 0.5 * t
    z = np.maximum(z, MIN_Z[relation])  # which a huge determinant rounds away
    mills = erfcx(z / root) - erfcx((z + t) / root)
    bound = np.exp(-0.5 * np.square(np.minimum(z, 100.0))) * mills
    bound *= 1.0 + CURVE_ROUNDING
    kept = np.exp(np.minimum(epsilon - least, 0.0))
    return np.asarray(np.minimum(1.0 - kept + kept * np.minimum(bound, 1.0), 1.0))


def tilt_and_gaussian_delta(
    epsilon: float,
    *,
    log_determinant: float,
    distance: float,
    gdp: float,
    relation: str,
) -> float:
    r"""Delta of an exact minimizer and, in view of it, a Gaussian mechanism.

    :math:`\delta(\epsilon) = E\, \delta_0(\epsilon - g^2/2 - g s)`, s standard normal,
    g the gdp, :math:`\delta_0` the minimizer's curve: given the Gaussian part, whose
    loss is g^2/2 + g s, what is left is the minimizer's curve at the rest (and a
    Gaussian mechanism that sees the minimizer is dominated by one that does not: Zhu,
    Dong and Wang 2022, Theorem 10). The true curve is convex in e^loss, so between
    nodes it is below the chord of its bounds, whose mean is exact; beyond the nodes it
    is at most its largest value. Nothing is rounded down.

    Examples
    --------
    >>> case = {"log_determinant": 0.1, "relation": "replace_one"}
    >>> both = tilt_and_gaussian_delta(1.0, distance=2 / 12.33, gdp=0.1296483, **case)
    >>> print(f"{both:.4e}")
    1.0005e-06
    """
    from scipy.special import ndtr

    gdp, s = max(gdp, LEAST_GDP), np.linspace(*NODES)
    loss = epsilon - 0.5 * gdp * gdp - gdp * s
    delta = tilt_curve(
        loss, log_determinant=log_determinant, distance=distance, relation=relation
    )
    first, second = _masses(s), _masses(s + gdp)  # under either data set
    # Mean of e^(loss - loss at the right end) in a cell, as a share of its range.
    step = gdp * (s[1] - s[0])
    with np.errstate(over="ignore", invalid="ignore"):
        left = (second / first * np.exp(epsilon - loss[1:]) - 1.0) / np.expm1(step)
    left = np.clip(np.nan_to_num(left, nan=0.0), 0.0, 1.0)  # 0 is the larger delta
    total = float(first @ (left * delta[:-1] + (1.0 - left) * delta[1:]))
    total += float(ndtr(s[0]) * delta[0] + ndtr(-s[-1]))
    return min(total * (1.0 + CURVE_ROUNDING), 1.0)


def _masses(ends: Array) -> Array:
    """Return normal probabilities between neighbors cancellation."""
    from scipy.special import ndtr

    return np.asarray(
        np.where(ends[1:] > 0.0, -np.diff(ndtr(-ends)), np.diff(ndtr(ends)))
    )
