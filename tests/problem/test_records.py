"""Passes over records: dense = CSR = NumPy for every layout, blocks, failures."""

import numba
import numpy as np
import pytest
from scipy import sparse

from dpsample import losses
from dpsample.core.jit import kernel
from dpsample.problem import records
from tests.support.tiers import one_in

LOSS = losses.Squared()
SHAPES = [(1, 1), (1, 5), (7, 1), (7, 3), (200, 40)]


def example(num_records, dim, *, seed=1):
    """Rows with zeros, empty rows, responses, offsets, a point."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_records, dim)) * (rng.random((num_records, dim)) < 0.6)
    rows[:: 1 + num_records // 3] = 0.0
    response, offset = rng.normal(size=(2, num_records))
    return rows, response, offset, rng.normal(size=dim)


def layouts(rows, response, offset, *, block=None):
    """The same records dense and sparse, in blocks of any size."""
    made = {}
    for name, features in (("dense", rows.copy()), ("csr", sparse.csr_matrix(rows))):
        data = records.make_data(features, response, offset, LOSS.params)
        made[name] = data if block is None else data._replace(block=block)
    return made


def results(data, theta):
    """Margins, risk, risk again with its gradient, weighted Gram matrix."""
    value, slope, _ = LOSS.pointers
    work = records.make_work(data)
    margins = np.empty(data.num_records)
    records.margins_of(data, theta, 0, data.num_records, margins)
    gradient = np.full(data.dim, np.nan)
    mean_loss, mean_gradient = records.mean_loss, records.mean_gradient
    if data.tile > 0:
        mean_loss, mean_gradient = (
            records.mean_loss_of_tiles,
            records.mean_gradient_of_tiles,
        )
    risk = mean_loss(data, value, theta, work)
    again = mean_gradient(data, slope, theta, work, gradient)
    weights = np.linspace(0.5, 2.0, data.num_records)
    gram = records.curvature_matrix(data, weights)
    return margins, risk, again, gradient, gram


def test_risks_at_points_are_those_of_a_pass():
    rows, response, offset, _ = example(200, 40)
    for data in layouts(rows, response, offset, block=64).values():
        value, work, points = LOSS.pointers[0], records.make_work(data), np.eye(40)[:3]
        risks = np.empty(3)
        records.fill_risks(data, value, points, work, risks)
        again = [records.mean_loss(data, value, point, work) for point in points]
        assert risks.tolist() == again


def expected(rows, response, offset, theta):
    margins = rows @ theta + (0.0 if offset is None else offset)
    risk = np.mean(0.5 * (margins - response) ** 2)
    gradient = rows.T @ (margins - response) / len(rows)
    weights = np.linspace(0.5, 2.0, len(rows))
    return margins, risk, risk, gradient, rows.T @ (weights[:, None] * rows) / len(rows)


def assert_all_close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@one_in(10)
@pytest.mark.parametrize("with_offset", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_dense_and_sparse_passes_equal_numpy(shape, with_offset):
    rows, response, offset, theta = example(*shape)
    offset = offset if with_offset else None
    wanted = expected(rows, response, offset, theta)
    for data in layouts(rows, response, offset).values():
        assert_all_close(results(data, theta), wanted)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_default_block_has_no_seam(layout, extra):
    """One block less a record, exactly one, one and a record."""
    block, dim = records.SPARSE_BLOCK, 4
    if layout == "dense":
        dim = 600
        block = records.make_data(np.empty((10**4, dim)), *(np.zeros(1),) * 3).block
    rows, response, offset, theta = example(block + extra, dim)
    data = layouts(rows, response, offset)[layout]
    assert data.block == min(block, block + extra)
    assert_all_close(
        results(data, theta)[:4], expected(rows, response, offset, theta)[:4]
    )


@pytest.mark.parametrize("block", [1, 2, 6, 7])
def test_small_blocks_give_the_same_sums(block):
    rows, response, offset, theta = example(7, 3)
    for data in layouts(rows, response, offset, block=block).values():
        assert_all_close(results(data, theta), expected(rows, response, offset, theta))


def test_a_wrong_block_edge_would_be_seen():
    """Negative control: a pass that loses the last record is not within 1e-12."""
    rows, response, offset, theta = example(7, 3)
    wanted = expected(rows, response, offset, theta)
    lost = expected(rows[:-1], response[:-1], offset[:-1], theta)
    for a, b in zip(lost[1:], wanted[1:], strict=True):
        assert not np.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_duplicate_and_explicit_zero_entries_are_summed():
    values, columns = [1.0, 2.0, 0.0, 3.0], [1, 1, 0, 2]
    csr = sparse.csr_matrix((values, columns, [0, 3, 3, 4]), shape=(3, 3))
    rows = np.array([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    theta, response = np.array([1.0, -2.0, 0.5]), np.array([1.0, 0.0, -1.0])
    data = records.make_data(csr, response, None, LOSS.params)
    assert_all_close(results(data, theta), expected(rows, response, None, theta))


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_nan_in_one_record_makes_the_risk_nan(layout):
    rows, response, offset, theta = example(7, 3)
    data = layouts(rows, response, offset, block=3)[layout]
    bad = data._replace(response=np.where(np.arange(7) == 5, np.nan, response))
    _, risk, again, *_ = results(bad, theta)
    assert np.isnan(risk) and np.isnan(again)


def test_data_has_one_type_for_every_layout():
    from numba import typeof

    rows, response, offset, _ = example(7, 3)
    with_offset, without = (
        layouts(rows, response, offset),
        layouts(rows, response, None),
    )
    made = [*with_offset.values(), *without.values()]
    assert len({typeof(data) for data in made}) == 1


@one_in(18)
@pytest.mark.parametrize("with_offset", [True, False])
@pytest.mark.parametrize("shape", [*SHAPES, (511, 3), (512, 8), (513, 6), (1601, 5)])
def test_tiles_have_the_sums_of_rows(shape, with_offset):
    rows, response, offset, theta = example(*shape)
    offset = offset if with_offset else None
    data = records.make_data(rows, response, offset, LOSS.params)
    tiled = records.add_tiles(data)
    assert tiled.tile > 0 and tiled.tiles.size == rows.size
    wanted = expected(rows, response, offset, theta)
    assert_all_close(results(tiled, theta), wanted)
    spoiled = tiled._replace(tiles=tiled.tiles[::-1].copy())
    if min(shape) > 1:  # the tiles are what is summed
        assert abs(results(spoiled, theta)[1] / wanted[1] - 1.0) > 1e-3


def test_many_or_sparse_records_have_no_tiles_and_parts_lose_them(monkeypatch):
    rows, response, offset, _ = example(200, 40)
    made = layouts(rows, response, offset)
    assert records.add_tiles(made["csr"]) is made["csr"]
    tiled = records.add_tiles(made["dense"])
    assert records.part_of(tiled, 0, 100).tile == 0
    monkeypatch.setattr(records, "MAX_TILED", rows.size - 1)
    assert records.add_tiles(made["dense"]) is made["dense"]


@kernel(cached=False)
def indices(rng, first, last, size):
    """Draw indices of records."""
    out = np.empty(size, np.int64)
    for i in range(size):
        out[i] = records.any_record(rng, first, last)
    return out


# One word has 32 bits. Just above 2^31 and 2^32 every second word is rejected.
@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937])
@pytest.mark.parametrize(
    "num_records", [1, 2, 7, 1000, 2**31 + 1, 2**32, 2**32 + 1, 2**40, 2**62 + 1]
)
def test_random_records_are_numpys_to_the_last_bit(num_records, bits):
    if numba.config.DISABLE_JIT and num_records > 2**32:
        pytest.skip("interpreted words of 64 bits warn when they overflow")
    ours, numpys = np.random.Generator(bits(3)), np.random.Generator(bits(3))
    last = 5 + num_records
    expected = [numpys.integers(5, last) for _ in range(300)]
    np.testing.assert_array_equal(indices(ours, 5, last, 300), expected)
    assert ours.random() == numpys.random()  # as many words were drawn
