"""Schatten noise: quadrature in the singular values, three exact proposals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi, norm

from dpsample.core.streams import streams
from dpsample.noise import (
    SchattenGaussian,
    schatten_gaussian,
    schatten_gaussian_mechanism,
    schatten_plan,
)
from dpsample.noise.cone import (
    METHOD,
    SchattenPlan,
    _propose,
    fill_schatten_rows,
    log_acceptance,
)
from dpsample.noise.schatten import wishart_bound
from dpsample.numerics.norms import schatten
from dpsample.privacy import Budget
from tests.support.statistics import (
    assert_law,
    assert_mean,
    assert_same_law,
    cdf_from_log_density,
    rejected,
)
from tests.support.tiers import one_in, usual

INF = math.inf
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 10.0, INF)
NUM_DRAWS = 41_000


def ratio_cdf(k, r):
    """Law of t_2 / t_1 for 2 x k matrices: the spectrum's density in its direction."""
    nodes = np.linspace(0.0, 1.0, 20_001)

    def log_density(x):
        x = np.maximum(x, 1e-30)
        norm = np.zeros_like(x) if np.isinf(r) else np.log1p(x**r) / r
        return (
            (k - 2.0) * np.log(x)
            + np.log1p(-(np.minimum(x, 1 - 1e-15) ** 2))
            - 2 * k * norm
        )

    return cdf_from_log_density(log_density, nodes)


def spectra(z):
    return np.linalg.svd(z, compute_uv=False)


@usual("1.0-shape0")
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 6)])
@pytest.mark.parametrize("r", EXPONENTS)
def test_two_singular_values_agree_with_quadrature(r, shape):
    z = schatten_gaussian(streams(451, 1)[0], size=(NUM_DRAWS, *shape), r=r, sigma=1.3)
    dim = shape[0] * shape[1]
    size = schatten(z.reshape(-1, dim), r, shape)
    t = spectra(z)
    assert_law(size / 1.3, chi(dim).cdf)
    cdf = ratio_cdf(max(shape), r)
    assert_law(t[:, 1] / t[:, 0], cdf)
    is_large = size > np.median(size)
    assert_law((t[:, 1] / t[:, 0])[is_large], cdf)


def test_wrong_spectra_are_rejected():
    def ratio(shape, r):
        t = spectra(
            schatten_gaussian(streams(452, 1)[0], size=(NUM_DRAWS, *shape), r=r)
        )
        return t[:, 1] / t[:, 0]

    for wrong in (1.2, 2.0):
        with rejected():
            assert_law(ratio((2, 6), wrong), ratio_cdf(6, 1.0))
    with rejected():
        assert_law(ratio((2, 2), 2.0), ratio_cdf(2, 4.0))
    # Singular values drawn as a vector of the l_r ball, without their repulsion.
    t = np.sort(np.abs(np.random.default_rng(453).laplace(size=(NUM_DRAWS, 2))))
    with rejected():
        assert_law(t[:, 0] / t[:, 1], ratio_cdf(2, 1.0))


@usual("1.0")
@pytest.mark.parametrize("r", [1.0, 4.0, INF])
def test_singular_vectors_are_uniform(r):
    z = schatten_gaussian(streams(454, 1)[0], size=(NUM_DRAWS, 2, 2), r=r)
    left, _, right = np.linalg.svd(z)
    for vectors in (left[:, :, 0], right[:, 0, :]):
        angle = np.arctan2(vectors[:, 1], vectors[:, 0]) % np.pi
        assert_law(angle / np.pi, lambda x: np.clip(x, 0.0, 1.0))
    with rejected():
        diagonal = np.diagonal(z, axis1=1, axis2=2)
        assert_same_law(z[:, 0, 1], 1.3 * diagonal[:, 0])
    assert_same_law(z[:, 0, 1], z[:, 1, 1])
    turned = (z[:, 0, 0] + z[:, 1, 0]) / math.sqrt(2.0)
    assert_same_law(turned, z[:, 0, 0])
    assert_mean(np.linalg.det(z) > 0.0, 0.5, 0.25, detects=0.064)


