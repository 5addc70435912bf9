"""Targets of the sampler benchmark, and their files. Needs NumPy and SciPy only.

A process that measures a peer reads the file of its target; it need not have dpsample.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
EPSILON = 1.0
DELTA = 1e-6
WHOLE = "whole space"
BALL = "ball"
BOX = "box"
POLYTOPE = "polytope"
SIMPLEX = "simplex"
SCHATTEN = "Schatten ball"
SPARSE = ("data", "indices", "indptr")
# Sizes of 14 categorical attributes that make 123 indicators, skewed as in a9a.
LEVELS = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Density exp(-k (F + mu |theta|^2 / 2)) on a domain.

    ``option`` is the level of the quantile loss or the width of Huber's, ``p`` the
    exponent of a ball, ``shape`` that of the matrices in a Schatten ball; a box is
    [-radius, radius]^d. With ``is_entropic`` the regularizer is the negative entropy.
    ``num_warmup`` and ``leapfrogs``, a guess per draw, are for peers that must be told;
    they stop after ``max_draws`` per chain.
    """

    name: str
    title: str
    rows: Any  # (n, d), dense or CSR
    labels: Array
    loss: str
    k: float
    mu: float
    domain: str = WHOLE
    radius: float = math.inf
    p: float = 2.0
    shape: tuple[int, int] | None = None
    facets: Array | None = None
    limits: Array | None = None
    option: float = math.nan
    is_entropic: bool = False
    num_warmup: int = 500
    leapfrogs: int = 7
    max_draws: int = 100_000

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return int(self.rows.shape[1])

    @property
    def num_records(self) -> int:
        """Number of records."""
        return int(self.rows.shape[0])

    @property
    def has_records(self) -> bool:
        """Whether the risk is more than a zero."""
        return self.loss != "linear"


def save(case: Case, path: Path) -> None:
    """Write a case as arrays and a line of JSON."""
    values = {field.name: getattr(case, field.name) for field in fields(case)}
    rows = values.pop("rows")
    names = SPARSE if sparse.issparse(rows) else ()
    arrays = {name: getattr(rows, name) for name in names} or {"rows": rows}
    for name in ("labels", "facets", "limits"):
        if (value := values.pop(name)) is not None:
            arrays[name] = value
    facts = json.dumps({"sides": rows.shape, "fields": values})
    np.savez(path, facts=facts, **arrays)


def load(path: str | Path) -> Case:
    """Read what `save` wrote."""
    with np.load(path) as file:
        arrays = dict(file)
    facts = json.loads(str(arrays.pop("facts")))
    if "rows" not in arrays:
        parts = tuple(arrays.pop(name) for name in SPARSE)
        arrays["rows"] = sparse.csr_array(parts, shape=facts["sides"])
    return Case(**arrays, **facts["fields"])


def printed_constants(num_records: int, dim: int) -> tuple[float, float]:
    """Return k and mu as printed for Lipschitz constant 1 and diameter D = 2."""
    theta, log = 2.0, math.log(1.0 / (2.0 * DELTA))
    k = math.sqrt(dim) * num_records * EPSILON / math.sqrt(2.0 * theta * log)
    mu = math.sqrt(2.0 * dim * log / theta) / (num_records * EPSILON)
    return k, mu


def labels_of(margins: Array, rng: np.random.Generator) -> Array:
    """Labels -1 and 1 of a logistic model."""
    return np.where(
        rng.random(margins.size) < 1.0 / (1.0 + np.exp(-margins)), 1.0, -1.0
    )


