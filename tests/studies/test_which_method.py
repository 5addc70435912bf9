"""What the page on methods says of the study's table."""

from pathlib import Path

import pytest

from studies import which_method

TABLE = Path(which_method.__file__).parent / "results" / "which_method.csv"


@pytest.mark.slow
def test_the_advice_wins_as_many_cells_as_the_page_says():
    cells = list(which_method.verdicts(TABLE))
    lost = [
        cell["gap"] / (cell["loss"] - cell["gap"]) for cell in cells if cell["lost"]
    ]
    assert (len(cells), len(lost)) == (80, 8) and 0.032 < max(lost) < 0.033
    change = [cell["loss"] / cell["before"] - 1.0 for cell in cells]
    assert -0.0459 < sum(change) / 80 < -0.0458 and 0.0067 < max(change) < 0.0068
    page = (TABLE.parents[2] / "docs" / "which-method.md").read_text("utf-8")
    assert "72 of 80 cells" in page
