"""Exponential mechanism, calibrated: (k, mu) of exp(-k (F + mu r)) for a budget.

F is the mean loss of n records, r a regularizer that is 1-strongly convex, Theta its
range on the domain. Each loss is G-Lipschitz, and G_Delta is the Lipschitz constant of
the change of n F between neighbors.

**Privacy.** V = k (F + mu r) is k mu-strongly convex. Between neighboring data sets it
changes by a k G_Delta/n-Lipschitz function. Theorem 2 of arXiv:2207.08347 compares the
two draws with two unit Gaussians at distance

    gdp = (k G_Delta/n) / sqrt(k mu) = (G_Delta/n) sqrt(k/mu),

so the budget fixes a = mu/k = (G_Delta/(n gdp))^2. Replacing one record changes n F by
f(.; s) - f(.; s'), whose Lipschitz constant is at most 2G, not G (erratum GLLST-E1).
Setting one record's loss to zero changes it by f(.; s), so G_Delta = G.

**Privacy by range** (calibration "range"). Let K be compact, E_D proportional to
e^{-k (F_D + mu r)} on K, F_D = (1/n) sum f(.; s_i) with a public n, r public and
mu >= 0. Omega is the largest oscillation (supremum less infimum on K) of the change
f(.; s) - f(.; s') of n F between neighbors (`PublicFacts.loss_range`).

*Theorem.* log dE_D/dE_D' stays in an interval of length eta = k Omega/n that contains
0. *Proof.* The log ratio is -(k/n) (f(.; s) - f(.; s')) plus a constant, as mu r is
common. So its oscillation is at most eta. Both distributions have mass 1, so that it is
<= 0 somewhere and >= 0 somewhere. QED

Hence the draw is eta-DP, and has the smaller delta of `curves.bounded_range` at each
epsilon. Rounding to a public grid keeps the range, because a cell's ratio of masses is
a mean of ratios. The largest k whose curve is delta at epsilon is n eta/Omega with
`range_from_budget`, whatever mu is. The log ratio of draws from neighbors does not
depend on mu, so k mu = `FLATNESS` dim/Theta only makes the density strongly convex,
and the excess risk is at most (1 + `FLATNESS`) dim/k.

At delta = 0 the range is the only calibration with a proof: k Omega/n <= epsilon, and
the draw is exact.

**Which one** (calibration "auto"). Public facts decide: range if its k is at least
`RANGE_SHARE` of the Gaussian one. It is so in few dimensions, because the Gaussian k
grows like the root of the dimension, and the other one does not depend on it.

**Utility.** The excess risk is at most mu Theta + C/k, with C as in `terms`. Theorems 3
and 4 minimize it along mu = a k. This gives k = sqrt(C/(a Theta)), so k mu = C/Theta.
Theorems 5 and 6 have mu = lambda fixed and no Theta. The largest private k = lambda/a
is best there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

from dpsample.core import check
from dpsample.core.markup import describe
from dpsample.privacy.budget import Budget
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.terms import (
    BEYOND_FLOATS,
    SPEND_MORE,
    Calibration,
    CalibrationInputs,
    MechanismTerms,
    Risk,
    RiskModel,
)
from dpsample.privacy.curves.bounded_range import range_from_budget
from dpsample.privacy.curves.gaussian import (
    closed_form_gdp,
    gaussian_epsilon,
    gdp_from_budget,
    paper_gdp,
)
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.regularizers import Entropy, Regularizer, SchattenSquared, SquaredNorm
from dpsample.targets.gibbs import Gibbs

INVERSIONS = {
    "exact": gdp_from_budget,
    "closed_form": closed_form_gdp,
    "paper": paper_gdp,
}
# Sensitivities are raised by this relative amount. It exceeds the rounding errors of
# the powers, sums and special functions in them, so that no stated number is too small.
MARGIN = 1e-12
# k mu Theta / dim of range calibration. The risk bound is larger by this share, and a
# smaller value makes the density flatter, whose draws take longer.
FLATNESS = 0.25
# "auto" takes the range if its k is at least this share of the Gaussian calibration's,
# because its mu is smaller.
RANGE_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(MechanismTerms):
    """A calibrated mechanism: one draw from exp(-k (F + mu r)) on the domain.

    `calibrate` makes it. The fields most used are ``k``, ``mu``, ``gdp``,
    ``regularizer``, ``risk_bound``, ``delta_exact`` and ``gamma``.

    Attributes
    ----------
    facts, budget, p, risk, calibration, sampler_share, strong_convexity, confidence
        Public inputs, as `calibrate` has got them.
    regularizer : Regularizer
        r, 1-strongly convex in the l_p (Schatten-p) norm.
    lipschitz : float
        G, the Lipschitz constant of one record's loss.
    diff_lipschitz : float
        G_Delta, the Lipschitz constant of n times the change of F between neighbors. It
        is at most 2 G if a record is replaced, and G if it is set to zero.
    range_bound : float
        Theta >= max r - min r on the domain, infinite on an unbounded one.
    k, mu : float
        The density is proportional to exp(-k (F + mu r)).
    gdp : float
        The exact draw is gdp-Gaussian differentially private. With calibration "range"
        this is true as well, but much less than what `range` says.
    delta_exact : float
        delta_0, the part of delta that the exact draw spends.
    gamma : float
        Total-variation error that the sampler may have. 0 means none.
    epsilon_proved : float
        Epsilon that is proved at the budget's delta: the budget's own, or the true
        epsilon of the published constants.
    risk_bound : float
        Bound of the excess risk of the exact draw. `risk_statement` says what it
        covers.
    theorems : tuple of str
        Identifiers of the theorems behind the numbers. The registry has the sentences.

    Guarantee
    ---------
    If the declared bounds hold for every possible record, an exact draw is gdp-GDP and
    (epsilon_proved, delta_exact)-DP under the budget's relation. A draw within total
    variation gamma of it on every data set is (epsilon_proved, delta)-DP.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[0.6, 0.8], [1.0, 0.0]], [1.0, -1.0], row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> mech = dps.calibrate(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> mech.target(problem).k == mech.k
    True
    """

    @cached_property
    def certificate(self) -> Certificate:
        """Certificate of an exact draw. A release adds its sampler to a copy."""
        return Certificate.of(self)

    def target(self, problem: Problem) -> Gibbs:
        """Return the density to draw from.

        Parameters
        ----------
        problem : Problem
            Records with the public facts for which the mechanism was calibrated.

        Returns
        -------
        Gibbs
            exp(-k (F + mu r)) on the domain.

        Raises
        ------
        ValueError
            If the problem's public facts differ from the calibrated ones.
        """
        check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
        if problem.facts != self.facts:
            check.fail(
                "problem",
                "the one that was calibrated, with the same public facts",
                problem,
                "Call dps.calibrate(problem, budget) again.",
            )
        return Gibbs(problem, k=self.k, mu=self.mu, regularizer=self.regularizer)

    def _repr_html_(self) -> str:
        """Return the most important numbers as a table, for notebooks."""
        described = self.regularizer.describe(self.facts.domain, self.facts.dim)
        rows = [
            ("density", f"exp(-k (F + mu r)), k = {self.k:.6g}, mu = {self.mu:.6g}"),
            ("budget", self.budget),
            ("privacy", f"gdp = {self.gdp:.6g}, delta_0 = {self.delta_exact:.6g}"),
            ("sampler", f"may have a total-variation error of {self.gamma:.6g}"),
            ("risk bound", self.risk_statement),
            ("regularizer", described),
            *self.facts.rows(),
        ]
        return describe("ExponentialMechanism", rows)

    def __repr__(self) -> str:
        """Return the most important numbers."""
        domain, dim = self.facts.domain, self.facts.dim
        return (
            f"ExponentialMechanism(k={self.k:.6g}, mu={self.mu:.6g}, "
            f"gdp={self.gdp:.6g}, delta_exact={self.delta_exact:.6g}, "
            f"gamma={self.gamma:.6g}, risk_bound={self.risk_bound:.6g}, "
            f"regularizer={self.regularizer.describe(domain, dim)})"
        )


@check.unwrap_numpy
def calibrate(
    problem: Problem | PublicFacts,
    budget: Budget,
    *,
    p: float = 2.0,
    risk: Risk = "population",
    calibration: Calibration | Literal["auto"] = "exact",
    sampler_share: float = 0.0,
    strong_convexity: float = 0.0,
    confidence: float | None = None,
) -> ExponentialMechanism:
    r"""Choose the mechanism with the smallest risk bound that the budget allows.

    :math:`k/\mu = (n\,t/G_\Delta)^2` where t is the gdp of the budget; k minimizes
    the bound :math:`\mu\Theta + C/k` of the excess risk (arXiv:2207.08347, Theorems 3
    and 4; 5 and 6 with ``strong_convexity``).

    Parameters
    ----------
    problem : Problem or PublicFacts
        Only its public facts are read, never its records.
    budget : Budget
        Epsilon, delta and the neighboring relation.
    p : float
        Norm in [1, inf] in which sensitivity is measured and the regularizer is
        strongly convex. It is l_p, or Schatten-p on a `SchattenBall`. Any p is valid.
        The one with the smallest ``risk_bound`` is best.
    risk : {"population", "empirical"}
        Excess risk that the bound is for.
    calibration : {"exact", "closed_form", "paper", "range", "auto"}
        How k and mu follow from the budget. "exact" inverts the Gaussian curve,
        "closed_form" is a smaller gdp in closed form, and "paper" reproduces the
        published k and mu. Its certificate states the epsilon that holds for them, and
        is never releasable. "range" takes the largest k for which the range of one
        record's loss (`PublicFacts.loss_range`) proves the budget. It needs a bounded
        domain, no ``strong_convexity`` and no ``confidence``. "auto" is "range" or
        "exact" by a rule that reads public facts only, and the mechanism names which.
        At delta = 0 "exact" and "auto" are "range", the only one with a proof.
    sampler_share : float
        Part of delta, in [0, 1), for an approximate sampler. delta_exact = (1 - share)
        delta and gamma = share delta/(1 + e^epsilon).
    strong_convexity : float
        Strength lambda of a public ridge lambda r in the objective. Then mu = lambda,
        and the risk is the risk of F + lambda r. It allows an unbounded domain. Under
        "zero_out" the record's loss without the ridge is set to zero. Privacy is
        computed for a curvature of k lambda (1 - 1/n), as if the record's share of the
        ridge were removed, too.
    confidence : float, optional
        Minimize a bound that holds with this probability over the draw, instead of one
        in expectation. With population risk it bounds that quantile of the excess risk,
        averaged over the records. It does not hold for each data set.

    Returns
    -------
    ExponentialMechanism
        The mechanism and its public numbers.

    Raises
    ------
    ValueError
        If an argument is out of range, or the domain is unbounded and there is no
        ``strong_convexity``.

    Guarantee
    ---------
    If the declared bounds hold for every possible record, an exact draw is
    (epsilon, delta_exact)-DP under the budget's relation. A draw within total
    variation gamma on every data set is (epsilon, delta)-DP. (With "paper", epsilon is
    ``epsilon_proved``.) The bound of the risk is for an exact draw. Total variation
    gamma adds at most gamma times the range of the risk.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6),
    ...                      risk="empirical")
    >>> print(f"{mech.k:.1f} {mech.mu:.5f} {mech.risk_bound:.4f}")
    1497.0 0.02672 0.0267
    """
    check.instance(str, calibration=calibration)
    is_pure = isinstance(budget, Budget) and budget.is_pure
    if is_pure and calibration in ("exact", "auto"):
        calibration = "range"
    if calibration == "auto":
        make = partial(
            calibrate,
            problem,
            budget,
            p=p,
            risk=risk,
            sampler_share=sampler_share,
            strong_convexity=strong_convexity,
            confidence=confidence,
        )
        return _better(make(calibration="exact"), partial(make, calibration="range"))
    inputs = CalibrationInputs(
        facts=problem.facts if isinstance(problem, Problem) else problem,
        budget=budget,
        p=p,
        risk=risk,
        calibration=calibration,
        sampler_share=sampler_share,
        strong_convexity=strong_convexity,
        confidence=confidence,
    )
    regularizer = _regularizer(inputs)
    range_bound = _range(inputs, regularizer)
    derive = _numbers_by_range if calibration == "range" else _numbers
    numbers = derive(inputs, range_bound)
    return ExponentialMechanism(
        **vars(inputs), **numbers, regularizer=regularizer, range_bound=range_bound
    )


def _better(
    exact: ExponentialMechanism, by_range: Callable[[], ExponentialMechanism]
) -> ExponentialMechanism:
    """Return the mechanism that "auto" stands for, which public facts decide."""
    is_possible = exact.confidence is None and not exact.has_ridge
    if not is_possible or math.isinf(exact.facts.loss_range_or_inf()):
        return exact
    ranged = by_range()
    return ranged if ranged.k >= RANGE_SHARE * exact.k else exact


def _numbers_by_range(inputs: CalibrationInputs, range_bound: float) -> dict[str, Any]:
    """Derive every number of the mechanism from the range of one record's loss."""
    facts, budget = inputs.facts, inputs.budget
    num_records, dim = facts.num_records, facts.domain.affine_dim(facts.dim)
    diff = facts.diff_lipschitz(inputs.p, budget.relation)
    omega = facts.loss_range(budget.relation)
    delta_exact = _delta_exact(inputs)
    check.normal(loss_range=omega, remedy=BEYOND_FLOATS)
    # k = n eta/Omega, rounded down, as privacy falls with k.
    k = num_records * range_from_budget(budget.epsilon, delta_exact) / omega
    k *= 1.0 - MARGIN
    mu = FLATNESS * dim / (k * range_bound)
    check.normal(k=k, mu=mu, remedy=BEYOND_FLOATS)
    gdp = diff / num_records * math.sqrt(k / mu) * (1.0 + MARGIN)
    risk_bound = dim / k + mu * range_bound
    proofs: tuple[str, ...] = ("RISK.MEAN",)
    if inputs.risk == "population":
        # A replaced record changes log densities by an interval of this length. So the
        # mean of its loss moves by at most tanh(length/4) times the range of the loss.
        single = facts.loss_range("zero_out")
        swap = 2.0 * k * single / num_records
        risk_bound += math.tanh(0.25 * swap) * single
        proofs += ("RISK.RANGE",)
    return {
        "lipschitz": facts.lipschitz(inputs.p),
        "diff_lipschitz": diff,
        "k": k,
        "mu": mu,
        "gdp": gdp,
        "delta_exact": delta_exact,
        "gamma": _gamma(budget.delta - delta_exact, budget.epsilon),
        "epsilon_proved": budget.epsilon,
        "risk_bound": risk_bound,
        "theorems": ("RANGE", "RANGE.CURVE", "CHOICE.RANGE", *proofs)
        + (("NEAR",) if inputs.sampler_share else ()),
    }


