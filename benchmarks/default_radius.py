"""What part of the loss of the answer 0 the noise of a default ball should cost.

Made-up linear models, of columns that fill their public ranges, hardly do, or have
heavy tails, and of weak and strong signals: the estimators' test loss with a third of
the default radius, with it, and with three times it, over the best of the three.
"""

from __future__ import annotations

import sys
import warnings
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dpsample import estimators

SEED = 100
RUNS = 6
EPSILONS = (0.1, 0.5, 2.0)
SHARES = (1 / 3, 1.0, 3.0)


class Model(NamedTuple):
    """Number of records and columns, sd of the margins, spread of the columns."""

    n: int
    d: int
    signal: float
    spread: str


MODELS = [
    Model(1000, 5, 0.3, "narrow"),
    Model(1000, 5, 2.0, "wide"),
    Model(5000, 5, 1.0, "heavy"),
    Model(5000, 20, 0.3, "wide"),
    Model(5000, 20, 2.0, "heavy"),
    Model(5000, 60, 1.0, "narrow"),
    Model(20_000, 10, 0.3, "heavy"),
    Model(20_000, 30, 1.0, "wide"),
]
KINDS = ["LogisticRegression", "SVC", "Ridge", "HuberRegressor", "QuantileRegressor"]
COLUMNS = {
    "narrow": lambda rng, shape: 0.15 * rng.standard_normal(shape),
    "wide": lambda rng, shape: 0.5 * rng.standard_normal(shape),
    "heavy": lambda rng, shape: 0.05 * rng.standard_t(3, shape),
}


def records(model: Model, kind: str, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Columns within [-1, 1], labels or responses, and what is public of the latter."""
    rng = np.random.default_rng(seed)
    rows = np.clip(COLUMNS[model.spread](rng, (2 * model.n, model.d)), -1.0, 1.0)
    margins = rows @ rng.standard_normal(model.d)
    margins *= model.signal / margins.std()
    if kind in KINDS[:2]:
        ones = rng.uniform(size=margins.size) < 1.0 / (1.0 + np.exp(-margins))
        return rows, np.where(ones, 1.0, -1.0), {"classes": (-1.0, 1.0)}
    y = margins / max(3.0, 3.0 * model.signal) + 0.3 * rng.standard_normal(margins.size)
    return rows, np.clip(y, -1.0, 1.0), {"response_range": (-1.0, 1.0)}


def losses(model: Model, kind: str, epsilon: float, seed: int) -> list[float]:
    """Mean test losses with the default radius times each of `SHARES`."""
    rows, y, facts = records(model, kind, seed)
    facts["bounds"] = -np.ones(model.d), np.ones(model.d)
    estimator = getattr(estimators, f"Private{kind}")

    def fit(radius: Any, run: int) -> Any:
        fitted = estimator(
            epsilon=epsilon, delta=1e-6, radius=radius, random_state=run, **facts
        )
        return fitted.fit(rows[: model.n], y[: model.n])

    def loss(fitted: Any) -> float:
        margins = getattr(fitted, "decision_function", fitted.predict)(rows[model.n :])
        return float(fitted._loss().value(margins, y[model.n :]).mean())

    radius = fit("auto", 0).radius_
    runs = range(RUNS)
    return [
        float(np.mean([loss(fit(share * radius, run)) for run in runs]))
        for share in SHARES
    ]


def main() -> None:
    """Print mean and largest ratio to the best of the three, for each estimator.

    Names of some estimators may be given as arguments.
    """
    warnings.simplefilter("ignore")
    print("| estimator | a third | the rule | three times |\n|---|---|---|---|")
    for kind in sys.argv[1:] or KINDS:
        cells = product(enumerate(MODELS), EPSILONS)
        risks = [losses(model, kind, e, SEED + seed) for (seed, model), e in cells]
        ratios = np.array(risks) / np.min(risks, axis=1, keepdims=True)
        cells_of_row = [f"{r.mean():.3f} ({r.max():.2f})" for r in ratios.T]
        print("|", " | ".join([f"`Private{kind}`", *cells_of_row]), "|", flush=True)


if __name__ == "__main__":
    main()
