"""Named tuples by address: laid out as LLVM does, owned by Python, never counted."""

import copy
import dataclasses
import gc
import importlib
import os
import pickle
import pkgutil
import struct
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, get_type_hints

import numba
import numpy as np
import pytest
from llvmlite import ir
from numba.core.errors import NumbaError, TypingError
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys
from numba.np.numpy_support import as_dtype

import dpsample
from dpsample.core import frames
from dpsample.core.arrays import Array
from dpsample.core.frames import ADDRESS, MEMORY, NUMBER_KINDS, by_address, frame_type
from dpsample.core.jit import PieceType, entry, f8, i8, kernel, pointer, vector
from tests.support.processes import run_python
from tests.support.tiers import one_in

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def doubled(x):
    return 2.0 * x


class Plain(NamedTuple):
    """Passed by value, as Numba does."""

    is_on: bool
    row: Array


@by_address
class Inner(NamedTuple):
    """A part of `Outer`."""

    row: Array
    scale: float


@by_address
class Outer(NamedTuple):
    """One field of each type that there is."""

    is_on: bool
    size: float
    row: Array
    count: int
    inner: Inner
    plain: Plain
    flags: tuple[bool, ...]
    is_last: bool
    table: Array
    nothing: Any
    cube: Array
    number: Any
    empty: tuple[()]
    piece: Any
    scalar: Array


def make_outer(rng=None):
    rng = rng or np.random.default_rng(1)
    return Outer(
        is_on=True,
        size=0.25,
        row=rng.standard_normal(3),
        count=-7,
        inner=Inner(rng.standard_normal(4), 2),
        plain=Plain(False, rng.standard_normal(2)),
        flags=(True, False, True),
        is_last=False,
        table=rng.standard_normal((4, 3))[::2],
        nothing=None,
        cube=rng.standard_normal((2, 3, 4)),
        number=np.float64(1.5),
        empty=(),
        piece=pointer(doubled, f8(f8), cached=False),
        scalar=np.array(3.5),
    )


@kernel(cached=False)
def read(outer):
    """Read every field, and stores to arrays in between."""
    total = outer.size + outer.count + outer.number + outer.scalar[()]
    for i in range(len(outer.row)):
        total += outer.row[i] * outer.inner.scale
        outer.row[i] = total
    total += outer.row[2] + outer.inner.row[3] + outer.table[1, 2] + outer.cube[1, 2, 3]
    total += outer.piece(outer.size) + outer.plain.row[1]
    if outer.is_on and not outer.is_last and outer.flags[2] and not outer.flags[1]:
        total += 1.0
    if outer.nothing is None and not outer.plain.is_on:
        total += 2.0
    return total


def read_in_python(outer):
    function = getattr(read, "py_func", read)
    own = outer._replace(row=outer.row.copy(), piece=doubled)
    return function(own), own.row


