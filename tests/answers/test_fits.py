"""What `minimize` returns, on screen and as a figure."""

import copy
import pickle

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.tables import Schema
from dpsample.tables.read import from_frame
from tests.support.descent_problems import problem
from tests.support.probe_methods import BUDGET, METHOD

matplotlib.use("Agg")


def fit(**options):
    return dps.minimize(problem(), METHOD, BUDGET, seed=1, **options)


def test_a_fit_shows_its_parameters_and_the_statement():
    text = repr(fit())
    assert text.startswith("Fit(theta=[")
    assert "(1, 1e-06)-DP under replace_one" in text and "NOT releasable" in text


def test_what_depends_on_the_records_is_not_shown():
    # The size of a random batch is not covered by the certificate.
    found = fit(evaluation=problem())
    assert str(found.num_gradients) not in repr(found)
    assert "risk" not in repr(found)


@pytest.mark.parametrize(
    "twin", [lambda f: pickle.loads(pickle.dumps(f)), copy.copy, copy.deepcopy]
)
def test_pickles_and_copies_hold_nothing_nonprivate(twin):  # P7
    found = fit(evaluation=problem())
    again = twin(found)
    assert again.num_gradients is None and again.trace == {}
    assert found.num_gradients > 0 and len(found.trace["risk"]) > 0
    assert np.array_equal(again.theta, found.theta)
    assert again.certificate == found.certificate


def test_a_fit_is_exported_and_frozen():
    found = fit()
    assert isinstance(found, dps.Fit)
    with pytest.raises(AttributeError):
        found.theta = np.zeros(3)


@pytest.mark.slow
def test_the_plot_shows_the_trace():
    found = fit(evaluation=problem())
    ax = found.plot()
    x, y = ax.lines[0].get_data()
    assert np.array_equal(x, found.trace["num_gradients"])
    assert np.array_equal(y, found.trace["risk"])
    assert "not private" in ax.get_ylabel()
    assert found.plot(ax=ax) is ax
    matplotlib.pyplot.close(ax.figure)


def test_a_fit_without_a_trace_has_no_plot():
    with pytest.raises(ValueError, match="Pass evaluation=... to minimize"):
        fit().plot()


# P10
def test_the_number_of_gradients_is_said_to_depend_on_what_records_hold():
    counts = set()
    for scale in (1.0, 0.05):
        rows = scale * np.random.default_rng(0).uniform(-0.5, 0.5, (40, 2))
        made = dps.Problem(
            rows,
            np.ones(40),
            loss=dps.losses.Logistic(),
            domain=dps.domains.Ball(1.0),
            row_bound=1.0,
        )
        method = dps.optimizers.ObjectivePerturbation(ridge=0.05)
        counts.add(dps.minimize(made, method, BUDGET, seed=1).num_gradients)
    assert len(counts) == 2
    told = " ".join(dps.Fit.__doc__.split())
    assert "depends on the records" in told
    assert "records' number only" not in told


def numbered():
    """A fit of a table whose columns are numbers, and the table."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({0: rng.uniform(0, 100, 50), 1: rng.uniform(0, 4, 50)})
    frame[2] = np.where(frame[0] > 50.0, "p", "n")
    ranges = {"0": (0, 100), "1": (0, 4)}
    schema = Schema(numeric=ranges, categorical={"2": ("n", "p")})
    data = from_frame(frame, target="2", bounds=schema)
    loss, domain = dps.losses.Logistic(), dps.domains.Ball(1.0)
    return dps.Problem.from_table(data, loss=loss, domain=domain), frame


def test_raw_tables_of_numbered_columns_are_encoded():
    known, frame = numbered()
    found = dps.minimize(known, METHOD, BUDGET, seed=1)
    wanted = known.margins(found.theta)
    for given in (frame, frame[[1, 0]]):
        np.testing.assert_allclose(found.margin(given), wanted, rtol=1e-12)
    assert set(found.predict(frame)) <= {"n", "p"}


def test_predictions_take_the_offset_of_a_model_that_has_one():
    plain = problem()
    known = dps.Problem(
        plain.data.dense,
        plain.data.response,
        offset=np.full(plain.num_records, 0.5),
        offset_bound=0.5,
        loss=plain.loss,
        domain=plain.domain,
        row_bound=1.0,
    )
    found = dps.minimize(known, METHOD, BUDGET, seed=1)
    rows = plain.data.dense[:9]
    with pytest.raises(ValueError, match="offset must be given"):
        found.predict(rows)
    wanted = np.sign(known.margins(found.theta)[:9])
    assert np.array_equal(found.predict(rows, offset=np.full(9, 0.5)), wanted)


@pytest.mark.parametrize("make", [np.array, sparse.csr_array])
def test_rows_to_predict_are_scaled_down_as_those_of_the_fit_were(make):
    rng = np.random.default_rng(5)
    rows = rng.normal(3.0, 2.0, (500, 2))
    short = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    options = {"loss": dps.losses.Logistic(), "domain": dps.domains.Ball(5.0)}
    labels = np.where(short[:, 0] > 0.8, 1.0, -1.0)
    for given, clip_rows in ((rows, True), (short, False)):
        problem = dps.Problem(
            make(given), labels, row_bound=1.0, clip_rows=clip_rows, **options
        )
        fit = dps.minimize(problem, METHOD, BUDGET, seed=1)
        if clip_rows:
            with pytest.warns(RuntimeWarning, match="Clipped: .* rows above 1"):
                margins = fit.margin(make(rows))
            np.testing.assert_allclose(margins, short @ fit.theta, rtol=1e-12)
        else:  # nothing was scaled down, nothing is
            np.testing.assert_allclose(fit.margin(make(rows)), rows @ fit.theta)
