"""How the file of a study is found and imported, its tasks and its data."""

import pickle
import sys

import pytest

from dpsample.experiments.configuration import (
    StudyData,
    bundle,
    digests,
    import_extra,
    load,
    study_names,
)
from dpsample.experiments.tasks import CellError, Setting, Task, run
from tests.support.toy_study import TOY, write_toy

pytestmark = pytest.mark.usefixtures("environment")


def write(folder, name, text):
    (folder / f"{name}.py").write_text(text)


def test_studies_are_the_files_that_declare_one(tmp_path):
    write_toy(tmp_path)
    assert study_names(tmp_path) == ["toy"]
    with pytest.raises(ValueError, match="^study must be one of 'toy', got 'beside'"):
        bundle(tmp_path, "beside")
    with pytest.raises(ValueError, match="^studies must be a folder"):
        study_names(tmp_path / "none")


def test_a_bundle_needs_no_folder_and_is_imported_once(tmp_path):
    given = pickle.loads(pickle.dumps(write_toy(tmp_path)))
    for file in tmp_path.glob("*.py"):
        file.unlink()
    assert [source.name for source in given.sources] == ["beside", "toy"]
    assert load(given) is load(given) and load(given).name == "toy"


def test_imports_beside_may_be_deep_but_not_circular(tmp_path):
    write_toy(tmp_path)
    write(tmp_path, "beside", "from . import deeper\nLEVEL = deeper.LEVEL\n")
    write(tmp_path, "deeper", "LEVEL = 5.0\n")
    given = bundle(tmp_path, "toy")
    assert [source.name for source in given.sources] == ["deeper", "beside", "toy"]
    assert sys.modules[type(load(given)).__module__] is not None
    assert sys.modules[f"{given.package}.beside"].LEVEL == 5.0
    write(tmp_path, "deeper", "from .toy import study\n")
    with pytest.raises(ValueError, match="without circular imports"):
        bundle(tmp_path, "toy")
    write(tmp_path, "beside", "from .nowhere import LEVEL\n")
    with pytest.raises(ValueError, match="import must be of a file"):
        bundle(tmp_path, "toy")


def test_a_file_that_fails_leaves_no_module_behind(tmp_path):
    given = write_toy(tmp_path, TOY.replace("study = ", "1 / 0\nstudy = "))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load(given)
    assert not [name for name in sys.modules if name.startswith(given.package)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name="toy"', 'name="other"', "^name must be 'toy', got 'other'"),
        ("study = Study(", "study = dict(", "^study must be a Study"),
    ],
)
def test_a_file_declares_a_study_of_its_own_name(tmp_path, old, new, words):
    with pytest.raises(ValueError, match=words):
        load(write_toy(tmp_path, TOY.replace(old, new)))


def setting(given):
    from dpsample.experiments.configuration import environment

    return Setting(given, environment(), digests(given, load(given)))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ('{"other": 1.0}', ": metric must be one of 'square', 'product'"),
        ('{"square": float("nan")}', ": metric square must be a number, got nan"),
        ("[1.0]", ": cell must be a Mapping"),
    ],
)
def test_what_a_cell_returns_is_checked(tmp_path, result, words):
    text = TOY.replace("    found, replicate =", f"    return {result}\n    found, r =")
    with pytest.raises(CellError, match=words):
        run(setting(write_toy(tmp_path, text)), Task({"n": 10, "kind": "a"}, (0,)))


BATCH = '''"""Batches."""
import numpy as np
from dpsample.experiments import Metric, Study


def batch(params, seeds):
    return {"x": [np.random.default_rng(seed).random() for seed in seeds]SLICE}


study = Study(name="toy", title="T", question="Q?", grid={"n": 1}, replicates=5,
              batch=batch, metrics=(Metric("x"),))
'''


def test_a_batch_gives_the_same_rows_in_any_blocks(tmp_path):
    given = setting(write_toy(tmp_path, BATCH.replace("SLICE", "")))
    whole = run(given, Task({"n": 1}, (0, 1, 2, 3, 4)))
    parts = run(given, Task({"n": 1}, (4, 1))) + run(given, Task({"n": 1}, (0, 2, 3)))
    key = {row.replicate: row.values for row in whole}
    assert {row.replicate: row.values for row in parts} == key and len(key) == 5


def test_a_batch_has_one_value_for_each_seed(tmp_path):
    given = setting(write_toy(tmp_path, BATCH.replace("SLICE", "[1:]")))
    with pytest.raises(CellError, match=r": metric x must be of shape \(5,\)"):
        run(given, Task({"n": 1}, (0, 1, 2, 3, 4)))


def test_data_is_loaded_once_and_is_read_only(tmp_path):
    text = TOY.replace(
        'return np.load(os.environ["TOY_RECORDS"], mmap_mode="r")',
        'CALLS.append(1)\n    return np.ones(3), {"a": [np.zeros(2)]}, "words"',
    ).replace("def records", "CALLS = []\n\n\ndef records")
    given = write_toy(tmp_path, text)
    found = digests(given, load(given))
    data = StudyData(given, load(given), found)
    assert list(data) == ["records"] and len(data) == 1
    first, second, _ = data["records"]
    for array in (first, second["a"][0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    assert digests(given, load(given)) == found
    assert sys.modules[f"{given.package}.toy"].CALLS == [1]
    with pytest.raises(ValueError, match="^data must be one of 'records'"):
        data["other"]


def test_a_worker_with_other_data_or_versions_says_so(tmp_path):
    given = setting(write_toy(tmp_path))
    task = Task({"n": 10, "kind": "a"}, (0,))
    assert len(run(given, task)) == 1
    with pytest.raises(CellError, match=r": data records must be .*every worker"):
        run(given._replace(digests={"records": "1"}), task)
    other = given._replace(environment=given.environment | {"numpy": "1.0"})
    with pytest.raises(ValueError, match=r"^numpy of a worker must be '1.0'"):
        run(other, task)


def test_a_missing_library_is_named_with_its_extra():
    with pytest.raises(ImportError, match=r"pip install 'dpsample\[studies\]'"):
        import_extra("no_such_library.part", "studies")
