r"""Risk bounds of the exponential mechanism, all of the form mu Theta + C/k.

The density is proportional to e^{-V}, V = k (F + mu r), in ``dim`` dimensions. F is the
mean of n convex losses, each G-Lipschitz in the norm in which r is 1-strongly convex
with range Theta on the domain. Put a = mu/k, which privacy fixes.

* **Mean** (arXiv:2207.08347, Proposition 4): E V <= min V + dim, so the empirical
  excess risk is at most mu Theta + dim/k in expectation: C = dim.
* **Generalization** (its Corollary 1 and Proposition 6): two data sets that differ in
  one replaced record have potentials that are k mu-strongly convex and differ by a
  k S/n-Lipschitz function, S <= 2G the constant of f(.; s) - f(.; s'). The expected
  population risk exceeds the empirical one by at most G S/(n mu): add G S/(n a) to C.
  S belongs to *replacing* a record under every privacy relation.
* **One draw** of the empirical risk: with min V = 0, s^dim times the integral of
  e^{-sV} does not decrease in s (substitute x -> y/s about the minimizer), so
  E e^{uV} <= (1 - u)^{-dim}: V has the Chernoff bound of a Gamma(dim) variable. With
  probability 1 - beta, V <= min V + q, where q > dim solves
  q - dim - dim log(q/dim) = log(1/beta): C = q.
* **One draw, Lipschitz** (its Lemma 5): a G-Lipschitz function of the draw exceeds its
  mean by G sqrt(2 log(1/beta)/(k mu)) with probability at most beta: add
  B(G) = G sqrt(2 log(1/beta)/a) to C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Risk = Literal["population", "empirical"]

MEAN = "Proposition 4 of arXiv:2207.08347 (mean of the energy)"
STABILITY = "Corollary 1 and Proposition 6 of arXiv:2207.08347 (generalization)"
ENERGY_TAIL = "Chernoff bound of the energy: E exp(u (V - min V)) <= (1 - u)^(-d)"
LEMMA_5 = "Lemma 5 of arXiv:2207.08347 (concentration of Lipschitz functions)"


@dataclass(frozen=True, kw_only=True)
class RiskModel:
    """What the constant C depends on; see the module's formulas.

    ``lipschitz`` is G, ``swap_lipschitz`` is S, ``ratio`` is a = mu/k, ``has_ridge``
    says that mu r belongs to the objective, so that the bounded risk is F + mu r.
    """

    risk: Risk
    confidence: float | None
    dim: int
    num_records: int
    lipschitz: float
    swap_lipschitz: float
    ratio: float
    has_ridge: bool

    def constant(self) -> tuple[float, tuple[str, ...]]:
        """Return C and the names of the theorems that prove the bound."""
        population = self.risk == "population"
        gap = self.lipschitz * self.swap_lipschitz / (self.num_records * self.ratio)
        if self.confidence is None:
            if population:
                return self.dim + gap, (MEAN, STABILITY)
            return float(self.dim), (MEAN,)
        beta = 1.0 - self.confidence
        if not population:
            return self._empirical_quantile(beta)
        if not self.has_ridge:
            # Lemma 5 for the population risk itself, which is G-Lipschitz.
            spread = self._spread(self.lipschitz, beta)
            return self.dim + gap + spread, (MEAN, STABILITY, LEMMA_5)
        # F_pop + mu r is not Lipschitz: bound the energy, then F_pop - F by Lemma 5.
        energy = energy_quantile(self.dim, beta / 2.0)
        spread = self._spread(self.swap_lipschitz, beta / 2.0)
        return energy + gap + spread, (ENERGY_TAIL, STABILITY, LEMMA_5)

    def _empirical_quantile(self, beta: float) -> tuple[float, tuple[str, ...]]:
        energy = energy_quantile(self.dim, beta)
        lipschitz = self.dim + self._spread(self.lipschitz, beta)
        if self.has_ridge or energy <= lipschitz:
            return energy, (ENERGY_TAIL,)
        return lipschitz, (MEAN, LEMMA_5)

    def _spread(self, lipschitz: float, beta: float) -> float:
        return lipschitz * math.sqrt(-2.0 * math.log(beta) / self.ratio)


def energy_quantile(dim: int, beta: float) -> float:
    """Bound of V - min V that one draw exceeds with probability at most beta.

    The root q > dim of q - dim - dim log(q/dim) = log(1/beta), rounded up.
    """
    needed = -math.log(beta) / dim
    excess = math.sqrt(2.0 * needed) + needed

    # x - log(1 + x) at x = q/dim - 1; the start is above the root.
    while True:
        value = excess - math.log1p(excess)
        smaller = excess - (value - needed) * (1.0 + excess) / excess
        if not smaller < excess * (1.0 - 1e-15):
            return dim * (1.0 + excess) * (1.0 + 1e-14)
        excess = smaller


def describe(
    risk: Risk, confidence: float | None, *, has_ridge: bool, bound: float
) -> str:
    """Say in words what the risk bound covers."""
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
