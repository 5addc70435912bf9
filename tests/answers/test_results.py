"""Results: a DataTree that is not releasable, a release that keeps its secrets."""

import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

import dpsample as dps
from dpsample.privacy.certificates.registry import registry

NAMES = ["age", "income"]


def make_problem(*, loss=None, intercept=False, clip_rows=False):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return dps.Problem(
        rows,
        np.where(rows[:, 0] > 0.1 * rng.normal(size=200), 1.0, -1.0),
        loss=dps.losses.Logistic() if loss is None else loss,
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
        intercept=intercept,
        clip_rows=clip_rows,
        feature_names=NAMES,
    )


@pytest.fixture(scope="module")
def tree():
    target = dps.Gibbs(make_problem(), k=60.0, mu=0.5)
    options = {"num_draws": 12, "num_chains": 3, "seed": 5, "progress": False}
    draws = dps.sample(target, sampler=dps.Proximal(), **options)
    return target, draws


def release(seed=7, **options):
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    return dps.release(make_problem(**options), budget, seed=seed)


@pytest.fixture(scope="module", params=["localized", "proximal"])
def answer(request):
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    sampler = dps.Proximal() if request.param == "proximal" else None
    return dps.release(make_problem(), budget, sampler=sampler, seed=7)


def test_draws_are_a_tree_with_named_coefficients(tree):
    _, draws = tree
    theta = draws.posterior["theta"]
    assert theta.dims == ("chain", "draw", "coefficient")
    assert theta.shape == (3, 12, 2)
    assert theta.coords["coefficient"].values.tolist() == NAMES
    assert draws.sample_stats["lp"].dims == ("chain", "draw")
    assert draws.constant_data["k"] == 60.0 and draws.constant_data["mu"] == 0.5


def test_draws_say_that_they_are_not_releasable(tree):
    _, draws = tree
    assert draws.attrs["releasable"] == False  # noqa: E712 - 0 in files
    assert draws.attrs["seed"] == "5" and not draws.attrs["is_interrupted"]
    assert draws.attrs["sampler"].startswith("Proximal(")
    assert draws.attrs["exactness"] == "invariant"


def test_the_seed_of_a_child_is_told_with_its_key(tree):
    options = {"num_draws": 4, "num_chains": 1, "check": False, "progress": False}
    child = np.random.SeedSequence(5).spawn(2)[1]
    told = dps.sample(tree[0], sampler=dps.Proximal(), seed=child, **options)
    assert told.attrs["seed"] == "5, spawn_key=(1,)"


def test_stored_energies_are_the_targets(tree):
    target, draws = tree
    points = draws.posterior["theta"].values.reshape(-1, 2)
    expected = [target.energy(theta) for theta in points]
    found = -draws.sample_stats["lp"].values.ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_tree_survives_a_file(tree, tmp_path):
    _, draws = tree
    path = tmp_path / "draws.nc"
    draws.to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as again:
        for group in ("posterior", "sample_stats", "constant_data"):
            assert again[group].identical(draws[group])
        assert not again.attrs["releasable"]
        for name in ("sampler", "seed", "step_size", "num_warmup"):
            assert again.attrs[name] == draws.attrs[name]


def test_a_tree_feeds_arviz(tree):
    from arviz_stats import ess, rhat

    _, draws = tree
    assert np.isfinite(ess(draws)["theta"]).all()
    assert np.isfinite(rhat(draws)["theta"]).all()


def test_only_an_unseeded_release_is_releasable(answer):
    assert answer.certificate.releasable is False
    assert release(seed=None).certificate.releasable is True


def test_refusals_that_depend_on_records_are_assumptions(answer):
    text = " ".join(registry().words(answer.certificate.assumptions))
    for words in (
        "a number that is not finite, a label other than -1 and 1, a row",
        "is not included in (epsilon, delta)",
        "Whether a request is rejected depends on public settings only",
        "SamplingError",
    ):
        assert words in text


def test_certificates_say_whether_rows_were_clipped():
    strict, clipped = (
        release(clip_rows=flag).certificate.assumptions[-1] for flag in (False, True)
    )
    assert (strict, clipped) == ("RECORDS.REFUSED", "RECORDS.CLIPPED")


