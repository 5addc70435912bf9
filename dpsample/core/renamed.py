"""Former names of public parameters, attributes and keys, for one more version.

`accept_former_names` decorates a function or class, whose former names then work with a
DeprecationWarning. Files that an earlier version wrote are read without one.

The warning should show the line of the user. So functions that warn take a level, which
counts callers from the function that called them (1) outwards, and every function that
passes the level on adds 1 for itself.
"""

import functools
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar

Owner = TypeVar("Owner", bound=Callable[..., object])
# Attribute of a function or class with the present name of each former one.
PRESENT_NAMES = "__present_names__"


def warn_renamed(former: str, present: str, *, stacklevel: int) -> None:
    """Warn that a name has changed."""
    warnings.warn(
        f"{former} is now {present}. The former name goes with the next version.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )


def accept_former_names(**present_names: str) -> Callable[[Owner], Owner]:
    """Decorate a function or class with the present names of former parameters.

    Former attributes of a class, methods included, return the present ones. It must be
    the outermost decorator, because the warning is for the line of the call.
    """

    def decorate(owner: Owner) -> Owner:
        setattr(owner, PRESENT_NAMES, present_names)
        if not isinstance(owner, type):
            return _accept_former(owner, owner)
        for former, present in present_names.items():
            setattr(owner, former, _former_attribute(owner, former, present))
        owner.__init__ = _accept_former(owner, owner.__init__)  # type: ignore[misc]
        return owner

    return decorate


def _accept_former(owner: Callable[..., object], function: Owner) -> Owner:
    """Return the function, which then accepts former names of its parameters too."""

    @functools.wraps(function)
    def call(*args: object, **options: object) -> object:
        return function(*args, **rename_options(owner, options, stacklevel=2))

    return call  # type: ignore[return-value]


def rename_options(
    owner: Callable[..., object], options: Mapping[str, object], *, stacklevel: int
) -> dict[str, object]:
    """Return arguments under their present names, and warn of former ones."""
    result = with_present_names(owner, options)
    for former in options.keys() - result.keys():
        present = present_names_of(owner)[former]
        warn_renamed(
            f"{former} of {owner.__name__}", present, stacklevel=stacklevel + 1
        )
    return result


def _former_attribute(owner: type, former: str, present: str) -> property:
    """Return a property that warns and has the value of the present attribute."""

    def read(instance: object) -> object:
        name = owner.__name__
        warn_renamed(f"{name}.{former}", f"{name}.{present}", stacklevel=2)
        return getattr(instance, present)

    return property(read, doc=f"Former name of ``{present}``.")


def present_names_of(owner: object) -> dict[str, str]:
    """Return the present name of each former one of a function or class."""
    names: dict[str, str] = getattr(owner, PRESENT_NAMES, {})
    return names


def with_present_names(
    owner: object, options: Mapping[str, object]
) -> dict[str, object]:
    """Return arguments of a function or class under their present names."""
    result = dict(options)
    for former, present in present_names_of(owner).items():
        if former in result:
            if present in result:
                message = f"got {present} and its former name {former}, which exclude"
                raise TypeError(f"{message} each other.")
            result[present] = result.pop(former)
    return result


def text_with_present_names(owner: object, text: str) -> str:
    """Return the repr of calls with the present names of their arguments.

    Certificates and checkpoints hold such texts, under the names of their version.
    """
    for former, present in present_names_of(owner).items():
        text = re.sub(rf"\b{former}=", f"{present}=", text)
    return text


def text_with_former_names(owner: object, text: str) -> str:
    """Return the repr of calls with the former names of their arguments."""
    for former, present in present_names_of(owner).items():
        text = re.sub(rf"\b{present}=", f"{former}=", text)
    return text


def module_attribute(module: str, **present_names: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module whose functions have former names."""

    def read(name: str) -> object:
        if name not in present_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        present = present_names[name]
        warn_renamed(f"{module}.{name}", f"{module}.{present}", stacklevel=2)
        return getattr(sys.modules[module], present)

    return read


class RenamedKeys(dict[str, object]):
    """A dict whose former keys have the values of the present ones, and warn."""

    present_keys: ClassVar[Mapping[str, str]] = {}

    def __missing__(self, key: str) -> object:
        """Return the value of the present key."""
        return self[self._present(key)]

    def __contains__(self, key: object) -> bool:
        """Return whether there is a value under this key or its present name."""
        return super().__contains__(self.present_keys.get(str(key), key))

    def get(self, key: str, default: object = None) -> object:
        """Return the value of a key, or the default if there is none."""
        present = self._present(key) if key in self.present_keys else key
        return super().get(present, default)

    def _present(self, key: str) -> str:
        """Return the present key of a former one, and warn."""
        if key not in self.present_keys:
            raise KeyError(key)
        present = self.present_keys[key]
        warn_renamed(f"The key {key!r}", repr(present), stacklevel=3)
        return present
