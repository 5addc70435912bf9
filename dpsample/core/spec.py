"""Frozen specs that compare by content, travel through JSON and compute once."""

import dataclasses
import math
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array

Json = dict[str, Any]  # what to_dict gives, as JSON holds it
Kind = TypeVar("Kind", bound="Spec")


def freeze(array: Array) -> Array:
    """Forbid writing to an array that a frozen spec keeps."""
    array.setflags(write=False)
    return array


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, tuple):
        return [item.to_dict() if hasattr(item, "to_dict") else item for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    # Standard JSON has no infinity.
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _hashable(value: object) -> Any:
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


class Spec:
    """Base of dataclasses whose fields are numbers, strings, tuples and arrays."""

    name: ClassVar[str]

    def to_dict(self) -> Json:
        """Return the fields and the name, ready for ``json.dumps``."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {"name": self.name} | {
            f.name: _plain(getattr(self, f.name)) for f in fields if f.init
        }

    def __eq__(self, other: object) -> bool:
        """Compare by content: arrays have no single truth value."""
        if type(self) is not type(other) or not isinstance(other, Spec):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Hash the content: equal specs may hold 1 and 1.0, or 0.0 and -0.0."""
        return hash(_hashable(self.to_dict()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the fields of a copy over, whose arrays have become writable."""
        for value in state.values():
            if isinstance(value, np.ndarray):
                freeze(value)
        self.__dict__.update(state)


def from_dict(kinds: Iterable[type[Kind]], data: Json) -> Kind:
    """Rebuild the spec of one of ``kinds`` that `Spec.to_dict` described."""
    check.instance(dict, data=data)
    by_name = {kind.name: kind for kind in kinds}
    check.one_of(tuple(by_name), name=data.get("name"))
    fields = {key: value for key, value in data.items() if key != "name"}
    values = {k: math.inf if v == "inf" else v for k, v in fields.items()}
    return check.build("data", by_name[data["name"]], values)


if TYPE_CHECKING:
    lazy_property = cached_property
else:

    class lazy_property(cached_property):
        """`functools.cached_property` without the lock that all objects share.

        Until Python 3.12 that let one thread at a time compute, for whatever object.
        Two threads may both compute the property of one object: the first answer stays.
        """

        def __get__(self, instance: object, owner: Any = None) -> Any:
            """Compute the value, unless the object has it."""
            if instance is None:
                return self
            kept = vars(instance)
            if self.attrname not in kept:
                kept.setdefault(self.attrname, self.func(instance))
            return kept[self.attrname]
