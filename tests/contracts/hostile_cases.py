"""Every optimizer in every setting of its choices, and public facts that it accepts.

Lists come from the package: names from ``dpsample.optimizers.__all__``, choices from
the refusals of each parameter. Facts are accepted before any record is seen, so a
refusal here is public.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpsample as dps
from dpsample.api.minimize import plan_minimization
from dpsample.domains import (
    Ball,
    Box,
    Domain,
    Polytope,
    SchattenBall,
    Simplex,
    WholeSpace,
)
from dpsample.losses import Loss
from dpsample.optimizers.loop.optimizer import Optimizer, Recipe

REQUIRED: dict[str, dict[str, Any]] = {
    "DPSGD": {"sampling_rate": 0.5, "num_steps": 2},
    "ClippedGD": {"num_steps": 2, "clip": 0.5},
    "NoisyMirrorDescent": {"p": 1.5, "distance": 1.0},
}
# Limits that are active, and numbers without which wild problems have no default.
LIMITS: dict[str, Any] = {
    "clip": 0.5,
    "threshold": 0.5,
    "scale": 0.5,
    "entry_bound": 0.5,
    "num_steps": 2,
    "step_size": 0.5,
    "smoothness": 1.0,
    "smoothing": 2.0,
    "distance": 1.0,
    "moment": 1.0,
    "accuracy": 1e-2,
    "max_steps": 20,
    "l1": 0.03,
}
NUMBERS_ONLY = ("risk", "printed")  # choices that no kernel sees
LISTED = re.compile(r"must be one of (.+), got")
NOT_PRIVATE = ("ProximalSGD",)  # refuses every budget
RELATIONS = ("replace_one", "zero_out")
SIZES = (12, 2, 1)  # 12: long enough for products of matrices


def choices(kind: type[Optimizer], name: str) -> tuple[Any, ...]:
    """What a parameter chooses from, as its refusal lists it; else nothing."""
    try:
        kind(**REQUIRED.get(kind.__name__, {}) | {name: "nonsense"})
    except ValueError as refusal:
        listed = LISTED.search(str(refusal))
        return ast.literal_eval(f"({listed[1]},)") if listed else ()
    return ()


def settings_of(kind: type[Optimizer]) -> list[Optimizer]:
    """All combinations of choices, with active limits and with the defaults."""
    parameters = inspect.signature(kind).parameters
    required = REQUIRED.get(kind.__name__, {})
    limits = {name: LIMITS[name] for name in parameters if name in LIMITS}
    options = {
        name: listed
        for name in parameters
        if name not in NUMBERS_ONLY and (listed := choices(kind, name))
    }
    found = []
    for chosen in itertools.product(*options.values()):
        picked = dict(zip(options, chosen, strict=True))
        for arguments in (limits | required | picked, required | picked):
            with contextlib.suppress(ValueError):  # choices that exclude each other
                if (setting := kind(**arguments)) not in found:
                    found.append(setting)
    return found


SETTINGS: list[Optimizer] = [
    setting
    for name in dps.optimizers.__all__
    for setting in settings_of(getattr(dps.optimizers, name))
]


@functools.cache
def label(setting: Optimizer) -> str:
    """Name and choices of a setting."""
    kind = type(setting)
    words = [
        str(getattr(setting, name))
        for name in inspect.signature(kind).parameters
        if name not in NUMBERS_ONLY and choices(kind, name)
    ]
    number = settings_of(kind).index(setting)
    return "-".join([kind.__name__, *words, str(number)])


@functools.cache
def custom_losses() -> tuple[Loss, ...]:
    """Losses from users' functions that are infinite or NaN at some legal records."""

    def soft(u, y):
        return np.log(1.0 + np.exp(0.5 * (u - y)))

    def soft_slope(u, y):
        # NaN above 1418, which is farther than a declaration is tried
        return 0.5 * np.exp(0.5 * (u - y)) / (1.0 + np.exp(0.5 * (u - y)))

    def gradient(row, response, theta, out):
        far = np.sqrt(((theta - row) ** 2).sum())  # 0/0 at theta = row
        out[:] = 1e10 * response * (theta - row) / far

    return (
        dps.losses.custom(soft, soft_slope, slope_bound=1.0, name="naive_softplus"),
        dps.losses.record_gradient(gradient, name="unit_times_response"),
    )


@functools.cache
def all_losses() -> tuple[Loss, ...]:
    """Every public loss, the hardest first."""
    own = [
        kind()
        for name in dps.losses.__all__
        if inspect.isclass(kind := getattr(dps.losses, name))
        and name not in ("Loss", "Custom", "RecordGradient")
    ]
    hardest = ("power_four", "squared")
    own.sort(key=lambda loss: loss.name not in hardest)
    return (*own[:2], *custom_losses(), *own[2:])


