"""The commands: ``release``, ``verify``, ``sample``, ``study``, ``claims`` and more."""

import sys
from collections.abc import Sequence

from dpsample.core.public import dir_of

__all__ = ["main"]
__dir__ = dir_of(__all__)

FAILED = 1
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
        0; 1 if a verdict is negative, or if something failed after a draw, which is
        then in a file that the message names, or if the reader of stdout has gone; 2
        after an error of the user; 130 after Ctrl-C. Errors are one line on stderr. An
        error of the program is not caught.
    """
    command = sys.argv[1:] if arguments is None else list(arguments)
    try:
        from dpsample.cli import screen

        with screen.any_text(), screen.heartbeat(command[0] if command else "help"):
            try:
                return _run(command)
            finally:
                screen.abandon()
    except KeyboardInterrupt:  # while something is imported, or at the end
        return INTERRUPTED


def _run(command: list[str]) -> int:
    import typer

    from dpsample.cli import screen
    from dpsample.cli.commands import app
    from dpsample.cli.screen import KeptError

    try:
        help_option = ["--help"] if command in ([], ["study"]) else []
        code = app(
            [*command, *help_option], prog_name="dpsample", standalone_mode=False
        )
        screen.flush()
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SystemExit as end:  # the option parser had no reader, or completed
        return end.code if isinstance(end.code, int) else FAILED
    except KeptError as error:
        screen.tell(f"error: {error}")
        return FAILED
    except Exception as error:
        if screen.is_interrupt(error):
            return INTERRUPTED
        message = _message(error)
        if message is None:
            raise
        screen.tell(f"error: {message}")
        return USAGE_ERROR
    return code if isinstance(code, int) else 0


def _message(error: Exception) -> str | None:
    """Message of an error that a user can mend; None for a bug."""
    from dpsample.samplers import SamplingError

    if hasattr(error, "format_message"):  # usage errors of the option parser
        return str(error.format_message())
    if isinstance(error, ValueError | OSError | ImportError | SamplingError):
        return str(error)
    return None
