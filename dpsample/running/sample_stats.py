"""Group sample_stats of a tree of draws, which still knows a former name.

It is in a module of its own because importing xarray takes half a second.
"""

from typing import Any

from xarray import DataTree

from dpsample.core.renamed import warn_renamed


class SampleStats(DataTree):  # type: ignore[no-untyped-call]
    """Statistics of draws, whose former name ``energy`` is still read as minus ``lp``.

    In ArviZ's schema ``energy`` is a Hamiltonian, so only Hamiltonian samplers have a
    variable of this name.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        """Return a variable or a child, and minus ``lp`` for a missing ``energy``."""
        if key != "energy" or key in self.data_vars or "lp" not in self.data_vars:
            return super().__getitem__(key)
        warn_renamed('sample_stats["energy"]', 'minus sample_stats["lp"]', stacklevel=2)
        return -super().__getitem__("lp").rename("energy")

    def __getattr__(self, name: str) -> Any:
        """Return ``energy`` as an attribute, too."""
        return self[name] if name == "energy" else super().__getattr__(name)