def test_a_seed_gives_the_same_answer_and_entropy_another(answer):
    if answer.nonprivate_diagnostics["method"] == "rejection":
        np.testing.assert_array_equal(release().theta, answer.theta)
    first, second = release(seed=None), release(seed=None)
    assert not np.any(first.theta == second.theta)
    assert not np.any(first.theta == answer.theta)


def test_save_and_load_keep_answer_and_certificate(answer, tmp_path):
    path = tmp_path / "answer.json"
    answer.save(path)
    again = dps.Release.load(str(path))
    np.testing.assert_array_equal(again.theta, answer.theta)
    assert again.certificate == answer.certificate
    assert again.feature_names == tuple(NAMES)
    assert again.nonprivate_diagnostics is None and again.mechanism is None
    rows = np.eye(2)
    np.testing.assert_array_equal(again.predict(rows), answer.predict(rows))


def written(answer, tmp_path):
    """Everything that an answer writes about itself."""
    path = tmp_path / "answer.json"
    answer.save(path)
    return {
        "repr": repr(answer),
        "str": str(answer),
        "certificate": repr(answer.certificate),
        "mechanism": repr(answer.mechanism),
        "JSON": answer.certificate.to_json(),
        "file": path.read_text(encoding="utf-8"),
    }


# Names that public inputs have as well: the risk that is bounded, the oracle.
PUBLIC_NAMES = {"risk", "metric", "step_size"}


def leaks(text, diagnostics):
    """Names and numbers of nonprivate diagnostics that occur in a text."""
    found = [name for name in diagnostics.keys() - PUBLIC_NAMES if name in text]
    for value in diagnostics.values():
        numbers = np.ravel(list(value.values()) if isinstance(value, dict) else value)
        # Short numbers occur everywhere; long ones only if they were copied.
        found += [float(x) for x in numbers if is_long(x) and repr(float(x)) in text]
    return found


def is_long(value):
    return isinstance(value, float) and len(repr(float(value))) > 8


def test_nonprivate_diagnostics_are_in_no_repr_and_no_file(answer, tmp_path):
    diagnostics = dict(answer.nonprivate_diagnostics)
    names = {"expected_passes", "counts", "risk"}
    if diagnostics["method"] == "proximal":
        names = {"num_steps", "step_size", "metric", "acceptance", "counts", "risk"}
    assert names <= set(diagnostics)
    for place, text in written(answer, tmp_path).items():
        assert not leaks(text, diagnostics), place


def test_a_leak_would_be_seen(answer):
    """Negative control."""
    diagnostics = answer.nonprivate_diagnostics
    for name, value in diagnostics.items():
        if is_long(value):
            assert leaks(json.dumps({"private": value}), diagnostics), name
    assert leaks(f"method={diagnostics['method']}", diagnostics)


@pytest.mark.parametrize(
    "twin", [lambda a: pickle.loads(pickle.dumps(a)), copy.copy, copy.deepcopy]
)
def test_pickles_and_copies_hold_nothing_nonprivate(answer, twin):  # P7
    again = twin(answer)
    assert again.nonprivate_diagnostics is None
    assert answer.nonprivate_diagnostics is not None
    np.testing.assert_array_equal(again.theta, answer.theta)
    assert again.certificate == answer.certificate
    assert again.mechanism == answer.mechanism
    assert repr(again) == repr(answer)


def test_bytes_of_a_pickle_hold_no_nonprivate_number(answer):  # P7
    content, diagnostics = pickle.dumps(answer), answer.nonprivate_diagnostics
    for name in diagnostics.keys() - PUBLIC_NAMES:
        assert name == "counts" or name.encode() not in content
    best = diagnostics["non_private_theta"]
    assert best.tobytes() not in content
    # Negative control: the private answer itself is found.
    assert answer.theta.tobytes() in content


