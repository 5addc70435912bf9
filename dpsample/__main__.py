"""``python -m dpsample``, and the command ``dpsample``."""

import signal
import sys


def run() -> int:
    """Run the command of this process, whose exit code is given, without a traceback.

    Ctrl-C has one in Python while modules are loaded, and while they are left.
    """
    try:
        from dpsample.cli import main

        return main()
    except KeyboardInterrupt:
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(run())
