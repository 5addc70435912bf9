"""The recipes of CONTRIBUTING.md, followed word by word in a copy of the package."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks import house
from tests.support.project_files import HOUSE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("dpsample", "tests", "studies", "benchmarks", "pyproject.toml", "README.md")
MOST_LINES = 40
ROOM = 20  # files that may be added before a bound of the house is moved
STATED = re.compile(
    r"^(\d+) lines in (\d+) files?(?:, and (\d+) lines in [^.]*table[^.]*)?\.",
    re.MULTILINE,
)


class Recipe(NamedTuple):
    """Stated numbers, and blocks: (language, file, text)."""

    num_lines: int
    num_files: int
    num_table_lines: int
    blocks: tuple[tuple[str, str, str], ...]

    def is_piece(self, name):
        """Whether a file is the piece, not a table of tests or benchmarks."""
        return name.startswith(("dpsample/", "studies/")) and name.endswith(".py")


def recipes():
    """Recipes by the last word of their heading."""
    parts = TEXT.partition("\n## Recipes\n")[2].split("\n### ")[1:]
    made = {}
    for part in parts:
        lines, files, tables = STATED.search(part).groups(default="0")
        blocks = re.findall(
            r"^```(\w+) (\S+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL
        )
        name = part.splitlines()[0].split()[-1]
        made[name] = Recipe(int(lines), int(files), int(tables), tuple(blocks))
    return made


RECIPES = recipes()
each_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def edited(text, diff):
    """The text after the hunks of a diff, each of which fits in one place."""
    for hunk in diff.split("@@\n"):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines()]
        assert {mark for mark, _ in lines} <= {" ", "+"}
        before = "".join(f"{rest}\n" for mark, rest in lines if mark == " ")
        after = "".join(f"{rest}\n" for _, rest in lines)
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def code_lines(language, text):
    """Lines of code: of a diff those it adds, of a file all but its docstrings."""
    if language == "diff":
        added = (row[1:] for row in text.splitlines() if row[:1] == "+")
        return sum(row.strip() != "" for row in added)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    words = [node.body[0] for node in documented if ast.get_docstring(node)]
    dropped = {i for node in words for i in range(node.lineno, node.end_lineno + 1)}
    rows = enumerate(text.splitlines(), start=1)
    return sum(i not in dropped and row.strip() != "" for i, row in rows)


@pytest.fixture
def tree(tmp_path):
    """A copy of the project whose files are links, so that every edit shows."""
    ignore = shutil.ignore_patterns("__pycache__", "results", "*.sqlite*")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tmp_path / name, copy_function=os.symlink, ignore=ignore
            )
        else:
            os.symlink(ROOT / name, tmp_path / name)
    return tmp_path


def follow(recipe, tree):
    """Write the files of a recipe, and its lines into files that exist."""
    for language, name, text in recipe.blocks:
        path = tree / name
        if language == "diff":
            whole = edited(path.read_text(encoding="utf-8"), text)
            path.unlink()
        else:
            whole = text
            assert not path.exists()
        path.write_text(whole, encoding="utf-8")


def written(tree):
    """Files of the copy that are no links."""
    files = (path for path in tree.rglob("*") if path.is_file())
    return {str(f.relative_to(tree)) for f in files if not f.is_symlink()}


def run(tree, *arguments):
    """Standard output of Python in the copy."""
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(tree / ".numba"),
        "MPLBACKEND": "Agg",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def run_tests(tree, *arguments):
    """Run tests of the copy: at least one is chosen, and all of them pass."""
    out = run(tree, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *arguments)
    assert re.search(r"\d+ passed", out), out


def test_there_are_four_recipes():
    assert list(RECIPES) == ["loss", "sampler", "optimizer", "study"]


@each_recipe
def test_a_recipe_has_the_lines_and_files_that_it_states(recipe):
    counts = {name: code_lines(kind, text) for kind, name, text in recipe.blocks}
    assert len(counts) == len(recipe.blocks)
    piece = [lines for name, lines in counts.items() if recipe.is_piece(name)]
    assert len(piece) == recipe.num_files
    assert sum(piece) == recipe.num_lines <= MOST_LINES
    assert sum(counts.values()) - sum(piece) == recipe.num_table_lines


@each_recipe
def test_a_recipe_writes_the_files_that_it_names_and_no_other(recipe, tree):
    follow(recipe, tree)
    names = {name for _, name, _ in recipe.blocks}
    assert written(tree) == names
    names = {name for name in names if name.endswith(".py")}
    for name in names:
        compile((tree / name).read_text(encoding="utf-8"), name, "exec")
    if importlib.util.find_spec("ruff") is not None:
        run(tree, "-m", "ruff", "check", "--no-cache", *sorted(names))
        run(tree, "-m", "ruff", "format", "--no-cache", "--check", *sorted(names))


@pytest.mark.slow
def test_recipes_that_add_files_leave_the_house_in_order(tree):
    for recipe in RECIPES.values():
        follow(recipe, tree)
    measured, _ = house.measures(tree / "dpsample")
    assert {name for name, most in HOUSE.items() if measured[name] > most} == set()
    assert measured["files"] + ROOM <= HOUSE["files"]


def test_a_diff_that_fits_nowhere_or_twice_is_an_error():
    assert edited("a\nb\n", " a\n+c\n") == "a\nc\nb\n"
    for text in ("b\n", "a\na\n"):
        with pytest.raises(AssertionError):
            edited(text, " a\n+c\n")


@pytest.mark.slow
def test_the_study_runs_and_contradicts_nothing(tree):
    follow(RECIPES["study"], tree)
    call = "import sys; from dpsample.cli import main; sys.exit(main())"
    (command,) = re.findall(r"^```sh\ndpsample (study .*)\n```$", TEXT, re.MULTILINE)
    out = run(tree, "-c", call, *command.split())
    assert "100 of 100 replicates" in out
    results = {f for f in written(tree) if f.startswith("studies/results/quick/")}
    assert written(tree) - results == {"studies/private_mean.py"}


DATA = """
import dpsample as dps
data = dps.datasets.logistic(500, 2, seed=1)
def problem(loss):
    return dps.Problem(data.features, data.response, loss=loss, row_bound=1.0,
                       response_bound=1.0, domain=dps.domains.Ball(1.0))
