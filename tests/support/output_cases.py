"""Records, a spare folder and a command whose outputs fail in many ways."""

import tempfile

import pytest

import dpsample as dps
from dpsample.privacy import usefulness


@pytest.fixture
def records(tmp_path, monkeypatch):
    """A table whose columns have names that ASCII lacks, and that no advice is on."""
    monkeypatch.setattr(usefulness, "reservations", lambda *_: ())
    lines = ["\u00e2ge,\u6536\u5165,y"]
    lines += [f"{0.01 * i},{0.5 - 0.01 * i},{1 if i % 3 else -1}" for i in range(50)]
    (tmp_path / "r.csv").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "r.csv"


@pytest.fixture
def spare(tmp_path, monkeypatch):
    """The temporary folder, empty."""
    folder = tmp_path / "spare"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


NAMES = ("\u00e2ge", "\u6536\u5165")


def arguments(records, *more):
    budget = ("--epsilon", "1", "--delta", "1e-6", "--radius", "1", "--row-bound", "1")
    return ["release", str(records), "--target", "y", *budget, *more]


def kept_in(folder, err):
    """The one answer in the folder, which the one line of an error names."""
    (path,) = folder.iterdir()
    *advice, last = err.splitlines()  # of a process of its own, in which use is judged
    assert all("Public facts show" in line for line in advice) and str(path) in last
    answer = dps.Release.load(path)
    assert answer.certificate.releasable and answer.feature_names == NAMES
    dps.verify(answer.certificate)
    return path
