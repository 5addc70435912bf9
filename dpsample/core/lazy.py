"""Properties that are computed once for each object, without a common lock."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

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
