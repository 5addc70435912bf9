"""Columns are matched by name: predictions, evaluation problems, neighbors, tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.tables import Schema, read_table

NAMES = ["age", "income", "ward=north"]
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
METHOD = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=40)


def frame(num_rows=60):
    rng = np.random.default_rng(4)
    return pd.DataFrame(rng.uniform(-0.5, 0.5, (num_rows, 3)), columns=NAMES)


def make_problem(features, **options):
    signs = np.where(np.arange(len(features)) % 3 == 0, 1.0, -1.0)
    return dps.Problem(
        features,
        signs,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        **options,
    )


@pytest.fixture(scope="module")
def answer():
    return dps.release(make_problem(frame(), intercept=True), BUDGET, seed=3)


def test_a_reordered_frame_predicts_the_same_bit_for_bit(answer):  # U1
    rows = frame(9)
    expected = answer.margin(rows.to_numpy())
    for names in (NAMES, NAMES[::-1], ["income", "ward=north", "age"]):
        np.testing.assert_array_equal(answer.margin(rows[names]), expected)
        np.testing.assert_array_equal(
            answer.predict(rows[names]), np.where(expected >= 0.0, 1.0, -1.0)
        )


REFUSED = {
    "missing": (["age", "income"], "complete, got none named 'ward=north'"),
    "renamed": (["age", "income", "ward"], "got none named 'ward=north'"),
    "unseen": ([*NAMES, "height"], "known, got also 'height'. Drop what"),
    "duplicate": ([*NAMES, "age"], "distinct, got two named 'age'"),
    "unnamed": ([0, 1, 2, 3], "of shape .any, 3., got shape .5, 4."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_frames_of_other_columns_are_refused_by_name(answer, case):  # U1
    names, message = REFUSED[case]
    rows = pd.DataFrame(np.zeros((5, len(names))), columns=names)
    for method in (answer.margin, answer.predict):
        with pytest.raises(
            ValueError, match=f"^(columns of )?features must be .*{message}"
        ):
            method(rows)


def test_a_named_frame_is_refused_by_an_answer_without_names():  # U1
    nameless = dps.release(make_problem(frame().to_numpy()), BUDGET, seed=3)
    with pytest.raises(ValueError, match="got none named '0', '1', '2'.*by position"):
        nameless.predict(frame())
    numbered = pd.DataFrame(frame().to_numpy())
    np.testing.assert_array_equal(
        nameless.margin(numbered), nameless.margin(numbered.to_numpy())
    )


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_arrays_are_matched_by_position_and_their_width_is_checked(answer, make):
    rows = frame(4).to_numpy()
    expected = rows @ answer.theta[:3] + answer.theta[3]
    np.testing.assert_allclose(answer.margin(make(rows)), expected, rtol=1e-14)
    for wrong in (rows[:, :2], np.hstack([rows, rows])):
        with pytest.raises(ValueError, match="^features must be of "):
            answer.margin(make(wrong))


def test_names_of_many_columns_are_cut_in_messages(answer):
    rows = pd.DataFrame(np.zeros((1, 40)), columns=[f"c{j}" for j in range(40)])
    with pytest.raises(ValueError) as caught:
        answer.predict(rows)
    assert len(str(caught.value)) < 300


def runs(problem, other):
    """Every verb that compares two problems."""
    target = dps.Gibbs(problem, k=50.0, mu=0.5)
    shared = {"num_replicates": 2, "threads": 1, "evaluate": other}
    short = {"num_draws": 2, "num_warmup": 0, "num_chains": 1}
    mala = dps.samplers.MALA()
    verb = dps.replicate
    return {
        "minimize": lambda: dps.minimize(problem, METHOD, evaluation=other),
        "replicate minimize": lambda: verb(dps.minimize, problem, METHOD, **shared),
        "replicate by keyword": lambda: verb(
            dps.minimize, optimizer=METHOD, problem=problem, **shared
        ),
        "replicate release": lambda: verb(dps.release, problem, BUDGET, **shared),
        "replicate sample": lambda: verb(
            dps.sample, target, sampler=mala, **short, **shared
        ),
    }


@pytest.mark.parametrize("verb", runs(None or make_problem(frame()), None))
def test_evaluation_records_have_the_columns_of_the_problem(verb):  # U1
    problem = make_problem(frame())
    reordered = make_problem(frame()[NAMES[::-1]])
    with pytest.raises(ValueError, match="same columns, got 'ward=north' in the place"):
        runs(problem, reordered)[verb]()
    fewer = make_problem(frame()[NAMES[:2]])
    with pytest.raises(ValueError, match="a problem of 3 parameters, got 2"):
        runs(problem, fewer)[verb]()
    constant = make_problem(frame().to_numpy()[:, :2], intercept=True)
    with pytest.raises(ValueError, match="got 'intercept' in the place of"):
        runs(problem, constant)[verb]()


@pytest.mark.parametrize("verb", ["minimize", "replicate minimize"])
def test_records_without_names_are_matched_by_position(verb):
    problem, nameless = make_problem(frame()), make_problem(frame().to_numpy())
    assert runs(problem, nameless)[verb]() is not None
    with pytest.raises(ValueError, match="same columns, got 'age' in the place of '0'"):
        runs(nameless, problem)[verb]()


def test_neighbors_have_the_same_columns():  # U1
    rows = frame(30)
    other = rows.copy()
    other.iloc[-1] *= -1.0
    problem, neighbor = make_problem(rows), make_problem(other)
    renamed = make_problem(other, feature_names=NAMES[::-1])
    mechanism = dps.calibrate(problem, BUDGET)
    options = {"num_draws": 100, "seed": 1, "progress": False}
    with pytest.raises(ValueError, match="^neighbor must be a problem of the same col"):
        dps.audit(mechanism, problem, renamed, BUDGET, **options)
    assert dps.audit(mechanism, problem, neighbor, BUDGET, **options).epsilon_lower >= 0


SCHEMA = Schema(
    ignore=("id",), numeric={"a": (0, 1), "b": (0, 2)}, categorical={"c": ("u", "v")}
)
LABELLED = replace(SCHEMA, categorical={"c": ("u", "v"), "y": (-1, 1)})
TRAIN = "id,a,b,c,y\n7,1,0,u,1\n8,0,2,v,-1\n"


def read(folder, text, **options):
    (folder / "t.csv").write_text(text)
    return read_table(folder / "t.csv", target="y", **{"bounds": SCHEMA, **options})


@pytest.mark.parametrize("bounds", [SCHEMA, None])
def test_a_second_table_is_read_with_the_columns_of_the_first(tmp_path, bounds):  # U1
    text = TRAIN if bounds else "a,b,y\n1,0,1\n0,2,-1\n"
    other = "c,y,b,a\nu,1,0,1\nv,-1,2,0\n" if bounds else "b,y,a\n0,1,1\n2,-1,0\n"
    first = read(tmp_path, text, bounds=bounds)
    assert first.columns == (("a", "b", "c") if bounds else ("a", "b"))
    second = read(tmp_path, other, bounds=bounds, columns=first.columns)
    assert second.feature_names == first.feature_names
    np.testing.assert_array_equal(second.features, first.features)
    np.testing.assert_array_equal(second.response, first.response)


def test_a_second_table_of_other_columns_is_refused(tmp_path):  # U1
    with pytest.raises(
        ValueError, match="columns of the table must be complete, got none named 'b'"
    ):
        read(tmp_path, "a,y\n1,2\n", bounds=None, columns=("a", "b"))
    with pytest.raises(ValueError, match="known, got also 'c'"):
        read(tmp_path, "a,c,y\n1,2,3\n", bounds=None, columns=("a",))


@pytest.mark.parametrize("bounds", [SCHEMA, None])
def test_a_column_that_occurs_twice_is_refused(tmp_path, bounds):  # U1
    with pytest.raises(ValueError, match="distinct, got two named 'a'"):
        read(tmp_path, "a,b,c,a,y\n1,0,1,1,1\n", bounds=bounds)


def test_libsvm_tables_of_other_widths_are_refused(tmp_path):  # U1
    (tmp_path / "d").write_text("1 1:1 3:1\n-1 2:1\n")
    first = read_table(tmp_path / "d", num_features=3, row_bound=2.0)
    with pytest.raises(ValueError, match="known, got also '4', '5'"):
        read_table(tmp_path / "d", num_features=5, columns=first.columns)
    again = read_table(tmp_path / "d", num_features=3, columns=first.columns)
    assert again.feature_names == first.feature_names


@pytest.mark.parametrize(
    ("section", "name"), [("numeric", "b"), ("log", "d"), ("categorical", "c")]
)
def test_a_declared_column_that_the_table_lacks_is_an_error(tmp_path, section, name):
    # U4
    declared = {"a": (0, 1)}, {"b": (0, 2)}, {"c": ("u", "v")}, {"d": (0, 9)}
    a, b, c, d = declared
    schemas = {
        "b": (Schema(numeric=a | b), "a,y\n1,1\n"),
        "c": (Schema(numeric=a, categorical=c), "a,y\n1,1\n"),
        "d": (Schema(numeric=a, log=d), "a,y\n1,1\n"),
    }
    schema, text = schemas[name]
    assert name in getattr(schema, section)
    message = f"column '{name}' must be in the table, as the bounds declare it"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, bounds=schema)


def test_an_ignored_column_may_be_absent_and_the_target_may_be_declared(tmp_path):
    schema = Schema(numeric={"a": (0, 1), "y": (-1, 1)}, ignore=("id",))
    assert read(tmp_path, "a,y\n1,1\n", bounds=schema).columns == ("a",)


def test_rules_say_what_encoding_does_to_any_record(tmp_path):  # U4
    refused = read(tmp_path, TRAIN).rules
    assert any("'a', 'b'" in rule and "outside is an error" in rule for rule in refused)
    assert any("another level is an error" in rule for rule in refused)
    given = {"bounds": LABELLED, "positive_label": "1"}
    clipped = read(tmp_path, TRAIN, clip=True, scale=2.0, **given).rules
    text = "\n".join(clipped)
    assert "a number outside is moved to the nearer end" in text
    assert "another level gives zeros in all of them" in text
    assert "ignored: 'id'" in text and "a missing value is an error" in text
    assert "rows are divided by 3^(1/2)" in text and "multiplied by 2" in text
    assert "response 'y': '1' becomes 1, every other public level -1" in text


def test_rules_do_not_depend_on_the_records(tmp_path):  # U4
    wild = "id,a,b,c,y\n7,99,-8,w,1\n8,0.5,1,x,-1\n"
    options = {"clip": True, "positive_label": "1", "bounds": LABELLED}
    assert (
        read(tmp_path, wild, **options).rules == read(tmp_path, TRAIN, **options).rules
    )


def test_a_column_may_be_named_as_the_intercept_is():
    rows = frame().rename(columns={"income": "intercept"})
    answer = dps.release(make_problem(rows), BUDGET, seed=3)
    expected = answer.margin(rows.to_numpy())
    reordered = rows[["intercept", "ward=north", "age"]]
    np.testing.assert_array_equal(answer.margin(reordered), expected)


class Nameless:
    """A table whose columns are their entries, without names beside them."""

    def __init__(self, numbers, kind):
        self.columns, self._numbers = [kind(x) for x in numbers.T], numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self._numbers, dtype=dtype)

    def __len__(self):
        return len(self._numbers)


@pytest.mark.parametrize("kind", [np.array, tuple, iter])
def test_entries_never_become_names(kind):
    problem = make_problem(Nameless(frame().to_numpy(), kind))
    assert problem.feature_names == ("0", "1", "2")


def test_tables_of_pyarrow_have_the_names_of_their_columns(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    given = frame()
    table = arrow.Table.from_pandas(given)
    answer = dps.release(make_problem(table), BUDGET)
    assert answer.feature_names == tuple(NAMES)
    answer.save(tmp_path / "answer.json")
    text = (tmp_path / "answer.json").read_text()
    assert not any(str(entry) in text for entry in given.iloc[:, 0])
    other = table.select(NAMES[::-1])
    assert answer.predict(other).tolist() == answer.predict(given).tolist()
    bounds = Schema(numeric=dict.fromkeys(NAMES, (-0.5, 0.5)))
    encoded = [
        dps.tables.from_frame(rows, target="age", bounds=bounds).features.tolist()
        for rows in (given, table)
    ]
    assert encoded[0] == encoded[1]
