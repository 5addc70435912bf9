"""Mechanism spec: the type of a mechanism and its parameters, as certificates hold it.

A *mechanism* is what was run: an optimizer, a sampler, a tuning or intervals. Its type
is the name of a class, and its parameters are the options that the class is called
with. In JSON both are data:

    {"type": "AdaSSP", "parameters": {"ridge": 0.0, "matrix_share": 0.5}}

A value is None, a bool, an integer, a float, a word, a tuple of values, or the spec of
a part, such as a candidate of a tuning. Every value has one form in JSON, and no two
values share one. Floats are written with the fewest digits that identify them.
Infinities are the texts "inf" and "-inf", because JSON has none, so neither is a word.

Nothing here runs or looks up the type. `registry` knows which types a certificate may
have, and `dpsample.verify` builds the mechanism again.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.spec import Json

# Types and parameters have names as in Python. A word is too plain for a sentence that
# claims anything.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
WORD = re.compile(r"[a-z0-9_]{1,40}")
INFINITIES = {"inf": math.inf, "-inf": -math.inf}
# Maximum number of characters of an integer. `json_form` reads no longer ones.
LONGEST_INTEGER = 40
# Maximum number of specs and tuples inside one another. A tuning of optimizers whose
# parameters are groups of columns has five.
MAX_DEPTH = 12
# Maximum number of characters of a spec as text, far beyond any optimizer's.
MAX_LENGTH = 10_000

Value = Any  # a value as the module's docstring describes it


@dataclass(frozen=True, eq=False, repr=False)
class MechanismSpec:
    """Type of a mechanism and its parameters, in the order of the type's signature.

    Specs are equal if their texts are. A text distinguishes 1, 1.0 and True, and 0.0
    and -0.0. A spec also equals its text.

    Parameters
    ----------
    type : str
        Name of the class.
    parameters : tuple of (str, value)
        Names and values of the options. `MechanismSpec.of` reads them from an object.

    Raises
    ------
    ValueError
        If a name is invalid or repeated, or a value is not one of the above.

    Examples
    --------
    >>> import dpsample as dps
    >>> spec = MechanismSpec.of(dps.optimizers.ClippedGD(num_steps=3, clip=0.5))
    >>> spec.get("num_steps"), MechanismSpec.from_dict(spec.to_dict()) == spec
    (3, True)
    >>> print(spec)
    ClippedGD(num_steps=3, clip=0.5, step_size=None, ridge=0.0, noise='output')
    """

    FIELDS: ClassVar[tuple[str, str]] = ("type", "parameters")

    type: str
    parameters: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        """Check the names, the values, the depth and the length."""
        if not (isinstance(self.type, str) and NAME.fullmatch(self.type)):
            check.fail("type", "the name of a class", check.describe(self.type))
        for name, value in self.parameters:
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                field = f"parameters of {self.type}"
                check.fail(field, "names", check.describe(name))
            _check_value(f"{self.type}.{name}", value)
        names = [name for name, _ in self.parameters]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            check.fail(f"{self.type}.{twice}", "listed once", "it twice")
        if _depth(self) > MAX_DEPTH:
            check.fail(self.type, f"nested at most {MAX_DEPTH} deep", "more levels")
        if len(str(self)) > MAX_LENGTH:
            condition = f"of at most {MAX_LENGTH} characters"
            check.fail(self.type, condition, f"{len(str(self))} characters")

    @classmethod
    def of(cls, mechanism: Any) -> MechanismSpec:  # as `EventCertificate.of`, lint: ok
        """Return the spec of a dataclass, which names what it is called with.

        A class that has gained an option since may leave it out of `described_fields`
        where it has no effect, so that the specs of older certificates stay the same.
        """
        fields = [f.name for f in dataclasses.fields(mechanism) if f.init]
        names = getattr(mechanism, "described_fields", fields)
        return cls(
            type(mechanism).__name__,
            tuple((name, _describe(getattr(mechanism, name))) for name in names),
        )

    def get(self, name: str, default: Value = None) -> Value:
        """Return the value of a parameter, or a default if it is not listed."""
        return dict(self.parameters).get(name, default)

    def to_dict(self) -> Json:
        """Return the type and the parameters as JSON values."""
        return {
            "type": self.type,
            "parameters": {name: _to_json(value) for name, value in self.parameters},
        }

    @classmethod
    def from_dict(cls, content: object, *, name: str = "mechanism") -> MechanismSpec:
        """Read what `to_dict` returned. Errors call it ``name``.

        A ValueError says what is missing, unknown or invalid. Nothing is evaluated.
        """
        return _read_spec(content, name, MAX_DEPTH)

    def __eq__(self, other: object) -> bool:
        """Compare the texts."""
        if not isinstance(other, MechanismSpec | str):
            return NotImplemented
        return str(self) == str(other)

    def __hash__(self) -> int:
        """Hash the text."""
        return hash(str(self))

    def __str__(self) -> str:
        """Return the call of the class, as Python's ``repr`` of a dataclass writes it.

        Certificates of former formats hold this text in the place of the spec.
        """
        listed = (f"{name}={_to_text(value)}" for name, value in self.parameters)
        return f"{self.type}({', '.join(listed)})"

    def __repr__(self) -> str:
        """Return the text."""
        return str(self)


def _check_value(name: str, value: Value) -> None:
    """Raise unless a value has one form in JSON and one as text."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_value(f"{name}[{index}]", item)
    elif type(value) is str:
        if not WORD.fullmatch(value) or value in INFINITIES:
            condition = "a word of small letters, digits and _"
            check.fail(name, condition, check.describe(value))
    elif type(value) is int:
        # Python does not print integers of thousands of digits.
        if value.bit_length() > 256 or len(str(value)) > LONGEST_INTEGER:
            condition = f"an integer of at most {LONGEST_INTEGER} characters"
            check.fail(name, condition, check.describe(value), "Pass a float.")
    elif type(value) is float:
        if math.isnan(value):
            check.fail(name, "a number", "nan")
    elif not (value is None or isinstance(value, bool | MechanismSpec)):
        condition = "None, a number, a word, a tuple or a mechanism"
        check.fail(name, condition, check.describe(value))


