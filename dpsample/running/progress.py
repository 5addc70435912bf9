"""Live lines in a terminal or a notebook, which are erased at the end.

A line appears when a call has lasted for two seconds. It is drawn between two chunks by
the thread that waits for them. It is always erased, because it may depend on the
records, and notebooks are saved. An error of a display does not end a run. Estimates
of the effective sample size take at most 2 % of the time.
"""

import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from dpsample.core import cache, check, files, linking, pauses
from dpsample.numerics.r_hat_and_ess import effective_share
from dpsample.running.checkpoint import CheckpointRun, Progress
from dpsample.samplers.chain import COUNT, STAT

# Texts of the top-level functions that spend the budget of all their fits at once.
FITTING = "{} is fitting; after Ctrl-C nothing is returned"
INTERRUPTED = "{} was interrupted. Nothing is returned, and the budget is spent."
P = ParamSpec("P")
Result = TypeVar("Result")
Paint = Callable[[object], None]  # function that shows a table or a text

REFRESH_SECONDS = 0.2  # minimum time between two changes of a line
PATIENCE_SECONDS = 2.0  # before a line appears
COMPILING = (
    "dpsample: {verb} is compiled for this machine, which takes about {seconds:.0f} s "
    "once. `dpsample warm` does it ahead."
)
ESS_SECONDS = 1.0  # minimum time between two estimates
NUM_RECENT = 20_000  # draws that an estimate uses


def is_shown() -> bool:
    """Return whether this thread may draw on a terminal or in a notebook."""
    is_main = threading.current_thread() is threading.main_thread()
    is_child = multiprocessing.parent_process() is not None
    is_seen = _in_notebook() or files.is_terminal(sys.stderr)
    return is_main and not is_child and is_seen


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a Jupyter notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def line(is_wanted: bool = True) -> Iterator[Paint]:
    """Show one live line until the block is left, however it is left.

    Yield a function of a text or a table that writes the line. It does nothing in the
    first seconds, and if the line is not wanted or not visible.
    """
    if not (is_wanted and is_shown()):
        yield lambda _content: None
        return
    begin, drawn = time.monotonic(), -math.inf
    display: _Notebook | _Terminal | None = None

    def paint(content: object) -> None:
        nonlocal display, drawn
        now = time.monotonic()
        if now - begin < PATIENCE_SECONDS or now - drawn < REFRESH_SECONDS:
            return
        drawn = now
        # The terminal may be gone, or not be able to encode the text.
        with suppress(Exception):
            if display is None:
                display = _Notebook() if _in_notebook() else _Terminal()
            display.show(content)

    try:
        yield paint
    finally:
        with pauses.delay_interrupts(), suppress(Exception):
            if display is not None:
                display.clear()


EMPTY = {"text/plain": "", "text/html": ""}  # output of a cell


class _Notebook:
    """An output of the cell, which is emptied at the end."""

    def __init__(self) -> None:
        from IPython.display import display

        self.handle = display(EMPTY, raw=True, display_id=True)

    def show(self, content: object) -> None:
        is_text = isinstance(content, str)
        self.handle.update({"text/plain": content} if is_text else content, raw=is_text)

    def clear(self) -> None:
        self.handle.update(EMPTY, raw=True)


