# mypy: allow-untyped-defs
"""Losses that are not a function of a linear margin: a user's gradient of a record."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.core.typing.templates import Signature
from numba.extending import is_jitted

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import (
    Piece,
    Pointer,
    f8,
    kernel,
    pointer,
    reject_print,
    vector,
)
from dpsample.core.sparse import Rows
from dpsample.core.spec import Json
from dpsample.losses.loss import LOSS_SLOPE, Loss

# (row, response, theta, out): out becomes the gradient of the record's loss at theta
RECORD_GRADIENT = types.void(vector, f8, vector, vector)
# (row, response, theta, out): out[0] becomes the record's loss at theta
RECORD_LOSS = types.void(vector, f8, vector, vector)
ONLY_MINIMIZE = (
    "Only dps.minimize takes it, with an optimizer that clips single gradients and "
    "adds noise in every step."
)


@kernel
def mean_value(value, rows, response, theta, out):
    """Return the mean of a user's loss over the records."""
    total = 0.0
    for i in range(len(response)):
        out[0] = np.nan
        value(rows[i], response[i], theta, out)
        total += out[0]
    return total / len(response)


class RecordFunctions(NamedTuple):
    """Compiled functions of a user."""

    gradient: Piece  # with the signature RECORD_GRADIENT
    value: Piece | None  # with the signature RECORD_LOSS


@dataclass(frozen=True, kw_only=True)
class RecordGradient(Loss):
    """Loss of the function `record_gradient`. Read from a file, it has only facts."""

    label: str
    dim: int | None = None
    smoothness: float = np.inf
    # Losses are compared as public facts, so that one of a certificate, which has no
    # functions, equals the loss it describes. Kernels get the functions themselves, and
    # no compiled function is looked up by its loss.
    functions: RecordFunctions | None = field(default=None, compare=False, repr=False)
    name: ClassVar[str] = "record_gradient"
    has_margin: ClassVar[bool] = False
    is_cached: ClassVar[bool] = False  # the user's sources are not in our fingerprint

    @property
    def pieces(self) -> NoReturn:
        """Raise, because samplers and releases need a function of the margin.

        They all read ``Loss.pieces``, so this refuses them with one message.
        """
        check.fail("loss", "a function of the margin <a, theta>", self, ONLY_MINIMIZE)

    @property
    def gradient_pointer(self) -> Pointer:
        """C function of the gradient, which a loss read from a file does not have."""
        if self.functions is None:
            check.fail("loss", "a record gradient with its function", self.label)
        return pointer(self.functions.gradient, RECORD_GRADIENT, cached=False)

    @property
    def value_pointer(self) -> Pointer:
        """C function of the value."""
        if self.functions is None or self.functions.value is None:
            remedy = "Pass value=... to dps.losses.record_gradient."
            check.fail("loss", "one with a value", self, remedy)
        return pointer(self.functions.value, RECORD_LOSS, cached=False)

    def check_records(self, features: Rows, offset: Array) -> None:
        """Raise for records that the functions cannot read."""
        if hasattr(features, "indptr"):
            remedy = "Pass a dense array: the gradient reads whole rows."
            check.fail("features", "dense for a record gradient", "CSR", remedy)
        if offset.size:
            check.fail("offset", "None for a record gradient", offset)

    def risk(self, rows: Array, response: Array, theta: Array) -> float:
        """Return the mean loss, NaN if the value raised. Not private."""
        return float(mean_value(self.value_pointer, rows, response, theta, np.empty(1)))

    def to_dict(self) -> Json:
        """Return the declared facts only, because a certificate holds no functions."""
        facts = ("name", "label", "dim", "smoothness")
        return {fact: getattr(self, fact) for fact in facts}


def num_parameters(loss: Loss, width: int) -> int:
    """Return the number of parameters if rows have ``width`` entries."""
    if isinstance(loss, RecordGradient) and loss.dim is not None:
        return loss.dim
    return width


@kernel
def no_slope(params, margins, response, slopes, out):
    """Do nothing in place of the slope of a loss without one, so ``out`` stays NaN."""