def decorated_classes():
    """Every class of the package that kernels take by address."""
    for info in pkgutil.walk_packages(dpsample.__path__, "dpsample."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
    seen = set()
    for name, module in sorted(sys.modules.items()):
        if name.startswith("dpsample."):
            for value in vars(module).values():
                if isinstance(value, type) and NUMBER_KINDS in vars(value):
                    seen.add(value)
    return sorted(seen, key=lambda cls: cls.__qualname__)


def example_of(cls):
    """Tuple of a class, by the types that it declares or by its annotations."""
    declared = numba.typeof(
        cls(*[value_of_hint(h) for h in get_type_hints(cls).values()])
    )
    return value_of(declared)


def value_of_hint(hint):
    if hint in (float, int, bool):
        return hint(1)
    if isinstance(hint, type) and NUMBER_KINDS in vars(hint):
        return example_of(hint)
    return np.zeros((2, 3)) if hint is Array else (np.ones(2), True, None)


def value_of(kind):
    """Some value of a type."""
    if isinstance(kind, frames.FrameType):
        return kind.instance_class(*map(value_of, kind.kinds))
    if isinstance(kind, numba.types.BaseTuple):
        make = getattr(kind, "instance_class", None)
        fields = tuple(map(value_of, kind))
        return fields if make is None else make(*fields)
    if isinstance(kind, numba.types.Array):
        array = np.zeros((3,) * kind.ndim, dtype=as_dtype(kind.dtype))
        array.flags.writeable = kind.mutable
        return array
    if isinstance(kind, numba.types.FunctionType):
        piece = copy.copy(pointer(doubled, f8(f8), cached=False))
        vars(piece)["_sig"] = kind.signature
        return piece
    numbers = {f8: 2.5, i8: 7, numba.types.boolean: True, numba.types.none: None}
    return numbers[kind]


def leaves_of(kind, start=0):
    """Words of an LLVM type: their offsets by its own data layout, and their types."""
    target_data = cpu_target.target_context.target_data
    if isinstance(kind, ir.LiteralStructType):
        for i, part in enumerate(kind.elements):
            yield from leaves_of(part, start + kind.get_element_offset(target_data, i))
    elif isinstance(kind, ir.ArrayType):
        size = kind.element.get_abi_size(target_data)
        for i in range(kind.count):
            yield from leaves_of(kind.element, start + i * size)
    else:
        yield start, kind


CODE_OF = {"i64": "q", "double": "d", "i8": "?"}


def assert_laid_out(fields):
    kind = numba.typeof(fields)
    context = cpu_target.target_context
    layout = ir.LiteralStructType([context.get_data_type(k) for k in kind.kinds])
    _, words = frames._code_and_words(fields)
    getattr(fields, ADDRESS)
    memory = getattr(fields, MEMORY)
    for (offset, leaf), word in zip(leaves_of(layout), words, strict=True):
        code = CODE_OF.get(str(leaf), "P")
        assert struct.unpack_from(code, memory, offset) == (word,), (kind, offset)
    assert layout.get_abi_size(context.target_data) <= 8 * len(memory)


@compiled
def test_fields_are_where_llvm_reads_them():
    for fields in (make_outer(), *map(example_of, decorated_classes())):
        assert_laid_out(fields)


@compiled
def test_any_order_of_fields_is_laid_out():
    rng = np.random.default_rng(3)
    parts = list(make_outer()._replace(piece=1))
    for _ in range(30):
        chosen = [parts[i] for i in rng.permutation(len(parts))[:6]]
        chosen.insert(3, (2.0, True, chosen[0], True))
        names = [f"field_{i}" for i in range(len(chosen))]
        cls = by_address(NamedTuple("Some", [(name, Any) for name in names]))
        assert_laid_out(cls(*chosen))


def test_kernels_read_what_python_reads():
    outer = make_outer()
    expected, row = read_in_python(outer)
    assert read(outer) == expected
    assert outer.row.tolist() == row.tolist()  # stores to arrays are seen


@compiled
def test_entries_and_c_functions_take_the_address():
    outer = make_outer()
    expected, _ = read_in_python(outer)
    assert entry(read, outer)(outer) == expected

    @kernel(cached=False)
    def scale_of(inner):
        return inner.scale

    piece = pointer(scale_of, f8(numba.typeof(outer.inner)), cached=False)

    @kernel(cached=False)
    def call(piece, outer):
        return piece(outer.inner)

    assert call(piece, outer) == 2.0


@one_in(5)
@compiled
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (1, 2, 3, 4)])
def test_arrays_arrive_whole(shape):
    @kernel(cached=False)
    def sizes(holder):
        array = holder.row
        return array, array.size, array.itemsize, array.shape, array.strides

    whole = np.arange(float(np.prod(shape))).reshape(shape)
    for array in (whole, whole.T, np.zeros((0, *shape)), whole.astype(np.int8)):
        result = sizes(Inner(array, 1.0))
        assert result[0] is array
        assert result[1:] == (array.size, array.itemsize, array.shape, array.strides)


