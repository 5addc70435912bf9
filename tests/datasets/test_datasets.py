"""Synthetic sets obey their bounds; public files are found, verified and encoded."""

import bz2
import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest

from dpsample import datasets
from dpsample.datasets import catalog
from dpsample.numerics.norms import norm
from dpsample.tables import Schema

GENERATORS = {
    "logistic": datasets.logistic,
    "halfspace": datasets.halfspace,
    "regression": datasets.regression,
}


@pytest.mark.parametrize("row_norm", [1.0, 1.5, 2.0, np.inf])
@pytest.mark.parametrize("name", GENERATORS)
def test_synthetic_rows_obey_their_bound(name, row_norm):
    data = GENERATORS[name](200, 7, seed=11, row_norm=row_norm)
    norms = np.linalg.norm(data.features, ord=row_norm, axis=1)
    assert (norms <= data.row_bound).all()
    assert (norms >= 1.0 - 1e-12).all()
    assert (np.abs(data.response) <= data.response_bound).all()
    assert (data.num_records, data.dim, data.row_norm) == (200, 7, row_norm)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_gives_the_same_records(name):
    first, again, other = (GENERATORS[name](50, 3, seed=s) for s in (4, 4, 5))
    np.testing.assert_array_equal(first.features, again.features)
    np.testing.assert_array_equal(first.response, again.response)
    assert not np.array_equal(first.features, other.features)


def test_logistic_labels_follow_the_model():
    data = datasets.logistic(100_000, 2, seed=20, signal=3.0)
    margin = data.features @ data.theta
    mean = np.tanh(margin / 2.0)
    variance = 1.0 - mean**2

    def z_score(expected):
        total = np.sum((data.response - expected) * np.sign(margin))
        return total / np.sqrt(variance.sum())

    assert abs(z_score(mean)) <= 6.0
    assert abs(z_score(np.tanh(0.9 * margin / 2.0))) > 6.0  # a weaker signal is seen


def test_halfspace_flips_the_stated_share():
    data = datasets.halfspace(100_000, 3, seed=21, flip=0.2)
    wrong = np.mean((data.features @ data.theta) * data.response < 0)
    deviation = np.sqrt(0.2 * 0.8 / 100_000)
    assert abs(wrong - 0.2) <= 6.0 * deviation
    assert abs(wrong - 0.21) > 6.0 * deviation


def test_student_noise_has_tails_and_no_noise_has_none():
    data = datasets.regression(
        20_000, 2, seed=22, degrees=1.5, noise=1.0, response_bound=None
    )
    assert data.response_bound is None
    assert np.abs(data.response).max() > 100.0
    exact = datasets.regression(50, 2, seed=22, noise=0.0)
    np.testing.assert_allclose(exact.response, exact.features @ exact.theta, atol=1e-15)


