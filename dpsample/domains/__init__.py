"""Closed convex sets of parameters, each with compiled pieces and exact bounds."""

from __future__ import annotations

from typing import Any

from dpsample import _spec
from dpsample._public import dir_of
from dpsample.domains._ball import Ball
from dpsample.domains._box import Box
from dpsample.domains._domain import BODY, CHORD, CONTAINS, PROJECT, Body, Domain
from dpsample.domains._polytope import Polytope
from dpsample.domains._schatten_ball import SchattenBall
from dpsample.domains._simplex import Simplex
from dpsample.domains._whole_space import WholeSpace
from dpsample.domains._width import Width

__all__ = [
    "BODY",
    "CHORD",
    "CONTAINS",
    "PROJECT",
    "Ball",
    "Body",
    "Box",
    "Domain",
    "Polytope",
    "SchattenBall",
    "Simplex",
    "WholeSpace",
    "Width",
    "from_dict",
]
__dir__ = dir_of(__all__)

KINDS: tuple[type[Domain], ...] = (
    WholeSpace,
    Ball,
    Box,
    Simplex,
    Polytope,
    SchattenBall,
)


def from_dict(data: dict[str, Any]) -> Domain:
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
    return _spec.from_dict(KINDS, data)
