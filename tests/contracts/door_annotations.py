"""Kinds of parameters that follow from the annotations of a public function.

An annotation says which class an argument has, which of a few words it is, and whether
it may be None. It has no range of a number and no shape of an array.
"""

import inspect
import sys
import types
import typing
from collections.abc import Callable

import numpy as np

from tests.contracts.door_values import FLAG, TEXT, Kind, choice, instance, optional

SIMPLE = {bool: FLAG, str: TEXT, bytes: instance(bytes)}


def kind_of_annotation(annotation):
    """Return the kind that an annotation allows, or None if it does not decide."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return choice(*arguments)
    if origin in (typing.Union, types.UnionType):
        return kind_of_union(arguments)
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    if Callable in (origin, annotation):
        return Kind(lambda value: not callable(value), callable)
    return instance(annotation) if is_own_class(annotation) else None


def kind_of_union(members):
    """Return the kind of some classes, of which one may be None."""
    present = [member for member in members if member is not type(None)]
    is_literal = [typing.get_origin(member) is typing.Literal for member in present]
    if len(present) == 1:
        kind = kind_of_annotation(present[0])
    elif all(is_literal):
        kind = choice(*(w for member in present for w in typing.get_args(member)))
    elif all(is_own_class(member) for member in present):
        kind = instance(*present)
    else:
        kind = None
    is_optional = len(present) < len(members)
    return optional(kind) if kind is not None and is_optional else kind


def is_own_class(annotation):
    """Whether it is a class of the package, or a generator of random numbers."""
    if not isinstance(annotation, type) or issubclass(annotation, tuple):
        return False
    if getattr(annotation, "_is_protocol", False):
        return False
    is_own = annotation.__module__.startswith("dpsample.")
    return is_own or annotation is np.random.Generator


def kind_of_parameter(door, parameter):
    """Return the kind that the signature of a door gives a parameter, or None."""
    annotation = inspect.signature(door.function).parameters[parameter].annotation
    if isinstance(annotation, str):
        function = door.function
        module = sys.modules[inspect.unwrap(function).__module__]
        try:
            annotation = eval(annotation, vars(module))
        except NameError:  # a class that is imported for the type checker only
            return None
    return kind_of_annotation(annotation)
