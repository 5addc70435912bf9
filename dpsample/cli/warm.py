"""``dpsample warm``: fill the compilation cache."""

import os

from dpsample.cli import screen
from dpsample.core.cache import CACHE_DIRECTORY
from dpsample.verbs.warm import warm


def run() -> None:
    """Compile every built-in piece, naming each."""
    console = screen.console()
    count = warm(
        lambda name: console.print(f"compiling {name}"), processes=os.cpu_count() or 1
    )
    console.print(f"{count} parts are compiled and cached in {CACHE_DIRECTORY}")
