"""Files of the project that tests read, and the size of the package."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


README = (ROOT / "README.md").read_text(encoding="utf-8")
# It has the files and commands of the usual path from a table to predictions.
CSV_TUTORIAL = ROOT / "docs" / "tutorials" / "from-a-csv-file.md"


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


# Public facts of examples promise useful answers.
shown_to_users = pytest.mark.filterwarnings("error:Public facts show")


def blocks(language, text=README):
    """Return the blocks of code in a language, without what surrounds them."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


# Most that each measure may be: what a stranger has to find a way through.
HOUSE = {
    "top-level modules": 4,
    "top-level folders": 25,
    "files": 355,  # with room: each recipe of CONTRIBUTING.md adds one
    "classes of one name": [],
    "basenames used three times": [],
    "definitions of Array": 1,
    "Any in signatures": 290,
}
