"""What ``dir``, and with it completion, shows of a module: its public names."""

from collections.abc import Callable, Iterable


def dir_of(names: Iterable[str]) -> Callable[[], list[str]]:
    """``__dir__`` of a module whose ``__all__`` is ``names``."""
    public = sorted(names)
    return lambda: list(public)