BAD = {
    "num_records": (datasets.logistic, (0, 3), {"seed": 1}),
    "dim": (datasets.logistic, (3, 0), {"seed": 1}),
    "seed": (datasets.logistic, (3, 3), {"seed": -1}),
    "signal": (datasets.logistic, (3, 3), {"seed": 1, "signal": -1.0}),
    "row_norm": (datasets.logistic, (3, 3), {"seed": 1, "row_norm": 0.5}),
    "flip": (datasets.halfspace, (3, 3), {"seed": 1, "flip": 0.5}),
    "noise": (datasets.regression, (3, 3), {"seed": 1, "noise": -1.0}),
    "degrees": (datasets.regression, (3, 3), {"seed": 1, "degrees": 0.0}),
    "response_bound": (datasets.regression, (3, 3), {"seed": 1, "response_bound": 0.0}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused_by_name(name):
    function, sizes, options = BAD[name]
    with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
        function(*sizes, **options)


A9A = b"+1 3:1 122:1\n-1 1:1\n"  # like a9a.t, never uses column 123
ADULT = (
    b"|1x3 Cross validator\n"
    b"25, Private, 226802, 11th, 7, Never-married, ?, Own-child, Black, Male, "
    b"0, 0, 40, United-States, <=50K.\n"
    b"44, Private, 160323, Some-college, 10, Married-civ-spouse, Machine-op-inspct, "
    b"Husband, Black, Male, 7688, 0, 40, ?, >50K.\n\n"
)


@pytest.fixture
def publish(monkeypatch, tmp_path):
    """Give a set of the catalog small files with these contents."""

    def replace_files(name, **contents):
        entry = catalog.catalog()[name]
        files = {}
        for split, content in contents.items():
            file = entry.files[split]["name"]
            (tmp_path / "sub").mkdir(exist_ok=True)
            (tmp_path / "sub" / f"{file}.bz2").write_bytes(bz2.compress(content))
            digest = hashlib.sha256(content).hexdigest()
            files[split] = {"name": file, "sha256": digest}
        entries = {name: replace(entry, files=files)}
        monkeypatch.setattr(catalog, "catalog", lambda: entries)
        return tmp_path

    return replace_files


def test_a9a_keeps_its_unused_column_and_scales_rows(publish, monkeypatch):
    folder = publish("a9a", train=A9A, test=A9A)
    monkeypatch.setenv("DPSAMPLE_DATA", str(folder))
    data = datasets.load("a9a", split="test")
    assert data.features.shape == (2, 123)
    np.testing.assert_allclose(data.features.toarray()[1, 0], 1.0 / np.sqrt(14.0))
    np.testing.assert_array_equal(data.response, [1, -1])
    assert (data.row_bound, data.response_bound) == (1.0, 1.0)


def test_adult_drops_the_remark_and_the_points_and_keeps_unknown_levels(publish):
    data = datasets.load("adult", publish("adult", test=ADULT), "test")
    np.testing.assert_array_equal(data.response, [-1, 1])
    row = dict(zip(data.feature_names, data.features[0] * np.sqrt(13.0), strict=True))
    assert row["occupation=?"] == pytest.approx(1.0)
    assert row["age"] == pytest.approx(-0.5)
    assert "fnlwgt" not in row


def test_a_set_without_covariates_gets_a_constant(publish):
    content = b'"IDpol","ClaimAmount"\n1,10.5\n2,3\n'
    data = datasets.load("fremtpl2sev", publish("fremtpl2sev", train=content))
    np.testing.assert_array_equal(data.features, [[1.0], [1.0]])
    np.testing.assert_array_equal(data.response, [10.5, 3.0])


def test_records_with_a_missing_number_are_dropped(publish):
    schema = catalog.public_schema("randhie")
    names = [*schema.numeric, *schema.ignore, "meddol"]
    lines = [",".join("1" for _ in names) for _ in range(2)]
    lines[0] = lines[0].replace("1,", ",", 1)
    content = "\n".join([",".join(names), *lines]).encode()
    data = datasets.load("randhie", publish("randhie", train=content))
    assert data.num_records == 1


def test_changed_files_are_refused(publish):
    folder = publish("a9a", train=A9A)
    (folder / "sub" / "a9a").write_bytes(A9A + b"+1 1:1\n")
    (folder / "sub" / "a9a.bz2").unlink()
    with pytest.raises(ValueError, match=r"sha256 \w+ \(uncompressed\), got .*LIBSVM"):
        datasets.load("a9a", folder)


def test_a_missing_file_says_what_to_get_and_where(tmp_path, monkeypatch):
    monkeypatch.delenv("DPSAMPLE_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"DPSAMPLE_DATA\. Put a9a, a9a\.t there; .*csie"
    ):
        datasets.load("a9a")
    with pytest.raises(ValueError, match="folder must be an existing folder"):
        datasets.load("a9a", tmp_path / "none")
    with pytest.raises(ValueError, match=r"no adult\.data, plain.*Download it; .*UCI"):
        datasets.load("adult", tmp_path)
    with pytest.raises(ValueError, match="name must be one of 'a8a', 'a9a'"):
        datasets.load("iris", tmp_path)
    with pytest.raises(ValueError, match="split must be one of 'train', got 'test'"):
        datasets.load("casp", tmp_path, "test")


@pytest.mark.parametrize("name", sorted(catalog.catalog()))
def test_every_entry_is_complete(name):
    entry = catalog.catalog()[name]
    assert entry.origin
    assert all(len(file["sha256"]) == 64 for file in entry.files.values())
    if entry.num_features:
        assert entry.ones
    else:
        assert isinstance(catalog.public_schema(name), Schema)
        assert entry.target


SIZES = {
    ("a8a", "train"): (22696, 123, 5506),
    ("a8a", "test"): (9865, 123, 2335),
    ("a9a", "train"): (32561, 123, 7841),
    ("a9a", "test"): (16281, 123, 3846),
    ("w7a", "train"): (24692, 300, 740),
    ("w7a", "test"): (25057, 300, 739),
    ("adult", "train"): (32561, 107, 7841),
    ("adult", "test"): (16281, 107, 3846),
    ("blogfeedback", "train"): (52397, 276, 18838),
    ("blogfeedback", "test"): (7624, 276, 2273),
    ("randhie", "train"): (20186, 17, 15733),
    ("cps1988", "train"): (28155, 12, 28155),
    ("k401ksubs", "train"): (9275, 7, 6029),
    ("bemtpl97", "train"): (163212, 17, 18276),
    ("ausprivauto0405", "train"): (67856, 27, 4624),
    ("fremtpl2sev", "train"): (26444, 1, 26444),
    ("norauto", "train"): (183999, 15, 8444),
    ("casp", "train"): (45730, 9, 45458),
    ("magic04", "train"): (19020, 10, 12332),
}


@pytest.mark.data
@pytest.mark.parametrize(("name", "split"), SIZES)
def test_the_real_file_has_the_published_shape_and_obeys_its_bound(name, split):
    data = datasets.load(name, os.environ["DPSAMPLE_DATA"], split)
    positive = int((data.response > 0).sum())
    assert (data.num_records, data.dim, positive) == SIZES[name, split]
    squares = data.features**2 if data.dim < 300 else data.features.power(2)
    assert np.sqrt(np.asarray(squares.sum(axis=1)).max()) <= data.row_bound + 1e-12


@pytest.mark.parametrize(
    ("q", "dim"), [(100.0, 1), (500.0, 50), (900.0, 50), (999.0, 5)]
)
def test_rows_have_their_norm_whatever_its_exponent(q, dim):
    rows = datasets.logistic(500, dim, seed=1, row_norm=q).features
    np.testing.assert_allclose(norm(rows, q), 1.0, rtol=1e-12)
