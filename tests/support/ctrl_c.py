"""Ctrl-C at every moment at which Python looks for signals."""

import gc
import os
import signal
import sys
from itertools import count

from dpsample.core import pauses


def moments(call, *names, step=1):
    """Call with Ctrl-C at one moment after the other, until it ends before.

    Moments are the begin of a Python function, and the end of one in C, in files whose
    names end with ``names``. Yields after each call; another exception than
    KeyboardInterrupt is not caught.
    """
    for moment in count(0, step):
        left = moment

        def press(frame, event, _value):
            nonlocal left
            is_here = frame.f_code.co_filename.endswith(names)
            if is_here and event in ("call", "c_return"):
                left -= 1
                if left == -1:
                    signal.raise_signal(signal.SIGINT)

        gc.disable()  # in a callback of the collector Ctrl-C is lost
        sys.setprofile(press)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
            gc.enable()
        if left >= 0:
            return
        yield moment


def press_at_call(monkeypatch, number):
    """Press Ctrl-C at the call of compiled code with this number, in any thread."""
    call, numbers = pauses.call, count(1)

    def pressing(control, function, *arguments):
        if next(numbers) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return call(control, function, *arguments)

    monkeypatch.setattr(pauses, "call", pressing)
