"""Terms of a calibrated exponential mechanism: public numbers and their risk bound.

The density is proportional to e^{-V}, V = k (F + mu r), in ``dim`` dimensions. F is the
mean of n convex losses, each G-Lipschitz in the norm in which r is 1-strongly convex
with range Theta on the domain. Put a = mu/k, which privacy fixes.

The excess risk of F is at most mu Theta + C/k, with a constant C of the theorems below.
If mu r is a ridge, a part of the objective, the risk is that of F + mu r. Then the
bound is C/k, and Theta may be infinite.

* **Mean** (arXiv:2207.08347, Proposition 4): E V <= min V + dim, so the empirical
  excess risk is at most mu Theta + dim/k in expectation: C = dim.
* **Generalization** (Corollary 1 and Proposition 6 of that paper): two data sets that
  differ in one replaced record have potentials that are k mu-strongly convex and differ
  by a k S/n-Lipschitz function, S <= 2G the constant of f(.; s) - f(.; s'). The
  expected population risk exceeds the empirical one by at most G S/(n mu): add G S/(n
  a) to C. S belongs to *replacing* a record under every privacy relation.
* **One draw** of the empirical risk: with min V = 0, s^dim times the integral of
  e^{-sV} does not decrease in s (substitute x -> y/s about the minimizer), so
  E e^{uV} <= (1 - u)^{-dim}: V has the Chernoff bound of a Gamma(dim) variable. With
  probability 1 - beta, V <= min V + q, where q > dim solves
  q - dim - dim log(q/dim) = log(1/beta): C = q.
* **Generalization by range** (`dpsample.privacy.calibration.exponential_mechanism`):
  draws that differ by a replaced record have a total variation of at most tanh(eta/4),
  eta = 2 k Omega_1/n, because their log ratio has the range eta. Omega_1 is the range
  of one record's loss. So the expected population risk exceeds the empirical one by at
  most tanh(eta/4) Omega_1.
* **One draw, Lipschitz** (Lemma 5 of that paper): a G-Lipschitz function of the draw
  exceeds its mean by G sqrt(2 log(1/beta)/(k mu)) with probability at most beta: add
  B(G) = G sqrt(2 log(1/beta)/a) to C.
"""

import math
from dataclasses import dataclass
from typing import Literal

from dpsample.core import check
from dpsample.privacy.budget import Budget, check_not_pure
from dpsample.problem.facts import PublicFacts
from dpsample.regularizers import Regularizer

Risk = Literal["population", "empirical"]
Calibration = Literal["exact", "closed_form", "paper", "range"]
BEYOND_FLOATS = "The budget or a declared bound is beyond floating point."
SPEND_MORE = "Spend a larger delta, a larger sampler_share or a smaller epsilon."


@dataclass(frozen=True, kw_only=True)
class RiskModel:
    """Quantities on which the constant C depends. The module has the formulas."""

    risk: Risk
    confidence: float | None  # 1 - beta for one draw, None for the expectation
    dim: int
    num_records: int  # n
    lipschitz: float  # G
    swap_lipschitz: float  # S
    ratio: float  # a = mu/k
    has_ridge: bool  # whether mu r belongs to the objective: the risk is F + mu r

    def constant(self) -> tuple[float, tuple[str, ...]]:
        """Return C and the identifiers of the theorems that prove the bound."""
        population = self.risk == "population"
        gap = self.lipschitz * self.swap_lipschitz / (self.num_records * self.ratio)
        if self.confidence is None:
            if population:
                return self.dim + gap, ("RISK.MEAN", "RISK.STABILITY")
            return float(self.dim), ("RISK.MEAN",)
        # log(1/beta) with beta = 1 - confidence. That difference is not computed, as it
        # would be rounded to 1 for a small confidence.
        log_inverse = -math.log1p(-self.confidence)
        if not population:
            energy = _energy_bound(self.dim, log_inverse)
            lipschitz = self.dim + self._spread(self.lipschitz, log_inverse)
            if self.has_ridge or energy <= lipschitz:
                return energy, ("RISK.ENERGY",)
            return lipschitz, ("RISK.MEAN", "RISK.LIPSCHITZ")
        if not self.has_ridge:
            # Lemma 5 for the population risk itself, which is G-Lipschitz.
            spread = self._spread(self.lipschitz, log_inverse)
            return self.dim + gap + spread, (
                "RISK.MEAN",
                "RISK.STABILITY",
                "RISK.LIPSCHITZ",
            )
        # F_pop + mu r is not Lipschitz: bound the energy, then F_pop - F by Lemma 5.
        # Each of the two bounds may fail with probability beta / 2.
        log_inverse += math.log(2.0)
        energy = _energy_bound(self.dim, log_inverse)
        spread = self._spread(self.swap_lipschitz, log_inverse)
        return energy + gap + spread, (
            "RISK.ENERGY",
            "RISK.STABILITY",
            "RISK.LIPSCHITZ",
        )

    def _spread(self, lipschitz: float, log_inverse: float) -> float:
        """Return B(G) of the module for a Lipschitz constant G."""
        return lipschitz * math.sqrt(2.0 * log_inverse / self.ratio)


