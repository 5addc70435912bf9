r"""Published bounds of five papers as functions of the papers' symbols.

They are in the modules of the papers and are registered here. A function returns the
published value, whether it is right or not, and `dpsample.papers.bound` adds the
verdict of the registry. A docstring has the formula and the conditions of the
statement. ``c`` is the constant that a paper hides in O(.). Where it writes
:math:`\tilde O`, logarithms are hidden in it, too. No paper says that c is 1, which is
the default here only because there has to be one.
"""

import math
from collections.abc import Callable

from dpsample.core import check

# Paper, item, and the part of the item that is bounded, "" if it has one only.
Key = tuple[str, str, str]
FUNCTIONS: dict[Key, Callable[..., float]] = {}


def register_bound(
    paper: str, item: str, part: str = ""
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register the bound of a numbered item."""

    def register(function: Callable[..., float]) -> Callable[..., float]:
        FUNCTIONS[paper, item, part] = function
        return function

    return register


def log_inverse(delta: float) -> float:
    """Return log(1/delta)."""
    return math.log(1.0 / delta)


def log_half(delta: float) -> float:
    """Return log(1/(2 delta)), which the statement needs to be positive."""
    remedy = "The bound has log(1/(2 delta))."
    check.open_interval(0.0, 0.5, delta=delta, remedy=remedy)
    return math.log(0.5 / delta)
