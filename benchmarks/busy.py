"""Run a command while so many other processes keep the processors busy.

    python benchmarks/busy.py 8 -- pytest -q tests/running

The others count in plain Python until the command ends. No test may depend on how fast
the machine is, so a file of tests that fails here only has to be mended.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# A busy process ends when its standard input does, and so even if this one is killed.
COUNT = """
import sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0))).start()
number = 0
while True:
    number += 1
"""


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep so many processes counting for as long as the block runs."""
    command = [sys.executable, "-c", COUNT]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
        for other in others:
            other.communicate()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int, help="of busy processes")
    parser.add_argument("command", nargs="+", help="what to run, after --")
    options = parser.parse_args(arguments)
    with busy(options.number):
        return subprocess.run(options.command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
