r"""Constant-time draw: a public number of passes over the records, theta or nothing.

The sampler is the proximal sampler in the metric P = k mu I, started at the center c.
The target is e^{-k (F + mu r)} with the mean loss F, r = |x - c|^2 / 2 of weight mu and
an inverse temperature k. z is standard normal, h the step size.
Let a = k mu (1 + h) / h, v = (h c + y) / (1 + h) and g = k grad F. The domain K is a
ball about c, or the whole space. A step draws y = x + sqrt(h / (k mu)) z, and then x
from the density exp(-k F(x) - a/2 |x - v|^2) on K:

* **Tangent.** w from J passes of projected gradient steps, then m = v - g(w) / a.
* **Proposals.** x from N(m, I/a) on K, accepted with probability exp(-G), where G =
  k F(x) - k F(w) - <g(w), x - w> >= 0. This is exact for every w, whatever the results
  of earlier proposals.

A *pass* evaluates k F and g at one point. It is a step of w or a proposal. There are
1 + T J + M passes in every run. After T accepted proposals x stays the same. If fewer
are accepted, nothing is released ("bottom"). Random words and branches of a pass are
the same on all records, because masks select the next point. See `fixed_passes`.

**Proof**, with lengths in units of 1/sqrt(a), in which K has the radius R. With the
smoothness L and the bound b of rows, k Hess F <= Q = (k L / n) sum a_i a_i^T, so
S = k L b^2 / a bounds the trace of Q. A difference of g is the difference of the points
times a symmetric matrix between 0 and Q. G also denotes the Lipschitz constant of F.

1. *w.* Steps of length 2 / (2 a + a S) multiply the distance of w from the fixed point
   w* by at most q = S / (S + 2). The first one starts at c, where g is known, so that
   the distance is at most q R. Or it goes to v - g(c) / a, and the distance is at most
   2 k G / sqrt(a). The map from w to m has slope S. So w0 = proj_K(m) is within e =
   (1 + S) q^(J-1) min(q R, 2 k G / sqrt(a)) of w.
2. *Whole space.* G <= |x - w|_Q^2 / 2, x - w ~ N(f, I), |f| <= e: p >= E exp(-|x -
   w|_Q^2 / 2) = det(I + Q)^(-1/2) exp(-f' Q (I + Q)^-1 f / 2), which is at least
   (1 + S/d)^(-d/2) exp(-e^2 S / (2 + 2 S)).
3. *Ball, |m - c| <= R - t, t = 0.4.* Proposals outside of K are rejected. By Jensen's
   inequality on K, p >= P(K) exp(-S (s + e)^2 / 2), s^2 a bound of E <x - m, i>^2 on K
   for unit vectors i. P(K) is least for |m - c| = R - t. With u ~ N(0, 1) outwards and
   r^2 ~ chi^2(d - 1) across, x is in K if t - R <= u <= t - r^2/(2R) - r^4/(2R^3), by
   sqrt(1 - x) >= 1 - x/2 - x^2/2. Across, K favors small r. Outwards it cuts at B(r):
   E u^2 1{u <= B} = Phi(B) - B phi(B), and -B <= (r^2/R - t)_+ <= r^4 / (4 t R^2).
4. *Ball, |m - c| = R + D, D > -t.* Let r be the distance from the axis through m. On K
   the depth below the tangent plane at the axis' end is r^2/(2R) + u with u >= 0, and
       (depth + D)^2 + r^2 = (u + D)^2 + r^2 (1 + D/R) + 2 X,
       X = r^2/(2R) (u + r^2/(4R)).
   So u and the position across are drawn independently, and the log acceptance
   includes X >= 0. u is N(-D, 1) on u >= 0. Its proposals are exponential of rate l,
   l^2 - D l = 1, and accepted with exp(-(u - 1/l)^2 / 2). This has probability
   l exp(-l^2/2 + D l) sqrt(2 pi) Phi(-D), the least at D = -t, as its logarithm has
   slope l - H, H = E u + D, and the variance of u is 1 - H (H - D) > 0.
   Given u, p >= exp(-E X - S (s + e)^2 / 2) - P(outside), by Jensen's inequality again.
   E u <= t + phi(t)/Phi(t), E r^2 <= (d-1) / (1 - t/R), E r^4 <= (d^2-1) / (1 - t/R)^2.
   x - w0 is r across and u + min(D, 0) + r^2/(2R) along, where u + min(D, 0) has mean
   at most 0.8 and second moment at most 1. Outside is r^2 > R^2/2, u > R/2 or u < r^4 /
   (4 R^3). The density of u is at most 1 + max(D, 0), and D / (1 + D/R)^2 <= R/4.
5. *Bottom.* Given the past, a proposal is accepted with probability >= p. At most T J
   passes are steps of w: P(bottom) <= P(Bin(M, p) < T) <= exp(-M KL((T-1)/M || p)).
6. *Error.* T steps are within `alternation.tv_bound` of the target. W0 is at most
   sqrt(k mu) times the radius, and at most k G / sqrt(k mu) + sqrt(d).

So output and number of passes are within TV(T) + P(bottom) of the target and of a
constant, on all data sets. This holds in real arithmetic. Rounding errors are not
included, and a pass may take any time.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dpsample.core import check
from dpsample.losses import Huber, Logistic, Loss, SmoothedHinge, Squared
from dpsample.privacy.certificates.terms import MechanismTerms
from dpsample.samplers.errors import NoCertificate
from dpsample.samplers.proximal import alternation

# Share of gamma that is spent on bottom.
BOTTOM_SHARE = 0.1
# t, in units of 1/sqrt(a): if the mean is farther inside, proposals are as in part 3.
EDGE = 0.4
# Inequalities hold with this factor, so that checkers with other rounding errors find
# them true.
SLACK = 1.0 - 1e-9
# Steps h that a plan may have.
STEPS = np.geomspace(1e-9, 1e6, 420).tolist()
MAX_WORK = 2**31 - 1
# Losses with a formula without branches.
LOSSES = (Logistic, SmoothedHinge, Huber, Squared)


@dataclass(frozen=True, kw_only=True)
class PublicSizes:
    """Public numbers that determine a plan."""

    dim: int  # d
    ridge: float  # k mu
    trace: float  # k L b^2
    slope: float  # k G
    radius: float  # radius of the domain

    @classmethod
    def from_terms(cls, terms: MechanismTerms) -> "PublicSizes":
        """Return the sizes of a mechanism, or raise `NoCertificate` without a plan."""
        facts = terms.facts
        reason = explain_unsupported(terms)
        if reason:
            raise NoCertificate(f"constant_time=True is not possible: {reason}")
        domain = facts.domain
        row = facts.full_row_bound * facts.dual_ratio(2.0)
        return cls(
            dim=facts.dim,
            ridge=terms.k * terms.mu,
            trace=terms.k * curvature(facts.loss) * row**2,
            slope=terms.k * facts.lipschitz(2.0),
            radius=domain.ball_radius,
        )

    @property
    def start_bound(self) -> float:
        """W0."""
        root = math.sqrt(self.ridge)
        return min(root * self.radius, self.slope / root + math.sqrt(self.dim))


def curvature(loss: Loss) -> float:
    """Return the largest second derivative in the margin."""
    if isinstance(loss, Logistic):
        return 0.25
    return 1.0 / loss.width if isinstance(loss, SmoothedHinge) else 1.0


def explain_unsupported(terms: MechanismTerms) -> str:
    """Return why public facts allow no plan, or "" if they do."""
    facts, domain = terms.facts, terms.facts.domain
    if type(facts.loss) not in LOSSES:
        names = ", ".join(loss.name for loss in LOSSES)
        return f"the {facts.loss.name} loss has no formula without branches: {names}"
    is_ball = domain.lp_exponent == 2.0
    if not (is_ball or domain.is_whole_space):
        return f"no fixed number of random words draws on the {domain.name}: l2 balls"
    if not (terms.regularizer.is_plain_norm and terms.p == 2.0):
        return "the metric is that of a squared l2 norm: p = 2"
    # Largest rounding error of an energy, and so of a log acceptance probability.
    if not energy_error(terms) <= 1e-3:
        return (
            "rounding errors of energies that the bounds allow would decide tries: "
            "declare a smaller response_bound or offset_bound"
        )
    if not terms.gamma > 0.0:
        return "no part of delta pays for a failure: gamma = 0"
    return ""


def energy_error(terms: MechanismTerms) -> float:
    """Return the approximate rounding error of an energy, by public facts.

    On an unbounded domain it is for the points that have nearly all of the mass.
    """
    facts, ridge = terms.facts, terms.k * terms.mu
    margin = facts.margin_bound
    if math.isinf(margin):
        # The minimizer is within k G / (k mu), and draws within ten deviations of it.
        reach = terms.k * facts.lipschitz(2.0) / ridge + 10.0 * math.sqrt(
            facts.dim / ridge
        )
        row = facts.full_row_bound * facts.dual_ratio(2.0)
        margin = row * reach + facts.offset_bound
    response = 1.0 if facts.loss.is_classification else facts.response_bound
    if response is None:
        return math.inf
    max_loss = 1.0 + facts.slope_bound * (margin + response)
    # The sum over blocks of records has about this many roundings.
    return 64.0 * 2.0**-53 * terms.k * max_loss


@dataclass(frozen=True, kw_only=True)
class ConstantTime:
    """Plan of a constant-time draw. All of it is public, and certificates contain it.

    Parameters
    ----------
    step_size : float
        Step h of the chain.
    num_steps : int
        Number T of steps, which is the number of accepted proposals.
    num_gradients : int
        Number J of passes per step that move w.
    work : int
        Number 1 + T J + M of passes over the records.

    Examples
    --------
    >>> ConstantTime(step_size=0.1, num_steps=3, num_gradients=2, work=20).num_proposals
    13
    """

    step_size: float
    num_steps: int
    num_gradients: int
    work: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.scale(step_size=self.step_size)
        check.integer(1, num_steps=self.num_steps, num_gradients=self.num_gradients)
        check.integer(1, maximum=MAX_WORK, work=self.work)

    @property
    def num_proposals(self) -> int:
        """Number M of proposals, if T steps are completed."""
        return self.work - 1 - self.num_steps * self.num_gradients

    def check(self, terms: MechanismTerms) -> list[tuple[str, float, float]]:
        """Return the inequalities of the proof: name, left side and right side."""
        sizes = PublicSizes.from_terms(terms)
        error = alternation.tv_bound(
            self.num_steps, step=self.step_size, start_bound=sizes.start_bound
        )
        p = acceptance(sizes, self.step_size, self.num_gradients)
        bottom = math.exp(log_bottom(p, self.num_steps, self.num_proposals))
        return [
            ("TV(num_steps)<=0.9*gamma", error, (1.0 - BOTTOM_SHARE) * terms.gamma),
            ("P(nothing released)<=0.1*gamma", bottom, BOTTOM_SHARE * terms.gamma),
        ]


def acceptance(sizes: PublicSizes, step: float, num_gradients: int) -> float:
    """Return a lower bound p of every proposal's acceptance, on every data set."""
    # The bound is reduced by more than its rounding errors. It stays below 1, because
    # near 1 the difference 1 - p would have few digits.
    p = (1.0 - 1e-11) * _acceptance(sizes, step, num_gradients)
    return min(1.0 - 1e-6, p)


