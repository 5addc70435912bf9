# mypy: allow-untyped-defs
"""Records in memory, dense or sparse, and the compiled passes over them.

The margin of record i is <a_i, theta> + offset_i. The empirical risk is the mean of the
losses phi(margin, response), and its gradient the mean of phi' a_i.

A pass goes over blocks of records that fit into the second-level cache. For each block
it computes margins and losses. For a gradient it also adds the sum of phi' a_i, while
the block is still in the cache.

Few dense records also have a copy in tiles. A tile holds the transposed features of up
to 512 records, so that vector registers process several records at once.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types
from numba.np.random.generator_core import next_uint32, next_uint64
from numpy.typing import NDArray

from dpsample.core.arrays import Array, Ints, RecordArray
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import Kernel, i8, kernel, matrix, vector
from dpsample.core.pauses import new_control
from dpsample.core.sparse import Rows
from dpsample.numerics.vectors import multiply, multiply_rows

# Records of a block of a sparse matrix.
SPARSE_BLOCK = 2048
# Most features of a copy in tiles, 2 MB. Passes over more features wait for memory, and
# tiles would not make them faster.
MAX_TILED = 2**18
# Multiply-adds of one call that computes a curvature matrix, so that Ctrl-C takes
# effect between calls.
GRAM_NUMBERS = 10**7
# Indices of records are drawn from words of 32 bits: the shift to the upper half of 64
# bits, the mask of the lower half, and the number of such words.
HALF = np.uint64(32)
LOWER_HALF = np.uint64(2**32 - 1)
WORD_SIZE = np.uint64(2**32)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class Data(NamedTuple):
    """Records as kernels read them.

    Features are either ``dense`` or a CSR matrix of ``values``, ``columns`` and
    ``starts``. The other arrays are empty.
    """

    dense: Array  # (num_records, dim) or (0, dim)
    values: Array  # (num_nonzero,): entries, record by record
    columns: NDArray[np.uint32]  # (num_nonzero,): their features
    starts: Ints  # (num_records + 1,): first entry of each record
    response: Array  # (num_records,)
    offset: Array  # (num_records,) or empty
    loss_params: Array  # numbers of the loss
    num_records: int
    dim: int
    block: int  # records of a block
    tiles: Array  # (num_records * dim,): dense transposed, tile by tile, or empty
    tile: int  # records of a tile, 0 without a copy in tiles


@by_address
class Work(NamedTuple):
    """Scratch memory of one chain."""

    margins: Array  # (block,)
    slopes: Array  # (block,): derivatives of the losses in the margins
    vector: Array  # (dim,)
    out: Array  # (2,): results of compiled functions, NaN before the call
    control: RecordArray  # when to return to Python, see `core.pauses`


DATA = frame_type(
    (
        *(matrix, vector, types.uint32[::1], types.int64[::1], vector, vector, vector),
        *(i8, i8, i8, vector, i8),
    ),
    Data,
)
WORK = frame_type((vector, vector, vector, vector, typeof(new_control())), Work)


def make_data(
    features: Rows, response: Array, offset: Array | None, loss_params: Array
) -> Data:
    """Lay out a dense array or a CSR matrix for the kernels."""
    num_records, dim = features.shape
    is_dense = isinstance(features, np.ndarray)
    parts: Any = features
    block = block_size(dim) if is_dense else SPARSE_BLOCK
    return Data(
        dense=parts if is_dense else np.empty((0, dim)),
        values=np.array([] if is_dense else parts.data, dtype=np.float64),
        columns=np.array([] if is_dense else parts.indices, dtype=np.uint32),
        starts=np.array([0] if is_dense else parts.indptr, dtype=np.int64),
        response=response,
        offset=np.empty(0) if offset is None else offset,
        loss_params=loss_params,
        num_records=int(num_records),
        dim=int(dim),
        block=min(block, int(num_records)),
        tiles=np.empty(0),
        tile=0,
    )


def add_tiles(data: Data) -> Data:
    """Add a copy in tiles to records that are dense and few."""
    dense = data.dense
    if not has_tiles(dense.size):
        return data
    # Tiles have about 512 records, because the start of a loop over fewer would take a
    # noticeable share of the time. A multiple of 32 records fills all vector registers.
    count = math.ceil(len(dense) / min(512, data.block))
    tile = min(32 * math.ceil(len(dense) / (32 * count)), data.block)
    parts = [dense[i : i + tile].T.ravel() for i in range(0, len(dense), tile)]
    return data._replace(tiles=np.concatenate(parts), tile=tile)


def has_tiles(num_features: int) -> bool:
    """Return whether records with this number of dense features are copied to tiles."""
    return 0 < num_features <= MAX_TILED


def block_size(dim: int) -> int:
    """Return the number of dense records of a block."""
    # 65,536 features are 512 kB, which is half of a common second-level cache.
    return min(max(65536 // dim, 128), 8192)


def part_of(data: Data, start: int, stop: int) -> Data:
    """Return a range of dense records in the same memory.

    Sparse records are in one range only, so that this returns all of them.
    """
    if start == 0 and stop == data.num_records:
        return data
    part = slice(start, stop)
    return data._replace(
        dense=data.dense[part],
        response=data.response[part],
        offset=data.offset[part],
        num_records=stop - start,
        tiles=data.tiles[:0],
        tile=0,
    )


def writable(data: Data) -> Data:
    """Copy arrays that are read-only or mapped, as Numba gives them other types."""
    return Data._make(np.array(p) if _is_foreign(p) else p for p in data)


def _is_foreign(part: object) -> bool:
    """Return whether Numba would give an array another type than a new one."""
    is_array = isinstance(part, np.ndarray)
    return is_array and (type(part) is not np.ndarray or not part.flags.writeable)


def make_work(data: Data) -> Work:
    """Return scratch memory for one chain on these records."""
    return Work(
        np.empty(data.block),
        np.empty(data.block),
        np.empty(data.dim),
        np.empty(2),
        new_control(),
    )


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def any_record(rng, first, last):
    """Return the index of a random record from ``first`` to ``last - 1``.

    This is ``rng.integers(first, last)`` to the last bit. Numba's function of that name
    compiles arrays and all sizes of integers, which takes 0.7 s. A word times the
    number of records has the index in its upper half. Words whose lower half is small
    are rejected, so that each index belongs to equally many (Lemire, arXiv:1805.10941).
    """
    num_records, bits = np.uint64(last - first), rng.bit_generator
    if last - first <= 1:
        return first
    if num_records > WORD_SIZE:
        return first + large_index(bits, num_records)
    product = np.uint64(next_uint32(bits)) * num_records
    if product & LOWER_HALF < num_records:
        num_rejected = (WORD_SIZE - num_records) % num_records
        while product & LOWER_HALF < num_rejected:
            product = np.uint64(next_uint32(bits)) * num_records
    return first + np.int64(product >> HALF)


@kernel(counts_references=False)
def large_index(bits, num_records):
    """Return a random index of more than 2^32 records, from words of 64 bits."""
    word = np.uint64(next_uint64(bits))
    if word * num_records < num_records:
        num_rejected = (np.uint64(0) - num_records) % num_records  # 2^64 is 0
        while word * num_records < num_rejected:
            word = np.uint64(next_uint64(bits))
    # The upper half of the product of 128 bits, digit by digit in base 2^32.
    low, high = word & LOWER_HALF, word >> HALF
    low_number, high_number = num_records & LOWER_HALF, num_records >> HALF
    middle = high * low_number + (low * low_number >> HALF)
    carry = (middle & LOWER_HALF) + low * high_number
    return np.int64(high * high_number + (middle >> HALF) + (carry >> HALF))


@kernel(counts_references=False)
def products_of(data, theta, start, stop, products):
    """Fill products[: stop - start] with <a_i, theta>."""
    if data.dense.shape[0] > 0:
        multiply(data.dense[start:stop], theta, products)
    else:
        # Without fastmath, because vectorized gathers of short rows are 3 times slower.
        for i in range(start, stop):
            s = 0.0
            for j in range(data.starts[i], data.starts[i + 1]):
                s += data.values[j] * theta[data.columns[j]]
            products[i - start] = s


@kernel(counts_references=False)
def margins_of(data, theta, start, stop, margins):
    """Fill margins[: stop - start] with <a_i, theta> + offset_i."""
    products_of(data, theta, start, stop, margins)
    if data.offset.shape[0] > 0:
        for i in range(start, stop):
            margins[i - start] += data.offset[i]


@kernel(counts_references=False)
def add_transposed(data, slopes, start, stop, scratch, out):
    """Add the sum of slopes[i - start] a_i over the block to out."""
    if data.dense.shape[0] > 0:
        multiply_rows(slopes, data.dense[start:stop], scratch)
        for j in range(out.shape[0]):
            out[j] += scratch[j]
    else:
        for i in range(start, stop):
            s = slopes[i - start]
            if s != 0.0:
                for j in range(data.starts[i], data.starts[i + 1]):
                    out[data.columns[j]] += s * data.values[j]


@kernel(counts_references=False)
def four_columns(tile, count, j):
    """Return the features j to j + 3 of the ``count`` records of a tile, as views."""
    first = j * count
    a, b = tile[first : first + count], tile[first + count : first + 2 * count]
    first += 2 * count
    return a, b, tile[first : first + count], tile[first + count : first + 2 * count]


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def tile_margins(tile, theta, margins):
    """Fill margins with <a_i, theta> of a tile's records.

    Four features at a time, so that margins are read and written a quarter as often.
    """
    count, j = margins.shape[0], 0
    for i in range(count):
        margins[i] = 0.0
    while j + 4 <= theta.shape[0]:
        a, b, c, d = four_columns(tile, count, j)
        p, q, r, s = theta[j], theta[j + 1], theta[j + 2], theta[j + 3]
        for i in range(count):
            margins[i] += a[i] * p + b[i] * q + c[i] * r + d[i] * s
        j += 4
    for m in range(j, theta.shape[0]):
        a, p = tile[m * count : (m + 1) * count], theta[m]
        for i in range(count):
            margins[i] += a[i] * p


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def add_tile(tile, slopes, out):
    """Add the sum of slopes[i] a_i over a tile to out, in any order."""
    count, j = slopes.shape[0], 0
    while j + 4 <= out.shape[0]:
        a, b, c, d = four_columns(tile, count, j)
        p = q = r = s = 0.0
        for i in range(count):
            p += a[i] * slopes[i]
            q += b[i] * slopes[i]
            r += c[i] * slopes[i]
            s += d[i] * slopes[i]
        out[j] += p
        out[j + 1] += q
        out[j + 2] += r
        out[j + 3] += s
        j += 4
    for m in range(j, out.shape[0]):
        a, p = tile[m * count : (m + 1) * count], 0.0
        for i in range(count):
            p += a[i] * slopes[i]
        out[m] += p


@kernel(counts_references=False)
def margins_in_tile(data, theta, start, stop, margins):
    """Fill margins[: stop - start] for the records of a tile, see `margins_of`."""
    tile_margins(data.tiles[start * data.dim : stop * data.dim], theta, margins)
    if data.offset.shape[0] > 0:
        for i in range(start, stop):
            margins[i - start] += data.offset[i]


@kernel(counts_references=False)
def add_transposed_tile(data, slopes, start, stop, scratch, out):
    """Add the sum of slopes[i - start] a_i over a tile, see `add_transposed`."""
    add_tile(data.tiles[start * data.dim : stop * data.dim], slopes, out)


def compile_mean_loss(
    margins_fn: Kernel[..., None], *, is_tiled: bool
) -> Kernel[..., float]:
    """Compile the empirical risk, for records in tiles or not.

    The two are separate functions, so that each problem compiles only its own loops.
    """

    def mean_loss(data, loss_value, theta, work):
        result, size = 0.0, data.tile if is_tiled else data.block
        for start in range(0, data.num_records, size):
            stop = min(start + size, data.num_records)
            margins = work.margins[: stop - start]
            margins_fn(data, theta, start, stop, margins)
            work.out[0] = np.nan
            loss_value(data.loss_params, margins, data.response[start:stop], work.out)
            result += work.out[0]
        return result / data.num_records

    return kernel(counts_references=False)(mean_loss)


def compile_mean_gradient(
    margins_fn: Kernel[..., None], add_fn: Kernel[..., None], *, is_tiled: bool
) -> Kernel[..., float]:
    """Compile the empirical risk with its gradient, see `compile_mean_loss`."""

    def mean_gradient(data, loss_slope, theta, work, gradient):
        result, size = 0.0, data.tile if is_tiled else data.block
        gradient[:] = 0.0
        for start in range(0, data.num_records, size):
            stop = min(start + size, data.num_records)
            margins, slopes = work.margins[: stop - start], work.slopes[: stop - start]
            margins_fn(data, theta, start, stop, margins)
            work.out[0] = np.nan
            loss_slope(
                data.loss_params, margins, data.response[start:stop], slopes, work.out
            )
            result += work.out[0]
            add_fn(data, slopes, start, stop, work.vector, gradient)
        for j in range(gradient.shape[0]):
            # If the loss failed, slopes may be from an earlier block.
            gradient[j] = np.nan if np.isnan(result) else gradient[j] / data.num_records
        return result / data.num_records

    return kernel(counts_references=False)(mean_gradient)


# Empirical risk at theta, and the risk with its (sub)gradient. Both are NaN if the loss
# failed. The second pair is for records with a copy in tiles.
mean_loss = compile_mean_loss(margins_of, is_tiled=False)
mean_gradient = compile_mean_gradient(margins_of, add_transposed, is_tiled=False)
mean_loss_of_tiles = compile_mean_loss(margins_in_tile, is_tiled=True)
mean_gradient_of_tiles = compile_mean_gradient(
    margins_in_tile, add_transposed_tile, is_tiled=True
)


@kernel(counts_references=False)
def fill_risks(data, loss_value, points, work, out):
    """Fill out with the empirical risk at each row of points."""
    for i in range(points.shape[0]):
        out[i] = mean_loss(data, loss_value, points[i], work)


@kernel(counts_references=False)
def add_weighted_gram(data, weights, begin, stop, out):
    """Add the sum of weights_i a_i a_i^T over some records to out (dim, dim)."""
    for i in range(begin, stop):
        for j in range(data.starts[i], data.starts[i + 1]):
            scaled = weights[i] * data.values[j]
            row = out[data.columns[j]]
            for m in range(data.starts[i], data.starts[i + 1]):
                row[data.columns[m]] += scaled * data.values[m]


def curvature_matrix(data: Data, weights: Array) -> Array:
    """Return the mean of weights_i a_i a_i^T, shape (dim, dim)."""
    return weighted_gram(data, weights) / data.num_records


def weighted_gram(data: Data, weights: Array) -> Array:
    """Return the sum of weights_i a_i a_i^T, shape (dim, dim). Weights are >= 0."""
    out = np.zeros((data.dim, data.dim))
    if data.dense.shape[0] == 0:
        # A record takes as many multiply-adds as the square of its entries.
        largest = int(np.diff(data.starts).max(initial=1))
        count = max(1, GRAM_NUMBERS // largest**2)
        for start in range(0, data.num_records, count):
            stop = min(start + count, data.num_records)
            add_weighted_gram(data, weights, start, stop, out)
        return out
    for start in range(0, data.num_records, data.block):  # not a copy of all records
        part = slice(start, start + data.block)
        scaled = data.dense[part] * np.sqrt(weights[part])[:, None]
        out += scaled.T @ scaled
    return out
