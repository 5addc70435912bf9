"""Public numbers and words that a certificate lists."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dpsample import _check as check

Input = str | float | bool | None


def check_word(**values: Any) -> None:
    """Each value is a nonempty string."""
    for name, value in values.items():
        if not (isinstance(value, str) and value):
            check.fail(name, "a nonempty str", check.shown(value))


def plain_inputs(inputs: Any) -> tuple[tuple[str, Input], ...]:
    """Return the pairs of names and values, the values as plain Python objects."""
    check.instance((tuple, list), inputs=inputs)
    pairs = []
    for index, pair in enumerate(inputs):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            check.fail(f"inputs[{index}]", "a name and a value", check.shown(pair))
        named: dict[str, Any] = {f"inputs[{index}][0]": pair[0]}
        check_word(**named)
        pairs.append((pair[0], _plain_value(*pair)))
    if len({name for name, _ in pairs}) < len(pairs):
        check.fail("inputs", "a list of different names", check.shown(inputs))
    return tuple(pairs)


def parse_inputs(value: Any) -> Any:
    """Undo what JSON did to infinity; `plain_inputs` checks the rest."""
    check.instance(list, inputs=value)
    return [
        [pair[0], math.inf] if isinstance(pair, list) and pair[1:] == ["inf"] else pair
        for pair in value
    ]


def _plain_value(name: str, value: Any) -> Input:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and float(value) > -math.inf:
        return float(value)
    # JSON has no infinity: that word stands for it.
    if isinstance(value, str) and value != "inf":
        return value
    check.fail(f"inputs.{name}", "a number or a word", check.shown(value))
