"""Measures of the package as a house: rooms, files, lines, names and types.

Usage: python benchmarks/house.py [--any]   (also lists the signatures that say Any)
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dpsample"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def annotations(function: Function) -> Iterator[ast.expr]:
    """Annotations of the arguments and of what is returned."""
    names = function.args
    arguments = [*names.posonlyargs, *names.args, *names.kwonlyargs]
    for argument in (*arguments, names.vararg, names.kwarg):
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def says_any(annotation: ast.expr) -> bool:
    """Return whether the name Any occurs in an annotation."""
    nodes = ast.walk(annotation)
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def measures(package: Path) -> tuple[dict[str, object], list[tuple[str, int, str]]]:
    """Measures by their names; path, line and name of the functions that say Any."""
    sources = {p: p.read_text("utf-8") for p in sorted(package.rglob("*.py"))}
    classes: Counter[str] = Counter()
    vague = []
    for path, source in sources.items():  # one tree at a time: all fill the memory
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            if isinstance(node, Function):
                place = (str(path.relative_to(package.parent)), node.lineno, node.name)
                vague += [place for part in annotations(node) if says_any(part)]
    stems = Counter(path.stem for path in sources if path.stem != "__init__")
    return {
        "top-level modules": len(list(package.glob("*.py"))),
        "top-level folders": len(list(package.glob("*/__init__.py"))),
        "files": len(sources),
        "lines": sum(source.count("\n") for source in sources.values()),
        "classes of one name": [name for name, count in classes.items() if count > 1],
        "basenames used three times": [n for n, count in stems.items() if count > 2],
        "definitions of Array": sum(s.count("\nArray = ") for s in sources.values()),
        "Any in signatures": len(vague),
    }, vague


def main() -> None:
    """Print the measures, a line each."""
    counts, vague = measures(PACKAGE)
    for name, value in counts.items():
        print(f"{name}: {value}")
    if "--any" in sys.argv:
        for path, count in Counter(path for path, _, _ in vague).most_common():
            print(f"{count:5} {path}")
        for path, line, name in vague:
            print(f"{path}:{line}: {name}")


if __name__ == "__main__":
    main()