def test_nonprivate_diagnostics_are_what_they_say(answer):
    diagnostics, problem = answer.nonprivate_diagnostics, make_problem()
    assert diagnostics["risk"] == problem.risk(answer.theta)
    best = diagnostics["non_private_theta"]
    assert diagnostics["non_private_risk"] == problem.risk(best)
    assert diagnostics["non_private_risk"] <= diagnostics["risk"]
    counts = diagnostics["counts"]
    if diagnostics["method"] == "rejection":
        assert 1 <= counts["candidates"] <= counts["proposals"]
        assert 0 < counts["records"] <= counts["candidates"] * problem.num_records
        assert diagnostics["expected_passes"] >= 1.0
    else:
        assert counts["accepted"] == diagnostics["num_steps"]
        assert 0.0 < diagnostics["acceptance"] <= 1.0


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_predictions_are_labels_for_labels_and_margins_for_numbers(answer, make):
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.3]])
    margins = rows @ answer.theta
    np.testing.assert_allclose(answer.margin(make(rows)), margins, rtol=1e-15)
    np.testing.assert_array_equal(answer.predict(make(rows)), np.sign(margins))
    squared = release(loss=dps.losses.Squared(), intercept=True)
    expected = rows @ squared.theta[:2] + squared.theta[2]
    np.testing.assert_allclose(squared.predict(make(rows)), expected, rtol=1e-15)
    assert squared.feature_names == (*NAMES, "intercept")


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_probabilities_are_those_of_the_logistic_model(answer, make):  # F8
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.3]])
    odds = np.exp(rows @ answer.theta)
    expected = np.column_stack([1.0 / (1.0 + odds), odds / (1.0 + odds)])
    optimizer = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=2)
    fit = dps.minimize(make_problem(), optimizer, seed=1)
    fit = replace(fit, theta=answer.theta)
    for each in (answer, fit):
        np.testing.assert_allclose(each.predict_proba(make(rows)), expected, rtol=1e-14)
    shifted = answer.predict_proba(make(rows), offset=[0.0, 1e4, -1e4])
    np.testing.assert_array_equal(shifted[1:], [[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize("loss", [dps.losses.Hinge(), dps.losses.CappedLogistic(0.5)])
def test_other_losses_have_no_probabilities_and_say_why(loss):  # F8
    with pytest.raises(ValueError, match="loss must be logistic or .*not log-odds"):
        release(loss=loss).predict_proba(np.zeros((1, 2)))


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_features_of_another_width_are_refused(answer, make):
    with pytest.raises(ValueError, match="^features must be of .*, got shape"):
        answer.predict(make(np.ones((2, 3))))


BROKEN = {
    "not JSON": lambda content: "theta = 1",
    "a list": lambda content: "[1, 2]",
    "another format": lambda content: json.dumps(content | {"format": "other"}),
    "no theta": lambda content: json.dumps(
        {k: content[k] for k in content.keys() - {"theta"}}
    ),
    "long theta": lambda content: json.dumps(content | {"theta": [0.0] * 3}),
    "NaN": lambda content: json.dumps(content | {"theta": [0.0, math.nan]}),
    "no certificate": lambda content: json.dumps(content | {"certificate": None}),
    "names": lambda content: json.dumps(content | {"feature_names": ["a"]}),
    "a note": lambda content: json.dumps(content | {"epsilon": 0.01}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused(answer, tmp_path, case):
    path = tmp_path / "answer.json"
    answer.save(path)
    path.write_text(BROKEN[case](json.loads(path.read_text())))
    with pytest.raises(ValueError, match=r" must be .*, got "):
        dps.Release.load(path)


def test_plot_shows_every_coefficient(answer):
    axes = answer.plot()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == NAMES
    assert "(1, 1e-06)-differentially private" in axes.get_title()
    assert "not a confidence interval" in axes.get_xlabel()
    assert axes.get_ylim() == (1.5, -0.5)
    axes.figure.clear()
    again = answer.plot(ax=axes.figure.subplots())
    assert again.figure is axes.figure


def test_a_plot_of_many_coefficients_fits_on_a_page(answer):
    many = replace(answer, theta=np.zeros(500), feature_names=("name",) * 500)
    axes = many.plot()
    assert axes.figure.get_figheight() < 25.0
    assert len(axes.get_yticklabels()) <= 80
