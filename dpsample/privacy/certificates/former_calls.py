"""Calls in certificates of former formats, which hold a mechanism as text.

Until format 2, certificates held what ``repr`` writes of an optimizer or a sampler,
such as "ClippedGD(num_steps=3, clip=0.5)". Their digests bind that text. This file is
the only place where it is parsed. Nothing in it is called or looked up.
"""

import ast
import math
import re

from dpsample.core import check
from dpsample.privacy.certificates.mechanism_spec import (
    MAX_LENGTH,
    MechanismSpec,
    Value,
)

# Names that users give to their own mechanisms. They are too short and too plain for a
# sentence that claims anything.
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,59}")


def read_mechanism(text: object) -> object:
    """Return the spec of a call, and anything else, such as a label, as it is.

    Only a text that the spec writes again counts as a call. So a call has one spelling,
    and certificates of former formats keep their digests.

    Examples
    --------
    >>> read_mechanism("DPSGD(num_steps=3, clip=None)").get("num_steps")
    3
    >>> read_mechanism("DPSGD(really='private!')")
    "DPSGD(really='private!')"
    """
    if not isinstance(text, str) or LABEL.fullmatch(text) or len(text) > MAX_LENGTH:
        return text
    try:
        spec = _spec_of(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return spec if str(spec) == text else text


def _spec_of(tree: ast.expr) -> MechanismSpec:
    """Return the spec of a call with keywords. Raise a ValueError for other trees."""
    if (
        not isinstance(tree, ast.Call)
        or not isinstance(tree.func, ast.Name)
        or tree.args
    ):
        check.fail("mechanism", "a call with keywords", ast.unparse(tree))
    parameters = [(entry.arg or "", _value_of(entry.value)) for entry in tree.keywords]
    return MechanismSpec(tree.func.id, tuple(parameters))


def _value_of(tree: ast.expr) -> Value:
    """Return the value of a constant, a tuple or a call."""
    if isinstance(tree, ast.Tuple):
        return tuple(map(_value_of, tree.elts))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        number = _value_of(tree.operand)
        # `-True` is the integer -1, and would have a second spelling.
        if type(number) is not int and type(number) is not float:
            check.fail("mechanism", "a number after its sign", ast.unparse(tree))
        return -number
    if isinstance(tree, ast.Name) and tree.id == "inf":
        return math.inf
    return tree.value if isinstance(tree, ast.Constant) else _spec_of(tree)