@compiled
def test_records_of_state_are_changed_in_place():
    """Kernels keep numbers that change in an array of one record."""
    state = np.zeros(1, dtype=[("num_steps", np.int64), ("size", np.float64)])

    @kernel(cached=False)
    def advance(holder):
        record = holder.row[0]
        record.num_steps += 1
        record.size = holder.scale
        return record.num_steps

    holder = Inner(state, 0.5)
    assert [advance(holder), advance(holder)] == [1, 2]
    assert state.tolist() == [(2, 0.5)]


def test_a_tuple_stays_a_tuple():
    outer = make_outer()
    read(outer)
    inner = outer.inner
    assert isinstance(inner, Inner) and isinstance(inner, tuple)
    assert repr(Inner(None, 1.0)) == "Inner(row=None, scale=1.0)"
    assert Inner(None, 1.0) == (None, 1.0) == Inner(None, 1.0)
    assert hash(Inner(None, 1.0)) == hash((None, 1.0))
    assert (Inner.__name__, Inner.__qualname__) == ("Inner", "Inner")
    assert (Inner.__module__, Inner.__doc__) == (__name__, "A part of `Outer`.")
    assert inner._asdict().keys() == {"row", "scale"} == set(Inner._fields)
    assert get_type_hints(Inner) == {"row": Array, "scale": float}


@pytest.mark.parametrize(
    "again",
    [
        copy.copy,
        copy.deepcopy,
        lambda inner: inner._replace(),
        lambda inner: Inner._make(inner),
        lambda inner: pickle.loads(pickle.dumps(inner)),
        lambda inner: pickle.loads(pickle.dumps(inner, protocol=2)),
    ],
    ids=["copy", "deepcopy", "replace", "make", "pickle", "oldest pickle"],
)
def test_a_copy_has_an_address_of_its_own(again):
    inner = Inner(np.arange(3.0), 2.0)
    getattr(inner, ADDRESS)
    other = again(inner)
    assert type(other) is Inner and vars(other) == {}
    assert other.row.tolist() == [0.0, 1.0, 2.0] and other.scale == 2.0
    assert getattr(other, ADDRESS) != getattr(inner, ADDRESS)


@compiled
def test_a_replaced_field_is_read():
    @kernel(cached=False)
    def first(inner):
        return inner.row[0] * inner.scale

    inner = Inner(np.ones(2), 2.0)
    assert first(inner) == 2.0
    assert first(inner._replace(scale=3.0)) == 3.0
    assert first(inner._replace(row=np.full(2, 5.0))) == 10.0
    assert first(inner) == 2.0


@compiled
def test_an_address_that_is_used_again_has_new_fields():
    """Memory that is freed goes to the next tuple: nothing may remember what was."""

    @kernel(cached=False)
    def first(inner):
        return inner.row[0] * inner.scale

    results, addresses = [], set()
    for i in range(100):
        inner = Inner(np.full(2, float(i)), i)
        results.append(first(inner))
        addresses.add(getattr(inner, ADDRESS))
        del inner
    assert results == [float(i * i) for i in range(100)]
    assert len(addresses) < 100  # otherwise this test sees nothing


@compiled
def test_threads_that_ask_at_once_get_one_address(monkeypatch):
    """The memory of all but one is freed, so kernels may read no other."""
    usual = frames._lay_out
    outer, barrier, all_done = make_outer(), threading.Barrier(8), threading.Barrier(8)

    def slowly(fields):
        memory = usual(fields)
        if fields is outer:
            all_done.wait()
        return memory

    monkeypatch.setattr(frames, "_lay_out", slowly)

    def ask():
        barrier.wait()
        return getattr(outer, ADDRESS)

    with ThreadPoolExecutor(8) as pool:
        addresses = {task.result() for task in [pool.submit(ask) for _ in range(8)]}
    assert addresses == {getattr(outer, MEMORY).__array_interface__["data"][0]}


