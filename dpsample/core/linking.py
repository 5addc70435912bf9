"""Kernels that kernels call: lowered for their callers, and compiled with them.

Numba optimizes and assembles every function for itself, and again as a part of each of
its callers: a loop that is seven calls deep is compiled seven times. A callee needs
neither machine code nor an entry from Python. Here it is only lowered to LLVM's
language; whoever is called from Python is compiled once, with all that it calls.
"""

from typing import Any

from numba.core import typing
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

# Types of arguments, as Numba has them.
Types = tuple[Any, ...]


class LoweredLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of a kernel and of its callees, to be linked into a caller's."""

    def _optimize_final_module(self) -> None:
        """Leave it to the caller's library."""

    def _finalize_final_module(self) -> None:
        """Assemble nothing."""
        self._finalize_dynamic_globals()
        self._finalized = True


class KernelDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function that Numba compiles for calls from Python, and we lower for kernels."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        # By types of the arguments: the key under which callers find the code.
        self.lowered: dict[Types, tuple[object, CompileResult]] = {}

    def _reduce_states(self) -> dict[str, object]:
        """Return what a cache knows of a kernel that another one closes over.

        Numba's random number, which differs in every process, would find nothing.
        """
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        states: dict[str, object] = super()._reduce_states() | {"uuid": name}
        return states

    def get_call_template(self, args: Types, kws: dict[str, Any]) -> Any:
        """Return what types a call in a kernel has, with the code at hand."""
        pysig, types = self._compiler.fold_argument_types(args, kws)
        with global_compiler_lock:
            if tuple(types) not in self.lowered:
                self.lowered[tuple(types)] = self._lower(tuple(types))
            signatures = [result.signature for _, result in self.lowered.values()]
        name = self.py_func.__name__
        template = typing.make_concrete_template(name, name, signatures)
        return template, pysig, types, {}

    def get_overload(self, sig: Types) -> object:
        """Return the key of the code that a kernel calls."""
        return self.lowered[tuple(sig)][0]

    def _lower(self, types: Types) -> tuple[object, CompileResult]:
        flags, context = Flags(), self.targetctx
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = LoweredLibrary(context.codegen(), self.py_func.__qualname__)
        result = compile_extra(
            self.typingctx,
            context,
            self.py_func,
            types,
            None,
            flags,
            self.locals,
            library=library,
        )
        key = object()
        context.insert_user_function(key, result.fndesc, [library])
        return key, result
