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
    text = f"{value:.4g}"
    if float(text) >= value or f"{value:.12g}" == repr(value).removesuffix(".0"):
        return text if float(text) == value else f"{value:.12g}"
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


def parse(name: str, value: Any) -> Any:
    """Turn one JSON value into the field's type."""
    try:
        if name == "facts":
            return PublicFacts.from_dict(
                {**value, "row_norm": float(value["row_norm"])}
            )
        if name == "budget":
            return Budget(**value)
        if name == "regularizer":
            return regularizers.from_dict(value)
    except (KeyError, TypeError) as error:
        check.fail(name, "a complete description", value, f"({error!r})")
    if name in ("theorems", "assumptions"):
        return tuple(value)
    return math.inf if value == "inf" else value
