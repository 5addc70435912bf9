"""Specs: frozen dataclasses that compare by content and can be written as JSON."""

import dataclasses
import math
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.renamed import with_present_names

Json = dict[str, Any]  # returned by `to_dict`, ready for ``json.dumps``
Kind = TypeVar("Kind", bound="Spec")


def freeze(array: Array) -> Array:
    """Make an array read-only, as a field of a frozen spec, and return it."""
    array.setflags(write=False)
    return array


def _to_json(value: object) -> object:
    """Return a field as JSON can hold it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        # The `item` of a long double is a long double, which JSON does not support.
        return float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, tuple):
        return [item.to_dict() if hasattr(item, "to_dict") else item for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    # Standard JSON has no infinity.
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _hashable(value: object) -> Any:
    """Return nested dictionaries and lists as tuples, which have a hash."""
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


class Spec:
    """Base of dataclasses whose fields are numbers, strings, tuples and arrays."""

    name: ClassVar[str]

    def to_dict(self) -> Json:
        """Return the fields and the name, ready for ``json.dumps``."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        # Fields with init=False are computed from the others.
        return {"name": self.name} | {
            f.name: _to_json(getattr(self, f.name)) for f in fields if f.init
        }

    def __eq__(self, other: object) -> bool:
        """Compare by content: arrays have no single truth value."""
        if type(self) is not type(other) or not isinstance(other, Spec):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Hash the content: equal specs may hold 1 and 1.0, or 0.0 and -0.0."""
        return hash(_hashable(self.to_dict()))

    def __setstate__(self, state: dict[str, object]) -> None:
        """Set the fields of a copy or of an unpickled spec.

        Copied and unpickled arrays are writable, whatever the original was.
        """
        for value in state.values():
            if isinstance(value, np.ndarray):
                freeze(value)
        # A pickle of an earlier version has the former names of fields.
        self.__dict__.update(with_present_names(type(self), state))


def from_dict(kinds: Iterable[type[Kind]], data: Json) -> Kind:
    """Rebuild the spec of one of ``kinds`` that `Spec.to_dict` described.

    Specs inside of it stay dictionaries, which its class turns into specs itself.
    """
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

        Until Python 3.12 this lock allows one thread at a time to compute any of them.
        Here two threads may both compute the property of an object. The first value is
        kept.
        """

        def __get__(self, instance: object, owner: object = None) -> Any:
            """Compute the value, unless the object has it."""
            if instance is None:
                return self
            attributes = vars(instance)
            if self.attrname not in attributes:
                attributes.setdefault(self.attrname, self.func(instance))
            return attributes[self.attrname]
