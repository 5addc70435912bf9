r"""Exact distributions of targets, independent draws of them, distances to samples.

A *reference* is what draws are compared with. It is the first of these that is
possible: a closed form for a quadratic energy (a Gaussian on the whole space or a box),
quadrature in dimension 1 and 2, independent exact draws in dimension up to 3 and for
Gaussians in balls, or independent ends of proximal chains with a proved error. A *view*
is a function of points whose distribution is compared, a coordinate or the energy.

**Distances** of a sample have limits that hold for any number of independent points.
They rest on Massart's constant in the inequality of Dvoretzky, Kiefer and Wolfowitz
(DKW), and on McDiarmid's inequality.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Ints
from dpsample.core.streams import Seed, streams
from dpsample.diagnostics.couplings.meeting import run_all
from dpsample.diagnostics.summaries import read
from dpsample.numerics.r_hat_and_ess import plain_sizes
from dpsample.samplers import quadrature
from dpsample.samplers.chain import NUM_STATS, Prepared
from dpsample.samplers.choice import draws_exactly
from dpsample.samplers.exact import exact
from dpsample.samplers.exact.exact import KIND, Exact
from dpsample.samplers.proximal.proximal import Proximal
from dpsample.samplers.sampler import Sampler
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import energies
from dpsample.targets.reduced import has_equalities

if TYPE_CHECKING:
    from xarray import DataTree

# Distance of draws in a chain that count as independent, in integrated autocorrelation
# times.
SPACING = 2.0
# Probability with which a test sees the smallest discrepancy that it reports.
POWER = 0.9
# Panels of the fine grid of the quadrature in each dimension. The coarse one has half.
NUM_PANELS = 24
# If the mean of a Gaussian is more standard deviations than this outside a box, the
# moments that SciPy computes are rounding errors.
FAR = 30.0
# References that are samples.
DRAWN = ("exact draws", "proximal")
REFERENCES = ("auto", "closed form", "quadrature", "exact draws", "proximal")

View = Callable[[Array], Array]


def end_of(
    prepared: Prepared, num_draws: int
) -> Callable[[np.random.Generator], Array]:
    """Return a function from a stream to the last of ``num_draws`` draws of a chain.

    The chain starts where `sample` would start it.
    """
    runner = prepared.runner()

    def end(rng: np.random.Generator) -> Array:
        start: Array = prepared.draw_start(rng)
        draws = np.empty((num_draws, start.size))
        runner(prepared.init(start), rng, draws, np.empty((num_draws, NUM_STATS)))
        return np.array(draws[-1])

    return end


def replicates(
    sampler: Sampler,
    target: Gibbs,
    count: int,
    *,
    num_draws: int | None,
    seed: Seed,
    threads: int | None,
) -> tuple[Array, str]:
    """Return independent ends of chains as `sample` starts them, and a description.

    ``num_draws`` is the length of each chain, by default one more than its warm-up.
    """
    tuning, *rest = streams(seed, count + 1)
    prepared = sampler.prepare(target, tuning)
    steps = prepared.num_warmup + 1 if num_draws is None else num_draws
    points = np.array(run_all(end_of(prepared, steps), rest, threads))
    return points, f"{count} independent chains of {sampler!r}, draw {steps} of each"


def independent(draws: DataTree | Array) -> tuple[Array, str]:
    """Return points that may count as independent, and a description of them.

    An array is taken as it is. Chains are thinned to one draw in two integrated
    autocorrelation times of the slowest coordinate or square.
    """
    theta, is_independent = chains_of(draws)
    points = theta.reshape(-1, theta.shape[2])
    if is_independent:
        return points, f"{len(points)} points, taken as independent"
    size = smallest_ess(theta)
    if not size > 0.0:
        check.fail("draws", "moving", "a coefficient that never moved", "Use `check`.")
    chains, length, dim = theta.shape
    stride = max(1, int(np.ceil(SPACING * chains * length / size)))
    points = theta[:, ::stride].reshape(-1, dim)
    return points, (
        f"{len(points)} draws, one in {stride} of {chains} chains: nearly independent "
        "if the chains mix, so the level is approximate"
    )


def smallest_ess(theta: Array) -> float:
    """Return the smallest effective sample size of a coordinate or its square.

    It is 0 if one of them is constant. ``theta`` has the shape (chain, draw, dim).
    """
    squares = (theta - theta.mean(axis=(0, 1))) ** 2
    functions = np.concatenate((theta, squares), axis=2)
    if (np.ptp(functions, axis=(0, 1)) == 0.0).any():
        return 0.0
    return float(np.min(plain_sizes(functions)))


def effective_size(values: Array) -> float:
    """Return the effective sample size for the mean of values (chain, draw).

    It is NaN if they are constant.
    """
    if np.ptp(values) == 0.0:
        return float("nan")
    return float(plain_sizes(values[:, :, None])[0])


def chains_of(draws: DataTree | Array) -> tuple[Array, bool]:
    """Return draws (chain, draw, dim), and whether they count as independent."""
    if not isinstance(draws, np.ndarray):
        return read(draws).theta, draws.attrs.get("exactness") == "iid"
    if draws.size == 0:
        check.fail("draws", "non-empty", f"shape {draws.shape}")
    if draws.ndim == 3:
        return check.array("draws", draws, shape=(None, None, None)), False
    return check.array("draws", draws, shape=(None, None))[None], True


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Points with probabilities, and those of a grid with half as many panels.

    The difference of results of both is an estimate of the error of the fine one.
    """

    points: Array  # (num_points, dim)
    weights: Array  # (num_points,)
    coarse: tuple[Array, Array]  # points and weights of the coarse grid
    whiten: Array  # (1 or 2, dim): to coordinates of about unit variance

    def mean(self, function: View) -> Array:
        """Return the expectation of a function of points."""
        return np.asarray(np.tensordot(self.weights, function(self.points), 1))


