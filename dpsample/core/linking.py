"""Linking of kernels that call kernels, so that each is compiled once.

Numba optimizes every function separately, and again as a part of each of its callers.
A loop that is seven calls deep is compiled seven times. Here a callee is only lowered,
which means translated to LLVM's language. A kernel that is called from Python is
optimized and assembled once, together with all kernels that it calls.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import types, typing
from numba.core.compiler import CompileResult, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher
from numba.core.targetconfig import ConfigStack
from numba.core.types.misc import unliteral

from dpsample.core.cache import package_cache
from dpsample.core.compiling import KernelCompiler, LoweredLibrary, without_events
from dpsample.core.frames import FrameType

# Types of arguments, as Numba has them.
Types = tuple[Any, ...]


# One entry for each block of `collector_held` that is open, and for a collector that
# the last of them turns on again. Both are lists, whose methods no thread interrupts.
_holding: list[None] = []
_owed: list[None] = []


@contextmanager
def without_collector() -> Iterator[None]:
    """Compile without Python's search for garbage: a tenth of the time.

    Nearly all that a compiler makes lives until it is done, and is searched each time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        with without_events():
            yield
    finally:
        if was_on and _holding:
            _owed.append(None)
        elif was_on:
            gc.enable()


@contextmanager
def collector_held() -> Iterator[Callable[[], None]]:
    """Leave the collector off from the first compilation of a block to its end.

    Each time that it comes back it looks through all that the compiler has made, which
    takes a twentieth of a first call. Yields a function that turns it on earlier.
    """
    _holding.append(None)
    try:
        yield turn_on_collector
    finally:
        _holding.pop()
        if not _holding:
            turn_on_collector()


def turn_on_collector() -> None:
    """Turn the collector on if a compilation has left it off."""
    if _owed:
        _owed.clear()
        gc.enable()


def _cache_name_of(value: object) -> str:
    """Return the name of a kernel or of a constant in a closure, or "" if none does."""
    if isinstance(value, CheckedDispatcher):
        return value.cache_name
    return repr(value) if type(value) in (bool, int, str) else ""


def reject_frame(name: str, returned: object) -> None:
    """Fail if a function gives Python a tuple that kernels take by address.

    A kernel may give it to its caller, for which the address is as valid.
    """
    if _has_frame(returned):
        raise TypingError(
            f"The result of {name} must be numbers, arrays or a tuple built there, got "
            f"{returned}, which kernels take by address. Return fields of it."
        )


def _has_frame(kind: object) -> bool:
    """Return whether values of a type hold the address of a tuple."""
    if isinstance(kind, types.containers.BaseTuple):
        return any(map(_has_frame, kind))
    if isinstance(kind, types.misc.Optional):
        return _has_frame(kind.type)
    if isinstance(kind, types.abstract.IteratorType):
        return _has_frame(kind.yield_type)
    return isinstance(kind, FrameType)


class CheckedDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function of which kernels get memory only if both or neither count it."""

    # Whether the code to come is kept on disk. Few kernels are called from Python, and
    # to open a file for each of them would take a fifth of the import.
    opens_cache = False

    def compile(self, sig: object) -> object:
        """Compile for types of arguments, or load from disk; return the entry point."""
        if self.opens_cache:
            with package_cache():
                self.enable_caching()
            self.opens_cache = False
        with without_collector():
            entry_point = super().compile(sig)
        for result in self.overloads.values():
            reject_frame(self.py_func.__name__, result.signature.return_type)
        return entry_point

    @property
    def cache_name(self) -> str:
        """Return what a cache knows of a kernel that another one closes over, or "".

        A name stands only for what can be one kernel: a user may have several functions
        of one name. Kernels that a function of the package makes differ in what they
        close over.
        """
        function = self.py_func
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        names = [_cache_name_of(value) for value in cells]
        if not (function.__module__.startswith("dpsample.") and all(names)):
            return ""
        line = function.__code__.co_firstlineno
        # The order of a set differs between processes.
        options = [
            (key, sorted(value) if isinstance(value, set) else value)
            for key, value in sorted(self.targetoptions.items())
        ]
        return f"{function.__module__}.{function.__qualname__}:{line} {names} {options}"

    def get_call_template(
        self, args: Types, kws: dict[str, object]
    ) -> tuple[object, ...]:
        """Return what types a call in a kernel has."""
        template, pysig, kinds, rest = super().get_call_template(args, kws)
        overload = self.overloads.get(tuple(kinds))
        if overload is not None:
            self._reject_uncounted(overload.signature.return_type)
        return template, pysig, kinds, rest

    def _reject_uncounted(self, returned: object) -> None:
        """Fail where memory goes from a kernel that counts to one that does not.

        It would never be freed; the other way round, it would be freed too often.
        """
        caller = ConfigStack.top_or_none()
        if caller is None or caller.nrt == self.targetoptions.get("_nrt", True):
            return
        model = self.targetctx.data_model_manager[returned]
        is_generator = isinstance(returned, types.abstract.IteratorType)
        if is_generator or model.contains_nrt_meminfo():
            name = self.py_func.__name__
            raise TypingError(
                f"{name} returns memory, {returned}, but only one of it and its caller "
                "counts references."
            )


class KernelDispatcher(CheckedDispatcher):
    """Function that Numba compiles for calls from Python, and we lower for kernels."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        # Objects that go to and from Python need reference counts, unlike those of
        # callers in kernels.
        self._compiler.targetoptions = {**self.targetoptions, "_nrt": True}
        # By types of the arguments: the key under which callers find the code.
        self.lowered: dict[Types, tuple[object, CompileResult]] = {}

    def get_call_template(
        self, args: Types, kws: dict[str, object]
    ) -> tuple[object, ...]:
        """Return what types a call in a kernel has, with the code at hand."""
        pysig, folded = self._compiler.fold_argument_types(args, kws)
        # One version for all numbers: a constant is one more type to Numba.
        kinds = tuple(map(unliteral, folded))
        with global_compiler_lock:
            if kinds not in self.lowered:
                self.lowered[kinds] = self._lower(kinds)
            self._reject_uncounted(self.lowered[kinds][1].signature.return_type)
            signatures = [result.signature for _, result in self.lowered.values()]
        name = self.py_func.__name__
        template = typing.make_concrete_template(name, name, signatures)
        return template, pysig, kinds, {}

    def get_overload(self, sig: Types) -> object:
        """Return the key of the code that a kernel calls."""
        return self.lowered[tuple(sig)][0]

    def _lower(self, kinds: Types) -> tuple[object, CompileResult]:
        """Translate to LLVM's language for arguments of these types."""
        flags, context = Flags(), self.targetctx
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = LoweredLibrary(context.codegen(), self.py_func.__qualname__)
        result = compile_extra(
            self.typingctx,
            context,
            self.py_func,
            kinds,
            None,
            flags,
            self.locals,
            library=library,
            pipeline_class=KernelCompiler,
        )
        key = object()
        context.insert_user_function(key, result.fndesc, [library])
        return key, result
