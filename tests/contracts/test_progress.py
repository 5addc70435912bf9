"""Every public function that takes time has ``progress``: on, and gone at the end."""

import inspect
import sys

import pytest

from dpsample.running import progress
from tests.contracts import door_objects as O
from tests.contracts.door_calls import call
from tests.contracts.doors import doors
from tests.support.notebooks import Notebook
from tests.support.tiers import one_in

ROOMS = ("audits.", "diagnostics.")
# Functions of the package itself and of these rooms that show nothing, and why.
QUICK = {
    "advise": "public facts alone, a second",
    "calibrate": "public facts alone",
    "verify": "public numbers alone",
    "audits.exact_curve": "one quadrature in dimension 1 or 2",
    "diagnostics.check": "one pass over draws",
    "diagnostics.gamma_check": "one pass over draws",
    "diagnostics.stein_check": "one pass over draws",
    "diagnostics.summary": "one pass over draws",
}


def is_quick(name):
    """Whether a door is known to be quick: pictures of draws are, too."""
    inner = name.startswith(("audits.neighbors.", "papers.clipping_instance."))
    return name in QUICK or "plot_" in name or inner


FUNCTIONS = {
    door.name: door
    for door in doors()
    if inspect.isfunction(door.function)
    and door.owner is None
    and ("." not in door.name or door.name.startswith(ROOMS))
}
SHOWING = {n: d for n, d in FUNCTIONS.items() if "progress" in d.parameters}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    O.write_files(tmp_path)


def test_each_function_has_progress_or_a_reason():  # L1
    missing = {n for n in FUNCTIONS if n not in SHOWING and not is_quick(n)}
    assert not missing
    assert {"release", "minimize", "tune", "intervals", "replicate"} <= set(SHOWING)
    assert {"sample", "audit", "diagnostics.tv_bound"} <= set(SHOWING)


@pytest.mark.parametrize("name", SHOWING)
def test_progress_is_on_by_default(name):
    parameter = inspect.signature(SHOWING[name].function).parameters["progress"]
    assert parameter.default is True and parameter.kind is parameter.KEYWORD_ONLY


# Their calls take tenths of a second, and end between two pauses.
@one_in(8)
@pytest.mark.parametrize("name", SHOWING)
def test_nothing_stays_of_a_call_and_false_silences_it(name, monkeypatch):  # L1
    notebook, opened = Notebook(monkeypatch), []
    shown = progress.is_shown
    monkeypatch.setattr(progress, "is_shown", lambda: opened.append(1) or shown())
    call(SHOWING[name], progress=True)
    assert opened, "no line was asked for"
    assert not notebook.kept
    opened.clear()
    notebook.shown.clear()
    call(SHOWING[name], progress=False)
    assert not notebook.shown
    monkeypatch.delitem(sys.modules, "IPython")
    call(SHOWING[name], progress=True)
    assert not notebook.shown
