"""The public numbers of a calibrated mechanism, shared by mechanism and certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpsample import _check as check
from dpsample.facts import PublicFacts
from dpsample.privacy import risk as risk_bounds
from dpsample.privacy.budget import Budget
from dpsample.privacy.risk import Risk
from dpsample.regularizers import Regularizer

Calibration = Literal["exact", "fact2", "paper"]
BEYOND_FLOATS = "The budget or a declared bound is beyond floating point."
SPEND_MORE = "Spend a larger delta, a larger sampler_share or a smaller epsilon."


@dataclass(frozen=True, kw_only=True)
class CalibrationInputs:
    """The public inputs of `calibrate`, checked; its docstring explains each."""

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
        check.at_least(1.0, p=self.p)
        check.one_of(("population", "empirical"), risk=self.risk)
        check.one_of(("exact", "fact2", "paper"), calibration=self.calibration)
        check.non_negative(sampler_share=self.sampler_share)
        if self.sampler_share >= 1.0:
            remedy = "It is the part of delta that pays for the sampler."
            check.fail("sampler_share", "< 1", self.sampler_share, remedy)
        check.non_negative(strong_convexity=self.strong_convexity)
        if self.strong_convexity > 0.0:
            check.scale(strong_convexity=self.strong_convexity)
        if self.confidence is not None:
            check.open_interval(0.0, 1.0, confidence=self.confidence)
        for name in ("p", "sampler_share", "strong_convexity", "confidence"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))
        self._check_together()

    def _check_together(self) -> None:
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
            remedy = "The printed constants have no such variant: use 'exact'."
            condition = "None with calibration='paper'"
            check.fail("confidence", condition, self.confidence, remedy)
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
        """Whether a neighbor is charged with one record's share of the curvature."""
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
        G_Delta, the Lipschitz constant of n times the change of F between neighbors.
    range_bound : float
        Theta >= max r - min r on the domain; infinite on an unbounded one.
    k, mu : float
        The density is proportional to exp(-k (F + mu r)).
    gdp : float
        The exact draw is gdp-Gaussian differentially private.
    delta_exact : float
        delta_0, the part of delta that the exact draw spends.
    gamma : float
        Total-variation error that the sampler may have; 0 means none.
    epsilon_proved : float
        Epsilon that is proved at the budget's delta: the budget's own, or the true one
        of the printed constants.
    risk_bound : float
        Bound of the excess risk of the exact draw; `risk_statement` says in words
        what it covers.
    theorems : tuple of str
        What the numbers rest on.
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
            delta_exact=self.delta_exact,
            gdp=self.gdp,
            k=self.k,
            mu=self.mu,
            risk_bound=self.risk_bound,
            remedy=BEYOND_FLOATS,
        )
        if not (self.has_ridge and self.range_bound == math.inf):
            check.normal(range_bound=self.range_bound, remedy=BEYOND_FLOATS)
        if self.sampler_share > 0.0:
            check.normal(gamma=self.gamma, remedy=SPEND_MORE)
        else:
            check.one_of((0.0,), gamma=self.gamma)

    @property
    def risk_statement(self) -> str:
        """What the risk bound covers, in words."""
        return risk_bounds.describe(
            self.risk, self.confidence, has_ridge=self.has_ridge, bound=self.risk_bound
        )
