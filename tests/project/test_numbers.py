"""Every number on the first pages comes from a file, or from a test of its own."""

import csv
import re
from collections import Counter
from functools import cache

import pytest

import dpsample
from studies import _method_pages
from tests.support.project_files import PROJECT, ROOT


def best_methods():
    """How often each method has the smallest logistic loss, by ``head_to_head.csv``."""
    path = ROOT / "studies" / "results" / "head_to_head.csv"
    left_out = {"minimum, no privacy", "diffprivlib, without the ball"}
    cells = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            is_loss = (row["loss"], row["metric"]) == ("logistic", "share")
            if is_loss and row["method"] not in left_out:
                cell = cells.setdefault((row["records"], row["epsilon"]), [])
                cell.append((float(row["mean"]), row["method"]))
    return Counter(min(cell)[1] for cell in cells.values())


@cache
def traced():
    """Sentences with numbers, as their files state the numbers."""
    best = best_methods()
    assert best["diffprivlib"] == 1  # "one" in the sentence
    verdicts = _method_pages.verdict_frame()
    num_near = int((~verdicts.lost).sum())
    python = PROJECT["requires-python"].removeprefix(">=")
    return [
        f"You need Python {python} or newer",
        f"In a study of {best.total()} settings of logistic regression its advised "
        f"method was the most accurate in {best['dps.advise']} and diffprivlib in one.",
        f"or near it, in {num_near} of {len(verdicts)} measured settings",
        f"The version is {dpsample.__version__}, an alpha.",
    ]


def untraced(page, sentences):
    """Numbers of a page's prose outside of these sentences.

    Blocks of code run, and what they print is compared, in other tests.
    """
    text = re.sub(r"^(:{3,}|`{3,}).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = " ".join(re.sub(r"`[^`\n]*`|\]\([^)]*\)|δ = 0", "", text).split())
    for sentence in sentences:
        text = text.replace(sentence, "")
    return re.findall(r"\d[\d.,]*", text)


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_every_number_of_a_first_page_is_traced(name):
    page = (ROOT / name).read_text("utf-8")
    assert untraced(page, traced()) == []
    planted = page + "\nIt is 73 times as fast.\n"
    assert untraced(planted, traced()) == ["73"]


def test_a_number_that_its_file_does_not_have_is_found():
    page = (ROOT / "README.md").read_text("utf-8")
    assert untraced(page.replace(" in 17 and", " in 18 and"), traced()) != []
