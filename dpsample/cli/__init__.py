"""The commands ``demo``, ``release``, ``sample``, ``study``, ``claims``, ``warm``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE_ERROR = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        0, or 2 after an error of the user, printed as one line on stderr, or 130 after
        Ctrl-C. An error of the program is not caught.
    """
    import typer

    from dpsample.cli.commands import app

    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = app(given or ["--help"], prog_name="dpsample", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        message = _words(error)
        if message is None:
            raise
        print(f"dpsample: error: {message}", file=sys.stderr)
        return USAGE_ERROR
    return code if isinstance(code, int) else 0


def _words(error: Exception) -> str | None:
    """Message of an error that a user can mend, on one line; None for a bug."""
    from dpsample.samplers import SamplingError

    if hasattr(error, "format_message"):  # usage errors of the option parser
        text = error.format_message()
    elif isinstance(error, ValueError | OSError | ImportError | SamplingError):
        text = str(error)
    else:
        return None
    return " ".join(text.split())