def ball_rows() -> tuple[Array, Array]:
    """10 000 uniform rows of the unit ball of dimension 20 and their labels."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((10_000, 20))
    rows *= (rng.random((10_000, 1)) ** 0.05) / np.linalg.norm(rows, axis=1)[:, None]
    theta = rng.standard_normal(20)
    return rows, labels_of(3.0 * (rows @ theta) / np.linalg.norm(theta), rng)


def t1() -> Case:
    """Logistic loss of dense records on the whole space."""
    rows, labels = ball_rows()
    k, mu = printed_constants(*rows.shape)
    title = "T1: logistic, n = 10 000, d = 20"
    return Case(
        name="T1", title=title, rows=rows, labels=labels, loss="logistic", k=k, mu=mu
    )


def t2() -> Case:
    """Logistic loss of 14 indicators per record, on the whole space."""
    rng = np.random.default_rng(0)
    num_records, ends = 32_000, np.cumsum(LEVELS)
    columns = np.empty((num_records, len(LEVELS)), dtype=np.int32)
    for j, (end, size) in enumerate(zip(ends, LEVELS, strict=True)):
        chance = np.arange(1.0, size + 1.0) ** -1.3
        columns[:, j] = (
            end - size + rng.choice(size, num_records, p=chance / chance.sum())
        )
    values = np.full(columns.size, 1.0 / math.sqrt(len(LEVELS)))
    starts = np.arange(0, columns.size + 1, len(LEVELS), dtype=np.int32)
    rows = sparse.csr_array(
        (values, columns.ravel(), starts), shape=(num_records, int(ends[-1]))
    )
    margins = rows @ (3.0 * rng.standard_normal(rows.shape[1]))
    labels = labels_of(margins - margins.mean() - 1.0, rng)
    k, mu = printed_constants(*rows.shape)
    return Case(
        name="T2",
        title="T2: logistic, n = 32 000, d = 123, sparse",
        rows=rows,
        labels=labels,
        loss="logistic",
        k=k,
        mu=mu,
        num_warmup=400,
        leapfrogs=15,
    )


def t3() -> Case:
    """Hinge loss of the records of T1 in a ball."""
    rows, labels = ball_rows()
    k, mu = printed_constants(*rows.shape)
    return Case(
        name="T3",
        title="T3: hinge, n = 10 000, d = 20, ball R = 5",
        rows=rows,
        labels=labels,
        loss="hinge",
        k=k,
        mu=mu,
        domain=BALL,
        radius=5.0,
    )


def _t4(name: str, body: str, facets: Array, limits: Array, mu: float) -> Case:
    law = "N(0, I)" if mu else "uniform"
    return Case(
        name=name,
        title=f"{name.split('-')[0]}: {law}, {body}",
        rows=np.zeros((1, facets.shape[1])),
        labels=np.ones(1),
        loss="linear",
        k=1.0,
        mu=mu,
        domain=POLYTOPE,
        facets=facets,
        limits=limits,
    )


def t4_polytope(mu: float) -> Case:
    """Uniform or normal law in a random polytope."""
    facets = np.random.default_rng(0).standard_normal((200, 20))
    facets /= np.linalg.norm(facets, axis=1, keepdims=True)
    name = f"T4-polytope-{'gauss' if mu else 'uniform'}"
    return _t4(name, "200 facets, d = 20", facets, np.ones(200), mu)


def t4_cube(mu: float) -> Case:
    """Uniform or normal law in the cube [-1, 1]^50."""
    facets = np.vstack([np.eye(50), -np.eye(50)])
    name = f"T4-cube-{'gauss' if mu else 'uniform'}"
    return _t4(name, "cube, d = 50", facets, np.ones(100), mu)


def a9a(radius: float = math.inf) -> Case:
    """Real records, rows / sqrt(14), k and mu calibrated to epsilon = 1 on a ball."""
    import dpsample as dps

    data = dps.datasets.load("a9a")
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(3.0),
        row_bound=data.row_bound,
    )
    mechanism = dps.calibrate(problem, dps.Budget(epsilon=EPSILON, delta=DELTA), p=2.0)
    is_bounded = math.isfinite(radius)
    return Case(
        name="a9a-ball" if is_bounded else "a9a",
        title=f"a9a, {'ball R = 3' if is_bounded else 'whole space'}, epsilon = 1",
        rows=sparse.csr_array(data.features),
        labels=np.asarray(data.response, dtype=float),
        loss="logistic",
        k=mechanism.k,
        mu=mechanism.mu,
        domain=BALL if is_bounded else WHOLE,
        radius=radius,
        num_warmup=400,
        leapfrogs=15,
    )


def has_a9a() -> bool:
    """Return whether the folder of public data sets is known."""
    return bool(os.environ.get("DPSAMPLE_DATA"))


CASES: dict[str, Callable[[], Case]] = {
    "T1": t1,
    "T2": t2,
    "T3": t3,
    "T4-polytope-uniform": lambda: t4_polytope(0.0),
    "T4-polytope-gauss": lambda: t4_polytope(1.0),
    "T4-cube-uniform": lambda: t4_cube(0.0),
    "T4-cube-gauss": lambda: t4_cube(1.0),
    "a9a": a9a,
    "a9a-ball": lambda: a9a(3.0),
}
