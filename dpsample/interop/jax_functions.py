"""A density from a JAX function, which compiled code calls back in Python.

JAX's compiled functions are called from Python only. Each evaluation is therefore a C
callback that waits for the interpreter's lock, which ctypes takes and gives back. So
several threads are right, but no faster than one.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpsample.core import check, pauses
from dpsample.core.arrays import Array
from dpsample.core.user_functions import UserData, UserFunction
from dpsample.domains import Domain, WholeSpace
from dpsample.interop.bridge import Bridge, entry_names, load_library
from dpsample.targets.density import Density
from dpsample.targets.density_functions import DensityFunctions

# Value at a point, and its gradient if the second address is not 0. The arguments are
# addresses of dim doubles.
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_int64)


def from_jax(
    function: Callable[..., object],
    dim: int | Mapping[str, int | tuple[int, ...]],
    *,
    domain: Domain | None = None,
) -> Bridge:
    r"""Return the density :math:`e^{f}` of a JAX function f.

    f and its gradient are compiled by JAX in double precision. Every evaluation is a
    callback into Python and takes 40 to 100 microseconds, in addition to f itself. It
    holds the interpreter's lock: ``threads=1`` is as fast as any number.

    Parameters
    ----------
    function : callable
        Log density, of the vector (dim,), or of a dictionary of arrays if ``dim`` is
        one. It is a function that `jax.grad` can differentiate.
    dim : int or dict of str to shape
        Number of coefficients, or the shape of each variable by name.
    domain : Domain, optional
        Convex set of the vector. Default: the whole space.

    Returns
    -------
    Bridge
        The density, and `Bridge.unpack`, which returns draws of each variable.

    Raises
    ------
    ImportError
        If JAX is missing.
    ValueError
        If the function raises, or is not a log density as `Density` needs it.

    Notes
    -----
    **Guarantee.** None of privacy, see `Density`. The density is that of the function,
    with a Jacobian only if the function has one. An exception of the function during a
    run ends the run with its text. The density cannot be pickled: make it again in
    each process.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import dpsample as dps
    >>> from dpsample.interop import from_jax
    >>> def log_density(theta):
    ...     return -jnp.sum(theta**2)
    >>> bridge = from_jax(log_density, 2, domain=dps.domains.Ball(1.0))
    >>> bridge.density.gradient([0.5, 0.0]).tolist()
    [1.0, 0.0]
    """
    load_library("jax", "from_jax", "jax")
    if not callable(function):
        check.fail("function", "a function of JAX arrays", check.describe(function))
    shapes = _read_shapes(dim)
    size = sum(math.prod(shape) for shape in shapes.values())
    check.integer(1, dim=size)
    body = WholeSpace() if domain is None else domain
    check.instance(Domain, domain=body, remedy="Use one of dps.domains.")
    body.check(size)

    is_named = isinstance(dim, Mapping)

    def of_vector(theta: object) -> Any:
        return function(_split(theta, shapes)) if is_named else function(theta)

    callback = _Callback(of_vector, body.interior_point(size))
    bridge = Bridge(
        density=callback.density(body, _names(shapes)),
        variables_fn=lambda points: _split(points, shapes),
    )
    # Ctrl-C during the checks of the density came in a callback, which cannot raise.
    if callback.interrupt is not None:
        raise callback.interrupt
    return bridge


class _Callback:
    """A JAX function as a C function that takes addresses.

    Parameters
    ----------
    function : callable
        Log density of a JAX array (dim,).
    point : ndarray, shape (dim,)
        Point at which it is tried.
    """

    def __init__(self, function: Callable[[Any], Any], point: Array) -> None:
        import jax
        import jax.experimental

        # Versions of JAX before 0.8 have it in their experimental part.
        module = jax if hasattr(jax, "enable_x64") else jax.experimental
        self.double_precision: Any = module.enable_x64
        self.interrupt: BaseException | None = None

        def both(theta: object) -> Any:
            value, gradient = jax.value_and_grad(function)(theta)
            # One array of both is converted in half of the time of two.
            return jax.numpy.concatenate([value[None], gradient])

        self.value, self.both = jax.jit(function), jax.jit(both)
        self.function, self.size = function, len(point)
        self.identity = self._try(point)
        self.pointer = CALLBACK(self._call)

    def _try(self, point: Array) -> str:
        """Compile the function and its gradient. Return a digest of the program."""
        import jax

        try:
            with self.double_precision(True):
                program = jax.make_jaxpr(self.function)(point)
                shapes = [value.shape for value in program.out_avals]
                reason = "" if shapes == [()] else f"one that returns shapes {shapes}"
                if not reason:
                    jax.block_until_ready((self.value(point), self.both(point)))
        except Exception as error:
            reason = _describe(error)
        if reason:
            check.fail("function", "a JAX function that returns a number", reason)
        # Arrays that the function reads are constants of its program.
        digest = hashlib.blake2b(str(program.jaxpr).encode(), digest_size=16)
        for constant in program.consts:
            digest.update(np.asarray(constant).tobytes())
        return digest.hexdigest()

    def _call(self, theta_address: int, gradient_address: int) -> float:
        """Return the value, and fill the gradient unless its address is 0."""
        try:
            theta = _doubles(theta_address, self.size)
            with self.double_precision(True):
                if gradient_address == 0:
                    return float(self.value(theta))
                result = np.asarray(self.both(theta))
            _doubles(gradient_address, self.size)[:] = result[1:]
            return float(result[0])
        except BaseException as error:
            self._defer(error, theta_address)
            return np.nan

    def _defer(self, error: BaseException, theta_address: int) -> None:
        """Keep an error of a callback, which cannot raise through the C code above."""
        if isinstance(error, Exception):
            point = check.describe(_doubles(theta_address, self.size).tolist())
            condition = f"a function that can be called at {point}"
            try:
                check.fail("function", condition, _describe(error))
            except ValueError as readable:
                pauses.defer_error(readable)
        # A Ctrl-C is raised at the end of the compiled call. If there is none, the
        # density is still being checked, and `from_jax` raises it.
        elif not pauses.defer_error(error):
            self.interrupt = error

    def density(self, domain: Domain, names: list[str]) -> Density:
        """Return the density. Its compiled functions call back."""
        call = self.pointer

        def log_density(theta: Array) -> Any:
            return call(theta.ctypes.data, 0)

        def value_and_gradient(theta: Array) -> Any:
            gradient = np.full(len(theta), np.nan)
            value = call(theta.ctypes.data, gradient.ctypes.data)
            return value, gradient

        data = UserData(None)
        functions = DensityFunctions(
            value=UserFunction("function", log_density, data, identity=self.identity),
            dim=self.size,
            gradient=UserFunction(
                "function", value_and_gradient, data, identity=self.identity
            ),
            has_both=True,
            sign=-1.0,
        )
        return Density(
            functions=functions,
            dim=self.size,
            domain=domain,
            convex=False,
            feature_names=names,
        )


def _doubles(address: int, count: int) -> Array:
    """Return the array at an address, without a copy."""
    return np.ctypeslib.as_array((ctypes.c_double * count).from_address(address))


def _describe(error: Exception) -> str:
    """Return the type of an error, and the line of its text that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # JAX puts the traceback of a callback into the text. The error is its last line.
    has_traceback = any("Traceback" in line for line in lines)
    text = "".join(lines[-1:] if has_traceback else lines[:1])
    return f"{type(error).__name__}: {text}"


def _read_shapes(
    dim: int | Mapping[str, int | tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each variable. A vector has the name theta."""
    if not isinstance(dim, Mapping):
        check.integer(1, dim=dim)
        return {"theta": (int(dim),)}
    shapes = {}
    for name, shape in dim.items():
        sides = shape if isinstance(shape, tuple) else (shape,)
        for side in sides:
            check.integer(1, dim=side)
        shapes[str(name)] = tuple(int(side) for side in sides)
    return shapes


def _split(points: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the variables of points (..., dim), each of shape (..., *shape)."""
    variables, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        variables[name] = points[..., start:stop].reshape(*points.shape[:-1], *shape)
        start = stop
    return variables


def _names(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return the names of all coefficients, such as slopes[0]."""
    return [name for item in shapes.items() for name in entry_names(*item)]
