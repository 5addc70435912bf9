"""Bars of open densities and bodies: what a user waits for, in CPU seconds of one core.

    python benchmarks/open.py [ROW ...]

Rows of polytopes need three metabolic networks in the folder DPSAMPLE_FLUX: pairs
NAME_S.npz (a sparse matrix S) and NAME_bounds.npz (arrays lower and upper).

A row prints its name, the bar and the number measured. BLAS runs in one thread, so that
CPU seconds are those of one core. Compiled kernels are loaded before the clock starts.
Peers run after a row where they are installed (requirements-peers.txt).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_peers as peers

# SciPy has a BLAS of its own, whose threads are limited only once it is loaded.
import scipy.linalg  # noqa: F401
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

import dpsample as dps
from dpsample.domains import Ball, Domain, Polytope, Simplex, WholeSpace
from dpsample.targets.gibbs_target import energies

Array = NDArray[np.float64]
clock = time.process_time
ROWS: dict[str, Callable[[], None]] = {}


def row(function: Callable[[], None]) -> Callable[[], None]:
    """Add a row of the table, named as its function."""
    ROWS[function.__name__] = function
    return function


def show(bar: str, **measured: Any) -> None:
    """Print a measured row."""
    texts = [
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in measured.items()
    ]
    print(f"    {bar} | {', '.join(texts)}", flush=True)


def show_peer(name: str, measure: Callable[[], dict[str, Any]]) -> None:
    """Print a peer's row, or that it is not installed."""
    try:
        show(name, **measure())
    except ModuleNotFoundError as error:
        print(f"    {name} | skipped, as {error.name} is not installed", flush=True)


