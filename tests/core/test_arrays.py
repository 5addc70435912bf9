"""Arrays at the door: nothing is unmasked, parsed, cut off or renamed in silence."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpsample as dps
from dpsample.core import check
from dpsample.core.arrays import record_dtype
from tests.contracts.door_objects import problem
from tests.support.message_grammar import GRAMMAR

MASKED = np.ma.masked_array([[0.5, 0.2]] * 3, mask=[[0, 1]] * 3)
SILENT = {
    "masked": MASKED,
    "masked rows": list(MASKED),
    "complex": np.full((3, 2), 0.5 + 0.1j),
    "no imaginary part": np.full((3, 2), 0.5 + 0.0j),
    "decimal": np.full((3, 2), Decimal("0.5"), dtype=object),
    "none": np.full((3, 2), None, dtype=object),
    "text": np.full((3, 2), "0.5"),
    "texts": [["0.5", "0.2"]] * 3,
    "bytes": np.full((3, 2), b"0.5"),
    "mixed": [[0.5, "0.2"]] * 3,
    "structured": np.zeros((3, 2), dtype=[("a", float)]),
    "dates": np.zeros((3, 2), dtype="M8[D]"),
    "huge": [[0.5, 10**400]] * 3,
    "frame of text": pd.DataFrame({"a": ["0.1", "0.2", "0.3"], "b": [0.0] * 3}),
    "frame of categories": pd.DataFrame(
        {"a": pd.Categorical(["1", "0", "1"]), "b": [0.0] * 3}
    ),
    "frame of dates": pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 3)}),
    "frame with a gap": pd.DataFrame({"a": pd.array([1, None, 0], dtype="Int64")}),
    "frame of complex": pd.DataFrame({"a": [0.1 + 0.1j] * 3}),
    "frame with two of a name": pd.DataFrame([[0.1, 0.2]] * 3, columns=["a", "a"]),
}


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("value", SILENT.values(), ids=SILENT)
def test_features_that_would_be_changed_in_silence_are_refused(value):  # S5
    with pytest.raises(ValueError) as refusal:
        problem(features=value)
    assert GRAMMAR.match(str(refusal.value)), refusal.value


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("name", ["masked", "complex", "decimal", "text", "dates"])
def test_so_are_vectors(name):  # S5
    vector = SILENT[name][:, 0]
    if name == "masked":
        vector = SILENT[name][:, 1]
    doors = (
        lambda: problem(response=vector),
        lambda: problem(offset=vector, offset_bound=1.0),
        lambda: problem().risk(vector[:2]),
        lambda: dps.domains.Ball(1.0, center=vector[:2]),
        lambda: check.vectors("theta", vector),
    )
    for door in doors:
        with pytest.raises(ValueError):
            door()


@pytest.mark.parametrize(
    "value",
    [
        np.full((3, 2), 0.5, dtype=object),
        [[Fraction(1, 2), 1], [True, 0], [np.float32(0.5), 0]],
        np.full((3, 2), 0.5, dtype=np.longdouble),
        np.ma.masked_array(np.full((3, 2), 0.5)),
        pd.DataFrame({"a": pd.array([1, 0, 1], dtype="Int64"), "b": [0.0] * 3}),
        pd.DataFrame({"a": [True, False, True], "b": [0.0] * 3}),
        pd.DataFrame({"a": pd.arrays.SparseArray([0.5, 0.0, 0.0]), "b": [0.0] * 3}),
    ],
)
def test_real_numbers_in_any_dress_are_taken(value):
    given = problem(features=value, clip_rows=True).data.dense
    assert given.dtype == np.float64 and given.flags.c_contiguous


@pytest.mark.parametrize("names", [["a", "a"], "ab", 3, ["a", "intercept"]])
def test_a_name_stands_for_one_column(names):  # S5
    with pytest.raises(ValueError, match="feature_names must be"):
        problem(feature_names=names, intercept=True)
    kept = problem(feature_names=("a", "b"), intercept=True).feature_names
    assert kept == ("a", "b", "intercept")


@pytest.mark.parametrize("name", ["base", "size", "real"])
def test_fields_of_records_have_no_names_of_numpys(name):
    """In interpreted kernels ``record.base`` is not the field."""
    with pytest.raises(ValueError, match="names of their own"):
        record_dtype(**{name: float})
    assert record_dtype(energy=float).names == ("energy",)