def _acceptance(sizes: PublicSizes, step: float, num_gradients: int) -> float:
    """Return the bound of parts 2 to 4 of the proof, in rounded arithmetic."""
    a = sizes.ridge * (1.0 + step) / step
    s, reach = sizes.trace / a, math.sqrt(a) * sizes.radius
    q = s / (s + 2.0)
    error = (1.0 + s) * min(q * reach, 2.0 * sizes.slope / math.sqrt(a))
    error *= q ** (num_gradients - 1)
    if math.isinf(reach):
        spread = 0.5 * sizes.dim * math.log1p(s / sizes.dim)
        return math.exp(-spread - 0.5 * error**2 * s / (1.0 + s))
    # Smallest R. A smaller one would make chains longer.
    if reach < 3.0:
        return 0.0
    inner = _inner_acceptance(s, reach, error, sizes.dim)
    return min(inner, _edge_acceptance(s, reach, error, sizes.dim))


def log_bottom(p: float, num_steps: int, num_proposals: int) -> float:
    """Return an upper bound of log P(fewer than T of M proposals are accepted)."""
    if num_proposals < num_steps:
        return 0.0
    share = (num_steps - 1) / num_proposals
    if not share < p:
        return 0.0
    # KL(share || p), without its second term for share = 0.
    divergence = (1.0 - share) * math.log((1.0 - share) / (1.0 - p))
    if share > 0.0:
        divergence += share * math.log(share / p)
    return -num_proposals * divergence


