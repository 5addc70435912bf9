"""A density made from a model of another library, and the way back to its variables."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.targets.density import Density

if TYPE_CHECKING:
    from xarray import DataTree


@dataclass(frozen=True, kw_only=True, eq=False)
class Bridge:
    """A model of another library as a density.

    Attributes
    ----------
    density : Density
        The density over the vector of unconstrained coefficients. `dpsample.sample`
        and diagnostics take it.
    variables_fn : callable
        Function from points of shape (num_points, dim) to the variables of the model.
    dims : dict of str to tuple of str
        Names of the dimensions of variables, for those that have names.
    coords : dict of str to sequence
        Coordinates of dimensions, for those that have coordinates.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from dpsample.interop import from_jax
    >>> def log_density(parameters):
    ...     return -0.5 * jnp.sum(parameters["slopes"] ** 2)
    >>> bridge = from_jax(log_density, {"slopes": (2,)})
    >>> bridge.density.energy([1.0, 1.0])
    1.0
    """

    density: Density
    # Maps points (num_points, dim) to each variable, (num_points, *shape).
    variables_fn: Callable[[Array], Mapping[str, Array]] = field(repr=False)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def unpack(self, tree: DataTree) -> DataTree:
        """Return draws with the variables of the model in place of ``theta``.

        Parameters
        ----------
        tree : DataTree
            Draws of `dpsample.sample` from `density`.

        Returns
        -------
        DataTree
            A tree in which the group ``posterior`` has the model's variables, each of
            shape (chain, draw, ...). Groups without ``theta`` stay as they are.

        Raises
        ------
        ValueError
            If the tree has no draws, or draws of another number of coefficients.
        """
        import xarray as xr

        check.instance(xr.DataTree, tree=tree)
        dim = self.density.dim
        groups = {
            name: group
            for name, group in tree.children.items()
            if "theta" in group.data_vars
        }
        if "posterior" not in groups:
            check.fail("tree", "draws of dps.sample", "a tree without theta")
        unpacked = tree.copy()
        for name, group in groups.items():
            draws: Array = group.to_dataset()["theta"].to_numpy()
            if draws.shape[2:] != (dim,):
                got = f"shape {draws.shape}"
                check.fail("tree", f"draws of shape (chain, draw, {dim})", got)
            dataset = group.to_dataset(inherit=False)
            unpacked[name] = xr.DataTree(self._dataset(dataset, draws))
        return unpacked

    def _dataset(self, dataset: Any, draws: Array) -> Any:
        """Return draws (chain, draw, dim) as a dataset of the model's variables."""
        num_chains, num_draws, dim = draws.shape
        points = np.ascontiguousarray(draws.reshape(-1, dim))
        variables, coords = {}, {}
        for name, values in self.variables_fn(points).items():
            shape = values.shape[1:]
            default = tuple(f"{name}_dim_{axis}" for axis in range(len(shape)))
            dims = tuple(self.dims.get(name, default))
            if len(dims) != len(shape):
                dims = default
            chains = values.reshape(num_chains, num_draws, *shape)
            variables[name] = (("chain", "draw", *dims), chains)
            for dimension, size in zip(dims, shape, strict=True):
                coords[dimension] = self.coords.get(dimension, range(size))
        # Coordinates of chains and draws, such as superchains, are kept.
        others = dataset.drop_vars(["theta", "coefficient"], errors="ignore")
        new = {key: (key, list(values)) for key, values in coords.items()}
        return others.assign_coords(new).assign(variables)


def load_library(name: str, function: str, extra: str) -> Any:
    """Import an optional library. If it is missing, the ImportError names the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise check.missing_library(function, name, extra) from error


def entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return the names of a variable's entries, such as slopes[0, 1], in C order."""
    if not shape:
        return [name]
    indices = (", ".join(map(str, index)) for index in np.ndindex(*shape))
    return [f"{name}[{index}]" for index in indices]