budget = dps.Budget(epsilon=1.0, delta=1e-6)
"""
LOSS = """
answer = dps.release(problem(dps.losses.LogCosh()), budget)
dps.verify(answer.certificate)
dps.verify(answer.certificate, checker="ball")
assert answer.certificate.releasable
assert answer.certificate.facts.loss.name == "log_cosh"
from dpsample.losses import BUILT_IN
from dpsample.api import warm
assert "log_cosh" in BUILT_IN and "log_cosh" in {loss.name for loss in warm.LOSSES}
"""
SAMPLER = """
target = dps.Gibbs(problem(dps.losses.Logistic()), k=100.0, mu=0.1)
walk = dps.samplers.CauchyWalk()
draws = dps.sample(target, sampler=walk, num_draws=2000, seed=3, progress=False)
exact = dps.sample(target, sampler=dps.samplers.Exact(), num_draws=2000, seed=4,
                   progress=False)
first, second = (d.posterior["theta"].mean(("chain", "draw")) for d in (draws, exact))
assert abs(first - second).max() < 0.05, (first, second)
"""
OPTIMIZER = """
for relation in ("replace_one", "zero_out"):
    budget = dps.Budget(epsilon=1.0, delta=1e-6, relation=relation)
    fit = dps.minimize(problem(dps.losses.Logistic()), dps.optimizers.AcceleratedGD(),
                       budget)
    dps.verify(fit.certificate)
    assert fit.certificate.releasable and fit.certificate.epsilon_proved <= 1.0 + 1e-9
"""
# What is run, and the tests of the new name in the tests that exist.
RUNS = {
    "loss": (
        LOSS,
        "log_cosh or LogCosh or tables",
        (
            "tests/losses/test_losses.py",
            "tests/contracts/test_promises.py",
            "tests/verification/test_ball_checker.py",
        ),
    ),
    "sampler": (
        SAMPLER,
        "CauchyWalk",
        (
            "tests/contracts/test_samplers.py",
            "tests/samplers/test_detailed_balance.py",
            "tests/samplers/test_sampler_invariance.py",
        ),
    ),
    "optimizer": (
        OPTIMIZER,
        (
            "AcceleratedGD or every_optimizer or every_printed or every_private "
            "or every_public"
        ),
        (
            "tests/contracts/test_optimizers.py",
            "tests/contracts/test_optimizer_symmetries.py",
            "tests/optimizers/test_optimizer_audits.py",
            "tests/optimizers/test_optimizer_risk.py",
            "tests/audits/test_audit_printed.py",
        ),
    ),
}


@pytest.mark.slow  # the package is compiled anew, as after an edit of a kernel
def test_the_new_pieces_run_and_keep_the_promises_of_their_kinds(tree):
    """All in one copy, which is compiled once."""
    for name in RUNS:
        follow(RECIPES[name], tree)
    for name, (program, chosen, files) in RUNS.items():
        run(tree, "-c", DATA + program)
        new_file = RECIPES[name].blocks[0][1]
        run_tests(tree, new_file)  # the examples of its docstrings
        run_tests(tree, "-k", chosen, *files)


# Edits of a recipe's loss, each of which makes one declaration false.
FALSE = {
    "slope_bound": ("return 1.0", "return 0.1"),
    "curvature": ("least, most = 4.0", "least, most = 2.0"),
    "value": ("np.tanh(u - y)", "0.5 * np.tanh(u - y)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FALSE)
def test_a_loss_with_a_false_declaration_fails_without_lines_in_tables(name, tree):
    """The contract finds a public loss by itself."""
    own = [b for b in RECIPES["loss"].blocks if b[1].startswith("dpsample/losses/")]
    follow(RECIPES["loss"]._replace(blocks=tuple(own)), tree)
    path = tree / own[0][1]
    text, (before, after) = path.read_text(encoding="utf-8"), FALSE[name]
    assert text.count(before) == 1
    contract = ("tests/contracts/test_promises.py", "-k", "LogCosh and declares")
    run_tests(tree, *contract)
    path.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"FAILED .*LogCosh"):
        run_tests(tree, *contract)


def unknown_tests(page):
    """Return the tests that the page names and that no file has."""
    named = re.findall(r"^  `([\w/]+\.py)(?:::(\w+))?`$", page, re.MULTILINE)
    texts = {file: (ROOT / "tests" / file).read_text("utf-8") for file, _ in named}
    return [pair for pair in named if f"def {pair[1]}" not in texts[pair[0]]]


def test_the_tests_of_threats_exist():
    section = TEXT.partition("## Threats and their tests")[2].partition("\n## ")[0]
    assert len(re.findall(r"^  `", section, re.MULTILINE)) > 20
    assert unknown_tests(section) == []
    planted = section.replace("test_every_mutation_fails_or_is_harmless", "test_other")
    assert unknown_tests(planted) == [("verification/test_verify.py", "test_other")]
