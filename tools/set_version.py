#!/usr/bin/env python3
"""Give the package a version, by ``python tools/set_version.py 1.0.0``.

The build reads the version from ``__version__`` in ``dpsample/core/public.py``. Files
of other tools cannot read that line, so their own lines are written as well. The
entries of CHANGELOG.md under "Unreleased" become the changes of the version.
"""

import re
import sys
from pathlib import Path


def lines() -> dict[str, str]:
    """Return by file the line of the version. The version is its group."""
    return {
        "dpsample/core/public.py": r'^__version__ = "(.*)"$',
        "README.md": r"^The version is (.*), an alpha",
        "CITATION.cff": r"^version: (.*)$",
        "recipe/recipe.yaml": r'^  version: "(.*)"$',
    }


def versions(root: Path) -> dict[str, str]:
    """Return the version that each file states."""
    return {
        name: re.findall(line, (root / name).read_text("utf-8"), re.MULTILINE)[0]
        for name, line in lines().items()
    }


def write(root: Path, version: str) -> None:
    """Write a version to all files, and the head of its changes."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise SystemExit(f"version must be like 1.0.0 or 1.0.0rc1, got {version!r}")
    for name, line in lines().items():
        path = root / name
        text = path.read_text("utf-8")
        match = re.search(line, text, re.MULTILINE)
        if match is None:
            raise SystemExit(f"{name} has no line of the version")
        path.write_text(text[: match.start(1)] + version + text[match.end(1) :])
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text("utf-8")
    if f"\n## {version}\n" not in text:
        changelog.write_text(text.replace("\n## Unreleased\n", f"\n## {version}\n", 1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    write(Path(__file__).parents[1], sys.argv[1])
