"""A density from a PyMC model, whose log density PyTensor compiles with Numba.

The compiled function is called by compiled chains, so no Python is in the loop. Data of
the model are arguments of the function and not constants of its code, which therefore
compiles as fast for many records as for few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.user_functions import ENTRY_TYPES, UserData, UserFunction
from dpsample.domains import WholeSpace
from dpsample.interop.bridge import Bridge, entry_names, load_library
from dpsample.targets.density import Density
from dpsample.targets.density_functions import DensityFunctions

if TYPE_CHECKING:
    from pymc import Model


def from_pymc(model: Model) -> Bridge:
    r"""Return the density of a PyMC model on its unconstrained space.

    The log density is that of `pymc.Model.logp`, with the Jacobian of PyMC's
    transforms. PyTensor compiles it and its gradient with Numba, which takes some
    seconds, and the compiled chains of this package call it directly.

    Parameters
    ----------
    model : pymc.Model
        A model of continuous variables. Its data are copied, so that a later
        `pymc.set_data` does not change the density.

    Returns
    -------
    Bridge
        The density, and `Bridge.unpack`, which returns draws of variables and
        deterministics under their names, with the model's dims and coords.

    Raises
    ------
    ImportError
        If PyMC is missing.
    ValueError
        If the model has discrete variables or none, or its density is not finite at 0
        in the unconstrained space.

    Notes
    -----
    **Guarantee.** None of privacy, see `Density`. Chains keep the density of the model
    exactly invariant. A density cannot be pickled: make it again in each process.

    Examples
    --------
    >>> import pymc as pm
    >>> from dpsample.interop import from_pymc
    >>> with pm.Model() as model:
    ...     scale = pm.HalfNormal("scale", 1.0)
    >>> bridge = from_pymc(model)
    >>> bridge.density.feature_names
    ('scale_log__',)
    """
    library = load_library("pymc", "from_pymc", "pymc")
    check.instance(library.Model, model=model)
    if model.discrete_value_vars:
        discrete = ", ".join(variable.name for variable in model.discrete_value_vars)
        remedy = "Sum over their values, as pymc_extras.marginalize does."
        check.fail("model", "of continuous variables", f"discrete {discrete}", remedy)
    if not model.value_vars:
        check.fail("model", "one with variables", "none to draw")
    point = model.initial_point()
    shapes = {v.name: np.shape(point[v.name]) for v in model.value_vars}
    functions = _functions(model, point)
    names = [name for item in shapes.items() for name in entry_names(*item)]
    density = Density(
        functions=functions,
        dim=len(names),
        domain=WholeSpace(),
        convex=False,
        feature_names=names,
    )
    return Bridge(
        density=density,
        variables_fn=_variables_fn(model, point),
        dims={name: tuple(dims) for name, dims in model.named_vars_to_dims.items()},
        coords={name: c for name, c in model.coords.items() if c is not None},
    )


def _functions(model: Any, point: dict[str, Array]) -> DensityFunctions:
    """Return the log density and its gradient, which Numba calls."""
    import pytensor
    from pymc.pytensorf import join_nonshared_inputs
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.replace import graph_replace

    (value,), theta = join_nonshared_inputs(point, [model.logp()], model.value_vars)
    program = [value, pytensor.grad(value, theta)]
    replaced, arguments, arrays = {}, [], []
    for variable, array in _leaves(program):
        # Arrays of fewer entries stay constants, from which PyTensor simplifies the
        # program.
        if array.size >= 32 and array.dtype.name in ENTRY_TYPES:
            replaced[variable] = variable.type()
            arguments.append(replaced[variable])
            arrays.append(array)
        elif isinstance(variable, SharedVariable):
            # Numbers such as sizes of dimensions may not change later.
            replaced[variable] = pytensor.tensor.constant(array)
    program = graph_replace(program, replaced, strict=False)
    # Where parameters of a distribution are invalid, as a scale that is rounded to 0,
    # the density is 0. An exception could not leave compiled code.
    rewrite = "local_check_parameter_to_ninf_switch"
    mode = pytensor.compile.get_mode("NUMBA").including(rewrite)
    function = pytensor.function(
        [theta, *arguments], program, mode=mode, trust_input=True
    )
    compiled = function.vm.jit_fn

    # PyTensor's types of arguments are those of arrays that can be written to.
    def value_of_data(theta: Array, data: Any) -> Any:
        return compiled(theta.copy(), *data)[0].item()

    def both_of_data(theta: Array, data: Any) -> Any:
        value, gradient = compiled(theta.copy(), *data)
        return value.item(), gradient

    def value_alone(theta: Array) -> Any:
        return compiled(theta.copy())[0].item()

    def both_alone(theta: Array) -> Any:
        value, gradient = compiled(theta.copy())
        return value.item(), gradient

    value_fn: Callable[..., Any] = value_of_data if arrays else value_alone
    both_fn: Callable[..., Any] = both_of_data if arrays else both_alone
    data, identity = UserData(tuple(arrays) or None), _identity(program)
    return DensityFunctions(
        value=UserFunction("model", value_fn, data, identity=identity),
        dim=sum(int(np.size(part)) for part in point.values()),
        gradient=UserFunction("model", both_fn, data, identity=identity),
        has_both=True,
        sign=-1.0,
    )


def _leaves(program: list[Any]) -> list[tuple[Any, Array]]:
    """Return shared variables and constants of a program, with their values."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import ancestors

    leaves = []
    for variable in ancestors(program):
        if not hasattr(variable.type, "dtype"):
            continue
        if isinstance(variable, SharedVariable):
            leaves.append((variable, np.asarray(variable.get_value())))
        elif isinstance(variable, Constant):
            leaves.append((variable, np.asarray(variable.data)))
    return leaves


def _identity(program: list[Any]) -> str:
    """Return a text that changes with the operations and the constants."""
    from pytensor.printing import debugprint

    digest = hashlib.blake2b(debugprint(program, file="str").encode(), digest_size=16)
    # The printed program shows the first and last entries of long constants only.
    for _, array in _leaves(program):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _variables_fn(
    model: Any, point: dict[str, Array]
) -> Callable[[Array], dict[str, Array]]:
    """Return the map from unconstrained points to variables and deterministics."""
    import pytensor
    from pymc.pytensorf import join_nonshared_inputs
    from pytensor.graph.replace import vectorize_graph

    names = [v.name for v in [*model.free_RVs, *model.deterministics]]
    of_name = {v.name: v for v in model.unobserved_value_vars}
    outputs, theta = join_nonshared_inputs(
        point, [of_name[name] for name in names], model.value_vars
    )
    points = pytensor.tensor.matrix("points", dtype="float64")
    # Arrays of all points at once need no compiled code.
    function = pytensor.function(
        [points],
        vectorize_graph(outputs, {theta: points}),
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )

    def variables(points: Array) -> dict[str, Array]:
        arrays = dict(zip(names, function(points), strict=True))
        # A deterministic that depends on no variable has no axis of points.
        return {
            name: a if len(a) == len(points) else np.broadcast_to(a, (len(points),))
            for name, a in arrays.items()
        }

    return variables
