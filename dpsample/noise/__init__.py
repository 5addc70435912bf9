"""Noise for private mechanisms: exact draws, normalized densities, compiled fills."""

from dpsample import domains
from dpsample.core import spec
from dpsample.core.public import dir_of
from dpsample.core.spec import Json
from dpsample.noise.cone import (
    ConeTable,
    SchattenPlan,
    cone_table,
    fill_schatten_gaussian,
)
from dpsample.noise.elementary import (
    DiscreteLaplace,
    Gaussian,
    Laplace,
    gaussian,
    laplace,
)
from dpsample.noise.generalized_gaussian import (
    GeneralizedGaussian,
    fill_gaussian,
    fill_generalized_gaussian,
    fill_laplace,
    generalized_gaussian,
)
from dpsample.noise.k_norm import KNorm, KNormTable, fill_k_norm, k_norm, k_norm_table
from dpsample.noise.mechanism import AdditiveMechanism, NoisyAnswer
from dpsample.noise.mechanisms import (
    gaussian_mechanism,
    generalized_gaussian_mechanism,
    geometric_mechanism,
    k_norm_mechanism,
    laplace_mechanism,
    schatten_gaussian_mechanism,
)
from dpsample.noise.noise import Noise
from dpsample.noise.schatten import SchattenGaussian, schatten_gaussian, schatten_plan

__all__ = [
    "AdditiveMechanism",
    "ConeTable",
    "DiscreteLaplace",
    "Gaussian",
    "GeneralizedGaussian",
    "KNorm",
    "KNormTable",
    "Laplace",
    "Noise",
    "NoisyAnswer",
    "SchattenGaussian",
    "SchattenPlan",
    "cone_table",
    "fill_gaussian",
    "fill_generalized_gaussian",
    "fill_k_norm",
    "fill_laplace",
    "fill_schatten_gaussian",
    "from_dict",
    "gaussian",
    "gaussian_mechanism",
    "generalized_gaussian",
    "generalized_gaussian_mechanism",
    "geometric_mechanism",
    "k_norm",
    "k_norm_mechanism",
    "k_norm_table",
    "laplace",
    "laplace_mechanism",
    "schatten_gaussian",
    "schatten_gaussian_mechanism",
    "schatten_plan",
]
__dir__ = dir_of(__all__)

KINDS: tuple[type[Noise], ...] = (
    Gaussian,
    Laplace,
    DiscreteLaplace,
    GeneralizedGaussian,
    SchattenGaussian,
    KNorm,
)


def from_dict(data: Json) -> Noise:
    """Rebuild a noise from its ``to_dict``.

    Parameters
    ----------
    data : dict
        Name and fields of the noise.

    Returns
    -------
    Noise
        A noise equal to the one described.

    Raises
    ------
    ValueError
        If the name is unknown or a field is not valid.

    Examples
    --------
    >>> from_dict({"name": "gaussian", "stddev": 2.0})
    Gaussian(stddev=2.0)
    """
    if isinstance(data, dict) and isinstance(data.get("domain"), dict):
        data = data | {"domain": domains.from_dict(data["domain"])}
    return spec.from_dict(KINDS, data)
