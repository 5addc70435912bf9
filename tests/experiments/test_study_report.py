"""Reports of a study: tables, words and figures."""

import csv
import math

import numpy as np
import pytest

from dpsample.experiments import Figure, Metric
from dpsample.experiments.findings import results, summary
from dpsample.experiments.report import draw, format_value, write
from dpsample.experiments.summaries import comparisons, estimates
from dpsample.experiments.tasks import Row
from tests.support.study_rows import rows, study
from tests.support.tiers import one_in
from tests.support.toy_study import TOY, run_toy, write_toy

pytestmark = pytest.mark.usefixtures("environment")
# Figures take most of the time of a report.
BARE = TOY.replace("    figures=", "    # ")


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_report_has_every_mean_bound_and_reason(tmp_path):
    run_toy(tmp_path, tmp_path)
    report = write(write_toy(tmp_path), tmp_path)
    names = {path.name for path in report.files}
    pictures = {"toy-1.png", "toy-1.svg"}
    assert names == {"toy.md", "toy.csv", "toy-slopes.csv"} | pictures
    assert all(path.stat().st_size > 300 for path in report.files)
    table = read(tmp_path / "toy.csv")
    assert len(table) == 15 and not report.is_refuted
    for line in table:
        if line["metric"] == "square":
            value = {"upper bound": 5.0, "expected": 1.0}[line["reference"]]
            assert float(line["value"]) == value / float(line["n"])
            assert (line["verdict"] == "inapplicable") == (line["n"] == "10")
            assert (line["reason"] == "n < 11") == (line["n"] == "10")
        assert line["replicates"] == "8"
        assert float(line["low"]) < float(line["mean"]) < float(line["high"])
    text = (tmp_path / "toy.md").read_text()
    assert "48 of 48 replicates" in text and "Is the mean square 1/n?" in text
    assert "![Means of normals](toy-1.png)" in text and "| 1000 | b |" in text
    # The page states a reason once, and rows refer to it by its number.
    assert text.count("n < 11") == 1 and "| 1 | n < 11 |" in text
    assert "| inapplicable | exclusion 1 |" in text
    assert "DECLARED AFTER" not in text and "WARNING" not in text
    assert [line["expected"] for line in read(tmp_path / "toy-slopes.csv")] == [
        "-1.0"
    ] * 2


def test_an_answer_has_the_numbers_of_the_run(tmp_path):
    run_toy(tmp_path, tmp_path, text=BARE)
    words = 'answer=lambda mean: f"It is {mean(%s):.6f}.", metrics='
    where = "'square', n=100, kind='a'"
    write(write_toy(tmp_path, BARE.replace("metrics=", words % where, 1)), tmp_path)
    lines = results(write_toy(tmp_path, BARE), tmp_path).lines
    (mean,) = {
        line.estimate.mean
        for line in lines
        if line.estimate.metric.name == "square"
        and line.estimate.params == {"n": 100, "kind": "a"}
    }
    assert f"It is {mean:.6f}." in (tmp_path / "toy.md").read_text()
    for where, message in (
        ("'square', n=7", "cell of an answer must be declared"),
        ("'square', n=100", "cell of an answer must be one, got 2"),
        ("'cube', n=100", "metric must be"),
    ):
        wrong = write_toy(tmp_path, BARE.replace("metrics=", words % where, 1))
        with pytest.raises(ValueError, match=message):
            write(wrong, tmp_path)


@pytest.mark.slow
def test_a_report_of_other_cells_replaces_nothing(tmp_path):
    run_toy(tmp_path, tmp_path)
    write(write_toy(tmp_path), tmp_path)
    before = (tmp_path / "toy.md").read_text()
    other = write_toy(tmp_path, TOY.replace("(10, 100, 1000)", "(20, 200, 2000)"))
    with pytest.raises(ValueError, match="rows must be of declared cells"):
        write(other, tmp_path)
    assert (tmp_path / "toy.md").read_text() == before


