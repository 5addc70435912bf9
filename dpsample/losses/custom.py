"""A loss from a user's own scalar functions."""

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numba.extending import is_jitted

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.losses import declarations
from dpsample.losses.declarations import Declared, Scale
from dpsample.losses.loss import Pieces, compile_pieces

Scalar = Callable[[float, float], float]  # of the margin and the response


@dataclass(frozen=True, kw_only=True)
class Custom(Declared):
    """Loss made by `custom`; without functions it only carries declared facts."""

    functions: Pieces | None = field(default=None, compare=False, repr=False)
    # Set where the comparison was made on wider margins than the problem now has.
    is_compared: bool = field(default=False, compare=False, repr=False)
    # Scales found by comparisons that were passed, by the bounds of the problem.
    _passed: dict[tuple[float, float | None], Scale] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    name: ClassVar[str] = "custom"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was passed: a global that a function reads may change.

        Compiled functions keep its first value, and those that travel the last one.
        """
        return self.__dict__ | {"_passed": {}}

    def check_declarations(
        self, margin_bound: float, response_bound: float | None
    ) -> None:
        """Compare the functions with what is declared; a loss from a file has none."""
        if self.functions is not None and not self.is_compared:
            self._scale(margin_bound, response_bound)

    def check_at_records(
        self,
        reaches: Array,
        response: Array,
        *,
        margin_bound: float,
        response_bound: float | None,
        first: int = 0,
    ) -> None:
        """Compare at each record's own margins, up to ``reaches``, and response."""
        if self.functions is not None and not self.is_compared:
            scale = self._scale(margin_bound, response_bound)
            known = None if response_bound == np.inf else scale
            declarations.compare_records(self, reaches, response, known, first)

    def _scale(self, margin_bound: float, response_bound: float | None) -> Scale:
        key = (margin_bound, response_bound)
        if key not in self._passed:
            self._passed[key] = declarations.compare(self, *key)
        return self._passed[key]

    @property
    def pieces(self) -> Pieces:
        """Return the compiled pieces; a loss read from a file has none."""
        if self.functions is None:
            check.fail("loss", "a custom loss with its functions", self.label)
        return self.functions


def _compiled(name: str, function: Scalar) -> Scalar:
    if is_jitted(function):
        return function
    if not inspect.isfunction(function):
        remedy = "Wrap it: lambda u, y: ..."
        check.fail(name, "a Python or Numba function of (u, y)", function, remedy)
    return kernel(function, cached=False)


def _reads_second(function: Scalar) -> bool:
    """Whether the code of a function of (u, y) mentions y: if not, it can't read it."""
    code = getattr(function, "py_func", function).__code__
    if code.co_argcount < 2 or code.co_flags & (inspect.CO_VARARGS):
        return True
    name = code.co_varnames[1]
    if name in code.co_cellvars:
        return True
    mentioned = (step.argval for step in dis.get_instructions(code))
    return any(name == m or (isinstance(m, tuple) and name in m) for m in mentioned)


def custom(
    value: Scalar,
    slope: Scalar,
    *,
    slope_bound: float,
    lower_curvature: float = 0.0,
    upper_curvature: float = np.inf,
    third_derivative_bound: float = np.inf,
    labels: bool = False,
    name: str = "custom",
) -> Custom:
    r"""Make a loss from two scalar functions of the margin u and the response y.

    The functions are compiled alone: no sampler kernel is compiled again for them.
    Everything declared is an assumption of the certificate. `Problem`, which knows the
    margins and the responses that can occur, compares the functions with convexity and
    with each bound at many points of that range and at the records: this refutes, and
    does not prove.

    Parameters
    ----------
    value, slope : callable
        ``value(u, y)`` convex in ``u`` and ``slope(u, y)``, its derivative or a
        subgradient; plain Python or Numba functions.
    slope_bound : float
        Public bound of ``|slope|`` for every margin up to ``facts.margin_bound`` and
        every possible response. Infinity, if there is none, serves methods that bound
        gradients themselves.
    lower_curvature, upper_curvature : float
        Bounds of the second derivative for the same margins and responses.
    third_derivative_bound : float
        Bound of the third derivative; infinite if there is none.
    labels : bool
        Responses are labels -1 and 1. Other problems must declare a ``response_bound``
        if the code of ``value`` or ``slope`` mentions ``y``.
    name : str
        Shown in the certificate.

    Returns
    -------
    Custom
        A loss for `Problem`.

    Raises
    ------
    ValueError
        If a function can't be compiled or raises at the margin 0, or a number is out
        of its range. `Problem` raises it where a function contradicts its declarations.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.losses import custom
    >>> loss = custom(lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
    ...               lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
    ...               slope_bound=1.0, upper_curvature=1.0, name="pseudo-Huber")
    >>> loss.value(0.0, 0.0)
    array(1.)
    """
    check.above(0.0, slope_bound=slope_bound)
    check.non_negative(lower_curvature=lower_curvature)
    check.at_least(lower_curvature, upper_curvature=upper_curvature)
    check.at_least(0.0, third_derivative_bound=third_derivative_bound)
    check.instance(bool, labels=labels)
    check.instance(str, name=name)
    phi, dphi = _compiled("value", value), _compiled("slope", slope)
    reads_response = _reads_second(value) or _reads_second(slope)
    _try_once(phi, dphi, reads_response=reads_response)

    def of_response(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, y), dphi(u, y)

    def of_margin(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, 0.0), dphi(u, 0.0)  # not even by a trick does y come in

    scalar = of_response if reads_response else of_margin
    # The user's own functions may change without a trace in our sources.
    uncached = partial(kernel, cached=False)
    return Custom(
        label=name,
        declared_slope=float(slope_bound),
        lower_curvature=float(lower_curvature),
        upper_curvature=float(upper_curvature),
        third_derivative=float(third_derivative_bound),
        labels=labels,
        reads_response=reads_response,
        functions=compile_pieces(uncached(scalar), uncached),
    )


def _try_once(phi: Scalar, dphi: Scalar, *, reads_response: bool) -> None:
    """Call both at the margin 0, which every problem has, for their type alone."""
    y = 1.0 if reads_response else 0.0
    try:
        # Uncompiled functions warn where compiled ones return NaN.
        with np.errstate(all="ignore"):
            float(phi(0.0, y)), float(dphi(0.0, y))
    except Exception as error:
        check.fail("value and slope", "scalar functions of (u, y)", repr(error))
