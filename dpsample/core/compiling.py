"""Numba's compiler for kernels, without the steps that kernels do not need.

Numba's compiler is written in Python, which takes four fifths of a first call. Much of
it repeats the same work: which function adds two floats, whether two sets of options
are equal, whether there are closures. `KernelCompiler` does this once. Its machine code
is the same. Functions of Numba's own that kernels call, such as ``np.dot``, are only
*lowered*, which means translated to LLVM's language, as kernels that kernels call are.
"""

import dis
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from inspect import CO_GENERATOR
from types import BuiltinFunctionType, CodeType
from typing import Any

from llvmlite.binding import ffi
from numba._dynfunc import make_function
from numba.core import typed_passes, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import CompilerPass, PassManager, register_pass
from numba.core.errors import new_error_context  # type: ignore[attr-defined]
from numba.core.ir import Assign, Expr
from numba.core.targetconfig import ConfigStack
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import Signature, _OverloadFunctionTemplate

# Passes that change nothing in our functions without closures, comprehensions and
# `with`, and those whose results nobody reads.
NEEDLESS = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "LiteralPropagationSubPipelinePass",
        "DumpParforDiagnostics",
    }
)
# Instructions of functions that get all passes.
SPECIAL = frozenset({"LIST_APPEND", "SET_ADD", "MAP_ADD", "BEFORE_WITH"})
# Expressions that Numba joins into one loop if their values are arrays.
JOINED = frozenset({"unary", "binop", "inplace_binop", "call"})
# Python functions whose signatures are remembered, in addition to functions in C.
OTHERS = (bool, range, abs, len)


class KernelFlags(Flags):  # type: ignore[misc]
    """Options of a compilation, compared by the values that were set.

    Numba compares all values, with their defaults, each time it looks a function up.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        """Return the hash of all options: Numba's depends on their names only."""
        return _hash_of_flags()

    def __eq__(self, other: object) -> bool:
        """Return whether all values are equal."""
        if self is other:
            return True
        if type(other) is KernelFlags and self._values == other._values:
            return True
        return bool(super().__eq__(other))

    def values(self) -> dict[str, object]:
        """Return the values of all options, which Numba looks up one by one."""
        values: dict[str, object] = _defaults_of_flags() | self._values
        return values


@cache
def _hash_of_flags() -> int:
    """Return the hash of any options, as Numba computes it."""
    return hash(Flags())


@cache
def _defaults_of_flags() -> dict[str, object]:
    """Return the values of all options that are not set."""
    return dict(Flags().values())


@contextmanager
def without_events() -> Iterator[None]:
    """Compile without the events by which Numba measures the time that LLVM takes.

    There are two for each of 40000 calls, and each goes to every function that is being
    compiled. A thread that compiles at the same time only loses its measurement.
    """
    removed = []
    for callbacks in list(getattr(getattr(ffi.lib, "_lock", None), "_cblist", ())):
        with suppress(ValueError):  # another thread has removed it
            ffi.unregister_lock_callback(*callbacks)
            removed.append(callbacks)
    try:
        yield
    finally:
        for callbacks in removed:
            ffi.register_lock_callback(*callbacks)


# By function, types and options: the signature that Numba has found.
_signatures: dict[tuple[object, ...], Signature] = {}