def _delta_exact(inputs: CalibrationInputs) -> float:
    """Return the part of delta that an exact draw spends."""
    if inputs.budget.is_pure:
        return 0.0
    delta = inputs.budget.delta
    delta_exact = delta - inputs.sampler_share * delta
    remedy = "Spend a larger delta or a smaller sampler_share."
    check.normal(delta_exact=delta_exact, remedy=remedy)
    return delta_exact


def _regularizer(inputs: CalibrationInputs) -> Regularizer:
    """Return r for the norm of the problem (Corollaries 2 to 5), or the entropy."""
    domain, is_published = inputs.facts.domain, inputs.calibration == "paper"
    variant = "printed" if is_published and inputs.p == 1.0 else "optimized"
    if domain.matrix_shape is not None:
        return SchattenSquared(inputs.p, shape=domain.matrix_shape, variant=variant)
    if domain.is_simplex and inputs.p == 1.0 and not is_published:
        return Entropy()
    return SquaredNorm(inputs.p, variant=variant)


def _range(inputs: CalibrationInputs, regularizer: Regularizer) -> float:
    """Return Theta, which must be finite unless the objective has a ridge."""
    try:
        value = float(regularizer.range_on(inputs.facts.domain, inputs.facts.dim))
    except OverflowError:  # Python's powers raise where NumPy's are infinite
        value = math.inf
    if not inputs.has_ridge and not 0.0 < value < math.inf:
        check.fail(
            "domain",
            "such that the regularizer has a finite range > 0",
            f"a range of {value:g} on {inputs.facts.domain!r}",
            "Use a bounded domain with more than one point.",
        )
    return value


