r"""Constant-time draw: a public number of passes over the records, theta or nothing.

The proximal sampler in the metric P = k mu I, started at the center c. Write a = k mu
(1 + h) / h, v = (h c + y) / (1 + h), g = k grad F, K for the domain: a ball about c, or
everything. A step draws y = x + sqrt(h / (k mu)) z, then x from the density exp(-k F(x)
- a/2 |x - v|^2) on K:

* **Tangent.** w from J passes of projected gradient steps, then m = v - g(w) / a.
* **Tries.** x from N(m, I/a) on K, accepted with probability exp(-G), G = k F(x) - k
  F(w) - <g(w), x - w> >= 0: exact for every w, however the tries before have ended.

A *pass* evaluates k F and g at one point. It is a step of w or a try; there are 1 + T J
+ M of them, and all are made whatever comes of them: after T accepted tries x is kept,
with fewer nothing is released ("bottom"). Words and branches of a pass are the same on
all records: what is next is picked by masks. See `fixed_passes`.

**Proof**, with lengths in units of 1/sqrt(a), in which K has the radius R. k Hess F <=
Q = (k L / n) sum a_i a_i^T, so S = k L b^2 / a bounds the trace of Q, and a difference
of g is a symmetric matrix between 0 and Q times that of the points.

1. *w.* Steps of length 2 / (2 a + a S) bring w nearer to the fixed point w* by q = S /
   (S + 2). The first one starts at c, where g is known, which leaves q R; or it goes to
   v - g(c) / a, which leaves 2 k G / sqrt(a). The map from w to m has slope S. So w0 =
   proj_K(m) is within e = (1 + S) q^(J-1) min(q R, 2 k G / sqrt(a)) of w.
2. *Whole space.* G <= |x - w|_Q^2 / 2, x - w ~ N(f, I), |f| <= e: p >= E exp(-|x -
   w|_Q^2 / 2) = det(I + Q)^(-1/2) exp(-f' Q (I + Q)^-1 f / 2), which is at least
   (1 + S/d)^(-d/2) exp(-e^2 S / (2 + 2 S)).
3. *Ball, |m - c| <= R - t, t = 0.4.* Tries outside of K are refused. By Jensen's
   inequality on K, p >= P(K) exp(-S (s + e)^2 / 2), s^2 a bound of E <x - m, i>^2 on K
   for unit vectors i. P(K) is least for |m - c| = R - t. With u ~ N(0, 1) outwards and
   r^2 ~ chi^2(d - 1) across, x is in K if t - R <= u <= t - r^2/(2R) - r^4/(2R^3), for
   sqrt(1 - x) >= 1 - x/2 - x^2/2. Across, K favors small r. Outwards it cuts at B(r):
   E u^2 1{u <= B} = Phi(B) - B phi(B), and -B <= (r^2/R - t)_+ <= r^4 / (4 t R^2).
4. *Ball, |m - c| = R + D, D > -t.* Let r be the distance from the axis through m. On K
   the depth below the tangent plane at the axis' end is r^2/(2R) + u with u >= 0, and
       (depth + D)^2 + r^2 = (u + D)^2 + r^2 (1 + D/R) + 2 X,
       X = r^2/(2R) (u + r^2/(4R)).
   So u and the place across are drawn independently, X >= 0 is paid. u is N(-D, 1) on u
   >= 0: exponential of rate l, l^2 - D l = 1, accepted with exp(-(u - 1/l)^2 / 2), in
   all with probability l exp(-l^2/2 + D l) sqrt(2 pi) Phi(-D), least at D = -t: its
   logarithm has slope l - H, H = E u + D, and the variance of u is 1 - H (H - D) > 0.
   Given u, p >= exp(-E X - S (s + e)^2 / 2) - P(outside), by Jensen's inequality again.
   E u <= t + phi(t)/Phi(t), E r^2 <= (d-1) / (1 - t/R), E r^4 <= (d^2-1) / (1 - t/R)^2.
   x - w0 is r across and u + min(D, 0) + r^2/(2R) along, where u + min(D, 0) has mean
   at most 0.8 and second moment at most 1. Outside is r^2 > R^2/2, u > R/2 or u < r^4 /
   (4 R^3); u has a density of at most 1 + max(D, 0), and D / (1 + D/R)^2 <= R/4.
5. *Bottom.* Given the past a try is accepted with probability >= p, and at most T J
   passes are steps of w: P(bottom) <= P(Bin(M, p) < T) <= exp(-M KL((T-1)/M || p)).
6. *Error.* T steps are within `alternation.tv_bound` of the target, W0 being at most
   sqrt(k mu) times the radius, and at most k G / sqrt(k mu) + sqrt(d).

So output and passes are within TV(T) + P(bottom) of the target and a constant, on all
data sets. In real arithmetic: rounding is not counted. A pass may take any time.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dpsample.core import check
from dpsample.domains import Ball, WholeSpace
from dpsample.losses import Huber, Logistic, Loss, SmoothedHinge, Squared
from dpsample.privacy.certificates.terms import MechanismTerms
from dpsample.regularizers import SquaredNorm
from dpsample.samplers.errors import NoCertificate
from dpsample.samplers.proximal import alternation

SHARE = 0.1  # of gamma, for bottom
EDGE = 0.4  # t: how far inside the sphere the tilted tries begin
LEAST_RADIUS = 3.0  # P: smaller ones make longer chains, not better ones
SLACK = 1.0 - 1e-9  # of inequalities that a checker proves with other roundings
# p, lowered by more than it errs by, and kept off 1, where 1 - p has no digits.
LOWERED, MOST_ACCEPTED = 1.0 - 1e-11, 1.0 - 1e-6
# Rounding errors of energies, as multiples of u k times the largest loss, at most.
ROUNDINGS, MOST_ROUNDING = 64.0, 1e-3
STEPS = np.geomspace(1e-9, 1e6, 420).tolist()  # sizes h that a plan may have
MOST_GRADIENTS, MOST_WORK = 80, 2**31 - 1
LOSSES = (Logistic, SmoothedHinge, Huber, Squared)


@dataclass(frozen=True, kw_only=True)
class PublicSizes:
    """Public numbers that a plan follows from: k mu, k L b^2, k G, R and d."""

    dim: int
    ridge: float
    trace: float
    slope: float
    radius: float

    @classmethod
    def of(cls, terms: MechanismTerms) -> "PublicSizes":
        """Sizes of a mechanism; `NoCertificate` where there is no plan."""
        facts = terms.facts
        reason = refusal(terms)
        if reason:
            raise NoCertificate(f"constant_time=True is not possible: {reason}")
        domain = facts.domain
        row = facts.full_row_bound * facts.dual_ratio(2.0)
        return cls(
            dim=facts.dim,
            ridge=terms.k * terms.mu,
            trace=terms.k * curvature(facts.loss) * row**2,
            slope=terms.k * facts.lipschitz(2.0),
            radius=domain.radius if isinstance(domain, Ball) else math.inf,
        )

    @property
    def start_bound(self) -> float:
        """W0."""
        root = math.sqrt(self.ridge)
        return min(root * self.radius, self.slope / root + math.sqrt(self.dim))


def curvature(loss: Loss) -> float:
    """Largest second derivative in the margin."""
    if isinstance(loss, Logistic):
        return 0.25
    return 1.0 / loss.width if isinstance(loss, SmoothedHinge) else 1.0


def refusal(terms: MechanismTerms) -> str:
    """Why there is no plan, by public facts; or empty."""
    facts, domain = terms.facts, terms.facts.domain
    if type(facts.loss) not in LOSSES:
        names = ", ".join(each.name for each in LOSSES)
        return f"the {facts.loss.name} loss has no formula without branches: {names}"
    is_ball = isinstance(domain, Ball) and domain.p == 2.0
    if not (is_ball or isinstance(domain, WholeSpace)):
        return f"no fixed number of random words draws on the {domain.name}: l2 balls"
    if not (isinstance(terms.regularizer, SquaredNorm) and terms.p == 2.0):
        return "the metric is that of a squared l2 norm: p = 2"
    if not rounding(terms) <= MOST_ROUNDING:
        return (
            "rounding errors of energies that the bounds allow would decide tries: "
            "declare a smaller response_bound or offset_bound"
        )
    if not terms.gamma > 0.0:
        return "no part of delta pays for a failure: gamma = 0"
    return ""


def rounding(terms: MechanismTerms) -> float:
    """About the rounding error of an energy, by public facts, where the mass is."""
    facts, ridge = terms.facts, terms.k * terms.mu
    margin = facts.margin_bound
    if math.isinf(margin):
        reach = terms.k * facts.lipschitz(2.0) / ridge + 10.0 * math.sqrt(
            facts.dim / ridge
        )
        row = facts.full_row_bound * facts.dual_ratio(2.0)
        margin = row * reach + facts.offset_bound
    response = 1.0 if facts.loss.is_classification else facts.response_bound
    if response is None:
        return math.inf
    largest = 1.0 + facts.slope_bound * (margin + response)
    return ROUNDINGS * 2.0**-53 * terms.k * largest


@dataclass(frozen=True, kw_only=True)
class ConstantTime:
    """Plan of a constant-time draw, all public: what certificates name.

    Parameters
    ----------
    step_size : float
        h.
    num_steps : int
        T, accepted tries.
    num_gradients : int
        J, passes that move w, in each step.
    work : int
        B = 1 + T J + M, all passes over the records.

    Examples
    --------
    >>> ConstantTime(step_size=0.1, num_steps=3, num_gradients=2, work=20).num_tries
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
        check.integer(1, maximum=MOST_WORK, work=self.work)

    @property
    def num_tries(self) -> int:
        """M."""
        return self.work - 1 - self.num_steps * self.num_gradients

    def check(self, terms: MechanismTerms) -> list[tuple[str, float, float]]:
        """Inequalities of the proof: name, left side and right side."""
        sizes = PublicSizes.of(terms)
        error = alternation.tv_bound(
            self.num_steps, step=self.step_size, start_bound=sizes.start_bound
        )
        p = acceptance(sizes, self.step_size, self.num_gradients)
        bottom = math.exp(log_bottom(p, self.num_steps, self.num_tries))
        return [
            ("TV(num_steps)<=0.9*gamma", error, (1.0 - SHARE) * terms.gamma),
            ("P(nothing released)<=0.1*gamma", bottom, SHARE * terms.gamma),
        ]


