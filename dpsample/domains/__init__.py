"""Closed convex sets of parameters, each with compiled pieces and exact bounds."""

from dpsample.core import spec
from dpsample.core.public import dir_of
from dpsample.domains.ball import Ball
from dpsample.domains.box import Box
from dpsample.domains.custom import custom
from dpsample.domains.domain import (
    BODY,
    CHORD,
    CONTAINS,
    PROJECT,
    Body,
    Domain,
    Width,
)
from dpsample.domains.ellipsoid import Ellipsoid
from dpsample.domains.intersection import Intersection
from dpsample.domains.polytope import Polytope
from dpsample.domains.schatten_ball import SchattenBall
from dpsample.domains.simplex import Simplex
from dpsample.domains.whole_space import WholeSpace

__all__ = [
    "BODY",
    "CHORD",
    "CONTAINS",
    "PROJECT",
    "Ball",
    "Body",
    "Box",
    "Domain",
    "Ellipsoid",
    "Intersection",
    "Polytope",
    "SchattenBall",
    "Simplex",
    "WholeSpace",
    "Width",
    "custom",
    "from_dict",
]
__dir__ = dir_of(__all__)

KINDS = (WholeSpace, Ball, Box, Simplex, Polytope, SchattenBall)


def from_dict(data: spec.Json) -> Domain:
    """Rebuild a domain from its ``to_dict``.

    Parameters
    ----------
    data : dict
        Name and fields of the domain.

    Returns
    -------
    Domain
        A domain equal to the one described.

    Raises
    ------
    ValueError
        If the name is unknown or a field is not valid.

    Examples
    --------
    >>> from_dict({"name": "ball", "radius": 1.0, "p": "inf", "center": None})
    Ball(radius=1.0, p=inf, center=None)
    """
    return spec.from_dict(KINDS, data)