def energy_quantile(dim: int, beta: float) -> float:
    """Return a bound of V - min V that a draw exceeds with probability at most beta.

    The root q >= dim of q - dim - dim log(q/dim) = log(1/beta), rounded up.
    """
    return _energy_bound(dim, -math.log(beta))


def _energy_bound(dim: int, log_inverse: float) -> float:
    """Return the quantile at a given log(1/beta) >= 0."""
    needed = max(log_inverse / dim, check.MIN_NORMAL)
    excess = math.sqrt(2.0 * needed) + needed

    # Newton's method for x - log(1 + x) = needed, x = q/dim - 1. The root is at most
    # sqrt(2 needed) + needed, because -log(1 - u) - u <= u^2/(2 (1 - u)). The left side
    # is convex, so the iterates decrease from there until rounding stops them.
    while True:
        value = excess - math.log1p(excess)
        smaller = excess - (value - needed) * (1.0 + excess) / excess
        if not smaller < excess * (1.0 - 1e-15):
            return dim * (1.0 + excess) * (1.0 + 1e-14)
        excess = smaller


def describe(
    risk: Risk, confidence: float | None, *, has_ridge: bool, bound: float
) -> str:
    """Return a sentence on the meaning of the risk bound."""
    name = "F_pop" if risk == "population" else "F"
    excess = f"{name}(theta) - min {name}"
    if has_ridge:
        excess = f"({name} + mu r)(theta) - min ({name} + mu r)"
    if confidence is None:
        over = "the draw and the records" if risk == "population" else "the draw"
        return f"{excess} <= {bound:.4g} in expectation over {over}"
    if risk == "empirical":
        return f"{excess} <= {bound:.4g} with probability {confidence:g} over the draw"
    return (
        f"the {confidence:g}-quantile over the draw of {excess}, averaged over the "
        f"records, is <= {bound:.4g}"
    )