def acceptance(sizes: PublicSizes, step: float, num_gradients: int) -> float:
    """Lower bound p of every try's acceptance, on every data set."""
    return min(MOST_ACCEPTED, LOWERED * _acceptance(sizes, step, num_gradients))


def _acceptance(sizes: PublicSizes, step: float, num_gradients: int) -> float:
    a = sizes.ridge * (1.0 + step) / step
    s, reach = sizes.trace / a, math.sqrt(a) * sizes.radius
    q = s / (s + 2.0)
    error = (1.0 + s) * min(q * reach, 2.0 * sizes.slope / math.sqrt(a))
    error *= q ** (num_gradients - 1)
    if math.isinf(reach):
        spread = 0.5 * sizes.dim * math.log1p(s / sizes.dim)
        return math.exp(-spread - 0.5 * error**2 * s / (1.0 + s))
    if reach < LEAST_RADIUS:
        return 0.0
    return min(_inner(s, reach, error, sizes.dim), _edge(s, reach, error, sizes.dim))


def log_bottom(p: float, num_steps: int, num_tries: int) -> float:
    """Upper bound of log P(fewer than T of M tries are accepted)."""
    if num_tries < num_steps:
        return 0.0
    share = (num_steps - 1) / num_tries
    if not share < p:
        return 0.0
    rest = (1.0 - share) * math.log((1.0 - share) / (1.0 - p))
    return -num_tries * (rest + (share * math.log(share / p) if share > 0.0 else 0.0))


