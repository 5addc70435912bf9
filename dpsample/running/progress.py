"""Live lines in a terminal or a notebook, which are gone at the end.

A line appears when a call has lasted for a moment. It is drawn between two chunks by
the thread that waits for them. It never stays: what it shows may depend on the records,
and notebooks are saved. An error of a display ends no run. What takes long is done
seldom: an effective sample size costs at most 2 % of the time.
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
from dpsample.numerics.mixing import effective_share
from dpsample.running.checkpoint import CheckpointRun
from dpsample.samplers.chain import ACCEPTANCE, ENERGY, PROPOSALS

P = ParamSpec("P")
Result = TypeVar("Result")
Paint = Callable[[object], None]  # shows a table or a text
Progress = Callable[[int, int, CheckpointRun], None]

REFRESH_SECONDS = 0.2
PATIENCE_SECONDS = 2.0  # before a line appears
REMEDY_SECONDS = 60.0  # before it says what takes less time
# A first call says that it compiles if more follows after so long.
COMPILED_SECONDS = 0.3
COMPILING = (
    "dpsample: {verb} is compiled for this machine, which takes about {seconds:.0f} s "
    "once. `dpsample warm` does it ahead."
)
ESS_SECONDS = 1.0
ESS_COST = 50.0  # times its own duration passes before the next estimate
# Draws and coefficients that an estimate looks at.
FEWEST, NUM_RECENT, NUM_COEFFICIENTS = 20, 20_000, 3


def is_shown() -> bool:
    """Return whether this thread may draw on a terminal or in a notebook."""
    is_main = threading.current_thread() is threading.main_thread()
    is_child = multiprocessing.parent_process() is not None
    is_seen = _in_notebook() or files.is_terminal(sys.stderr)
    return is_main and not is_child and is_seen


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def line(is_wanted: bool = True) -> Iterator[Paint]:
    """Show one live line until the block is left, however it is left.

    Yields what writes it: a function of a text or a table. It does nothing until the
    block has lasted for a moment, nor if it is not wanted or nobody sees it.
    """
    if not (is_wanted and is_shown()):
        yield lambda _shown: None
        return
    begin, drawn = time.monotonic(), -math.inf
    display: _Notebook | _Terminal | None = None

    def paint(content: object) -> None:
        nonlocal display, drawn
        now = time.monotonic()
        if now - begin < PATIENCE_SECONDS or now - drawn < REFRESH_SECONDS:
            return
        drawn = now
        with suppress(Exception):  # the terminal is gone, or its encoding too small
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
    """An output of the cell that is emptied at the end: the notebook may be saved."""

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

        # The width of the terminal itself: by another one (COLUMNS) a part of the lines
        # would not be erased.
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
            redirect_stdout=is_shared,  # what goes to a file does not end up here
        )

    def show(self, content: object) -> None:
        self.live.start()  # once; here, because Ctrl-C finds what is to be erased
        self.live.update(content, refresh=True)  # type: ignore[arg-type]

    def clear(self) -> None:
        self.live.stop()


@contextmanager
def lines(
    title: str, num_warmup: int, *, paint: Paint | None = None
) -> Iterator[Progress]:
    """Draw until the block is left; yields the function that `chains.run` calls.

    ``title`` is above the lines, ``num_warmup`` draws of each chain are discarded, and
    ``paint`` shows a table in place of the terminal or notebook.
    """
    with line() if paint is None else nullcontext(paint) as write:
        yield _Lines(title, num_warmup, write)


class _Lines:
    """What is shown, and since when rates are counted."""

    def __init__(self, title: str, num_warmup: int, paint: Paint) -> None:
        self.title, self.num_warmup, self.paint = title, num_warmup, paint
        # Time and draws at the first call, and at the first with a draw that is kept:
        # before lie compilation, a checkpoint's draws and the warm-up.
        self.begin: tuple[float, int] | None = None
        self.kept: tuple[float, int] | None = None
        self.drawn = self.next_estimate = -math.inf
        self.rates: list[float] = []
        # Whether nothing was done since the last call: draws that need many tries.
        self.last, self.is_waiting = -1, False

    def __call__(self, done: int, total: int, run: CheckpointRun) -> None:
        """Redraw if it is time to."""
        now = time.monotonic()
        self.last, self.is_waiting = done, done == self.last
        if self.begin is None:
            self.begin = (now, done)
            self.next_estimate = now + ESS_SECONDS
        if self.kept is None and done >= self.num_warmup:
            self.kept = (now, done)
        is_last = done == total
        if now >= self.next_estimate or is_last:
            self._estimate(now, done, run)
        if is_last or now - self.drawn >= REFRESH_SECONDS:
            self.drawn = now
            self.paint(self._table(now, done, total, run))

    def _estimate(self, now: float, done: int, run: CheckpointRun) -> None:
        """Effective draws per second of each chain, then a pause as dear as it was."""
        if self.kept is not None and done - self.kept[1] >= FEWEST:
            since, first = self.kept
            first_used = max(first, done - NUM_RECENT)
            part = slice(first_used - run.num_warmup, done - run.num_warmup)
            pace = (done - first) / max(now - since, 1e-9)
            energies = run.stats[:, part, ENERGY, None]
            draws = run.draws[:, part, :NUM_COEFFICIENTS]
            series = np.concatenate((energies, draws), axis=2)
            self.rates = [pace * effective_share(chain[None]) for chain in series]
        cost = time.monotonic() - now
        self.next_estimate = now + max(ESS_SECONDS, ESS_COST * cost)

    def _table(self, now: float, done: int, total: int, run: CheckpointRun) -> object:
        from rich.table import Table
        from rich.text import Text

        assert self.begin is not None
        begin, first = self.begin
        left = math.nan
        if done > first:
            left = (total - done) * (now - begin) / (done - first)
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
            tries = sum(int(state.counts[PROPOSALS]) for state in run.states)
            table.caption = f"{tries} tries so far; Ctrl-C keeps the draws"
        for c, acceptance in enumerate(recent[:, :, ACCEPTANCE]):
            known = acceptance[np.isfinite(acceptance)]
            accepted = f"{known.mean():.2f}" if known.size else "-"
            rate = f"{self.rates[c]:.3g}" if self.rates else "-"
            remaining = f"{left:.0f} s" if math.isfinite(left) else "-"
            table.add_row(str(c), counted, accepted, rate, remaining)
        return table


@contextmanager
def patience(
    title: str, *, is_wanted: bool = True, remedy: str = ""
) -> Iterator[Callable[[str], None]]:
    """Show one live line of the seconds so far, drawn at pauses of compiled code.

    Yields a function of a text to add, which may depend on the records: it is for
    terminals alone, as a notebook whose kernel is killed keeps its last line. After a
    minute the line has the ``remedy``.
    """
    begin, said = time.monotonic(), ""
    with line(is_wanted) as paint:

        def draw() -> None:
            seconds = time.monotonic() - begin
            advice = f"; {remedy}" if remedy and seconds > REMEDY_SECONDS else ""
            paint(f"{title}: {seconds:.0f} s{said or advice}")

        def say(text: str) -> None:
            nonlocal said
            said = "" if _in_notebook() else f"; {text}"
            draw()

        with pauses.listening(draw):
            yield say


_said: set[str] = set()  # texts that this process does not repeat


@contextmanager
def compiling(verb: str, seconds: float, *, is_wanted: bool = True) -> Iterator[None]:
    """Say once in a process that a function is compiled, and for about how long.

    A person who waits sees it in the terminal, or in the notebook until the end. One
    small kernel, such as that of a user's loss, is not worth a message.
    """
    if COMPILING in _said or not (is_wanted and is_shown()):
        yield
        return
    begin: float | None = None
    notebook: _Notebook | None = None

    def tell() -> None:
        nonlocal begin, notebook
        now = time.monotonic()
        begin = now if begin is None else begin
        if COMPILING in _said or now - begin < COMPILED_SECONDS:
            return
        _said.add(COMPILING)
        with suppress(Exception):  # the terminal may be gone
            text = COMPILING.format(verb=verb, seconds=seconds)
            if _in_notebook():
                notebook = _Notebook()
                notebook.show(text)
            else:
                print(text, file=sys.stderr, flush=True)

    try:
        cache.on_miss.append(tell)
        yield
    finally:
        with pauses.delay_interrupts(), suppress(Exception):
            cache.on_miss.remove(tell)
            if notebook is not None:
                notebook.clear()


def compiles_first(
    seconds: float,
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a top-level function that compiles for so long in a first call.

    Its ``progress=False`` silences it. Python's collector waits until it has compiled.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def run(*args: P.args, **options: P.kwargs) -> Result:
            # With a deadline nothing is shown.
            is_silent = options.get("progress", True) is False or "deadline" in options
            with (
                linking.collector_held() as turn_on,
                # A call that lasts has compiled most of what it needs.
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
    """Show one live line; yields a function of the number done and the seconds left.

    Without the seconds, they are what all would take that take as long as those done.
    """
    begin = time.monotonic()

    def show(done: int, left: float | None = None) -> None:
        if left is None:
            seconds = time.monotonic() - begin
            left = (total - done) * seconds / done if done else math.nan
        text = f"{done} of {total} {unit}"
        if math.isfinite(left):
            text += f", {left:.0f} s left"
        paint(f"{title}\n{text}")

    with line(is_wanted) as paint:
        yield show
