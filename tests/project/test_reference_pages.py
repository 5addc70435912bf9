"""Reference pages are complete, and quote messages that the package has."""

import importlib
import inspect
import json
import re
import sys

import pytest

import dpsample as dps
from dpsample.core.public import public_modules
from tests.support.project_files import ROOT

DOCS = ROOT / "docs"
ERRORS = (DOCS / "reference" / "errors.md").read_text("utf-8")
FORMAT = (DOCS / "reference" / "certificate-format.md").read_text("utf-8")


@pytest.fixture(scope="module")
def pages():
    """The module that writes the generated pages."""
    sys.path.insert(0, str(DOCS))
    try:
        yield importlib.import_module("reference_pages")
    finally:
        sys.path.remove(str(DOCS))


def test_every_public_name_has_one_line_with_a_summary(pages):
    rows = [row for rows in pages.list_tasks().values() for row in rows]
    paths = [path for path, _ in rows]
    assert len(paths) == len(set(paths)) > 250
    for path, summary in rows:
        assert 0 < len(summary) < 120, path
    assert "dpsample.estimators.PrivateLogisticRegression" in paths


def test_a_public_name_without_a_task_is_found(pages, monkeypatch):
    tasks = {name: paths for name, paths in pages.TASKS.items() if "losses" not in name}
    del tasks["Choose a loss"]
    monkeypatch.setattr(pages, "TASKS", tasks)
    with pytest.raises(ValueError, match=r"dpsample\.losses\.Huber"):
        pages.list_tasks()


def test_every_option_of_every_command_is_on_the_page(pages):
    page = pages.make_cli_page()
    parts = re.split(r"^(dpsample [a-z ]+)\n-+\n", page, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    commands = dict(pages.list_commands())
    del commands["dpsample"]
    assert set(sections) == set(commands)
    for path, command in commands.items():
        for parameter in command.params:
            for name in parameter.opts:
                shown = name if name.startswith("-") else name.upper()
                assert f"``{shown}" in sections[path], (path, name)
                assert parameter.help, (path, name)


def source_text():
    """Source of the package, with the literals of one string joined."""
    files = sorted((ROOT / "dpsample").rglob("*.py"))
    text = "\n".join(file.read_text("utf-8") for file in files)
    return re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)


def unknown_messages(page):
    """Return quoted parts of messages that the source of the package lacks."""
    source = source_text()
    rows = re.findall(r"^\| `([^|]*)` \|", page, re.MULTILINE)
    quoted = [row for row in rows if " " in row and "`" not in row]
    parts = [part.strip() for row in quoted for part in row.split("...")]
    return [part for part in parts if part and part not in source]


def test_quoted_messages_exist():
    assert unknown_messages(ERRORS) == []
    planted = ERRORS.replace("was above 1", "was above 2")
    assert unknown_messages(planted) == ["An acceptance ratio was above 2."]


def test_every_public_exception_has_a_line():
    for module in public_modules(dps):
        names = importlib.import_module(module).__all__
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if isinstance(value, type) and issubclass(value, BaseException):
                assert f"| `{name}` |" in ERRORS


def undocumented(fields, page):
    """Return fields of a file that no line of a table names."""
    names = re.findall(r"`(\w+)`", page)
    return sorted(set(fields) - set(names))


def test_every_field_of_a_saved_answer_is_described(tmp_path):
    budget = dps.Budget(epsilon=1.0, delta=0.0)
    count = dps.stats.count([True, False], budget, seed=1)
    count.save(tmp_path / "count.json")
    data = dps.datasets.logistic(200, 2, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )
    optimizer = dps.optimizers.NoisyGD(num_steps=2)
    noisy = dps.Budget(epsilon=1.0, delta=1e-3)
    fit = dps.minimize(problem, optimizer, noisy, seed=1)
    fit.save(tmp_path / "fit.json")
    draw = dps.Certificate.of(dps.calibrate(problem, noisy))
    saved = [json.loads((tmp_path / f).read_text()) for f in ("count.json", "fit.json")]
    parts = [*saved, *(file["certificate"] for file in saved), draw.to_dict()]
    for part in parts:
        assert undocumented(part, FORMAT) == []
    assert undocumented(["theta", "planted"], FORMAT) == ["planted"]


SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
# Users get objects of these classes from functions that describe the fields.
MADE_BY_FUNCTIONS = {"Body", "RegularizerParams", "Custom", "RecordGradient"}


def described(doc):
    """Return the entries of parameters and attributes of a docstring, with texts."""
    parts = SECTION.split(doc)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    entries = {}
    for section in ("Parameters", "Attributes"):
        lines = sections.get(section, "").splitlines()
        for line in lines:
            if line and not line[0].isspace():
                names = line.partition(" : ")[0].replace("*", "").split(", ")
                entries |= {name.strip(): "" for name in names}
            elif line:
                entries |= {
                    name.strip(): entries[name.strip()] + line for name in names
                }
    return entries


def bare_entries(doc):
    """Return entries whose text has fewer than two words, such as "T."."""
    texts = described(doc).items()
    return [n for n, t in texts if len(re.findall(r"[A-Za-z]{2,}", t)) < 2]


def undescribed(value):
    """Return parameters of a public function or class that have no entry.

    A docstring may refer to a public object that has the same ones.
    """
    doc = inspect.getdoc(value) or ""
    if re.search(r"(as of|as for|As of|those of) `\w", doc):
        return []
    names = inspect.signature(value).parameters
    given = [name for name in names if name != "self" and not name.startswith("_")]
    return [name for name in given if name not in described(doc)]


def public_callables():
    """Yield public functions and classes, and the public methods of classes."""
    for module in public_modules(dps):
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if not inspect.isroutine(value) and not isinstance(value, type):
                continue
            yield value, True
            if isinstance(value, type):
                for key, part in vars(value).items():
                    function = getattr(part, "__func__", getattr(part, "fget", part))
                    if inspect.isfunction(function) and not key.startswith("_"):
                        yield function, False


def test_every_parameter_is_described_in_words():
    count = 0
    for value, is_listed in public_callables():
        doc = inspect.getdoc(value) or ""
        count += len(described(doc))
        assert bare_entries(doc) == [], value
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        if is_listed and not is_error and value.__name__ not in MADE_BY_FUNCTIONS:
            assert undescribed(value) == [], value
    assert count > 1000


def test_a_bare_symbol_is_found():
    doc = "Fit.\n\nParameters\n----------\nnum_steps : int\n    T.\n"
    assert bare_entries(doc) == ["num_steps"]
    assert bare_entries(doc.replace("T.", "Number of steps T.")) == []
    assert undescribed(described) == ["doc"]