PHI = 0.5 * math.erfc(-EDGE / math.sqrt(2.0))
DENSITY = math.exp(-0.5 * EDGE**2) / math.sqrt(2.0 * math.pi)
RATE = 0.5 * (math.sqrt(EDGE**2 + 4.0) - EDGE)
EXPONENTIAL = RATE * math.exp(-0.5 * RATE**2 - EDGE * RATE) * math.sqrt(2.0 * math.pi)


def _inner(s: float, reach: float, error: float, dim: int) -> float:
    """Part 3 of the proof."""
    lost = (dim - 1) / (2.0 * reach) + (dim**2 - 1) / (2.0 * reach**3)
    inside = PHI - 0.4 * lost - 0.5 * math.exp(-0.5 * (reach - EDGE) ** 2)
    if not inside > 0.0:
        return 0.0
    spread = 1.0 + 0.4 * (dim**2 - 1) / (4.0 * EDGE * reach**2) / inside
    return inside * math.exp(-0.5 * s * (math.sqrt(spread) + error) ** 2)


def _edge(s: float, reach: float, error: float, dim: int) -> float:
    """Part 4 of the proof."""
    first = (dim - 1) / (2.0 * (reach - EDGE))  # E r^2 / (2 P)
    second = (dim**2 - 1) / (4.0 * (reach - EDGE) ** 2)  # E r^4 / (4 P^2)
    paid = (EDGE + DENSITY / PHI) * first + 0.5 * second
    spread = max(1.0 + 1.6 * first + second, reach / (reach - EDGE))
    kept = math.exp(-paid - 0.5 * s * (math.sqrt(spread) + error) ** 2)
    far = 0.5 * reach * (reach - EDGE) / max(dim - 1, 1)  # chi^2 over its mean
    out = math.exp(-0.5 * (dim - 1) * max(0.0, far - 1.0 - math.log(far)))
    out = (out if far > 1.0 else 1.0) if dim > 1 else 0.0
    out += math.exp(-0.5 * (0.5 * reach - EDGE) ** 2)
    shallow = 0.25 * reach + (reach / (reach - EDGE)) ** 2
    out += (dim**2 - 1) / (4.0 * reach**3) * shallow
    return EXPONENTIAL * PHI * max(0.0, kept - out)