def _numbers(inputs: CalibrationInputs, range_bound: float) -> dict[str, Any]:
    """Derive every number of the mechanism by the module's formulas."""
    facts, budget = inputs.facts, inputs.budget
    # Lipschitz constants of one loss, of the change between neighbors, and of the
    # change by a replacement, on which risk bounds rest under either relation.
    lipschitz = facts.lipschitz(inputs.p)
    diff = facts.diff_lipschitz(inputs.p, budget.relation)
    swap = facts.diff_lipschitz(inputs.p, "replace_one")
    curvature_share = inputs.curvature_kept
    delta_exact = _delta_exact(inputs)
    check.normal(lipschitz=lipschitz, remedy=BEYOND_FLOATS)
    target_gdp = INVERSIONS[inputs.calibration](budget.epsilon, delta_exact)
    is_published = inputs.calibration == "paper"
    # GLLST-E1 and -E4: the paper has G in place of every sensitivity.
    root = (lipschitz if is_published else diff) / (facts.num_records * target_gdp)
    check.open_interval(1e-150, 1e150, **{"sqrt(mu/k)": root}, remedy=BEYOND_FLOATS)
    if not is_published:
        root *= 1.0 + MARGIN
    ratio = root**2 / (1.0 if is_published else curvature_share)  # a = mu/k
    valid_model = RiskModel(
        risk=inputs.risk,
        confidence=inputs.confidence,
        dim=facts.domain.affine_dim(facts.dim),
        num_records=facts.num_records,
        lipschitz=lipschitz,
        swap_lipschitz=swap,
        ratio=ratio,
        has_ridge=inputs.has_ridge,
    )
    # The model that is minimized. With "paper" the stated risk bound is another one,
    # which is valid.
    model = valid_model
    if is_published:
        model = replace(valid_model, swap_lipschitz=lipschitz)
    k, mu = _temperature(inputs, model.constant()[0], ratio, range_bound)
    check.normal(k=k, mu=mu, remedy=BEYOND_FLOATS)
    gdp, epsilon = target_gdp, budget.epsilon
    if is_published:  # the privacy that the published numbers have
        root_k_over_mu = math.sqrt(k / (mu * curvature_share))
        gdp = diff / facts.num_records * root_k_over_mu * (1.0 + MARGIN)
        epsilon = gaussian_epsilon(delta_exact, gdp)
    constant, proofs = valid_model.constant()
    risk_bound = constant / k + (0.0 if inputs.has_ridge else mu * range_bound)
    inversion = f"CURVE.{inputs.calibration.upper()}"
    theorems = ("COMPARISON", inversion, _choice_theorem(inputs), *proofs)
    return {
        "lipschitz": lipschitz,
        "diff_lipschitz": diff,
        "k": k,
        "mu": mu,
        "gdp": gdp,
        "delta_exact": delta_exact,
        "gamma": _gamma(budget.delta - delta_exact, epsilon),
        "epsilon_proved": epsilon,
        "risk_bound": risk_bound,
        "theorems": theorems + (("NEAR",) if inputs.sampler_share else ()),
    }