@dataclass(frozen=True, kw_only=True)
class CalibrationInputs:
    """Public inputs of `calibrate`, after their checks. Its docstring explains them."""

    facts: PublicFacts
    budget: Budget
    p: float
    risk: Risk
    calibration: Calibration
    sampler_share: float
    strong_convexity: float
    confidence: float | None

    def __post_init__(self) -> None:
        """Check each input, then what they must satisfy together."""
        remedy = "Pass a dps.Problem or its facts."
        check.instance(PublicFacts, problem=self.facts, remedy=remedy)
        remedy = "Use dps.Budget(epsilon=..., delta=...)."
        check.instance(Budget, budget=self.budget, remedy=remedy)
        if self.calibration != "range":
            check_not_pure(self.budget, "Gaussian privacy of the exponential mechanism")
        check.at_least(1.0, p=self.p)
        check.one_of(("population", "empirical"), risk=self.risk)
        calibrations = ("exact", "closed_form", "paper", "range")
        check.one_of(calibrations, calibration=self.calibration)
        check.non_negative(sampler_share=self.sampler_share)
        if self.sampler_share >= 1.0:
            remedy = "It is the part of delta for the error of the sampler."
            check.fail("sampler_share", "< 1", self.sampler_share, remedy)
        if self.budget.is_pure and self.sampler_share > 0.0:
            remedy = "At delta = 0 the draw is exact, so that nothing is left for it."
            check.fail("sampler_share", "0 at delta = 0", self.sampler_share, remedy)
        check.non_negative(strong_convexity=self.strong_convexity)
        if self.strong_convexity > 0.0:
            check.scale(strong_convexity=self.strong_convexity)
        if self.confidence is not None:
            check.open_interval(0.0, 1.0, confidence=self.confidence)
        for name in ("p", "sampler_share", "strong_convexity", "confidence"):
            # Integers become floats, so that equal inputs have equal certificates.
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))
        self._check_together()

    def _check_together(self) -> None:
        """Check that the inputs fit together."""
        if not (self.has_ridge or self.facts.domain.is_bounded):
            check.fail(
                "domain",
                "bounded unless the objective carries a ridge",
                self.facts.domain,
                "Use a Ball or a Box, or pass strong_convexity > 0.",
            )
        if self.facts.domain.affine_dim(self.facts.dim) < 1:
            remedy = "There is nothing to choose in a single point."
            check.fail("domain", "of dimension >= 1", self.facts.domain, remedy)
        if self.calibration == "paper" and self.confidence is not None:
            remedy = "The published constants have no such variant. Use 'exact'."
            condition = "None with calibration='paper'"
            check.fail("confidence", condition, self.confidence, remedy)
        if self.calibration == "range":
            remedy = "Use calibration='exact'."
            if self.confidence is not None:
                condition = "None with calibration='range'"
                check.fail("confidence", condition, self.confidence, remedy)
            if self.has_ridge:
                condition = "0 with calibration='range'"
                check.fail("strong_convexity", condition, self.strong_convexity, remedy)
            self.facts.loss_range(self.budget.relation)  # must be finite
        if self.loses_curvature and self.facts.num_records < 2:
            remedy = "Zeroing the only record leaves no curvature."
            condition = ">= 2 with strong_convexity under zero_out"
            check.fail("num_records", condition, self.facts.num_records, remedy)

    @property
    def has_ridge(self) -> bool:
        """Whether mu r belongs to the objective (Theorems 5 and 6)."""
        return self.strong_convexity > 0.0

    @property
    def loses_curvature(self) -> bool:
        """Whether a neighbor has less curvature, by the share of one record."""
        return self.has_ridge and self.budget.relation == "zero_out"

    @property
    def curvature_kept(self) -> float:
        """Part of the strong convexity k mu that both neighbors have."""
        return 1.0 - 1.0 / self.facts.num_records if self.loses_curvature else 1.0


@dataclass(frozen=True, kw_only=True)
class MechanismTerms(CalibrationInputs):
    """Public inputs of `calibrate` and what it derives from them alone.

    Attributes
    ----------
    facts, budget, p, risk, calibration, sampler_share, strong_convexity, confidence
        Inputs of `calibrate`.
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
    """

    regularizer: Regularizer
    lipschitz: float
    diff_lipschitz: float
    range_bound: float
    k: float
    mu: float
    gdp: float
    delta_exact: float
    gamma: float
    epsilon_proved: float
    risk_bound: float
    theorems: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the inputs, then that no number of the proof lost its digits."""
        super().__post_init__()
        check.normal(
            lipschitz=self.lipschitz,
            diff_lipschitz=self.diff_lipschitz,
            gdp=self.gdp,
            k=self.k,
            mu=self.mu,
            risk_bound=self.risk_bound,
            remedy=BEYOND_FLOATS,
        )
        if self.budget.is_pure:
            check.one_of((0.0,), delta_exact=self.delta_exact)
        else:
            check.normal(delta_exact=self.delta_exact, remedy=BEYOND_FLOATS)
        if not (self.has_ridge and self.range_bound == math.inf):
            check.normal(range_bound=self.range_bound, remedy=BEYOND_FLOATS)
        if self.sampler_share > 0.0:
            check.normal(gamma=self.gamma, remedy=SPEND_MORE)
        else:
            check.one_of((0.0,), gamma=self.gamma)

    @property
    def range(self) -> float:
        """Bound of the range k Omega / n of log-likelihood ratios of the exact draw.

        Omega is `PublicFacts.loss_range`. It is rounded up.
        """
        # The factor covers the rounding of the two operations.
        omega = self.facts.loss_range(self.budget.relation)
        return self.k * omega / self.facts.num_records * (1.0 + 1e-15)

    @property
    def risk_statement(self) -> str:
        """Sentence on the meaning of the risk bound."""
        return describe(
            self.risk, self.confidence, has_ridge=self.has_ridge, bound=self.risk_bound
        )