def plan_of(shape, r, method, dof=None):
    """Plan with a method of our choice."""
    m, k = sorted(shape)
    if method == METHOD.wishart and r < 2.0:
        bound = wishart_bound(m, k, dof, r)
    else:
        bound = (
            m * k * (0.5 - 1.0 / r) * math.log(m) if method == METHOD.wishart else 0.0
        )
    return SchattenPlan(r, *shape, method, float(k if dof is None else dof), bound, 0.0)


def drawn_spectra(plan, seed, num_draws=20_000):
    """Singular values of draws by one plan, over their l_r norm."""
    shape = plan[1:3]
    out = np.empty((num_draws, shape[0] * shape[1]))
    fill_schatten_rows(streams(seed, 1)[0], plan, 1.0, out)
    return spectra(out.reshape(-1, *shape)) / schatten(out, plan.r, shape)[:, None]


@usual("shape0")
@pytest.mark.parametrize(
    ("shape", "r", "first", "second"),
    [
        ((3, 3), 1.5, (METHOD.wishart, 3.0), (METHOD.ordered, None)),
        ((3, 5), 1.0, (METHOD.wishart, 3.2), (METHOD.ordered, None)),
        ((4, 3), 3.0, (METHOD.wishart, None), (METHOD.operator, None)),
        ((3, 3), 4.0, (METHOD.ordered, None), (METHOD.operator, None)),
    ],
)
def test_proposals_give_the_same_law(shape, r, first, second):
    one, two = (plan_of(shape, r, *choice) for choice in (first, second))
    t, s = drawn_spectra(one, 455), drawn_spectra(two, 456)
    for column in (0, 2):
        assert_same_law(t[:, column], s[:, column])
    # Independent singular values of the same norm: no repulsion.
    wrong = np.random.default_rng(466).standard_gamma(1.0 / r, s.shape) ** (1.0 / r)
    wrong = -np.sort(-wrong / (wrong**r).sum(axis=1, keepdims=True) ** (1.0 / r))
    with rejected():
        assert_same_law(wrong[:, 0], s[:, 0])
    other = drawn_spectra(two._replace(num_columns=6, num_rows=3), 467)
    with rejected():
        assert_same_law(other[:, 2], s[:, 2])


@pytest.mark.slow
def test_uniform_matrices_of_the_operator_ball_at_every_size():
    rng = np.random.default_rng(457)
    box = rng.uniform(-1.0, 1.0, (1_500_000, 2, 3))
    t = spectra(box[(box**2).sum(axis=(1, 2)) <= 2.0])
    t = t[t[:, 0] <= 1.0]
    plan = schatten_plan((2, 3), INF)
    ours = drawn_spectra(plan, 458, 30_000)
    assert_same_law(ours[:, 1], t[:, 1] / t[:, 0])
    big = schatten_gaussian(streams(459, 1)[0], size=(20, 30, 40), r=INF)
    size = spectra(big)[:, 0]
    assert (np.abs(size - math.sqrt(1200.0)) < 6.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (4, 4), (5, 5), (3, 20)])
@pytest.mark.parametrize("r", [1.0, 1.5, 3.0, 4.0, 10.0])
def test_acceptance_is_the_ratio_of_the_volumes(shape, r):
    plan = schatten_plan(shape, r)
    rng, t, accepted = streams(460, 1)[0], np.empty(min(shape)), []
    for _ in range(6000):
        _propose(rng, plan, t)
        log_ratio = log_acceptance(plan, t)
        assert log_ratio <= 1e-12
        accepted.append(rng.standard_exponential() >= -log_ratio)
    share = plan.acceptance
    assert_mean(np.array(accepted, float), share, share * (1 - share), detects=0.17)


@pytest.mark.slow
def test_acceptance_of_the_first_construction():
    # Gaussian proposals for 2 x 3 and r = 4 accept 58 in 100.
    plan = plan_of((2, 3), 4.0, METHOD.wishart)
    rng, t, accepted = streams(461, 1)[0], np.empty(2), []
    for _ in range(20_000):
        _propose(rng, plan, t)
        accepted.append(math.exp(log_acceptance(plan, t)))
    assert np.mean(accepted) == pytest.approx(2.0 - math.sqrt(2.0), abs=0.01)