def uniform(domain: Domain, dim: int) -> dps.Gibbs:
    """Return the uniform distribution, the density of a record of zeros."""
    problem = dps.Problem(
        np.zeros((1, dim)),
        [1.0],
        loss=dps.losses.Linear(),
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    return dps.Gibbs(problem, k=1.0, mu=0.0)


def draw(target: Any, num_draws: int, seed: int = 1) -> tuple[Any, float]:
    """Return draws by billiards, and CPU seconds."""
    begin = clock()
    tree = dps.sample(
        target,
        sampler=dps.samplers.BilliardHMC(),
        num_draws=num_draws,
        threads=1,
        progress=False,
        check=False,
        seed=seed,
    )
    return tree, clock() - begin


def load_kernels() -> None:
    """Compile the kernels, or load them."""
    cube = np.vstack([np.eye(3), -np.eye(3)])
    draw(uniform(Polytope(cube, np.ones(6), np.ones((1, 3)), [0.0]), 3), 20)
    draw(logistic(200, 4, Ball(3.0)), 20)
    draw(logistic(200, 4, WholeSpace()), 20)


def effective(draws: Array) -> float:
    """Return the least effective number of draws of coordinates and squares."""
    from arviz_stats.base import array_stats

    moves = draws.reshape(-1, draws.shape[-1]).std(axis=0) > 0.0
    values = draws[..., moves]
    squares = (values - values.mean(axis=(0, 1))) ** 2
    return min(
        float(np.min(array_stats.ess(part, chain_axis=0, draw_axis=1, method="bulk")))
        for part in (values, squares)
    )


def reach(domain: Domain, dim: int, built: float, num_draws: int) -> tuple[Any, Array]:
    """Draw, and print the CPU seconds from the arguments to 1000 effective draws."""
    begin = clock()
    target = uniform(domain, dim)
    tree, cpu = draw(target, num_draws)
    prepared = clock() - begin - cpu
    # The time of draws is proportional to their number. That of the warm-up is not.
    _, short = draw(target, num_draws // 4, seed=2)
    rate = max(cpu - short, 1e-3) / (0.75 * num_draws)
    draws = tree.posterior["theta"].values
    ess = effective(draws)
    warm = max(cpu - rate * num_draws, 0.0)
    # Effective draws, of coordinates and of their squares.
    wanted_seconds = rate * num_draws * 1000.0 / ess
    facts = {
        "cpu_to_1000": built + prepared + warm + wanted_seconds,
        "to_1000": wanted_seconds,  # without compilation and warm-up
        "built": built,
        "prepared": prepared,
        "warm_up": warm,
        "ess": ess,
        "draws": 4 * num_draws,
        "settled": tree.attrs.get("has_settled"),
    }
    return facts, draws


def network(name: str) -> tuple[Any, Array, Array]:
    """Return S, lower and upper bounds of a metabolic network."""
    folder = Path(os.environ.get("DPSAMPLE_FLUX", "."))
    bounds = np.load(folder / f"{name}_bounds.npz")
    stoichiometry = sparse.csr_array(sparse.load_npz(folder / f"{name}_S.npz"))
    return stoichiometry, bounds["lower"], bounds["upper"]


def flux(name: str, bar: str, num_draws: int) -> None:
    """Sample the flux space of a network."""
    matrix, lower, upper = network(name)
    begin = clock()
    body = Polytope(
        A_eq=matrix, b_eq=np.zeros(matrix.shape[0]), lower=lower, upper=upper
    )
    built = clock() - begin
    facts, draws = reach(body, len(lower), built, num_draws)
    flat = draws.reshape(-1, len(lower))
    missed = np.abs(matrix @ flat.T)
    terms = np.abs(matrix) @ np.abs(flat).T
    ranges = np.maximum(body.support(np.eye(len(lower))) - lower, 1e-300)
    excess = np.maximum(lower - flat, flat - upper).max(axis=0)
    show(
        bar,
        **facts,
        free=body.affine_dim(len(lower)),
        residual=float(np.max(missed / np.maximum(terms, 1e-9))),
        largest_residual=float(missed.max()),
        excess=float(np.max(excess / ranges)),
        ess_per_second=1000.0 / facts["to_1000"],
    )

    def walk() -> dict[str, Any]:
        points, cpu = peers.hopsy_walk(body, len(lower), seconds=20.0)
        ess = effective(points)
        return {"draws": points.shape[:2], "ess": ess, "ess_per_second": ess / cpu}

    show_peer("hopsy on our round coordinates", walk)


@row
def textbook() -> None:
    """95 fluxes."""
    flux("textbook", "<= 1", 2000)


@row
def iJO1366() -> None:
    """2583 fluxes, of which 582 are free."""
    flux("iJO1366", "<= 40, residual <= 1e-9, excess <= 1e-9", 1000)


@row
def salmonella() -> None:
    """3357 fluxes."""
    flux("salmonella", "built and sampled, or refused with a true reason", 1000)


def ordered_polytope(dim: int, *, is_simplex: bool) -> Polytope:
    """Return 0 <= x_1 <= ... <= x_d, with sum 1 or all of them at most 1."""
    steps = sparse.diags_array(
        [np.ones(dim - 1), -np.ones(dim - 1)], offsets=[0, 1], shape=(dim - 1, dim)
    )
    lower, upper = np.full(dim, -np.inf), np.full(dim, np.inf)
    lower[0] = 0.0
    if is_simplex:
        return Polytope(steps, np.zeros(dim - 1), np.ones((1, dim)), [1.0], lower=lower)
    upper[-1] = 1.0
    return Polytope(steps, np.zeros(dim - 1), lower=lower, upper=upper)


def ordered_simplex(dim: int, bar: str, num_draws: int) -> None:
    """Compare means with those of the sorted Dirichlet distribution."""
    begin = clock()
    body = ordered_polytope(dim, is_simplex=True)
    facts, draws = reach(body, dim, clock() - begin, num_draws)
    means = np.cumsum(1.0 / np.arange(dim, 0, -1)) / dim
    error = draws.std(axis=(0, 1)) / np.sqrt(facts["ess"])
    z = (draws.mean(axis=(0, 1)) - means) / error
    show(bar, **facts, largest_z=float(np.abs(z).max()))


@row
def ordered_simplex_500() -> None:
    """500 ordered shares."""
    ordered_simplex(500, "<= 3, z <= 5", 1000)


@row
def ordered_simplex_1000() -> None:
    """1000 ordered shares."""
    ordered_simplex(1000, "<= 20, z <= 5", 1000)


@row
def ordered_cube_1000() -> None:
    """1000 ordered numbers, built from sparse and from dense rows."""
    begin = clock()
    body = ordered_polytope(1000, is_simplex=False)
    built = clock() - begin
    bounds = np.zeros((2, 1000))
    bounds[0, 0], bounds[1, -1] = -1.0, 1.0
    rows = np.vstack([body.A.toarray(), bounds])
    begin = clock()
    Polytope(rows, np.append(body.b, [0.0, 1.0]))
    show("<= 1", sparse=built, dense=clock() - begin)


def logistic(num_records: int, dim: int, domain: Domain) -> dps.Gibbs:
    """Return a logistic posterior, with a weak regularizer in the whole space."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    truth = rng.standard_normal(dim)
    labels = np.where(rng.random(num_records) < 1 / (1 + np.exp(-rows @ truth)), 1, -1)
    problem = dps.Problem(
        rows, labels, loss=dps.losses.Logistic(), domain=domain, row_bound=1.0
    )
    return dps.Gibbs(problem, k=500.0, mu=1e-3)


@row
def ball_1000() -> None:
    """Logistic posterior in a ball, next to the same in the whole space."""
    for name, domain in (("ball", Ball(3.0)), ("whole space", WholeSpace())):
        tree, cpu = draw(logistic(2000, 1000, domain), 200)
        draws = tree.posterior["theta"].values
        ess = effective(draws)
        show(
            "ball <= 2 x whole space",
            domain=name,
            cpu=cpu,
            ess=ess,
            cpu_per_1000=1000.0 * cpu / ess,
            radius=float(np.linalg.norm(draws, axis=-1).mean()),
            settled=tree.attrs.get("has_settled"),
        )


def half_square(theta: Array) -> float:
    """Half the squared length, an own energy that costs next to nothing."""
    return 0.5 * np.dot(theta, theta)


@row
def own_call() -> None:
    """Measure a call of an own density, next to a call of the function itself."""
    import numba

    target = dps.Density(energy=half_square, dim=3)
    points = np.random.default_rng(1).standard_normal((1_000_000, 3))
    compiled: Any = numba.njit(half_square)

    @numba.njit
    def call_all(points: Array, out: Array) -> None:
        for i in range(len(points)):
            out[i] = compiled(points[i])

    out = np.empty(len(points))
    call_all(points, out)
    energies(target, points)
    seconds = np.full((2, 5), np.inf)
    for i in range(5):
        begin = clock()
        energies(target, points)
        middle = clock()
        call_all(points, out)
        seconds[:, i] = middle - begin, clock() - middle
    ours, alone = seconds.min(axis=1) / len(points) * 1e6
    show(
        "beyond its own work <= 0.1 us", beyond=ours - alone, with_membership_test=ours
    )


@row
def own_compiled() -> None:
    """Compile an own density, and an own domain, up to the first energy."""

    def energy(theta: Array) -> float:
        return float(np.sum(np.log(np.cosh(theta))))

    begin = clock()
    dps.Density(energy=energy, dim=4).energy(np.zeros(4))
    density = clock() - begin

    def contains(theta: Array) -> bool:
        return bool(np.sum(theta**4) < 1.0)

    begin = clock()
    body = dps.domains.custom(contains, dim=4, interior_point=np.zeros(4))
    dps.Density(energy=half_square, dim=4, domain=body).energy(np.zeros(4))
    show("<= 0.5; <= 2", density=density, domain=clock() - begin)


def own_loss(theta: Array, data: tuple[Array, float]) -> float:
    """Mean logistic loss of signed rows, and a ridge."""
    signed, mu = data
    total = 0.0
    for margin in signed @ theta:
        total += max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    return total / len(signed) + 0.5 * mu * np.dot(theta, theta)


def own_loss_and_slope(theta: Array, data: tuple[Array, float]) -> tuple[float, Array]:
    """Return `own_loss` and its gradient."""
    signed, mu = data
    weights, total = signed @ theta, 0.0
    for i, margin in enumerate(weights):
        small = np.exp(-abs(margin))
        total += max(-margin, 0.0) + np.log1p(small)
        weights[i] = (small if margin > 0.0 else 1.0) / (1.0 + small)
    slope = mu * theta - weights @ signed / len(signed)
    return total / len(signed) + 0.5 * mu * np.dot(theta, theta), slope


def own_vector_loss(theta: Array, data: tuple[Array, float]) -> float:
    """Return the same as `own_loss`, by a vectorized function."""
    signed, mu = data
    values = dps.losses.softplus(-(signed @ theta))
    return np.mean(values) + 0.5 * mu * np.dot(theta, theta)


def own_vector_loss_and_slope(
    theta: Array, data: tuple[Array, float]
) -> tuple[float, Array]:
    """Return `own_vector_loss` and its gradient."""
    signed, mu = data
    values, weights = dps.losses.softplus_and_sigmoid(-(signed @ theta))
    slope = mu * theta - weights @ signed / len(signed)
    return np.mean(values) + 0.5 * mu * np.dot(theta, theta), slope


@row
def own_logistic() -> None:
    """Sample a logistic posterior in a ball as a `Density` and as a `Problem`."""
    target = logistic(1000, 10, Ball(3.0))
    signed = target.problem.data.response[:, None] * target.problem.data.dense
    functions = {
        "softplus": (own_vector_loss, own_vector_loss_and_slope),
        "NumPy": (own_loss, own_loss_and_slope),
    }
    for name, (energy, value_and_gradient) in functions.items():
        density = dps.Density(
            energy=energy,
            value_and_gradient=value_and_gradient,
            data=(signed, 1e-3),
            dim=10,
            domain=Ball(3.0),
            k=500.0,
        )
        rms_z, ratio = next_to_problem(density, target)
        show(
            "rms z <= 1.3, ratio of ESS per second >= 0.5",
            functions=name,
            rms_z=rms_z,
            ratio=ratio,
        )

    def with_transform() -> dict[str, Any]:
        problem = target.problem.data
        transformed = peers.ball_posterior(
            problem.dense, problem.response, 500.0, 1e-3, 3.0
        )
        return next_to_nuts(density, *transformed, free=10)

    show_peer("blackjax NUTS with a transform", with_transform)


def next_to_problem(density: dps.Density, target: dps.Gibbs) -> tuple[float, float]:
    """Return z scores over 8 seeds, and the ratio of effective draws per second."""
    draw(density, 20)
    draw(target, 20)
    z, rates = [], []
    for seed in range(8):
        means, errors, speeds = [], [], []
        for option in (density, target):
            tree, cpu = draw(option, 1000, seed=seed)
            draws = tree.posterior["theta"].values
            ess = effective(draws)
            means.append(draws.mean(axis=(0, 1)))
            errors.append(draws.var(axis=(0, 1)) / ess)
            speeds.append(ess / cpu)
        z.append((means[0] - means[1]) / np.sqrt(errors[0] + errors[1]))
        rates.append(speeds[0] / speeds[1])
    return float(np.sqrt(np.mean(np.square(z)))), float(np.median(rates))


def next_to_nuts(
    target: Any, log_density: Any, to_domain: Any, *, free: int
) -> dict[str, Any]:
    """Return effective draws per CPU second of both, warm-up included, and z scores."""
    begin = clock()
    ours = (
        dps.sample(
            target, num_draws=1000, threads=1, progress=False, check=False, seed=1
        )
        .posterior["theta"]
        .values
    )
    cpu = clock() - begin
    z, warm, drawing = peers.nuts(log_density, free)
    theirs = to_domain(z)
    ess = effective(ours), effective(theirs)
    error = np.sqrt(ours.var(axis=(0, 1)) / ess[0] + theirs.var(axis=(0, 1)) / ess[1])
    gap = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / error
    return {
        "ours_per_second": ess[0] / cpu,
        "nuts_per_second": ess[1] / (warm + drawing),
        "nuts_without_warmup": ess[1] / drawing,
        "ours_ess": ess[0],
        "nuts_ess": ess[1],
        "largest_z": float(gap.max()),
    }


def effects_log_likelihood(effects: Array, data: tuple[Array, Array]) -> float:
    """Binomial log likelihood of cured among treated patients."""
    treated, cured = data
    failed = treated - cured
    return np.sum(cured * np.log(effects) + failed * np.log(1.0 - effects))


@row
def ordered_effects() -> None:
    """Effects of twelve doses, which do not fall with the dose."""
    treated = np.full(12, 20.0)
    cured = np.array([2.0, 4.0, 4.0, 3.0, 6.0, 9.0, 9.0, 8.0, 12.0, 13.0, 17.0, 19.0])
    rises = -np.diff(np.eye(12), axis=0)
    body = Polytope(rises, np.zeros(11), lower=0.0, upper=1.0)
    target = dps.Density(
        log_density=effects_log_likelihood, data=(treated, cured), dim=12, domain=body
    )
    _, cpu = draw(target, 1000)
    show("12 coefficients", cpu=cpu)

    def with_transform() -> dict[str, Any]:
        transformed = peers.ordered_posterior(treated, cured)
        return next_to_nuts(target, *transformed, free=12)

    show_peer("blackjax NUTS with a transform", with_transform)


def half_squares(weights: Array, data: tuple[Array, Array]) -> float:
    """Energy of measured mixtures."""
    spectra, measured = data
    errors = measured - spectra @ weights
    return 0.5 * np.sum(errors**2) / 0.2**2


def half_squares_slope(weights: Array, data: tuple[Array, Array]) -> Array:
    """Gradient of `half_squares`."""
    spectra, measured = data
    return (spectra @ weights - measured) @ spectra / 0.2**2


@row
def simplex_regression() -> None:
    """Weights of a mixture of ten spectra, of which seven are absent."""
    rng = np.random.default_rng(1)
    spectra = rng.gamma(2.0, size=(50, 10))
    truth = np.append([0.5, 0.3, 0.2], np.zeros(7))
    measured = spectra @ truth + 0.2 * rng.standard_normal(50)
    target = dps.Density(
        energy=half_squares,
        gradient=half_squares_slope,
        data=(spectra, measured),
        dim=10,
        domain=Simplex(),
    )
    _, cpu = draw(target, 1000)
    show("10 coefficients", cpu=cpu)

    def with_transform() -> dict[str, Any]:
        transformed = peers.simplex_posterior(spectra, measured, 0.2)
        return next_to_nuts(target, *transformed, free=9)

    show_peer("blackjax NUTS with a transform", with_transform)


@row
def pymc_model() -> None:
    """Means of eight schools: a PyMC model by the bridge, and NUTS."""

    def with_bridge() -> dict[str, Any]:
        model = peers.pymc_schools()
        bridge = dps.interop.from_pymc(model)
        options: dict[str, Any] = {"threads": 1, "progress": False, "check": False}
        dps.sample(bridge.density, num_draws=20, seed=2, **options)
        begin = clock()
        tree = dps.sample(bridge.density, num_draws=1000, seed=1, **options)
        cpu = clock() - begin
        ours = np.asarray(bridge.unpack(tree).posterior["effect"].values)
        facts = {"ours_ess": effective(ours), "ours_per_second": effective(ours) / cpu}
        others = {"pymc": lambda: peers.pymc_nuts(model), "numpyro": peers.numpyro_nuts}
        for name, measure in others.items():
            theirs, warm, drawing = measure()
            ess = effective(ours), effective(theirs)
            square = ours.var(axis=(0, 1)) / ess[0] + theirs.var(axis=(0, 1)) / ess[1]
            gap = ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))
            facts |= {
                f"{name}_ess": ess[1],
                f"times_{name}": (ess[0] / cpu) / (ess[1] / (warm + drawing)),
                f"times_{name}_without_warmup": (ess[0] / cpu) / (ess[1] / drawing),
                f"z_{name}": float(np.abs(gap / np.sqrt(square)).max()),
            }
        return facts

    show_peer("NUTS of PyMC and numpyro on the same model", with_bridge)


def main() -> None:
    """Print the rows that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    names = parser.parse_args().rows or list(ROWS)
    with threadpool_limits(1):
        load_kernels()
        for name in names:
            print(name, flush=True)
            ROWS[name]()


if __name__ == "__main__":
    main()
