"""Cells of the robustness benchmark: data × loss × domain × temperature.

A cell's name has these four parts; its builder takes a seed, by which rows are chosen
or made. Public sets come from the folder DPSAMPLE_DATA and from scikit-learn.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator
from zlib import crc32

import numpy as np
import polytopes
import targets
from numpy.typing import NDArray
from scipy import linalg, sparse

Array = NDArray[np.float64]
Records = tuple[Array, Array]
Maker = Callable[[np.random.Generator], Records]
Cell = tuple[str, Callable[[int], targets.Case]]

MARGIN = ("logistic", "hinge")
RESPONSE = ("absolute", "quantile", "huber", "squared")
OPTIONS = {"quantile": 0.9, "huber": 0.5}
# k as a multiple of the number of records.
TEMPERATURES = {"warm": 1.0, "cold": 30.0}
DOMAINS = {
    "whole": {"domain": targets.WHOLE},
    "l2": {"domain": targets.BALL, "radius": 1.0},
    "l1": {"domain": targets.BALL, "radius": 5.0, "p": 1.0},
    "box": {"domain": targets.BOX, "radius": 1.0},
    "simplex": {"domain": targets.SIMPLEX},
    "weak": {"domain": targets.WHOLE, "mu": 1e-6},
    "l1.5": {"domain": targets.BALL, "radius": 2.0, "p": 1.5},
    "l4": {"domain": targets.BALL, "radius": 1.0, "p": 4.0},
    "entropy": {"domain": targets.SIMPLEX, "is_entropic": True, "mu": 0.1},
    "nuclear": {"domain": targets.SCHATTEN, "p": 1.0, "radius": 2.0, "shape": (6, 5)},
    "frobenius": {"domain": targets.SCHATTEN, "p": 2.0, "radius": 1.0, "shape": (6, 5)},
    "spectral": {
        "domain": targets.SCHATTEN,
        "p": np.inf,
        "radius": 0.5,
        "shape": (6, 5),
    },
    "flat-l2": {"domain": targets.BALL, "radius": 10.0, "mu": 0.0},
    "flat-l1": {"domain": targets.BALL, "radius": 30.0, "p": 1.0, "mu": 0.0},
    "flat-box": {"domain": targets.BOX, "radius": 10.0, "mu": 0.0},
    "flat-simplex": {"domain": targets.SIMPLEX, "mu": 0.0},
}
FLAT = ("flat-l2", "flat-l1", "flat-box", "flat-simplex")
USUAL = ("whole", "l2", "l1", "box", "simplex")
SIX = (*USUAL, "weak")
MU = 1e-4


def stream(name: str, seed: int) -> np.random.Generator:
    """Stream of a data set."""
    return np.random.default_rng([seed, crc32(name.encode())])


def unit(rows: Array) -> Array:
    """Rows with standardized columns, none longer than 1."""
    rows = rows[:, np.ptp(rows, axis=0) > 0.0]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return rows / np.linalg.norm(rows, axis=1).max()


def center_response(response: Array) -> Array:
    """Response about its median, 9 of 10 in [-1, 1]: heavy tails remain."""
    response = response - np.median(response)
    return response / np.quantile(np.abs(response), 0.9)


def scikit(name: str, *, is_raw: bool = False) -> Maker:
    """Return a small set that scikit-learn brings along: C, W, G, D of the issue."""

    def make(rng: np.random.Generator) -> Records:
        import sklearn.datasets

        data = getattr(sklearn.datasets, f"load_{name}")()
        rows, y = data.data, data.target.astype(float)
        if name == "diabetes":
            return unit(rows), center_response(y)
        return rows if is_raw else unit(rows), np.where(y > np.median(y), -1.0, 1.0)

    return make


def public(name: str, num_records: int = 2000) -> Maker:
    """Return records of a public set, chosen at random."""

    def make(rng: np.random.Generator) -> Records:
        import dpsample as dps

        data = dps.datasets.load(name)
        count = data.features.shape[0]
        indices = np.sort(rng.choice(count, min(num_records, count), replace=False))
        y = np.asarray(data.response, dtype=float)[indices]
        is_labelled = set(np.unique(y)) <= {-1.0, 1.0}
        return data.features[indices], y if is_labelled else center_response(y)

    return make


def toeplitz(rng: np.random.Generator, n: int = 1000, d: int = 30) -> Array:
    """Rows whose neighbouring columns have correlation 0.99."""
    factor = np.linalg.cholesky(linalg.toeplitz(0.99 ** np.arange(d)))
    return unit(rng.standard_normal((n, d)) @ factor.T)


def heavy(rng: np.random.Generator, n: int = 1000, d: int = 20) -> Array:
    """Rows of a Student law with 1.5 degrees of freedom, the median of length 1."""
    rows = rng.standard_t(1.5, (n, d))
    return rows / np.median(np.linalg.norm(rows, axis=1))


def indicators(rng: np.random.Generator, n: int = 2000, d: int = 60) -> Array:
    """Return columns of indicators, the rarest 1 in a record or two."""
    rows = (rng.random((n, d)) < np.geomspace(0.5, 1.0 / n, d)).astype(float)
    rows[0] = 1.0  # no column of zeros
    return rows / np.sqrt(rows.sum(axis=1).max())


def scaled_columns(rng: np.random.Generator, n: int = 800, d: int = 13) -> Array:
    """Columns scaled from 10^-3 to 10^3."""
    return rng.standard_normal((n, d)) * np.logspace(-3.0, 3.0, d)


def plain(rng: np.random.Generator, n: int, d: int) -> Array:
    """Rows of length 1."""
    rows = rng.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def with_labels(
    rows_fn: Callable[..., Array], *sides: int, signal: float = 3.0
) -> Maker:
    """Return rows with labels of a logistic model; by an infinite signal separable."""

    def make(rng: np.random.Generator) -> Records:
        rows = rows_fn(rng, *sides)
        margins = rows @ rng.standard_normal(rows.shape[1])
        margins /= margins.std()
        if np.isinf(signal):
            return rows, np.where(margins > 0.0, 1.0, -1.0)
        return rows, targets.labels_of(signal * margins, rng)

    return make


def with_responses(rows_fn: Callable[..., Array], degrees: float = np.inf) -> Maker:
    """Return rows with responses of a linear model, Student noise."""

    def make(rng: np.random.Generator) -> Records:
        rows = rows_fn(rng)
        margins = rows @ rng.standard_normal(rows.shape[1])
        noise = rng.standard_normal(len(rows))
        if np.isfinite(degrees):
            noise = rng.standard_t(degrees, len(rows))
        return rows, center_response(margins / margins.std() + 0.5 * noise)

    return make


def cell(data: str, make: Maker, loss: str, domain: str, temperature: str) -> Cell:
    """Name and builder of a cell."""
    name = f"{data}/{loss}/{domain}/{temperature}"

    def build(seed: int) -> targets.Case:
        rows, labels = make(stream(data, seed))
        fields = {"mu": MU} | DOMAINS[domain]
        return targets.Case(
            name=name,
            title=name,
            rows=sparse.csr_array(rows) if sparse.issparse(rows) else rows,
            labels=labels,
            loss=loss,
            option=OPTIONS.get(loss, np.nan),
            k=TEMPERATURES[temperature] * len(labels),
            **fields,
        )

    return name, build


def grid(data: str, make: Maker, losses: tuple[str, ...]) -> Iterator[Cell]:
    """Every loss, usual domain and temperature."""
    for parts in itertools.product(losses, USUAL, TEMPERATURES):
        yield cell(data, make, *parts)


def some(
    data: str,
    make: Maker,
    losses: tuple[str, ...],
    domains: tuple[str, ...] = SIX,
    step: int = 1,
) -> Iterator[Cell]:
    """One pair of loss and domain in ``step``, warm and cold in turn."""
    shift = crc32(data.encode())
    for (i, loss), (j, domain) in itertools.product(
        enumerate(losses), enumerate(domains, shift % step)
    ):
        if (i + j) % step == 0:
            is_cold = ((i + j) // step + shift) % 2
            yield cell(data, make, loss, domain, "cold" if is_cold else "warm")


def scikit_cells() -> Iterator[Cell]:
    """Return the 90 cells on which the old default failed, and raw columns."""
    for data in ("breast_cancer", "wine", "digits"):
        yield from grid(data, scikit(data), MARGIN)
    yield from grid("diabetes", scikit("diabetes"), RESPONSE[:3])
    raw = scikit("breast_cancer", is_raw=True)
    yield from some("breast_cancer-raw", raw, ("logistic",), ("whole", "weak", "l2"))


def public_cells() -> Iterator[Cell]:
    """Cells on samples of large public sets, and on all of a9a."""
    for data in ("magic04", "adult", "w7a", "a9a"):
        yield from some(data, public(data), MARGIN)
    for data in ("casp", "cps1988", "k401ksubs", "randhie"):
        yield from some(data, public(data), RESPONSE, step=2)
    yield from some("blogfeedback", public("blogfeedback"), RESPONSE, step=6)
    yield "a9a-all/logistic/l2/calibrated", lambda seed: targets.a9a(3.0)
    yield "a9a-all/logistic/whole/calibrated", lambda seed: targets.a9a()


def synthetic_cells() -> Iterator[Cell]:
    """Correlated, heavy-tailed, rare, wide, separable and badly scaled records."""
    classes = {
        "toeplitz": with_labels(toeplitz),
        "heavy-rows": with_labels(heavy),
        "indicators": with_labels(indicators),
        "wide": with_labels(plain, 50, 120),
        "separable": with_labels(plain, 300, 15, signal=np.inf),
        "scaled": with_labels(scaled_columns),
    }
    for data, make in classes.items():
        yield from some(data, make, MARGIN, step=2)
    yield from some("large", with_labels(plain, 2000, 500), ("logistic",), USUAL)
    yield from some("large", with_labels(plain, 2000, 500), ("hinge",), ("whole", "l2"))
    responses = {
        "toeplitz": with_responses(toeplitz),
        "heavy-noise": with_responses(toeplitz, 1.5),
        "scaled": with_responses(scaled_columns),
    }
    for data, make in responses.items():
        yield from some(data, make, RESPONSE, step=3)


def unusual_cells() -> Iterator[Cell]:
    """Balls of other norms, matrices, and the entropy."""
    for loss, make in (
        ("logistic", with_labels(toeplitz)),
        ("hinge", with_labels(plain, 500, 30)),
        ("huber", with_responses(toeplitz)),
    ):
        data = f"{loss}-model"
        balls = ("l1.5", "l4", "nuclear", "frobenius", "spectral", "entropy")
        yield from some(data, make, (loss,), balls)


def flat_cells() -> Iterator[Cell]:
    """No regularizer on wide domains, where few records leave most directions flat."""
    for data, make in (
        ("three", with_labels(plain, 3, 10)),
        ("thirty", with_labels(plain, 30, 40)),
        ("indicators", with_labels(indicators)),
    ):
        yield from some(data, make, MARGIN, FLAT)
    for data, make in (
        ("three-responses", with_responses(lambda rng: plain(rng, 3, 10))),
        ("toeplitz", with_responses(toeplitz)),
    ):
        yield from some(data, make, RESPONSE, FLAT, step=2)


def polytope_case(name: str, law: str, seed: int) -> targets.Case:
    """Uniform law, exponential tilt or logistic model on a polytope."""
    rng = stream(name, seed)
    body = polytopes.reduce_dimension(polytopes.BODIES[name](rng))
    dim = len(body.cost)
    rows, labels, loss, k = np.zeros((1, dim)), np.ones(1), "linear", 1.0
    if law == "tilted":
        rows, k = body.cost[None, :], 5.0
    if law == "logistic":
        loss, k = "logistic", 500.0
        rows, labels = with_labels(plain, 500, dim)(rng)
    return targets.Case(
        name=f"{name}/{law}/polytope/{law}",
        title=name,
        rows=rows,
        labels=labels,
        loss=loss,
        k=k,
        mu=0.0,
        domain=targets.POLYTOPE,
        facets=body.facets,
        limits=body.limits,
    )


def polytope_cells() -> Iterator[Cell]:
    """Random, Birkhoff, badly scaled and thin polytopes."""
    for name in polytopes.BODIES:
        for law in ("uniform", "tilted", "logistic"):
            if law == "logistic" and name.startswith(("program", "flux", "thin")):
                continue  # rows would need the units of the polytope
            yield (
                f"{name}/{law}/polytope/warm",
                lambda seed, name=name, law=law: polytope_case(name, law, seed),
            )


def cells() -> tuple[dict[str, Callable[[int], targets.Case]], list[str]]:
    """Builders of all cells by name, and what cannot run here."""
    makers, missing = [*synthetic_cells(), *unusual_cells()], []
    makers += [*flat_cells(), *polytope_cells()]
    if importlib.util.find_spec("sklearn"):
        makers += scikit_cells()
    else:
        missing.append("93 cells on small public sets: pip install scikit-learn")
    if os.environ.get("DPSAMPLE_DATA"):
        makers += public_cells()
    else:
        missing.append("public cells: set DPSAMPLE_DATA to the folder of data sets")
    return dict(makers), missing