@compiled
def test_threads_read_one_tuple():
    @kernel(cached=False)
    def total(inner):
        x = 0.0
        for i in range(len(inner.row)):
            x += inner.row[i] * inner.scale
        return x

    inner = Inner(np.arange(1000.0), 2.0)
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(lambda _: total(inner), range(200)))
    assert results == {999000.0}


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_reads_its_own_copy():
    outer = make_outer()
    expected, _ = read_in_python(outer)
    read(outer._replace(row=outer.row.copy()))  # compiled before
    getattr(outer, ADDRESS)
    child = os.fork()
    if child == 0:
        os._exit(0 if read(outer) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(outer) == expected


class Numbers(NamedTuple):
    """Fields that are annotated as numbers."""

    size: float
    count: int
    is_on: bool


def test_numbers_have_the_type_of_their_annotation():
    cls = by_address(Numbers)

    @kernel(cached=False)
    def total(numbers):
        return numbers.size / 2 + numbers.count + (100.0 if numbers.is_on else 0.0)

    given = [(3, 4, True), (3.0, np.int32(4), np.True_), (np.float32(3), True, 1)]
    expected = [105.5, 105.5, 102.5]
    assert [total(cls(*numbers)) for numbers in given] == expected
    if not numba.config.DISABLE_JIT:
        assert len(total.signatures) == 1


@compiled
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ((1.0, 2.5, True), "Numbers has a wrong number: "),
        ((1.0, 2**63, True), "Numbers has a wrong number: "),
        (("1", 2, True), "Numbers has a wrong number: "),
        ((None, 2, True), "Numbers has a wrong number: "),
    ],
)
def test_wrong_numbers_are_rejected(fields, error):
    total = kernel(lambda numbers: numbers.size, cached=False)
    with pytest.raises(TypeError, match=error):
        total(by_address(Numbers)(*fields))


@compiled
@pytest.mark.parametrize(
    "field",
    [np.float32(1.0), np.int32(1), 1j, "text", np.random.default_rng(1), [1.0], {}],
    ids=lambda field: type(field).__name__,
)
@pytest.mark.filterwarnings("ignore:.*reflected list")
def test_other_fields_are_rejected(field):
    inner = Inner(field, 1.0)
    with pytest.raises(TypeError, match=r"Inner\.row must be an array, a C function"):
        getattr(inner, ADDRESS)
    with pytest.raises(TypeError, match="Inner"):
        kernel(lambda inner: inner.scale, cached=False)(inner)
    assert vars(inner) == {}


@kernel(cached=False)
def same(inner):
    return inner


@kernel(cached=False)
def beside(inner):
    return inner.scale, inner


@kernel(cached=False)
def perhaps(inner):
    return inner if inner.scale > 0.0 else None


@kernel(cached=False)
def one_by_one(inner):
    for _ in range(2):
        yield inner


@compiled
@pytest.mark.parametrize("function", [same, beside, perhaps, one_by_one])
def test_a_tuple_by_address_is_no_result(function):
    """Nothing says how long the caller would hold it."""
    inner = Inner(np.ones(2), 1.0)
    with pytest.raises(TypingError, match="The result of .* must be numbers"):
        function(inner)
    kind = numba.typeof(inner)
    with pytest.raises(TypingError, match="The result of same must be numbers"):
        pointer(same, kind(kind), cached=False)


@compiled
def test_kernels_give_it_to_each_other():
    @kernel(cached=False)
    def scale(inner):
        return same(inner).scale + beside(inner)[1].row[0]

    assert scale(Inner(np.ones(2), 2.0)) == 3.0


@compiled
def test_nothing_else_can_be_done_with_it():
    inner = Inner(np.ones(2), 1.0)

    def store(inner):
        inner.scale = 2.0

    def unpack(inner):
        row, _scale = inner
        return row[0]

    for function in (
        store,
        unpack,
        lambda inner: inner.other,
        lambda inner: inner[1],
        lambda inner: len(inner),
    ):
        with pytest.raises((NumbaError, NotImplementedError), match="Frame"):
            kernel(function, cached=False)(inner)
    with pytest.raises(NumbaError):
        kernel(lambda x: x + inner.scale, cached=False)(1.0)


@kernel(cached=False)
def times(inner, x):
    return inner.row[0] * inner.scale * x


@kernel(cached=False)
def built(inner, x):
    return times(inner, x) + times(Inner(inner.row, 3.0), x)