def test_rows_of_other_cells_are_counted(tmp_path):
    run_toy(tmp_path, tmp_path)
    fewer = write_toy(tmp_path, TOY.replace('("a", "b")}', '("a",)}'))
    assert "left out: 24 replicates" in "\n".join(summary(results(fewer, tmp_path)))


def test_a_contradiction_is_said_in_words(tmp_path):
    run_toy(tmp_path, tmp_path)
    wrong = write_toy(tmp_path, TOY.replace("lambda p: 1 / p", "lambda p: 30 / p"))
    found = results(wrong, tmp_path)
    words = [line for line in summary(found) if line.startswith("CONTRADICTION")]
    assert len(words) == len(found.refuted) == 4
    assert "at n = 100, kind = a: square =" in words[0]
    assert "differs: expected 0.3" in words[0]


def test_what_was_declared_after_the_run_is_said(tmp_path):
    run_toy(tmp_path, tmp_path)
    late = TOY.replace('p["n"] == 10, reason="n < 11"', 'p["n"] < 200, reason="n < 11"')
    found = results(write_toy(tmp_path, late), tmp_path)
    reasons = {line.estimate.params["n"]: line.reason for line in found.lines[::-1]}
    assert reasons[100] == "n < 11 (DECLARED AFTER THE RUN)"
    assert reasons[1000] == ""


def test_a_part_of_a_run_and_another_cell_function_are_said(tmp_path):
    run_toy(tmp_path, tmp_path, text=TOY.replace("replicates=8", "replicates=3"))
    lines = summary(results(write_toy(tmp_path), tmp_path))
    assert "18 of 48 replicates" in lines[0] and not lines[1].startswith("WARNING")
    changed = write_toy(tmp_path, TOY.replace("- LEVEL)", "- 1.0)"))
    lines = summary(results(changed, tmp_path))
    assert lines[1].startswith("WARNING: code of the study changed")


def test_cells_of_a_later_run_are_not_declared_late(tmp_path):
    few = TOY.replace("(10, 100, 1000)", "(10, 1000)")
    rule = 'p["n"] < 200, reason="n < 200"'
    few, more = (t.replace('p["n"] == 10, reason="n < 11"', rule) for t in (few, TOY))
    run_toy(tmp_path, tmp_path, text=few)
    run_toy(tmp_path, tmp_path, text=more, resume=True)
    found = results(write_toy(tmp_path, more), tmp_path)
    assert {line.reason for line in found.lines} == {"", "n < 200"}


def test_a_part_of_a_run_has_no_answer(tmp_path):
    told = BARE.replace("    replicates=8", '    answer="It is.",\n    replicates=8')
    run_toy(tmp_path, tmp_path, text=told.replace("replicates=8", "replicates=3"))
    pages = []
    for _ in range(2):
        write(write_toy(tmp_path, told), tmp_path)
        pages.append((tmp_path / "toy.md").read_text())
        run_toy(tmp_path, tmp_path, text=told, resume=True)
    assert ["It is." in page for page in pages] == [False, True]


def test_a_metric_that_some_replicates_left_out_is_said(tmp_path):
    some = TOY.replace('params["kind"] == "a":', "replicate < 3:")
    run_toy(tmp_path, tmp_path, text=some)
    lines = summary(results(write_toy(tmp_path, some), tmp_path))
    words = "at n = 10, kind = a product is of 3 replicates only: the others left it"
    assert sum(line.startswith(words) for line in lines) == 1


@one_in(2)
@pytest.mark.parametrize("text", ["toy = 3", 'toy = "abc"', "[toy", "[toy]\na = 7"])
def test_a_damaged_file_of_exclusions_is_named(tmp_path, text):
    run_toy(tmp_path, tmp_path)
    (tmp_path / "declared.toml").write_text(text)
    with pytest.raises(ValueError, match=r"exclusions must be .*declared\.toml"):
        results(write_toy(tmp_path), tmp_path)


