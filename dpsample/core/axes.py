"""Axes to draw on: the caller's, or those of a new figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsample.core import check

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes(given: Axes | None, *, figsize: tuple[float, float]) -> Axes:
    """Return ``given``, or new axes of that size; matplotlib is imported only then.

    An ImportError gives the line that installs it.
    """
    if given is not None:
        if not hasattr(given, "get_xlim"):
            check.fail("ax", "axes of matplotlib, or None", given)
        return given
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plot needs matplotlib: pip install 'dpsample[plots]'"
        ) from error
    drawn: Axes = plt.subplots(figsize=figsize)[1]
    return drawn
