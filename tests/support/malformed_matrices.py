"""Sparse matrices that SciPy accepts and no compiled code may read.

Run as a script, it hands them to the package one by one and prints what came of each:
a process of its own, since one that gets through may corrupt memory.
"""

import sys

import numpy as np
from scipy import sparse

ROWS, COLUMNS = 12, 3
KINDS = (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.csc_array)
COMPRESSED = (*KINDS, lambda a: sparse.bsr_array(a, blocksize=(2, 3)))
HUGE = (2**31 - 1, 2**33 + 1, 2**62, -(2**63))


class Foreign:
    """Matrix of another library, which converts itself."""

    def __init__(self, inner):
        self.shape, self.inner = (ROWS, COLUMNS), inner

    def tocsr(self):
        return self.inner


def rows(rng=None):
    """Dense rows, small enough for any bound, with a few zeros."""
    rng = np.random.default_rng(1) if rng is None else rng
    return np.round(rng.uniform(-0.3, 0.3, (ROWS, COLUMNS)), 1)


def with_index(kind, place, value):
    matrix = kind(rows())
    matrix.indices = matrix.indices.astype(np.int64)
    matrix.indices[place] = value
    return matrix


def with_start(kind, place, value):
    matrix = kind(rows())
    matrix.indptr = matrix.indptr.astype(np.int64)
    matrix.indptr[place] = value
    return matrix


def short_starts():
    matrix = sparse.csr_matrix(rows())
    matrix.indptr = matrix.indptr[:-3]
    return matrix


def repeated():
    """Twice 0.9 in one place: a row above its bound of 1."""
    fields = np.array([0.9, 0.9]), np.array([0, 0]), np.array([0] + [2] * ROWS)
    return sparse.csr_matrix(fields, shape=(ROWS, COLUMNS))


def too_wide():
    fields = np.ones(1), np.array([2**32]), np.array([0] + [1] * ROWS)
    return sparse.csr_array(fields, shape=(ROWS, 2**32 + 1))


CSR = sparse.csr_matrix
KNOWN = {
    "index 7 of 3 columns": lambda: with_index(CSR, 4, 7),
    "index 40": lambda: with_index(CSR, 5, 40),
    "index 2**28": lambda: with_index(CSR, 5, 2**28),
    "index 2e9": lambda: with_index(CSR, 5, 2_000_000_000),
    "index 2**33 + 1 wraps": lambda: with_index(CSR, 5, 2**33 + 1),
    "index -1": lambda: with_index(CSR, 5, -1),
    "start 10**8": lambda: with_start(CSR, 10, 10**8),
    "start -5": lambda: with_start(CSR, 10, -5),
    "starts too short": short_starts,
    "repeated entries": repeated,
    "2**32 + 1 columns": too_wide,
}


def wrong_index(rng, kind):
    matrix = kind(rows(rng) + 1.0)
    far = int(rng.choice([-1, -7, ROWS * 3, *HUGE]))
    if matrix.format == "coo":
        index = [np.array(part, dtype=np.int64) for part in matrix.coords]
        index[rng.integers(2)][rng.integers(matrix.nnz)] = far
        matrix.coords = tuple(index)
    else:
        matrix.indices = np.array(matrix.indices, dtype=np.int64)
        matrix.indices[rng.integers(len(matrix.indices))] = far
    return matrix


def wrong_start(rng, kind):
    matrix = kind(rows(rng) + 1.0)
    starts = np.array(matrix.indptr, dtype=np.int64)
    place = int(rng.integers(len(starts)))
    starts[place] += int(rng.choice([-1, -50, 10**8, 2**40])) * (1 if place else -1)
    if np.all(np.diff(starts) >= 0) and (starts[0], starts[-1]) == (0, matrix.nnz):
        starts[0] = 1
    matrix.indptr = starts
    return matrix


def wrong_length(rng, kind):
    matrix = kind(rows(rng) + 1.0)
    field = str(rng.choice(["data", "indices", "indptr"]))
    cut = int(rng.integers(1, 4))
    setattr(matrix, field, getattr(matrix, field)[:-cut])
    return matrix


def wrong_type(rng, kind):
    matrix = kind(rows(rng) + 1.0)
    field = str(rng.choice(["data", "indices", "indptr"]))
    old = getattr(matrix, field)
    wrong = [old.astype(complex), old.astype(object), old.astype("U9"), None, old[None]]
    wrong.append(np.ma.masked_array(old))
    if field != "data":
        wrong += [old.astype(float), old.astype(bool)]
    setattr(matrix, field, wrong[rng.integers(len(wrong))])
    return matrix


def wrong_value(rng, kind):
    matrix = kind(rows(rng) + 1.0)
    matrix.data.reshape(-1)[rng.integers(matrix.data.size)] = rng.choice(
        [np.nan, np.inf, -np.inf]
    )
    return matrix


def wrong_coo(rng, kind):
    del kind
    return wrong_index(rng, sparse.coo_array)


def wrong_lil(rng, kind):
    del kind
    matrix = sparse.lil_array(rows(rng) + 1.0)
    i = int(rng.integers(ROWS))
    change = int(rng.integers(5))
    if change == 0:
        matrix.rows[i] = [0, 1, int(rng.choice([-1, 3, 2**40, 10**30]))]
    elif change == 1:
        matrix.data[i] = matrix.data[i][:-1]
    elif change == 2:
        matrix.rows[i] = None
    elif change == 3:
        matrix.data[i] = [1.0, "2", 3.0]
    else:
        matrix.rows = matrix.rows[:-1]
    return matrix


def wrong_dok(rng, kind):
    del kind
    matrix = sparse.dok_array(rows(rng) + 1.0)
    key = [(-1, 0), (0, 2**40), ROWS, (0, 1, 2), ("0", 1)][rng.integers(5)]
    matrix._dict[key] = 1.0
    return matrix


def wrong_dia(rng, kind):
    del kind
    matrix = sparse.dia_array(rows(rng) + 1.0)
    if rng.random() < 0.5:
        matrix.offsets = matrix.offsets[:-1]
    else:
        matrix.offsets = 0 * matrix.offsets.astype(np.int64) + int(
            rng.choice([0, 2**40])
        )
    return matrix


def wrong_foreign(rng, kind):
    del kind
    inner = [wrong_index(rng, sparse.csr_array), np.eye(3), None, "text"]
    return Foreign(inner[rng.integers(4)])


WAYS = (wrong_index, wrong_start, wrong_length, wrong_type, wrong_value, wrong_coo)
WAYS += (wrong_lil, wrong_dok, wrong_dia, wrong_foreign)


def random_matrices(count, seed):
    """Yield labels and malformed matrices, the ways by turns."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        way = WAYS[i % len(WAYS)]
        kind = COMPRESSED[rng.integers(len(COMPRESSED))]
        yield f"{i} {way.__name__}", way(rng, kind)


def outcome(matrix):
    """What a problem says of the matrix; its risk, which is foreign memory, if any."""
    import dpsample as dps

    try:
        problem = dps.Problem(
            matrix,
            np.where(np.arange(ROWS) % 2, 1.0, -1.0),
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(radius=1.0),
            row_bound=1.0,
        )
    except ValueError as error:
        return f"ValueError: {error}"
    return f"accepted, risk {problem.risk(np.full(problem.dim, 0.1))}"


if __name__ == "__main__":
    if sys.argv[1] == "known":
        cases = ((name, make()) for name, make in KNOWN.items())
    else:
        cases = random_matrices(int(sys.argv[1]), int(sys.argv[2]))
    for name, matrix in cases:
        print(f"{name} -> {outcome(matrix)}", flush=True)