class KernelTyping:
    """Numba's typing context, which resolves each operator on some types once.

    Only functions whose code does not depend on the options are remembered. All else is
    the context's own.
    """

    def __init__(self, context: BaseContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        """Return what the context has under a name."""
        return getattr(self._context, name)

    def resolve_function_type(
        self, function: Any, args: tuple[Any, ...], kws: dict[str, object]
    ) -> object:
        """Return the signature of a call."""
        if kws or not _is_remembered(function):
            return self._context.resolve_function_type(function, args, kws)
        key = function, tuple(args), ConfigStack.top_or_none()
        signature = _signatures.get(key)
        if signature is None:
            signature = self._context.resolve_function_type(function, args, kws)
            kind = self._context._lookup_global(function) or function
            is_function = signature is not None and isinstance(kind, types.Function)
            if is_function and kind._impl_keys.get(signature.args) is kind.typing_key:
                _signatures[key] = signature
        return signature


def _is_remembered(function: object) -> bool:
    """Return whether the code of a function does not depend on options."""
    if isinstance(function, types.Function):
        function = function.typing_key
    return type(function) is BuiltinFunctionType or function in OTHERS


@register_pass(mutates_CFG=True, analysis_only=False)
class JoinArrayExpressions(typed_passes.NopythonRewrites):  # type: ignore[misc]
    """Numba's rewriting of array expressions, where there are any."""

    _name = "dpsample_join_array_expressions"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function and return whether it was changed."""
        return bool(_has_array_expression(state) and super().run_pass(state))


def _has_array_expression(state: Any) -> bool:
    """Return whether an operation or a call in a function has an array as its value."""
    return any(
        isinstance(state.typemap[step.target.name], types.Array)
        for block in state.func_ir.blocks.values()
        for step in block.find_insts(Assign)
        if isinstance(step.value, Expr) and step.value.op in JOINED
    )


class KernelPasses(PassManager):  # type: ignore[misc]
    """Passes in a row, without an analysis of the function after each of them.

    Numba repeats the analysis in case the next pass relies on it. The passes that do
    analyze the function themselves.
    """

    def _runPass(self, index: int, pss: CompilerPass, internal_state: object) -> None:
        """Run one pass with the steps of Numba's own method that it needs."""
        pss.analysis = self._analysis
        with new_error_context("Pass {name}", name=pss.name()):
            pss.run_initialization(internal_state)
            pss.run_pass(internal_state)
            pss.run_finalizer(internal_state)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, with the passes that a function needs."""

    def __init__(self, typingctx: object, *args: object) -> None:
        *rest, flags, local_types = args
        super().__init__(typingctx, *rest, KernelFlags(flags), local_types)
        self.state.typingctx = KernelTyping(typingctx)

    def define_pipelines(self) -> list[PassManager]:
        """Return Numba's pipeline without the passes that would change nothing."""
        pipelines: list[PassManager] = super().define_pipelines()
        if not _is_plain(self.state.func_id.code):
            return pipelines
        return [self._shorten(pipeline) for pipeline in pipelines]

    def _shorten(self, pipeline: PassManager) -> PassManager:
        """Return a pipeline without repeated analysis, and without needless passes."""
        shorter = KernelPasses(pipeline.pipeline_name)
        shorter.passes = list(pipeline.passes)
        if self.state.func_id.modname.startswith("dpsample."):
            shorter.passes = list(_without_needless(pipeline.passes))
        shorter.finalize()
        return shorter


def _is_plain(code: CodeType) -> bool:
    """Return whether a function has no closure, comprehension, `with` or `yield`."""
    is_generator = bool(code.co_flags & CO_GENERATOR)
    if is_generator or any(isinstance(value, CodeType) for value in code.co_consts):
        return False
    return SPECIAL.isdisjoint(step.opname for step in dis.get_instructions(code))


def _without_needless(
    passes: list[tuple[type, str]],
) -> Iterator[tuple[type, str]]:
    """Yield the passes that may change a kernel."""
    for compiler_pass, description in passes:
        if compiler_pass is typed_passes.NopythonRewrites:
            yield JoinArrayExpressions, description
        elif compiler_pass.__name__ not in NEEDLESS:
            yield compiler_pass, description


class LoweredLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of a function and of its callees, to be linked into a caller's."""

    def _optimize_final_module(self) -> None:
        """Leave it to the caller's library."""

    def _finalize_final_module(self) -> None:
        """Assemble nothing."""
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerOnly(typed_passes.NativeLowering):  # type: ignore[misc]
    """Translation to LLVM's language, without machine code.

    Numba would also optimize and assemble the function for itself, with a wrapper in C
    that nobody calls. The kernel that calls it is optimized with it anyway.
    """

    _name = "dpsample_lower_only"

    def run_pass(self, state: Any) -> bool:
        """Lower the function and give it a key for its callers."""
        flags, context = state.flags, state.targetctx
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        code_name = state.func_id.func_qualname
        state.library = LoweredLibrary(context.codegen(), code_name)
        super().run_pass(state)
        result = state["cr"]
        # Numba wants a function as the key. This one is never called.
        key = make_function(
            result.fndesc.lookup_module(), code_name, "", 0, result.env, ()
        )
        context.insert_user_function(key, result.fndesc, [state.library])
        state["cr"] = result._replace(cfunc=key)
        return True


class CalleeCompiler(KernelCompiler):
    """Compiler of Numba's own functions in kernels."""

    def define_pipelines(self) -> list[PassManager]:
        """Return pipelines that end before machine code."""
        return [_lower_only(pipeline) for pipeline in super().define_pipelines()]


def _lower_only(pipeline: PassManager) -> PassManager:
    """Replace the last pass, which makes machine code, in place."""
    pipeline.passes = [
        (LowerOnly if step is typed_passes.NativeLowering else step, description)
        for step, description in pipeline.passes
    ]
    return pipeline


def lower_callees(template_class: type) -> None:
    """Have Numba lower its own functions, and no more, while a kernel is compiled.

    The method that chooses their compiler is Numba's private one. It is replaced for
    good, and asks each time for the options of the compilation at hand, which Numba
    keeps for each thread and drops after an error. Without options of a kernel it
    returns Numba's choice. A Numba without such a method compiles in its own way.
    """
    choose: Callable[[Any], Any] | None
    choose = getattr(template_class, "_get_jit_decorator", None)
    if choose is None:
        return

    def choose_for_kernel(template: object) -> Any:
        decorator = choose(template)
        flags = ConfigStack.top_or_none()
        # Sums that may be reordered stay as Numba has always compiled them.
        if type(flags) is KernelFlags and not flags.fastmath:
            return partial(decorator, pipeline_class=CalleeCompiler)
        return decorator

    setattr(template_class, "_get_jit_decorator", choose_for_kernel)  # noqa: B010


lower_callees(_OverloadFunctionTemplate)
