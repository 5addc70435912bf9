"""Which changes of a study's file change the identity of its numbers."""

import pytest

from dpsample.experiments.configuration import Bundle, Source, code_digest

TEXT = '''"""A study."""
import math
from functools import partial

SCALE, UNUSED = 2.0, 3.0
TABLE = {}
for key in range(3):
    TABLE[key] = key


class Law:
    """A law."""

    def mean(self):
        return SCALE


def deeper(x):
    """Docstring."""
    return Law().mean() + TABLE[1] + x


def cell(params, seed, steps):
    return {"x": deeper(steps)}


def bound(params):
    return 1.0


study = Study(
    name="s",
    cell=partial(cell, steps=10),
    metrics=(Metric("x", bound=bound),),
    replicates=3,
    figures=tuple(Figure(x="n", y=f"x{x}") for x in (1, 2)),
)
'''


def digest(text, beside=None):
    sources = [Source("s", "s.py", text)]
    if beside is not None:
        sources.insert(0, Source("beside", "beside.py", beside))
    return code_digest(Bundle(tuple(sources)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE, UNUSED = 2.0", "SCALE, UNUSED = 2.5"),
        ("TABLE[key] = key", "TABLE[key] = 2 * key"),
        ("return SCALE", "return -SCALE"),
        ("TABLE[1] + x", "TABLE[2] + x"),
        ("steps=10", "steps=20"),
        ("from functools import partial", "from mine import partial"),
    ],
)
def test_what_the_cell_uses_counts(old, new):
    assert TEXT.replace(old, new) != TEXT
    assert digest(TEXT.replace(old, new)) != digest(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 1.0", "return 7.0"),
        ("import math", "import cmath"),
        ("A study.", "Another."),
        ("Docstring.", "Other words."),
        ("A law.", "B law."),
        ("steps):", "steps):  # a remark"),
        ("replicates=3", "replicates=30"),
        ("for x in (1, 2)", "for x in (1, 2, 3)"),
    ],
)
def test_what_the_cell_does_not_use_does_not_count(old, new):
    assert TEXT.replace(old, new) != TEXT
    assert digest(TEXT.replace(old, new)) == digest(TEXT)


def test_a_declaration_that_hides_the_cell_makes_everything_count():
    hidden = TEXT.replace("study = Study(", "study = make(").replace("cell=", "what=")
    assert digest(hidden) != digest(hidden.replace("return 1.0", "return 7.0"))
    worded = hidden.replace("what=", 'title="T", answer="A", what=')
    assert worded != hidden and digest(worded) == digest(hidden)


def test_files_beside_count_without_their_remarks():
    assert digest(TEXT, "A = 1\n") == digest(TEXT, "# so\nA = 1\n") != digest(TEXT)
    assert digest(TEXT, "A = 1\n") != digest(TEXT, "A = 2\n")
