"""JSON form of certificates: one text for each value, and one reading of a text.

JSON has no infinity, so it is written as "inf". Numbers are written with the fewest
digits that identify them, and no key may be repeated. So a digest of the text binds the
values.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from typing import Any

from dpsample import regularizers
from dpsample.core import check
from dpsample.core.spec import Json
from dpsample.privacy.accounting.attack_risk import round_decimal
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts

# Maximum number of characters of an integer. Counts have fewer.
LONGEST_INTEGER = 40


def round_up(value: float) -> str:
    """Return a short decimal >= value: the value itself if it is short, or 4 digits."""
    short = f"{value:.12g}"
    if float(short) == value:
        return short
    return f"{float(round_decimal(value, digits=4, up=True)):.4g}"


def to_plain(value: Any) -> object:
    """Return the value in standard JSON, which has no infinity."""
    if isinstance(value, Budget):
        return dataclasses.asdict(value)
    if hasattr(value, "to_dict"):
        return to_plain(value.to_dict())
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    # A bool is an integer, too, so it comes first.
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if math.isfinite(value) else "inf"


def parse(name: str, value: Any) -> Any:
    """Turn one JSON value into the field's type."""
    if name in ("facts", "budget", "regularizer"):
        if name == "facts" and value is None:
            return None
        check.instance(dict, **{name: value})
        try:
            if name == "budget":
                return Budget(**value)
            if name == "regularizer":
                return regularizers.from_dict(value)
            return PublicFacts.from_dict(_with_infinity(value))
        except (KeyError, TypeError) as error:
            check.fail(name, "a complete description", value, f"({error!r})")
    if name in ("theorems", "assumptions"):
        check.instance(list, **{name: value})
        return tuple(value)
    if name in ("risk", "calibration", "digest"):
        check.instance((str, type(None)), **{name: value})
        return value
    if name == "seeded":
        check.instance(bool, seeded=value)
        return value
    # All other fields are numbers >= 0. Two of them may be absent.
    number = _with_infinity(value)
    if not (name in ("confidence", "max_work") and number is None):
        check.at_least(0.0, **{name: number})
        check.instance(float, **{name: number})
    return number


def _with_infinity(content: object) -> Any:
    """Undo the change of infinities by `to_plain`. A loss may have the label "inf"."""
    if not isinstance(content, dict):
        return math.inf if content == "inf" else content
    return {k: v if k == "label" else _with_infinity(v) for k, v in content.items()}


def load_json(text: object, kind: str, former: tuple[str, ...] = ()) -> Json:
    """Return the content of JSON whose ``format`` is ``kind``, or a former one."""
    content: Any = strict_json(text)
    stated_format = content.get("format") if isinstance(content, dict) else None
    if stated_format not in (kind, *former):
        # The same name with another number at its end is another version.
        remedy = ""
        if isinstance(stated_format, str) and stated_format.rstrip(
            "0123456789"
        ) == kind.rstrip("0123456789"):
            remedy = (
                "Formats with other numbers bind their words in other ways and are not "
                "read: make the certificate again."
            )
        got = "one of another kind"  # and not its text: it may be of records
        if isinstance(stated_format, str):
            got = f"one of {check.describe(stated_format)}"
        elif not isinstance(text, str):
            got = check.describe(text)
        check.fail("text", f'the JSON of a "{kind}"', got, remedy)
    sealed: Json = content
    return sealed


def strict_json(text: object) -> Any:
    """Return the content of JSON that has one reading, or None if it is not JSON.

    No key may occur twice, and numbers must be as Python writes them.

    Examples
    --------
    >>> strict_json('{"k": 0.10}')
    Traceback (most recent call last):
    ValueError: text must be written with shortest numbers, got 0.10.
    """
    if not isinstance(text, str):
        return None
    try:
        return json.loads(
            text,
            object_pairs_hook=_once,
            parse_float=lambda digits: _shortest(float, digits),
            parse_int=lambda digits: _shortest(int, digits),
            parse_constant=lambda word: check.fail("text", "of finite numbers", word),
        )
    except (json.JSONDecodeError, RecursionError):  # brackets without end
        return None


def _once(pairs: list[tuple[str, Any]]) -> Json:
    """Return an object of JSON, or raise if a key is repeated."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        check.fail("text", "without repeated keys", check.describe(twice))
    return content


def _shortest(kind: type[float] | type[int], digits: str) -> float | int:
    """Return a number, or raise unless it is written as Python would write it."""
    if len(digits) > LONGEST_INTEGER or repr(number := kind(digits)) != digits:
        check.fail("text", "written with shortest numbers", digits[:LONGEST_INTEGER])
    return number


def canonical_text(value: object) -> str:
    """Return the JSON text of a value, of which digests are taken."""
    return json.dumps(value, sort_keys=True, default=str)