def _choice_theorem(inputs: CalibrationInputs) -> str:
    """Name the theorem whose k and mu are used."""
    # Theorems 3 and 4 are for empirical and population risk, 5 and 6 with a ridge.
    number = 3 + (inputs.risk == "population") + 2 * inputs.has_ridge
    return f"CHOICE.{number}" + ".PAPER" * (inputs.calibration == "paper")


def _temperature(
    inputs: CalibrationInputs, constant: float, ratio: float, range_bound: float
) -> tuple[float, float]:
    """Return (k, mu) with mu/k = ratio that minimize mu Theta + constant/k."""
    if inputs.has_ridge:
        return inputs.strong_convexity / ratio, inputs.strong_convexity
    check.normal(**{"range_bound*mu/k": ratio * range_bound}, remedy=BEYOND_FLOATS)
    # mu Theta + C/k = a Theta k + C/k is smallest here.
    k = math.sqrt(constant / (ratio * range_bound))
    return k, ratio * k


def _gamma(delta_share: float, epsilon: float) -> float:
    """Return the largest gamma with (1 + e^epsilon) gamma <= ``delta_share``."""
    # The factor keeps the computed sum below delta in spite of rounding errors.
    share = max(delta_share, 0.0) * (1.0 - 1e-12)
    gamma = share * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    if gamma < check.MIN_NORMAL and share > 4.0 * check.MIN_NORMAL:
        limit = math.floor(math.log(share / check.MIN_NORMAL - 1.0))
        condition = f"below {limit}, where the sampler's part of delta is {share:.4g}"
        check.fail("epsilon", condition, epsilon, SPEND_MORE)
    return gamma
