"""The compiler of kernels: Numba's, and the same code without its idle passes."""

import operator

import numpy as np
import pytest
from numba import types
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack

from dpsample.core import compiling
from dpsample.core.compiling import KernelFlags, KernelTyping
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
    before = set(compiling._signatures)
    vector = types.Array(f8, 1, "C")
    KernelTyping(context).resolve_function_type(np.sum, (vector,), {})
    assert set(compiling._signatures) == before


def test_array_expressions_and_comprehensions_give_numpys_numbers():
    x, y = np.arange(5.0), np.arange(5.0, 10.0)
    expected = (x + 2.0 * y).sum() + (x * y).sum()
    assert with_expressions(x, y) == expected