class _Terminal:
    """A line of a terminal, which is erased at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        # The width is the terminal's own. With another one (COLUMNS) some lines would
        # not be erased.
        size = os.terminal_size((0, 0))
        with suppress(OSError, ValueError):
            size = os.get_terminal_size(sys.stderr.fileno())
        console = Console(
            stderr=True,
            width=size.columns or 80,
            height=size.lines or 24,
            markup=False,
            emoji=False,
            highlight=False,
        )
        is_shared = files.is_terminal(sys.stdout)
        self.live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=is_shared,  # output to a file must not appear here
        )

    def show(self, content: object) -> None:
        self.live.start()  # only the first call has an effect
        self.live.update(content, refresh=True)  # type: ignore[arg-type]

    def clear(self) -> None:
        self.live.stop()


@contextmanager
def lines(
    title: str, num_warmup: int, *, paint: Paint | None = None
) -> Iterator[Progress]:
    """Draw until the block is left. Yield the function that `chains.run` calls.

    ``title`` is above the lines, ``num_warmup`` draws of each chain are discarded, and
    ``paint`` shows a table in place of the terminal or notebook.
    """
    with line() if paint is None else nullcontext(paint) as write:
        yield _Lines(title, num_warmup, write)


class _Lines:
    """Table of a run's chains, and the times from which rates are counted."""

    def __init__(self, title: str, num_warmup: int, paint: Paint) -> None:
        self.title, self.num_warmup, self.paint = title, num_warmup, paint
        # Time and draws at the first call, and at the first call after the warm-up.
        # Rates exclude compilation, draws of a checkpoint and the warm-up.
        self.begin: tuple[float, int] | None = None
        self.warmup_end: tuple[float, int] | None = None
        self.drawn = self.next_estimate = -math.inf
        self.rates: list[float] = []
        # A call without a new draw shows the number of proposals.
        self.last, self.is_waiting = -1, False

    def __call__(self, done: int, total: int, run: CheckpointRun) -> None:
        """Redraw if the last time is long enough ago."""
        now = time.monotonic()
        self.last, self.is_waiting = done, done == self.last
        if self.begin is None:
            self.begin = (now, done)
            self.next_estimate = now + ESS_SECONDS
        if self.warmup_end is None and done >= self.num_warmup:
            self.warmup_end = (now, done)
        is_last = done == total
        if now >= self.next_estimate or is_last:
            self._estimate(now, done, run)
        if is_last or now - self.drawn >= REFRESH_SECONDS:
            self.drawn = now
            self.paint(self._table(now, done, total, run))

    def _estimate(self, now: float, done: int, run: CheckpointRun) -> None:
        """Estimate effective draws per second of each chain.

        The next estimate comes after 50 times as long.
        """
        if self.warmup_end is not None and done - self.warmup_end[1] >= 20:
            since, first = self.warmup_end
            first_used = max(first, done - NUM_RECENT)
            part = slice(first_used - run.num_dropped, done - run.num_dropped)
            draws_per_second = (done - first) / max(now - since, 1e-9)
            energies = run.stats[:, part, STAT.energy, None]
            draws = run.draws[:, part, :3]
            series = np.concatenate((energies, draws), axis=2)
            shares = [effective_share(chain[None]) for chain in series]
            self.rates = [draws_per_second * share for share in shares]
        cost = time.monotonic() - now
        self.next_estimate = now + max(ESS_SECONDS, 50.0 * cost)

    def _table(self, now: float, done: int, total: int, run: CheckpointRun) -> object:
        from rich.table import Table
        from rich.text import Text

        assert self.begin is not None
        begin, first = self.begin
        seconds_left = math.nan
        if done > first:
            seconds_left = (total - done) * (now - begin) / (done - first)
        counted = f"{done} of {self.num_warmup} warm-up"
        if done > self.num_warmup or self.num_warmup == 0:
            counted = f"{done - self.num_warmup} of {total - self.num_warmup}"
        title = Text(f"{self.title}\nNOT PRIVATE")
        table = Table(title=title, title_justify="left")
        for name in ("chain", "draws", "acceptance", "ESS/s", "time left"):
            table.add_column(name, justify="right")
        recent = run.warmup_stats
        if run.num_kept:
            recent = run.stats[:, max(0, run.num_kept - NUM_RECENT) : run.num_kept]
        if self.is_waiting:
            num_proposals = sum(int(s.counts[COUNT.proposals]) for s in run.states)
            table.caption = f"{num_proposals} tries so far; Ctrl-C keeps the draws"
        for c, acceptance in enumerate(recent[:, :, STAT.acceptance_rate]):
            finite = acceptance[np.isfinite(acceptance)]
            accepted = f"{finite.mean():.2f}" if finite.size else "-"
            rate = f"{self.rates[c]:.3g}" if self.rates else "-"
            remaining = f"{seconds_left:.0f} s" if math.isfinite(seconds_left) else "-"
            table.add_row(str(c), counted, accepted, rate, remaining)
        return table


