"""Every study's quick run: what is proved is not contradicted."""

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from dpsample import cli
from dpsample.experiments.configuration import PREFIX, study_names

STUDIES = Path(__file__).parents[2] / "studies"
MOST_SECONDS = 60.0


def quick(command, name, folder):
    """Exit code of a command on the quick cells."""
    places = ("--studies", str(STUDIES), "--output", str(folder))
    return cli.main(["study", command, name, "--quick", *places])


@pytest.mark.slow
@pytest.mark.parametrize("name", study_names(STUDIES))
def test_a_quick_run_contradicts_nothing(tmp_path, capsys, monkeypatch, name):
    monkeypatch.delenv("DPSAMPLE_DATA", raising=False)
    for module in [m for m in sys.modules if m.startswith(PREFIX)]:
        monkeypatch.delitem(sys.modules, module)  # it may know the folder of the data
    begin = time.process_time()
    assert quick("run", name, tmp_path) == 0
    seconds = time.process_time() - begin
    assert quick("report", name, tmp_path) == 0, capsys.readouterr().out
    with closing(sqlite3.connect(tmp_path / "quick" / f"{name}.sqlite")) as store:
        assert store.execute("select count(*) from rows").fetchone()[0] > 0
    assert seconds < MOST_SECONDS  # of CPU: wall time is that of the machine's load