@pytest.mark.slow
def test_files_of_an_earlier_report_are_gone(tmp_path):
    run_toy(tmp_path, tmp_path)
    write(write_toy(tmp_path), tmp_path)
    for other in ("toy-2-1.png", "toy-1-talk.svg"):
        (tmp_path / other).touch()
    bare = BARE.replace("    slopes=", "    # ")
    write(write_toy(tmp_path, bare), tmp_path)
    left = {path.name for path in tmp_path.glob("toy-*")}
    assert left == {"toy-2-1.png", "toy-1-talk.svg"}


FIGURES = [
    Figure(x="n", y="x", panels="kind", lines="p"),
    Figure(x="p", y=("x", "y"), lines=("n",), where={"kind": "a"}, log_log=False),
    Figure(x="kind", y="x", lines="n", where={"p": math.inf}),
    Figure(x="n", y="x", lines=("p", "kind"), bound=False, title="A", y_label="B"),
    Figure(x="n", y="y", where={"p": 7}),
]


@pytest.mark.slow
def test_figures_are_drawn_for_numbers_names_and_infinity(tmp_path):
    declared = study(
        Metric("x", bound=lambda p: 3.0 * p["n"], lower=0.1, label="excess"),
        Metric("y"),
        grid={"n": (1, 10), "p": (1.0, 2.0, math.inf), "kind": ("a", "b")},
        figures=tuple(FIGURES),
    )
    rng = np.random.default_rng(2)
    measured = [
        Row(cell.key, i, 0.0, {"x": rng.normal(1.0, 2.0), "y": 1.0})
        for cell in declared.cells()
        for i in range(3)
    ]
    found = estimates(declared, measured, quick=False)
    reasons = {declared.cells()[0].key: {"x": "so"}}
    files = draw(declared, comparisons(found, reasons), tmp_path)
    numbers = [path.stem for path in files if path.suffix == ".png"]
    assert numbers == ["s-1", "s-2", "s-3", "s-4"]
    text = (tmp_path / "s-1.svg").read_text()
    assert all(f">{word}</text>" in text for word in ("upper bound", "kind = a"))
    assert ">inf</text>" in (tmp_path / "s-2.svg").read_text()
    assert "upper bound" not in (tmp_path / "s-4.svg").read_text()


def test_one_replicate_is_drawn_without_a_band(tmp_path):
    declared = study(Metric("x"), figures=(Figure(x="n", y="x"),))
    found = estimates(declared, rows(declared, lambda n, rng: [n]), quick=False)
    assert len(draw(declared, comparisons(found, {}), tmp_path)) == 2


@pytest.mark.slow
def test_false_and_true_are_names_on_the_axis(tmp_path):
    figure = Figure(x="n", y="x")
    declared = study(Metric("x"), grid={"n": (False, True)}, figures=(figure,))
    found = estimates(declared, rows(declared, lambda n, rng: [n + 1.0]), quick=False)
    draw(declared, comparisons(found, {}), tmp_path)
    text = (tmp_path / "s-1.svg").read_text()
    assert all(f">{format_value(name)}</text>" in text for name in (False, True))


@pytest.mark.slow
def test_dots_are_sorted_by_their_means(tmp_path):
    figure = Figure(x="n", y="x", lines="kind", dots=True, level=1.0, title="claims")
    grid = {"n": ("small", "large"), "kind": "a"}
    declared = study(Metric("x"), grid=grid, figures=(figure,))
    means = {"small": 0.5, "large": 4.0}
    for sign in (1.0, -1.0):
        measured = [
            Row(cell.key, 0, 0.0, {"x": means[cell.params["n"]] ** sign})
            for cell in declared.cells()
        ]
        found = estimates(declared, measured, quick=False)
        draw(declared, comparisons(found, {}), tmp_path)
        text = (tmp_path / "s-1.svg").read_text()
        # In the file labels stand in the order of their positions, from above.
        is_small_first = text.index(">small</text>") < text.index(">large</text>")
        assert is_small_first == (sign > 0.0) and ">claims</text>" in text
