"""Functions r that are 1-strongly convex in a norm: they fix the shape of the noise."""

from dpsample.core import spec
from dpsample.core.public import dir_of
from dpsample.regularizers.regularizer import (
    REG_GRADIENT,
    REG_VALUE,
    REGULARIZER,
    Entropy,
    Regularizer,
    RegularizerParams,
    SchattenSquared,
    SquaredNorm,
    optimal_exponent,
)

__all__ = [
    "REGULARIZER",
    "REG_GRADIENT",
    "REG_VALUE",
    "Entropy",
    "Regularizer",
    "RegularizerParams",
    "SchattenSquared",
    "SquaredNorm",
    "from_dict",
    "optimal_exponent",
]
__dir__ = dir_of(__all__)

KINDS = (SquaredNorm, Entropy, SchattenSquared)


def from_dict(data: spec.Json) -> Regularizer:
    """Rebuild a regularizer from its ``to_dict``.

    Parameters
    ----------
    data : dict
        Name and fields of the regularizer.

    Returns
    -------
    Regularizer
        A regularizer equal to the one described.

    Raises
    ------
    ValueError
        If the name is unknown or a field is not valid.

    Examples
    --------
    >>> from_dict({"name": "squared_norm", "p": 1.5})
    SquaredNorm(p=1.5, center=None, variant='optimized')
    """
    return spec.from_dict(KINDS, data)