# Phi(t), phi(t), the rate l at D = -t, and the acceptance of u there divided by Phi(t).
PHI = 0.5 * math.erfc(-EDGE / math.sqrt(2.0))
DENSITY = math.exp(-0.5 * EDGE**2) / math.sqrt(2.0 * math.pi)
RATE = 0.5 * (math.sqrt(EDGE**2 + 4.0) - EDGE)


def _inner_acceptance(s: float, reach: float, error: float, dim: int) -> float:
    """Return the bound of part 3 of the proof, for the radius ``reach``."""
    # E of the bound t - B(r), times the largest density 0.4 of u.
    cut = (dim - 1) / (2.0 * reach) + (dim**2 - 1) / (2.0 * reach**3)
    inside = PHI - 0.4 * cut - 0.5 * math.exp(-0.5 * (reach - EDGE) ** 2)
    if not inside > 0.0:
        return 0.0
    spread = 1.0 + 0.4 * (dim**2 - 1) / (4.0 * EDGE * reach**2) / inside
    return inside * math.exp(-0.5 * s * (math.sqrt(spread) + error) ** 2)


def _edge_acceptance(s: float, reach: float, error: float, dim: int) -> float:
    """Return the bound of part 4 of the proof, for the radius ``reach``."""
    first = (dim - 1) / (2.0 * (reach - EDGE))  # E r^2 / (2 R)
    second = (dim**2 - 1) / (4.0 * (reach - EDGE) ** 2)  # E r^4 / (4 R^2)
    mean_x = (EDGE + DENSITY / PHI) * first + 0.5 * second
    spread = max(1.0 + 1.6 * first + second, reach / (reach - EDGE))
    accepted = math.exp(-mean_x - 0.5 * s * (math.sqrt(spread) + error) ** 2)
    # P(r^2 > R^2 / 2) by Chernoff's bound for chi^2, at this multiple of its mean.
    outside = 0.0
    if dim > 1:
        multiple = 0.5 * reach * (reach - EDGE) / (dim - 1)
        exponent = max(0.0, multiple - 1.0 - math.log(multiple))
        outside = math.exp(-0.5 * (dim - 1) * exponent) if multiple > 1.0 else 1.0
    # P(u > R / 2), and P(u < r^4 / (4 R^3)).
    outside += math.exp(-0.5 * (0.5 * reach - EDGE) ** 2)
    shallow = 0.25 * reach + (reach / (reach - EDGE)) ** 2
    outside += (dim**2 - 1) / (4.0 * reach**3) * shallow
    exponential = RATE * math.exp(-0.5 * RATE**2 - EDGE * RATE)
    exponential *= math.sqrt(2.0 * math.pi)
    return exponential * PHI * max(0.0, accepted - outside)


