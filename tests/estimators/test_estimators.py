"""Estimators keep scikit-learn's conventions, and what they add to them holds."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpsample as dps
from dpsample import cli
from dpsample.estimators import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PrivateSVC,
    linear,
)
from dpsample.privacy.certificates.sealed import SEARCH
from dpsample.running import progress
from tests.support.tiers import one_in, usual

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process has fitted:UserWarning",
    "ignore:This fit is one of a cross-validation:UserWarning",
    "ignore:The two classes were read:UserWarning",
    "ignore:Clipped:RuntimeWarning",
)
CLASSIFIERS = (PrivateLogisticRegression, PrivateSVC)
REGRESSORS = (PrivateRidge, PrivateHuberRegressor, PrivateQuantileRegressor)
# scikit-learn's checks that do not apply, and why.
SKIPPED = {
    "check_dataframe_column_names_consistency": "columns are matched by name: another "
    "order is no error, and a missing one is named in our words",
}


def skipped(estimator):
    return SKIPPED


@usual("PrivateRidge")
@parametrize_with_checks(
    [kind(row_bound=5.0, radius=5.0) for kind in CLASSIFIERS]
    + [kind(row_bound=5.0, radius=5.0, response_range=(-5, 5)) for kind in REGRESSORS],
    expected_failed_checks=skipped,
)
def test_conventions(estimator, check):
    if check.func.__name__ == "check_classifiers_one_label":
        pytest.skip("classes are not read from y: noise may predict the one it lacks")
    check(estimator)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(5)
    n = 3000
    table = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, n),
            "income": rng.lognormal(10, 1, n),
            "ward": rng.choice(["north", "south"], n),
        }
    )
    signal = (table["age"] - 50) / 15 + np.where(table["ward"] == "north", 1.0, -1.0)
    table["ill"] = np.where(signal + rng.logistic(size=n) > 0, "yes", "no")
    table["cost"] = 1000 + 300 * signal + rng.normal(0, 50, n)
    return table


BOUNDS = {
    "numeric": {"age": (18, 80), "cost": (-1000, 3000)},
    "log": {"income": (0, 1e6)},
    "categorical": {"ward": ("north", "south"), "ill": ("no", "yes")},
}
COLUMNS = ["age", "income", "ward"]


def classifier(**options):
    bounds = {**BOUNDS, "numeric": {"age": (18, 80)}}
    return PrivateLogisticRegression(bounds=bounds, random_state=2, **options)


def regressor(kind=PrivateHuberRegressor, **options):
    bounds = {**BOUNDS, "categorical": {"ward": ("north", "south")}}
    return kind(bounds=bounds, random_state=1, **options)


def test_tables_are_matched_by_name(people):
    X, y = people[COLUMNS], people["ill"]
    model = classifier().fit(X, y)
    assert list(model.classes_) == ["no", "yes"]
    assert model.score(X, y) > 0.75
    probability = model.predict_proba(X)[:, 1]
    other = model.predict_proba(X[["ward", "income", "age"]])[:, 1]
    np.testing.assert_array_equal(probability, other)
    with pytest.raises(ValueError, match="ward"):
        model.predict(X[["age", "income"]])


def test_coefficients_are_in_raw_units(people):
    X, y = people[COLUMNS], people["cost"]
    model = regressor().fit(X, y)
    inside = X.assign(income=X["income"].clip(0, 1e6))
    features = np.column_stack(
        [
            X["age"],
            np.log1p(inside["income"]),
            X["ward"] == "north",
            X["ward"] == "south",
        ]
    )
    np.testing.assert_allclose(
        model.predict(inside), features @ model.coef_ + model.intercept_, rtol=1e-9
    )
    assert model.coef_[0] == pytest.approx(20.0, rel=0.25)  # 300 / 15
    model = classifier().fit(X, people["ill"])
    np.testing.assert_allclose(
        model.decision_function(inside),
        features @ model.coef_[0] + model.intercept_[0],
        rtol=1e-9,
        atol=1e-9,
    )


@one_in(2)
@pytest.mark.parametrize(
    ("method", "kind"), [("release", dps.Release), ("tail", dps.Fit)]
)
def test_answers_predict_raw_tables_after_saving(
    people, tmp_path, capsys, method, kind
):
    model = classifier(method=method).fit(people[COLUMNS], people["ill"])
    file, page = tmp_path / "answer.json", tmp_path / "answer.html"
    model.answer_.save(file)
    answer = kind.load(file)
    np.testing.assert_array_equal(
        answer.predict(people[COLUMNS]), model.predict(people[COLUMNS])
    )
    answer.verify()
    people[COLUMNS].head(9).to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert cli.main(["predict", str(file), str(tmp_path / "new.csv")]) == 0
    rows = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == model.predict(people[COLUMNS].head(9)).tolist()
    assert cli.main(["verify", str(file)]) == 0
    assert cli.main(["certificate", str(file), "--html", str(page)]) == 0
    assert "ward=north" in page.read_text()
    file.write_text(file.read_text().replace('"theta": [', '"theta": [1,', 1))
    with pytest.raises(ValueError, match=r"theta|digest"):
        kind.load(file)
    assert model.certificate_.releasable is False
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict(people[COLUMNS]), model.predict(people[COLUMNS])
    )


@pytest.mark.parametrize("levels", [("no", "yes"), ("yes", "no")])
def test_an_answer_tells_labels_as_its_model(people, levels):
    X, y = people[COLUMNS], people["ill"]
    model = classifier()
    model.bounds = {
        **model.bounds,
        "categorical": BOUNDS["categorical"] | {"ill": levels},
    }
    found = model.fit(X, y).predict(X)
    np.testing.assert_array_equal(model.answer_.predict(X), found)
    assert (found == y).mean() > 0.75


@pytest.mark.parametrize("name", ["cost", "price", None, "age"])
def test_an_answer_tells_responses_as_its_model(people, name):
    X, y = people[COLUMNS], people["cost"].rename(name)
    model = PrivateRidge(random_state=1, bounds=(0.0, [80, 1e6]))
    if name == "cost":
        model.bounds = {**BOUNDS, "categorical": {"ward": ("north", "south")}}
    else:
        X, model.response_range = X[["age", "income"]], (-1000, 3000)
    found = model.fit(X, y).predict(X)
    np.testing.assert_allclose(model.answer_.predict(X), found, rtol=1e-12)
    assert abs(found.mean() - y.mean()) < 100.0


def test_two_ranges_of_a_response_are_refused(people):
    X, y = people[COLUMNS], people["cost"]
    with pytest.raises(ValueError, match="must be what bounds declares for 'cost'"):
        regressor(response_range=(0, 2000)).fit(X, y)
    with pytest.raises(ValueError, match="response 'income' must be declared as numer"):
        regressor(response_range=(0, 1)).fit(people[["age", "ward"]], people["income"])
    with pytest.raises(ValueError, match="must be those of features, got also 'age'"):
        regressor(response_range=(0, 1)).fit(X, people["age"])


@pytest.mark.parametrize("given", [{"bounds": (0, 1)}, {"row_bound": 2.0}])
@pytest.mark.parametrize("kind", [int, str])
def test_columns_that_are_numbered_are_matched_by_number(given, kind):
    X = pd.DataFrame(np.random.default_rng(1).uniform(size=(500, 3))).rename(
        columns=kind
    )
    y = X.iloc[:, 0] > 0.5
    model = PrivateLogisticRegression(classes=(0, 1), random_state=1, **given).fit(X, y)
    margins = model.decision_function(X)
    assert margins.tolist() == model.decision_function(X.iloc[:, [2, 0, 1]]).tolist()
    if kind is int:
        assert margins.tolist() == model.decision_function(X.to_numpy()).tolist()


def test_bounds_may_be_declared_by_number():
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1.0, 1.0, (200, 2)), np.arange(200) % 2
    frame, ends = pd.DataFrame(X), {0: (-1, 1), 1: (-1, 1)}
    model = PrivateLogisticRegression(bounds={"numeric": ends}, random_state=1)
    coef = model.fit(X, y).coef_.tolist()
    named = frame.rename(columns=str)
    for fitted, others in (
        (frame, (X, frame[[1, 0]], named[["1", "0"]])),
        (frame[[1, 0]], (X, frame)),
        (named, (frame, frame[[1, 0]], named[["1", "0"]])),
    ):
        assert model.fit(fitted, y).coef_.tolist() == coef
        for rows in others:
            found = model.decision_function(rows)
            np.testing.assert_array_equal(found, model.decision_function(fitted))
    frame[1] = np.where(X[:, 1] > 0.0, "a", "b")
    model.bounds = {"numeric": {0: (-1, 1)}, "categorical": {1: ("a", "b")}}
    found = model.fit(frame, y).decision_function(frame)
    np.testing.assert_array_equal(model.decision_function(frame[[1, 0]]), found)
    model.bounds = {"numeric": {0: (-1, 1)}}
    with pytest.raises(ValueError, match="column '1' must be declared"):
        model.fit(frame, y)


@pytest.mark.parametrize("given", [{"bounds": (0, 1)}, {"row_bound": 2.0}])
def test_masks_and_dates_are_refused(given):
    X, y = np.full((20, 2), 0.5), np.arange(20) % 2
    model = PrivateLogisticRegression(classes=(0, 1), **given)
    for rows, labels, message in (
        (np.ma.masked_array(X, X > 1.0), y, "X must be of numbers, none of them mas"),
        (X.astype("datetime64[s]"), y, "X must be of numbers"),
        (X, np.ma.masked_array(y, y > 1), "y must be complete, got a masked array"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(rows, labels)


@pytest.mark.parametrize("labels", [[0, 1], [1, 1], [0, 0], [True, True]])
def test_a_fit_to_be_released_never_asks_which_labels_occur(labels):  # P2
    X = np.full((40, 2), 0.5)
    model = PrivateLogisticRegression(bounds=(0, 1)).fit(X, np.resize(labels, 40))
    assert model.classes_.tolist() == [0, 1]
    assert model.certificate_.releasable
    for odd in (2, -1):  # by itself, whatever the others are
        y = np.resize(labels, 40).astype(int)
        y[7] = odd
        with pytest.raises(ValueError, match=rf"classes \[0, 1\], got {odd}\. Pass"):
            model.fit(X, y)


def test_words_as_labels_are_declared_and_compared_without_blanks():  # P2, F4
    X, y = np.full((40, 2), 0.5), np.resize(["no", " yes"], 40)
    with pytest.raises(
        ValueError, match=r"y must be of the classes \[0, 1\], got 'no'"
    ):
        PrivateLogisticRegression(bounds=(0, 1)).fit(X, y)
    model = PrivateLogisticRegression(bounds=(0, 1), classes=("no", "yes"))
    assert set(model.fit(X, y).predict(X)) <= {"no", "yes"}
    with pytest.raises(ValueError, match="classes must be two different ones"):
        model.set_params(classes=("no", "no ")).fit(X, y)
    halves = PrivateLogisticRegression(bounds=(0, 1), classes=(0.5, 1.5))
    for last in (0.5, 1.5):  # valid labels that scikit-learn takes for a response
        assert halves.fit(X, np.r_[np.full(39, 0.5), last]).classes_[1] == 1.5


def test_every_fold_spends_and_says_so(people):
    X, y = people[COLUMNS], people["ill"]
    ledger = dps.privacy.Ledger()
    steps = make_pipeline(FunctionTransformer(), classifier(ledger=ledger))
    scores = cross_val_score(steps, X, y, cv=3)
    assert (scores > 0.7).all()
    assert len(ledger.entries) == 3
    model = classifier().set_params(random_state=None)
    model.fit(X, y)
    with pytest.warns(UserWarning, match="budgets add up"):
        cross_val_score(model, X, y, cv=2)


def test_the_first_fit_of_a_search_warns_before_it_spends(people, monkeypatch):
    """Q6: in a worker of its own every fit of a search may be the first."""
    monkeypatch.setattr(linear, "_has_fitted", False)
    X, y = people[COLUMNS], people["ill"]
    model = classifier().set_params(random_state=None)
    with pytest.raises(UserWarning, match="one of a cross-validation.*budgets add up"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cross_val_score(model, X, y, cv=2, error_score="raise")
    assert not linear._has_fitted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    assert linear._has_fitted


def test_an_intercept_costs_as_much_as_a_column(people):
    X, y = people[["age", "income", "ward"]], people["ill"]
    inputs = dict(classifier(method="tail").fit(X, y).certificate_.inputs)
    assert inputs["lipschitz"] == pytest.approx(4**0.5)  # of 3 columns and a 1
    model = classifier(method="tail", row_bound=1.0)
    inputs = dict(model.fit(X, y).certificate_.inputs)
    assert inputs["lipschitz"] == pytest.approx(2**0.5)


def test_confidence_intervals_are_in_raw_units(people):
    X, y = people[["age", "income"]], people["cost"]
    model = regressor(method="intervals", epsilon=8.0).fit(X, y)
    ends = model.conf_int()
    center = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(ends.mean(axis=1), center)
    assert (model.conf_int(0.99)[:, 0] < ends[:, 0]).all()
    slopes = model.answer_.se[0] * 2 / (80 - 18) * 2000
    assert ends[0, 1] - center[0] == pytest.approx(1.959964 * slopes)
    with pytest.raises(ValueError, match="method must be 'intervals'"):
        regressor().fit(X, y).conf_int()


@pytest.mark.parametrize("method", ["objective", "tail", "release"])
def test_methods_and_seeds(people, method):
    X, y = people[COLUMNS], people["ill"]
    model, again = (classifier(method=method).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert model.score(X, y) > 0.7


def test_a_method_is_that_of_the_advice_or_refused(people):
    X, y = people[COLUMNS], people["cost"]
    names = ("auto", "decaying", "tail")
    fits = [regressor(PrivateQuantileRegressor, method=m) for m in names]
    default, decaying, tail = (model.fit(X, y).coef_ for model in fits)
    np.testing.assert_array_equal(default, decaying)
    assert (default != tail).all()
    with pytest.raises(ValueError, match="method must be one for the quantile loss"):
        regressor(PrivateQuantileRegressor, method="objective").fit(X, y)
    with pytest.raises(ValueError, match="method must be one for the quantile loss"):
        regressor(PrivateQuantileRegressor, method="intervals").fit(X, y)


def test_a_fit_without_a_seed_is_releasable(people):
    model = classifier().set_params(random_state=None)
    model.fit(people[COLUMNS], people["ill"])
    assert model.certificate_.releasable
    dps.verify(model.certificate_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bounds": None}, "bounds must be declared"),
        ({"bounds": (0, 1, 2)}, "bounds must be"),
        ({"method": "best"}, "method must be one of"),
        ({"radius": "best"}, "radius must be one of"),
        ({"classes": ("no",)}, "classes must be two different ones"),
        ({"classes": ("no", "maybe")}, "classes must be those that bounds declares"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"row_bound": 0.0}, "row_bound must be"),
        ({"fit_intercept": "no"}, "fit_intercept must be"),
    ],
)
def test_malformed_parameters(people, change, message):
    with pytest.raises(ValueError, match=message):
        classifier().set_params(**change).fit(people[COLUMNS], people["ill"])


def test_a_row_bound_of_zero_is_not_read_as_one_left_out():
    X, y = np.full((20, 2), 0.5), np.arange(20) % 2
    with pytest.raises(ValueError, match="row_bound must be"):
        PrivateLogisticRegression(row_bound=0.0, classes=(0, 1)).fit(X, y)


def test_responses_need_a_public_range(people):
    X, y = people[COLUMNS], people["cost"]
    with pytest.raises(ValueError, match="response_range must be declared"):
        regressor().fit(X, y.rename("price"))
    model = regressor(PrivateQuantileRegressor, quantile=0.9, epsilon=3.0).fit(X, y)
    assert (y <= model.predict(X)).mean() == pytest.approx(0.9, abs=0.05)


def test_dates_are_no_responses():
    X, y = np.full((20, 2), 0.5), pd.date_range("2020-01-01", periods=20)
    with pytest.raises(ValueError, match="y must be numbers, not dates or times"):
        PrivateRidge(bounds=(0, 1), response_range=(0, 1)).fit(X, y)


@pytest.mark.parametrize("missing", [None, pd.NA])
def test_a_missing_label_is_told(people, missing):
    labels = pd.Series(["no", missing] * (len(people) // 2), dtype=object)
    with pytest.raises(ValueError, match="y must be complete"):
        classifier().fit(people[COLUMNS], labels)


def test_what_is_missing_in_an_array_has_the_declared_value():
    rng = np.random.default_rng(1)
    X, y = rng.uniform(0.0, 10.0, (200, 2)), np.arange(200) % 2
    ends = {"x0": (0, 10), "x1": (0, 10)}
    given = dps.tables.Schema(numeric=ends, missing={"x1": 5.0})
    model = PrivateLogisticRegression(bounds=given, classes=(0, 1), random_state=1)
    filled = model.fit(X := np.where(np.arange(2) * (X > 9.0), 5.0, X), y).coef_
    X[X[:, 1] == 5.0, 1] = np.nan
    np.testing.assert_array_equal(model.fit(X, y).coef_, filled)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="x0"):
        model.fit(X, y)


def test_a_refused_fit_leaves_no_answer_of_other_settings(people):
    ledger = dps.privacy.Ledger(budget=dps.Budget(epsilon=1.05, delta=1e-5))
    model = classifier(ledger=ledger).fit(people[COLUMNS], people["ill"])
    with pytest.raises(ValueError, match="ledger must be"):
        model.fit(people[COLUMNS], people["ill"])
    with pytest.raises(NotFittedError):
        model.predict(people[COLUMNS])


@usual("auto")
@pytest.mark.parametrize("method", ["release", "auto", "intervals"])
def test_a_fit_shows_a_line_unless_it_is_told_not_to(people, monkeypatch, method):
    opened = []
    monkeypatch.setattr(progress, "is_shown", lambda: bool(opened.append(1)))
    model = classifier(method=method)
    model.fit(people[COLUMNS], people["ill"])
    assert opened
    opened.clear()
    model.set_params(progress=False).fit(people[COLUMNS], people["ill"])
    assert not opened
    with pytest.raises(ValueError, match="progress must be"):
        model.set_params(progress=0).fit(people[COLUMNS], people["ill"])


def test_columns_of_any_numbers_are_matched_by_number():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-0.5, 0.5, (200, 2)), columns=[10, 20])
    options = {"row_bound": 1.0, "classes": (False, True), "random_state": 1}
    model = PrivateLogisticRegression(**options).fit(frame, frame[10] > 0.0)
    found = model.decision_function(frame)
    np.testing.assert_array_equal(model.decision_function(frame[[20, 10]]), found)
    with pytest.raises(ValueError, match="columns of X must be complete"):
        model.decision_function(frame.rename(columns={20: 30}))


def test_classes_read_from_the_records_are_named(people):
    y = people["ill"].rename("sick")
    with pytest.warns(UserWarning, match="classes were read from y"):
        classifier().fit(people[COLUMNS], y)


def test_radius_follows_the_unit_of_rows_of_known_length(people):
    X = np.random.default_rng(2).normal(size=(len(people), 4))
    options = {"fit_intercept": False, "classes": ("no", "yes"), "random_state": 1}
    margins = [
        PrivateLogisticRegression(row_bound=3.0 * unit, **options)
        .fit(unit * X, people["ill"])
        .decision_function(unit * X)
        for unit in (1.0, 8.0)
    ]
    np.testing.assert_allclose(*margins, rtol=1e-6)


@pytest.mark.parametrize("ends", [([0, 0, 0], [1, 1, 1]), (0, [[1, 1]]), ([], 1)])
def test_ends_of_another_number_of_columns_are_told(ends):
    X, y = np.full((20, 2), 0.5), np.arange(20) % 2
    with pytest.raises(ValueError, match="bounds must be of ends that are numbers or"):
        PrivateLogisticRegression(bounds=ends, classes=(0, 1)).fit(X, y)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_rows_with_bounds_are_told_to_be_made_dense(kind):
    X, y = np.full((20, 2), 0.5), np.arange(20) % 2
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), random_state=1)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        model.fit(kind(X), y)
    model.fit(X, y)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        model.predict(kind(X))


def test_a_frame_is_read_by_position_if_an_array_was_fitted():
    X = np.random.default_rng(1).uniform(size=(200, 2))
    model = PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), random_state=1)
    model.fit(X, X[:, 0] > 0.5)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        margins = model.decision_function(pd.DataFrame(X, columns=["age", "height"]))
    assert margins.tolist() == model.decision_function(X).tolist()


@pytest.mark.parametrize("made", [pl.from_pandas, pa.Table.from_pandas])
def test_rows_of_a_declared_length_come_in_any_kind_of_table(made):
    frame = pd.DataFrame(np.random.default_rng(1).uniform(-0.7, 0.7, (200, 2)))
    frame.columns = ["age", "height"]
    model = PrivateLogisticRegression(row_bound=1.0, classes=(0, 1), random_state=1)
    model.fit(frame, frame["age"] > 0.0)
    margins = model.decision_function(made(frame[["height", "age"]]))
    assert margins.tolist() == model.decision_function(frame).tolist()


def table_of(number=400):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.uniform(size=number), "b": rng.uniform(size=number)})
    return frame, frame["a"] > 0.5


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        *((["0", "1"], kind) for kind in (int, float, bool)),
        (["no", "yes"], str),
        (["no ", "yes "], str),
    ],
)
def test_labels_are_the_levels_of_bounds_whatever_their_type(levels, kind):
    frame, is_high = table_of()
    labels = is_high.astype(int).astype(kind)
    if kind is str:
        labels = is_high.map({True: levels[1], False: levels[0]})
    bounds = {"numeric": {"a": [0, 1], "b": [0, 1]}, "categorical": {"y": levels}}
    model = PrivateLogisticRegression(epsilon=5.0, bounds=bounds, random_state=1)
    model.fit(frame, labels.rename("y"))
    said = model.predict(frame)
    assert (said == (levels[1] if kind is str else kind(1))).sum() > 100
    assert kind is str or said.dtype == kind
    assert model.score(frame, labels) > 0.5
    assert model.encoding_.positive_label == levels[1]
    with pytest.raises(ValueError, match=r"y must be of the classes \[0, 1\], got '0'"):
        PrivateLogisticRegression(classes=(0, 1), bounds=(0, 1)).fit(
            frame, np.where(is_high, "1", "0")
        )
    with pytest.raises(ValueError, match=r"got 0\. Pass .* int64: stacking, .* 0 and"):
        PrivateLogisticRegression(classes=(-1, 1), bounds=(0, 1)).fit(
            frame, np.where(is_high, 1, 0)
        )
    del bounds["numeric"]["b"]
    with pytest.raises(ValueError, match="column 'b' must be declared in the bounds"):
        model.fit(frame, labels.rename("y"))


def test_a_malformed_sparse_matrix_is_refused_in_words_of_the_user():
    rows = sparse.csr_array(np.eye(4, 2))
    model = PrivateLogisticRegression(row_bound=1.0, classes=(0, 1), random_state=1)
    model.fit(rows, [0, 1, 0, 1])
    rows.indices = rows.indices + 2
    with pytest.raises(ValueError, match="indices of rows must be columns from 0 to 1"):
        model.predict(rows)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("declared", [{"bounds": (0, 10)}, {"row_bound": 15.0}])
def test_parameters_that_are_set_after_a_fit_wait_for_the_next(declared, fit_intercept):
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 10, (2_000, 2))
    model = PrivateLogisticRegression(
        fit_intercept=fit_intercept,
        method="intervals",
        epsilon=20.0,
        classes=(False, True),
        random_state=1,
        **declared,
    )
    model.fit(X, X[:, 0] + rng.normal(size=2_000) > 5)
    before = model.decision_function(X), model.conf_int()
    model.set_params(fit_intercept=not fit_intercept, method="objective")
    model.set_params(**dict.fromkeys(declared, 1.0), p=1.0, epsilon=0.1)
    after = model.decision_function(X), model.conf_int()
    assert before[1].shape == (3, 2)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    refitted = PrivateLogisticRegression(bounds=(0, 10), random_state=1)
    refitted.fit(X, X[:, 0] > 5).set_params(method="intervals")
    with pytest.raises(ValueError, match="'intervals' at the last fit, got a Fit"):
        refitted.conf_int()


@pytest.mark.parametrize("make", [np.array, sparse.csr_array])
def test_rows_are_scaled_for_a_prediction_as_in_the_fit(make):
    rng = np.random.default_rng(5)
    rows = rng.normal(3.0, 2.0, (2_000, 2))
    share = rows[:, 0] / np.linalg.norm(rows, axis=1)
    model = PrivateLogisticRegression(
        row_bound=1.0, classes=(False, True), epsilon=5.0, random_state=1
    )
    model.fit(make(rows), share > 0.8)
    with pytest.warns(RuntimeWarning, match="Clipped: .* rows above 1"):
        score = model.score(make(rows), share > 0.8)
    short = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    assert score == model.score(make(short), share > 0.8) > 0.95


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_reference_level_keeps_intervals_finite_and_is_named(fit_intercept):
    """Q4: indicators of all levels add up to the intercept's 1, or to each other."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(0.0, 1.0, (4000, 2)), columns=["a", "b"])
    frame["c"] = rng.choice(["u", "v"], 4000)
    frame["e"] = rng.choice(["w", "x"], 4000)
    score = frame["a"] + 0.5 * (frame["c"] == "u") + rng.logistic(0.0, 0.5, 4000)
    is_high = score > 0.75
    bounds = {
        "numeric": {"a": [0, 1], "b": [0, 1]},
        "categorical": {"c": ["u", "v"], "e": ["w", "x"]},
        "reference": {"e": "x"},
    }
    model = PrivateLogisticRegression(
        bounds=bounds,
        classes=(False, True),
        method="intervals",
        fit_intercept=fit_intercept,
        epsilon=50.0,
        random_state=1,
    ).fit(frame, is_high.to_numpy())
    names = ("c=v vs u",) if fit_intercept else ("c=u", "c=v")
    names = ("a", "b", *names, "e=w vs x")
    assert model.answer_.feature_names[: len(names)] == names
    assert np.isfinite(model.conf_int()).all()
    assert model.coef_.shape == (1, len(names))
    # Other methods keep the indicators of all levels.
    model.set_params(method="objective").fit(frame, is_high.to_numpy())
    assert model.coef_.shape == (1, 6)