def grid(target: Gibbs) -> Grid:
    """Return the grid of a target whose domain has dimension 1 or 2."""
    origin, factor = quadrature.mean_and_factor([target])
    fine, coarse = (
        quadrature.discretize([target], origin, factor, num_panels=panels)
        for panels in (NUM_PANELS, NUM_PANELS // 2)
    )
    return Grid(
        points=fine[0],
        weights=fine[1][0],
        coarse=(coarse[0], coarse[1][0]),
        whiten=np.asarray(np.linalg.pinv(factor), dtype=np.float64),
    )


def step_function(values: Array, weights: Array) -> Callable[[Array], Array]:
    """Return the distribution function of weighted points, linear between them."""
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    # Half of a point's weight lies on either side of it.
    return lambda x: np.interp(x, values[order], heights - 0.5 * weights[order])


@dataclass(frozen=True, kw_only=True, eq=False)
class ClosedForm:
    """Normal or truncated normal coordinates of a quadratic energy."""

    mean: Array  # (dim,), of each coordinate
    variance: Array  # (dim,)
    coordinates: list[Any]  # frozen distributions of scipy, one per coordinate
    excess: Any  # distribution of V - min V, known on the whole space: Gamma(dim / 2)
    lowest: float  # min V, NaN if ``excess`` is None


def closed_form(target: Gibbs) -> ClosedForm | None:
    """Return the closed form of a target, or None."""
    plan = exact.quadratic(target)
    if plan is None or plan.kind not in (KIND.whole, KIND.correlated, KIND.in_box):
        return None
    from scipy import stats

    if plan.kind == KIND.in_box:
        low = (plan.lower - plan.mean) / plan.deviations
        high = (plan.upper - plan.mean) / plan.deviations
        if (np.maximum(low, -high) > FAR).any():
            return None  # far tails, where scipy's moments are rounding errors
        sides = zip(low, high, plan.mean, plan.deviations, strict=True)
        laws = [stats.truncnorm(a, b, loc=m, scale=s) for a, b, m, s in sides]
        excess, lowest = None, np.nan
    else:
        spread = plan.deviations
        if plan.kind == KIND.correlated:
            spread = np.sqrt((plan.factor**2).sum(axis=1))
        laws = [stats.norm(m, s) for m, s in zip(plan.mean, spread, strict=True)]
        excess, lowest = stats.gamma(0.5 * target.dim), target.energy(plan.mean)
    return ClosedForm(
        mean=np.array([law.mean() for law in laws]),
        variance=np.array([law.var() for law in laws]),
        coordinates=laws,
        excess=excess,
        lowest=lowest,
    )


def choose(target: Gibbs, reference: str) -> str:
    """Return the name of the reference: the one that was passed, or the first possible.

    Raise if the target has none, or does not have the one that was passed.
    """
    check.one_of(REFERENCES, reference=reference)
    rank = target.domain.affine_dim(target.dim)
    can: dict[str, Callable[[], bool]] = {
        "closed form": lambda: closed_form(target) is not None,
        "quadrature": lambda: rank in (1, 2),
        "exact draws": lambda: draws_exactly(target),
        "proximal": lambda: (
            not has_equalities(target) and Proximal().supports(target)[0]
        ),
    }
    if reference != "auto":
        if not can[reference]():
            check.fail("reference", "possible for the target", reference, 'Use "auto".')
        return reference
    for name, is_possible in can.items():
        if is_possible():
            return name
    remedy = "Use stein_check, which needs none."
    return check.fail("target", "one with an exact reference", target, remedy)


def drawer(
    target: Gibbs, name: str, error: float, rng: np.random.Generator
) -> Callable[[np.random.Generator], Array]:
    """Return a function from a stream to one draw, of shape (dim,).

    ``name`` is one of `DRAWN`, ``error`` bounds the total variation of a draw that is
    not exact, and ``rng`` is the stream of the preparation.
    """
    if name == "exact draws":
        return end_of(Exact().prepare(target, rng), 1)
    chain = Proximal().prepare(target, rng, gamma=error)
    return end_of(chain, chain.certified_steps(error))


def names(target: Gibbs) -> tuple[str, ...]:
    """Return the names of the coordinates."""
    return tuple(f"theta[{name}]" for name in target.feature_names)


def views(target: Gibbs) -> dict[str, View]:
    """Return all views by name: the coordinates and the energy."""
    coordinates = {name: coordinate(j) for j, name in enumerate(names(target))}
    return coordinates | {"energy": lambda points: energies(target, points)}


def coordinate(j: int) -> View:
    """Return the view of one coordinate."""
    return lambda points: points[:, j]


class Interval(NamedTuple):
    """Estimate with limits."""

    estimate: float
    lower: float
    upper: float


def kolmogorov(values: Array, cdf: Callable[[Array], Array]) -> float:
    """Return the largest difference of the sample's distribution function and another.

    That of the sample jumps at each value, so both sides of every jump are compared.
    """
    # The sample's function is i/n before the i-th value and (i + 1)/n after it.
    ordered, size = np.sort(values), len(values)
    level, ranks = cdf(ordered), np.arange(size + 1) / size
    return float(max((ranks[1:] - level).max(), (level - ranks[:-1]).max(), 0.0))


def two_sample_kolmogorov(first: Array, second: Array) -> float:
    """Return the largest difference of the distribution functions of two samples."""
    a, b = np.sort(first), np.sort(second)
    pooled = np.concatenate((a, b))
    gap = np.searchsorted(a, pooled, "right") / len(a)
    return float(np.abs(gap - np.searchsorted(b, pooled, "right") / len(b)).max())


def p_value(distance: float, size: int, other: int | None = None) -> float:
    """Return a bound of the probability of so large a distance between equal laws.

    Against an exact distribution it is 2 exp(-2 size distance^2), by DKW. Between two
    samples one of the two distribution functions is off by at least its share of the
    distance, where shares are as the square roots of the inverse sizes. This makes both
    terms equal.
    """
    if other is None:
        return min(1.0, 2.0 * math.exp(-2.0 * size * distance**2))
    scale = 1.0 / math.sqrt(size) + 1.0 / math.sqrt(other)
    return min(1.0, 4.0 * math.exp(-2.0 * (distance / scale) ** 2))


def threshold(level: float, size: int, other: int | None = None) -> float:
    """Return the distance whose `p_value` is the level."""
    if other is None:
        return math.sqrt(math.log(2.0 / level) / (2.0 * size))
    scale = 1.0 / math.sqrt(size) + 1.0 / math.sqrt(other)
    return scale * math.sqrt(math.log(4.0 / level) / 2.0)


def cells(points: Array, weights: Array, size: int) -> Callable[[Array], Ints]:
    """Return a function that maps points to numbers of cells of a partition.

    The line or plane is cut into cells of about equal probability, as many as a sample
    of the given size can fill. In the plane, strips in the first coordinate are cut in
    the second one.
    """
    # There are 25 points of the sample in a cell on average, and at most 64 cells.
    number = int(np.clip(size // 25, 2, 64))
    if points.shape[1] == 1:
        cuts = quantiles(points[:, 0], weights, number)
        return lambda x: np.asarray(np.searchsorted(cuts, x[:, 0]))
    side = max(2, math.isqrt(number))
    outer = quantiles(points[:, 0], weights, side)
    column = np.searchsorted(outer, points[:, 0])
    inner = np.array(
        [
            quantiles(points[column == i, 1], weights[column == i], side)
            for i in range(side)
        ]
    )

    def number_of(x: Array) -> Ints:
        i = np.searchsorted(outer, x[:, 0])
        return np.asarray(i * side + (x[:, 1, None] > inner[i]).sum(axis=1))

    return number_of


def quantiles(values: Array, weights: Array, number: int) -> Array:
    """Return the cuts of weighted values into parts of about equal weight.

    There are ``number`` parts, and one cut less.
    """
    order = np.argsort(values)
    heights = np.cumsum(weights[order]) / weights.sum()
    # Each cut is the first value up to which a whole number of parts lies.
    at = np.searchsorted(heights, np.arange(1, number) / number)
    return np.asarray(values[order][at])


def total_variation(counts: Array, probabilities: Array, error: float) -> Interval:
    r"""Return the total variation on a partition, with limits of the given error each.

    For n points in K cells the estimate :math:`\frac12 \sum |\hat p_i - q_i|` is within
    sqrt(log(1 / error) / 2n) of its mean, by McDiarmid's inequality. The mean is at
    least the distance on the partition, and exceeds it by at most :math:`\frac12 \sum
    \sqrt{p_i (1 - p_i) / n} \le \frac12 \sqrt{(K - 1)/n}`. The lower limit also holds
    for the total variation itself, which is not less than that on a partition.
    """
    size = float(counts.sum())
    estimate = 0.5 * float(np.abs(counts / size - probabilities).sum())
    swing = math.sqrt(math.log(1.0 / error) / (2.0 * size))
    # Half the sum of the standard deviations of all shares is at most this, by Cauchy
    # and Schwarz.
    noise = 0.5 * math.sqrt((len(counts) - 1) / size)
    return Interval(
        estimate=estimate,
        lower=max(0.0, estimate - swing - noise),
        upper=min(1.0, estimate + swing),
    )


def wasserstein(
    values: Array, points: Array, weights: Array, *, width: float, error: float
) -> Interval:
    """Return the Wasserstein-1 distance of one coordinate, with limits of an error.

    It is the integral of the absolute difference of distribution functions. A DKW band
    of half-width b moves it by at most b times the ``width`` of the domain in this
    coordinate, so limits are finite if the width is.
    """
    from scipy.stats import wasserstein_distance

    estimate = float(wasserstein_distance(values, points, v_weights=weights))
    swing = width * threshold(error, len(values))
    return Interval(
        estimate=estimate, lower=max(0.0, estimate - swing), upper=estimate + swing
    )
