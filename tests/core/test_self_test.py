"""Faults of the arithmetic are found: rounding, flushing, contraction, libraries."""

import ctypes
import platform
import sys

import numpy as np
import pytest

import dpsample as dps
from dpsample.core import arithmetic
from dpsample.core.arithmetic import ArithmeticFault, require_arithmetic
from dpsample.core.streams import release_streams

is_known = sys.platform == "linux" and platform.machine() == "x86_64"
needs_control = pytest.mark.skipif(not is_known, reason="MXCSR of x86-64 under Linux")
MXCSR = 28  # place in the C library's environment of floating point
CONTROL = {
    "down": 0x2000,
    "up": 0x4000,
    "to zero": 0x6000,
    "flush to zero": 0x8000,
    "denormals are zero": 0x0040,
}


def test_this_process_is_sound():
    require_arithmetic()


@needs_control
@pytest.mark.parametrize("fault", CONTROL)
def test_modes_of_the_processor_are_noticed(fault):
    require_arithmetic()  # compiled before
    library = ctypes.CDLL("libm.so.6")
    before = ctypes.create_string_buffer(32)
    library.fegetenv(before)
    changed = ctypes.create_string_buffer(before.raw, 32)
    word = int.from_bytes(before.raw[MXCSR : MXCSR + 4], "little") | CONTROL[fault]
    changed[MXCSR : MXCSR + 4] = word.to_bytes(4, "little")
    faults = np.zeros(len(arithmetic.FAULT))
    try:
        library.fesetenv(changed)
        arithmetic.probe(arithmetic.INPUTS, faults)
    finally:
        library.fesetenv(before)
    place = arithmetic.FAULT.flushes if CONTROL[fault] in (0x8000, 0x0040) else 0
    assert faults[place] == 1.0
    require_arithmetic()


@pytest.mark.parametrize("fault", arithmetic.FAULTS)
def test_each_fault_is_refused(monkeypatch, fault):
    def broken(inputs, faults):
        faults[:] = 0.0
        faults[fault] = 1.0

    monkeypatch.setattr(arithmetic, "probe", broken)
    with pytest.raises(ArithmeticFault, match=arithmetic.FAULTS[fault]):
        require_arithmetic()


def test_a_poor_library_is_refused(monkeypatch):
    def poor(points, out):
        self_test_elementary(points, out)
        out[1, 5] = np.exp(points[5]) - 1.0

    self_test_elementary = arithmetic.elementary
    monkeypatch.setattr(arithmetic, "elementary", poor)
    arithmetic._require_elementary.cache_clear()
    with pytest.raises(ArithmeticFault, match="units in the last place"):
        require_arithmetic()
    arithmetic._require_elementary.cache_clear()


def test_nothing_is_drawn_for_release_in_a_faulty_process(monkeypatch):
    def broken(inputs, faults):
        faults[:] = 1.0

    monkeypatch.setattr(arithmetic, "probe", broken)
    with pytest.raises(ArithmeticFault), release_streams(None, 1):
        pytest.fail("streams were made")
    with release_streams(1, 1):  # a study
        pass


def test_a_library_that_returns_nan_is_refused_like_any_other(monkeypatch):
    def broken(points, out):
        out[:] = np.nan

    monkeypatch.setattr(arithmetic, "elementary", broken)
    arithmetic._require_elementary.cache_clear()
    with pytest.raises(ArithmeticFault, match="units in the last place"):
        require_arithmetic()
    arithmetic._require_elementary.cache_clear()


def test_no_plan_is_kept_of_a_faulty_process(monkeypatch):
    problem = dps.Problem(
        np.eye(2),
        [1.0, -1.0],
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )

    def broken(inputs, faults):
        faults[:] = 1.0

    monkeypatch.setattr(arithmetic, "probe", broken)
    with pytest.raises(ArithmeticFault):
        dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    assert problem.plan is None
