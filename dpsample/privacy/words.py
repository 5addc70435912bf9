"""Values as JSON and as short decimals, and back."""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any

from dpsample import _check as check
from dpsample import regularizers
from dpsample.facts import PublicFacts
from dpsample.privacy.budget import Budget


def round_up(value: float) -> str:
    """Short decimal >= value: the value itself if it is short, else 4 digits."""
    short = f"{value:.12g}"
    if float(short) == value:
        return short
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / step) * step:.4g}"


def plain(value: Any) -> Any:
    """Return the value in standard JSON, which has no infinity."""
    if isinstance(value, Budget):
        return dataclasses.asdict(value)
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if math.isfinite(value) else "inf"


def _with_infinity(content: Any) -> Any:
    """Undo what `plain` did to infinities; labels of losses stay words."""
    if not isinstance(content, dict):
        return math.inf if content == "inf" else content
    return {k: v if k == "label" else _with_infinity(v) for k, v in content.items()}


def parse(name: str, value: Any) -> Any:
    """Turn one JSON value into the field's type."""
    if name in ("facts", "budget", "regularizer"):
        check.instance(dict, **{name: value})
        try:
            return _spec(name, value)
        except (KeyError, TypeError) as error:
            check.fail(name, "a complete description", value, f"({error!r})")
    if name in ("theorems", "assumptions"):
        check.instance(list, **{name: value})
        return tuple(value)
    if name in ("risk", "calibration", "sampler", "digest"):
        check.instance((str, type(None)), **{name: value})
        return value
    if name == "seeded":
        check.instance(bool, seeded=value)
        return value
    number = _with_infinity(value)
    if not (name == "confidence" and number is None):
        check.at_least(0.0, **{name: number})
    return number


def _spec(name: str, content: dict[str, Any]) -> Any:
    if name == "facts":
        return PublicFacts.from_dict(_with_infinity(content))
    return Budget(**content) if name == "budget" else regularizers.from_dict(content)