@contextmanager
def patience(
    title: str, *, is_wanted: bool = True, remedy: str = ""
) -> Iterator[Callable[[str], None]]:
    """Show one live line of the seconds so far, drawn at pauses of compiled code.

    Yield a function of a text to add. The text may depend on the records, so it is
    shown in terminals only: a notebook whose kernel is killed keeps its last line.
    After a minute the line has the ``remedy``.
    """
    begin, addition = time.monotonic(), ""
    with line(is_wanted) as paint:

        def draw() -> None:
            seconds = time.monotonic() - begin
            # The line names a remedy after one minute.
            advice = f"; {remedy}" if remedy and seconds > 60.0 else ""
            paint(f"{title}: {seconds:.0f} s{addition or advice}")

        def show_text(text: str) -> None:
            nonlocal addition
            addition = "" if _in_notebook() else f"; {text}"
            draw()

        with pauses.listening(draw):
            yield show_text


_shown: set[str] = set()  # texts that this process does not repeat


@contextmanager
def compiling(verb: str, seconds: float, *, is_wanted: bool = True) -> Iterator[None]:
    """Show once in a process that a function is compiled, and for about how long.

    The message is in the terminal, or in the notebook until the end. A single small
    kernel, such as one of a user's loss, has no message.
    """
    if COMPILING in _shown or not (is_wanted and is_shown()):
        yield
        return
    begin: float | None = None
    notebook: _Notebook | None = None

    def show_message() -> None:
        nonlocal begin, notebook
        now = time.monotonic()
        begin = now if begin is None else begin
        # Work that follows this soon was not compiled but read from the cache.
        if COMPILING in _shown or now - begin < 0.3:
            return
        _shown.add(COMPILING)
        with suppress(Exception):  # the terminal may be gone
            text = COMPILING.format(verb=verb, seconds=seconds)
            if _in_notebook():
                notebook = _Notebook()
                notebook.show(text)
            else:
                print(text, file=sys.stderr, flush=True)

    try:
        cache.on_miss.append(show_message)
        yield
    finally:
        with pauses.delay_interrupts(), suppress(Exception):
            cache.on_miss.remove(show_message)
            if notebook is not None:
                notebook.clear()


def compiles_first(
    seconds: float,
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a top-level function whose first call compiles for some seconds.

    Its ``progress=False`` silences the message. Python's garbage collector is off until
    it has compiled.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def run(*args: P.args, **options: P.kwargs) -> Result:
            # With a deadline nothing is shown.
            is_silent = options.get("progress", True) is False or "deadline" in options
            with (
                linking.collector_held() as turn_on,
                # At the first pause most functions are compiled.
                pauses.listening(turn_on),
                compiling(function.__name__, seconds, is_wanted=not is_silent),
            ):
                return function(*args, **options)

        return run

    return decorate


def with_line(function: Callable[P, Result]) -> Callable[P, Result]:
    """Show the seconds while a function runs, unless its ``progress`` is false."""

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> Result:
        progress = options.get("progress", True)
        check.instance(bool, progress=progress)
        with patience(function.__name__, is_wanted=bool(progress)):
            return function(*args, **options)

    return run


@contextmanager
def counter(
    title: str, unit: str, total: int, *, is_wanted: bool = True
) -> Iterator[Callable[..., None]]:
    """Show one live line. Yield a function of the number done and the seconds left.

    By default the seconds are estimated from the mean time so far.
    """
    begin = time.monotonic()

    def show(done: int, seconds_left: float | None = None) -> None:
        if seconds_left is None:
            seconds = time.monotonic() - begin
            seconds_left = (total - done) * seconds / done if done else math.nan
        text = f"{done} of {total} {unit}"
        if math.isfinite(seconds_left):
            text += f", {seconds_left:.0f} s left"
        paint(f"{title}\n{text}")

    with line(is_wanted) as paint:
        yield show
