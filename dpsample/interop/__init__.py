"""Models of other libraries as densities: PyMC, BridgeStan and JAX.

Each function needs its library, for which there is an extra of the same name, as in
``pip install 'dpsample[pymc]'``. Importing this package loads none of them.
"""

from dpsample.core.public import dir_of
from dpsample.interop.bridge import Bridge
from dpsample.interop.jax_functions import from_jax
from dpsample.interop.pymc_models import from_pymc
from dpsample.interop.stan_models import from_bridgestan

__all__ = ["Bridge", "from_bridgestan", "from_jax", "from_pymc"]

__dir__ = dir_of(__all__)
