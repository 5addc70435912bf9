"""How Numba compiles kernels: its own compiler without what kernels do not need.

Four fifths of a first call are Python of Numba's, and much of that Python answers the
same questions again: which function adds two floats, whether two sets of options are
equal, whether there are closures. `KernelCompiler` asks once. The code that it makes is
the same.
"""

import dis
from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType
from typing import Any

from numba.core import typed_passes, types
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.ir import Assign, Expr
from numba.core.targetconfig import ConfigStack
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import Signature

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
# Functions that all kernels call, beside those that are written in C.
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


@cache
def _hash_of_flags() -> int:
    return hash(Flags())


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
    return any(
        isinstance(state.typemap[step.target.name], types.Array)
        for block in state.func_ir.blocks.values()
        for step in block.find_insts(Assign)
        if isinstance(step.value, Expr) and step.value.op in JOINED
    )


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, with the passes that a function needs."""

    def __init__(self, typingctx: Any, *args: Any) -> None:
        *rest, flags, local_types = args
        super().__init__(typingctx, *rest, KernelFlags(flags), local_types)
        self.state.typingctx = KernelTyping(typingctx)

    def define_pipelines(self) -> list[PassManager]:
        """Return Numba's pipeline without the passes that would change nothing."""
        pipelines: list[PassManager] = super().define_pipelines()
        function = self.state.func_id
        if function.modname.startswith("dpsample.") and _is_plain(function.code):
            for pipeline in pipelines:
                pipeline.passes = list(_without_needless(pipeline.passes))
        return pipelines


def _is_plain(code: CodeType) -> bool:
    if any(isinstance(constant, CodeType) for constant in code.co_consts):
        return False
    return SPECIAL.isdisjoint(step.opname for step in dis.get_instructions(code))


def _without_needless(
    passes: list[tuple[type, str]],
) -> Iterator[tuple[type, str]]:
    for compiler_pass, description in passes:
        if compiler_pass is typed_passes.NopythonRewrites:
            yield JoinArrayExpressions, description
        elif compiler_pass.__name__ not in NEEDLESS:
            yield compiler_pass, description
