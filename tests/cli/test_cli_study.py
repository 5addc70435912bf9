"""The commands `dpsample study`: list, run, report."""

import re
import signal
import time
from pathlib import Path

import pytest

from dpsample import cli
from tests.support.study_environment import num_rows
from tests.support.toy_study import NUM_ROWS, TOY, start, write_toy

pytestmark = pytest.mark.usefixtures("environment")
STUDIES = Path(__file__).parents[2] / "studies"


def study(folder, *arguments):
    return cli.main(["study", *arguments, "--studies", str(folder)])


def test_list_names_every_study_and_its_size(tmp_path, capsys):
    write_toy(tmp_path)
    assert study(tmp_path, "list") == 0
    out = capsys.readouterr().out
    assert "Means of normals" in out and "48 in 6" in out and "4 in 2" in out
    assert "beside" not in out


def test_a_quick_run_and_its_report(tmp_path, capsys):
    write_toy(tmp_path)
    assert study(tmp_path, "run", "toy", "--quick", "--jobs", "2") == 0
    folder = tmp_path / "results" / "quick"
    assert "4 replicates computed" in capsys.readouterr().out
    assert study(tmp_path, "report", "toy", "--quick") == 0
    out = capsys.readouterr().out
    assert "4 of 4 replicates" in out and str(folder / "toy.md") in out
    assert "--quick" in (folder / "toy.md").read_text()


@pytest.mark.slow
def test_all_studies_are_run_and_reported_by_one_command(tmp_path, capsys):
    write_toy(tmp_path)
    other = TOY.replace('name="toy"', 'name="second"').replace("9.0", "8.0")
    (tmp_path / "second.py").write_text(other)
    assert study(tmp_path, "run", "all", "--quick", "--report") == 0
    folder = tmp_path / "results" / "quick"
    assert {path.name for path in folder.glob("*.md")} == {"second.md", "toy.md"}
    assert study(tmp_path, "report", "toy", "second", "--quick") == 0
    capsys.readouterr()
    assert study(tmp_path, "run", "toy", "third", "--quick", "--resume") == 2
    assert "third" in capsys.readouterr().err


def test_a_contradiction_is_the_exit_code_of_a_report(tmp_path, capsys):
    text = TOY.replace("expected=lambda p: 1 / p", "expected=lambda p: 30 / p")
    write_toy(
        tmp_path, text.replace("    figures=(Figure", "    figures=() and (Figure")
    )
    output = ("--output", str(tmp_path / "out"))
    assert study(tmp_path, "run", "toy", *output) == 0
    assert study(tmp_path, "report", "toy", *output) == 1
    assert capsys.readouterr().out.count("CONTRADICTION") == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "none"), "study must be one of 'toy', got 'none'"),
        (("run", "toy", "--jobs", "0"), "jobs must be an integer >= 1"),
        (("run", "toy", "--dask", ""), "dask must be the address of a scheduler"),
        (("report", "toy"), "Run the study first: dpsample study run NAME"),
        (("list", "--studies", "nowhere"), "studies must be a folder, got nowhere"),
    ],
)
def test_an_error_is_one_line(tmp_path, capsys, arguments, words):
    write_toy(tmp_path)
    folder = [] if "--studies" in arguments else ["--studies", str(tmp_path)]
    assert cli.main(["study", *arguments, *folder]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


def test_results_are_not_overwritten(tmp_path, capsys):
    write_toy(tmp_path)
    assert study(tmp_path, "run", "toy", "--quick") == 0
    assert study(tmp_path, "run", "toy", "--quick") == 2
    assert "--resume" in capsys.readouterr().err
    assert study(tmp_path, "run", "toy", "--quick", "--resume") == 0
    assert "0 replicates computed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["--threads", "--processes"])
def test_ctrl_c_in_a_terminal_keeps_the_rows_and_says_how_to_go_on(tmp_path, kind):
    write_toy(tmp_path)
    path = tmp_path / "toy.sqlite"
    process = start(tmp_path, tmp_path, "--jobs", "2", kind, TOY_SECONDS="0.1")
    while num_rows(path) < 5 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == cli.INTERRUPTED and "go on with --resume" in err
    assert "Traceback" not in err and out == ""
    assert 5 <= num_rows(path) < NUM_ROWS


@pytest.mark.slow
def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path):
    import psutil

    write_toy(tmp_path)
    options = ("--jobs", "2", "--processes")
    process = start(tmp_path, tmp_path, *options, TOY_SECONDS="0.1")
    while num_rows(tmp_path / "toy.sqlite") < 5 and process.poll() is None:
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=600)
    gone, alive = psutil.wait_procs(children, timeout=600)
    assert len(gone) >= 2 and not alive


@pytest.mark.slow
def test_the_study_of_the_manual_runs(tmp_path, capsys):
    text = (STUDIES.parent / "docs" / "studies.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1]
    (tmp_path / "mean.py").write_text(code)
    assert study(tmp_path, "run", "mean", "--quick") == 0
    assert study(tmp_path, "report", "mean", "--quick") == 0
    assert "2 below, 2 agrees" in capsys.readouterr().out


@pytest.mark.slow
def test_every_study_of_the_project_can_be_loaded(capsys):
    assert study(STUDIES, "list") == 0
    assert "noise" in capsys.readouterr().out