def new_plan(terms: MechanismTerms, num_passes: int | None = None) -> ConstantTime:
    """Return the plan of fewest passes, or of ``num_passes`` passes.

    If these do not suffice, a ValueError names the number that does. `NoCertificate`
    explains why there is no plan. Both depend on public facts alone.
    """
    best = _plan_with_fewest_passes(PublicSizes.from_terms(terms), terms.gamma)
    if best is None:
        raise NoCertificate(
            "constant_time=True is not possible: no number of passes below 2**31 is "
            "proved to suffice. Use fewer records, or a stronger ridge."
        )
    if num_passes is None:
        return best
    if num_passes < best.work:
        remedy = "It follows from public facts alone; num_passes=None takes it."
        condition = f">= {best.work} passes over the records"
        check.fail("num_passes", condition, num_passes, remedy)
    return replace(best, work=num_passes)


@lru_cache(maxsize=64)
def _plan_with_fewest_passes(sizes: PublicSizes, gamma: float) -> ConstantTime | None:
    """Return the plan of fewest passes, or None if there is none."""
    best, least_work = None, MAX_WORK
    log_gamma = math.log(BOTTOM_SHARE * SLACK * gamma)
    chain_gamma = (1.0 - BOTTOM_SHARE) * SLACK * gamma
    for step in STEPS:
        num_steps = alternation.num_steps(
            chain_gamma, step=step, start_bound=sizes.start_bound
        )
        for num_gradients in range(1, 80):
            fixed = 1 + num_steps * num_gradients
            if fixed + num_steps >= least_work:
                break
            p = acceptance(sizes, step, num_gradients)
            max_proposals = least_work - fixed - 1
            num_proposals = _min_proposals(p, num_steps, max_proposals, log_gamma)
            if num_proposals is not None:
                least_work = fixed + num_proposals
                best = ConstantTime(
                    step_size=step,
                    num_steps=num_steps,
                    num_gradients=num_gradients,
                    work=least_work,
                )
    return best


def _min_proposals(
    p: float, num_steps: int, max_proposals: int, log_gamma: float
) -> int | None:
    """Return the least number of proposals with a small probability of bottom.

    Return None if ``max_proposals`` do not suffice.
    """
    low, high = num_steps - 1, max_proposals
    if log_bottom(p, num_steps, high) > log_gamma:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = log_bottom(p, num_steps, middle) <= log_gamma
        low, high = (low, middle) if is_enough else (middle, high)
    return high
