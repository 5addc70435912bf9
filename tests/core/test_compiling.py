"""The compiler of kernels: Numba's, and the same code without its idle passes."""

import operator
from concurrent.futures import ThreadPoolExecutor
from types import BuiltinFunctionType, SimpleNamespace

import numba
import numpy as np
import pytest
from llvmlite.binding import ffi
from numba import types
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack
from numba.core.typing.templates import _OverloadFunctionTemplate

from dpsample.core import compiling
from dpsample.core.compiling import (
    CalleeCompiler,
    KernelFlags,
    KernelTyping,
    without_events,
)
from dpsample.core.jit import kernel

pytestmark = pytest.mark.skipif(
    not hasattr(kernel(lambda: 0), "overloads"), reason="kernels are interpreted"
)
f8, i8, is_so = types.float64, types.int64, types.boolean
BINARY = [operator.add, operator.mul, operator.truediv, operator.pow, operator.lt]


@kernel(cached=False)
def with_expressions(x, y):
    z = x + 2.0 * y
    pairs = [a * b for a, b in zip(x, y)]  # noqa: B905 - Numba has no strict
    return z.sum() + sum(pairs)


@pytest.fixture
def context():
    context = cpu_target.typing_context
    context.refresh()
    with ConfigStack().enter(KernelFlags()):
        yield context


def test_options_are_equal_as_numba_compares_them():
    ours, numbas = KernelFlags(), Flags()
    assert ours == numbas and numbas == ours and hash(ours) == hash(numbas)
    ours.nrt = True
    assert ours != numbas and ours == ours.copy() and ours != KernelFlags()
    assert type(ours.copy()) is KernelFlags
    numbas.nrt = True
    assert ours == numbas
    ours.fastmath = {"reassoc"}
    assert ours != numbas


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.parametrize("args", [(f8, f8), (f8, i8), (i8, i8), (i8, is_so)])
def test_remembered_signatures_are_numbas(context, function, args):
    expected = context.resolve_function_type(function, args, {})
    typing = KernelTyping(context)
    assert typing.resolve_function_type(function, args, {}) == expected
    assert typing.resolve_function_type(function, args, {}) == expected


def test_functions_whose_code_depends_on_the_options_are_not_remembered(context):
    vector, typing = types.Array(f8, 1, "C"), KernelTyping(context)
    # The first time, the code of np.sum is compiled, whose operators are remembered.
    typing.resolve_function_type(np.sum, (vector,), {})
    before = set(compiling._signatures)
    typing.resolve_function_type(np.sum, (vector,), {})
    assert set(compiling._signatures) == before
    remembered = {getattr(function, "typing_key", function) for function, *_ in before}
    is_plain = [
        type(function) is BuiltinFunctionType or function in compiling.OTHERS
        for function in remembered
    ]
    assert np.sum not in remembered and remembered and all(is_plain)


def test_where_numba_compiles_its_own_functions_nothing_is_remembered(context):
    """Sums that may be reordered are such."""
    vector, flags = types.Array(f8, 1, "A"), KernelFlags()
    flags.fastmath = {"reassoc"}
    before = set(compiling._signatures)
    with ConfigStack().enter(flags):
        KernelTyping(context).resolve_function_type(np.sum, (vector,), {})
    assert set(compiling._signatures) == before


class Template:
    """Stand for Numba's class of functions that are compiled in callers."""

    def _get_jit_decorator(self):
        return numba.njit


def compiler_of_callees():
    """Return the compiler of Numba's own functions at present, None for its own."""
    decorator = Template()._get_jit_decorator()
    return getattr(decorator, "keywords", {}).get("pipeline_class")


@pytest.fixture
def template(monkeypatch):
    monkeypatch.setattr(Template, "_get_jit_decorator", lambda self: numba.njit)
    compiling.lower_callees(Template)


@pytest.mark.usefixtures("template")
def test_callees_are_only_lowered_while_a_kernel_is_compiled():
    assert compiler_of_callees() is None
    with ConfigStack().enter(Flags()):
        assert compiler_of_callees() is None
    with pytest.raises(ZeroDivisionError), ConfigStack().enter(KernelFlags()):
        assert compiler_of_callees() is CalleeCompiler
        raise ZeroDivisionError
    assert compiler_of_callees() is None


@pytest.mark.usefixtures("template")
def test_other_threads_compile_callees_as_numba_does(context):
    assert compiler_of_callees() is CalleeCompiler
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(compiler_of_callees).result() is None


@kernel(cached=False)
def without_meaning(x):
    return np.dot(x, "text") + np.linalg.cholesky(x)


def test_a_kernel_that_does_not_compile_leaves_numbas_compiler():
    with pytest.raises(numba.TypingError):
        without_meaning(np.eye(2))
    assert ConfigStack.top_or_none() is None
    template = SimpleNamespace(metadata={}, context=cpu_target.typing_context)
    decorator = _OverloadFunctionTemplate._get_jit_decorator(template)
    assert not hasattr(decorator, "keywords")


def test_a_numba_without_the_method_compiles_in_its_own_way():
    class Other:
        pass

    compiling.lower_callees(Other)
    assert not hasattr(Other, "_get_jit_decorator")


def test_array_expressions_and_comprehensions_give_numpys_numbers():
    x, y = np.arange(5.0), np.arange(5.0, 10.0)
    expected = (x + 2.0 * y).sum() + (x * y).sum()
    assert with_expressions(x, y) == expected


@kernel(cached=False)
def quadratic_form(matrix, vector):
    return np.dot(np.linalg.cholesky(matrix).T, vector)


@pytest.mark.slow
def test_numbas_functions_in_kernels_serve_functions_of_the_user_too():
    matrix, vector = np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([1.0, 3.0])
    expected = np.linalg.cholesky(matrix).T @ vector
    np.testing.assert_allclose(quadratic_form(matrix, vector), expected)
    of_user = numba.njit(quadratic_form.py_func)
    np.testing.assert_allclose(of_user(matrix, vector), expected)
    with pytest.raises(np.linalg.LinAlgError):
        quadratic_form(-matrix, vector)


def test_events_of_llvm_are_back_after_an_error():
    before = list(ffi.lib._lock._cblist)
    with pytest.raises(ZeroDivisionError), without_events():
        assert ffi.lib._lock._cblist == []
        with without_events():
            raise ZeroDivisionError
    assert before and ffi.lib._lock._cblist == before
