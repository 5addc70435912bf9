"""One live line per chain, in a terminal or a notebook, and nothing elsewhere.

The lines are drawn between two chunks by the thread that waits for the chains. What
takes long is done seldom: an effective sample size costs at most 2 % of the time.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

import numpy as np

from dpsample.core import pauses
from dpsample.numerics.mixing import effective_share
from dpsample.running.checkpoint import CheckpointRun
from dpsample.samplers.chain import ACCEPTANCE, ENERGY, PROPOSALS

Paint = Callable[[object], object]  # shows a table or a text
Progress = Callable[[int, int, CheckpointRun], None]

REFRESH_SECONDS = 0.2
PATIENCE_SECONDS = 2.0  # before a line appears that nobody asked for
ESS_SECONDS = 1.0
ESS_COST = 50.0  # times its own duration passes before the next estimate
# Draws and coefficients that an estimate looks at.
FEWEST, NUM_RECENT, NUM_COEFFICIENTS = 20, 20_000, 3


def is_shown() -> bool:
    """Whether there is a terminal or a notebook to draw on."""
    return _in_notebook() or bool(sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def lines(
    title: str, num_warmup: int, *, paint: Paint | None = None
) -> Iterator[Progress]:
    """Draw until the block is left; yields the function that `chains.run` calls.

    ``title`` is above the lines, ``num_warmup`` draws of each chain are discarded, and
    ``paint`` shows a table in place of the terminal or notebook.
    """
    with _line() if paint is None else nullcontext(paint) as write:
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

        assert self.begin is not None
        begin, first = self.begin
        left = math.nan
        if done > first:
            left = (total - done) * (now - begin) / (done - first)
        counted = f"{done} of {self.num_warmup} warm-up"
        if done > self.num_warmup or self.num_warmup == 0:
            counted = f"{done - self.num_warmup} of {total - self.num_warmup}"
        table = Table(title=self.title, title_justify="left")
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
def patience(title: str) -> Iterator[Callable[[str, bool], None]]:
    """One live line if the block lasts: its seconds, and what the block says.

    It is drawn at pauses of compiled code, by the main thread only. Yields a function
    (text, whether the line is to appear at once).
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and is_shown()):
        yield lambda _text, _at_once: None
        return
    begin, drawn, said = time.monotonic(), -math.inf, ""
    write: Paint | None = None
    with ExitStack() as stack:

        def draw(patience: float) -> None:
            nonlocal drawn, write
            now = time.monotonic()
            if now - begin < patience or now - drawn < REFRESH_SECONDS:
                return
            drawn = now
            write = stack.enter_context(_line()) if write is None else write
            write(f"{title}: {now - begin:.0f} s{said}")

        def say(text: str, at_once: bool) -> None:
            nonlocal said
            said = f"; {text}"
            draw(0.0 if at_once else PATIENCE_SECONDS)

        with pauses.listening(lambda: draw(PATIENCE_SECONDS)):
            yield say


@contextmanager
def _line() -> Iterator[Paint]:
    """Open a live line; yields what writes it."""
    if _in_notebook():
        from IPython.display import display

        yield display("", display_id=True).update
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), auto_refresh=False) as live:
            yield partial(live.update, refresh=True)


@contextmanager
def counter(title: str, unit: str, total: int) -> Iterator[Callable[..., None]]:
    """One live line; yields a function of the number done and the seconds left.

    Without the seconds, they are what all would take that take as long as those done.
    """
    begin, drawn = time.monotonic(), -math.inf

    def show(done: int, left: float | None = None) -> None:
        nonlocal drawn
        now = time.monotonic()
        if done < total and now - drawn < REFRESH_SECONDS:
            return
        drawn = now
        if left is None:
            left = (total - done) * (now - begin) / done if done else math.nan
        text = f"{done} of {total} {unit}"
        if math.isfinite(left):
            text += f", {left:.0f} s left"
        write(f"{title}\n{text}")

    with _line() as write:
        yield show