@kernel(cached=False)
def given_back(x):
    return Inner(np.full(2, x), 2.0 * x)


@kernel(cached=False)
def either(inner, x):
    chosen = inner
    for i in range(len(inner.row)):
        if inner.row[i] < x:
            chosen = Inner(inner.row, x)
    return chosen.scale


@compiled
def test_tuples_that_kernels_build_are_passed_by_value():
    inner = Inner(np.full(2, 5.0), 2.0)
    assert built(inner, 1.0) == 25.0
    names = sorted(str(kinds[0]).split("(")[0] for kinds in times.lowered)
    assert names == ["Frame", "Inner"]
    result = given_back(1.5)
    assert type(result) is Inner and times(result, 1.0) == 4.5
    with pytest.raises(TypingError, match="unify"):
        either(inner, 1.0)


@by_address
class Opaque(NamedTuple):
    """Any tuple by address."""


@by_address
class Declared(NamedTuple):
    """A tuple whose fields have declared types."""

    row: Array
    scale: float
    inner: Any
    piece: Any
    own: Any
    weight: Any


INNER = frame_type((vector, f8), Inner)
OPAQUE = frames.declare_kinds(Opaque)
DECLARED = frames.declare_kinds(
    Declared, vector, f8, INNER, PieceType(f8(f8)), OPAQUE, f8
)


def make_declared(**fields):
    piece = pointer(doubled, f8(f8), cached=False)
    usual = Declared(np.ones(2), 2.0, Inner(np.ones(3), 1.0), piece, make_outer(), 0.5)
    return usual._replace(**fields)


@compiled
def test_declared_kinds_are_those_of_all_tuples():
    assert numba.typeof(make_declared()) is DECLARED
    total = kernel(lambda t: t.piece(t.scale) + t.row[1] + t.inner.row[2], cached=False)
    assert total(make_declared(scale=3)) == 8.0
    assert total(make_declared(own=Inner(None, 1.0))) == 6.0


@compiled
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("row", np.ones((2, 1))),
        ("row", np.ones(2, np.float32)),
        ("row", np.ones(4)[::2]),
        ("row", np.broadcast_to(1.0, 2)),
        ("row", 1.0),
        ("row", None),
        ("inner", Inner(np.ones(3)[::2], 1.0)),
        ("inner", Inner(np.ones((3, 3)), 1.0)),
        ("inner", (np.ones(3), 1.0)),
        ("own", (1.0,)),
        ("own", None),
        ("piece", None),
        ("weight", 1),  # a number by value only, as nothing annotates it
        ("scale", "1"),
    ],
)
def test_fields_of_other_kinds_are_rejected(name, field):
    """Kernels would misread them."""
    scale = kernel(lambda declared: declared.scale, cached=False)
    message = rf"Declared\.{name} must be .*, got|Declared has a wrong number"
    with pytest.raises(TypeError, match=message):
        scale(make_declared(**{name: field}))


def test_addresses_are_those_of_numpy():
    """They are read from the array's memory, where NumPy may not move them."""
    record = np.zeros(2, dtype=[("num_steps", np.int64), ("size", np.float64)])
    for array in (np.arange(5.0)[2:], np.ones((3, 4)).T, record[1:], np.empty((0, 2))):
        assert frames._fast_address_of(array) == array.ctypes.data
        assert frames._address_of(array) == frames._slow_address_of(array)


@compiled
def test_a_piece_of_another_signature_is_rejected():
    other = pointer(lambda x: x + 1, i8(i8), cached=False)
    with pytest.raises(TypeError, match=r"Declared\.piece must be"):
        getattr(make_declared(piece=other), ADDRESS)


