"""Notebooks are plain scripts: each runs without a warning, and jupytext reads each."""

import os
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

from tests.support.tiers import one_in

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py"))
# Seconds for a notebook whose kernels must be compiled first, on busy processors; warm
# and alone it takes less than 90.
TIME_LIMIT = 600.0


def run_script(path, folder, *, timeout=TIME_LIMIT):
    """Run a script as a reader would, in its own folder, every warning an error."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    environment.pop("DPSAMPLE_DATA", None)
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def cells_of(path):
    """Cells that are not empty, as (kind, source)."""
    cells = jupytext.read(path).cells
    return [(cell.cell_type, cell.source) for cell in cells if cell.source.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_top_to_bottom_without_warnings(path, tmp_path):
    done = run_script(path, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert not list(tmp_path.iterdir()), "a notebook leaves no files behind"


def test_a_warning_fails_a_notebook(tmp_path):
    script = tmp_path / "warns.py"
    script.write_text("import warnings\nwarnings.warn('unheard')\n")
    done = run_script(script, tmp_path, timeout=TIME_LIMIT)
    assert done.returncode != 0 and "unheard" in done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_text_and_code_in_turn(path):
    cells = cells_of(path)
    kinds = [kind for kind, _ in cells]
    assert kinds[0] == "markdown" and cells[0][1].startswith("# ")
    titles = [text for kind, text in cells if kind == "markdown"]
    assert sum(text.startswith("# ") for text in titles) == 1
    assert "pip install 'dpsample[plots]'" in " ".join(titles)
    assert set(kinds) == {"markdown", "code"}
    assert kinds.count("markdown") >= kinds.count("code") // 2
    for kind, source in cells:
        if kind == "code":
            compile(source, path.stem, "exec")


@one_in(2)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_its_cells_as_an_ipynb_file(path, tmp_path):
    written = tmp_path / "again.ipynb"
    jupytext.write(jupytext.read(path), written)
    assert cells_of(written) == cells_of(path)


def test_every_notebook_is_in_the_list_of_notebooks():
    listed = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        assert f"({path.name})" in listed
