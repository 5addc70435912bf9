"""A density from a Stan model: compiled code calls its C functions by their addresses.

BridgeStan's shared library has ``bs_log_density`` and ``bs_log_density_gradient``. Both
take the address of the model and addresses of arrays, so no Python is in the loop. Stan
stores derivatives in memory that all threads share, unless the model is compiled with
STAN_THREADS. Without it a mutex lets one thread evaluate at a time.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.c_functions import c_function, one_thread_at_a_time
from dpsample.core.user_functions import UserData, UserFunction
from dpsample.domains import WholeSpace
from dpsample.interop.bridge import Bridge, load_library
from dpsample.targets.density import Density
from dpsample.targets.density_functions import DensityFunctions

if TYPE_CHECKING:
    from bridgestan import StanModel

# int f(model, propto, jacobian, theta, addresses of results..., error message). It
# returns 0, or another number after an exception.
FLAGS = (ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool)
# The base of a name and its indices, as in "slopes.1.2".
INDEXED = re.compile(r"(.*?)((?:\.\d+)*)")


def from_bridgestan(model: StanModel) -> Bridge:
    r"""Return the density of a Stan model on its unconstrained space.

    The log density is Stan's, with constants and with the Jacobian of its transforms.
    Compiled chains call its C functions, so an evaluation takes what Stan takes.

    Parameters
    ----------
    model : bridgestan.StanModel
        A model with its data.

    Returns
    -------
    Bridge
        The density, and `Bridge.unpack`, which returns draws of parameters and
        transformed parameters under their names, in Stan's constraints. Generated
        quantities are left out.

    Raises
    ------
    ImportError
        If BridgeStan is missing.
    ValueError
        If the model has no parameters, or no finite density at 0 in the unconstrained
        space. Then it has no start.

    Notes
    -----
    **Guarantee.** None of privacy, see `Density`. Where Stan raises an exception the
    density counts as 0, as Stan's own samplers reject such points. Only models that are
    compiled with ``STAN_THREADS=true`` are evaluated in several threads at once. A
    density cannot be pickled: make it again in each process.

    Examples
    --------
    >>> import bridgestan
    >>> from dpsample.interop import from_bridgestan
    >>> model = bridgestan.StanModel("regression.stan", "data.json")  # doctest: +SKIP
    >>> bridge = from_bridgestan(model)  # doctest: +SKIP
    """
    library = load_library("bridgestan", "from_bridgestan", "bridgestan")
    remedy = "Use bridgestan.StanModel(file, data)."
    check.instance(library.StanModel, model=model, remedy=remedy)
    dim = model.param_unc_num()
    if dim < 1:
        check.fail("model", "one with parameters", f"{model.name()} without any")
    _try_at_zero(model, dim)
    log_density, value_and_gradient = _functions(model)
    data, identity = UserData(None), _identity(model)
    functions = DensityFunctions(
        value=UserFunction("model", log_density, data, identity=identity),
        dim=dim,
        gradient=UserFunction("model", value_and_gradient, data, identity=identity),
        has_both=True,
        sign=-1.0,
    )
    density = Density(
        functions=functions,
        dim=dim,
        domain=WholeSpace(),
        convex=False,
        feature_names=model.param_unc_names(),
    )
    return Bridge(density=density, variables_fn=_variables_fn(model))


def _try_at_zero(model: Any, dim: int) -> None:
    """Evaluate the model in Python, where an exception of Stan has its text."""
    try:
        value = model.log_density(np.zeros(dim), propto=False, jacobian=True)
        reason = "" if np.isfinite(value) else f"{value}"
    except RuntimeError as error:
        reason = " ".join(str(error).split())
    if reason:
        condition = "of finite log density at 0 in the unconstrained space"
        check.fail("model", condition, reason)


def _functions(model: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return functions that Numba compiles: the value, and both with the gradient.

    They keep the model in memory, whose address they contain.
    """
    library, address = model.stanlib, ctypes.c_void_p
    value_of = c_function(library, "bs_log_density", *FLAGS, *[address] * 3)
    both_of = c_function(library, "bs_log_density_gradient", *FLAGS, *[address] * 4)
    handle = int(model.model)

    def evaluate_value(theta: Array) -> Any:
        out = np.empty(1)
        # No constant is dropped, and the Jacobian is included. There is no message.
        code = value_of(handle, False, True, theta.ctypes.data, out.ctypes.data, 0)
        return out[0] if code == 0 else -np.inf

    def evaluate_both(theta: Array) -> Any:
        out, gradient = np.empty(1), np.full(len(theta), np.nan)
        point, result, slope = theta.ctypes.data, out.ctypes.data, gradient.ctypes.data
        code = both_of(handle, False, True, point, result, slope, 0)
        return (out[0] if code == 0 else -np.inf), gradient

    functions: list[Callable[[Array], Any]] = [evaluate_value, evaluate_both]
    if "STAN_THREADS=true" not in model.model_info().replace(" ", ""):
        remedy = 'Compile it with make_args=["STAN_THREADS=true"].'
        functions = one_thread_at_a_time("model", functions, remedy)
    for function in functions:
        vars(function)["model"] = model
    return functions[0], functions[1]


def _identity(model: Any) -> str:
    """Return a text that changes with the program, its data and its seed."""
    digest = hashlib.blake2b(Path(model.lib_path).read_bytes(), digest_size=16)
    digest.update(f"{model.data} {model.seed}".encode())
    return digest.hexdigest()


def _variables_fn(model: Any) -> Callable[[Array], dict[str, Array]]:
    """Return the map from unconstrained points to the model's variables."""
    names = model.param_names(include_tp=True, include_gq=False)
    columns_of: dict[str, dict[tuple[int, ...], int]] = {}
    for column, name in enumerate(names):
        match = INDEXED.fullmatch(name)
        assert match is not None
        base, indices = match.groups()
        index = tuple(int(number) - 1 for number in indices.split(".")[1:])
        columns_of.setdefault(base, {})[index] = column

    def variables(points: Array) -> dict[str, Array]:
        rows = np.array([model.param_constrain(p, include_tp=True) for p in points])
        arranged = {}
        for base, column_of in columns_of.items():
            shape = tuple(max(sides) + 1 for sides in zip(*column_of, strict=True))
            # In Stan's names the first index changes fastest, here the last one.
            columns = [column_of[index] for index in np.ndindex(*shape)]
            arranged[base] = rows[:, columns].reshape(len(rows), *shape)
        return arranged

    return variables
