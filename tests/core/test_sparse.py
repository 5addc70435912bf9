"""Sparse matrices: checked in full before compiled code, whatever the format."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.core.sparse import as_csr
from dpsample.numerics import norms
from dpsample.tables import entries
from tests.contracts.door_objects import problem
from tests.support.malformed_matrices import KNOWN, Foreign, random_matrices, rows
from tests.support.message_grammar import GRAMMAR
from tests.support.processes import ROOT

FORMATS = ("csr", "csc", "coo", "bsr", "dok", "lil", "dia")


def outcomes(*arguments):
    """Lines of a process that hands malformed matrices to the package."""
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-m",
            "tests.support.malformed_matrices",
            *arguments,
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition(" -> ") for line in done.stdout.splitlines()]


def assert_refused(lines, count):
    assert len(lines) == count
    for name, _, result in lines:
        kind, _, message = result.partition(": ")
        assert kind == "ValueError" and GRAMMAR.match(message), (name, result)


def test_every_known_malformed_matrix_is_refused():  # S1
    assert len(KNOWN) >= 10
    assert_refused(outcomes("known"), len(KNOWN))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "seed"),
    [(50, 1), (500, 2)],
)
def test_random_malformed_matrices_are_refused_and_none_crashes(count, seed):  # S1
    assert_refused(outcomes(str(count), str(seed)), count)


def test_every_door_for_sparse_matrices_is_guarded():  # S1
    release = dps.release(
        problem(features=rows()[:3]), dps.Budget(epsilon=1.0, delta=1e-6), seed=1
    )
    square = np.vstack([np.eye(3), -np.eye(3)])
    domains = (
        dps.domains.Simplex(),
        dps.domains.Box(-1.0, 1.0),
        dps.domains.Polytope(square, np.ones(6)),
        dps.domains.SchattenBall(1.0, p=1.0, shape=(1, 3)),
        dps.domains.Ball(1.0),
    )
    doors = [release.margin, release.predict, lambda m: norms.norm(m, 2.0)]
    doors += [domain.support for domain in domains]
    for door in doors:
        for _, matrix in random_matrices(10, seed=3):
            with pytest.raises(ValueError) as refusal:
                door(matrix)
            assert GRAMMAR.match(str(refusal.value)), refusal.value


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_every_format_gives_the_dense_rows(name, kind):
    given = getattr(sparse, f"{name}_{kind}")(rows())
    result = as_csr("rows", given)
    assert isinstance(result, sparse.csr_array) and result.dtype == np.float64
    assert result.has_canonical_format
    np.testing.assert_array_equal(result.toarray(), rows())
    result.data[:] = 0.0
    np.testing.assert_array_equal(given.toarray(), rows())  # a copy


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_any_integers_serve_as_indices(dtype):
    given = sparse.csr_array(rows())
    given.indices, given.indptr = (
        given.indices.astype(dtype),
        given.indptr.astype(dtype),
    )
    np.testing.assert_array_equal(as_csr("rows", given).toarray(), rows())


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.float16, np.float32, np.longdouble]
)
def test_any_real_numbers_serve_as_values(dtype):
    given = sparse.coo_array(rows() > 0.0).astype(np.float64)
    given.data = given.data.astype(dtype)
    np.testing.assert_array_equal(as_csr("rows", given).toarray(), rows() > 0.0)


def test_repeated_and_unsorted_entries_are_summed_and_sorted():
    fields = np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])
    given = sparse.csr_matrix(fields, shape=(1, 3))
    assert as_csr("rows", given).toarray().tolist() == [[2.0, 0.0, 4.0]]
    huge = sparse.coo_array(([1e308] * 2, ([0, 0], [1, 1])), shape=(2, 2))
    with pytest.raises(ValueError, match="NaN or infinity in record 0"):
        as_csr("rows", huge)


def test_objects_that_convert_themselves_are_read():
    given = Foreign(sparse.csc_matrix(rows()))
    np.testing.assert_array_equal(as_csr("rows", given).toarray(), rows())


def test_the_copy_is_checked_and_not_what_the_caller_can_change():
    class Changing(sparse.csr_array):
        @property
        def indices(self):
            fresh = np.array(self._kept)
            self._kept = np.full_like(self._kept, 10**6)  # what a second look shows
            return fresh

        @indices.setter
        def indices(self, value):
            self._kept = value

    given = Changing(np.eye(3))
    given._kept = np.arange(3)
    np.testing.assert_array_equal(as_csr("rows", given).toarray(), np.eye(3))


def test_empty_matrices_keep_their_shape():
    for name in FORMATS:
        given = getattr(sparse, f"{name}_array")((4, 3))
        assert as_csr("rows", given).shape == (4, 3)


def test_a_libsvm_file_cannot_be_wider_than_an_index():
    for width in (2**32, 10**30):
        with pytest.raises(ValueError, match="num_features must be an integer <="):
            entries.parse_libsvm([f"1 {width}:1"], width)