@one_in(2)
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 9), (4, 7), (5, 40)])
def test_log_acceptance_is_never_positive(shape):
    m = min(shape)
    rng = np.random.default_rng(462)
    for r in (1.0, 1.2, 1.7, 2.0, 2.5, 6.0, INF):
        for plan in (
            schatten_plan(shape, r),
            plan_of(shape, min(r, 50.0), METHOD.ordered),
        ):
            for spread in (0.0, 1e-8, 0.1, 1.0, 5.0):
                for _ in range(40):
                    t = np.exp(spread * rng.standard_normal(m))
                    t = -np.sort(-np.where(rng.random(m) < 0.5, t, t[0]))
                    assert log_acceptance(plan, t) <= 1e-12


def test_vectors_and_exponent_two_are_the_known_laws():
    for r in (1.0, 3.0, INF):
        z = schatten_gaussian(streams(463, 1)[0], size=(NUM_DRAWS, 1, 4), r=r)
        assert_law(z[:, 0, 0], norm.cdf)
    z = schatten_gaussian(streams(464, 1)[0], size=(5, 30, 20), r=2.0)
    expected = streams(464, 1)[0].standard_normal((5, 30, 20))
    np.testing.assert_array_equal(z, expected)


def test_flattened_draws_are_those_of_the_matrices():
    noise = SchattenGaussian(3.0, sigma=0.2, shape=(2, 3))
    flat = noise.draw(streams(465, 1)[0], (4, 5, 6))
    z = schatten_gaussian(streams(465, 1)[0], size=(4, 5, 2, 3), r=3.0, sigma=0.2)
    np.testing.assert_array_equal(flat.reshape(4, 5, 2, 3), z)


def test_impractical_sizes_are_refused_with_a_remedy():
    for shape, r in (((8, 8), 1.0), ((20, 20), 3.0), ((30, 30), 1.5)):
        with pytest.raises(ValueError, match=r"shape must be small enough.*Use r = 2"):
            schatten_plan(shape, r)
        with pytest.raises(ValueError, match="small enough"):
            schatten_gaussian(streams(0, 1)[0], size=shape, r=r)
    assert schatten_plan((30, 30), INF).acceptance == 1.0
    # Without an accurate volume, the least value of the ratio decides.
    assert schatten_plan((20, 20), 1e4).acceptance > 0.8
    for bad in ((2,), "ab", (0, 2), (2, 2.5), 3):
        with pytest.raises(ValueError, match="shape"):
            schatten_plan(bad, 1.0)
    with pytest.raises(ValueError, match="r must be >= 1"):
        schatten_plan((2, 2), 0.5)
    noise = SchattenGaussian(1.0, 1.0, (2, 2))
    for call in (
        lambda: noise.draw(streams(0, 1)[0], 3),
        lambda: noise.log_density([1.0]),
    ):
        with pytest.raises(ValueError, match=r"must be of shape \(..., 4\)"):
            call()


def test_sides_for_which_nothing_is_accurate_are_refused_at_once():
    with pytest.raises(ValueError, match="small enough"):
        schatten_plan((50_000, 50_000), 4.0)


def test_calls_are_short_where_few_spectra_are_accepted(monkeypatch):
    """Of 8 x 8 matrices for r = 3, one in 500: a call of 20 ms holds one or two."""
    counts = []

    def fill(rng, plan, sigma, rows):
        counts.append(len(rows))

    monkeypatch.setattr("dpsample.noise.schatten.fill_schatten_rows", fill)
    schatten_gaussian(streams(0, 1)[0], size=(300, 8, 8), r=3.0)
    schatten_gaussian(streams(0, 1)[0], size=(300, 8, 8), r=INF)
    assert counts[:-1] == [1] * 300
    assert counts[-1] == 300


def test_small_integers_of_numpy_do_not_wrap():
    shape = np.int8(16), np.int8(17)
    mechanism = schatten_gaussian_mechanism(
        Budget(epsilon=1.0, delta=1e-6), shape=shape, sensitivity=1.0, p=2.0, r=2.0
    )
    assert mechanism.dim == 272


def test_a_plan_of_a_huge_exponent_does_not_ask_for_the_callers_floating_mode():
    with np.errstate(all="raise"):
        assert 0.99 < schatten_plan((2, 3), 1.7e308).acceptance <= 1.0
