"""Linking of kernels that call kernels, so that each is compiled once.

Numba optimizes every function separately, and again as a part of each of its callers.
A loop that is seven calls deep is compiled seven times. Here a callee is only lowered,
which means translated to LLVM's language. A kernel that is called from Python is
optimized and assembled once, together with all kernels that it calls.
"""

import gc
import weakref
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

# The first list has an entry for each block of `collector_held` that is open. The
# second one is not empty if the last of these blocks must turn the collector on again.
# They are lists because no thread interrupts a method of a list.
_holding: list[None] = []
_owed: list[None] = []


@contextmanager
def without_collector() -> Iterator[None]:
    """Compile without Python's garbage collector, which would take a tenth of the time.

    Nearly all objects of a compiler live until it is done, and would be searched each
    time.
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

    Each time that it is turned on it searches all objects of the compiler, which takes
    a twentieth of a first call. The value is a function that turns it on earlier.
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
    """Return a name that stands for a kernel or a constant in a closure.

    It is "" if no name can.
    """
    if isinstance(value, CheckedDispatcher):
        return value.cache_name
    return repr(value) if type(value) in (bool, int, str) else ""


def reject_frame(name: str, returned: object) -> None:
    """Raise if a function returns to Python a tuple that kernels take by address.

    A kernel may return it to a kernel, for which the address is valid as well.
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
    """Compiled function whose callers in kernels count references as it does.

    Memory that it returns could otherwise be lost or freed twice.
    """

    # Whether a cache on disk is still to be opened, at the first compilation. Few
    # kernels are called from Python, and to open a file for each at the import would
    # take a fifth of its time.
    opens_cache = False

    def compile(self, sig: object) -> object:
        """Compile for types of arguments, or load code from disk.

        Return the entry point.
        """
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
        """Name of this kernel in the cache of another one that closes over it, or "".

        Only kernels of the package have one, because a user may have several functions
        of one name. It includes what the kernel itself closes over, because a function
        of the package may make several kernels.
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
        """Return the types that a call in a kernel has, in Numba's form."""
        template, pysig, kinds, rest = super().get_call_template(args, kws)
        overload = self.overloads.get(tuple(kinds))
        if overload is not None:
            self._reject_uncounted(overload.signature.return_type)
        return template, pysig, kinds, rest

    def _reject_uncounted(self, returned: object) -> None:
        """Raise if memory goes from a kernel that counts it to one that does not.

        It would never be freed. In the other direction it would be freed too often.
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
    """Function that is compiled for calls from Python, and only lowered for kernels."""

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
        """Return the types that a call in a kernel has, after the code is lowered."""
        pysig, folded = self._compiler.fold_argument_types(args, kws)
        # To Numba each constant has a type of its own. Here all numbers of a type have
        # one version of the code.
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
        # A user's function goes with its object, and its code with it.
        weakref.finalize(self, context.remove_user_function, key).atexit = False
        return key, result
