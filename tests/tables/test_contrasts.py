"""Reference levels: which indicator is left out, under which name, and refusals."""

import numpy as np
import pandas as pd
import pytest

from dpsample.tables import Encoding, Schema, from_frame
from dpsample.tables.encoding import collinear_columns, positions_without_references

SCHEMA = Schema(
    numeric={"age": (0, 100)},
    categorical={"ward": ("n", "s", "w"), "ill": ("no", "yes"), "grade": (1, 2)},
    missing_indicator=("ward",),
)
FRAME = pd.DataFrame(
    {
        "age": [0, 50, 100, 20, 40],
        "ward": ["n", "s", "w", "elsewhere", None],
        "grade": [1, 2, 1, 2, 7],
        "ill": ["no", "yes", "no", "yes", "yes"],
    }
)


@pytest.mark.parametrize("reference", [None, "n", "s", "w"])
def test_a_row_is_that_of_all_levels_without_its_reference(reference):
    rules = {} if reference is None else {"ward": reference}
    schema = Schema(**SCHEMA.to_dict() | {"reference": rules})
    options = {"schema": schema, "target": "ill", "clip": True}
    whole = Encoding(**options)
    reduced = Encoding(**options, contrasts=("ward", "grade"))
    left_out = [f"ward={reference or 'n'}", "grade=1"]
    positions = [
        j for j, name in enumerate(whole.feature_names) if name not in left_out
    ]
    assert positions_without_references(whole, reduced.contrasts) == positions
    rows = whole.features(FRAME)
    np.testing.assert_array_equal(reduced.features(FRAME), rows[:, positions])
    assert whole.divisor == reduced.divisor and reduced.row_bound == 1.0
    names = reduced.feature_names
    assert f"ward=w vs {reference or 'n'}" in names or reference == "w"
    assert {"age", "ward=missing", "grade=2 vs 1"} < set(names)
    rule = f"without an indicator: 'ward={reference or 'n'}', 'grade=1'"
    assert rule in "".join(reduced.rules) and rule not in "".join(whole.rules)
    slopes, offsets = reduced.feature_scales()
    assert slopes.shape == offsets.shape == (len(names),)


def test_encodings_without_contrasts_are_written_as_before():
    whole = Encoding(schema=SCHEMA, target="ill")
    assert "contrasts" not in whole.to_dict()
    reduced = Encoding(schema=SCHEMA, target="ill", contrasts=("ward",))
    assert reduced.to_dict()["contrasts"] == ["ward"]
    for encoding in (whole, reduced):
        assert Encoding.from_dict(encoding.to_dict()) == encoding
    with pytest.raises(ValueError, match="written as"):
        Encoding.from_dict(whole.to_dict() | {"contrasts": []})
    assert "reference" not in SCHEMA.to_dict()


def test_columns_of_two_or_more_levels_need_a_reference():
    columns = ("age", "ward", "grade")
    assert collinear_columns(SCHEMA, columns, intercept=True) == ("ward", "grade")
    assert collinear_columns(SCHEMA, columns, intercept=False) == ("grade",)
    assert collinear_columns(None, columns, intercept=True) == ()
    one = Schema(categorical={"ward": ("n",)})
    assert collinear_columns(one, ("ward",), intercept=True) == ()


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"ward": "north"}, "reference.ward must be one of the column's levels"),
        ({"age": 3}, "reference.age must be about a column that is declared as cat"),
        ({"grade": True}, "reference.grade must be one of the column's levels"),
        ({"house": "n"}, "reference.house must be about a column"),
    ],
)
def test_references_that_are_no_levels_are_refused(rules, words):
    with pytest.raises(ValueError, match=words):
        Schema(**SCHEMA.to_dict() | {"reference": rules})


@pytest.mark.parametrize("contrasts", [("age",), ("ward", "ward"), "ward", ("house",)])
def test_contrasts_that_are_no_columns_of_levels_are_refused(contrasts):
    with pytest.raises(ValueError, match="contrasts"):
        Encoding(schema=SCHEMA, target="ill", contrasts=contrasts)


def test_the_report_on_unused_levels_names_the_others():
    """The reference has no indicator, and cannot be reported."""
    frame = FRAME.iloc[:2]
    report = from_frame(frame, target="ill", bounds=SCHEMA).nonprivate_diagnostics
    assert report == ("no record has the levels 'w' of 'ward'",)