def fits_that_are_counted(model, people):
    """The winner of a search on two candidates, and what its certificate states."""
    search = GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=2)
    search.fit(people[COLUMNS], people["ill"])
    return search.best_estimator_


@one_in(2)
@pytest.mark.filterwarnings("ignore:This (process has fitted|fit is one of)")
@pytest.mark.parametrize("method", ["auto", "objective", "release", "intervals"])
def test_the_winner_of_a_search_says_what_its_certificate_does_not_count(
    people, method, tmp_path
):
    """Q6: five fits and a choice by raw scores, of which it counts one."""
    kind = classifier(method=method)
    kind.set_params(random_state=None)
    best = fits_that_are_counted(kind, people)
    for words in (best.certificate_.details(), best.certificate_.to_html()):
        told = " ".join(words.split())
        assert (
            "One fit is included in (epsilon, delta). Other fits to the same records"
            in told
        )
        assert "a choice by scores on the records, are not" in told
    assert dps.verify(best.certificate_).checks
    if method != "intervals":
        best.answer_.verify()
        best.answer_.save(tmp_path / "answer.json")
        again = type(best.answer_).load(tmp_path / "answer.json")
        assert again.certificate == best.certificate_


def test_what_says_less_or_more_of_searches_is_told_apart(people):
    """Other certificates do not say it, and nothing else may stand in its place."""
    model = classifier().fit(people[COLUMNS], people["ill"])
    said = model.certificate_
    without = replace(said, assumptions=said.assumptions[:-1], digest="")
    assert dps.verify(without).checks  # as of `minimize`
    for extra in ((SEARCH, SEARCH), ("RIDGE",)):
        assumptions = (*said.assumptions[:-1], *extra)
        with pytest.raises(ValueError, match="assumptions"):
            dps.verify(replace(said, assumptions=assumptions, digest=""))


def test_a_search_with_a_ledger_enters_every_fit_and_without_one_names_it(people):
    ledger = dps.privacy.Ledger()
    fits_that_are_counted(classifier(ledger=ledger), people)
    assert len(ledger.entries) == 5  # two folds of two candidates, and the winner
    model = classifier().set_params(random_state=None)
    with pytest.warns(UserWarning, match=r"ledger=dpsample\.privacy\.Ledger"):
        fits_that_are_counted(model, people)
