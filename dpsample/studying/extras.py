"""Optional libraries, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any


def required(module: str, extra: str) -> Any:
    """Import a library of an extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        message = f"Studies need {name} here. Run: pip install 'dpsample[{extra}]'"
        raise ImportError(message) from error