DOMAINS: tuple[Domain, ...] = (
    Ball(2.0),
    Ball(2.0, p=1.0),
    WholeSpace(),
    Ball(1e-3),
    Ball(2.0, p=1.5),
    Ball(1e6),
    Box([-1.0, -2.0], [0.5, 1e3]),
    Ball(1.0, center=[0.5, -3.0]),
    Simplex(),
    Polytope(np.vstack((np.eye(2), -np.eye(2))), np.ones(4)),
    SchattenBall(1.0, p=1.0, shape=(1, 2)),
)


@dataclass(frozen=True, eq=False)
class World:
    """Public facts: all of a problem but its records."""

    loss: Loss
    domain: Domain
    num_records: int = 12
    row_bound: float = 1.0
    row_norm: float = 2.0
    response_bound: float | None = np.inf
    offset_bound: float = 0.0
    intercept: bool = False

    @property
    def width(self) -> int:
        return 1 if self.intercept else 2

    @property
    def response_limit(self) -> float:
        """Largest finite response, 1 where none is declared and slopes read it."""
        if self.loss.is_classification:
            return 1.0
        bound = self.response_bound
        if bound is None:
            bound = 1.0 if self.loss.name == "linear" else np.inf
        return min(bound, float(np.finfo(float).max))

    def problem(
        self, rows: Any, response: Any, offset: Any = None, domain: Domain | None = None
    ) -> dps.Problem:
        """These records; on another domain if one is given."""
        return dps.Problem(
            rows,
            response,
            loss=self.loss,
            domain=domain or self.domain,
            row_bound=self.row_bound,
            row_norm=self.row_norm,
            response_bound=self.response_bound,
            intercept=self.intercept,
            offset=offset,
            offset_bound=self.offset_bound,
        )

    def benign(self) -> dps.Problem:
        """Zero rows, whose records say nothing."""
        labels = np.ones(self.num_records)
        response = labels if self.loss.is_classification else 0.0 * labels
        return self.problem(np.zeros((self.num_records, self.width)), response)

    def recipe(self, setting: Optimizer, relation: str) -> Recipe | None:
        """Phases as `dpsample.minimize` has them; None if these facts are refused.

        No record is seen, so whatever is raised here tells nothing of one.
        """
        budget = budget_of(setting, relation)
        try:
            with warnings.catch_warnings(action="error"):
                plan = plan_minimization(
                    self.benign(), setting, budget, "exact", seeded=True
                )
        except (ValueError, ArithmeticError, Warning):
            return None
        return plan.program.recipe


def budget_of(setting: Optimizer, relation: str) -> dps.Budget | None:
    """A budget under the relation; none for what is not private."""
    if type(setting).__name__ in NOT_PRIVATE:
        return None
    return dps.Budget(epsilon=2.0, delta=1e-3, relation=relation)


def worlds(setting: Optimizer, seed: int) -> Any:
    """Worlds without end: the hardest first, then any."""
    for loss, domain in itertools.product(all_losses()[:5], DOMAINS[:3]):
        yield World(loss, domain)
    rng = np.random.default_rng([seed, *label(setting).encode()])
    while True:
        loss = all_losses()[rng.integers(len(all_losses()))]
        bounds = (None, 1.0, np.inf, 1e100, 1e6)
        record_loss = loss.name == "record_gradient"
        yield World(
            loss,
            DOMAINS[rng.integers(len(DOMAINS))],
            num_records=int(rng.choice(SIZES)),
            row_bound=float(rng.choice([1.0, 1e-3, 1e3])),
            row_norm=float(rng.choice([2.0, 1.0, np.inf])),
            response_bound=bounds[rng.integers(len(bounds))],
            offset_bound=0.0 if record_loss else float(rng.choice([0.0, 1e3, 1e300])),
            intercept=bool(rng.integers(2)) and not record_loss,
        )


@functools.cache
def accepted(
    setting: Optimizer, relation: str, hardest: int, others: int
) -> list[tuple[World, Recipe]]:
    """The first hard worlds that an optimizer accepts, and as many other ones."""
    found: list[tuple[World, Recipe]] = []
    num_hard = 15
    for index, world in zip(range(400), worlds(setting, 1), strict=False):
        if index < num_hard and len(found) >= hardest:
            continue
        if (recipe := world.recipe(setting, relation)) is not None:
            found.append((world, recipe))
        if index >= num_hard and len(found) >= hardest + others:
            break
    return found