@kernel
def no_gradient(row, response, theta, out):
    """Do nothing in place of the gradient of a loss of the margin."""


def loop_pointers(loss: Loss) -> tuple[Pointer, Pointer]:
    """Return C functions of slopes and of gradients, one of which does nothing."""
    if isinstance(loss, RecordGradient):
        return pointer(no_slope, LOSS_SLOPE), loss.gradient_pointer
    return loss.slope_pointer, pointer(no_gradient, RECORD_GRADIENT)


def _compile_checked(name: str, function: Piece, signature: Signature) -> Piece:
    """Return a user's function compiled by Numba, which must suit the signature."""
    if not (is_jitted(function) or inspect.isfunction(function)):
        condition = "a Python or Numba function of (row, response, theta, out)"
        check.fail(name, condition, function)
    reject_print(name, function)
    compiled = function if is_jitted(function) else kernel(function, cached=False)
    try:
        pointer(compiled, signature, cached=False)
    except (NumbaError, TypeError) as error:
        remedy = "It has to compile for (array, float, array, array) and return None."
        # Numba's message ends with the reason, except for lines about the place.
        lines = str(error).strip().splitlines()
        reason = next((x for x in lines[::-1] if not x.startswith("During")), lines[-1])
        check.fail(name, "a function that Numba compiles", reason, remedy)
    return compiled


def record_gradient(
    gradient: Callable[[Array, float, Array, Array], None],
    *,
    value: Callable[[Array, float, Array, Array], None] | None = None,
    dim: int | None = None,
    smoothness: float = np.inf,
    name: str = "record_gradient",
) -> RecordGradient:
    r"""Make a loss of any kind from the gradient of one record's loss.

    Clipping the gradients of a loss of the margin gives the gradients of another convex
    loss, on which output and objective perturbation rest. For other losses, convex or
    not, this is false. One record can move the end of clipped gradient descent by far
    more than the step sizes suggest (`dpsample.papers.clipping_instance`). Noise in
    every step protects any loss, and `dps.minimize` accepts no other proof.

    Parameters
    ----------
    gradient : callable
        ``gradient(row, response, theta, out)`` fills all of ``out``, of shape (dim,),
        with the gradient at ``theta`` and returns nothing. A plain Python or Numba
        function, compiled alone. It must not write to ``row`` or ``theta``. In a run
        with a budget a gradient that is not finite, or that raises, counts as 0: an
        error would depend on the record. Without a budget it is an error.
    value : callable, optional
        ``value(row, response, theta, out)`` puts the loss into ``out[0]``. Only
        `Problem.risk` needs it.
    dim : int, optional
        Number of parameters, by default as many as a row has entries.
    smoothness : float
        Public bound of the loss's curvature in theta. Step sizes of some optimizers
        depend on it, privacy does not.
    name : str
        Shown in the certificate.

    Returns
    -------
    RecordGradient
        A loss for `Problem` with dense features and no intercept.

    Raises
    ------
    ValueError
        If a function does not compile, or a number is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> import dpsample as dps
    >>> def distance_gradient(row, response, theta, out):
    ...     far = np.sqrt(1.0 + ((theta - row) ** 2).sum())
    ...     out[:] = (theta - row) / far
    >>> loss = dps.losses.record_gradient(distance_gradient, name="geometric median")
    >>> rows = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
    >>> problem = dps.Problem(rows, np.zeros(200), loss=loss, row_bound=1.0,
    ...                       domain=dps.domains.Ball(1.0))
    >>> method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=10, clip=0.5)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> dps.minimize(problem, method, budget).certificate.releasable
    True
    """
    if dim is not None:
        check.integer(1, dim=dim)
    check.greater_than(0.0, smoothness=smoothness)
    check.instance(str, name=name)
    functions = RecordFunctions(
        gradient=_compile_checked("gradient", gradient, RECORD_GRADIENT),
        value=None if value is None else _compile_checked("value", value, RECORD_LOSS),
    )
    return RecordGradient(
        label=name,
        dim=None if dim is None else int(dim),
        smoothness=float(smoothness),
        functions=functions,
    )
