"""The commands: ``release``, ``verify``, ``sample``, ``study``, ``claims`` and more."""

import sys
from collections.abc import Sequence

from dpsample.cli.exit_codes import FAILED, INTERRUPTED, USAGE_ERROR
from dpsample.core.public import dir_of

__all__ = ["main"]
__dir__ = dir_of(__all__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default the arguments of the process.

    Returns
    -------
    int
        Exit code. 0: success. 1: a negative verdict, a failure after a draw (the
        message names the file that has it), or a closed stdout. 2: an error of the
        user. 130: Ctrl-C. Errors are one line on stderr. A bug of the program is not
        caught.
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
    """Run one command, and return the exit code."""
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
    """Return the message of an error that a user can correct; None for a bug."""
    from dpsample.samplers import SamplingError

    if hasattr(error, "format_message"):  # usage errors of the option parser
        return str(error.format_message())
    if isinstance(error, ValueError | OSError | ImportError | SamplingError):
        return str(error)
    return None