def plan(terms: MechanismTerms, work: int | None = None) -> ConstantTime:
    """Plan of fewest passes, or of ``work`` of them.

    ValueError names the passes that suffice if these do not, `NoCertificate` says why
    there is no plan: both by public facts alone.
    """
    best = _fewest(PublicSizes.of(terms), terms.gamma)
    if best is None:
        raise NoCertificate(
            "constant_time=True is not possible: no number of passes below 2**31 is "
            "proved to suffice. Use fewer records, or a stronger ridge."
        )
    if work is None:
        return best
    if work < best.work:
        remedy = "It follows from public facts alone; work=None takes it."
        check.fail("work", f">= {best.work} passes over the records", work, remedy)
    return replace(best, work=work)


@lru_cache(maxsize=64)
def _fewest(sizes: PublicSizes, gamma: float) -> ConstantTime | None:
    """Plan of fewest passes; None if there is none."""
    best, most, log_gamma = None, MOST_WORK, math.log(SHARE * SLACK * gamma)
    for step in STEPS:
        num_steps = alternation.num_steps(
            (1.0 - SHARE) * SLACK * gamma, step=step, start_bound=sizes.start_bound
        )
        for num_gradients in range(1, MOST_GRADIENTS):
            fixed = 1 + num_steps * num_gradients
            if fixed + num_steps >= most:
                break
            p = acceptance(sizes, step, num_gradients)
            num_tries = _enough(p, num_steps, most - fixed, log_gamma)
            if num_tries is not None:
                most = fixed + num_tries
                best = ConstantTime(
                    step_size=step,
                    num_steps=num_steps,
                    num_gradients=num_gradients,
                    work=most,
                )
    return best


def _enough(p: float, num_steps: int, most: int, log_gamma: float) -> int | None:
    """Fewest tries, of fewer than ``most``; None if they do not suffice."""
    low, high = num_steps - 1, most - 1
    if log_bottom(p, num_steps, high) > log_gamma:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = log_bottom(p, num_steps, middle) <= log_gamma
        low, high = (low, middle) if is_enough else (middle, high)
    return high