def _depth(value: Value) -> int:
    """Return the number of specs and tuples inside one another."""
    if isinstance(value, MechanismSpec):
        return 1 + max((_depth(item) for _, item in value.parameters), default=0)
    if isinstance(value, tuple):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _describe(value: object) -> Value:
    """Return an option as a value: parts as specs, lists as tuples."""
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, MechanismSpec):
        return MechanismSpec.of(value)
    return tuple(map(_describe, value)) if isinstance(value, tuple | list) else value


def _to_text(value: Value) -> str:
    """Return a value as Python's ``repr`` writes it."""
    if isinstance(value, tuple):
        comma = "," if len(value) == 1 else ""
        return f"({', '.join(map(_to_text, value))}{comma})"
    return str(value) if isinstance(value, MechanismSpec) else repr(value)


def _to_json(value: Value) -> object:
    """Return a value as JSON holds it."""
    if isinstance(value, MechanismSpec):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return repr(value) if isinstance(value, float) and math.isinf(value) else value


def _read_spec(content: object, name: str, depth: int) -> MechanismSpec:
    """Read a spec that may have ``depth`` further levels."""
    if not isinstance(content, dict):
        check.fail(name, "an object of type and parameters", check.describe(content))
    if set(content) != set(MechanismSpec.FIELDS):
        listed = ", ".join(sorted(map(str, content)))
        check.fail(name, "an object of type and parameters", f"fields {listed}")
    options = content["parameters"]
    if not isinstance(options, dict):
        check.fail(f"{name}.parameters", "an object", check.describe(options))
    parameters = [
        (key, _read_value(value, f"{name}.{key}", depth - 1))
        for key, value in options.items()
    ]
    return MechanismSpec(content["type"], tuple(parameters))


def _read_value(value: object, name: str, depth: int) -> Value:
    """Read a value of JSON. The depth is bounded before anything is made of it."""
    if depth < 0:
        check.fail(name, f"nested at most {MAX_DEPTH} deep", "more levels")
    if isinstance(value, dict):
        return _read_spec(value, name, depth)
    if isinstance(value, list):
        return tuple(
            _read_value(item, f"{name}[{i}]", depth - 1) for i, item in enumerate(value)
        )
    return INFINITIES.get(value, value) if isinstance(value, str) else value
