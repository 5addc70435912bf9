"""A notebook that records its display, and a release that shows progress."""

import io
import sys
import types

import numpy as np
from rich.console import Console

import dpsample as dps
from dpsample.running import progress


def words(table):
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


class Notebook:
    """An IPython whose outputs are kept as a saved notebook keeps them."""

    def __init__(self, monkeypatch):
        self.shown, self.outputs, self.error = [], [], None
        shell = type("ZMQInteractiveShell", (), {})
        fake = types.SimpleNamespace(get_ipython=shell)
        monkeypatch.setitem(sys.modules, "IPython", fake)
        module = types.SimpleNamespace(display=self.display)
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
        monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
        # Whether kernels are in the cache is a matter of other tests.
        monkeypatch.setattr(progress, "_shown", {progress.COMPILING})

    def display(self, first, *, raw, display_id):
        assert raw and display_id is True
        self.outputs.append(first)
        number = len(self.outputs) - 1

        def update(shown, *, raw):
            if self.error is not None and shown is not progress.EMPTY:
                raise self.error
            self.shown.append(shown["text/plain"] if raw else words(shown))
            self.outputs[number] = shown

        return types.SimpleNamespace(update=update)

    @property
    def kept(self):
        return [output for output in self.outputs if output != progress.EMPTY]


def release(number, **options):
    """One of two neighboring problems whose draws take different work."""
    rows = np.random.default_rng(number).standard_normal((300, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = dps.Problem(
        rows,
        np.where(rows[:, 0] > 0.0, 1.0, -1.0),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )
    return dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6), seed=1, **options)
