"""An optimizer that counts its recipes, and one with usual options."""

from dataclasses import dataclass
from typing import ClassVar

import threadpoolctl

import dpsample as dps
from dpsample.optimizers.loop.optimizer import Loop, Optimizer, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise
from dpsample.optimizers.loop.steps import GradientStep
from dpsample.privacy.accounting.events import GaussianEvent

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


METHOD = dps.optimizers.DPSGD(sampling_rate=0.5, num_steps=30)


# Of a Gaussian mechanism that meets the budget.
GDP = dps.privacy.gdp_from_budget(1.0, 1e-6)


@dataclass(frozen=True, kw_only=True)
class Probe(Optimizer):
    """One noisy loop with any event; counts how often it is asked for its recipe."""

    gdp: float | None = GDP
    num_steps: int = 3
    name: ClassVar[str] = "probe"
    calls: ClassVar[list[str]] = []

    def recipe(self, facts, budget, calibration="exact"):
        pools = threadpoolctl.threadpool_info()
        blas = [p["num_threads"] for p in pools if p["user_api"] == "blas"]
        self.calls.append(f"{calibration} {max(blas)}")
        loop = Loop(
            num_steps=self.num_steps,
            step=GradientStep(0.1),
            noise=GaussianNoise(0.01),
        )
        event = None if self.gdp is None else GaussianEvent(self.gdp)
        return Recipe(phases=(loop,), event=event, inputs={})
