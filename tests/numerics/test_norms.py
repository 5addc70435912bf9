"""Norms: values, duality, conversion constants, extremes, sparse rows, kernels."""

import itertools
import math

import numpy as np
import pytest
from scipy import sparse

from dpsample.numerics import norms

EXPONENTS = (1.0, 1.3, 2.0, 3.0, 7.0, math.inf)


@pytest.mark.parametrize("p", EXPONENTS)
def test_norm_and_kernel_agree_with_numpy(p):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(6, 5))
    center = rng.normal(size=5)
    expected = np.linalg.norm(rows, ord=p, axis=1)
    np.testing.assert_allclose(norms.norm(rows, p), expected, rtol=1e-14)
    np.testing.assert_allclose(norms.norm(rows.T, p, axis=0), expected, rtol=1e-14)
    for row in rows:
        wanted = np.linalg.norm(row - center, ord=p)
        assert norms.distance(row, center, p) == pytest.approx(wanted, rel=1e-14)


def test_extreme_rows_have_the_norms_of_numbers_without_bounds():
    rows = [[3e200, 4e200], [3e-200, -4e-200], [0.0, 0.0], [np.inf, 1.0]]
    rows += [[np.nan, 1.0], [1.0, np.nan]]
    expected = [5e200, 5e-200, 0.0, np.inf, np.nan, np.nan]
    np.testing.assert_allclose(norms.norm(rows, 2.0), expected, rtol=1e-14)
    largest = [4e200, 4e-200, 0.0, np.inf, np.nan, np.nan]
    assert np.array_equal(norms.norm(rows, math.inf), largest, equal_nan=True)


@pytest.mark.parametrize("p", EXPONENTS)
def test_norm_of_sparse_rows_equals_dense(p):
    rows = sparse.random_array((20, 7), density=0.3, rng=np.random.default_rng(2))
    csr = (rows - 2.0 * rows.power(2)).tocsr()
    np.testing.assert_allclose(
        norms.norm(csr, p), norms.norm(csr.toarray(), p), rtol=1e-14
    )


def test_repeated_entries_of_sparse_rows_are_added_first():
    parts = (np.array([3.0, -2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 3]))
    for kind in (sparse.csr_array, sparse.csr_matrix):
        rows = kind(parts, shape=(1, 3))
        assert norms.norm(rows, 1.0).tolist() == [5.0]
        assert norms.norm(rows, math.inf).tolist() == [4.0]
        assert rows.nnz == 3


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_norm_neither_overflows_nor_underflows(p, scale):
    v = np.array([3.0, -4.0, 0.0])
    wanted = scale * np.linalg.norm(v, ord=p)
    assert norms.norm(scale * v, p) == pytest.approx(wanted, rel=1e-13)
    computed = norms.distance(scale * v, np.zeros(3), p)
    assert computed == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("p", EXPONENTS)
def test_kernel_never_hides_what_is_not_finite(p):
    zero = np.zeros(3)
    for position in range(3):
        bad = np.ones(3)
        for value in (np.nan, np.inf, -np.inf):
            bad[position] = value
            assert math.isnan(norms.distance(bad, zero, p))
    assert norms.distance(zero, zero, p) == 0.0


@pytest.mark.parametrize("p", EXPONENTS)
def test_holder_inequality_is_attained(p):
    rng = np.random.default_rng(3)
    v = rng.normal(size=6)
    q = norms.dual(p)
    for _ in range(50):
        x = rng.normal(size=6)
        assert v @ x <= norms.norm(v, p) * norms.norm(x, q) * (1 + 1e-14)
    if math.isinf(p):
        x = np.where(np.abs(v) == np.abs(v).max(), np.sign(v), 0.0)
    else:
        x = np.sign(v) * np.abs(v) ** (p - 1.0)
    assert v @ x == pytest.approx(norms.norm(v, p) * norms.norm(x, q), rel=1e-12)


@pytest.mark.parametrize("pair", list(itertools.product(EXPONENTS, EXPONENTS)))
def test_conversion_bounds_every_ratio_and_is_attained(pair):
    rng = np.random.default_rng(4)
    start, end = pair
    constant = norms.conversion(5, start, end)
    v = rng.normal(size=(200, 5))
    ratios = norms.norm(v, end) / norms.norm(v, start)
    assert (ratios <= constant * (1 + 1e-14)).all()
    extreme = np.vstack([np.ones(5), np.eye(5)[0]])
    attained = (norms.norm(extreme, end) / norms.norm(extreme, start)).max()
    assert attained == pytest.approx(constant, rel=1e-14)


def test_schatten_agrees_with_numpy():
    rng = np.random.default_rng(5)
    flat = rng.normal(size=(4, 6))
    for p, name in ((1.0, "nuc"), (2.0, "fro"), (math.inf, 2)):
        expected = [np.linalg.norm(m.reshape(3, 2), ord=name) for m in flat]
        np.testing.assert_allclose(
            norms.schatten(flat, p, (3, 2)), expected, rtol=1e-13
        )
    assert norms.schatten(flat[0], 3.0, (3, 2)) == pytest.approx(
        norms.schatten(flat[0].reshape(3, 2).T.ravel(), 3.0, (2, 3)), rel=1e-13
    )


@pytest.mark.slow
def test_decomposition_rebuilds_the_matrix():
    flat = np.random.default_rng(6).normal(size=12)
    out = np.full(12, np.nan)
    norms.write_product(*norms.thin_svd(flat, 4, 3), out)
    np.testing.assert_allclose(out, flat, atol=1e-14)


@pytest.mark.slow
def test_compiled_equals_interpreted():
    rng = np.random.default_rng(7)
    x, direction, center = rng.normal(size=(3, 5))
    plain = getattr(norms.norm_along, "py_func", norms.norm_along)
    for p in EXPONENTS:
        compiled = norms.norm_along(x, direction, 0.3, center, p)
        assert compiled == pytest.approx(plain(x, direction, 0.3, center, p), rel=1e-14)


@pytest.mark.parametrize("bad", [0.5, -1.0, math.nan, "2", True, None])
def test_bad_exponents_are_refused(bad):
    for call in (
        lambda: norms.dual(bad),
        lambda: norms.norm([1.0], bad),
        lambda: norms.conversion(2, bad, 1.0),
        lambda: norms.conversion(2, 1.0, bad),
    ):
        with pytest.raises(ValueError, match=r"p must be >= 1, got "):
            call()


def test_bad_dimension_is_refused():
    with pytest.raises(ValueError, match=r"^dim must be an integer >= 1, got 0\.$"):
        norms.conversion(0, 1.0, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0, math.inf])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (4, 3), (3, 7)])
def test_rotations_give_schatten_norms_and_their_subgradients(shape, p):
    rng, dim = np.random.default_rng(3), math.prod(shape)
    room, normal = np.empty(3 * dim + 1), np.empty(dim)
    norms.reset_rotations(min(shape), room)
    low_rank = np.outer(np.arange(shape[0]), np.ones(shape[1]))
    flats = [*rng.normal(size=(5, dim)), low_rank.reshape(-1), np.eye(*shape).ravel()]
    for flat in (scale * flat for flat in flats for scale in (1.0, 1e-200, 1e200)):
        value = norms.schatten_normal(flat, *shape, p, room, normal)
        assert value == pytest.approx(norms.schatten(flat, p, shape), rel=1e-14)
        assert normal @ flat == pytest.approx(value, rel=1e-13)
        if value > 0.0:
            steepest = norms.schatten(normal, norms.dual(p), shape)
            assert steepest == pytest.approx(1.0, rel=1e-13)
