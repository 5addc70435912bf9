"""Notebooks are plain scripts: each runs without a warning, and jupytext reads each."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("show", ROOT / "notebooks" / "show.py")
show = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(show)
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
    assert "pip install '.[plots]'" in " ".join(titles)
    assert set(kinds) == {"markdown", "code"}
    assert kinds.count("markdown") >= kinds.count("code") // 2
    for kind, source in cells:
        if kind == "code":
            compile(source, path.stem, "exec")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_with_outputs_has_the_cells_of_its_script(path):
    shown = path.with_suffix(".ipynb")
    assert cells_of(shown) == cells_of(path), "run notebooks/show.py"
    assert shown.stat().st_size <= show.MAX_BYTES
    outputs = [
        output
        for cell in jupytext.read(shown).cells
        for output in cell.get("outputs", ())
    ]
    kinds = {kind for output in outputs for kind in output.get("data", ())}
    assert kinds & set(show.IMAGES)
    # Nothing of a machine: paths, lines of progress, addresses of objects.
    text = "".join(str(output) for output in outputs)
    assert not re.search(r"/home/|/root/|/tmp/|\bat 0x[0-9a-f]{6}|Text\(0", text)


def test_outputs_are_kept_without_what_depends_on_the_machine():
    data = {"image/png": "x" * 9, "image/svg+xml": "x", "text/plain": "<Figure>"}
    picture = nbformat.v4.new_output("execute_result", data, execution_count=7)
    kept = show.simplify(picture)
    assert kept.data == {"image/svg+xml": "x"} and kept.execution_count is None
    live_line = nbformat.v4.new_output("stream", name="stderr", text="3 of 4")
    assert show.simplify(live_line) is None


def test_every_notebook_is_in_the_list_of_notebooks():
    listed = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        assert f"({path.stem}.ipynb)" in listed
