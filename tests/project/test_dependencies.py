"""Dependencies are declared and described, and bounded where private parts are used."""

import ast
import importlib
import importlib.metadata
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError

import numba
import pytest

from tests.support.processes import run_python
from tests.support.project_files import PROJECT, ROOT


def public_extras():
    """Extras for users. The others are tools of those who change the package."""
    every = PROJECT["optional-dependencies"].items()
    return {name: lines for name, lines in every if name not in {"test", "docs", "dev"}}


def distributions(lines):
    """Names of the requirements in some lines."""
    return {re.match(r"[\w.-]+", line)[0] for line in lines}


def table_rows(title):
    """Cells of the table below a title of the page, without its head."""
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    part = page.partition(title)[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_dependency_has_a_row_and_no_other():
    rows = {row[0].partition(",")[0]: row for row in table_rows("# Dependencies\n")}
    assert rows.keys() == distributions(PROJECT["dependencies"])
    assert all(len(row) == 5 and all(row) for row in rows.values())


def test_every_extra_has_a_row_and_no_other():
    rows = {row[0].strip("`"): row for row in table_rows("## Extras")}
    extras = public_extras()
    assert rows.keys() == extras.keys()
    core = distributions(PROJECT["dependencies"])  # with narrower bounds in an extra
    for name, row in rows.items():
        assert set(row[1].split(", ")) == distributions(extras[name]) - core, name


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        *((row[0].partition(",")[0], row[4]) for row in table_rows("# Dependencies\n")),
        *((n, row[3]) for row in table_rows("## Extras") for n in row[1].split(", ")),
    ],
)
def test_the_license_on_the_page_is_that_of_the_installed_package(name, stated):
    try:
        facts = importlib.metadata.metadata(name)
    except PackageNotFoundError:
        pytest.skip("an extra is not installed")
    fields = [facts.get("License-Expression"), facts.get("License")]
    texts = [*fields, *(facts.get_all("Classifier") or [])]
    text = "\n".join(text for text in texts if text)
    # Words of a license, of which the metadata have one wherever they state it.
    families = {"BSD": "BSD", "MIT": "MIT", "Apache": "Apache", "Python": "Python|PSF"}
    assert any(
        re.search(words, text) for family, words in families.items() if family in stated
    ), (name, stated)


def imported(tree):
    """Names of the modules that a program imports, with the names from each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


@cache
def imports_of_the_package():
    files = sorted((ROOT / "dpsample").rglob("*.py"))
    trees = (ast.parse(path.read_text("utf-8")) for path in files)
    return [name for tree in trees for name in imported(tree)]


def test_what_is_imported_is_declared():
    public = [line for lines in public_extras().values() for line in lines]
    names = distributions([*PROJECT["dependencies"], *public])
    others = {"python-flint": "flint", "scikit-learn": "sklearn"}
    declared = {others.get(name, name.replace("-", "_")) for name in names}
    # llvmlite comes with Numba, pytensor with PyMC, IPython with a notebook.
    declared |= {
        "dpsample",
        "llvmlite",
        "pytensor",
        "IPython",
        *sys.stdlib_module_names,
    }
    tops = {module.partition(".")[0] for module, _ in imports_of_the_package()}
    assert tops - declared == set()


def vanished(names):
    """Names of Numba and llvmlite that their installed versions lack."""
    for module, name in names:
        try:
            parent = importlib.import_module(module)
            if name is not None and not hasattr(parent, name):
                importlib.import_module(f"{module}.{name}")
        except ImportError:
            yield module if name is None else f"{module}.{name}"


def test_numba_has_every_name_that_we_import():
    names = sorted(
        {n for n in imports_of_the_package() if n[0].startswith(("numba", "llvmlite"))},
        key=str,
    )
    assert len(names) > 40
    assert list(vanished(names)) == []
    planted = [("numba.core.nothing", None), ("numba.core.compiler", "Nothing")]
    assert len(list(vanished(planted))) == 2


def is_tested(version, oldest=(0, 61), newest=(0, 68)):
    """Whether the tests of kernels passed with this minor version, or one around it.

    They are those in tests/core, tests/optimizers and tests/samplers.
    """
    return oldest <= tuple(map(int, version.split(".")[:2])) <= newest


def test_the_installed_numba_is_not_newer_than_the_tests():
    assert is_tested(numba.__version__), (
        f"Numba {numba.__version__} is new. `core/compiling.py` and `core/frames.py` "
        "use private parts of it. Run the tests of kernels, then change `is_tested` "
        "and the bound in pyproject.toml and recipe.yaml."
    )
    assert is_tested("0.61.2") and not is_tested("0.69.0rc1")


def test_the_bounds_of_numba_are_the_versions_that_were_tested():
    (line,) = (d for d in PROJECT["dependencies"] if d.startswith("numba"))
    oldest, newer = re.fullmatch(r"numba>=([\d.]+),<([\d.]+)", line).groups()
    before = "0." + str(int(newer.partition(".")[2]) - 1)
    assert is_tested(oldest) and is_tested(before) and not is_tested(newer)


def test_every_extra_has_a_program_that_uses_it():
    programs = {path.stem for path in (ROOT / "tools" / "extras").glob("*.py")}
    programs.remove("use_types")  # type checkers read it, as `.ci/packages` says
    assert programs == {f"use_{name}" for name in public_extras()}


@pytest.mark.parametrize("name", ["plots", "distributed", "sklearn", "verify"])
@pytest.mark.slow
def test_the_program_of_an_extra_runs(name):
    run_python((ROOT / "tools" / "extras" / f"use_{name}.py").read_text("utf-8"))
