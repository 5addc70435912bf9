"""Problem: declared bounds are enforced, inputs normalized, errors name the record."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dpsample as dps

ROWS = np.array([[0.6, 0.0, 0.8], [0.0, 0.0, 0.0], [-0.3, 0.4, 0.0], [0.0, -1.0, 0.0]])
LABELS = np.array([1.0, -1.0, -1.0, 1.0])
DEFAULTS = {
    "features": ROWS,
    "response": LABELS,
    "loss": dps.losses.Logistic(),
    "domain": dps.domains.Ball(1.0),
    "row_bound": 1.0,
}


def problem(**changes):
    arguments = DEFAULTS | changes
    return dps.Problem(
        arguments.pop("features"), arguments.pop("response"), **arguments
    )


def test_a_row_at_its_bound_passes_and_one_above_is_named():
    problem(row_bound=1.0)
    words = r"at most row_bound = 0\.9, got 1 in record 0 \(2 records are above\)\. "
    with pytest.raises(ValueError, match=f"^features must be rows of 2-norm {words}"):
        problem(row_bound=0.9)


@pytest.mark.parametrize("row_norm", [1.0, 1.5, 2.0, 4.0, np.inf])
@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix, sparse.coo_array])
def test_bounds_are_enforced_in_every_norm_and_layout(row_norm, make):
    size = np.linalg.norm([0.3, -0.7], ord=row_norm)
    features = make(np.array([[0.1, 0.0], [0.3, -0.7], [0.0, 0.2]]))
    arguments = {"features": features, "response": LABELS[:3], "row_norm": row_norm}
    problem(row_bound=size, **arguments)
    with pytest.raises(ValueError, match="in record 1 .1 records are above"):
        problem(row_bound=size * (1.0 - 1e-9), **arguments)


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_tiny_rows_above_a_tiny_bound_are_seen(make):
    """A power sum of 1e-20 ** 50 would underflow to 0 and pass."""
    features = make(np.array([[1e-20, 2e-20]]))
    arguments = {"features": features, "response": [1.0], "row_norm": 50.0}
    with pytest.raises(ValueError, match="in record 0"):
        problem(row_bound=1.9e-20, **arguments)


def test_duplicate_entries_are_summed_before_rows_are_measured():
    entries = ([0.6, 0.6], [1, 1], [0, 2])
    twice = sparse.csr_matrix(entries, shape=(1, 3))
    arguments = {"features": twice, "response": [1.0]}
    with pytest.raises(ValueError, match=r"got 1\.2 in record 0"):
        problem(**arguments)
    clipped = problem(**arguments, clip_rows=True)
    np.testing.assert_allclose(clipped.margins([0.0, 1.0, 0.0]), [1.0], rtol=1e-15)
    assert twice.nnz == 2


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_clip_rows_scales_only_what_exceeds(make):
    features = 2.0 * ROWS
    made = problem(features=make(features), clip_rows=True)
    expected = features / np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    theta = np.array([0.3, -0.2, 0.5])
    np.testing.assert_allclose(made.margins(theta), expected @ theta, rtol=1e-14)
    np.testing.assert_array_equal(features, 2.0 * ROWS)  # the caller's rows stay


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_clipping_a_record_changes_no_other(make):
    """Not even those within the slack, in the same chunk: neighbors differ in one."""
    rows = np.zeros((4, 3))
    rows[:, 0] = 1.0 + 5e-13
    longer = rows.copy()
    longer[3] *= 5.0
    margins = [
        problem(features=make(given), clip_rows=True).margins([1.0, 0.0, 0.0])
        for given in (rows, longer)
    ]
    np.testing.assert_array_equal(margins[0][:3], margins[1][:3])
    assert margins[1][3] == pytest.approx(1.0, rel=1e-15)


def test_a_row_that_is_above_by_rounding_is_shown_with_all_its_digits():
    """0.6 and 0.8 rounded to single precision."""
    with pytest.raises(ValueError, match=r"= 1, got 1\.000000023841858 in record 0"):
        problem(features=ROWS.astype(np.float32))


def test_clip_rows_clips_responses_but_never_labels():
    squared = {"loss": dps.losses.Squared(), "response_bound": 2.0, "clip_rows": True}
    made = problem(response=[3.0, -5.0, 1.0, 2.0], **squared)
    assert made.data.response.tolist() == [2.0, -2.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="response must be -1 or 1, got 3"):
        problem(response=[3.0, -1.0, 1.0, 1.0], clip_rows=True)


def test_a_linear_response_is_bounded_by_1_unless_declared():
    linear = {"loss": dps.losses.Linear(), "response": [1.0, -1.0, 1.5, 0.0]}
    with pytest.raises(ValueError, match=r"response_bound = 1 .* got 1\.5 at record 2"):
        problem(**linear)
    assert problem(**linear, response_bound=1.5).lipschitz(2.0) == 1.5


def test_intercept_appends_a_column_and_grows_the_bound():
    theta = np.array([0.1, -0.4, 0.2, 0.7])
    for make in (np.array, sparse.csr_matrix):
        made = problem(features=make(ROWS), intercept=True)
        np.testing.assert_allclose(
            made.margins(theta), ROWS @ theta[:3] + 0.7, rtol=1e-14
        )
        assert made.dim == 4 and made.feature_names == ("0", "1", "2", "intercept")
        assert made.lipschitz(2.0) == pytest.approx(np.sqrt(2.0), rel=1e-15)
    infinity = problem(intercept=True, row_norm=np.inf, row_bound=1.0)
    assert infinity.facts.full_row_bound == 1.0
    assert problem(
        intercept=True, row_norm=1.0, row_bound=1.4
    ).facts.full_row_bound == (pytest.approx(2.4))


def test_offsets_shift_margins_and_are_bounded():
    offset = np.array([0.5, -1.0, 0.0, 0.25])
    made = problem(offset=offset, offset_bound=1.0)
    theta = np.array([0.1, -0.4, 0.2])
    np.testing.assert_allclose(made.margins(theta), ROWS @ theta + offset, rtol=1e-14)
    assert made.facts.margin_bound == 2.0
    words = r"offset must be within offset_bound = 0\.9 .*, got -1 in record 1"
    with pytest.raises(ValueError, match=words):
        problem(offset=offset, offset_bound=0.9)
    with pytest.raises(ValueError, match="offset_bound = 0 "):
        problem(offset=offset)


def test_names_come_from_the_frame_unless_given():
    frame = pd.DataFrame(ROWS, columns=["age", "sex", "income"])
    response = pd.Series(LABELS)
    named = problem(features=frame, response=response)
    assert named.feature_names == ("age", "sex", "income")
    for given in (["a", "b", "c"], ("a", "b", "c"), np.array(["a", "b", "c"])):
        made = problem(features=frame, feature_names=given, intercept=True)
        assert made.feature_names == ("a", "b", "c", "intercept")
    with pytest.raises(ValueError, match="feature_names must be of length 3, got"):
        problem(feature_names=["a", "b"])


LAYOUTS = {
    "list": ROWS.tolist(),
    "fortran": np.asfortranarray(ROWS),
    "float32": ROWS.astype(np.float32),
    "strided": np.repeat(np.repeat(ROWS, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": ROWS[::-1, ::-1][::-1, ::-1],
    "read-only": np.broadcast_to(ROWS, ROWS.shape),
    "big-endian": ROWS.astype(">f8"),
    "frame": pd.DataFrame(ROWS),
    "csr": sparse.csr_matrix(ROWS),
    "csc": sparse.csc_matrix(ROWS),
    "coo array": sparse.coo_array(ROWS),
    "int64 indices": sparse.csr_matrix(
        (
            ROWS[ROWS != 0.0],
            np.nonzero(ROWS)[1].astype(np.int64),
            np.array([0, 2, 2, 4, 5], dtype=np.int64),
        ),
        shape=ROWS.shape,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_risk_and_one_compiled_type(layout):
    from numba import typeof

    response = LABELS.astype(np.int32)
    made = problem(features=LAYOUTS[layout], response=response, row_bound=1.1)
    theta = [0.1, -0.4, 0.2]
    expected = np.logaddexp(0.0, -LABELS * (ROWS @ theta)).mean()
    precision = 1e-7 if layout == "float32" else 1e-14
    assert made.risk(theta) == pytest.approx(expected, rel=precision)
    assert typeof(made.data) == typeof(problem().data)


def test_records_are_copied_once():
    rows, labels, csr = ROWS.copy(), LABELS.copy(), sparse.csr_matrix(ROWS)
    dense, thin = problem(features=rows, response=labels), problem(features=csr)
    before = dense.risk([1.0, 0.0, 0.0]), thin.risk([1.0, 0.0, 0.0])
    rows[:], labels[:], csr.data[:] = 7.0, 7.0, 7.0
    assert before == (dense.risk([1.0, 0.0, 0.0]), thin.risk([1.0, 0.0, 0.0]))


def with_entry(value, *, make=np.array):
    rows = ROWS.copy()
    rows[2, 1] = value
    return make(rows)


BAD = {
    "NaN": ({"features": with_entry(np.nan)}, r"finite, got nan at index \[2, 1\]"),
    "infinity in CSR": (
        {"features": with_entry(np.inf, make=sparse.csr_matrix)},
        "finite, got a NaN or infinity in record 2",
    ),
    "words": ({"features": [["a", "b"]] * 4}, "an array of numbers, .*Encode"),
    "category": (
        {"features": pd.DataFrame({"a": ["x", "y", "x", "y"]})},
        "an array of numbers, .*Encode",
    ),
    "missing": (
        {"features": pd.DataFrame({"a": pd.array([1, None, 2, 3], dtype="Int64")})},
        "features must be .*fill missing",
    ),
    "one axis": ({"features": ROWS[0]}, r"of shape \(any, any\), got shape \(3,\)"),
    "one sparse axis": ({"features": sparse.coo_array(ROWS[0])}, r"got shape \(3,\)"),
    "no rows": ({"features": np.empty((0, 3)), "response": []}, "non-empty"),
    "no columns": ({"features": np.empty((4, 0))}, "non-empty"),
    "too few labels": ({"response": LABELS[:3]}, r"of shape \(4,\), got shape \(3,\)"),
    "two label columns": ({"response": np.ones((4, 1))}, r"got shape \(4, 1\)"),
    "labels 0 and 1": ({"response": [0, 1, 0, 1]}, r"-1 or 1, got 0 .* 2 \* y - 1"),
    "NaN label": ({"response": [1.0, np.nan, 1.0, 1.0]}, "response must be finite"),
    "zero row bound": ({"row_bound": 0.0}, "row_bound must be .* Declare the public"),
    "missing row bound": ({"row_bound": None}, "row_bound must be from 1e-60"),
    "row norm below 1": ({"row_norm": 0.5}, "row_norm must be >= 1, got 0.5"),
    "negative offset bound": ({"offset_bound": -1.0}, "offset_bound must be"),
    "loss class": ({"loss": dps.losses.Logistic}, "loss must be a Loss, .*dps.losses"),
    "loss name": ({"loss": "logistic"}, "loss must be a Loss, got 'logistic'"),
    "domain": ({"domain": 1.0}, "domain must be a Domain, got 1. Use one of"),
    "domain of another size": (
        {"domain": dps.domains.Ball(1.0, center=[0.0, 0.0])},
        "center must be of shape",
    ),
    "undeclared response": (
        {"loss": dps.losses.Squared()},
        "response_bound must be declared for the squared loss, got None",
    ),
    "negative response bound": ({"response_bound": -1.0}, "response_bound must be"),
    "number as flag": ({"intercept": 1}, "intercept must be a bool, got 1"),
    "word as flag": ({"clip_rows": "yes"}, "clip_rows must be a bool, got 'yes'"),
    "intercept of matrices": (
        {
            "domain": dps.domains.SchattenBall(1.0, p=1.0, shape=(2, 2)),
            "intercept": True,
        },
        "intercept must be False on a SchattenBall",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_the_grammar(case):
    changes, words = BAD[case]
    with pytest.raises(ValueError, match=words) as caught:
        problem(**changes)
    assert " must be " in str(caught.value) and ", got " in str(caught.value)


@pytest.mark.parametrize("theta", [[0.0], np.zeros((1, 3)), [0.0, np.nan, 0.0], "abc"])
def test_bad_points_are_refused(theta):
    for call in (problem().risk, problem().margins):
        with pytest.raises(ValueError, match=r"^theta must be .*, got "):
            call(theta)


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array])
@pytest.mark.parametrize("row_norm", [1.0, 1.5, 2.0, np.inf])
def test_a_row_whose_norm_overflows_keeps_its_direction_when_clipped(layout, row_norm):
    largest = np.finfo(float).max
    rows = layout(np.array([[largest, -largest, 0.0], [0.1, 0.0, 0.2]]))
    fixed = {"loss": dps.losses.Huber(), "domain": dps.domains.Ball(1.0)}
    fixed |= {"row_bound": 2.0, "row_norm": row_norm}
    problem = dps.Problem(rows, [0.0, 1.0], clip_rows=True, **fixed)
    size = 2.0 / np.linalg.norm([1.0, 1.0], row_norm)
    kept = [problem.margins(axis) for axis in np.eye(3)]
    wanted = [[size, 0.1], [-size, 0.0], [0.0, 0.2]]
    np.testing.assert_allclose(kept, wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="rows of .*-norm at most row_bound = 2, got"):
        dps.Problem(rows, [0.0, 1.0], **fixed)


def test_a_matrix_whose_singular_values_overflow_is_clipped():
    rows = np.full((1, 4), np.finfo(float).max)
    problem = dps.Problem(
        rows,
        [0.0],
        loss=dps.losses.Huber(),
        domain=dps.domains.SchattenBall(radius=1.0, p=1.0, shape=(2, 2)),
        row_bound=1.0,
        row_norm=np.inf,
        clip_rows=True,
    )
    np.testing.assert_allclose(problem.margins(np.ones(4)), [2.0])


BEYOND = 0.1 + 0.2  # the next number above .3


@pytest.mark.parametrize("name", ["response", "offset", "column"])
def test_what_is_just_beyond_its_bound_is_printed_apart_from_it(name):  # F8
    given = {"loss": dps.losses.Squared(), "domain": dps.domains.Ball(1.0)}
    given["row_bound"] = 1.0
    with pytest.raises(ValueError, match=r"0\.3\b.*, got") as caught:
        if name == "column":
            frame = pd.DataFrame({"x": [BEYOND], "y": [0.1]})
            bounds = dps.tables.Schema(numeric={"x": (0.0, 0.3), "y": (0.0, 1.0)})
            dps.tables.from_frame(frame, target="y", bounds=bounds)
        elif name == "offset":
            more = {"response_bound": 1.0, "offset": [BEYOND], "offset_bound": 0.3}
            dps.Problem([[1.0]], [0.1], **given, **more)
        else:
            dps.Problem([[1.0]], [BEYOND], **given, response_bound=0.3)
    assert f"got {BEYOND!r}" in str(caught.value)