@compiled
def test_types_are_named_by_a_digest_of_their_fields():
    """Numba and the linker compare by name: other fields need another name."""
    same_kinds = frame_type((vector, f8), Inner)
    assert same_kinds is numba.typeof(Inner(np.ones(2), 1))
    others = [
        frame_type((vector, i8), Inner),
        frame_type((numba.float64[:], f8), Inner),
        frame_type((vector, f8), Plain),
        numba.typeof(Inner(np.broadcast_to(1.0, 2), 1.0)),  # read-only
        numba.typeof(Inner(Inner(np.ones(2), 1.0), 1.0)),
    ]
    names = {kind.name for kind in others} | {same_kinds.name}
    mangled = {kind.mangling_args for kind in others} | {same_kinds.mangling_args}
    assert len(names) == len(mangled) == len(others) + 1
    assert len({*others, same_kinds}) == len(others) + 1
    assert max(map(len, names)) < 40


@pytest.mark.slow
@compiled
def test_types_are_the_same_in_every_process():
    """The disk cache finds code by them, but a hash is of one process."""
    kind = dpsample.domains.domain.BODY
    assert "_hash" in vars(kind) or hash(kind)
    pickled = pickle.dumps(kind)
    assert pickle.loads(pickled) is kind
    code = (
        "import pickle\n"
        "from dpsample.domains.domain import BODY, Body\n"
        f"loaded = pickle.loads({pickled!r})\n"
        "assert loaded == BODY and hash(loaded) == hash(BODY)\n"
        "print(loaded.name)"
    )
    assert run_python(code)[0].strip() == kind.name


@compiled
def test_loads_are_invariant():
    """Otherwise each store to an array forces the fields to be read again."""

    @kernel(cached=False)
    def fill(inner):
        for i in range(len(inner.row)):
            inner.row[i] = inner.scale

    inner = Inner(np.zeros(3), 2.0)
    fill(inner)
    assert inner.row.tolist() == [2.0, 2.0, 2.0]
    (text,) = fill.inspect_llvm().values()
    loads = [line for line in text.split("\n") if "!invariant.load" in line]
    assert loads
    # The loop has a store and no load: LLVM has moved all of them in front of it.
    body = text[text.index("store double") :]
    assert "load double" not in body[: body.index("br ")]


@compiled
def test_another_layout_of_numba_is_rejected(monkeypatch):
    inner = Inner(np.ones(2), 1.0)
    monkeypatch.setattr(frames, "ARRAY_MODEL", frames.ARRAY_MODEL[::-1])
    with pytest.raises(NumbaError, match="must be .*Install another version of Numba"):
        kernel(lambda inner: inner.row[0], cached=False)(inner)


@compiled
def test_calls_count_no_reference():
    outer = make_outer()
    run = entry(read, outer)
    run(outer)
    arrays = [field for field in outer if isinstance(field, np.ndarray)]
    arrays += [outer.inner.row, outer.plain.row]
    _nrt_python.memsys_enable_stats()
    before = [sys.getrefcount(found) for found in (*arrays, outer, outer.inner)]
    stats, blocks = rtsys.get_allocation_stats(), sys.getallocatedblocks()
    for _ in range(10_000):
        run(outer)
    assert [sys.getrefcount(found) for found in (*arrays, outer, outer.inner)] == before
    assert rtsys.get_allocation_stats() == stats
    _nrt_python.memsys_disable_stats()
    assert sys.getallocatedblocks() - blocks < 1000  # a block for each call is a leak


@pytest.mark.slow
def test_the_tuple_frees_its_memory_and_its_arrays():
    class Row(np.ndarray):
        """Array to which there are weak references."""

    row = np.ones(3).view(Row)
    inner = Inner(row, 1.0)
    getattr(inner, ADDRESS)
    watched = weakref.ref(row), weakref.ref(getattr(inner, MEMORY))
    del row, inner
    gc.collect()
    assert [watch() for watch in watched] == [None, None]


def test_a_tuple_inside_a_frozen_class_is_shared():
    """Specifications compare and copy their fields."""

    @dataclasses.dataclass(frozen=True)
    class Holder:
        numbers: Any

    holder = Holder(Inner(None, 1.0))
    getattr(holder.numbers, ADDRESS)
    assert dataclasses.replace(holder).numbers is holder.numbers
    assert dataclasses.asdict(holder) == {"numbers": Inner(None, 1.0)}
