"""Tuning plan: the public numbers of private tuning, and its certificate.

Tuning draws a random number of trials. A trial fits a random candidate with noise, and
scores the fit with noise. The best trial is returned. The plan finds the gdp of a trial
for which the whole meets the budget (`dpsample.privacy.curves.random_stopping`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dpsample.core import check
from dpsample.noise.noise import grid_step
from dpsample.optimizers.loop.optimizer import Optimizer, Recipe, check_any_loss
from dpsample.privacy import Budget, EventCertificate
from dpsample.privacy.accounting.accounting import (
    LARGEST_EPSILON,
    delta_of,
    epsilon_of,
)
from dpsample.privacy.accounting.events import (
    BestOfEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
)
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.registry import TUNED
from dpsample.privacy.curves.gaussian import gaussian_epsilon
from dpsample.privacy.curves.random_stopping import (
    best_of_gdp,
    check_stop,
)
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningPlan:
    """Public numbers of one tuning; recipes and certificate follow from them."""

    candidates: tuple[Optimizer, ...]
    facts: PublicFacts
    clip_rows: bool
    budget: Budget
    stop: str
    mean_tries: float
    num_scored: int
    cap: float
    score_share: float

    def check(self) -> None:
        """Reject numbers out of their ranges."""
        check_stop(self.stop, self.mean_tries)
        check.scale(cap=self.cap)
        check.integer(1, maximum=check.MAX_EXACT_INT, num_scored=self.num_scored)
        check.open_interval(0.0, 1.0, score_share=self.score_share)

    @property
    def base_delta(self) -> float:
        """Delta of each try's calibration."""
        # Share of delta / mean_tries at which each candidate's fit is calibrated.
        return 0.5 * self.budget.delta / self.mean_tries

    @property
    def sensitivity(self) -> float:
        """How far one record moves the mean of losses in [0, cap], as computed.

        The sum is correctly rounded, hence off by at most 2^-53 n cap on either side,
        and the quotient is rounded once more.
        """
        # Replacing or removing a record moves a sum of numbers in [0, cap] by at most
        # cap.
        exact = self.cap / self.num_scored
        return exact * (1.0 + 2.0**-50 * (self.num_scored + 2.0))

    def score_stddev(self, gdp: float) -> float:
        """Return the deviation of the noise of a score, for a trial of this gdp."""
        # Squares of gdp add up, and the score has this share of them.
        return self.sensitivity / (gdp * math.sqrt(self.score_share)) * (1.0 + 1e-12)

    def recipes(self, gdp: float) -> list[Recipe]:
        """Return the recipes of the candidates for their part of a trial's gdp."""
        # The fit has the rest of the squared gdp, so that both compose to the trial's
        # gdp.
        fit = gdp * math.sqrt(1.0 - self.score_share)
        # Smallest epsilon of that calibration, for trials whose delta alone is enough.
        epsilon = max(gaussian_epsilon(self.base_delta, fit), 1e-12)
        relation = self.budget.relation
        part = Budget(epsilon=epsilon, delta=self.base_delta, relation=relation)
        recipes = [
            optimizer.recipe(self.facts, part, "exact") for optimizer in self.candidates
        ]
        for recipe, optimizer in zip(recipes, self.candidates, strict=True):
            if recipe.event is None:
                check.fail("candidates", "with privacy proofs", optimizer)
            if not self.facts.loss.has_margin:
                check_any_loss(recipe, optimizer, is_private=True)
            recipe.check_private(self.facts)
        return recipes

    def event(self, gdp: float, recipes: list[Recipe]) -> BestOfEvent:
        """Return what the whole does to privacy."""
        # A little above the exact quotient, so that rounding never states too little.
        spent = self.sensitivity / self.score_stddev(gdp) * (1.0 + 1e-14)
        score = GaussianEvent(spent)
        tries: list[Event] = [
            ComposedEvent((recipe.event, score)) for recipe in recipes if recipe.event
        ]
        kinds = tuple(dict.fromkeys(tries))
        return BestOfEvent(kinds, stop=self.stop, mean_tries=self.mean_tries)

    def calibrate(self) -> tuple[float, list[Recipe]]:
        """Return the gdp of a try, and recipes, such that the budget is met.

        Candidates with Gaussian events meet it at once; for others it shrinks.
        """
        total, relation = self.budget, self.budget.relation
        # Accounting ends at this epsilon.
        max_epsilon = min(total.epsilon, LARGEST_EPSILON)
        gdp = best_of_gdp(
            max_epsilon, total.delta, stop=self.stop, mean_tries=self.mean_tries
        ) * (1.0 - 1e-9)
        for _ in range(100):
            recipes = self.recipes(gdp)
            event = self.event(gdp, recipes)
            total_delta = delta_of(event, epsilon=max_epsilon, relation=relation)
            if total_delta <= total.delta:
                return gdp, recipes
            spent = epsilon_of(event, delta=total.delta, relation=relation)
            # The gdp falls by a half at most, because epsilon is not linear in it. The
            # factor 0.995 makes the loop end where the two almost agree.
            gdp *= min(max(max_epsilon / spent, 0.5), 0.995)
        check.fail("candidates", "such that the budget can be met", self.candidates)

    def certificate(self, gdp: float, recipes: list[Recipe]) -> EventCertificate:
        """Return the certificate of an unseeded run."""
        stddev = self.score_stddev(gdp)
        candidates = tuple(map(MechanismSpec.of, self.candidates))
        return EventCertificate.of(
            kind=TUNED + "+".join(sorted({recipe.kind for recipe in recipes})),
            mechanism=MechanismSpec("Tuned", (("candidates", candidates),)),
            budget=self.budget,
            event=self.event(gdp, recipes),
            facts=self.facts,
            clip_rows=self.clip_rows,
            inputs={
                "stop": self.stop,
                "mean_tries": self.mean_tries,
                "base_gdp": gdp,
                "score_share": self.score_share,
                "scored_records": self.num_scored,
                "cap": self.cap,
                "score_stddev": stddev,
                "score_grid": grid_step(stddev),
            },
        )


def name_candidates(
    candidates: object,
) -> tuple[tuple[str, ...], tuple[Optimizer, ...]]:
    """Return names and optimizers of the candidates, after checks of them."""
    if isinstance(candidates, Mapping):
        names, optimizers = tuple(map(str, candidates)), tuple(candidates.values())
    elif isinstance(candidates, list | tuple):
        names, optimizers = tuple(map(str, range(len(candidates)))), tuple(candidates)
    else:
        names, optimizers = (), ()
    if not optimizers or not all(
        isinstance(optimizer, Optimizer) for optimizer in optimizers
    ):
        condition = "a sequence or a dict of optimizers"
        check.fail("candidates", condition, check.describe(candidates))
    if len(set(names)) < len(names):
        check.fail("candidates", "of different names", ", ".join(names))
    return names, optimizers
