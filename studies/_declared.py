"""Commits in which exclusions were declared: `python -m studies._declared`.

An exclusion says where a bound is not compared. ``declared.toml`` keeps, for every
study and reason, the first commit whose study states it; reports print it, so that one
can see that it was older than the results. What is there already is never changed.
"""

import ast
import json
import subprocess
import tomllib
from pathlib import Path

from dpsample.experiments.configuration import bundle, load, study_names

FOLDER = Path(__file__).parent
FILE = FOLDER / "declared.toml"


def git(*arguments):
    """Output of git in this repository."""
    command = ("git", "-C", str(FOLDER), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def states(commit, path, reason):
    """Whether a file said so at a commit."""
    try:
        text = git("show", f"{commit}:./{path.name}")
    except subprocess.CalledProcessError:  # it was not there yet
        return False
    nodes = ast.walk(ast.parse(text))
    return any(isinstance(n, ast.Constant) and n.value == reason for n in nodes)


def first_commit(given, reason):
    """First commit in which a file of the study states the reason, or none."""
    paths = [Path(source.path) for source in given.sources]
    for commit in git(
        "log", "--reverse", "--format=%h", "--", *map(str, paths)
    ).split():
        if any(states(commit, path, reason) for path in paths):
            return commit
    return None


def reasons(given):
    """Reasons that a study declares."""
    return tuple(dict.fromkeys(entry.reason for entry in load(given).inapplicable))


def main():
    """Add what is missing."""
    known = tomllib.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for name in study_names(FOLDER):
        given = bundle(FOLDER, name)
        for reason in reasons(given):
            commit = known.get(name, {}).get(reason) or first_commit(given, reason)
            if commit is not None:
                known.setdefault(name, {})[reason] = commit
    lines = ["# Written by `python -m studies._declared`: reason = first commit."]
    for name, entries in sorted(known.items()):
        lines += ["", f"[{name}]"]
        lines += [f"{json.dumps(r)} = {json.dumps(c)}" for r, c in entries.items()]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
