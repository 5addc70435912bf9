"""Kernels that call kernels: the same numbers, and one compilation."""

import gc

import numba
import numpy as np
import pytest
from numba.core import event
from numba.core.runtime import _nrt_python, rtsys

from dpsample.core.jit import kernel
from dpsample.core.linking import collector_held, without_collector

pytestmark = pytest.mark.skipif(
    numba.config.DISABLE_JIT, reason="kernels are interpreted"
)


@kernel(cached=False, fastmath={"reassoc"})
def total(values):
    s = 0.0
    for j in range(len(values)):
        s += values[j]
    return s


@kernel(cached=False)
def scaled(values, factor=2.0):
    out = values.copy()
    for j in range(len(out)):
        out[j] *= factor
    return out


@kernel(cached=False)
def checked(values):
    if len(values) == 0:
        raise ValueError("no values")
    return total(scaled(values)) + total(scaled(values, factor=3.0))


@kernel(cached=False)
def outermost(values):
    return checked(values) + 1.0


class Compiled(event.Listener):
    """Names of our functions that Numba compiled for calls from Python."""

    def __init__(self):
        self.names = []

    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        if function.__module__ == __name__:
            self.names.append(function.__name__)

    def on_end(self, event):
        pass


def test_a_callee_is_lowered_and_its_caller_compiled_once():
    listener, values = Compiled(), np.array([1.0, 2.0, 4.0])
    with event.install_listener("numba:compile", listener):
        assert outermost(values) == 36.0
        # A sum that may be reordered is one function, whoever calls it.
        assert sorted(listener.names) == ["outermost", "total"]
        assert checked(values) == 35.0  # from Python too, after it was lowered
        assert scaled(values).tolist() == [2.0, 4.0, 8.0]
    assert sorted(listener.names) == ["checked", "outermost", "scaled", "total"]


@pytest.mark.slow
def test_other_types_are_lowered_anew():
    ones = np.ones(3, dtype=np.float32)
    assert outermost(ones) == 16.0
    assert outermost(np.ones((6, 2))[:, 0]) == 31.0


def test_errors_of_callees_arrive():
    with pytest.raises(ValueError, match="no values"):
        outermost(np.empty(0))


def test_sums_do_not_depend_on_the_caller():
    values = np.random.default_rng(0).standard_normal(1003)
    twice = total(2.0 * values) + total(3.0 * values)
    assert checked(values) == twice
    assert outermost(values) == twice + 1.0


def test_arrays_of_callees_are_freed():
    """A callee's references are counted as everywhere."""
    outermost(np.ones(4))
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    for _ in range(100):
        outermost(np.ones(4))
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0


@kernel(cached=False)
def power(base, exponent):
    return base**exponent


@kernel(cached=False)
def powers(base, exponent):
    return power(base, 2) + power(base, 3) + power(base, exponent)


def test_constants_and_numbers_share_one_version():
    assert powers(2.0, 4) == 28.0
    assert len(power.lowered) == 1


def test_the_collector_waits_for_the_compiler_and_comes_back():
    assert gc.isenabled()
    with pytest.raises(ValueError, match="stop"), without_collector():
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("stop")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_block_keeps_the_collector_off_between_compilations():
    with collector_held() as turn_on:
        assert gc.isenabled()
        for _ in range(2):
            with without_collector():
                pass
            assert not gc.isenabled()
        turn_on()
        assert gc.isenabled()
        with collector_held(), without_collector():
            pass
        assert not gc.isenabled()  # the outer block goes on
    assert gc.isenabled()


def test_a_block_turns_on_no_collector_that_was_off():
    gc.disable()
    try:
        with collector_held(), without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def make_inner(factor):
    def inner(x):
        return factor * x

    inner.__module__ = "dpsample.core"
    return kernel(cached=False, fastmath={"reassoc", "contract"})(inner)


def make_outer(inner, module="dpsample.core"):
    def outer(x):
        return inner(x) + 1.0

    outer.__module__ = module
    return kernel(cached=False)(outer)


def test_a_kernel_is_named_by_all_that_it_closes_over():
    """Kernels that close over it are found in the cache by this name."""
    first, again, other = make_inner(2.0), make_inner(2), make_inner(3)
    assert first.cache_name == ""  # floats have many names
    assert again.cache_name == make_inner(2).cache_name != other.cache_name != ""
    assert "['contract', 'reassoc']" in again.cache_name
    name = make_outer(again).cache_name
    assert name == make_outer(make_inner(2)).cache_name
    assert name != make_outer(other).cache_name
    assert make_outer(again, "notebook").cache_name == ""
    assert make_outer(make_outer(again, "notebook")).cache_name == ""
    assert make_outer(lambda x: x).cache_name == ""
